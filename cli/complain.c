/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complain.c - what a command says on standard error, now or when it is known to hold
 *
 * A process that sees a part of the data does not know it yet.  So between
 * complaints_keep() and complaints_end() sentences are kept, made plain, in 4 KiB: one
 * that finds no room there is left out, whole.  Standard output is flushed first, so
 * that on a terminal both come in the order in which they were said.
 */
#include "cli/cli.h"

#include <stdarg.h>
#include <string.h>

/* Complaints that wait, for they may not be the last word. */
static struct {
	bool wanted;
	size_t n;
	char text[4096];
	char first[sizeof(((struct kvt_error *)0)->text)];
} kept;

void complaints_keep(void)
{
	kept.wanted = true;
	kept.n = 0;
	kept.text[0] = kept.first[0] = '\0';
}

const char *complaints_first(void)
{
	return kept.first;
}

void complaints_end(bool print)
{
	kept.wanted = false;
	fflush(stdout);
	if (print)
		fputs(kept.text, stderr);
}

/* Made plain, as it is printed. */
static void keep(const char *command, const char *text)
{
	const char *end = text + strlen(text);
	size_t left = sizeof(kept.text) - kept.n;
	char part[KVT_PLAIN_MAX];

	if (!kept.first[0])
		snprintf(kept.first, sizeof(kept.first), "%s", text);
	if (strlen(command) + 4 * strlen(text) + 16 > left)
		return;
	kept.n += (size_t)snprintf(kept.text + kept.n, left, "kvtool %s: ", command);
	while (text < end) {
		text += kvt_plain_next(part, text, end);
		kept.n += (size_t)sprintf(kept.text + kept.n, "%s", part);
	}
	strcpy(kept.text + kept.n++, "\n");
}

void complain(const struct command *command, const char *format, ...)
{
	char text[sizeof(((struct kvt_error *)0)->text)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* what was printed so far comes first where both go to one terminal */
	fflush(stdout);
	if (kept.wanted)
		keep(command ? command->name : "", text);
	else if (command)
		fplainf(stderr, "kvtool %s: %s\n", command->name, text);
	else
		fplainf(stderr, "kvtool: %s\n", text);
}
