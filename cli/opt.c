/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt.c - option tables on top of getopt_long
 *
 * getopt_long also accepts an abbreviation that only one option begins with.  A later
 * option would break it, and it hides what was meant: full names only.
 */
#include "cli/opt.h"
#include "lib/base/nearest.h"
#include "lib/base/number.h"
#include "print/out/streams.h"

#include <assert.h>
#include <getopt.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_ROWS = 64,
	HELP = 256,		/* beyond every letter */
	LIST,
	FIRST_LONG,
	HELP_COLUMN = 29,
};

/* A command's table with the shared rows written out. */
struct table {
	int n;
	int first_hint;		/* MAX_ROWS: there is none */
	struct opt row[MAX_ROWS];
};

static void add_row(struct table *t, const struct opt *row)
{
	assert(t->n < MAX_ROWS);
	/* a name twice would be an abbreviation of two options, so never found */
	for (int i = 0; i < t->n; i++)
		assert(strcmp(t->row[i].name, row->name));
	t->row[t->n++] = *row;
}

static bool has_row(const struct table *t, const char *name)
{
	for (int i = 0; i < t->n; i++)
		if (!strcmp(t->row[i].name, name))
			return true;
	return false;
}

/* Two names of one thing are one row of --help: the first that the command has. */
static bool has_value(const struct table *t, const void *value)
{
	for (int i = t->first_hint; i < t->n; i++)
		if (t->row[i].value == value)
			return true;
	return false;
}

static struct opt hint_row(const struct kvt_hint *hint, struct kvt_hints *hints)
{
	static const enum opt_type types[] = {
		[KVT_HINT_FLAG]  = OPT_FLAG,  [KVT_HINT_STRING] = OPT_STRING,
		[KVT_HINT_COUNT] = OPT_COUNT, [KVT_HINT_BYTES]  = OPT_INT,
		[KVT_HINT_FACTS] = OPT_FACTS, [KVT_HINT_GROUPS] = OPT_GROUPS,
	};

	return (struct opt){ hint->name, 0, types[hint->type],
			     (char *)hints + hint->offset, hint->arg, hint->help };
}

static void table_fill(struct table *t, const struct opt *opts)
{
	const struct kvt_hint *hint;

	t->n = 0;
	t->first_hint = MAX_ROWS;
	for (; opts->name; opts++) {
		if (opts->type != OPT_HINTS) {
			add_row(t, opts);
			continue;
		}
		t->first_hint = t->n;
		for (int i = 0; (hint = kvt_hint_at(i)); i++) {
			struct opt row = hint_row(hint, opts->value);

			/* a command may give the name another meaning */
			if (has_row(t, hint->name))
				continue;
			if (has_value(t, row.value))
				row.help = NULL;
			add_row(t, &row);
		}
	}
}

/* ---- values ------------------------------------------------------------- */

enum kvt_status scale_parse(double kv[2], const char *option, const char *text,
			    struct kvt_error *err)
{
	size_t first = strcspn(text, ",");
	const char *second = text[first] ? text + first + 1 : text;

	if (!kvt_real_parse(&kv[0], text, first) ||
	    !kvt_real_parse(&kv[1], second, text[first] ? strlen(second) : first) ||
	    !(kv[0] > 0) || !(kv[1] > 0))
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.60s', expected a number above 0, or one for keys and one for values: 0.5,0.25",
				option, text);
	return KVT_OK;
}

static bool number_parse(int64_t *out, const char *text, int64_t least)
{
	int64_t n;

	if (!kvt_number_parse(&n, text) || n < least || n == INT64_MAX)
		return false;
	*out = n;
	return true;
}

/* Nothing but digits, and yet no number of ours. */
static bool is_large(const char *text)
{
	int64_t n;

	return text[0] && !text[strspn(text, "0123456789")] &&
	       (!kvt_number_parse(&n, text) || n == INT64_MAX);
}

static enum kvt_status add_string(int *n, const char **list, size_t most,
				  const struct opt *o, const char *arg,
				  struct kvt_error *err)
{
	if (*n == (int)most)
		return kvt_fail(err, KVT_USAGE, "--%s given more than %d times",
				o->name, *n);
	list[(*n)++] = arg;
	return KVT_OK;
}

