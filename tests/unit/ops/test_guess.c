/* SPDX-License-Identifier: Apache-2.0 */
/* test_guess.c - the statistics of guess on samples whose answer is known */
#include "lib/ops/guess/impl.h"
#include "lib/ops/guess/stats.h"
#include "tests/fewer.h"
#include "tests/unit/fixture.h"

#include <math.h>

/* ---- numbers ------------------------------------------------------------ */

static uint64_t seed;

static double uniform(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(seed >> 11) / 9007199254740992.0;
}

/* Mean 0, variance 1, and nothing beyond 6. */
static double normal(void)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += uniform();
	return sum;
}

enum { LAYERS = 4, BLOCKS = 16, SLOTS = 16, HEADS = 4, KVS = 2, DIMS = 32 };
enum { ALL_SLOTS = BLOCKS * SLOTS };

/* Heads of a layer are alike, layers differ, and values are larger than keys. */
struct cache {
	double value[LAYERS][KVS][HEADS][ALL_SLOTS][DIMS];
};

static void make_cache(struct cache *c, double spread_of_means)
{
	seed = 7;
	for (int l = 0; l < LAYERS; l++)
		for (int k = 0; k < KVS; k++)
			for (int h = 0; h < HEADS; h++)
				for (int d = 0; d < DIMS; d++) {
					double mean = spread_of_means * normal();
					double scale = (k ? 8 : 1) * (1 + 0.1 * l);

					if (!k)
						mean *= 3;
					for (int s = 0; s < ALL_SLOTS; s++)
						c->value[l][k][h][s][d] =
							(mean + normal()) * scale;
				}
}

/* How a reader goes wrong. */
enum wrong { RIGHT, KV_INSIDE_HEADS, SLOTS_AS_DIMS };

static struct kvt_guess_measures measure(const struct cache *c, enum wrong wrong)
{
	const struct kvt_shape shape = {
		.n = { LAYERS, BLOCKS, SLOTS, HEADS, KVS, DIMS }
	};
	struct guess_tally t = { .layers = 0 };
	struct kvt_guess_measures m;
	double rows[2][DIMS];		/* a slot, and the one before it */

	assert_true(kvt_guess_tally_init(&t, &shape));
	for (int l = 0; l < LAYERS; l++)
		for (int k = 0; k < KVS; k++)
			for (int h = 0; h < HEADS; h++)
				for (int s = 0; s < ALL_SLOTS; s++) {
					int i = k * HEADS + h;
					const int64_t at[KVT_NAXES] = { l, s / SLOTS,
						s % SLOTS,
						wrong == KV_INSIDE_HEADS ? i / KVS : h,
						wrong == KV_INSIDE_HEADS ? i % KVS : k };
					double *row = rows[s % 2];

					for (int d = 0; d < DIMS; d++)
						row[d] = c->value[l][k][h][s]
							[wrong == SLOTS_AS_DIMS ?
							 (d + s) % DIMS : d];
					kvt_guess_add(&t, at, row, s % SLOTS ?
						      rows[!(s % 2)] : NULL);
				}
	m = kvt_guess_measure(&t);
	kvt_guess_tally_free(&t);
	return m;
}

/* ---- gain and kinship --------------------------------------------------- */

/* Bits of a value under a normal distribution. */
static double bits(double x, double mean, double variance)
{
	return 0.5 * log2(2 * M_PI * variance) +
	       (x - mean) * (x - mean) / variance / (2 * log(2));
}

/*
 * The definition, value by value: each of a channel is written with the mean and the
 * variance of the other half of its slots and four values of the whole.
 */
static double gain_of_channel(double value[ALL_SLOTS][DIMS], int d, double mean,
			      double square)
{
	double saved = 0;

	for (int half = 0; half < 2; half++) {
		double n = 4, sum = 4 * mean, squares = 4 * square, m, v;

		for (int s = 0; s < ALL_SLOTS; s++)
			if ((s / SLOTS + s % SLOTS) % 2 != half) {
				n++;
				sum += value[s][d];
				squares += value[s][d] * value[s][d];
			}
		m = sum / n;
		v = squares / n - m * m;
		for (int s = 0; s < ALL_SLOTS; s++)
			if ((s / SLOTS + s % SLOTS) % 2 == half)
				saved += bits(value[s][d], mean, square - mean * mean) -
					 bits(value[s][d], m, v);
	}
	return saved;
}

