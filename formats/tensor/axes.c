/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axes.c - the order of axes of a cache, as letters, and which one a shape can have
 *
 * Nothing in a tensor says whether heads or tokens come first, unless one of both would
 * be of more heads than any model has for keys.  Where it does not, the user is asked,
 * with the sizes of both.
 */
#include "formats/tensor/names.h"

#include <string.h>

#include "lib/base/print.h"

static const struct {
	char letter;
	const char *word;
} axes_known[] = {
	{ 'L', "layers" }, { 'K', "keys and values" }, { 'B', "batch" },
	{ 'H', "heads" }, { 'T', "tokens" }, { 'D', "elements" },
};
enum { NAXES = sizeof(axes_known) / sizeof(axes_known[0]) };

struct kvt_text kvt_axes_text(const char *axes)
{
	struct kvt_text out = { "" };
	size_t n = 0;

	for (; *axes; axes++)
		for (int i = 0; i < NAXES; i++)
			if (axes_known[i].letter == *axes && n < sizeof(out.s))
				n += (size_t)snprintf(out.s + n, sizeof(out.s) - n,
						      "%s%s", n ? ", " : "",
						      axes_known[i].word);
	return out;
}

enum kvt_status kvt_axes_check(const char *axes, struct kvt_error *err)
{
	bool good = strchr(axes, 'T') && strchr(axes, 'D') &&
		    strspn(axes, "LKBHTD") == strlen(axes);

	for (const char *at = axes; *at; at++)
		good &= !strchr(at + 1, *at);
	return good ? KVT_OK :
	       kvt_fail(err, KVT_USAGE,
			"axes is '%.20s', expected an order of L (layers), K (keys and values), B (batch), H (heads), T (tokens) and D (elements), of which T and D are there always",
			axes);
}

const char *kvt_axes_of_shape(const struct kvt_tensor *t)
{
	if (t->rank != 4 || t->shape[0] != 1)
		return NULL;
	if (t->shape[1] <= KVT_MOST_HEADS && t->shape[2] > KVT_MOST_HEADS)
		return KVT_CACHE_AXES;
	return t->shape[1] > KVT_MOST_HEADS && t->shape[2] <= KVT_MOST_HEADS ?
	       "BTHD" : NULL;
}

/* As a cache, layers that hold fewer tokens than others have a sliding window. */
static struct kvt_text window_text(const struct kvt_tensors *tensors, int axis)
{
	int64_t least = INT64_MAX, most = 0;
	struct kvt_text out = { "" };

	for (int64_t i = 0; i < tensors->count; i++) {
		const struct kvt_tensor *t = &tensors->tensor[i];

		if (t->rank != 4)
			return out;
		least = t->shape[axis] < least ? t->shape[axis] : least;
		most = t->shape[axis] > most ? t->shape[axis] : most;
	}
	if (least < most)
		snprintf(out.s, sizeof(out.s),
			 " --set=window=%lld (window=%lld of a static cache)",
			 LL(least) + 1, LL(least));
	return out;
}

enum kvt_status kvt_axes_ask(const struct kvt_tensors *tensors,
			     const struct kvt_tensor *t, const char *first,
			     const char *before, const char *blocks, const char *path,
			     struct kvt_error *err)
{
	int at = (int)strlen(first);

	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: the file does not say what the axes of %.100s (%s) are; give %s--set=axes=%sHTD%s if it is %lld heads of %lld tokens, %s--set=axes=%sTHD%s if %lld tokens of %lld heads%s%s%s",
			path, t->name, kvt_extents_text(t->rank, t->shape).s, before,
			first,
			window_text(tensors, at + 1).s, LL(t->shape[at]),
			LL(t->shape[at + 1]), before, first, window_text(tensors, at).s,
			LL(t->shape[at]), LL(t->shape[at + 1]),
			blocks ? ", or --layout or --manifest if it is blocks" : "",
			blocks && *blocks ? ", which could be " : "",
			blocks ? blocks : "");
}
