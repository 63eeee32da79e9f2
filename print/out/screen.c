/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.c - width and colours of a terminal
 *
 * Who prints does not count columns: lines that are to be folded are collected, standard
 * output being a buffer meanwhile, and folded when all are there.  By then names in them
 * are plain, so an escape can only be one of ours, which takes no room.
 */
#define _GNU_SOURCE		/* strcasestr */
#include "print/out/screen.h"
#include "print/out/say.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
	WIDTH = 80,		/* where nobody says it */
	HEIGHT = 24,
	LEAST = 24,		/* columns, below which folding makes nothing better */
};

static enum { AUTO, ALWAYS, NEVER } when;
static bool nobody_looks;

void screen_none(void)
{
	nobody_looks = true;
}

/* What is printed is kept. */
static struct {
	FILE *screen;		/* NULL: it is not */
	char *text;
	size_t n;
	bool plain;
} taken;

static bool is_terminal(void)
{
	return !nobody_looks && !taken.plain && isatty(STDOUT_FILENO);
}

static bool is_dumb(void)
{
	const char *term = getenv("TERM");

	return !term || !*term || !strcmp(term, "dumb");
}

/* ---- colours ------------------------------------------------------------- */

static enum kvt_status take_when(const char *word, struct kvt_error *err)
{
	static const char *const words[] = {
		[AUTO] = "auto", [ALWAYS] = "always", [NEVER] = "never",
	};

	for (int i = AUTO; i <= NEVER; i++)
		if (!strcmp(word, words[i])) {
			when = i;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_USAGE,
			"--color is '%.40s', expected auto, always or never", word);
}

enum kvt_status screen_take_option(int *argc, char **argv, struct kvt_error *err)
{
	static const char option[] = "--color=";
	enum kvt_status status = KVT_OK;
	bool operands = false;
	int n = 1;

	for (int i = 1; i < *argc; i++) {
		operands |= !strcmp(argv[i], "--");
		if (operands || strncmp(argv[i], option, strlen(option)))
			argv[n++] = argv[i];
		else if (!status)
			status = take_when(argv[i] + strlen(option), err);
	}
	argv[*argc = n] = NULL;
	return status;
}

static bool coloured(void)
{
	const char *no = getenv("NO_COLOR");

	if (taken.plain || when != AUTO)
		return !taken.plain && when == ALWAYS;
	return is_terminal() && (!no || !*no) && !is_dumb();
}

static bool painted;

void screen_paint(enum screen_colour colour)
{
	static const char *const escapes[] = {
		[SCREEN_NAME]    = "\033[1m",
		[SCREEN_MISSING] = "\033[33m",
		[SCREEN_DIFFERS] = "\033[31m",
	};

	if (coloured())
		fputs(escapes[colour], stdout);
	painted = true;
}

void screen_plain(void)
{
	if (painted && coloured())
		fputs("\033[0m", stdout);
	painted = false;
}

void screen_say(enum screen_colour colour, const char *text)
{
	screen_paint(colour);
	plainf("%s", text);
	screen_plain();
}

/* Of the 256 colours that terminals have; dark enough for white letters. */
void screen_shade(FILE *f, int i)
{
	static const int grounds[] = { 25, 130, 28, 125, 54, 23, 88 };

	if (!coloured())
		return;
	if (i < 0)
		fputs("\033[0m", f);
	else
		fprintf(f, "\033[97;48;5;%dm", grounds[i]);
}

static const int heats[] = { 255, 195, 153, 117, 75, 39, 33, 27, 21, 18 };

void screen_heat(FILE *f, int tenth)
{
	if (!coloured())
		return;
	if (tenth < 0)
		fputs("\033[0m", f);
	else
		fprintf(f, "\033[%d;48;5;%dm", tenth < 5 ? 30 : 97, heats[tenth]);
}

bool screen_halves(void)
{
	return screen_draws() && coloured();
}

/* Which says that it has all colours, has these. */
static bool has_all_colours(void)
{
	const char *said = getenv("COLORTERM");

	return said && (!strcmp(said, "truecolor") || !strcmp(said, "24bit"));
}

/* 'what' is 38 for the letter, 48 for its ground. */
static void put_depth(FILE *f, int what, double depth)
{
	static const unsigned char pale[3] = { 232, 240, 252 }, deep[3] = { 8, 16, 112 };
	double d = depth < 1 ? depth : 1;

	if (!has_all_colours()) {
		fprintf(f, "\033[%d;5;%dm", what, heats[(int)(d * 9.999)]);
		return;
	}
	fprintf(f, "\033[%d;2", what);
	for (int i = 0; i < 3; i++)
		fprintf(f, ";%d", (int)(pale[i] + d * (deep[i] - pale[i]) + 0.5));
	fputc('m', f);
}

void screen_half(FILE *f, double upper, double lower)
{
	bool above = upper >= 0, below = lower >= 0;

	screen_heat(f, -1);
	if (above)
		put_depth(f, 38, upper);
	if (below)
		put_depth(f, above ? 48 : 38, lower);
	fputs(above ? "\342\226\200" : below ? "\342\226\204" : " ", f);
}

