/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rewrite_parts.c - a command that writes, in shards: a snapshot of each patch of its
 * output, and the output as a whole, of all of them
 *
 * A patch is some layers of a group, or some blocks of one layer where a layer is more
 * than a unit; it begins where tiles begin, so that they can move as they are.  The
 * result of a box is the size and the digest of its file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/rewrite.h"
#include "cli/shard/sharing.h"
#include "formats/file/reads.h"
#include "lib/kvt/layout.h"
#include "lib/ops/compare/compare.h"
#include "lib/ops/write/plan.h"
#include "print/out/leftovers.h"
#include "print/out/signals.h"

struct written_part {
	int64_t nbytes;
	struct kvt_digest digest;
};

/* The boxes of a group: box i is a patch. */
struct patches {
	int group;
	int64_t shape[2], step[2];	/* layers, blocks */
	int64_t count;
};

/* What shards, and who joins, have at hand. */
struct parts {
	const struct rewrite *r;
	const struct kvt_dump *dump;
	struct kvt_snapshot to;		/* of the output */
	struct kvt_create_options options;
	struct patches patches[KVT_MAX_GROUPS];
	struct written_part *written[KVT_MAX_GROUPS];	/* owned; nbytes 0: not known */
	int64_t first[KVT_MAX_GROUPS + 1];	/* of each group, among all parts */
};

/* ---- patches ----------------------------------------------------------- */

static int64_t round_down(int64_t n, int64_t step, int64_t most)
{
	n = n / step * step;
	return n < step ? (step < most ? step : most) : n < most ? n : most;
}

/* Blocks of a tile that the writer makes; a power of two unless it is like another's. */
static int64_t blocks_of_tile(const struct parts *p, const struct kvt_group *group)
{
	const struct kvt_tiling *like = p->options.like;
	const int64_t *n = group->shape.n;
	int64_t block = n[KVT_AXIS_S] * n[KVT_AXIS_D] * group->shape.elem, blocks = 1;
	int64_t least = p->options.tile_bytes ? p->options.tile_bytes : 32 << 10;

	while (blocks * block < least && blocks < n[KVT_AXIS_B])
		blocks *= 2;
	if (like && like->n[KVT_AXIS_B] * like->n[KVT_AXIS_S] % n[KVT_AXIS_S] == 0)
		blocks = kvt_lcm(blocks, like->n[KVT_AXIS_B] * like->n[KVT_AXIS_S] /
				 n[KVT_AXIS_S]);
	return blocks;
}

static struct patches patches_of(const struct parts *p, int g, int64_t unit_bytes)
{
	const struct kvt_group *group = &p->to.group[g];
	const int64_t *n = group->shape.n;
	struct patches out = { g, { n[KVT_AXIS_L], n[KVT_AXIS_B] }, { 1, 1 }, 0 };
	int64_t page = n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K] * n[KVT_AXIS_D] *
		       group->shape.elem;
	int64_t layers = p->options.like ? p->options.like->n[KVT_AXIS_L] : 1;

	if (!out.shape[0] || !out.shape[1] || !page)
		return out;
	if (page <= unit_bytes / out.shape[1]) {
		out.step[0] = round_down(unit_bytes / (page * out.shape[1]), layers,
					 out.shape[0]);
		out.step[1] = out.shape[1];
	} else {
		out.step[0] = layers < out.shape[0] ? layers : out.shape[0];
		out.step[1] = round_down(unit_bytes / page / out.step[0],
					 blocks_of_tile(p, group), out.shape[1]);
	}
	out.count = ((out.shape[0] - 1) / out.step[0] + 1) *
		    ((out.shape[1] - 1) / out.step[1] + 1);
	return out;
}

static struct kvt_patch patch_at(const struct patches *p, int64_t i)
{
	int64_t across = (p->shape[1] - 1) / p->step[1] + 1;
	struct kvt_patch out = { p->group, i / across * p->step[0], p->step[0],
				 i % across * p->step[1], p->step[1] };

	if (out.nlayers > p->shape[0] - out.layer)
		out.nlayers = p->shape[0] - out.layer;
	if (out.nblocks > p->shape[1] - out.block)
		out.nblocks = p->shape[1] - out.block;
	return out;
}

static enum kvt_status choose_patches(struct parts *p, struct kvt_error *err)
{
	int64_t unit_bytes = KVT_UNIT_BYTES, total = 0, nbytes;
	enum kvt_status status;

