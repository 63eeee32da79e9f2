/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hints.c - what a user may say of an input, a row each, and whether the file agrees
 *
 * Formats fill with hints what their files leave open, and ask no more: kvt_open()
 * compares all that was said with the finished snapshot, here and nowhere else.  A
 * hint is of the groups that have such a thing; if none has, it is refused.
 */
#include "formats/hints.h"

#include <stdarg.h>
#include <string.h>

#include "formats/format.h"

/* ---- what groups have ---------------------------------------------------- */

enum verdict { NOT_OF_IT, AGREES, DIFFERS };

/* What is said of a group, and what it has, for a person to read. */
struct question {
	const struct kvt_reader *reader;	/* NULL: only numbers are asked for */
	const struct kvt_group *group;
	const struct kvt_hints *said;
	struct kvt_text has;
};

static enum verdict number(struct question *q, int64_t said, int64_t is)
{
	snprintf(q->has.s, sizeof(q->has.s), "%lld", LL(is));
	return said == is ? AGREES : DIFFERS;
}

/* Fewer than there are may be a choice, which no option of an input is. */
static enum verdict some(struct question *q, int64_t said, int64_t is)
{
	if (said >= is)
		return number(q, said, is);
	snprintf(q->has.s, sizeof(q->has.s),
		 "%lld; it describes the input; kvtool slice takes a part of it", LL(is));
	return DIFFERS;
}

static enum verdict layers(struct question *q)
{
	return some(q, q->said->layers, q->group->shape.n[KVT_AXIS_L]);
}

static enum verdict blocks(struct question *q)
{
	return number(q, q->said->blocks, q->group->shape.n[KVT_AXIS_B]);
}

static enum verdict block_size(struct question *q)
{
	return q->group->block_size ?
	       number(q, q->said->block_size, q->group->block_size) : NOT_OF_IT;
}

/* States that are no rows of heads have none, which is not one. */
static enum verdict heads(struct question *q)
{
	enum kvt_kind kind = q->group->kind;
	int64_t n = q->group->shape.n[KVT_AXIS_H];
	bool rows = kind == KVT_OPAQUE ||
		    (kvt_is_recurrent(kind) && kind != KVT_MAMBA_SSM);

	/* those of a row that is not divided */
	if (q->group->content.type && n == 1)
		n = kvt_group_packing(q->group).fold;

	return rows && n == 1 ? NOT_OF_IT : some(q, q->said->heads, n);
}

static bool has_keys(const struct kvt_group *group)
{
	return group->shape.n[KVT_AXIS_K] == 2 || kvt_group_half(group) >= 0;
}

/* Of coded rows the bytes are known, and how many numbers make so many. */
static enum verdict head_dim(struct question *q)
{
	const struct kvt_group *group = q->group;
	int64_t n = group->shape.n[KVT_AXIS_D], said = q->said->head_dim;

	/* of keys: values may have another width */
	if (!has_keys(group) || kvt_group_half(group) == 1)
		return NOT_OF_IT;
	if (group->content.type && (kvt_content_row_of(&group->content, said) == n ||
				    (group->content.n == said &&
				     kvt_group_packing(group).fold > 1)))
		return AGREES;
	return number(q, said, n);
}

static enum verdict content(struct question *q)
{
	return has_keys(q->group) ? NOT_OF_IT :
	       number(q, q->said->content, q->group->shape.n[KVT_AXIS_D]);
}

static enum verdict layout(struct question *q)
{
	bool (*in_layout)(const struct kvt_group *, const struct kvt_layout *) =
		q->reader->format->in_layout;
	const struct kvt_group *group = q->group;
	struct kvt_layout said;
	bool same;

	/* a word of the format alone: kvt_hints_check() has refused all others */
	if (kvt_layout_parse(&said, q->said->layout, NULL))
		return AGREES;
	q->has = kvt_layout_called(&group->layout);
	same = kvt_layout_agree(&said, &group->layout, &group->shape) ||
	       (q->reader->leaf.indexed.nplanes &&
		kvt_layout_agree(&said, &q->reader->leaf.indexed, &group->shape));
	return same || (in_layout && in_layout(group, &said)) ? AGREES : DIFFERS;
}

