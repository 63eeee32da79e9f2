/* SPDX-License-Identifier: Apache-2.0 */
/* tell.c - what is told of while a dump is opened, and does not stop it */
#include "formats/format.h"

#include <stdarg.h>
#include <stdio.h>

void kvt_tell(const struct kvt_hints *hints, const char *rule, const char *format, ...)
{
	const struct kvt_inspector *inspector = hints ? hints->inspector : NULL;
	char text[400];
	va_list args;

	if (!inspector)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	inspector->found(inspector->context, rule, text);
}
