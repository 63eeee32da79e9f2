/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - percentage, rate and time left, for people */
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL 100000000	/* ns between two drawings */

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

void progress_start(struct progress *p, const char *label, int64_t total,
		    bool quiet)
{
	*p = (struct progress){ .label = label, .total = total };
	p->shown = !quiet && total > 0 && can_draw();
	/* what takes less than one interval shows nothing */
	p->began = p->drawn = p->shown ? now() : 0;
}

static void draw(struct progress *p, int64_t t)
{
	double seconds = (double)(t - p->began) / 1e9;
	double rate = seconds > 0 ? (double)p->done / seconds : 0;
	double part = (double)p->done / (double)p->total;
	int left = rate > 0 ? (int)((double)(p->total - p->done) / rate + 0.5) : 0;

	fprintf(stderr, "\r%.40s %3.0f%%  %.0f MB/s  %d:%02d left \033[K",
		p->label, part < 1 ? part * 100 : 100.0, rate / 1e6, left / 60,
		left % 60);
	fflush(stderr);
	p->drawn = t;
	p->on_screen = true;
}

void progress_add(struct progress *p, int64_t nbytes)
{
	int64_t t;

	p->done += nbytes;
	if (!p->shown)
		return;
	t = now();
	if (t - p->drawn >= INTERVAL)
		draw(p, t);
}

void progress_end(struct progress *p)
{
	if (p->on_screen)
		fputs("\r\033[K", stderr);
	p->on_screen = false;
	p->shown = false;
}
