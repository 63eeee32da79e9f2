/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice_component.c - keys or values alone, parts of a conv state, SSM states
 *
 * Keys alone are a group of kv extent 1 that says so in its component; whatever
 * its layout was, the other half is no axis of it any more.
 */
#include "lib/dump/slice.h"

#include <stdio.h>
#include <string.h>


/* ---- names -------------------------------------------------------------- */

static const char *const kv_names[] = { "k", "v" };

static bool is_kv_group(const struct kvt_group *g)
{
	return g->shape.n[KVT_AXIS_K] == 2 || kvt_group_half(g) >= 0;
}

/* The i-th component that can be had alone; NULL past the last. */
static const char *component_at(const struct kvt_group *g, int i)
{
	if (g->kind == KVT_MAMBA_SSM)
		return i ? NULL : "ssm";
	if (is_kv_group(g)) {
		int half = kvt_group_half(g);

		if (half >= 0)
			return i ? NULL : kv_names[half];
		return i < 2 ? kv_names[i] : NULL;
	}
	if (g->kind == KVT_MAMBA_CONV && i < g->ncomponents)
		return g->component[i].name;
	return NULL;
}

static bool is_named(const struct kvt_names *names, const char *name)
{
	for (int i = 0; i < names->n; i++)
		if (!strcmp(names->s[i], name))
			return true;
	return false;
}

static bool has_any(const struct kvt_group *g, const struct kvt_names *names)
{
	const char *name;

	for (int i = 0; (name = component_at(g, i)); i++)
		if (is_named(names, name))
			return true;
	return !names->n;
}

bool slice_wants(const struct kvt_group *group, const struct kvt_slice_options *options)
{
	bool any = false;

	for (int64_t l = 0; !any && l < group->shape.n[KVT_AXIS_L]; l++)
		any = ranges_have(&options->layers, kvt_layer_id(group, l));
	return any && has_any(group, &options->components);
}

/* All that a dump has, for a message. */
static void list_names(char *text, size_t size, const struct kvt_snapshot *snapshot)
{
	enum { MOST = 32 };
	const char *names[MOST];
	struct kvt_names seen = { .n = 0, .s = names };
	size_t used = 0;
	const char *name;

	*text = '\0';
	for (int g = 0; g < snapshot->ngroups; g++)
		for (int i = 0; (name = component_at(&snapshot->group[g], i)); i++) {
			if (is_named(&seen, name) || used + strlen(name) + 3 > size)
				continue;
			if (seen.n < MOST)	/* else perhaps listed twice */
				names[seen.n++] = name;
			used += (size_t)snprintf(text + used, size - used, "%s%s",
						 used ? ", " : "", name);
		}
}

enum kvt_status slice_check_components(const struct kvt_snapshot *snapshot,
				      const struct kvt_names *names,
				      struct kvt_error *err)
{
	char have[160];

	for (int i = 0; i < names->n; i++) {
		struct kvt_names one = { .n = 1, .s = &names->s[i] };
		bool found = false;

		for (int g = 0; g < snapshot->ngroups; g++)
			found |= has_any(&snapshot->group[g], &one);
		if (found)
			continue;
		list_names(have, sizeof(have), snapshot);
		return kvt_fail(err, KVT_BAD_INPUT,
				"no component '%.40s', the dump %s%s", names->s[i],
				*have ? "has " : "has none that can be had alone",
				have);
	}
	return KVT_OK;
}

/* ---- cutting ------------------------------------------------------------ */

static void take_half(struct step_part *part, struct kvt_group *group, int k)
{
	if (group->layout.nplanes == 2)
		group->layout = (struct kvt_layout){
			.nplanes = 1, .plane = { group->layout.plane[k] },
		};
	part->kv = (struct kvt_segment){ 0, k, 1 };
	group->shape.n[KVT_AXIS_K] = 1;
	group->ncomponents = 1;
	group->component[0] = (struct kvt_component){
		.length = group->shape.n[KVT_AXIS_D],
	};
	strcpy(group->component[0].name, kv_names[k]);
}

/* Parts and runs are in the same order, one for one, once a rank was taken. */
static enum kvt_status take_parts(struct step_part *part, struct kvt_group *group,
				  const struct kvt_names *names,
				  struct kvt_error *err)
{
	struct kvt_group out = *group;
	enum kvt_status status;
	int64_t at = 0;
	int kept = 0;

	if ((status = channel_runs(part, group, err)))
		return status;
	for (int i = 0; i < group->ncomponents; i++) {
		if (!is_named(names, group->component[i].name))
			continue;
		part->channel[kept] = part->channel[i];
		part->channel[kept].at = at;
		out.component[kept] = group->component[i];
		out.component[kept++].start = at;
		at += group->component[i].length;
	}
	part->nchannels = out.ncomponents = kept;
	out.shape.n[KVT_AXIS_D] = at;
	*group = out;
	return KVT_OK;
}

enum kvt_status slice_component(struct step_part *part, struct kvt_group *group,
			       const struct kvt_names *names, struct kvt_error *err)
{
	if (!names->n)
		return KVT_OK;
	if (group->kind == KVT_MAMBA_CONV)
		return take_parts(part, group, names, err);
	if (group->shape.n[KVT_AXIS_K] == 2)
		for (int k = 0; k < 2; k++)
			if (!is_named(names, kv_names[1 - k]))
				take_half(part, group, k);
	return KVT_OK;
}
