/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket.c - sockets that neither wait forever nor end half-way unnoticed
 *
 * Sockets do not block; every wait is a poll() up to a point in time, one of the frame
 * and one of the whole transfer, and looks once a second for a signal.  Addresses beyond
 * the loopback interface need a secret.  A frame's head is believed only as far as its
 * type allows (sim/ops/frame.c).
 */
#include "sim/wire/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "print/out/signals.h"
#include "sim/wire/ucx.h"

enum {
	GIVE_UP_MS = 1000,		/* to say why */
	LOOK_MS = 1000,			/* for a signal that came just before a wait */
};

/* ---- waiting --------------------------------------------------------- */

/* When a frame that begins now has to be through. */
static int64_t frame_end(const struct wire_limits *limits)
{
	int64_t end = wire_now_ms() + limits->frame_ms;

	return end < limits->end_ms ? end : limits->end_ms;
}

static enum kvt_status late(const struct wire_limits *limits, const char *doing,
			    struct kvt_error *err)
{
	if (wire_now_ms() >= limits->end_ms)
		return kvt_fail(err, KVT_SYSTEM,
				"%s: the time for the whole transfer is over: --deadline",
				doing);
	return kvt_fail(err, KVT_SYSTEM, "%s: not through after %d ms: --timeout", doing,
			limits->frame_ms);
}

static enum kvt_status wait_for(int fd, short what, int64_t until,
				const struct wire_limits *limits, const char *doing,
				struct kvt_error *err)
{
	struct pollfd p = { .fd = fd, .events = what };
	int64_t left;

	while (!interrupted && (left = until - wire_now_ms()) > 0) {
		int n = poll(&p, 1, left < LOOK_MS ? (int)left : LOOK_MS);

		if (n > 0)
			return KVT_OK;
		if (n < 0 && errno != EINTR)
			return kvt_fail(err, KVT_SYSTEM, "%s: %s", doing,
					strerror(errno));
	}
	return interrupted ? kvt_fail(err, KVT_SYSTEM, "interrupted") :
			     late(limits, doing, err);
}

/* ---- addresses ------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *address)
{
	const struct in_addr *four = &((const struct sockaddr_in *)address)->sin_addr;
	const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;

	if (address->sa_family == AF_INET)
		return ntohl(four->s_addr) >> 24 == IN_LOOPBACKNET;
	return address->sa_family == AF_INET6 &&
	       (IN6_IS_ADDR_LOOPBACK(six) ||
		(IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET));
}

/* Whoever reaches another interface could take the place of the peer. */
static enum kvt_status check_secret(const struct addrinfo *list, const char *where,
				    const struct wire_secret *secret,
				    struct kvt_error *err)
{
	for (; list && !secret->n; list = list->ai_next)
		if (!is_loopback(list->ai_addr))
			return kvt_fail(err, KVT_USAGE,
					"'%.100s' is not on the loopback interface, expected --secret-file=FILE on both sides",
					where);
	return KVT_OK;
}

/* "127.0.0.1:7000", "[::1]:7000", "host:7000"; freeaddrinfo(). */
static enum kvt_status resolve(struct addrinfo **out, const char *where, bool passive,
			       const struct wire_secret *secret, struct kvt_error *err)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = passive ? AI_PASSIVE : 0 };
	char host[256];
	const char *colon = strrchr(where, ':');
	size_t n = colon ? (size_t)(colon - where) : 0;
	enum kvt_status status;
	int failed;

	if (!colon || !n || n >= sizeof(host) || !colon[1] ||
	    colon[1 + strspn(colon + 1, "0123456789")] ||
	    strtoul(colon + 1, NULL, 10) > UINT16_MAX)
		return kvt_fail(err, KVT_USAGE,
				"'%.100s' is no address, expected HOST:PORT", where);
	memcpy(host, where, n);
	host[n] = '\0';
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		memmove(host, host + 1, n - 1);
	}
	failed = getaddrinfo(host, colon + 1, &hints, out);
	if (failed)
		return kvt_fail(err, KVT_SYSTEM, "%.100s: %s", where,
				gai_strerror(failed));
	if ((status = check_secret(*out, where, secret, err)))
		freeaddrinfo(*out);
	return status;
}