#define ADD_STRING(list, o, arg, err) \
	add_string(&(list)->n, (list)->s, sizeof((list)->s) / sizeof((list)->s[0]), \
		   o, arg, err)

static enum kvt_status take(const struct opt *o, const char *arg, struct kvt_error *err);

/* "heads=8" of a group, or of one side. */
static enum kvt_status take_word(struct kvt_hints *hints, char *word, bool of_group,
				 const struct opt *o, struct kvt_error *err)
{
	char *value = strchr(word, '=');
	const struct kvt_hint *hint;
	struct kvt_nearest near;

	if (value)
		*value++ = '\0';
	near = kvt_nearest_start(word);
	for (int i = 0; (hint = kvt_hint_at(i)); i++) {
		const struct opt row = hint_row(hint, hints);
		bool flag = hint->type == KVT_HINT_FLAG;

		if ((of_group && !hint->of_group) || hint->type == KVT_HINT_GROUPS)
			continue;
		kvt_nearest_offer(&near, hint->name);
		if (strcmp(hint->name, word))
			continue;
		if (flag == (value != NULL))
			return kvt_fail(err, KVT_USAGE, "--%s has %s %s a value", o->name,
					word, flag ? "with" : "without");
		if (kvt_hint_said(hints, hint) && hint->type != KVT_HINT_FACTS)
			return kvt_fail(err, KVT_USAGE, "--%s has %s twice", o->name,
					word);
		return take(&row, value, err);
	}
	return kvt_fail(err, KVT_USAGE, "--%s has '%.40s', which is no option of a%s%s",
			o->name, word, of_group ? " group" : "n input",
			kvt_nearest_hint(&near, "; see kvtool(1)").s);
}

static bool is_flag(const char *word, size_t n)
{
	const struct kvt_hint *hint;

	for (int i = 0; (hint = kvt_hint_at(i)); i++)
		if (hint->type == KVT_HINT_FLAG && strlen(hint->name) == n &&
		    !strncmp(hint->name, word, n))
			return true;
	return false;
}

/*
 * "layout=hnd,blocks-of=A=5,2:21,block-size=32": a comma ends a value where the name of
 * another option follows.
 */
static enum kvt_status take_side(const struct opt *o, const char *arg,
				 struct kvt_error *err)
{
	static char text[8][1024];
	static int n;
	enum kvt_status status = KVT_OK;
	char *word, *at;

	if (n == (int)(sizeof(text) / sizeof(text[0])) || strlen(arg) >= sizeof(text[0]))
		return kvt_fail(err, KVT_USAGE,
				"--%s is given more than %d times, or has more than %d characters",
				o->name, (int)(sizeof(text) / sizeof(text[0])),
				(int)sizeof(text[0]) - 1);
	word = at = strcpy(text[n++], arg);
	while (!status && at) {
		char *next = strchr(at, ',');
		size_t more = next ? strcspn(next + 1, ",") : 0;

		at = next ? next + 1 : NULL;
		if (next && !memchr(next + 1, '=', more) && !is_flag(next + 1, more))
			continue;
		if (next)
			*next = '\0';
		status = take_word(o->value, word, false, o, err);
		word = at;
	}
	return status;
}

/* "g1:heads=8,head-dim=64", which becomes the last of the list. */
static enum kvt_status take_group(const struct opt *o, const char *arg,
				  struct kvt_error *err)
{
	static struct {
		struct kvt_hints hints;
		char text[256];
	} groups[KVT_MAX_GROUPS], *g;
	const struct kvt_hints **last = o->value;
	enum kvt_status status = KVT_OK;
	static int n;
	char *rest;

