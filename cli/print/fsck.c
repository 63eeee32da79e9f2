/* SPDX-License-Identifier: Apache-2.0 */
/* fsck.c - the names of findings, and how they are told */
#include "lib/ops/check/check.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct fsck_rule rules[] = {
	{ "file.unreadable", FSCK_ERROR, "a file, or its data, that cannot be read" },
	{ "file.leftover", FSCK_WARNING, "what a run that was killed left of an output" },
	{ "manifest.mismatch", FSCK_ERROR, "a manifest of other data than this" },
	{ "group.count", FSCK_ERROR, "no group, or too many" },
	{ "group.id", FSCK_ERROR, "a group without an id" },
	{ "group.duplicate", FSCK_ERROR, "two groups of one id" },
	{ "group.kind", FSCK_ERROR, "a group of no known kind" },
	{ "group.type", FSCK_ERROR, "elements do not fit their type" },
	{ "group.extent", FSCK_ERROR, "an extent that cannot be" },
	{ "group.kv", FSCK_ERROR, "neither one nor two of keys and values" },
	{ "group.size", FSCK_ERROR, "larger than 2^63 bytes" },
	{ "group.states", FSCK_ERROR, "states, tokens a state and block size disagree" },
	{ "layout.missing", FSCK_ERROR, "a group without a layout" },
	{ "layout.misfit", FSCK_ERROR, "the layout does not fit the shape" },
	{ "page.size", FSCK_ERROR, "a page cannot hold its content" },
	{ "page.split", FSCK_ERROR, "padded pages, but a page is not one run" },
	{ "content.type", FSCK_ERROR, "packed content whose elements are not bytes" },
	{ "content.row", FSCK_ERROR, "rows of another size than this content has" },
	{ "content.torn", FSCK_ERROR, "the layout would tear rows apart" },
	{ "parts.count", FSCK_ERROR, "too many parts of the content" },
	{ "parts.range", FSCK_ERROR, "a part outside of the content" },
	{ "parts.duplicate", FSCK_ERROR, "two parts of one name" },

	{ "tp.rank", FSCK_ERROR, "a rank beyond the number of ranks" },
	{ "tp.heads", FSCK_ERROR, "heads that the rank does not hold" },
	{ "tp.replication", FSCK_ERROR, "replicas that so many ranks do not make" },
	{ "tp.partial", FSCK_WARNING, "fewer heads than the rank holds" },

	{ "layers.name", FSCK_ERROR, "a layer without a name" },
	{ "layers.duplicate-name", FSCK_ERROR, "two layers of one name in a group" },
	{ "layers.duplicate-id", FSCK_ERROR, "two layers of one id in a group" },
	{ "layers.name-id", FSCK_WARNING, "the number in a name is not the layer's id" },
	{ "layers.order", FSCK_WARNING, "layers are not in the order of the model" },
	{ "layers.gap", FSCK_WARNING, "a layer between others is in no group" },
	{ "layers.chosen", FSCK_NOTE, "ids of layers leave some between them out" },

	{ "blocks.duplicate-id", FSCK_ERROR, "two blocks of one id in the pool" },
	{ "request.id", FSCK_ERROR, "a request without an id" },
	{ "request.duplicate", FSCK_ERROR, "two requests of one id" },
	{ "request.tokens", FSCK_ERROR, "a number of tokens that cannot be" },
	{ "request.first-token", FSCK_ERROR, "a first token that cannot be" },
	{ "request.holes", FSCK_ERROR, "missing tokens that a request does not have" },
	{ "request.missing", FSCK_NOTE, "tokens of a request have no state" },
	{ "request.token-ids", FSCK_WARNING, "fewer token ids than tokens" },
	{ "table.broken", FSCK_ERROR, "a block table that is none" },
	{ "table.missing", FSCK_ERROR, "a request with tokens, but no block table" },
	{ "table.too-short", FSCK_ERROR, "more tokens than the blocks can hold" },
	{ "table.out-of-pool", FSCK_ERROR, "a block that is not in the pool" },
	{ "table.null-block", FSCK_ERROR, "the null block where a token should be" },
	{ "table.repeated", FSCK_ERROR, "one block at two places of a request" },
	{ "table.shared", FSCK_ERROR, "a block is shared, but not all before it" },
	{ "table.shared-tokens", FSCK_ERROR, "a block is shared by other tokens" },
	{ "table.spare", FSCK_NOTE, "more blocks than the tokens need" },
	{ "valid.capacity", FSCK_ERROR, "more valid states than a block has" },
	{ "valid.short", FSCK_ERROR, "fewer valid states than requests hold" },
	{ "valid.excess", FSCK_WARNING, "more valid states than requests hold" },
	{ "null.out-of-pool", FSCK_ERROR, "the null block is not in the pool" },
	{ "null.valid", FSCK_WARNING, "the null block has valid states" },

	{ "tile.damaged", FSCK_ERROR, "a checksum of stored data is wrong" },
	{ "digest.cell", FSCK_ERROR, "data is not what the stored digest says" },
	{ "null.nonzero", FSCK_NOTE, "the null block holds something" },
	{ "live.zero", FSCK_WARNING, "a live state is all zeros" },
	{ "stale.states", FSCK_NOTE, "states that no request holds are not zero" },
	{ "padding.nonzero", FSCK_WARNING, "the padding of a page holds something" },
	{ "row.tail", FSCK_ERROR, "what is behind the cells of a row is not zero" },

	{ "ranks.missing", FSCK_ERROR, "a rank is in none of the files" },
	{ "ranks.duplicate", FSCK_ERROR, "two files are of one rank" },
	{ "ranks.differ", FSCK_ERROR, "ranks say different things of one model" },
	{ "ranks.coverage", FSCK_ERROR, "ranks together do not hold the model once" },
	{ "ranks.replicas", FSCK_ERROR, "ranks hold different data of one head" },
	{ "ranks.unknown", FSCK_NOTE, "nobody knows what of this kind a rank holds" },
};
enum { NRULES = sizeof(rules) / sizeof(rules[0]) };
_Static_assert(sizeof(rules) / sizeof(rules[0]) <= (size_t)FSCK_NRULES, "too many");

