/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.h - numbers as people write them
 *
 * A whole number is digits, or 0x and digits of base 16; one that is the end of a word
 * may have a k, M, G or T behind it, powers of 1024.  None has a '+' or a space.
 */
#ifndef KVT_NUMBER_H
#define KVT_NUMBER_H

#include <stddef.h>

#include "lib/kvt/base.h"

/* Digits at *text, which moves behind them, of a number that has a next one. */
bool kvt_number_take(int64_t *out, const char **text);
/* All of the text: "4096", "4k", "0x1000". */
bool kvt_number_parse(int64_t *out, const char *text);
/* "0.5", "-1e-3": text[0..length), which is finite. */
bool kvt_real_parse(double *out, const char *text, size_t length);

#endif