static enum verdict dtype(struct question *q)
{
	const struct kvt_dtype *is = q->group->dtype;

	snprintf(q->has.s, sizeof(q->has.s),
		 "%s; it describes the input, and --cache-dtype of convert makes another type of it",
		 is->name);
	return q->reader->other_dtype || kvt_dtype_find(q->said->dtype) == is ? AGREES :
										DIFFERS;
}

static enum verdict content_type(struct question *q)
{
	struct kvt_content is = q->group->content, said;
	int64_t row = is.type ? kvt_content_row(&is) : 0;

	if (!is.type)
		return NOT_OF_IT;
	/* the shape has the rows of a page, which are not said then */
	if (row && !is.n)
		is.n = q->group->shape.n[KVT_AXIS_D] / row;
	q->has = kvt_content_name(&is);
	return kvt_content_find(&said, q->said->content_type) && said.type == is.type &&
	       (!said.fp8 || said.fp8 == is.fp8) && (!said.n || said.n == is.n) &&
	       (!said.turn[0] || !memcmp(said.turn, is.turn, sizeof(is.turn))) ?
	       AGREES : DIFFERS;
}

/* ---- the rows ------------------------------------------------------------ */

#define HINT(name, member, type, takes, judge, arg, help) \
	{ { name, #member, type, offsetof(struct kvt_hints, member), (judge) != NULL, \
	    arg, help }, takes, judge }

