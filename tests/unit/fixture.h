/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fixture.h - dumps that are made by hand, and the folders and files they are in
 *
 * A snapshot is made field by field; its elements follow from where they are:
 *
 *	hashed		a hash of the indices (tests/sample.h): any byte of any layout
 *			can be checked wherever it turns up
 *	placed		a number made of layer, block, slot, head, kv and channel, as the
 *			model and the engine's pool number them, and of whose dump it is
 *			('who'); so what was derived is right if each element says what
 *			the tables there say of its place, which are what a test expects
 *	of the test	an element_fn of its own
 *
 * What is made here goes when the test is over (keep() of tests.h).
 */
#ifndef KVT_TESTS_UNIT_FIXTURE_H
#define KVT_TESTS_UNIT_FIXTURE_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/format.h"
#include "lib/kvt/derive.h"
#include "tests/sample.h"
#include "tests/unit/tests.h"

enum { NL = KVT_AXIS_L, NB = KVT_AXIS_B, NS = KVT_AXIS_S, NH = KVT_AXIS_H,
       NK = KVT_AXIS_K, ND = KVT_AXIS_D };

/* ---- folders and files -------------------------------------------------- */

struct path {
	char s[512];
};

static inline struct path join(const char *folder, const char *name)
{
	struct path p;

	assert_true(snprintf(p.s, sizeof(p.s), "%s/%s", folder, name) < 512);
	return p;
}

/* Makes a folder for one test; the path is stored in *state. */
static inline int make_folder(void **state)
{
	char name[TEMPORARY_NAME];

	temporary_name(name, "/tmp", "kvtool-test-XXXXXX");
	if (!mkdtemp(name))
		return -1;
	*state = strdup(name);
	return *state ? 0 : -1;
}

static inline void remove_tree(const char *path)
{
	struct dirent *entry;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		struct stat st;
		struct path p;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		p = join(path, entry->d_name);
		if (!lstat(p.s, &st) && S_ISDIR(st.st_mode))
			remove_tree(p.s);
		else
			unlink(p.s);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static inline int remove_folder(void **state)
{
	remove_tree(*state);
	free(*state);
	return 0;
}

#define IN_FOLDER(test) AROUND(test, make_folder, remove_folder)
#define NAMED_IN_FOLDER(test, sentence)							\
	NAMED_AROUND(test, make_folder, remove_folder, sentence)

static inline void drop_folder(void *folder)
{
	remove_tree(folder);
	free(folder);
}

/* For a test that is not IN_FOLDER(). */
static inline const char *new_folder(void)
{
	void *folder = NULL;

	assert_int_equal(make_folder(&folder), 0);
	return keep_by(folder, drop_folder);
}

static inline int count_entries(const char *folder)
{
	struct dirent *entry;
	DIR *dir = opendir(folder);
	int count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return count;
}

static inline void write_file(const char *path, const void *bytes, size_t nbytes)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	if (nbytes)
		assert_int_equal(fwrite(bytes, 1, nbytes, f), nbytes);
	assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

/* With a NUL behind it. */
static inline uint8_t *read_file(const char *path, size_t *nbytes)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes;
	long size;

	if (!f)
		fail_msg("%s: cannot be opened", path);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	size = ftell(f);
	rewind(f);
	bytes = room((size_t)size + 1);
	assert_int_equal(fread(bytes, 1, (size_t)size, f), size);
	bytes[size] = 0;
	fclose(f);
	*nbytes = (size_t)size;
	return bytes;
}

/* ---- snapshots ---------------------------------------------------------- */

static inline void drop_snapshot(void *s)
{
	kvt_snapshot_free(s);
	free(s);
}

static inline struct kvt_snapshot *new_snapshot(void)
{
	struct kvt_snapshot *s = keep_by(malloc(sizeof(*s)), drop_snapshot);

	kvt_snapshot_init(s);
	return s;
}

