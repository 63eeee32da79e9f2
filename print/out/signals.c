/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.c - a flag for the pipeline, and a death by the right signal
 *
 * A handler sets 'interrupted' and nothing else, and the second signal kills.  Whoever
 * works looks at it between boxes, removes what was staged and returns; main() then dies
 * by the same signal, so that a shell sees what it expects.
 */
#include "print/out/signals.h"

#include <pthread.h>
#include <stddef.h>

volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

static bool published;

static void catch(const int *list, int n)
{
	struct sigaction old, new = { .sa_handler = on_signal };

	/*
	 * SA_RESTART: no read or write fails because of us.  SA_RESETHAND: the
	 * second time is the default, death.
	 */
	new.sa_flags = (int)(SA_RESTART | SA_RESETHAND);
	sigemptyset(&new.sa_mask);
	for (int i = 0; i < n; i++)
		if (!sigaction(list[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(list[i], &new, NULL);
}

/* The first three end a command, the others would leave its stage behind. */
static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
enum { NENDING = 3, NCAUGHT = sizeof(caught) / sizeof(caught[0]) };

void signals_catch(void)
{
	catch(caught, NENDING);
}

void signals_catch_all(void)
{
	catch(caught, NCAUGHT);
}

static void mask(int how)
{
	sigset_t set;

	sigemptyset(&set);
	for (int i = 0; i < NCAUGHT; i++)
		sigaddset(&set, caught[i]);
	pthread_sigmask(how, &set, NULL);
}

bool signals_hold(void)
{
	mask(SIG_BLOCK);
	if (!interrupted)
		return true;
	mask(SIG_UNBLOCK);
	return false;
}

void signals_release(bool done)
{
	struct sigaction old;

	published |= done;
	mask(SIG_UNBLOCK);
	/* there is nothing left to remove: a reader that has gone ends us as usual */
	if (!sigaction(SIGPIPE, NULL, &old) && old.sa_handler == on_signal)
		signal(SIGPIPE, SIG_DFL);
}

/* A write beyond the limit on file sizes then fails, and is cleaned up after. */
void signals_ignore_limits(void)
{
	signal(SIGXFSZ, SIG_IGN);
}

void signals_die(bool unfinished)
{
	int sig = interrupted;

	if (!sig || (published && !unfinished))
		return;
	signal(sig, SIG_DFL);
	raise(sig);
}
