/* SPDX-License-Identifier: Apache-2.0 */
/*
 * samples.c - how many blocks a medium had, over the time of a recording
 *
 * How long a recording is nobody knows before its end, and memory is CACHE_SAMPLES: when
 * it is full every second one goes, and from then on only each second batch is sampled,
 * each fourth, and so on.  So between CACHE_SAMPLES / 2 and all of them are kept, evenly
 * spaced.
 */
#include "lib/ops/events/replay_impl.h"

static void fill(struct kvt_cache_sample *s, const struct kvt_cache_replay *r,
		 const struct kvt_cache_event *event)
{
	*s = (struct kvt_cache_sample){
		.batch = event->batch, .event = event->number, .time = event->time,
	};
	for (int64_t i = 0; i < r->nplaces; i++)
		for (int m = 0; m < r->totals.nmedia; m++)
			if (r->place[i].medium == r->totals.medium[m])
				s->resident[m] += r->place[i].resident;
}

/* Called where a batch begins: what is counted is the state before it. */
void cache_sample(struct kvt_cache_replay *r, const struct kvt_cache_event *event)
{
	struct cache_samples *s = &r->samples;

	s->every = s->every ? s->every : 1;
	if (++s->skipped < s->every)
		return;
	s->skipped = 0;
	if (s->n == CACHE_SAMPLES) {
		for (int i = 0; i < CACHE_SAMPLES / 2; i++)
			s->at[i] = s->at[2 * i];
		s->n = CACHE_SAMPLES / 2;
		s->every *= 2;
	}
	fill(&s->at[s->n++], r, event);
}

int kvt_cache_replay_samples(const struct kvt_cache_sample *out[], int most,
			     const struct kvt_cache_replay *r)
{
	const struct cache_samples *s = &r->samples;
	int n = s->n < most ? s->n : most;

	for (int i = 0; i < n; i++)
		out[i] = &s->at[n > 1 ? (int64_t)i * (s->n - 1) / (n - 1) : 0];
	return n;
}
