/* SPDX-License-Identifier: Apache-2.0 */
/* scales.h - scales of an fp8 cache, from where an engine reads them */
#ifndef KVT_SCALES_H
#define KVT_SCALES_H

#include "formats/format.h"

/*
 * Those of the layers of a group, [L][2][*heads], malloc()ed, from
 *
 *   a .safetensors of a checkpoint: tensors NAME.layers.N.ANY.k_scale and .v_scale, of
 *   one number or one for each head, as vLLM loads them;
 *   JSON of vLLM's and SGLang's --quantization-param-path: kv_cache.scaling_factor, of
 *   rank and layer;
 *   a manifest of a dump that was cast: its "cast".
 *
 * KVT_BAD_INPUT: it is none of them, or has none for a layer.
 */
KVT_MUST_CHECK enum kvt_status
kvt_scales_read(float **out, int64_t *heads, const struct kvt_snapshot *snapshot,
		int group, const char *path, struct kvt_error *err);

#endif
