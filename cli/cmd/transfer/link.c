/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - the options of modes that know time: a stack, and the link below it */
#include "cli/cli.h"
#include "cli/progress.h"
#include "lib/ops/transfer/posts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words and numbers ---------------------------------------------------- */

/* "54.8" times 'unit', rounded; untouched if it was not said. */
static enum kvt_status take_figure(int64_t *out, const char *text, const char *option,
				   double unit, struct kvt_error *err)
{
	char *end;
	double x;

	if (!text)
		return KVT_OK;
	x = strtod(text, &end) * unit;
	if (end == text || *end || !(x >= 0 && x < 9e18))
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.40s', expected a number of 0 or more", option,
				text);
	*out = (int64_t)(x + 0.5);
	return KVT_OK;
}

/* Which of n words; 'out' is untouched if nothing was said. */
static enum kvt_status take_word(int *out, const char *text, const char *option,
				 const char *(*name)(int), int n, struct kvt_error *err)
{
	struct kvt_error words = { "" };
	size_t len = 0;

	for (int i = 0; text && i < n; i++) {
		if (!strcmp(text, name(i))) {
			*out = i;
			return KVT_OK;
		}
		len += (size_t)snprintf(words.text + len, sizeof(words.text) - len,
					"%s%s", i ? ", " : "", name(i));
	}
	return text ? kvt_fail(err, KVT_USAGE, "--%s is '%.40s', expected one of %.200s",
			       option, text, words.text) : KVT_OK;
}

static const char *coalesce_name(int i)
{
	return kvt_coalesce_name((enum kvt_coalesce)i);
}

static const char *stack_name(int i)
{
	return kvt_stack_name((enum kvt_stack)i);
}

static const char *share_name(int i)
{
	return kvt_share_name((enum kvt_share)i);
}

/* ---- the stack ------------------------------------------------------------ */

static enum kvt_status take_posting(struct posts_how *how, const struct posts_args *a,
				    struct kvt_error *err)
{
	int stack = KVT_STACK_RFC, coalesce = KVT_COALESCE_STACK, share = KVT_SHARE_FAIR;
	enum kvt_status status;

	if ((status = take_word(&stack, a->emulate, "emulate", stack_name, KVT_NSTACKS,
				err)) ||
	    (status = take_word(&coalesce, a->coalesce, "coalesce", coalesce_name,
				KVT_NCOALESCES, err)) ||
	    (status = take_word(&share, a->share, "share", share_name, KVT_NSHARES,
				err)) ||
	    (status =
		     take_figure(&how->copy_rate, a->copy_rate, "copy-rate", 1e9, err)))
		return status;
	if (!a->stage != !how->copy_rate)
		return kvt_fail(err, KVT_USAGE,
				"--stage and --copy-rate need each other: nobody can guess how fast the copies are");
	how->posting = (struct kvt_posting){
		.stack = (enum kvt_stack)stack, .coalesce = (enum kvt_coalesce)coalesce,
		.descending = a->descending, .sge = a->sge,
		.slice = a->slice ? a->slice : how->link.slice,
	};
	/* its engine lets a short rest join the slice before */
	if (stack == KVT_STACK_MOONCAKE && !a->slice && how->posting.slice)
		how->posting.fragment = KVT_MOONCAKE_FRAGMENT;
	how->share = (enum kvt_share)share;
	how->force = a->force;
	how->push = a->push;
	how->stage = a->stage;
	return KVT_OK;
}

/* ---- the link ------------------------------------------------------------- */

/* Of a stack that nobody gave a link: the one whose figures are its own. */
static const char *default_link(const char *emulate)
{
	if (emulate && !strncmp(emulate, "nixl", 4))
		return "vllm-nixl-rc";
	if (emulate && !strcmp(emulate, "mooncake"))
		return "vllm-mooncake";
	return "cx7-400g-verbs";
}

static enum kvt_status take_overlap(int *out, const char *text, struct kvt_error *err)
{
	if (!text)
		return KVT_OK;
	if (!strcmp(text, "inf"))
		*out = KVT_OVERLAP_FULL;
	else if (strlen(text) == 1 && strchr("124", *text))
		*out = *text - '0';
	else
		return kvt_fail(err, KVT_USAGE,
				"--overlap-power is '%.40s', expected 1, 2, 4 or inf", text);
	return KVT_OK;
}

