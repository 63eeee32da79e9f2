/* SPDX-License-Identifier: Apache-2.0 */
/* fault_window.h - small windows for the tests of faults and of the diagnosis */
#ifndef KVT_TEST_FAULT_WINDOW_H
#define KVT_TEST_FAULT_WINDOW_H

#include "lib/kvt/fault.h"
#include "tests/unit/tests.h"

/* A window with its data; both sides start out alike. */
struct caches {
	struct kvt_window window;
	struct kvt_layout layout;
	int64_t nbytes;
	uint8_t *expected, *suspect;
	int64_t ids[64], prev[64], next[64], request[64], entry[64];
	uint32_t blocks[64];
	struct kvt_blocks_of table;
};

static inline int64_t count_elements(const struct kvt_shape *shape)
{
	int64_t n = 1;

	for (int a = 0; a < KVT_NAXES; a++)
		n *= shape->n[a];
	return n;
}

/* One request in the order of the blocks, in a layout of 'axes'; goes with the test. */
static inline struct caches *new_caches(enum kvt_kind kind, const char *dtype,
					const char *axes, const int64_t n[KVT_NAXES])
{
	struct caches *c = zeros(sizeof(*c));
	struct kvt_window *w = &c->window;

	w->kind = kind;
	w->dtype = kvt_dtype_find(dtype);
	memcpy(w->shape.n, n, sizeof(w->shape.n));
	w->shape.elem = w->dtype->elem;
	for (int64_t b = 0; b < n[KVT_AXIS_B]; b++) {
		c->ids[b] = c->entry[b] = b;
		c->blocks[b] = (uint32_t)b;
		c->prev[b] = b - 1;
		c->next[b] = b + 1 < n[KVT_AXIS_B] ? b + 1 : KVT_NOT_THERE;
	}
	w->block_ids = c->ids;
	w->prev = c->prev;
	w->next = c->next;
	c->table = (struct kvt_blocks_of){ c->blocks, n[KVT_AXIS_B] };
	w->table = &c->table;
	w->ntables = 1;
	w->request = c->request;
	w->entry = c->entry;
	ok(kvt_layout_parse(&c->layout, axes, NULL));
	w->layout = &c->layout;
	c->nbytes = count_elements(&w->shape) * w->shape.elem;
	c->expected = zeros((size_t)c->nbytes);
	c->suspect = zeros((size_t)c->nbytes);
	return c;
}

/* Values that look like those of a cache: all different, no NaN, none 0. */
static inline struct caches *caches_fill(struct caches *c)
{
	uint64_t state = 1;

	for (int64_t i = 0; i < c->nbytes; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		c->expected[i] = (uint8_t)(state >> 56);
	}
	for (int64_t i = c->window.shape.elem - 1; i < c->nbytes;
	     i += c->window.shape.elem)		/* exponents near that of 1 */
		c->expected[i] = (uint8_t)(0x3c | (c->expected[i] & 0x83));
	memcpy(c->suspect, c->expected, (size_t)c->nbytes);
	return c;
}

/* By all faults, or by this one. */
static inline enum kvt_status caches_diagnose_only(struct kvt_diagnosis *out,
						   const struct caches *c,
						   const struct kvt_fault *fault)
{
	int64_t nbytes;
	void *scratch;
	enum kvt_status status;

	if ((status = kvt_diagnose_scratch(&nbytes, &c->window, NULL)))
		return status;
	if (!(scratch = malloc((size_t)nbytes)))	/* its end is checked by ASan */
		abort();
	status = fault ? kvt_diagnose_only(out, fault, &c->window, c->expected,
					   c->suspect, scratch, NULL) :
		 kvt_diagnose(out, &c->window, c->expected, c->suspect, scratch, NULL);
	free(scratch);
	return status;
}

static inline enum kvt_status caches_diagnose(struct kvt_diagnosis *out,
					      const struct caches *c)
{
	return caches_diagnose_only(out, c, NULL);
}

static inline const char *caches_name(const struct caches *c)
{
	struct kvt_diagnosis d;

	if (caches_diagnose(&d, c))
		return "refused";
	if (d.decided && d.decided->verdict == KVT_EXPLAINS_PART)
		return "part";
	return d.decided ? d.decided->fault->name : d.nexplain ? "several" : "none";
}

/* ---- caches of each kind, all elements different ------------------------ */

enum shape { GQA, MLA, CONV, SSM, NSHAPES };

static inline struct caches *make(enum shape shape, const char *dtype)
{
	static const struct {
		enum kvt_kind kind;
		const char *axes;
		int64_t n[KVT_NAXES];
	} shapes[NSHAPES] = {
		[GQA]  = { KVT_FULL_ATTENTION, "LBSHC", { 3, 6, 4, 6, 2, 16 } },
		[MLA]  = { KVT_MLA, "BLSC", { 2, 6, 4, 1, 1, 24 } },
		[CONV] = { KVT_MAMBA_CONV, "LBDS", { 2, 6, 3, 1, 1, 32 } },
		[SSM]  = { KVT_MAMBA_SSM, "LBHC", { 2, 6, 1, 6, 1, 16 } },
	};
	struct caches *c = caches_fill(new_caches(shapes[shape].kind, dtype,
						  shapes[shape].axes, shapes[shape].n));

	if (shape == CONV) {
		c->window.nparts = 3;
		c->window.part[0] = (struct kvt_row_part){ 0, 16 };
		c->window.part[1] = (struct kvt_row_part){ 16, 8 };
		c->window.part[2] = (struct kvt_row_part){ 24, 8 };
	}
	return c;
}

static inline bool plant(struct caches *c, struct kvt_strike *strike)
{
	return !kvt_fault_plant(c->suspect, strike, &c->window, c->expected, NULL);
}

#endif
