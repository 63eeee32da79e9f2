/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.c - what arrives where, if one side reads the regions of the other
 *
 * A transfer copies block after block from the region of one side into that of the
 * other which stands at the same place of the list, or has the same layer.  Both sides
 * say where their layers are.  So for a byte of a layer two addresses on the sending
 * side can be had: where it should come from, and where it does come from.  Both grow
 * evenly from block to block, hence the first two blocks show all.
 */
#include "lib/ops/regions/regions.h"

#include <stdlib.h>
#include <string.h>

/* A tensor on both sides, and the regions that the transfer joins. */
struct both {
	const struct kvt_region_table *from, *to;
	const struct kvt_layer_view *src, *dst;
	const struct kvt_registered *out, *in;
	const struct kvt_registered *const *partner;	/* of each region of 'to' */
	int64_t heads[2];		/* of the sender, of the receiver */
	bool manager;			/* blocks are counted as the manager does */
	struct kvt_rows src_rows, dst_rows, out_rows, in_rows;
	/* bytes of a block of 'dst' that this sender has, and where they begin there */
	int64_t begin, end, src_begin;
	/* what is copied of a block of the region: from, to, how much */
	int64_t out_begin, in_begin, count;
	int64_t times[2];		/* what a block of out, of in is of 'count' */
};

/* ---- which with which ---------------------------------------------------- */

/* The same tensor, by name. */
static const struct kvt_layer_view *same_view(const struct kvt_region_table *t,
					      const struct kvt_layer_view *v)
{
	for (int64_t i = 0; i < t->nlayers; i++) {
		const struct kvt_layer_view *u = &t->layer[i];

		if (u->part == v->part && u->nth == v->nth && !strcmp(u->name, v->name))
			return u;
	}
	return NULL;
}

static const struct kvt_registered *holder_of(const struct kvt_region_table *t,
					  const struct kvt_layer_view *v)
{
	for (int64_t i = 0; i < t->nregions; i++)
		if (kvt_registered_serves(&t->region[i], v) &&
		    kvt_registered_holds(&t->region[i], v))
			return &t->region[i];
	return NULL;
}

/* Of the regions that name a layer the one with that many before it, or NULL. */
static const struct kvt_registered *nth_named(const struct kvt_region_table *t,
					      int64_t layer, int64_t nth)
{
	for (int64_t i = 0; i < t->nregions; i++)
		if (kvt_registered_names(&t->region[i], layer) && !nth--)
			return &t->region[i];
	return NULL;
}

static int64_t number_of(const struct kvt_region_table *t, const char *name)
{
	int64_t i = 0;

	while (i < t->nnames && strcmp(t->name[i], name))
		i++;
	return i;
}

/* By order; or by the first of its layers that a region of the sender names, too. */
static const struct kvt_registered *partner(const struct kvt_region_table *from,
					    const struct kvt_region_table *to, int64_t i)
{
	const struct kvt_registered *in = &to->region[i], *out = NULL;

	if (!from->by_layer)
		return i < from->nregions ? &from->region[i] : NULL;
	for (int64_t k = 0; !out && k < in->nlayers; k++) {
		int64_t before = 0;

		for (int64_t j = 0; j < i; j++)
			before += kvt_registered_names(&to->region[j], in->layer[k]);
		out = nth_named(from, number_of(from, to->name[in->layer[k]]), before);
	}
	return out;
}

/* ---- what can be said together ------------------------------------------- */

static const struct kvt_region_group *group_of(const struct kvt_region_table *t,
					       const struct kvt_layer_view *v)
{
	for (int64_t i = 0; i < t->ngroups; i++)
		if (t->group[i].id == v->group)
			return &t->group[i];
	return NULL;
}

static enum kvt_status check_tokens(const struct both *b, struct kvt_error *err)
{
	const struct kvt_region_group *g = group_of(b->from, b->src);
	const struct kvt_region_group *h = group_of(b->to, b->dst);

	if (!g || !h || (g->kernel_size == h->kernel_size &&
			 (!b->manager || g->block_size == h->block_size)))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.100s: blocks of %lld tokens (the kernel's: %lld) and of %lld (%lld): which bytes belong together depends on the order inside of a block, which tables do not say; compare tables with equal block sizes",
			b->dst->name, LL(g->block_size), LL(g->kernel_size),
			LL(h->block_size), LL(h->kernel_size));
}

