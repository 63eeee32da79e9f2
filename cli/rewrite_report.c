/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rewrite_report.c - a plan or a result, for people and as JSON
 *
 *	kv.npy -> hnd.npy (npy), at most 2.94 MiB of buffers; nothing was written
 *	g0: LBSHC (nhd, ...) -> LBHSC (hnd, ...)
 *	  data       480 KiB
 *	  how        permute
 *	  boxes      1 of up to 5 layers x 48 blocks, 480 KiB
 *	  copy       15360 runs of 32 bytes or more in a box, each byte once
 *
 *	hnd.npy: LBHSC (hnd, ...), 480 KiB of data, verified equal
 *
 * Both are one object in JSON, whose "done" tells them apart.  Runs are those of a box
 * or, where tiles are stored, of a tile or a pair of them, of keys and of values.
 */
#include "cli/rewrite_report.h"

#include <stdio.h>
#include <string.h>

#include "print/out/json_out.h"

static const struct kvt_group *from_group(const struct transform *t, int g)
{
	return &kvt_dump_snapshot(t->source[0])->group[g];
}

static const struct kvt_group *to_group(const struct transform *t, int g)
{
	return &kvt_writer_snapshot(t->writer[0])->group[g];
}

/* Of all units together: a key and a value tile, or one box. */
static int64_t count_runs(const struct group_step *step)
{
	int64_t runs = 0;

	for (int u = 0; u < step->nunits; u++)
		for (int i = 0; i < step->unit[u].plans.count; i++)
			runs += kvt_plan_nruns(&step->unit[u].plans.plan[i]);
	return runs;
}

/* The shortest run of a unit: what the copy is as slow as. */
static int64_t shortest_run(const struct group_step *step)
{
	int64_t shortest = step->unit[0].plans.plan[0].run;

	for (int u = 0; u < step->nunits; u++)
		for (int i = 0; i < step->unit[u].plans.count; i++)
			if (step->unit[u].plans.plan[i].run < shortest)
				shortest = step->unit[u].plans.plan[i].run;
	return shortest;
}

static const char *how(const struct group_step *step)
{
	int64_t moving = tiles_that_move(step);

	return !step->ntiles		? "permute" :
	       moving == step->ntiles	? "stored tiles are copied undecoded" :
	       !moving			? "decode, permute, encode" :
	       step->ndirect == step->ntiles ?
	       "half of the stored tiles are copied undecoded" :
	       "some stored tiles are copied undecoded, others are cut";
}

/* ---- text --------------------------------------------------------------- */

static void print_group(const struct transform *t, int g)
{
	const struct group_step *step = &t->step[g];

	plainf("%s: %s -> %s\n", from_group(t, g)->id,
	       human_layout(&from_group(t, g)->layout).s,
	       human_layout(&to_group(t, g)->layout).s);
	plainf("  data       %s\n", kvt_size_string(step->data_bytes).s);
	plainf("  how        %s\n", how(step));
	if (step->ntiles)
		plainf("  tiles      %lld\n", LL(step->ntiles));
	plainf("  boxes      %lld of up to %lld layer%s x %lld block%s, %s\n",
	       LL(step->cut.nboxes), LL(step->cut.layers),
	       plural(step->cut.layers), LL(step->cut.blocks),
	       plural(step->cut.blocks), kvt_size_string(step->cut.box_bytes).s);
	plainf("  copy       %lld run%s of %lld bytes or more in a %s, each byte once\n",
	       LL(count_runs(step)), plural(count_runs(step)),
	       LL(shortest_run(step)),
	       !step->ntiles ? "box" : step->nunits == 2 ? "pair of tiles" : "tile");
}

/* Of what was asked for here; it stands in all copies, too. */
static void print_cast(const struct rewrite *r, const struct kvt_group *group)
{
	if (r->is_cast && group->cast_from[0])
		plainf("%s: values changed: %s\n", group->id,
		       kvt_group_cast_text(group).s);
}

/* ---- JSON --------------------------------------------------------------- */

static void put_group(struct json_out *out, json_t *groups, const struct rewrite *r,
		      const struct transform *t, int g)
{
	const struct group_step *step = &t->step[g];
	json_t *o = json_append_object(out, groups);

	json_put_text(out, o, "id", from_group(t, g)->id);
	json_put_text(out, o, "from_layout",
		      kvt_layout_string(&from_group(t, g)->layout).s);
	json_put_text(out, o, "to_layout", kvt_layout_string(&to_group(t, g)->layout).s);
	if (to_group(t, g)->cast_from[0])
		json_put_text(out, o, "cast", kvt_group_cast_text(to_group(t, g)).s);
	json_put_int(out, o, "data_bytes", step->data_bytes);
	json_put_int(out, o, "tiles", step->ntiles);
	json_put_int(out, o, "tiles_moved", tiles_that_move(step));
	json_put_int(out, o, "boxes", step->cut.nboxes);
	json_put_int(out, o, "runs_per_unit", count_runs(step));
	json_put_int(out, o, "shortest_run_bytes", shortest_run(step));
	if (r->own.put)
		r->own.put(r->own.context, g, out, o);
}