/* In the order of --help. */
static const struct row {
	struct kvt_hint hint;
	unsigned takes;			/* only formats that take this */
	enum verdict (*judge)(struct question *q);	/* NULL: not of groups */
} rows[] = {
	HINT("manifest", manifest, KVT_HINT_STRING, KVT_TAKES_MANIFEST, NULL, "FILE",
	     "description of the dump, kvtool-manifest(5)"),
	HINT("trust-manifest", trust_manifest, KVT_HINT_FLAG, KVT_TAKES_MANIFEST, NULL,
	     NULL, "use the manifest although the data was changed"),
	HINT("from", format, KVT_HINT_STRING, 0, NULL, "FORMAT",
	     "input format; default: detected from the content"),
	HINT("spec", spec, KVT_HINT_STRING, 0, NULL, "SPEC",
	     "spec of the cache, as kvtool-size(1) prints it"),
	HINT("model", model, KVT_HINT_STRING, 0, NULL, "NAME|FILE",
	     "model whose cache it is: its config.json, its GGUF, or a name"),
	HINT("layout", layout, KVT_HINT_STRING, 0, layout, "LAYOUT",
	     "memory order: a name or axes, kvtool-layouts(7)"),
	HINT("dtype", dtype, KVT_HINT_STRING, 0, dtype, "DTYPE",
	     "element type, such as bfloat16"),
	HINT("content-type", content_type, KVT_HINT_STRING, 0, content_type, "NAME",
	     "coding of the bytes, kvtool-content(7): fp8-ds-mla"),
	HINT("layers", layers, KVT_HINT_COUNT, 0, layers, "N", "number of layers"),
	HINT("blocks", blocks, KVT_HINT_COUNT, 0, blocks, "N",
	     "number of blocks in a layer"),
	HINT("block-size", block_size, KVT_HINT_COUNT, 0, block_size, "N",
	     "tokens in a block"),
	HINT("page-size", block_size, KVT_HINT_COUNT, 0, block_size, "N",
	     "tokens in a block"),
	HINT("tokens-per-block", block_size, KVT_HINT_COUNT, 0, block_size, "N",
	     "tokens in a block"),
	HINT("heads", heads, KVT_HINT_COUNT, 0, heads, "N", "number of key/value heads"),
	HINT("head-dim", head_dim, KVT_HINT_COUNT, 0, head_dim, "N",
	     "elements of one head's key"),
	HINT("content-size", content, KVT_HINT_COUNT, 0, content, "N",
	     "elements of a slot that is not keys and values: a latent"),
	HINT("content", content, KVT_HINT_COUNT, 0, content, "N",
	     "elements of a slot that is not keys and values: a latent"),
	HINT("skip", skip, KVT_HINT_BYTES, KVT_TAKES_SKIP, NULL, "BYTES",
	     "bytes before the data"),
	HINT("set", facts, KVT_HINT_FACTS, 0, NULL, "KEY=VALUE",
	     "a setting that only one format has, kvtool-formats(7)"),
	HINT("blocks-of", blocks_of, KVT_HINT_FACTS, 0, NULL,
	     "REQUEST=BLOCKS[:TOKENS]|@FILE",
	     "blocks of a request: A=5,2,9:21; or rows of an npy or JSON file"),
	HINT("seq-lens", seq_lens, KVT_HINT_STRING, 0, NULL, "N,...|@FILE",
	     "tokens of each of these requests"),
	HINT("slot-mapping", slot_mapping, KVT_HINT_STRING, 0, NULL, "FILE",
	     "slot of each token, instead: an npy or JSON file"),
	HINT("prompt", prompts, KVT_HINT_FACTS, KVT_TAKES_PROMPT, NULL,
	     "[NAME=]FILE|N,N,...",
	     "token ids of a request, whose blocks are found by name"),
	HINT("of-group", next, KVT_HINT_GROUPS, 0, NULL, "GROUP:OPTION=VALUE,...",
	     "options of one group alone: g1:heads=8,head-dim=64"),
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

const struct kvt_hint *kvt_hint_at(int i)
{
	return i >= 0 && i < NROWS ? &rows[i].hint : NULL;
}

static const struct row *find_row(const char *name)
{
	int i = 0;

	while (strcmp(rows[i].hint.name, name))
		i++;
	return &rows[i];
}

/* ---- values -------------------------------------------------------------- */

static size_t size_of(const struct kvt_hint *hint)
{
	static const size_t sizes[] = {
		[KVT_HINT_FLAG]  = sizeof(bool),    [KVT_HINT_STRING] = sizeof(char *),
		[KVT_HINT_COUNT] = sizeof(int64_t), [KVT_HINT_BYTES]  = sizeof(int64_t),
		[KVT_HINT_FACTS] = sizeof(struct kvt_facts),
		[KVT_HINT_GROUPS] = sizeof(struct kvt_hints *),
	};

	return sizes[hint->type];
}

bool kvt_hint_said(const struct kvt_hints *hints, const struct kvt_hint *hint)
{
	static const struct kvt_hints nothing;

	return memcmp((const char *)hints + hint->offset,
		      (const char *)&nothing + hint->offset, size_of(hint)) != 0;
}

/* " is 5"; nothing of what has no value. */
static struct kvt_text print_value(const struct kvt_hints *hints,
				   const struct kvt_hint *hint)
{
	const char *at = (const char *)hints + hint->offset;
	struct kvt_layout named;
	struct kvt_text out = { "" };

	if (hint->offset == offsetof(struct kvt_hints, layout) &&
	    !kvt_layout_parse(&named, hints->layout, NULL))
		snprintf(out.s, sizeof(out.s), " is %.150s", kvt_layout_called(&named).s);
	else if (hint->type == KVT_HINT_STRING)
		snprintf(out.s, sizeof(out.s), " is %.150s", *(const char *const *)at);
	else if (hint->type == KVT_HINT_COUNT || hint->type == KVT_HINT_BYTES)
		snprintf(out.s, sizeof(out.s), " is %lld", LL(*(const int64_t *)at));
	return out;
}

static void overlay(struct kvt_hints *hints, const struct kvt_hints *more, bool of_groups)
{
	for (const struct row *row = rows; row < rows + NROWS; row++)
		if ((row->judge || !of_groups) && kvt_hint_said(more, &row->hint))
			memcpy((char *)hints + row->hint.offset,
			       (const char *)more + row->hint.offset,
			       size_of(&row->hint));
}

void kvt_hints_overlay(struct kvt_hints *hints, const struct kvt_hints *more)
{
	overlay(hints, more, false);
}

struct kvt_hints kvt_hints_of(const struct kvt_hints *hints, const char *group)
{
	struct kvt_hints out = hints ? *hints : (struct kvt_hints){ .manifest = NULL };

	for (const struct kvt_hints *h = out.next; h; h = h->next)
		if (!strcmp(h->group, group))
			overlay(&out, h, true);
	return out;
}

/* ---- refusing ------------------------------------------------------------ */

enum kvt_status kvt_hint_denied(struct kvt_error *err, enum kvt_status status,
				const char *path, const char *name,
				const struct kvt_hints *hints, const char *format, ...)
{
	char why[400];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	return kvt_fail(err, status, "%.200s: --%s%s, but %s", path, name,
			print_value(hints, &find_row(name)->hint).s, why);
}

/* ---- before a file is opened --------------------------------------------- */

static enum kvt_status check_dtype(const char *text, struct kvt_error *err)
{
	const struct kvt_dtype *dtype;
	struct kvt_content content;
	struct kvt_error why;
	enum kvt_status status;

	if (kvt_dtype_find(text))
		return KVT_OK;
	status = kvt_content_parse(&content, text, &why);
	if (status == KVT_BAD_INPUT)
		return kvt_fail(err, KVT_USAGE,
				"'%.40s' is not an element type; as a %.400s", text,
				why.text);
	if (!status)
		return kvt_fail(err, KVT_USAGE,
				"'%.40s' is a content type, not an element type; give --content-type=%s",
				text, content.type->name);
	return kvt_dtype_parse(&dtype, text, err);
}

/* A word of the format, or a layout. */
static enum kvt_status check_layout(const char *text, const struct kvt_format *format,
				    struct kvt_error *err)
{
	struct kvt_layout layout;

	for (int i = 0; format->presets && format->presets[i]; i++)
		if (!strcmp(format->presets[i], text))
			return KVT_OK;
	return kvt_layout_parse(&layout, text, err);
}

static enum kvt_status check_words(const struct kvt_hints *h,
				   const struct kvt_format *format, struct kvt_error *err)
{
	struct kvt_content content;
	enum kvt_status status;

	if ((h->dtype && (status = check_dtype(h->dtype, err))) ||
	    (h->layout && (status = check_layout(h->layout, format, err))))
		return status;
	if (!h->content_type)
		return KVT_OK;
	status = kvt_content_parse(&content, h->content_type, err);
	return status == KVT_BAD_INPUT ? KVT_USAGE : status;
}

enum kvt_status kvt_hints_check(const struct kvt_hints *hints,
				const struct kvt_format *format, const char *path,
				struct kvt_error *err)
{
	enum kvt_status status;

	for (int i = 0; hints && i < NROWS; i++)
		if ((rows[i].takes & ~format->takes) &&
		    kvt_hint_said(hints, &rows[i].hint))
			return kvt_hint_denied(err, KVT_USAGE, path, rows[i].hint.name,
					       hints, "dumps of format %s have none",
					       format->info.name);
	for (const struct kvt_hints *h = hints; h; h = h->next)
		if ((status = check_words(h, format, err)))
			return status;
	return KVT_OK;
}

/* ---- against the snapshot ------------------------------------------------ */

/* The first group that has anything else; KVT_OK also if none has such a thing. */
static enum kvt_status compare_groups(bool *any, const struct row *row,
				      const struct kvt_hints *hints,
				      const struct kvt_snapshot *s,
				      const struct kvt_reader *reader, const char *path,
				      struct kvt_error *err)
{
	*any = false;
	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_hints said = kvt_hints_of(hints, s->group[g].id);
		struct question q = { reader, &s->group[g], &said, { "" } };
		enum verdict verdict = kvt_hint_said(&said, &row->hint) ?
				       row->judge(&q) : NOT_OF_IT;

		if (verdict == DIFFERS)
			return kvt_hint_denied(err, KVT_BAD_INPUT, path, row->hint.name,
					       &said, "group %s has %s", q.group->id,
					       q.has.s);
		*any |= verdict == AGREES;
	}
	return KVT_OK;
}

