/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.c - kvtool transfer-sim wire: the same as exec between two processes
 *
 * The destination listens and pulls, the source connects and serves.  One command
 * starts both, or each is started with --listen or --connect.
 */
#include "sim/cmd/exec.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/progress.h"
#include "print/out/signals.h"
#include "sim/wire/socket.h"
#include "sim/wire/ucx.h"

struct wire_args {
	struct exec_words exec;
	const char *listen, *connect, *transport, *secret_file;
	int64_t timeout, deadline;	/* seconds; of a frame, of all */
	struct wire_limits limits;
	struct wire_secret secret;
	int n;				/* operands */
	char **argv;
};

static void set_limits(struct wire_args *a)
{
	const int64_t day = 86400, century = 36525 * day;

	a->limits.frame_ms = (int)(a->timeout < day ? a->timeout : day) * 1000;
	a->limits.end_ms = wire_now_ms() +
			   (a->deadline < century ? a->deadline : century) * 1000;
}

static bool over_ucx(const struct wire_args *a)
{
	return a->transport && !strcmp(a->transport, "ucx");
}

static enum kvt_status say_hello(struct wire *wire, const struct kvt_sides *sides,
				 const struct wire_args *a, struct kvt_error *err)
{
	const struct wire_peer peer = wire_peer(wire);
	enum kvt_status status = over_ucx(a) ? wire_use_ucx(wire, err) : KVT_OK;

	return status ? status : wire_hello(&peer, sides, err);
}

/* ---- the two ends ---------------------------------------------------- */

static enum kvt_status send_from(const struct wire_args *a, const char *where,
				 struct kvt_error *err)
{
	struct wire wire = { .fd = -1 };
	const struct wire_peer peer = wire_peer(&wire);
	struct kvt_sides sides;
	enum kvt_status status = exec_open(&sides, &a->exec, a->n, a->argv, err);

	if (status)
		return status;
	if (!(status = wire_connect(&wire, where, &a->limits, &a->secret, err)) &&
	    !(status = say_hello(&wire, &sides, a, err)))
		status = wire_serve(&peer, &sides, &a->exec.run, err);
	if (status)
		wire_give_up(&wire, status, err);
	wire_close(&wire);
	kvt_sides_free(&sides);
	return status;
}

static enum kvt_status pull(struct kvt_carried *out, const struct kvt_sides *sides,
			    const struct exec_words *args, struct wire_peer *peer,
			    struct kvt_error *err)
{
	struct kvt_op_place corrupt;
	struct kvt_carry_how how = { .run = args->run, .fn = wire_pull,
				     .context = peer };
	enum kvt_status status = KVT_OK;

	if (args->corrupt >= 0) {
		status = kvt_transfer_find_op(&corrupt, &sides->transfer, args->corrupt,
					      err);
		how.corrupt = &corrupt;
	}
	if (status || (status = exec_create(out, sides, args, err)))
		return status;
	return kvt_carry_out(out, sides, &how, err);
}

static enum kvt_status receive(struct wire *wire, const struct kvt_sides *sides,
			       const struct wire_args *a, int64_t rejected,
			       struct kvt_error *err)
{
	struct kvt_verified verified = { .bytes = 0 };
	struct exec_words args = a->exec;
	struct kvt_carried carried = { .n = 0 };
	struct wire_peer peer = wire_peer(wire);
	enum kvt_status status;

	args.run.threads = 1;		/* one connection, one box at a time */
	signals_catch_all();
	if ((status = say_hello(wire, sides, a, err)) ||
	    (status = pull(&carried, sides, &args, &peer, err))) {
		wire_give_up(wire, status, err);
		kvt_carried_free(&carried);
		return status;
	}
	/* the outputs are complete: whether the source hears of it does not matter */
	if (wire_send(wire, WIRE_BYE, NULL, 0, NULL, 0, NULL))
		wire_close(wire);
	carried.rejected = rejected;
	if (!(status = exec_publish(&verified, sides, &carried, &a->exec, err)))
		status = exec_report(sides, &a->exec, &carried, &verified, err);
	kvt_carried_free(&carried);
	return status;
}

/* Also where all goes well: connections that were not the peer are suspicious. */
static void tell_rejected(const struct wire_rejected *s)
{
	if (s->n)
		complain(&transfer_modes,
			 "%lld connection%s turned away, the last one: %s",
			 LL(s->n), s->n == 1 ? " was" : "s were", s->last.text);
}

static enum kvt_status receive_at(const struct wire_args *a, int fd,
				  struct kvt_error *err)
{
	struct wire wire = { .fd = -1 };
	struct wire_rejected rejected = { .n = 0 };
	struct kvt_sides sides;
	enum kvt_status status = exec_open(&sides, &a->exec, a->n, a->argv, err);

	if (status)
		return status;
	if (!(status = wire_accept(&wire, &rejected, fd, &a->limits, &a->secret, err)))
		status = receive(&wire, &sides, a, rejected.n, err);
	wire_close(&wire);
	tell_rejected(&rejected);
	kvt_sides_free(&sides);
	return status;
}

