/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - what the modes of transfer-sim print */
#ifndef KVTOOL_PRINT_TRANSFER_H
#define KVTOOL_PRINT_TRANSFER_H

#include "print/out/say.h"
#include "print/out/json_out.h"
#include "sim/ops/batches.h"
#include "sim/ops/matrix.h"
#include "sim/ops/replay.h"
#include "sim/ops/sweep.h"
#include "sim/print/link.h"

/* "2048 tokens", "3 requests of 689 tokens" */
struct human human_requests(const struct kvt_transfer_plan *transfer);

/* ---- plan: transfer_figures.c, transfer_json.c, transfer_ops.c ------------- */

struct plan_report {
	struct kvt_plan_figures all;
	enum kvt_scope scope;		/* whose breaks are told */
	bool histogram;
	const char *best_layout;	/* if both sides had it; NULL: not known */
	int64_t best_ops;		/* under 'scope', of all groups */
};
KVT_MUST_CHECK enum kvt_status
plan_text(const struct plan_report *report, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
plan_json(const struct plan_report *report, struct kvt_error *err);

/*
 * One line an op, as CSV or as a JSON object; of one pair and group alone it is
 * the canonical list "src_off dst_off len".  'pair' is "SRC:DST" or NULL.
 */
KVT_MUST_CHECK enum kvt_status
plan_ops(const struct kvt_transfer_plan *transfer, enum kvt_scope scope, bool json,
	 const char *pair, struct kvt_error *err);

/* ---- time: transfer_time.c ------------------------------------------------- */

struct time_report {
	const struct kvt_transfer_plan *transfer;	/* no group: a uniform batch */
	const struct kvt_batch_how *how;
	const struct kvt_batches *posts;
	const struct kvt_batch_times *times;
	bool closed_form;
	struct assumed assumed;
	unsigned releases;		/* of vLLM that register such regions, as bits */
	enum kvt_release release;	/* the one that is meant; KVT_NRELEASES: none */
};
void time_text(const struct time_report *report);
KVT_MUST_CHECK enum kvt_status
time_json(const struct time_report *report, struct kvt_error *err);

/* One line an operation, in the order of posting. */
KVT_MUST_CHECK enum kvt_status
time_csv(const struct time_report *report, struct kvt_error *err);

/* Columns of what an operation carries, between commas, and its values. */
#define OP_CONTENT_COLUMNS "slice,layer0,layers,token0,tokens,head0,heads"
void print_op_content(const struct kvt_op_content *where);

/* ---- sweep: sweep.c -------------------------------------------------------- */

void sweep_text(const struct kvt_sweep *sweep, struct assumed assumed);
void sweep_csv(const struct kvt_sweep *sweep);
KVT_MUST_CHECK enum kvt_status
sweep_json(const struct kvt_sweep *sweep, struct assumed assumed, struct kvt_error *err);

/* The keys that say which two sides a row is of, and its operations and time. */
void sweep_put_plan(struct json_out *out, json_t *object, const struct kvt_sweep_row *r);

/* ---- matrix: matrix.c ------------------------------------------------------ */

struct matrix_report {
	const struct kvt_matrix *matrix;
	const char *model;		/* NULL: not known */
	int64_t tokens;
	int64_t layers;			/* of each group that are tried; 0: all */
	struct assumed assumed;
};
void matrix_text(const struct matrix_report *report);
KVT_MUST_CHECK enum kvt_status
matrix_json(const struct matrix_report *report, struct kvt_error *err);

/* "nhd,bs16,tp4": the source (0) or the destination (1) of a row. */
struct kvt_text matrix_side(const struct kvt_matrix_row *row, int side);

/* ---- replay and faults: replay.c ------------------------------------------- */

struct replay_report {
	const struct kvt_replay *replay;
	const struct kvt_replay_how *how;
	const struct kvt_request_sizes *sizes;
	const char *trace;
	int64_t slo_ns;			/* 0: none */
	bool faults, requests;		/* print what is about them */
	bool scattered;			/* block ids are 0, 2, 4, ... */
	struct assumed assumed;
};
void replay_text(const struct replay_report *report);
KVT_MUST_CHECK enum kvt_status
replay_json(const struct replay_report *report, struct kvt_error *err);

/* ---- report: transfer_svg.c, transfer_trace.c ------------------------------- */

/* A timed transfer, pair by pair, as it is drawn. */
struct timeline_batch {
	int64_t src_rank, dst_rank;
	int64_t ops, bytes;		/* ops are not cut for the link */
	int64_t post, posted;		/* ns: the poster is busy from, to */
	int64_t begin, end;		/* the card is */
};

struct timeline {
	int64_t n;
	struct timeline_batch *batch;	/* owned; by destination, then source */
	int64_t src_ranks, dst_ranks;
	int64_t ops, bytes, duration;
};

struct page {
	const struct kvt_transfer_plan *transfer;
	enum kvt_scope scope;
	const struct kvt_link *link;
	struct timeline pairs;
	int64_t trace_max;
};

/* One picture: block maps and sizes of each group, ranks by ranks, the timeline. */
KVT_MUST_CHECK enum kvt_status
put_svg(FILE *f, const struct page *page, struct kvt_error *err);

/*
 * A trace that Perfetto and Chrome show.  At most about 'most' slices of each kind:
 * one stands for as many operations as that takes, spread evenly over the time of
 * their batch.
 */
KVT_MUST_CHECK enum kvt_status
put_trace(FILE *f, const struct timeline *pairs, int64_t most, struct kvt_error *err);

#endif
