/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.h - numbers as another type, as the engine that has it writes them
 *
 * A row is the numbers of a head vector, or of a latent; of a content that keeps keys and
 * values together, those of a key and then those of a value.  What a row becomes depends
 * on nothing but the row and a scale.  All arithmetic is that of float32, as the
 * engines' is; what is too large becomes the largest of an fp8 type, and infinity of
 * float16 and bfloat16.
 */
#ifndef KVT_CAST_H
#define KVT_CAST_H

#include "lib/kvt/content.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvt_caster {
	const struct kvt_dtype *dtype;	/* of elements; uint8 if a content */
	struct kvt_packing packing;	/* of a row; its content.type NULL: elements */
	int64_t n, nbytes;		/* numbers of a row; bytes of it, or of a page */
};

/*
 * The type of a name: of --dtype ("bfloat16", "fp8_e4m3"), of --content-type
 * ("fp8-per-token-head", "q8_0/plain", "mlx-affine/4/64/bfloat16"), or "fp8", which is
 * vLLM's e4m3fn.  'content' is empty where it is elements of one type.  KVT_USAGE: it
 * is no name of one.
 */
KVT_MUST_CHECK enum kvt_status
kvt_cast_parse(const struct kvt_dtype **dtype, struct kvt_content *content,
	       const char *name, struct kvt_error *err);

/* Are numbers divided by a scale that is kept outside of rows, or is the tensor's? */
bool kvt_cast_scaled(const struct kvt_dtype *dtype, const struct kvt_content *content);

/*
 * For rows of head vectors of 'dim' numbers.  KVT_UNSUPPORTED: numbers are not written
 * so, or cannot be of such vectors; KVT_BAD_INPUT: something of the content is not said.
 */
KVT_MUST_CHECK enum kvt_status
kvt_caster_init(struct kvt_caster *out, const struct kvt_dtype *dtype,
		const struct kvt_content *content, int64_t dim, struct kvt_error *err);

/*
 * For a block of 'slots' and of so many heads, if its content is pages: how many slots a
 * page has.  KVT_UNSUPPORTED: it has none of that size.
 */
KVT_MUST_CHECK enum kvt_status
kvt_caster_pages(struct kvt_caster *caster, int64_t *slots_of_page, int64_t slots,
		 int64_t heads, int64_t tokens_per_slot, struct kvt_error *err);

/* kvt_cast_scaled() of what it casts to. */
bool kvt_caster_scaled(const struct kvt_caster *caster);

/*
 * The scale that engines calibrate for numbers of this magnitude: it over the largest of
 * the type; 1 if that is 0 or not finite, and where there is no scale.
 */
float kvt_caster_scale(const struct kvt_caster *caster, float largest);

/*
 * Row 'row' of a page, of which the first comes first; of others it is 0.  'kv' is 1 for
 * a value where keys and values have a row each, else 0.
 */
void kvt_cast_row(const struct kvt_caster *caster, void *bytes, int64_t row,
		  const float *numbers, int64_t kv, float scale);
/*
 * After a row was written: KVT_BAD_INPUT if blocks of ggml hold no such numbers, which
 * are not finite, or have no scale that large.
 */
KVT_MUST_CHECK enum kvt_status
kvt_cast_holds(const struct kvt_caster *caster, const void *bytes, const float *numbers,
	       struct kvt_error *err);
/*
 * The same from the definitions, in doubles and by looking for the nearest code: it
 * shares no code with that, and is slow.  What it writes is compared with what was.
 */
void kvt_cast_prove(const struct kvt_caster *caster, void *bytes, int64_t row,
		    const float *numbers, int64_t kv, float scale);

/* ---- elements ----------------------------------------------------------- */

/* Its number in enum cast_element of cast_bits.h; -1: it is cast one by one. */
int kvt_cast_element(const struct kvt_dtype *dtype);
/* n elements as float32; of any type, which are rounded if it has more bits. */
void kvt_cast_load(float *out, const struct kvt_dtype *from, const void *elements,
		   int64_t n);
/* n float32 as elements of a float of at most 4 bytes. */
void kvt_cast_store(void *elements, const struct kvt_dtype *to, const float *in,
		    int64_t n);

#ifdef __cplusplus
}
#endif

#endif