	for (int g = 0; g < p->to.ngroups; g++) {
		if ((status = kvt_shape_nbytes(&nbytes, &p->to.group[g].shape, err)))
			return status;
		total += nbytes;
	}
	while (total / unit_bytes > KVT_MAX_UNITS)
		unit_bytes *= 2;
	for (int g = 0; g < p->to.ngroups; g++) {
		p->patches[g] = patches_of(p, g, unit_bytes);
		p->first[g + 1] = p->first[g] + p->patches[g].count;
		p->written[g] = calloc((size_t)p->patches[g].count + 1,
				       sizeof(**p->written));
		if (!p->written[g])
			return kvt_no_memory(err, NULL);
	}
	return KVT_OK;
}

/* ---- files ------------------------------------------------------------- */

/* Size and digest of a file: of the digests of 4 MiB each, so that it needs no memory. */
static enum kvt_status read_part(struct written_part *out, const char *path,
				 struct kvt_error *err)
{
	enum { STEP = 4 << 20 };
	uint8_t *bytes = malloc(STEP);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = 0;

	*out = (struct written_part){ 0 };
	while (bytes && fd >= 0 && (n = read(fd, bytes, STEP)) > 0) {
		struct kvt_digest part = kvt_digest_content(bytes, n), chain[2] = {
			out->digest, part };

		out->digest = kvt_digest_content(chain, sizeof(chain));
		out->nbytes += n;
	}
	free(bytes);
	if (fd < 0 || n < 0)
		kvt_fail(err, KVT_SYSTEM, "%s: cannot read: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return fd < 0 || n < 0 ? KVT_SYSTEM : bytes ? KVT_OK : kvt_no_memory(err, NULL);
}

static bool proven(const struct written_part *said, const char *path,
		   struct kvt_error *why)
{
	struct written_part is;

	if (read_part(&is, path, why))
		return false;
	if (is.nbytes == said->nbytes && is.digest.hi == said->digest.hi &&
	    is.digest.lo == said->digest.lo)
		return true;
	kvt_fail(why, KVT_BAD_INPUT, "%s is not what was written", path);
	return false;
}

bool shard_part_proven(const struct kvt_unit_result *result, const char *dir,
		       int64_t group, struct kvt_error *why)
{
	struct written_part said;
	const uint8_t *at = result->bytes;
	char path[PATH_MAX];

	for (int64_t i = result->begin; i < result->end; i++, at += 8 + sizeof(said)) {
		if (result->nbytes != (result->end - result->begin) *
				      (int64_t)(8 + sizeof(said)))
			return false;
		memcpy(&said, at + 8, sizeof(said));
		shard_part_path(path, sizeof(path), dir, group, i);
		if (!proven(&said, path, why))
			return false;
	}
	return true;
}

/* ---- one part ---------------------------------------------------------- */

struct group_parts {
	struct parts *p;
	int group;
};

static enum kvt_status create_part(struct kvt_writer **out, const struct parts *p,
				   const struct kvt_dump *patch, int g, const char *path,
				   struct kvt_error *err)
{
	struct kvt_create_options options = p->options;
	struct kvt_snapshot to;
	enum kvt_status status = kvt_snapshot_copy(&to, kvt_dump_snapshot(patch), err);

	if (status)
		return status;
	to.group[0].layout = p->to.group[g].layout;
	options.format = "hdf5";
	options.force = true;
	tell_leftovers(path);
	status = kvt_create(out, path, &options, &to, err);
	kvt_snapshot_free(&to);
	return status;
}

static enum kvt_status verify_part(const struct parts *p, const struct kvt_dump *patch,
				   const struct kvt_writer *writer,
				   const struct kvt_run *run, struct kvt_error *err)
{
	struct kvt_dump *again;
	enum kvt_status status;

	/* what was renumbered is verified as a whole */
	if (!p->r->verify || p->r->own.verify)
		return KVT_OK;
	if ((status = kvt_open_written(&again, writer, err)))
		return status;
	status = verify_source(patch, again, NULL, run, err);
	kvt_dump_close(again);
	return status;
}

static enum kvt_status write_part(const struct parts *p, const struct kvt_dump *patch,
				  int g, const char *path, struct kvt_error *err)
{
	struct kvt_run run = rewrite_run(p->r);
	struct kvt_writer *writer = NULL;
	enum kvt_status status = create_part(&writer, p, patch, g, path, err);

	run.share = NULL;
	if (status)
		return status;
	if ((status = kvt_write(&writer, &patch, 1, &run, err)) ||
	    (status = verify_part(p, patch, writer, &run, err)) ||
	    (status = kvt_dump_unchanged(patch, err)) ||
	    (status = kvt_publish(&writer, 1, err)))
		kvt_writer_retell(writer, err);
	kvt_close_writer(writer);
	return status;
}

static enum kvt_status part_box(struct kvt_worker *worker, void *context, int64_t i,
				struct kvt_error *err)
{
	const struct group_parts *c = context;
	const struct kvt_patch patch = patch_at(&c->p->patches[c->group], i);
	struct written_part written;
	struct kvt_dump *dump;
	int64_t unit = shard_unit_of("writing", c->group, i);
	char path[PATH_MAX];
	enum kvt_status status;

