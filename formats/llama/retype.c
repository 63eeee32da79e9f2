/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retype.c - a dump on its way to a state, with the element types of the template
 *
 * Bytes of a cache go into rows of the type that they have; another type is another set
 * of numbers, and only made where that was asked for.  Elements of keys are put in the
 * order of llama.cpp first, because blocks and rotations take neighbours together.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/llama/write.h"
#include "lib/kvt/derive.h"

struct retyping {
	struct kvt_llama_writing w;
	struct kvt_encodings to[KVT_MAX_GROUPS];
	int64_t told[2];		/* what the build rotates: kvt_llama_rotation() */
	bool any, rotates;		/* something changes; it was told */
};

/* The type that the group's keys or values are to have; all layers have one. */
static enum kvt_status take_target(struct retyping *r, const struct kvt_llama_rows *rows,
				   const struct kvt_llama_source *source, int kv)
{
	const struct kvt_group *g = &r->w.snapshot->group[source->group];
	const struct kvt_ggml_type *type = kvt_ggml_type(rows->type);
	struct kvt_encoding *to = &r->to[source->group].half[kv];
	struct kvt_encoding is = { .dtype = NULL };

	if (!type)
		return kvt_fail(r->w.err, KVT_UNSUPPORTED, "%s: rows of ggml type %d",
				r->w.path, rows->type);
	is.dtype = kvt_dtype_find(type->dtype ? type->dtype : "uint8");
	if (!type->dtype && (rows->elem || !kvt_content_find(&is.content, type->name)))
		return kvt_fail(r->w.err, KVT_UNSUPPORTED,
				"%s: values of %s that are transposed, which no build writes",
				r->w.path, type->name);
	if (to->dtype && (to->dtype != is.dtype || to->content.type != is.content.type))
		return kvt_fail(r->w.err, KVT_UNSUPPORTED,
				"%s: layers that are group %s of the dump have %s of several types",
				r->w.path, g->id, kv ? "values" : "keys");
	*to = is;
	return KVT_OK;
}

static enum kvt_status take_targets(struct retyping *r)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < r->w.like.ncaches; i++) {
		const struct kvt_llama_written *c = &r->w.cache[i];

		for (int kv = 0; c->like && kv < 1 + c->like->has_values; kv++)
			for (int64_t l = 0; !status && l < c->like->nlayers; l++)
				status = take_target(r,
						     kvt_llama_rows_like(&r->w, i, kv, l),
						     kvt_llama_source_of(c, kv, l), kv);
	}
	return status;
}

/* What is of that type is moved, if nothing is said of the basis that it is to have. */
static void keep_same(struct retyping *r)
{
	for (int g = 0; g < r->w.snapshot->ngroups; g++)
		for (int kv = 0; kv < 2; kv++) {
			const struct kvt_group *group = &r->w.snapshot->group[g];
			struct kvt_encoding *to = &r->to[g].half[kv];

			if (to->dtype == group->dtype &&
			    to->content.type == group->content.type &&
			    !(to->content.type && r->rotates))
				*to = (struct kvt_encoding){ .dtype = NULL };
			r->any |= to->dtype != NULL;
		}
}

/* Which numbers a row of blocks has, and which of them are rotated together. */
static enum kvt_status take_blocks(struct retyping *r, struct kvt_encoding *to, int kv,
				   const struct kvt_group *numbers)
{
	int64_t vector = numbers->shape.n[KVT_AXIS_D], *turn = to->content.turn;
	bool latent = numbers->kind == KVT_MLA;

	if (!kvt_content_row_of(&to->content, vector))
		to->content.n = vector;
	turn[kv] = kvt_llama_turn(r->told, &r->w.like, kv, vector, latent);
	if (!turn[kv] && vector % 64)
		turn[kv] = 1;
	if (turn[kv])
		return KVT_OK;
	return kvt_fail(r->w.err, KVT_USAGE,
			"%s does not say whether its build rotates %s of %s: give --rotation=hadamard of builds since 2026-04, and --rotation=none of older ones or with LLAMA_ATTN_ROT_DISABLE=1",
			r->w.path, kv ? "values" : "keys", to->content.type->name);
}

static enum kvt_status take_rotation(struct retyping *r, const struct kvt_dump *dump)
{
	struct kvt_dump *numbers;
	const struct kvt_dtype *exact = kvt_dtype_find("float64");
	enum kvt_status status = kvt_dump_decode(&numbers, dump, exact, NULL, r->w.err);

	if (status)
		return status;
	for (int g = 0; g < r->w.snapshot->ngroups; g++)
		for (int kv = 0; !status && kv < 2; kv++)
			if (r->to[g].half[kv].content.type)
				status = take_blocks(r, &r->to[g].half[kv], kv,
						     kvt_dump_group(numbers, g));
	kvt_dump_close(numbers);
	return status;
}

static enum kvt_status retype(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
			      struct retyping *r, const struct kvt_dump *dump)
{
	enum kvt_status status;

	(void)((status = kvt_llama_take_template(&r->w)) ||
	       (status = kvt_llama_plan_layers(&r->w)) || (status = take_targets(r)));
	if (status)
		return status;
	keep_same(r);
	if (!r->any)
		return KVT_OK;
	if (r->w.pairs && !r->w.foreign)
		return kvt_fail(r->w.err, KVT_USAGE,
				"--set keys=halves is for other engines; leave it out where llama.cpp's numbers get another type");
	if ((status = take_rotation(r, dump)))
		return status;
	return kvt_dump_encode(out, from, dump, r->to, r->w.pairs, r->w.err);
}

enum kvt_status kvt_llama_retype(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
				 struct kvt_writer *writer, const struct kvt_dump *dump,
				 const char *rotation, struct kvt_error *err)
{
	struct retyping *r = calloc(1, sizeof(*r));
	enum kvt_status status;

	*out = NULL;
	if (!r)
		return kvt_no_memory(err, NULL);
	r->rotates = rotation != NULL;
	kvt_llama_writing_init(&r->w, writer, err);
	r->w.retypes = true;
	if (!(status = kvt_llama_rotation(r->told, "--rotation", rotation, err)))
		status = retype(out, from, r, dump);
	/* the keys are in order now */
	if (!status && *out && r->w.foreign)
		writer->options.key_order = "halves";
	kvt_llama_writing_free(&r->w);
	free(r);
	return status;
}