static enum kvt_status print_json(const struct rewrite *r, const struct transform *t,
				  bool done, struct kvt_error *err)
{
	struct json_out out;
	json_t *groups, *inputs;

	json_start(&out);
	json_put_text(&out, out.root, "input", r->input);
	inputs = json_put_array(&out, out.root, "inputs");
	json_append_text(&out, inputs, r->input);
	for (int i = 0; i < r->nmore; i++)
		json_append_text(&out, inputs, r->more[i]);
	json_put_text(&out, out.root, "output", r->output);
	json_put_text(&out, out.root, "format", kvt_writer_format(t->writer[0]));
	if (kvt_writer_use(t->writer[0]))
		json_put_text(&out, out.root, "use", kvt_writer_use(t->writer[0]));
	json_put_bool(&out, out.root, "done", done);
	json_put_bool(&out, out.root, "verified", done && r->verify);
	json_put_int(&out, out.root, "memory_bytes", transform_memory(t));
	json_put_text(&out, out.root, "device", kvt_device_pool_name(t->run.device));
	json_put_int(&out, out.root, "device_bytes",
		     kvt_device_pool_nbytes(t->run.device));
	groups = json_put_array(&out, out.root, "groups");
	for (int g = 0; g < kvt_writer_snapshot(t->writer[0])->ngroups; g++)
		put_group(&out, groups, r, t, g);
	return json_print(&out, r->several, err);
}

/* ---- both --------------------------------------------------------------- */

/* An engine's store holds codes; their scales are in its checkpoint, or nowhere. */
static void warn_of_scales(const struct transform *t)
{
	const struct kvt_format_info *info = kvt_writer_format_info(t->writer[0]);

	for (int g = 0; g < kvt_writer_snapshot(t->writer[0])->ngroups; g++)
		if (to_group(t, g)->scales && !info->keeps_scales)
			fplainf(stderr,
				"kvtool: %s: %s keeps no scales, and who reads it must have them: %s\n",
				to_group(t, g)->id, info->name,
				kvt_group_cast_text(to_group(t, g)).s);
}

enum kvt_status report_plan(const struct rewrite *r, const struct transform *t,
			    struct kvt_error *err)
{
	if (r->json)
		return print_json(r, t, false, err);
	plainf("%s", r->input);
	if (r->nmore)
		plainf(" and %d more", r->nmore);
	plainf(" -> %s (%s), at most %s of buffers; nothing was written\n", r->output,
	       kvt_writer_format(t->writer[0]), kvt_size_string(transform_memory(t)).s);
	for (int g = 0; g < kvt_writer_snapshot(t->writer[0])->ngroups; g++) {
		print_group(t, g);
		print_cast(r, to_group(t, g));
		if (r->own.print)
			r->own.print(r->own.context, g);
	}
	return KVT_OK;
}

enum kvt_status report_done(const struct rewrite *r, const struct transform *t,
			    struct kvt_error *err)
{
	int ngroups = kvt_writer_snapshot(t->writer[0])->ngroups;
	const char *use = kvt_writer_use(t->writer[0]);
	int64_t nbytes = 0;

	if (!r->quiet)
		warn_of_scales(t);
	if (r->json)
		return print_json(r, t, true, err);
	if (r->quiet)
		return KVT_OK;
	for (int g = 0; g < ngroups; g++)
		nbytes += t->step[g].data_bytes;
	plainf("%s: %s, %s of data", r->output,
	       human_layout(&to_group(t, 0)->layout).s, kvt_size_string(nbytes).s);
	if (tiles_that_move(&t->step[0]))
		plainf(", %lld of %lld tile%s copied undecoded",
		       LL(tiles_that_move(&t->step[0])),
		       LL(t->step[0].ntiles), plural(t->step[0].ntiles));
	if (device_pool_works(t->run.device))
		plainf(", %s copied on %s",
		       kvt_size_string(kvt_device_pool_nbytes(t->run.device)).s,
		       kvt_device_pool_name(t->run.device));
	plainf("%s\n", r->verify ? ", verified equal" : "");
	for (int g = 0; g < ngroups; g++)
		print_cast(r, to_group(t, g));
	for (; use && *use; use += strcspn(use, "\n") + 1)
		plainf("%.*s\n", (int)strcspn(use, "\n"), use);
	for (int g = 0; r->own.print && g < ngroups; g++)
		r->own.print(r->own.context, g);
	return KVT_OK;
}
