/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector_generation.c - which shape of a connector's tensors is which
 *
 *	vllm-2025	[2, T, H*D]	keys of all tokens, then values
 *	vllm-2026-05	[T, 2, H, D]	of each token its keys, then its values
 *	vllm-2026-07	[T, H, 2*D]	of each head of a token its key and its value;
 *					or lines of packed blocks of a CPU engine
 *	vllm-mla	[T, C]		a latent a token
 *
 * vLLM has changed it three times without a mark in the files: the rank of the tensors
 * and what the user says of heads tell, and two readings that fit are refused.  Facts: as
 * in connector.c.
 */
#include "formats/vllm/connector.h"

#include <string.h>

enum { VLLM_2025, VLLM_2026_05, VLLM_2026_07, VLLM_MLA, NGENERATIONS };

static const struct kvt_generation generations[NGENERATIONS] = {
	[VLLM_2025]    = { "vllm-2025",    "LKBSHD", "[2, T, H*D]",  3 },
	[VLLM_2026_05] = { "vllm-2026-05", "LBSKHD", "[T, 2, H, D]", 4 },
	[VLLM_2026_07] = { "vllm-2026-07", "LBSHC",  "[T, H, 2*D]",  3 },
	[VLLM_MLA]     = { "vllm-mla",     "LBSC",   "[T, C]",       2 },
};

const struct kvt_generation *kvt_generation_at(int i)
{
	return i >= 0 && i < NGENERATIONS ? &generations[i] : NULL;
}

const struct kvt_generation *kvt_generation_find(const char *preset)
{
	for (int i = 0; i < NGENERATIONS; i++)
		if (!strcmp(generations[i].preset, preset))
			return &generations[i];
	return NULL;
}

/* ---- tokens and blocks -------------------------------------------------- */

const struct kvt_connector_file *kvt_connector_file_of(const struct kvt_connector *o,
						       int64_t r, int64_t l)
{
	return &o->source[r * o->layers.count + l];
}

int kvt_connector_token_axis(const struct kvt_connector *o)
{
	return o->generation == &generations[VLLM_2025];
}

int64_t kvt_connector_ntokens(const struct kvt_connector *o, int64_t r)
{
	return kvt_connector_file_of(o, r, 0)->tensor.shape[kvt_connector_token_axis(o)];
}

int64_t kvt_connector_nblocks(const struct kvt_connector *o, int64_t r)
{
	int64_t n = kvt_connector_ntokens(o, r);

	return n / o->block_size + (n % o->block_size != 0);
}

/* ---- which generation --------------------------------------------------- */

/* A block of heads, each of them keys before values, both in any order. */
bool kvt_connector_packs(const struct kvt_layout *layout)
{
	static const enum kvt_axis head[] = { KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H,
					      KVT_AXIS_K };
	bool is = layout->nplanes == 2;

	for (int p = 0; is && p < 2; p++)
		for (int i = 0; is && i < 4; i++)
			is = layout->plane[p].part[i].axis == head[i];
	return is;
}

static enum kvt_status asked_generation(struct kvt_connector *o)
{
	const char *names[2] = { o->hints->format, o->hints->layout };
	struct kvt_layout asked, layout;
	enum kvt_status status;

	for (int i = 0; i < 2 && !o->generation; i++)
		if (names[i])
			o->generation = kvt_generation_find(names[i]);
	if (o->hints->layout && kvt_generation_find(o->hints->layout))
		return kvt_layout_parse(&o->layout, o->generation->layout, o->err);
	if (!o->hints->layout)
		return KVT_OK;
	if ((status = kvt_layout_parse(&asked, o->hints->layout, o->err)))
		return status;
	for (int i = 0; i < NGENERATIONS; i++) {
		status = kvt_layout_parse(&layout, generations[i].layout, o->err);
		if (status || !kvt_layout_equal(&asked, &layout))
			continue;
		if (o->generation && o->generation != &generations[i])
			break;
		o->generation = &generations[i];
		o->layout = asked;
		return KVT_OK;
	}
	if (kvt_connector_packs(&asked) &&
	    (!o->generation || o->generation == &generations[VLLM_2026_07])) {
		o->generation = &generations[VLLM_2026_07];
		o->layout = asked;
		o->packed = true;
		return KVT_OK;
	}
	return kvt_hint_denied(o->err, KVT_BAD_INPUT, o->path, "layout", o->hints,
			       "it holds tokens in order, which that does not describe%s%s",
			       o->generation ? "; it was given as " : "",
			       o->generation ? o->generation->preset : "");
}

/*
 * [2, T, H*D] and [T, H, 2*D] are both three numbers.  The first begins with 2;
 * the other does too if it holds two tokens, but connectors write whole blocks
 * only, and the number of heads is the same in all requests.
 */
static enum kvt_status guess_rank3(struct kvt_connector *o)
{
	const int64_t *first = kvt_connector_file_of(o, 0, 0)->tensor.shape;
	bool all2 = true, vary = false, whole = true;

	for (int64_t r = 0; r < o->requests.count; r++) {
		const int64_t *shape = kvt_connector_file_of(o, r, 0)->tensor.shape;

		all2 &= shape[0] == 2;
		vary |= shape[1] != first[1];
		whole &= o->block_size && shape[1] % o->block_size == 0;
	}
	if (all2 && (vary || (whole && 2 % o->block_size))) {
		o->generation = &generations[VLLM_2025];
		return KVT_OK;
	}
	if (all2)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: shape 2 x %lld x %lld may be vllm-2025 %s or vllm-2026-07 %s of two tokens; give --from",
				o->path, LL(first[1]), LL(first[2]),
				generations[VLLM_2025].shape,
				generations[VLLM_2026_07].shape);
	if (first[1] == 2 && o->hints->heads != 2)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: in shape %lld x 2 x %lld the 2 may be keys and values, or two heads; give --from=vllm-2026-07 or --heads=2",
				o->path, LL(first[0]), LL(first[2]));
	o->generation = &generations[VLLM_2026_07];
	return KVT_OK;
}

