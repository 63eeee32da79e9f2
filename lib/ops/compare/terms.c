/* SPDX-License-Identifier: Apache-2.0 */
/* terms.c - addresses as sums of terms, for comparing without plans and kernels */
#include "lib/ops/compare/terms.h"

#include <stdlib.h>

bool terms_init(struct terms *t, const struct kvt_view *view)
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

void terms_free(struct terms *t)
{
	free(t->storage);
}

int64_t terms_offset(const struct terms *t, const int64_t at[KVT_NAXES])
{
	int64_t offset = 0;

	for (int a = 0; a < KVT_AXIS_D; a++)
		offset += t->at[a][at[a]];
	return offset;
}

enum kvt_status view_of_k(struct kvt_view *out, const struct kvt_views *views,
			  int k, struct kvt_error *err)
{
	if (views->count == 2) {
		*out = views->view[k];
		return KVT_OK;
	}
	return kvt_view_narrow(out, &views->view[0], KVT_AXIS_K, k, k + 1, err);
}