/* Elements of four bytes, a token a slot; recurrent: a slot for all tokens. */
static inline struct kvt_group *new_group(struct kvt_snapshot *s, const char *id,
					  enum kvt_kind kind, const char *layout,
					  const int64_t n[KVT_NAXES])
{
	struct kvt_group *g = &s->group[s->ngroups++];
	bool recurrent = kind == KVT_MAMBA_CONV || kind == KVT_MAMBA_SSM;

	*g = (struct kvt_group){
		.kind = kind, .dtype = kvt_dtype_find("float32"), .replication = 1,
		.block_size = recurrent ? 0 : n[NS], .total_heads = n[NH],
		.tokens_per_slot = recurrent ? -1 : 1,
	};
	strcpy(g->id, id);
	ok(kvt_layout_parse(&g->layout, layout, NULL));
	memcpy(g->shape.n, n, sizeof(g->shape.n));
	g->shape.elem = 4;
	return g;
}

/* 3 layers, 5 blocks of 16 tokens, 2 heads of 8 (or 16 latent). */
static inline struct kvt_group *small_group(struct kvt_snapshot *s, const char *id,
					    const char *layout, const char *dtype,
					    bool latent)
{
	const int64_t n[KVT_NAXES] = { 3, 5, 16, latent ? 1 : 2, latent ? 1 : 2,
				       latent ? 16 : 8 };
	struct kvt_group *g = new_group(s, id, latent ? KVT_MLA : KVT_FULL_ATTENTION,
					layout, n);

	g->dtype = kvt_dtype_find(dtype);
	g->shape.elem = g->dtype->elem;
	return g;
}

static inline struct kvt_snapshot *small_snapshot(const char *layout, const char *dtype,
						  bool latent)
{
	struct kvt_snapshot *s = new_snapshot();

	small_group(s, "g0", layout, dtype, latent);
	return s;
}

/* Full attention alone, of these extents. */
static inline struct kvt_snapshot *snapshot_of(const char *layout,
					       const int64_t n[KVT_NAXES])
{
	struct kvt_snapshot *s = new_snapshot();

	new_group(s, "g0", KVT_FULL_ATTENTION, layout, n);
	return s;
}

static inline void add_part(struct kvt_group *g, const char *name, int64_t start,
			    int64_t length, int64_t global_start)
{
	struct kvt_component *c = &g->component[g->ncomponents++];

	*c = (struct kvt_component){ .start = start, .length = length,
				     .global_start = global_start };
	strcpy(c->name, name);
}

/* A list, as functions take one: how many, and which. */
#define IDS(...) LENGTH(((const uint32_t[]){ __VA_ARGS__ })),				\
		 (const uint32_t[]){ __VA_ARGS__ }
#define IDS64(...) LENGTH(((const uint64_t[]){ __VA_ARGS__ })),				\
		   (const uint64_t[]){ __VA_ARGS__ }

/* malloc()ed, as what a snapshot frees. */
static inline void *copy_of(const void *table, size_t nbytes)
{
	void *copy = malloc(nbytes + 1);

	assert_non_null(copy);
	return memcpy(copy, table, nbytes);
}

static inline void number_layers(struct kvt_group *g, const uint32_t *ids)
{
	g->layer_ids = copy_of(ids, (size_t)g->shape.n[NL] * sizeof(*ids));
}

static inline void number_blocks(struct kvt_group *g, const uint64_t *ids)
{
	g->block_ids = copy_of(ids, (size_t)g->shape.n[NB] * sizeof(*ids));
}

/* The table of the last request in this group. */
static inline void add_table(struct kvt_snapshot *s, int group, int n,
			     const uint32_t *blocks)
{
	struct kvt_request *r = &s->request[s->nrequests - 1];

	r->nblocks[group] = n;
	r->blocks[group] = copy_of(blocks, (size_t)n * sizeof(*blocks));
}

/* A request of 'ntokens' in these blocks of group 0. */
static inline void add_request(struct kvt_snapshot *s, const char *id, int64_t ntokens,
			       int n, const uint32_t *blocks)
{
	s->request = realloc(s->request,
			     (size_t)(s->nrequests + 1) * sizeof(*s->request));
	assert_non_null(s->request);
	s->request[s->nrequests++] = (struct kvt_request){ .id = strdup(id),
							   .ntokens = ntokens };
	add_table(s, 0, n, blocks);
}

static inline void set_rank(struct kvt_snapshot *s, int64_t size, int64_t rank)
{
	s->parallel.tp_size = size;
	s->parallel.tp_rank = rank;
	s->has_parallel = true;
}

