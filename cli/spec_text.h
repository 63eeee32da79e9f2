/* SPDX-License-Identifier: Apache-2.0 */
/* spec_text.h - caches as words, "gqa:layers=80,heads=8", and as a config.json */
#ifndef KVTOOL_SPEC_TEXT_H
#define KVTOOL_SPEC_TEXT_H

#include "formats/model_config.h"

/* The group is named g0; 'word' is cut up and must outlive it. */
KVT_MUST_CHECK enum kvt_status
spec_parse(struct kvt_model_group *out, char *word, struct kvt_error *err);

/* The words that spec_parse() takes for the same. */
struct spec_text {
	char s[512];
};
struct spec_text spec_text(const struct kvt_model_group *group);

KVT_MUST_CHECK enum kvt_status
config_read(struct kvt_model_config *out, const char *path,
	    const struct kvt_config_hints *hints, struct kvt_error *err);

#endif
