/* SPDX-License-Identifier: Apache-2.0 */
/* turn.c - one thread at a time: turn.h */
#include "lib/run/turn.h"

#include <pthread.h>
#include <stdlib.h>

struct turn {
	pthread_mutex_t taken;
};

enum kvt_status turn_new(struct turn **out, struct kvt_error *err)
{
	*out = malloc(sizeof(**out));
	if (*out && !pthread_mutex_init(&(*out)->taken, NULL))
		return KVT_OK;
	free(*out);
	*out = NULL;
	return kvt_no_memory(err, NULL);
}

void turn_free(struct turn *turn)
{
	if (turn)
		pthread_mutex_destroy(&turn->taken);
	free(turn);
}

void turn_take(struct turn *turn)
{
	if (turn)
		pthread_mutex_lock(&turn->taken);
}

void turn_give(struct turn *turn)
{
	if (turn)
		pthread_mutex_unlock(&turn->taken);
}