enum kvt_status wire_check_address(const char *where, bool listens,
				   const struct wire_secret *secret,
				   struct kvt_error *err)
{
	struct addrinfo *a;
	enum kvt_status status = resolve(&a, where, listens, secret, err);

	if (!status)
		freeaddrinfo(a);
	return status;
}

static int port_of(int fd)
{
	struct sockaddr_storage s;
	socklen_t n = sizeof(s);

	if (getsockname(fd, (struct sockaddr *)&s, &n))
		return 0;
	return ntohs(s.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&s)->sin6_port :
					       ((struct sockaddr_in *)&s)->sin_port);
}

enum kvt_status wire_listen(int *fd, int *port, const char *where,
			    const struct wire_secret *secret, struct kvt_error *err)
{
	struct addrinfo *a;
	enum kvt_status status = resolve(&a, where, true, secret, err);
	int one = 1;

	if (status)
		return status;
	*fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(*fd, a->ai_addr, a->ai_addrlen) || listen(*fd, SOMAXCONN)) {
		status = kvt_fail(err, KVT_SYSTEM, "%.100s: %s", where, strerror(errno));
		if (*fd >= 0)
			close(*fd);
		*fd = -1;
	} else {
		*port = port_of(*fd);
	}
	freeaddrinfo(a);
	return status;
}

/* ---- connections ----------------------------------------------------- */

enum kvt_status wire_start(struct wire *out, int fd, const struct wire_limits *limits,
			   struct kvt_error *err)
{
	int one = 1;

	*out = (struct wire){ .fd = fd, .limits = *limits, .payload = malloc(WIRE_MOST) };
	/* questions are short and wait for answers; a failure only costs time */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!out->payload || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
		wire_close(out);
		return kvt_fail(err, KVT_SYSTEM, "cannot use the connection: %s",
				strerror(errno));
	}
	return KVT_OK;
}

void wire_close(struct wire *wire)
{
	wire_ucx_close(wire->ucx);
	if (wire->fd >= 0)
		close(wire->fd);
	free(wire->payload);
	*wire = (struct wire){ .fd = -1 };
}

/* -1 and errno; the system alone would try an address for minutes. */
static int try_address(const struct addrinfo *a, int64_t until)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int why = 0, n = 0;
	socklen_t size = sizeof(why);
	int64_t left;

	if (fd < 0 || !connect(fd, a->ai_addr, a->ai_addrlen))
		return fd;
	if (errno != EINPROGRESS)
		why = errno;
	/* who comes late looks once all the same: an answer may be there already */
	for (left = 1; !why && !interrupted && n < 1 && left > 0;) {
		left = until - wire_now_ms();
		left = left < 0 ? 0 : left < LOOK_MS ? left : LOOK_MS;
		if ((n = poll(&p, 1, (int)left)) < 0 && errno != EINTR)
			why = errno;
	}
	if (!why && n < 1)
		why = interrupted ? EINTR : ETIMEDOUT;
	if (!why && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size))
		why = errno;
	if (!why)
		return fd;
	close(fd);
	errno = why;
	return -1;
}

static int try_connect(const struct addrinfo *list, int64_t until)
{
	int fd = -1;

	for (; list && fd < 0; list = list->ai_next)
		fd = try_address(list, until);
	return fd;
}

static enum kvt_status shake_hands(struct wire *wire, const struct wire_secret *secret,
				   struct kvt_error *err);

