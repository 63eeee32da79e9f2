/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx_codes.c - which numbers the quantised arrays of mlx are
 *
 *	codes	[batch, heads, tokens, D * bits / 32]	words, the lowest bits first
 *	scales	[batch, heads, tokens, D / numbers]	a number for so many
 *	biases	the same, of the kind that is affine	number = code * scale + bias
 *
 * Codes of 2 to 8 bits fill words of 32, lowest bits first.  Beside them is a scale for
 * so many numbers and, of the kind that is not a float, a bias.  A file says bits and
 * numbers in some order that changed; a row of codes and its scales have the same number
 * of numbers, and only what fits that is believed.
 */
#include "formats/tensor/mlx_codes.h"

#include <stdlib.h>
#include <string.h>

static const struct kvt_tensor *beside(const struct kvt_tensors *tensors,
				       const struct kvt_tensor *codes, char which)
{
	size_t n = strlen(codes->name);
	char name[64];

	if (n >= sizeof(name))
		return NULL;
	memcpy(name, codes->name, n + 1);
	name[n - 1] = which;
	return kvt_tensors_find(tensors, name);
}

/* ---- kinds -------------------------------------------------------------- */

static const struct {
	const char *content;		/* without sizes and type, if it has a bias */
	int bits, group;
} kinds[] = {
	{ "mlx-affine", 2, 32 }, { "mlx-affine", 2, 64 }, { "mlx-affine", 2, 128 },
	{ "mlx-affine", 3, 32 }, { "mlx-affine", 3, 64 }, { "mlx-affine", 3, 128 },
	{ "mlx-affine", 4, 32 }, { "mlx-affine", 4, 64 }, { "mlx-affine", 4, 128 },
	{ "mlx-affine", 5, 32 }, { "mlx-affine", 5, 64 }, { "mlx-affine", 5, 128 },
	{ "mlx-affine", 6, 32 }, { "mlx-affine", 6, 64 }, { "mlx-affine", 6, 128 },
	{ "mlx-affine", 8, 32 }, { "mlx-affine", 8, 64 }, { "mlx-affine", 8, 128 },
	{ "mlx-mxfp4", 4, 32 }, { "mlx-mxfp8", 8, 32 }, { "mlx-nvfp4", 4, 16 },
};
enum { NKINDS = sizeof(kinds) / sizeof(kinds[0]) };

struct arrays {
	const struct kvt_tensor *codes, *scales, *biases;	/* NULL: no such */
	int64_t bits, group;		/* as the file says; -1: it does not */
};

static bool fits(const struct arrays *a, int kind)
{
	int64_t words = a->codes->shape[3], scales = a->scales->shape[3], numbers;
	bool biased = !strcmp(kinds[kind].content, "mlx-affine");

	return biased == (a->biases != NULL) &&
	       (a->bits < 0 || a->bits == kinds[kind].bits) &&
	       (a->group < 0 || a->group == kinds[kind].group) &&
	       !__builtin_mul_overflow(words, 32, &numbers) &&
	       numbers % kinds[kind].bits == 0 &&
	       numbers / kinds[kind].bits % kinds[kind].group == 0 &&
	       numbers / kinds[kind].bits / kinds[kind].group == scales;
}

/* Those of small floats, which have no bias, are bytes. */
static bool is_scale(const struct kvt_tensor *scales, bool biased)
{
	const char *name = scales->dtype ? scales->dtype->name : "";

	return !biased ? !strcmp(name, "uint8") :
	       !strcmp(name, "bfloat16") || !strcmp(name, "float16") ||
	       !strcmp(name, "float32");
}

static enum kvt_status find_kind(int *out, const struct arrays *a, const char *path,
				 struct kvt_error *err)
{
	int count = 0;

	for (int i = 0; i < NKINDS; i++)
		if (fits(a, i) && !count++)
			*out = i;
	if (count > 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the file does not say how many bits the codes of %.60s have, and %lld words with %lld scales may be %d in groups of %d or others; expected numbers for offset, group size and bits",
				path, a->codes->name, LL(a->codes->shape[3]),
				LL(a->scales->shape[3]), kinds[*out].bits,
				kinds[*out].group);
	if (!count && a->bits >= 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tensor %.60s has %lld words and %lld scales for a row, which are not codes of %lld bits in groups of %lld",
				path, a->codes->name, LL(a->codes->shape[3]),
				LL(a->scales->shape[3]), LL(a->bits), LL(a->group));
	if (!count)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tensor %.60s has %lld words and %lld scales for a row, which fit no coding of mlx",
				path, a->codes->name, LL(a->codes->shape[3]),
				LL(a->scales->shape[3]));
	return KVT_OK;
}

/* ---- tensors ------------------------------------------------------------ */

/* 0 to 2: what follows the second dot of "3.1.0"; -1: no such name. */
static int part_of(const char *name)
{
	const char *at = name + strspn(name, "0123456789");

	if (at == name || at[0] != '.' || (at[1] != '0' && at[1] != '1') ||
	    at[2] != '.' || at[3] < '0' || at[3] > '2' || at[4])
		return -1;
	return at[3] - '0';
}

static enum kvt_status settle(struct kvt_tensor *tensor,
			      const struct kvt_tensors *tensors, const char *path,
			      struct kvt_error *err)
{
	struct arrays a = { tensor, beside(tensors, tensor, '1'),
			    beside(tensors, tensor, '2'), tensor->held.bits,
			    tensor->held.bits_group };
	char *content = tensor->held.content;
	enum kvt_status status;
	int kind = 0;

	if (!a.scales || a.scales->rank != 4 || !tensor->dtype ||
	    strcmp(tensor->dtype->name, "uint32") || !is_scale(a.scales, a.biases))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: tensor %.60s of a QuantizedKVCache is %s with scales of %s, expected uint32 with scales of bfloat16, float16 or float32",
				path, tensor->name, tensor->type,
				a.scales ? a.scales->type : "nothing");
	if ((status = find_kind(&kind, &a, path, err)))
		return status;
	if (a.biases)
		snprintf(content, KVT_HELD_CONTENT, "%s/%d/%d/%s", kinds[kind].content,
			 kinds[kind].bits, kinds[kind].group, a.scales->dtype->name);
	else
		snprintf(content, KVT_HELD_CONTENT, "%s", kinds[kind].content);
	return KVT_OK;
}

enum kvt_status kvt_mlx_codes(struct kvt_tensors *tensors, const char *path,
			      struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int64_t n = 0;

	for (int64_t i = 0; !status && i < tensors->count; i++) {
		struct kvt_tensor *t = &tensors->tensor[i];
		int part = strcmp(t->held.class, "QuantizedKVCache") ? -1 :
			   part_of(t->name);

		if (part > 0)
			t->held.role = KVT_ROLE_SCALES;
		n += part >= 0;
		if (!part)
			status = settle(t, tensors, path, err);
	}
	/* names are in order while others are looked for */
	for (int64_t i = 0; !status && n && i < tensors->count; i++)
		if (tensors->tensor[i].held.content[0] &&
		    !part_of(tensors->tensor[i].name))
			*strrchr(tensors->tensor[i].name, '.') = '\0';
	if (status || !n)
		return status;
	free(tensors->by_name);
	return kvt_tensors_index(tensors, path, err);
}
