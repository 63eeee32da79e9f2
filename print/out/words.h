/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.h - words of a command line, as a shell takes them
 *
 * A command that names another one repeats what was said of its inputs, or that one
 * would be refused.
 */
#ifndef KVTOOL_WORDS_H
#define KVTOOL_WORDS_H

#include "lib/kvt/dump.h"

enum { MAX_WORDS = 160 };

struct words {
	int n;
	bool failed;			/* it cannot be said */
	char *s[MAX_WORDS];		/* owned */
};

/* 'text' behind 'option', in quotes if a shell would see anything in it. */
void words_add(struct words *w, const char *option, const char *text);
/* All options of inputs that were said. */
void words_add_hints(struct words *w, const struct kvt_hints *hints);
void words_free(struct words *w);

#endif