/* 'again': nobody listens yet, or a crowd took our place before we were known. */
static enum kvt_status meet(struct wire *out, bool *again, const char *where,
			    const struct addrinfo *list, int64_t until,
			    const struct wire_limits *limits,
			    const struct wire_secret *secret, struct kvt_error *err)
{
	int fd = try_connect(list, until);
	enum kvt_status status;

	*again = fd < 0 && errno == ECONNREFUSED;
	if (fd < 0)
		return kvt_fail(err, KVT_SYSTEM, "%.100s: %s", where, strerror(errno));
	if ((status = wire_start(out, fd, limits, err)))
		return status;
	status = shake_hands(out, secret, err);
	*again = status == KVT_SYSTEM;
	return status;
}

enum kvt_status wire_connect(struct wire *out, const char *where,
			     const struct wire_limits *limits,
			     const struct wire_secret *secret, struct kvt_error *err)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	int64_t until = frame_end(limits);
	struct addrinfo *a;
	enum kvt_status status = resolve(&a, where, false, secret, err);
	bool again;

	if (status)
		return status;
	while ((status = meet(out, &again, where, a, until, limits, secret, err)) &&
	       again && !interrupted && wire_now_ms() + 50 < until) {
		wire_close(out);
		nanosleep(&pause, NULL);
	}
	freeaddrinfo(a);
	return status;
}

/* ---- bytes ----------------------------------------------------------- */

static enum kvt_status send_all(struct wire *wire, const uint8_t *bytes, int64_t n,
				int64_t until, struct kvt_error *err)
{
	enum kvt_status status;

	if (wire->ucx)
		return wire_ucx_send(wire->ucx, bytes, n, until, err);
	while (n > 0) {
		ssize_t sent = send(wire->fd, bytes, (size_t)n, MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN && errno != EINTR)
			return kvt_fail(err, KVT_SYSTEM, "the peer is gone: %s",
					strerror(errno));
		if (sent < 0 &&
		    (status = wait_for(wire->fd, POLLOUT, until, &wire->limits,
				       "sending to the peer", err)))
			return status;
		if (sent > 0) {
			bytes += sent;
			n -= sent;
		}
	}
	return KVT_OK;
}

static enum kvt_status receive_all(struct wire *wire, uint8_t *bytes, int64_t n,
				   int64_t until, struct kvt_error *err)
{
	int64_t left = n;
	enum kvt_status status;

	if (wire->ucx)
		return wire_ucx_receive(wire->ucx, bytes, n, until, err);
	while (left > 0) {
		ssize_t got = recv(wire->fd, bytes, (size_t)left, 0);

		if (!got)
			return kvt_fail(err, KVT_SYSTEM,
					"the peer is gone: it sent %lld of %lld bytes",
					LL(n - left), LL(n));
		if (got < 0 && errno != EAGAIN && errno != EINTR)
			return kvt_fail(err, KVT_SYSTEM, "the peer is gone: %s",
					strerror(errno));
		if (got < 0 &&
		    (status = wait_for(wire->fd, POLLIN, until, &wire->limits,
				       "waiting for the peer", err)))
			return status;
		if (got > 0) {
			bytes += got;
			left -= got;
		}
	}
	return KVT_OK;
}

/* ---- frames ---------------------------------------------------------- */

enum kvt_status wire_send(struct wire *wire, enum wire_type type, const void *a,
			  int64_t na, const void *b, int64_t nb, struct kvt_error *err)
{
	int64_t until = frame_end(&wire->limits);
	uint8_t head[WIRE_HEAD];
	enum kvt_status status;

	if (until <= wire_now_ms())
		return late(&wire->limits, "sending to the peer", err);
	(wire->old_peer ? wire_head_put_old : wire_head_put)(head, type, na + nb);
	if ((status = send_all(wire, head, sizeof(head), until, err)) ||
	    (status = send_all(wire, a, na, until, err)))
		return status;
	return send_all(wire, b, nb, until, err);
}

/* Into wire->payload.  A peer that gave up is an error with its sentence. */
static enum kvt_status receive(struct wire *wire, struct wire_head *head,
			       struct kvt_error *err)
{
	int64_t until = frame_end(&wire->limits);
	uint8_t bytes[WIRE_HEAD];
	enum kvt_status status;