static void test_gain(void)
{
	static struct cache c;
	double (*vector)[ALL_SLOTS][DIMS] = &c.value[0][0][0];
	double sum = 0, squares = 0, saved = 0;
	double n = LAYERS * KVS * HEADS * ALL_SLOTS * DIMS;
	struct kvt_guess_measures m, wrong;

	make_cache(&c, 10);
	for (int i = 0; i < LAYERS * KVS * HEADS; i++)
		for (int s = 0; s < ALL_SLOTS; s++)
			for (int d = 0; d < DIMS; d++) {
				sum += vector[i][s][d];
				squares += vector[i][s][d] * vector[i][s][d];
			}
	for (int i = 0; i < LAYERS * KVS * HEADS; i++)
		for (int d = 0; d < DIMS; d++)
			saved += gain_of_channel(vector[i], d, sum / n, squares / n);
	m = measure(&c, RIGHT);
	if (saved / n < 1 || fabs(m.gain - saved / n) > 1e-9)
		fail_msg("gain %.12g, expected %.12g", m.gain, saved / n);
	assert_int_equal(m.live_slots, ALL_SLOTS);
	assert_int_equal(m.live_blocks, BLOCKS);
	wrong = measure(&c, SLOTS_AS_DIMS);
	assert_true(wrong.gain < m.gain - 0.5);
}

/* Channels that are all alike have nothing to gain, however many there are. */
static void test_noise(void)
{
	static struct cache c;
	struct kvt_guess_measures m;

	make_cache(&c, 0);
	for (int l = 0; l < LAYERS; l++)
		for (int k = 0; k < KVS; k++)
			for (int h = 0; h < HEADS; h++)
				for (int s = 0; s < ALL_SLOTS; s++)
					for (int d = 0; d < DIMS; d++)
						c.value[l][k][h][s][d] /=
							(k ? 8 : 1) * (1 + 0.1 * l);
	m = measure(&c, RIGHT);
	if (m.gain > 0.001 || m.gain < -0.1)
		fail_msg("gain %g of noise", m.gain);
}

enum { FEATURES = 6, VECTORS = LAYERS * KVS * HEADS };

/* Two halves of a vector, or neighbours: as much alike as they are large. */
static double alike(const double x[DIMS], int step, int apart)
{
	double product = 0, square = 0;

	for (int i = 0; i < (step == 1 ? DIMS / 2 : DIMS); i += step) {
		product += x[i] * x[i + apart];
		square += (x[i] * x[i] + x[i + apart] * x[i + apart]) / 2;
	}
	return product / square;
}

/* What a head is known by, value by value. */
static void features_of(double f[FEATURES], double value[ALL_SLOTS][DIMS])
{
	double size[DIMS], means = 0, squares = 0, product = 0, power = 0, middle = 0;
	double spread = 0;

	for (int d = 0; d < DIMS; d++) {
		double mean = 0, square = 0;

		for (int s = 0; s < ALL_SLOTS; s++) {
			mean += value[s][d] / ALL_SLOTS;
			square += value[s][d] * value[s][d] / ALL_SLOTS;
		}
		for (int s = 0; s < ALL_SLOTS; s++)
			if (s % SLOTS)
				product += (value[s][d] - mean) *
					   (value[s - 1][d] - mean);
		means += mean * mean;
		squares += square;
		power += (ALL_SLOTS - BLOCKS) * (square - mean * mean);
		size[d] = log(square);
		middle += size[d] / DIMS;
	}
	for (int d = 0; d < DIMS; d++) {
		size[d] -= middle;
		spread += size[d] * size[d] / DIMS;
	}
	f[0] = log(squares / DIMS);
	f[1] = log(sqrt(spread) + 1e-3);
	f[2] = log(means / (squares - means));
	f[3] = atanh(product / power);
	f[4] = alike(size, 1, DIMS / 2);
	f[5] = alike(size, 2, 1);
}

static double likely(double part, double freedom, double whole)
{
	return -0.5 * freedom * log(part / freedom / (whole + 1e-9) + 0.02);
}

