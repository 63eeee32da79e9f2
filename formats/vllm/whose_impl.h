/* SPDX-License-Identifier: Apache-2.0 */
/* whose_impl.h - what whose.c counts and whose_judge.c judges; private to them */
#ifndef KVT_WHOSE_IMPL_H
#define KVT_WHOSE_IMPL_H

#include "formats/vllm/whose.h"

/* Orders of a page's rows: slots N, heads H, keys and values K, outermost first. */
enum { WHOSE_PAGES = 6 };
extern const struct whose_page {
	char order[4];
	enum kvt_whose_page page;
} kvt_whose_pages[WHOSE_PAGES];

/* Where a hash was seen first. */
struct seen {
	uint64_t hash;			/* 0: free */
	uint32_t file, place : 31;
	uint32_t again : 1;		/* and later elsewhere */
};

struct table {
	struct seen *at;
	int64_t size;			/* a power of two */
};

/* What was counted of a file. */
struct counts {
	uint64_t *marks;		/* bits: parts with a row that is seen twice */
	uint32_t *tokens;		/* [order][page]: that repeat with all heads */
	uint32_t *keys;			/* likewise: rows of its keys that do */
	uint32_t again;			/* rows that do */
	uint32_t others;		/* rows that another file has elsewhere */
};

struct kvt_whose {
	struct kvt_whose_shape shape;
	int64_t parts, words, rows;	/* of a file; two parts a head of a page */
	int64_t kept, nfiles, files;	/* in the tables; seen; to come */
	int norders;
	struct kvt_whose_order order[KVT_WHOSE_ORDERS];
	struct table all, own;		/* rows of kept files; of the one at hand */
	struct table tokens, own_tokens;
	struct counts *count;		/* [kept], and one more */
	struct kvt_whose_answer *answer;	/* [files], of those after the kept */
	bool *foreign;
	uint64_t *fits;			/* [files - kept]: kvt_whose_fits() of those */
	uint64_t *hash;			/* [kept + 1][rows]; 0: a constant */
	bool *repeats;			/* [rows] of the file at hand */
	uint64_t *every;		/* marks of all files */
	bool settled;
};

/* Heads whose rows are together in a page. */
static inline int64_t page_heads(const struct kvt_whose_shape *s,
				 enum kvt_whose_family family, int64_t ranks)
{
	return family == KVT_WHOSE_HEADS ? 1 : s->heads / ranks;
}

struct kvt_whose_answer kvt_whose_judge(const struct kvt_whose *w,
					const struct counts *count);
/* A bit for each order that does not contradict. */
uint64_t kvt_whose_fitting(const struct kvt_whose *w, const struct counts *count);
bool kvt_whose_strange(const struct kvt_whose *w, const struct counts *count);

#endif