	if (until <= wire_now_ms())
		return late(&wire->limits, "waiting for the peer", err);
	if ((status = receive_all(wire, bytes, sizeof(bytes), until, err)))
		return status;
	wire->old_peer = wire_head_is_old(bytes);
	if ((status = wire_head_take(head, bytes, err)) ||
	    (status = receive_all(wire, wire->payload, head->length, until, err)))
		return status;
	return head->type == WIRE_FAIL ?
	       wire_fail_take(wire->payload, head->length, err) : KVT_OK;
}

static enum kvt_status peer_send(void *context, enum wire_type type, const void *a,
				 int64_t na, const void *b, int64_t nb,
				 struct kvt_error *err)
{
	return wire_send(context, type, a, na, b, nb, err);
}

static enum kvt_status peer_receive(void *context, struct wire_head *head,
				    const uint8_t **payload, struct kvt_error *err)
{
	struct wire *wire = context;

	*payload = wire->payload;
	return receive(wire, head, err);
}

struct wire_peer wire_peer(struct wire *wire)
{
	return (struct wire_peer){ wire, peer_send, peer_receive };
}

void wire_give_up(struct wire *wire, enum kvt_status status, const struct kvt_error *why)
{
	struct kvt_error err;
	uint8_t code[4];
	size_t n = strlen(why->text);

	if (wire->fd < 0)
		return;
	wire->limits = (struct wire_limits){ GIVE_UP_MS, wire_now_ms() + GIVE_UP_MS };
	wire_put(code, 4, status);
	if (wire_send(wire, WIRE_FAIL, code, 4, why->text, (int64_t)(n < 500 ? n : 500),
		      &err))
		return;
}

/* ---- handshake ------------------------------------------------------- */

static enum kvt_status take_next(struct wire *wire, struct wire_handshake *m,
				 struct kvt_error *err)
{
	struct wire_head head;
	enum kvt_status status = receive(wire, &head, err);

	return status ? status : wire_handshake_take(m, &head, wire->payload, err);
}

/* Who connects begins, and proves itself first: see handshake.h. */
static enum kvt_status shake_hands(struct wire *wire, const struct wire_secret *secret,
				   struct kvt_error *err)
{
	uint8_t bytes[WIRE_HANDSHAKE_MOST];
	struct wire_handshake m;
	enum kvt_status status;

	if ((status = wire_handshake_start(&m, secret, false, err)) ||
	    (status = send_all(wire, bytes, wire_handshake_nonce(bytes, &m),
			       frame_end(&wire->limits), err)) ||
	    (status = take_next(wire, &m, err)) || m.done)
		return status;
	if ((status = send_all(wire, bytes, wire_handshake_proof(bytes, &m),
			       frame_end(&wire->limits), err)))
		return status;
	return take_next(wire, &m, err);
}

/* ---- UCX ------------------------------------------------------------- */

static enum kvt_status swap_addresses(struct wire *wire, struct wire_ucx *ucx,
				      const void *address, int64_t nbytes,
				      struct kvt_error *err)
{
	struct wire_head head;
	enum kvt_status status;

	if (nbytes > WIRE_MOST_ADDRESS)
		return kvt_fail(err, KVT_UNSUPPORTED, "ucx: an address of %lld bytes",
				LL(nbytes));
	if ((status = wire_send(wire, WIRE_ADDRESS, address, nbytes, NULL, 0, err)) ||
	    (status = receive(wire, &head, err)))
		return status;
	if (head.type != WIRE_ADDRESS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer does not use transport ucx");
	return wire_ucx_connect(ucx, wire->payload, err);
}

enum kvt_status wire_use_ucx(struct wire *wire, struct kvt_error *err)
{
	struct wire_ucx *ucx;
	const void *address;
	int64_t nbytes;
	enum kvt_status status = wire_ucx_open(&ucx, &address, &nbytes, wire->fd, err);

	if (status)
		return status;
	if ((status = swap_addresses(wire, ucx, address, nbytes, err)))
		wire_ucx_close(ucx);
	else
		wire->ucx = ucx;
	return status;
}
