/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_group.c - facts of a group for people: how memory lies, what is in it, what
 * proves it
 *
 * In the order kind and type, content, layout, memory, layers, heads, sizes, blocks,
 * parts; tiles and what is proven where that is asked for or not all of it is.  What is
 * not known has no line.
 */
#include "print/describe.h"

#include <string.h>

#include "lib/kvt/tile.h"
#include "print/out/say.h"
#include "print/out/screen.h"

/* ---- memory order as people draw it ------------------------------------- */

/*
 * With -v the strides, too:
 *   memory    L 5   x B 48 x H 4 x S 16 x [K 2 x D 8]
 *   strides   98304   2048   512   32      16    2
 */
/* Axes above their strides, column by column. */
struct picture {
	char axes[512], strides[512];
	size_t used;
};

static void add_column(struct picture *p, const char *axis, const char *stride)
{
	const char *join = p->used ? " x " : "";
	size_t width = strlen(axis) > strlen(stride) ? strlen(axis) : strlen(stride);
	size_t room = sizeof(p->axes) - p->used;

	if (strlen(join) + width >= room)
		return;
	snprintf(p->axes + p->used, room, "%s%-*s", join, (int)width, axis);
	snprintf(p->strides + p->used, room, "%*s%-*s", (int)strlen(join), "",
		 (int)width, stride);
	p->used += strlen(join) + width;
}

/* "B 48", "D/8 2", "D%8 8". */
static void name_part(char *out, size_t room, const struct kvt_part *part,
		      const struct kvt_factor *f)
{
	char letter = kvt_axis_letter(part->axis);
	long long n = f->n;

	if (part->kind == KVT_OUTER)
		snprintf(out, room, "%c/%lld %lld", letter, LL(f->div), n);
	else if (part->kind == KVT_INNER)
		snprintf(out, room, "%c%%%lld %lld", letter, n, n);
	else
		snprintf(out, room, "%c %lld", letter, n);
}

static void draw(struct picture *p, const struct kvt_order *order,
		 const struct kvt_view *view, bool strides)
{
	int last = order->nparts - 1;
	/* keys and values side by side, or content that is neither: C */
	bool content = last > 0 && order->part[last - 1].axis == KVT_AXIS_K &&
		       order->part[last].axis == KVT_AXIS_D;
	bool open = content && view->factor[last - 1].n > 1;

	for (int i = 0; i <= last; i++) {
		const struct kvt_part *part = &order->part[i];
		const struct kvt_factor *f = &view->factor[i];
		char name[64], axis[72], stride[24] = "";

		/* no heads, or the one k of this plane: nothing to see */
		if (f->n == 1 && (part->axis == KVT_AXIS_H || part->axis == KVT_AXIS_K))
			continue;
		name_part(name, sizeof(name), part, f);
		if (content && !open && i == last)
			name[0] = 'C';
		snprintf(axis, sizeof(axis), "%s%s%s",
			 open && i == last - 1 ? "[" : "", name,
			 open && i == last ? "]" : "");
		if (strides)
			snprintf(stride, sizeof(stride), "%lld", LL(f->stride));
		add_column(p, axis, stride);
	}
}

static void trim(char *text)
{
	for (size_t n = strlen(text); n && text[n - 1] == ' '; n--)
		text[n - 1] = '\0';
}

static void print_memory(const struct kvt_group_facts *f, bool strides)
{
	const struct kvt_layout *layout = &f->group->layout;

	for (int i = 0; i < f->views.count; i++) {
		const struct kvt_view *view = &f->views.view[i];
		int plane = layout->nplanes == 2 ? f->views.first_k + i : 0;
		struct picture p = { "", "", 0 };

		draw(&p, &layout->plane[plane], view, strides);
		trim(p.axes);
		trim(p.strides);
		print_label(layout->nplanes == 1 ? "memory" : plane ? "values" : "keys");
		plainf("%s\n", p.axes);
		if (!strides)
			continue;
		print_label("strides");
		plainf("%s", p.strides);
		if (view->offset)
			plainf("   from byte %lld", LL(view->offset));
		putchar('\n');
	}
}

/* ---- packed content ------------------------------------------------------ */

/* Also called fp8_ds_mla (vLLM), V32 (FlashMLA, FlashInfer) */
static void print_words(const struct kvt_content_type *type)
{
	const struct {
		const char *words, *whose;
	} rows[] = {
		{ type->vllm, "vLLM" }, { type->sglang, "SGLang" },
		{ type->kernels, "FlashMLA, FlashInfer" },
	};
	int n = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!rows[i].words)
			continue;
		if (!n)
			print_label("");
		plainf("%s%s (%s)", n++ ? ", " : "also called ", rows[i].words,
		       rows[i].whose);
	}
	if (n)
		putchar('\n');
}

