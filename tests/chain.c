/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - makes dumps of dumps as it is told, for oracle_chains.py
 *
 * One command a line on stdin, fields separated by tabs; dumps are known by numbers
 * that the caller chooses.  Each is answered by a line of a status and a message; 0 is
 * followed by what was asked for, if anything: a line that says how many bytes, then
 * these.  Bytes for memory() and replace() follow their command in the same way.
 *
 *	open N PATH KEY=VALUE...	memory N LIKE NBYTES	constant N LIKE FILL
 *	slice N M KEY=VALUE...		merge N M...
 *	reblock N M SIZE COMPACT STALE	graft N BASE DONOR GROUP:FROM:SPANS:GIVEN...
 *	replace N M GROUP LAYOUT NBYTES	select N M GROUP LAYERS BLOCKS HEADS KV CHANNELS
 *	facts N		data N		digests N	box N GROUP BEGIN-END*6 LAYOUT
 *	tiles N FLIP	cells N GROUP	spoil N FIELD	close N		end
 *
 * A dump that is closed may still be part of others.  Buffers of memory() and
 * replace() live until 'end'.
 */
#include "lib/dump/map.h"
#include "lib/kvt/connect.h"
#include "lib/kvt/derive.h"
#include "lib/ops/digest/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DUMPS = 1 << 14, MAX_FIELDS = 4096, MAX_BUFFERS = 1 << 12 };

static struct kvt_dump *dumps[MAX_DUMPS];
static void *buffers[MAX_BUFFERS];
static int nbuffers;

static char *field[MAX_FIELDS];
static int nfields;

/* ---- talking ------------------------------------------------------------- */

static void die(const char *why)
{
	fprintf(stderr, "chain: %s: %s\n", field[0] ? field[0] : "", why);
	exit(99);
}

static void *must(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

static int64_t number(int i)
{
	char *end;
	long long n;

	if (i >= nfields)
		die("too few fields");
	n = strtoll(field[i], &end, 10);
	if (*end || end == field[i])
		die(field[i]);
	return n;
}

static struct kvt_dump **slot(int i)
{
	int64_t n = number(i);

	if (n < 0 || n >= MAX_DUMPS)
		die("no such number");
	return &dumps[n];
}

/* Where a new one goes. */
static struct kvt_dump **free_slot(int i)
{
	if (*slot(i))
		die("this number is taken");
	return slot(i);
}

static struct kvt_dump *dump_at(int i)
{
	return must(*slot(i));
}

static void answer(enum kvt_status status, const struct kvt_error *err)
{
	printf("%d %s\n", status, status ? err->text : "");
}

static void answer_bytes(const void *bytes, int64_t nbytes)
{
	printf("%" PRId64 "\n", nbytes);
	fwrite(bytes, 1, (size_t)nbytes, stdout);
}

/* What follows a command; lives until 'end'. */
static void *take_bytes(int64_t nbytes)
{
	void *bytes = must(malloc((size_t)nbytes + 1));

	if (fread(bytes, 1, (size_t)nbytes, stdin) != (size_t)nbytes ||
	    nbuffers == MAX_BUFFERS)
		die("no bytes");
	buffers[nbuffers++] = bytes;
	return bytes;
}

/* "NAME=..." with this name: its value, else NULL. */
static char *value_of(char *text, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(text, name, n) && text[n] == '=' ? text + n + 1 : NULL;
}

/* "0,4:8": numbers and ranges; *out must be freed. */
static int take_ranges(struct kvt_range **out, const char *text)
{
	int n = 0;

	*out = must(calloc(strlen(text) + 1, sizeof(**out)));
	for (char *end; *text; text = *end ? end + 1 : end) {
		struct kvt_range *r = &(*out)[n++];

		r->begin = strtoll(text, &end, 10);
		r->end = r->begin + 1;
		if (*end == ':')
			r->end = strtoll(end + 1, &end, 10);
	}
	return n;
}

/* ---- leaves -------------------------------------------------------------- */

static enum kvt_status do_open(struct kvt_error *err)
{
	struct kvt_hints hints = { 0 };
	const struct {
		const char *name;
		const char **text;
		int64_t *number;
	} rows[] = {
		{ "layout", &hints.layout, NULL }, { "dtype", &hints.dtype, NULL },
		{ "layers", NULL, &hints.layers }, { "blocks", NULL, &hints.blocks },
		{ "block-size", NULL, &hints.block_size },
		{ "heads", NULL, &hints.heads }, { "head-dim", NULL, &hints.head_dim },
		{ "set", &hints.facts.s[0], NULL },
	};

	for (int i = 3; i < nfields; i++)
		for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
			char *value = value_of(field[i], rows[r].name);

			if (value && rows[r].text)
				*rows[r].text = value;
			else if (value)
				*rows[r].number = strtoll(value, NULL, 10);
		}
	hints.facts.n = hints.facts.s[0] != NULL;
	return kvt_open(free_slot(1), field[2], &hints, err);
}

