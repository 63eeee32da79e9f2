/* SPDX-License-Identifier: Apache-2.0 */
/*
 * basis.c - in which basis blocks of ggml are, from what the other side holds
 *
 * In: a pair of which one side may be rotated and does not say so (kvtool-content(7)).
 * Some vectors of both sides are compared, as they are stored and rotated back, keys and
 * values apart.  Of the right basis both point the same way, whatever the type rounds
 * and the scale is; of the wrong one they have nothing in common.  The basis that is
 * near is taken for all of the pair; where none is, vectors are taken as stored, which
 * is said.
 *
 * Cost: some slots of at most three layers.
 */
#include "lib/ops/diff/internal.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 3, SEGMENTS = 12, SLOTS = 8 };

/* Of a mean cosine: near, and nearer than the other by so much. */
static const double NEAR = 0.7, NEARER = 0.2;

struct seeking {
	struct diff_pair *p;
	int side;			/* that does not say it */
	struct kvt_packing turned;	/* as llama.cpp would rotate it */
	int64_t nvectors[2];
	double sum[2][2];		/* of cosines: keys, values; as stored, rotated */
	uint8_t *bytes[NSIDES];
	double *value[NSIDES];
};

/* The numbers of a vector, by a packing or a type. */
static void take_numbers(double *out, const struct diff_pair *p, int side,
			 const struct kvt_packing *packing, int64_t kv,
			 const uint8_t *bytes)
{
	const struct kvt_dtype *dtype = p->group[side]->dtype;

	if (packing->nfields)
		kvt_packing_decode(out, packing, kv, bytes, 0, p->content);
	else
		for (int64_t i = 0; i < p->content; i++)
			out[i] = kvt_dtype_decode(dtype, bytes + i * dtype->elem);
}

static double cosine(const double *a, const double *b, int64_t n)
{
	double aa = 0, bb = 0, ab = 0;

	for (int64_t i = 0; i < n; i++) {
		aa += a[i] * a[i];
		bb += b[i] * b[i];
		ab += a[i] * b[i];
	}
	return ab / sqrt(aa * bb);
}

/* A vector of both sides, in either basis. */
static void add_vector(struct seeking *k, int64_t kv, const uint8_t *const from[NSIDES])
{
	const struct diff_pair *p = k->p;
	int s = k->side;
	double near[2];

	take_numbers(k->value[!s], p, !s, &p->packing[!s], kv, from[!s]);
	for (int turned = 0; turned < 2; turned++) {
		take_numbers(k->value[s], p, s, turned ? &k->turned : &p->packing[s], kv,
			     from[s]);
		near[turned] = cosine(k->value[SIDE_A], k->value[SIDE_B], p->content);
	}
	/* zeros, and what is no number, tell nothing */
	if (!isfinite(near[0]) || !isfinite(near[1]))
		return;
	k->nvectors[kv]++;
	for (int turned = 0; turned < 2; turned++)
		k->sum[kv][turned] += near[turned];
}

static int64_t row_bytes(const struct diff_pair *p, int side)
{
	return p->stored[side] * p->group[side]->shape.elem;
}

/* Some slots of a segment in a layer of the pair. */
static enum kvt_status look(struct seeking *k, int64_t layer,
			    const struct diff_segment *segment, struct kvt_error *err)
{
	const struct diff_pair *p = k->p;
	int64_t slots = segment->count < SLOTS ? segment->count : SLOTS;
	int64_t rows = slots * p->nheads * p->nkv;

	for (int s = 0; s < NSIDES; s++) {
		struct kvt_box box = kvt_box_whole(&kvt_dump_group(p->view[s], 0)->shape);
		enum kvt_status status;

		box_take(&box, KVT_AXIS_L, layer, 1);
		box_take(&box, KVT_AXIS_B, segment->at[s], 1);
		box_take(&box, KVT_AXIS_S, segment->slot[s], slots);
		if ((status = kvt_dump_read(p->view[s], 0, &box, &p->read[s], k->bytes[s],
					    err)))
			return status;
	}
	for (int64_t i = 0; i < rows; i++) {
		const uint8_t *const from[NSIDES] = {
			k->bytes[SIDE_A] + i * row_bytes(p, SIDE_A),
			k->bytes[SIDE_B] + i * row_bytes(p, SIDE_B),
		};

		add_vector(k, p->half > 0 ? 1 : i % p->nkv, from);
	}
	return KVT_OK;
}

/* The first, a middle and the last of n; how many. */
static int choose(int64_t at[], int most, int64_t n)
{
	int count = n < most ? (int)n : most;

	for (int i = 0; i < count; i++)
		at[i] = count < 2 ? 0 : i * (n - 1) / (count - 1);
	return count;
}

static enum kvt_status look_around(struct seeking *k, struct kvt_error *err)
{
	int64_t layer[LAYERS], segment[SEGMENTS];
	int nlayers = choose(layer, LAYERS, k->p->nlayers);
	int nsegments = choose(segment, SEGMENTS, k->p->nsegments);
	enum kvt_status status = KVT_OK;

	for (int l = 0; l < nlayers; l++)
		for (int i = 0; !status && i < nsegments; i++)
			status = look(k, layer[l], &k->p->segment[segment[i]], err);
	return status;
}

/* Keys and values apart. */
static void decide(struct seeking *k)
{
	struct diff_pair *p = k->p;
	struct diff_basis *basis = &p->basis;

	for (int kv = 0; kv < 2; kv++) {
		int64_t *turn = &p->packing[k->side].turn[kv];
		double *near = basis->near[kv];

		basis->sought[kv] = k->nvectors[kv] > 0;
		if (!basis->sought[kv])
			continue;
		for (int turned = 0; turned < 2; turned++)
			near[turned] = k->sum[kv][turned] / (double)k->nvectors[kv];
		basis->found[kv] = fmax(near[0], near[1]) >= NEAR &&
				   fabs(near[0] - near[1]) >= NEARER;
		if (basis->found[kv] && near[1] > near[0])
			*turn = k->turned.turn[kv];
		basis->turn[kv] = *turn;
	}
	p->rotation[k->side] = kvt_packing_rotation(&p->packing[k->side]);
}

enum kvt_status pair_basis(struct diff_pair *p, struct kvt_error *err)
{
	struct seeking k = { .p = p, .side = p->basis.side };
	size_t rows = (size_t)(SLOTS * p->nheads * p->nkv);
	enum kvt_status status = KVT_OK;

	if (!p->basis.open)
		return KVT_OK;
	k.turned = kvt_group_packing(p->group[k.side]);
	kvt_packing_take_turn(&k.turned, true);
	for (int s = 0; s < NSIDES; s++) {
		k.bytes[s] = malloc(rows * (size_t)row_bytes(p, s) + 1);
		k.value[s] = calloc((size_t)p->content + 1, sizeof(double));
		if (!k.bytes[s] || !k.value[s])
			status = kvt_no_memory(err, NULL);
	}
	if (!status && !(status = look_around(&k, err)))
		decide(&k);
	for (int s = 0; s < NSIDES; s++) {
		free(k.bytes[s]);
		free(k.value[s]);
	}
	return status;
}
