/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - reads axis strings: letters, split letters, x
 *
 *	L layers  B blocks  S (or N) slots  H heads  K keys and values  D elements
 *	C K and D as one	D/8 .. D%8 an axis in two parts: 8 are inside
 *	x what is left inside of a D before it, 16 bytes: D/x .. D%x
 *
 * The slowest first.  No axis stands twice but in two parts, which keeps an order in
 * KVT_MAX_PARTS.
 */
#include "lib/layout/words.h"

#include <string.h>

/* What is left to read. */
struct cursor {
	const char *at, *end;
	bool closed;		/* content is C, which is one range */
};

static char peek(const struct cursor *c)
{
	return c->at < c->end ? *c->at : '\0';
}

static void skip_blanks(struct cursor *c)
{
	while (peek(c) == ' ')
		c->at++;
}

/* ---- letters ------------------------------------------------------------ */

static bool axis_of_letter(enum kvt_axis *axis, char letter)
{
	if (letter == 'N')	/* engines: number of slots */
		letter = 'S';
	for (int a = 0; a < KVT_NAXES; a++)
		if (kvt_axis_letter((enum kvt_axis)a) == letter) {
			*axis = (enum kvt_axis)a;
			return true;
		}
	return false;
}

/* The n of A/n and A%n. */
static enum kvt_status read_split(int64_t *split, struct cursor *c, struct kvt_error *err)
{
	const int64_t largest = 1 << 30;	/* far above any real one */
	int64_t n = 0;

	if (peek(c) == 'x') {
		c->at++;
		*split = 0;
		return KVT_OK;
	}
	while (peek(c) >= '0' && peek(c) <= '9' && n <= largest)
		n = n * 10 + (*c->at++ - '0');
	if (n < 2 || n > largest)
		return kvt_fail(err, KVT_USAGE,
				"a split needs x or 2 to %lld after / or %%",
				LL(largest));
	*split = n;
	return KVT_OK;
}

static enum kvt_status add_part(struct kvt_order *order, struct kvt_part part,
				struct kvt_error *err)
{
	/* no axis has more than two parts, so this also bounds nparts */
	for (int i = 0; i < order->nparts; i++) {
		const struct kvt_part *p = &order->part[i];

		if (p->axis == part.axis && (p->kind == part.kind ||
					     p->kind == KVT_WHOLE ||
					     part.kind == KVT_WHOLE))
			return kvt_fail(err, KVT_USAGE, "axis %c occurs twice",
					kvt_axis_letter(part.axis));
	}
	order->part[order->nparts++] = part;
	return KVT_OK;
}

/* "D ... x" is short for "D/x ... D%x". */
static enum kvt_status add_x(struct kvt_order *order, bool closed, struct kvt_error *err)
{
	struct kvt_part inner = { KVT_AXIS_D, KVT_INNER, 0 };
	int d = kvt_order_find(order, KVT_AXIS_D);

	if (d < 0 || closed)
		return kvt_fail(err, KVT_USAGE, "x must follow the D that it splits");
	if (order->part[d].kind == KVT_WHOLE)
		order->part[d].kind = KVT_OUTER;
	return add_part(order, inner, err);
}

static enum kvt_status add_content(struct kvt_order *order, struct kvt_error *err)
{
	struct kvt_part k = { KVT_AXIS_K, KVT_WHOLE, 0 };
	struct kvt_part d = { KVT_AXIS_D, KVT_WHOLE, 0 };
	enum kvt_status status = add_part(order, k, err);

	return status ? status : add_part(order, d, err);
}

static enum kvt_status read_part(struct kvt_order *order, struct cursor *c,
				 struct kvt_error *err)
{
	struct kvt_part part = { KVT_AXIS_L, KVT_WHOLE, 0 };
	char letter = *c->at++;
	enum kvt_status status;

