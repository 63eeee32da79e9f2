/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.c - frames as bytes, and bytes as frames
 *
 *	head	0 "KVT2"   4 u32 type   8 u64 bytes of the payload   16
 *	HELLO	u64 hash of the plan
 *	ASK	6 u64: part, rank, layers from, to, blocks from, to
 *	OPS	u32 rank of the source, u32 n, n of u64 source, destination, length;
 *		then the bytes of the ops, one after the other, at most 1 MiB
 *	END	-
 *	FAIL	u32 status, a sentence
 *	NONCE	u8: is there a secret?  32 bytes
 *	PROOF	32 bytes, as sim/wire/handshake.c makes them
 *	ADDRESS	UCX's own		BYE	-
 *
 * Little-endian.  A length that a payload of that type cannot have is refused by its
 * head, before there is room for it.
 */
#include "sim/ops/frame.h"

#include <string.h>

static const uint8_t magic[4] = { 'K', 'V', 'T', '0' + WIRE_VERSION };
static const uint8_t old_magic[4] = { 'K', 'V', 'T', '1' };

/* Lengths that a payload of each type can have. */
static const struct {
	int64_t least, most;
} lengths[WIRE_NTYPES] = {
	[WIRE_HELLO] = { 8, 8 },
	[WIRE_ASK] = { WIRE_ASK_BYTES, WIRE_ASK_BYTES },
	[WIRE_OPS] = { 8 + WIRE_OP + 1, WIRE_MOST },
	[WIRE_END] = { 0, 0 },
	[WIRE_FAIL] = { 4, 512 },
	[WIRE_BYE] = { 0, 0 },
	[WIRE_ADDRESS] = { 1, WIRE_MOST_ADDRESS },
	[WIRE_NONCE] = { WIRE_NONCE_BYTES, WIRE_NONCE_BYTES },
	[WIRE_PROOF] = { WIRE_PROOF_BYTES, WIRE_PROOF_BYTES },
};

void wire_put(uint8_t *bytes, int nbytes, uint64_t value)
{
	for (int i = 0; i < nbytes; i++, value >>= 8)
		bytes[i] = (uint8_t)value;
}

uint64_t wire_take(const uint8_t *bytes, int nbytes)
{
	uint64_t value = 0;

	while (nbytes--)
		value = value << 8 | bytes[nbytes];
	return value;
}

/* ---- heads ----------------------------------------------------------- */

void wire_head_put(uint8_t bytes[WIRE_HEAD], enum wire_type type, int64_t length)
{
	memcpy(bytes, magic, sizeof(magic));
	wire_put(bytes + 4, 4, type);
	wire_put(bytes + 8, 8, (uint64_t)length);
}

void wire_head_put_old(uint8_t bytes[WIRE_HEAD], enum wire_type type, int64_t length)
{
	wire_head_put(bytes, type, length);
	memcpy(bytes, old_magic, sizeof(old_magic));
}

bool wire_head_is_old(const uint8_t bytes[WIRE_HEAD])
{
	return !memcmp(bytes, old_magic, sizeof(old_magic));
}

enum kvt_status wire_head_take(struct wire_head *out, const uint8_t bytes[WIRE_HEAD],
			       struct kvt_error *err)
{
	uint64_t type = wire_take(bytes + 4, 4), length = wire_take(bytes + 8, 8);

	if (!memcmp(bytes, magic, 3) && bytes[3] != magic[3] && bytes[3] >= '0' &&
	    bytes[3] <= '9')
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer uses version %c of the protocol, expected %d: it is another version of kvtool",
				bytes[3], WIRE_VERSION);
	if (memcmp(bytes, magic, sizeof(magic)))
		return kvt_fail(err, KVT_BAD_INPUT, "the peer uses another protocol");
	if (type < WIRE_HELLO || type >= WIRE_NTYPES)
		return kvt_fail(err, KVT_BAD_INPUT, "the peer sent a frame of type %llu",
				(unsigned long long)type);
	if (length < (uint64_t)lengths[type].least ||
	    length > (uint64_t)lengths[type].most)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer sent a frame of type %llu with %llu bytes, expected %lld to %lld",
				(unsigned long long)type, (unsigned long long)length,
				LL(lengths[type].least), LL(lengths[type].most));
	*out = (struct wire_head){ (enum wire_type)type, (int64_t)length };
	return KVT_OK;
}

