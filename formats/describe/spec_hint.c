/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_hint.c - "gqa:layers=80,heads=8,head-dim=128" said of a dump
 *
 * The words are those of kvtool size (lib/model): they fill the numbers that nothing
 * else gives, and refuse a dump of which no group is that.
 */
#include "formats/describe/describe.h"
#include "lib/kvt/model.h"

#include <string.h>

/* What the words say of a dump. */
struct told {
	struct kvt_model_group group;
	struct kvt_spec spec;
	struct kvt_shape shape;
	int64_t block_size;		/* tokens; 0: the dump's, or none */
	int64_t tokens_per_slot;
	int64_t page;			/* bytes of a block, if padded; else 0 */
};

/*
 * Where the slots of a block are no runs, the block is one slot here: nothing
 * can tear it apart.
 */
static enum kvt_status take_planes(struct told *t, struct kvt_error *err)
{
	struct kvt_spec_size size;
	enum kvt_status status = kvt_spec_size(&size, &t->spec, err);

	if (status)
		return status;
	t->page = size.page > size.unpadded ? size.page : 0;
	if (!t->spec.planar)
		return KVT_OK;
	if (!t->block_size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s has planes in a block, so the number of its tokens is needed: give --block-size",
				t->group.spec);
	for (int a = 0; a < KVT_NAXES; a++)
		t->shape.n[a] = 1;
	t->shape.elem = 1;
	t->shape.n[KVT_AXIS_D] = size.page;
	t->tokens_per_slot = t->block_size;
	t->page = 0;
	return KVT_OK;
}

/* Some make their own block size; else it is one that slots fill. */
static enum kvt_status make_spec(struct told *t, struct kvt_rank rank,
				 int64_t block_size, struct kvt_error *err)
{
	struct kvt_spec_args args = t->group.args;
	enum kvt_status status;

	if (!args.block_size)
		args.block_size = block_size;
	if (!kvt_spec_make(&t->spec, t->group.spec, &args, rank, NULL)) {
		t->block_size = t->spec.tokens_per_slot.num > 0 ? t->spec.block_size : 0;
		return KVT_OK;
	}
	if (!args.block_size)
		args.block_size = args.ratio ? args.ratio : 16;
	status = kvt_spec_make(&t->spec, t->group.spec, &args, rank, err);
	return status;
}

static enum kvt_status read_spec(struct told *out, const char *text,
				 const struct kvt_parallel *parallel, int64_t block_size,
				 struct kvt_error *err)
{
	struct kvt_rank rank = { parallel ? parallel->tp_size : 1,
				 parallel ? parallel->tp_rank : 0 };
	struct told t = { .block_size = 0 };
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = kvt_model_group_parse(&t.group, text, &why)) ||
	    (status = make_spec(&t, rank, block_size, &why)) ||
	    (status = kvt_spec_shape(&t.shape, &t.spec, 1, 1, &why)))
		return kvt_fail(err, status, "--spec: %.400s", why.text);
	if (t.spec.tokens_per_slot.den != 1)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"--spec: a slot of a dump cannot stand for less than a token");
	t.tokens_per_slot = t.spec.tokens_per_slot.num;
	if ((status = take_planes(&t, &why)))
		return kvt_fail(err, status, "--spec: %.400s", why.text);
	*out = t;
	return KVT_OK;
}

static void fill(int64_t *hint, int64_t n)
{
	if (!*hint)
		*hint = n;
}

enum kvt_status kvt_hints_take_spec(struct kvt_hints *hints,
				    const struct kvt_parallel *parallel,
				    struct kvt_error *err)
{
	struct told told;
	enum kvt_status status;

	if (!hints->spec)
		return kvt_hints_take_model(hints, parallel, err);
	if ((status = read_spec(&told, hints->spec, parallel, hints->block_size, err)))
		return status;
	fill(&hints->layers, told.group.layers);
	fill(&hints->heads, told.shape.n[KVT_AXIS_H]);
	fill(&hints->block_size, told.block_size);
	if (told.shape.n[KVT_AXIS_K] == 2)
		fill(&hints->head_dim, told.shape.n[KVT_AXIS_D]);
	else
		fill(&hints->content, told.shape.n[KVT_AXIS_D]);
	return KVT_OK;
}

enum kvt_status kvt_hints_window(int64_t *out, const struct kvt_hints *hints,
				 struct kvt_error *err)
{
	struct told told;
	enum kvt_status status;

