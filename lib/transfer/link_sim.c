/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_sim.c - batches that share the cards of both sides
 *
 * Between two events every flow has one rate.  No flow is ever faster than it
 * would be alone: what it loses to posting and overlap it loses here too, and
 * others may use the wire meanwhile.
 */
#include "lib/kvt/link.h"

#include <stddef.h>

const char *kvt_share_name(enum kvt_share share)
{
	static const char *const name[] = { "fair", "fifo", "none" };

	return share < KVT_NSHARES ? name[share] : "unknown";
}

void kvt_sim_init(struct kvt_sim *sim, enum kvt_share share)
{
	*sim = (struct kvt_sim){ .share = share };
}

void kvt_sim_add(struct kvt_sim *sim, struct kvt_flow *flow,
		 const struct kvt_link *link, int64_t nops, int64_t nbytes)
{
	int64_t alone = kvt_link_ns(link, nops, nbytes) - (nops ? link->setup_ns : 0);

	flow->arrival = sim->now;
	flow->begin = sim->now + (nops ? link->setup_ns : 0);
	flow->end = 0;
	flow->bytes = nbytes;
	/* without time there is nothing to share: it is done when it begins */
	flow->left = alone > 0 ? (double)nbytes : 0;
	flow->cap = alone > 0 ? (double)nbytes * 1e9 / (double)alone : 0;
	flow->rate = 0;
	flow->next = NULL;
	if (!sim->flows)
		sim->tail = &sim->flows;
	*sim->tail = flow;
	sim->tail = &flow->next;
	sim->nflows++;
	sim->stale = true;
}

static void take_out(struct kvt_sim *sim, struct kvt_flow *flow)
{
	struct kvt_flow **at = &sim->flows;

	while (*at != flow)
		at = &(*at)->next;
	*at = flow->next;
	if (sim->tail == &flow->next)
		sim->tail = at;
	flow->next = NULL;
	sim->nflows--;
	sim->stale = true;
}

void kvt_sim_cancel(struct kvt_sim *sim, struct kvt_flow *flow)
{
	take_out(sim, flow);
}

void kvt_sim_set_rate(struct kvt_sim *sim, struct kvt_nic *nic, double rate)
{
	nic->rate = rate;
	sim->stale = true;
}

/* ---- rates --------------------------------------------------------------- */

static double min(double a, double b)
{
	return a < b ? a : b;
}

static bool flows_now(const struct kvt_sim *sim, const struct kvt_flow *f)
{
	return f->begin <= sim->now && f->left > 0;
}

static void fix(struct kvt_flow *f, double rate)
{
	f->rate = rate;
	f->fixed = true;
	f->src->left -= rate;
	f->dst->left -= rate;
	f->src->flows--;
	f->dst->flows--;
}

/* An equal part of what a card has left. */
static double part(const struct kvt_nic *nic)
{
	return nic->flows && nic->left > 0 ? nic->left / (double)nic->flows : 0;
}

/* Sets what the flows may share; how many of them there are. */
static int64_t open_flows(struct kvt_sim *sim)
{
	int64_t open = 0;

	for (struct kvt_flow *f = sim->flows; f; f = f->next) {
		f->rate = 0;
		f->fixed = !flows_now(sim, f);
		f->src->left = f->src->rate;
		f->dst->left = f->dst->rate;
		f->src->flows = f->dst->flows = 0;
		open += !f->fixed;
	}
	for (struct kvt_flow *f = sim->flows; f; f = f->next) {
		f->src->flows += !f->fixed;
		f->dst->flows += !f->fixed;
	}
	return open;
}

static double least_part(const struct kvt_sim *sim)
{
	double least = -1;

	for (struct kvt_flow *f = sim->flows; f; f = f->next) {
		double most = min(part(f->src), part(f->dst));

		if (!f->fixed && (least < 0 || most < least))
			least = most;
	}
	return least;
}

/*
 * Max-min fairness.  Who cannot use the least part that a card has for each gets
 * all it can use, and leaves the rest to the others; if there is none like that,
 * that card is full, and all its flows get this part.
 */
static void share_fairly(struct kvt_sim *sim)
{
	int64_t open = open_flows(sim);

	while (open) {
		/* parts of one card differ by rounding */
		double least = least_part(sim), limit = least * (1 + 1e-12);
		int64_t before = open;

		for (struct kvt_flow *f = sim->flows; f; f = f->next) {
			if (!f->fixed && f->cap <= limit) {
				fix(f, f->cap);
				open--;
			}
		}
		if (open < before)
			continue;
		for (struct kvt_flow *f = sim->flows; f; f = f->next) {
			if (!f->fixed && min(part(f->src), part(f->dst)) <= limit) {
				fix(f, least);
				open--;
			}
		}
	}
}

/* The first to arrive has both cards; a later one those nobody has. */
static void share_in_turn(struct kvt_sim *sim)
{
	for (struct kvt_flow *f = sim->flows; f; f = f->next)
		f->src->flows = f->dst->flows = 0;
	for (struct kvt_flow *f = sim->flows; f; f = f->next) {
		f->rate = 0;
		if (!flows_now(sim, f))
			continue;
		if (!f->src->flows && !f->dst->flows)
			f->rate = min(f->cap, min(f->src->rate, f->dst->rate));
		f->src->flows = f->dst->flows = 1;
	}
}

static void share_nothing(struct kvt_sim *sim)
{
	for (struct kvt_flow *f = sim->flows; f; f = f->next)
		f->rate = !flows_now(sim, f) ? 0 :
			  min(f->cap, min(f->src->rate, f->dst->rate));
}

static void find_rates(struct kvt_sim *sim)
{
	static void (*const how[])(struct kvt_sim *) = {
		share_fairly, share_in_turn, share_nothing,
	};

	how[sim->share](sim);
	sim->stale = false;
}

/* ---- events -------------------------------------------------------------- */

/* When it is done if nothing changes; INT64_MAX: never. */
static int64_t done_at(const struct kvt_sim *sim, const struct kvt_flow *f)
{
	double ns;

	if (f->begin > sim->now)
		return f->left > 0 ? INT64_MAX : f->begin;
	if (f->left <= 0)
		return sim->now;
	if (f->rate <= 0)
		return INT64_MAX;
	ns = f->left * 1e9 / f->rate + 0.5;
	return ns < (double)(INT64_MAX - sim->now) ? sim->now + (int64_t)ns : INT64_MAX;
}

static void pass(struct kvt_sim *sim, int64_t until)
{
	double seconds = (double)(until - sim->now) / 1e9;

	for (struct kvt_flow *f = sim->flows; f; f = f->next) {
		if (f->begin <= sim->now)
			f->left -= min(f->left, f->rate * seconds);
		else if (f->begin <= until)
			sim->stale = true;
	}
	sim->now = until;
}

struct kvt_flow *kvt_sim_next(struct kvt_sim *sim, int64_t until)
{
	for (;;) {
		struct kvt_flow *first = NULL;
		int64_t end = INT64_MAX, change = until;

		if (sim->stale)
			find_rates(sim);
		for (struct kvt_flow *f = sim->flows; f; f = f->next) {
			int64_t at = done_at(sim, f);

			if (at < end) {
				end = at;
				first = f;
			}
			if (f->begin > sim->now && f->begin < change)
				change = f->begin;
		}
		if (first && end <= change) {
			pass(sim, end);
			first->end = end;
			first->left = 0;
			take_out(sim, first);
			return first;
		}
		if (change >= until) {
			pass(sim, until);
			return NULL;
		}
		pass(sim, change);
	}
}
