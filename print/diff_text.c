/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_text.c - the findings for people
 *
 *	g0: differs, 220414 unequal of 220480 elements: 5 layers x 689 tokens x ...
 *	  types   bfloat16
 *	  numbers max abs 27.9492, max ulp 33146, rel-l2 1.41519, cosine ..., PCC ...
 *	  first   layer 0 (...), request A token 0, block 13 slot 0, head 0, key, dim 0
 *	    A       -0.306640625 (0xbe9d) at offset 26752 of a.npy
 *	    B       -0.390625 (0xbec8) at offset 26752 of b.npy
 *	  where   all layers, heads, tokens, blocks, keys and values, dims
 *	  worst   27.9492: A -27.25, B 0.69921875, layer 1 (...), request C token 39, ...
 *	  fault   swap-kv: keys and values are exchanged (100 % of 210176 elements; ...)
 *
 * Before the groups come requests that are one under two names, and what one side alone
 * has.  Of a group that is equal there are the first line, and those on rotations and on
 * states that are stored in two ways.
 */
#include <math.h>
#include <string.h>

#include "print/diff.h"
#include "print/out/screen.h"

/* ---- one element -------------------------------------------------------- */

/* Of a conv state the channel in the model, and the dim that where and mutate take. */
static void print_dim(const struct diff_coordinates *c)
{
	const int64_t dim[] = { c->place[SIDE_A].dim, c->place[SIDE_B].dim };

	if (c->head >= 0)
		plainf(", dim %lld\n", LL(c->dim));
	else if (dim[SIDE_A] == dim[SIDE_B])
		plainf(", channel %lld (dim %lld)\n", LL(c->dim), LL(dim[SIDE_A]));
	else
		plainf(", channel %lld (dim %lld in A, %lld in B)\n", LL(c->dim),
		       LL(dim[SIDE_A]), LL(dim[SIDE_B]));
}

static void print_where(const struct diff_coordinates *c)
{
	plainf("layer %lld", LL(c->layer));
	if (c->layer_name)
		plainf(" (%s)", c->layer_name);
	if (c->request)
		plainf(", request %s %s %lld", c->request,
		       c->recurrent ? "entry" : "token", LL(c->token));
	if (c->page)
		plainf(", page %s", c->page);
	if (c->page && c->slot[SIDE_A] == c->slot[SIDE_B])
		plainf(" slot %lld", LL(c->slot[SIDE_A]));
	else if (c->block[SIDE_A] == c->block[SIDE_B] &&
		 c->slot[SIDE_A] == c->slot[SIDE_B])
		plainf(", block %lld slot %lld", LL(c->block[SIDE_A]),
		       LL(c->slot[SIDE_A]));
	else
		plainf(", block %lld slot %lld in A and block %lld slot %lld in B",
		       LL(c->block[SIDE_A]), LL(c->slot[SIDE_A]), LL(c->block[SIDE_B]),
		       LL(c->slot[SIDE_B]));
	if (c->head >= 0)
		plainf(", head %lld", LL(c->head));
	if (c->kv >= 0)
		plainf(", %s", c->kv ? "value" : "key");
	print_dim(c);
}

static void print_side(const struct diff_pair *p, const struct deviation *dev,
		       const struct diff_coordinates *c, int s)
{
	const struct diff_address *place = &c->place[s];

	plainf("    %c       %.9g (0x%0*llx)", "AB"[s], dev->value[s],
	       2 * p->group[s]->dtype->elem, (unsigned long long)dev->bits[s]);
	if (place->offset >= 0)
		plainf(" at %s %lld of %s", place->in_memory ? "memory offset" : "offset",
		       LL(place->offset), place->file);
	if (place->offset >= 0 && place->buffer)
		plainf(": %s", place->buffer);
	putchar('\n');
}

static void print_worst(const struct diff_result *r)
{
	for (int64_t i = 0; i < r->nworst; i++) {
		const struct deviation *dev = &r->worst[i];
		struct diff_coordinates c = kvt_diff_locate(r->pair, dev);

		plainf("  %s %.6g: A %.9g, B %.9g, ", i ? "       " : "worst  ",
		       dev->error, dev->value[SIDE_A], dev->value[SIDE_B]);
		print_where(&c);
	}
}

/* ---- a pair ------------------------------------------------------------- */

