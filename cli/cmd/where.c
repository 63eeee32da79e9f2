/* SPDX-License-Identifier: Apache-2.0 */
/* where.c - kvtool where: from a byte to what it means, and back */
#include "lib/ops/where/where.h"

#include <string.h>

enum { MAX_ANSWERS = 2 * sizeof(((struct opt_strings *)0)->s) / sizeof(char *) };

/* ---- both ways ---------------------------------------------------------- */

/* The offsets of an element, wherever it has one. */
static enum kvt_status locate(struct answer *a, const struct where *w,
			      struct kvt_error *err)
{
	const struct kvt_place *p = &a->place;
	enum kvt_status status;

	a->in_files = !kvt_dump_tiling(w->reader, p->group);
	a->in_memory = true;
	if (a->in_files &&
	    (status = kvt_dump_locate(&a->file, &a->file_offset, w->reader, KVT_FILES,
					p->group, p->index, err)))
		return status;
	if ((status = kvt_dump_locate(&a->tensor, &a->memory_offset, w->reader,
					KVT_MEMORY, p->group, p->index, err)))
		return status;
	a->file_offset += p->byte;
	a->memory_offset += p->byte;
	return KVT_OK;
}

static enum kvt_status answer_at(struct answer *a, const struct where *w,
				 struct kvt_error *err)
{
	enum kvt_status status = where_parse_at(&a->place, w, a->query, err);

	return status ? status : locate(a, w, err);
}

/* "1234" or "0x4d2", behind the name of a file or a group where there are several. */
static enum kvt_status parse_offset(int64_t *buffer, int64_t *offset,
				    const struct where *w, const char *text,
				    struct kvt_error *err)
{
	const char *colon = strrchr(text, ':');
	char name[4096];

	if (!where_number(offset, colon ? colon + 1 : text))
		return kvt_fail(err, KVT_USAGE,
				"--offset is '%.200s', expected a whole number, or NAME:number",
				text);
	if (!colon)
		return kvt_dump_find_buffer(buffer, w->reader, w->space, NULL, err);
	if (snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text) >=
	    (int)sizeof(name))
		return kvt_fail(err, KVT_USAGE, "--offset: the name is too long");
	return kvt_dump_find_buffer(buffer, w->reader, w->space, name, err);
}

static enum kvt_status answer_offset(struct answer *a, const struct where *w,
				     struct kvt_error *err)
{
	bool memory = w->space == KVT_MEMORY;
	int64_t buffer, offset;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = parse_offset(&buffer, &offset, w, a->query, err)))
		return status;
	status = kvt_dump_at(&a->place, w->reader, w->space, buffer, offset, &why);
	if (status)
		return kvt_fail(err, status, "%.460s%s", why.text,
				status == KVT_UNSUPPORTED ? "; use --memory" : "");
	if (a->place.region == KVT_ELEMENT)
		return locate(a, w, err);
	a->in_files = !memory;
	a->in_memory = memory;
	a->file = a->tensor = buffer;
	a->file_offset = a->memory_offset = offset;
	return KVT_OK;
}

/* ---- the command -------------------------------------------------------- */

static enum kvt_status print_answers(const struct where *w, const struct answer *a,
				     int n, bool json, struct kvt_error *err)
{
	struct json_out out = { NULL, false };
	enum kvt_status status;

	if (!json) {
		for (int i = 0; i < n; i++)
			where_text(w, &a[i]);
		return KVT_OK;
	}
	where_json(&out, w, a, n);
	status = json_print(&out, false, err);
	json_free(&out);
	return status;
}

static enum kvt_status answer_all(const struct where *w,
				  const struct opt_strings *offsets,
				  const struct opt_strings *ats, bool json,
				  struct kvt_error *err)
{
	struct answer a[MAX_ANSWERS];
	enum kvt_status status;
	int n = 0;

	for (int i = 0; i < offsets->n; i++) {
		a[n] = (struct answer){ .option = "offset", .query = offsets->s[i] };
		if ((status = answer_offset(&a[n++], w, err)))
			return status;
	}
	for (int i = 0; i < ats->n; i++) {
		a[n] = (struct answer){ .option = "at", .query = ats->s[i] };
		if ((status = answer_at(&a[n++], w, err)))
			return status;
	}
	return print_answers(w, a, n, json, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct opt_strings offsets = { 0 }, ats = { 0 };
	struct kvt_hints hints = { .manifest = NULL };
	struct where w = { .space = KVT_FILES };
	bool json = false, memory = false;
	const struct opt opts[] = {
		{ "offset", 0, OPT_STRINGS, &offsets, "[NAME:]N",
		  "what byte N of the file, or of file NAME of a folder, belongs to" },
		{ "at", 0, OPT_STRINGS, &ats, "KEY=VALUE,...",
		  "where the element with this coordinate is" },
		{ "memory", 0, OPT_FLAG, &memory, NULL,
		  "--offset counts in the engine's tensor, or that of group NAME" },
		OPT_JSON(&json),
		OPT_INPUT(&hints),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&cmd_where, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (n != 1)
		return kvt_fail(err, KVT_USAGE, "expected one file, got %d", n);
	if (!offsets.n && !ats.n)
		return kvt_fail(err, KVT_USAGE, "expected --offset or --at");
	if ((status = kvt_open(&w.reader, argv[0], &hints, err)))
		return status;
	w.path = argv[0];
	w.snapshot = kvt_dump_snapshot(w.reader);
	w.space = memory ? KVT_MEMORY : KVT_FILES;
	status = answer_all(&w, &offsets, &ats, json, err);
	kvt_dump_close(w.reader);
	return status;
}

const struct command cmd_where = {
	.name    = "where",
	.args    = "{--offset=N | --at=KEY=VALUE,...}... FILE",
	.summary = "what a byte of a dump means, or where an element is",
	.run     = run,
	.examples =
		"  kvtool where --offset=330104 dump.npy\n"
		"  kvtool where --at=layer=3,block=17,state=5,head=2,kv=v,dim=4 dump.npy\n"
		"  kvtool where --at=request=A,token=130,layer=3,head=2,kv=k,dim=0 "
		"dump.h5\n"
		"  kvtool where --memory --offset=0x50000 dump.h5\n",
};
