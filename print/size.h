/* SPDX-License-Identifier: Apache-2.0 */
/* size.h - what kvtool size works out, for printing */
#ifndef KVTOOL_PRINT_SIZE_H
#define KVTOOL_PRINT_SIZE_H

#include "formats/model/config.h"

enum { SIZE_CHOICES = 32, SIZE_ROWS = SIZE_CHOICES * SIZE_CHOICES };

/* One deployment. */
struct size_row {
	int64_t tp;
	const char *cache_dtype;
	struct kvt_model_size size;
	char why_not[256];		/* if it cannot be; else "" */
	/* of r->requests of r->tokens: on a rank, on all; in snapshots, or -1 */
	int64_t rank_bytes, all_bytes, disk_bytes;
};

/* A snapshot, and what it says of others. */
struct size_sample {
	const char *path;		/* NULL: not asked for */
	const struct kvt_dtype *dtype;
	double ratio;			/* bytes of data for each of the file */
	bool unlisted;			/* nothing says which blocks are used */
};

/* The pool of a deployment. */
struct size_pool {
	struct kvt_pack pack;
	char why_not[256];		/* if vLLM has none; else "" */
	int64_t copies;			/* ranks that hold the same, for vLLM */
	bool zeroing;			/* vLLM zeroes fresh blocks */
	int64_t block_ids;		/* in the memory; 0: not asked for */
	int64_t request;		/* block ids of the longest; 0: not asked for */
	char too_long[256];		/* if a request cannot be; else "" */
};

/* Of a GGUF: what llama.cpp allocates. */
struct size_llama {
	struct kvt_llama_context context;
	struct kvt_llama_size size;
	int64_t fit;			/* tokens of each sequence in the memory */
};

struct size_report {
	const char *path;		/* NULL: caches given by hand */
	struct kvt_model_config config;
	enum kvt_release release;
	int64_t memory, requests, tokens;	/* 0: not asked for */
	bool summed;			/* of all requests, of 'tokens' each */
	struct size_sample sample;
	struct kvt_layout layout;	/* of the pool */
	const char *layout_name;
	struct kvt_demand demand;	/* of 'tokens' */
	int nrows;
	struct size_row *row;
	const struct size_llama *llama;	/* or NULL, and rows */
	struct kvt_held *held;		/* of transformers; NULL: not asked for */
};

void size_pool(struct size_pool *out, const struct size_report *r,
	       const struct size_row *row);

void size_text(const struct size_report *r);
void size_llama_text(const struct size_report *r);
struct json_out;
void size_llama_json(struct json_out *out, const struct size_report *r);
KVT_MUST_CHECK enum kvt_status
size_json(const struct size_report *r, struct kvt_error *err);

/* What transformers holds; below 2^63 bytes, else it must not be printed. */
double size_held_bytes(const struct size_report *r);
void size_held_text(const struct size_report *r);
KVT_MUST_CHECK enum kvt_status
size_held_json(const struct size_report *r, struct kvt_error *err);

#endif
