/* SPDX-License-Identifier: Apache-2.0 */
/* wire_socket.c - sockets that neither wait forever nor end half-way unnoticed */
#include "cli/wire_socket.h"

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

#include "cli/signals.h"
#include "cli/wire_ucx.h"

#define LL(x) ((long long)(x))

/* ---- waiting --------------------------------------------------------- */

static enum kvt_status wait_for(int fd, short what, int timeout_ms, const char *doing,
				struct kvt_error *err)
{
	struct pollfd p = { .fd = fd, .events = what };
	int n = poll(&p, 1, timeout_ms);

	if (n > 0)
		return KVT_OK;
	if (interrupted)
		return kvt_fail(err, KVT_SYSTEM, "interrupted");
	if (n < 0 && errno != EINTR)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", doing, strerror(errno));
	return kvt_fail(err, KVT_SYSTEM, "%s: nothing for %d ms", doing, timeout_ms);
}

/* ---- addresses ------------------------------------------------------- */

/* "127.0.0.1:7000", "[::1]:7000", "host:7000" */
static enum kvt_status resolve(struct addrinfo **out, const char *where, bool passive,
			       struct kvt_error *err)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = passive ? AI_PASSIVE : 0 };
	char host[256];
	const char *colon = strrchr(where, ':');
	size_t n = colon ? (size_t)(colon - where) : 0;
	int failed;

	if (!colon || !n || n >= sizeof(host) || !colon[1] ||
	    colon[1 + strspn(colon + 1, "0123456789")])
		return kvt_fail(err, KVT_USAGE,
				"'%.100s' is no address, expected HOST:PORT",
				where);
	memcpy(host, where, n);
	host[n] = '\0';
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		memmove(host, host + 1, n - 1);
	}
	failed = getaddrinfo(host, colon + 1, &hints, out);
	return failed ? kvt_fail(err, KVT_SYSTEM, "%.100s: %s", where,
				 gai_strerror(failed)) : KVT_OK;
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

enum kvt_status wire_listen(int *fd, int *port, const char *where, struct kvt_error *err)
{
	struct addrinfo *a;
	enum kvt_status status = resolve(&a, where, true, err);
	int one = 1;

	if (status)
		return status;
	*fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(*fd, a->ai_addr, a->ai_addrlen) || listen(*fd, 1)) {
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

static enum kvt_status start(struct wire *out, int fd, int timeout_ms,
			     struct kvt_error *err)
{
	int one = 1;

	*out = (struct wire){ .fd = fd, .timeout_ms = timeout_ms,
			      .payload = malloc(WIRE_MOST) };
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

enum kvt_status wire_accept(struct wire *out, int fd, int timeout_ms,
			    struct kvt_error *err)
{
	enum kvt_status status = wait_for(fd, POLLIN, timeout_ms,
					  "waiting for the source", err);
	int got;

	if (status)
		return status;
	got = accept(fd, NULL, NULL);
	if (got < 0)
		return kvt_fail(err, KVT_SYSTEM, "waiting for the source: %s",
				strerror(errno));
	return start(out, got, timeout_ms, err);
}

static int try_connect(const struct addrinfo *list)
{
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), why;

		if (fd < 0)
			continue;
		if (!connect(fd, a->ai_addr, a->ai_addrlen))
			return fd;
		why = errno;
		close(fd);
		errno = why;
	}
	return -1;
}

enum kvt_status wire_connect(struct wire *out, const char *where, int timeout_ms,
			     struct kvt_error *err)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	struct addrinfo *a;
	enum kvt_status status = resolve(&a, where, false, err);
	int fd = -1;

	if (status)
		return status;
	for (int waited = 0; fd < 0 && !interrupted; waited += 50) {
		fd = try_connect(a);
		if (fd >= 0 || waited >= timeout_ms || errno != ECONNREFUSED)
			break;
		nanosleep(&pause, NULL);
	}
	freeaddrinfo(a);
	if (fd < 0)
		return kvt_fail(err, KVT_SYSTEM, "%.100s: %s", where, strerror(errno));
	return start(out, fd, timeout_ms, err);
}

/* ---- bytes ----------------------------------------------------------- */

static enum kvt_status send_all(struct wire *wire, const uint8_t *bytes, int64_t n,
				struct kvt_error *err)
{
	enum kvt_status status;

	if (wire->ucx)
		return wire_ucx_send(wire->ucx, bytes, n, err);
	while (n > 0) {
		ssize_t sent = send(wire->fd, bytes, (size_t)n, MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN && errno != EINTR)
			return kvt_fail(err, KVT_SYSTEM, "the peer is gone: %s",
					strerror(errno));
		if (sent < 0 && (status = wait_for(wire->fd, POLLOUT, wire->timeout_ms,
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
				   struct kvt_error *err)
{
	int64_t left = n;
	enum kvt_status status;

	if (wire->ucx)
		return wire_ucx_receive(wire->ucx, bytes, n, err);
	while (left > 0) {
		ssize_t got = recv(wire->fd, bytes, (size_t)left, 0);

		if (!got)
			return kvt_fail(err, KVT_SYSTEM,
					"the peer is gone: it sent %lld of %lld bytes",
					LL(n - left), LL(n));
		if (got < 0 && errno != EAGAIN && errno != EINTR)
			return kvt_fail(err, KVT_SYSTEM, "the peer is gone: %s",
					strerror(errno));
		if (got < 0 && (status = wait_for(wire->fd, POLLIN, wire->timeout_ms,
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
	uint8_t head[WIRE_HEAD];
	enum kvt_status status;

	wire_head_put(head, type, na + nb);
	if ((status = send_all(wire, head, sizeof(head), err)) ||
	    (status = send_all(wire, a, na, err)))
		return status;
	return send_all(wire, b, nb, err);
}

enum kvt_status wire_receive(struct wire *wire, struct wire_head *head,
			     struct kvt_error *err)
{
	uint8_t bytes[WIRE_HEAD];
	enum kvt_status status;

	if ((status = receive_all(wire, bytes, sizeof(bytes), err)) ||
	    (status = wire_head_take(head, bytes, err)) ||
	    (status = receive_all(wire, wire->payload, head->length, err)))
		return status;
	return head->type == WIRE_FAIL ?
	       wire_fail_take(wire->payload, head->length, err) : KVT_OK;
}

void wire_give_up(struct wire *wire, enum kvt_status status, const struct kvt_error *why)
{
	struct kvt_error err;
	uint8_t code[4];
	size_t n = strlen(why->text);

	if (wire->fd < 0)
		return;
	wire_put(code, 4, status);
	if (wire_send(wire, WIRE_FAIL, code, 4, why->text, (int64_t)(n < 500 ? n : 500),
		      &err))
		return;
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
	    (status = wire_receive(wire, &head, err)))
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
	enum kvt_status status = wire_ucx_open(&ucx, &address, &nbytes, wire->fd,
					       wire->timeout_ms, err);

	if (status)
		return status;
	if ((status = swap_addresses(wire, ucx, address, nbytes, err)))
		wire_ucx_close(ucx);
	else
		wire->ucx = ucx;
	return status;
}
