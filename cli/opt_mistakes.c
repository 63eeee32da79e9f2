/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt_mistakes.c - an option that a command has not: which one was meant
 *
 * First what no option does (advice), then names that others have for it, beginnings and
 * words of names, and last the nearest spelling.
 */
#include "cli/opt.h"

#include <string.h>

#include "lib/base/nearest.h"

/* What others call it. */
static const struct {
	const char *word, *option;
} synonyms[] = {
	{ "num-layers", "layers" },	{ "num-blocks", "blocks" },
	{ "num-heads", "heads" },	{ "num-kv-heads", "heads" },
	{ "kv-heads", "heads" },	{ "head-size", "head-dim" },
	{ "out", "output" },		{ "outfile", "output" },
	{ "overwrite", "force" },	{ "input-format", "from" },
	{ "output-format", "format" },	{ "to-format", "format" },
	{ "target-layout", "to" },	{ "output-layout", "to" },
	{ "input-layout", "layout" },	{ "type", "dtype" },
	{ "rank", "tp" },		{ "where", "at" },
	{ "network", "link" },		{ "bandwidth", "rate" },
	{ "byte", "offset" },		{ "bytes", "offset" },
	{ "to", "dst" },		{ "source", "src" },
	{ "target", "dst" },		{ "destination", "dst" },
	{ "src-tp", "src" },		{ "dst-tp", "dst" },
	{ "tp-ranks", "in-order" },	{ "ranks", "in-order" },
	{ "memory", "mem-limit" },	{ "jobs", "threads" },
	{ "silent", "quiet" },		{ "requests", "request" },
};

/* Is 'word' one of the words that 'name' is made of?  rank of tp-rank. */
static bool has_word(const char *name, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = name; p && n; p = strchr(p, '-') ? strchr(p, '-') + 1 : NULL)
		if (!strncmp(p, word, n) && (!p[n] || p[n] == '-'))
			return true;
	return false;
}

/* "--a, --b or --c" of the options that 'fits' says are meant; how many. */
static int candidates(char *out, size_t room, const struct opt *row, int nrows,
		      const char *word, bool (*fits)(const char *name, const char *word))
{
	const char *found[4];
	size_t n = 0;
	int nfound = 0;

	for (int i = 0; i < nrows && nfound < 4; i++)
		if (fits(row[i].name, word))
			found[nfound++] = row[i].name;
	for (int i = 0; i < nfound && n < room; i++)
		n += (size_t)snprintf(out + n, room - n, "%s--%s", !i ? "" :
				      i == nfound - 1 ? " or " : ", ", found[i]);
	return nfound;
}

static bool begins_with(const char *name, const char *word)
{
	return word[0] && !strncmp(name, word, strlen(word));
}

static bool is_synonym(const char *name, const char *word)
{
	for (size_t i = 0; i < sizeof(synonyms) / sizeof(synonyms[0]); i++)
		if (!strcmp(synonyms[i].word, word) && !strcmp(synonyms[i].option, name))
			return true;
	return false;
}

/* What no option does, what another mode has, or what is an operand; else NULL. */
static const char *advice(const char *command, const char *word)
{
	static const char cast[] =
		"kvtool convert, relayout and reblock have --cache-dtype=TYPE; kvtool diff --tolerance=auto compares";
	static const char at[] =
		"a coordinate is an operand: kvtool where FILE request=A,token=69,layer=3,kv=k";
	static const char link[] =
		"kvtool transfer-sim time has --link=LINK, such as cx7-400g-verbs";
	static const char component[] =
		"--component=k takes keys alone, --component=v values";
	static const char picture[] =
		"kvtool view -o page.html A B draws a page, and kvtool diff has --heatmap=FILE, whose name ends in .svg, .csv, .json or .txt, such as --heatmap=where.svg";
	static const struct {
		const char *command, *word, *text;
	} rows[] = {
		{ "diff", "plot", picture },	{ "diff", "image", picture },
		{ "diff", "svg", picture },	{ "diff", "png", picture },
		{ "diff", "picture", picture },	{ "diff", "html", picture },
		{ "slice", "kv", component },	{ "slice", "key", component },
		{ "slice", "keys", component },	{ "slice", "values", component },
		{ "", "to-dtype", cast },	{ "", "out-dtype", cast },
		{ "", "cast", cast },		{ "", "astype", cast },
		{ "where", "request", at },	{ "where", "token", at },
		{ "where", "layer", at },	{ "where", "block", at },
		{ "where", "slot", at },	{ "where", "head", at },
		{ "where", "kv", at },		{ "where", "dim", at },
		{ "transfer-sim", "link", link },
		{ "transfer-sim", "network", link },
		{ "transfer-sim", "trace",
		  "kvtool transfer-sim replay has --trace=FILE" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strncmp(command, rows[i].command, strlen(rows[i].command)) &&
		    !strcmp(word, rows[i].word))
			return rows[i].text;
	return NULL;
}

void opt_unknown(const struct command *command, const struct opt *row, int n,
		 const char *text, struct kvt_error *err)
{
	struct kvt_nearest near;
	char name[64], options[256];

	if (strncmp(text, "--", 2)) {
		kvt_fail(err, KVT_USAGE,
			"unknown option '%s'; see kvtool %s --help", text, command->name);
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(text + 2, "="), text + 2);
	for (char *p = name; *p; p++)
		if (*p == '_')
			*p = '-';
	near = kvt_nearest_start(name);
	for (int i = 0; i < n; i++)
		kvt_nearest_offer(&near, row[i].name);
	kvt_nearest_offer(&near, "help");
	if (advice(command->name, name))
		kvt_fail(err, KVT_USAGE, "unknown option '%.60s': %s", text,
			 advice(command->name, name));
	else if (candidates(options, sizeof(options), row, n, name, is_synonym) ||
	    candidates(options, sizeof(options), row, n, name, begins_with) ||
	    candidates(options, sizeof(options), row, n, name, has_word))
		kvt_fail(err, KVT_USAGE, "unknown option '%.60s', did you mean %s?", text,
			 options);
	else if (kvt_nearest_found(&near))
		kvt_fail(err, KVT_USAGE, "unknown option '%.60s', did you mean --%s?",
			 text, kvt_nearest_found(&near));
	else
		kvt_fail(err, KVT_USAGE, "unknown option '%.60s'; see kvtool %s --help",
			 text, command->name);
}
