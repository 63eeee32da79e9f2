/* SPDX-License-Identifier: Apache-2.0 */
/* values.h - what a clause finds in a dump, by the type of its key */
#ifndef KVTOOL_EXPECT_VALUES_H
#define KVTOOL_EXPECT_VALUES_H

#include "cli/expect/expect.h"

/* What a clause is judged by. */
struct judging {
	const struct expect_dump *dump;
	const struct clause_key *key;	/* NULL: a field of that name */
	const char *name;
	const struct group_facts *f;	/* NULL: the whole dump */
	const json_t *value;		/* of the field, if the key has one */
};

/* Text that grows to the end of a buffer and no further. */
struct text {
	char *s;
	size_t room, used;
};
void text_add(struct text *t, const char *format, ...) KVT_PRINTF(2, 3);

/* False: the clause is judged in another way, there is no one value. */
bool judging_find(struct text *t, const struct judging *j);
/* Is what was found what is wanted? */
bool judging_same(const struct judging *j, const char *found, const char *wanted);

/* "predicates.head_run" inside 'object'; NULL if there is no such field. */
const json_t *json_field(const json_t *object, const char *path);

#endif
