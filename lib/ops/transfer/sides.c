/* SPDX-License-Identifier: Apache-2.0 */
/* sides.c - the files of all ranks of both sides of a transfer */
#include "lib/ops/transfer/sides.h"

#include <stdlib.h>
#include <string.h>

#define LL(x) ((long long)(x))

/* A plan is of one rank of each side: the others must be laid out as that is. */
static enum kvt_status check_alike(const struct side *side, struct kvt_error *err)
{
	const struct kvt_snapshot *a = side_rank(side, 0);

	for (int r = 1; r < side->n; r++)
		for (int g = 0; g < a->ngroups; g++) {
			const struct kvt_group *x = &a->group[g];
			const struct kvt_group *y = &side_rank(side, r)->group[g];

			if (memcmp(&x->shape, &y->shape, sizeof(x->shape)) ||
			    !kvt_layout_equal(&x->layout, &y->layout))
				return kvt_fail(err, KVT_BAD_INPUT,
						"%s: rank %d is %s of %lld heads, rank 0 %s of %lld",
						x->id, r,
						kvt_layout_string(&y->layout).s,
						LL(y->shape.n[KVT_AXIS_H]),
						kvt_layout_string(&x->layout).s,
						LL(x->shape.n[KVT_AXIS_H]));
		}
	return KVT_OK;
}

/* ---- operands -------------------------------------------------------- */

enum kvt_status sides_unchanged(const struct sides *sides, struct kvt_error *err)
{
	const struct side *side[] = { &sides->src, &sides->dst };
	enum kvt_status status = KVT_OK;

	for (int s = 0; s < 2; s++)
		for (int i = 0; !status && side[s]->file && i < side[s]->n; i++)
			if (side[s]->file[i].reader)
				status = kvt_dump_unchanged(side[s]->file[i].reader,
							      err);
	return status;
}

void ranks_free(struct side *side)
{
	for (int i = 0; side->file && i < side->n; i++)
		kvt_dump_close(side->file[i].reader);
	for (int i = 0; side->made && i < side->n; i++)
		kvt_snapshot_free(&side->made[i]);
	free(side->file);
	free(side->made);
	*side = (struct side){ .n = 0 };
}

void sides_free(struct sides *sides)
{
	for (int i = 0; sides->span && i < sides->sim.ngroups; i++)
		free(sides->span[i]);
	free(sides->span);
	sides->span = NULL;
	sim_free(&sides->sim);
	ranks_free(&sides->src);
	ranks_free(&sides->dst);
}

const struct kvt_snapshot *side_rank(const struct side *side, int rank)
{
	return side->made ? &side->made[rank] :
			    kvt_dump_snapshot(side->file[rank].reader);
}

enum kvt_status ranks_open(struct side *side, int n, char **names, struct kvt_error *err)
{
	enum kvt_status status;

	side->n = n;
	side->file = calloc((size_t)n + 1, sizeof(*side->file));
	if (!side->file)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; i < n; i++) {
		side->file[i].name = names[i];
		if ((status = kvt_open(&side->file[i].reader, names[i], NULL, err)))
			return status;
	}
	if ((status = rank_files_check(side->file, n, err)))
		return status;
	return check_alike(side, err);
}

/* The first file says how many of the operands are the source. */
static enum kvt_status count_source(int *out, int n, char **argv, struct kvt_error *err)
{
	struct kvt_dump *reader;
	enum kvt_status status;
	int64_t ranks;

	if (n < 1)
		return kvt_fail(err, KVT_USAGE, "expected the dumps of the source");
	if ((status = kvt_open(&reader, argv[0], NULL, err)))
		return status;
	ranks = kvt_dump_snapshot(reader)->parallel.tp_size;
	kvt_dump_close(reader);
	if (ranks > n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is one of %lld ranks, expected all of them, got %d files",
				argv[0], LL(ranks), n);
	*out = (int)ranks;
	return KVT_OK;
}

/* ---- do both sides fit? ---------------------------------------------- */

static const struct kvt_group *group_named(const struct kvt_snapshot *s, const char *id)
{
	for (int g = 0; g < s->ngroups; g++)
		if (!strcmp(s->group[g].id, id))
			return &s->group[g];
	return NULL;
}

/* Plans go by number and width: names and types must not contradict them. */
static enum kvt_status check_groups(const struct sides *sides, struct kvt_error *err)
{
	const struct kvt_snapshot *src = side_rank(&sides->src, 0);
	const struct kvt_snapshot *dst = side_rank(&sides->dst, 0);

	for (int g = 0; g < src->ngroups; g++) {
		const struct kvt_group *a = &src->group[g];
		const struct kvt_group *b = group_named(dst, a->id);

		if (!b)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the destination has no group '%s'", a->id);
		if (!kvt_group_same_type(a, b))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: the source holds %s, the destination %s",
					a->id, kvt_group_type(a).s, kvt_group_type(b).s);
		for (int64_t l = 0; l < a->shape.n[KVT_AXIS_L] &&
				    l < b->shape.n[KVT_AXIS_L]; l++)
			if (kvt_layer_id(a, l) != kvt_layer_id(b, l))
				return kvt_fail(err, KVT_BAD_INPUT,
						"%s: layer %lld of the source stands where the destination has layer %lld",
						a->id, LL(kvt_layer_id(a, l)),
						LL(kvt_layer_id(b, l)));
	}
	return KVT_OK;
}

/* A request has as many tokens on both sides, or one of them is wrong. */
static enum kvt_status check_requests(const struct sides *sides, struct kvt_error *err)
{
	const struct kvt_snapshot *src = side_rank(&sides->src, 0);
	const struct kvt_snapshot *dst = side_rank(&sides->dst, 0);

