/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_rows.c - reading the rows of vLLM's file-system tier
 *
 * The dump is the whole cache: the heads of all ranks.  A config says neither how
 * many ranks share a row, if vLLM calls it agnostic, nor what is in a page, so
 * the length of the files is held against all that is said, to the byte.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/vllm/offload.h"

enum {
	SAMPLE = 16,			/* files looked into at open */
	CHUNK = 64 * 1024,
};

/* ---- ranks -------------------------------------------------------------- */

static enum kvt_status start(struct kvt_offload *o)
{
	const struct kvt_offload_config *c = &o->config;

	if (o->rank)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: is of rank %lld, but vLLM's tier writes all ranks into _r0; give --from=" KVT_OFFLOAD_LLMD " if llm-d wrote it", o->folder,
				LL(o->rank));
	if (c->pp_size > 1 || c->dcp_size > 1)
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: pp_size is %lld, dcp_size %lld; it is not known how such ranks share a file",
				o->base, LL(c->pp_size), LL(c->dcp_size));
	if (c->canonical && c->tp_size > 1)
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: is canonical, but not for every TP: some layers are stored in another way, and the config does not tell which",
				o->base);
	o->row = (struct kvt_offload_row){ .canonical = c->canonical != NULL,
					   .per_file = c->blocks_per_file };
	return KVT_OK;
}

/* Does the config tell how many ranks a row is of? */
static bool says_ranks(const struct kvt_offload_config *c, const struct kvt_group *group)
{
	return c->tp_size > 1 || (c->says_agnostic && !c->agnostic) ||
	       kvt_group_opaque(group);
}

/* The user must say it; what the bytes speak for is told. */
static enum kvt_status ask_ranks(struct kvt_offload *o, const struct kvt_group *group)
{
	const int number = o->number[group - o->reader->leaf.snapshot.group];
	char fits[160];
	bool known = kvt_offload_fits_ranks(fits, sizeof(fits), o, group, number);

	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: its config does not record the number of tensor parallel ranks; give --set tp-size=N, that of the engine which wrote it%s%s",
			o->base, known ? "; its bytes fit " : "", known ? fits : "");
}

static enum kvt_status find_ranks(struct kvt_offload *o, const struct kvt_group *group)
{
	const struct kvt_offload_config *c = &o->config;
	int64_t said = 0, heads = group->shape.n[KVT_AXIS_H];
	enum kvt_status status;

	if ((status = kvt_fact_int(&said, o->hints, "tp-size", 1, KVT_OFFLOAD_MOST_RANKS,
				   o->err)))
		return status;
	o->row.ranks = 1;
	if (c->replicated)
		return KVT_OK;
	if (c->canonical) {
		o->row.ranks = said ? said : 1;
		return KVT_OK;
	}
	if (says_ranks(c, group)) {
		o->row.ranks = c->tp_size;
		if (!said || said == c->tp_size)
			return KVT_OK;
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tp_size is %lld, but %lld was given", o->base, LL(c->tp_size), LL(said));
	}
	if (!said)
		return ask_ranks(o, group);
	if (heads % said)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: %lld heads cannot be divided among %lld ranks in a tree whose config is the same for every TP",
				o->base, LL(heads), LL(said));
	o->row.ranks = said;
	return KVT_OK;
}

/* Rows have the heads of all ranks. */
static enum kvt_status check_heads(const struct kvt_offload *o,
				   const struct kvt_group *group)
{
	int64_t heads = group->shape.n[KVT_AXIS_H], said = heads;
	enum kvt_status status;

	status = kvt_fact_int(&said, o->hints, "total-heads", 1, 1 << 20, o->err);
	if (status || said == heads)
		return status;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: its files have the heads of all ranks, so give the --heads of the model: %lld, or %lld",
			o->base, LL(heads), LL(said));
}

/* ---- sizes -------------------------------------------------------------- */

