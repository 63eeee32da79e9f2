/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.c - kvtool expect backend: which of vLLM's backends could have this cache?
 *
 * For a group, or for what options say: all reasons that vLLM itself has against each
 * backend of a release and platform (lib/vllm), and one of ours, that it puts the bytes
 * in another order than the dump has.  Whom vLLM takes is the first of the platform's
 * order without a reason, or the one that is selected.
 */
#include "cli/cmd/expect/modes.h"

#include <string.h>

#include "cli/expect/expect.h"
#include "cli/opt.h"
#include "lib/base/keys.h"
#include "lib/base/nearest.h"
#include "lib/kvt/connect.h"
#include "lib/vllm/backend.h"
#include "print/out/json_out.h"
#include "print/out/screen.h"

enum { MAX_KINDS = 8 };

struct asked {
	struct kvt_hints hints;
	struct opt_strings with, select;
	/* by the number of the kind (kvt_backend_kind_at), the last for all others */
	const struct kvt_backend *selected[MAX_KINDS];
	const char *cache_dtype, *on_text;
	int64_t heads;
	bool all, json;
	struct kvt_backend_config config;	/* of --with and --release */
	struct expect_on on;
};

/* ---- options ------------------------------------------------------------ */

#define FLAG(word, field) \
	{ word, offsetof(struct kvt_backend_config, field), NULL }

static const struct {
	const char *word;
	size_t field;			/* a bool of the configuration */
	const char *type;		/* or this: the type of attention */
} words[] = {
	FLAG("mla", mla), FLAG("sparse", sparse), FLAG("sinks", sinks),
	FLAG("window", sliding_window), FLAG("connector", connector),
	FLAG("mm-prefix", mm_prefix), FLAG("head-scales", head_scales),
	FLAG("rswa", rswa), FLAG("non-causal", non_causal),
	FLAG("batch-invariant", batch_invariant), FLAG("pcp", pcp), FLAG("dcp", dcp),
	FLAG("adaptive-verification", adaptive_verification),
	{ "encoder", 0, "encoder" }, { "encoder-only", 0, "encoder_only" },
	{ "encoder-decoder", 0, "encoder_decoder" },
};
enum { NWORDS = sizeof(words) / sizeof(words[0]) };

static enum kvt_status take_word(struct asked *a, const char *word, struct kvt_error *err)
{
	struct kvt_error list = { "" };
	struct kvt_nearest near = kvt_nearest_start(word);
	size_t n = 0;

	for (int i = 0; i < NWORDS; i++) {
		if (!strcmp(words[i].word, word)) {
			if (words[i].type)
				a->config.type = words[i].type;
			else
				*(bool *)((char *)&a->config + words[i].field) = true;
			return KVT_OK;
		}
		kvt_nearest_offer(&near, words[i].word);
		n += (size_t)snprintf(list.text + n, sizeof(list.text) - n, "%s%s",
				      i ? ", " : "", words[i].word);
	}
	return kvt_fail(err, KVT_USAGE, "--with is '%.40s'%s, expected one of %s", word,
			kvt_nearest_hint(&near, "").s, list.text);
}

/* A name that nobody knows is not one that every backend refuses. */
static enum kvt_status check_types(const struct asked *a, struct kvt_error *err)
{
	struct kvt_nearest near;
	const char *name;

	if (a->hints.dtype && !kvt_dtype_find(a->hints.dtype))
		return kvt_fail(err, KVT_USAGE,
				"--dtype is '%.40s', expected a type such as bf16",
				a->hints.dtype);
	if (!a->cache_dtype)
		return KVT_OK;
	near = kvt_nearest_start(a->cache_dtype);
	for (int i = 0; (name = kvt_backend_cache_dtype(i)); i++) {
		if (!strcmp(name, a->cache_dtype))
			return KVT_OK;
		kvt_nearest_offer(&near, name);
	}
	return kvt_fail(err, KVT_USAGE, "--cache-dtype is '%.40s'%s", a->cache_dtype,
			kvt_nearest_hint(&near,
				", expected vLLM's name of a type, such as auto or fp8_e4m3").s);
}

static int kind_number(const char *word, size_t n)
{
	const char *kind;
	int i;

	for (i = 0; (kind = kvt_backend_kind_at(i)); i++)
		if (strlen(kind) == n && !strncmp(kind, word, n))
			return i;
	return -1;
}