/* Some of these are figures enough for a link that was never measured. */
static enum kvt_status override(struct posts_how *how, const struct posts_args *a,
				struct kvt_error *err)
{
	struct kvt_link *link = &how->link;
	int64_t op = link->op_ps;
	enum kvt_status status;

	if ((status = take_overlap(&link->overlap, a->overlap, err)) ||
	    (status = take_figure(&link->setup_ns, a->setup, "setup", 1e3, err)) ||
	    (status = take_figure(&link->op_ps, a->op, "op", 1e3, err)) ||
	    (status = take_figure(&link->rate, a->rate, "rate", 1e9, err)) ||
	    (status = take_figure(&how->latency_ps, a->latency, "latency", 1e3, err)))
		return status;
	if (a->op)	/* posting keeps its share of it */
		link->post_ps = op ? (int64_t)((double)link->post_ps / (double)op *
					       (double)link->op_ps) : link->op_ps / 2;
	if ((status = take_figure(&link->post_ps, a->post, "post", 1e3, err)))
		return status;
	if (a->setup || a->op || a->rate || a->overlap || a->post)
		link->quality = KVT_GIVEN;
	if ((status = link_has_figures(link, err)) ||
	    (status = kvt_link_check(link, err)))
		return status;
	if (a->threads > 1) {
		link->op_ps -= link->post_ps - link->post_ps / a->threads;
		link->post_ps /= a->threads;
	}
	if (a->rails > 1) {
		if (link->rate > INT64_MAX / a->rails)
			return kvt_fail(err, KVT_USAGE, "%lld rails are too many",
					(long long)a->rails);
		link->rate *= a->rails;
	}
	return KVT_OK;
}

enum kvt_status posts_take(struct posts_how *out, const struct posts_args *a,
			   struct kvt_error *err)
{
	const char *name = a->link ? a->link : default_link(a->emulate);
	enum kvt_status status;

	memset(out, 0, sizeof(*out));
	out->run = run_watched(0, 0, false);
	out->run.context = (void *)(uintptr_t)&cmd_transfer_sim;
	if ((status = link_take(&out->file, name, err)))
		return status;
	out->link = out->file.link;
	if ((status = override(out, a, err)))
		return status;
	if (a->window && !out->latency_ps)
		return kvt_fail(err, KVT_USAGE,
				"--window needs --latency: how long a completion takes to be seen");
	out->window = a->window;
	return take_posting(out, a, err);
}

/*
 * By Little's law, n operations of which w are outstanding, each for the latency
 * and its own time, need at least n * (latency + own) / w.
 */
struct kvt_link posts_link(const struct posts_how *how, int64_t ops, int64_t bytes)
{
	struct kvt_link link = how->link;
	double alone, least;

	if (!how->window || !ops)
		return link;
	alone = (double)(kvt_link_ns(&link, ops, bytes) - link.setup_ns);
	least = ((double)ops * (double)how->latency_ps / 1e3 + alone) /
		(double)how->window;
	if (least <= alone)
		return link;
	if (alone <= 0) {
		link.op_ps = (int64_t)(least * 1e3 / (double)ops);
		return link;
	}
	link.op_ps = (int64_t)((double)link.op_ps * (least / alone));
	link.rate = (int64_t)((double)link.rate / (least / alone));
	return link;
}

void posts_put(struct json_out *out, json_t *object, const struct posts_how *how)
{
	const struct kvt_posting *p = &how->posting;

	json_put_text(out, object, "emulate", kvt_stack_name(p->stack));
	json_put_text(out, object, "coalesce", kvt_coalesce_name(p->coalesce));
	json_put_bool(out, object, "merge_descending", p->descending);
	json_put_int(out, object, "sge", p->sge ? p->sge : 1);
	json_put_int(out, object, "slice_bytes", p->slice);
	json_put_int(out, object, "stage_bytes", how->stage);
	json_put_int(out, object, "copy_rate", how->copy_rate);
	json_put_text(out, object, "direction", how->push ? "push" : "pull");
	json_put_text(out, object, "share", kvt_share_name(how->share));
	json_put_int(out, object, "window", how->window);
	json_put_int(out, object, "latency_ns", how->latency_ps / 1000);
	link_put(out, json_put_object(out, object, "link"), &how->link);
}
