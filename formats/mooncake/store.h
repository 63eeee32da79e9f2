/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - how a Mooncake store keeps keys and values in files */
#ifndef KVT_MOONCAKE_STORE_H
#define KVT_MOONCAKE_STORE_H

#include "formats/format.h"

/*
 * A value, and where it is.  What the store calls it is TENANT NUL KEY; a name
 * without a NUL is a key of the tenant "default".
 */
struct kvt_value {
	char *text;			/* owned: that name, terminated */
	int64_t ntext;			/* bytes of it, the NUL among them */
	const char *tenant;		/* "": the store does not say */
	char *key;			/* in 'text' */
	int file;			/* of a reader */
	int64_t offset, nbytes;
	uint64_t seq;			/* of two with one key the greater counts */
};

struct kvt_values {
	int64_t count;
	struct kvt_value *value;	/* owned */
};

/*
 * Appends one, with a copy of its name, whose tenant must be printable text.  The
 * key may hold any other bytes.
 */
KVT_MUST_CHECK enum kvt_status
kvt_values_add(struct kvt_values *values, const void *text, int64_t ntext,
	       const struct kvt_value *value, const char *name, struct kvt_error *err);
/* Is the key printable?  And itself, or a word for one that is not. */
bool kvt_value_has_text(const struct kvt_value *value);
const char *kvt_value_shown(const struct kvt_value *value);
void kvt_values_free(struct kvt_values *values);

enum {
	KVT_MOONCAKE_KEY = 4096,		   /* bytes of a key, at most */
	KVT_MOONCAKE_HEAD = KVT_MOONCAKE_KEY + 32, /* what may stand before a value */
	KVT_MOONCAKE_ALIGNED = 4096,	/* values in records, and whole buckets, are */
};

/*
 * Is a file of 'nbytes' bytes called 'base' a message of a key and a value?  It
 * explains the file to the byte, or begins with the key that makes the file's
 * name: characters that file systems may refuse become bars there.
 */
bool kvt_mooncake_is_entry(const uint8_t *head, int64_t nhead, int64_t nbytes,
			   const char *base);

/*
 * One key a file: a message of the key and the value.  Out of the first 'nhead'
 * of the 'nbytes' bytes of file 'file'.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_entry_parse(struct kvt_values *out, const uint8_t *head, int64_t nhead,
			 int64_t nbytes, int file, const char *name,
			 struct kvt_error *err);

/*
 * What <id>.meta says of <id>.bucket, whose 'nbytes' bytes it must explain:
 * keys and values in turn, and zeros up to a multiple of 4096 where they were
 * written without the page cache.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_bucket_parse(struct kvt_values *out, const void *meta, int64_t nmeta,
			  int64_t nbytes, int file, const char *name,
			  struct kvt_error *err);

/* ---- kv_cache.meta and kv_cache.data ------------------------------------- */

/* A range of kv_cache.data that is in use. */
struct kvt_mooncake_extent {
	int64_t offset, nbytes;
};

struct kvt_mooncake_checkpoint {
	uint64_t seq;			/* records from here on are not part of it */
	int64_t count;
	struct kvt_mooncake_extent *extent;	/* owned; by offset, apart */
};

/* 'ndata': bytes of kv_cache.data. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_checkpoint_parse(struct kvt_mooncake_checkpoint *out, const void *meta,
			      int64_t nmeta, int64_t ndata, const char *name,
			      struct kvt_error *err);

enum { KVT_MOONCAKE_RECORD = 24 };

struct kvt_mooncake_record {
	int64_t key;			/* bytes of the key, behind the header */
	int64_t value, nbytes;		/* where the value begins; its bytes */
	uint64_t seq;
	bool has_crc;
	uint32_t crc;			/* of 20 bytes of the header, key and value */
};

/* The header of the record in an extent. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_record_parse(struct kvt_mooncake_record *out,
			  const uint8_t head[KVT_MOONCAKE_RECORD],
			  const struct kvt_mooncake_extent *extent, const char *name,
			  struct kvt_error *err);

#endif