static const char *const severities[] = {
	[FSCK_NOTE] = "note", [FSCK_WARNING] = "warning", [FSCK_ERROR] = "error",
};

const struct fsck_rule *fsck_rule_at(int i)
{
	return i >= 0 && i < NRULES ? &rules[i] : NULL;
}

static int find_rule(const char *name)
{
	int i = 0;

	while (i < NRULES && strcmp(rules[i].name, name))
		i++;
	assert(i < NRULES);
	return i;
}

/* ---- collecting --------------------------------------------------------- */

struct fsck_at fsck_at(const char *format, ...)
{
	struct fsck_at at;
	va_list args;

	va_start(args, format);
	vsnprintf(at.s, sizeof(at.s), format, args);
	va_end(args);
	return at;
}

/* NULL where it is only counted. */
static struct fsck_finding *new_finding(struct fsck_report *r, int rule)
{
	r->total[rules[rule].severity]++;
	if (++r->count[rule] > FSCK_MOST)
		return NULL;
	if (r->nfindings == r->room) {
		int room = r->room ? 2 * r->room : 16;
		struct fsck_finding *more = realloc(r->finding,
						    (size_t)room * sizeof(*more));

		if (!more) {
			r->out_of_memory = true;
			return NULL;
		}
		r->finding = more;
		r->room = room;
	}
	return &r->finding[r->nfindings++];
}