/* "keys by 128, values by 64 " */
static void print_turn(const struct kvt_packing *packing, const struct kvt_group *group)
{
	bool keys = kvt_group_half(group) < 1 && packing->turn[0] > 1;
	bool values = packing->turn[1] > 1 && (group->shape.n[KVT_AXIS_K] == 2 ||
					       kvt_group_half(group) == 1);

	if (keys)
		plainf("keys by %lld%s ", LL(packing->turn[0]), values ? "," : "");
	if (values)
		plainf("values by %lld ", LL(packing->turn[1]));
}

/*
 *   row       nope 512 x float8_e4m3fn, scales 4 x float32, rope 64 x bfloat16
 *   page      64 rows; values 128 x uint8 from 0, scales 1 x float32 from 8192
 */
static void print_packing(const struct kvt_group *group)
{
	struct kvt_packing packing = kvt_group_packing(group);
	bool planar = group->content.type->planar;
	struct kvt_error why;

	print_label(planar ? "page" : "row");
	if (planar)
		plainf("%lld rows; ", LL(packing.rows));
	for (int i = 0; i < packing.nfields; i++) {
		const struct kvt_field *field = &packing.field[i];

		plainf("%s%s %lld x %s", i ? ", " : "", field->name,
		       LL(field->count), field->type);
		if (planar)
			plainf(" from %lld", LL(field->at));
	}
	putchar('\n');
	print_words(group->content.type);
	if (kvt_packing_rotation(&packing) != KVT_ROTATION_NONE) {
		print_label("");
		print_turn(&packing, group);
		plainf("rotated (%s), which is undone where numbers are shown\n",
		       kvt_rotation_name(kvt_packing_rotation(&packing)));
	}
	if (packing.turn[0] == 1 && packing.turn[1] == 1) {
		print_label("");
		puts("not rotated");
	}
	if (kvt_packing_readable(&packing, &why)) {
		print_label("");
		plainf("%s\n", why.text);
	}
}

/* ---- groups ------------------------------------------------------------- */

static void print_tuples(const struct kvt_layout *layout)
{
	static const char *const name[] = { [KVT_RFC] = "rfc", [KVT_VLLM] = "vllm" };
	int order[5], printed = 0;

	print_label("tuples");
	for (int c = KVT_RFC; c <= KVT_VLLM; c++) {
		if (!kvt_layout_tuple(order, layout, (enum kvt_convention)c))
			continue;
		plainf("%s%s:%d,%d,%d,%d,%d", printed++ ? "  " : "", name[c],
		       order[0], order[1], order[2], order[3], order[4]);
	}
	puts(printed ? "" : "none: not five axes with the content contiguous");
}

static void print_predicates(const struct kvt_predicates *is, bool holds)
{
	const struct {
		const char *name;
		bool holds;
	} all[] = {
		{ "layer_compact", is->layer_compact },
		{ "block_compact", is->block_compact },
		{ "block_contiguous", is->block_contiguous },
		{ "block_outermost", is->block_outermost },
		{ "head_run", is->head_run },
		{ "kernel_split_neutral", is->kernel_split_neutral },
	};
	int printed = 0;

	print_label(holds ? "is" : "is not");
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].holds == holds)
			plainf("%s%s", printed++ ? ", " : "", all[i].name);
	puts(printed ? "" : "-");
}

static void print_heads(const struct kvt_group *group)
{
	int64_t heads = group->shape.n[KVT_AXIS_H];

	if (group->cast_from[0]) {
		print_label("changed");
		plainf("%s\n", kvt_group_cast_text(group).s);
	}
	if (group->total_heads <= 1)
		return;
	print_label("heads");
	if (heads == group->total_heads)
		plainf("%lld", LL(heads));
	else
		plainf("%lld of %lld, from head %lld", LL(heads),
		       LL(group->total_heads), LL(group->head_start));
	if (group->replication > 1)
		plainf(", the same on %lld ranks", LL(group->replication));
	putchar('\n');
}

static void print_state(const struct kvt_group *group)
{
	int64_t shape[KVT_STATE_AXES];
	int n = kvt_group_state_shape(shape, group);

	if (!n)
		return;
	print_label("state");
	if (group->kind == KVT_MAMBA_CONV) {
		plainf("%lld channel%s of %lld tap%s\n", LL(shape[0]),
		       plural(shape[0]), LL(shape[1]), plural(shape[1]));
		return;
	}
	plainf("%lld head%s of ", LL(shape[0]), plural(shape[0]));
	for (int i = 1; i < n; i++)
		plainf("%s%lld", i > 1 ? " x " : "", LL(shape[i]));
	puts(group->state_order == KVT_STATE_KV ? ", keys outside values" :
	     group->state_order == KVT_STATE_EITHER ?
	     ", keys outside values unless the model is a Mamba" : "");
}