/* What the files leave open of a generation. */
static enum kvt_status ask(const struct kvt_connector *o)
{
	if (o->generation == &generations[VLLM_2026_07] && !o->layout.nplanes)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: lines of %s are keys and values of tokens, or lines of packed blocks of a CPU engine; give --layout=nhd, or cpu-vec, cpu-amx%s",
				o->path, o->generation->shape,
				o->block_size ? "" : ", and --block-size");
	if (!o->block_size)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: the block size of the engine is not known; give --block-size",
				o->path);
	for (int64_t r = 0; o->packed && r < o->requests.count; r++)
		if (kvt_connector_ntokens(o, r) % o->block_size)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: %s has %lld tokens, not a multiple of packed blocks of %lld",
					o->path, o->requests.name[r],
					LL(kvt_connector_ntokens(o, r)),
					LL(o->block_size));
	return KVT_OK;
}

enum kvt_status kvt_connector_choose(struct kvt_connector *o)
{
	int rank = kvt_connector_file_of(o, 0, 0)->tensor.rank;
	enum kvt_status status;

	if ((status = asked_generation(o)))
		return status;
	if (!o->generation && rank == 3)
		status = guess_rank3(o);
	else if (!o->generation && (rank == 2 || rank == 4))
		o->generation = &generations[rank == 2 ? VLLM_MLA : VLLM_2026_05];
	if (status)
		return status;
	if (!o->generation || o->generation->rank != rank)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tensors have %d axes, expected %d%s%s", o->path, rank,
				o->generation ? o->generation->rank : 3,
				o->generation ? " for " : "",
				o->generation ? o->generation->preset : "");
	if ((status = ask(o)))
		return status;
	return o->packed ? KVT_OK :
	       kvt_layout_parse(&o->layout, o->generation->layout, o->err);
}

/* ---- packed blocks ------------------------------------------------------ */

/*
 * The bytes of a head are cut into rows of 'row' bytes, and rows of the heads take
 * turns: byte p of head h is at p / row * (heads * row) + h * row + p % row.  Axes
 * that step from below a row to beyond it are split there.
 */
static bool cut_rows(struct kvt_view *view, int64_t row, int64_t heads)
{
	for (int i = 0; i < view->nfactors; i++) {
		struct kvt_factor *f = &view->factor[i], *outer;
		int64_t inner = f->stride ? row / f->stride : 0;

		if (f->axis == KVT_AXIS_B || f->axis == KVT_AXIS_L || f->n == 1)
			continue;
		if (f->axis == KVT_AXIS_H) {
			f->stride = row;
		} else if (f->stride % row == 0) {
			f->stride *= heads;
		} else if (f->stride * f->n > row) {
			if (row % f->stride || f->n % inner ||
			    view->nfactors == KVT_MAX_FACTORS)
				return false;
			memmove(f + 1, f, (size_t)(view->nfactors++ - i) * sizeof(*f));
			outer = f++;
			outer->n /= inner;
			outer->div *= inner;
			outer->stride = row * heads;
			f->n = inner;
			i++;
		}
	}
	return view->offset % row == 0;
}

enum kvt_status kvt_connector_rows(struct kvt_views *views, const struct kvt_group *group,
				   const char *name, struct kvt_error *err)
{
	const int64_t *n = group->shape.n;
	int64_t row = 2 * n[KVT_AXIS_D] * group->shape.elem;

	for (int i = 0; i < views->count; i++) {
		if (!cut_rows(&views->view[i], row, n[KVT_AXIS_H]))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: lines of %lld bytes cut layout %s in a way that is not supported",
					name, LL(row),
					kvt_layout_string(&group->layout).s);
		views->view[i].offset *= n[KVT_AXIS_H];
	}
	return KVT_OK;
}

/* ---- widths ------------------------------------------------------------- */

enum kvt_status kvt_connector_width(struct kvt_connector *o, struct kvt_group *group)
{
	const int64_t *shape = kvt_connector_file_of(o, 0, 0)->tensor.shape;
	int64_t *n = group->shape.n, heads;
	enum kvt_status status;
	int which = (int)(o->generation - generations);

	if (which == VLLM_2025) {
		if (shape[0] != 2)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: vllm-2025 is %s, but the first extent is %lld",
					o->path, o->generation->shape, LL(shape[0]));
		if ((status = kvt_hint_heads(&heads, shape[2], o->hints, o->path,
					     o->err)))
			return status;
		n[KVT_AXIS_H] = heads;
		n[KVT_AXIS_D] = shape[2] / heads;
	} else if (which == VLLM_2026_05) {
		if (shape[1] != 2)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: vllm-2026-05 is %s, but the second extent is %lld",
					o->path, o->generation->shape, LL(shape[1]));
		n[KVT_AXIS_H] = shape[2];
		n[KVT_AXIS_D] = shape[3];
	} else if (which == VLLM_2026_07) {
		if (shape[2] % 2)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: content of %lld elements is not a key and a value",
					o->path, LL(shape[2]));
		n[KVT_AXIS_H] = shape[1];
		n[KVT_AXIS_D] = shape[2] / 2;
	} else {
		n[KVT_AXIS_H] = 1;
		n[KVT_AXIS_D] = shape[1];
	}
	n[KVT_AXIS_K] = which == VLLM_MLA ? 1 : 2;
	return KVT_OK;
}
