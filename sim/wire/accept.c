/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accept.c - connections that wait for their handshake, of which one becomes the peer
 *
 * All that connect are served at once by one poll loop, each until a deadline of its
 * own, so that one that says nothing blocks no other.  The first that completes the
 * handshake is the peer; the others are rejected, and told why where they speak a
 * version of this protocol.
 *
 * Where too many wait, one chosen by chance makes room: among those that have said
 * nothing yet, or among those that owe a proof.  So strangers that only connect never
 * push out one that has begun, and no number of them keeps out for long one that needs
 * a round trip to prove that it has the secret: what is read is read before more are
 * accepted, and wire_connect() comes again.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "print/out/signals.h"
#include "sim/wire/socket.h"

enum {
	MOST_EACH = 256,		/* silent, and begun */
	MOST_CLIENTS = 2 * MOST_EACH,
};

struct client {
	struct wire_handshake handshake;
	struct wire_head head;
	int fd;
	int64_t until;
	bool leaving;			/* rejected, not yet closed by the other side */
	size_t got;			/* of a frame */
	uint8_t bytes[WIRE_HANDSHAKE_MOST];
};

struct pending {
	struct client client[MOST_CLIENTS];
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

	if (!c->handshake.has_nonce && (c->got < WIRE_HEAD || (!old && !c->head.type)))
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
	p->client[i] = p->client[--p->n];
}

static void turn_away(struct pending *p, int i, const struct kvt_error *why)
{
	p->client[i].leaving = true;
	p->rejected->n++;
	p->rejected->last = *why;
}

/* Closed before all of it was read, the connection would lose what was sent. */
static void reject(struct pending *p, int i, const struct kvt_error *why)
{
	if (p->client[i].leaving)
		return;
	tell(&p->client[i], why);
	(void)shutdown(p->client[i].fd, SHUT_WR);
	turn_away(p, i, why);
}

static void drop(struct pending *p, int i, const struct kvt_error *why)
{
	reject(p, i, why);
	close(p->client[i].fd);
	take_client(p, i);
}

