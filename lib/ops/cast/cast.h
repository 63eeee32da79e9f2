/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h - scales for numbers of another type, and what became of a group */
#ifndef KVTOOL_OPS_CAST_H
#define KVTOOL_OPS_CAST_H

#include "lib/kvt/derive.h"
#include "lib/kvt/ops.h"
#include "lib/kvt/run.h"

/*
 * The scales that an engine calibrates: of each layer's keys and values, or with 'heads'
 * of each head of the model, the largest magnitude over the largest number of the type
 * (kvt_caster_scale()).  Of live slots where requests say which those are, else of all.
 * Groups that are not cast, and types without scale, get none (scale NULL).
 * KVT_BAD_INPUT: a number is not finite; or 'heads', and the dump has a rank's only.
 */
struct calibrated {
	float *scale;			/* owned */
	int64_t heads;
};
KVT_MUST_CHECK enum kvt_status
cast_calibrate(struct calibrated out[KVT_MAX_GROUPS], const struct kvt_dump *dump,
	       const struct kvt_dtype *dtype, const struct kvt_content *content,
	       bool heads, const struct kvt_run *run, struct kvt_error *err);

/* Scales that were read from files, of each group; NULL: none. */
struct cast_files {
	const struct calibrated *from, *to;
};

/* Elements of fp8, for which there may be a scale. */
bool cast_is_scaled(const struct kvt_group *group);

/*
 * kvt_dump_astype(), and with 'proof' the same computed number by number from the
 * definition, to compare with.  'files' come before what 'how' says.
 */
KVT_MUST_CHECK enum kvt_status
cast_dump(struct kvt_dump **out, struct kvt_dump **proof, const struct kvt_dump *dump,
	  const struct kvt_astype *how, const struct cast_files *files,
	  const struct kvt_run *run, struct kvt_error *err);

#endif
