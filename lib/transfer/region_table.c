/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region_table.c - rows of blocks: where they end, and whether two of them meet
 *
 * A row is blocks of one length at one stride, as a connector registers them.  Two rows
 * meet if some block of one shares a byte with some of the other: a question about
 * multiples modulo a stride, answered as Euclid's algorithm does, so that its cost does
 * not depend on how many blocks there are.
 */
#include "lib/transfer/region_table.h"

__extension__ typedef __int128 wide;

const char *kvt_region_part_name(enum kvt_region_part part)
{
	static const char *const names[] = {
		[KVT_REGION_KV] = "kv", [KVT_REGION_K] = "k", [KVT_REGION_V] = "v",
		[KVT_REGION_STATE] = "state",
	};

	return names[part];
}

int64_t kvt_rows_end(const struct kvt_rows *rows)
{
	return rows->base + (rows->blocks - 1) * rows->stride + rows->len;
}

struct kvt_rows kvt_rows_joined(const struct kvt_rows *rows, int64_t ratio)
{
	return (struct kvt_rows){
		rows->base, rows->stride * ratio, rows->blocks / ratio,
		(ratio - 1) * rows->stride + rows->len
	};
}

/*
 * The least x of 0 or more with low <= step * x mod m <= high, or -1.  As in Euclid's
 * algorithm: unless a multiple of the step lies in the range itself, x follows from
 * how often m must be taken off, which is the same question with a smaller modulus.
 */
static wide first_within(wide step, wide m, wide low, wide high)
{
	wide times, turns;

	if (low == 0)
		return 0;
	if (step == 0)
		return -1;
	times = (low + step - 1) / step;
	if (times * step <= high)
		return times;
	turns = first_within(m % step, step, (step - high % step) % step,
			     (step - low % step) % step);
	return turns < 0 ? -1 : (low + m * turns + step - 1) / step;
}

static int64_t floor_div(int64_t n, int64_t d)
{
	return n / d - (n % d < 0);
}

/*
 * Block i of a starts at an offset of i * a->stride + c, counted so that it meets block
 * j of b where that offset is within a window at j * b->stride.
 */
bool kvt_rows_meet(int64_t *i, int64_t *j, const struct kvt_rows *a,
		   const struct kvt_rows *b)
{
	int64_t c = a->base - b->base + a->len - 1, window = a->len + b->len - 1;
	int64_t begin = c >= 0 ? 0 : (-c + a->stride - 1) / a->stride;
	int64_t end = floor_div((b->blocks - 1) * b->stride + window - 1 - c, a->stride);
	int64_t at, low;
	wide x = 0;

	/* within the extent of b there may be a block of a, from 'begin' to 'end' */
	if (end > a->blocks - 1)
		end = a->blocks - 1;
	if (begin > end)
		return false;
	at = (c + begin * a->stride) % b->stride;
	if (at >= window) {
		low = b->stride - at;
		x = first_within(a->stride % b->stride, b->stride, low, low + window - 1);
		if (x < 0 || x > end - begin)
			return false;
	}
	*i = begin + (int64_t)x;
	*j = (c + *i * a->stride) / b->stride;
	/* beyond the last block of b, where blocks are longer than the stride */
	if (*j > b->blocks - 1)
		*j = b->blocks - 1;
	return true;
}
