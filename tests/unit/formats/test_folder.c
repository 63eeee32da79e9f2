/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_folder.c - connector folders of three generations and of MLA
 *
 * Real folders are compared with the values they were made from: rounded here,
 * and looked up by formulas that know nothing of layouts.
 */
#include "formats/tensor/safetensors_header.h"
#include "tests/unit/fixture.h"

/* ---- real folders ------------------------------------------------------- */

/* To nearest, ties to even; the values are finite. */
static uint16_t to_bf16(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The float32 values behind a 128-byte npy header. */
static const float *canonical(const char *model, char request)
{
	char path[128];
	size_t n;

	snprintf(path, sizeof(path), "testdata/kv/%s/canonical/%c.fp32.npy", model,
		 request);
	return (const void *)(read_file(path, &n) + 128);
}

struct request_of {
	const char *folder;
	char name;
	int tokens, all;		/* stored, and in the canonical file */
};

static struct real_case {
	const char *what, *path, *model, *layout;
	struct kvt_hints hints;
	int64_t n[KVT_NAXES];
	struct request_of request[3];	/* in the order of their folders' names */
} reals[] = {
	{ "keys first", "testdata/kv/s260k/connector/shared_storage_2025", "s260k",
	  "LKBSHD",
	  { .heads = 4, .block_size = 16 }, { 5, 41, 16, 4, 2, 8 },
	  { { "2954a22378714c64c09915a037978a7d", 'C', 64, 80 },
	    { "2a3cf51fa70dd631a21aee95bb0133fb", 'A', 416, 421 },
	    { "436478e796c7d5a9bb24960c7d0da0ce", 'B', 176, 188 } } },
	{ "keys and values apart", "testdata/kv/s260k/connector/example_2026_05", "s260k",
	  "LBSKHD", { .block_size = 16 }, { 5, 41, 16, 4, 2, 8 },
	  { { "2954a22378714c64c09915a037978a7d", 'C', 64, 80 },
	    { "2a3cf51fa70dd631a21aee95bb0133fb", 'A', 416, 421 },
	    { "436478e796c7d5a9bb24960c7d0da0ce", 'B', 176, 188 } } },
	{ "packed", "testdata/kv/s260k/connector/example_2026_07", "s260k", "LBSHC",
	  { .layout = "nhd", .block_size = 16 },
	  { 5, 41, 16, 4, 2, 8 },
	  { { "2954a22378714c64c09915a037978a7d", 'C', 64, 80 },
	    { "2a3cf51fa70dd631a21aee95bb0133fb", 'A', 416, 421 },
	    { "436478e796c7d5a9bb24960c7d0da0ce", 'B', 176, 188 } } },
	{ "packed, as blocks of 64", "testdata/kv/s260k/connector/example_2026_07",
	  "s260k",
	  "LBSHC", { .layout = "nhd", .block_size = 64 }, { 5, 11, 64, 4, 2, 8 },
	  { { "2954a22378714c64c09915a037978a7d", 'C', 64, 80 },
	    { "2a3cf51fa70dd631a21aee95bb0133fb", 'A', 416, 421 },
	    { "436478e796c7d5a9bb24960c7d0da0ce", 'B', 176, 188 } } },
	{ "keys first, as blocks of 10",
	  "testdata/kv/s260k/connector/shared_storage_2025",
	  "s260k", "LKBSHD", { .head_dim = 8, .block_size = 10 }, { 5, 67, 10, 4, 2, 8 },
	  { { "2954a22378714c64c09915a037978a7d", 'C', 64, 80 },
	    { "2a3cf51fa70dd631a21aee95bb0133fb", 'A', 416, 421 },
	    { "436478e796c7d5a9bb24960c7d0da0ce", 'B', 176, 188 } } },
	{ "two heads, said by --heads", "testdata/kv/gqa64/connector/example_2026_07",
	  "gqa64", "LBSHC", { .layout = "nhd", .heads = 2, .block_size = 16 },
		{ 4, 6, 16, 2, 2, 64 },
	  { { "cffa1a3a57a0e9cbaefc8e2aafb8020f", 'A', 64, 69 },
	    { "f5f6aa44165d4511d8b459858ddab606", 'B', 32, 48 } } },
	{ "two heads, said by the generation",
	  "testdata/kv/gqa64/connector/example_2026_07",
	  "gqa64", "LBSHC",
	  { .format = "vllm-2026-07", .layout = "nhd", .block_size = 16 },
	  { 4, 6, 16, 2, 2, 64 },
	  { { "cffa1a3a57a0e9cbaefc8e2aafb8020f", 'A', 64, 69 },
	    { "f5f6aa44165d4511d8b459858ddab606", 'B', 32, 48 } } },
	{ "latent", "testdata/kv/mla144/connector", "mla144", "LBSC",
	  { .block_size = 16 },
	  { 3, 11, 16, 1, 1, 144 },
	  { { "63d5f71b850e89421ed74343834b4145", 'A', 128, 133 },
	    { "a15631b89694b9688c10db1cebef0551", 'B', 48, 64 } } },
	{ "one request by itself",
	  "testdata/kv/mla144/connector/a15631b89694b9688c10db1cebef0551", "mla144",
	  "LBSC",
	  { .block_size = 16 }, { 3, 3, 16, 1, 1, 144 },
	  { { "a15631b89694b9688c10db1cebef0551", 'B', 48, 64 } } },
};

/* Element (l, token, h, k, d) of a request must be what the capture has there. */
static void check_request(const struct real_case *c, const struct kvt_dump *reader,
			  const uint8_t *buf, const struct request_of *r, int index)
{
	const struct kvt_group *g = &kvt_dump_snapshot(reader)->group[0];
	const struct kvt_request *request = &kvt_dump_snapshot(reader)->request[index];
	struct kvt_box whole = kvt_box_whole(&g->shape);
	const int64_t *n = c->n;
	const float *f = canonical(c->model, r->name);

	assert_string_equal(request->id, r->folder);
	assert_int_equal(request->ntokens, r->tokens);
	for (int64_t l = 0; l < n[NL]; l++)
		for (int64_t t = 0; t < r->tokens; t++)
			for (int64_t h = 0; h < n[NH]; h++)
				for (int64_t k = 0; k < n[NK]; k++)
					for (int64_t d = 0; d < n[ND]; d++) {
						int64_t i[] = {
							l,
							request->blocks[0][t / n[NS]],
							t % n[NS],
							h,
							k,
							d};
						int64_t at = (((l * r->all + t) * n[NH] +
							       h) * n[NK] +
							      k) * n[ND] +
							     d;
						uint16_t got;

						memcpy(&got, buf + dense_at(g, &whole, i),
						       2);
						if (got != to_bf16(f[at]))
							fail_msg("request %c token %d "
								 "layer %d",
								 r->name, (int)t, (int)l);
					}
}

static void test_real(void **state)
{
	const struct real_case *c = *state;
	const struct kvt_snapshot *s;
	struct kvt_dump *reader;
	struct kvt_box box;
	int64_t nbytes, live = 0;
	uint8_t *buf;
	int r;

	ok(kvt_open(&reader, c->path, &c->hints, &why));
	keep_dump(reader);
	s = kvt_dump_snapshot(reader);
	assert_string_equal(kvt_layout_string(&s->group[0].layout).s, c->layout);
	assert_memory_equal(s->group[0].shape.n, c->n, sizeof(c->n));
	assert_string_equal(s->group[0].layer_names[2], "model.layers.2.self_attn.attn");
	box = kvt_box_whole(&s->group[0].shape);
	nbytes = box_bytes(&s->group[0], &box);
	buf = room((size_t)nbytes);
	memset(buf, 0xa5, (size_t)nbytes);
	ok(kvt_dump_read(reader, 0, &box, NULL, buf, &why));
	for (r = 0; r < 3 && c->request[r].folder; r++) {
		check_request(c, reader, buf, &c->request[r], r);
		live += c->request[r].tokens;
	}
	assert_int_equal(s->nrequests, r);
	for (int64_t b = 0; b < c->n[NB]; b++)
		live -= s->group[0].block_valid[b];
	assert_int_equal(live, 0);
}

/* ---- folders that are wrong --------------------------------------------- */

/* A file with one tensor of zeros. */
static void put_tensor(const char *folder, const char *request, const char *layer,
		       const char *name, const char *type, int rank,
		       const int64_t *shape)
{
	struct kvt_tensor t = { .name = (char *)(uintptr_t)name, .rank = rank, .end = 2 };
	struct kvt_tensors tensors = { .count = 1, .tensor = &t };
	struct path dir = join(folder, request), file = join(dir.s, layer);
	int64_t nhead;
	uint8_t *bytes;
	char *head;

	for (int i = 0; i < rank; i++)
		t.end *= shape[i];
	memcpy(t.shape, shape, (size_t)rank * sizeof(*shape));
	strcpy(t.type, type);
	mkdir(dir.s, 0777);
	ok(kvt_tensors_print(&head, &nhead, &tensors, NULL, NULL));
	bytes = zeros((size_t)(nhead + t.end));
	memcpy(bytes, head, (size_t)nhead);
	write_file(file.s, bytes, (size_t)(nhead + t.end));
	free(head);
}

struct file {
	const char *request, *layer;
	int rank;
	int64_t shape[4];
	const char *name, *type;	/* kv_cache, BF16 */
};

static struct wrong_case {
	const char *what;
	struct file file[4];
	struct kvt_hints hints;
	enum kvt_status status;
	const char *part;
} wrongs[] = {
	{ "two layers", { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
			  { "a", "l.1.safetensors", 3, { 16, 4, 8 }, NULL, NULL } },
	  { .layout = "nhd" }, KVT_OK, NULL },
	{ "the first layer need not be 0",
	  { { "a", "l.7.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "a", "l.8.safetensors", 3, { 16, 4, 8 }, NULL, NULL } },
	  { .layout = "nhd" }, KVT_OK,
	      NULL },
	{ "nothing", { { NULL, NULL, 0, { 0 }, NULL, NULL } }, { 0 }, KVT_BAD_INPUT,
	  "neither layers" },
	{ "a layer number missing",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "a", "l.2.safetensors", 3, { 16, 4, 8 }, NULL, NULL } }, { 0 },
	      KVT_BAD_INPUT,
	  "layer 1 is missing" },
	{ "a request that lacks a layer",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "a", "l.1.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "b", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL } }, { 0 },
	      KVT_BAD_INPUT,
	  "lacks layer file l.1.safetensors" },
	{ "a request that has one more",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "b", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "b", "l.1.safetensors", 3, { 16, 4, 8 }, NULL, NULL } }, { 0 },
	      KVT_BAD_INPUT,
	  "has layer file l.1.safetensors" },
	{ "layers of unlike length",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "a", "l.1.safetensors", 3, { 32, 4, 8 }, NULL, NULL } },
	  { .layout = "nhd" },
	      KVT_BAD_INPUT,
	  "l.1.safetensors: differs" },
	{ "requests with unlike heads",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "b", "l.0.safetensors", 3, { 16, 3, 8 }, NULL, NULL } },
	  { .layout = "nhd" },
	      KVT_BAD_INPUT,
	  "differs" },
	{ "layers of unlike types",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "a", "l.1.safetensors", 3, { 16, 4, 8 }, NULL, "F16" } },
	  { .layout = "nhd" },
	      KVT_BAD_INPUT,
	  "differs" },
	{ "a tensor of another name",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, "hidden_states", NULL } }, { 0 },
	  KVT_BAD_INPUT, "expected only kv_cache" },
	{ "a folder without layers",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL },
	    { "b", "note.txt", 3, { 16, 4, 8 }, NULL, NULL } }, { 0 }, KVT_BAD_INPUT,
	  "lacks layer file l.0" },
	{ "two in the middle: keys and values, or heads",
	  { { "a", "l.0.safetensors", 3, { 16, 2, 8 }, NULL, NULL } }, { 0 },
	    KVT_BAD_INPUT,
	  "two heads" },
	{ "two first, and two tokens are a block",
	  { { "a", "l.0.safetensors", 3, { 2, 16, 8 }, NULL, NULL } },
	  { .block_size = 2, .heads = 1 }, KVT_BAD_INPUT, "two tokens" },
	{ "two first, and no whole blocks either way",
	  { { "a", "l.0.safetensors", 3, { 2, 17, 8 }, NULL, NULL } }, { .heads = 1 },
	  KVT_BAD_INPUT, "two tokens" },
	{ "two first, but one reading has whole blocks",
	  { { "a", "l.0.safetensors", 3, { 2, 16, 8 }, NULL, NULL } }, { .heads = 1 },
	  KVT_OK, NULL },
	{ "two first, and the second varies",
	  { { "a", "l.0.safetensors", 3, { 2, 17, 8 }, NULL, NULL },
	    { "b", "l.0.safetensors", 3, { 2, 18, 8 }, NULL, NULL } }, { .heads = 1 },
	  KVT_OK, NULL },
	{ "two first, heads not known",
	  { { "a", "l.0.safetensors", 3, { 2, 16, 8 }, NULL, NULL } }, { 0 },
	    KVT_BAD_INPUT,
	  "--heads" },
	{ "heads that do not divide",
	  { { "a", "l.0.safetensors", 3, { 2, 16, 8 }, NULL, NULL } }, { .heads = 3 },
	  KVT_BAD_INPUT, "--heads is 3, but tokens have 8 elements" },
	{ "two tokens, as was said",
	  { { "a", "l.0.safetensors", 3, { 2, 17, 8 }, NULL, NULL } },
	  { .format = "vllm-2026-07", .layout = "nhd" }, KVT_OK, NULL },
	{ "a generation as layout",
	  { { "a", "l.0.safetensors", 3, { 16, 2, 8 }, NULL, NULL } },
	  { .layout = "vllm-2026-07" }, KVT_OK, NULL },
	{ "the layout of a generation",
	  { { "a", "l.0.safetensors", 3, { 16, 2, 8 }, NULL, NULL } },
	    { .layout = "nhd" },
	  KVT_OK, NULL },
	{ "a layout that tokens in order do not have",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL } },
	    { .layout = "hnd" },
	  KVT_BAD_INPUT, "tokens in order" },
	{ "a generation of another rank",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL } },
	  { .format = "vllm-2026-05" }, KVT_BAD_INPUT, "expected 4" },
	{ "a generation with its 2 elsewhere",
	  { { "a", "l.0.safetensors", 4, { 16, 3, 4, 8 }, NULL, NULL } }, { 0 },
	  KVT_BAD_INPUT, "second extent is 3" },
	{ "one axis", { { "a", "l.0.safetensors", 1, { 16 }, NULL, NULL } }, { 0 },
	  KVT_BAD_INPUT, "1 axes" },
	{ "content that is no pair",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 7 }, NULL, NULL } },
	  { .layout = "nhd" },
	    KVT_BAD_INPUT,
	  "7 elements" },
	{ "a type that contradicts",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL } },
	    { .dtype = "fp16", .layout = "nhd" },
	  KVT_BAD_INPUT, "--dtype is fp16, but group g0 has bfloat16" },
	{ "integers that carry another type",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, "U16" } },
	    { .dtype = "fp16", .layout = "nhd" },
	  KVT_OK, NULL },
	{ "fewer heads than said",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL } },
	  { .layout = "nhd", .heads = 8 },
	  KVT_BAD_INPUT, "--heads is 8" },
	{ "tokens, or packed blocks",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL } }, { 0 },
	    KVT_BAD_INPUT, "give --layout=nhd, or cpu-vec" },
	{ "no size of a block",
	  { { "a", "l.0.safetensors", 3, { 16, 4, 8 }, NULL, NULL } },
	  { .layout = "nhd", .block_size = -1 }, KVT_BAD_INPUT, "--block-size" },
	{ "packed blocks that are not whole",
	  { { "a", "l.0.safetensors", 3, { 17, 4, 8 }, NULL, NULL } },
	  { .layout = "cpu-vec" }, KVT_BAD_INPUT, "packed blocks of" },
	{ "packed rows that cannot be followed",
	  { { "a", "l.0.safetensors", 3, { 15, 4, 8 }, NULL, NULL } },
	  { .layout = "cpu-vec", .block_size = 15 }, KVT_UNSUPPORTED, "cut layout" },
	{ "no tokens", { { "a", "l.0.safetensors", 3, { 0, 4, 8 }, NULL, NULL } },
	  { .layout = "nhd" },
	  KVT_OK, NULL },
};

