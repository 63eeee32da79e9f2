/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_block.c - the bytes of a block as characters
 *
 * They are walked as they lie in memory, without padding.  A part is as many of them as
 * are of one token, one head and one of keys and values, and one character; so a line
 * shows the order of a layout, and what is far apart in it.
 */
#include <string.h>

#include "print/out/say.h"
#include "lib/kvt/plan.h"
#include "print/out/screen.h"
#include "print/view.h"

enum { LEFT = 12, LINES = 16, MOST_PARTS = 1 << 16 };

struct block {
	const struct kvt_group *group;
	struct kvt_views views;		/* of one of a layer alone, dense */
	int64_t part[2];		/* bytes of one of each view */
	bool by_token;			/* there is one head: signs are of tokens */
	bool mixed;			/* keys and values lie by turns, within a line */
};

/* What a slot is. */
static const char *slot_of(const struct kvt_group *group)
{
	return kvt_is_recurrent(group->kind) ? "row" : "token";
}

/* ---- runs ---------------------------------------------------------------- */

/* What a part of a block lies in: their number; the bytes of one, of each view. */
struct run_count {
	int64_t n, bytes[2];
};

static bool cut(struct run_count *out, const struct kvt_views *views,
		const struct kvt_box *box)
{
	struct kvt_views some;
	struct kvt_plans plans;
	struct kvt_error err;

	*out = (struct run_count){ 0 };
	if (kvt_views_narrow(&some, views, box, &err) ||
	    kvt_plans_init(&plans, &some, &some, &err))
		return false;
	for (int i = 0; i < plans.count; i++) {
		out->n += kvt_plan_nruns(&plans.plan[i]);
		out->bytes[i] = plans.plan[i].run;
	}
	return out->n > 0;
}

static struct kvt_box first_block(const struct kvt_group *group)
{
	struct kvt_box box = kvt_box_whole(&group->shape);

	box.end[KVT_AXIS_L] = box.end[KVT_AXIS_B] = 1;
	return box;
}

static void print_runs(FILE *f, const struct kvt_group_facts *facts)
{
	static const struct {
		const char *what;
		enum kvt_axis axis;
	} of[] = {
		{ "it", KVT_AXIS_L }, { "a ", KVT_AXIS_S }, { "a head", KVT_AXIS_H },
	};
	int printed = 0;

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct kvt_box box = first_block(facts->group);
		struct run_count p;

		if (i && facts->group->shape.n[of[i].axis] < 2)
			continue;
		box.end[of[i].axis] = 1;
		if (!cut(&p, &facts->views, &box))
			continue;
		fplainf(f, printed++ ? "; " : "            ");
		fplainf(f, "%s%s: %lld run%s of %s", of[i].what,
			of[i].axis == KVT_AXIS_S ? slot_of(facts->group) : "",
			LL(p.n), plural(p.n), kvt_size_string(p.bytes[0]).s);
		if (p.bytes[1] && p.bytes[1] != p.bytes[0])
			fplainf(f, " or %s", kvt_size_string(p.bytes[1]).s);
	}
	if (printed)
		fputc('\n', f);
}

/* ---- parts --------------------------------------------------------------- */

/* The part at an offset, and the offset of the next; false: there is none. */
static bool next_part(const struct block *b, int64_t *offset, int64_t at[KVT_NAXES])
{
	if (*offset >= b->views.nbytes || !kvt_views_find(&b->views, *offset, at))
		return false;
	*offset += b->part[b->views.count == 2 ? at[KVT_AXIS_K] : 0];
	return true;
}

static char sign_of(const struct block *b, const int64_t at[KVT_NAXES])
{
	static const char signs[] = "0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	int64_t i = at[b->by_token ? KVT_AXIS_S : KVT_AXIS_H];

	return signs[i % (int64_t)(sizeof(signs) - 1)];
}