static void print_sizes(const struct kvt_group_facts *f)
{
	const struct kvt_group *group = f->group;

	print_label("size");
	if (f->token_bytes)
		plainf("%s a token, ", kvt_size_string(f->token_bytes).s);
	plainf("%s a block, ", kvt_size_string(f->block_bytes).s);
	plainf("%s a layer, ", kvt_size_string(f->layer_bytes).s);
	plainf("%s in all\n", kvt_size_string(f->data_bytes).s);
	if (!group->page_bytes || group->page_bytes == f->block_bytes)
		return;
	print_label("page");
	plainf("%lld bytes in the engine: %lld of this group from byte %lld\n",
	       LL(group->page_bytes), LL(f->block_bytes), LL(group->page_offset));
}

static void print_window(const struct kvt_group *group)
{
	if (group->window) {
		print_label(group->kind == KVT_CHUNKED_LOCAL ? "chunk" : "window");
		plainf("%lld token%s", LL(group->window), plural(group->window));
		if (group->retained)
			plainf(", and %lld retained tokens", LL(group->retained));
		putchar('\n');
	}
	if (group->pool[0]) {
		print_label("pool");
		plainf("%s\n", group->pool);
	}
}

static void print_blocks(const struct kvt_group_facts *f, int64_t null_block)
{
	const struct kvt_group *group = f->group;
	int64_t nblocks = group->shape.n[KVT_AXIS_B];

	print_label("blocks");
	plainf("%lld", LL(nblocks));
	if (group->block_size)
		plainf(" of %lld token%s", LL(group->block_size),
		       plural(group->block_size));
	if (f->kernel_block)
		plainf(", each %lld kernel blocks of %lld",
		       LL(group->block_size / f->kernel_block), LL(f->kernel_block));
	if (f->blocks_used >= 0)
		plainf(": %lld in use (%lld shared), %lld unused", LL(f->blocks_used),
		       LL(f->blocks_shared), LL(f->blocks_unused));
	if (null_block >= 0)
		plainf(", block %llu null",
		       (unsigned long long)kvt_block_id(group, null_block));
	putchar('\n');
	describe_pool_bar(f, null_block >= 0);
	if (f->valid_slots >= 0) {
		int64_t slots = nblocks * group->shape.n[KVT_AXIS_S];

		print_label("valid");
		plainf("%lld of %lld slot%s\n", LL(f->valid_slots),
		       LL(slots), plural(slots));
	}
	print_window(group);
}

static void print_components(const struct kvt_group *group)
{
	int half = kvt_group_half(group);

	if (half >= 0) {
		print_label("holds");
		plainf("%s alone\n", kvt_component_name(group, half));
		return;
	}
	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		print_label(i ? "" : "parts");
		plainf("%s: %lld from %lld", c->name, LL(c->length), LL(c->start));
		if (c->global_start != c->start)
			plainf(", %lld in the model", LL(c->global_start));
		putchar('\n');
	}
}

static void print_tiling(const struct kvt_group_facts *f)
{
	const struct kvt_tiling *t = f->tiling;

	if (!t)
		return;
	print_label("tiles");
	for (int a = 0; a < KVT_NAXES; a++)
		plainf("%s%c %lld", a ? " x " : "", kvt_axis_letter(a), LL(t->n[a]));
	plainf(", %s%s%s%s%s\n", kvt_size_string(t->nbytes).s,
	       t->shuffle ? ", shuffle" : "",
	       t->zstd ? ", zstd" : "", t->fletcher32 ? ", fletcher32" : "",
	       f->has_cells ? "; content cells stored" : "");
}

/* What of a snapshot its own checksums prove; other formats have none of tables. */
static void print_proven(const struct kvt_group_facts *f, const struct kvt_dump *dump)
{
	if (!kvt_dump_proven(dump)->can_be)
		return;
	print_label("proven");
	plainf("tables: %s; data: %s", kvt_dump_proven(dump)->tables ? "xxh3" :
	       "not proven, version 1.0", f->checksum ? f->checksum : "no checksum");
	if (f->has_cells)
		plainf("; content cells: %s", f->cells_proven ? "xxh3" : "not proven");
	putchar('\n');
}

static bool all_proven(const struct kvt_group_facts *f, const struct kvt_dump *dump)
{
	return kvt_dump_proven(dump)->tables && f->checksum &&
	       (!f->has_cells || f->cells_proven);
}