/* The second of two tensor-parallel ranks: its heads are the upper half. */
static inline void set_second_rank(struct kvt_snapshot *s)
{
	set_rank(s, 2, 1);
	for (int g = 0; g < s->ngroups; g++) {
		s->group[g].head_start = s->group[g].shape.n[NH];
		s->group[g].total_heads = 2 * s->group[g].shape.n[NH];
	}
}

/* A number that a row of a table puts into a snapshot. */
struct set {
	size_t at, size;
	int64_t value;
};

#define SET(field, value) { offsetof(struct kvt_snapshot, field),			\
			    sizeof(((struct kvt_snapshot *)0)->field), value }

/* Those up to the first that is none. */
static inline void set_numbers(struct kvt_snapshot *s, const struct set *set)
{
	for (; set->size; set++) {
		const int32_t narrow = (int32_t)set->value;
		const bool flag = set->value != 0;

		memcpy((char *)s + set->at, set->size == sizeof(int64_t) ?
		       (const void *)&set->value : set->size == sizeof(narrow) ?
		       (const void *)&narrow : &flag, set->size);
	}
}

/* ---- elements ----------------------------------------------------------- */

static inline uint8_t byte_at(const int64_t i[KVT_NAXES], int64_t byte)
{
	return (uint8_t)(sample_element(0, i) >> 8 * byte);
}

/* Next index inside a box, last axis fastest; false: was the last. */
#define next_index sample_next

/*
 * Where an element of the box is in the box's dense buffer.  The views are those of the
 * element before, in most cases: without that they were most of what a test did.
 */
static inline int64_t dense_at(const struct kvt_group *g, const struct kvt_box *box,
			       const int64_t i[KVT_NAXES])
{
	static _Thread_local struct kvt_views views;
	static _Thread_local struct kvt_layout layout;
	static _Thread_local struct kvt_box of;
	static _Thread_local int64_t elem;
	int64_t in[KVT_NAXES];
	int k = 0;

	if (elem != g->shape.elem || memcmp(&of, box, sizeof(of)) ||
	    memcmp(&layout, &g->layout, sizeof(layout))) {
		ok(kvt_layout_views(&views, &g->layout, box, g->shape.elem, NULL));
		memcpy(&of, box, sizeof(of));
		memcpy(&layout, &g->layout, sizeof(layout));
		elem = g->shape.elem;
	}
	for (int a = 0; a < KVT_NAXES; a++)
		in[a] = i[a] - box->begin[a];
	if (views.count == 2) {
		k = (int)in[NK];
		in[NK] = 0;
	}
	return kvt_view_at(&views.view[k], in);
}

static inline int64_t box_bytes(const struct kvt_group *g, const struct kvt_box *box)
{
	struct kvt_shape shape = kvt_box_shape(box, g->shape.elem);
	int64_t nbytes;

	ok(kvt_shape_nbytes(&nbytes, &shape, NULL));
	return nbytes;
}

/* Never 0, which is what reads where no leaf has data. */
static inline uint32_t place_number(int who, int64_t layer, int64_t block,
				    int64_t slot, int64_t head, int64_t kv,
				    int64_t channel)
{
	assert_true(who < 4 && layer < 16 && block < 256 && slot < 32 && head < 16 &&
		    kv < 2 && channel < 128);
	return UINT32_C(1) << 31 | (uint32_t)who << 29 | (uint32_t)layer << 25 |
	       (uint32_t)block << 17 | (uint32_t)slot << 12 | (uint32_t)head << 8 |
	       (uint32_t)kv << 7 | (uint32_t)channel;
}

/* What the group's tables say of an element. */
static inline uint32_t number_of(const struct kvt_group *g, int who,
				 const int64_t i[KVT_NAXES])
{
	int64_t kv = i[NK], channel = i[ND];

	for (int c = 0; c < g->ncomponents; c++) {
		const struct kvt_component *part = &g->component[c];

		if (g->kind != KVT_MAMBA_CONV && !strcmp(part->name, "v"))
			kv = 1;
		else if (g->kind == KVT_MAMBA_CONV && i[ND] >= part->start &&
			 i[ND] < part->start + part->length)
			channel = part->global_start + i[ND] - part->start;
	}
	return place_number(who, g->layer_ids ? g->layer_ids[i[NL]] : i[NL],
			    g->block_ids ? (int64_t)g->block_ids[i[NB]] : i[NB], i[NS],
			    g->head_start + i[NH], kv, channel);
}

