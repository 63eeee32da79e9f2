/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - reads, prints and compares layouts
 *
 * In: a name of preset.c, a string of axes (order.c), two of them ("K:.. V:..") for keys
 * and values that lie differently, or a tuple with the convention that says what its
 * numbers are:
 *
 *	rfc:0,1,3,2,4	places in L B S H C	vllm:0,1,3,2,4	places in L B H S C
 *
 * A tuple without one is refused with both readings.  The string that is printed is a
 * layout's identity; two of them agree on a shape if the copy from one to the other is
 * one of equal strides.
 */
#include "lib/kvt/plan.h"
#include "lib/layout/words.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct kvt_layout kvt_layout_slots = {
	.nplanes = 1,
	.plane = { { .nparts = 6, .part = {
		{ KVT_AXIS_L, KVT_WHOLE, 0 }, { KVT_AXIS_B, KVT_WHOLE, 0 },
		{ KVT_AXIS_S, KVT_WHOLE, 0 }, { KVT_AXIS_H, KVT_WHOLE, 0 },
		{ KVT_AXIS_K, KVT_WHOLE, 0 }, { KVT_AXIS_D, KVT_WHOLE, 0 },
	} } },
};

/* ---- tuples ------------------------------------------------------------- */

static const char *const semantic[] = {
	[KVT_RFC] = "LBSHC", [KVT_VLLM] = "LBHSC",
};

struct tuple {
	int count, entry[8];
};

/* "0,1,3,2,4", perhaps in brackets; false if it is something else. */
static bool read_tuple(struct tuple *out, const char *s)
{
	struct tuple t = { 0 };
	char close = *s == '(' ? ')' : *s == '[' ? ']' : '\0';

	if (close)
		s++;
	for (;;) {
		s += strspn(s, " ");
		if (!isdigit((unsigned char)*s) || t.count == 8)
			return false;
		/* two digits are one too many, whatever they say */
		t.entry[t.count] = *s++ - '0';
		if (isdigit((unsigned char)*s))
			return false;
		t.count++;
		s += strspn(s, " ");
		if (*s != ',')
			break;
		s++;
	}
	if (close && *s++ != close)
		return false;
	*out = t;
	return t.count > 1 && !*s;
}

static enum kvt_status order_of_tuple(struct kvt_layout *out, const struct tuple *tuple,
				      enum kvt_convention convention,
				      struct kvt_error *err)
{
	char axes[6] = "";

	for (int i = 0; i < 5; i++) {
		if (tuple->entry[i] > 4 ||
		    strchr(axes, semantic[convention][tuple->entry[i]]))
			return kvt_fail(err, KVT_USAGE,
					"a tuple needs each of 0 to 4 once");
		axes[i] = semantic[convention][tuple->entry[i]];
	}
	*out = (struct kvt_layout){ .nplanes = 1 };
	return kvt_order_parse(&out->plane[0], axes, 5, false, err);
}

static enum kvt_status refuse_bare(const struct tuple *tuple, struct kvt_error *err)
{
	struct kvt_layout layout[2];
	enum kvt_status status;

	if ((status = order_of_tuple(&layout[0], tuple, KVT_RFC, err)) ||
	    (status = order_of_tuple(&layout[1], tuple, KVT_VLLM, err)))
		return status;
	return kvt_fail(err, KVT_BAD_INPUT,
			"a tuple needs its convention: with rfc: it is %s, with vllm: %s",
			kvt_layout_string(&layout[0]).s, kvt_layout_string(&layout[1]).s);
}

static enum kvt_status parse_tuple(struct kvt_layout *out, bool *found,
				   const char *text, struct kvt_error *err)
{
	enum kvt_convention convention = KVT_VLLM;
	bool rfc = !strncasecmp(text, "rfc:", 4);
	bool bare = !rfc && strncasecmp(text, "vllm:", 5) != 0;
	struct tuple tuple;

	if (rfc)
		convention = KVT_RFC;
	if (!bare)
		text = strchr(text, ':') + 1;
	*found = read_tuple(&tuple, text);
	if (!*found)
		return KVT_OK;
	if (tuple.count == 4 || tuple.count == 6)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a tuple of %d numbers is the order of one backend and version; give an axis string",
				tuple.count);
	if (tuple.count != 5)
		return kvt_fail(err, KVT_USAGE, "a tuple has 5 numbers, not %d",
				tuple.count);
	if (bare)
		return refuse_bare(&tuple, err);
	return order_of_tuple(out, &tuple, convention, err);
}

/* ---- planes ------------------------------------------------------------- */

/* Whether both planes have the same axes, and K in the same place if at all. */
static enum kvt_status check_planes(const struct kvt_layout *layout,
				    struct kvt_error *err)
{
	const struct kvt_order *key = &layout->plane[0], *value = &layout->plane[1];
	int join = kvt_order_find(key, KVT_AXIS_K);
	struct kvt_order before[2] = { *key, *value };

