/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_public.c - what users of libkvt have and the program has not: tensors of any
 * strides, tokens in a row, snapshots as JSON, answers told to callbacks
 */
#include "tests/unit/fixture.h"

#include "kernels/gpu_host.h"
#include "lib/kvt/ops.h"
#include "lib/kvt/write.h"

static const int64_t extents[] = { 3, 6, 4, 3, 2, 4 };

/* One group; request a has 10 tokens in blocks 4, 1, 5. */
static struct kvt_dump *make(int who)
{
	struct kvt_snapshot *s = snapshot_of("LBSHKD", extents);

	number_layers(&s->group[0], (const uint32_t[]){ 4, 5, 6 });
	add_request(s, "a", 10, IDS(4, 1, 5));
	return number_dump(s, who);
}

/* ---- tensors ------------------------------------------------------------ */

enum { PARTS = 6 };

/* A tensor for each layer and half, elements two apart, heads before slots. */
struct tensors {
	uint32_t *data[PARTS];
	struct kvt_tensor_part part[PARTS];
};

static void cut_up(struct tensors *t, const struct kvt_group *g, int who)
{
	const int64_t stride[] = { 0, 4 * 3 * 4 * 8 + 16, 8 * 4, 8 * 4 * 4, 0, 8 };

	for (int p = 0; p < PARTS; p++) {
		struct kvt_tensor_part *part = &t->part[p];
		int64_t i[KVT_NAXES] = { 0 };
		struct kvt_box all;
		int n = 0;

		*part = (struct kvt_tensor_part){ .box = kvt_box_whole(&g->shape) };
		part->box.begin[NL] = p / 2;
		part->box.end[NL] = p / 2 + 1;
		part->box.begin[NK] = p % 2;
		part->box.end[NK] = p % 2 + 1;
		part->view.shape = kvt_box_shape(&part->box, 4);
		for (int a = 0; a < KVT_NAXES; a++)
			if (stride[a])
				part->view.factor[n++] = (struct kvt_factor){
					a, 1, part->view.shape.n[a], stride[a] };
		part->view.nfactors = n;
		part->view.offset = 4;
		part->data = t->data[p] = zeros((size_t)(6 * stride[NB] + 64));
		all = kvt_box_whole(&part->view.shape);
		do {
			int64_t there[KVT_NAXES];

			memcpy(there, i, sizeof(there));
			there[NL] += p / 2;
			there[NK] += p % 2;
			t->data[p][kvt_view_at(&part->view, i) / 4] =
				number_of(g, who, there);
		} while (next_index(i, &all));
	}
}

static void test_tensors(void)
{
	struct kvt_dump *whole = make(1);
	const struct kvt_snapshot *s = kvt_dump_snapshot(whole);
	struct kvt_dump *dump;
	struct tensors t;

	cut_up(&t, &s->group[0], 1);
	ok(kvt_dump_of_tensors(&dump, s, t.part, PARTS, &why));
	keep_dump(dump);
	check_places(dump, 1);
	ok(kvt_verify(whole, dump, NULL, &why));
}

/* One for each group, as it lies in memory. */
static void test_tensors_of_groups(void)
{
	struct kvt_snapshot *s = snapshot_of("LBSHKD", extents);
	struct kvt_tensor_part part[2];
	struct kvt_dump *whole, *dump;

	number_layers(new_group(s, "g1", KVT_FULL_ATTENTION, "LBSHKD", extents),
		      (const uint32_t[]){ 7, 8, 9 });
	whole = number_dump(s, 1);
	for (int g = 0; g < 2; g++) {
		struct kvt_views views;

		part[g] = (struct kvt_tensor_part){
			.group = g, .box = kvt_box_whole(&s->group[g].shape),
			.data = bytes_of(whole, g) };
		ok(kvt_layout_views(&views, &s->group[g].layout, &part[g].box, 4, &why));
		part[g].view = views.view[0];
	}
	ok(kvt_dump_of_tensors(&dump, s, part, 2, &why));
	keep_dump(dump);
	check_places(dump, 1);
}

/* The executor as a GPU (tests/gpu_executor.h), opened from where it is built. */
static struct kvt_device *open_executor(void)
{
	static struct gpu_vendor row;
	static char path[4096];
	const char *build = getenv("KVT_BUILD");
	struct kvt_device *device = NULL;

	snprintf(path, sizeof(path), "%s/gpu_executor.so", build ? build : "build");
	row = *kvt_gpu_vendor(0);
	row.library[0] = row.missing = path;
	row.kernels_in_library = true;
	ok(kvt_gpu_open(&device, &row, 0, &why));
	return device;
}

