/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - --cache-dtype: what its scales say, and the dump that is written
 *
 * A scale is a number, a word (auto), or a file: which of them is settled here, before
 * any data is read.  With --verify a second dump is made, which computes each number by
 * itself, and the output is compared with that one.
 */
#include "cli/cast.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "formats/tensor/scales.h"
#include "lib/ops/cast/cast.h"

enum kvt_status cast_check(const struct cast_args *args, struct kvt_error *err)
{
	if (!args->type && (args->scale || args->from))
		return kvt_fail(err, KVT_USAGE, "--%s is for --cache-dtype",
				args->scale ? "scale" : "from-scale");
	return KVT_OK;
}

static bool is_number(const char *text)
{
	return text[strspn(text, "0123456789.,eE+-")] == '\0';
}

/* Of groups that have a scale, or could be given one. */
static enum kvt_status read_file(struct calibrated *out, const struct kvt_dump *dump,
				 const char *path,
				 bool (*wants)(const struct kvt_group *),
				 struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < s->ngroups; g++)
		if (wants(&s->group[g]))
			status = kvt_scales_read(&out[g].scale, &out[g].heads, s, g, path,
						 err);
	return status;
}

struct told {
	struct kvt_astype how;
	struct cast_files files;
	struct calibrated from[KVT_MAX_GROUPS], to[KVT_MAX_GROUPS];
};

static enum kvt_status take_scale(struct told *t, const struct kvt_dump *dump,
				  const char *scale, struct kvt_error *err)
{
	t->how.scaling = !scale ? KVT_SCALE_NONE :
			 !strcmp(scale, "auto") ? KVT_SCALE_AUTO :
			 !strcmp(scale, "auto-heads") ? KVT_SCALE_AUTO_HEADS :
			 KVT_SCALE_TOLD;
	if (t->how.scaling != KVT_SCALE_TOLD)
		return KVT_OK;
	if (is_number(scale))
		return scale_parse(t->how.scale, "scale", scale, err);
	t->files.to = t->to;
	return read_file(t->to, dump, scale, kvt_group_casts, err);
}

static enum kvt_status take_from(struct told *t, const struct kvt_dump *dump,
				 const char *scale, struct kvt_error *err)
{
	if (!scale)
		return KVT_OK;
	if ((t->how.has_from = is_number(scale)))
		return scale_parse(t->how.from, "from-scale", scale, err);
	t->files.from = t->from;
	return read_file(t->from, dump, scale, cast_is_scaled, err);
}

enum kvt_status cast_open(struct kvt_dump **out, struct kvt_dump **proof,
			  const struct kvt_dump *dump, const char *name,
			  const struct cast_args *args, const struct kvt_run *run,
			  struct kvt_error *err)
{
	struct told *t = calloc(1, sizeof(*t));
	struct kvt_error why;
	enum kvt_status status;

	if (!t)
		return kvt_no_memory(err, NULL);
	t->how.type = args->type;
	if (!(status = take_scale(t, dump, args->scale, err)) &&
	    !(status = take_from(t, dump, args->from, err)) &&
	    (status = cast_dump(out, proof, dump, &t->how, &t->files, run, &why)))
		kvt_fail(err, status, "%s: %.400s", name, why.text);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		free(t->from[g].scale);
		free(t->to[g].scale);
	}
	free(t);
	return status;
}
