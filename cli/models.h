/* SPDX-License-Identifier: Apache-2.0 */
/* models.h - models by name, from the files that say which caches they need */
#ifndef KVTOOL_MODELS_H
#define KVTOOL_MODELS_H

#include "formats/model/config.h"

/* Which model, as every command that needs one is told. */
struct model_words {
	const char *model, *config;	/* one option with two names */
	const char *folder;		/* of the models that have names; NULL: ours */
};

#define OPT_MODEL(p) \
	{ "model", 'm', OPT_STRING, &(p)->model, "NAME|FILE", \
	  "a model: a name of --model=list, or its config.json" }, \
	{ "config", 0, OPT_STRING, &(p)->config, "NAME|FILE", NULL }, \
	{ "models", 0, OPT_STRING, &(p)->folder, "DIR", \
	  "folder of the models that --model=list prints" }

/* What was said, or NULL; KVT_USAGE if it was said twice. */
KVT_MUST_CHECK enum kvt_status
model_said(const char **out, const struct model_words *words, struct kvt_error *err);

/* Was it asked for the list? */
bool model_list_asked(const struct model_words *words);

/*
 * A file if there is a .json in the name, or a slash and the file is there, or it is
 * "-"; else a model of the folder, by its name or an id of the Hugging Face hub; else a
 * file or a folder with a config.json after all.
 */
KVT_MUST_CHECK enum kvt_status
model_read(struct kvt_model_config *out, const char *name, const char *folder,
	   const struct kvt_config_hints *hints, struct kvt_error *err);

/*
 * The model whose caches "meta-llama/Llama-3.1-8B-Instruct" has, in any case of letters;
 * NULL: the id is not known.  What it is like: what its name, without the owner, begins
 * with, or NULL.
 */
const char *model_of_id(const char *id);
const char *model_like_id(const char *id);

/* A line for each group of each model of the folder. */
KVT_MUST_CHECK enum kvt_status models_print(const char *folder, struct kvt_error *err);

#endif