	for (int a = 0; a < KVT_NAXES; a++)
		if ((kvt_order_find(key, (enum kvt_axis)a) < 0) !=
		    (kvt_order_find(value, (enum kvt_axis)a) < 0))
			return kvt_fail(err, KVT_USAGE, "only one plane has axis %c",
					kvt_axis_letter((enum kvt_axis)a));
	if (join < 0)
		return KVT_OK;
	before[0].nparts = join;
	before[1].nparts = kvt_order_find(value, KVT_AXIS_K);
	if (!kvt_order_equal(&before[0], &before[1]))
		return kvt_fail(err, KVT_USAGE,
				"the planes differ before K, where they share a buffer");
	return KVT_OK;
}

static enum kvt_status parse_planes(struct kvt_layout *out, const char *text,
				    struct kvt_error *err)
{
	const char *key = text + 2, *value = strstr(key, "V:");
	struct kvt_layout layout = { .nplanes = 2 };
	enum kvt_status status;

	if (!value)
		return kvt_fail(err, KVT_USAGE, "K: needs the plane of values, V:");
	status = kvt_order_parse(&layout.plane[0], key, (size_t)(value - key), true, err);
	if (status)
		return status;
	value += 2;
	if ((status = kvt_order_parse(&layout.plane[1], value, strlen(value),
				      true, err)) ||
	    (status = check_planes(&layout, err)))
		return status;
	*out = layout;
	return KVT_OK;
}

/* ---- reading ------------------------------------------------------------ */

static enum kvt_status parse_axes(struct kvt_layout *out, const char *text,
				  struct kvt_error *err)
{
	struct kvt_layout layout = { .nplanes = 1 };
	enum kvt_status status;

	if (!strncmp(text, "K:", 2))
		return parse_planes(out, text, err);
	status = kvt_order_parse(&layout.plane[0], text, strlen(text), false, err);
	if (!status)
		*out = layout;
	return status;
}

/* Worth a sentence about axes, rather than about names. */
static bool looks_like_axes(const char *text)
{
	if (!strncmp(text, "K:", 2))
		return true;
	for (; *text; text++)
		if (!isupper((unsigned char)*text) && !strchr("0123456789/%x ", *text))
			return false;
	return true;
}

static enum kvt_status parse(struct kvt_layout *out, const char *text,
			     struct kvt_error *err)
{
	const struct kvt_preset *preset = kvt_preset_find(text);
	enum kvt_status status;
	bool found;

	if (preset)
		return parse_axes(out, preset->axes, err);
	status = parse_tuple(out, &found, text, err);
	if (found || status || (status = kvt_preset_refuse(text, err)))
		return status;
	if (looks_like_axes(text))
		return parse_axes(out, text, err);
	return kvt_fail(err, KVT_USAGE,
			"unknown name, expected a preset, axes such as LBSHC or a tuple such as rfc:0,1,2,3,4");
}

/* A copy without blanks at the ends and without what a terminal would obey. */
static bool clean(char copy[KVT_MAX_LAYOUT_TEXT + 1], const char *text)
{
	size_t n;

	text += strspn(text, " \t\r\n");
	n = strlen(text);
	while (n && strchr(" \t\r\n", text[n - 1]))
		n--;
	if (n > KVT_MAX_LAYOUT_TEXT)
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = text[i] == '\t' ? ' ' : text[i];

		copy[i] = c >= ' ' && c < 127 ? c : '?';
	}
	copy[n] = '\0';
	return true;
}

enum kvt_status kvt_layout_parse(struct kvt_layout *out, const char *text,
				 struct kvt_error *err)
{
	char copy[KVT_MAX_LAYOUT_TEXT + 1];
	struct kvt_error why;
	enum kvt_status status;

	if (!clean(copy, text))
		return kvt_fail(err, KVT_USAGE,
				"layout is longer than %d characters",
				KVT_MAX_LAYOUT_TEXT);
	if (!*copy)
		return kvt_fail(err, KVT_USAGE, "layout is empty");
	status = parse(out, copy, &why);
	if (!status)
		return KVT_OK;
	return kvt_fail(err, status, "layout '%s': %s%s", copy, why.text,
			status == KVT_USAGE ? kvt_layout_hint(copy).s : "");
}

/* ---- printing ----------------------------------------------------------- */

/* Appends to a text that is long enough by construction: see kvt_text. */
static void put(struct kvt_text *text, const char *format, ...)
	KVT_PRINTF(2, 3);

static void put(struct kvt_text *text, const char *format, ...)
{
	size_t used = strlen(text->s);
	va_list args;

	va_start(args, format);
	vsnprintf(text->s + used, sizeof(text->s) - used, format, args);
	va_end(args);
}

