/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.c - a whole terminal for a while, given back however the program ends
 *
 * Nothing is staged meanwhile, so a signal need not wait: its handler gives the terminal
 * back, with calls that handlers may make, and lets the signal have its way.  A program
 * that was stopped takes the terminal again when it goes on.
 */
#include "print/out/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "print/out/screen.h"

static struct termios before;
static bool has_keys;			/* 'before' is of standard input */
static volatile sig_atomic_t taken, resized;

/* Short ones are written whole, or the terminal is gone. */
static void say(const char *text, size_t n)
{
	ssize_t ignored = write(STDOUT_FILENO, text, n);

	(void)ignored;
}

static void take(void)
{
	static const char shown[] = "\033[?1049h\033[?25l\033[?7l";
	struct termios raw = before;

	taken = 1;
	if (has_keys) {
		raw.c_lflag &= (tcflag_t)~(ICANON | ECHO);
		raw.c_cc[VMIN] = 0;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	say(shown, sizeof(shown) - 1);
}

void terminal_leave(void)
{
	static const char shown[] = "\033[0m\033[?7h\033[?25h\033[?1049l";

	if (!taken)
		return;
	taken = 0;
	say(shown, sizeof(shown) - 1);
	if (has_keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void on_end(int sig)
{
	terminal_leave();
	signal(sig, SIG_DFL);
	raise(sig);
}

static void on_stop(int sig)
{
	int saved = errno;

	(void)sig;
	terminal_leave();
	raise(SIGSTOP);
	take();
	resized = 1;
	errno = saved;
}

static void on_resize(int sig)
{
	(void)sig;
	resized = 1;
}

static void catch(int sig, void (*handler)(int), int flags)
{
	struct sigaction old, new = { .sa_handler = handler, .sa_flags = flags };

	/* none comes while another one gives the terminal back */
	sigfillset(&new.sa_mask);
	if (!sigaction(sig, NULL, &old) && old.sa_handler != SIG_IGN)
		sigaction(sig, &new, NULL);
}

bool terminal_enter(void)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM,
				    SIGUSR1, SIGUSR2, SIGABRT, SIGSEGV, SIGBUS, SIGFPE };

	if (!screen_whole())
		return false;
	has_keys = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &before);
	atexit(terminal_leave);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		catch(ends[i], on_end, 0);
	catch(SIGTSTP, on_stop, SA_RESTART);
	catch(SIGWINCH, on_resize, SA_RESTART);
	take();
	return true;
}

int terminal_wait(int64_t ms)
{
	struct pollfd keys = { .fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN };
	unsigned char key;
	int n = resized ? 0 : poll(&keys, 1, (int)ms);

	if (resized || (n < 0 && errno == EINTR)) {
		resized = 0;
		return TERMINAL_RESIZED;
	}
	if (n < 1)
		return TERMINAL_TIMEOUT;
	if (read(STDIN_FILENO, &key, 1) == 1)
		return key;
	if (keys.revents & (POLLHUP | POLLERR | POLLNVAL))
		has_keys = false;	/* nobody is there any more */
	return TERMINAL_TIMEOUT;
}
