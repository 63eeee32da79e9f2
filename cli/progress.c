/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - percentage, rate and time left, for people
 *
 * One line on a terminal's standard error, drawn at most every 100 ms and wiped at the
 * end; nothing where that is no terminal, and nothing in less than 100 ms.  A command of
 * several passes shows one percentage, which never shrinks.
 */
#include "cli/progress.h"
#include "cli/cli.h"
#include "cli/shard/shard.h"
#include "print/out/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { INTERVAL = 100000000 };		/* ns between two drawings */

/* Of all dumps together, if there are several. */
static struct {
	struct progress_part part;	/* n 0: there is one alone */
	int pass;
	int64_t began;
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

/* More passes than were announced are of no weight: what was drawn never shrinks. */
static double share_done(double part)
{
	const struct progress_part *p = &among.part;

	if (!p->n)
		return part;
	part = among.pass > p->passes ? 1 : (among.pass - 1 + part) / p->passes;
	return p->before + p->share * part;
}

static void draw(int64_t t)
{
	char text[200], which[40] = "";
	double seconds = (double)(t - line.began) / 1e9;
	double rate = seconds > 0 ? (double)line.done / seconds : 0;
	double part = (double)line.done / (double)line.total;
	double all = share_done(part < 1 ? part : 1);
	int64_t left = 0;

	if (among.part.n) {
		snprintf(which, sizeof(which), "%d of %d, ", among.part.i + 1,
			 among.part.n);
		seconds = (double)(t - among.began) / 1e9;
	}
	if (all > 0 && all < 1)
		left = (int64_t)(seconds * (1 - all) / all + 0.5);
	snprintf(text, sizeof(text), "%s%.40s %3.0f%%  %.0f MB/s  %lld:%02lld left",
		 which, line.label, all * 100, rate / 1e6, LL(left / 60), LL(left % 60));
	fplainf(stderr, "\r%.*s\033[K", columns(), text);
	fflush(stderr);
	line.drawn = t;
	line.on_screen = true;
}

static void start(const char *label, int64_t total_bytes)
{
	line.wanted = total_bytes > 0 && can_draw();
	among.pass++;
	line.label = label;
	line.total = total_bytes;
	line.done = 0;
	/* what takes less than one interval shows nothing */
	line.began = line.drawn = line.wanted ? now() : 0;
}

void progress_among(const struct progress_part *part)
{
	if (!part->i)
		among.began = now();
	among.part = *part;
	among.pass = 0;
}

static void stop(void)
{
	if (line.on_screen)
		fputs("\r\033[K", stderr);
	line.on_screen = false;
	line.wanted = false;
}

void progress_count(const char *what, int64_t n)
{
	int64_t t = now();
	char text[80];

	if (!what) {
		stop();
		return;
	}
	if (!line.wanted) {
		line.wanted = can_draw();
		line.drawn = t;
	}
	if (!line.wanted || t - line.drawn < INTERVAL)
		return;
	snprintf(text, sizeof(text), "%lld %.40s", LL(n), what);
	fplainf(stderr, "\r%.*s\033[K", columns(), text);
	fflush(stderr);
	line.drawn = t;
	line.on_screen = true;
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