	if (n == KVT_MAX_GROUPS || strlen(arg) >= sizeof(g->text))
		return kvt_fail(err, KVT_USAGE,
				"--%s is given more than %d times, or has more than %d characters",
				o->name, KVT_MAX_GROUPS, (int)sizeof(g->text) - 1);
	g = &groups[n++];
	strcpy(g->text, arg);
	rest = strchr(g->text, ':');
	if (!rest || rest == g->text || !rest[1])
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.100s', expected %s, such as g1:heads=8,head-dim=64",
				o->name, arg, o->arg);
	*rest++ = '\0';
	g->hints.group = g->text;
	while (!status && rest) {
		char *word = rest;

		if ((rest = strchr(rest, ',')))
			*rest++ = '\0';
		status = take_word(&g->hints, word, true, o, err);
	}
	while (*last)
		last = (const struct kvt_hints **)&(*last)->next;
	*last = &g->hints;
	return status;
}

static enum kvt_status take_release(const struct opt *o, const char *arg,
				    struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status = kvt_release_parse(o->value, arg, &why);

	return status ? kvt_fail(err, status, "--%s: %s", o->name, why.text) : KVT_OK;
}

static enum kvt_status take(const struct opt *o, const char *arg, struct kvt_error *err)
{
	static const char *const wanted[] = {
		[OPT_INT]   = "a whole number, such as 5 or 32k",
		[OPT_COUNT] = "a whole number above 0, such as 16 or 32k",
		[OPT_SIZE]  = "a size above 0, such as 512M",
	};

	switch (o->type) {
	case OPT_RELEASE_OF:
		return take_release(o, arg, err);
	case OPT_FLAG:
		*(bool *)o->value = true;
		return KVT_OK;
	case OPT_STRING:
	case OPT_MAYBE:
		*(const char **)o->value = arg ? arg : "";
		return KVT_OK;
	case OPT_STRINGS:
		return ADD_STRING((struct opt_strings *)o->value, o, arg, err);
	case OPT_GROUPS:
		return take_group(o, arg, err);
	case OPT_SIDE:
		return take_side(o, arg, err);
	case OPT_FACTS:
		return ADD_STRING((struct kvt_facts *)o->value, o, arg, err);
	case OPT_SIZE:
		if (!number_parse(o->value, arg, 1))
			break;
		return KVT_OK;
	default:
		if (!number_parse(o->value, arg, o->type == OPT_COUNT))
			break;
		return KVT_OK;
	}
	return kvt_fail(err, KVT_USAGE, "--%s is '%.100s', expected %s%s", o->name,
			arg, wanted[o->type],
			is_large(arg) ? ", less than 2^63 - 1" : "");
}

/* ---- what is printed ---------------------------------------------------- */

static void print_row(char letter, const char *name, const char *arg, const char *help)
{
	char left[64], tag[5] = "    ";

	if (!help)
		return;
	if (letter)
		snprintf(tag, sizeof(tag), "-%c, ", letter);
	if (snprintf(left, sizeof(left), "  %s--%s%s%s", tag, name,
		     arg && arg[0] != '[' ? "=" : "", arg ? arg : "") >= HELP_COLUMN)
		printf("%s\n%*s%s\n", left, HELP_COLUMN, "", help);
	else
		printf("%-*s%s\n", HELP_COLUMN, left, help);
}

static void print_help(const struct command *command, const struct table *t)
{
	int own = t->first_hint < t->n ? t->first_hint : t->n;

	printf("usage: kvtool %s [OPTION]... %s\n\n%s\n\noptions:\n",
	       command->name, command->args, command->summary);
	for (int i = 0; i < own; i++)
		print_row(t->row[i].letter, t->row[i].name, t->row[i].arg,
			  t->row[i].help);
	print_row('h', "help", NULL, "show this text");
	if (own < t->n)
		puts("\nfor inputs that do not describe themselves:");
	for (int i = own; i < t->n; i++)
		print_row(0, t->row[i].name, t->row[i].arg, t->row[i].help);
	if (command->examples)
		printf("\nexamples:\n%s", command->examples);
	puts("\nexit status: 0 done, 1 differs or unexpected, 2 wrong command "
	     "line,\n3 bad or ambiguous input, 4 not possible here, "
	     "5 the system failed");
}

static void list_releases(void)
{
	for (int i = KVT_NRELEASES; i--; )
		printf("%-8s%s%s\n", kvt_release_name((enum kvt_release)i),
		       kvt_release_summary((enum kvt_release)i),
		       i == KVT_NRELEASES - 1 ? " (default)" : "");
}