static enum kvt_status find_selected(const struct kvt_backend **out, const char *name,
				     struct kvt_error *err)
{
	struct kvt_nearest near;
	const struct kvt_backend *b;

	if ((*out = kvt_backend_find(name)))
		return KVT_OK;
	near = kvt_nearest_start(name);
	for (int i = 0; (b = kvt_backend_at(i)); i++)
		kvt_nearest_offer(&near, kvt_backend_name(b));
	return kvt_fail(err, KVT_USAGE, "--select is '%.60s'%s", name,
			kvt_nearest_hint(&near,
				", expected a backend of vLLM, such as FLASH_ATTN").s);
}

/* "FLASH_ATTN", for all kinds, or "sliding_window=TRITON_ATTN"; the last kind is all. */
static enum kvt_status take_selected(struct asked *a, struct kvt_error *err)
{
	struct kvt_key key[MAX_KINDS + 1] = { { "all", KVT_KEY_TEXT, 0, NULL } };
	const char *name[MAX_KINDS] = { NULL };
	struct kvt_keys keys = { "--select", key, name, 0 };
	enum kvt_status status = KVT_OK;
	int n = 0;

	for (; kvt_backend_kind_at(n); n++)
		key[n] = (struct kvt_key){ kvt_backend_kind_at(n), KVT_KEY_TEXT,
					   (size_t)n * sizeof(name[0]), NULL };
	key[n] = (struct kvt_key){ "all", KVT_KEY_TEXT,
				   (MAX_KINDS - 1) * sizeof(name[0]), NULL };
	for (int i = 0; !status && i < a->select.n; i++) {
		const char *word = a->select.s[i], *value = strchr(word, '=');

		status = value ? kvt_keys_put(&keys, word, (size_t)(value - word),
					      value + 1, err) :
				 kvt_keys_put(&keys, "all", 3, word, err);
	}
	for (int i = 0; !status && i < MAX_KINDS; i++)
		if (name[i])
			status = find_selected(&a->selected[i], name[i], err);
	return status;
}

/* ---- one answer --------------------------------------------------------- */

/* What is asked of backends: of a group, or NULL where there is no dump. */
struct question {
	const struct kvt_group *group;
	struct kvt_backend_config config;
};

static struct question question_of(const struct asked *a, const struct kvt_group *group)
{
	struct question q = { group, a->config };
	struct kvt_backend_config of_group;

	if (group) {
		of_group = backend_config(group);
		q.config.head_size = of_group.head_size;
		q.config.dtype = of_group.dtype;
		q.config.cache_dtype = of_group.cache_dtype;
		q.config.block_size = of_group.block_size;
		q.config.mla |= of_group.mla;
		q.config.sparse |= of_group.sparse;
		q.config.sliding_window |= of_group.sliding_window;
	} else {
		const struct kvt_dtype *dtype = a->hints.dtype ?
						kvt_dtype_find(a->hints.dtype) : NULL;

		q.config.head_size = a->hints.head_dim;
		q.config.dtype = dtype ? dtype->name : a->hints.dtype;
		q.config.block_size = a->hints.block_size;
	}
	if (a->cache_dtype)
		q.config.cache_dtype = a->cache_dtype;
	expect_on_config(&q.config, &a->on);
	return q;
}

enum { MAX_REASONS = KVT_NBACKEND_REASONS + 1 };

/* The reasons of vLLM for no, in its order. */
static int engine_reasons(const char *out[MAX_REASONS], const struct kvt_backend *backend,
			  const struct question *q)
{
	unsigned bits = kvt_backend_check(backend, &q->config);
	int n = 0;

	for (int i = 0; i < KVT_NBACKEND_REASONS; i++)
		if (bits >> i & 1)
			out[n++] = i == KVT_BACKEND_OWN ?
				   kvt_backend_own_reason(backend, &q->config) :
				   kvt_backend_reason_text((enum kvt_backend_reason)i);
	return n;
}

/* These, and one of ours. */
static int reasons_of(const char *out[MAX_REASONS], const struct kvt_backend *backend,
		      const struct question *q)
{
	bool code = !(kvt_backend_check(backend, &q->config) & 1u << KVT_BACKEND_NO_CODE);
	int n = engine_reasons(out, backend, q);

	if (q->group && code &&
	    !kvt_backend_writes(backend, &q->config, &q->group->layout, &q->group->shape))
		out[n++] = "it stores the bytes in a different order";
	return n;
}

