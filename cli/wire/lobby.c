/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lobby.c - a door that several knock at and one comes in by
 *
 * All who connect are heard at the same time, each until a deadline of its own, so
 * that one who says nothing keeps nobody out.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/signals.h"
#include "cli/wire/socket.h"

enum { CALLERS = 16 };			/* at once; one more takes the oldest's place */

struct caller {
	struct wire_meeting meeting;
	struct wire_head head;
	int fd;
	int64_t until;
	bool leaving;			/* turned away */
	size_t got;			/* of a frame */
	uint8_t bytes[WIRE_MEET_MOST];
};

struct lobby {
	struct caller caller[CALLERS];	/* in the order they came */
	int n;
	const struct wire_limits *limits;
	const struct wire_secret *secret;
	struct wire_strangers *strangers;
};

/* ---- turning away ---------------------------------------------------- */

/* Only who speaks a version of this protocol is told why. */
static void tell(const struct caller *c, const struct kvt_error *why)
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
	/* whether it hears is not asked */
	if (send(c->fd, frame, WIRE_HEAD + 4 + n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

static void take_out(struct lobby *l, int i)
{
	l->n--;
	memmove(&l->caller[i], &l->caller[i + 1],
		(size_t)(l->n - i) * sizeof(l->caller[0]));
}

/* A connection closed before all of it was read would take our words with it. */
static void turn_away(struct lobby *l, int i, const struct kvt_error *why)
{
	if (l->caller[i].leaving)
		return;
	tell(&l->caller[i], why);
	(void)shutdown(l->caller[i].fd, SHUT_WR);
	l->caller[i].leaving = true;
	l->strangers->n++;
	l->strangers->last = *why;
}

static void put_out(struct lobby *l, int i, const struct kvt_error *why)
{
	turn_away(l, i, why);
	close(l->caller[i].fd);
	take_out(l, i);
}

static bool has_left(const struct caller *c)
{
	char rest[512];
	ssize_t got;

	while ((got = recv(c->fd, rest, sizeof(rest), MSG_DONTWAIT)) > 0)
		;
	return got == 0 || (errno != EAGAIN && errno != EINTR);
}

/* ---- hearing --------------------------------------------------------- */

static enum kvt_status answer(struct caller *c, int64_t n, const uint8_t *bytes,
			      struct kvt_error *err)
{
	/* so few fit into the buffer of any connection that was just made */
	if (send(c->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
		return kvt_fail(err, KVT_BAD_INPUT, "the peer is gone");
	return KVT_OK;
}

/* A frame is there in whole. */
static enum kvt_status take_frame(struct caller *c, struct kvt_error *err)
{
	uint8_t bytes[WIRE_MEET_MOST];
	bool first = !c->meeting.greeted;
	enum kvt_status status = wire_meeting_take(&c->meeting, &c->head,
						   c->bytes + WIRE_HEAD, err);

	if (status)
		return status;
	c->got = 0;
	return answer(c, first ? wire_meeting_nonce(bytes, &c->meeting) :
			 wire_meeting_proof(bytes, &c->meeting), bytes, err);
}

static enum kvt_status take_head(struct caller *c, struct kvt_error *err)
{
	enum kvt_status status = wire_head_take(&c->head, c->bytes, err);

	if (!status && c->head.length > WIRE_MEET_MOST - WIRE_HEAD)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "the peer sent a frame of type %d, expected %d",
				  (int)c->head.type, (int)WIRE_NONCE);
	return status;
}

/* What has arrived, but nothing behind its last frame of the meeting. */
static enum kvt_status hear(struct caller *c, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	while (!status && !c->meeting.done) {
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

/* ---- the door -------------------------------------------------------- */

static enum kvt_status let_in(struct lobby *l, int fd, struct kvt_error *err)
{
	const struct kvt_error crowded = { "others came, and it had said nothing yet" };
	struct caller *c;
	int got = accept(fd, NULL, NULL);

	if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
		return KVT_OK;
	if (got < 0)
		return kvt_fail(err, KVT_SYSTEM, "waiting for the source: %s",
				strerror(errno));
	if (l->n == CALLERS)
		put_out(l, 0, &crowded);
	c = &l->caller[l->n++];
	*c = (struct caller){ .fd = got, .until = wire_now_ms() + l->limits->frame_ms };
	return wire_meeting_start(&c->meeting, l->secret, true, err);
}

static void put_out_late(struct lobby *l)
{
	const struct kvt_error silent = { "it did not say who it is in time" };

	while (l->n && l->caller[0].until <= wire_now_ms())
		put_out(l, 0, &silent);
}

/* Waits until something happens or somebody's time is over, at most a second. */
static enum kvt_status listen_once(struct lobby *l, int fd, int64_t until,
				   struct kvt_error *err)
{
	struct pollfd p[CALLERS + 1] = { { .fd = fd, .events = POLLIN } };
	int64_t left;

	for (int i = 0; i < l->n; i++)
		p[i + 1] = (struct pollfd){ .fd = l->caller[i].fd, .events = POLLIN };
	if (l->n && l->caller[0].until < until)
		until = l->caller[0].until;
	left = until - wire_now_ms();
	if (left > 0 && poll(p, (nfds_t)l->n + 1, left < 1000 ? (int)left : 1000) < 0 &&
	    errno != EINTR)
		return kvt_fail(err, KVT_SYSTEM, "waiting for the source: %s",
				strerror(errno));
	return p[0].revents ? let_in(l, fd, err) : KVT_OK;
}

/* The index of the one who has met us in full; -1: nobody yet. */
static int hear_all(struct lobby *l)
{
	struct kvt_error why = { "" };

	for (int i = 0; i < l->n; i++) {
		struct caller *c = &l->caller[i];

		if (!c->leaving && hear(c, &why))
			turn_away(l, i, &why);
		else if (!c->leaving && c->meeting.done)
			return i;
		if (c->leaving && has_left(c))
			put_out(l, i--, &why);
	}
	return -1;
}

enum kvt_status wire_accept(struct wire *out, struct wire_strangers *strangers, int fd,
			    const struct wire_limits *limits,
			    const struct wire_secret *secret, struct kvt_error *err)
{
	const struct kvt_error other = { "another came first" };
	struct lobby l = { .limits = limits, .secret = secret, .strangers = strangers };
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
		} else if (!(status = listen_once(&l, fd, until, err))) {
			i = hear_all(&l);
			if (i < 0)
				put_out_late(&l);
		}
	}
	if (i >= 0) {
		found = l.caller[i].fd;
		take_out(&l, i);
	}
	while (l.n)
		put_out(&l, 0, &other);
	return status ? status : wire_start(out, found, limits, err);
}