static enum kvt_status do_memory(struct kvt_error *err)
{
	const struct kvt_snapshot *info = kvt_dump_snapshot(dump_at(2));
	uint8_t *bytes = take_bytes(number(3));
	const void *group[KVT_MAX_GROUPS];

	for (int g = 0; g < info->ngroups; g++) {
		int64_t nbytes;

		group[g] = bytes;
		if (kvt_shape_nbytes(&nbytes, &info->group[g].shape, err))
			die(err->text);
		bytes += nbytes;
	}
	return kvt_dump_of_memory(free_slot(1), info, group, err);
}

/* ---- derived dumps ------------------------------------------------------- */

static enum kvt_status do_slice(struct kvt_error *err)
{
	struct kvt_slice_options o = { 0 };
	struct {
		const char *name;
		struct kvt_ranges *ranges;
		struct kvt_range *list;
	} rows[] = {
		{ "layers", &o.layers, NULL }, { "blocks", &o.blocks, NULL },
		{ "heads", &o.heads, NULL }, { "tokens", &o.tokens, NULL },
	};
	enum { NROWS = sizeof(rows) / sizeof(rows[0]) };
	const char *requests[256], *components[16];
	enum kvt_status status;

	o.requests.s = requests;
	o.components.s = components;
	for (int i = 3; i < nfields; i++) {
		char *value;

		for (int r = 0; r < NROWS; r++)
			if ((value = value_of(field[i], rows[r].name))) {
				rows[r].ranges->n = take_ranges(&rows[r].list, value);
				rows[r].ranges->range = rows[r].list;
			}
		if ((value = value_of(field[i], "request")))
			requests[o.requests.n++] = value;
		if ((value = value_of(field[i], "component")))
			components[o.components.n++] = value;
		if ((value = value_of(field[i], "tp")))
			sscanf(value, "%" SCNd64 ",%" SCNd64, &o.rank.size,
			       &o.rank.index);
		if ((value = value_of(field[i], "to")))
			sscanf(value, "%" SCNd64 ",%" SCNd64, &o.to.size, &o.to.index);
		if ((value = value_of(field[i], "groups")))
			o.mamba_groups = strtoll(value, NULL, 10);
	}
	status = kvt_dump_slice(free_slot(1), dump_at(2), &o, err);
	for (int r = 0; r < NROWS; r++)
		free(rows[r].list);
	return status;
}

static enum kvt_status do_merge(struct kvt_error *err)
{
	const struct kvt_dump *list[64];
	const char *names[64];
	int n = 0;

	for (int i = 2; i < nfields; i++) {
		list[n] = dump_at(i);
		names[n++] = field[i];
	}
	return kvt_dump_merge(free_slot(1), list, names, n, err);
}

static enum kvt_status do_reblock(struct kvt_error *err)
{
	struct kvt_reblocked said[KVT_MAX_GROUPS];
	struct kvt_reblock_options o = {
		.block_size = number(3), .compact = number(4),
		.stale = !strcmp(field[5], "keep") ? KVT_STALE_KEEP :
			 !strcmp(field[5], "zero") ? KVT_STALE_ZERO : KVT_STALE_DEFAULT,
	};

