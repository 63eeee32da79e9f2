/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - the files of FlexKV's SSD cache
 *
 * <prefix>_<device>_<file>.bin are pools of blocks, made at their full size
 * before anything is stored; nothing on disk says which blocks are in use, nor
 * how blocks are dealt to devices and files, which has to be said.
 *
 *	flexkv_ssdcache_<6 hex digits>_0_0.bin	block, block, ...	each of one size
 *	flexkv_ssdcache_<6 hex digits>_0_1.bin	...			no header
 *	flexkv_ssdcache_<6 hex digits>_1_0.bin
 *
 *	a block		one array in the layout that the user names; or, with several
 *			groups, of each rank its share of all of them (see below)
 *
 * Block id to place: device = id / rr % devices, then id / rr / devices * rr + id % rr
 * counts blocks of the device (rr: round-robin); those fill its files one after the
 * other, or in turn, by release.  Facts: FlexKV of 2026-08, flexkv/common/storage.py
 * and transfer/worker.py at 34ab141e; no dump of the engine itself is among the test
 * data.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/store/store.h"

enum { MAX_BLOCKS = 1 << 20, MAX_NUMBER = 1 << 16 };

/* What kvt_store_file.number has: _<device>_<number>.bin */
enum { DEVICE, NUMBER };

struct opening {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_store_files pools;	/* by device, then number */
	int64_t devices, files;		/* files: of one device */
	int64_t each, round_robin;	/* each: blocks of one file */
	bool interleaved;
};

/* ---- names -------------------------------------------------------------- */

static bool take_number(int64_t *out, const char *begin, const char **end)
{
	const char *p = *end;

	while (p > begin && p[-1] >= '0' && p[-1] <= '9')
		p--;
	if (p == *end || *end - p > 6 || p == begin || p[-1] != '_')
		return false;
	*out = strtoll(p, NULL, 10);
	*end = p - 1;
	return *out < MAX_NUMBER;
}

static bool parse_name(struct kvt_store_file *out, const char *path)
{
	const char *name = kvt_path_base(path);
	size_t n = strlen(name);
	const char *end = name + n - 4;

	if (n < 5 || strcmp(end, ".bin") ||
	    !take_number(&out->number[NUMBER], name, &end) ||
	    !take_number(&out->number[DEVICE], name, &end) || end == name)
		return false;
	out->part = (struct kvt_name_part){ name, (size_t)(end - name) };
	return true;
}

static bool is_pool(const char *path)
{
	const char *name = kvt_path_base(path);
	struct kvt_store_file file;

	return !strncmp(name, "flexkv_", 7) && strstr(name, "ssdcache") &&
	       parse_name(&file, path);
}

static const struct kvt_store_names names = {
	.key = "cache", .what = "caches", .parse = parse_name,
	.expected = "not a file of FlexKV, expected PREFIX_DEVICE_FILE.bin",
};

/* ---- files -------------------------------------------------------------- */

/* Every device has files 0 to n - 1, all of one size. */
static enum kvt_status check_grid(struct opening *o)
{
	const struct kvt_tree_file *first = kvt_store_file(&o->pools, 0);

	o->devices = o->pools.file[o->pools.count - 1].number[DEVICE] + 1;
	o->files = o->pools.file[o->pools.count - 1].number[NUMBER] + 1;
	for (int64_t i = 0; i < o->pools.count; i++) {
		const struct kvt_tree_file *f = kvt_store_file(&o->pools, i);

		if (o->pools.count != o->devices * o->files ||
		    o->pools.file[i].number[DEVICE] != i / o->files ||
		    o->pools.file[i].number[NUMBER] != i % o->files)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: has %lld files of %lld devices, expected files 0 to %lld of each",
					o->path, LL(o->pools.count), LL(o->devices),
					LL(o->files - 1));
		if (f->nbytes != first->nbytes)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.120s/%.120s: has %lld bytes, but %.120s has %lld",
					o->path, f->name, LL(f->nbytes), first->name,
					LL(first->nbytes));
	}
	return KVT_OK;
}

