/* SPDX-License-Identifier: Apache-2.0 */
/* pick_width.c - the heads and channels of a rank, or those that were named */
#include "cli/pick.h"

#include <string.h>

#define LL(x) ((long long)(x))

/* ---- heads -------------------------------------------------------------- */

static enum kvt_status take_heads(struct source_part *part, struct kvt_group *group,
				  struct kvt_range want, const char *who,
				  struct kvt_error *err)
{
	int64_t first = group->head_start, count = group->shape.n[KVT_AXIS_H];

	if (want.begin < first || want.end > first + count || want.begin >= want.end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %s heads %lld to %lld, the dump has %lld to %lld",
				group->id, who, LL(want.begin), LL(want.end - 1),
				LL(first), LL(first + count - 1));
	part->heads = (struct source_run){ 0, want.begin - first,
					   want.end - want.begin };
	group->head_start = want.begin;
	group->shape.n[KVT_AXIS_H] = want.end - want.begin;
	return KVT_OK;
}

static enum kvt_status heads_of_rank(struct source_part *part, struct kvt_group *group,
				     struct kvt_rank rank, struct kvt_error *err)
{
	struct kvt_range own;
	enum kvt_status status;
	struct kvt_error why;
	char who[64];

	if (group->kind == KVT_OPAQUE)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: nobody knows how opaque content is dealt to ranks",
				group->id);
	if (group->kind == KVT_MAMBA_SSM && group->total_heads % rank.size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld state heads cannot be dealt to %lld ranks evenly",
				group->id, LL(group->total_heads), LL(rank.size));
	if ((status = kvt_owned(&own, group->total_heads, rank, &why)))
		return kvt_fail(err, status, "%s: %.400s", group->id, why.text);
	snprintf(who, sizeof(who), "rank %lld of %lld holds", LL(rank.index),
		 LL(rank.size));
	group->replication = kvt_is_replicated(group->total_heads, rank.size) ?
			     rank.size / group->total_heads : 1;
	return take_heads(part, group, own, who, err);
}

/* ---- channels of a conv state ------------------------------------------- */

enum { PART_X, PART_B, PART_C, NCONV };
static const char *const conv_names[NCONV] = { "x", "B", "C" };

/* The parts of the whole model, out of what one of 'ranks' ranks holds. */
struct conv {
	const struct kvt_component *here[NCONV];
	int64_t base[NCONV], total[NCONV], units[NCONV];
};

enum kvt_status check_parts(const struct kvt_group *group, struct kvt_error *err)
{
	int64_t sum = 0;
	bool ok = group->ncomponents > 0;

	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		ok &= c->length > 0;
		sum += c->length;
		for (int j = 0; j < i; j++) {
			const struct kvt_component *d = &group->component[j];

			ok &= c->start + c->length <= d->start ||
			      d->start + d->length <= c->start;
		}
	}
	if (ok && sum == group->shape.n[KVT_AXIS_D])
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: the dump does not say of each of its %lld channels whether it is x, B or C",
			group->id, LL(group->shape.n[KVT_AXIS_D]));
}

/* Which component is which part. */
static enum kvt_status name_parts(struct conv *conv, const struct kvt_group *group,
				  struct kvt_error *err)
{
	enum kvt_status status = check_parts(group, err);

	for (int i = 0; !status && i < group->ncomponents; i++) {
		int p = 0;

		while (p < NCONV && strcmp(conv_names[p], group->component[i].name))
			p++;
		if (p == NCONV)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: part '%s' is none of x, B and C, whose owners are known",
					group->id, group->component[i].name);
		conv->here[p] = &group->component[i];
	}
	if (!status && (!conv->here[PART_X] ||
			!conv->here[PART_B] != !conv->here[PART_C]))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the dump lacks part x, or has only one of B and C",
				group->id);
	return status;
}

static enum kvt_status conv_parts(struct conv *conv, const struct kvt_group *group,
				  int64_t ranks, struct kvt_error *err)
{
	const struct kvt_component **here = conv->here;
	enum kvt_status status = name_parts(conv, group, err);
	bool fits;

	if (status)
		return status;
	fits = !__builtin_mul_overflow(here[PART_X]->length, ranks,
				       &conv->total[PART_X]);
	if (here[PART_B]) {
		/* each rank begins at one place of B and C */
		conv->base[PART_B] = conv->total[PART_X];
		conv->total[PART_B] = conv->total[PART_C] =
			here[PART_C]->global_start - here[PART_B]->global_start;
		fits = fits && !__builtin_add_overflow(conv->base[PART_B],
						       conv->total[PART_B],
						       &conv->base[PART_C]);
	}
	for (int p = 0; p < NCONV; p++)
		if (here[p] && (!fits || conv->total[p] < here[p]->length ||
				here[p]->global_start < conv->base[p] ||
				here[p]->global_start - conv->base[p] >
				conv->total[p] - here[p]->length))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: part %s of %lld channels from %lld does not fit a rank of %lld",
					group->id, conv_names[p], LL(here[p]->length),
					LL(here[p]->global_start), LL(ranks));
	return KVT_OK;
}

/* B and C are dealt out by groups, and the shapes do not show how many. */
static enum kvt_status conv_units(struct conv *conv, const struct kvt_group *group,
				  int64_t ranks, int64_t groups,
				  struct kvt_error *err)
{
	const struct kvt_component *b = conv->here[PART_B];

