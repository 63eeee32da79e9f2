/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - the time that deadlines are points of */
#include "sim/wire/socket.h"

#include <time.h>

int64_t wire_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