/* What the user of vLLM wants; NULL: nothing, the platform's order decides. */
static const struct kvt_backend *selected(const struct asked *a, const struct question *q)
{
	const char *kind = kvt_backend_kind(&q->config);
	const struct kvt_backend *b = a->selected[kind_number(kind, strlen(kind))];

	return b ? b : a->selected[MAX_KINDS - 1];
}

/* NULL: none of those that are asked, or what is selected is not possible. */
static const struct kvt_backend *taken(const struct asked *a, const struct question *q)
{
	const struct kvt_backend *order[16] = { selected(a, q) };
	int n = order[0] ? 1 :
		kvt_backend_order_of(order, 16, &q->config, &a->on.platform);

	for (int i = 0; i < n; i++)
		if (!kvt_backend_check(order[i], &q->config))
			return order[i];
	return NULL;
}

/* ---- text --------------------------------------------------------------- */

static void print_question(const struct question *q)
{
	const struct kvt_backend_config *c = &q->config;

	if (q->group) {
		screen_say(SCREEN_NAME, q->group->id);
		plainf(": %s, ", kvt_layout_string(&q->group->layout).s);
	}
	if (c->head_size)
		plainf("heads of %lld, ", LL(c->head_size));
	if (c->block_size)
		plainf("blocks of %lld, ", LL(c->block_size));
	plainf("model %s, cache %s\n", c->dtype ? c->dtype : "of any type",
	       c->cache_dtype ? c->cache_dtype : "of any type");
}

static void print_order(const struct asked *a, const struct question *q)
{
	const struct kvt_backend *order[16], *first = taken(a, q);
	int n = kvt_backend_order_of(order, 16, &q->config, &a->on.platform);

	plainf("on %s vLLM asks ", a->on.text);
	for (int i = 0; i < n; i++)
		plainf("%s%s", i ? ", " : "", kvt_backend_name(order[i]));
	plainf("; it takes %s\n", first ? kvt_backend_name(first) : "none, and fails");
}

static void print_selected(const struct question *q, const struct kvt_backend *b)
{
	const char *why[MAX_REASONS];
	int n = engine_reasons(why, b, q);

	plainf("for %s %s is selected, and vLLM %s", kvt_backend_kind(&q->config),
	       kvt_backend_name(b), n ? "fails: " : "takes it");
	for (int i = 0; i < n; i++)
		plainf("%s%s", i ? ", " : "", why[i]);
	putchar('\n');
}

static bool same_writers(const struct question *q, enum kvt_release x, enum kvt_release y)
{
	struct kvt_backend_config a = q->config, b = q->config;
	const struct kvt_backend *backend;
	bool same = true;

	a.release = x;
	b.release = y;
	for (int i = 0; same && (backend = kvt_backend_at(i)); i++)
		same = backend_fits(backend, &a, q->group) ==
		       backend_fits(backend, &b, q->group);
	return same;
}

static void print_release(const struct question *q, enum kvt_release release,
			  enum kvt_release before)
{
	struct kvt_backend_config then = q->config;
	char label[20];

	then.release = release;
	snprintf(label, sizeof(label), "  vLLM %s", kvt_release_name(release));
	if (release != before && same_writers(q, release, before))
		plainf("%-*sthe same\n", NAME_COLUMN, label);
	else
		writers_text(label, &then, q->group, "no backend");
}

/* That which was asked for, then all others, the newest first. */
static void print_releases(const struct question *q)
{
	enum kvt_release before = q->config.release;

	print_release(q, before, before);
	for (int r = KVT_NRELEASES; r--; ) {
		if (r == (int)q->config.release)
			continue;
		print_release(q, (enum kvt_release)r, before);
		before = (enum kvt_release)r;
	}
}

/* The first reason of each backend, as what is counted. */
static int count_refused(const struct question *q, const char *reason)
{
	const struct kvt_backend *b;
	const char *why[MAX_REASONS];
	int n = 0;

	for (int i = 0; (b = kvt_backend_at(i)); i++)
		n += reasons_of(why, b, q) && (!reason || !strcmp(why[0], reason));
	return n;
}