/* Heads of both; where they are not said, bytes that go with the ranks say as much. */
static void heads_of(int64_t heads[2], int64_t first[2], const struct both *b)
{
	const struct kvt_layer_view *v[2] = { b->src, b->dst };
	const int64_t tp[2] = { b->from->tp_size, b->to->tp_size };
	const int64_t rank[2] = { b->from->tp_rank, b->to->tp_rank };

	for (int s = 0; s < 2; s++) {
		heads[s] = v[s]->heads;
		first[s] = v[s]->first_head;
	}
	if (heads[0] && heads[1])
		return;
	for (int s = 0; s < 2; s++) {
		heads[s] = 1;
		first[s] = 0;
		if (v[0]->at.len != v[1]->at.len) {
			heads[s] = tp[!s];
			first[s] = rank[s] * heads[s];
		}
	}
}

/* Can a block be cut so that 'few' of 'many' heads are one run, 'skip' from its front? */
static enum kvt_status check_cut(const struct both *b, const int64_t first[2],
				 int64_t skip, struct kvt_error *err)
{
	const int64_t *heads = b->heads;
	int64_t few = heads[0] < heads[1] ? heads[0] : heads[1];
	int64_t many = heads[0] + heads[1] - few;

	if (many % few || skip < 0 || skip > many - few || skip % few)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.100s: rank %lld holds heads %lld..%lld, rank %lld of the receiving side %lld..%lld: compare ranks of which one holds all heads of the other",
				b->dst->name, LL(b->from->tp_rank), LL(first[0]),
				LL(first[0] + heads[0] - 1), LL(b->to->tp_rank),
				LL(first[1]), LL(first[1] + heads[1] - 1));
	if (b->manager && b->src->ratio > 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.100s: ids of the manager, and other heads on each side: what a rank takes of a block of %lld kernel blocks is not one run",
				b->dst->name, LL(b->src->ratio));
	if (b->count <= KVT_MOST_ADDRESS / (many / few))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.100s: block_len is %lld, expected a %lldth of what a block can have",
			b->dst->name, LL(b->count), LL(many / few));
}

static enum kvt_status cut_heads(struct both *b, const int64_t first[2],
				 struct kvt_error *err)
{
	const int64_t *heads = b->heads;
	int64_t a_head = b->dst_rows.len / heads[1];
	bool narrower = heads[1] < heads[0];
	int64_t skip = narrower ? first[1] - first[0] : first[0] - first[1];
	enum kvt_status status;

	b->begin = b->src_begin = b->out_begin = b->in_begin = 0;
	b->end = b->dst_rows.len;
	b->times[0] = b->times[1] = 1;
	b->count = heads[0] < heads[1] ? b->out_rows.len : b->in_rows.len;
	if (heads[0] == heads[1] && !skip)
		return KVT_OK;
	if ((status = check_cut(b, first, skip, err)))
		return status;
	if (narrower) {
		b->times[0] = heads[0] / heads[1];
		b->src_begin = skip * a_head;
		b->out_begin = skip / heads[1] * b->count;
	} else {
		b->times[1] = heads[1] / heads[0];
		b->begin = skip * a_head;
		b->end = b->begin + heads[0] * a_head;
		b->in_begin = skip / heads[0] * b->count;
	}
	return KVT_OK;
}

/* ---- what arrives --------------------------------------------------------- */

/* Which tensor of the sender has the byte at an address, preferably that of 'like'. */
static const struct kvt_layer_view *view_at(const struct both *b, int64_t address,
					    int64_t *block, int64_t *byte)
{
	const struct kvt_layer_view *found = NULL;

	for (int64_t i = 0; i < b->from->nlayers; i++) {
		const struct kvt_layer_view *v = &b->from->layer[i];
		const struct kvt_rows rows = kvt_view_rows(v, b->manager);
		int64_t offset = address - rows.base;

		if (offset < 0 || offset / rows.stride >= rows.blocks ||
		    offset % rows.stride >= rows.len ||
		    (found && v->layer != b->src->layer))
			continue;
		found = v;
		*block = offset / rows.stride;
		*byte = offset % rows.stride;
	}
	return found;
}

/* In its block_len, or in its stride: 0, 1 or 2 of them. */
static int counts_padding(const struct kvt_registered *region,
			  const struct kvt_rows *rows)
{
	if (rows->stride == rows->len)
		return 0;
	return (region->at.len > rows->len) + (region->at.stride > rows->len);
}

/* A layer whose pages are padded on one side alone is no fault by itself. */
static bool padding_differs(const struct both *b)
{
	bool padded = b->src_rows.stride > b->src_rows.len;

	if (padded != (b->dst_rows.stride > b->dst_rows.len))
		return b->out->at.len > b->src_rows.len ||
		       b->in->at.len > b->dst_rows.len;
	return counts_padding(b->out, &b->src_rows) !=
	       counts_padding(b->in, &b->dst_rows);
}