static void print_extent(const struct diff_pair *p)
{
	int64_t slots = p->recurrent ? p->nsegments : p->nslots;
	int64_t n = diff_pair_elements(p);

	plainf("%lld element%s: %lld layer%s x %lld %s%s x ", LL(n), plural(n),
	       LL(p->nlayers), plural(p->nlayers), LL(slots),
	       p->by_tokens && p->group[SIDE_A]->tokens_per_slot == 1 ? "token" :
									  "slot",
	       plural(slots));
	if (p->nheads > 1)
		plainf("%lld heads x ", LL(p->nheads));
	plainf("%lld", LL(p->content * p->nkv * (p->recurrent ? p->taps : 1)));
}

/* Are these numbers in the basis of the model? */
static void print_rotation(const struct diff_pair *p)
{
	if (!p->rotation[SIDE_A] && !p->rotation[SIDE_B])
		return;
	plainf("  rotated %s in A, %s in B: %s\n",
	       kvt_rotation_name(p->rotation[SIDE_A]),
	       kvt_rotation_name(p->rotation[SIDE_B]),
	       p->decoded ? "undone, compared in the basis of the model" :
			    "compared as stored");
}

/*
 *   basis   keys of B: found rotated, 64 together; cosine with A 0.01 as stored, 0.99 ...
 */
static void print_basis(const struct diff_pair *p)
{
	const struct diff_basis *b = &p->basis;

	for (int kv = 0; b->open && kv < 2; kv++) {
		const char *what = p->half < 0 && p->nkv < 2 ? "vectors" :
				   kv ? "values" : "keys";

		if (!b->sought[kv])
			continue;
		if (!b->found[kv])
			plainf("  basis   %s of %c: none found, taken as stored", what,
			       "AB"[b->side]);
		else if (b->turn[kv] > 1)
			plainf("  basis   %s of %c: found rotated, %lld together", what,
			       "AB"[b->side], LL(b->turn[kv]));
		else
			plainf("  basis   %s of %c: found not rotated", what,
			       "AB"[b->side]);
		plainf("; cosine with %c %.4f as stored, %.4f rotated back\n",
		       "BA"[b->side], b->near[kv][0], b->near[kv][1]);
	}
}

/* How states that are stored in two ways were brought into one. */
static void print_states(const struct diff_pair *p)
{
	if (!p->reordered)
		return;
	for (int s = 0; s < NSIDES; s++) {
		if (p->row[s])
			plainf("  rows    of llama.cpp in %c, as %s\n", "AB"[s],
			       p->inner[s] ? "channels of taps" : "heads");
		else if (p->inner[s])
			plainf("  order   keys outside values in %c, inside in %c\n",
			       "AB"[s], "BA"[s]);
		if (p->slots[s] > p->taps)
			plainf("  taps    the newest %lld of %lld in %c\n",
			       LL(p->taps), LL(p->slots[s]), "AB"[s]);
	}
}

static void print_types(const struct diff_result *r)
{
	const struct diff_tolerance *t = &r->tolerance;
	const struct kvt_group *const *group = r->pair->group;

	if (kvt_group_same_type(group[SIDE_A], group[SIDE_B]))
		plainf("  types   %s\n", kvt_group_type(group[SIDE_A]).s);
	else
		plainf("  types   %s in A, %s in B\n", kvt_group_type(group[SIDE_A]).s,
		       kvt_group_type(group[SIDE_B]).s);
	for (int s = 0; s < NSIDES; s++)
		if (group[s]->cast_from[0])
			plainf("  cast    values of %c changed: %s\n", "AB"[s],
			       kvt_group_cast_text(group[s]).s);
	if (!t->given)
		return;
	plainf("  allowed%s", r->rounding ? " the rounding of each number" : "");
	for (int i = 0; i < NTERMS; i++)
		if (t->has[i])
			plainf(" %s=%.6g", diff_term_name(i), t->value[i]);
	putchar('\n');
}

/* As digits, but for what has no value: a cosine with zeros, a ratio to them. */
static void print_ratio(const char *name, int digits, double x)
{
	if (isfinite(x))
		plainf("%s %.*g", name, digits, x);
	else
		plainf("%s undefined", name);
}

