/* SPDX-License-Identifier: Apache-2.0 */
/* diff_text.c - the findings for people */
#include <math.h>
#include <string.h>

#include "lib/ops/diff/diff.h"

#define LL(x) ((long long)(x))

/* ---- one element -------------------------------------------------------- */

/* Of a conv state the channel in the model, and the dim that where and mutate take. */
static void print_dim(const struct coordinate *c)
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

static void print_where(const struct coordinate *c)
{
	plainf("layer %lld", LL(c->layer));
	if (c->layer_name)
		plainf(" (%s)", c->layer_name);
	if (c->request)
		plainf(", request %s %s %lld", c->request,
		       c->recurrent ? "entry" : "token", LL(c->token));
	if (c->block[SIDE_A] == c->block[SIDE_B] && c->state[SIDE_A] == c->state[SIDE_B])
		plainf(", block %lld state %lld", LL(c->block[SIDE_A]),
		       LL(c->state[SIDE_A]));
	else
		plainf(", block %lld state %lld in A and block %lld state %lld in B",
		       LL(c->block[SIDE_A]), LL(c->state[SIDE_A]), LL(c->block[SIDE_B]),
		       LL(c->state[SIDE_B]));
	if (c->head >= 0)
		plainf(", head %lld", LL(c->head));
	if (c->kv >= 0)
		plainf(", %s", c->kv ? "value" : "key");
	print_dim(c);
}

static void print_side(const struct pair *p, const struct spot *spot,
		       const struct coordinate *c, int s)
{
	const struct place *place = &c->place[s];

	plainf("    %c       %.9g (0x%0*llx)", "AB"[s], spot->value[s],
	       2 * p->group[s]->dtype->elem, (unsigned long long)spot->bits[s]);
	if (place->offset >= 0)
		plainf(" at %s %lld of %s", place->in_memory ? "memory offset" : "offset",
		       LL(place->offset), place->file);
	if (place->offset >= 0 && place->buffer)
		plainf(": %s", place->buffer);
	putchar('\n');
}

static void print_worst(const struct result *r)
{
	for (int64_t i = 0; i < r->ntop; i++) {
		const struct spot *spot = &r->top[i];
		struct coordinate c = spot_coordinate(r->pair, spot);

		plainf("  %s %.6g: A %.9g, B %.9g, ", i ? "       " : "worst  ",
		       spot->error, spot->value[SIDE_A], spot->value[SIDE_B]);
		print_where(&c);
	}
}

/* ---- a pair ------------------------------------------------------------- */

static void print_extent(const struct pair *p)
{
	int64_t n = pair_elements(p), states = p->recurrent ? p->nspans : p->nstates;

	plainf("%lld element%s: %lld layer%s x %lld %s%s x ", LL(n), plural(n),
	       LL(p->nlayers), plural(p->nlayers), LL(states),
	       p->by_tokens && p->group[SIDE_A]->tokens_per_state == 1 ? "token" :
									  "state",
	       plural(states));
	if (p->nheads > 1)
		plainf("%lld heads x ", LL(p->nheads));
	plainf("%lld", LL(p->content * p->nkv *
			  (p->recurrent ? p->group[SIDE_A]->shape.n[KVT_AXIS_S] : 1)));
}

