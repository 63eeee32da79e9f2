/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aggregate.c - when all workers have finished with a request
 *
 * A countdown from the expected number of reports, begun by the first one, as vLLM's
 * KVOutputAggregator keeps it: it does not ask who reports, so that two reports of one
 * worker count as of two.
 */
#include "lib/kvt/connect.h"

const char *kvt_direction_name(enum kvt_direction d)
{
	return d == KVT_SENDING ? "finished_sending" : "finished_recving";
}

int64_t kvt_expected_reports(int64_t now, int64_t from_worker)
{
	return from_worker > 0 ? from_worker : now;
}

bool kvt_countdown_report(struct kvt_countdown *c, int64_t expected)
{
	if (c->left == 0)
		c->left = c->expected = expected > 0 ? expected : 1;
	c->left--;
	c->rounds += c->left == 0;
	return c->left == 0;
}
