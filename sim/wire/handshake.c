/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake.c - nonces, and proofs of a shared secret
 *
 *	proof	HMAC-SHA-256(secret, "kvtool wire 2: source" or ".. listener", filled up
 *		to 24 bytes with zeros, nonce of the listener, nonce of the source)
 *
 * Compared in a time that does not tell how much of it is right.  A secret is a file that
 * nobody else may change, nor read but for its group.
 */
#include "sim/wire/handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/file/reads.h"
#include "lib/hash/sha256.h"

static enum kvt_status fill_random(uint8_t *out, size_t n, struct kvt_error *err)
{
	/* up to 256 bytes come at once, or not at all */
	if (getrandom(out, n, 0) != (ssize_t)n)
		return kvt_fail(err, KVT_SYSTEM, "no random numbers: %s",
				strerror(errno));
	return KVT_OK;
}

/* ---- secrets --------------------------------------------------------- */

/*
 * Who can write it can choose the secret, whoever owns it.  Another owner may let us read
 * it by our group: that is how a service is given one.
 */
static enum kvt_status check_file(int fd, const char *path, struct kvt_error *err)
{
	struct stat s;
	bool ours;

	if (fstat(fd, &s))
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	if (!S_ISREG(s.st_mode))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no regular file, expected one that holds the secret",
				path);
	ours = s.st_uid == geteuid();
	if (s.st_mode & (ours ? 077 : 026))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: mode %04o lets others %s the secret, expected 0%s: chmod %s",
				path, (unsigned)s.st_mode & 07777,
				s.st_mode & 022 ? "change" : "have",
				ours ? "600" : "640", ours ? "600" : "640");
	return KVT_OK;
}

static enum kvt_status read_whole(struct wire_secret *out, int fd, const char *path,
				  struct kvt_error *err)
{
	uint8_t more;
	ssize_t got = 0;

	for (out->n = 0; out->n < sizeof(out->bytes); out->n += (size_t)got)
		if ((got = read(fd, out->bytes + out->n,
				sizeof(out->bytes) - out->n)) < 1)
			break;
	if (got > 0 && (got = read(fd, &more, 1)) > 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: more than %d bytes, expected a secret of 32 or so",
				path, WIRE_SECRET_MOST);
	if (got < 0)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	if (out->n && out->bytes[out->n - 1] == '\n')
		out->n--;
	return out->n ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT,
			"%s: empty, expected a secret: head -c 32 /dev/urandom", path);
}

enum kvt_status wire_secret_read(struct wire_secret *out, const char *path,
				 struct kvt_error *err)
{
	/* a FIFO that nobody writes to would block */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	enum kvt_status status;
	struct stat st;

	if (fd < 0)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	if (!fstat(fd, &st))
		kvt_reads_add(&st);
	if (!(status = check_file(fd, path, err)))
		status = read_whole(out, fd, path, err);
	close(fd);
	return status;
}

enum kvt_status wire_secret_make(struct wire_secret *out, struct kvt_error *err)
{
	out->n = 32;
	return fill_random(out->bytes, out->n, err);
}

/* ---- frames ---------------------------------------------------------- */

enum kvt_status wire_handshake_start(struct wire_handshake *out,
				     const struct wire_secret *secret, bool listens,
				     struct kvt_error *err)
{
	*out = (struct wire_handshake){ .secret = secret, .listens = listens };
	return fill_random(out->mine, sizeof(out->mine), err);
}

int64_t wire_handshake_nonce(uint8_t bytes[WIRE_HANDSHAKE_MOST],
			     const struct wire_handshake *m)
{
	wire_head_put(bytes, WIRE_NONCE, WIRE_NONCE_BYTES);
	bytes[WIRE_HEAD] = m->secret->n > 0;
	memcpy(bytes + WIRE_HEAD + 1, m->mine, sizeof(m->mine));
	return WIRE_HEAD + WIRE_NONCE_BYTES;
}

/* What the listener, or the other side, proves itself with. */
static void prove(uint8_t out[SHA256_BYTES], const struct wire_handshake *m,
		  bool listener)
{
	static const char name[2][24] = { "kvtool wire 2: source",
					  "kvtool wire 2: listener" };
	bool mine_first = m->listens;
	uint8_t text[sizeof(name[0]) + 64];

	memcpy(text, name[listener], sizeof(name[0]));
	memcpy(text + sizeof(name[0]), mine_first ? m->mine : m->theirs, 32);
	memcpy(text + sizeof(name[0]) + 32, mine_first ? m->theirs : m->mine, 32);
	kvt_hmac_sha256(out, m->secret->bytes, m->secret->n, text, sizeof(text));
}

int64_t wire_handshake_proof(uint8_t bytes[WIRE_HANDSHAKE_MOST],
			     const struct wire_handshake *m)
{
	wire_head_put(bytes, WIRE_PROOF, WIRE_PROOF_BYTES);
	prove(bytes + WIRE_HEAD, m, m->listens);
	return WIRE_HEAD + WIRE_PROOF_BYTES;
}

/* In a time that does not tell how many bytes are right. */
static bool same(const uint8_t *a, const uint8_t *b, int n)
{
	unsigned differ = 0;

	for (int i = 0; i < n; i++)
		differ |= a[i] ^ b[i];
	return !differ;
}

static enum kvt_status take_nonce(struct wire_handshake *m, const uint8_t *payload,
				  struct kvt_error *err)
{
	bool mine = m->secret->n > 0, theirs = payload[0];

	m->has_nonce = true;
	memcpy(m->theirs, payload + 1, sizeof(m->theirs));
	m->done = !mine;
	if (mine == theirs)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT, mine ?
			"a secret is asked for, and the other side has none: --secret-file" :
			"the other side has a secret, and there is none here: --secret-file");
}

enum kvt_status wire_handshake_take(struct wire_handshake *m,
				    const struct wire_head *head, const uint8_t *payload,
				    struct kvt_error *err)
{
	uint8_t right[SHA256_BYTES];

	if (m->done || head->type != (m->has_nonce ? WIRE_PROOF : WIRE_NONCE))
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer sent a frame of type %d, expected %d",
				(int)head->type,
				(int)(m->has_nonce ? WIRE_PROOF : WIRE_NONCE));
	if (!m->has_nonce)
		return take_nonce(m, payload, err);
	prove(right, m, !m->listens);
	if (!same(right, payload, WIRE_PROOF_BYTES))
		return kvt_fail(err, KVT_BAD_INPUT,
				"the other side has another secret: --secret-file");
	m->done = true;
	return KVT_OK;
}