static bool lengths_fit(const struct both *b)
{
	return b->times[0] * b->count == b->out_rows.len &&
	       b->times[1] * b->count == b->in_rows.len;
}

static const char *cause_of(const struct both *b, const struct kvt_layer_view *there)
{
	if (there && there->layer != b->src->layer)
		return "transfer.layer";
	if (there && there->part != b->src->part)
		return "transfer.kv";
	if (padding_differs(b))
		return "transfer.padding";
	return lengths_fit(b) ? "transfer.block" : "transfer.block-len";
}

/* The address from which byte 'begin' of a block should come, and does come. */
static bool check_source(struct kvt_findings *r, const struct both *b)
{
	int64_t right = b->src_rows.base + b->src_begin;
	int64_t real = b->out_rows.base + b->out_begin + b->dst_rows.base + b->begin -
		       b->in_rows.base - b->in_begin;
	bool drifts = b->src_rows.stride != b->out_rows.stride && b->src_rows.blocks > 1;
	int64_t first = real == right, block = 0, byte = 0, n = b->end - b->begin;
	const struct kvt_layer_view *there;

	if (real == right && !drifts)
		return true;
	real += first * b->out_rows.stride;
	there = view_at(b, real, &block, &byte);
	if (there) {
		struct kvt_rows rows = kvt_view_rows(there, b->manager);

		n = n < rows.len - byte ? n : rows.len - byte;
		kvt_find(r, cause_of(b, there), kvt_find_at_view(b->dst),
			 "from block %lld on: bytes %lld..%lld of block %lld get bytes %lld..%lld of block %lld of %.100s (%s): region %lld to region %lld",
			 LL(first), LL(b->begin), LL(b->begin + n - 1), LL(first),
			 LL(byte), LL(byte + n - 1), LL(block), there->name,
			 kvt_region_part_name(there->part), LL(b->out - b->from->region),
			 LL(b->in - b->to->region));
	} else {
		kvt_find(r, cause_of(b, NULL), kvt_find_at_view(b->dst),
			 "from block %lld on: byte %lld of block %lld gets what the sender has at 0x%llx, which is in no block of a layer: region %lld to region %lld",
			 LL(first), LL(b->begin), LL(first), LL(real),
			 LL(b->out - b->from->region), LL(b->in - b->to->region));
	}
	return false;
}

/* Lengths of both regions: do all bytes arrive, and do none land behind the block? */
static bool check_lengths(struct kvt_findings *r, const struct both *b)
{
	int64_t at = b->dst_rows.base - b->in_rows.base - b->in_begin;
	const char *rule = padding_differs(b) ? "transfer.padding" : "transfer.block-len";

	if (at + b->begin < 0 || at + b->end > b->count) {
		kvt_find(r, rule, kvt_find_at_view(b->dst),
			 "%lld bytes of a block are copied: not all of bytes %lld..%lld of the layer's block arrive",
			 LL(b->count), LL(b->begin), LL(b->end) - 1);
		return false;
	}
	if (lengths_fit(b))
		return true;
	kvt_find(r, rule, kvt_find_at_view(b->dst),
		 "the sender's blocks have %lld bytes in region %lld, the receiver's %lld in region %lld: connectors refuse that, or move %lld bytes that are not the block's",
		 LL(b->out_rows.len), LL(b->out - b->from->region), LL(b->in_rows.len),
		 LL(b->in - b->to->region),
		 LL(b->out_rows.len > b->in_rows.len ? b->out_rows.len - b->in_rows.len :
		      b->in_rows.len - b->out_rows.len));
	return false;
}

static struct kvt_rows region_rows(const struct both *b,
				   const struct kvt_registered *region,
				   const struct kvt_layer_view *v)
{
	return b->manager && !region->manager ? kvt_rows_joined(&region->at, v->ratio) :
	       region->at;
}

static enum kvt_status join(struct both *b, struct kvt_error *err)
{
	enum kvt_status status;
	int64_t first[2];

	b->manager = b->out->manager || b->in->manager;
	if ((status = check_tokens(b, err)))
		return status;
	if (!(b->src->heads && b->dst->heads) && b->from->tp_size == b->to->tp_size &&
	    b->from->tp_rank != b->to->tp_rank)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.100s: tables of ranks %lld and %lld, and 'heads' does not say whether one reads from the other",
				b->dst->name, LL(b->from->tp_rank), LL(b->to->tp_rank));
	b->src_rows = kvt_view_rows(b->src, b->manager);
	b->dst_rows = kvt_view_rows(b->dst, b->manager);
	b->out_rows = region_rows(b, b->out, b->src);
	b->in_rows = region_rows(b, b->in, b->dst);
	heads_of(b->heads, first, b);
	return cut_heads(b, first, err);
}

