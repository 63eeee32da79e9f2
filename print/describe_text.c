/* SPDX-License-Identifier: Apache-2.0 */
/* describe_text.c - facts for people; may change, --json is the interface */
#include "print/out/say.h"
#include "lib/kvt/tile.h"
#include "print/describe.h"
#include "print/out/screen.h"

#include <stdlib.h>
#include <string.h>

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
		snprintf(out, room, "%c/%lld %lld", letter, (long long)f->div, n);
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
		if (f->n == 1 && (part->axis == KVT_AXIS_H ||
				  part->axis == KVT_AXIS_K))
			continue;
		name_part(name, sizeof(name), part, f);
		if (content && !open && i == last)
			name[0] = 'C';
		snprintf(axis, sizeof(axis), "%s%s%s",
			 open && i == last - 1 ? "[" : "", name,
			 open && i == last ? "]" : "");
		if (strides)
			snprintf(stride, sizeof(stride), "%lld", (long long)f->stride);
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
		print_label(layout->nplanes == 1 ? "memory" :
			       plane ? "values" : "keys");
		plainf("%s\n", p.axes);
		if (!strides)
			continue;
		print_label("strides");
		plainf("%s", p.strides);
		if (view->offset)
			plainf("   from byte %lld", (long long)view->offset);
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
		plainf("keys by %lld%s ", (long long)packing->turn[0],
		       values ? "," : "");
	if (values)
		plainf("values by %lld ", (long long)packing->turn[1]);
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
		plainf("%lld rows; ", (long long)packing.rows);
	for (int i = 0; i < packing.nfields; i++) {
		const struct kvt_field *field = &packing.field[i];

		plainf("%s%s %lld x %s", i ? ", " : "", field->name,
		       (long long)field->count, field->type);
		if (planar)
			plainf(" from %lld", (long long)field->at);
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
		plainf("%lld", (long long)heads);
	else
		plainf("%lld of %lld, from head %lld", (long long)heads,
		       (long long)group->total_heads, (long long)group->head_start);
	if (group->replication > 1)
		plainf(", the same on %lld ranks", (long long)group->replication);
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
		plainf("%lld channel%s of %lld tap%s\n", (long long)shape[0],
		       plural(shape[0]), (long long)shape[1], plural(shape[1]));
		return;
	}
	plainf("%lld head%s of ", (long long)shape[0], plural(shape[0]));
	for (int i = 1; i < n; i++)
		plainf("%s%lld", i > 1 ? " x " : "", (long long)shape[i]);
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
	       (long long)group->page_bytes, (long long)f->block_bytes,
	       (long long)group->page_offset);
}