/* ---- where blocks are --------------------------------------------------- */

static enum kvt_status take_placement(struct opening *o)
{
	const char *placement = kvt_fact(o->hints, "placement");
	enum kvt_status status;

	if ((status = kvt_fact_int(&o->round_robin, o->hints, "round-robin", 1,
				   MAX_BLOCKS, o->err)))
		return status;
	if (o->devices > 1 && !o->round_robin)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has %lld devices; give --set round-robin=N, the number of consecutive blocks on a device",
				o->path, LL(o->devices));
	if (!o->round_robin)
		o->round_robin = 1;
	if (placement && strcmp(placement, "consecutive") &&
	    strcmp(placement, "interleaved"))
		return kvt_fail(o->err, KVT_USAGE,
				"placement is '%.40s', expected consecutive or interleaved",
				placement);
	if (o->files > 1 && !placement)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has %lld files on a device; give --set placement=consecutive (one is filled after the other) or interleaved (blocks alternate)",
				o->path, LL(o->files));
	o->interleaved = placement && !strcmp(placement, "interleaved");
	return KVT_OK;
}

/* Each device has whole turns of blocks. */
static enum kvt_status check_turns(const struct opening *o)
{
	int64_t blocks = o->each * o->files;

	return blocks % o->round_robin == 0 ? KVT_OK :
	       kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: a device has %lld blocks, not a multiple of round-robin=%lld",
			o->path, LL(blocks), LL(o->round_robin));
}

static int64_t block_at(const struct opening *o, const struct kvt_store_file *f,
			int64_t at)
{
	int64_t i = o->interleaved ? at * o->files + f->number[NUMBER] :
				     f->number[NUMBER] * o->each + at;

	return (i / o->round_robin * o->devices + f->number[DEVICE]) * o->round_robin +
	       i % o->round_robin;
}

/* 'n' blocks of a file from 'at' on, whose ids follow each other. */
static enum kvt_status add_run(struct opening *o, const struct kvt_group *in_file,
			       int file, int64_t block, int64_t at, int64_t n)
{
	struct kvt_box box = kvt_box_whole(&in_file->shape);
	struct kvt_file_part part;
	enum kvt_status status;

	box.begin[KVT_AXIS_B] = at;
	box.end[KVT_AXIS_B] = at + n;
	if ((status = kvt_file_part_init(&part, in_file, &box, false, file, 0, o->err)))
		return status;
	part.box.begin[KVT_AXIS_B] = block;
	part.box.end[KVT_AXIS_B] = block + n;
	return kvt_flat_add(&o->reader->flat[0], &part, o->err);
}

static enum kvt_status add_file(struct opening *o, const struct kvt_store_file *f,
				const struct kvt_group *in_file)
{
	enum kvt_status status;
	int64_t n;
	int file;

	if ((status = kvt_tree_list(&o->reader->files, &file, &o->pools.tree, f->at,
				    o->err)))
		return status;
	for (int64_t at = 0; !status && at < o->each; at += n) {
		int64_t block = block_at(o, f, at);

		for (n = 1; at + n < o->each && block_at(o, f, at + n) == block + n; n++)
			;
		status = add_run(o, in_file, file, block, at, n);
	}
	return status;
}

/* ---- the snapshot ------------------------------------------------------- */

