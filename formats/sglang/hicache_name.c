/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hicache_name.c - what the name of a HiCache page says
 *
 *	<hash>[.<pool>]_<model>
 *		[_<tp rank>_<tp size>]		not of latents
 *		[_<pp size>_<pp rank>]		where there are stages; size before rank
 *		[_cp<rank>_<size>]		prefill context parallelism
 *		[_tp<size>_dcp<rank>_<size>_page<tokens>]	decode context parallelism
 *		.bin
 *
 * Ranks follow the model, each only where it is needed.  A model's name may hold bars
 * and numbers too, so a part counts only if it can be one: the rank below the size.  So
 * names are read from their end.  Other stores of SGLang have the same in other places
 * (hicache.h).  Facts: hicache_storage.py and the NIXL and SeaweedFS backends of SGLang
 * 0.5.23.
 */
#include "formats/sglang/hicache.h"

#include <string.h>

enum { MIN_HASH = 16, MAX_RANKS = 1 << 16 };

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* The number that ends at '*end', with 'mark' before it; moves *end before that. */
static bool take_number(int64_t *out, const char *begin, const char **end,
			const char *mark)
{
	const char *p = *end;
	size_t n = strlen(mark);
	int64_t value = 0;

	while (p > begin && p[-1] >= '0' && p[-1] <= '9')
		p--;
	if (p == *end || *end - p > 6 || (*p == '0' && *end - p > 1) ||
	    p - begin < (ptrdiff_t)n || memcmp(p - n, mark, n))
		return false;
	for (const char *q = p; q < *end; q++)
		value = value * 10 + (*q - '0');
	*out = value;
	*end = p - n;
	return value < MAX_RANKS;
}

/* "_1_4" before *end: two numbers. */
static bool take_pair(int64_t pair[2], const char *begin, const char **end,
		      const char *first_mark)
{
	const char *p = *end;

	if (!take_number(&pair[1], begin, &p, "_") ||
	    !take_number(&pair[0], begin, &p, first_mark))
		return false;
	*end = p;
	return true;
}

/* "_tp4_dcp1_2_page32" before *end. */
static bool take_dcp(struct kvt_hicache_name *out, const char *begin, const char **end)
{
	const char *p = *end;
	int64_t page, pair[2], tp;

	if (!take_number(&page, begin, &p, "_page") ||
	    !take_pair(pair, begin, &p, "_dcp") || !take_number(&tp, begin, &p, "_tp") ||
	    pair[1] < 2 || pair[0] >= pair[1] || tp < 1 || tp % pair[1] || page < 1 ||
	    page % pair[1])
		return false;
	out->dcp_rank = out->tp_rank = pair[0];
	out->dcp_size = pair[1];
	out->tp_size = tp;
	out->page = page;
	*end = p;
	return true;
}

static void take_ranks(struct kvt_hicache_name *out, const char *begin, const char **end)
{
	bool dcp = take_dcp(out, begin, end);
	const char *p = *end;
	int64_t pair[2];

	if (take_pair(pair, begin, &p, "_cp") && pair[0] < pair[1]) {
		out->cp_rank = pair[0];
		out->cp_size = pair[1];
		*end = p;
	}
	p = *end;
	/* size before rank */
	if (take_pair(pair, begin, &p, "_") && pair[1] < pair[0]) {
		out->pp_size = pair[0];
		out->pp_rank = pair[1];
		*end = p;
	}
	p = *end;
	if (take_pair(pair, begin, &p, "_") && pair[0] < pair[1] &&
	    (!dcp || (pair[1] == out->tp_size &&
		      pair[0] % out->dcp_size == out->dcp_rank))) {
		out->tp_rank = pair[0];
		out->tp_size = pair[1];
		*end = p;
	}
}

/* Pools that have bars in their names; a bar ends that of any other. */
static size_t pool_length(const char *s)
{
	/* of two that begin alike the longer one first */
	static const char *const pools[] = {
		"deepseek_v4_c1_indexer_scale", "deepseek_v4_c1_indexer",
		"deepseek_v4_c1", "deepseek_v4_c2_indexer_scale",
		"deepseek_v4_c2_indexer", "deepseek_v4_c2",
		"deepseek_v4_c4_indexer_scale", "deepseek_v4_c4_indexer_state",
		"deepseek_v4_c4_indexer", "deepseek_v4_c4_state", "deepseek_v4_c4_rope",
		"deepseek_v4_c4", "deepseek_v4_c128_state", "deepseek_v4_c128_rope",
		"deepseek_v4_c128", "draft_indexer", "draft_swa", "auxiliary_swa",
	};

	for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
		if (!strncmp(s, pools[i], strlen(pools[i])) && s[strlen(pools[i])] == '_')
			return strlen(pools[i]);
	return strcspn(s, "_");
}

static const struct kvt_hicache_name nothing = {
	.tp_size = 1, .pp_size = 1, .cp_size = 1, .dcp_size = 1, .half = -1,
};

bool kvt_hicache_parse(struct kvt_hicache_name *out, const char *name)
{
	static const char ending[] = ".bin";
	size_t n = strlen(name), m = sizeof(ending) - 1;
	const char *end = name + n - m, *p = name, *ranks;

	*out = nothing;
	if (n <= m || strcmp(end, ending))
		return false;
	while (is_hex(*p))
		p++;
	out->hash = (struct kvt_name_part){ name, (size_t)(p - name) };
	if (out->hash.n < MIN_HASH)
		return false;
	out->pool = (struct kvt_name_part){ "kv", 2 };
	if (*p == '.') {
		n = pool_length(++p);
		if (!n || p + n >= end)
			return false;
		out->pool = (struct kvt_name_part){ p, n };
		p += n;
	}
	if (*p++ != '_' || p > end)
		return false;
	ranks = end;
	take_ranks(out, p, &ranks);
	if (ranks < p)
		ranks = p;
	out->model = (struct kvt_name_part){ p, (size_t)(ranks - p) };
	if (ranks < end)
		out->rank = (struct kvt_name_part){ ranks + 1,
						       (size_t)(end - ranks - 1) };
	else
		out->rank = (struct kvt_name_part){ end, 0 };
	return true;
}

