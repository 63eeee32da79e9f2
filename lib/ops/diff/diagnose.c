/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c - which known fault makes B of A? */
#include "lib/ops/diff/window.h"

#include <stdlib.h>
#include <string.h>

/* Of values that were converted the bits mean nothing. */
static void drop_faults_of_bits(struct kvt_diagnosis *d)
{
	static const char *const names[] = { "byte-order", "flip-bits" };

	d->nexplain = 0;
	for (int i = 0; i < d->nhypotheses; i++) {
		struct kvt_hypothesis *h = &d->hypothesis[i];

		for (int j = 0; j < 2; j++)
			if (!strcmp(h->fault->name, names[j]))
				h->verdict = KVT_NOT_TESTED;
		if (h->verdict == KVT_EXPLAINS && !d->nexplain++)
			d->decided = h;
	}
	if (d->nexplain != 1)
		d->decided = NULL;
}

enum kvt_status diagnose_result(struct result *r, const struct kvt_run *run,
				struct kvt_error *err)
{
	struct diagnosis *d = calloc(1, sizeof(*d));
	struct extract x;
	enum kvt_status status;

	r->diagnosis = d;
	if (!d)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if (!(status = extract_init(&x, r, run, err)) &&
	    !(status = extract_data(&x, run, err)) &&
	    !(status = kvt_diagnose(&d->found, &x.window, x.data[SIDE_A],
				    x.data[SIDE_B], x.scratch, err))) {
		for (int i = 0; i < d->found.nhypotheses; i++)
			d->args[i] = kvt_fault_text(d->found.hypothesis[i].fault,
						    &d->found.hypothesis[i].args,
						    &x.window);
		if (!r->meter.bits)
			drop_faults_of_bits(&d->found);
		d->layers = x.window.shape.n[KVT_AXIS_L];
		d->blocks = x.window.shape.n[KVT_AXIS_B];
	}
	extract_free(&x);
	if (!status || status == KVT_SYSTEM)
		return status;
	/* what was compared is sound, whatever is wrong with the rest of the pool */
	kvt_run_warn(run, "no diagnosis: %.400s", err->text);
	free(d);
	r->diagnosis = NULL;
	if (err)
		err->text[0] = '\0';
	return KVT_OK;
}
