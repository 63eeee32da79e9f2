/* SPDX-License-Identifier: Apache-2.0 */
/*
 * release.h - which release of vLLM a fact is of
 *
 * Layouts, backends and rules change without any setting: an answer names the release
 * that it is of.  Known are those whose sources were read, and no others are guessed.
 */
#ifndef KVT_RELEASE_H
#define KVT_RELEASE_H

#include "lib/kvt/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kvt_release {		/* the oldest first: later ones compare greater */
	KVT_VLLM_0_22,
	KVT_VLLM_0_24,
	KVT_VLLM_0_26,
	KVT_VLLM_0_32,
	KVT_NRELEASES
};
#define KVT_NEWEST_RELEASE ((enum kvt_release)(KVT_NRELEASES - 1))

const char *kvt_release_name(enum kvt_release release);		/* "0.32" */

/* What changed with it, in a few words. */
const char *kvt_release_summary(enum kvt_release release);

/* "0.26, 0.32" of bits 1u << release. */
struct kvt_text kvt_releases_text(unsigned releases);

/* "0.32", "0.32.1" or "v0.32"; KVT_USAGE, with all that are known, for any other. */
KVT_MUST_CHECK enum kvt_status
kvt_release_parse(enum kvt_release *out, const char *text, struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
