/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c - a pickle or CBOR of a tuple, as CPython's pickle and cbor2 write it
 *
 *			pickle				CBOR: kind, and its number
 *	0 to 255	4b <u8>				0, n
 *	to 65535	4d <u16>			0, n
 *	an i32		4a <i32>			0, n; or 1, -1 - n
 *	other		8a <u8 bytes> <in as few>	0, n; or 1, -1 - n
 *	bytes		43 <u8 bytes> ..		2, how many bytes, which follow
 *	text		8c <u8 bytes> .., 58 <u32> ..	3, likewise
 *	None		4e				f6
 *	tuple of 1-3	.. 85, .. 86, .. 87		4, how many items, which follow
 *	of more, of 0	28 .. 74, 29			4, likewise
 *
 * CBOR's kind is the upper three bits of a byte, whose rest is a number below 24, or 24
 * to 27 for one of 1, 2, 4 or 8 bytes behind it, the highest first.  Pickle's numbers
 * are little-endian.  Facts: CPython's pickle, protocol 5; RFC 8949, sections 3 and 4.2.
 */
#include "lib/prefix/message.h"
#include "lib/base/little_endian.h"

#include <string.h>

enum {
	FRAME = 11,			/* 80 05 95 and the length */
	MARK = 0x28, STOP = 0x2e, INT4 = 0x4a, INT1 = 0x4b, INT2 = 0x4d, NONE = 0x4e,
	BYTES = 0x43, TEXT4 = 0x58, EMPTY_TUPLE = 0x29, GET = 0x68, LONG_GET = 0x6a,
	TUPLE = 0x74, TUPLE1 = 0x85, LONG = 0x8a, TEXT1 = 0x8c, REMEMBER = 0x94,
};
enum {
	C_UNSIGNED = 0, C_NEGATIVE = 1, C_BYTES = 2, C_TEXT = 3, C_ARRAY = 4,
	C_NONE = 0xf6,
};

static void put(struct kvt_message *m, const void *bytes, size_t n)
{
	if (n > sizeof(m->bytes) - m->n) {
		m->full = true;
		return;
	}
	memcpy(m->bytes + m->n, bytes, n);
	m->n += n;
}

static void put8(struct kvt_message *m, uint8_t byte)
{
	put(m, &byte, 1);
}

static void put_little(struct kvt_message *m, uint64_t value, int n)
{
	for (int i = 0; i < n; i++)
		put8(m, (uint8_t)(value >> 8 * i));
}

/* The head of a CBOR item: its kind, and a number in as few bytes as it takes. */
static void put_head(struct kvt_message *m, uint8_t kind, uint64_t value)
{
	int log = value < 24 ? -1 : value >> 8 == 0 ? 0 : value >> 16 == 0 ? 1 :
		  value >> 32 == 0 ? 2 : 3;

	put8(m, (uint8_t)(kind << 5 | (log < 0 ? (int)value : 24 + log)));
	for (int i = log < 0 ? 0 : 1 << log; i; i--)
		put8(m, (uint8_t)(value >> 8 * (i - 1)));
}

static void remember(struct kvt_message *m)
{
	put8(m, REMEMBER);
	m->remembered++;
}

void kvt_message_start(struct kvt_message *m, bool cbor)
{
	static const uint8_t frame[FRAME] = { 0x80, 5, 0x95 };

	m->cbor = cbor;
	m->full = m->again = false;
	m->n = 0;
	m->remembered = 0;
	m->ntexts = 0;
	memset(m->tag, 0xff, sizeof(m->tag));
	if (!cbor)
		put(m, frame, sizeof(frame));
}

void kvt_message_tuple(struct kvt_message *m, size_t n)
{
	if (m->cbor)
		put_head(m, C_ARRAY, n);
	else if (n > 3)
		put8(m, MARK);
}

void kvt_message_tuple_end(struct kvt_message *m, size_t n)
{
	if (m->cbor)
		return;
	/* there is one empty tuple, which is not remembered */
	put8(m, (uint8_t)(!n ? EMPTY_TUPLE : n > 3 ? TUPLE : TUPLE1 + n - 1));
	if (n)
		remember(m);
}

void kvt_message_none(struct kvt_message *m)
{
	put8(m, m->cbor ? C_NONE : NONE);
}

