/* SPDX-License-Identifier: Apache-2.0 */
/*
 * posting.c - the stack that posts a transfer, and the link below it, as they were named
 *
 * Of a word that is not known the message says which one is near, or how a rate in bits
 * is said.
 */
#include "sim/cmd/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "lib/base/nearest.h"
#include "lib/base/number.h"
#include "print/out/streams.h"
#include "print/out/text_file.h"

/* ---- a link ------------------------------------------------------------------ */

enum { MOST_LINK_TEXT = 1 << 20 };

static enum kvt_status read_link(struct link_file *out, const char *path,
				 struct kvt_error *err)
{
	size_t nbytes;
	char *text;
	enum kvt_status status = text_file_read(&text, &nbytes, path, MOST_LINK_TEXT,
						err);

	if (status)
		return status;
	status = link_parse(out, text, nbytes, text_file_name(path), err);
	free(text);
	return status;
}

/* "400G", "400Gb/s", "100gbps": the number of these bits, or 0. */
static double bits_of(const char *text)
{
	static const char *const units[] = { "g", "gb", "gbe", "gbps", "gb/s", "gbit",
					     "gbit/s" };
	char *end, unit[8];
	double n = strtod(text, &end);
	size_t length;

	if (!isdigit((unsigned char)text[0]) || strlen(end) >= sizeof(unit) ||
	    !(n > 0 && n < 1e6))
		return 0;
	length = strlen(end);
	for (size_t i = 0; i <= length; i++)
		unit[i] = (char)tolower((unsigned char)end[i]);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(unit, units[i]))
			return n;
	return 0;
}

/* Does the name say one card of so many gigabits: "cx7-400g-verbs", "hdr200"? */
static bool has_bits(const char *name, double bits)
{
	char digits[16];
	const char *at;

	snprintf(digits, sizeof(digits), "%.0f", bits);
	if (!(at = strstr(name, digits)) || at == name || at[-1] == 'x' ||
	    isdigit((unsigned char)at[-1]))
		return false;
	at += strlen(digits);
	return !*at || *at == 'g';
}

static enum kvt_status no_link(const char *text, double bits, struct kvt_error *err)
{
	const struct kvt_link *preset;
	struct kvt_error names = { "" };
	size_t n = 0;

	for (int i = 0; (preset = kvt_link_preset(i)); i++)
		if (has_bits(preset->name, bits) && preset->quality != KVT_CALIBRATE &&
		    n < sizeof(names.text) - 64)
			n += (size_t)snprintf(names.text + n, sizeof(names.text) - n,
					      "%s%.40s", n ? ", " : "", preset->name);
	if (!n)
		return kvt_fail(err, KVT_USAGE,
				"no link '%.40s'; --link=list prints all; --rate=%.10g makes one of %.10g GB/s",
				text, bits / 8, bits / 8);
	return kvt_fail(err, KVT_USAGE,
			"no link '%.40s'; at %.10g Gb/s there are %.200s; --link=list prints all; --rate=%.10g makes one of %.10g GB/s",
			text, bits, names.text, bits / 8, bits / 8);
}

enum kvt_status link_take(struct link_file *out, const char *text, struct kvt_error *err)
{
	const struct kvt_link *preset;
	struct kvt_nearest near;

	if (!text)
		text = LINK_DEFAULT;
	near = kvt_nearest_start(text);
	for (int i = 0; (preset = kvt_link_preset(i)); i++) {
		kvt_nearest_offer(&near, preset->name);
		if (strcmp(preset->name, text))
			continue;
		memset(out, 0, sizeof(*out));
		out->link = *preset;
		return KVT_OK;
	}
	if (is_stream(text) || !access(text, F_OK) || strchr(text, '/'))
		return read_link(out, text, err);
	if (bits_of(text) > 0)
		return no_link(text, bits_of(text), err);
	return kvt_fail(err, KVT_USAGE,
			"there is no link '%.60s' and no such file; --link=list prints the links%s",
			text, kvt_nearest_hint(&near, "").s);
}