/* The bytes of one element. */
typedef void element_fn(uint8_t *element, const struct kvt_snapshot *s, int g, int who,
			const int64_t i[KVT_NAXES]);

static inline void hashed(uint8_t *element, const struct kvt_snapshot *s, int g, int who,
			  const int64_t i[KVT_NAXES])
{
	const uint64_t bits = sample_element(g, i);

	(void)who;
	memcpy(element, &bits, (size_t)s->group[g].shape.elem);
}

static inline void placed(uint8_t *element, const struct kvt_snapshot *s, int g, int who,
			  const int64_t i[KVT_NAXES])
{
	const uint32_t number = number_of(&s->group[g], who, i);

	memcpy(element, &number, sizeof(number));
}

/* ---- dumps -------------------------------------------------------------- */

/* A dump in memory, and the bytes that it borrows. */
struct made {
	struct kvt_dump *dump;
	void *bytes[KVT_MAX_GROUPS];
};

static inline void drop_made(void *made)
{
	struct made *m = made;

	kvt_dump_close(m->dump);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(m->bytes[g]);
	free(m);
}

static inline struct made *make_dump(const struct kvt_snapshot *s, element_fn *element,
				     int who)
{
	const void *bytes[KVT_MAX_GROUPS] = { NULL };
	struct made *m = keep_by(calloc(1, sizeof(*m)), drop_made);

	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		struct kvt_box box = kvt_box_whole(&group->shape);
		int64_t i[KVT_NAXES] = { 0 };

		bytes[g] = m->bytes[g] = malloc((size_t)box_bytes(group, &box));
		assert_non_null(m->bytes[g]);
		do
			element((uint8_t *)m->bytes[g] + dense_at(group, &box, i), s, g,
				who, i);
		while (next_index(i, &box));
	}
	ok(kvt_dump_of_memory(&m->dump, s, bytes, &why));
	return m;
}

/* Every element is numbered as its group says. */
static inline struct kvt_dump *number_dump(const struct kvt_snapshot *s, int who)
{
	return make_dump(s, placed, who)->dump;
}

/* What a dump of make_dump() borrows. */
static inline void *bytes_of(const struct kvt_dump *dump, int g)
{
	for (int k = 0; k < nkept; k++) {
		const struct made *m = keeping[k].thing;

		if (keeping[k].drop == drop_made && m->dump == dump)
			return m->bytes[g];
	}
	fail_msg("the dump was not made here");
	return NULL;
}

static inline uint32_t *number_at(const struct kvt_dump *dump, int g,
				  const int64_t i[KVT_NAXES])
{
	const struct kvt_group *group = kvt_dump_group(dump, g);
	const struct kvt_box box = kvt_box_whole(&group->shape);

	return (uint32_t *)bytes_of(dump, g) + dense_at(group, &box, i) / 4;
}

static inline void drop_dump(void *dump)
{
	kvt_dump_close(dump);
}

static inline struct kvt_dump *keep_dump(struct kvt_dump *dump)
{
	return keep_by(dump, drop_dump);
}

static inline struct kvt_dump *open_dump(const char *path)
{
	struct kvt_dump *dump;

	ok(kvt_open(&dump, path, NULL, &why));
	return keep_dump(dump);
}

/* ---- reading ------------------------------------------------------------ */

/* Reads a box of a group and checks every element. */
static inline void check_box(struct kvt_dump *reader, int g, const struct kvt_box *box)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[g];
	int64_t nbytes = box_bytes(group, box);
	uint8_t *buf = malloc((size_t)nbytes + 1);

	assert_non_null(buf);
	memset(buf, 0xa5, (size_t)nbytes + 1);
	ok(kvt_dump_read(reader, g, box, NULL, buf, &why));
	assert_true(sample_box(buf, group, g, box, true));
	assert_int_equal(buf[nbytes], 0xa5);
	free(buf);
}