static void print_numbers(const struct diff_result *r)
{
	const struct diff_sums *s = &r->sums;

	plainf("  numbers max abs %.6g, ", s->max_abs);
	if (r->has_ulp)
		plainf("max ulp %llu, ", (unsigned long long)s->max_ulp);
	print_ratio("rel-l2", 6, kvt_diff_rel_l2(s));
	print_ratio(", cosine", 9, kvt_diff_cosine(s));
	print_ratio(", PCC", 9, kvt_diff_pcc(s));
	putchar('\n');
	if (s->nonfinite)
		plainf("  %lld pair%s with NaN or Inf %s not in these numbers; "
		       "%lld differ\n", LL(s->nonfinite), plural(s->nonfinite),
		       s->nonfinite == 1 ? "is" : "are", LL(s->lost));
}

static void print_verdict(const struct diff_result *r)
{
	const struct diff_sums *s = &r->sums;

	screen_paint(SCREEN_NAME);
	plainf("%s", r->pair->id);
	screen_plain();
	fputs(": ", stdout);
	if (r->differs && !r->equal)
		screen_paint(SCREEN_DIFFERS);
	fputs(r->equal ? "equal" : r->differs ? "differs" : "within tolerance", stdout);
	if (r->differs && !r->equal)
		screen_plain();
	fputs(", ", stdout);
	if (r->measured && !r->equal && r->by_element && r->differs)
		plainf("%lld out of tolerance of ", LL(s->outside));
	else if (r->measured && !r->equal)
		plainf("%lld unequal of ", LL(s->unequal));
	print_extent(r->pair);
	if (r->equal && r->by_digest && r->by_digest == diff_pair_elements(r->pair))
		plainf(", by digest and checksum (--deep decodes the data)");
	else if (r->equal && r->by_digest)
		plainf(", %lld of them by digest and checksum (--deep decodes the data)",
		       LL(r->by_digest));
	putchar('\n');
}

static void print_result(const struct diff *d, const struct diff_result *r)
{
	print_verdict(r);
	print_rotation(r->pair);
	print_basis(r->pair);
	print_states(r->pair);
	if (!r->measured || r->equal)
		return;
	print_types(r);
	print_numbers(r);
	diff_text_lost(d, r);
	if (r->differs && r->broken < NTERMS)
		plainf("  broken  %s\n", diff_term_name(r->broken));
	if (r->first.set && r->differs) {
		struct diff_coordinates c = kvt_diff_locate(r->pair, &r->first);

		plainf("  first   ");
		print_where(&c);
		for (int i = 0; i < NSIDES; i++)
			print_side(r->pair, &r->first, &c, i);
	}
	if (r->differs)
		diff_text_where(r);
	if (r->differs)
		print_worst(r);
	diff_text_tables(d, r);
	if (r->diagnosis)
		diff_text_fault(r);
}

/* ---- all of it ---------------------------------------------------------- */

static void print_unmatched(const struct diff_unmatched *unmatched)
{
	int kept = unmatched_kept(unmatched);

	for (int i = 0; i < kept; i++) {
		screen_paint(SCREEN_MISSING);
		plainf("only in %c", "AB"[unmatched->item[i].side]);
		screen_plain();
		plainf(": %s\n", unmatched->item[i].text);
	}
	if (unmatched->n > kept)
		plainf("and %d more that only one side has\n", unmatched->n - kept);
}

/* Requests of two names that are one, and how that is known. */
static void print_found(const struct diff *d)
{
	const struct kvt_snapshot *in[NSIDES] = {
		kvt_dump_snapshot(d->side[SIDE_A].dump),
		kvt_dump_snapshot(d->side[SIDE_B].dump),
	};

	for (int64_t i = 0; i < d->pairs.partners.nfound; i++) {
		const struct diff_found *f = &d->pairs.partners.found[i];

		plainf("request %s of A is %s of B: ",
		       in[SIDE_A]->request[f->request[SIDE_A]].id,
		       in[SIDE_B]->request[f->request[SIDE_B]].id);
		if (f->by_name)
			plainf("names that are one but for the end\n");
		else
			plainf("%lld of %lld tokens that were read are alike\n",
			       LL(f->alike), LL(f->sampled));
	}
}

void diff_text(const struct diff *d)
{
	screen_fold_begin(10);
	print_found(d);
	print_unmatched(&d->pairs.unmatched);
	if (!d->pairs.n)
		plainf("equal: both are empty\n");
	for (int i = 0; i < d->pairs.n; i++)
		print_result(d, &d->result[i]);
	diff_text_attention(d);
	screen_fold_end();
	if (d->map)
		diff_text_maps(stdout, d);
}
