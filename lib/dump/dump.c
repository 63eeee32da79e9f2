/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c - asking and closing dumps, leaf and derived alike
 *
 * A dump counts references to its leaves; the last one closes the files.  A leaf as a
 * dump is one part of all elements.
 */
#include "lib/dump/map.h"
#include "lib/snapshot/saved.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- a leaf as a dump -------------------------------------------------------- */

static void leaf_drop(struct kvt_leaf *leaf)
{
	if (!leaf || atomic_fetch_sub(&leaf->refs, 1) != 1)
		return;
	kvt_snapshot_free(&leaf->snapshot);
	free(leaf->manifest);
	free(leaf->path);
	free(leaf->said);
	kvt_saved_free(leaf->saved);
	free(leaf->written_by);
	kvt_leaf_free_sought(leaf);
	/* the dump that it is lives as long as the leaf does: see kvt_dump_leaf() */
	if (leaf->self) {
		for (int g = 0; g < KVT_MAX_GROUPS; g++) {
			for (int p = 0; p < leaf->self->group[g].nparts; p++)
				map_part_free(&leaf->self->group[g].part[p]);
			free(leaf->self->group[g].part);
		}
		free(leaf->self->leaf);
		free(leaf->self);
	}
	leaf->ops->close(leaf);
}

/* One part of all elements, for each group. */
static bool make_parts(struct kvt_dump *dump, struct kvt_leaf *leaf)
{
	for (int g = 0; g < leaf->snapshot.ngroups; g++) {
		const int64_t *n = leaf->snapshot.group[g].shape.n;
		struct map_part *part = calloc(1, sizeof(*part));

		if (!part)
			return false;
		dump->group[g].part = part;
		dump->group[g].nparts = 1;
		part->leaf = leaf;
		part->group = g;
		part->heads.count = n[KVT_AXIS_H];
		part->kv.count = n[KVT_AXIS_K];
		if (!(part->channels = calloc(1, sizeof(*part->channels))))
			return false;
		part->nchannels = 1;
		part->channels->count = n[KVT_AXIS_D];
	}
	return true;
}

enum kvt_status kvt_dump_of_leaf(struct kvt_dump **out, struct kvt_leaf *leaf,
				 struct kvt_error *err)
{
	struct kvt_dump *dump = calloc(1, sizeof(*dump));

	atomic_init(&leaf->refs, 1);
	leaf->self = dump;
	if (!dump || !(dump->leaf = calloc(1, sizeof(struct kvt_leaf *))) ||
	    !make_parts(dump, leaf)) {
		leaf_drop(leaf);
		return kvt_no_memory(err, NULL);
	}
	dump->is_leaf = true;
	dump->leaf[dump->nleaves++] = leaf;
	map_seal(dump, &leaf->snapshot);
	for (int g = 0; g < leaf->snapshot.ngroups; g++)
		if (leaf_tiling(leaf, g))
			leaf->runs[g] = tile_runs(&leaf->snapshot.group[g].layout,
						  &leaf->tiling[g],
						  &leaf->snapshot.group[g].shape);
	*out = dump;
	return KVT_OK;
}

struct kvt_leaf *kvt_dump_is_leaf(const struct kvt_dump *dump)
{
	return dump->is_leaf ? dump->leaf[0] : NULL;
}

void kvt_dump_close(struct kvt_dump *dump)
{
	if (!dump)
		return;
	if (dump->is_leaf) {
		leaf_drop(dump->leaf[0]);
		return;
	}
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		for (int p = 0; p < dump->group[g].nparts; p++)
			map_part_free(&dump->group[g].part[p]);
		free(dump->group[g].part);
	}
	for (int i = 0; i < dump->nleaves; i++)
		leaf_drop(dump->leaf[i]);
	free(dump->leaf);
	kvt_snapshot_free(&dump->snapshot);
	free(dump);
}

/* ---- asking ------------------------------------------------------------------ */

const struct kvt_snapshot *kvt_dump_snapshot(const struct kvt_dump *dump)
{
	return dump->is_leaf ? &dump->leaf[0]->snapshot : &dump->snapshot;
}

const struct kvt_dump *kvt_dump_leaf(const struct kvt_dump *dump, int i)
{
	return i >= 0 && i < dump->nleaves ? dump->leaf[i]->self : NULL;
}

int kvt_dump_leaf_group(const struct kvt_dump *dump, int i, int group)
{
	const struct map_group *map = &dump->group[group];

	for (int p = 0; i >= 0 && i < dump->nleaves && p < map->nparts; p++)
		if (map->part[p].leaf == dump->leaf[i])
			return map->part[p].group;
	return -1;
}