	if (letter == 'x')
		return add_x(order, c->closed, err);
	if (letter == 'C')
		return add_content(order, err);
	if (!axis_of_letter(&part.axis, letter))
		return kvt_fail(err, KVT_USAGE,
				"there is no axis '%c', expected L B S H and C, or K and D",
				letter > ' ' && letter < 127 ? letter : '?');
	if (peek(c) != '/' && peek(c) != '%')
		return add_part(order, part, err);
	if (part.axis != KVT_AXIS_S && part.axis != KVT_AXIS_D)
		return kvt_fail(err, KVT_USAGE, "axis %c is split, only S and D can be",
				letter);
	part.kind = *c->at++ == '/' ? KVT_OUTER : KVT_INNER;
	if ((status = read_split(&part.split, c, err)))
		return status;
	return add_part(order, part, err);
}

/* ---- the whole order ---------------------------------------------------- */

static enum kvt_status check_split(const struct kvt_order *order,
				   enum kvt_axis axis, struct kvt_error *err)
{
	const struct kvt_part *part[2];
	char letter = kvt_axis_letter(axis);
	int count = 0;

	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].axis == axis)
			part[count++] = &order->part[i];
	if (count == 0 || (count == 1 && part[0]->kind == KVT_WHOLE))
		return KVT_OK;
	if (count == 1)
		return kvt_fail(err, KVT_USAGE,
				"axis %c is split but its %s part is missing", letter,
				part[0]->kind == KVT_OUTER ? "inner (%)" : "outer (/)");
	if (part[0]->split != part[1]->split)
		return kvt_fail(err, KVT_USAGE,
				"the parts of axis %c are split differently", letter);
	return KVT_OK;
}

/* C is K and D side by side, so it stands alone for both. */
static enum kvt_status check_c(const char *text, size_t length, bool in_plane,
			       struct kvt_error *err)
{
	const char *c = memchr(text, 'C', length);

	if (!c)
		return KVT_OK;
	if (in_plane)
		return kvt_fail(err, KVT_USAGE, "a plane of two holds D, not C");
	if (memchr(text, 'K', length) || memchr(text, 'D', length))
		return kvt_fail(err, KVT_USAGE,
				"C means K and D together, so it excludes them");
	if (memchr(c + 1, 'C', length - (size_t)(c + 1 - text)))
		return kvt_fail(err, KVT_USAGE, "axis C occurs twice");
	return KVT_OK;
}

enum kvt_status kvt_order_parse(struct kvt_order *out, const char *text, size_t length,
				bool in_plane, struct kvt_error *err)
{
	struct cursor c = { text, text + length, memchr(text, 'C', length) != NULL };
	struct kvt_order order = { .nparts = 0 };
	enum kvt_status status = check_c(text, length, in_plane, err);

	if (status)
		return status;
	for (skip_blanks(&c); c.at < c.end; skip_blanks(&c))
		if ((status = read_part(&order, &c, err)))
			return status;
	if (kvt_order_find(&order, KVT_AXIS_D) < 0)
		return kvt_fail(err, KVT_USAGE, "there is no content axis (C or D)");
	if ((status = check_split(&order, KVT_AXIS_S, err)) ||
	    (status = check_split(&order, KVT_AXIS_D, err)))
		return status;
	*out = order;
	return KVT_OK;
}

/* ---- orders as values --------------------------------------------------- */

bool kvt_order_equal(const struct kvt_order *a, const struct kvt_order *b)
{
	if (a->nparts != b->nparts)
		return false;
	for (int i = 0; i < a->nparts; i++)
		if (a->part[i].axis != b->part[i].axis ||
		    a->part[i].kind != b->part[i].kind ||
		    a->part[i].split != b->part[i].split)
			return false;
	return true;
}

int kvt_order_find(const struct kvt_order *order, enum kvt_axis axis)
{
	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].axis == axis)
			return i;
	return -1;
}

bool kvt_order_whole(const struct kvt_order *order, int i, enum kvt_axis axis)
{
	return i < order->nparts && order->part[i].axis == axis &&
	       order->part[i].kind == KVT_WHOLE;
}

bool kvt_order_blocks_first(const struct kvt_order *order)
{
	int b = kvt_order_find(order, KVT_AXIS_B), l = kvt_order_find(order, KVT_AXIS_L);

	return b >= 0 && (l < 0 || b < l);
}
