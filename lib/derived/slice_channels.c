/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice_channels.c - channels of a conv state that a rank holds, and components
 *
 * A conv state is parts (x, B, C, or q, k, v) one after the other, each of which is
 * dealt to ranks by units of its own; a rank's share is one segment of each:
 *
 *	model	| x0 x1 x2 x3 | B0 B1 | C0 C1 |		2 groups, 2 ranks
 *	rank 1	| x2 x3 | B1 | C1 |			side by side
 *
 * A dump of one rank shows the model: x, q, k and v are never held twice, so a part is
 * as many shares as there are ranks; B is as long as from its begin to that of C, which
 * every rank counts in the model.  Units of x are channels; of B and C groups, whose
 * number shows where ranks hold more than an even share, and is else that of
 * --mamba-groups; of q, k and v heads of k, which an SSM state [v heads][v width][k
 * width] of the same layers tells.
 */
#include "lib/derived/slice.h"

#include <stdio.h>
#include <string.h>

/* ---- parts -------------------------------------------------------------- */

static const char *const families[][CONV_PARTS] = {
	{ "x", "B", "C" }, { "q", "k", "v" },
};
enum { XBC, QKV, NFAMILIES };
enum { PART_X, PART_B, PART_C };
enum { PART_Q, PART_K, PART_V };

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
			"%s: it is not known for each of the %lld channels whether it is x, B or C",
			group->id, LL(group->shape.n[KVT_AXIS_D]));
}

static bool find_name(int *family, int *part, const char *name)
{
	for (*family = 0; *family < NFAMILIES; ++*family)
		for (*part = 0; *part < CONV_PARTS; ++*part)
			if (!strcmp(families[*family][*part], name))
				return true;
	return false;
}

bool part_follows(const char *before, const char *name)
{
	int a, b, p, q;

	if (!find_name(&b, &q, name))
		return true;
	if (!before)
		return q == 0;
	return find_name(&a, &p, before) && a == b && q == p + 1;
}

/* Which component is which part. */
static enum kvt_status name_parts(struct conv *conv, int *family,
				  const struct kvt_group *group, struct kvt_error *err)
{
	enum kvt_status status = check_parts(group, err);

	*family = -1;
	for (int i = 0; !status && i < group->ncomponents; i++) {
		int f, p;

		if (!find_name(&f, &p, group->component[i].name) ||
		    (*family >= 0 && f != *family))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: part '%s' is not x, B, C, q, k or v; it is not known which rank has it",
					group->id, group->component[i].name);
		*family = f;
		conv->here[p] = &group->component[i];
		conv->name[p] = families[f][p];
	}
	if (status)
		return status;
	if (*family == XBC && (!conv->here[PART_X] ||
			       !conv->here[PART_B] != !conv->here[PART_C]))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the dump lacks part x, or has only one of B and C",
				group->id);
	if (*family == QKV && !(conv->here[PART_Q] && conv->here[PART_K] &&
				conv->here[PART_V]))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the dump lacks one of q, k and v", group->id);
	return KVT_OK;
}

/* ---- the whole model, out of what one of 'ranks' ranks holds ------------- */

static enum kvt_status does_not_fit(const struct kvt_group *group,
				    const struct kvt_component *c, int64_t ranks,
				    struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: part %s of %lld channels from %lld does not fit a rank of %lld",
			group->id, c->name, LL(c->length), LL(c->global_start),
			LL(ranks));
}