static bool move_into(int64_t *index, const struct kvt_segment *segment, int n)
{
	for (int i = 0; i < n; i++) {
		int64_t inside = *index - segment[i].at;

		if (inside >= 0 && inside < segment[i].count) {
			*index = segment[i].from + inside;
			return true;
		}
	}
	return false;
}

static bool move_slots(int64_t there[KVT_NAXES], const struct map_part *part)
{
	const struct map_spans *spans = part->spans;
	int64_t b = there[KVT_AXIS_B], s = there[KVT_AXIS_S];

	there[KVT_AXIS_L] = list_at(part->layers, there[KVT_AXIS_L]);
	if (!spans)
		there[KVT_AXIS_B] = list_at(part->blocks, b);
	if (!spans || there[KVT_AXIS_L] < 0)
		return there[KVT_AXIS_L] >= 0 && there[KVT_AXIS_B] >= 0;
	for (int64_t i = spans->first[b]; i < spans->first[b + 1]; i++) {
		const struct map_span *span = &spans->span[i];
		int64_t inside = s - span->at;

		if (inside >= 0 && inside < span->count) {
			there[KVT_AXIS_B] = span->block;
			there[KVT_AXIS_S] = span->slot + inside;
			return true;
		}
	}
	return false;
}

const struct kvt_dump *kvt_dump_trace(const struct kvt_dump *dump, int group,
				      const int64_t index[KVT_NAXES], int *leaf_group,
				      int64_t there[KVT_NAXES])
{
	for (int p = 0; p < dump->group[group].nparts; p++) {
		const struct map_part *part = &dump->group[group].part[p];

		memcpy(there, index, KVT_NAXES * sizeof(*there));
		if (!move_into(&there[KVT_AXIS_H], &part->heads, 1) ||
		    !move_into(&there[KVT_AXIS_K], &part->kv, 1) ||
		    !move_into(&there[KVT_AXIS_D], part->channels, part->nchannels) ||
		    !move_slots(there, part))
			continue;
		*leaf_group = part->group;
		return part->leaf->self;
	}
	return NULL;
}

const char *kvt_dump_format(const struct kvt_dump *dump)
{
	return dump->nleaves ? dump->leaf[0]->format : "";
}

const char *kvt_dump_path(const struct kvt_dump *dump)
{
	return dump->nleaves && dump->leaf[0]->path ? dump->leaf[0]->path : "";
}

int64_t kvt_dump_files(const struct kvt_dump *dump)
{
	int64_t files = 0, nbytes = 0;

	for (int i = 0; i < dump->nleaves; i++)
		if (dump->leaf[i]->ops->files)
			files += dump->leaf[i]->ops->files(dump->leaf[i], &nbytes);
	return files;
}

int64_t kvt_dump_file_bytes(const struct kvt_dump *dump)
{
	int64_t nbytes = 0;

	for (int i = 0; i < dump->nleaves; i++)
		if (dump->leaf[i]->ops->files)
			dump->leaf[i]->ops->files(dump->leaf[i], &nbytes);
	return nbytes;
}

bool kvt_dump_has_file(const struct kvt_dump *dump, dev_t dev, ino_t ino)
{
	for (int i = 0; i < dump->nleaves; i++)
		if (dump->leaf[i]->ops->has_file &&
		    dump->leaf[i]->ops->has_file(dump->leaf[i], dev, ino))
			return true;
	return false;
}

enum kvt_status kvt_dump_unchanged(const struct kvt_dump *dump, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < dump->nleaves; i++)
		if (dump->leaf[i]->ops->unchanged)
			status = dump->leaf[i]->ops->unchanged(dump->leaf[i], err);
	return status;
}

const struct kvt_layout *kvt_dump_indexed(const struct kvt_dump *dump)
{
	return dump->nleaves == 1 && dump->leaf[0]->self == dump &&
	       dump->leaf[0]->indexed.nplanes ? &dump->leaf[0]->indexed : NULL;
}

const char *kvt_dump_checks(const struct kvt_dump *dump)
{
	return dump->nleaves ? dump->leaf[0]->checks : NULL;
}

bool kvt_dump_unlisted(const struct kvt_dump *dump)
{
	return dump->nleaves && dump->leaf[0]->unlisted;
}