static void test_wrong(void **state)
{
	const struct wrong_case *c = *state;
	struct kvt_hints hints = c->hints;
	struct kvt_dump *reader;
	const char *folder = new_folder();

	/* said in all cases but one */
	hints.block_size = hints.block_size ? hints.block_size : 16;
	for (int i = 0; i < 4 && c->file[i].request; i++)
		put_tensor(folder, c->file[i].request, c->file[i].layer,
			   c->file[i].name ? c->file[i].name : "kv_cache",
			   c->file[i].type ? c->file[i].type : "BF16", c->file[i].rank,
			   c->file[i].shape);
	expect(kvt_open(&reader, folder, &hints, &why), c->status, c->part);
	if (!c->status)
		keep_dump(reader);
}

/* What a link leads to is not part of the dump. */
static void test_link(void **state)
{
	const int64_t shape[] = { 16, 4, 8 };
	const struct kvt_hints hints = { .layout = "nhd", .block_size = 16 };
	struct path inside = join(*state, "dump/a/l.1.safetensors"), dump, target;
	struct kvt_dump *reader;

	dump = join(*state, "dump");
	target = join(*state, "b/l.1.safetensors");
	assert_int_equal(mkdir(dump.s, 0777), 0);
	put_tensor(dump.s, "a", "l.0.safetensors", "kv_cache", "BF16", 3, shape);
	put_tensor(*state, "b", "l.1.safetensors", "kv_cache", "BF16", 3, shape);
	assert_int_equal(symlink(target.s, inside.s), 0);
	expect(kvt_open(&reader, dump.s, &hints, &why), KVT_BAD_INPUT,
	       "links are refused");
	unlink(inside.s);
	assert_int_equal(mkfifo(inside.s, 0600), 0);
	expect(kvt_open(&reader, dump.s, &hints, &why), KVT_BAD_INPUT, "regular file");
	unlink(inside.s);
	ok(kvt_open(&reader, dump.s, &hints, &why));
	keep_dump(reader);
}

