/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - percentage, rate and time left, for people */
#include "cli/progress.h"
#include "cli/cli.h"
#include "cli/shard/shard.h"
#include "cli/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { INTERVAL = 100000000 };		/* ns between two drawings */

static struct {
	int i, n;
} among;

static struct {
	bool wanted, on_screen;
	const char *label;
	int64_t total, done;		/* bytes */
	int64_t began, drawn;		/* monotonic ns */
} line;

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool can_draw(void)
{
	const char *term = getenv("TERM");

	return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb");
}

/* What fits on one line: more would wrap, and be left behind. */
static int columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2)
		return 79;
	return size.ws_col - 1;
}

static void draw(int64_t t)
{
	char text[200], which[40] = "";
	double seconds = (double)(t - line.began) / 1e9;
	double rate = seconds > 0 ? (double)line.done / seconds : 0;
	double part = (double)line.done / (double)line.total;
	int64_t left = 0;

	if (rate > 0 && line.done < line.total)
		left = (int64_t)((double)(line.total - line.done) / rate + 0.5);
	if (among.n)
		snprintf(which, sizeof(which), "%d of %d, ", among.i + 1, among.n);
	snprintf(text, sizeof(text), "%s%.40s %3.0f%%  %.0f MB/s  %lld:%02lld left",
		 which, line.label, part < 1 ? part * 100 : 100.0, rate / 1e6,
		 (long long)(left / 60), (long long)(left % 60));
	fplainf(stderr, "\r%.*s\033[K", columns(), text);
	fflush(stderr);
	line.drawn = t;
	line.on_screen = true;
}

static void start(const char *label, int64_t total_bytes)
{
	line.wanted = total_bytes > 0 && can_draw();
	line.label = label;
	line.total = total_bytes;
	line.done = 0;
	/* what takes less than one interval shows nothing */
	line.began = line.drawn = line.wanted ? now() : 0;
}

void progress_among(int i, int n)
{
	among.i = i;
	among.n = n;
}

static void stop(void)
{
	if (line.on_screen)
		fputs("\r\033[K", stderr);
	line.on_screen = false;
	line.wanted = false;
}

static void progress(void *context, const char *what, int64_t done, int64_t total)
{
	int64_t t;

	(void)context;
	if (!what) {
		stop();
		return;
	}
	if (!done)
		start(what, total);
	if (!line.wanted)
		return;
	line.done = done;
	t = now();
	if (t - line.drawn >= INTERVAL)
		draw(t);
}

static bool cancelled(void *context)
{
	(void)context;
	return interrupted;
}

static void warn(void *context, const char *text)
{
	complain(context, "%s", text);
}

struct kvt_run run_watched(int64_t threads, int64_t memory, bool quiet)
{
	return (struct kvt_run){
		.threads = (int)(threads < 64 ? threads : 64),
		.memory = memory,
		.cancelled = cancelled,
		.progress = quiet || shard_draws_nothing ? NULL : progress,
		.warn = warn,
		.share = shard_sharing(),
	};
}