/* As many of them as a line has room for. */
static void print_refused_for(const struct question *q, int first, const char *reason)
{
	enum { MORE = 12 };		/* " and 33 more" */
	const struct kvt_backend *b;
	const char *why[MAX_REASONS];
	int n = count_refused(q, reason), named = 0, used;

	used = 8 + (int)strlen(reason);
	plainf("  %4d  %s: ", n, reason);
	for (int i = first; (b = kvt_backend_at(i)); i++) {
		const char *name = kvt_backend_name(b);

		if (!reasons_of(why, b, q) || strcmp(why[0], reason))
			continue;
		if (named && used + (int)strlen(name) + MORE > name_list_width()) {
			plainf(" and %d more", n - named);
			break;
		}
		plainf("%s%s", named++ ? ", " : "", name);
		used += (int)strlen(name) + 2;
	}
	putchar('\n');
}

/* One line a reason, that of the first backend with it first. */
static void print_refused(const struct question *q)
{
	const struct kvt_backend *b;
	const char *why[MAX_REASONS], *before[MAX_REASONS];
	int n = count_refused(q, NULL);

	if (n)
		plainf("not %d of vLLM %s (--all-reasons says why, of each)\n", n,
		       kvt_release_name(q->config.release));
	for (int i = 0; (b = kvt_backend_at(i)); i++) {
		bool said = false;

		if (!reasons_of(why, b, q))
			continue;
		for (int k = 0; k < i && !said; k++)
			said = reasons_of(before, kvt_backend_at(k), q) &&
			       !strcmp(before[0], why[0]);
		if (!said)
			print_refused_for(q, i, why[0]);
	}
}

/* All reasons of each, one line a backend. */
static void print_all_reasons(const struct question *q)
{
	const struct kvt_backend *b;
	const char *why[MAX_REASONS];

	plainf("not of vLLM %s\n", kvt_release_name(q->config.release));
	for (int i = 0; (b = kvt_backend_at(i)); i++) {
		int n = reasons_of(why, b, q);

		for (int k = 0; k < n; k++)
			plainf(k ? ", %s" : "  %s: %s", k ? why[k] :
			       kvt_backend_name(b), why[0]);
		if (n)
			putchar('\n');
	}
}

static void print_answers(const struct asked *a, const struct question *q)
{
	screen_fold_begin(8);
	print_question(q);
	plainf(q->group ? "could have been written by\n" : "could be of\n");
	print_releases(q);
	if (a->all)
		print_all_reasons(q);
	else
		print_refused(q);
	if (selected(a, q))
		print_selected(q, selected(a, q));
	else if (a->on.text)
		print_order(a, q);
	screen_fold_end();
}

/* ---- JSON --------------------------------------------------------------- */

/* Every other release, with who could have it there. */
static void put_others(struct json_out *out, json_t *o, const struct question *q)
{
	json_t *list = json_put_array(out, o, "other_releases");

	for (int r = 0; r < KVT_NRELEASES; r++) {
		struct kvt_backend_config then = q->config;

		then.release = (enum kvt_release)r;
		if (then.release != q->config.release)
			writers_json(out, json_append_object(out, list), &then, q->group);
	}
}

static void put_answers(struct json_out *out, json_t *list, const struct asked *a,
			const struct question *q)
{
	json_t *o = json_append_object(out, list), *backends, *reasons, *names;
	const struct kvt_backend *b, *order[16];
	const char *why[MAX_REASONS];
	int n;

	json_put_text(out, o, "group", q->group ? q->group->id : NULL);
	backends = json_put_array(out, o, "backends");
	for (int i = 0; (b = kvt_backend_at(i)); i++) {
		json_t *row = json_append_object(out, backends);

		n = reasons_of(why, b, q);
		json_put_text(out, row, "backend", kvt_backend_name(b));
		json_put_bool(out, row, "possible", !n);
		json_put_text(out, row, "reason", n ? why[0] : NULL);
		reasons = json_put_array(out, row, "reasons");
		for (int j = 0; j < n; j++)
			json_append_text(out, reasons, why[j]);
	}
	put_others(out, o, q);
	b = selected(a, q);
	json_put_text(out, o, "kind", kvt_backend_kind(&q->config));
	json_put_text(out, o, "selected", b ? kvt_backend_name(b) : NULL);
	if (!a->on.text && !b)
		return;
	names = json_put_array(out, o, "asked");
	n = b ? 0 : kvt_backend_order_of(order, 16, &q->config, &a->on.platform);
	for (int i = 0; i < n; i++)
		json_append_text(out, names, kvt_backend_name(order[i]));
	b = taken(a, q);
	json_put_text(out, o, "taken", b ? kvt_backend_name(b) : NULL);
}

