/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt.c - which prompts are in files that are named by hashes
 *
 * Names of all prompts are worked out by one way after the other, until a block is called
 * so.  A row of ways[] is what users have: vLLM's default, the seed 0 of its documents,
 * what it calls a seed that is not set; what the user says takes the place of all that.
 */
#include "formats/store/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* ---- ways to make names --------------------------------------------------- */

struct way {
	const char *family, *rule;
	enum kvt_prefix_hash hash;
	const char *seed;		/* NULL: not set; or LMCache without vLLM */
};

static const char unset[] = "vllm-none-hash";

static const struct way ways[] = {
	{ "vllm", "vllm", KVT_PREFIX_SHA256, NULL },
	{ "vllm", "vllm", KVT_PREFIX_SHA256, "0" },
	{ "vllm", "vllm", KVT_PREFIX_SHA256_CBOR, NULL },
	{ "vllm", "vllm", KVT_PREFIX_SHA256_CBOR, "0" },
	{ "vllm", "vllm", KVT_PREFIX_XXHASH, "0" },
	{ "vllm", "vllm", KVT_PREFIX_XXHASH_CBOR, "0" },
	{ "vllm", "vllm-0.30", KVT_PREFIX_SHA256, NULL },
	{ "vllm", "vllm-0.30", KVT_PREFIX_SHA256, "0" },
	{ "vllm", "vllm-0.30", KVT_PREFIX_SHA256_CBOR, NULL },
	{ "vllm", "vllm-0.30", KVT_PREFIX_SHA256_CBOR, "0" },
	{ "vllm", "vllm-0.30", KVT_PREFIX_XXHASH, "0" },
	{ "vllm", "vllm-0.30", KVT_PREFIX_XXHASH_CBOR, "0" },
	{ "lmcache", "lmcache", KVT_PREFIX_BUILTIN, NULL },
	{ "lmcache", "lmcache", KVT_PREFIX_BUILTIN, "0" },
	{ "lmcache", "lmcache", KVT_PREFIX_SHA256_CBOR, "0" },
	{ "lmcache", "lmcache", KVT_PREFIX_SHA256_CBOR, unset },
	{ "lmcache-mp", "lmcache-mp", KVT_PREFIX_BLAKE3, NULL },
	{ "lmcache-mp", "lmcache-mp", KVT_PREFIX_SHA256_CBOR, "0" },
	{ "lmcache-mp", "lmcache-mp", KVT_PREFIX_SHA256_CBOR, unset },
	{ "sglang", "sglang", KVT_PREFIX_SHA256, NULL },
};
enum { NWAYS = sizeof(ways) / sizeof(ways[0]) };

/* What the user says of names. */
struct told {
	const char *engine, *seed, *salt, *extra_key;
	enum kvt_prefix_hash hash;
	char lora[256];			/* "": none */
	const char *lora_path;
};

static enum kvt_status read_told(struct told *t, const struct kvt_hints *hints,
				 const char *family, struct kvt_error *err)
{
	const char *hash = kvt_fact(hints, "hash"), *lora = kvt_fact(hints, "lora");
	const char *path = lora ? strchr(lora, '=') : NULL;
	size_t n = path ? (size_t)(path - lora) : lora ? strlen(lora) : 0;

	*t = (struct told){ .engine = kvt_fact(hints, "engine"),
			    .seed = kvt_fact(hints, "seed"),
			    .salt = kvt_fact(hints, "salt"),
			    .extra_key = kvt_fact(hints, "extra-key") };
	if (t->engine && (!kvt_prefix_rule_find(t->engine) ||
			  strncmp(t->engine, family, strlen(family)) != 0))
		return kvt_fail(err, KVT_USAGE,
				"--set=engine=%.40s names no files of this kind, which are those of %s; kvtool prefix --engine=list prints all",
				t->engine, family);
	if (hash && (t->hash = kvt_prefix_hash_find(hash)) == KVT_PREFIX_NHASHES)
		return kvt_fail(err, KVT_USAGE,
				"--set=hash=%.40s is none; kvtool prefix --engine=list prints all",
				hash);
	if (n >= sizeof(t->lora) || (lora && !n))
		return kvt_fail(err, KVT_USAGE,
				"--set=lora=%.40s, expected NAME[=PATH]", lora);
	if (t->seed && !strcmp(family, "sglang"))
		return kvt_fail(err, KVT_USAGE, "--set=seed: names of SGLang have none");
	/* with a seed they are named as by the next ones, without by none */
	if (t->engine && !strcmp(t->engine, "vllm-0.28")) {
		if (!t->seed)
			return kvt_fail(err, KVT_BAD_INPUT,
					"vLLM until 0.28 begins names with random bytes where PYTHONHASHSEED is not set, which nothing keeps: say --set=seed=N");
		t->engine = "vllm-0.30";
	}
	memcpy(t->lora, lora ? lora : "", n);
	t->lora_path = path ? path + 1 : NULL;
	return KVT_OK;
}