static enum kvt_status wrong_size(const struct kvt_offload *o, const char *name,
				  int64_t nbytes)
{
	const struct kvt_offload_row *row = &o->row;

	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%.160s/%.90s: has %lld bytes, expected %lld: up to a multiple of %lld, %lld rank%s x %lld layers x %lld blocks of %lld bytes; see kvtool-formats(7) for --set tp-size, block-bytes, row-align",
			o->folder, name, LL(nbytes), LL(row->nbytes),
			LL(row->align ? row->align : 4096), LL(row->ranks),
			row->ranks == 1 ? "" : "s", LL(row->layers), LL(row->per_file),
			LL(row->rank_bytes / row->layers / row->per_file));
}

/* All files are rows of one length, those of other groups, too. */
static enum kvt_status check_sizes(struct kvt_offload *o)
{
	int64_t i = 0;

	while (i < o->tree.count && o->tree.file[i].nbytes == o->row.nbytes)
		i++;
	/* of a sample, those that are not in it count as well */
	if ((i == o->tree.count && !o->census) ||
	    kvt_offload_leave_lengths(o, o->row.nbytes))
		return KVT_OK;
	if (i < o->tree.count)
		return wrong_size(o, o->tree.file[i].name, o->tree.file[i].nbytes);
	return KVT_OK;
}

static enum kvt_status fit(struct kvt_offload *o, struct kvt_group *group,
			   const struct kvt_offload_files *files)
{
	const char *layout = kvt_hints_of(o->hints, group->id).layout;
	struct kvt_offload_row *row = &o->row;
	enum kvt_status status;

	(void)files;
	if (layout &&
	    ((status = kvt_layout_parse(&group->layout, layout, o->err)) ||
	     (status = kvt_offload_row_layout(&group->layout, o->err))))
		return status;
	if ((status = kvt_offload_fit(o, group, -1)) ||
	    (status = check_heads(o, group)) || (status = find_ranks(o, group)) ||
	    (status = kvt_fact_int(&row->page, o->hints, "block-bytes", 1,
				   KVT_OFFLOAD_MOST_PAGE, o->err)) ||
	    (status = kvt_fact_int(&row->align, o->hints, "row-align", 1,
				   KVT_OFFLOAD_MOST_ALIGN, o->err)))
		return status;
	row->layers = kvt_offload_most_layers(&o->config, group->shape.n[KVT_AXIS_L]);
	if ((status = kvt_offload_row_measure(row, group, o->folder, o->err)))
		return status;
	return check_sizes(o);
}

/* ---- what only the bytes tell ------------------------------------------- */

static enum kvt_status flaw(struct kvt_offload *o, const char *rule, int64_t file,
			    const char *what)
{
	const struct kvt_inspector *inspector = o->hints->inspector;
	char text[400];

	snprintf(text, sizeof(text), "%.120s: %s", o->tree.file[file].name, what);
	if (inspector) {
		inspector->found(inspector->context, rule, text);
		return KVT_OK;
	}
	return kvt_fail(o->err, KVT_BAD_INPUT, "%.100s/%s", o->folder, text);
}

/* Does a range of a file differ from another one, or (from < 0) from zeros? */
static enum kvt_status differs(bool *out, const struct kvt_offload *o, int index,
			       int64_t at, int64_t from, int64_t n)
{
	const struct kvt_file *file = &o->reader->files.file[index];
	uint8_t *buf = calloc(2, CHUNK);
	enum kvt_status status = buf ? KVT_OK : kvt_no_memory(o->err, o->path);

	*out = false;
	for (int64_t done = 0, some; !status && !*out && done < n; done += some) {
		some = n - done < CHUNK ? n - done : CHUNK;
		status = kvt_file_read(file, buf, some, at + done, o->err);
		if (!status && from >= 0)
			status = kvt_file_read(file, buf + CHUNK, some, from + done,
					       o->err);
		*out = !status && memcmp(buf, buf + CHUNK, (size_t)some);
	}
	free(buf);
	return status;
}

/* No writer fills what follows the cells. */
static enum kvt_status check_tail(struct kvt_offload *o, int64_t i, int index)
{
	const struct kvt_offload_row *row = &o->row;
	enum kvt_status status;
	char text[160];
	bool bad;

