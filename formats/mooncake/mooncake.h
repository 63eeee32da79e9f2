/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mooncake.h - stores of Mooncake: how files hold keys and values, the header of a
 * tensor object, and a store while it is opened
 *
 *	.../<a-p>/<a-p>/<key>	0a n  name  12 n  value: a message		store.c
 *				or the value alone, of which the file's name is the key
 *	<number>.bucket		name value  name value ...  [zeros up to 4096]
 *	<number>.meta		where each of these is: a message		store.c
 *	kv_cache.data		records and what was left of others		store.c
 *	kv_cache.meta		which ranges are in use: a message	   checkpoint.c
 *				not there: scan.c looks for the records
 *
 *	a name		tenant 00 key, or a key alone: then the tenant is "default"
 *	a value		a tensor object (tensor.c), a chunk of LMCache, a page of
 *			SGLang's HiCache (pages.c), or bytes that the user describes
 *
 * A store has files of one kind.  In the name of a file NUL and / \ : * ? " < > | are
 * bars.
 */
#ifndef KVT_MOONCAKE_H
#define KVT_MOONCAKE_H

#include "formats/file/tree.h"
#include "formats/format.h"
#include "formats/store/chunks.h"

/* ---- keys and values in files (store.c) --------------------------------- */

/*
 * A value, and where it is.  What the store calls it is TENANT NUL KEY; a name
 * without a NUL is a key of the tenant "default".
 */
struct kvt_mooncake_value {
	char *text;			/* owned: that name, terminated */
	int64_t ntext;			/* bytes of it, the NUL among them */
	const char *tenant;		/* "": the store does not say */
	char *key;			/* in 'text' */
	int file;			/* of a reader */
	int64_t offset, nbytes;
	uint64_t seq;			/* of two with one key the greater counts */
};

struct kvt_mooncake_values {
	int64_t count;
	struct kvt_mooncake_value *value;	/* owned */
};

/*
 * Appends one, with a copy of its name, whose tenant must be printable text.  The
 * key may hold any other bytes.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_values_add(struct kvt_mooncake_values *values, const void *text,
			int64_t ntext, const struct kvt_mooncake_value *value,
			const char *name, struct kvt_error *err);
/* Is the key printable?  And itself, or a word for one that is not. */
bool kvt_mooncake_has_text(const struct kvt_mooncake_value *value);
const char *kvt_mooncake_shown(const struct kvt_mooncake_value *value);
void kvt_mooncake_values_free(struct kvt_mooncake_values *values);

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
kvt_mooncake_entry_parse(struct kvt_mooncake_values *out, const uint8_t *head,
			 int64_t nhead, int64_t nbytes, int file, const char *name,
			 struct kvt_error *err);

/*
 * What <id>.meta says of <id>.bucket, whose 'nbytes' bytes it must explain:
 * keys and values in turn, and zeros up to a multiple of 4096 where they were
 * written without the page cache.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_bucket_parse(struct kvt_mooncake_values *out, const void *meta,
			  int64_t nmeta, int64_t nbytes, int file, const char *name,
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
	int64_t key;			/* bytes of the key, after the header */
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

/* ---- tensor objects: values with a header (tensor.c) -------------------- */

enum {
	KVT_MOONCAKE_HEADER = 304,
	KVT_MOONCAKE_DIMS = 8,
	KVT_MOONCAKE_AXES = 4,
};

/* One way in which the tensor is a part of a greater one. */
struct kvt_mooncake_axis {
	enum { KVT_MOONCAKE_DP, KVT_MOONCAKE_TP, KVT_MOONCAKE_EP, KVT_MOONCAKE_PP,
	       KVT_MOONCAKE_OTHER } kind;
	int64_t rank, count;
	int dim;			/* that is divided; -1: none */
};

struct kvt_mooncake_tensor {
	const struct kvt_dtype *dtype;
	bool shard;
	int rank;			/* how many extents */
	int64_t whole[KVT_MOONCAKE_DIMS], local[KVT_MOONCAKE_DIMS];
	int naxes;
	struct kvt_mooncake_axis axis[KVT_MOONCAKE_AXES];
	int64_t data;			/* from the start of the object */
	int64_t nbytes;			/* of data; they end the object */
};

/* Does it begin as a tensor object does? */
bool kvt_mooncake_is_tensor(const uint8_t *head, int64_t nhead);

/*
 * The header of an object of 'nbytes' bytes, out of its first 'nhead'.  One that
 * contradicts itself or the object's size is KVT_BAD_INPUT, another version
 * KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_tensor_parse(struct kvt_mooncake_tensor *out, const uint8_t *head,
			  int64_t nhead, int64_t nbytes, const char *name,
			  struct kvt_error *err);

/* ---- a store while it is opened ----------------------------------------- */

struct kvt_mooncake {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_mooncake_values values;
	bool recorded;			/* something says how long each value is */
	int64_t first;			/* of the values that has a byte */
	struct kvt_mooncake_tensor tensor;	/* of that one, if it is one */
	struct kvt_chunks chunks;
};

/*
 * File 'index' of the reader, called 'base': a message of its key and value, or the
 * value alone, whose name is then what is left of the key.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_value(struct kvt_mooncake *o, bool *entry, int index, const char *base);

/* Lists the values of all files of a folder. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_collect(struct kvt_mooncake *o, const struct kvt_tree *tree);

/* Is the checksum that of header and key ('head') and value?  Reads the value. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_sum_is(bool *out, const struct kvt_file *file,
		    const struct kvt_mooncake_record *r, const uint8_t *head,
		    struct kvt_error *err);

/*
 * Lists what lies in kv_cache.data, file 'data' of the reader, without kv_cache.meta
 * (scan.c).  A value of which nothing is left is not noticed.
 */
KVT_MUST_CHECK enum kvt_status kvt_mooncake_scan(struct kvt_mooncake *o, int data);

/* The group of the first tensor, and its rank. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_group(struct kvt_mooncake *o, struct kvt_group *group, const char *name);
/* Tokens of a tensor, by the layout that the user gave. */
int64_t kvt_mooncake_tokens(const struct kvt_mooncake_tensor *tensor,
			    const struct kvt_group *group);
/* Is it a page of SGLang's HiCache, or a half of one, by its key? */
bool kvt_mooncake_is_page(const struct kvt_mooncake_value *value);
/* All values are: those of one rank and pool become chunks, and a group what it can. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_pages(struct kvt_mooncake *o, struct kvt_group *group);

/* The axis of this kind; NULL if there is none. */
const struct kvt_mooncake_axis *kvt_mooncake_axis(const struct kvt_mooncake_tensor *t,
						  int kind);

#endif