	return kvt_dump_reblock(free_slot(1), said, dump_at(2), &o, err);
}

/* N numbers with dots between them; moves *p past them and a comma. */
static void take_numbers(int64_t *v, int n, char **p)
{
	for (int i = 0; i < n; i++) {
		v[i] = strtoll(*p, p, 10);
		*p += **p == '.' || **p == ',';
	}
}

/* "H0.2.1,...": an axis, and SRC.DST.COUNT along it; "": all. */
static const struct kvt_exchange *take_given(struct kvt_exchange *out, char *p)
{
	*out = (struct kvt_exchange){ .axis = *p == 'D' ? KVT_AXIS_D : KVT_AXIS_H };
	if (!*p++)
		return NULL;
	while (*p && out->count < KVT_MAX_SPEC_PARTS) {
		int64_t v[3];

		take_numbers(v, 3, &p);
		out->range[out->count++] = (struct kvt_exchange_range){ "", v[0], v[1],
									v[2] };
	}
	return out;
}

/* GROUP:FROM:SRC_BLOCK.SRC_SLOT.DST_BLOCK.DST_SLOT.COUNT,...:GIVEN */
static enum kvt_status do_graft(struct kvt_error *err)
{
	struct kvt_graft graft[KVT_MAX_GROUPS] = { { 0 } };
	struct kvt_block_span *spans[KVT_MAX_GROUPS] = { NULL };
	struct kvt_exchange given[KVT_MAX_GROUPS];
	enum kvt_status status;

	for (int i = 4; i < nfields; i++) {
		char *p = field[i];
		long g = strtol(p, &p, 10);

		if (g < 0 || g >= KVT_MAX_GROUPS || *p++ != ':')
			die(field[i]);
		graft[g].from = (int)strtol(p, &p, 10);
		spans[g] = must(calloc(strlen(p) + 1, sizeof(*spans[g])));
		for (p++; *p != ':'; ) {
			int64_t v[5];

			take_numbers(v, 5, &p);
			spans[g][graft[g].nspans++] = (struct kvt_block_span){
				v[0], v[1], v[2], v[3], v[4], 0,
			};
		}
		graft[g].span = spans[g];
		graft[g].given = take_given(&given[g], p + 1);
	}
	status = kvt_dump_graft(free_slot(1), dump_at(2), dump_at(3), graft, err);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(spans[g]);
	return status;
}

static enum kvt_status do_replace(struct kvt_error *err)
{
	void *bytes = take_bytes(number(5));
	struct kvt_layout layout;

	if (kvt_layout_parse(&layout, field[4], err))
		die(err->text);
	return kvt_dump_replace(free_slot(1), dump_at(2), (int)number(3), &layout, bytes,
				err);
}

/* A list of indices, which must be freed. */
static int64_t *take_list(int64_t *n, int i)
{
	struct kvt_range *range;
	int count = take_ranges(&range, field[i]);
	int64_t *list = must(calloc((size_t)count + 1, sizeof(*list)));

	for (*n = 0; *n < count; ++*n)
		list[*n] = range[*n].begin;
	free(range);
	return list;
}

/* "FROM.COUNT,...", which stand one after the other. */
static int take_segments(struct kvt_segment *out, int room, int i)
{
	int64_t at = 0;
	int n = 0;

	for (char *p = field[i]; *p && n < room; n++) {
		int64_t v[2];

		take_numbers(v, 2, &p);
		out[n] = (struct kvt_segment){ at, v[0], v[1] };
		at += v[1];
	}
	return n;
}

static enum kvt_status do_select(struct kvt_error *err)
{
	struct kvt_segment channels[KVT_MAX_COMPONENTS];
	struct kvt_select s = { .group = (int)number(3), .channel = channels };
	int64_t *layer = take_list(&s.nlayers, 4), *block = take_list(&s.nblocks, 5);
	enum kvt_status status;

