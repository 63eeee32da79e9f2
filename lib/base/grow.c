/* SPDX-License-Identifier: Apache-2.0 */
/* grow.c - the one place where lists double; the only allocation of the pure rooms */
#include "lib/base/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool kvt_grow(void *list, int64_t n, size_t size)
{
	size_t room = n ? 2 * (size_t)n : 1, nbytes;
	void *at;

	if (n & (n - 1))
		return true;
	if (__builtin_mul_overflow(room, size, &nbytes) || nbytes > PTRDIFF_MAX)
		return false;
	/* a pointer of any type, which is read and written as its bytes */
	memcpy(&at, list, sizeof(at));
	if (!(at = realloc(at, nbytes)))
		return false;
	memcpy(list, &at, sizeof(at));
	return true;
}