enum kvt_status link_has_figures(const struct kvt_link *link, struct kvt_error *err)
{
	if (link->quality != KVT_CALIBRATE)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"link %s was never measured (%s): calibrate it where it is used, and name the file",
			link->name, link->source);
}

/* ---- words and numbers of a stack ------------------------------------------ */

static bool gigabytes(const char *option)
{
	return strstr(option, "rate");
}

static const char *unit_of(const char *option)
{
	return gigabytes(option) ? "GB/s (10^9 bytes a second)" :
	       !strcmp(option, "setup") ? "microseconds" : "nanoseconds";
}

/* "54.8" times 'unit', rounded; untouched if it was not said. */
static enum kvt_status take_figure(int64_t *out, const char *text, const char *option,
				   double unit, struct kvt_error *err)
{
	double x;

	if (!text)
		return KVT_OK;
	if (gigabytes(option) && bits_of(text) > 0)
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.40s', expected 10^9 bytes a second, such as %.10g for %.10g Gb/s",
				option, text, bits_of(text) / 8, bits_of(text));
	if (!kvt_real_parse(&x, text, strlen(text)) || !((x *= unit) >= 0 && x < 9e18))
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.40s', expected a number of 0 or more, in %s",
				option, text, unit_of(option));
	*out = (int64_t)(x + 0.5);
	return KVT_OK;
}

/* Which of n words; 'out' is untouched if nothing was said. */
static enum kvt_status take_word(int *out, const char *text, const char *option,
				 const char *(*name)(int), int n, struct kvt_error *err)
{
	struct kvt_error words = { "" };
	struct kvt_nearest near = kvt_nearest_start(text ? text : "");
	size_t len = 0;

	for (int i = 0; text && i < n; i++) {
		if (!strcmp(text, name(i))) {
			*out = i;
			return KVT_OK;
		}
		kvt_nearest_offer(&near, name(i));
		len += (size_t)snprintf(words.text + len, sizeof(words.text) - len,
					"%s%s", i ? ", " : "", name(i));
	}
	if (!text)
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE, "--%s is '%.40s', expected one of %.200s%s",
			option, text, words.text, kvt_nearest_hint(&near, "").s);
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

static enum kvt_status take_posting(struct kvt_batch_how *how,
				    const struct posting_words *a, struct kvt_error *err)
{
	int stack = KVT_STACK_RFC, coalesce = KVT_COALESCE_STACK, share = KVT_SHARE_FAIR;
	enum kvt_status status;

	if ((status = take_word(&stack, a->emulate, "emulate", stack_name, KVT_NSTACKS,
				err)) ||
	    (status = take_word(&coalesce, a->coalesce, "coalesce", coalesce_name,
				KVT_NCOALESCES, err)) ||
	    (status = take_word(&share, a->share, "share", share_name, KVT_NSHARES,
				err)) ||
	    (status = take_figure(&how->copy_rate, a->copy_rate, "copy-rate", 1e9, err)))
		return status;
	if (!a->stage != !how->copy_rate)
		return kvt_fail(err, KVT_USAGE,
				"--stage and --copy-rate need each other: the rate of the copies is not known");
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

/* ---- figures of the link --------------------------------------------------- */

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
static enum kvt_status override(struct kvt_batch_how *how, const struct posting_words *a,
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
					LL(a->rails));
		link->rate *= a->rails;
	}
	return KVT_OK;
}

enum kvt_status posting_take(struct kvt_batch_how *out, struct link_file *file,
			     const struct posting_words *a, struct kvt_error *err)
{
	const char *name = a->link ? a->link : stack_link(a->emulate);
	enum kvt_status status;

	memset(out, 0, sizeof(*out));
	out->run = run_watched(0, 0, false);
	out->run.context = (void *)(uintptr_t)&transfer_modes;
	if ((status = link_take(file, name, err)))
		return status;
	out->link = file->link;
	if ((status = override(out, a, err)))
		return status;
	if (a->window && !out->latency_ps)
		return kvt_fail(err, KVT_USAGE,
				"--window needs --latency: how long a completion takes to be seen");
	out->window = a->window;
	return take_posting(out, a, err);
}
