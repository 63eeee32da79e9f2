/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack.h - MessagePack, read into the same values as JSON */
#ifndef KVT_MSGPACK_H
#define KVT_MSGPACK_H

#include <jansson.h>

#include "lib/kvt/kvt.h"

/*
 * The value that begins at *at; *at moves behind it.  Bytes (bin) become a text of hex
 * digits, integers beyond int64_t a text of decimal ones.  KVT_BAD_INPUT: it is cut, is
 * nested deeper than 16 levels, has keys that are no text or come twice, numbers that
 * are not finite, texts that are no UTF-8, or extension types, which no event has.
 * 'name' is for messages; they say the byte.
 */
KVT_MUST_CHECK enum kvt_status
kvt_msgpack_read(json_t **out, const uint8_t *bytes, size_t nbytes, size_t *at,
		 const char *name, struct kvt_error *err);

#endif