/* More files than descriptors are kept for. */
static void test_many(void **state)
{
	const struct kvt_box box = { .end = { 3, 40, 16, 4, 2, 4 } };
	const int64_t shape[] = { 16, 4, 8 };
	struct kvt_dump *reader;
	char request[32], layer[32];
	int64_t nopen = 0;
	uint8_t *buf;

	for (int r = 0; r < 40; r++)
		for (int l = 0; l < 3; l++) {
			snprintf(request, sizeof(request), "r%d", r);
			snprintf(layer, sizeof(layer), "l.%d.safetensors", l);
			put_tensor(*state, request, layer, "kv_cache", "BF16", 3, shape);
		}
	ok(kvt_open(&reader, *state,
		    &(struct kvt_hints){ .layout = "nhd", .block_size = 16 }, &why));
	keep_dump(reader);
	assert_int_equal(kvt_reader_of(reader)->files.count, 120);
	for (int i = 0; i < 120; i++)
		nopen += kvt_reader_of(reader)->files.file[i].fd >= 0;
	assert_int_equal(nopen, 64);
	buf = room(3 * 40 * 16 * 4 * 8 * 2);
	memset(buf, 1, 3 * 40 * 16 * 4 * 8 * 2);
	ok(kvt_dump_read(reader, 0, &box, NULL, buf, &why));
	for (int i = 0; i < 3 * 40 * 16 * 4 * 8 * 2; i++)
		assert_int_equal(buf[i], 0);
	/* a parked file that was replaced is not read */
	put_tensor(*state, "fresh", "l", "kv_cache", "BF16", 3, shape);
	assert_int_equal(rename(join(*state, "fresh/l").s,
				kvt_reader_of(reader)->files.file[119].path), 0);
	expect(kvt_dump_read(reader, 0, &box, NULL, buf, &why), KVT_BAD_INPUT,
	       "replaced");
}

TESTS("folder",
	EACH(reals, test_real), EACH(wrongs, test_wrong),
	NAMED_IN_FOLDER(test_link, "links and FIFOs are not followed"),
	NAMED_IN_FOLDER(test_many, "more files than descriptors"))
