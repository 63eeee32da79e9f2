/* SPDX-License-Identifier: Apache-2.0 */
/* cast.c - --cache-dtype: which scales, and the dump that is written */
#include "cli/cast.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "formats/model/scales.h"
#include "lib/kvt/cast.h"
#include "lib/ops/cast/cast.h"

enum kvt_status cast_check(const struct cast_args *args, struct kvt_error *err)
{
	if (!args->type && (args->scale || args->from))
		return kvt_fail(err, KVT_USAGE, "--%s is for --cache-dtype",
				args->scale ? "scale" : "from-scale");
	return KVT_OK;
}

/* ---- scales ------------------------------------------------------------------ */

/* One for all keys of the group, one for all values. */
static enum kvt_status same_scales(struct calibrated *out, const struct kvt_group *group,
				   const double kv[2], struct kvt_error *err)
{
	int64_t n = group->shape.n[KVT_AXIS_L] * 2;

	out->heads = 1;
	if (!(out->scale = malloc(((size_t)n + 1) * sizeof(*out->scale))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < n; i++)
		out->scale[i] = (float)kv[i % 2];
	return KVT_OK;
}

static bool is_number(const char *text)
{
	return text[strspn(text, "0123456789.,eE+-")] == '\0';
}

/* Numbers, or a file, for each group that 'wants' some. */
static enum kvt_status told_scales(struct calibrated out[KVT_MAX_GROUPS],
				   const struct kvt_dump *dump, const char *option,
				   const char *text, const bool wants[KVT_MAX_GROUPS],
				   struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	enum kvt_status status = KVT_OK;
	double kv[2];

	for (int g = 0; !is_number(text) && !status && g < s->ngroups; g++)
		if (wants[g])
			status = kvt_scales_read(&out[g].scale, &out[g].heads, s, g, text,
						 err);
	if (!is_number(text))
		return status;
	if ((status = scale_parse(kv, option, text, err)))
		return status;
	for (int g = 0; !status && g < s->ngroups; g++)
		if (wants[g])
			status = same_scales(&out[g], &s->group[g], kv, err);
	return status;
}

/* ---- the dump ------------------------------------------------------------------ */

struct casting {
	const struct kvt_dump *dump;
	const char *name;
	const struct cast_args *args;
	struct kvt_cast cast;
	struct calibrated from[KVT_MAX_GROUPS], to[KVT_MAX_GROUPS];
	struct kvt_scales scales[2][KVT_MAX_GROUPS];
};

/* Of what is read: fp8 that does not say by what it was divided is asked for. */
static enum kvt_status settle_from(struct casting *c, struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(c->dump);
	bool wants[KVT_MAX_GROUPS] = { false }, some = false;

	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];

		wants[g] = kvt_group_casts(group) && !group->content.type &&
			   group->dtype->elem == 1;
		some |= wants[g];
		if (wants[g] && !group->scales && !c->args->from)
			return kvt_fail(err, KVT_USAGE,
					"%s: %s is %s and does not say its scale; give --from-scale=1 if it was written without one, else X[,Y] or a FILE that has them",
					c->name, group->id, group->dtype->name);
	}
	if (c->args->from && !some)
		return kvt_fail(err, KVT_USAGE,
				"%s: no group is of an fp8 type, so --from-scale says nothing of it",
				c->name);
	return c->args->from ? told_scales(c->from, c->dump, "from-scale", c->args->from,
					   wants, err) : KVT_OK;
}

/* Of what is written. */
static enum kvt_status settle_to(struct casting *c, const struct kvt_run *run,
				 struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(c->dump);
	const char *scale = c->args->scale;
	bool wants[KVT_MAX_GROUPS] = { false };
	bool scaled = kvt_cast_scaled(c->cast.dtype, &c->cast.content);

	if (!scaled && scale)
		return kvt_fail(err, KVT_USAGE,
				"%s has no scale beside it; --from-scale is for fp8 that is read",
				c->args->type);
	if (!scaled)
		return KVT_OK;
	if (!scale)
		return kvt_fail(err, KVT_USAGE,
				"expected --scale for %s: auto, which calibrates one for the keys and one for the values of a layer, auto-heads, X[,Y], FILE, or 1 as engines take it that were given none",
				c->args->type);
	for (int g = 0; g < s->ngroups; g++)
		wants[g] = kvt_group_casts(&s->group[g]);
	if (strcmp(scale, "auto") && strcmp(scale, "auto-heads"))
		return told_scales(c->to, c->dump, "scale", scale, wants, err);
	if (c->args->from)
		return kvt_fail(err, KVT_USAGE,
				"--from-scale and --scale=%s exclude each other; cast to bfloat16 first",
				scale);
	return cast_calibrate(c->to, c->dump, c->cast.dtype, &c->cast.content,
			      strcmp(scale, "auto") != 0, run, err);
}

static void take(const struct kvt_scales *out[KVT_MAX_GROUPS],
		 struct kvt_scales room[KVT_MAX_GROUPS],
		 const struct calibrated from[KVT_MAX_GROUPS])
{
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		room[g] = (struct kvt_scales){ from[g].scale, from[g].heads };
		out[g] = from[g].scale ? &room[g] : NULL;
	}
}

static enum kvt_status make(struct kvt_dump **out, struct kvt_dump **proof,
			    struct casting *c, struct kvt_error *err)
{
	struct kvt_error why;
	enum kvt_status status;

	take(c->cast.from, c->scales[0], c->from);
	take(c->cast.scales, c->scales[1], c->to);
	status = kvt_dump_cast(out, c->dump, &c->cast, &why);
	if (!status && proof) {
		c->cast.one_by_one = true;
		status = kvt_dump_cast(proof, c->dump, &c->cast, &why);
		if (status)
			kvt_dump_close(*out);
	}
	return status ? kvt_fail(err, status, "%s: %.400s", c->name, why.text) : KVT_OK;
}

enum kvt_status cast_dump(struct kvt_dump **out, struct kvt_dump **proof,
			  const struct kvt_dump *dump, const char *name,
			  const struct cast_args *args, const struct kvt_run *run,
			  struct kvt_error *err)
{
	struct casting *c = calloc(1, sizeof(*c));
	enum kvt_status status;

	if (!c)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	c->dump = dump;
	c->name = name;
	c->args = args;
	if (!(status = kvt_cast_parse(&c->cast.dtype, &c->cast.content, args->type,
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