	for (int64_t i = 0; i < src->nrequests; i++)
		for (int64_t j = 0; j < dst->nrequests; j++) {
			const struct kvt_request *a = &src->request[i];
			const struct kvt_request *b = &dst->request[j];

			if (!strcmp(a->id, b->id) && a->ntokens != b->ntokens)
				return kvt_fail(err, KVT_BAD_INPUT,
						"request '%.60s' has %lld tokens in the source and %lld in the destination",
						a->id, LL(a->ntokens), LL(b->ntokens));
		}
	return KVT_OK;
}

/* ---- entries by destination ------------------------------------------ */

static int by_target(const void *a, const void *b)
{
	const struct kvt_block_span *x = a, *y = b;

	if (x->dst_block != y->dst_block)
		return x->dst_block < y->dst_block ? -1 : 1;
	return x->dst_state < y->dst_state ? -1 : x->dst_state > y->dst_state;
}

static enum kvt_status sort_spans(struct sides *sides, struct kvt_error *err)
{
	const struct sim *sim = &sides->sim;

	sides->span = calloc((size_t)sim->ngroups + 1, sizeof(*sides->span));
	for (int i = 0; sides->span && i < sim->ngroups; i++) {
		const struct kvt_xfer *x = &sim->group[i].xfer;
		size_t n = (size_t)x->nentries;

		sides->span[i] = malloc((n + 1) * sizeof(**sides->span));
		if (!sides->span[i])
			return kvt_fail(err, KVT_SYSTEM, "out of memory");
		memcpy(sides->span[i], x->entry, n * sizeof(**sides->span));
		qsort(sides->span[i], n, sizeof(**sides->span), by_target);
	}
	return sides->span ? KVT_OK : kvt_fail(err, KVT_SYSTEM, "out of memory");
}

/* The first entry of a block or of one behind it. */
static int64_t first_entry(const struct sides *sides, int part, int64_t block)
{
	int64_t low = 0, high = sides->sim.group[part].xfer.nentries;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (sides->span[part][middle].dst_block < block)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct carry_box carry_box_of(const struct sides *sides, int part,
			      const struct kvt_box *box)
{
	const int64_t *begin = box->begin, *end = box->end;
	int64_t first = first_entry(sides, part, begin[KVT_AXIS_B]);

	return (struct carry_box){
		.sides = sides, .part = part,
		.layers = { begin[KVT_AXIS_L], end[KVT_AXIS_L] },
		.blocks = { begin[KVT_AXIS_B], end[KVT_AXIS_B] },
		.span = sides->span[part] + first,
		.nspans = first_entry(sides, part, end[KVT_AXIS_B]) - first,
	};
}

/* ---- opening --------------------------------------------------------- */

static enum kvt_status load(struct sides *sides, const struct exec_args *args, int n,
			    char **argv, struct kvt_error *err)
{
	struct sim_dumps dumps = { .src_name = argv[0] };
	enum kvt_status status;
	int nsrc = 0;

	if ((status = count_source(&nsrc, n, argv, err)))
		return status;
	if (args->sim.dst.text && nsrc != n)
		return kvt_fail(err, KVT_USAGE,
				"--dst makes a destination, and %s is one already",
				argv[nsrc]);
	if (!args->sim.dst.text && nsrc == n)
		return kvt_fail(err, KVT_USAGE,
				"expected the dumps of a destination, or --dst");
	if ((status = ranks_open(&sides->src, nsrc, argv, err)))
		return status;
	status = args->sim.dst.text ? make_destination(sides, &args->sim, err) :
		 ranks_open(&sides->dst, n - nsrc, argv + nsrc, err);
	if (status || (status = check_groups(sides, err)))
		return status;
	dumps.dst_name = args->sim.dst.text ? "the destination" : argv[nsrc];
	dumps.src = side_rank(&sides->src, 0);
	dumps.dst = side_rank(&sides->dst, 0);
	if ((status = sim_load_dumps(&sides->sim, &dumps, &args->sim, err)) ||
	    (status = check_requests(sides, err)))
		return status;
	return sort_spans(sides, err);
}

enum kvt_status sides_open(struct sides *out, const struct exec_args *args, int n,
			   char **argv, struct kvt_error *err)
{
	struct sides sides = {
		.request = args->sim.request, .cached = args->sim.cached,
		.fill = (uint8_t)args->fill, .all_states = args->sim.all_states,
		.whole = args->sim.partial && !strcmp(args->sim.partial, "whole"),
	};
	enum kvt_status status;

	if (args->fill > 255)
		return kvt_fail(err, KVT_USAGE,
				"--fill is %lld, expected a byte, 0 to 255",
				LL(args->fill));
	if ((status = load(&sides, args, n, argv, err)))
		sides_free(&sides);
	else
		*out = sides;
	return status;
}

/* ---- outputs --------------------------------------------------------- */

enum kvt_status output_name(char *out, size_t room, const char *pattern, int rank,
			    int nranks, struct kvt_error *err)
{
	const char *at = strstr(pattern, "%r");
	int n;

	if (!at && nranks > 1)
		return kvt_fail(err, KVT_USAGE,
				"-o is '%.100s', expected %%r in it: there are %d ranks to write",
				pattern, nranks);
	if (at)
		n = snprintf(out, room, "%.*s%d%s", (int)(at - pattern), pattern, rank,
			     at + 2);
	else
		n = snprintf(out, room, "%s", pattern);
	return n < (int)room ? KVT_OK : kvt_fail(err, KVT_USAGE, "-o is too long");
}

struct kvt_run exec_run_on_cpu(const struct exec_args *args)
{
	struct kvt_run run = args->run;

	run.device = NULL;
	return run;
}
