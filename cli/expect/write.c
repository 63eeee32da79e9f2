/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - the contract that a dump holds to
 *
 *	kvtool-contract 1
 *	KEY = VALUE		a clause a line, of the dump
 *	group ID		of each group
 *	KEY = VALUE
 *	# KEY = VALUE		what holds and is more than the dump says: backends
 *
 * Written is what a larger or smaller pool of the same engine holds, too: the number of
 * blocks stands there as a comment, and strides outside of blocks do not, unless the
 * pool is asked for; of names of layers there is what they have in common.
 */
#include "cli/expect/expect.h"
#include "print/out/text_file.h"

#include <stdlib.h>
#include <string.h>

#include "lib/kvt/connect.h"

struct writing {
	FILE *out;
	const struct expect_dump *dump;
	bool pool;			/* the number of blocks counts, too */
};

/* False for what no line of text can hold. */
static bool put(const struct writing *w, const char *key, const char *op,
		const char *value)
{
	char quoted[1200], part[KVT_PLAIN_MAX];

	for (const char *s = value, *end = s + strlen(s); s < end;) {
		int n = kvt_plain_next(part, s, end);

		if (strncmp(part, s, strlen(part)))
			return false;
		s += n;
	}
	if (!*value || !strcmp(value, "null") || strlen(value) > 500)
		return false;
	clause_quote(quoted, sizeof(quoted), value);
	fplainf(w->out, "%s %s %s\n", key, op, quoted);
	return true;
}

static void put_key(const struct writing *w, const char *name, int g)
{
	char value[512];

	expect_value(value, sizeof(value), clause_key_find(name), w->dump, g);
	put(w, name, "=", value);
}

/* ---- clauses that are more than a field --------------------------------- */

/* Who lies outside of the blocks moves when the pool grows. */
static void put_strides(const struct writing *w, const char *name, int g)
{
	char value[512], kept[512] = "";
	const char *at = value;
	struct clause_word word;
	int64_t block = INT64_MAX;
	size_t used = 0;

	expect_value(value, sizeof(value), clause_key_find(name), w->dump, g);
	while (!w->pool && clause_next_stride(&at, &word))
		if (!strcmp(word.name, "B"))
			block = word.n;
	for (at = value; clause_next_stride(&at, &word);)
		if (word.n <= block)
			used += (size_t)snprintf(kept + used, sizeof(kept) - used,
						 "%s%s:%lld", used ? " " : "", word.name,
						 LL(word.n));
	put(w, name, "=", kept);
}

static size_t common_prefix(char *const *names, int64_t n)
{
	size_t length = strlen(names[0]);

	for (int64_t i = 1; i < n; i++)
		for (size_t k = 0; k < length; k++)
			if (names[i][k] != names[0][k])
				length = k;
	while (length && strchr("0123456789", names[0][length - 1]))
		length--;
	return length;
}

static size_t common_suffix(char *const *names, int64_t n, size_t prefix)
{
	const char *end = names[0] + strlen(names[0]);
	size_t length = strlen(names[0]) - prefix;

	for (int64_t i = 1; i < n; i++) {
		size_t room = strlen(names[i]) - prefix;

		length = length < room ? length : room;
		for (size_t k = 0; k < length; k++)
			if (end[-1 - (long)k] != names[i][prefix + room - 1 - k])
				length = k;
	}
	while (length && strchr("0123456789", *(end - length)))
		length--;
	return length;
}

/* "model.layers.*.self_attn": what the names have in common. */
static void put_names(const struct writing *w, const struct kvt_group *group)
{
	char *const *names = group->layer_names;
	int64_t n = group->shape.n[KVT_AXIS_L];
	size_t prefix, suffix;
	char value[512];

	if (!n)
		return;
	if (n == 1) {
		put(w, "layer_names", "=", names[0]);
		return;
	}
	prefix = common_prefix(names, n);
	suffix = common_suffix(names, n, prefix);
	if (!prefix && !suffix)
		return;
	snprintf(value, sizeof(value), "%.*s*%s", (int)prefix, names[0],
		 names[0] + strlen(names[0]) - suffix);
	put(w, "layer_names", "=", value);
}