/* Looks once: who never stops sending is not listened to meanwhile. */
static bool has_closed(const struct client *c)
{
	char rest[512];
	ssize_t got = recv(c->fd, rest, sizeof(rest), MSG_DONTWAIT);

	return !got || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* ---- crowds ---------------------------------------------------------- */

/* It owes a proof, and nothing else. */
static bool has_begun(const struct client *c)
{
	return c->handshake.has_nonce && !c->leaving;
}

static int count(const struct pending *p, bool begun)
{
	int n = 0;

	for (int i = 0; i < p->n; i++)
		n += has_begun(&p->client[i]) == begun;
	return n;
}

/* Until there are at most so many.  Nobody is told, so that a source comes again. */
static void make_room(struct pending *p, bool begun, int most, uint64_t random)
{
	const struct kvt_error crowded = { "others came, and it had not said who it is" };
	int n, i;

	while ((n = count(p, begun)) > most) {
		int skip = (int)(random % (uint64_t)n);

		for (i = 0; has_begun(&p->client[i]) != begun || skip--; i++)
			;
		if (!p->client[i].leaving)
			turn_away(p, i, &crowded);
		drop(p, i, &crowded);
	}
}

/* Of a nonce that is not yet sent to anybody, or not long. */
static uint64_t random_of(const struct client *c)
{
	uint64_t random;

	memcpy(&random, c->handshake.mine, sizeof(random));
	return random;
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

/* What a network does, and what a crowd does, ends nothing: see accept(2). */
static enum kvt_status accept_failed(struct pending *p, struct kvt_error *err)
{
	bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM;

	if ((full && !p->n) || errno == EBADF || errno == EINVAL || errno == EFAULT)
		return kvt_fail(err, KVT_SYSTEM, "waiting for the source: %s",
				strerror(errno));
	if (full) {
		bool begun = !count(p, false);

		make_room(p, begun, count(p, begun) - 1, random_of(&p->client[0]));
	}
	return KVT_OK;
}

static enum kvt_status accept_client(struct pending *p, int fd, struct kvt_error *err)
{
	struct client c = { .until = wire_now_ms() + p->limits->frame_ms };
	enum kvt_status status = wire_handshake_start(&c.handshake, p->secret, true, err);

	if (status)
		return status;
	if ((c.fd = accept(fd, NULL, NULL)) < 0)
		return accept_failed(p, err);
	make_room(p, false, MOST_EACH - 1, random_of(&c));
	p->client[p->n++] = c;
	return KVT_OK;
}

static void drop_late(struct pending *p)
{
	const struct kvt_error silent = { "it did not say who it is in time" };
	int64_t now = wire_now_ms();

	for (int i = p->n; i-- > 0;)
		if (p->client[i].until <= now)
			drop(p, i, &silent);
}

/* An event or the next deadline, at most a second. */
static enum kvt_status wait_for_event(struct pollfd fds[MOST_CLIENTS + 1],
				      const struct pending *p, int fd, int64_t until,
				      struct kvt_error *err)
{
	int64_t left;

	fds[p->n] = (struct pollfd){ .fd = fd, .events = POLLIN };
	for (int i = 0; i < p->n; i++) {
		fds[i] = (struct pollfd){ .fd = p->client[i].fd, .events = POLLIN };
		if (p->client[i].until < until)
			until = p->client[i].until;
	}
	left = until - wire_now_ms();
	if (left > 0 && poll(fds, (nfds_t)p->n + 1, left < 1000 ? (int)left : 1000) < 0 &&
	    errno != EINTR)
		return kvt_fail(err, KVT_SYSTEM, "waiting for the source: %s",
				strerror(errno));
	return KVT_OK;
}

/*
 * True: it has completed its handshake.  May drop one of the clients, the last of which
 * then takes its place.
 */
static bool receive_one(struct pending *p, int i)
{
	struct client *c = &p->client[i];
	bool begun = has_begun(c);
	struct kvt_error why = { "" };

	if (!c->leaving && receive(c, &why))
		reject(p, i, &why);
	if (c->leaving && has_closed(c))
		drop(p, i, &why);
	else if (c->handshake.done && !c->leaving)
		return true;
	else if (has_begun(c) && !begun)
		make_room(p, true, MOST_EACH, random_of(c));
	return false;
}

/* The index of the peer, -1: none yet.  What was sent is read before one more comes. */
static enum kvt_status listen_once(int *found, struct pending *p, int fd, int64_t until,
				   struct kvt_error *err)
{
	struct pollfd fds[MOST_CLIENTS + 1];
	int n = p->n;
	enum kvt_status status = wait_for_event(fds, p, fd, until, err);

	if (status)
		return status;
	/* from the last one: who is moved by a drop was looked at */
	for (int i = n; i-- > 0;)
		if (fds[i].revents && receive_one(p, i)) {
			*found = i;
			return KVT_OK;
		}
	return fds[n].revents ? accept_client(p, fd, err) : KVT_OK;
}

enum kvt_status wire_accept(struct wire *out, struct wire_rejected *rejected, int fd,
			    const struct wire_limits *limits,
			    const struct wire_secret *secret, struct kvt_error *err)
{
	const struct kvt_error other = { "another came first" };
	struct pending p = { .limits = limits, .secret = secret, .rejected = rejected };
	int64_t until = wire_now_ms() + limits->frame_ms;
	enum kvt_status status = KVT_OK;
	int i = -1, peer = -1;

	while (!status && i < 0) {
		if (interrupted) {
			status = kvt_fail(err, KVT_SYSTEM, "interrupted");
		} else if (wire_now_ms() >= until || wire_now_ms() >= limits->end_ms) {
			status = kvt_fail(err, KVT_SYSTEM,
					  "waiting for the source: it did not come in %d ms: --timeout",
					  limits->frame_ms);
		} else if (!(status = listen_once(&i, &p, fd, until, err)) && i < 0) {
			drop_late(&p);
		}
	}
	if (i >= 0) {
		peer = p.client[i].fd;
		take_client(&p, i);
	}
	while (p.n)
		drop(&p, p.n - 1, &other);
	return status ? status : wire_start(out, peer, limits, err);
}
