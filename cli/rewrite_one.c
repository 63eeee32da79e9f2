/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rewrite_one.c - one dump becomes one output: create, plan, run, verify, publish
 *
 * The output has a temporary name until all of it is there and, with --verify, was read
 * again; publish() is the moment when it gets its own, of every command that writes.
 */
#include "cli/rewrite.h"

#include "cli/progress.h"
#include "cli/rewrite_report.h"
#include "lib/kvt/cast.h"
#include "lib/kvt/ops.h"
#include "lib/ops/compare/compare.h"
#include "lib/ops/write/plan.h"
#include "print/out/leftovers.h"
#include "print/out/signals.h"
#include "print/out/streams.h"

struct kvt_run rewrite_run(const struct rewrite *r)
{
	return run_watched(r->threads, r->memory, r->quiet);
}

/* 'name' is what was typed. */
static enum kvt_status apply_layout(struct kvt_snapshot *snapshot,
				    const struct kvt_layout *layout, const char *name,
				    struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status = kvt_snapshot_set_layout(snapshot, layout, &why);

	return status ? kvt_fail(err, status, "%s%s", why.text,
				 name ? kvt_layout_hint(name).s : "") : KVT_OK;
}

enum kvt_status rewrite_target(struct kvt_snapshot *to,
			       struct kvt_create_options *options,
			       const struct rewrite *r, const struct kvt_dump *source,
			       struct kvt_error *err)
{
	enum kvt_status status;

	*options = r->create;
	if (r->level > 19)
		return kvt_fail(err, KVT_USAGE, "--level is %lld, expected 1 to 19",
				LL(r->level));
	options->level = (int)r->level;
	options->tile_bytes = r->tile;
	options->like = r->tile ? NULL : kvt_dump_tiling(kvt_dump_leaf(source, 0), 0);
	if ((status = kvt_snapshot_copy(to, kvt_dump_snapshot(source), err)))
		return status;
	if (r->layout)
		status = apply_layout(to, r->layout, r->layout_name, err);
	if (status)
		kvt_snapshot_free(to);
	return status;
}

static enum kvt_status create(struct kvt_writer **out, const struct rewrite *r,
			      const struct kvt_dump *source, struct kvt_error *err)
{
	struct kvt_create_options options;
	struct kvt_snapshot to;
	enum kvt_status status = rewrite_target(&to, &options, r, source, err);

	if (status)
		return status;
	status = kvt_create(out, r->output, &options, &to, err);
	kvt_snapshot_free(&to);
	return status;
}

/*
 * Of a format without blocks: the tokens of the request, and its states.  Layers have the
 * numbers that the file has of them ('as'), which may count each cache from 0.
 */
static enum kvt_status verify_tokens(const struct kvt_dump *source,
				     const struct kvt_snapshot *as,
				     const struct kvt_dump *written,
				     const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_diff_options options = { .by = KVT_DIFF_TOKENS };
	struct kvt_dump *numbered;
	enum kvt_status status = kvt_dump_renumber(&numbered, source, as, err);

	if (status)
		return status;
	status = kvt_diff(numbered, written, &options, NULL, run, err);
	kvt_dump_close(numbered);
	/* what can be written can be compared */
	if (status == KVT_BAD_INPUT)
		status = KVT_MISMATCH;
	return status;
}

/*
 * What was written is opened anew, before it has its name: nothing cached may stand
 * in for it, and what the device has done is not judged by the device.
 */
static enum kvt_status verify(const struct rewrite *r, struct transform *t,
			      struct kvt_error *err)
{
	const struct kvt_format_info *info = kvt_writer_format_info(t->writer[0]);
	struct kvt_run run = t->run;
	struct kvt_dump *again;
	enum kvt_status status = kvt_open_written(&again, t->writer[0], err);
	struct kvt_error why = { "" };

	if (status)
		return status;
	run.device = NULL;
	status = info->one_request || info->by_tokens ?
		 verify_tokens(t->source[0], kvt_writer_snapshot(t->writer[0]), again,
			       &run, &why) :
		 r->own.verify ?
		 r->own.verify(r->own.context, again, t->seen, &run, &why) :
		 verify_source(r->origin ? r->origin : t->source[0], again, t->seen, &run,
			       &why);
	if (status)
		kvt_fail(err, status, "%s: %s", r->output, why.text);
	kvt_dump_close(again);
	return status;
}

enum kvt_status publish(struct kvt_writer *const *writers, int n, struct kvt_error *err)
{
	enum kvt_status status;

	if (!signals_hold())
		return kvt_fail(err, KVT_SYSTEM, "interrupted");
	status = kvt_publish(writers, n, err);
	signals_release(!status);
	return status;
}

static enum kvt_status carry_out(const struct rewrite *r, struct transform *t,
				 struct kvt_error *err)
{
	const struct kvt_format_info *info = kvt_writer_format_info(t->writer[0]);
	enum kvt_status status;

	if ((status = transform_plan(t, err)))
		return status;
	if (r->dry_run)
		return report_plan(r, t, err);
	if (r->verify && !info->reads)
		return kvt_fail(err, KVT_USAGE,
				"--verify needs a format that can be read, not %s",
				info->name);
	if ((r->verify && (status = transform_watch(t, err))) ||
	    (status = transform_run(t, err)) ||
	    (r->verify && (status = verify(r, t, err))) ||
	    (status = kvt_dump_unchanged(t->source[0], err)))
		return status;
	if (r->to_stdout)
		return stream_out(kvt_writer_staged(t->writer[0]), err);
	status = publish(t->writer, 1, err);
	return status ? status : report_done(r, t, err);
}

/* Rows of contents, and types that are cast one by one. */
static bool casts_on_cpu(const struct kvt_group *group)
{
	const struct kvt_dtype *from = kvt_dtype_find(group->cast_from);

	return group->cast_from[0] &&
	       (group->content.type || kvt_cast_element(group->dtype) < 0 ||
		(from && kvt_cast_element(from) < 0));
}

static void tell_of_casts(const struct rewrite *r, const struct kvt_dump *dump,
			  const struct kvt_run *run)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);

	for (int g = 0; r->is_cast && device_pool_works(run->device) &&
	     g < s->ngroups; g++)
		if (casts_on_cpu(&s->group[g]))
			kvt_run_warn(run,
				     "--device: %s: the CPU makes %s of %s, as %s does not",
				     s->group[g].id, kvt_group_type(&s->group[g]).s,
				     s->group[g].cast_from,
				     kvt_device_pool_name(run->device));
}

enum kvt_status rewrite_alone(const struct rewrite *r, const struct kvt_dump *dump,
			      struct kvt_error *err)
{
	struct kvt_writer *writer = NULL;
	struct transform t = { .n = 1, .source = &dump, .writer = &writer,
			       .run = rewrite_run(r) };
	enum kvt_status status;

	t.run.share = NULL;
	signals_catch_all();
	if (r->output)
		tell_leftovers(r->output);
	if (!(status = kvt_device_pool_new(&t.run.device, r->device, &t.run, err)) &&
	    !(status = create(&writer, r, dump, err))) {
		tell_of_casts(r, dump, &t.run);
		status = carry_out(r, &t, err);
	}
	if (status)
		kvt_writer_retell(writer, err);
	kvt_close_writer(writer);
	seen_free(t.seen);
	kvt_device_pool_free(t.run.device);
	return status;
}
