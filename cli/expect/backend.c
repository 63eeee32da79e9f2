/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.c - could this backend, or a connector, use these bytes?
 *
 * In: a group, and the releases that are meant.  Out: of which of these it is so, or the
 * reasons against it in the newest: vLLM's own, as lib/vllm has them, and where bytes
 * lie.
 */
#include "cli/expect/expect.h"

#include <string.h>

#include "lib/kvt/connect.h"

static void add_reason(char *out, size_t room, const char *reason)
{
	size_t used = strlen(out);

	snprintf(out + used, room - used, "%s%s", used ? ", " : "", reason);
}

/* vLLM's name of a cache of this type; "auto" is the type of the model. */
static const char *cache_dtype(const struct kvt_dtype *dtype)
{
	static const char *const names[][2] = {
		{ "float8_e4m3fn", "fp8_e4m3" }, { "float8_e5m2", "fp8_e5m2" },
		{ "bfloat16", "auto" }, { "float16", "auto" }, { "float32", "auto" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i][0], dtype->name))
			return names[i][1];
	return dtype->name;
}

/* vLLM's word for packed rows; of nvfp4 it has a second one for the same rows. */
static const char *packed_dtype(const struct kvt_content_type *type)
{
	if (!type->vllm)
		return "uint8";
	return strchr(type->vllm, ' ') ? "nvfp4" : type->vllm;
}

/* Numbers of a head, where the bytes tell. */
static int64_t head_size(const struct kvt_group *group)
{
	struct kvt_packing packing;

	if (!group->content.type)
		return group->shape.n[KVT_AXIS_D];
	packing = kvt_group_packing(group);
	return packing.dim && kvt_packing_readable(&packing, NULL) != KVT_UNSUPPORTED ?
	       packing.dim : packing.row_values;
}

bool backend_applies(const struct kvt_group *group)
{
	return group->kind == KVT_FULL_ATTENTION || group->kind == KVT_SLIDING_WINDOW ||
	       group->kind == KVT_CHUNKED_LOCAL || group->kind == KVT_RSWA ||
	       group->kind == KVT_CROSS || group->kind == KVT_MLA;
}

struct kvt_backend_config backend_config(const struct kvt_group *group)
{
	const char *cache = group->content.type ? packed_dtype(group->content.type) :
						  cache_dtype(group->dtype);

	return (struct kvt_backend_config){
		.release = KVT_NEWEST_RELEASE,
		.head_size = head_size(group),
		/* of a quantised cache the type of the model is not known */
		.dtype = strcmp(cache, "auto") ? NULL : group->dtype->name,
		.cache_dtype = cache,
		.block_size = group->block_size,
		.mla = group->kind == KVT_MLA,
		/* these rows are made for attention to some of them only */
		.sparse = strstr(cache, "_ds_mla") != NULL,
		.sliding_window = group->window > 0,
	};
}

/* ---- clauses ------------------------------------------------------------ */

enum { ALL_RELEASES = (1 << KVT_NRELEASES) - 1 };

static unsigned meant(const struct expect_dump *dump)
{
	return dump->releases ? dump->releases : ALL_RELEASES;
}

static enum kvt_release newest_of(unsigned releases)
{
	int r = KVT_NEWEST_RELEASE;

	while (r > 0 && !(releases >> r & 1))
		r--;
	return (enum kvt_release)r;
}

/* What the engine has against it in a release; "": nothing. */
static void engine_reasons(char *out, size_t room, const struct kvt_backend *backend,
			   const struct kvt_backend_config *config)
{
	unsigned reasons = kvt_backend_check(backend, config);

	*out = '\0';
	for (int i = 0; i < KVT_NBACKEND_REASONS; i++)
		if (reasons >> i & 1)
			add_reason(out, room, i == KVT_BACKEND_OWN ?
				   kvt_backend_own_reason(backend, config) :
				   kvt_backend_reason_text((enum kvt_backend_reason)i));
}

