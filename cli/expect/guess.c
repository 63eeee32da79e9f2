/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess.c - the ranking, and what to type next
 *
 *	bare.bin: looks like LBSHC (nhd, vllm:LBNHC), bfloat16
 *	  confidence 5.44 (1 and more is reliable)
 *	  sample     245760 of 245760 elements, 748 slots in use
 *	                gain  kinship  against
 *	  first       0.9497    195.9           LBSHC (nhd, vllm:LBNHC)
 *	  next        0.9497     38.1     5.44  LBSKHD (flex-split)
 *	  vLLM 0.32  FLASH_ATTN, FLASH_ATTN_DIFFKV, FLEX_ATTENTION
 *	  use        --layout=nhd --dtype=bfloat16 --layers=5 --block-size=16 ...
 *
 * Text shows five candidates, JSON has all; one with the same bytes is named with the
 * one that it is like.  Backends, and the line "use", are there if the answer stands.
 */
#include "cli/expect/guess.h"
#include "cli/cli.h"
#include "print/out/screen.h"

#include <math.h>
#include <string.h>

enum { SHOWN = 5 };

/* The options that describe the dump if a candidate is right. */
struct arguments {
	int n;
	char s[8][192];
};

static void add_number(struct arguments *a, const char *option, int64_t n)
{
	snprintf(a->s[a->n++], sizeof(a->s[0]), "--%s=%lld", option, LL(n));
}

static struct arguments arguments_of(const struct kvt_guess_source *of,
				     const struct kvt_guess_candidate *c)
{
	const struct kvt_group *group = &c->group;
	const char *name = kvt_layout_name(&c->layout, 0);
	struct arguments a = { .n = 2 };

	snprintf(a.s[0], sizeof(a.s[0]), "--layout=%s",
		 name ? name : kvt_layout_string(&c->layout).s);
	snprintf(a.s[1], sizeof(a.s[1]), "--dtype=%s", group->dtype->name);
	add_number(&a, "layers", group->shape.n[KVT_AXIS_L]);
	add_number(&a, "block-size", group->block_size);
	add_number(&a, "heads", group->shape.n[KVT_AXIS_H]);
	add_number(&a, group->shape.n[KVT_AXIS_K] == 2 ? "head-dim" : "content-size",
		   group->shape.n[KVT_AXIS_D]);
	if (of->hints.skip)
		add_number(&a, "skip", of->hints.skip);
	return a;
}

/* What backends are asked of the first candidate, in a release. */
static struct kvt_backend_config config_of(const struct kvt_group *group,
					   const struct guess_writers *who, int release)
{
	struct kvt_backend_config config = backend_config(group);

	config.release = (enum kvt_release)release;
	expect_on_config(&config, &who->on);
	return config;
}

static struct kvt_group first_group(const struct kvt_guess *g)
{
	struct kvt_group group = g->candidate[0].group;

	group.layout = g->candidate[0].layout;
	return group;
}

/* ---- pages in another order ---------------------------------------------- */

static void print_undo(const struct kvt_guess_source *of, const struct kvt_guess *g,
		       const struct arguments *a)
{
	const char *dot = strrchr(of->name, '.');

	if (!g->pages.clear)
		return;
	plainf("  %-10s %s", "undo", guess_undo(&g->pages).s);
	for (int i = 0; i < a->n; i++)
		plainf(" %s", a->s[i]);
	plainf(" %s mended%s\n", of->name, dot && !strchr(dot, '/') ? dot : ".h5");
}

/* ---- text --------------------------------------------------------------- */

static void print_candidate(const struct kvt_guess *g, int i)
{
	const struct kvt_guess_candidate *c = &g->candidate[i];
	const int64_t *n = c->group.shape.n;

	plainf("  %-10s %7.4f %8.1f  ", i ? "next" : "first", c->is.gain, c->is.kinship);
	if (i)
		plainf("%7.2f  ", c->evidence);
	else
		plainf("%7s  ", "");
	plainf("%s", human_layout(&c->layout).s);
	if (memcmp(n, g->candidate[0].group.shape.n, sizeof(c->group.shape.n)))
		plainf(" L %lld B %lld S %lld H %lld D %lld", LL(n[0]), LL(n[1]),
		       LL(n[2]), LL(n[3]), LL(n[5]));
	putchar('\n');
	for (int j = 0; j < g->ncandidates; j++)
		if (g->candidate[j].same == i)
			plainf("  %-10s %7s %8s  %7s  %s\n", "", "", "", "same as",
			       human_layout(&g->candidate[j].layout).s);
}

static void print_types(const struct kvt_guess *g)
{
	if (g->ntypes < 3)
		return;
	plainf("  %-10s ", "types");
	for (int i = 0; i < g->ntypes && i < 3; i++)
		plainf("%s%s%s %.2f", i ? ", " : "", g->type[i].dtype->name,
		       g->type[i].swapped ? " big-endian" : "", g->type[i].bits);
	plainf(" bits a byte\n");
}

/* The newest release first. */
static void print_writers(const struct kvt_guess *g, const struct guess_writers *who)
{
	const struct kvt_group group = first_group(g);

	for (int r = KVT_NRELEASES; r-- && backend_applies(&group); ) {
		const struct kvt_backend_config config = config_of(&group, who, r);
		char label[16];

		snprintf(label, sizeof(label), "  vLLM %s",
			 kvt_release_name(config.release));
		if (who->releases >> r & 1)
			writers_text(label, &config, &group,
				     who->releases == 1u << r ? "no backend" : NULL);
	}
}