/* By its definition: heads about their layer, layers about all keys (or values). */
static void test_akin(void)
{
	static struct cache c;
	double f[LAYERS][KVS][HEADS][FEATURES], sum = 0;
	struct kvt_guess_measures m;

	make_cache(&c, 1);
	for (int i = 0; i < VECTORS; i++)
		features_of((&f[0][0][0])[i], (&c.value[0][0][0])[i]);
	for (int j = 0; j < FEATURES; j++) {
		double all = 0, whole = 0, heads = 0, layers = 0, of[KVS][LAYERS];

		for (int i = 0; i < VECTORS; i++)
			all += (&f[0][0][0])[i][j] / VECTORS;
		for (int k = 0; k < KVS; k++) {
			double of_k = 0;

			for (int l = 0; l < LAYERS; l++) {
				of[k][l] = 0;
				for (int h = 0; h < HEADS; h++)
					of[k][l] += f[l][k][h][j] / HEADS;
				of_k += of[k][l] / LAYERS;
				for (int h = 0; h < HEADS; h++) {
					heads += pow(f[l][k][h][j] - of[k][l], 2);
					whole += pow(f[l][k][h][j] - all, 2) / VECTORS;
				}
			}
			for (int l = 0; l < LAYERS; l++)
				layers += pow(of[k][l] - of_k, 2);
		}
		sum += likely(heads, LAYERS * KVS * (HEADS - 1), whole) +
		       likely(layers, KVS * (LAYERS - 1), whole);
	}
	m = measure(&c, RIGHT);
	if (fabs(m.kinship - sum) > 1e-5)
		fail_msg("kinship %.12g, expected %.12g", m.kinship, sum);
}

/* Keys and values inside heads: the same channels, but heads are not akin. */
static void test_kinship(void)
{
	static struct cache c;
	struct kvt_guess_measures right, wrong;

	make_cache(&c, 1);
	right = measure(&c, RIGHT);
	wrong = measure(&c, KV_INSIDE_HEADS);
	assert_true(fabs(right.gain - wrong.gain) < 1e-7);
	if (right.kinship < wrong.kinship + 4 * right.kinship_spread)
		fail_msg("kinship %g, wrong %g, spread %g", right.kinship, wrong.kinship,
			 right.kinship_spread);
}

/* A slot that nobody wrote is zero in all channels. */
static void test_live(void)
{
	static struct cache c;
	struct kvt_guess_measures m;

	make_cache(&c, 1);
	for (int i = 0; i < LAYERS * KVS * HEADS; i++)
		for (int s = 0; s < ALL_SLOTS; s++)
			if (s >= 100)
				memset((&c.value[0][0][0])[i][s], 0,
				       sizeof((&c.value[0][0][0])[i][s]));
	c.value[LAYERS - 1][1][HEADS - 1][200][31] = 1;
	m = measure(&c, RIGHT);
	assert_int_equal(m.live_slots, 101);
	assert_int_equal(m.live_blocks, 100 / SLOTS + 1 + 1);
}

/* ---- element types ------------------------------------------------------ */

enum { ELEMENTS = 4096 };

static void put_bf16(uint8_t *out, double x, bool swapped)
{
	float f = (float)x;
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	out[swapped] = (uint8_t)(bits >> 16);
	out[!swapped] = (uint8_t)(bits >> 24);
}

static double bits_of(double *unit, const char *dtype, bool swapped, const uint8_t *bytes)
{
	return kvt_guess_type_bits(unit, kvt_dtype_find(dtype), swapped, bytes,
				   2 * ELEMENTS);
}

static void test_types(void)
{
	static const char *const others[] = {
		"float16", "float32", "fp8_e4m3", "fp8_e5m2",
	};
	uint8_t bytes[2 * ELEMENTS], turned[2 * ELEMENTS];
	double unit, best;

	seed = 3;
	for (int i = 0; i < ELEMENTS; i++) {
		double x = normal();

		put_bf16(bytes + 2 * i, x, false);
		put_bf16(turned + 2 * i, x, true);
	}
	best = bits_of(&unit, "bfloat16", false, bytes);
	assert_true(best > 0 && best < 8);
	assert_true(bits_of(&unit, "bfloat16", true, turned) == best);
	assert_true(bits_of(&unit, "bfloat16", true, bytes) > best + 0.1);
	for (size_t i = 0; i < LENGTH(others); i++)
		if (bits_of(&unit, others[i], false, bytes) < best + 0.1)
			fail_msg("%s takes %g bits a byte, bfloat16 %g", others[i],
				 bits_of(&unit, others[i], false, bytes), best);
}

static void test_unit(void)
{
	uint8_t bytes[2 * ELEMENTS] = { 0 };
	double unit;

	assert_true(isinf(bits_of(&unit, "bfloat16", false, bytes)));
	for (int i = 0; i < ELEMENTS; i += 2)
		put_bf16(bytes + 2 * i, i % 4 ? -2 : 8, false);
	bits_of(&unit, "bfloat16", false, bytes);
	/* the geometric mean; zeros do not count */
	assert_true(fabs(unit - 4) < 1e-9);
}

/* What is no number takes all its bits, and eight more. */
static void test_no_numbers(void)
{
	uint8_t bytes[2 * ELEMENTS];
	double unit, half;

	for (int i = 0; i < ELEMENTS; i++)
		put_bf16(bytes + 2 * i, i < ELEMENTS / 2 ? normal() : NAN, false);
	half = kvt_guess_type_bits(&unit, kvt_dtype_find("bfloat16"), false, bytes,
				   ELEMENTS);
	assert_true(fabs(bits_of(&unit, "bfloat16", false, bytes) - half / 2 - 6) < 1e-9);
}