/* The whole of every group, and each (layer, block, head) by itself. */
static inline void check_dump(struct kvt_dump *reader)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(reader);

	for (int g = 0; g < s->ngroups; g++) {
		const int64_t *n = s->group[g].shape.n;
		struct kvt_box box = kvt_box_whole(&s->group[g].shape);

		check_box(reader, g, &box);
		for (int64_t l = 0; l < n[NL]; l++)
			for (int64_t b = 0; b < n[NB]; b++)
				for (int64_t h = 0; h < n[NH]; h++) {
					box.begin[NL] = l;
					box.end[NL] = l + 1;
					box.begin[NB] = b;
					box.end[NB] = b + 1;
					box.begin[NH] = h;
					box.end[NH] = h + 1;
					check_box(reader, g, &box);
				}
	}
}

/* All of a group in the order of its indices. */
static inline uint32_t *read_numbers(const struct kvt_dump *dump, int g)
{
	const struct kvt_group *group = kvt_dump_group(dump, g);
	struct kvt_box all = kvt_box_whole(&group->shape);
	int64_t nbytes = box_bytes(group, &all);
	uint32_t *numbers = room((size_t)nbytes + 1);
	struct kvt_layout order;

	ok(kvt_layout_parse(&order, "LBSHKD", NULL));
	memset(numbers, 0x5a, (size_t)nbytes);
	ok(kvt_dump_read(dump, g, &all, &order, numbers, &why));
	return numbers;
}

static inline void expect_number(uint32_t got, uint32_t want, const int64_t i[KVT_NAXES])
{
	if (got != want)
		fail_msg("l %d b %d s %d h %d k %d d %d: %08x, expected %08x",
			 (int)i[NL], (int)i[NB], (int)i[NS], (int)i[NH], (int)i[NK],
			 (int)i[ND], (unsigned)got, (unsigned)want);
}

/* Every element of a group is what an expression of its index i[] says. */
#define EXPECT_NUMBERS(dump, group, i, want) do {					\
	const struct kvt_box all_ = kvt_box_whole(&kvt_dump_group(dump, group)->shape);	\
	const uint32_t *at_ = read_numbers(dump, group);				\
	int64_t i[KVT_NAXES] = { 0 };							\
											\
	do										\
		expect_number(*at_++, want, i);						\
	while (next_index(i, &all_));							\
} while (0)

/* It is the one that the tables of its group say. */
static inline void check_places(const struct kvt_dump *dump, int who)
{
	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++)
		EXPECT_NUMBERS(dump, g, i, number_of(kvt_dump_group(dump, g), who, i));
}

/* ---- tables ------------------------------------------------------------- */

static inline void expect_shape(const struct kvt_group *g, const int64_t n[KVT_NAXES])
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (g->shape.n[a] != n[a])
			fail_msg("%s: %s extent is %d, expected %d", g->id,
				 kvt_axis_name(a), (int)g->shape.n[a], (int)n[a]);
}

static inline void expect_layers(const struct kvt_group *g, int n, const uint32_t *ids)
{
	assert_int_equal(g->shape.n[NL], n);
	for (int l = 0; l < n; l++)
		assert_int_equal(kvt_layer_id(g, l), ids[l]);
}

static inline void expect_blocks(const struct kvt_group *g, int n, const uint64_t *ids)
{
	assert_int_equal(g->shape.n[NB], n);
	for (int b = 0; b < n; b++)
		assert_int_equal(kvt_block_id(g, b), ids[b]);
}

static inline void expect_table(const struct kvt_dump *dump, int64_t r, int g, int n,
				const uint32_t *blocks)
{
	const struct kvt_request *q = &kvt_dump_snapshot(dump)->request[r];

	assert_true(r < kvt_dump_snapshot(dump)->nrequests);
	assert_int_equal(q->nblocks[g], n);
	for (int i = 0; i < n; i++)
		assert_int_equal(q->blocks[g][i], blocks[i]);
}

static inline void expect_tokens(const struct kvt_dump *dump, int64_t r, const char *id,
				 int64_t first, int64_t ntokens)
{
	const struct kvt_request *q = &kvt_dump_snapshot(dump)->request[r];

	assert_true(r < kvt_dump_snapshot(dump)->nrequests);
	assert_string_equal(q->id, id);
	assert_int_equal(q->first_token, first);
	assert_int_equal(q->ntokens, ntokens);
}