/* ---- one command, two processes -------------------------------------- */

/* Its sentence goes over the wire; one that cannot is the parent's own. */
static void be_source(const struct wire_args *a, int port)
{
	struct kvt_error err = { "" };
	char where[32];

	snprintf(where, sizeof(where), "127.0.0.1:%d", port);
	_exit(send_from(a, where, &err));
}

static enum kvt_status both(const struct wire_args *a, int fd, int port,
			    struct kvt_error *err)
{
	enum kvt_status status;
	pid_t child;

	fflush(NULL);
	if ((child = fork()) < 0)
		return kvt_fail(err, KVT_SYSTEM, "cannot start a second process");
	if (!child) {
		close(fd);
		be_source(a, port);
	}
	status = receive_at(a, fd, err);
	if (status)
		kill(child, SIGTERM);
	while (waitpid(child, NULL, 0) < 0 && !interrupted)
		;
	return status;
}

/* The second process that we start ourselves is known by a secret, too. */
static enum kvt_status get_secret(struct wire_args *a, struct kvt_error *err)
{
	if (a->secret_file)
		return wire_secret_read(&a->secret, a->secret_file, err);
	return a->listen || a->connect ? KVT_OK : wire_secret_make(&a->secret, err);
}

static enum kvt_status wire(struct wire_args *a, struct kvt_error *err)
{
	const char *here = a->listen ? a->listen : "127.0.0.1:0";
	enum kvt_status status = get_secret(a, err);
	int fd, port;

	if (status)
		return status;
	signals_catch();
	set_limits(a);
	if (a->connect) {
		status = wire_check_address(a->connect, false, &a->secret, err);
		return status ? status : send_from(a, a->connect, err);
	}
	if ((status = wire_listen(&fd, &port, here, &a->secret, err)))
		return status;
	if (a->listen && !a->exec.quiet)
		fplainf(stderr, "waiting at port %d\n", port);
	status = a->listen ? receive_at(a, fd, err) : both(a, fd, port, err);
	close(fd);
	return status;
}

/* ---- the mode -------------------------------------------------------- */

static enum kvt_status check(const struct wire_args *a, struct kvt_error *err)
{
	if (a->transport && strcmp(a->transport, "tcp") && !over_ucx(a))
		return kvt_fail(err, KVT_USAGE,
				"--transport is '%.40s', expected tcp or ucx",
				a->transport);
	if (a->listen && a->connect)
		return kvt_fail(err, KVT_USAGE,
				"--listen receives and --connect sends, expected one of them");
	if (!a->connect && !a->exec.output)
		return kvt_fail(err, KVT_USAGE, "expected -o: where to write");
	return over_ucx(a) ? wire_ucx_built(err) : KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct wire_args a = {
		.exec = EXEC_WORDS,
		.timeout = 10, .deadline = 3600,
	};
	const struct opt opts[] = {
		EXEC_OPTS(&a.exec),
		{ "listen", 0, OPT_STRING, &a.listen, "HOST:PORT",
		  "be the destination alone, and wait there for the source" },
		{ "connect", 0, OPT_STRING, &a.connect, "HOST:PORT",
		  "be the source alone, of a destination that listens there" },
		{ "timeout", 0, OPT_COUNT, &a.timeout, "SECONDS",
		  "give up when one frame takes so long; default 10" },
		{ "deadline", 0, OPT_COUNT, &a.deadline, "SECONDS",
		  "give up when all of it takes so long; default 3600" },
		{ "secret-file", 0, OPT_STRING, &a.secret_file, "FILE",
		  "what both sides must know; needed off the loopback interface" },
		{ "transport", 0, OPT_STRING, &a.transport, "tcp|ucx",
		  "how bytes go: default tcp; ucx needs libucx0" },
		OPT_INPUT(&a.exec.transfer.hints),
		{ 0 }
	};
	enum kvt_status status;

	a.n = opt_parse(&transfer_wire, opts, argc, argv, err);
	a.argv = argv;
	a.exec.transfer.mode = "wire";
	if (a.n < 0)
		return opt_status(a.n);
	a.exec.run = run_watched(a.exec.threads, a.exec.memory, a.exec.quiet);
	if ((status = check(&a, err)))
		return status;
	return wire(&a, err);
}

const struct command transfer_wire = {
	.name = "transfer-sim wire",
	.args = "-o OUT SRC... [DST...]",
	.summary = "the same between two processes over TCP or UCX",
	.run = run,
	.examples =
		"  kvtool transfer-sim wire -o out.h5 prefill.h5 decode.h5\n"
		"  kvtool transfer-sim wire --listen=127.0.0.1:7000 -o out.h5 prefill.h5 decode.h5 &\n"
		"  kvtool transfer-sim wire --connect=127.0.0.1:7000 prefill.h5 decode.h5\n",
};