static void test_tensors_on_device(void)
{
	const int64_t nbytes = 6 * (4 * 3 * 4 * 8 + 16) + 64;
	struct kvt_dump *whole = make(1);
	const struct kvt_snapshot *s = kvt_dump_snapshot(whole);
	struct kvt_device *device = open_executor();
	void *there[PARTS] = { NULL };
	struct kvt_dump *dump;
	struct tensors t;

	cut_up(&t, &s->group[0], 1);
	for (int p = 1; p < PARTS; p++) {	/* the first stays where it is */
		ok(kvt_device_alloc(&there[p], device, nbytes, &why));
		ok(kvt_device_copy_in(device, there[p], t.data[p], nbytes, NULL, &why));
		t.part[p].data = there[p];
		t.part[p].device = device;
	}
	ok(kvt_device_wait(device, NULL, &why));
	ok(kvt_dump_of_tensors(&dump, s, t.part, PARTS, &why));
	keep_dump(dump);
	check_places(dump, 1);
	ok(kvt_verify(whole, dump, NULL, &why));
	t.data[3][9] ^= 1;			/* element 4 of the first row */
	ok(kvt_device_copy_in(device, there[3], t.data[3], nbytes, NULL, &why));
	ok(kvt_device_wait(device, NULL, &why));
	expect(kvt_verify(whole, dump, NULL, &why), KVT_MISMATCH, NULL);
	drop_now(dump);
	for (int p = 1; p < PARTS; p++)
		kvt_device_free(device, there[p]);
	kvt_device_close(device);
}

/* More than a stage of 16 MiB holds: blocks of a layer, layers, and one block. */
static void test_pieces(void)
{
	static const int64_t rows[][KVT_NAXES] = {
		{ 2, 100, 32, 8, 2, 128 }, { 5, 20, 32, 8, 2, 128 },
		{ 1, 2, 2304, 8, 2, 128 },
	};
	struct kvt_device *device = open_executor();

	for (int i = 0; i < LENGTH(rows); i++) {
		struct kvt_snapshot *s = snapshot_of("LBSHKD", rows[i]);
		struct kvt_box box = kvt_box_whole(&s->group[0].shape);
		int64_t nbytes = box_bytes(&s->group[0], &box);
		struct kvt_tensor_part part = { .box = box, .device = device };
		uint32_t *bytes = room((size_t)nbytes), *got = room((size_t)nbytes);
		struct kvt_views views;
		struct kvt_dump *dump;
		void *there;

		for (int64_t k = 0; k < nbytes / 4; k++)
			bytes[k] = (uint32_t)k;
		ok(kvt_layout_views(&views, &s->group[0].layout, &box, 4, &why));
		part.view = views.view[0];
		ok(kvt_device_alloc(&there, device, nbytes, &why));
		ok(kvt_device_copy_in(device, there, bytes, nbytes, NULL, &why));
		part.data = there;
		ok(kvt_dump_of_tensors(&dump, s, &part, 1, &why));
		/* a little, and then all but the first blocks */
		box.begin[NB] = rows[i][NB] - 1;
		box.end[NS] = 1;
		ok(kvt_dump_read(dump, 0, &box, NULL, got, &why));
		box = kvt_box_whole(&s->group[0].shape);
		box.begin[NB] = 1;
		ok(kvt_dump_read(dump, 0, &box, NULL, got, &why));
		nbytes /= rows[i][NL] * rows[i][NB];	/* of a block */
		for (int64_t l = 0; l < rows[i][NL]; l++)
			assert_memory_equal(
				(char *)got + l * (rows[i][NB] - 1) * nbytes,
				(char *)bytes + (l * rows[i][NB] + 1) * nbytes,
				(size_t)((rows[i][NB] - 1) * nbytes));
		kvt_dump_close(dump);
		kvt_device_free(device, there);
	}
	kvt_device_close(device);
}

static void refused(const struct tensors *t, const struct kvt_snapshot *s,
		    const char *part)
{
	struct kvt_dump *dump = NULL;

	expect(kvt_dump_of_tensors(&dump, s, t->part, PARTS, &why), KVT_BAD_INPUT, part);
	assert_null(dump);
}

