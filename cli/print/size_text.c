/* SPDX-License-Identifier: Apache-2.0 */
/* size_text.c - the caches of a model for people */
#include "cli/cli.h"
#include "cli/print/size.h"

#define LL(x) ((long long)(x))

/* Whole, or to a thousandth. */
static struct human number(double x)
{
	struct human out;

	snprintf(out.s, sizeof(out.s), "%.*f", x == (double)(int64_t)x ? 0 : 3, x);
	return out;
}

static void print_caches(const struct size_report *r)
{
	const struct kvt_model *model = &r->config.model;

	if (r->path)
		plainf("%s: %s%s%lld layers, %s\n", r->path, r->config.family,
		       r->config.family[0] ? ", " : "", LL(r->config.layers),
		       r->config.dtype ? r->config.dtype->name : "no type given");
	for (int i = 0; i < r->config.nnotes; i++)
		plainf("  note: %s\n", r->config.note[i]);
	for (int i = 0; i < model->ngroups; i++)
		plainf("  %-19s %s\n", model->group[i].name,
		       kvt_model_group_text(&model->group[i]).s);
}

/* What a group of a request takes: by the token, up to so much, or once. */
static void print_group(const struct kvt_group_size *g)
{
	int64_t block = g->page * g->group.layers;

	plainf("  %-19s %6lld %6s %12lld %12lld %12s", g->group.name, LL(g->group.layers),
	       g->block_size ? number((double)g->block_size).s : "-", LL(g->page),
	       LL(block),
	       g->block_size ? number((double)block / (double)g->block_size).s : "-");
	if (g->block_size && g->spec.replication > 1)
		plainf("  on %lld ranks", LL(g->spec.replication));
	if (g->most_blocks)
		plainf("  %lld blocks at most", LL(g->most_blocks));
	if (!g->block_size)
		plainf("  once");
	if (g->page != g->unpadded)
		plainf("  %lld padding", LL(g->page - g->unpadded));
	putchar('\n');
}

static void print_groups(const struct size_report *r)
{
	const struct size_row *row = &r->row[0];

	plainf("\ntp %lld, %s, on each rank:\n", LL(row->tp), row->cache_dtype);
	plainf("  %-19s %6s %6s %12s %12s %12s\n", "CACHE", "LAYERS", "TOKENS",
	       "A PAGE", "A BLOCK", "A TOKEN");
	for (int i = 0; i < row->size.ngroups; i++)
		print_group(&row->size.group[i]);
}

static void print_row(const struct size_report *r, const struct size_row *row)
{
	struct size_sums sums = size_sums(row);

	plainf("%4lld  %-19s", LL(row->tp), row->cache_dtype);
	if (row->why_not[0]) {
		plainf(" %s\n", row->why_not);
		return;
	}
	plainf(" %6lld %10s %11s %11s %12lld", LL(row->size.block_size),
	       number(sums.token).s, number(sums.all_ranks).s, number(sums.unique).s,
	       LL(sums.windows + sums.states));
	if (r->tokens)
		plainf(" %14lld", LL(kvt_model_request(&row->size, r->tokens)));
	if (r->memory) {
		int64_t fit = size_fit(r, row);

		plainf(" %11s", fit < 0 ? "none" : fit == KVT_ANY_TOKENS ? "any" :
				number((double)fit).s);
	}
	putchar('\n');
}

void size_text(const struct size_report *r)
{
	print_caches(r);
	print_groups(r);
	plainf("\n%4s  %-19s %6s %10s %11s %11s %12s", "TP", "CACHE", "BLOCK", "A TOKEN",
	       "ALL RANKS", "ONCE EACH", "FIXED");
	if (r->tokens)
		plainf(" %14s", "A REQUEST");
	if (r->memory)
		plainf(" %11s", "FIT");
	putchar('\n');
	for (int i = 0; i < r->nrows; i++)
		print_row(r, &r->row[i]);
	puts("\nBytes on one rank.  A TOKEN is what every further token takes; FIXED is "
	     "what\nwindows and states of a request take at most.");
	if (r->memory)
		plainf("FIT: tokens of each of %lld requests in %s.\n", LL(r->requests),
		       human_size(r->memory).s);
}
