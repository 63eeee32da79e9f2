/* SPDX-License-Identifier: Apache-2.0 */
/* number_rows.h - rows of whole numbers as engines log them, in JSON, npy or text */
#ifndef KVT_NUMBER_ROWS_H
#define KVT_NUMBER_ROWS_H

#include <jansson.h>

#include "lib/kvt/kvt.h"

/*
 * What is in a file, as an object of rows:
 * {"0": [5, 2, 9], "1": [7]}.  A list of lists, or an array of two axes, has a row each,
 * named by its number; one list is one row, "0"; an object of lists names them itself.
 * Numbers below 0 are at the end of a row alone, where engines pad with them, and are
 * dropped.  To be decref'd by the caller.
 */
KVT_MUST_CHECK enum kvt_status
kvt_number_rows_read(json_t **rows, const char *path, struct kvt_error *err);

#endif
