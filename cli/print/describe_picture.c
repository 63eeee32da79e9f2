/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_picture.c - memory order as people draw it
 *
 *   memory    L 5   x B 48 x H 4 x S 16 x [K 2 x D 8]
 *   strides   98304   2048   512   32      16    2
 */
#include "cli/print/describe.h"

#include <string.h>

/* Axes above their strides, column by column. */
struct picture {
	char axes[512], strides[512];
	size_t used;
};

void describe_label(const char *text)
{
	plainf("  %-10s", text);
}

static void add_column(struct picture *p, const char *axis, const char *stride)
{
	const char *join = p->used ? " x " : "";
	size_t width = strlen(axis) > strlen(stride) ? strlen(axis) : strlen(stride);
	size_t room = sizeof(p->axes) - p->used;

	if (strlen(join) + width >= room)
		return;
	snprintf(p->axes + p->used, room, "%s%-*s", join, (int)width, axis);
	snprintf(p->strides + p->used, room, "%*s%-*s", (int)strlen(join), "",
		 (int)width, stride);
	p->used += strlen(join) + width;
}

/* "B 48", "D/8 2", "D%8 8". */
static void name_part(char *out, size_t room, const struct kvt_part *part,
		      const struct kvt_factor *f)
{
	char letter = kvt_axis_letter(part->axis);
	long long n = f->n;

	if (part->kind == KVT_OUTER)
		snprintf(out, room, "%c/%lld %lld", letter, (long long)f->div, n);
	else if (part->kind == KVT_INNER)
		snprintf(out, room, "%c%%%lld %lld", letter, n, n);
	else
		snprintf(out, room, "%c %lld", letter, n);
}

static void draw(struct picture *p, const struct kvt_order *order,
		 const struct kvt_view *view)
{
	int last = order->nparts - 1;
	/* keys and values side by side, or content that is neither: C */
	bool content = last > 0 && order->part[last - 1].axis == KVT_AXIS_K &&
		       order->part[last].axis == KVT_AXIS_D;
	bool open = content && view->factor[last - 1].n > 1;

	for (int i = 0; i <= last; i++) {
		const struct kvt_part *part = &order->part[i];
		const struct kvt_factor *f = &view->factor[i];
		char name[64], axis[72], stride[24];

		/* no heads, or the one k of this plane: nothing to see */
		if (f->n == 1 && (part->axis == KVT_AXIS_H ||
				  part->axis == KVT_AXIS_K))
			continue;
		name_part(name, sizeof(name), part, f);
		if (content && !open && i == last)
			name[0] = 'C';
		snprintf(axis, sizeof(axis), "%s%s%s",
			 open && i == last - 1 ? "[" : "", name,
			 open && i == last ? "]" : "");
		snprintf(stride, sizeof(stride), "%lld", (long long)f->stride);
		add_column(p, axis, stride);
	}
}

static void trim(char *text)
{
	for (size_t n = strlen(text); n && text[n - 1] == ' '; n--)
		text[n - 1] = '\0';
}

void describe_memory(const struct group_facts *f)
{
	const struct kvt_layout *layout = &f->group->layout;

	for (int i = 0; i < f->views.count; i++) {
		const struct kvt_view *view = &f->views.view[i];
		int plane = layout->nplanes == 2 ? f->views.first_k + i : 0;
		struct picture p = { "", "", 0 };

		draw(&p, &layout->plane[plane], view);
		trim(p.axes);
		trim(p.strides);
		describe_label(layout->nplanes == 1 ? "memory" :
			       plane ? "values" : "keys");
		plainf("%s\n", p.axes);
		describe_label("strides");
		plainf("%s", p.strides);
		if (view->offset)
			plainf("   from byte %lld", (long long)view->offset);
		putchar('\n');
	}
}