	s.layer = layer;
	s.block = block;
	take_segments(&s.heads, 1, 6);
	take_segments(&s.kv, 1, 7);
	s.nchannels = take_segments(channels, KVT_MAX_COMPONENTS, 8);
	status = kvt_dump_select(free_slot(1), dump_at(2), &s, err);
	free(layer);
	free(block);
	return status;
}

/* ---- what a dump says ------------------------------------------------------ */

static void put_text(FILE *f, const char *s)
{
	putc('"', f);
	for (; s && *s; s++)
		if ((unsigned char)*s < ' ' || *s == '"' || *s == '\\')
			fprintf(f, "\\u%04x", (unsigned char)*s);
		else
			putc(*s, f);
	putc('"', f);
}

#define PUT_LIST(f, list, n) do { \
	fputs((list) ? "[" : "null", f); \
	for (int64_t put_i = 0; (list) && put_i < (n); put_i++) \
		fprintf(f, "%s%lld", put_i ? "," : "", (long long)(list)[put_i]); \
	fputs((list) ? "]" : "", f); \
} while (0)

static void put_group(FILE *f, const struct kvt_snapshot *snap, int i)
{
	const struct kvt_group *g = &snap->group[i];
	const int64_t *n = g->shape.n;

	fprintf(f, "%s{\"id\":", i ? "," : "");
	put_text(f, g->id);
	fprintf(f, ",\"kind\":\"%s\",\"elem\":%lld,\"layout\":\"%s\",\"shape\":",
		kvt_kind_name(g->kind), (long long)g->shape.elem,
		kvt_layout_string(&g->layout).s);
	PUT_LIST(f, n, KVT_NAXES);
	fputs(",\"layer_ids\":", f);
	PUT_LIST(f, g->layer_ids, n[KVT_AXIS_L]);
	fputs(",\"block_ids\":", f);
	PUT_LIST(f, g->block_ids, n[KVT_AXIS_B]);
	fputs(",\"block_valid\":", f);
	PUT_LIST(f, g->block_valid, n[KVT_AXIS_B]);
	fputs(",\"layer_names\":[", f);
	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++) {
		fputs(l ? "," : "", f);
		put_text(f, g->layer_names ? g->layer_names[l] : "");
	}
	fprintf(f, "],\"head_start\":%lld,\"total_heads\":%lld,\"replication\":%lld,"
		"\"block_size\":%lld,\"tokens_per_slot\":%lld,\"window\":%lld,"
		"\"retained\":%lld,\"null\":%lld,\"components\":[",
		(long long)g->head_start, (long long)g->total_heads,
		(long long)g->replication, (long long)g->block_size,
		(long long)g->tokens_per_slot, (long long)g->window,
		(long long)g->retained, (long long)kvt_null_block(snap, i));
	for (int c = 0; c < g->ncomponents; c++) {
		const struct kvt_component *part = &g->component[c];

		fputs(c ? ",[" : "[", f);
		put_text(f, part->name);
		fprintf(f, ",%lld,%lld,%lld]", (long long)part->start,
			(long long)part->length, (long long)part->global_start);
	}
	fputs("]}", f);
}

static void put_request(FILE *f, const struct kvt_snapshot *snap, int64_t i)
{
	const struct kvt_request *r = &snap->request[i];

	fprintf(f, "%s{\"id\":", i ? "," : "");
	put_text(f, r->id);
	fprintf(f, ",\"tokens\":%lld,\"first\":%lld,\"prompt\":%lld,\"blocks\":[",
		(long long)r->ntokens, (long long)r->first_token,
		(long long)r->prompt_tokens);
	for (int g = 0; g < snap->ngroups; g++) {
		const uint32_t none[1] = { 0 };
		const uint32_t *blocks = r->blocks[g] ? r->blocks[g] : none;

		fputs(g ? "," : "", f);
		PUT_LIST(f, blocks, r->nblocks[g]);
	}
	fputs("],\"holes\":[", f);
	for (int64_t h = 0; h < r->nholes; h++)
		fprintf(f, "%s[%lld,%lld,%lld]", h ? "," : "",
			(long long)r->hole[h].group,
			(long long)r->hole[h].begin, (long long)r->hole[h].end);
	fputs("]}", f);
}

