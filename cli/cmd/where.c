/* SPDX-License-Identifier: Apache-2.0 */
/*
 * where.c - kvtool where: from a byte to what it means, and back
 *
 *	FILE		the first operand that is a file or no question, else the last one
 *	OFFSET		330584 or 0x50b58, perhaps with a name and a colon before it
 *	KEY=VALUE,..	a coordinate, which goes on in the next one with another key
 *
 * All questions are asked of lib/ops/where, offsets first, and then all answers are
 * printed: a wrong one ends the command with nothing printed.  No data is read.
 */
#include "cli/opt.h"
#include "print/where.h"

#include <string.h>
#include <unistd.h>

enum { MAX_ANSWERS = 2 * sizeof(((struct opt_strings *)0)->s) / sizeof(char *) };

/* What the command line asks. */
struct asked {
	const char *path;
	struct opt_strings offsets, ats;
	enum kvt_space space;		/* that --offset counts in */
	bool json;
	char joined[4096];		/* coordinates that were given in several words */
	size_t njoined;
};

static enum kvt_status print_answers(const struct asked *asked, struct kvt_dump *dump,
				     const struct where_answer *a, int n,
				     struct kvt_error *err)
{
	struct json_out out = { NULL, false };

	if (!asked->json) {
		for (int i = 0; i < n; i++)
			where_text(asked->path, dump, &a[i]);
		return KVT_OK;
	}
	where_json(&out, asked->path, dump, a, n);
	return json_print(&out, false, err);
}

/* All are answered before any is printed: a wrong question leaves no half of a list. */
static enum kvt_status answer(const struct asked *asked, struct kvt_dump *dump,
			      struct kvt_error *err)
{
	struct where_answer a[MAX_ANSWERS];
	enum kvt_status status;
	int n = 0;

	for (int i = 0; i < asked->offsets.n; i++, n++) {
		a[n].option = "offset";
		a[n].query = asked->offsets.s[i];
		if ((status = kvt_where_offset(&a[n].is, dump, asked->space, a[n].query,
					       err)))
			return status;
	}
	for (int i = 0; i < asked->ats.n; i++, n++) {
		a[n].option = "at";
		a[n].query = asked->ats.s[i];
		if ((status = kvt_where_at(&a[n].is, dump, a[n].query, err)))
			return status;
	}
	return print_answers(asked, dump, a, n, err);
}

/* "330584", "0x50b58" or "g0:5", as --offset takes it. */
static bool is_offset(const char *text)
{
	const char *colon = strrchr(text, ':'), *digits = colon ? colon + 1 : text;
	bool hex = !strncmp(digits, "0x", 2);

	digits += hex ? 2 : 0;
	return *digits && !digits[strspn(digits, hex ? "0123456789abcdefABCDEF" :
					 "0123456789")];
}

static bool is_file(const char *text)
{
	return !access(text, F_OK);
}

/* Is the key of 'text' not in the last coordinate yet?  Blanks may separate keys. */
static bool continues(const struct opt_strings *list, const char *text)
{
	size_t n = strcspn(text, "=") + 1;
	const char *last = list->n ? list->s[list->n - 1] : NULL;

	for (const char *p = last; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, text, n))
			return false;
	return last != NULL;
}

static enum kvt_status join(struct asked *asked, struct opt_strings *list,
			    const char *text, struct kvt_error *err)
{
	const char *last = list->s[list->n - 1];
	size_t room = sizeof(asked->joined) - asked->njoined;
	char *to = asked->joined + asked->njoined;
	int n = snprintf(to, room, "%s,%s", last, text);

	if (n < 0 || (size_t)n >= room)
		return kvt_fail(err, KVT_USAGE, "'%.100s' is too long", last);
	asked->njoined += (size_t)n + 1;
	list->s[list->n - 1] = to;
	return KVT_OK;
}

/*
 * FILE, and then what is asked of it: bytes and coordinates, instead of --offset and
 * --at.  A question that comes first is taken, too, if there is no such file.
 */
static enum kvt_status take_operands(struct asked *asked, char **argv, int n,
				     struct kvt_error *err)
{
	enum { MOST = sizeof(asked->ats.s) / sizeof(asked->ats.s[0]) };
	enum kvt_status status;

	for (int i = 0; i < n; i++) {
		bool offset = is_offset(argv[i]);
		struct opt_strings *list = offset ? &asked->offsets : &asked->ats;

		if (!asked->path && (i == n - 1 || is_file(argv[i]) ||
				     !(offset || strchr(argv[i], '=')))) {
			asked->path = argv[i];
			continue;
		}
		if (!offset && !strchr(argv[i], '='))
			return kvt_fail(err, KVT_USAGE,
					"'%.100s' is neither an offset nor KEY=VALUE,...; expected one FILE, then offsets or coordinates",
					argv[i]);
		if (list->n == MOST)
			return kvt_fail(err, KVT_USAGE, "expected at most %d questions",
					MOST);
		if (!offset && continues(list, argv[i])) {
			if ((status = join(asked, list, argv[i], err)))
				return status;
			continue;
		}
		list->s[list->n++] = argv[i];
	}
	return KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked asked = { .path = NULL };
	struct kvt_hints hints = { .manifest = NULL };
	struct kvt_dump *dump;
	bool memory = false;
	const struct opt opts[] = {
		{ "offset", 0, OPT_STRINGS, &asked.offsets, "[NAME:]N", NULL },
		{ "at", 0, OPT_STRINGS, &asked.ats, "KEY=VALUE,...", NULL },
		{ "memory", 0, OPT_FLAG, &memory, NULL,
		  "OFFSET counts in the engine's tensor, or that of group NAME" },
		OPT_JSON(&asked.json),
		OPT_INPUT(&hints),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&cmd_where, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if ((status = take_operands(&asked, argv, n, err)) ||
	    (status = opt_need(&cmd_where, (struct opt_need[]){
			{ asked.path, "a file" },
			{ asked.offsets.n || asked.ats.n, "an offset or KEY=VALUE,..." },
			{ 0 } }, err)) ||
	    (status = kvt_open(&dump, asked.path, &hints, err)))
		return status;
	asked.space = memory ? KVT_MEMORY : KVT_FILES;
	status = answer(&asked, dump, err);
	kvt_dump_close(dump);
	return status;
}

const struct command cmd_where = {
	.name    = "where",
	.args    = "FILE {OFFSET | KEY=VALUE,...}...",
	.summary = "find the element of a byte, or the bytes of an element",
	.run     = run,
	.examples =
		"  kvtool where dump.npy 330104\n"
		"  kvtool where dump.npy layer=3,block=17,slot=5,head=2,kv=v,dim=4\n"
		"  kvtool where --at=request=A,token=130,layer=3,head=2,kv=k,dim=0 dump.h5\n"
		"  kvtool where --memory dump.h5 0x50000\n",
};
