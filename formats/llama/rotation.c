/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotation.c - whether quantised keys and values are kept in another basis
 *
 * Since 2026-04 llama.cpp rotates what is quantised by a Hadamard matrix where a head
 * has a multiple of 64 numbers: keys by the largest power of two that divides it, values
 * by 64, each if its own type is quantised.  No file says it, and an environment
 * variable turns it off; so it is told, but for what never was rotated.
 *
 * Nor do the numbers of one file say it.  Of 64 sets of keys and of values of models with
 * random weights (heads of 64 to 256, q8_0 and q5_1, half of them rotated) the largest
 * rms of a channel to the median is 1.22 to 1.79 rotated and 1.25 to 1.71 not, kurtosis
 * 2.84 to 3.13 and 2.85 to 3.13: no threshold is right, although trained weights, whose
 * keys have few large channels, may tell.  A second dump of the same tokens does.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/llama/llama.h"

enum { BY_RULE = -1, UNKNOWN = -2 };	/* of what is told; 0: nothing is */

enum kvt_status kvt_llama_rotation(int64_t turn[2], const char *option, const char *text,
				   struct kvt_error *err)
{
	const char *at = text;

	if (!text)
		return KVT_OK;
	turn[0] = turn[1] = strcmp(text, "unknown") ? 1 : UNKNOWN;
	if (!strcmp(text, "none") || !strcmp(text, "unknown"))
		return KVT_OK;
	if (!strcmp(text, "hadamard"))
		at = "k/v";
	for (int64_t n; *at; at += *at == '/') {
		int64_t *of = &turn[*at == 'v'];
		size_t digits = strspn(at + 1, "0123456789");

		n = !digits ? BY_RULE : digits < 5 ? strtoll(at + 1, NULL, 10) : 0;
		if (!strchr("kv", *at) || *of != 1 || n == 1 || !n ||
		    (n > 0 && n & (n - 1)) || !strchr("/", at[1 + digits]) ||
		    (at[1 + digits] && !at[2 + digits]))
			return kvt_fail(err, KVT_USAGE,
					"%s=%.40s, expected none, hadamard, k, v, unknown, or how many numbers: k128/v64",
					option, text);
		*of = n;
		at += 1 + digits;
	}
	return KVT_OK;
}

int64_t kvt_llama_turn(const int64_t told[2], const struct kvt_llama_state *state, int kv,
		       int64_t vector, bool latent)
{
	if (told[kv] == UNKNOWN)
		return 0;
	/* what it keeps of MLA never is, nor was anything while it wrote outputs */
	if (!told[kv] && (state->outputs ||
			  (latent && !strcmp(state->arch, "deepseek2"))))
		return 1;
	if (told[kv] != BY_RULE)
		return told[kv];
	return vector % 64 ? 1 : kv ? 64 : vector & -vector;
}
