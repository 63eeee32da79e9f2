/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readings.c - which presets the shape of an array allows, in words
 *
 * "nhd (5 layers, 48 blocks of 16 tokens, 4 heads of 8), hnd/cpu-vec (5, 48 of 4, 16 of
 * 8)": those with the same sizes together, those of which the shape shows most first.  It
 * is what guess tries, which opens all presets.
 */
#include "formats/describe/describe.h"

#include <stdlib.h>
#include <string.h>

/* A preset whose axes an array has. */
struct fit {
	const struct kvt_preset *preset;
	struct kvt_layout layout;
	struct kvt_reading as;
	int64_t n[KVT_NAXES];
};

enum { MAX_FITS = 64 };

static bool same_sizes(const struct fit *a, const struct fit *b)
{
	return !memcmp(a->n, b->n, sizeof(a->n)) && a->as.flat == b->as.flat;
}

/* Of one layer presets are alike that have L at different places. */
static bool is_alike(const struct fit *a, const struct fit *b, int64_t elem)
{
	struct kvt_shape shape = { .elem = elem };

	memcpy(shape.n, a->n, sizeof(shape.n));
	return same_sizes(a, b) &&
	       (kvt_layout_equal(&a->layout, &b->layout) ||
		(a->as.one_layer && b->as.one_layer && !a->as.flat &&
		 kvt_layout_agree(&a->layout, &b->layout, &shape)));
}

/* Are there so many slots and elements as a layout packs together? */
static bool is_whole(const struct fit *fit, int64_t elem)
{
	struct kvt_shape shape = { .elem = elem };
	struct kvt_views views;
	struct kvt_box box;

	memcpy(shape.n, fit->n, sizeof(shape.n));
	box = kvt_box_whole(&shape);
	return fit->n[KVT_AXIS_B] < 0 ||
	       !kvt_layout_views(&views, &fit->layout, &box, shape.elem, NULL);
}

static int proof_of(const struct fit *fit)
{
	return fit->preset->latent ? 3 : fit->as.fuse ? 2 : fit->as.flat;
}

/* Those that have an axis for K, which must be 2, before those where any number fits. */
static int by_proof(const void *a, const void *b)
{
	const struct fit *x = a, *y = b;
	int more = proof_of(x) - proof_of(y);

	return more ? more : x->preset < y->preset ? -1 : x->preset > y->preset;
}

/* Two tensors as keys and values, of one layer or of all. */
static struct kvt_array as_pair(const struct kvt_array *array)
{
	struct kvt_array pair = *array;

	pair.apart = true;
	pair.of_layers = false;
	pair.rank--;
	memmove(pair.shape, pair.shape + 1, (size_t)pair.rank * sizeof(*pair.shape));
	return pair;
}

/* Of keys and values together only an axis of 2 shows that tokens are in no blocks. */
static bool fits(struct fit *fit, const struct kvt_group *group,
		 const struct kvt_array *array, int64_t elem)
{
	struct kvt_array pair;

	memcpy(fit->n, group->shape.n, sizeof(fit->n));
	if (strchr(fit->preset->name, ':') ||
	    kvt_layout_parse(&fit->layout, fit->preset->axes, NULL))
		return false;
	if (array->either && kvt_layout_apart(&fit->layout)) {
		pair = as_pair(array);
		array = &pair;
		fit->n[KVT_AXIS_L] = -1;
	}
	return kvt_match_shape(fit->n, &fit->as, &fit->layout, fit->preset->latent,
			       kvt_group_slots(group), array) &&
	       (array->apart || !fit->as.flat ||
		(!fit->as.fuse && !fit->preset->latent)) && is_whole(fit, elem);
}

/* Of kvtool's own presets. */
static int find_fits(struct fit out[MAX_FITS], const struct kvt_group *group,
		     const struct kvt_array *array)
{
	/* of a type that is not known, most are of 2 bytes */
	int64_t elem = array->elem ? array->elem : 2;
	const struct kvt_preset *preset;
	int count = 0;

	for (int i = 0; (preset = kvt_preset_at(i)) && count < MAX_FITS; i++) {
		int same = 0;

		out[count].preset = preset;
		if (!fits(&out[count], group, array, elem))
			continue;
		while (same < count && !is_alike(&out[same], &out[count], elem))
			same++;
		count += same == count;
	}
	qsort(out, (size_t)count, sizeof(*out), by_proof);
	return count;
}

/* "64 blocks", "1 block"; or the number alone. */
static void add_count(struct kvt_text *t, const char *before, int64_t n, const char *of,
		      bool words)
{
	size_t used = strlen(t->s);

	snprintf(t->s + used, sizeof(t->s) - used, "%s%lld%s%s%s", before, LL(n),
		 words ? " " : "", words ? of : "", words && n != 1 ? "s" : "");
}

/* "(2 layers, 64 blocks of 16 tokens, 8 heads of 32)", or in numbers alone. */
static struct kvt_text print_sizes(const struct fit *fit, bool words)
{
	struct kvt_text t = { "(" };
	const int64_t *n = fit->n;
	bool flat = n[KVT_AXIS_B] < 0;

	add_count(&t, "", n[KVT_AXIS_L], "layer", words);
	if (!flat)
		add_count(&t, ", ", n[KVT_AXIS_B], "block", words);
	add_count(&t, flat ? ", " : " of ", flat ? fit->as.tokens : n[KVT_AXIS_S],
		  "token", words || flat);
	if (!fit->preset->latent)
		add_count(&t, ", ", n[KVT_AXIS_H], "head", words);
	add_count(&t, fit->preset->latent ? ", rows of " : " of ", n[KVT_AXIS_D], "",
		  false);
	snprintf(t.s + strlen(t.s), sizeof(t.s) - strlen(t.s), ")");
	return t;
}

/* The i-th and all after it that have its sizes, "hnd/cpu-vec (...)"; they are done. */
static struct kvt_text print_fit(struct fit *fit, int i, int count)
{
	struct kvt_text t = print_sizes(&fit[i], !i), names = { "" };
	const struct fit first = fit[i];
	size_t used = 0;

	for (; i < count; i++) {
		if (!fit[i].preset || !same_sizes(&first, &fit[i]) ||
		    used + strlen(fit[i].preset->name) + strlen(t.s) + 3 > sizeof(t.s))
			continue;
		used += (size_t)snprintf(names.s + used, sizeof(names.s) - used, "%s%s",
					 used ? "/" : "", fit[i].preset->name);
		fit[i].preset = NULL;
	}
	snprintf(names.s + used, sizeof(names.s) - used, " %s", t.s);
	return names;
}

int kvt_manifest_readings(char *list, size_t size, bool *flat,
			  const struct kvt_group *group, const struct kvt_array *array)
{
	struct fit fit[MAX_FITS];
	int count = find_fits(fit, group, array);
	size_t used = 0;

	*flat = count && fit[0].as.flat && fit[0].n[KVT_AXIS_B] < 0;
	*list = '\0';
	for (int i = 0, left = count; i < count; i++) {
		struct kvt_text text;

		if (!fit[i].preset)
			continue;
		text = print_fit(fit, i, count);
		if (used + strlen(text.s) + sizeof(", and 99 more") > size) {
			snprintf(list + used, size - used, " and %d more", left);
			break;
		}
		used += (size_t)snprintf(list + used, size - used, "%s%s", i ? ", " : "",
					 text.s);
		left = 0;
		for (int j = i + 1; j < count; j++)
			left += fit[j].preset != NULL;
	}
	return count;
}