static unsigned connector_releases(char *out, size_t room,
				   const struct kvt_backend *backend, unsigned releases)
{
	unsigned found = 0;

	for (int r = 0; r < KVT_NRELEASES; r++)
		if (releases >> r & 1 &&
		    kvt_backend_has_connector(backend, (enum kvt_release)r))
			found |= 1u << r;
	if (!found)
		add_reason(out, room, kvt_backend_reason_text(KVT_BACKEND_CONNECTOR));
	return found;
}

/* Of one that never had these bytes; the reasons of the newest of the releases. */
static void say_never(char *out, size_t room, const struct kvt_backend *backend,
		      const struct expect_dump *dump, const struct kvt_group *group,
		      unsigned releases)
{
	struct kvt_backend_config config = backend_config(group);
	char why[600];

	config.release = newest_of(releases);
	expect_on_config(&config, &dump->on);
	engine_reasons(out, room, backend, &config);
	if (releases == ALL_RELEASES)
		snprintf(why, sizeof(why), "it never used %s",
			 kvt_layout_string(&group->layout).s);
	else
		snprintf(why, sizeof(why), "it does not use %s in release %s",
			 kvt_layout_string(&group->layout).s,
			 kvt_releases_text(releases).s);
	add_reason(out, room, why);
}

unsigned backend_reasons(char *out, size_t room, const struct clause_key *key,
			 const char *value, const struct expect_dump *dump,
			 const struct kvt_group *group)
{
	struct kvt_backend_config config = backend_config(group);
	const struct kvt_backend *backend;
	unsigned releases, fit = 0, had = 0;

	*out = '\0';
	backend = clause_backend(&releases, value);
	if (!backend || !backend_applies(group)) {
		snprintf(out, room, "%s is not an attention cache",
			 kvt_kind_name(group->kind));
		return 0;
	}
	if (!(releases & meant(dump))) {
		snprintf(out, room, "the contract is of release %s",
			 kvt_releases_text(dump->releases).s);
		return 0;
	}
	releases &= meant(dump);
	if (!strcmp(key->name, "supports_kv_connector"))
		return connector_releases(out, room, backend, releases);
	expect_on_config(&config, &dump->on);
	for (int r = KVT_NRELEASES; r--; ) {
		char why[256];

		config.release = (enum kvt_release)r;
		if (!(releases >> r & 1) ||
		    !kvt_backend_writes(backend, &config, &group->layout, &group->shape))
			continue;
		engine_reasons(why, sizeof(why), backend, &config);
		fit |= (unsigned)!*why << r;
		if (!had)
			snprintf(out, room, "%s", why);
		had |= 1u << r;
	}
	if (fit)
		*out = '\0';
	else if (!had)
		say_never(out, room, backend, dump, group, releases);
	return fit;
}

static void add_needs(char *out, size_t room, unsigned unmet)
{
	static const struct {
		unsigned need;
		const char *text;
	} needs[] = {
		{ KVT_NEED_BLOCKS_FIRST, "a block is not one region of a layer" },
		{ KVT_NEED_K_WITH_V, "keys and values of a block are not contiguous" },
		{ KVT_NEED_HEADS_FIRST, "heads of a block are not contiguous" },
		{ KVT_NEED_BLOCK_SIZE, "block size is not a multiple of 16" },
	};

	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
		if (unmet & needs[i].need)
			add_reason(out, room, needs[i].text);
}

unsigned connector_reasons(char *out, size_t room, const char *value,
			   const struct expect_dump *dump, const struct kvt_group *group)
{
	unsigned releases = meant(dump), fit = 0;
	bool unequal = !strcmp(value, "unequal_tp");

	*out = '\0';
	for (int r = 0; r < KVT_NRELEASES; r++)
		if (releases >> r & 1 &&
		    !kvt_connector_unmet((enum kvt_release)r, &group->layout,
					 &group->shape, unequal))
			fit |= 1u << r;
	if (!fit)
		add_needs(out, room, kvt_connector_unmet(newest_of(releases),
							 &group->layout, &group->shape,
							 unequal));
	return fit;
}
