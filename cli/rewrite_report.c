/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite_report.c - a plan or a result, for people and as JSON */
#include "cli/rewrite_report.h"

#include <jansson.h>
#include <stdio.h>

#include "cli/json_out.h"

static const struct kvt_group *from_group(const struct transform *t, int g)
{
	return &kvt_reader_snapshot(t->reader)->group[g];
}

static const struct kvt_group *to_group(const struct transform *t, int g)
{
	return &kvt_writer_snapshot(t->writer)->group[g];
}

static int64_t count_runs(const struct kvt_plans *plans)
{
	int64_t runs = 0;

	for (int i = 0; i < plans->count; i++)
		runs += kvt_plan_nruns(&plans->plan[i]);
	return runs;
}

/* The shortest run of a unit: what the copy is as slow as. */
static int64_t shortest_run(const struct kvt_plans *plans)
{
	int64_t run = plans->plan[0].run;

	for (int i = 1; i < plans->count; i++)
		if (plans->plan[i].run < run)
			run = plans->plan[i].run;
	return run;
}

static const char *how(const struct group_step *step)
{
	return step->moves  ? "stored tiles move undecoded" :
	       step->ntiles ? "decode, permute, encode" :
			      "permute";
}

/* ---- text --------------------------------------------------------------- */

static void print_group(const struct transform *t, int g)
{
	const struct group_step *step = &t->step[g];

	printf("%s: %s -> %s\n", from_group(t, g)->id,
	       human_layout(&from_group(t, g)->layout).s,
	       human_layout(&to_group(t, g)->layout).s);
	printf("  data       %s\n", human_size(step->data_bytes).s);
	printf("  how        %s\n", how(step));
	if (step->ntiles)
		printf("  tiles      %lld\n", (long long)step->ntiles);
	printf("  boxes      %lld of up to %lld layers x %lld blocks, %s\n",
	       (long long)step->cut.nboxes, (long long)step->cut.layers,
	       (long long)step->cut.blocks, human_size(step->cut.box_bytes).s);
	printf("  copy       %lld runs of %lld bytes or more in a %s, each byte once\n",
	       (long long)count_runs(&step->plans),
	       (long long)shortest_run(&step->plans),
	       step->ntiles ? "tile" : "box");
}

/* ---- JSON --------------------------------------------------------------- */

static json_t *group_json(const struct transform *t, int g)
{
	const struct group_step *step = &t->step[g];

	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I}",
		"id", from_group(t, g)->id,
		"from_layout", kvt_layout_string(&from_group(t, g)->layout).s,
		"to_layout", kvt_layout_string(&to_group(t, g)->layout).s,
		"data_bytes", (json_int_t)step->data_bytes,
		"tiles", (json_int_t)step->ntiles,
		"tiles_move_undecoded", step->moves,
		"boxes", (json_int_t)step->cut.nboxes,
		"runs_per_unit", (json_int_t)count_runs(&step->plans),
		"shortest_run_bytes", (json_int_t)shortest_run(&step->plans));
}

static enum kvt_status print_json(const struct rewrite *r,
				  const struct transform *t, bool done,
				  struct kvt_error *err)
{
	json_t *o = json_out_new(), *groups = json_array();

	for (int g = 0; g < kvt_writer_snapshot(t->writer)->ngroups; g++)
		json_array_append_new(groups, group_json(t, g));
	json_object_set_new(o, "input", json_string(r->input));
	json_object_set_new(o, "output", json_string(r->output));
	json_object_set_new(o, "format", json_string(kvt_writer_format(t->writer)));
	json_object_set_new(o, "done", json_boolean(done));
	json_object_set_new(o, "verified", json_boolean(done && r->verify));
	json_object_set_new(o, "memory_bytes", json_integer(transform_memory(t)));
	json_object_set_new(o, "groups", groups);
	return json_out_print(o, err);
}

/* ---- both --------------------------------------------------------------- */

enum kvt_status report_plan(const struct rewrite *r, const struct transform *t,
			    struct kvt_error *err)
{
	if (r->json)
		return print_json(r, t, false, err);
	printf("%s -> %s (%s), at most %s of buffers; nothing was written\n",
	       r->input, r->output, kvt_writer_format(t->writer),
	       human_size(transform_memory(t)).s);
	for (int g = 0; g < kvt_writer_snapshot(t->writer)->ngroups; g++)
		print_group(t, g);
	return KVT_OK;
}

enum kvt_status report_done(const struct rewrite *r, const struct transform *t,
			    struct kvt_error *err)
{
	int64_t nbytes = 0;

	if (r->json)
		return print_json(r, t, true, err);
	if (r->quiet)
		return KVT_OK;
	for (int g = 0; g < kvt_writer_snapshot(t->writer)->ngroups; g++)
		nbytes += t->step[g].data_bytes;
	printf("%s: %s, %s of data", r->output,
	       human_layout(&to_group(t, 0)->layout).s, human_size(nbytes).s);
	if (t->step[0].moves)
		printf(", %lld tiles moved undecoded", (long long)t->step[0].ntiles);
	printf("%s\n", r->verify ? ", verified equal" : "");
	return KVT_OK;
}
