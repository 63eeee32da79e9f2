/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_wire.c - any bytes as the frames of a peer: each is refused with a
 * sentence, or says no more than it has bytes for
 */
#include <stdlib.h>
#include <string.h>

#include "sim/wire/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is taken must come out as the same bytes. */
static void use_ask(const uint8_t *payload, int64_t length)
{
	uint8_t again[WIRE_ASK_BYTES];
	struct kvt_error err = { "" };
	struct wire_ask ask;

	if (wire_ask_take(&ask, payload, length, &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	wire_ask_put(again, &ask);
	if (memcmp(again, payload, sizeof(again)))
		abort();
}

static void use_ops(const uint8_t *payload, int64_t length)
{
	struct kvt_error err = { "" };
	struct wire_ops ops;
	int64_t sum = 0;

	if (wire_ops_take(&ops, payload, length, &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	if (ops.data + ops.nbytes != payload + length)
		abort();
	for (int64_t i = 0; i < ops.n; i++) {
		struct kvt_op op = wire_op_take(ops.list + i * WIRE_OP);
		uint8_t again[WIRE_OP];

		wire_op_put(again, &op);
		if (op.len < 1 || op.len > ops.nbytes - sum ||
		    memcmp(again, ops.list + i * WIRE_OP, WIRE_OP))
			abort();
		sum += op.len;
	}
	if (sum != ops.nbytes)
		abort();
}

/* No input is a proof: a handshake with a secret is never completed. */
static void use_handshake(struct wire_handshake *m, const struct wire_head *head,
			  const uint8_t *payload)
{
	struct kvt_error err = { "" };

	if (wire_handshake_take(m, head, payload, &err) && !err.text[0])
		abort();
	if (m->done)
		abort();
}

static void use(struct wire_handshake *m, const struct wire_head *head,
		const uint8_t *payload)
{
	struct kvt_error err = { "" };

	use_handshake(m, head, payload);
	if (head->type == WIRE_ASK)
		use_ask(payload, head->length);
	if (head->type == WIRE_OPS)
		use_ops(payload, head->length);
	if (head->type == WIRE_FAIL &&
	    (!wire_fail_take(payload, head->length, &err) || !err.text[0]))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_secret secret;
	struct wire_handshake handshake;

	if (wire_secret_make(&secret, NULL) ||
	    wire_handshake_start(&handshake, &secret, size % 2, NULL))
		return 0;
	while (size >= WIRE_HEAD) {
		struct kvt_error err = { "" };
		struct wire_head head;
		uint8_t *payload;

		if (wire_head_take(&head, data, &err)) {
			if (!err.text[0])
				abort();
			return 0;
		}
		data += WIRE_HEAD;
		size -= WIRE_HEAD;
		if (head.length > WIRE_MOST)
			abort();
		if ((uint64_t)head.length > size)
			return 0;	/* the peer is gone */
		/* room of just that size, so that reading past it is seen */
		if (!(payload = malloc((size_t)head.length + 1)))
			return 0;
		memcpy(payload, data, (size_t)head.length);
		use(&handshake, &head, payload);
		free(payload);
		data += head.length;
		size -= (size_t)head.length;
	}
	return 0;
}