/* ---- equality of snapshots ---------------------------------------------- */

#define SAME(field) do {						\
	if ((a)->field != (b)->field)					\
		fail_msg(#field ": %lld and %lld", (long long)(a)->field, \
			 (long long)(b)->field);			\
} while (0)

static inline void same_text(const char *a, const char *b, const char *what)
{
	if (!a != !b || (a && strcmp(a, b)))
		fail_msg("%s: '%s' and '%s'", what, a ? a : "NULL", b ? b : "NULL");
}

static inline void same_bytes(const void *a, const void *b, int64_t nbytes,
			      const char *what)
{
	if (!a != !b || (a && nbytes > 0 && memcmp(a, b, (size_t)nbytes)))
		fail_msg("%s differ", what);
}

static inline void same_group(const struct kvt_group *a, const struct kvt_group *b)
{
	same_text(a->id, b->id, "id");
	SAME(kind);
	assert_ptr_equal(a->dtype, b->dtype);
	same_text(kvt_layout_string(&a->layout).s, kvt_layout_string(&b->layout).s,
		  "layout");
	assert_true(kvt_layout_equal(&a->layout, &b->layout));
	for (int i = 0; i < KVT_NAXES; i++)
		SAME(shape.n[i]);
	SAME(shape.elem);
	SAME(block_size);
	SAME(tokens_per_slot);
	SAME(total_heads);
	SAME(head_start);
	SAME(replication);
	SAME(page_bytes);
	SAME(page_offset);
	SAME(window);
	SAME(retained);
	SAME(has_null);
	if (a->has_null)
		SAME(null_block);
	assert_string_equal(a->pool, b->pool);
	SAME(ncomponents);
	for (int i = 0; i < a->ncomponents; i++) {
		same_text(a->component[i].name, b->component[i].name, "component");
		SAME(component[i].start);
		SAME(component[i].length);
		SAME(component[i].global_start);
	}
	same_bytes(a->state, b->state, sizeof(a->state), "state");
	assert_int_equal(!a->layer_names, !b->layer_names);
	for (int64_t i = 0; a->layer_names && i < a->shape.n[NL]; i++)
		same_text(a->layer_names[i], b->layer_names[i], "layer name");
	same_bytes(a->layer_ids, b->layer_ids, 4 * a->shape.n[NL], "layer ids");
	same_bytes(a->block_ids, b->block_ids, 8 * a->shape.n[NB], "block ids");
	same_bytes(a->block_valid, b->block_valid, 4 * a->shape.n[NB], "block valid");
	assert_int_equal(!a->block_names, !b->block_names);
	for (int64_t i = 0; a->block_names && i < a->shape.n[NB]; i++)
		same_text(a->block_names[i], b->block_names[i], "block name");
}

static inline void same_request(const struct kvt_request *a,
				const struct kvt_request *b)
{
	same_text(a->id, b->id, "request");
	SAME(ntokens);
	SAME(first_token);
	SAME(prompt_tokens);
	SAME(ntoken_ids);
	same_bytes(a->token_ids, b->token_ids, 4 * a->ntoken_ids, "token ids");
	SAME(nholes);
	same_bytes(a->hole, b->hole, (int64_t)sizeof(*a->hole) * a->nholes, "holes");
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		SAME(nblocks[g]);
		same_bytes(a->blocks[g], b->blocks[g], 4 * a->nblocks[g], "block table");
	}
}

static inline void same_snapshot(const struct kvt_snapshot *a,
				 const struct kvt_snapshot *b)
{
	SAME(ngroups);
	for (int g = 0; g < a->ngroups; g++)
		same_group(&a->group[g], &b->group[g]);
	SAME(nrequests);
	for (int64_t r = 0; r < a->nrequests; r++)
		same_request(&a->request[r], &b->request[r]);
	assert_memory_equal(&a->parallel, &b->parallel, sizeof(a->parallel));
	SAME(has_parallel);
	SAME(null_block);
	same_text(a->model, b->model, "model");
	same_text(a->source_format, b->source_format, "source format");
	same_text(a->note, b->note, "note");
}

#undef SAME

#endif