static void print_window(const struct kvt_group *group)
{
	if (group->window) {
		print_label(group->kind == KVT_CHUNKED_LOCAL ? "chunk" : "window");
		plainf("%lld token%s", (long long)group->window, plural(group->window));
		if (group->retained)
			plainf(", and %lld retained tokens",
			       (long long)group->retained);
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
	plainf("%lld", (long long)nblocks);
	if (group->block_size)
		plainf(" of %lld token%s", (long long)group->block_size,
		       plural(group->block_size));
	if (f->kernel_block)
		plainf(", each %lld kernel blocks of %lld",
		       (long long)(group->block_size / f->kernel_block),
		       (long long)f->kernel_block);
	if (f->blocks_used >= 0)
		plainf(": %lld in use (%lld shared), %lld unused",
		       (long long)f->blocks_used, (long long)f->blocks_shared,
		       (long long)f->blocks_unused);
	if (null_block >= 0)
		plainf(", block %llu null",
		       (unsigned long long)kvt_block_id(group, null_block));
	putchar('\n');
	describe_pool_bar(f, null_block >= 0);
	if (f->valid_slots >= 0) {
		int64_t slots = nblocks * group->shape.n[KVT_AXIS_S];

		print_label("valid");
		plainf("%lld of %lld slot%s\n", (long long)f->valid_slots,
		       (long long)slots, plural(slots));
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
		plainf("%s: %lld from %lld", c->name, (long long)c->length,
		       (long long)c->start);
		if (c->global_start != c->start)
			plainf(", %lld in the model", (long long)c->global_start);
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
		plainf("%s%c %lld", a ? " x " : "", kvt_axis_letter(a),
		       (long long)t->n[a]);
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
			plainf("%lld ", (long long)group->layer_ids[l]);
		plainf("%s\n", group->layer_names[l]);
	}
}

static void print_verified(const struct kvt_group_facts *f)
{
	const struct kvt_integrity *v = f->integrity;

	print_label("verified");
	if (v->tiles)
		plainf("%lld tile%s, %lld damaged", (long long)v->tiles,
		       plural(v->tiles), (long long)v->damaged);
	else if (f->checksum)
		plainf("read in full, %lld block%s damaged", (long long)v->damaged,
		       plural(v->damaged));
	else
		plainf("read in full; it has no checksums");
	if (f->has_cells)
		plainf("%s %lld content cells, %lld differ",
		       v->tiles || f->checksum ? ";" : ", but",
		       (long long)v->cells, (long long)v->differing);
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
		plainf("%s%lld", !l ? "" : row ? " to " : ", ",
		       (long long)group->layer_ids[l]);
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
		       (long long)(only->first_token + only->ntokens - 1), only->id);
	else
		plainf("after the last token of each request");
	plainf("; nothing earlier can be restored from it\n");
}

static void print_group(const struct kvt_group_facts *f, const struct kvt_description *d,
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

/* ---- the whole file ----------------------------------------------------- */

static void print_table(const struct kvt_group *group, const uint32_t *blocks, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		if (i % 12 == 0 && i)
			plainf("\n%*s", 14, "");
		plainf("%s%llu", i % 12 ? " " : "",
		       (unsigned long long)kvt_block_id(group, blocks[i]));
	}
	putchar('\n');
}

/* Blocks of each group; once, where all have as many. */
static void say_counts(FILE *out, const struct kvt_request *q, int ngroups)
{
	bool same = true;

	for (int g = 1; g < ngroups; g++)
		same &= q->nblocks[g] == q->nblocks[0];
	for (int g = 0; g < (same ? 1 : ngroups); g++)
		fplainf(out, "%s%lld", g ? ", " : "", (long long)q->nblocks[g]);
	fplainf(out, " block%s%s", plural(same ? q->nblocks[0] : 2),
		q->ntokens ? "" : ": it is empty");
}

/* "A: 421 tokens in 27 blocks", to be freed; NULL: out of memory */
static char *request_words(const struct kvt_snapshot *s, const struct kvt_request *q)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	fplainf(out, "%s: %lld token%s", q->id ? q->id : "?", (long long)q->ntokens,
		plural(q->ntokens));
	if (q->first_token)
		fplainf(out, " from token %lld on", (long long)q->first_token);
	fputs(" in ", out);
	say_counts(out, q, s->ngroups);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

enum { MOST_HOLES = 8 };			/* of a group in one line */

/* Positions without a slot, a line a group. */
static void print_holes(const struct kvt_snapshot *s, const struct kvt_request *q)
{
	for (int64_t i = 0, n = 0; i < q->nholes; i++) {
		const struct kvt_hole *h = &q->hole[i];

		n = i && h[-1].group == h->group ? n + 1 : 0;
		if (i && !n)
			putchar('\n');
		if (!n) {
			plainf("%*s", 14, "");
			screen_paint(SCREEN_MISSING);
			plainf("%lld missing",
			       (long long)kvt_request_missing(q, (int)h->group));
			screen_plain();
			plainf(" in %s: tokens", s->group[h->group].id);
		}
		if (n < MOST_HOLES)
			plainf("%s%lld to %lld", n ? ", " : " ", (long long)h->begin,
			       (long long)h->end - 1);
		else if (n == MOST_HOLES)
			plainf(", ...");
	}
	if (q->nholes)
		putchar('\n');
}