static void print_names(const struct kvt_group *group)
{
	for (int64_t l = 0; group->layer_names && l < group->shape.n[KVT_AXIS_L]; l++) {
		print_label(l ? "" : "layers");
		if (group->layer_ids)
			plainf("%lld ", LL(group->layer_ids[l]));
		plainf("%s\n", group->layer_names[l]);
	}
}

static void print_verified(const struct kvt_group_facts *f)
{
	const struct kvt_integrity *v = f->integrity;

	print_label("verified");
	if (v->tiles)
		plainf("%lld tile%s, %lld damaged", LL(v->tiles),
		       plural(v->tiles), LL(v->damaged));
	else if (f->checksum)
		plainf("read in full, %lld block%s damaged", LL(v->damaged),
		       plural(v->damaged));
	else
		plainf("read in full; it has no checksums");
	if (f->has_cells)
		plainf("%s %lld content cells, %lld differ",
		       v->tiles || f->checksum ? ";" : ", but",
		       LL(v->cells), LL(v->differing));
	putchar('\n');
}

/* Its name; with -v all that it has. */
static void print_layout(const char *label, const struct kvt_layout *layout, bool all)
{
	const char *name = kvt_layout_name(layout, 0);

	print_label(label);
	if (all || !name)
		plainf("%s\n", human_layout(layout).s);
	else
		plainf("%s (%s)\n", kvt_layout_string(layout).s, name);
}

/* "8 to 15", or their names: which layers of the model, where the dump says it. */
static void print_layers(const struct kvt_group *group)
{
	int64_t n = group->shape.n[KVT_AXIS_L];
	bool row = true;

	if (!n || (!group->layer_ids && !group->layer_names))
		return;
	print_label("layers");
	if (!group->layer_ids) {
		plainf("%s to %s\n", group->layer_names[0], group->layer_names[n - 1]);
		return;
	}
	for (int64_t l = 1; l < n; l++)
		row &= group->layer_ids[l] == group->layer_ids[0] + (uint64_t)l;
	for (int64_t l = 0; l < n; l += row && l < n - 1 ? n - 1 : 1)
		plainf("%s%lld", !l ? "" : row ? " to " : ", ", LL(group->layer_ids[l]));
	putchar('\n');
}

/* A state is that behind the last token: there is nothing to go back to. */
static void print_moment(const struct kvt_group *group, const struct kvt_snapshot *s)
{
	int g = (int)(group - s->group);
	const struct kvt_request *only = NULL;
	int64_t n = 0;

	for (int64_t r = 0; group->tokens_per_slot < 0 && r < s->nrequests; r++) {
		/* some engines keep earlier ones, too */
		if (s->request[r].nblocks[g] > 1)
			return;
		n += s->request[r].nblocks[g];
		if (s->request[r].nblocks[g])
			only = &s->request[r];
	}
	if (!only || !only->ntokens)
		return;
	print_label("state");
	if (n == 1)
		plainf("after token %lld of request %s",
		       LL(only->first_token + only->ntokens - 1), only->id);
	else
		plainf("after the last token of each request");
	plainf("; nothing earlier can be restored from it\n");
}

void describe_group(const struct kvt_group_facts *f, const struct kvt_description *d,
		    const struct describe_options *options)
{
	const struct kvt_group *group = f->group;

	putchar('\n');
	screen_paint(SCREEN_NAME);
	print_label(group->id);
	screen_plain();
	plainf("%s%s, %s\n", kvt_kind_name(group->kind),
	       group->kind == KVT_SLIDING_WINDOW && !group->window ?
	       " of unknown length" : "", kvt_group_type(group).s);
	if (group->content.type)
		print_packing(group);
	print_layout("layout", &group->layout, options->verbose);
	if (f->indexed)
		print_layout("indexed", f->indexed, options->verbose);
	print_memory(f, options->verbose);
	if (options->tuples)
		print_tuples(&group->layout);
	if (options->verbose) {
		print_predicates(&f->is, true);
		print_predicates(&f->is, false);
	}
	if (labels_facts_alone())
		print_layers(group);
	print_heads(group);
	print_state(group);
	print_sizes(f);
	print_blocks(f, kvt_null_block(d->snapshot, (int)(f - d->group)));
	print_moment(group, d->snapshot);
	print_components(group);
	if (options->verbose)
		print_tiling(f);
	if (options->verbose || !all_proven(f, d->dump))
		print_proven(f, d->dump);
	if (options->names)
		print_names(group);
	if (f->integrity)
		print_verified(f);
	if (f->moments)
		describe_stats_text(f);
}