static bool total_xbc(struct conv *conv, int64_t ranks)
{
	const struct kvt_component **here = conv->here;
	bool fits = !__builtin_mul_overflow(here[PART_X]->length, ranks,
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
	return fits;
}

/* None of these is ever held twice. */
static bool total_qkv(struct conv *conv, int64_t ranks)
{
	bool fits = true;
	int64_t at = 0;

	for (int p = 0; p < CONV_PARTS; p++) {
		conv->base[p] = at;
		fits = fits && !__builtin_mul_overflow(conv->here[p]->length, ranks,
						       &conv->total[p]) &&
		       !__builtin_add_overflow(at, conv->total[p], &at);
	}
	return fits;
}

static enum kvt_status conv_totals(struct conv *conv, int family,
				   const struct kvt_group *group, int64_t ranks,
				   struct kvt_error *err)
{
	bool fits = family == XBC ? total_xbc(conv, ranks) : total_qkv(conv, ranks);

	for (int p = 0; p < CONV_PARTS; p++) {
		const struct kvt_component *c = conv->here[p];

		if (c && (!fits || conv->total[p] < c->length ||
			  c->global_start < conv->base[p] ||
			  c->global_start - conv->base[p] > conv->total[p] - c->length))
			return does_not_fit(group, c, ranks, err);
	}
	return KVT_OK;
}

/* ---- how many units ----------------------------------------------------- */

static enum kvt_status need_groups(const struct kvt_group *group, const char *what,
				   struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: how %s are divided among ranks depends on the number of %s; give it with --mamba-groups",
			group->id, what,
			*what == 'B' ? "groups" : "their heads");
}

static enum kvt_status check_groups(const struct kvt_group *group, int64_t said,
				    int64_t found, struct kvt_error *err)
{
	if (!said || !found || said == found)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: --mamba-groups is %lld, but the parts show %lld groups",
			group->id, LL(said), LL(found));
}

/* B and C are dealt out by groups, and the shapes do not show how many. */
static enum kvt_status units_xbc(struct conv *conv, const struct kvt_group *group,
				 int64_t ranks, int64_t groups, struct kvt_error *err)
{
	const struct kvt_component *b = conv->here[PART_B];
	int64_t found = 0;
	enum kvt_status status;

	conv->units[PART_X] = conv->total[PART_X];
	conv->no_replicas[PART_X] = true;
	if (!b)
		return KVT_OK;
	/* ranks that hold more than an even share hold a group each */
	if (conv->total[PART_B] % ranks || conv->total[PART_B] / ranks != b->length)
		found = conv->total[PART_B] / b->length;
	if ((status = check_groups(group, groups, found, err)))
		return status;
	groups = found ? found : groups;
	if (!groups)
		return need_groups(group, "B and C", err);
	if (conv->total[PART_B] % groups)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: --mamba-groups is %lld, which does not divide the %lld channels of B",
				group->id, LL(groups), LL(conv->total[PART_B]));
	conv->units[PART_B] = conv->units[PART_C] = groups;
	return KVT_OK;
}

/* Heads of q and k: an SSM state is [value heads][width of v][width of k]. */
static int64_t key_heads(const struct conv *conv, const struct kvt_group *group,
			 const struct kvt_snapshot *whole)
{
	for (int g = 0; g < whole->ngroups; g++) {
		const struct kvt_group *ssm = &whole->group[g];
		int64_t v, k, total = conv->total[PART_Q];

		if (ssm->kind != KVT_MAMBA_SSM ||
		    ssm->shape.n[KVT_AXIS_L] != group->shape.n[KVT_AXIS_L] ||
		    conv->total[PART_V] % ssm->total_heads)
			continue;
		v = conv->total[PART_V] / ssm->total_heads;
		if (ssm->shape.n[KVT_AXIS_D] % v)
			continue;
		k = ssm->shape.n[KVT_AXIS_D] / v;
		if (total % k == 0 && conv->total[PART_K] == total)
			return total / k;
	}
	return 0;
}

static enum kvt_status units_qkv(struct conv *conv, const struct kvt_group *group,
				 const struct kvt_snapshot *whole, int64_t groups,
				 struct kvt_error *err)
{
	int64_t heads = key_heads(conv, group, whole);
	enum kvt_status status = check_groups(group, groups, heads, err);

	if (status)
		return status;
	heads = heads ? heads : groups;
	if (!heads)
		return need_groups(group, "q, k and v", err);
	for (int p = 0; p < CONV_PARTS; p++) {
		if (conv->total[p] % heads)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %lld heads do not divide the %lld channels of %s",
					group->id, LL(heads), LL(conv->total[p]),
					conv->name[p]);
		/* a head of k has the same number of heads of v each */
		conv->units[p] = heads;
		conv->no_replicas[p] = true;
	}
	return KVT_OK;
}

enum kvt_status conv_init(struct conv *conv, const struct kvt_group *group,
			  const struct kvt_snapshot *whole, int64_t groups,
			  struct kvt_error *err)
{
	int64_t ranks = whole->parallel.tp_size;
	enum kvt_status status;
	int family;