static enum kvt_status describe(struct opening *o, struct kvt_group *in_file)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	char name[512];
	const struct kvt_tree_file *first = kvt_store_file(&o->pools, 0);
	struct kvt_pages_known known = { .name = name,
		.nbytes = first->nbytes,
		.unnoticed = &o->reader->leaf.unnoticed };
	struct kvt_hints said = kvt_hints_of(o->hints, "g0");
	int64_t blocks = said.blocks;
	struct kvt_group *group;
	enum kvt_status status;
	int64_t total;

	/* of one size are all of them */
	snprintf(name, sizeof(name), "%.300s%s%.200s", o->path,
		 o->pools.count > 1 ? "" : "/", o->pools.count > 1 ? "" : first->name);
	said.blocks = 0;		/* of all files, not of one */
	if ((status = kvt_manifest_add_group(&group, s, "g0", o->path, o->err)) ||
	    (status = kvt_pages_fit(group, &known, &said, o->err)))
		return status;
	o->each = group->shape.n[KVT_AXIS_B];
	total = o->each > MAX_BLOCKS ? MAX_BLOCKS + 1 : o->each * o->pools.count;
	if (total > MAX_BLOCKS)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: at most %d blocks are supported", o->path,
				MAX_BLOCKS);
	if ((status = check_turns(o)))
		return status;
	*in_file = *group;
	o->reader->leaf.unlisted = true;
	/* the name of a file that was cut, which kvt_open() does not know */
	if (blocks && blocks != total)
		return kvt_hint_denied(o->err, KVT_BAD_INPUT, name, "blocks", o->hints,
				       "group g0 has %lld", LL(total));
	if (blocks)
		o->reader->leaf.unnoticed = NULL;
	group->shape.n[KVT_AXIS_B] = total;
	return KVT_OK;
}

/* ---- several groups ------------------------------------------------------ */

/*
 * A block of a model whose layers are not alike has, for each rank of tensor
 * parallelism, its groups one after the other, each layer by layer:
 *
 *	rank 0: [g0: layer 0, 1, ...][g1: ...] ...   rank 1: ...
 */
enum { MAX_PARTS = 1 << 22 };

struct block {
	int64_t groups, ranks;
	int64_t offset[KVT_MAX_GROUPS];	/* of each in the share of a rank */
	int64_t share, nbytes;
};

static enum kvt_status take_group(struct opening *o, struct block *b, int g)
{
	struct kvt_pages_known known = { .name = o->path, .nbytes = -1 };
	struct kvt_shape *shape;
	struct kvt_group *group;
	enum kvt_status status;
	int64_t nbytes;
	char id[16];

	snprintf(id, sizeof(id), "g%d", g);
	if ((status = kvt_manifest_add_group(&group, &o->reader->leaf.snapshot, id,
					     o->path, o->err)))
		return status;
	group->shape.n[KVT_AXIS_B] = 1;
	if ((status = kvt_pages_fit(group, &known, o->hints, o->err)))
		return status;
	shape = &group->shape;
	if (group->layout.nplanes != 1 ||
	    group->layout.plane[0].part[0].axis != KVT_AXIS_B)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: group %s has layout %s, but blocks of several groups are whole: flexkv:BLOCKFIRST or mla-cross",
				o->path, id, kvt_layout_string(&group->layout).s);
	if (b->ranks > 1 && (shape->n[KVT_AXIS_K] == 1 ||
			     shape->n[KVT_AXIS_H] % b->ranks))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: group %s has %lld heads, which %lld ranks cannot share; tp-size is that of the engine",
				o->path, id, LL(shape->n[KVT_AXIS_H]), LL(b->ranks));
	if ((status = kvt_shape_nbytes(&nbytes, shape, o->err)))
		return status;
	b->offset[g] = b->share;
	if (__builtin_add_overflow(b->share, nbytes / b->ranks, &b->share))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: a block has more than 2^63 bytes", o->path);
	return KVT_OK;
}

static enum kvt_status count_blocks(struct opening *o, const struct block *b)
{
	const struct kvt_tree_file *first = kvt_store_file(&o->pools, 0);
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status;
	int64_t blocks;

