/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.c - which element type the bytes speak for
 *
 * The same sample is read as each type, in both byte orders; the type under which it
 * takes the fewest bits a byte is the likeliest.  How the axes are ordered does not
 * matter here, so any layout that opens will do.
 */
#include "lib/ops/guess/impl.h"
#include "lib/ops/guess/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In a sentence that says what to add. */
#define ASKS "give --"

/* The first preset that can be opened, for what all layouts have in common. */
static enum kvt_status open_any(struct kvt_dump **out, struct kvt_guess_candidate *c,
				const struct guess_sample *s, struct kvt_error *err)
{
	const struct kvt_preset *preset;
	enum kvt_status status = KVT_BAD_INPUT;
	struct kvt_error why = { "" }, first = { "" };

	for (int i = 0; (preset = kvt_preset_at(i)); i++) {
		status = kvt_guess_open(out, c, s, preset->axes, &why);
		if (!status || (status != KVT_BAD_INPUT && status != KVT_USAGE))
			break;
		/* of what is missing rather than of what contradicts the layout */
		if (!first.text[0] ||
		    (!strstr(first.text, ASKS) && strstr(why.text, ASKS)))
			first = why;
	}
	/* the first layout is the plainest; later ones complain of odder things */
	return status ? kvt_fail(err, status, "%s", first.text[0] ? first.text :
				 why.text) : KVT_OK;
}

static int by_bits(const void *a, const void *b)
{
	double x = ((const struct kvt_guess_type *)a)->bits;
	double y = ((const struct kvt_guess_type *)b)->bits;

	return (x > y) - (x < y);
}

/* 'fits' is false, and 'err' says why, if no layout can be of this type. */
static enum kvt_status weigh_type(struct kvt_guess *g, bool *fits,
				  const struct guess_sample *sample,
				  const struct kvt_dtype *dtype, struct kvt_error *err)
{
	struct guess_sample s = *sample;
	struct kvt_guess_candidate c;
	struct kvt_dump *dump;
	uint8_t *bytes = NULL;
	int64_t nbytes;
	enum kvt_status status;

	s.hints.dtype = dtype->name;
	*fits = !(status = open_any(&dump, &c, &s, err));
	if (status)
		return status == KVT_BAD_INPUT || status == KVT_USAGE ? KVT_OK : status;
	status = kvt_guess_bytes(&bytes, &nbytes, &s, dump, err);
	kvt_dump_close(dump);
	for (int swapped = 0; !status && swapped <= (dtype->elem > 1) &&
			      g->ntypes < KVT_GUESS_TYPES; swapped++) {
		struct kvt_guess_type *t = &g->type[g->ntypes++];

		*t = (struct kvt_guess_type){ .dtype = dtype, .swapped = swapped,
					  .elements = nbytes / dtype->elem };
		t->bits = kvt_guess_type_bits(&t->unit, dtype, swapped, bytes, nbytes);
	}
	free(bytes);
	return status;
}

/* No cache is of doubles, or of numbers without a sign, which are scales. */
static bool holds_keys(const struct kvt_dtype *type)
{
	return type->is_float && type->elem < 8 && type->number != KVT_POWER;
}

enum kvt_status kvt_guess_rank_types(struct kvt_guess *g, const struct guess_sample *s,
				     struct kvt_error *err)
{
	const char *said = s->hints.dtype;
	const struct kvt_dtype *dtype = said ? kvt_dtype_find(said) : NULL, *type;
	struct kvt_error first = { "" }, why = { "" };
	enum kvt_status status;
	bool fits;

	if (said && !dtype)
		return kvt_fail(err, KVT_USAGE, "dtype '%.40s' is not an element type",
				said);
	if (dtype && !dtype->is_float)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"elements of %s: guess needs floating point values",
				dtype->name);
	for (int i = 0; (type = kvt_dtype_at(i)); i++) {
		if (!holds_keys(type) || (dtype && dtype != type))
			continue;
		if ((status = weigh_type(g, &fits, s, type, &why)))
			return kvt_fail(err, status, "%s", why.text);
		if (!fits && !first.text[0])
			first = why;
	}
	if (!g->ntypes)
		return kvt_fail(err, first.text[0] ? KVT_BAD_INPUT : KVT_UNSUPPORTED,
				"%s", first.text[0] ? first.text :
				"values of this type are not supported");
	qsort(g->type, (size_t)g->ntypes, sizeof(g->type[0]), by_bits);
	return KVT_OK;
}

void kvt_guess_doubt(struct kvt_guess *g, const char *text)
{
	if (!g->why_not[0])
		snprintf(g->why_not, sizeof(g->why_not), "%s", text);
}

/* Types that the data does not tell apart are two answers. */
void kvt_guess_judge_types(struct kvt_guess *g)
{
	double lead = g->ntypes > 1 ? g->type[1].bits - g->type[0].bits : INFINITY;

	if (g->type[0].elements < GUESS_LEAST_ELEMENTS) {
		kvt_guess_doubt(g, "fewer than 64 elements were read, which is too few");
		g->confidence = 0;
	} else if (isinf(g->type[0].bits)) {
		kvt_guess_doubt(g, "all elements that were read are 0");
		g->confidence = 0;
	} else if (g->type[0].swapped) {
		kvt_guess_doubt(g,
				"the bytes of an element look swapped (big-endian), which no command reads");
		g->confidence = 0;
	} else if (lead < GUESS_LEAST_TYPE) {
		kvt_guess_doubt(g,
				"the element type does not follow from the data; give --dtype");
		g->confidence = fmin(g->confidence, lead / GUESS_LEAST_TYPE);
	} else {
		g->confidence = fmin(g->confidence, lead / GUESS_LEAST_TYPE);
	}
}