static void list_options(const struct table *t)
{
	for (int i = 0; i < t->n; i++)
		printf("--%s\n", t->row[i].name);
	puts("--help");
}

/* ---- mistakes ----------------------------------------------------------- */

static const struct opt *row_of(const struct table *t, int c)
{
	if (c >= FIRST_LONG)
		return &t->row[c - FIRST_LONG];
	for (int i = 0; i < t->n; i++)
		if (c && t->row[i].letter == c)
			return &t->row[i];
	return NULL;
}

/* Says in our words what getopt_long calls '?' or ':'. */
static void refuse(int c, const struct command *command, const struct table *t,
		   char **argv, struct kvt_error *err)
{
	const struct opt *o = row_of(t, optopt);
	const char letter[] = { '-', (char)optopt, '\0' };

	if (c == ':' && o)
		kvt_fail(err, KVT_USAGE, "--%s needs a value: %s", o->name, o->arg);
	else if (o || optopt == HELP || optopt == LIST)
		kvt_fail(err, KVT_USAGE, "'%.100s': this option takes no value",
			 argv[optind - 1]);
	else
		opt_unknown(command, t->row, t->n, optopt ? letter : argv[optind - 1],
			    err);
}

/* ---- parsing ------------------------------------------------------------ */

struct getopt_table {
	struct option rows[MAX_ROWS + 3];
	char letters[2 * MAX_ROWS + 4];
};

static void getopt_fill(struct getopt_table *g, const struct table *t)
{
	char *p = g->letters;

	memset(g, 0, sizeof(*g));
	*p++ = ':';		/* tells a missing value from an unknown option */
	for (int i = 0; i < t->n; i++) {
		const struct opt *o = &t->row[i];

		g->rows[i].name = o->name;
		g->rows[i].has_arg = o->type == OPT_MAYBE ? optional_argument :
				     o->arg ? required_argument : no_argument;
		g->rows[i].val = FIRST_LONG + i;
		if (o->letter)
			*p++ = o->letter;
		if (o->letter && o->arg)
			*p++ = ':';
	}
	*p = 'h';
	g->rows[t->n] = (struct option){ "help", no_argument, NULL, HELP };
	g->rows[t->n + 1] = (struct option){ "list-options", no_argument, NULL,
					     LIST };
}

enum kvt_status opt_exclude(struct opt_said one, const struct opt_said *others,
			    struct kvt_error *err)
{
	for (; one.given && others->name; others++)
		if (others->given)
			return kvt_fail(err, KVT_USAGE,
					"--%s and --%s exclude each other", one.name,
					others->name);
	return KVT_OK;
}

/*
 * The word of argv that getopt_long() has just found to be long option 'name' if it is
 * an abbreviation of it, else NULL.
 */
static const char *abbreviation(char **argv, const char *name)
{
	const char *word = argv[optind - 1];
	size_t n;

	if (optarg == word)
		word = argv[optind - 2];	/* its argument is a word of its own */
	n = strcspn(word + 2, "=");
	return n == strlen(name) ? NULL : word;
}

/* Somebody has sent us something, which nothing here reads unasked. */
static bool piped(void)
{
	struct stat st;

	return !fstat(STDIN_FILENO, &st) && S_ISFIFO(st.st_mode);
}

enum kvt_status opt_need(const struct command *command, const struct opt_need *needs,
			 struct kvt_error *err)
{
	char missing[300] = "";
	size_t n = 0;
	int left = 0;

	for (const struct opt_need *p = needs; p->what; p++)
		left += !p->given;
	if (!left)
		return KVT_OK;
	for (const struct opt_need *p = needs; p->what && n < sizeof(missing); p++) {
		if (p->given)
			continue;
		n += (size_t)snprintf(missing + n, sizeof(missing) - n, "%s%s", p->what,
				      --left > 1 ? ", " : left ? " and " : "");
	}
	return kvt_fail(err, KVT_USAGE, "expected %s; for example: %.*s%s", missing,
			(int)strcspn(command->examples + 2, "\n"),
			command->examples + 2, needs[0].given || !piped() ? "" :
			" ('-' is standard input)");
}

