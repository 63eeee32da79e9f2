/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content_types.h - a row of the table of contents, and the codings of its fields;
 * not installed
 *
 *	VALUES("nope", "fp8", 512, 0, 1)	512 fp8 in plane 0, scaled by field 1
 *	SCALES("scales", "float32", 4, 0)	4 float32: one for each 128 of them
 *	VALUES("rope", "bfloat16", 64, 0, -1)	64 bfloat16, unscaled
 *
 *	bytes	0		 512	     528	       656
 *		[nope ..........][scales ...][rope ...........]
 *
 * The fields of a plane lie one behind another, so a row of the table has counts and
 * no offsets.  A count is fixed, or a part of the numbers of a head vector.
 */
#ifndef KVT_LAYOUT_CONTENT_TYPES_H
#define KVT_LAYOUT_CONTENT_TYPES_H

#include "lib/kvt/content.h"

enum { MAX_PLANES = 4 };

struct field_recipe {
	const char *name;
	enum kvt_field_role role;
	const char *type;		/* "fp8": which one must be said */
	int64_t n, per;			/* elements: n, or one for 'per' numbers */
	int plane;
	int scale, added;		/* fields; -1: none */
	enum kvt_rotation rotation;
	bool unit;
	enum kvt_scale_order order;
	bool high;			/* the field before has the highest bits */
};

/* Numbers together, their scale, what is added, and codes, as they are stored. */
enum { GGML_BLOCK = 32 };
struct ggml_block {
	float scale, added;
	uint8_t code[GGML_BLOCK];
};

/*
 * How an engine writes numbers that have a scale for so many of them.  All in float32;
 * 'through': a type that its arithmetic rounds each step to.
 */
struct tile_rule {
	float least;		/* what the largest magnitude is at least; */
	float over, times;	/* over or times this, 0: not so, -1: over the fp8's; */
	float floor;		/* what comes out is at least this, and kept as */
	enum {
		TILE_FLOAT,	/* it is */
		TILE_NEAREST,	/* the nearest of the type of scales */
		TILE_POWER,	/* the least power of two that is not less */
	} kept;
	bool inverse;		/* numbers times 1 / scale, not over it */
	bool first;		/* 4 bits: of two as near the first; 0 has no sign */
	const char *through;
};

struct content_recipe {
	struct kvt_content_type type;
	int nfields;
	struct field_recipe field[KVT_MAX_FIELDS];
	int64_t step;			/* numbers of a head are a multiple; 0: of 1 */
	int64_t block;			/* numbers of a block of all fields; 0: not so */
	int64_t even;			/* bytes of a row are rounded up to; 0: 1 */
	int64_t page_rows;		/* kvt_content_page_rows() */
	bool told;			/* numbers of a head must be said */
	int halves;			/* 2: a key, then a value; else 0 */
	const char *fp8;		/* if all engines have the same */
	const char *product, *result;	/* types that its maker rounds to, or NULL */
	const char *unreadable;		/* why; NULL: it can be read */
	/* A block of so many numbers, of zeros before; NULL: it has no blocks. */
	void (*encode)(struct ggml_block *out, const float *numbers);
	/* So many such blocks as they lie. */
	void (*blocks)(uint8_t *to, const float *numbers, int64_t n);
	/* A row, of zeros before, by rules of its own or by 'tile'; NULL: not so. */
	void (*write)(unsigned char *bytes, const struct kvt_packing *packing,
		      int64_t row, const float *numbers, float scale);
	const struct tile_rule *tile;
	bool scaled;			/* that scale is for all rows of a tensor */
	const char *unwritten;		/* why none of these; NULL: one is there */
};
const struct content_recipe *kvt_content_recipe_at(int i);	/* NULL past the last */

static inline const struct content_recipe *
content_recipe_of(const struct kvt_content *content)
{
	/* a type is handed out only as the first member of its recipe */
	return (const struct content_recipe *)content->type;
}