static void test_tensors_refused(void)
{
	struct kvt_dump *whole = make(1);
	const struct kvt_snapshot *s = kvt_dump_snapshot(whole);
	struct kvt_dump *dump = NULL;
	struct tensors t;

	cut_up(&t, &s->group[0], 1);
	expect(kvt_dump_of_tensors(&dump, s, t.part, PARTS - 1, &why), KVT_BAD_INPUT,
	       "tensors have 5760 of the 6912 bytes of g0");
	t.part[2].data = NULL;
	refused(&t, s, "tensor 2: is not a part of its group");
	t.part[2].data = t.data[2];
	t.part[2].view.shape.elem = 2;
	refused(&t, s, "tensor 2: is not a part of its group");
	t.part[2].view.shape.elem = 4;
	t.part[5].box = t.part[4].box;
	refused(&t, s, "tensors 4 and 5 have the same elements of g0");
	t.part[5].box.end[NH] = 9;
	refused(&t, s, "tensor 5: has 3 heads, expected 9");
	t.part[5].view.shape.n[NH] = 9;
	refused(&t, s, "tensor 5: is not a part of its group");
	t.part[0].view.factor[0].stride = -4;
	refused(&t, s, "stride is -4, expected 0 or more");
	t.part[0].view.factor[0].stride = 4;
	t.part[0].view.factor[0].div = 0;
	refused(&t, s, "tensor 0: is not a part of its group");
	t.part[0].group = 7;
	refused(&t, s, "tensor 0: there is no group 7");
	assert_null(dump);
}

/* ---- tokens ------------------------------------------------------------- */

#define RANGE(begin, end) (struct kvt_range){ begin, end }

static void test_tokens(void)
{
	static const int64_t table[] = { 4, 1, 5 };
	struct kvt_dump *whole = make(2);

	for (int64_t begin = 0; begin < 10; begin++)
		for (int64_t end = begin + 1; end <= 10; end++) {
			struct kvt_range tokens = { begin, end };
			struct kvt_dump *row;
			uint32_t *numbers;
			int64_t first;

			ok(kvt_dump_tokens(&row, &first, whole, 0, "a", tokens, &why));
			keep_dump(row);
			assert_int_equal(first, begin % 4);
			assert_int_equal(kvt_dump_group(row, 0)->shape.n[NB],
					 (end - 1) / 4 - begin / 4 + 1);
			numbers = read_numbers(row, 0);
			/* heads, k and v, channels: 24 numbers a token */
			for (int64_t t = begin; t < end; t++)
				assert_int_equal(numbers[(first + t - begin) * 24],
						 place_number(2, 4, table[t / 4],
							      t % 4, 0, 0, 0));
		}
}

static void test_tokens_refused(void)
{
	const struct kvt_reblock_options none = { .block_size = 0 };
	struct kvt_reblocked said[KVT_MAX_GROUPS];
	struct kvt_dump *whole = make(2), *row = NULL;
	int64_t first;

	expect(kvt_dump_tokens(&row, &first, whole, 0, "b", RANGE(0, 1), &why),
	       KVT_USAGE, "there is no request b");
	expect(kvt_dump_tokens(&row, &first, whole, 1, "a", RANGE(0, 1), &why),
	       KVT_USAGE, "there is no group 1");
	expect(kvt_dump_tokens(&row, &first, whole, 0, "a", RANGE(4, 11), &why),
	       KVT_USAGE, "tokens 4 to 11 of a, which has 0 to 10");
	expect(kvt_dump_tokens(&row, &first, whole, 0, "a", RANGE(4, 2), &why),
	       KVT_USAGE, "tokens 4 to 2 of a, which has 0 to 10");
	expect(kvt_dump_reblock(&row, said, whole, &none, &why), KVT_USAGE,
	       "blocks of 0 tokens, expected 1 or more");
	assert_null(row);
}

/* What a window has passed is refused, the rest is there. */
static void test_tokens_of_a_window(void)
{
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_dump *dump, *row = NULL;
	int64_t first;

	new_group(s, "g0", KVT_SLIDING_WINDOW, "LBSHKD", extents)->window = 4;
	add_request(s, "a", 10, IDS(4, 1, 5));
	add_request(s, "part", 5, IDS(3, 2));
	s->request[1].first_token = 6;
	dump = number_dump(s, 0);
	expect(kvt_dump_tokens(&row, &first, dump, 0, "part", RANGE(5, 8), &why),
	       KVT_USAGE, "tokens 5 to 8 of part, which has 6 to 11");
	ok(kvt_dump_tokens(&row, &first, dump, 0, "part", RANGE(9, 11), &why));
	keep_dump(row);
	assert_int_equal(first, 1);
	assert_int_equal(read_numbers(row, 0)[0], place_number(0, 0, 2, 0, 0, 0, 0));
	expect(kvt_dump_tokens(&row, &first, dump, 0, "a", RANGE(0, 0), &why),
	       KVT_BAD_INPUT,
	       "token 0 of a is in no block of g0: the engine has let go of it");
	ok(kvt_dump_tokens(&row, &first, dump, 0, "a", RANGE(8, 10), &why));
	keep_dump(row);
}

