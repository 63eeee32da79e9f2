/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the caches of a model, out of its config.json or a list of them */
#ifndef KVT_MODEL_CONFIG_H
#define KVT_MODEL_CONFIG_H

#include <stddef.h>

#include "formats/model/gguf.h"
#include "formats/model/held.h"
#include "lib/kvt/model.h"

/* What the user says besides: it overrides the file. */
struct kvt_config_hints {
	const char *family;		/* read it as this model_type; NULL: its own */
	int nset;
	const char *const *set;		/* "KEY=VALUE"; a VALUE is JSON, or a string */
	const char *ssm_dtype;		/* of recurrent states; NULL: the file's */
	struct kvt_held *held;		/* what transformers holds; NULL: not asked for */
};

enum { KVT_CONFIG_NOTES = 8 };

struct kvt_model_config {
	struct kvt_model model;
	char family[64];		/* "": a list that does not say */
	int64_t draft_layers;		/* that only draft (MTP); -1: two numbers */
	int64_t layers;			/* in all, with those that cache nothing */
	int64_t block_size;		/* what engines use by default */
	const struct kvt_dtype *dtype;	/* of the weights; NULL: not said */
	char cache_dtype[32];		/* vLLM's "auto"; "": it cannot be told */
	char no_auto[160];		/* why; "": no type is said */
	int nnotes;			/* what was assumed, or set aside */
	char note[KVT_CONFIG_NOTES][160];
	struct kvt_llama_model llama;	/* of a GGUF only */
};

/*
 * 'text' is a Hugging Face config.json, or has "groups" of "name" and "spec" as
 * 'kvtool size --json' prints them.
 * KVT_UNSUPPORTED: a model_type without rules, or numbers that no engine's
 * cache is known for; KVT_BAD_INPUT: malformed, contradictory or incomplete.
 * 'name' is for messages.
 */
KVT_MUST_CHECK enum kvt_status
kvt_model_config_parse(struct kvt_model_config *out, const char *text, size_t nbytes,
		       const char *name, const struct kvt_config_hints *hints,
		       struct kvt_error *err);

/*
 * The same of a file: a config.json, a list of caches or a GGUF; or of a folder that has
 * one of them (open.c).
 */
KVT_MUST_CHECK enum kvt_status
kvt_model_open(struct kvt_model_config *out, const char *path,
	       const struct kvt_config_hints *hints, struct kvt_error *err);

#endif
