/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - one status and one sentence */
#include "lib/kvt.h"

#include <stdarg.h>
#include <stdio.h>

enum kvt_status kvt_fail(struct kvt_error *err, enum kvt_status status,
			 const char *format, ...)
{
	va_list args;

	if (err) {
		va_start(args, format);
		vsnprintf(err->text, sizeof(err->text), format, args);
		va_end(args);
	}
	return status;
}
