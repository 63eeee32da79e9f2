/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_screen.c - what a description has on a terminal alone
 *
 * Bars say at a glance what the numbers beside them say to a reader; the last lines what
 * is known of the data without reading it, and what to type next: commands that work
 * with this file as they stand, so that they repeat the options that describe it.
 */
#include "print/out/say.h"
#include "print/out/words.h"
#include "print/describe.h"
#include "print/out/screen.h"
#include "print/out/streams.h"

#include <string.h>

enum { COLUMN = 12, INDENT = 14 };	/* where text begins; where it goes on */

/* ---- bars ----------------------------------------------------------------- */

enum kind { PRIVATE, SHARED, UNUSED, NULL_BLOCK, NKINDS };

static const struct {
	const char *block, *ascii, *name;
} kinds[NKINDS] = {
	[PRIVATE]    = { "\342\226\210", "#", "of one request" },
	[SHARED]     = { "\342\226\223", "=", "shared" },
	[UNUSED]     = { "\342\226\221", ".", "unused" },
	[NULL_BLOCK] = { "\302\267", "0", "null" },
};

static void draw(enum kind kind, int64_t n)
{
	const char *cell = screen_draws() ? kinds[kind].block : kinds[kind].ascii;

	while (n-- > 0)
		plainf("%s", cell);
}

/* Cells of each; the largest gives to those that would have none. */
static void share_cells(int64_t cells[NKINDS], const int64_t n[NKINDS], int64_t room)
{
	int64_t all = 0, used = 0;
	int largest = 0;

	for (int i = 0; i < NKINDS; i++) {
		all += n[i];
		largest = n[i] > n[largest] ? i : largest;
	}
	for (int i = 0; i < NKINDS; i++) {
		cells[i] = (int64_t)((double)n[i] / (double)all * (double)room);
		cells[i] += !cells[i] && n[i];
		used += cells[i];
	}
	cells[largest] += room - used;
}

void describe_pool_bar(const struct kvt_group_facts *f, bool has_null)
{
	enum { LEAST = 8, MOST = 64 };
	int64_t blocks = f->group->shape.n[KVT_AXIS_B];
	int64_t room = (int64_t)screen_width() - COLUMN, cells[NKINDS];
	int64_t n[NKINDS] = {
		[PRIVATE] = f->blocks_used - f->blocks_shared,
		[SHARED] = f->blocks_shared, [UNUSED] = f->blocks_unused,
		[NULL_BLOCK] = has_null,
	};
	int printed = 0;

	room = room < MOST ? room : MOST;
	room = room < blocks ? room : blocks;
	if (room < LEAST || f->blocks_used < 0 || f->blocks_used + f->blocks_unused < 1)
		return;
	share_cells(cells, n, room);
	print_label("");
	for (int i = 0; i < NKINDS; i++)
		draw(i, cells[i]);
	putchar('\n');
	print_label("");
	for (int i = 0; i < NKINDS; i++)
		if (n[i]) {
			fputs(printed++ ? "  " : "", stdout);
			draw(i, 1);
			plainf(" %s", kinds[i].name);
		}
	putchar('\n');
}

void describe_request_bar(int64_t tokens, int64_t most, int used, int column)
{
	enum { LEAST = 8, MOST = 40 };
	int64_t room = (int64_t)screen_width() - COLUMN - column - 2, cells;

	room = room < MOST ? room : MOST;
	if (room < LEAST || most < 1 || tokens < 1)
		return;
	cells = (int64_t)((double)tokens / (double)most * (double)room + 0.5);
	plainf("%*s", column - used + 2, "");
	draw(PRIVATE, cells ? cells : 1);
}

/* ---- health --------------------------------------------------------------- */

static bool was_read(const struct kvt_description *d)
{
	for (int g = 0; g < d->snapshot->ngroups; g++)
		if (d->group[g].integrity || d->group[g].moments)
			return true;
	return false;
}