	if ((status = differs(&bad, o, index, row->used, -1, row->nbytes - row->used)) ||
	    !bad)
		return status;
	snprintf(text, sizeof(text),
		 "its last %lld bytes are not zero, so the data of a rank has more than %lld bytes", LL(row->nbytes - row->used), LL(row->used));
	return flaw(o, "row.tail", i, text);
}

/* Ranks that hold the same heads hold the same bytes of this group. */
static enum kvt_status check_copies(struct kvt_offload *o, int g, int64_t i, int index)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	const struct kvt_offload_row *row = &o->row;
	int64_t shares = kvt_group_opaque(group) ? 1 : group->shape.n[KVT_AXIS_H];
	int64_t each = row->canonical ? 1 : row->ranks / shares;
	enum kvt_status status = KVT_OK;
	bool bad = false;
	char text[160];

	/* of smaller groups a part is stale, and copies of that need not be equal */
	if (group->shape.n[KVT_AXIS_L] != row->layers || row->page)
		return KVT_OK;
	for (int64_t r = 0; !status && !bad && r < row->ranks && each > 1; r++)
		if (r % each) {
			int64_t first = r - r % each;

			status = differs(&bad, o, index, r * row->rank_bytes,
					 first * row->rank_bytes, row->rank_bytes);
			snprintf(text, sizeof(text),
				 "ranks %lld and %lld, which hold the same heads, differ",
				 LL(first), LL(r));
		}
	return status || !bad ? status : flaw(o, "ranks.replicas", i, text);
}

/* ---- blocks ------------------------------------------------------------- */

static enum kvt_status add_file(struct kvt_offload *o, int g, int64_t i, int64_t *block,
				bool look)
{
	struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	enum kvt_status status;
	int file;

	if ((status = kvt_offload_name_blocks(o, group->block_names + *block, i,
					      o->row.per_file)) ||
	    (status = kvt_tree_list(&o->reader->files, &file, &o->tree, i, o->err)) ||
	    (look && ((status = check_tail(o, i, file)) ||
		      (status = check_copies(o, g, i, file)))))
		return status;
	status = kvt_offload_row_place(&o->reader->flat[g], &o->row, group, *block, file,
				       false, o->err);
	*block += o->row.per_file;
	return status;
}

static enum kvt_status add_files(struct kvt_offload *o, int g)
{
	struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	int number = o->number[g];
	int64_t files = o->of[number].count, block = 0, seen = 0, step;
	int64_t first = o->reader->files.count;
	enum kvt_status status;

	group->shape.n[KVT_AXIS_B] = files * o->row.per_file;
	if ((status = kvt_store_new_names(group, o->err)))
		return status;
	/* an inspector hears of all flaws and waits for all files */
	step = o->hints->inspector || files < SAMPLE ? 1 : files / SAMPLE;
	for (int64_t i = 0; !status && i < o->tree.count; i++)
		if (kvt_offload_group_of(o, i) == number)
			status = add_file(o, g, i, &block, seen++ % step == 0);
	return status ? status : kvt_offload_written(o, g, first);
}

/* Groups share the memory that a row is a copy of, in blocks of one size. */
static enum kvt_status ready(struct kvt_offload *o)
{
	const struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status = KVT_OK;
	int64_t page[2];

	for (int g = 1; !status && g < s->ngroups; g++) {
		if ((status = kvt_offload_page(&page[0], &s->group[0], o->err)) ||
		    (status = kvt_offload_page(&page[1], &s->group[g], o->err)))
			return status;
		if (page[0] != page[1])
			status = kvt_fail(o->err, KVT_BAD_INPUT,
					  "%s: blocks of a layer have %lld bytes in %s and %lld in %s, expected one number; give one --set group",
					  o->folder, LL(page[0]), s->group[0].id,
					  LL(page[1]), s->group[g].id);
	}
	return status;
}

const struct kvt_offload_kind kvt_offload_rows = {
	.checks =
		  "digest of the config, names, lengths, zeros at the end, replicas of heads",
	.start = start, .fit = fit, .ready = ready, .add = add_files,
};