static void print_types(const struct result *r)
{
	const struct tolerance *t = &r->meter.tolerance;
	const struct kvt_group *const *group = r->pair->group;

	if (kvt_group_same_type(group[SIDE_A], group[SIDE_B]))
		plainf("  types   %s\n", kvt_group_type(group[SIDE_A]).s);
	else
		plainf("  types   %s in A, %s in B\n", kvt_group_type(group[SIDE_A]).s,
		       kvt_group_type(group[SIDE_B]).s);
	if (!t->given)
		return;
	plainf("  allowed%s", r->meter.rounding ? " the rounding of each number" : "");
	for (int i = 0; i < NTERMS; i++)
		if (t->has[i])
			plainf(" %s=%.6g", term_name(i), t->value[i]);
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

static void print_numbers(const struct result *r)
{
	const struct sums *s = &r->sums;

	plainf("  numbers max abs %.6g, ", s->max_abs);
	if (r->meter.has_ulp)
		plainf("max ulp %llu, ", (unsigned long long)s->max_ulp);
	print_ratio("rel-l2", 6, sums_rel_l2(s));
	print_ratio(", cosine", 9, sums_cosine(s));
	print_ratio(", PCC", 9, sums_pcc(s));
	putchar('\n');
	if (s->nonfinite)
		plainf("  without %lld pair%s not finite, %lld of them unlike\n",
		       LL(s->nonfinite), plural(s->nonfinite), LL(s->lost));
}

static void print_verdict(const struct result *r)
{
	const struct sums *s = &r->sums;

	plainf("%s: %s, ", r->pair->id, r->equal ? "equal" :
	       r->differs ? "differs" : "within tolerance");
	if (r->measured && !r->equal && r->meter.judges_elements && r->differs)
		plainf("%lld out of tolerance of ", LL(s->outside));
	else if (r->measured && !r->equal)
		plainf("%lld unequal of ", LL(s->unequal));
	print_extent(r->pair);
	if (r->equal && r->by_digest && r->by_digest == pair_elements(r->pair))
		plainf(", by digest and checksum (--deep decodes the data)");
	else if (r->equal && r->by_digest)
		plainf(", %lld of them by digest and checksum (--deep decodes the data)",
		       LL(r->by_digest));
	putchar('\n');
}

static void print_diagnosis(const struct diagnosis *d)
{
	const char *between = "";

	plainf("  fault   ");
	/* nothing differs by more than values of the two types must */
	if (!d->found.difference.count)
		plainf("none is needed: rounding alone makes such differences");
	else if (!d->found.nexplain)
		plainf("none that is known explains this alone");
	else if (!d->found.decided)
		plainf("not to be told apart: ");
	for (int i = 0; i < d->found.nhypotheses; i++) {
		const struct kvt_hypothesis *h = &d->found.hypothesis[i];

		if (h->verdict != KVT_EXPLAINS)
			continue;
		plainf("%s%s", between, h->fault->name);
		if (d->args[i].s[0])
			plainf(" %s", d->args[i].s);
		between = ", ";
	}
	if (d->found.decided)
		plainf(": %s", d->found.decided->fault->summary);
	plainf(" (%lld element%s; %lld layer%s x %lld block%s looked at)\n",
	       LL(d->found.difference.count), plural(d->found.difference.count),
	       LL(d->layers), plural(d->layers), LL(d->blocks), plural(d->blocks));
}

static void print_result(const struct result *r)
{
	print_verdict(r);
	if (!r->measured || r->equal)
		return;
	print_types(r);
	print_numbers(r);
	if (r->differs && r->broken < NTERMS)
		plainf("  broken  %s\n", term_name(r->broken));
	if (r->first.set && r->differs) {
		struct coordinate c = spot_coordinate(r->pair, &r->first);

		plainf("  first   ");
		print_where(&c);
		for (int i = 0; i < NSIDES; i++)
			print_side(r->pair, &r->first, &c, i);
	}
	if (r->differs)
		print_worst(r);
	if (r->diagnosis)
		print_diagnosis(r->diagnosis);
}

/* ---- all of it ---------------------------------------------------------- */

static void print_lacks(const struct lacks *lacks)
{
	int room = (int)(sizeof(lacks->lack) / sizeof(lacks->lack[0]));

	for (int i = 0; i < lacks->n && i < room; i++)
		plainf("only in %c: %s\n", "AB"[lacks->lack[i].side],
		       lacks->lack[i].text);
	if (lacks->n > room)
		plainf("and %d more that only one side has\n", lacks->n - room);
}

void diff_text(const struct diff *d)
{
	print_lacks(&d->pairs.lacks);
	if (!d->pairs.n)
		plainf("equal: both are empty\n");
	for (int i = 0; i < d->pairs.n; i++)
		print_result(&d->result[i]);
	if (d->map)
		diff_text_maps(stdout, d);
}