/* A row whose member an earlier one has is a second name of it. */
static bool is_alias(const struct row *row)
{
	return row > rows && row->hint.offset == row[-1].hint.offset;
}

enum kvt_status kvt_hints_compare_numbers(const struct kvt_hints *hints,
					  const struct kvt_snapshot *s, const char *path,
					  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	bool any;

	for (int i = 0; !status && i < NROWS; i++)
		if (rows[i].hint.type == KVT_HINT_COUNT && !is_alias(&rows[i]))
			status = compare_groups(&any, &rows[i], hints, s, NULL, path,
						err);
	return status;
}

/* Of a group that is not there, or of one that has no such thing. */
static enum kvt_status compare_named(const struct kvt_hints *said,
				     const struct kvt_reader *reader,
				     struct kvt_error *err)
{
	const struct kvt_snapshot *s = &reader->leaf.snapshot;
	struct question q = { .reader = reader, .said = said };

	for (int g = 0; g < s->ngroups; g++)
		if (!strcmp(s->group[g].id, said->group))
			q.group = &s->group[g];
	for (int i = 0; i < NROWS; i++)
		if (rows[i].judge && kvt_hint_said(said, &rows[i].hint) &&
		    (!q.group || rows[i].judge(&q) == NOT_OF_IT))
			return kvt_hint_denied(err, KVT_BAD_INPUT, reader->leaf.path,
					       rows[i].hint.name, said,
					       q.group ? "group %s has none" :
					       "there is no group %s", said->group);
	return KVT_OK;
}