static void do_facts(void)
{
	const struct kvt_snapshot *snap = kvt_dump_snapshot(dump_at(1));
	char *text;
	size_t n;
	FILE *f = must(open_memstream(&text, &n));

	fprintf(f, "{\"tp\":[%lld,%lld],\"groups\":[", (long long)snap->parallel.tp_size,
		(long long)snap->parallel.tp_rank);
	for (int g = 0; g < snap->ngroups; g++)
		put_group(f, snap, g);
	fputs("],\"requests\":[", f);
	for (int64_t r = 0; r < snap->nrequests; r++)
		put_request(f, snap, r);
	fputs("]}", f);
	fclose(f);
	puts("0 ");
	answer_bytes(text, (int64_t)n);
	free(text);
}

/* ---- what it holds --------------------------------------------------------- */

static const struct kvt_layout canonical = {
	.nplanes = 1,
	.plane = { { .nparts = 6, .part = {
		{ KVT_AXIS_L, KVT_WHOLE, 0 }, { KVT_AXIS_B, KVT_WHOLE, 0 },
		{ KVT_AXIS_S, KVT_WHOLE, 0 }, { KVT_AXIS_H, KVT_WHOLE, 0 },
		{ KVT_AXIS_K, KVT_WHOLE, 0 }, { KVT_AXIS_D, KVT_WHOLE, 0 },
	} } },
};

static void read_and_answer(const struct kvt_dump *dump, int g, const struct kvt_box *box,
			    const struct kvt_layout *layout)
{
	struct kvt_shape shape = kvt_box_shape(box, kvt_dump_group(dump, g)->shape.elem);
	struct kvt_error err = { "" };
	enum kvt_status status;
	int64_t nbytes;
	uint8_t *bytes;

	if (kvt_shape_nbytes(&nbytes, &shape, &err))
		die(err.text);
	bytes = must(malloc((size_t)nbytes + 1));
	/* so that what nobody writes is seen */
	memset(bytes, 0xa5, (size_t)nbytes + 1);
	status = kvt_dump_read(dump, g, box, layout, bytes, &err);
	if (!status && bytes[nbytes] != 0xa5)
		die("written past the end of a box");
	answer(status, &err);
	if (!status)
		answer_bytes(bytes, nbytes);
	free(bytes);
}

static void do_data(void)
{
	const struct kvt_dump *dump = dump_at(1);

	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++) {
		struct kvt_box whole = kvt_box_whole(&kvt_dump_group(dump, g)->shape);

		read_and_answer(dump, g, &whole, &canonical);
	}
}

static void do_box(void)
{
	struct kvt_error err = { "" };
	struct kvt_layout layout;
	struct kvt_box box;

	for (int a = 0; a < KVT_NAXES; a++)
		if (sscanf(field[3 + a], "%" SCNd64 "-%" SCNd64, &box.begin[a],
			   &box.end[a]) != 2)
			die(field[3 + a]);
	if (kvt_layout_parse(&layout, field[3 + KVT_NAXES], &err))
		die(err.text);
	read_and_answer(dump_at(1), (int)number(2), &box, &layout);
}

static void do_digests(void)
{
	const struct kvt_run run = { .threads = 2 };
	struct kvt_error err = { "" };
	struct digests d;
	enum kvt_status status = kvt_digests_compute(&d, dump_at(1), DIGEST_NEWEST, &run,
						     &err);
	char text[160];

	if (!status) {
		snprintf(text, sizeof(text), "%s %s", d.has_tokens ?
			 kvt_digest_text(DIGEST_TOKENS, d.version,
					 &d.whole[DIGEST_TOKENS]).s :
			 "-", kvt_digest_text(DIGEST_BLOCKS, d.version,
					  &d.whole[DIGEST_BLOCKS]).s);
		puts("0 ");
		answer_bytes(text, (int64_t)strlen(text));
	} else {
		answer(status, &err);
	}
	kvt_digests_free(&d);
}