/* Has each head as many bytes on both sides? */
static bool same_content(const struct both *b)
{
	const int64_t *heads = b->heads;
	int64_t src = b->src_rows.len, dst = b->dst_rows.len;

	if (heads[0] == heads[1])
		return src == dst;
	return src % heads[0] == 0 && dst % heads[1] == 0 &&
	       src / heads[0] == dst / heads[1];
}

/* True in *whole where every byte of the tensor comes from where it should. */
static enum kvt_status check_view(struct kvt_findings *r, bool *whole, struct both *b,
				  struct kvt_error *err)
{
	enum kvt_status status;

	*whole = false;
	if (!(b->src = same_view(b->from, b->dst))) {
		kvt_find(r, "transfer.missing", kvt_find_at_view(b->dst),
			 "only the receiving side has it");
		return KVT_OK;
	}
	/* a layer without a region was told of by the table's own check */
	if (!(b->in = holder_of(b->to, b->dst)))
		return KVT_OK;
	if (!(b->out = b->partner[b->in - b->to->region])) {
		kvt_find(r, "transfer.count", kvt_find_at_view(b->dst),
			 "the sending side has no region for region %lld",
			 LL(b->in - b->to->region));
		return KVT_OK;
	}
	if ((status = join(b, err)))
		return status;
	if (!same_content(b)) {
		kvt_find(r, "transfer.content", kvt_find_at_view(b->dst),
			 "a block of the layer has %lld bytes for %lld heads on the sending side, and %lld for %lld: element types or shapes differ",
			 LL(b->src_rows.len), LL(b->heads[0]), LL(b->dst_rows.len),
			 LL(b->heads[1]));
		return KVT_OK;
	}
	*whole = check_source(r, b) && check_lengths(r, b);
	return KVT_OK;
}

static enum kvt_status check_views(struct kvt_findings *r,
				   struct kvt_regions_arrived *arrived,
				   const struct kvt_region_table *from,
				   const struct kvt_region_table *to,
				   const struct kvt_registered *const *partner,
				   struct kvt_error *err)
{
	enum kvt_status status;
	bool whole;

	for (int64_t i = 0; i < to->nlayers; i++) {
		struct both b = { .from = from, .to = to, .dst = &to->layer[i],
				  .partner = partner };

		if (b.dst->shares)
			continue;
		arrived->views++;
		if ((status = check_view(r, &whole, &b, err)))
			return status;
		arrived->whole += whole;
	}
	for (int64_t i = 0; i < from->nlayers; i++)
		if (!from->layer[i].shares && !same_view(to, &from->layer[i]))
			kvt_find(r, "transfer.missing", kvt_find_at_view(&from->layer[i]),
				 "only the sending side has it");
	return KVT_OK;
}

static enum kvt_status check_tables(const struct kvt_region_table *from,
				    const struct kvt_region_table *to,
				    struct kvt_error *err)
{
	if (!from->nlayers || !to->nlayers)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the table of the %s side has no layers: without them it is not known what a block holds",
				from->nlayers ? "receiving" : "sending");
	if (from->by_layer != to->by_layer)
		return kvt_fail(err, KVT_BAD_INPUT,
				"one side pairs regions by layer, the other by order: these are tables of two connectors");
	return KVT_OK;
}

enum kvt_status kvt_regions_transfer(struct kvt_findings *r,
				     struct kvt_regions_arrived *arrived,
				     const struct kvt_region_table *from,
				     const struct kvt_region_table *to,
				     struct kvt_error *err)
{
	enum kvt_status status = check_tables(from, to, err);
	const struct kvt_registered **partners;

	*arrived = (struct kvt_regions_arrived){ 0, 0 };
	if (status)
		return status;
	if (!(partners = calloc((size_t)to->nregions, sizeof(const void *))))
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < to->nregions; i++)
		partners[i] = partner(from, to, i);
	if (!from->by_layer && from->nregions != to->nregions)
		kvt_find(r, "transfer.count", kvt_find_at("%s", ""),
			 "the sending side has %lld regions, the receiving side %lld, and they pair by order",
			 LL(from->nregions), LL(to->nregions));
	status = check_views(r, arrived, from, to, partners, err);
	free(partners);
	return status;
}