	shard_part_path(path, sizeof(path), shard_dir_of(unit), c->group, i);
	if ((status = kvt_dump_patch(&dump, c->p->dump, &patch, err)))
		return status;
	if (!(status = write_part(c->p, dump, c->group, path, err)) &&
	    !(status = read_part(&written, path, err))) {
		memcpy(worker->result, &written, sizeof(written));
		worker->nresult = sizeof(written);
	}
	kvt_dump_close(dump);
	return status;
}

/* kvt_merge_fn */
static bool take_part(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct group_parts *c = context;

	if (nbytes != sizeof(struct written_part))
		return false;
	memcpy(&c->p->written[c->group][i], result, sizeof(struct written_part));
	return true;
}

static enum kvt_status write_parts(struct parts *p, struct kvt_error *err)
{
	struct kvt_run run = rewrite_run(p->r);
	enum kvt_status status = KVT_OK;

	run.threads = 1;	/* those of the writing are inside a box */
	run.progress = NULL;
	for (int g = 0; !status && g < p->to.ngroups; g++) {
		struct group_parts c = { p, g };
		struct kvt_work work = { .fn = part_box, .context = &c,
			.label = "writing", .merge = take_part, .part = g,
			.result_bytes = sizeof(struct written_part), .writes = true,
			.count = p->patches[g].count };

		if (!(status = kvt_shape_nbytes(&work.total_bytes, &p->to.group[g].shape,
						err)))
			status = kvt_work_run(&work, &run, err);
	}
	return status;
}

/* ---- all parts --------------------------------------------------------- */

struct joined {
	bool read;			/* or only named */
	int64_t n;
	struct kvt_dump **part;		/* [n]; owned, as all that follows */
	struct kvt_patch *patch;
	char (*path)[PATH_MAX];
	struct kvt_virtual_part *virtual;
	struct kvt_dump *dump;
};

static void joined_free(struct joined *j)
{
	kvt_dump_close(j->dump);
	for (int64_t i = 0; j->part && i < j->n; i++)
		kvt_dump_close(j->part[i]);
	free(j->part);
	free(j->patch);
	free(j->path);
	free(j->virtual);
}

static enum kvt_status open_part(struct joined *j, struct parts *p, int g, int64_t box,
				 struct kvt_error *err)
{
	int64_t i = p->first[g] + box;
	struct kvt_error why = { "" };
	enum kvt_status status;

	j->patch[i] = patch_at(&p->patches[g], box);
	if (!proven(&p->written[g][box], j->path[i], &why))
		return kvt_fail(err, KVT_BAD_INPUT, "%s; run its shard again", why.text);
	if ((status = kvt_open(&j->part[i], j->path[i], NULL, err)))
		return status;
	if (strcmp(kvt_dump_group(j->part[i], 0)->id, p->to.group[g].id))
		return kvt_fail(err, KVT_BAD_INPUT, "%s is not group %s", j->path[i],
				p->to.group[g].id);
	j->virtual[i] = (struct kvt_virtual_part){ j->path[i], p->to.group[g].id,
						   j->patch[i] };
	/* thousands of open ones are gigabytes */
	if (!j->read) {
		kvt_dump_close(j->part[i]);
		j->part[i] = NULL;
	}
	return KVT_OK;
}

static enum kvt_status open_parts(struct joined *j, struct parts *p,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*j = (struct joined){ .n = p->first[p->to.ngroups] };
	j->read = shard_reduce->one_file || (p->r->verify && p->r->own.verify);
	j->part = calloc((size_t)j->n + 1, sizeof(struct kvt_dump *));
	j->patch = calloc((size_t)j->n + 1, sizeof(*j->patch));
	j->path = calloc((size_t)j->n + 1, sizeof(*j->path));
	j->virtual = calloc((size_t)j->n + 1, sizeof(*j->virtual));
	if (!j->part || !j->patch || !j->path || !j->virtual)
		return kvt_no_memory(err, NULL);
	for (int g = 0; !status && g < p->to.ngroups; g++)
		for (int64_t b = 0; !status && b < p->patches[g].count && !interrupted;
		     b++) {
			int64_t unit = shard_unit_of("writing", g, b);

			shard_part_path(j->path[p->first[g] + b], PATH_MAX,
					shard_dir_of(unit), g, b);
			status = open_part(j, p, g, b, err);
		}
	if (!status && interrupted)
		status = kvt_fail(err, KVT_SYSTEM, "interrupted");
	if (status || !j->read)
		return status;
	return kvt_dump_join(&j->dump, &p->to, (const struct kvt_dump *const *)j->part,
			     j->patch, j->n, err);
}

/* From the folder of the output, where HDF5 looks for it. */
static void make_relative(char path[PATH_MAX], const char *output)
{
	const char *slash = strrchr(output, '/');
	size_t n = slash ? (size_t)(slash - output) + 1 : 0;
	char whole[PATH_MAX];

	if (path[0] != '/' && !strncmp(path, output, n))
		memmove(path, path + n, strlen(path + n) + 1);
	else if (realpath(path, whole))
		strcpy(path, whole);
}

static enum kvt_status report_virtual(const struct rewrite *r, const struct parts *p,
				      struct kvt_error *err)
{
	struct json_out out;

