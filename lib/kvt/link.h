/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - how long operations take on a link
 *
 * A link is what lies between two ranks, software included: what one more
 * operation costs is decided by the stack that posts it, by a factor of 250
 * between plain verbs and a serving connector on one and the same card.  So
 * presets are of stacks, and each says where its figures were published.
 *
 * Two ways to a time.  kvt_link_ns() is the closed form, for one batch on an
 * idle link.  A kvt_sim has many batches share the network cards of both sides;
 * a batch that is alone takes in it what the closed form says.
 *
 * The conventions are those of kvt.h.  In addition, times are nanoseconds from
 * any zero, rates are bytes per second, and arrays are the caller's.  The same
 * calls give the same figures on every machine with IEEE doubles: what is not
 * exact is +, -, *, / and sqrt().
 */
#ifndef KVT_LINK_H
#define KVT_LINK_H

#include "lib/kvt/kvt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a link ------------------------------------------------------------- */

/* Where the figures of a link come from. */
enum kvt_quality {
	KVT_PUBLISHED,		/* fits a published table */
	KVT_DERIVED,		/* computed from published figures */
	KVT_EXTRAPOLATED,	/* by line rate from another preset */
	KVT_CALIBRATE,		/* no figures: to be measured where it is used */
	KVT_GIVEN,		/* by the user */
	KVT_NQUALITIES
};
const char *kvt_quality_name(enum kvt_quality quality);	/* "published" */

/*
 * One batch of n operations takes
 *
 *	setup + ((n * op) ** k + (bytes / rate) ** k) ** (1 / k)
 *
 * with k of 1 if the wire waits for each operation to be posted, more the better
 * the two overlap, and their maximum if they overlap fully.
 */
struct kvt_link {
	const char *name;
	int overlap;		/* k: 1, 2 or 4; KVT_OVERLAP_FULL */
	int64_t setup_ns;	/* of a batch */
	int64_t op_ps;		/* of an operation, in picoseconds */
	int64_t post_ps;	/* of that, the time in the posting thread */
	int64_t rate;		/* bytes a second, all rails; 0: infinite */
	int64_t slice;		/* bytes; longer operations are cut; 0: none are */
	enum kvt_quality quality;
	const char *source;	/* where the figures are from */
};
enum { KVT_OVERLAP_FULL = 0 };

/* The i-th preset; NULL past the last one.  It lives as long as the program. */
const struct kvt_link *kvt_link_preset(int i);

/* Refuses an overlap that is none of the four, and what is below 0. */
KVT_MUST_CHECK enum kvt_status
kvt_link_check(const struct kvt_link *link, struct kvt_error *err);

/*
 * The closed form, rounded to the nearest nanosecond; INT64_MAX if it is longer
 * than that.  0 operations take no time.  'link' passed kvt_link_check().
 */
int64_t kvt_link_ns(const struct kvt_link *link, int64_t nops, int64_t nbytes);

/* How long the poster is busy with that, of it. */
int64_t kvt_link_post_ns(const struct kvt_link *link, int64_t nops);

/* ---- many batches at once ------------------------------------------------ */

/* How batches that meet at a card share it. */
enum kvt_share {
	KVT_SHARE_FAIR,		/* all at once: max-min fair */
	KVT_SHARE_FIFO,		/* one after the other, by arrival */
	KVT_SHARE_NONE,		/* they do not hinder each other */
	KVT_NSHARES
};
const char *kvt_share_name(enum kvt_share share);	/* "fair" */

/* A card: one direction of one rank's rails. */
struct kvt_nic {
	double rate;		/* bytes a second; 0: down */
	double left;		/* internal: not yet given away */
	int64_t flows;		/* internal: that still want more */
};

/* A batch on its way.  It stays where it is until it is done or cancelled. */
struct kvt_flow {
	int64_t id;		/* the caller's */
	int64_t arrival;	/* when the batch is there */
	int64_t begin;		/* when its bytes may flow: arrival + setup */
	int64_t end;		/* out: when the last byte is there */
	int64_t bytes;
	struct kvt_nic *src, *dst;
	/* internal */
	double cap;		/* bytes a second if it is alone */
	double left, rate;	/* bytes, bytes a second */
	bool fixed;
	struct kvt_flow *next;	/* by arrival */
};

/*
 *	kvt_sim_init(&sim, KVT_SHARE_FAIR);
 *	kvt_sim_add(&sim, &flow, &link, nops, nbytes);
 *	while ((done = kvt_sim_next(&sim, until)))
 *		...		// done->end; may add more, from sim.now on
 *
 * Each event costs a walk over the flows that are under way.
 */
struct kvt_sim {
	enum kvt_share share;
	int64_t now;
	struct kvt_flow *flows;		/* under way, by arrival */
	struct kvt_flow **tail;
	int64_t nflows;
	bool stale;			/* internal: rates are to be found anew */
};

/* At time 0, with nothing under way; it owns nothing. */
void kvt_sim_init(struct kvt_sim *sim, enum kvt_share share);

/*
 * The caller sets id, src and dst and keeps 'flow' and both cards in place.
 * Arrival is sim->now.
 */
void kvt_sim_add(struct kvt_sim *sim, struct kvt_flow *flow,
		 const struct kvt_link *link, int64_t nops, int64_t nbytes);

/* Takes a flow out; what it has moved so far is bytes - left. */
void kvt_sim_cancel(struct kvt_sim *sim, struct kvt_flow *flow);

/* A card gets faster, slower or fails, from sim->now on. */
void kvt_sim_set_rate(struct kvt_sim *sim, struct kvt_nic *nic, double rate);

/*
 * Goes on to the next flow that is done, takes it out and returns it; NULL, and
 * sim->now is 'until', if none is done by then.  Flows that are done at the same
 * time come by arrival.
 */
struct kvt_flow *kvt_sim_next(struct kvt_sim *sim, int64_t until);

#ifdef __cplusplus
}
#endif

#endif
