/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_time.c - the times of a transfer, as a table, as JSON and op by op
 *
 * The simulation knows when a batch begins and ends.  In between an operation
 * takes its part of the time: as much of it as it would need alone.
 */
#include "sim/print/transfer.h"

#include "sim/print/link.h"

#define US(ns) ((double)(ns) / 1e3)

static double rate_of(int64_t bytes, int64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

static const char *what_of(const struct time_report *r)
{
	const struct kvt_transfer_plan *t = r->transfer;

	return !t->ngroups ? "batch" : t->model ? t->model : "transfer";
}

static void print_link(const struct time_report *r)
{
	const struct kvt_batch_how *how = r->how;
	const struct kvt_batch *s = &r->posts->sum;

	plainf("  link   %s%s, figures %s: %s\n", how->link.name,
	       assumed_link(r->assumed, how->posting.stack).s,
	       kvt_quality_name(how->link.quality), how->link.source);
	plainf("  stack  %s%s: %lld operation%s listed, %lld after merging neighbours, "
	       "%lld posted\n", kvt_stack_name(how->posting.stack),
	       assumed_stack(r->assumed).s, LL(s->listed), plural(s->listed),
	       LL(s->merged), LL(s->ops));
	if (r->release < KVT_NRELEASES)
		plainf("  vLLM   release %s; such regions are registered by %s\n",
		       kvt_release_name(r->release), kvt_releases_text(r->releases).s);
	plainf("  ranks  %s post%s; those that meet at a network card share it: %s\n",
	       how->push ? "sources" : "destinations", how->push ? " (push)" : " (pull)",
	       kvt_share_name(how->share));
	if (how->stage)
		plainf("  stage  %s copied on each side, through buffers of %s\n",
		       kvt_size_string(s->bytes).s, kvt_size_string(how->stage).s);
}

static void print_head(const struct time_report *r)
{
	const struct kvt_batch *s = &r->posts->sum;

	plainf("%s", what_of(r));
	if (r->transfer->ngroups)
		plainf(", %s", human_requests(r->transfer).s);
	plainf(": %s between %lld pair%s of ranks\n", kvt_size_string(s->bytes).s,
	       LL(r->posts->n), plural(r->posts->n));
	plainf("  takes  %.3f ms, %.3f GB/s of all ranks; a rank spends "
	       "%.3f ms of that submitting operations\n", (double)r->times->end / 1e6, rate_of(s->bytes, r->times->end),
	       (double)r->times->posting / 1e6);
}

static void print_pairs(const struct time_report *r)
{
	plainf("\n  each pair of ranks, in microseconds from the start:\n");
	plainf("  %6s %11s %10s %10s %11s %11s %11s", "source", "destination", "ops",
	       "bytes", "posted", "bytes flow", "done");
	puts(r->closed_form ? " by formula" : "");
	for (int64_t i = 0; i < r->posts->n; i++) {
		const struct kvt_batch *b = &r->posts->batch[i];
		const struct kvt_batch_time *c = &r->times->batch[i];

		plainf("  %6lld %11lld %10lld %10s %11.3f %11.3f %11.3f", LL(b->src_rank),
		       LL(b->dst_rank), LL(b->ops), kvt_size_string(b->bytes).s,
		       US(c->posted), US(c->begin), US(c->end));
		if (r->closed_form)
			plainf(" %11.3f", US(c->closed));
		putchar('\n');
	}
}

void time_text(const struct time_report *r)
{
	const struct kvt_batch_times *t = r->times;

	print_head(r);
	print_link(r);
	print_pairs(r);
	if (r->closed_form)
		plainf("by formula the longest pair takes %.3f us%s\n", US(t->closed),
		       t->alone ? ", and no two share a rank" :
				  "; pairs share ranks, which takes longer");
}

/* ---- JSON ---------------------------------------------------------------- */

static void put_counts(struct json_out *out, json_t *o, const struct kvt_batch *b)
{
	json_put_int(out, o, "descriptors_listed", b->listed);
	json_put_int(out, o, "num_descriptors", b->merged);
	json_put_int(out, o, "posted_ops", b->ops);
	json_put_int(out, o, "bytes_transferred", b->bytes);
}

/* In names and units of vLLM, and in whole nanoseconds. */
static void put_times(struct json_out *out, json_t *o, int64_t xfer, int64_t post,
		      int64_t closed)
{
	json_put_real(out, o, "transfer_duration", (double)(xfer / 1000) / 1e6);
	json_put_real(out, o, "post_duration", (double)(post / 1000) / 1e6);
	json_put_int(out, o, "transfer_duration_ns", xfer);
	json_put_int(out, o, "post_duration_ns", post);
	json_put_int(out, o, "closed_form_ns", closed);
}

static void put_batches(struct json_out *out, const struct time_report *r)
{
	json_t *list = json_put_array(out, out->root, "rank_pairs");

	for (int64_t i = 0; i < r->posts->n; i++) {
		const struct kvt_batch *b = &r->posts->batch[i];
		const struct kvt_batch_time *c = &r->times->batch[i];
		json_t *o = json_append_object(out, list);

		json_put_int(out, o, "src_rank", b->src_rank);
		json_put_int(out, o, "dst_rank", b->dst_rank);
		put_counts(out, o, b);
		put_times(out, o, c->end - c->post, c->posted - c->post, c->closed);
		json_put_int(out, o, "ready_ns", c->ready);
		json_put_int(out, o, "post_ns_begin", c->post);
		json_put_int(out, o, "post_ns_end", c->posted);
		json_put_int(out, o, "wire_ns_begin", c->begin);
		json_put_int(out, o, "wire_ns_end", c->arrived);
		json_put_int(out, o, "end_ns", c->end);
	}
}

static enum kvt_status put_request(struct json_out *out, const struct time_report *r,
				   struct kvt_error *err)
{
	const struct kvt_batch *s = &r->posts->sum;
	json_t *o = json_put_object(out, out->root, "request");
	int64_t unique = 0, bytes, once;

	for (int g = 0; g < r->transfer->ngroups; g++) {
		enum kvt_status status = kvt_xfer_nbytes(&bytes, &once,
							 &r->transfer->group[g].xfer,
							 err);

		if (status)
			return status;
		unique += once;
	}
	put_counts(out, o, s);
	json_put_int(out, o, "unique_bytes", r->transfer->ngroups ? unique : s->bytes);
	json_put_int(out, o, "copied_bytes", r->how->stage ? 2 * s->bytes : 0);
	put_times(out, o, r->times->end, r->times->posting, r->times->closed);
	json_put_bool(out, o, "contention", !r->times->alone);
	return KVT_OK;
}

enum kvt_status time_json(const struct time_report *r, struct kvt_error *err)
{
	struct json_out out;
	enum kvt_status status;

	json_start(&out);
	json_put_text(&out, out.root, "model", r->transfer->model);
	json_put_int(&out, out.root, "tokens", r->transfer->tokens);
	posting_put(&out, out.root, r->how, r->assumed);
	json_put_text(&out, out.root, "release", r->release < KVT_NRELEASES ?
		      kvt_release_name(r->release) : NULL);
	if (!(status = put_request(&out, r, err))) {
		put_batches(&out, r);
		status = json_print(&out, false, err);
	}
	json_free(&out);
	return status;
}

/* ---- CSV ----------------------------------------------------------------- */

struct csv {
	const struct time_report *report;
	const struct kvt_transfer_group *group;
	struct kvt_pair pair;
	struct kvt_op_index places;	/* of the group */
	int64_t n;			/* the batch, by number */
	double whole, done;		/* time of all its operations; of those so far */
	int64_t posted;			/* how many are */
};

static double alone_ns(const struct kvt_link *link, int64_t len)
{
	struct kvt_link plain = *link;

	plain.setup_ns = 0;
	/* parts of a nanosecond count when there are many */
	plain.op_ps *= 1000;
	if (plain.rate)
		plain.rate = plain.rate / 1000 + !plain.rate;
	return (double)kvt_link_ns(&plain, 1, len) / 1e3;
}

static void print_op(struct csv *c, const struct kvt_op *op)
{
	const struct kvt_batch_time *b = &c->report->times->batch[c->n];
	const struct kvt_link *link = &c->report->how->link;
	struct kvt_op_content where = kvt_op_content(&c->places, &c->pair, op);
	double span = c->whole > 0 ? (double)(b->arrived - b->begin) / c->whole : 0;
	int64_t start = b->begin + (int64_t)(c->done * span), end, post;

	c->done += alone_ns(link, op->len);
	end = b->begin + (int64_t)(c->done * span + 0.5);
	post = b->post + (int64_t)((double)(b->posted - b->post) * (double)++c->posted /
				   (double)c->report->posts->batch[c->n].ops);
	plainf("%lld,%lld,%lld,%s,", LL(c->n), LL(c->pair.src_rank), LL(c->pair.dst_rank),
	       c->group->name);
	print_op_content(&where);
	plainf(",%lld,%lld,%lld,%lld,%lld,%lld\n", LL(op->src), LL(op->dst), LL(op->len),
	       LL(post), LL(start), LL(end > b->arrived ? b->arrived : end));
}

static enum kvt_status walk_pair(struct csv *c, bool print, struct kvt_error *err)
{
	struct kvt_posts posts;
	struct kvt_op op;
	enum kvt_status status;

	status = kvt_batch_start(&posts, c->group, &c->pair, c->report->how, err);
	while (!status && kvt_post_next(&op, &posts) && !ferror(stdout)) {
		if (print)
			print_op(c, &op);
		else
			c->whole += alone_ns(&c->report->how->link, op.len);
	}
	return status;
}

/* One batch: the groups one after the other. */
static enum kvt_status walk_batch(struct csv *c, bool print, struct kvt_error *err)
{
	const struct kvt_batch *b = &c->report->posts->batch[c->n];
	const struct kvt_transfer_plan *transfer = c->report->transfer;
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < transfer->ngroups; g++) {
		struct kvt_pair_walk walk = { 0, 0 };

		c->group = &transfer->group[g];
		if ((status = kvt_op_index_init(&c->places, c->group, err)))
			return status;
		while (!status && kvt_pair_next(&c->pair, &walk, &c->group->xfer))
			if (c->pair.src_rank == b->src_rank &&
			    c->pair.dst_rank == b->dst_rank)
				status = walk_pair(c, print, err);
		kvt_op_index_free(&c->places);
	}
	return status;
}

enum kvt_status time_csv(const struct time_report *r, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (r->how->stage)
		return kvt_fail(err, KVT_USAGE,
				"--csv lists operations between caches, not between the buffers of --stage");
	puts("pair,src_rank,dst_rank,group," OP_CONTENT_COLUMNS
	     ",src_off,dst_off,len,t_post,t_start,t_end");
	for (int64_t n = 0; !status && n < r->posts->n; n++) {
		struct csv c = { .report = r, .n = n };

		if (!(status = walk_batch(&c, false, err)))
			status = walk_batch(&c, true, err);
	}
	return status;
}