	if (!r->json) {
		if (!r->quiet)
			plainf("%s: virtual datasets over %lld part%s%s\n", r->output,
			       LL(p->first[p->to.ngroups]),
			       plural(p->first[p->to.ngroups]),
			       r->verify ? ", verified equal" : "");
		return KVT_OK;
	}
	json_start(&out);
	json_put_text(&out, out.root, "input", r->input);
	json_put_text(&out, out.root, "output", r->output);
	json_put_text(&out, out.root, "format", "hdf5");
	json_put_bool(&out, out.root, "done", true);
	json_put_bool(&out, out.root, "verified", r->verify);
	json_put_int(&out, out.root, "parts", p->first[p->to.ngroups]);
	return json_print(&out, false, err);
}

static enum kvt_status write_virtual(struct parts *p, struct joined *j,
				     struct kvt_error *err)
{
	const struct rewrite *r = p->r;
	struct kvt_create_options options = r->create;
	struct kvt_run run = rewrite_run(r);
	struct kvt_writer *writer = NULL;
	enum kvt_status status = KVT_OK;

	run.share = NULL;
	tell_leftovers(r->output);
	for (int64_t i = 0; i < j->n; i++)
		make_relative(j->path[i], r->output);
	options.parts = j->virtual;
	options.nparts = j->n;
	if (r->verify && r->own.verify)
		status = r->own.verify(r->own.context, j->dump, NULL, &run, err);
	if (status || (status = kvt_create(&writer, r->output, &options, &p->to, err)))
		return status;
	if ((status = kvt_finish(writer, err)) || (status = publish(&writer, 1, err)))
		kvt_writer_retell(writer, err);
	kvt_close_writer(writer);
	return status ? status : report_virtual(r, p, err);
}

static enum kvt_status join_parts(struct parts *p, struct kvt_error *err)
{
	struct rewrite one = *p->r;
	struct joined j;
	enum kvt_status status = open_parts(&j, p, err);

	one.origin = p->dump;
	one.layout = NULL;
	one.threads = shard_reduce->threads;
	one.memory = shard_reduce->memory;
	if (!status)
		status = shard_reduce->one_file ? rewrite_alone(&one, j.dump, err) :
						  write_virtual(p, &j, err);
	joined_free(&j);
	return status;
}

enum kvt_status rewrite_parts(const struct rewrite *r, const struct kvt_dump *dump,
			      struct kvt_error *err)
{
	struct parts p = { .r = r, .dump = dump };
	enum kvt_status status;

	if (r->dry_run)
		return kvt_fail(err, KVT_USAGE,
				"--dry-run and --shard exclude each other");
	if (r->device)
		return kvt_fail(err, KVT_USAGE,
				"--device and --shard exclude each other");
	if (!shard_dir_of(0))
		return kvt_fail(err, KVT_USAGE,
				"expected --shard-dir=DIR, a folder for the parts of the output");
	shard_writes(r->output);
	signals_catch_all();
	if ((status = kvt_reads_refuse(r->output, err)) ||
	    (status = rewrite_target(&p.to, &p.options, r, dump, err)))
		return status;
	if (!(status = choose_patches(&p, err)))
		status = write_parts(&p, err);
	if (!status && shard_whole())
		status = join_parts(&p, err);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(p.written[g]);
	kvt_snapshot_free(&p.to);
	return status;
}