void opt_also(struct kvt_error *err, const struct kvt_error *another)
{
	enum { MOST = 350 };		/* the sentence that is there is cut first */
	struct kvt_error before = *err;
	int n = (int)strnlen(another->text, MOST);

	kvt_fail(err, KVT_USAGE, "%.*s; %.*s", (int)sizeof(before.text) - 3 - n,
		 before.text, n, another->text);
}

/* Of several mistakes the first three are told, in one sentence. */
static void add_mistake(struct kvt_error *err, const struct kvt_error *one, int *nwrong)
{
	if (!(*nwrong)++)
		*err = *one;
	else if (*nwrong <= 3)
		opt_also(err, one);
}

static bool opens_dumps(const struct table *t)
{
	return t->first_hint < MAX_ROWS;
}

int opt_parse(const struct command *command, const struct opt *opts,
	      int argc, char **argv, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_error one = { "" };
	const char *shorter;
	struct getopt_table g;
	int nwrong = 0;
	struct table t;
	int c;

	table_fill(&t, opts);
	getopt_fill(&g, &t);
	optind = 0;		/* glibc: start afresh */
	opterr = 0;		/* its messages would lack the command's name */
	while ((c = getopt_long(argc, argv, g.letters, g.rows, NULL)) != -1) {
		shorter = c < HELP ? NULL :
			  abbreviation(argv, c == HELP ? "help" : c == LIST ?
					     "list-options" : t.row[c - FIRST_LONG].name);
		if (shorter) {
			opt_unknown(command, t.row, t.n, shorter, &one);
			add_mistake(err, &one, &nwrong);
			continue;
		}
		if (c == 'h' || c == HELP) {
			print_help(command, &t);
			return OPT_DONE;
		}
		if (c == LIST) {
			list_options(&t);
			return OPT_DONE;
		}
		if (c >= FIRST_LONG && row_of(&t, c)->type == OPT_RELEASE_OF &&
		    !strcmp(optarg, "list")) {
			list_releases();
			return OPT_DONE;
		}
		if (c == '?' || c == ':')
			refuse(c, command, &t, argv, &one);
		else if (!take(row_of(&t, c), optarg, &one))
			continue;
		add_mistake(err, &one, &nwrong);
	}
	if (nwrong)
		return OPT_WRONG;
	for (const struct opt *o = opts; o->name; o++) {
		struct kvt_hints *hints = o->type == OPT_HINTS ? o->value : NULL;

		if (hints && hints->model)
			model_beside(&hints->model);
	}
	argc -= optind;
	memmove(argv, argv + optind, (size_t)argc * sizeof(*argv));
	if (opens_dumps(&t) && command->streams != STREAM_OWN)
		status = stream_in(argc > 1 && command->streams == STREAM_FIRST ?
				   1 : argc, argv, err);
	return !status ? argc : status == KVT_USAGE ? OPT_WRONG : OPT_FAILED;
}

/* ---- lists of numbers --------------------------------------------------- */

enum kvt_status opt_ranges_parse(struct opt_ranges *out, const char *option,
				 const char *text, struct kvt_error *err)
{
	const char *p = text;
	bool ok = true;

	for (out->n = 0; ok && out->n < OPT_MAX_RANGES; ) {
		struct kvt_range *range = &out->range[out->n++];

		range->begin = 0;		/* ":8" is "0:8" */
		if (*p != ':' && !(ok = kvt_number_take(&range->begin, &p)))
			break;
		range->end = range->begin + 1;
		if (*p == ':') {
			p++;
			ok = kvt_number_take(&range->end, &p) &&
			     range->begin < range->end;
		}
		if (ok && !*p)
			return KVT_OK;
		ok = ok && *p++ == ',';
	}
	return kvt_fail(err, KVT_USAGE,
			"--%s is '%.100s', expected %s", option, text,
			ok ? "fewer ranges" :
			"numbers and ranges from A to before B, such as 0,4:8");
}