/* Parts until the signs begin anew; if they never do, until the second of them. */
static int64_t period_of(const struct block *b)
{
	int64_t first[KVT_NAXES], at[KVT_NAXES], offset = 0, change = 0, i;

	if (!next_part(b, &offset, first))
		return 1;
	for (i = 1; i < MOST_PARTS && next_part(b, &offset, at); i++) {
		bool again = sign_of(b, at) == sign_of(b, first);

		if (!b->mixed && at[KVT_AXIS_K] != first[KVT_AXIS_K])
			break;
		if (again && change)
			return i;
		if (!again && !change)
			change = i;
	}
	return change ? change : i;
}

/* Are there but few parts until keys become values, and are they so again? */
static bool is_mixed(const struct block *b)
{
	enum { FEW = 8 };
	int64_t at[KVT_NAXES], offset = 0, changes = 0, last = -1;

	for (int i = 0; i < 2 * FEW && next_part(b, &offset, at); i++) {
		changes += last >= 0 && at[KVT_AXIS_K] != last;
		last = at[KVT_AXIS_K];
	}
	return changes > 1;
}

static bool start(struct block *b, const struct kvt_group *group)
{
	struct kvt_box box = first_block(group), part = box;
	struct kvt_error err;
	struct run_count p;

	*b = (struct block){ .group = group, .by_token = group->shape.n[KVT_AXIS_H] < 2 };
	for (int a = 0; a < KVT_NAXES; a++)
		if (!box.end[a])
			return false;
	if (kvt_layout_views(&b->views, &group->layout, &box, group->shape.elem, &err))
		return false;
	part.end[KVT_AXIS_S] = part.end[KVT_AXIS_H] = 1;
	if (b->views.count == 1)
		part.end[KVT_AXIS_K] = 1;
	if (!cut(&p, &b->views, &part))
		return false;
	memcpy(b->part, p.bytes, sizeof(b->part));
	b->mixed = is_mixed(b);
	return true;
}

/* Parts of a line: whole periods, with a blank behind each. */
static int64_t line_parts(int64_t period, int64_t room)
{
	int64_t n = (room + 1) / (period + 1);

	return period > room ? room : n * period;
}

/* Prints parts from an offset on, of keys or of values; returns where it ends. */
static int64_t print_line(FILE *f, const struct block *b, int64_t offset, int64_t n,
			  int64_t period)
{
	int64_t at[KVT_NAXES], end = offset, first;

	if (!next_part(b, &end, at))
		return offset;
	first = at[KVT_AXIS_K];
	fplainf(f, "  %-9.9s ", b->mixed ? "both" : kvt_component_name(b->group, first));
	for (int64_t i = 0; i < n; i++, offset = end) {
		end = offset;
		if (!next_part(b, &end, at) || (!b->mixed && at[KVT_AXIS_K] != first))
			break;
		if (i && i % period == 0)
			fputc(' ', f);
		fputc(sign_of(b, at), f);
	}
	fputc('\n', f);
	return offset;
}

static void print_head(FILE *f, const struct block *b)
{
	const char *slot = slot_of(b->group);

	fplainf(f, "  block     %s of a layer; a character is %s",
		kvt_size_string(b->views.nbytes).s, kvt_size_string(b->part[0]).s);
	if (b->part[1] && b->part[1] != b->part[0])
		fplainf(f, " of keys, %s of values,", kvt_size_string(b->part[1]).s);
	if (b->by_token)
		fplainf(f, " of one %s: which %s\n", slot, slot);
	else
		fplainf(f, " of one %s and head: which head\n", slot);
}

void view_block_text(FILE *f, const struct kvt_group_facts *facts)
{
	int64_t offset = 0, last = -1, period, n;
	struct block b;

	if (!start(&b, facts->group))
		return;
	period = period_of(&b);
	n = line_parts(period, (int64_t)screen_room() - LEFT);
	print_head(f, &b);
	for (int i = 0; i < LINES && offset < b.views.nbytes && offset != last; i++) {
		last = offset;
		offset = print_line(f, &b, offset, n, period);
	}
	if (offset < b.views.nbytes)
		fplainf(f, "%*sand %s more\n", LEFT, "",
			kvt_size_string(b.views.nbytes - offset).s);
	print_runs(f, facts);
}