/* ---- other stores --------------------------------------------------------- */

static const char *const plain_pools[] = {
	"draft_indexer", "auxiliary_swa", "draft_swa", "indexer", "draft", "swa", "mamba",
};
enum { NPLAIN = sizeof(plain_pools) / sizeof(plain_pools[0]) };

/* NIXL puts a pool behind the rank; a model that ends so is seen as one. */
static void take_pool(struct kvt_hicache_name *out, const char *begin, const char **end)
{
	for (int i = 0; i < NPLAIN; i++) {
		size_t n = strlen(plain_pools[i]);
		const char *at = *end - n;

		if (*end - begin <= (ptrdiff_t)n || at[-1] != '_' ||
		    memcmp(at, plain_pools[i], n))
			continue;
		out->pool = (struct kvt_name_part){ at, n };
		*end = at - 1;
		return;
	}
}

static bool parse_nixl(struct kvt_hicache_name *out, const char *name)
{
	const char *base = kvt_path_base(name), *end = base + strlen(base), *p = base;
	const char *ranks;
	int64_t pair[2];

	*out = nothing;
	out->store = KVT_HICACHE_NIXL;
	if (base - name < 3 || !is_hex(base[-2]) || !is_hex(base[-3]) ||
	    (base - name > 3 && base[-4] != '/'))
		return false;
	while (is_hex(*p))
		p++;
	out->hash = (struct kvt_name_part){ base, (size_t)(p - base) };
	if (out->hash.n < MIN_HASH || *p++ != '_' || end - p < 1)
		return false;
	if (end - p > 2 && end[-2] == '_' && (end[-1] == 'k' || end[-1] == 'v')) {
		out->half = end[-1] == 'v';
		end -= 2;
	}
	out->pool = (struct kvt_name_part){ "kv", 2 };
	take_pool(out, p, &end);
	ranks = end;
	out->rank = (struct kvt_name_part){ end, 0 };
	if (take_pair(pair, p, &ranks, "_") && pair[0] < pair[1]) {
		out->tp_rank = pair[0];
		out->tp_size = pair[1];
		out->rank.s = ranks + 1;
		out->rank.n = (size_t)(end - ranks - 1);
		end = ranks;
	}
	out->model = (struct kvt_name_part){ p, (size_t)(end - p) };
	return out->model.n > 0;
}

/* "tp1of4" in [s, end): rank and size, which stay as they are if it is none such. */
static bool take_share(int64_t *rank, int64_t *size, const char *s, const char *end,
		       const char *word)
{
	const char *p = end;
	int64_t is, of;

	if (!take_number(&of, s, &p, "of") || !take_number(&is, s, &p, word) || p != s ||
	    is >= of)
		return false;
	*rank = is;
	*size = of;
	return true;
}

/* What follows the hash of an object: nothing, a pool, states with their rank. */
static bool take_ending(struct kvt_hicache_name *out, const char *p)
{
	const char *dot, *end = p + strlen(p);
	bool known;
	size_t n;

	out->pool = (struct kvt_name_part){ "kv", 2 };
	if (*p != '.')
		return !*p;
	dot = strchr(++p, '.');
	n = (size_t)((dot ? dot : end) - p);
	known = n > 13 && !strncmp(p, "deepseek_v4_c", 13);
	for (int i = 0; i < NPLAIN; i++)
		known |= strlen(plain_pools[i]) == n && !memcmp(plain_pools[i], p, n);
	out->pool = (struct kvt_name_part){ p, n };
	return known && (!dot || take_share(&out->tp_rank, &out->tp_size, dot + 1, end,
					    "tp"));
}

static bool parse_object(struct kvt_hicache_name *out, const char *name)
{
	const char *base = kvt_path_base(name), *p = base, *end = base;

	*out = nothing;
	out->store = KVT_HICACHE_OBJECT;
	while (is_hex(*p))
		p++;
	out->hash = (struct kvt_name_part){ base, (size_t)(p - base) };
	if (out->hash.n != 64 || base == name || !take_ending(out, p))
		return false;
	/* folders from the last one on, as long as they are shares */
	while (end > name) {
		const char *s = --end;

		while (s > name && s[-1] != '/')
			s--;
		if (!take_share(&out->tp_rank, &out->tp_size, s, end, "tp") &&
		    !take_share(&out->pp_rank, &out->pp_size, s, end, "pp") &&
		    !take_share(&out->cp_rank, &out->cp_size, s, end, "cp")) {
			out->model = (struct kvt_name_part){ s, (size_t)(end - s) };
			break;
		}
		out->rank = (struct kvt_name_part){ s, (size_t)(base - 1 - s) };
		end = s;
	}
	if (!out->rank.s)
		out->rank = (struct kvt_name_part){ base, 0 };
	return out->model.n > 0;
}

bool kvt_hicache_find(struct kvt_hicache_name *out, const char *name)
{
	return kvt_hicache_parse(out, name) || parse_nixl(out, name) ||
	       parse_object(out, name);
}