/* What holds, but is more than the dump itself says, stands there as a comment. */
static void suggest_backends(const struct writing *w, const struct kvt_group *group)
{
	const struct clause_key *key = clause_key_find("backend");
	const struct kvt_backend *b;
	int found = 0;
	char why[256];

	for (int i = 0; (b = kvt_backend_at(i)); i++) {
		if (backend_reasons(why, sizeof(why), key, kvt_backend_name(b), w->dump,
				    group))
			fplainf(w->out, "%s%s", found++ ? " | " : "# backend = ",
				kvt_backend_name(b));
	}
	if (found)
		putc('\n', w->out);
	for (int i = 0; i < 2; i++) {
		const char *value = i ? "equal_tp" : "unequal_tp";

		if (connector_reasons(why, sizeof(why), value, w->dump, group) &&
		    group->shape.n[KVT_AXIS_K] > 1) {
			fplainf(w->out, "# connector = %s\n", value);
			return;
		}
	}
}

/* ---- all of it ---------------------------------------------------------- */

static void put_group(const struct writing *w, int g)
{
	static const char *const first[] = {
		"kind", "dtype", "layers", "block_size", "tokens_per_slot", "slots",
		"heads", "total_heads", "head_start", "replication",
	};
	static const char *const last[] = {
		"kernel_block_size", "window", "page_bytes", "page_offset", "bytes_per_block", "parts",
	};
	const struct kvt_group_facts *f = &w->dump->d->group[g];
	const struct kvt_group *group = f->group;

	fplainf(w->out, "\ngroup %s\n# %s\n", group->id, human_layout(&group->layout).s);
	put_key(w, "layout", g);
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		put_key(w, first[i], g);
	if (group->content.type)
		put_key(w, "content_type", g);
	put_key(w, group->shape.n[KVT_AXIS_K] > 1 ? "head_dim" : "dim", g);
	fputs(w->pool ? "" : "# ", w->out);
	put_key(w, "blocks", g);
	put_strides(w, "strides", g);
	put_strides(w, "strides.keys", g);
	put_strides(w, "strides.values", g);
	if (f->alignment)
		fplainf(w->out, "alignment >= %lld\n", LL(f->alignment));
	for (size_t i = 0; i < sizeof(last) / sizeof(last[0]); i++)
		put_key(w, last[i], g);
	put_names(w, group);
	if (group->layer_ids)
		put_key(w, "layer_ids", g);
	suggest_backends(w, group);
}

static void put_dump(const struct writing *w)
{
	static const char *const ranks[] = {
		"tp_size", "tp_rank", "pp_size", "pp_rank", "dp_size", "dp_rank",
		"dcp_size", "dcp_rank",
	};
	const struct kvt_parallel *p = &w->dump->d->snapshot->parallel;
	const int64_t size[] = { p->tp_size, p->pp_size, p->dp_size, p->dcp_size };

	fputs("kvtool-contract 1\n"
	      "# What kvtool expect check demands; see kvtool-contract(5).  Any line but\n"
	      "# the first may go, = may become >= or <=, and values may have\n"
	      "# alternatives: a | b.\n\n", w->out);
	put_key(w, "model", -1);
	put_key(w, "groups", -1);
	for (int i = 0; i < 8; i++)
		if (size[i / 2] > 1)
			put_key(w, ranks[i], -1);
	for (int i = 0; i < 2; i++)
		if (w->dump->digest[i])
			put_key(w, i ? "digest.blocks" : "digest.tokens", -1);
}

char *expect_contract(const struct expect_dump *dump, bool pool)
{
	struct writing w = { .dump = dump, .pool = pool };
	struct text_output out = { .path = NULL };

	if (!(w.out = text_output_open(&out)))
		return NULL;
	put_dump(&w);
	for (int g = 0; g < dump->d->snapshot->ngroups; g++)
		put_group(&w, g);
	if (text_output_close(w.out))
		return out.text;
	free(out.text);
	return NULL;
}
