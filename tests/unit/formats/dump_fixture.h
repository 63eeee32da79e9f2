/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump_fixture.h - folders, files and snapshots for the tests of formats
 *
 * Every element of a made-up cache is a hash of its coordinates, so that any
 * byte of any layout can be checked wherever it turns up.
 */
#ifndef DUMP_FIXTURE_H
#define DUMP_FIXTURE_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/format.h"
#include "tests/temporary.h"
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

/* malloc()ed, with a NUL behind it. */
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
	bytes = malloc((size_t)size + 1);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, (size_t)size, f), size);
	bytes[size] = 0;
	fclose(f);
	*nbytes = (size_t)size;
	return bytes;
}

/* ---- made-up caches ----------------------------------------------------- */

/* Of types of several bytes no value is NaN: a bit of the exponent is not set. */
static inline uint8_t byte_at(const int64_t i[KVT_NAXES], int64_t byte)
{
	uint64_t h = 0x9e3779b97f4a7c15u + (uint64_t)byte;

	for (int a = 0; a < KVT_NAXES; a++)
		h = (h ^ (uint64_t)i[a]) * 0xff51afd7ed558ccdu + (h >> 29);
	return (uint8_t)(h >> 40) & (byte % 2 ? 0xfb : 0xff);
}

/* Next index inside a box, last axis fastest; false: was the last. */
static inline bool next_index(int64_t i[KVT_NAXES], const struct kvt_box *box)
{
	for (int a = KVT_NAXES - 1; a >= 0; a--) {
		if (++i[a] < box->end[a])
			return true;
		i[a] = box->begin[a];
	}
	return false;
}

/* Where an element of the box is in the box's dense buffer. */
static inline int64_t dense_at(const struct kvt_group *g, const struct kvt_box *box,
			       const int64_t i[KVT_NAXES])
{
	struct kvt_views views;
	int64_t in[KVT_NAXES];
	int k = 0;

	ok(kvt_layout_views(&views, &g->layout, box, g->shape.elem, NULL));
	for (int a = 0; a < KVT_NAXES; a++)
		in[a] = i[a] - box->begin[a];
	if (views.count == 2) {
		k = (int)in[NK];
		in[NK] = 0;
	}
	return kvt_view_at(&views.view[k], in);
}

/* Fills the dense buffer of a box, or checks it. */
static inline void fill_box(const struct kvt_group *g, const struct kvt_box *box,
			    uint8_t *buf)
{
	int64_t i[KVT_NAXES];

	memcpy(i, box->begin, sizeof(i));
	do {
		int64_t at = dense_at(g, box, i);

		for (int64_t b = 0; b < g->shape.elem; b++)
			buf[at + b] = byte_at(i, b);
	} while (next_index(i, box));
}

static inline void check_filled(const struct kvt_group *g, const struct kvt_box *box,
				const uint8_t *buf)
{
	int64_t i[KVT_NAXES];

	memcpy(i, box->begin, sizeof(i));
	do {
		int64_t at = dense_at(g, box, i);

		for (int64_t b = 0; b < g->shape.elem; b++)
			if (buf[at + b] != byte_at(i, b))
				fail_msg("wrong byte at l %d b %d s %d h %d k %d d %d",
					 (int)i[NL], (int)i[NB], (int)i[NS],
					 (int)i[NH], (int)i[NK], (int)i[ND]);
	} while (next_index(i, box));
}

static inline int64_t box_bytes(const struct kvt_group *g, const struct kvt_box *box)
{
	struct kvt_shape shape = kvt_box_shape(box, g->shape.elem);
	int64_t nbytes;

	ok(kvt_shape_nbytes(&nbytes, &shape, NULL));
	return nbytes;
}

/* A group of 3 layers, 5 blocks of 16 tokens, 2 heads of 8 (or 16 latent). */
static inline void make_group(struct kvt_group *g, const char *id, const char *layout,
			      const char *dtype, bool latent)
{
	const int64_t n[KVT_NAXES] = { 3, 5, 16, latent ? 1 : 2, latent ? 1 : 2,
				       latent ? 16 : 8 };

	*g = (struct kvt_group){ .kind = latent ? KVT_MLA : KVT_FULL_ATTENTION,
		.dtype = kvt_dtype_find(dtype), .block_size = 16, .tokens_per_slot = 1,
		.total_heads = n[NH], .replication = 1 };
	strcpy(g->id, id);
	ok(kvt_layout_parse(&g->layout, layout, NULL));
	memcpy(g->shape.n, n, sizeof(n));
	g->shape.elem = g->dtype->elem;
}

static inline void make_snapshot(struct kvt_snapshot *s, const char *layout,
				 const char *dtype, bool latent)
{
	kvt_snapshot_init(s);
	s->ngroups = 1;
	make_group(&s->group[0], "g0", layout, dtype, latent);
}

/* A request of 'ntokens' in these blocks of group 0. */
static inline void add_request(struct kvt_snapshot *s, const char *id, int64_t ntokens,
			       int n, const uint32_t *blocks)
{
	struct kvt_request *r;

	s->request = realloc(s->request, (size_t)(s->nrequests + 1) * sizeof(*r));
	assert_non_null(s->request);
	r = &s->request[s->nrequests++];
	*r = (struct kvt_request){ .id = strdup(id), .ntokens = ntokens };
	r->nblocks[0] = n;
	r->blocks[0] = malloc((size_t)n * sizeof(*blocks) + 1);
	memcpy(r->blocks[0], blocks, (size_t)n * sizeof(*blocks));
}

/* Writes all of a made-up cache, as kvt_create() with these options does. */
static inline enum kvt_status write_dump(const char *path,
					 const struct kvt_create_options *options,
					 const struct kvt_snapshot *s,
					 struct kvt_error *err)
{
	struct kvt_writer *w;
	enum kvt_status status = kvt_create(&w, path, options, s, err);

	if (status)
		return status;
	for (int g = 0; !status && g < s->ngroups; g++) {
		struct kvt_box box = kvt_box_whole(&s->group[g].shape);
		uint8_t *buf = malloc((size_t)box_bytes(&s->group[g], &box) + 1);

		assert_non_null(buf);
		fill_box(&s->group[g], &box, buf);
		status = kvt_write_box(w, g, &box, buf, err);
		free(buf);
	}
	if (!status)
		status = kvt_commit(w, err);
	kvt_close_writer(w);
	return status;
}

/* Reads a box of a group and checks every element. */
static inline void check_box(struct kvt_dump *reader, int g, const struct kvt_box *box)
{
	const struct kvt_group *group = &kvt_dump_snapshot(reader)->group[g];
	int64_t nbytes = box_bytes(group, box);
	uint8_t *buf = malloc((size_t)nbytes + 1);

	assert_non_null(buf);
	memset(buf, 0xa5, (size_t)nbytes + 1);
	ok(kvt_dump_read(reader, g, box, NULL, buf, &why));
	check_filled(group, box, buf);
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
