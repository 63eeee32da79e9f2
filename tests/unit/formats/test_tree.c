/* SPDX-License-Identifier: Apache-2.0 */
/* test_tree.c - what a walk finds, leaves out and refuses; facts of formats */
#include "formats/file/tree.h"
#include "tests/unit/fixture.h"

#include <errno.h>

static void put(const char *folder, const char *name)
{
	struct path p = join(folder, name);
	char *slash = p.s + strlen(folder);

	while ((slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		assert_true(!mkdir(p.s, 0777) || errno == EEXIST);
		*slash = '/';
	}
	write_text(p.s, name);
}

static void test_walk(void **state)
{
	static const char *const wanted[] = { "A", "a/b/c.bin", "a/b/d", "a0", "b" };
	static const char *const left_out[] = {
		".hidden", ".git/config", "a/x.tmp", "a/x.tmp-77", "a/y~", "b.lock",
		"a/.c.bin",
	};
	struct kvt_files files = { 0 };
	struct kvt_tree tree;
	int index;

	for (int i = 4; i >= 0; i--)
		put(*state, wanted[i]);
	for (size_t i = 0; i < LENGTH(left_out); i++)
		put(*state, left_out[i]);
	ok(kvt_tree_walk(&tree, *state, &why));
	assert_int_equal(tree.count, 5);
	for (int i = 0; i < 5; i++) {
		char text[32] = "";

		assert_string_equal(tree.file[i].name, wanted[i]);
		assert_int_equal(tree.file[i].nbytes, strlen(wanted[i]));
		ok(kvt_tree_list(&files, &index, &tree, i, &why));
		assert_int_equal(index, i);
		assert_int_equal(files.file[i].fd, -1);
		ok(kvt_file_read(&files.file[i], text, (int64_t)strlen(wanted[i]), 0,
				 &why));
		assert_string_equal(text, wanted[i]);
	}
	/* another file of that name is not the one that was listed */
	assert_int_equal(rename(join(*state, "a0").s, join(*state, "b").s), 0);
	expect(kvt_file_read(&files.file[4], &(char){ 0 }, 1, 0, &why), KVT_BAD_INPUT,
	       "replaced");
	kvt_files_close(&files);
	kvt_tree_free(&tree);
}

static void refuse(const char *folder, enum kvt_status status, const char *part)
{
	struct kvt_tree tree;

	expect(kvt_tree_walk(&tree, folder, &why), status, part);
	assert_null(tree.file);
}

static void test_refused(void **state)
{
	char deep[80] = "";

	refuse(join(*state, "absent").s, KVT_SYSTEM, "absent");
	put(*state, "file");
	refuse(join(*state, "file").s, KVT_BAD_INPUT, "file");
	assert_int_equal(symlink("file", join(*state, "link").s), 0);
	refuse(*state, KVT_BAD_INPUT, "/link: is neither");
	assert_int_equal(unlink(join(*state, "link").s), 0);
	assert_int_equal(mkfifo(join(*state, "fifo").s, 0666), 0);
	refuse(*state, KVT_BAD_INPUT, "/fifo: is neither");
	assert_int_equal(unlink(join(*state, "fifo").s), 0);
	assert_int_equal(symlink("..", join(*state, "up").s), 0);
	refuse(*state, KVT_BAD_INPUT, "/up: is neither");
	assert_int_equal(unlink(join(*state, "up").s), 0);
	for (int i = 0; i < 3; i++) {
		static const char *const odd[] = { "a\nb", "\xff", "\x7f.bin" };

		put(*state, odd[i]);
		refuse(*state, KVT_BAD_INPUT, ": holds a name that is not plain text");
		assert_int_equal(unlink(join(*state, odd[i]).s), 0);
	}
	for (int i = 0; i < 13; i++)
		strcat(deep, "d/");
	strcat(deep, "f");
	put(*state, deep);
	refuse(*state, KVT_BAD_INPUT, "more levels");
}

static bool is_c(const char *name)
{
	return !strcmp(name, "a/b/c.bin");
}

static void test_has(void **state)
{
	assert_false(kvt_tree_has(join(*state, "absent").s, is_c));
	assert_false(kvt_tree_has(*state, is_c));
	put(*state, "a/b/d");
	put(*state, "z");
	assert_false(kvt_tree_has(*state, is_c));
	put(*state, "a/b/c.bin");
	assert_true(kvt_tree_has(*state, is_c));
}

static void test_text(void **state)
{
	struct kvt_files files = { 0 };
	size_t n;
	char *s;

	put(*state, "text");
	expect(kvt_tree_text(&s, &n, &files, join(*state, "text").s, 3, &why),
	       KVT_BAD_INPUT, "has 4 bytes, expected at most 3");
	ok(kvt_tree_text(&s, &n, &files, join(*state, "text").s, 4, &why));
	assert_string_equal(s, "text");
	assert_int_equal(n, 4);
	free(s);
	kvt_files_close(&files);
}

/* ---- facts -------------------------------------------------------------- */

static void test_facts(void)
{
	static const char *const keys[] = { "rank", "ranks", NULL };
	const struct kvt_format format = {
		.info = { "some", "", .reads = true, .writes = false }, .facts = keys };
	static const struct {
		struct kvt_facts facts;
		const char *part;	/* of the sentence; NULL: fine */
	} cases[] = {
		{ { 0, { 0 } }, NULL },
		{ { 2, { "rank=1", "ranks=2" } }, NULL },
		{ { 1, { "rank" } }, "'rank', expected KEY=VALUE" },
		{ { 1, { "=1" } }, "'', expected KEY=VALUE" },
		{ { 1, { "ran=1" } },
		  "--set of format some: there is no key 'ran', did you mean 'rank'? "
		  "Keys are rank, ranks" },
		{ { 1, { "other=1" } }, "no key 'other': keys are rank, ranks" },
		{ { 1, { "rank=" } }, "rank is '', expected a value" },
		{ { 2, { "rank=1", "rank=1" } }, "rank is given twice" },
	};
	struct kvt_hints hints = { .facts = { 3, { "ranks=12", "rank=", "x=9" } } };
	int64_t n = 7;

	for (size_t i = 0; i < LENGTH(cases); i++)
		expect(kvt_facts_check(&(struct kvt_hints){ .facts = cases[i].facts },
				       &format, &why),
		       cases[i].part ? KVT_USAGE : KVT_OK, cases[i].part);
	assert_null(kvt_fact(&hints, "ran"));
	assert_null(kvt_fact(NULL, "rank"));
	assert_string_equal(kvt_fact(&hints, "ranks"), "12");
	ok(kvt_fact_int(&n, &hints, "absent", 0, 9, &why));
	assert_int_equal(n, 7);
	ok(kvt_fact_int(&n, &hints, "ranks", 0, 12, &why));
	assert_int_equal(n, 12);
	expect(kvt_fact_int(&n, &hints, "ranks", 0, 11, &why), KVT_USAGE,
	       "ranks is '12', expected 0 to 11");
	expect(kvt_fact_int(&n, &hints, "rank", 0, 11, &why), KVT_USAGE, "rank is");
	assert_int_equal(n, 12);
}

TESTS("tree",
	IN_FOLDER(test_walk), IN_FOLDER(test_refused), IN_FOLDER(test_has),
	IN_FOLDER(test_text), TEST(test_facts))