/* ---- width --------------------------------------------------------------- */

size_t screen_width(void)
{
	const char *said = getenv("COLUMNS");
	long n = said ? strtol(said, NULL, 10) : 0;
	struct winsize size;

	if (!is_terminal())
		return 0;
	if (n < 1 && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		n = size.ws_col;
	if (n < 1)
		n = WIDTH;
	return n < LEAST ? 0 : (size_t)n;
}

/* The first of these that says anything is the locale's. */
static bool is_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
	const char *said = NULL;

	for (int i = 0; i < 3 && (!said || !*said); i++)
		said = getenv(names[i]);
	return said && (strcasestr(said, "utf-8") || strcasestr(said, "utf8"));
}

bool screen_draws(void)
{
	return is_terminal() && !is_dumb() && is_utf8();
}

int screen_room(void)
{
	size_t n = screen_width();

	return n ? (int)n : WIDTH;
}

int screen_rows(void)
{
	struct winsize size;

	if (!is_terminal() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_row < 1)
		return HEIGHT;
	return size.ws_row;
}

/* Behind the character at 's', or our escape; *columns: what it takes of a line. */
static const char *step(size_t *columns, const char *s)
{
	*columns = *s != '\033';
	if (!*columns)
		return s + strcspn(s, "m") + 1;
	for (s++; (*s & 0xc0) == 0x80; s++)
		;			/* the rest of a character in UTF-8 */
	return s;
}

/*
 * The end of what fits into 'room' columns: behind the last blank that is not of the
 * label, or where there is none, in the middle of a name.
 */
static const char *fit(const char *s, const char *end, size_t label, size_t room)
{
	const char *blank = NULL;
	size_t used = 0, columns;

	while (s < end) {
		const char *next = step(&columns, s);

		if (used + columns > room)
			return *s == ' ' || !blank ? s : blank;
		used += columns;
		if (*s == ' ' && used > label)
			blank = next;
		s = next;
	}
	return end;
}

static void fold_line(FILE *out, const char *s, const char *end, size_t hang, size_t room)
{
	size_t blanks = strspn(s, " ");

	/* what is below a label already stays below it */
	if (blanks > hang && blanks < room / 2)
		hang = blanks;
	for (int i = 0; !i || s < end; i++) {
		size_t indent = i ? hang : 0;
		const char *stop = fit(s, end, i ? 0 : hang, room - indent);
		const char *last = stop;

		while (stop < end && last > s && last[-1] == ' ')
			last--;
		fprintf(out, "%*s", (int)indent, "");
		fwrite(s, 1, (size_t)(last - s), out);
		putc('\n', out);
		s = stop == end ? end : stop + strspn(stop, " ");
	}
}

/* ---- lines that are collected ----------------------------------------------- */

static struct {
	FILE *screen;		/* NULL: lines go there at once */
	char *text;
	size_t n, hang;
} kept;

void screen_fold_begin(int hang)
{
	FILE *buffer = screen_width() ? open_memstream(&kept.text, &kept.n) : NULL;

	if (!buffer)
		return;
	kept.screen = stdout;
	kept.hang = (size_t)hang;
	stdout = buffer;
}

void screen_fold_end(void)
{
	FILE *buffer = stdout;
	size_t room = screen_width();
	const char *s, *end;

	if (!kept.screen)
		return;
	stdout = kept.screen;
	kept.screen = NULL;
	if (fclose(buffer)) {
		fputs("(no memory for this text)\n", stdout);
		return;
	}
	for (s = kept.text; *s; s = end + 1) {
		end = s + strcspn(s, "\n");
		fold_line(stdout, s, end, kept.hang, room);
		if (!*end)
			break;
	}
	free(kept.text);
}

void screen_take_begin(bool plain)
{
	FILE *buffer = open_memstream(&taken.text, &taken.n);

	if (!buffer)
		return;
	taken.screen = stdout;
	taken.plain = plain;
	stdout = buffer;
}

char *screen_take_end(void)
{
	FILE *buffer = stdout;
	char *text = NULL;

	if (!taken.screen)
		return NULL;
	stdout = taken.screen;
	taken.screen = NULL;
	taken.plain = false;
	if (!fclose(buffer))
		text = taken.text;
	else
		free(taken.text);
	taken.text = NULL;
	return text;
}

void screen_put(const char *text)
{
	fputs(text, stdout);
}

bool screen_whole(void)
{
	return is_terminal() && !is_dumb();
}

void screen_frame(FILE *out, const char *text)
{
	size_t room = (size_t)screen_room(), columns;
	int rows = screen_rows();

	fputs("\033[H", out);
	for (int row = 0; row < rows && *text; row++) {
		const char *end = text + strcspn(text, "\n"), *s = text;

		for (size_t used = 0; s < end; s = step(&columns, s)) {
			used += *s != '\033';
			if (used > room)
				break;
		}
		fwrite(text, 1, (size_t)(s - text), out);
		fputs(row + 1 < rows ? "\033[0m\033[K\r\n" : "\033[0m\033[K", out);
		text = end + (*end == '\n');
	}
	fputs("\033[J", out);
}