/* As few elements as are enough. */
static void test_few(void)
{
	struct kvt_guess g = { .confidence = INFINITY, .ntypes = 1 };

	g.type[0] = (struct kvt_guess_type){ .elements = GUESS_LEAST_ELEMENTS };
	kvt_guess_judge_types(&g);
	assert_string_equal(g.why_not, "");
	g.type[0].elements--;
	kvt_guess_judge_types(&g);
	assert_non_null(strstr(g.why_not, "fewer than 64 elements"));
}

/* ---- all of it, through the callback ------------------------------------ */

struct opener {
	const char *path;
	int calls, fail_at;
};

static enum kvt_status open_as(struct kvt_dump **out, void *context,
			       const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opener *o = context;

	if (o->calls++ == o->fail_at)
		return kvt_fail(err, KVT_SYSTEM, "the disk is gone");
	return kvt_open(out, o->path, hints, err);
}

/* A raw file of a cache in HND order: its sizes are known, its layout is not. */
static void write_raw(const char *path, const struct cache *c)
{
	static uint8_t bytes[sizeof(*c) / sizeof(double) * 2];
	uint8_t *at = bytes;

	for (int l = 0; l < LAYERS; l++)
		for (int k = 0; k < KVS; k++)
			for (int b = 0; b < BLOCKS; b++)
				for (int h = 0; h < HEADS; h++)
					for (int s = 0; s < SLOTS; s++)
						for (int d = 0; d < DIMS; d++, at += 2)
							put_bf16(at, c->value[l][k][h]
								 [b * SLOTS + s][d],
								 false);
	write_file(path, bytes, sizeof(bytes));
}

static void test_guess(void)
{
	static struct cache c;
	struct path path = join(new_folder(), "a.bin");
	struct opener opener = { .fail_at = -1 };
	struct kvt_guess_source source = { .name = "dump", .open = open_as,
		.context = &opener, .nbytes = 8 << 20,
		.hints = { .layers = LAYERS, .block_size = SLOTS, .heads = HEADS,
			   .head_dim = DIMS } };
	struct kvt_guess g;

	opener.path = path.s;
	make_cache(&c, 2);
	write_raw(path.s, &c);
	ok(kvt_guess(&g, &source, &why));
	assert_string_equal(g.type[0].dtype->name, "bfloat16");
	assert_string_equal(kvt_layout_string(&g.candidate[0].layout).s, "LKBHSD");
	if (g.why_not[0] || g.confidence < 1)
		fail_msg("confidence %g: %s", g.confidence, g.why_not);
	assert_int_equal(g.read, sizeof(c) / sizeof(double));
	kvt_guess_free(&g);

	/* what fails is passed on, wherever it happens */
	for (int i = 0; i < opener.calls; i += 5 * every()) {
		struct opener broken = { path.s, 0, i };

		source.context = &broken;
		expect(kvt_guess(&g, &source, &why), KVT_SYSTEM, "the disk is gone");
		kvt_guess_free(&g);
	}
}

static void test_stated(void)
{
	struct path path = join(new_folder(), "a.npy");
	struct opener opener = { .fail_at = -1 };
	struct kvt_guess_source source = { .name = "dump", .open = open_as,
		.context = &opener, .nbytes = 8 << 20 };
	struct kvt_snapshot *s = small_snapshot("nhd", "bf16", false);
	struct kvt_guess g;

	opener.path = path.s;
	ok(kvt_snapshot_complete(s, &why));
	ok(sample_write(path.s, s, NULL, &why));
	expect(kvt_guess(&g, &source, &why), KVT_BAD_INPUT,
	       "dump: its layout is known: LBSHC; there is nothing to guess");
	kvt_guess_free(&g);
}

TESTS("guess",
	NAMED(test_gain, "gain is a difference of logarithms"),
	NAMED(test_noise, "noise gains nothing"),
	NAMED(test_akin, "kinship is one of features"),
	NAMED(test_kinship, "heads of one kind are akin"),
	NAMED(test_live, "slots in use"),
	NAMED(test_types, "the right type takes the fewest bits"),
	NAMED(test_unit, "mean magnitude"),
	NAMED(test_no_numbers, "what is no number"),
	NAMED(test_few, "few elements"),
	NAMED(test_guess, "a dump through a callback"),
	NAMED(test_stated, "a dump that says its layout"))