static void make_plain(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

void fsck_find(struct fsck_report *r, const char *name, struct fsck_at at,
	       const char *format, ...)
{
	int rule = find_rule(name);
	struct fsck_finding *f = new_finding(r, rule);
	va_list args;

	if (!f)
		return;
	f->rule = rule;
	snprintf(f->at, sizeof(f->at), "%s", at.s);
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
	/* names are a file's to choose, a terminal's state is not */
	make_plain(f->at);
	make_plain(f->text);
}

void fsck_count(struct fsck_report *r, const char *name, int64_t n)
{
	int rule = find_rule(name);

	r->count[rule] += n;
	r->total[rules[rule].severity] += n;
}

/* ---- telling ------------------------------------------------------------ */

static void print_more(const struct fsck_report *r)
{
	for (int i = 0; i < NRULES; i++) {
		int64_t left = r->count[i];

		for (int k = 0; k < r->nfindings; k++)
			left -= r->finding[k].rule == i;
		if (left > 0)
			plainf("%s: %s: %s: and %lld more\n", r->path,
			       severities[rules[i].severity], rules[i].name,
			       (long long)left);
	}
}

static void print_totals(const struct fsck_report *r)
{
	const char *before = "";

	plainf("%s: ", r->path);
	for (int s = FSCK_ERROR; s >= FSCK_NOTE; s--) {
		if (!r->total[s])
			continue;
		plainf("%s%lld %s%s", before, (long long)r->total[s], severities[s],
		       plural(r->total[s]));
		before = ", ";
	}
	puts(*before ? "" : "clean");
}

/* Of files that nothing lists "clean" alone would say too much. */
static void print_looked(const struct fsck_report *r)
{
	const struct fsck_looked *l = &r->looked;

	if (!l->unlisted)
		return;
	plainf("%s: looked at %lld file%s (%s), %d group%s, %lld block%s: %s, tables%s\n",
	       r->path, (long long)l->files, plural(l->files), human_size(l->bytes).s,
	       l->groups, plural(l->groups), (long long)l->blocks, plural(l->blocks),
	       l->checks ? l->checks : "names, lengths", l->data ? ", all data" : "");
	plainf("%s: no index lists the files: one that is missing is not noticed\n",
	       r->path);
}

void fsck_text(const struct fsck_report *r)
{
	for (int i = 0; i < r->nfindings; i++) {
		const struct fsck_finding *f = &r->finding[i];

		plainf("%s: %s: %s: %s%s%s\n", r->path,
		       severities[rules[f->rule].severity], rules[f->rule].name, f->at,
		       *f->at ? ": " : "", f->text);
	}
	print_more(r);
	print_looked(r);
	print_totals(r);
}

/* null of a set of ranks, and of what was refused */
static void put_looked(struct json_out *out, json_t *o, const struct fsck_looked *l)
{
	json_t *looked;

	if (!l->files) {
		json_put(out, o, "looked_at", json_null());
		return;
	}
	looked = json_put_object(out, o, "looked_at");
	json_put_int(out, looked, "files", l->files);
	json_put_int(out, looked, "bytes", l->bytes);
	json_put_int(out, looked, "groups", l->groups);
	json_put_int(out, looked, "blocks", l->blocks);
	json_put(out, looked, "data", json_boolean(l->data));
	json_put_text(out, looked, "checks", l->checks);
	json_put(out, looked, "missing_files_noticed", json_boolean(!l->unlisted));
}

void fsck_json(struct json_out *out, json_t *list, const struct fsck_report *r)
{
	json_t *o = json_append_object(out, list), *findings, *counts;

	json_put_text(out, o, "file", r->path);
	json_put_text(out, o, "format", *r->format ? r->format : NULL);
	json_put_int(out, o, "errors", r->total[FSCK_ERROR]);
	json_put_int(out, o, "warnings", r->total[FSCK_WARNING]);
	json_put_int(out, o, "notes", r->total[FSCK_NOTE]);
	put_looked(out, o, &r->looked);
	counts = json_put_object(out, o, "counts");
	for (int i = 0; i < NRULES; i++)
		if (r->count[i])
			json_put(out, counts, rules[i].name, json_integer(r->count[i]));
	findings = json_put_array(out, o, "findings");
	for (int i = 0; i < r->nfindings; i++) {
		const struct fsck_finding *f = &r->finding[i];
		json_t *row = json_append_object(out, findings);

		json_put_text(out, row, "name", rules[f->rule].name);
		json_put_text(out, row, "severity", severities[rules[f->rule].severity]);
		json_put_text(out, row, "at", *f->at ? f->at : NULL);
		json_put_text(out, row, "problem", f->text);
	}
}