	if (!hints || !hints->spec)
		return KVT_OK;
	if ((status = read_spec(&told, hints->spec, NULL, hints->block_size, err)))
		return status;
	if (told.spec.window)
		*out = told.spec.window;
	return KVT_OK;
}

/* ---- of a group that something else says more of ------------------------ */

static enum kvt_status take_parts(struct kvt_group *group, const struct kvt_spec *spec,
				  const char *name, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	const struct kvt_json in = { NULL, name, err, &status };
	int64_t at = 0;

	for (int i = 0; !status && i < spec->nparts; i++) {
		int64_t rows = spec->part[i].units * spec->part[i].rows;

		kvt_manifest_add_component(group, spec->part[i].name, at, rows, at, &in);
		at += rows;
	}
	return status;
}

enum kvt_status kvt_manifest_spec(struct kvt_group *group, const struct kvt_hints *hints,
				  const struct kvt_parallel *parallel, const char *name,
				  struct kvt_error *err)
{
	struct told told;
	enum kvt_status status = read_spec(&told, hints->spec, parallel,
					   hints->block_size, err);

	if (status)
		return status;
	if (group->kind == KVT_NKINDS)
		group->kind = told.spec.kind;
	if (!group->window)
		group->window = told.spec.window;
	if (!group->tokens_per_slot)
		group->tokens_per_slot = told.tokens_per_slot;
	if (!group->page_bytes)
		group->page_bytes = told.page;
	if (!kvt_is_recurrent(told.spec.kind))
		return KVT_OK;
	status = kvt_manifest_extent(group, KVT_AXIS_S, told.shape.n[KVT_AXIS_S],
				     "--spec", name, err);
	if (status)
		return status;
	if (told.spec.kind == KVT_MAMBA_SSM && group->kind == KVT_MAMBA_SSM &&
	    !group->state[0])
		kvt_group_set_state(group, told.spec.content, told.spec.ncontent);
	if (group->ncomponents)
		return KVT_OK;
	return take_parts(group, &told.spec, name, err);
}

/* ---- of a dump that is open --------------------------------------------- */

/* False, and what differs, if the group is not of this spec. */
static bool agrees(const struct kvt_group *group, const struct told *told,
		   struct kvt_error *why)
{
	const int64_t *is = group->shape.n, *n = told->shape.n;
	struct kvt_group said = { .state = { 0 } };
	const struct {
		const char *what;
		int64_t is, said;
	} rows[] = {
		{ "layers", is[KVT_AXIS_L], told->group.layers },
		{ "heads", is[KVT_AXIS_H], n[KVT_AXIS_H] },
		{ "elements of a slot", is[KVT_AXIS_K] * is[KVT_AXIS_D],
		  n[KVT_AXIS_K] * n[KVT_AXIS_D] },
		{ "slots of a block", is[KVT_AXIS_S],
		  kvt_is_recurrent(told->spec.kind) ? n[KVT_AXIS_S] : 0 },
		{ "tokens of a block", group->block_size, told->group.args.block_size },
		{ "bytes of an element", group->shape.elem, told->group.args.elem },
	};

	kvt_group_set_state(&said, told->spec.content, told->spec.ncontent);
	said.state_order = group->state_order;
	if (told->spec.kind == KVT_MAMBA_SSM && !kvt_group_same_state(group, &said)) {
		kvt_fail(why, KVT_BAD_INPUT, "%s: a state has another shape", group->id);
		return false;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].said && rows[i].is != rows[i].said) {
			kvt_fail(why, KVT_BAD_INPUT, "%s: %s are %lld, expected %lld",
				 group->id, rows[i].what, LL(rows[i].is),
				 LL(rows[i].said));
			return false;
		}
	return true;
}

enum kvt_status kvt_spec_check_dump(const struct kvt_snapshot *snapshot,
				    const struct kvt_hints *hints, const char *path,
				    struct kvt_error *err)
{
	struct kvt_error why = { "" };
	struct told told;
	enum kvt_status status;

	if (!hints || !hints->spec)
		return KVT_OK;
	for (int g = 0; g < snapshot->ngroups; g++) {
		if ((status = read_spec(&told, hints->spec, &snapshot->parallel,
					snapshot->group[g].block_size, err)))
			return status;
		if (agrees(&snapshot->group[g], &told, &why))
			return KVT_OK;
	}
	if (snapshot->ngroups > 1)
		return kvt_hint_denied(err, KVT_BAD_INPUT, path, "spec", hints,
				       "none of its %d groups is that",
				       snapshot->ngroups);
	return kvt_hint_denied(err, KVT_BAD_INPUT, path, "spec", hints, "group %.200s",
			       why.text);
}
