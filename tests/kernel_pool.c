/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_pool.c - one plan on several threads
 *
 * The caller is one of the threads: it has a CPU already, and a copy too small
 * to share wakes nobody.  Shares are several per thread and handed out one by
 * one, so that a thread that was held up does not hold up the rest.
 */
#include "tests/kernel_pool.h"

#include "kernels/cpu/cpu_kernels.h"

#include <pthread.h>
#include <stdlib.h>

enum {
	SHARES_PER_THREAD = 32,	/* the last one leaves others idle */
	SMALLEST_SHARE    = 256 << 10,
};

struct kernel_pool {
	pthread_mutex_t calling;	/* held by who uses the pool */
	pthread_mutex_t lock;		/* guards all below */
	pthread_cond_t work, idle;
	bool quit;

	void *dst;
	const void *src;
	const struct kvt_plan *plan;
	int nplans;
	const struct kvt_kernel *kernel;
	int share, nshares;		/* the next one to take, and how many */
	int busy;			/* threads inside a share */

	int nthreads;			/* that were started: without the caller */
	pthread_t thread[];
};

/* One plan is cut into shares; of several, each share has some. */
static void run_share(const struct kernel_pool *pool, int share, int nshares)
{
	const int64_t n = pool->nplans;
	struct kvt_plan part;

	if (n == 1) {
		part = kvt_plan_part(pool->plan, share, nshares);
		pool->kernel->copy(pool->dst, pool->src, &part);
		return;
	}
	for (int64_t i = n * share / nshares; i < n * (share + 1) / nshares; i++)
		pool->kernel->copy(pool->dst, pool->src, &pool->plan[i]);
}

/* Takes shares until none is left; 'lock' is held on entry and on return. */
static void take_shares(struct kernel_pool *pool)
{
	pool->busy++;
	while (pool->share < pool->nshares) {
		int share = pool->share++, nshares = pool->nshares;

		pthread_mutex_unlock(&pool->lock);
		run_share(pool, share, nshares);
		pthread_mutex_lock(&pool->lock);
	}
	if (!--pool->busy)
		pthread_cond_signal(&pool->idle);
}

static void *worker(void *arg)
{
	struct kernel_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		while (!pool->quit && pool->share == pool->nshares)
			pthread_cond_wait(&pool->work, &pool->lock);
		if (pool->quit)
			break;
		take_shares(pool);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

struct kernel_pool *kernel_pool_new(int nthreads)
{
	struct kernel_pool *pool;

	if (nthreads < 1)
		return NULL;
	pool = calloc(1, sizeof(*pool) +
			 (size_t)(nthreads - 1) * sizeof(pool->thread[0]));
	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->calling, NULL);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->idle, NULL);
	while (pool->nthreads < nthreads - 1 &&
	       !pthread_create(&pool->thread[pool->nthreads], NULL, worker, pool))
		pool->nthreads++;
	if (nthreads > 1 && !pool->nthreads) {
		kernel_pool_free(pool);
		return NULL;
	}
	return pool;
}

void kernel_pool_free(struct kernel_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->quit = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->nthreads; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_cond_destroy(&pool->idle);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	pthread_mutex_destroy(&pool->calling);
	free(pool);
}

void kernel_pool_copy_many(struct kernel_pool *pool, void *dst,
			    const void *src, const struct kvt_plan *plan,
			    int nplans)
{
	const int most = (pool->nthreads + 1) * SHARES_PER_THREAD;
	int64_t nbytes = 0;

	for (int i = 0; i < nplans; i++)
		nbytes += kvt_plan_nbytes(&plan[i]);
	pthread_mutex_lock(&pool->calling);
	pthread_mutex_lock(&pool->lock);
	pool->dst = dst;
	pool->src = src;
	pool->plan = plan;
	pool->nplans = nplans;
	pool->kernel = kvt_cpu_choose_for(nbytes);
	pool->share = 0;
	pool->nshares = most;
	if (nbytes / SMALLEST_SHARE < most)
		pool->nshares = (int)(nbytes / SMALLEST_SHARE) + 1;
	if (pool->nshares > 1)
		pthread_cond_broadcast(&pool->work);
	take_shares(pool);
	while (pool->busy)
		pthread_cond_wait(&pool->idle, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
	pthread_mutex_unlock(&pool->calling);
}

void kernel_pool_copy(struct kernel_pool *pool, void *dst, const void *src,
		       const struct kvt_plan *plan)
{
	kernel_pool_copy_many(pool, dst, src, plan, 1);
}
