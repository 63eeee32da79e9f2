/* SPDX-License-Identifier: Apache-2.0 */
/* models.h - models by name, from the files that say which caches they need */
#ifndef KVTOOL_MODELS_H
#define KVTOOL_MODELS_H

#include "formats/model/config.h"

#define OPT_MODELS(p) { "models", 0, OPT_STRING, p, "DIR", \
			"folder of the models; default: what was installed" }

/*
 * A name with a slash or .json in it is a file, any other that of a file in
 * 'folder'; NULL: the folder beside the program.
 */
KVT_MUST_CHECK enum kvt_status
model_read(struct kvt_model_config *out, const char *name, const char *folder,
	   const struct kvt_config_hints *hints, struct kvt_error *err);

/* The file itself, whatever its name. */
KVT_MUST_CHECK enum kvt_status
model_read_file(struct kvt_model_config *out, const char *path,
		const struct kvt_config_hints *hints, struct kvt_error *err);

/* A line for each group of each model of the folder. */
KVT_MUST_CHECK enum kvt_status models_print(const char *folder, struct kvt_error *err);

#endif