/* ---- the command -------------------------------------------------------- */

/* KVT_MISMATCH: vLLM fails with what is selected. */
static enum kvt_status answer(const struct asked *a, const struct question *q,
			      struct json_out *out, json_t *list)
{
	if (a->json)
		put_answers(out, list, a, q);
	else
		print_answers(a, q);
	return selected(a, q) && !taken(a, q) ? KVT_MISMATCH : KVT_OK;
}

static enum kvt_status answer_dump(const struct asked *a, const char *path,
				   struct json_out *out, json_t *list,
				   struct kvt_error *err)
{
	struct kvt_dump *dump;
	enum kvt_status status = kvt_open(&dump, path, &a->hints, err), worst = KVT_OK;
	int asked = 0;

	if (status)
		return status;
	for (int g = 0; g < kvt_dump_snapshot(dump)->ngroups; g++) {
		const struct kvt_group *group = kvt_dump_group(dump, g);
		struct question q;

		if (!backend_applies(group))
			continue;
		q = question_of(a, group);
		if (asked++ && !a->json)
			putchar('\n');
		worst = worse(worst, answer(a, &q, out, list));
	}
	kvt_dump_close(dump);
	return asked ? worst :
	       kvt_fail(err, KVT_BAD_INPUT, "%s: no group is an attention cache", path);
}

static enum kvt_status answer_all(const struct asked *a, const char *path,
				  struct kvt_error *err)
{
	struct json_out out = { NULL, false };
	json_t *list = NULL;
	enum kvt_status status = KVT_OK, printed = KVT_OK;

	if (a->json) {
		json_start(&out);
		json_put_text(&out, out.root, "release",
			      kvt_release_name(a->config.release));
		list = json_put_array(&out, out.root, "groups");
	}
	if (path) {
		status = answer_dump(a, path, &out, list, err);
	} else {
		struct question q = question_of(a, NULL);

		status = answer(a, &q, &out, list);
	}
	if (a->json && (!status || status == KVT_MISMATCH))
		printed = json_print(&out, false, err);
	json_free(&out);
	return printed ? printed : status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked a = { .config.release = KVT_NEWEST_RELEASE };
	const struct opt opts[] = {
		{ "with", 0, OPT_STRINGS, &a.with, "WORD",
		  "a required feature: mla, sinks, connector, ...; may be repeated" },
		{ "cache-dtype", 0, OPT_STRING, &a.cache_dtype, "NAME",
		  "vLLM's name of the cache's type, such as fp8_e4m3" },
		OPT_RELEASE(&a.config.release),
		OPT_ON(&a.on_text),
		{ "select", 0, OPT_STRINGS, &a.select, "[KIND=]NAME",
		  "what vLLM is told to take, for all layers or a kind; may be repeated" },
		{ "query-heads", 0, OPT_COUNT, &a.heads, "N",
		  "query heads of a rank, for the order" },
		{ "all-reasons", 0, OPT_FLAG, &a.all, NULL, "not only the first" },
		OPT_JSON(&a.json),
		OPT_INPUT(&a.hints),
		{ 0 }
	};
	int n = opt_parse(&expect_backend, opts, argc, argv, err);
	enum kvt_status status;

	if (n < 0)
		return opt_status(n);
	if (n > 1)
		return kvt_fail(err, KVT_USAGE, "expected one dump or none, got %d", n);
	for (int i = 0; i < a.with.n; i++)
		if ((status = take_word(&a, a.with.s[i], err)))
			return status;
	if ((status = take_selected(&a, err)) ||
	    (status = expect_on_take(&a.on, a.on_text, err)) ||
	    (status = check_types(&a, err)))
		return status;
	a.on.platform.heads = a.heads;
	return answer_all(&a, n ? argv[0] : NULL, err);
}

const struct command expect_backend = {
	.name = "expect backend",
	.args = "[FILE]",
	.summary = "say which backends of vLLM could have a cache, or why not",
	.run = run,
	.examples =
		"  kvtool expect backend dump.h5\n"
		"  kvtool expect backend --head-dim=128 --dtype=bf16 --block-size=16 --on=cuda:9.0\n"
		"  kvtool expect backend --select=FLASH_ATTN --select=sliding_window=TRITON_ATTN dump.h5\n",
};