/* What the bars of requests have in common. */
struct bars {
	int column;			/* behind the longest text */
	int64_t most;			/* tokens; 0: there are no bars */
};

static struct bars measure_requests(const struct kvt_snapshot *s)
{
	struct bars bars = { 0, 0 };

	for (int64_t r = 0; r < s->nrequests && s->nrequests > 1 && screen_width(); r++) {
		const struct kvt_request *q = &s->request[r];
		char *words = request_words(s, q);
		int n = words ? (int)strlen(words) : 0;

		bars.column = n > bars.column ? n : bars.column;
		bars.most = q->ntokens > bars.most ? q->ntokens : bars.most;
		free(words);
	}
	return bars;
}

static void print_requests(const struct kvt_snapshot *s, bool tables)
{
	struct bars bars = measure_requests(s);

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];
		char *words = request_words(s, q);

		print_label(r ? "" : "requests");
		screen_put(words ? words : "(no memory for this text)");
		if (words)
			describe_request_bar(q->ntokens, bars.most, (int)strlen(words),
					     bars.column);
		putchar('\n');
		free(words);
		print_holes(s, q);
		for (int g = 0; tables && g < s->ngroups; g++)
			if (q->blocks[g]) {
				plainf("%*s", 14, "");
				print_table(&s->group[g], q->blocks[g], q->nblocks[g]);
			}
	}
}

/* What is there of prompts, in files that are named by hashes. */
static void print_sought(const struct kvt_dump *dump)
{
	const struct kvt_sought *q = kvt_dump_sought(dump, 0);
	bool groups = kvt_dump_snapshot(dump)->ngroups > 1;

	if (!q)
		return;
	print_label("names");
	plainf("%s; each of %lld tokens\n", kvt_dump_named_by(dump), (long long)q->each);
	for (int64_t i = 0; (q = kvt_dump_sought(dump, i)); i++) {
		print_label(i ? "" : "prompts");
		plainf("%s%s%s: %s\n", q->prompt, groups && q->group[0] ? ", " : "",
		       groups ? q->group : "", kvt_sought_text(q).s);
	}
}

static void print_parallel(const struct kvt_parallel *p)
{
	const struct {
		const char *name;
		int64_t size, rank;
	} all[] = {
		{ "tp", p->tp_size, p->tp_rank }, { "pp", p->pp_size, p->pp_rank },
		{ "dp", p->dp_size, p->dp_rank }, { "dcp", p->dcp_size, p->dcp_rank },
	};
	int printed = 0;

	print_label("rank");
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].size > 1 || i == 0)
			plainf("%s%s %lld of %lld", printed++ ? ", " : "",
			       all[i].name, (long long)all[i].rank,
			       (long long)all[i].size);
	putchar('\n');
}

/* And the data, where it was the manifest that was named. */
static void print_manifest(const struct kvt_description *d)
{
	static const char *const proofs[] = {
		[KVT_PROOF_NONE] = "does not prove that it belongs to the data",
		[KVT_PROOF_SIZE] = "matches the size of the file",
		[KVT_PROOF_SAMPLES] = "matches size and checksum of the file",
		[KVT_PROOF_FAILED] = "of other data, used because of --trust-manifest",
	};
	const char *path = kvt_dump_manifest(d->dump);

	if (!path)
		return;
	if (labels_facts_alone()) {
		print_label("manifest");
		plainf("%s\n", proofs[kvt_dump_proof(d->dump)]);
		return;
	}
	if (!strcmp(path, d->path)) {
		print_label("data");
		plainf("%s\n", kvt_dump_path(d->dump));
	}
	print_label("manifest");
	plainf("%s: %s\n", path, proofs[kvt_dump_proof(d->dump)]);
}

/* Last, where it is seen: what all of the above rests on. */
static void print_unproven(const struct kvt_dump *dump)
{
	const char *const lines[] = {
		kvt_dump_unlisted(dump) ? KVT_UNLISTED : NULL, kvt_dump_unnoticed(dump),
	};

	if (lines[0] || lines[1])
		putchar('\n');
	for (int i = 0; i < 2; i++)
		if (lines[i]) {
			print_label("unproven");
			plainf("%s\n", lines[i]);
		}
}