/* Two's complement in as few bytes as it takes. */
static void put_long(struct kvt_message *m, uint64_t value, bool negative)
{
	uint8_t sign = negative ? 0xff : 0, bytes[9];
	uint8_t n = sizeof(bytes);

	kvt_put_le(bytes, value, 8);
	bytes[8] = sign;
	while (n > 1 && bytes[n - 1] == sign && !((bytes[n - 2] ^ sign) & 0x80))
		n--;
	put8(m, LONG);
	put8(m, n);
	put(m, bytes, n);
}

void kvt_message_unsigned(struct kvt_message *m, uint64_t value)
{
	if (m->cbor) {
		put_head(m, C_UNSIGNED, value);
	} else if (value <= UINT16_MAX) {
		put8(m, value <= UINT8_MAX ? INT1 : INT2);
		put_little(m, value, value <= UINT8_MAX ? 1 : 2);
	} else if (value <= INT32_MAX) {
		put8(m, INT4);
		put_little(m, value, 4);
	} else {
		put_long(m, value, false);
	}
}

void kvt_message_int(struct kvt_message *m, int64_t value)
{
	if (value >= 0) {
		kvt_message_unsigned(m, (uint64_t)value);
	} else if (m->cbor) {
		put_head(m, C_NEGATIVE, ~(uint64_t)value);
	} else if (value >= INT32_MIN) {
		put8(m, INT4);
		put_little(m, (uint64_t)value, 4);
	} else {
		put_long(m, (uint64_t)value, true);
	}
}

void kvt_message_bytes(struct kvt_message *m, const uint8_t *bytes, uint8_t n)
{
	if (m->cbor) {
		put_head(m, C_BYTES, n);
	} else {
		put8(m, BYTES);
		put8(m, n);
	}
	put(m, bytes, n);
	if (!m->cbor)
		remember(m);
}

static void put_text(struct kvt_message *m, const char *text)
{
	size_t n = strlen(text);

	if (m->cbor) {
		put_head(m, C_TEXT, n);
		put(m, text, n);
		return;
	}
	put8(m, n <= UINT8_MAX ? TEXT1 : TEXT4);
	put_little(m, n, n <= UINT8_MAX ? 1 : 4);
	put(m, text, n);
	remember(m);
}

static const char *const words[KVT_NTAGS] = {
	[KVT_TAG_LORA] = "lora", [KVT_TAG_MM] = "mm", [KVT_TAG_SALT] = "cache_salt",
};

void kvt_message_text(struct kvt_message *m, const char *text)
{
	if (m->ntexts < KVT_MESSAGE_TEXTS)
		m->text[m->ntexts++] = text;
	else
		m->again = !m->cbor;
	put_text(m, text);
}

void kvt_message_tag(struct kvt_message *m, enum kvt_message_tag tag)
{
	bool small = m->tag[tag] <= UINT8_MAX;

	if (m->cbor || m->tag[tag] == UINT32_MAX) {
		m->tag[tag] = m->remembered;
		put_text(m, words[tag]);
		return;
	}
	put8(m, small ? GET : LONG_GET);
	put_little(m, m->tag[tag], small ? 1 : 4);
}

/* Two strings that are equal; a word counts where it was written. */
static bool has_equals(const struct kvt_message *m)
{
	for (int i = 0; i < m->ntexts; i++) {
		for (int k = 0; k < i; k++)
			if (!strcmp(m->text[i], m->text[k]))
				return true;
		for (int k = 0; k < KVT_NTAGS; k++)
			if (m->tag[k] != UINT32_MAX && !strcmp(m->text[i], words[k]))
				return true;
	}
	return false;
}

enum kvt_status kvt_message_end(struct kvt_message *m, struct kvt_error *err)
{
	if (!m->cbor)
		put8(m, STOP);
	if (m->full)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"a block is hashed as more than %d bytes, where an engine divides what it hashes",
				KVT_MESSAGE_BYTES);
	if (!m->cbor && (m->again || has_equals(m)))
		return kvt_fail(err, KVT_BAD_INPUT,
				"a block has two equal strings among salt, LoRA and pictures, or very many: its pickle depends on which are one object in the engine, so its name does not follow from values; those of sha256_cbor do");
	if (!m->cbor)
		kvt_put_le(m->bytes + FRAME - 8, m->n - FRAME, 8);
	return KVT_OK;
}
