/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests.h - what every file of unit tests begins with and ends with
 *
 * It ends with the list of its tests, which is its main():
 *
 *	TESTS("slices",
 *	      EACH(cases, test_case),		a test a row: *state is the row,
 *						its name is the row's 'what'
 *	      EACH_BY(cases, id, test_case),	or another of its members
 *	      TEST(test_empty),			a function without an argument
 *	      NAMED(test_large, "2^60 runs"),	the same, with a sentence as its name
 *	      WITH(&cases[3], test_case),	*state is what is given
 *	      AROUND(test_made, make, drop))	between what makes *state and frees it
 *
 * What the library says when it refuses goes to 'why', which ok() and expect() read.  A
 * sentence stays there for whoever looks closer, until something succeeds.
 *
 * What a test makes it gives to keep(), or has of room() and zeros(): all of it goes when
 * the test is over, the last first.
 */
#ifndef KVT_TESTS_UNIT_TESTS_H
#define KVT_TESTS_UNIT_TESTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/base.h"

#define LENGTH(table) ((int)(sizeof(table) / sizeof((table)[0])))

/* ---- statuses ----------------------------------------------------------- */

static struct kvt_error why;

static inline void judge(enum kvt_status status, enum kvt_status wanted,
			 const char *part, const char *file, int line)
{
	if (status != wanted) {
		print_error("status %d, expected %d: %s\n", (int)status, (int)wanted,
			    why.text);
		_fail(file, line);
	}
	if (wanted && (!why.text[0] || (part && !strstr(why.text, part)))) {
		print_error("message is '%s', expected '%s' in it\n", why.text,
			    part ? part : "");
		_fail(file, line);
	}
	if (!wanted)
		why.text[0] = '\0';
}

#define ok(status) judge(status, KVT_OK, NULL, __FILE__, __LINE__)
/* The status, and a part of the sentence if it is a refusal; NULL: any sentence. */
#define expect(status, wanted, part) judge(status, wanted, part, __FILE__, __LINE__)

/* ---- what a test makes -------------------------------------------------- */

static struct kept {
	void *thing;
	void (*drop)(void *);
} *keeping;
static int nkept, kept_room;

/* Gives 'thing' back. */
static inline void *keep_by(void *thing, void (*drop)(void *))
{
	assert_non_null(thing);
	if (nkept == kept_room) {
		kept_room = 2 * kept_room + 64;
		keeping = realloc(keeping, (size_t)kept_room * sizeof(*keeping));
		assert_non_null(keeping);
	}
	keeping[nkept++] = (struct kept){ thing, drop };
	return thing;
}

/* Memory that nobody has to free. */
static inline void *keep(void *memory)
{
	return keep_by(memory, free);
}

static inline void *room(size_t nbytes)
{
	return keep(malloc(nbytes + !nbytes));
}

static inline void *zeros(size_t nbytes)
{
	return keep(calloc(1, nbytes + !nbytes));
}

/* All of it goes now: of a round of many, say. */
static inline void let_go(void)
{
	while (nkept) {
		nkept--;
		keeping[nkept].drop(keeping[nkept].thing);
	}
}

/* This alone goes now. */
static inline void drop_now(void *thing)
{
	int i = nkept - 1;

	while (i >= 0 && keeping[i].thing != thing)
		i--;
	assert_true(i >= 0);
	keeping[i].drop(thing);
	memmove(&keeping[i], &keeping[i + 1], (size_t)(--nkept - i) * sizeof(*keeping));
}

/* ---- the list ----------------------------------------------------------- */

/* Tests that one line of the list stands for. */
struct listed {
	const char *name;
	void (*alone)(void);
	CMUnitTestFunction run;
	CMFixtureFunction before, after;
	const void *row;
	const char *const *what;	/* of the first of many rows */
	size_t count, size;
};

#define NAMED(test, sentence) { .name = sentence, .alone = test, .count = 1 }
#define TEST(test) NAMED(test, #test)
#define NAMED_AROUND(test, make, drop, sentence) { .name = sentence, .run = test,	\
	.before = make, .after = drop, .count = 1 }
#define AROUND(test, make, drop) NAMED_AROUND(test, make, drop, #test)
#define NAMED_WITH(given, test, sentence) { .name = sentence, .run = test,		\
	.row = given, .count = 1 }
#define WITH(given, test) NAMED_WITH(given, test, #test)
#define EACH_BY(rows, name, test) { .run = test, .row = rows, .what = &(rows)[0].name,	\
	.count = sizeof(rows) / sizeof((rows)[0]), .size = sizeof((rows)[0]) }
#define EACH(rows, test) EACH_BY(rows, what, test)

static inline void run_alone(void **state)
{
	const struct listed *test = *state;

	test->alone();
}

static const struct listed **running;	/* which line the test that runs is of */

static inline int before_test(void **state)
{
	running++;
	return (*running)->before ? (*running)->before(state) : 0;
}

static inline int after_test(void **state)
{
	let_go();
	return (*running)->after ? (*running)->after(state) : 0;
}

static inline struct CMUnitTest test_of(const struct listed *of, size_t i)
{
	struct CMUnitTest test = { of->name, of->run, before_test, after_test,
				   (void *)(uintptr_t)of->row };

	if (of->alone) {
		test.test_func = run_alone;
		test.initial_state = (void *)(uintptr_t)of;
	}
	if (of->what) {
		test.name = *(const char *const *)((const char *)of->what + i * of->size);
		test.initial_state = (char *)test.initial_state + i * of->size;
	}
	return test;
}

static inline int run_all(const char *name, const struct listed *list, size_t n,
			    CMFixtureFunction before, CMFixtureFunction after)
{
	struct CMUnitTest *tests;
	const struct listed **lines;
	size_t count = 0, at = 0;
	int failed;

	for (size_t i = 0; i < n; i++)
		count += list[i].count;
	tests = malloc(count * sizeof(*tests));
	lines = malloc((count + 1) * sizeof(*lines));
	if (!tests || !lines)
		return 1;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < list[i].count; k++) {
			tests[at] = test_of(&list[i], k);
			lines[++at] = &list[i];
		}
	running = lines;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	failed = _cmocka_run_group_tests(name, tests, count, before, after);
	free(keeping);
	free(lines);
	free(tests);
	return failed;
}

/* Between what is made once for all of them. */
#define TESTS_AROUND(name, make, drop, ...)						\
int main(void)										\
{											\
	static const struct listed list[] = { __VA_ARGS__ };				\
											\
	return run_all(name, list, LENGTH(list), make, drop);				\
}

#define TESTS(name, ...) TESTS_AROUND(name, NULL, NULL, __VA_ARGS__)

#endif
