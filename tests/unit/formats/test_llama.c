/* SPDX-License-Identifier: Apache-2.0 */
/* test_llama.c - state files of llama.cpp, honest, cut short and lying */
#include "formats/llama/llama.h"
#include "tests/fewer.h"
#include "tests/unit/fixture.h"

enum { LAYERS = 2, CELLS = 3, WIDTH = 8, GGSN = 0x6767736e, GGSQ = 0x67677371 };

/* ---- files -------------------------------------------------------------- */

struct bytes {
	uint8_t b[2048];
	size_t n;
};

static void number(struct bytes *out, uint64_t value, int nbytes)
{
	assert_true(out->n + (size_t)nbytes <= sizeof(out->b));
	for (int i = 0; i < nbytes; i++, value >>= 8)
		out->b[out->n++] = value & 0xff;
}

/* How a build goes about it. */
struct how {
	uint32_t magic;
	int version;
	bool streams, outputs, transposed, values;
	int extra;
};

/* Places of numbers, for those who lie. */
struct places {
	size_t ntokens, arch, streams, cells, sequences, transposed, layers, type, row;
};

static void rows(struct bytes *out, bool transposed, uint8_t seed)
{
	for (int l = 0; l < LAYERS; l++) {
		number(out, 1, 4);
		number(out, transposed ? 2 : 2 * WIDTH, transposed ? 4 : 8);
		if (transposed)
			number(out, WIDTH, 4);
		for (int i = 0; i < 2 * WIDTH * CELLS; i++)
			number(out, (uint64_t)(seed + 7 * i + 31 * l) | 0x80, 1);
	}
}

static void cache(struct bytes *out, struct places *p, const struct how *how)
{
	p->streams = out->n;
	if (how->streams)
		number(out, 1, 4);
	p->cells = out->n;
	number(out, CELLS, 4);
	for (uint64_t i = 0; i < CELLS; i++) {
		number(out, i, 4);
		p->sequences = out->n;
		number(out, 1, 4);
		for (int j = 0; j < how->extra; j++)
			number(out, 9, 1);
		number(out, 0, 4);
	}
	p->transposed = out->n;
	number(out, how->transposed, 4);
	p->layers = out->n;
	number(out, LAYERS, 4);
	p->type = out->n;
	p->row = out->n + 4;
	rows(out, false, 1);
	if (how->values)
		rows(out, how->transposed, 2);
}

static void state(struct bytes *out, struct places *p, const struct how *how)
{
	out->n = 0;
	number(out, how->magic, 4);
	number(out, (uint64_t)how->version, 4);
	p->ntokens = out->n;
	number(out, CELLS, 4);
	for (uint64_t i = 0; i < CELLS; i++)
		number(out, 100 + i, 4);
	p->arch = out->n;
	if (how->magic == GGSN) {
		number(out, 5, 4);
		for (int i = 0; i < 5; i++)
			number(out, (uint64_t)"llama"[i], 1);
	}
	if (how->outputs) {
		number(out, 1, 4);
		number(out, 0, 4);
		number(out, 2, 8);
		number(out, 0x3f8000003f800000, 8);
		number(out, 0, 8);
	}
	cache(out, p, how);
}

static const struct how ways[] = {
	{ GGSN, 9, true, false, false, true, 0 },
	{ GGSN, 9, true, false, true, true, 0 },
	{ GGSN, 9, true, false, false, false, 0 },
	{ GGSN, 9, true, false, false, true, 8 },
	{ GGSN, 9, false, false, false, true, 0 },
	{ GGSN, 9, false, true, true, true, 0 },
	{ GGSN, 10, true, false, false, true, 12 },
	{ GGSQ, 2, true, false, true, true, 0 },
	{ GGSQ, 3, true, false, false, true, 12 },
};
enum { NWAYS = LENGTH(ways) };

static enum kvt_status open_bytes(struct kvt_dump **reader, const char *path,
				  const struct bytes *in, size_t n, int64_t heads,
				  struct kvt_error *err)
{
	const struct kvt_hints hints = { .heads = heads };
	enum kvt_status status;

	write_file(path, in->b, n);
	status = kvt_open(reader, path, &hints, err);
	unlink(path);
	return status;
}

/* ---- tests -------------------------------------------------------------- */

static void test_honest(void **folder)
{
	for (int i = 0; i < NWAYS; i++) {
		const struct kvt_snapshot *s;
		struct kvt_dump *reader;
		struct places p;
		struct bytes in;

		state(&in, &p, &ways[i]);
		ok(open_bytes(&reader, join(*folder, "a").s, &in, in.n,
			      ways[i].values ? 2 : 0, &why));
		s = kvt_dump_snapshot(reader);
		assert_string_equal(kvt_dump_format(reader), "llama");
		assert_int_equal(s->ngroups, 1);
		assert_int_equal(s->group[0].shape.n[NL], LAYERS);
		assert_int_equal(s->group[0].shape.n[NH], ways[i].values ? 2 : 1);
		assert_int_equal(s->group[0].shape.n[NK], ways[i].values ? 2 : 1);
		assert_int_equal(s->nrequests, 1);
		assert_int_equal(s->request[0].ntokens, CELLS);
		assert_int_equal(s->request[0].ntoken_ids, CELLS);
		kvt_dump_close(reader);
	}
}