	*conv = (struct conv){ .units = { 0 } };
	if ((status = name_parts(conv, &family, group, err)) ||
	    (status = conv_totals(conv, family, group, ranks, err)))
		return status;
	return family == XBC ? units_xbc(conv, group, ranks, groups, err) :
			       units_qkv(conv, group, whole, groups, err);
}

/* ---- a rank's share ----------------------------------------------------- */

static enum kvt_status take_part(struct step_part *part, struct kvt_group *out,
				 int64_t *at, const struct conv *conv, int p,
				 struct kvt_rank rank, struct kvt_error *err)
{
	const struct kvt_component *here = conv->here[p];
	struct kvt_component *to = &out->component[out->ncomponents++];
	struct kvt_range own;
	enum kvt_status status;
	struct kvt_error why;
	int64_t rows, first;

	if (conv->no_replicas[p] && conv->units[p] % rank.size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld %s of %s cannot be divided evenly among %lld ranks",
				out->id, LL(conv->units[p]),
				p == PART_X && conv->units[p] == conv->total[p] ?
				"channels" : "heads", conv->name[p], LL(rank.size));
	if ((status = kvt_owned(&own, conv->units[p], rank, &why)))
		return kvt_fail(err, status, "%s: part %s: %.400s", out->id,
				conv->name[p], why.text);
	rows = conv->total[p] / conv->units[p];
	first = conv->base[p] + own.begin * rows;
	*to = *here;
	to->start = *at;
	to->length = (own.end - own.begin) * rows;
	to->global_start = first;
	if (first < here->global_start ||
	    first + to->length > here->global_start + here->length)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: rank %lld of %lld holds channels %lld to %lld in part %s, the dump has %lld to %lld",
				out->id, LL(rank.index), LL(rank.size), LL(first),
				LL(first + to->length - 1), conv->name[p],
				LL(here->global_start),
				LL(here->global_start + here->length - 1));
	part->channel[part->nchannels++] = (struct kvt_segment){
		*at, here->start + first - here->global_start, to->length,
	};
	*at += to->length;
	return KVT_OK;
}

enum kvt_status slice_channels(struct step_part *part, struct kvt_group *group,
			      const struct kvt_snapshot *whole,
			      const struct kvt_slice_options *options,
			      struct kvt_error *err)
{
	struct kvt_group out = *group;
	struct conv conv;
	int64_t at = 0;
	enum kvt_status status = conv_init(&conv, group, whole, options->mamba_groups,
					   err);

	part->nchannels = out.ncomponents = 0;
	for (int p = 0; !status && p < CONV_PARTS; p++)
		if (conv.here[p])
			status = take_part(part, &out, &at, &conv, p, options->rank, err);
	if (status)
		return status;
	out.shape.n[KVT_AXIS_D] = at;
	*group = out;
	return KVT_OK;
}

/* ---- runs for parts ----------------------------------------------------- */

enum kvt_status channel_runs(struct step_part *part, const struct kvt_group *group,
			     struct kvt_error *err)
{
	struct kvt_segment all = part->channel[0];
	enum kvt_status status = check_parts(group, err);

	if (status || all.count != group->shape.n[KVT_AXIS_D])
		return status;		/* there is one for each already */
	part->nchannels = group->ncomponents;
	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		part->channel[i] = (struct kvt_segment){
			c->start, all.from + c->start - all.at, c->length,
		};
	}
	return KVT_OK;
}

/* ---- names -------------------------------------------------------------- */

static const char *const kv_names[] = { "k", "v" };

static bool is_kv_group(const struct kvt_group *g)
{
	return g->shape.n[KVT_AXIS_K] == 2 || kvt_group_half(g) >= 0;
}

/* The i-th component that can be had alone; NULL past the last. */
static const char *component_at(const struct kvt_group *g, int i)
{
	if (g->kind == KVT_MAMBA_SSM)
		return i ? NULL : "ssm";
	if (is_kv_group(g)) {
		int half = kvt_group_half(g);

		if (half >= 0)
			return i ? NULL : kv_names[half];
		return i < 2 ? kv_names[i] : NULL;
	}
	if (g->kind == KVT_MAMBA_CONV && i < g->ncomponents)
		return g->component[i].name;
	return NULL;
}