	if (!b->nbytes || first->nbytes % b->nbytes || !first->nbytes)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s/%.120s: has %lld bytes, not a multiple of %lld, those of a block of these groups",
				o->path, first->name, LL(first->nbytes), LL(b->nbytes));
	o->each = first->nbytes / b->nbytes;
	if (o->each > MAX_PARTS / o->pools.count / b->groups / b->ranks)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: its blocks have more than %d parts", o->path,
				MAX_PARTS);
	blocks = o->each * o->pools.count;
	if ((status = check_turns(o)))
		return status;
	for (int g = 0; g < s->ngroups; g++)
		s->group[g].shape.n[KVT_AXIS_B] = blocks;
	o->reader->leaf.unlisted = true;
	o->reader->leaf.unnoticed = o->hints->blocks ? NULL : KVT_DERIVED;
	return KVT_OK;
}

/* Block 'at' of a file: a part of each group and rank. */
static enum kvt_status add_block(struct opening *o, const struct block *b, int file,
				 int64_t block, int64_t at)
{
	const struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < b->groups * b->ranks; i++) {
		int g = (int)(i % b->groups);
		int64_t rank = i / b->groups;
		struct kvt_box box = kvt_box_whole(&s->group[g].shape);
		int64_t heads = box.end[KVT_AXIS_H] / b->ranks;

		box.begin[KVT_AXIS_B] = block;
		box.end[KVT_AXIS_B] = block + 1;
		box.begin[KVT_AXIS_H] = rank * heads;
		box.end[KVT_AXIS_H] = (rank + 1) * heads;
		status = kvt_pages_add_part(&o->reader->flat[g], &s->group[g], &box, file,
					    at * b->nbytes + rank * b->share +
					    b->offset[g], o->err);
	}
	return status;
}

static enum kvt_status open_groups(struct opening *o, struct block *b)
{
	enum kvt_status status;

	for (int g = 0; g < b->groups; g++)
		if ((status = take_group(o, b, g)))
			return status;
	if (__builtin_mul_overflow(b->share, b->ranks, &b->nbytes))
		b->nbytes = 0;
	if ((status = count_blocks(o, b)))
		return status;
	for (int64_t i = 0; !status && i < o->pools.count; i++) {
		const struct kvt_store_file *f = &o->pools.file[i];
		int file;

		status = kvt_tree_list(&o->reader->files, &file, &o->pools.tree, f->at,
				       o->err);
		for (int64_t at = 0; !status && at < o->each; at++)
			status = add_block(o, b, file, block_at(o, f, at), at);
	}
	return status;
}

static enum kvt_status open_pools(struct opening *o)
{
	struct block block = { .groups = 0, .ranks = 1 };
	struct kvt_group in_file;
	enum kvt_status status;

	if ((status = kvt_fact_int(&block.groups, o->hints, "groups", 1, KVT_MAX_GROUPS,
				   o->err)) ||
	    (status = kvt_fact_int(&block.ranks, o->hints, "tp-size", 1, MAX_NUMBER,
				   o->err)))
		return status;
	if (!block.groups && kvt_fact(o->hints, "tp-size"))
		return kvt_fail(o->err, KVT_USAGE,
				"tp-size is of blocks of several groups: give --set groups=N, too");
	if ((status = kvt_store_list(&o->pools, o->path, &names, o->hints, o->err)) ||
	    (status = check_grid(o)) || (status = take_placement(o)))
		return status;
	if (block.groups)
		return open_groups(o, &block);
	if ((status = describe(o, &in_file)))
		return status;
	for (int64_t i = 0; !status && i < o->pools.count; i++)
		status = add_file(o, &o->pools.file[i], &in_file);
	return status;
}

static enum kvt_status flexkv_open(struct kvt_reader *reader, const char *path,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .path = path, .hints = hints, .err = err };
	enum kvt_status status = open_pools(&o);

	kvt_store_files_free(&o.pools);
	return status;
}

static const char *const facts[] = { "cache", "round-robin", "placement", "groups",
				     "tp-size", NULL };

const struct kvt_format kvt_flexkv_format = {
	.info = { "flexkv", "pools of FlexKV's SSD cache",
		  .reads = true, .writes = false },
	.facts = facts,
	.checks = "names, lengths",
	.holds = is_pool,
	.open = flexkv_open,
};
