/* SPDX-License-Identifier: Apache-2.0 */
/*
 * astype.c - a dump as another type: which scales, and the dump
 *
 * Two scales have to be known first: what fp8 that is read is times, which its dump says
 * or somebody does, and what is written is divided by, told or calibrated from the data.
 * Neither is guessed.
 */
#include "lib/ops/cast/cast.h"

#include <stdlib.h>

#include "lib/kvt/cast.h"
#include "lib/kvt/ops.h"

struct casting {
	const struct kvt_dump *dump;
	const struct kvt_astype *how;
	const struct cast_files *files;
	struct kvt_cast cast;
	struct calibrated from[KVT_MAX_GROUPS], to[KVT_MAX_GROUPS];
	struct kvt_scales scales[2][KVT_MAX_GROUPS];
};

/* One for all keys of the group, one for all values. */
static enum kvt_status same_scales(struct calibrated *out, const struct kvt_group *group,
				   const double kv[2], struct kvt_error *err)
{
	int64_t n = group->shape.n[KVT_AXIS_L] * 2;

	out->heads = 1;
	if (!(out->scale = malloc(((size_t)n + 1) * sizeof(*out->scale))))
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < n; i++)
		out->scale[i] = (float)kv[i % 2];
	return KVT_OK;
}

/* fp8 that a scale is for. */
bool cast_is_scaled(const struct kvt_group *group)
{
	return kvt_group_casts(group) && !group->content.type &&
	       kvt_cast_scaled(group->dtype, &group->content);
}

/* Of what is read: fp8 that does not say by what it was divided is asked for. */
static enum kvt_status settle_from(struct casting *c, struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(c->dump);
	bool told = c->how->has_from || c->files->from, some = false;
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];

		if (!cast_is_scaled(group))
			continue;
		some = true;
		if (!group->scales && !told)
			return kvt_fail(err, KVT_USAGE,
					"%s is %s and does not say its scale; give --from-scale=1 if it was written without one, else X[,Y] or a FILE that has them",
					group->id, group->dtype->name);
		if (c->how->has_from)
			status = same_scales(&c->from[g], group, c->how->from, err);
	}
	if (told && !some)
		return kvt_fail(err, KVT_USAGE,
				"no group is of an fp8 type, so --from-scale says nothing of it");
	return status;
}

/* Of what is written. */
static enum kvt_status settle_to(struct casting *c, const struct kvt_run *run,
				 struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(c->dump);
	bool scaled = kvt_cast_scaled(c->cast.dtype, &c->cast.content);
	enum kvt_scaling how = c->files->to ? KVT_SCALE_TOLD : c->how->scaling;
	enum kvt_status status = KVT_OK;

	if (!scaled && how)
		return kvt_fail(err, KVT_USAGE,
				"%s has no scale beside it; --from-scale is for fp8 that is read",
				c->how->type);
	if (!scaled || c->files->to)
		return KVT_OK;
	if (!how)
		return kvt_fail(err, KVT_USAGE,
				"expected --scale for %s: auto, which calibrates one for the keys and one for the values of a layer, auto-heads, X[,Y], FILE, or 1 as engines take it that were given none",
				c->how->type);
	if (how != KVT_SCALE_TOLD && (c->how->has_from || c->files->from))
		return kvt_fail(err, KVT_USAGE,
				"--from-scale and a calibrated --scale exclude each other; write bfloat16 first");
	if (how != KVT_SCALE_TOLD)
		return cast_calibrate(c->to, c->dump, c->cast.dtype, &c->cast.content,
				      how == KVT_SCALE_AUTO_HEADS, run, err);
	for (int g = 0; !status && g < s->ngroups; g++)
		if (kvt_group_casts(&s->group[g]))
			status = same_scales(&c->to[g], &s->group[g], c->how->scale, err);
	return status;
}

/* What was read from a file, or is settled here. */
static void take(const struct kvt_scales *out[KVT_MAX_GROUPS],
		 struct kvt_scales room[KVT_MAX_GROUPS], const struct calibrated *from)
{
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		room[g] = (struct kvt_scales){ from[g].scale, from[g].heads };
		out[g] = from[g].scale ? &room[g] : NULL;
	}
}

static enum kvt_status make(struct kvt_dump **out, struct kvt_dump **proof,
			    struct casting *c, struct kvt_error *err)
{
	enum kvt_status status;

	take(c->cast.from, c->scales[0], c->files->from ? c->files->from : c->from);
	take(c->cast.scales, c->scales[1], c->files->to ? c->files->to : c->to);
	status = kvt_dump_cast(out, c->dump, &c->cast, err);
	if (!status && proof) {
		c->cast.one_by_one = true;
		status = kvt_dump_cast(proof, c->dump, &c->cast, err);
		if (status)
			kvt_dump_close(*out);
	}
	return status;
}

enum kvt_status cast_dump(struct kvt_dump **out, struct kvt_dump **proof,
			  const struct kvt_dump *dump, const struct kvt_astype *how,
			  const struct cast_files *files, const struct kvt_run *run,
			  struct kvt_error *err)
{
	struct casting *c = calloc(1, sizeof(*c));
	enum kvt_status status;

	if (!c)
		return kvt_no_memory(err, NULL);
	c->dump = dump;
	c->how = how;
	c->files = files;
	if (!(status = kvt_cast_parse(&c->cast.dtype, &c->cast.content, how->type,
				      err)) &&
	    !(status = settle_from(c, err)) && !(status = settle_to(c, run, err)))
		status = make(out, proof, c, err);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		free(c->from[g].scale);
		free(c->to[g].scale);
	}
	free(c);
	return status;
}

enum kvt_status kvt_dump_astype(struct kvt_dump **out, const struct kvt_dump *dump,
				const struct kvt_astype *how, const struct kvt_run *run,
				struct kvt_error *err)
{
	static const struct cast_files none;
	static const struct kvt_run quiet;

	for (int k = 0; k < 2; k++)
		if ((how->scaling == KVT_SCALE_TOLD && !(how->scale[k] > 0)) ||
		    (how->has_from && !(how->from[k] > 0)))
			return kvt_fail(err, KVT_USAGE,
					"a scale is %g, expected a number above 0",
					how->has_from ? how->from[k] : how->scale[k]);
	return cast_dump(out, NULL, dump, how, &none, run ? run : &quiet, err);
}