	conv->units[PART_X] = conv->total[PART_X];
	if (!b)
		return KVT_OK;
	/* ranks that hold more than an even share hold a group each */
	if (conv->total[PART_B] % ranks || conv->total[PART_B] / ranks != b->length) {
		int64_t found = conv->total[PART_B] / b->length;

		if (groups && groups != found)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: --mamba-groups is %lld, but the parts show %lld groups",
					group->id, LL(groups), LL(found));
		groups = found;
	}
	if (!groups)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: how B and C are dealt to ranks depends on the number of groups; give it with --mamba-groups",
				group->id);
	if (conv->total[PART_B] % groups)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: --mamba-groups is %lld, which does not divide the %lld channels of B",
				group->id, LL(groups), LL(conv->total[PART_B]));
	conv->units[PART_B] = conv->units[PART_C] = groups;
	return KVT_OK;
}

static enum kvt_status take_channels(struct source_part *part, struct kvt_group *group,
				     const struct conv *conv, struct kvt_rank rank,
				     struct kvt_error *err)
{
	struct kvt_group out = *group;
	int64_t at = 0;

	part->nruns = out.ncomponents = 0;
	for (int p = 0; p < NCONV; p++) {
		const struct kvt_component *here = conv->here[p];
		struct kvt_component *to = &out.component[out.ncomponents];
		struct kvt_range own;
		enum kvt_status status;
		struct kvt_error why;
		int64_t rows, first;

		if (!here)
			continue;
		if ((status = kvt_owned(&own, conv->units[p], rank, &why)))
			return kvt_fail(err, status, "%s: part %s: %.400s", group->id,
					conv_names[p], why.text);
		rows = conv->total[p] / conv->units[p];
		first = conv->base[p] + own.begin * rows;
		*to = *here;
		to->start = at;
		to->length = (own.end - own.begin) * rows;
		to->global_start = first;
		if (first < here->global_start ||
		    first + to->length > here->global_start + here->length)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: rank %lld of %lld holds channels %lld to %lld in part %s, the dump has %lld to %lld",
					group->id, LL(rank.index), LL(rank.size),
					LL(first), LL(first + to->length - 1),
					conv_names[p], LL(here->global_start),
					LL(here->global_start + here->length - 1));
		part->run[part->nruns++] = (struct source_run){
			at, here->start + first - here->global_start, to->length,
		};
		at += to->length;
		out.ncomponents++;
	}
	out.shape.n[KVT_AXIS_D] = at;
	*group = out;
	return KVT_OK;
}

static enum kvt_status channels_of_rank(struct source_part *part,
					struct kvt_group *group,
					int64_t ranks, const struct pick *pick,
					struct kvt_error *err)
{
	struct conv conv = { .units = { 0 } };
	enum kvt_status status;

	if ((status = conv_parts(&conv, group, ranks, err)) ||
	    (status = conv_units(&conv, group, ranks, pick->mamba_groups, err)))
		return status;
	if (conv.total[PART_X] % pick->rank.size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld channels of x cannot be dealt to %lld ranks evenly",
				group->id, LL(conv.total[PART_X]),
				LL(pick->rank.size));
	return take_channels(part, group, &conv, pick->rank, err);
}

/* ---- both --------------------------------------------------------------- */

enum kvt_status pick_width(struct source_part *part, struct kvt_group *group,
			   const struct kvt_parallel *parallel,
			   const struct pick *pick, struct kvt_error *err)
{
	const struct kvt_rank *rank = &pick->rank;
	bool conv = group->kind == KVT_MAMBA_CONV;

	*part = (struct source_part){
		.heads = { 0, 0, group->shape.n[KVT_AXIS_H] },
		.nruns = 1, .run = { { 0, 0, group->shape.n[KVT_AXIS_D] } },
	};
	if (pick->heads.n && conv)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a convolution state has no heads; expected --tp-size and --tp-rank",
				group->id);
	if (pick->heads.n)
		return take_heads(part, group, pick->heads.range[0], "--heads are",
				  err);
	/* what it is already needs no number of groups */
	if (!rank->size || (rank->size == parallel->tp_size &&
			    rank->index == parallel->tp_rank))
		return KVT_OK;
	return conv ? channels_of_rank(part, group, parallel->tp_size, pick, err) :
		      heads_of_rank(part, group, *rank, err);
}

/* ---- pages -------------------------------------------------------------- */

static int64_t content_bytes(const struct kvt_group *group)
{
	int64_t nbytes = group->shape.elem;

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= group->shape.n[a];
	return nbytes;
}

/*
 * The groups of a page follow each other, each at a multiple of its element.
 * Padding behind them belonged to another allocation.
 */
void place_in_pages(struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; ) {
		int64_t page = snapshot->group[g].page_bytes, at = 0;
		int64_t offset = snapshot->group[g].page_offset;
		int end = g + 1;

		while (page && end < snapshot->ngroups &&
		       snapshot->group[end].page_bytes == page &&
		       snapshot->group[end].page_offset > offset)
			offset = snapshot->group[end++].page_offset;
		for (int i = g; page && i < end; i++) {
			struct kvt_group *group = &snapshot->group[i];

			at = (at + group->shape.elem - 1) / group->shape.elem *
			     group->shape.elem;
			group->page_offset = at;
			at += content_bytes(group);
		}
		for (int i = g; page && i < end; i++)
			snapshot->group[i].page_bytes = at;
		g = end;
	}
}
