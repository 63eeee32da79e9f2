/* SPDX-License-Identifier: Apache-2.0 */
/* views_of.h - views that a test takes for granted, in one line each */
#ifndef VIEWS_OF_H
#define VIEWS_OF_H

#include "lib/kvt/kvt.h"
#include "tests/unit/tests.h"

static inline struct kvt_layout layout_of(const char *text)
{
	struct kvt_layout layout;

	ok(kvt_layout_parse(&layout, text, &why));
	return layout;
}

static inline struct kvt_views views_of(const char *text,
					const struct kvt_shape *shape)
{
	struct kvt_layout layout = layout_of(text);
	struct kvt_box box = kvt_box_whole(shape);
	struct kvt_views views;

	ok(kvt_layout_views(&views, &layout, &box, shape->elem, &why));
	return views;
}

/* Of two views each holds one K. */
static inline int64_t views_at(const struct kvt_views *views,
			       const int64_t index[KVT_NAXES])
{
	int64_t inside[KVT_NAXES];

	memcpy(inside, index, sizeof(inside));
	if (views->count == 1)
		return kvt_view_at(&views->view[0], inside);
	inside[KVT_AXIS_K] = 0;
	return kvt_view_at(&views->view[index[KVT_AXIS_K]], inside);
}

#endif
