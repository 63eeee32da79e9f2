/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fit.c - a dump as another type, in memory, and what it loses by that
 *
 * It is cast, and compared by diff with what it was: so the figures are those that diff
 * would print had the file been written.  Nothing is.
 */
#include "lib/ops/fit/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/cast.h"
#include "lib/kvt/ops.h"
#include "lib/base/order.h"

/* ---- which type ---------------------------------------------------------- */

/* Words for several contents: the first that can be written stands for all. */
static const struct {
	const char *word, *type[2];
} families[] = {
	{ "int4", { "int4-per-token-head", "q4_0/plain" } },
	{ "nvfp4", { "nvfp4-plain", "mlx-nvfp4" } },
};
enum { NFAMILIES = sizeof(families) / sizeof(families[0]) };

static enum kvt_status parse(struct fit_try *out, const char *asked,
			     struct kvt_error *err)
{
	const char *bound = strchr(asked, '=');
	size_t n = bound ? (size_t)(bound - asked) : strlen(asked);
	char *end = NULL;

	out->bound = bound ? strtod(bound + 1, &end) : FIT_BOUND;
	if (!n || n >= sizeof(out->type) ||
	    (bound && (*end || !(out->bound > 0 && isfinite(out->bound)))))
		return kvt_fail(err, KVT_USAGE,
				"--fit: '%.60s', expected a type of --cache-dtype, or one with a bound for rel-l2, such as fp8=0.05",
				asked);
	memcpy(out->type, asked, n);
	out->type[n] = '\0';
	return KVT_OK;
}

/* As 'type', if it is possible. */
static enum kvt_status cast(struct fit_try *out, const struct kvt_dump *dump,
			    const char *type, const double scale[2],
			    const struct kvt_run *run, struct kvt_error *err)
{
	struct kvt_astype how = { .type = type, .has_from = scale != NULL };
	const struct kvt_dtype *dtype;
	struct kvt_content content;
	enum kvt_status status = kvt_cast_parse(&dtype, &content, type, err);

	if (status)
		return status;
	how.scaling = kvt_cast_scaled(dtype, &content) ? KVT_SCALE_AUTO : KVT_SCALE_NONE;
	for (int k = 0; scale && k < 2; k++)
		how.from[k] = scale[k];
	return kvt_dump_astype(&out->cast, dump, &how, run, err);
}

static enum kvt_status cast_any(struct fit_try *out, const struct kvt_dump *dump,
				const double scale[2], const struct kvt_run *run,
				struct kvt_error *err)
{
	enum kvt_status status = KVT_UNSUPPORTED;
	int f = 0;

	while (f < NFAMILIES && strcmp(families[f].word, out->type))
		f++;
	if (f == NFAMILIES)
		return cast(out, dump, out->type, scale, run, err);
	for (int i = 0; status == KVT_UNSUPPORTED && i < 2; i++) {
		status = cast(out, dump, families[f].type[i], scale, run, err);
		if (!status)
			snprintf(out->type, sizeof(out->type), "%s",
				 families[f].type[i]);
	}
	return status;
}

/* ---- what it loses ------------------------------------------------------- */

static enum kvt_status compare(struct fit_try *out, const double scale[2],
			       const struct kvt_run *run, struct kvt_error *err)
{
	struct diff_criteria criteria = { .exact = true };
	const struct diff_options options = { .run = *run, .table[DIFF_DIM] = true };
	const struct diff_alignment how = { .numbers = true, .run = &options.run };
	enum kvt_status status;

	criteria.scale[SIDE_A].given = scale != NULL;
	for (int k = 0; scale && k < 2; k++)
		criteria.scale[SIDE_A].kv[k] = scale[k];
	for (int s = 0; s < NSIDES; s++)
		out->file[s] = (struct rank_file){ s ? "cast" : "dump", out->numbers[s] };
	if ((status = kvt_diff_sides_init(out->side, out->file, run, err)) ||
	    (status = kvt_diff_align(&out->pairs, out->side, &how, err)))
		return status;
	return kvt_diff_results(&out->result, &out->pairs, out->side, &criteria, &options,
				false, err);
}

enum kvt_status fit_try(struct fit_try *out, const struct kvt_dump *dump,
			const char *asked, const double scale[2],
			const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status = parse(out, asked, err);

	if (status)
		return status;
	status = cast_any(out, dump, scale, run, &out->why);
	/* contents with scales of their own, and pages of planes, as numbers */
	if (!status)
		status = kvt_dump_decode_contents(&out->numbers[SIDE_A], dump, &out->why);
	if (!status)
		status = kvt_dump_decode_contents(&out->numbers[SIDE_B], out->cast,
						  &out->why);
	if (!status)
		status = compare(out, scale, run, &out->why);
	out->made = !status;
	/* that it cannot be is an answer */
	return !status || status == KVT_UNSUPPORTED || status == KVT_BAD_INPUT ? KVT_OK :
	       kvt_fail(err, status, "--fit=%s: %s", out->type, out->why.text);
}

void fit_free(struct fit_try *fit)
{
	kvt_diff_results_free(fit->result, &fit->pairs);
	kvt_diff_pairs_free(&fit->pairs);
	kvt_diff_sides_free(fit->side);
	for (int s = 0; s < NSIDES; s++)
		kvt_dump_close(fit->numbers[s]);
	kvt_dump_close(fit->cast);
}

/* ---- what follows from it ------------------------------------------------ */

static const struct kvt_group *group_of(const struct fit_try *fit, int pair)
{
	return kvt_dump_group(fit->cast, fit->pairs.pair[pair].number[SIDE_B]);
}

bool fit_is_of(const struct fit_try *fit, int pair)
{
	return group_of(fit, pair)->cast_from[0];
}

bool fit_saturates(const struct fit_try *fit, int pair)
{
	return !group_of(fit, pair)->content.type;
}

void fit_scales(float out[2], const struct fit_try *fit, int pair)
{
	const struct kvt_group *group = group_of(fit, pair);
	int64_t n = kvt_group_nscales(group);

	out[0] = out[1] = n ? group->scales[0] : 0;
	for (int64_t i = 0; i < n; i++) {
		out[0] = fminf(out[0], group->scales[i]);
		out[1] = fmaxf(out[1], group->scales[i]);
	}
}

bool fit_holds(const struct fit_try *fit, const struct heat *heat)
{
	const struct diff_sums sums = kvt_diff_sums_of(heat);

	return !heat->lost && kvt_diff_rel_l2(&sums) <= fit->bound;
}

double fit_channel(int64_t *dim, const struct fit_try *fit, int pair)
{
	const struct diff_result *r = &fit->result[pair];
	int64_t n = r->measured && r->by_dim ? r->pair->content : 0;
	double *sorted = calloc((size_t)n + 1, sizeof(*sorted)), median;

	*dim = 0;
	for (int64_t d = 0; sorted && d < n; d++) {
		sorted[d] = r->by_dim[d].aa;
		if (r->by_dim[d].aa > r->by_dim[*dim].aa)
			*dim = d;
	}
	if (!sorted || n < 2) {
		free(sorted);
		return 1;
	}
	qsort(sorted, (size_t)n, sizeof(*sorted), kvt_by_double);
	median = sorted[n / 2];
	free(sorted);
	return median > 0 ? sqrt(r->by_dim[*dim].aa / median) : 1;
}