/* Is the way another one than those before it, after what the user says? */
static bool is_meant(const struct way *w, const struct told *t, const char *family)
{
	bool extras = t->salt || t->lora[0];

	if (strcmp(w->family, family) || (t->hash && t->hash != w->hash))
		return false;
	/* of those that know a seed the row with 0 takes that of the user */
	if (t->seed && w->hash != KVT_PREFIX_BLAKE3 &&
	    (!w->seed || strcmp(w->seed, "0") != 0))
		return false;
	if (t->engine)
		return !strcmp(t->engine, w->rule);
	/* without extras releases name alike */
	return strcmp(w->rule, "vllm-0.30") || (extras && !(t->lora_path && t->lora[0]));
}

static struct kvt_prefix_key key_of(const struct way *w, const struct told *t)
{
	const struct kvt_prefix_rule *rule = kvt_prefix_rule_find(w->rule);
	bool builtin = w->hash == KVT_PREFIX_BUILTIN && !w->seed;

	return (struct kvt_prefix_key){
		.rule = rule, .hash = w->hash, .without_vllm = builtin,
		.seed = w->hash == KVT_PREFIX_BLAKE3 ? NULL :
			t->seed && w->seed ? t->seed : w->seed,
		/* of the second level of LMCache it is in the key alone */
		.salt = rule->form == KVT_PREFIX_LMCACHE_MP ? NULL : t->salt,
		.extra_key = t->extra_key,
		.lora = t->lora[0] ? t->lora : NULL, .lora_path = t->lora_path,
	};
}

/* ---- names ---------------------------------------------------------------- */

void kvt_named_free(struct kvt_named *named)
{
	for (int64_t i = 0; named->name && i < named->prompts.count; i++)
		free(named->name[i]);
	free(named->name);
	free(named->count);
	kvt_prompts_free(&named->prompts);
	*named = (struct kvt_named){ 0 };
}

static enum kvt_status reserve(struct kvt_named *n, const char *path,
			       struct kvt_error *err)
{
	n->name = calloc((size_t)n->prompts.count + 1, sizeof(*n->name));
	n->count = calloc((size_t)n->prompts.count + 1, sizeof(*n->count));
	for (int64_t i = 0; n->name && n->count && i < n->prompts.count; i++) {
		int64_t most = kvt_ceil_div(n->prompts.prompt[i].ntokens, n->unit);

		n->name[i] = calloc((size_t)most + 1, sizeof(*n->name[i]));
		if (!n->name[i])
			return kvt_no_memory(err, path);
	}
	return n->name && n->count ? KVT_OK : kvt_no_memory(err, path);
}

static enum kvt_status name_prompt(struct kvt_named *n, int64_t i,
				   const struct kvt_prefix_key *key,
				   struct kvt_error *err)
{
	const struct kvt_prompt *prompt = &n->prompts.prompt[i];
	struct kvt_prefix chain;
	enum kvt_status status = kvt_prefix_start(&chain, key, err);

	n->count[i] = 0;
	for (int64_t at = 0; !status && at < prompt->ntokens; at += n->unit) {
		int64_t left = prompt->ntokens - at;
		int64_t some = left < n->unit ? left : n->unit;

		if (some < n->unit && !key->rule->partial)
			break;
		if (!(status = kvt_prefix_next(&chain, prompt->token + at, some, err)))
			kvt_prefix_name(n->name[i][n->count[i]++], &chain);
	}
	return status;
}

static bool is_there(const struct kvt_named *n,
		     bool (*has)(const void *context, const char *name),
		     const void *context)
{
	for (int64_t i = 0; i < n->prompts.count; i++)
		for (int64_t k = 0; k < n->count[i]; k++)
			if (has(context, n->name[i][k]))
				return true;
	return false;
}

static void say_how(struct kvt_named *n, const struct kvt_prefix_key *key)
{
	const char *seed = key->without_vllm ? ", without vLLM" : "";

	if (!key->seed && (key->rule->parts & KVT_PREFIX_SEED) &&
	    key->hash != KVT_PREFIX_BLAKE3 && !key->without_vllm)
		seed = ", no seed";
	n->partial = key->rule->partial;
	snprintf(n->how, sizeof(n->how), "%s%s%s%.20s, by %s",
		 kvt_prefix_hash_name(key->hash), seed, key->seed ? ", seed " : "",
		 key->seed ? key->seed : "", key->rule->what);
}

/* What is asked of one way after the other. */
struct search {
	struct kvt_named *named;
	const char *family, *path;
	bool (*has)(const void *context, const char *name);
	const void *context;
	int tried;			/* ways that could be worked out */
	struct kvt_error why;		/* of the first that could not */
	enum kvt_status refused;
};