static bool has_any(const struct kvt_group *g, const struct kvt_names *names)
{
	const char *name;

	for (int i = 0; (name = component_at(g, i)); i++)
		if (names_have(names, name))
			return true;
	return !names->n;
}

bool slice_wants(const struct kvt_group *group, const struct kvt_slice_options *options)
{
	bool any = false;

	for (int64_t l = 0; !any && l < group->shape.n[KVT_AXIS_L]; l++)
		any = ranges_have(&options->layers, kvt_layer_id(group, l));
	return any && has_any(group, &options->components);
}

/* All that a dump has, for a message. */
static void list_names(char *text, size_t size, const struct kvt_snapshot *snapshot)
{
	enum { MOST = 32 };
	const char *names[MOST];
	struct kvt_names seen = { .n = 0, .s = names };
	size_t used = 0;
	const char *name;

	*text = '\0';
	for (int g = 0; g < snapshot->ngroups; g++)
		for (int i = 0; (name = component_at(&snapshot->group[g], i)); i++) {
			if (names_have(&seen, name) || used + strlen(name) + 3 > size)
				continue;
			if (seen.n < MOST)	/* else perhaps listed twice */
				names[seen.n++] = name;
			used += (size_t)snprintf(text + used, size - used, "%s%s",
						 used ? ", " : "", name);
		}
}

enum kvt_status slice_check_components(const struct kvt_snapshot *snapshot,
				      const struct kvt_names *names,
				      struct kvt_error *err)
{
	char have[160];

	for (int i = 0; i < names->n; i++) {
		struct kvt_names one = { .n = 1, .s = &names->s[i] };
		bool found = false;

		for (int g = 0; g < snapshot->ngroups; g++)
			found |= has_any(&snapshot->group[g], &one);
		if (found)
			continue;
		list_names(have, sizeof(have), snapshot);
		return kvt_fail(err, KVT_BAD_INPUT,
				"no component '%.40s', the dump %s%s", names->s[i],
				*have ? "has " : "has no components", have);
	}
	return KVT_OK;
}

/* ---- cutting ------------------------------------------------------------ */

static void take_half(struct step_part *part, struct kvt_group *group, int k)
{
	if (group->layout.nplanes == 2)
		group->layout = (struct kvt_layout){
			.nplanes = 1, .plane = { group->layout.plane[k] },
		};
	part->kv = (struct kvt_segment){ 0, k, 1 };
	group->shape.n[KVT_AXIS_K] = 1;
	group->ncomponents = 1;
	group->component[0] = (struct kvt_component){
		.length = group->shape.n[KVT_AXIS_D],
	};
	strcpy(group->component[0].name, kv_names[k]);
}

/* Parts and runs are in the same order, one for one, once a rank was taken. */
static enum kvt_status take_parts(struct step_part *part, struct kvt_group *group,
				  const struct kvt_names *names, struct kvt_error *err)
{
	struct kvt_group out = *group;
	enum kvt_status status;
	int64_t at = 0;
	int kept = 0;

	if ((status = channel_runs(part, group, err)))
		return status;
	for (int i = 0; i < group->ncomponents; i++) {
		if (!names_have(names, group->component[i].name))
			continue;
		part->channel[kept] = part->channel[i];
		part->channel[kept].at = at;
		out.component[kept] = group->component[i];
		out.component[kept++].start = at;
		at += group->component[i].length;
	}
	part->nchannels = out.ncomponents = kept;
	out.shape.n[KVT_AXIS_D] = at;
	*group = out;
	return KVT_OK;
}

enum kvt_status slice_component(struct step_part *part, struct kvt_group *group,
			       const struct kvt_names *names, struct kvt_error *err)
{
	if (!names->n)
		return KVT_OK;
	if (group->kind == KVT_MAMBA_CONV)
		return take_parts(part, group, names, err);
	if (group->shape.n[KVT_AXIS_K] == 2)
		for (int k = 0; k < 2; k++)
			if (!names_have(names, kv_names[1 - k]))
				take_half(part, group, k);
	return KVT_OK;
}