/* ---- stored tiles and cells ------------------------------------------------ */

struct tile_count {
	int64_t all, moved, wrong;
};

/* A tile that the dump says it has must decode to what it reads there. */
static void check_tile(struct tile_count *count, const struct kvt_dump *dump, int g,
		       const struct kvt_box *full, bool flip)
{
	const struct kvt_group *group = kvt_dump_group(dump, g);
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, g);
	struct kvt_box box = *full;
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };
	uint8_t *plain = must(malloc((size_t)tiling->nbytes));
	uint8_t *want = must(calloc(1, (size_t)tiling->nbytes));
	struct kvt_codec_scratch *scratch = NULL;
	struct kvt_error err = { "" };

	for (int a = 0; a < KVT_NAXES; a++)
		if (box.end[a] > group->shape.n[a])
			box.end[a] = group->shape.n[a];
	count->all++;
	stored.bytes = must(malloc((size_t)stored.capacity));
	if (kvt_dump_has_tiles(dump, g, &box)) {
		struct placed dst = { &group->layout, *full, want };
		struct placed src = { &group->layout, box,
				      must(malloc((size_t)tiling->nbytes)) };

		count->moved++;
		if (kvt_codec_scratch_new(&scratch, &err) ||
		    kvt_read_tile(dump, g, full->begin, &stored, &err) ||
		    kvt_stored_check(&stored, tiling, &err) ||
		    kvt_decode(plain, &stored, tiling, scratch, &err) ||
		    kvt_dump_read(dump, g, &box, NULL, src.bytes, &err) ||
		    copy_box(NULL, &dst, &src, &box, group->shape.elem, &err))
			die(err.text);
		plain[0] ^= flip;
		count->wrong += memcmp(plain, want, (size_t)tiling->nbytes) != 0;
		free(src.bytes);
	}
	kvt_codec_scratch_free(scratch);
	free(stored.bytes);
	free(plain);
	free(want);
}

static void check_tiles(struct tile_count *count, const struct kvt_dump *dump, int g,
			bool flip)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(dump, g);
	const int64_t *n = kvt_dump_group(dump, g)->shape.n;
	struct kvt_box full = { .end = { 0 } };
	int a = 0;

	while (a >= 0) {
		for (a = 0; a < KVT_NAXES; a++)
			full.end[a] = full.begin[a] + tiling->n[a];
		check_tile(count, dump, g, &full, flip);
		for (a = KVT_NAXES - 1; a >= 0; a--) {
			full.begin[a] += tiling->n[a];
			if (full.begin[a] < n[a])
				break;
			full.begin[a] = 0;
		}
	}
}

static void do_tiles(void)
{
	const struct kvt_dump *dump = dump_at(1);
	struct tile_count count = { 0 };
	char text[80];

	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++)
		if (kvt_dump_tiling(dump, g))
			check_tiles(&count, dump, g, number(2));
	snprintf(text, sizeof(text), "%lld %lld %lld", (long long)count.all,
		 (long long)count.moved, (long long)count.wrong);
	puts("0 ");
	answer_bytes(text, (int64_t)strlen(text));
}

/* One XXH64 per (layer, block, head, kv); of no bytes if the dump has none. */
static void do_cells(void)
{
	const struct kvt_dump *dump = dump_at(1);
	int g = (int)number(2);
	const struct kvt_group *group = kvt_dump_group(dump, g);
	struct kvt_box whole = kvt_box_whole(&group->shape);
	const int64_t *n = group->shape.n;
	int64_t count = n[KVT_AXIS_L] * n[KVT_AXIS_B] * n[KVT_AXIS_H] * n[KVT_AXIS_K];
	uint64_t *cells = must(calloc((size_t)count + 1, sizeof(*cells)));
	struct kvt_error err = { "" };
	enum kvt_status status = KVT_OK;

	if (!kvt_dump_has_cells(dump, g))
		count = 0;
	else
		status = kvt_read_cells(dump, g, &whole, cells, &err);
	answer(status, &err);
	if (!status)
		answer_bytes(cells, count * (int64_t)sizeof(*cells));
	free(cells);
}