static enum kvt_status compare_total(const struct kvt_hints *hints,
				     const struct kvt_reader *reader,
				     struct kvt_error *err)
{
	const struct kvt_snapshot *s = &reader->leaf.snapshot;
	int64_t said = 0;
	enum kvt_status status;

	status = kvt_fact_int(&said, hints, "total-heads", 1, INT32_MAX, err);
	for (int g = 0; !status && said && g < s->ngroups; g++)
		if (has_keys(&s->group[g]) && s->group[g].total_heads != said)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: --set=total-heads is %lld, but group %s has %lld",
					  reader->leaf.path, LL(said), s->group[g].id,
					  LL(s->group[g].total_heads));
	return status;
}

/* A state of nothing is of whatever heads and blocks all states are told to have. */
static bool may_have(const struct kvt_reader *reader, const struct row *row)
{
	return reader->empty && (row->judge == heads || row->judge == head_dim ||
				 row->judge == block_size);
}

enum kvt_status kvt_hints_compare(const struct kvt_hints *hints,
				  const struct kvt_reader *reader, struct kvt_error *err)
{
	const char *path = reader->leaf.path;
	enum kvt_status status = KVT_OK;
	bool any;

	if (!hints)
		return KVT_OK;
	if (hints->skip && hints->skip != reader->skip)
		return kvt_hint_denied(err, KVT_BAD_INPUT, path, "skip", hints,
				       "data begins at byte %lld", LL(reader->skip));
	for (const struct row *row = rows; !status && row < rows + NROWS; row++) {
		if (!row->judge || is_alias(row))
			continue;
		status = compare_groups(&any, row, hints, &reader->leaf.snapshot, reader,
					path, err);
		if (!status && !any && kvt_hint_said(hints, &row->hint) &&
		    !may_have(reader, row))
			status = kvt_hint_denied(err, KVT_BAD_INPUT, path, row->hint.name,
						 hints, "its groups have none");
	}
	for (const struct kvt_hints *h = hints->next; !status && h; h = h->next)
		status = compare_named(h, reader, err);
	return status ? status : compare_total(hints, reader, err);
}
