/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unread.c - stores of engines that kvtool does not read, by their names, and why
 *
 * Somebody who types one of them is told what to do instead.  Facts: tiers of vLLM 0.32,
 * backends of LMCache 0.5.6, SGLang 0.5.23 and Mooncake 0.3.13.
 */
#include <string.h>

#include "formats/format.h"

static const struct unread {
	const char *names;		/* words: formats, and schemes of a URL */
	const char *why;		/* and what to do */
} rows[] = {
	{ "p2p example",
	  "this tier of vLLM keeps nothing on disk: give the engine the tier fs, too, or capture its cache; see kvtool-dumps(7)" },
	{ "kvcr",
	  "no file says which block is in which slot of this tier of vLLM: its slots are rows as those of the tier fs, so --from=raw with a --layout that begins with B reads them in order, without names" },
	{ "obj",
	  "objects of this tier of vLLM are the files of its tier fs: copy them to a folder, with the config.json of the tier fs in the folder MODEL_DIGEST, and give --from=vllm-offload" },
	{ "s3 s3a gs gcs az",
	  "kvtool reads files: copy the objects to a folder, with their names, and give the folder" },
	{ "redis rediss valkey",
	  "kvtool reads files: write each value of LMCache to a file that has its key as name, and give the folder" },
	{ "bigtable",
	  "kvtool reads files: write each value of LMCache to a file that is called as its key behind the first @, and give the folder" },
	{ "lm lmcache-server zmq tcp http https",
	  "a server of LMCache gives chunks to registered engines alone: give the folder of one of its disk adapters, with --from=lmcache" },
	{ "mooncakestore mooncake-store nvme-kv distributed",
	  "where the values of this store are, only Mooncake's master knows: let it offload to files (its root_fs_dir, or enable_offload with buckets), and give the folder with --from=mooncake" },
	{ "hf3fs 3fs",
	  "which page is at which offset of this file, only the metadata server of SGLang knows: --from=raw with a --layout of pages, such as BKSLHD for page_first, reads them in order, without names" },
	{ "eic aibrix simm umbp tensorcast npu-memcache npu_memcache infinistore",
	  "this store of SGLang keeps pages in memory of its own servers: use the storage backend file, or capture the cache; see kvtool-dumps(7)" },
};

static bool has_word(const char *words, const char *word, size_t n)
{
	for (const char *p = words; p && n; p = strchr(p, ' ')) {
		p += *p == ' ';
		if (!strncmp(p, word, n) && (!p[n] || p[n] == ' '))
			return true;
	}
	return false;
}

enum kvt_status kvt_format_unread(const char *name, size_t n, struct kvt_error *err)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (has_word(rows[i].names, name, n))
			return kvt_fail(err, KVT_UNSUPPORTED, "%.*s is not read: %s",
					(int)n, name, rows[i].why);
	return KVT_OK;
}

enum kvt_status kvt_path_unread(const char *path, struct kvt_error *err)
{
	const char *colon = strstr(path, "://");
	enum kvt_status status;

	if (!colon || strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789+.-") <
			      (size_t)(colon - path))
		return KVT_OK;
	status = kvt_format_unread(path, (size_t)(colon - path), err);
	return status ? status :
	       kvt_fail(err, KVT_UNSUPPORTED,
			"%.300s: only files and folders are read: copy it to one first",
			path);
}