static void put_part(struct kvt_text *text, const struct kvt_part *part)
{
	char mark = part->kind == KVT_OUTER ? '/' : '%';

	if (part->kind == KVT_WHOLE)
		put(text, "%c", kvt_axis_letter(part->axis));
	else if (part->split)
		put(text, "%c%c%lld", kvt_axis_letter(part->axis), mark, LL(part->split));
	else if (part->axis == KVT_AXIS_D && part->kind == KVT_INNER)
		put(text, "x");
	else
		put(text, "%c%cx", kvt_axis_letter(part->axis), mark);
}

static void put_order(struct kvt_text *text, const struct kvt_order *order,
		      const char *between, bool close)
{
	for (int i = 0; i < order->nparts; i++) {
		if (i)
			put(text, "%s", between);
		if (close && i == order->nparts - 2 &&
		    kvt_order_whole(order, i, KVT_AXIS_K) &&
		    kvt_order_whole(order, i + 1, KVT_AXIS_D)) {
			put(text, "C");
			return;
		}
		put_part(text, &order->part[i]);
	}
}

static bool has_split(const struct kvt_order *order)
{
	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].kind != KVT_WHOLE)
			return true;
	return false;
}

struct kvt_text kvt_layout_string(const struct kvt_layout *layout)
{
	const struct kvt_order *plane = layout->plane;
	struct kvt_text text = { "" };
	const char *between;

	if (layout->nplanes == 1) {
		put_order(&text, plane, has_split(plane) ? " " : "", true);
		return text;
	}
	between = has_split(&plane[0]) || has_split(&plane[1]) ? " " : "";
	put(&text, "K:");
	put_order(&text, &plane[0], between, false);
	put(&text, " V:");
	put_order(&text, &plane[1], between, false);
	return text;
}

/* ---- identity ----------------------------------------------------------- */

bool kvt_layout_equal(const struct kvt_layout *a, const struct kvt_layout *b)
{
	if (a->nplanes != b->nplanes)
		return false;
	for (int i = 0; i < a->nplanes; i++)
		if (!kvt_order_equal(&a->plane[i], &b->plane[i]))
			return false;
	return true;
}

bool kvt_layout_agree(const struct kvt_layout *a, const struct kvt_layout *b,
		      const struct kvt_shape *shape)
{
	struct kvt_box whole = kvt_box_whole(shape);
	struct kvt_views va, vb;
	struct kvt_plans plans;

	if (kvt_layout_equal(a, b))
		return true;
	if (shape->elem < 1 || kvt_layout_views(&va, a, &whole, shape->elem, NULL) ||
	    kvt_layout_views(&vb, b, &whole, shape->elem, NULL) ||
	    kvt_plans_init(&plans, &va, &vb, NULL))
		return false;
	for (int i = 0; i < plans.count; i++) {
		const struct kvt_plan *p = &plans.plan[i];

		if (p->src_offset != p->dst_offset)
			return false;
		for (int k = 0; k < p->nloops; k++)
			if (p->src_stride[k] != p->dst_stride[k])
				return false;
	}
	return true;
}

const char *kvt_layout_name(const struct kvt_layout *layout, int i)
{
	const struct kvt_preset *preset;
	struct kvt_layout named;

	for (int p = 0; (preset = kvt_preset_at(p)); p++)
		if (!parse_axes(&named, preset->axes, NULL) &&
		    kvt_layout_equal(&named, layout) && i-- == 0)
			return preset->name;
	return NULL;
}

bool kvt_layout_tuple(int order[5], const struct kvt_layout *layout,
		      enum kvt_convention convention)
{
	const struct kvt_order *plane = &layout->plane[0];
	int count = 0, physical[KVT_MAX_PARTS];

	if (layout->nplanes != 1 || plane->nparts != KVT_NAXES || has_split(plane))
		return false;
	for (int i = 0; i < plane->nparts; i++) {
		char letter = kvt_axis_letter(plane->part[i].axis);

		if (letter == 'K') {
			if (!kvt_order_whole(plane, ++i, KVT_AXIS_D))
				return false;
			letter = 'C';
		}
		if (letter == 'D')
			return false;
		physical[count++] = (int)(strchr(semantic[convention], letter) -
					  semantic[convention]);
	}
	memcpy(order, physical, 5 * sizeof(*order));
	return true;
}

struct kvt_text kvt_layout_called(const struct kvt_layout *layout)
{
	struct kvt_text axes = kvt_layout_string(layout), out = { "" };
	const char *name = kvt_layout_name(layout, 0);

	if (!name)
		return axes;
	put(&out, "%s (%.120s)", name, axes.s);
	return out;
}
