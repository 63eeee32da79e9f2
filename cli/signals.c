/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - a flag for the pipeline, and a death by the right signal */
#include "cli/signals.h"

#include <stddef.h>

volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

void signals_catch(void)
{
	static const int caught[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction old, new = { .sa_handler = on_signal };

	/*
	 * SA_RESTART: no read or write fails because of us.  SA_RESETHAND: the
	 * second time is the default, death.
	 */
	new.sa_flags = (int)(SA_RESTART | SA_RESETHAND);
	sigemptyset(&new.sa_mask);
	for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		if (!sigaction(caught[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(caught[i], &new, NULL);
}

/* A write beyond the limit on file sizes then fails, and is cleaned up after. */
void signals_ignore_limits(void)
{
	signal(SIGXFSZ, SIG_IGN);
}

void signals_die(void)
{
	int sig = interrupted;

	if (!sig)
		return;
	signal(sig, SIG_DFL);
	raise(sig);
}
