/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_layout.c - any text as a layout: it is refused, or printed so that it
 * reads the same
 */
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/kvt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct kvt_layout *layout)
{
	const struct kvt_shape shape = { { 1, 2, 16, 2, 2, 16 }, 2 };
	struct kvt_box box = kvt_box_whole(&shape);
	struct kvt_views views;
	struct kvt_plans plans;
	int order[5];

	kvt_layout_predicates(layout, &shape);
	kvt_layout_tuple(order, layout, KVT_RFC);
	kvt_layout_name(layout, 1);
	if (kvt_layout_views(&views, layout, &box, shape.elem, NULL))
		return;
	/* a copy onto itself writes every byte once, whatever the order */
	if (kvt_plans_init(&plans, &views, &views, NULL) ||
	    kvt_plans_cover(&plans, views.nbytes, NULL))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	struct kvt_layout layout, again;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (kvt_layout_parse(&layout, text, &err)) {
		if (!err.text[0])
			abort();
	} else {
		use(&layout);
		if (kvt_layout_parse(&again, kvt_layout_string(&layout).s, &err) ||
		    !kvt_layout_equal(&layout, &again))
			abort();
	}
	free(text);
	return 0;
}