const char *kvt_dump_unnoticed(const struct kvt_dump *dump)
{
	return dump->nleaves ? dump->leaf[0]->unnoticed : NULL;
}

const struct kvt_saved *kvt_dump_saved(const struct kvt_dump *dump)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return leaf ? leaf->saved : NULL;
}

void kvt_saved_free(struct kvt_saved *saved)
{
	if (!saved)
		return;
	free(saved->id);
	free(saved->state);
	free(saved);
}

const char *kvt_dump_written_by(const struct kvt_dump *dump)
{
	return dump->nleaves ? dump->leaf[0]->written_by : NULL;
}

int64_t kvt_dump_files_of(const struct kvt_dump *dump)
{
	return dump->nleaves ? dump->leaf[0]->files_of : 0;
}

const char *kvt_dump_decoded(const struct kvt_dump *dump)
{
	return dump->nleaves && dump->leaf[0]->decoded[0] ? dump->leaf[0]->decoded : NULL;
}

enum kvt_manifest_proof kvt_dump_proof(const struct kvt_dump *dump)
{
	return dump->nleaves ? dump->leaf[0]->proof : KVT_PROOF_NO_MANIFEST;
}

const char *kvt_dump_manifest(const struct kvt_dump *dump)
{
	return dump->nleaves ? dump->leaf[0]->manifest : NULL;
}

const struct kvt_proven *kvt_dump_proven(const struct kvt_dump *dump)
{
	static const struct kvt_proven nothing;

	return dump->nleaves ? &dump->leaf[0]->proven : &nothing;
}

/* ---- tiles and cells ---------------------------------------------------------- */

const struct kvt_tiling *kvt_dump_tiling(const struct kvt_dump *dump, int group)
{
	return dump->group[group].tiling.nbytes ? &dump->group[group].tiling : NULL;
}

bool kvt_dump_has_tiles(const struct kvt_dump *dump, int group, const struct kvt_box *box)
{
	return map_has_tiles(&dump->group[group], kvt_dump_group(dump, group), box);
}

bool kvt_dump_has_cells(const struct kvt_dump *dump, int group)
{
	return group >= 0 && group < kvt_dump_snapshot(dump)->ngroups &&
	       dump->group[group].has_cells;
}

bool kvt_dump_cells_proven(const struct kvt_dump *dump, int group)
{
	return dump->group[group].cells_proven;
}

/* ---- places: questions to leaves ------------------------------------------------ */

static enum kvt_status only_leaves(const struct kvt_dump *dump, struct kvt_error *err)
{
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s: offsets in files exist only for a dump that was opened, not for one that was made from others",
			kvt_dump_path(dump));
}

enum kvt_status kvt_dump_find_buffer(int64_t *out, const struct kvt_dump *dump,
				     enum kvt_space space, const char *name,
				     struct kvt_error *err)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return leaf && leaf->ops->find_buffer ?
	       leaf->ops->find_buffer(out, leaf, space, name, err) :
	       only_leaves(dump, err);
}

const char *kvt_dump_buffer_name(const struct kvt_dump *dump, enum kvt_space space,
				 int64_t buffer)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return leaf && leaf->ops->buffer_name ?
	       leaf->ops->buffer_name(leaf, space, buffer) : NULL;
}

enum kvt_status kvt_dump_locate(int64_t *buffer, int64_t *offset,
				const struct kvt_dump *dump, enum kvt_space space,
				int group, const int64_t index[KVT_NAXES],
				struct kvt_error *err)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return leaf && leaf->ops->locate ?
	       leaf->ops->locate(buffer, offset, leaf, space, group, index, err) :
	       only_leaves(dump, err);
}

enum kvt_status kvt_dump_at(struct kvt_where *out, const struct kvt_dump *dump,
			    enum kvt_space space, int64_t buffer, int64_t offset,
			    struct kvt_error *err)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return leaf && leaf->ops->at ?
	       leaf->ops->at(out, leaf, space, buffer, offset, err) :
	       only_leaves(dump, err);
}

bool kvt_dump_has_padding(const struct kvt_dump *dump, int group)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return leaf && leaf->ops->has_padding && leaf->ops->has_padding(leaf, group);
}

enum kvt_status kvt_read_padding(uint8_t *page, const struct kvt_dump *dump, int group,
				 int64_t layer, int64_t block, struct kvt_error *err)
{
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(dump);

	return leaf && leaf->ops->read_padding ?
	       leaf->ops->read_padding(page, leaf, group, layer, block, err) :
	       only_leaves(dump, err);
}
