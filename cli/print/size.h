/* SPDX-License-Identifier: Apache-2.0 */
/* size.h - what kvtool size works out, and how it is printed */
#ifndef KVTOOL_SIZE_H
#define KVTOOL_SIZE_H

#include "formats/model/config.h"

enum { SIZE_CHOICES = 32, SIZE_ROWS = SIZE_CHOICES * SIZE_CHOICES };

/* One deployment. */
struct size_row {
	int64_t tp;
	const char *cache_dtype;
	struct kvt_model_size size;
	char why_not[256];		/* if it cannot be; else "" */
};

/* Bytes on a rank; those of tokens need not be whole. */
struct size_sums {
	double token;			/* of every further token */
	double window;			/* of a token that is in all windows, besides */
	double all_ranks, unique;	/* 'token' on all ranks, and without copies */
	int64_t windows, states;	/* of a request, at most */
};
struct size_sums size_sums(const struct size_row *row);

struct size_report {
	const char *path;		/* NULL: caches given by hand */
	struct kvt_model_config config;
	int64_t memory, requests, tokens;	/* 0: not asked for */
	int nrows;
	struct size_row *row;
};

/* Tokens of each request that fit; as kvt_model_tokens(). */
int64_t size_fit(const struct size_report *r, const struct size_row *row);

void size_text(const struct size_report *r);
KVT_MUST_CHECK enum kvt_status
size_json(const struct size_report *r, struct kvt_error *err);

#endif
