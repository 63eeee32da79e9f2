/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive.c - a dump out of steps: lists of leaves, snapshot, what stays as it is
 *
 * The caller guarantees that the products of a group are disjoint; then so are its
 * parts, which is what makes counting a proof (lib/dump/tiles.c).
 */
#include "lib/derived/derive.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"
#include "lib/snapshot/halves.h"

/* ---- steps ---------------------------------------------------------------- */

enum kvt_status step_whole(struct step_group *step, const struct kvt_group *group,
			   int index, struct kvt_error *err)
{
	step->from = index;
	step->nparts = 1;
	step->part = calloc(1, sizeof(*step->part));
	if (!step->part)
		return kvt_no_memory(err, NULL);
	step->part->heads.count = group->shape.n[KVT_AXIS_H];
	step->part->kv.count = group->shape.n[KVT_AXIS_K];
	step->part->nchannels = 1;
	step->part->channel[0].count = group->shape.n[KVT_AXIS_D];
	return KVT_OK;
}

static void step_free(struct step_group *step)
{
	free(step->layer);
	free(step->block);
	free(step->first);
	free(step->span);
	free(step->part);
}

static void derivation_free(struct derivation *d)
{
	kvt_snapshot_free(&d->snapshot);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		struct step_group *next;

		for (struct step_group *s = d->group[g].next; s; s = next) {
			next = s->next;
			step_free(s);
			free(s);
		}
		step_free(&d->group[g]);
	}
	memset(d->group, 0, sizeof(d->group));
}

/* ---- the dump ----------------------------------------------------------------- */

static bool compose(struct kvt_dump *to, int g, const struct derivation *d,
		    const struct step_group *step)
{
	int source = step->nparts ? step->part[0].source : 0;

	return map_compose(&to->group[g], step, &d->snapshot.group[g],
			   kvt_dump_group(d->source[source], step->from), d->source);
}

/* All of the sources, also those whose data are not wanted: none may be written to. */
static bool take_leaves(struct kvt_dump *dump, const struct derivation *d)
{
	for (int s = 0; s < d->nsources; s++)
		for (int l = 0; l < d->source[s]->nleaves; l++) {
			struct kvt_leaf *leaf = d->source[s]->leaf[l];
			bool known = false;

			for (int i = 0; i < dump->nleaves; i++)
				known |= dump->leaf[i] == leaf;
			if (known)
				continue;
			if (!KVT_GROW(&dump->leaf, dump->nleaves))
				return false;
			dump->leaf[dump->nleaves++] = leaf;
			atomic_fetch_add(&leaf->refs, 1);
		}
	return true;
}

/* Some channels of a head of a state have no shape. */
static void forget_cut_states(struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; g++) {
		struct kvt_group *group = &snapshot->group[g];
		int64_t n = 1;

		for (int i = 0; i < KVT_STATE_AXES && group->state[i]; i++)
			n *= group->state[i];
		if (n != group->shape.n[KVT_AXIS_D])
			memset(group->state, 0, sizeof(group->state));
	}
}

enum kvt_status derive(struct kvt_dump **out, struct derivation *d,
		       enum kvt_status filled, struct kvt_error *err)
{
	enum kvt_status status = filled ? filled : halves_check(&d->snapshot, err);
	struct kvt_dump *dump;
	bool done;

	if (status) {
		derivation_free(d);
		return status;
	}
	dump = calloc(1, sizeof(*dump));
	done = dump != NULL;
	forget_cut_states(&d->snapshot);
	for (int g = 0; done && g < d->snapshot.ngroups; g++)
		for (const struct step_group *s = &d->group[g]; done && s; s = s->next)
			done = compose(dump, g, d, s);
	if (dump) {
		dump->snapshot = d->snapshot;
		kvt_snapshot_init(&d->snapshot);
		done = done && take_leaves(dump, d);
	}
	derivation_free(d);
	if (!done) {
		kvt_dump_close(dump);
		return kvt_no_memory(err, NULL);
	}
	map_seal(dump, &dump->snapshot);
	*out = dump;
	return KVT_OK;
}