/* ---- a fault --------------------------------------------------------------- */

/*
 * Makes the map of a dump wrong: so the test sees that it would see a map that is.
 * Answers KVT_MISMATCH where there is nothing of the kind.
 */
static void do_spoil(void)
{
	struct kvt_dump *dump = dump_at(1);
	const char *what = field[2];
	bool done = false;

	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups && !done; g++) {
		struct map_group *map = &dump->group[g];

		for (int p = 0; p < map->nparts && !done; p++) {
			struct map_part *part = &map->part[p];
			struct map_list *list = !strcmp(what, "layers") ? part->layers :
						!strcmp(what, "blocks") ? part->blocks :
						NULL;

			if (list && list->n > 1 && list->at[0] != list->at[1]) {
				list->at[0] = list->at[1];
				done = true;
			} else if (!strcmp(what, "spans") && part->spans &&
				   part->spans->first[part->spans->nblocks] > 1) {
				struct map_span *span = part->spans->span;

				done = span[0].block != span[1].block;
				span[0].block = span[1].block;
			} else if (!strcmp(what, "heads") && part->heads.from > 0) {
				part->heads.from--;
				done = true;
			} else if (!strcmp(what, "kv") && part->kv.count == 1 &&
				   part->kv.from > 0) {
				part->kv.from--;
				done = true;
			}
		}
	}
	printf("%d \n", done ? KVT_OK : KVT_MISMATCH);
}

/* ---- commands -------------------------------------------------------------- */

static enum kvt_status do_constant(struct kvt_error *err)
{
	return kvt_dump_of_constant(free_slot(1), kvt_dump_snapshot(dump_at(2)),
				    (uint8_t)number(3), err);
}

static void do_close(void)
{
	kvt_dump_close(*slot(1));
	*slot(1) = NULL;
	puts("0 ");
}

static void do_end(void)
{
	while (nbuffers)
		free(buffers[--nbuffers]);
	puts("0 ");
}

static const struct {
	const char *name;
	enum kvt_status (*make)(struct kvt_error *err);
	void (*tell)(void);
} commands[] = {
	{ "open", do_open, NULL }, { "memory", do_memory, NULL },
	{ "constant", do_constant, NULL }, { "slice", do_slice, NULL },
	{ "merge", do_merge, NULL }, { "reblock", do_reblock, NULL },
	{ "graft", do_graft, NULL }, { "replace", do_replace, NULL },
	{ "select", do_select, NULL }, { "facts", NULL, do_facts },
	{ "data", NULL, do_data }, { "digests", NULL, do_digests },
	{ "box", NULL, do_box }, { "tiles", NULL, do_tiles },
	{ "cells", NULL, do_cells }, { "spoil", NULL, do_spoil },
	{ "close", NULL, do_close }, { "end", NULL, do_end },
};

static void obey(void)
{
	struct kvt_error err = { "" };

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, field[0]))
			continue;
		if (commands[i].make)
			answer(commands[i].make(&err), &err);
		else
			commands[i].tell();
		return;
	}
	die("no such command");
}

int main(void)
{
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, stdin) > 0) {
		line[strcspn(line, "\n")] = '\0';
		nfields = 0;
		for (char *p = line; p && nfields < MAX_FIELDS; nfields++) {
			field[nfields] = p;
			if ((p = strchr(p, '\t')))
				*p++ = '\0';
		}
		obey();
		fflush(stdout);
	}
	free(line);
	for (int i = 0; i < MAX_DUMPS; i++)
		kvt_dump_close(dumps[i]);
	do_end();
	return 0;
}
