/* SPDX-License-Identifier: Apache-2.0 */
/* test_folder_write.c - requests of a paged dump as connector folders */
#include "tests/unit/fixture.h"

/* A folder written from a paged dump is the one the data set has, byte for byte. */
static void test_write(void **state)
{
	static const char *const formats[] = {"vllm-2025", "vllm-2026-05",
					      "vllm-2026-07"};
	static const int tokens[] = { 421, 188, 80 };
	struct kvt_dump *paged, *reader;
	const struct kvt_snapshot *s;
	uint8_t *buf;
	struct kvt_box box;

	ok(kvt_open(&paged, "testdata/kv/s260k/paged_bs16/aiter_shuffle.bf16.npy", NULL,
		    &why));
	keep_dump(paged);
	s = kvt_dump_snapshot(paged);
	box = kvt_box_whole(&s->group[0].shape);
	buf = room(491520);
	ok(kvt_dump_read(paged, 0, &box, NULL, buf, &why));
	for (int f = 0; f < 3; f++) {
		struct kvt_create_options options = { .format = formats[f] };
		struct path p = join(*state, formats[f]);
		struct kvt_writer *w;
		struct kvt_snapshot info;

		ok(kvt_snapshot_copy(&info, s, &why));
		/* whole blocks: layouts that split S have no part of one */
		for (int r = 0; r < 3; r++)
			info.request[r].ntokens = tokens[r] / 16 * 16;
		ok(kvt_create(&w, p.s, &options, &info, &why));
		ok(kvt_write_box(w, 0, &box, buf, &why));
		ok(kvt_commit(w, &why));
		kvt_close_writer(w);
		kvt_snapshot_free(&info);
		ok(kvt_open(&reader, p.s, &(struct kvt_hints){
			    .heads = 4, .block_size = 16,
			    .layout = formats[f] }, &why));
		keep_dump(reader);
		assert_int_equal(kvt_dump_snapshot(reader)->nrequests, 3);
		for (int r = 0; r < 3; r++) {
			static const char *const folders[] = {
				"2a3cf51fa70dd631a21aee95bb0133fb",
				"436478e796c7d5a9bb24960c7d0da0ce",
				"2954a22378714c64c09915a037978a7d",
			};
			static const char *const sources[] = {
				"shared_storage_2025", "example_2026_05",
					"example_2026_07",
			};
			struct path ours = p, theirs;
			char name[128];
			size_t n, m;
			uint8_t *a, *b;

			snprintf(name, sizeof(name),
				 "%c/model.layers.3.self_attn.attn.safetensors", 'A' + r);
			ours = join(p.s, name);
			snprintf(name, sizeof(name), "%s/%s", sources[f], folders[r]);
			theirs = join("testdata/kv/s260k/connector", name);
			theirs = join(theirs.s,
				      "model.layers.3.self_attn.attn.safetensors");
			a = read_file(ours.s, &n);
			b = read_file(theirs.s, &m);
			/* kvtool stores the block that C fills to its end, connectors do
			 * not */
			n -= 8u + a[0];
			m -= 8u + b[0];
			if (r < 2)
				assert_int_equal(n, m);
			if (r < 2 || f > 0)
				assert_memory_equal(a + 8 + a[0], b + 8 + b[0], m);
		}
	}
}

/* Partial blocks, shared blocks, and blocks out of order. */
static void test_write_partial(void **state)
{
	struct kvt_create_options options = { .format = "vllm-2026-07" };
	struct kvt_box box = { .end = { 3, 6, 16, 2, 2, 8 } };
	struct path p = join(*state, "out");
	struct kvt_dump *reader;
	struct kvt_snapshot *s = small_snapshot("hnd", "bf16", false);
	uint8_t *buf = room(1 << 16);

	add_request(s, "A", 41, IDS(4, 0, 1));
	add_request(s, "B", 17, IDS(4, 3));
	s->group[0].layer_names = NULL;
	ok(sample_write(p.s, s, &options, &why));
	ok(kvt_open(&reader, p.s, &(struct kvt_hints){
		    .heads = 2, .block_size = 16, .layout = "nhd" }, &why));
	keep_dump(reader);
	assert_memory_equal(kvt_dump_snapshot(reader)->group[0].shape.n,
			    ((int64_t[]){ 3, 5, 16, 2, 2, 8 }), 48);
	box.end[NB] = 5;
	ok(kvt_dump_read(reader, 0, &box, NULL, buf, &why));
	for (int64_t l = 0; l < 3; l++)
		for (int64_t t = 0; t < 5 * 16; t++)
			for (int64_t c = 0; c < 2 * 16; c++) {
				/* blocks of A, then of B; 9 and 1 tokens in their last */
				const uint32_t from[] = { 4, 0, 1, 4, 3 };
				const int64_t live[] = { 16, 16, 9, 16, 1 };
				int64_t i[] = {l,      from[t / 16], t % 16,
					       c / 16, c / 8 % 2,    c % 8};
				int64_t at = ((l * 80 + t) * 32 + c) * 2;
				bool in = t % 16 < live[t / 16];

				assert_int_equal(buf[at], in ? byte_at(i, 0) : 0);
				assert_int_equal(buf[at + 1], in ? byte_at(i, 1) : 0);
			}
	drop_now(reader);
	/* and not over a folder that has something in it */
	options.force = true;
	expect(sample_write(p.s, s, &options, &why), KVT_SYSTEM, "never replaced");
}

static void test_write_refused(void **state)
{
	static const struct {
		const char *format, *id, *part;
		enum kvt_status status;
		bool latent;
	} rows[] = {
		{ "folder", "A", "generation", KVT_USAGE, false },
		{ "vllm-mla", "A", "latent content only", KVT_UNSUPPORTED, false },
		{ "vllm-2025", "A", "keys and values only", KVT_UNSUPPORTED, true },
		{ "vllm-2025", NULL, "has none", KVT_UNSUPPORTED, false },
		{ "vllm-2025", "../x", "name of a folder", KVT_UNSUPPORTED, false },
		{ "vllm-2025", "..", "name of a folder", KVT_UNSUPPORTED, false },
		{ "vllm-2025", "-rf", "name of a folder", KVT_UNSUPPORTED, false },
	};
	struct path p = join(*state, "out");

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_create_options options = { .format = rows[i].format };
		struct kvt_snapshot *s = small_snapshot(rows[i].latent ? "mla" : "nhd",
							"bf16", rows[i].latent);

		if (rows[i].id)
			add_request(s, rows[i].id, 5, IDS(4));
		expect(sample_write(p.s, s, &options, &why), rows[i].status,
		       rows[i].part);
		assert_int_equal(count_entries(*state), 0);
	}
}

TESTS("folder writing",
	NAMED_IN_FOLDER(test_write, "written from a paged dump"),
	NAMED_IN_FOLDER(test_write_partial, "partial, shared and scattered blocks"),
	NAMED_IN_FOLDER(test_write_refused, "what cannot be a folder"))
