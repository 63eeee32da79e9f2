/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.c - addresses summed from their definition, for comparing
 *
 *	at[a][i]	the sum of i / div % n * stride over the factors of axis a
 *	an address	offset + at[L][l] + at[B][b] + .. + at[D][d]
 *
 * The six lists are one allocation, each as long as its axis of the view.  A half is the
 * view of keys or of values, or that of both narrowed to one of them: then k is 0.
 */
#include "lib/ops/compare/address.h"

#include <stdlib.h>

bool address_terms_init(struct address_terms *t, const struct kvt_view *view)
{
	const int64_t *n = view->shape.n;
	int64_t total = 0, *p;

	for (int a = 0; a < KVT_NAXES; a++)
		total += n[a];
	t->storage = p = calloc((size_t)total, sizeof(*p));
	if (!p)
		return false;
	for (int a = 0; a < KVT_NAXES; a++) {
		t->at[a] = p;
		p += n[a];
	}
	for (int f = 0; f < view->nfactors; f++) {
		const struct kvt_factor *k = &view->factor[f];

		for (int64_t i = 0; i < n[k->axis]; i++)
			t->at[k->axis][i] += i / k->div % k->n * k->stride;
	}
	t->dense = true;
	for (int64_t i = 0; i < n[KVT_AXIS_D]; i++)
		t->dense &= t->at[KVT_AXIS_D][i] == i * view->shape.elem;
	return true;
}

void address_terms_free(struct address_terms *t)
{
	free(t->storage);
}

int64_t address_terms_offset(const struct address_terms *t, const int64_t at[KVT_NAXES])
{
	int64_t offset = 0;

	for (int a = 0; a < KVT_AXIS_D; a++)
		offset += t->at[a][at[a]];
	return offset;
}

enum kvt_status views_half(struct kvt_view *out, const struct kvt_views *views,
			  int k, struct kvt_error *err)
{
	if (views->count == 2) {
		*out = views->view[k];
		return KVT_OK;
	}
	return kvt_view_narrow(out, &views->view[0], KVT_AXIS_K, k, k + 1, err);
}

enum kvt_status addresses_init(struct addresses *out, const struct placed *at, int k,
			       int64_t elem, struct kvt_error *err)
{
	struct kvt_views views;
	enum kvt_status status;

	out->at = at;
	if ((status = kvt_layout_views(&views, at->layout, &at->box, elem, err)) ||
	    (status = views_half(&out->view, &views, k, err)))
		return status;
	return address_terms_init(&out->terms, &out->view) ? KVT_OK :
	       kvt_no_memory(err, NULL);
}

const uint8_t *address_of_block(const struct addresses *half,
				const int64_t index[KVT_NAXES])
{
	const uint8_t *bytes = half->at->bytes + half->view.offset;

	/* of a narrow view, K is 0 and adds what it adds */
	bytes += half->terms.at[KVT_AXIS_K][0];
	for (int a = KVT_AXIS_L; a <= KVT_AXIS_B; a++)
		bytes += half->terms.at[a][index[a] - half->at->box.begin[a]];
	return bytes;
}