/* Of states the newest stands for all tokens; slots of two tokens are whole. */
static void test_tokens_of_slots(void)
{
	static const int64_t states[] = { 3, 6, 1, 3, 1, 4 };
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_group *pairs;
	struct kvt_dump *dump, *row;
	int64_t first;

	new_group(s, "states", KVT_MAMBA_SSM, "LBSHKD", states);
	pairs = new_group(s, "pairs", KVT_FULL_ATTENTION, "LBSHKD", extents);
	pairs->tokens_per_slot = 2;
	pairs->block_size = 8;
	add_request(s, "a", 13, IDS(4, 1));
	add_table(s, 1, IDS(3, 2));
	dump = number_dump(s, 0);
	ok(kvt_dump_tokens(&row, &first, dump, 0, "a", RANGE(0, 0), &why));
	keep_dump(row);
	assert_int_equal(read_numbers(row, 0)[0], place_number(0, 0, 1, 0, 0, 0, 0));
	ok(kvt_dump_tokens(&row, &first, dump, 1, "a", RANGE(7, 9), &why));
	keep_dump(row);
	assert_int_equal(first, 3);
	assert_int_equal(kvt_dump_group(row, 0)->shape.n[NB], 2);
}

/* ---- snapshots ---------------------------------------------------------- */

static void test_json(void)
{
	struct kvt_dump *whole = make(0);
	char *text = kvt_snapshot_json(kvt_dump_snapshot(whole)), *again;
	struct kvt_snapshot *s, *copy;
	struct kvt_layout hnd;

	ok(kvt_snapshot_from_json(&s, text, "text", &why));
	again = kvt_snapshot_json(s);
	assert_string_equal(again, text);
	free(again);
	ok(kvt_snapshot_clone(&copy, s, &why));
	ok(kvt_layout_parse(&hnd, "hnd", NULL));
	ok(kvt_snapshot_set_layout(copy, &hnd, &why));
	assert_true(kvt_layout_equal(&copy->group[0].layout, &hnd));
	assert_false(kvt_layout_equal(&s->group[0].layout, &hnd));
	ok(kvt_layout_parse(&hnd, "L B H S/3 K D S%3", NULL));
	expect(kvt_snapshot_set_layout(copy, &hnd, &why), KVT_UNSUPPORTED, NULL);
	kvt_snapshot_delete(copy);
	kvt_snapshot_delete(s);
	kvt_snapshot_delete(NULL);
	free(text);
	for (const char *const *bad = (const char *const[]){ "", "[]", "{}",
	     "{\"layout\": \"nhd\"}", "{\"layout\": \"nhd\", \"dtype\": \"float32\"}",
	     NULL }; *bad; bad++)
		expect(kvt_snapshot_from_json(&s, *bad, "text", &why), KVT_BAD_INPUT,
		       NULL);
}

/* ---- answers ------------------------------------------------------------ */

struct heard {
	int only, groups, elements, rules;
	int64_t unequal, outside;
};

static void hear_only(void *context, int side, const char *text)
{
	((struct heard *)context)->only++;
	assert_int_equal(side, 0);
	assert_non_null(strstr(text, "layer"));
}

static void hear_group(void *context, const struct kvt_diff_group *g)
{
	((struct heard *)context)->groups++;
	((struct heard *)context)->unequal += g->unequal;
}

static void hear_element(void *context, const struct kvt_diff_element *e)
{
	((struct heard *)context)->elements++;
	assert_string_equal(e->request, "a");
	assert_int_equal(e->layer, 5);
	assert_int_equal(e->token, 6);
	assert_int_equal(e->block[0], 1);
}

static void hear_cell(void *context, const struct kvt_diff_cell *c)
{
	((struct heard *)context)->outside += c->outside;
	assert_true(c->outside == 0 || c->layer == 5);
	assert_true(c->outside == (c->dd > 0));
}

static void hear_rule(void *context, const struct kvt_broken_rule *rule)
{
	((struct heard *)context)->rules++;
	assert_non_null(rule->rule);
}