/* ---- payloads -------------------------------------------------------- */

void wire_ask_put(uint8_t bytes[WIRE_ASK_BYTES], const struct wire_ask *ask)
{
	const int64_t field[] = { ask->part, ask->rank, ask->layers[0], ask->layers[1],
				  ask->blocks[0], ask->blocks[1] };

	for (int i = 0; i < 6; i++)
		wire_put(bytes + 8 * i, 8, (uint64_t)field[i]);
}

enum kvt_status wire_ask_take(struct wire_ask *out, const uint8_t *bytes, int64_t length,
			      struct kvt_error *err)
{
	int64_t field[6];

	if (length != WIRE_ASK_BYTES)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer sent a request of %lld bytes, expected %d",
				LL(length), WIRE_ASK_BYTES);
	for (int i = 0; i < 6; i++) {
		uint64_t value = wire_take(bytes + 8 * i, 8);

		if (value > UINT32_MAX)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the peer requests a box that is outside the dumps");
		field[i] = (int64_t)value;
	}
	*out = (struct wire_ask){ field[0], field[1], { field[2], field[3] },
				  { field[4], field[5] } };
	return KVT_OK;
}

void wire_op_put(uint8_t bytes[WIRE_OP], const struct kvt_op *op)
{
	wire_put(bytes, 8, (uint64_t)op->src);
	wire_put(bytes + 8, 8, (uint64_t)op->dst);
	wire_put(bytes + 16, 8, (uint64_t)op->len);
}

/* Sizes were checked by wire_ops_take(); offsets are only ever compared. */
struct kvt_op wire_op_take(const uint8_t bytes[WIRE_OP])
{
	return (struct kvt_op){ (int64_t)wire_take(bytes, 8),
				(int64_t)wire_take(bytes + 8, 8),
				(int64_t)wire_take(bytes + 16, 8) };
}

enum kvt_status wire_ops_take(struct wire_ops *out, const uint8_t *bytes, int64_t length,
			      struct kvt_error *err)
{
	struct wire_ops ops = { .list = bytes + 8 };

	if (length < 8)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer sent an incomplete list of ops");
	ops.src_rank = (int64_t)wire_take(bytes, 4);
	ops.n = (int64_t)wire_take(bytes + 4, 4);
	if (ops.n > (length - 8) / WIRE_OP)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer sent %lld ops in %lld bytes", LL(ops.n),
				LL(length));
	ops.data = ops.list + ops.n * WIRE_OP;
	ops.nbytes = length - 8 - ops.n * WIRE_OP;
	for (int64_t i = 0, left = ops.nbytes; i <= ops.n; i++) {
		struct kvt_op op = { 0, 0, 0 };

		if (i < ops.n)
			op = wire_op_take(ops.list + i * WIRE_OP);
		if (i < ops.n ? op.len < 1 || op.len > left : left)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the peer sent ops whose lengths do not match their bytes");
		left -= op.len;
	}
	*out = ops;
	return KVT_OK;
}

enum kvt_status wire_fail_take(const uint8_t *bytes, int64_t length,
			       struct kvt_error *err)
{
	uint64_t status = length < 4 ? 0 : wire_take(bytes, 4);
	char text[400];
	size_t n = 0;

	for (int64_t i = 4; i < length && n < sizeof(text) - 1; i++)
		text[n++] = bytes[i] < ' ' || bytes[i] > '~' ? '?' : (char)bytes[i];
	text[n] = '\0';
	if (status <= KVT_OK || status > KVT_SYSTEM)
		status = KVT_BAD_INPUT;
	return kvt_fail(err, (enum kvt_status)status, "the peer gave up: %s", text);
}
