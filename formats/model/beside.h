/* SPDX-License-Identifier: Apache-2.0 */
/* beside.h - what stands around a config.json, and in its place */
#ifndef KVT_MODEL_BESIDE_H
#define KVT_MODEL_BESIDE_H

#include "formats/format.h"

/* The type of the weights in the folder, and of which file; NULL: it has none. */
const char *kvt_weights_type(const char *folder, char file[static 256]);

/*
 * A params.json of Mistral's as a config.json: malloc()ed; NULL, and KVT_OK: it is none.
 * KVT_UNSUPPORTED: a key in it that may concern the cache is not known.
 */
KVT_MUST_CHECK enum kvt_status
kvt_params_text(char **out, const char *text, size_t nbytes, const char *name,
		struct kvt_error *err);

#endif