/* Is any of it fp8 of which it must be said which? */
bool kvt_content_has_fp8(const struct content_recipe *recipe);

/* Elements of a field, and bytes of a row of a plane, for heads of 'dim' numbers. */
int64_t kvt_field_recipe_count(const struct field_recipe *field, int64_t dim);
int64_t kvt_content_plane_width(const struct content_recipe *recipe, int plane,
				int64_t dim);
/* Of all planes, rounded up. */
int64_t kvt_content_row_width(const struct content_recipe *recipe, int64_t dim);

/* ---- codings ------------------------------------------------------------ */

/* How bits are a number, besides the types of dumps. */
struct content_coding {
	const char *name;
	int bits;
	double (*number)(uint32_t bits);
	double step;			/* from a number to its farther neighbour; */
	double (*gap)(uint32_t bits);	/* or this, if that is not the same for all */
};
/* Its index; -1: none of that name. */
int kvt_content_coding_find(const char *name);
const struct content_coding *kvt_content_coding_at(int i);

/* ---- writing ------------------------------------------------------------ */

/*
 * Row 'row' of a slot, from numbers in the basis of the model, as the engine makes it
 * (ggml's CPU backend on x86); the first comes first, and sets all bytes of the slot.
 */
void kvt_packing_write(void *bytes, const struct kvt_packing *packing, int64_t row,
		       int64_t kv, const float *numbers, float scale);
/* The same number by number, from the definitions; shares no code with it. */
void kvt_packing_prove(void *bytes, const struct kvt_packing *packing, int64_t row,
		       int64_t kv, const float *numbers, float scale);
/* Of blocks, both: each block's codes and scales, or as they lie. */
void kvt_packing_put_blocks(void *bytes, const struct kvt_packing *packing, int64_t kv,
			    const float *numbers, bool one_by_one);
/* The bit of the packing at which element i of a row begins. */
int64_t kvt_field_bit(const struct kvt_field *field, int64_t row, int64_t i);

/* Rows of contents that have a rule of their own (content_write.c). */
void kvt_write_int8(unsigned char *bytes, const struct kvt_packing *packing, int64_t row,
		    const float *numbers, float scale);
void kvt_write_transformers_fp8(unsigned char *bytes, const struct kvt_packing *packing,
				int64_t row, const float *numbers, float scale);
void kvt_write_affine(unsigned char *bytes, const struct kvt_packing *packing,
		      int64_t row, const float *numbers, float scale);

/* ---- blocks of ggml (ggml.c) -------------------------------------------- */

void kvt_ggml_q4_0(struct ggml_block *out, const float *numbers);
void kvt_ggml_rows_q4_0(uint8_t *to, const float *numbers, int64_t blocks);
void kvt_ggml_q4_1(struct ggml_block *out, const float *numbers);
void kvt_ggml_rows_q4_1(uint8_t *to, const float *numbers, int64_t blocks);
void kvt_ggml_q5_0(struct ggml_block *out, const float *numbers);
void kvt_ggml_rows_q5_0(uint8_t *to, const float *numbers, int64_t blocks);
void kvt_ggml_q5_1(struct ggml_block *out, const float *numbers);
void kvt_ggml_rows_q5_1(uint8_t *to, const float *numbers, int64_t blocks);
void kvt_ggml_q8_0(struct ggml_block *out, const float *numbers);
void kvt_ggml_rows_q8_0(uint8_t *to, const float *numbers, int64_t blocks);
void kvt_ggml_iq4_nl(struct ggml_block *out, const float *numbers);
void kvt_ggml_rows_iq4_nl(uint8_t *to, const float *numbers, int64_t blocks);

/* ---- rotations ---------------------------------------------------------- */

enum { MAX_ROTATED = 1024 };

/* Can vectors of n numbers be rotated back?  If not, 'why' says so. */
bool kvt_rotation_defined(enum kvt_rotation rotation, int64_t n, const char **why);
/* In place. */
void kvt_rotation_undo(enum kvt_rotation rotation, double *vector, int64_t n);

#endif
