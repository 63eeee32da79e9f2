/* SPDX-License-Identifier: Apache-2.0 */
/* random_layout.h - axis strings and shapes nobody would think of */
#ifndef RANDOM_LAYOUT_H
#define RANDOM_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* splitmix64: the same numbers on every machine */
static inline uint64_t random_next(uint64_t *seed)
{
	uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static inline int random_below(uint64_t *seed, int n)
{
	return (int)(random_next(seed) % (uint64_t)n);
}

/* Letters and parts of letters: "L", "S/8", "S%8", "x". */
struct tokens {
	int count;
	const char *t[10];
};

/* What splits must divide. */
struct random_shape {
	int64_t s, d, elem;
};

static inline void tokens_shuffle(struct tokens *k, uint64_t *seed)
{
	for (int i = k->count - 1; i > 0; i--) {
		int j = random_below(seed, i + 1);
		const char *t = k->t[i];

		k->t[i] = k->t[j];
		k->t[j] = t;
	}
}

/* Now and then, an axis becomes two parts.  x must follow its D. */
static inline void tokens_split(struct tokens *k, const struct random_shape *shape,
				uint64_t *seed)
{
	static const char *const parts[][2] = {
		{ "S/2", "S%2" }, { "S/4", "S%4" }, { "S/6", "S%6" }, { "S/x", "S%x" },
		{ "D/2", "D%2" }, { "D/4", "D%4" }, { "D/6", "D%6" }, { "D/x", "x" },
	};
	const int64_t split[] = { 2, 4, 6, 16 / shape->elem };

	for (int i = 0; i < k->count; i++) {
		bool is_s = !strcmp(k->t[i], "S"), is_d = !strcmp(k->t[i], "D");
		int at, which = random_below(seed, 4), flip = random_below(seed, 2);
		const char *const *pair = parts[is_d ? which + 4 : which];

		if ((!is_s && !is_d) || random_below(seed, 2) ||
		    (is_s ? shape->s : shape->d) % split[which])
			continue;
		flip &= strcmp(pair[1], "x") != 0;
		k->t[i] = pair[flip];
		/* the other part goes anywhere behind it */
		at = i + 1 + random_below(seed, k->count - i);
		memmove(k->t + at + 1, k->t + at,
			(size_t)(k->count - at) * sizeof(*k->t));
		k->t[at] = pair[!flip];
		k->count++;
	}
}

static inline void tokens_put(char *text, const struct tokens *k)
{
	for (int i = 0; i < k->count; i++) {
		strcat(text, k->t[i]);
		strcat(text, " ");
	}
}

static inline void random_order(char *text, const char *const *axes, int naxes,
				const struct random_shape *shape, uint64_t *seed)
{
	struct tokens k = { .count = naxes };

	memcpy(k.t, axes, (size_t)naxes * sizeof(*axes));
	tokens_shuffle(&k, seed);
	tokens_split(&k, shape, seed);
	tokens_put(text, &k);
}

/* One plane, planes that meet at K, or separate buffers; ends in a blank. */
enum random_kind { RANDOM_ONE, RANDOM_JOINED, RANDOM_APART };

static inline void random_layout(char text[200], enum random_kind kind,
				 const struct random_shape *shape,
				 uint64_t *seed)
{
	static const char *const all[] = { "L", "B", "S", "H", "D", "K" };
	struct tokens before = { .count = 5 };
	char prefix[40] = "";

	text[0] = '\0';
	if (kind == RANDOM_ONE) {
		random_order(text, all, 6, shape, seed);
		return;
	}
	memcpy(before.t, all, 5 * sizeof(*all));
	tokens_shuffle(&before, seed);
	if (kind == RANDOM_JOINED) {
		before.count = random_below(seed, 5);
		tokens_put(prefix, &before);
		strcat(prefix, "K ");
	} else {
		before.count = 0;
	}
	for (int k = 0; k < 2; k++) {
		strcat(text, k ? "V:" : "K:");
		strcat(text, prefix);
		random_order(text, before.t + before.count, 5 - before.count,
			     shape, seed);
	}
}

#endif
