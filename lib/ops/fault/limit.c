/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c - a fault that happens to a part of a group
 *
 * The part, such as the heads of a rank, is a dense array of its own, with a window
 * that knows nothing of the rest: so heads are exchanged within the rank, and pages are
 * read in a wrong order within its share.  Requests are told apart by their blocks.
 */
#include "lib/ops/fault/limit.h"

#include <stdlib.h>
#include <string.h>

/* ---- which part --------------------------------------------------------- */

/* Ids [span[0], span[1]) of the axis, which must all be there; none given: all. */
static enum kvt_status narrow(struct kvt_box *box, enum kvt_axis axis, const char *what,
			      const int64_t span[2], const struct kvt_window *w,
			      struct kvt_error *err)
{
	int64_t begin = box->end[axis], end = 0, found = 0;

	if (!span[1])
		return KVT_OK;
	for (int64_t i = 0; i < box->end[axis]; i++) {
		int64_t id = axis == KVT_AXIS_L ? w->layer_ids[i] : w->head_start + i;

		if (id < span[0] || id >= span[1])
			continue;
		begin = i < begin ? i : begin;
		end = i + 1;
		found++;
	}
	if (span[1] <= span[0] || found != span[1] - span[0] || end - begin != found)
		return kvt_fail(err, KVT_USAGE,
				"--only: %s %lld:%lld are not all in this group",
				what, LL(span[0]), LL(span[1]));
	box->begin[axis] = begin;
	box->end[axis] = end;
	return KVT_OK;
}

static enum kvt_status narrow_kv(struct kvt_box *box, const char *kv,
				 struct kvt_error *err)
{
	if (!kv)
		return KVT_OK;
	if (strcmp(kv, "k") && strcmp(kv, "v"))
		return kvt_fail(err, KVT_USAGE, "--only: kv is '%.20s', expected k or v",
				kv);
	if (box->end[KVT_AXIS_K] != 2)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"--only=kv=%s needs keys and values", kv);
	box->begin[KVT_AXIS_K] = *kv == 'v';
	box->end[KVT_AXIS_K] = box->begin[KVT_AXIS_K] + 1;
	return KVT_OK;
}

/* Blocks that only others have are not live here. */
static enum kvt_status narrow_use(struct fault_part *p, const struct kvt_snapshot *s,
				  int group, const char *id, struct kvt_error *err)
{
	const int64_t *n = p->window.shape.n, slots = n[KVT_AXIS_S];
	const struct kvt_request *request = kvt_request_named(s, id);

	if (!request)
		return kvt_fail(err, KVT_USAGE, "--only: there is no request '%.60s'",
				id);
	p->has = calloc((size_t)n[KVT_AXIS_B] + 1, sizeof(*p->has));
	p->use = malloc((size_t)(n[KVT_AXIS_B] * slots) + 1);
	if (!p->has || !p->use)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < request->nblocks[group]; i++)
		p->has[request->blocks[group][i]] = true;
	for (int64_t i = 0; i < n[KVT_AXIS_B] * slots; i++) {
		uint8_t use = p->window.use ? p->window.use[i] : KVT_LIVE;

		p->use[i] = use == KVT_LIVE && !p->has[i / slots] ? KVT_STALE : use;
	}
	p->window.use = p->use;
	return KVT_OK;
}

enum kvt_status kvt_fault_part_init(struct fault_part *out, const struct kvt_window *w,
				    const struct kvt_snapshot *snapshot, int group,
				    const struct fault_limit *only, struct kvt_error *err)
{
	enum kvt_status status;

	*out = (struct fault_part){ .whole = w, .box = kvt_box_whole(&w->shape),
				    .window = *w };
	if ((status = narrow(&out->box, KVT_AXIS_L, "layers", only->layers, w, err)) ||
	    (status = narrow(&out->box, KVT_AXIS_H, "heads", only->heads, w, err)) ||
	    (status = narrow_kv(&out->box, only->kv, err)))
		return status;
	out->window.shape = kvt_box_shape(&out->box, w->shape.elem);
	if (memcmp(&out->window.shape, &w->shape, sizeof(w->shape)))
		out->window.layout = NULL;
	out->window.layer_ids = w->layer_ids + out->box.begin[KVT_AXIS_L];
	out->window.head_start += out->box.begin[KVT_AXIS_H];
	return only->request ? narrow_use(out, snapshot, group, only->request, err) :
			       KVT_OK;
}

void kvt_fault_part_free(struct fault_part *part)
{
	free(part->has);
	free(part->use);
	memset(part, 0, sizeof(*part));
}

/* ---- its data ----------------------------------------------------------- */

static int64_t row_of(const struct kvt_shape *shape, const int64_t at[KVT_NAXES])
{
	int64_t i = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		i = i * shape->n[a] + at[a];
	return i * shape->elem;
}

static bool next_row(int64_t at[KVT_NAXES], const struct kvt_shape *shape)
{
	for (int a = KVT_AXIS_K; a >= KVT_AXIS_L; a--) {
		if (++at[a] < shape->n[a])
			return true;
		at[a] = 0;
	}
	return false;
}

void kvt_fault_part_copy(const struct fault_part *p, uint8_t *part, uint8_t *whole,
			 bool out)
{
	const struct kvt_shape *shape = &p->window.shape;
	const size_t length = (size_t)(shape->n[KVT_AXIS_D] * shape->elem);
	int64_t at[KVT_NAXES] = { 0 }, there[KVT_NAXES];

	do {
		uint8_t *a = part + row_of(shape, at), *b;

		for (int i = 0; i < KVT_NAXES; i++)
			there[i] = at[i] + p->box.begin[i];
		b = whole + row_of(&p->whole->shape, there);
		if (!out)
			memcpy(a, b, length);
		else if (!p->has || p->has[at[KVT_AXIS_B]])
			memcpy(b, a, length);
	} while (next_row(at, shape));
}