static bool is_compressed(const struct kvt_description *d)
{
	for (int g = 0; g < d->snapshot->ngroups; g++)
		if (d->group[g].tiling && d->group[g].tiling->zstd)
			return true;
	return false;
}

static void print_file(const struct kvt_description *d)
{
	bool compressed = is_compressed(d);

	plainf("%s", kvt_dump_format(d->dump));
	/* what is added to the data, headers and manifests, is nothing to compare */
	if (compressed || !labels_facts_alone())
		plainf(", %s", kvt_size_string(d->file_bytes).s);
	if (compressed)
		plainf(", ratio %.2f", kvt_compression_ratio(d));
	putchar('\n');
}

/* Where it is from. */
static void print_origin(const struct kvt_description *d)
{
	const struct kvt_snapshot *s = d->snapshot;

	print_manifest(d);
	if (s->model) {
		print_label("model");
		plainf("%s\n", s->model);
	}
	if (kvt_dump_written_by(d->dump)) {
		print_label("writer");
		plainf("%s\n", kvt_dump_written_by(d->dump));
	}
	if (kvt_dump_decoded(d->dump)) {
		print_label("decoded");
		plainf("from %s, as their library does; digests are of the numbers\n",
		       kvt_dump_decoded(d->dump));
	} else if (s->source_format &&
		   strcmp(s->source_format, kvt_dump_format(d->dump))) {
		print_label("made from");
		plainf("%s\n", s->source_format);
	}
}

static void print_groups(const struct kvt_description *d,
			 const struct describe_options *options)
{
	const struct kvt_snapshot *s = d->snapshot;

	if (!s->ngroups) {
		print_label("holds");
		plainf("nothing: no request has a token\n");
	}
	for (int g = 0; g < s->ngroups; g++)
		print_group(&d->group[g], d, options);
}

void describe_text(const struct kvt_description *d,
		   const struct describe_options *options)
{
	const struct kvt_snapshot *s = d->snapshot;

	screen_fold_begin(4);
	screen_paint(SCREEN_NAME);
	plainf("%s", d->path);
	screen_plain();
	plainf(": ");
	print_file(d);
	describe_sentence(stdout, d);
	screen_fold_end();
	screen_fold_begin(12);
	print_origin(d);
	if (s->has_parallel)
		print_parallel(&s->parallel);
	print_requests(s, options->tables);
	describe_saved_text(d, options->ids);
	print_sought(d->dump);
	print_groups(d, options);
	if (d->canonical)
		canonical_text(d->canonical);
	if (d->peeks)
		peeks_text(d->peeks);
	print_unproven(d->dump);
	describe_outlook(d, options->hints);
	screen_fold_end();
}

/* ---- the same for comparison ------------------------------------------------ */

enum { MOST_NAMES = 4 };		/* of requests */

/* "3, 689 tokens (A, B, C)" */
static void print_request_names(const struct kvt_snapshot *s)
{
	int64_t tokens = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		tokens += s->request[r].ntokens;
	print_label("requests");
	plainf("%lld, %lld token%s", (long long)s->nrequests, (long long)tokens,
	       plural(tokens));
	for (int64_t r = 0; r < s->nrequests && s->nrequests <= MOST_NAMES; r++)
		plainf("%s%s", r ? ", " : ": ",
		       s->request[r].id ? s->request[r].id : "?");
	putchar('\n');
}

void describe_facts(const struct kvt_description *d)
{
	const struct describe_options nothing = { .names = false };
	const struct kvt_snapshot *s = d->snapshot;

	labels_are_facts(true);
	print_label("file");
	print_file(d);
	print_origin(d);
	if (s->has_parallel)
		print_parallel(&s->parallel);
	print_request_names(s);
	print_groups(d, &nothing);
	print_unproven(d->dump);
	labels_are_facts(false);
}
