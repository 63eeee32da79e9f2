/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_watch.c - a dump that something writes, looked at again and again
 *
 * A look opens it anew, so it may be replaced, grow, be cut, or be gone for a while: what
 * was seen last stays on the screen, and above it stands why there is nothing newer.
 * Looks are so far apart that they take a fifth of the time, however slow they are.
 */
#include "cli/cmd/view_watch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "formats/file/reads.h"
#include "print/describe.h"
#include "print/out/screen.h"
#include "print/out/terminal.h"

enum { LEAST_MS = 500, SHARE = 5, BESIDE = 6 };	/* lines that are no pool */

/* What is counted of a look. */
struct counts {
	int64_t bytes, requests, tokens, used;
};

static const struct {
	const char *name;
	size_t offset;
	bool size;
} rows[] = {
	{ "bytes", offsetof(struct counts, bytes), true },
	{ "requests", offsetof(struct counts, requests), false },
	{ "tokens", offsetof(struct counts, tokens), false },
	{ "blocks in use", offsetof(struct counts, used), false },
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

struct seen {
	struct view_dump *dump;		/* of the last look that saw it; NULL: of none */
	struct counts now, last, first;
	int64_t looks, began, at;	/* ms */
	struct kvt_error why;		/* of the last look; "": it saw it */
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct counts count(const struct view_dump *d)
{
	const struct kvt_snapshot *s = d->facts.snapshot;
	struct counts n = { .bytes = d->facts.file_bytes, .requests = s->nrequests };

	for (int64_t r = 0; r < s->nrequests; r++)
		n.tokens += s->request[r].ntokens;
	for (int g = 0; g < s->ngroups; g++)
		n.used += d->group[g].pool.used;
	return n;
}

/* ---- a frame ------------------------------------------------------------- */

static int64_t value_of(const struct counts *n, int row)
{
	return *(const int64_t *)((const char *)n + rows[row].offset);
}

static void print_growth(FILE *f, int64_t n, bool size)
{
	int64_t more = n < 0 ? -n : n;

	fplainf(f, "%c%s", n < 0 ? '-' : '+',
		size ? kvt_size_string(more).s : human_count(more).s);
}

/* "bytes 480 KiB (+96 KiB)  requests 3  ..." */
static void print_counts(FILE *f, const struct seen *seen)
{
	for (int i = 0; i < NROWS; i++) {
		int64_t n = value_of(&seen->now, i), last = value_of(&seen->last, i);

		fplainf(f, "  %s %s", rows[i].name,
			rows[i].size ? kvt_size_string(n).s : human_count(n).s);
		if (n == last)
			continue;
		fplainf(f, " (");
		print_growth(f, n - last, rows[i].size);
		fplainf(f, ")");
	}
	fplainf(f, "\n");
}

static void print_state(FILE *f, const struct seen *seen, int64_t t)
{
	if (seen->why.text[0]) {
		fplainf(f, "  not readable now: %s%s\n", seen->why.text,
			seen->dump ? "; what was seen last:" : "");
		return;
	}
	if (seen->looks < 2)
		return;
	fplainf(f, "  in %llds: ", LL((t - seen->began) / 1000));
	print_growth(f, seen->now.bytes - seen->first.bytes, true);
	fplainf(f, ", ");
	print_growth(f, seen->now.used - seen->first.used, false);
	fplainf(f, " blocks; in parentheses since the look before; q quits\n");
}

static enum kvt_status print_frame(FILE *f, const struct watch *w,
				   const struct seen *seen, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	fplainf(f, "%s\n", w->path);
	print_state(f, seen, now_ms());
	if (!seen->dump)
		return KVT_OK;
	describe_sentence(f, &seen->dump->facts);
	print_counts(f, seen);
	status = view_pools(f, &seen->dump->facts, screen_rows() - BESIDE, err);
	for (int g = 0; !status && g < seen->dump->facts.snapshot->ngroups; g++)
		if (seen->dump->group[g].maps.by_head)
			view_numbers_text(f, &seen->dump->group[g]);
	return status;
}

/* All at once, or it would flicker. */
static enum kvt_status draw(const struct watch *w, const struct seen *seen,
			    struct kvt_error *err)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	enum kvt_status status;

	if (!f)
		return kvt_no_memory(err, NULL);
	status = print_frame(f, w, seen, err);
	if (fclose(f) && !status)
		status = kvt_no_memory(err, NULL);
	if (!status)
		screen_frame(stdout, text);
	free(text);
	if (fflush(stdout) && !status)
		status = kvt_fail(err, KVT_SYSTEM, "the terminal cannot be written to");
	return status;
}

/* ---- looks --------------------------------------------------------------- */

static void forget(const struct watch *w, struct seen *seen)
{
	if (seen->dump)
		w->close(seen->dump);
	free(seen->dump);
	seen->dump = NULL;
}

static void take(const struct watch *w, struct seen *seen, struct view_dump *d)
{
	forget(w, seen);
	seen->dump = d;
	seen->last = seen->now;
	seen->now = count(d);
	if (!seen->looks++)
		seen->first = seen->last = seen->now;
}

static enum kvt_status look(const struct watch *w, struct seen *seen,
			    struct kvt_error *err)
{
	struct view_dump *d = calloc(1, sizeof(*d));
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (!d)
		return kvt_no_memory(err, NULL);
	status = w->look(d, w->path, w->context, &why);
	seen->at = now_ms();
	if (!status) {
		take(w, seen, d);
	} else {
		w->close(d);
		free(d);
	}
	seen->why = why;
	if (status)
		*err = why;
	return status;
}

static enum kvt_status watch(const struct watch *w, struct seen *seen,
			     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int64_t next = 0;
	int key = TERMINAL_TIMEOUT;

	for (seen->began = now_ms(); !status && key != 'q' && key != 'Q';) {
		int64_t t = now_ms();

		if (t >= next) {
			struct kvt_error ignored;

			if (look(w, seen, &ignored) == KVT_USAGE)
				return kvt_fail(err, KVT_USAGE, "%s", ignored.text);
			next = seen->at + (seen->at - t) * (SHARE - 1);
			if (next < t + LEAST_MS)
				next = t + LEAST_MS;
		}
		if ((status = draw(w, seen, err)))
			break;
		t = now_ms();
		key = terminal_wait(next > t ? next - t : 0);
	}
	return status;
}

enum kvt_status view_watch(const struct watch *w, struct kvt_error *err)
{
	struct seen seen = { .looks = 0 };
	enum kvt_status status;

	/* nothing is written, and there may be very many looks */
	kvt_reads_keep(false);
	if (w->once) {
		status = look(w, &seen, err);
		if (!status)
			status = print_frame(stdout, w, &seen, err);
	} else if (!terminal_enter()) {
		status = kvt_fail(err, KVT_USAGE,
				  "--watch draws on a terminal, and standard output is none, or a dumb one; --once prints what it would draw");
	} else {
		status = watch(w, &seen, err);
		terminal_leave();
	}
	forget(w, &seen);
	return status;
}
