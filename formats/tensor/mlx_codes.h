/* SPDX-License-Identifier: Apache-2.0 */
/* mlx_codes.h - quantised arrays of mlx */
#ifndef KVT_MLX_CODES_H
#define KVT_MLX_CODES_H

#include "formats/tensor/tensors.h"

/*
 * Settles what tensors of a QuantizedKVCache are: NAME.0, NAME.1 and NAME.2 are codes,
 * called NAME from here on, their scales and biases.  KVT_BAD_INPUT where they do not fit
 * the bits that the file says, or where it says none and they fit several.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_codes(struct kvt_tensors *tensors, const char *path, struct kvt_error *err);

#endif
