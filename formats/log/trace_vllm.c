/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_vllm.c - requests out of what vLLM logs of its KV transfers
 *
 *	.. 11-20 10:00:00 .. KV Transfer metrics: Num successful transfers=3, ..,
 *	   Avg MB per transfer=12.5, ..
 *
 * A line has the number of transfers since the line before it, and their mean
 * size in MiB.  Each is of one rank, so several are one request; when they were is not
 * said, and they are spread evenly.
 */
#include "formats/log/trace_impl.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_MOST = 1 << 20 };		/* requests: one line can speak of many */

static const char marker[] = "KV Transfer metrics:";

/* vLLM logs so often unless told otherwise. */
static const int64_t interval = 10000000000;

/* Where 'word' begins in a text without an end of its own; NULL: nowhere. */
static const char *find(const char *text, size_t nbytes, const char *word)
{
	size_t len = strlen(word);

	while (nbytes >= len) {
		const char *at = memchr(text, word[0], nbytes - len + 1);

		if (!at || !memcmp(at, word, len))
			return at;
		nbytes -= (size_t)(at + 1 - text);
		text = at + 1;
	}
	return NULL;
}

bool trace_is_vllm(const char *text, size_t nbytes)
{
	return find(text, nbytes, marker) != NULL;
}

/* "11-20 10:00:00", without a year; in nanoseconds from its begin. */
static bool parse_time(int64_t *ns, const char *text)
{
	static const int before[] = { 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305,
				      335 };
	static const char pattern[] = "00-00 00:00:00";
	int n[5];

	for (int i = 0; pattern[i]; i++)
		if (pattern[i] == '0' ? !isdigit((unsigned char)text[i]) :
					text[i] != pattern[i])
			return false;
	for (int i = 0; i < 5; i++)
		n[i] = (text[3 * i] - '0') * 10 + text[3 * i + 1] - '0';
	if (n[0] < 1 || n[0] > 12 || n[1] < 1 || n[1] > 31)
		return false;
	*ns = ((((int64_t)before[n[0] - 1] + n[1] - 1) * 24 + n[2]) * 60 + n[3]) * 60 +
	      n[4];
	*ns *= 1000000000;
	return true;
}

/* The number after "name="; false if there is none. */
bool kvt_log_field(double *out, const char *line, const char *name)
{
	const char *at = strstr(line, name);
	char *end;

	if (!at || at[strlen(name)] != '=')
		return false;
	at += strlen(name) + 1;
	*out = strtod(at, &end);
	return end != at && isfinite(*out);
}

static enum kvt_status add(struct kvt_trace *trace, struct trace_log *log,
			   const struct kvt_trace_unit *unit, int64_t n, double bytes,
			   const struct trace_line *line, struct kvt_error *err)
{
	double tokens = unit->token_bytes ? bytes / (double)unit->token_bytes : 1;
	struct kvt_trace_row row = { .bytes = (int64_t)bytes, .cached = -1 };
	enum kvt_status status = KVT_OK;

	row.tokens = tokens < 1 ? 1 : tokens > UINT32_MAX ? UINT32_MAX :
							    (int64_t)(tokens + 0.5);
	for (int64_t i = 0; !status && i < n; i++) {
		row.arrival = log->before - log->begin +
			      (int64_t)((double)(log->at - log->before) * (double)i /
					(double)n);
		status = trace_add(trace, &row, line, err);
	}
	return status;
}

static enum kvt_status take_time(struct trace_log *log, int64_t ns,
				 const struct trace_line *line, struct kvt_error *err)
{
	if (!log->any) {
		log->any = true;
		log->begin = log->before = ns - interval;
	} else if (ns < log->at) {
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: its time is before that of the line above",
				line->name);
	} else if (ns > log->at) {
		log->before = log->at;
	}
	log->at = ns;
	return KVT_OK;
}

/* The first time in what is before the metrics. */
static bool find_time(int64_t *ns, const char *text, size_t nbytes)
{
	char head[512];
	size_t n = nbytes < sizeof(head) - 1 ? nbytes : sizeof(head) - 1;

	memcpy(head, text, n);
	head[n] = '\0';
	for (size_t i = 0; i + 14 <= n; i++)
		if (parse_time(ns, head + i))
			return true;
	return false;
}

static enum kvt_status take_transfers(struct kvt_trace *trace, struct trace_log *log,
				      const struct kvt_trace_unit *unit,
				      const char *metrics, double transfers,
				      const struct trace_line *line,
				      struct kvt_error *err)
{
	double mib, bytes;
	enum kvt_status status;

	if (!kvt_log_field(&mib, metrics, "Avg MB per transfer") || !(mib > 0))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: transfers without 'Avg MB per transfer'", line->name);
	bytes = mib * 1048576 * (double)unit->pairs;
	if (!(bytes < 9e15) || transfers / (double)unit->pairs >
				       (double)(LOG_MOST - trace->n))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %.6g transfers of %.6g MB are too many", line->name,
				transfers, mib);
	log->left += (int64_t)transfers;
	status = add(trace, log, unit, log->left / unit->pairs, bytes, line, err);
	log->left %= unit->pairs;
	return status;
}

enum kvt_status trace_take_vllm(struct kvt_trace *trace, struct trace_log *log,
				const struct kvt_trace_unit *unit,
				const struct trace_line *line, struct kvt_error *err)
{
	const char *at = find(line->text, line->nbytes, marker);
	size_t nhead = at ? (size_t)(at - line->text) : 0, n;
	char metrics[1024];
	bool timed, any;
	double transfers;
	int64_t ns = 0;
	enum kvt_status status;

	if (!at)
		return KVT_OK;
	n = line->nbytes - nhead < sizeof(metrics) ? line->nbytes - nhead :
						     sizeof(metrics) - 1;
	memcpy(metrics, at, n);
	metrics[n] = '\0';
	timed = find_time(&ns, line->text, nhead);
	any = kvt_log_field(&transfers, metrics, "Num successful transfers") &&
	      transfers >= 1;
	if (any && !timed)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no time such as 11-20 10:00:00 is before the metrics",
				line->name);
	if (timed && (status = take_time(log, ns, line, err)))
		return status;
	return any ? take_transfers(trace, log, unit, metrics, transfers, line, err) :
		     KVT_OK;
}
