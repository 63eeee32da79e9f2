/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accept.c - connections that wait for their handshake, of which one becomes the peer
 *
 * All that connect are served at once by one poll loop, each until a deadline of its
 * own, so that one that says nothing blocks no other.  The first that completes the
 * handshake is the peer; the others are rejected, and told why where they speak a
 * version of this protocol.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/signals.h"
#include "cli/wire/socket.h"

enum { MOST_CLIENTS = 16 };			/* one more replaces the oldest */

struct client {
	struct wire_handshake handshake;
	struct wire_head head;
	int fd;
	int64_t until;
	bool leaving;			/* rejected,
	but not yet closed by the other side */
	size_t got;			/* of a frame */
	uint8_t bytes[WIRE_HANDSHAKE_MOST];
};

struct pending {
	struct client client[MOST_CLIENTS];	/* by arrival */
	int n;
	const struct wire_limits *limits;
	const struct wire_secret *secret;
	struct wire_rejected *rejected;
};

/* ---- rejecting ------------------------------------------------------- */

/* Only to a client that speaks a version of this protocol. */
static void tell(const struct client *c, const struct kvt_error *why)
{
	bool old = wire_head_is_old(c->bytes);
	uint8_t frame[WIRE_HEAD + 512];
	size_t n = strlen(why->text);

	if (c->got < WIRE_HEAD || (!old && !c->head.type))
		return;
	n = n < 500 ? n : 500;
	(old ? wire_head_put_old : wire_head_put)(frame, WIRE_FAIL, 4 + (int64_t)n);
	wire_put(frame + WIRE_HEAD, 4, KVT_BAD_INPUT);
	memcpy(frame + WIRE_HEAD + 4, why->text, n);
	/* whether it arrives does not matter */
	if (send(c->fd, frame, WIRE_HEAD + 4 + n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

static void take_client(struct pending *p, int i)
{
	p->n--;
	memmove(&p->client[i], &p->client[i + 1],
		(size_t)(p->n - i) * sizeof(p->client[0]));
}

/* Closed before all of it was read, the connection would lose what was sent. */
static void reject(struct pending *p, int i, const struct kvt_error *why)
{
	if (p->client[i].leaving)
		return;
	tell(&p->client[i], why);
	(void)shutdown(p->client[i].fd, SHUT_WR);
	p->client[i].leaving = true;
	p->rejected->n++;
	p->rejected->last = *why;
}

static void drop(struct pending *p, int i, const struct kvt_error *why)
{
	reject(p, i, why);
	close(p->client[i].fd);
	take_client(p, i);
}

static bool has_closed(const struct client *c)
{
	char rest[512];
	ssize_t got;

	while ((got = recv(c->fd, rest, sizeof(rest), MSG_DONTWAIT)) > 0)
		;
	return got == 0 || (errno != EAGAIN && errno != EINTR);
}

/* ---- handshakes ------------------------------------------------------ */

static enum kvt_status answer(struct client *c, int64_t n, const uint8_t *bytes,
			      struct kvt_error *err)
{
	/* so few fit into the buffer of any connection that was just made */
	if (send(c->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
		return kvt_fail(err, KVT_BAD_INPUT, "the peer is gone");
	return KVT_OK;
}

/* The frame is complete. */
static enum kvt_status take_frame(struct client *c, struct kvt_error *err)
{
	uint8_t bytes[WIRE_HANDSHAKE_MOST];
	bool first = !c->handshake.has_nonce;
	enum kvt_status status = wire_handshake_take(&c->handshake, &c->head,
						     c->bytes + WIRE_HEAD, err);

	if (status)
		return status;
	c->got = 0;
	return answer(c, first ? wire_handshake_nonce(bytes, &c->handshake) :
			 wire_handshake_proof(bytes, &c->handshake), bytes, err);
}

static enum kvt_status take_head(struct client *c, struct kvt_error *err)
{
	enum kvt_status status = wire_head_take(&c->head, c->bytes, err);

	if (!status && c->head.length > WIRE_HANDSHAKE_MOST - WIRE_HEAD)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "the peer sent a frame of type %d, expected %d",
				  (int)c->head.type, (int)WIRE_NONCE);
	return status;
}

/* What has arrived, but nothing after the last frame of the handshake. */
static enum kvt_status receive(struct client *c, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	while (!status && !c->handshake.done) {
		size_t want = c->got < WIRE_HEAD ? WIRE_HEAD :
			      WIRE_HEAD + (size_t)c->head.length;
		ssize_t got = recv(c->fd, c->bytes + c->got, want - c->got, MSG_DONTWAIT);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return KVT_OK;
		if (got < 1)
			return kvt_fail(err, KVT_BAD_INPUT, "the peer went away");
		c->got += (size_t)got;
		if (c->got == WIRE_HEAD)
			status = take_head(c, err);
		if (!status && c->got == WIRE_HEAD + (size_t)c->head.length &&
		    c->got > WIRE_HEAD)
			status = take_frame(c, err);
	}
	return status;
}

/* ---- connections ----------------------------------------------------- */

static enum kvt_status accept_client(struct pending *p, int fd, struct kvt_error *err)
{
	const struct kvt_error crowded = { "others came, and it had said nothing yet" };
	struct client *c;
	int got = accept(fd, NULL, NULL);

	if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
		return KVT_OK;
	if (got < 0)
		return kvt_fail(err, KVT_SYSTEM, "waiting for the source: %s",
				strerror(errno));
	if (p->n == MOST_CLIENTS)
		drop(p, 0, &crowded);
	c = &p->client[p->n++];
	*c = (struct client){ .fd = got, .until = wire_now_ms() + p->limits->frame_ms };
	return wire_handshake_start(&c->handshake, p->secret, true, err);
}

static void drop_late(struct pending *p)
{
	const struct kvt_error silent = { "it did not say who it is in time" };

	while (p->n && p->client[0].until <= wire_now_ms())
		drop(p, 0, &silent);
}

/* Waits for an event or the next deadline, at most a second. */
static enum kvt_status listen_once(struct pending *p, int fd, int64_t until,
				   struct kvt_error *err)
{
	struct pollfd fds[MOST_CLIENTS + 1] = { { .fd = fd, .events = POLLIN } };
	int64_t left;

	for (int i = 0; i < p->n; i++)
		fds[i + 1] = (struct pollfd){ .fd = p->client[i].fd, .events = POLLIN };
	if (p->n && p->client[0].until < until)
		until = p->client[0].until;
	left = until - wire_now_ms();
	if (left > 0 && poll(fds, (nfds_t)p->n + 1, left < 1000 ? (int)left : 1000) < 0 &&
	    errno != EINTR)
		return kvt_fail(err, KVT_SYSTEM, "waiting for the source: %s",
				strerror(errno));
	return fds[0].revents ? accept_client(p, fd, err) : KVT_OK;
}

/* The index of a client that has completed its handshake; -1: none yet. */
static int receive_all(struct pending *p)
{
	struct kvt_error why = { "" };

	for (int i = 0; i < p->n; i++) {
		struct client *c = &p->client[i];

		if (!c->leaving && receive(c, &why))
			reject(p, i, &why);
		else if (!c->leaving && c->handshake.done)
			return i;
		if (c->leaving && has_closed(c))
			drop(p, i--, &why);
	}
	return -1;
}

enum kvt_status wire_accept(struct wire *out, struct wire_rejected *rejected, int fd,
			    const struct wire_limits *limits,
			    const struct wire_secret *secret, struct kvt_error *err)
{
	const struct kvt_error other = { "another came first" };
	struct pending p = { .limits = limits, .secret = secret, .rejected = rejected };
	int64_t until = wire_now_ms() + limits->frame_ms;
	enum kvt_status status = KVT_OK;
	int i = -1, found = -1;

	while (!status && i < 0) {
		if (interrupted) {
			status = kvt_fail(err, KVT_SYSTEM, "interrupted");
		} else if (wire_now_ms() >= until || wire_now_ms() >= limits->end_ms) {
			status = kvt_fail(err, KVT_SYSTEM,
					  "waiting for the source: it did not come in %d ms: --timeout",
					  limits->frame_ms);
		} else if (!(status = listen_once(&p, fd, until, err))) {
			i = receive_all(&p);
			if (i < 0)
				drop_late(&p);
		}
	}
	if (i >= 0) {
		found = p.client[i].fd;
		take_client(&p, i);
	}
	while (p.n)
		drop(&p, 0, &other);
	return status ? status : wire_start(out, found, limits, err);
}
