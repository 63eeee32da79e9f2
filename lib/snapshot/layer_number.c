/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_number.c - the number of a layer in the model, out of its name
 *
 * The digits behind the first "layer" or "layers", with one character between or none;
 * else the only number of the name that stands for itself:
 *
 *	model.layers.12.self_attn	12		layer_7		7
 *	blocks.3.w2			3		h.1.attn.0	none: two numbers
 */
#include "lib/kvt/snapshot.h"

#include <ctype.h>
#include <string.h>

/* Layers beyond this are a number that means something else. */
enum { MAX_LAYER = 1 << 20 };

static bool is_digit(char c)
{
	return isdigit((unsigned char)c);
}

/* A number that is a part of its own: "12" of "layers.12.attn", not of "w12". */
static const char *next_number(const char *s, const char *name)
{
	for (; *s; s++)
		if (is_digit(*s) && (s == name || !isalnum((unsigned char)s[-1])))
			return s;
	return NULL;
}

/* The number after the word layer or layers, or the only one there is. */
bool kvt_layer_number(int64_t *out, const char *name)
{
	const char *word = strstr(name, "layer"), *found = NULL, *s;

	if (word) {
		word += strlen("layer");
		word += *word == 's';
		word += *word && !is_digit(*word);
		if (is_digit(*word))
			found = word;
	}
	if (!found) {
		found = next_number(name, name);
		for (s = found; s && is_digit(*s); s++)
			;
		if (!found || next_number(s, name))
			return false;
	}
	*out = 0;
	for (; is_digit(*found) && *out < MAX_LAYER; found++)
		*out = *out * 10 + (*found - '0');
	return *out < MAX_LAYER;
}