/* The first way by which a block of any prompt is there. */
static bool search(struct search *s, const struct told *told)
{
	s->tried = 0;
	for (int w = 0; w < NWAYS; w++) {
		struct kvt_prefix_key key = key_of(&ways[w], told);
		enum kvt_status status = KVT_OK;
		struct kvt_error why;

		if (!is_meant(&ways[w], told, s->family))
			continue;
		for (int64_t i = 0; !status && i < s->named->prompts.count; i++)
			status = name_prompt(s->named, i, &key, &why);
		if (status && !s->refused) {
			s->refused = status;
			s->why = why;
		}
		if (status)
			continue;
		s->tried++;
		say_how(s->named, &key);
		if (is_there(s->named, s->has, s->context))
			return true;
	}
	return false;
}

/* All that was tried is wrong, or there is nothing: what the user says decides. */
static enum kvt_status none_found(struct search *s, const struct told *told,
				  struct kvt_error *err)
{
	bool sglang = !strcmp(s->family, "sglang");
	struct told bare = *told;

	if (!s->tried && s->refused) {
		*err = s->why;
		return s->refused;
	}
	bare.salt = bare.extra_key = bare.lora_path = NULL;
	bare.lora[0] = '\0';
	if ((told->salt || told->extra_key || told->lora[0]) && search(s, &bare))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has blocks of these prompts without what --set=salt, extra-key and lora say, by %s; leave that out, or none of them is there",
				s->path, s->named->how);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: no block is called as one of these prompts would be: it has none of them, or its names were made otherwise: say --set=%s, and --set=salt=TEXT if there was one",
			s->path, sglang ? "extra-key=TEXT" :
			"hash=NAME, --set=seed=PYTHONHASHSEED, which no file has");
}

enum kvt_status kvt_named_find(struct kvt_named *out, const char *family, int64_t unit,
			       bool (*has)(const void *context, const char *name),
			       const void *context, const char *path,
			       const struct kvt_hints *hints, struct kvt_error *err)
{
	struct search s = { .named = out, .family = family, .path = path, .has = has,
			    .context = context };
	enum kvt_status status;
	struct told told;

	*out = (struct kvt_named){ .unit = unit };
	if (!(status = read_told(&told, hints, family, err)) &&
	    !(status = kvt_prompts_read(&out->prompts, &hints->prompts, err)))
		status = reserve(out, path, err);
	if (!status && search(&s, &told))
		return KVT_OK;
	/* all was said, or there is one way: so nothing of them is there */
	if (!status && s.tried == 1 && (told.seed || !strcmp(family, "sglang")) &&
	    !told.salt && !told.extra_key && !told.lora[0])
		return KVT_OK;
	if (!status)
		status = none_found(&s, &told, err);
	kvt_named_free(out);
	return status;
}

/* ---- what is there -------------------------------------------------------- */

static enum kvt_status find_missing(struct kvt_sought *q, const bool *there,
				    const char *path, struct kvt_error *err)
{
	q->missing = calloc((size_t)q->files / 2 + 2, sizeof(*q->missing));
	if (!q->missing)
		return kvt_no_memory(err, path);
	for (int64_t i = 0; i < q->files; i++) {
		struct kvt_range *last = q->nmissing ?
					 &q->missing[q->nmissing - 1] : NULL;

		q->present += there[i];
		if (there[i])
			continue;
		if (last && last->end == i)
			last->end++;
		else
			q->missing[q->nmissing++] = (struct kvt_range){ i, i + 1 };
	}
	return KVT_OK;
}

/* For fsck: blocks that no reader comes to, and those that would make it so. */
static void tell(const struct kvt_sought *q, const struct kvt_hints *hints)
{
	const char *rule = q->present > q->reached ? "prompt.unreachable" :
			   q->present < q->files ? "prompt.missing" : NULL;

	if (rule)
		kvt_tell(hints, rule, "request %.60s, group %s: %s", q->prompt, q->group,
			 kvt_sought_text(q).s);
}

enum kvt_status kvt_sought_add(struct kvt_leaf *leaf, const struct kvt_prompt *prompt,
			       const char *group, const bool *there, int64_t count,
			       int64_t each, int64_t reached,
			       const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_sought *q;
	enum kvt_status status;

	if (!KVT_GROW(&leaf->sought, leaf->nsought))
		return kvt_no_memory(err, leaf->path);
	q = &leaf->sought[leaf->nsought++];
	*q = (struct kvt_sought){ .prompt = strdup(prompt->name), .files = count,
				  .tokens = prompt->ntokens, .each = each,
				  .reached = reached };
	snprintf(q->group, sizeof(q->group), "%s", group);
	if (!q->prompt)
		return kvt_no_memory(err, leaf->path);
	if (!(status = find_missing(q, there, leaf->path, err)))
		tell(q, hints);
	return status;
}