/* Cut anywhere it is refused, and with a byte too many. */
static void test_cut(void **folder)
{
	for (int i = 0; i < NWAYS; i++) {
		struct kvt_dump *reader;
		struct places p;
		struct bytes in;

		state(&in, &p, &ways[i]);
		for (size_t n = 4; n < in.n; n += every())
			expect(open_bytes(&reader, join(*folder, "a").s, &in, n, 2, &why),
			       KVT_BAD_INPUT, "");
		number(&in, 0, 1);
		expect(open_bytes(&reader, join(*folder, "a").s, &in, in.n, 2, &why),
		       KVT_BAD_INPUT, "");
	}
}

/* Any bit of what is no data changed: read, or refused with a sentence. */
static void test_changed(void **folder)
{
	const size_t step = every() > 1 ? 9 : 1;

	for (int i = 0; i < NWAYS; i++) {
		struct kvt_dump *reader;
		struct places p;
		struct bytes in;

		state(&in, &p, &ways[i]);
		for (size_t bit = 0; bit < 8 * in.n;
		     bit += bit > 8 * p.row ? 3 * step : step) {
			why.text[0] = '\0';
			in.b[bit / 8] ^= (uint8_t)(1 << bit % 8);
			if (open_bytes(&reader, join(*folder, "a").s, &in, in.n, 2, &why))
				assert_true(why.text[0]);
			else
				kvt_dump_close(reader);
			in.b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

static struct lie {
	const char *what;
	size_t place;
	int nbytes;
	uint64_t value;
	enum kvt_status status;
} lies[] = {
#define AT(field) offsetof(struct places, field)
	{ "2^32 - 1 tokens", AT(ntokens), 4, UINT32_MAX, KVT_BAD_INPUT },
	{ "more tokens than bytes", AT(ntokens), 4, 1 << 20, KVT_BAD_INPUT },
	{ "a name of 2^32 - 1 bytes", AT(arch), 4, UINT32_MAX, KVT_BAD_INPUT },
	{ "no streams", AT(streams), 4, 0, KVT_BAD_INPUT },
	{ "two streams", AT(streams), 4, 2, KVT_BAD_INPUT },
	{ "2^32 - 1 streams", AT(streams), 4, UINT32_MAX, KVT_BAD_INPUT },
	{ "no cells", AT(cells), 4, 0, KVT_BAD_INPUT },
	{ "a cell less", AT(cells), 4, CELLS - 1, KVT_BAD_INPUT },
	{ "2^32 - 1 cells", AT(cells), 4, UINT32_MAX, KVT_BAD_INPUT },
	{ "2^32 - 1 sequences of a cell", AT(sequences), 4, UINT32_MAX, KVT_BAD_INPUT },
	{ "a cell of no sequence", AT(sequences), 4, 0, KVT_BAD_INPUT },
	{ "transposed a bit", AT(transposed), 4, 2, KVT_BAD_INPUT },
	{ "transposed, and not", AT(transposed), 4, 1, KVT_BAD_INPUT },
	{ "no layers", AT(layers), 4, 0, KVT_BAD_INPUT },
	{ "a layer more", AT(layers), 4, LAYERS + 1, KVT_BAD_INPUT },
	{ "2^32 - 1 layers", AT(layers), 4, UINT32_MAX, KVT_BAD_INPUT },
	{ "a negative type", AT(type), 4, UINT32_MAX, KVT_BAD_INPUT },
	{ "rows of nothing", AT(row), 8, 0, KVT_BAD_INPUT },
	{ "rows of 2^63 bytes", AT(row), 8, INT64_MIN, KVT_BAD_INPUT },
	{ "rows whose product overflows", AT(row), 8, INT64_MAX / 2, KVT_BAD_INPUT },
	{ "an unknown type", AT(type), 4, 16, KVT_UNSUPPORTED },
#undef AT
};

static void test_lie(void **context)
{
	const struct lie *lie = *context;
	struct kvt_dump *reader;
	const char *folder = new_folder();
	struct places p;
	struct bytes in;
	size_t at;

	state(&in, &p, &ways[0]);
	memcpy(&at, (char *)&p + lie->place, sizeof(at));
	for (int i = 0; i < lie->nbytes; i++)
		in.b[at + (size_t)i] = (uint8_t)(lie->value >> 8 * i);
	expect(open_bytes(&reader, join(folder, "a").s, &in, in.n, 2, &why), lie->status,
	       "");
}

TESTS("llama",
	EACH(lies, test_lie), IN_FOLDER(test_honest), IN_FOLDER(test_cut),
	IN_FOLDER(test_changed))
