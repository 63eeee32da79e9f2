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
};

struct size_report {
	const char *path;		/* NULL: caches given by hand */
	struct kvt_model_config config;
	int64_t memory, requests, tokens;	/* 0: not asked for */
	int nrows;
	struct size_row *row;
};

void size_text(const struct size_report *r);
KVT_MUST_CHECK enum kvt_status
size_json(const struct size_report *r, struct kvt_error *err);

#endif