static void test_diff(void)
{
	struct kvt_dump *a = make(0), *b = make(0);
	const struct kvt_diff_options options = { .most = 9 };
	const struct kvt_range two = { 4, 6 };
	const struct kvt_slice_options part = { .layers = { 1, &two } };
	struct heard heard = { 0 };
	const struct kvt_diff_told told = {
		.context = &heard, .only = hear_only, .group = hear_group,
		.element = hear_element, .cell = hear_cell };
	struct kvt_text x, y;
	struct kvt_dump *less;
	int64_t changed = ((1 * 6 + 1) * 4 + 2) * 24 + 5;	/* layer 5, token 6 */

	ok(kvt_diff(a, b, NULL, NULL, NULL, &why));
	((uint32_t *)bytes_of(b, 0))[changed] ^= 1 << 30;
	expect(kvt_diff(a, b, &options, &told, NULL, &why), KVT_MISMATCH,
	       "g0 differs");
	assert_int_equal(heard.groups, 1);
	assert_int_equal(heard.elements, 1);
	assert_int_equal(heard.unequal, 1);
	assert_int_equal(heard.outside, 1);
	ok(kvt_dump_digest(&x, a, KVT_SCOPE_TOKENS, NULL, &why));
	ok(kvt_dump_digest(&y, b, KVT_SCOPE_TOKENS, NULL, &why));
	assert_string_not_equal(x.s, y.s);
	ok(kvt_dump_slice(&less, a, &part, &why));
	keep_dump(less);
	expect(kvt_diff(a, less, &options, &told, NULL, &why), KVT_BAD_INPUT, NULL);
	ok(kvt_diff(a, less, &(struct kvt_diff_options){ .common = true }, &told,
		    NULL, &why));
	assert_int_equal(heard.only, 1);
	expect(kvt_diff(a, b, &(struct kvt_diff_options){ .most = 101 }, NULL,
			NULL, &why), KVT_USAGE, "101 elements, expected at most 100");
	expect(kvt_diff(a, b, &(struct kvt_diff_options){ .has_bound = true, .bound = 1 },
			NULL, NULL, &why), KVT_USAGE, "of attention, which is not asked");
}

/* Names of layers are made of their place: a number that is another is a warning. */
static void test_check(void)
{
	struct heard heard = { 0 };
	struct kvt_snapshot *s = snapshot_of("LBSHKD", extents);

	add_request(s, "a", 10, IDS(4, 1, 5));
	ok(kvt_check(number_dump(s, 0), true, hear_rule, &heard, NULL, &why));
	assert_int_equal(heard.rules, 1);	/* stale slots, a note */
	heard.rules = 0;
	expect(kvt_check(make(0), false, hear_rule, &heard, NULL, &why), KVT_MISMATCH,
	       "0 errors, 3 warnings");
	assert_int_equal(heard.rules, 3);
}

/* ---- writing ------------------------------------------------------------ */

static void test_written(void **state)
{
	struct kvt_dump *whole = make(3);
	struct path out = join(*state, "out.h5");
	struct kvt_dump *written, *again;
	struct kvt_writer *writer;

	ok(kvt_create(&writer, out.s, NULL, kvt_dump_snapshot(whole), &why));
	ok(kvt_write(&writer, (const struct kvt_dump *const[]){ whole }, 1, NULL,
		     &why));
	/* kvt_write() has done it */
	ok(kvt_finish(writer, &why));
	ok(kvt_open_written(&written, writer, &why));
	ok(kvt_verify(whole, written, NULL, &why));
	kvt_dump_close(written);
	assert_int_equal(access(out.s, F_OK), -1);
	ok(kvt_publish(&writer, 1, &why));
	kvt_close_writer(writer);
	again = open_dump(out.s);
	check_places(again, 3);
	((uint32_t *)bytes_of(whole, 0))[100] ^= 1;
	expect(kvt_verify(whole, again, NULL, &why), KVT_MISMATCH, NULL);
	assert_string_equal(kvt_version(), KVT_VERSION);
}

TESTS("public",
	TEST(test_tensors), TEST(test_tensors_of_groups), TEST(test_tensors_on_device),
	TEST(test_pieces), TEST(test_tensors_refused), TEST(test_tokens),
	TEST(test_tokens_refused), TEST(test_tokens_of_a_window),
	TEST(test_tokens_of_slots), TEST(test_json), TEST(test_diff), TEST(test_check),
	IN_FOLDER(test_written))