void guess_text(const struct kvt_guess_source *of, const struct kvt_guess *g,
		const struct guess_writers *who)
{
	const struct kvt_guess_candidate *c = g->candidate;
	struct arguments a = arguments_of(of, c);
	int others = 0;

	screen_fold_begin(13);
	screen_say(SCREEN_NAME, of->name);
	plainf(": %s %s, %s\n",
	       g->why_not[0] ? "not sure: best match" : "looks like",
	       human_layout(&c->layout).s, c->group.dtype->name);
	plainf("  confidence %.2f (1 and more is reliable)\n",
	       isinf(g->confidence) ? 0 : g->confidence);
	plainf("  sample     %lld of %lld elements, %lld slot%s in use\n", LL(g->read),
	       LL(g->of), LL(c->is.live_slots), plural(c->is.live_slots));
	print_types(g);
	plainf("  %-10s %7s %8s  %7s\n", "", "gain", "kinship", "against");
	for (int i = 0; i < g->ncandidates && c[i].same < 0; i++) {
		if (i < SHOWN)
			print_candidate(g, i);
		else
			others++;
	}
	if (others)
		plainf("  and        %d more\n", others);
	if (g->has_better)
		plainf("  better     %s, an order without a name, fits better than all "
		       "that have one\n", kvt_layout_string(&g->better).s);
	screen_fold_end();
	screen_fold_begin(4);
	puts("  gain: bits per element saved by modelling each channel separately;\n"
	     "  kinship: similarity of heads; against: lead of the best candidate over\n"
	     "  this one, 1 is enough; see kvtool-guess(1)");
	screen_fold_end();
	screen_fold_begin(13);
	if (!g->why_not[0])
		print_writers(g, who);
	screen_fold_end();
	print_undo(of, g, &a);
	if (g->why_not[0])
		return;
	/* in one line, however long: it is pasted */
	plainf("  %-10s", "use");
	for (int i = 0; i < a.n; i++)
		plainf(" %s", a.s[i]);
	putchar('\n');
}

/* ---- JSON --------------------------------------------------------------- */

static void put_names(struct json_out *out, json_t *o, const struct kvt_layout *layout)
{
	json_t *list;
	const char *name;

	json_put_text(out, o, "layout", kvt_layout_string(layout).s);
	list = json_put_array(out, o, "layout_names");
	for (int i = 0; (name = kvt_layout_name(layout, i)); i++)
		json_append_text(out, list, name);
}

static void put_candidate(struct json_out *out, json_t *list,
			  const struct kvt_guess_source *of, const struct kvt_guess *g,
			  int i)
{
	const struct kvt_guess_candidate *c = &g->candidate[i];
	json_t *o = json_append_object(out, list), *same, *args;
	struct arguments a = arguments_of(of, c);

	put_names(out, o, &c->layout);
	json_put_real(out, o, "gain", c->is.gain);
	json_put_real(out, o, "kinship", c->is.kinship);
	if (i)
		json_put_real(out, o, "against", c->evidence);
	same = json_put_array(out, o, "same_bytes");
	for (int j = 0; j < g->ncandidates; j++)
		if (g->candidate[j].same == i)
			json_append_text(out, same,
					 kvt_layout_string(&g->candidate[j].layout).s);
	args = json_put_array(out, o, "arguments");
	for (int j = 0; j < a.n; j++)
		json_append_text(out, args, a.s[j]);
}

static void put_types(struct json_out *out, const struct kvt_guess *g)
{
	json_t *list = json_put_array(out, out->root, "types");

	for (int i = 0; i < g->ntypes; i++) {
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "dtype", g->type[i].dtype->name);
		json_put_bool(out, o, "big_endian", g->type[i].swapped);
		json_put_real(out, o, "bits", g->type[i].bits);
	}
}

static void put_writers(struct json_out *out, const struct kvt_guess *g,
			const struct guess_writers *who)
{
	const struct kvt_group group = first_group(g);
	json_t *list = json_put_array(out, out->root, "writers");

	for (int r = 0; r < KVT_NRELEASES && !g->why_not[0]; r++) {
		const struct kvt_backend_config config = config_of(&group, who, r);

		if (who->releases >> r & 1 && backend_applies(&group))
			writers_json(out, json_append_object(out, list), &config, &group);
	}
}

void guess_json(struct json_out *out, const struct kvt_guess_source *of,
		const struct kvt_guess *g, const struct guess_writers *who)
{
	json_t *list;

	json_start(out);
	json_put_text(out, out->root, "file", of->name);
	json_put_bool(out, out->root, "told", !g->why_not[0]);
	json_put_text(out, out->root, "why_not", g->why_not[0] ? g->why_not : NULL);
	json_put_real(out, out->root, "confidence", g->confidence);
	json_put_text(out, out->root, "dtype", g->type[0].dtype->name);
	json_put_int(out, out->root, "elements_read", g->read);
	json_put_int(out, out->root, "elements", g->of);
	json_put_int(out, out->root, "live_slots", g->candidate[0].is.live_slots);
	json_put_old(out, out->root, "live_states", "live_slots");
	put_types(out, g);
	list = json_put_array(out, out->root, "candidates");
	for (int i = 0; i < g->ncandidates && g->candidate[i].same < 0; i++)
		put_candidate(out, list, of, g, i);
	put_writers(out, g, who);
	json_put_text(out, out->root, "better", g->has_better ?
		      kvt_layout_string(&g->better).s : NULL);
	guess_pages_json(out, out->root, &g->pages);
}
