/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tour_log.c - which functions are called, of files compiled with -finstrument-functions
 *
 * For tests/check_tour.py: the address of each function that is entered, less that of
 * one of this file, goes to the file that KVT_TOUR names, 8 bytes a call, in the order of
 * calls.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

void __cyg_profile_func_enter(void *function, void *from);
void __cyg_profile_func_exit(void *function, void *from);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int fd;

static void begin(void)
{
	const char *name = getenv("KVT_TOUR");

	fd = name ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
}

void __cyg_profile_func_enter(void *function, void *from)
{
	int64_t at = (intptr_t)function - (intptr_t)&__cyg_profile_func_exit;

	(void)from;
	pthread_once(&once, begin);
	if (fd >= 0 && write(fd, &at, sizeof(at)) != sizeof(at))
		abort();
}

void __cyg_profile_func_exit(void *function, void *from)
{
	(void)function;
	(void)from;
}
