/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c - fork, exec, and a look now and then
 *
 * Signals only set a flag here (print/out/signals.h), and waitpid() goes on after one:
 * so it is asked at short times that grow, and what runs is ended when the flag is set.
 */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "print/out/signals.h"

/* What this process ignores or catches is not the program's. */
static void default_signals(void)
{
	static const int of_ours[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE,
				       SIGXFSZ };

	for (size_t i = 0; i < sizeof(of_ours) / sizeof(of_ours[0]); i++)
		signal(of_ours[i], SIG_DFL);
}

/* In the child; comes back only if it could not. */
static void become(const struct child *child)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)setpgid(0, 0);
	default_signals();
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(child->out, STDOUT_FILENO) < 0 || dup2(child->out, STDERR_FILENO) < 0 ||
	    (child->folder && chdir(child->folder)))
		return;
	for (int i = 0; i < CHILD_MAX_SET && child->set[i][0]; i++)
		if (setenv(child->set[i][0], child->set[i][1], 1))
			return;
	/* execv() takes strings that it does not change */
	execv(child->program, (char *const *)(uintptr_t)child->argv);
}

static void pause_for(long ms)
{
	const struct timespec time = { 0, ms * 1000000 };

	(void)nanosleep(&time, NULL);
}

enum kvt_status child_run(int *exit_status, const struct child *child,
			  struct kvt_error *err)
{
	pid_t pid = fork(), got;
	bool ended = false;
	int said = 0;
	long ms = 1;

	if (pid < 0)
		return kvt_fail_errno(err, child->program, "fork");
	if (!pid) {
		become(child);
		_exit(127);
	}
	(void)setpgid(pid, pid);	/* whoever of the two is first */
	while (!(got = waitpid(pid, &said, WNOHANG)) || (got < 0 && errno == EINTR)) {
		if (interrupted && !ended)
			ended = !kill(-pid, SIGTERM);
		pause_for(ms);
		ms = ms < 20 ? ms + 1 : ms;
	}
	if (interrupted)
		return kvt_fail(err, KVT_SYSTEM, "interrupted");
	if (got < 0)
		return kvt_fail_errno(err, child->program, "wait for");
	*exit_status = WIFSIGNALED(said) ? 128 + WTERMSIG(said) : WEXITSTATUS(said);
	return KVT_OK;
}