/* 0: no group has checksums; 1: all have; -1: some. */
static int has_checksums(const struct kvt_description *d)
{
	int n = 0;

	for (int g = 0; g < d->snapshot->ngroups; g++)
		n += d->group[g].checksum != NULL;
	return !n ? 0 : n == d->snapshot->ngroups ? 1 : -1;
}

static int64_t missing_tokens(const struct kvt_snapshot *s)
{
	int64_t n = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		for (int g = 0; g < s->ngroups; g++)
			n += kvt_request_missing(&s->request[r], g);
	return n;
}

static void print_health(const struct kvt_description *d)
{
	static const char *const sums[] = {
		"some of it has checksums", "it has no checksums", "it has checksums",
	};
	int64_t missing = missing_tokens(d->snapshot);

	print_label("health");
	plainf("data not read; %s", sums[1 + has_checksums(d)]);
	if (kvt_dump_manifest(d->dump) && kvt_dump_proof(d->dump) == KVT_PROOF_NONE)
		plainf("; its manifest is not proven");
	if (kvt_dump_manifest(d->dump) && kvt_dump_proof(d->dump) == KVT_PROOF_FAILED) {
		plainf("; the manifest ");
		screen_paint(SCREEN_DIFFERS);
		plainf("is of other data");
		screen_plain();
	}
	if (missing) {
		plainf("; ");
		screen_paint(SCREEN_MISSING);
		plainf("%lld missing", LL(missing));
		screen_plain();
		plainf(" of the tokens of requests");
	}
	putchar('\n');
}

/* ---- what is next ----------------------------------------------------------- */

/* "kvtool fsck --layout=nhd dump.bin" */
static void add_command(struct words *w, const char *const *begin, const char *path,
			const struct kvt_hints *hints, const char *end)
{
	for (; *begin; begin++)
		words_add(w, "", *begin);
	words_add_hints(w, hints);
	words_add(w, *path == '-' ? "./" : "", path);
	if (end)
		words_add(w, "", end);
}

/* Every word must fit into a line, or what is marked and pasted is another command. */
static bool fits(const struct words *w, size_t width)
{
	for (int i = 0; i < w->n; i++)
		if (INDENT + strlen(w->s[i]) + 2 > width)
			return false;
	return !w->failed;
}

static void print_command(const struct words *w, size_t width)
{
	size_t used = COLUMN;

	for (int i = 0; i < w->n; i++) {
		size_t n = strlen(w->s[i]);

		if (i && used + 1 + n + 2 * (i + 1 < w->n) > width) {
			plainf(" \\\n%*s", INDENT, "");
			used = INDENT;
		} else if (i) {
			putchar(' ');
			used++;
		}
		plainf("%s", w->s[i]);
		used += n;
	}
	putchar('\n');
}

/* Bytes that are no numbers have no statistics. */
static bool has_numbers(const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++)
		if (s->group[g].content.type || !strstr(s->group[g].dtype->name, "float"))
			return false;
	return true;
}

static void print_next(const struct kvt_description *d, const struct kvt_hints *hints)
{
	static const struct {
		const char *begin[4], *end;
		bool numbers;
	} commands[] = {
		{ { "kvtool", "fsck", NULL }, NULL, false },
		{ { "kvtool", "describe", "--stats", NULL }, NULL, true },
		{ { "kvtool", "diff", NULL }, "OTHER", false },
	};
	size_t width = screen_width();
	int printed = 0;

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		struct words w = { 0 };

		if (commands[i].numbers && !has_numbers(d->snapshot))
			continue;
		add_command(&w, commands[i].begin, d->path, hints, commands[i].end);
		if (fits(&w, width)) {
			print_label(printed++ ? "" : "next");
			print_command(&w, width);
		}
		words_free(&w);
	}
}

void describe_outlook(const struct kvt_description *d, const struct kvt_hints *hints)
{
	if (!screen_width() || !d->snapshot->ngroups || was_read(d))
		return;
	putchar('\n');
	print_health(d);
	if (hints && strcmp(d->path, stream_in_path) != 0)
		print_next(d, hints);
}
