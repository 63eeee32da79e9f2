/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_shape.c - the arguments of a kernel, from a plan
 *
 * A thread finds its place by dividing by extents, which are numbers to multiply with: x
 * / n is (the upper half of x * mul, plus x) >> shift.  A unit is as wide as the lowest
 * bit that any address of either side, or the run, has.
 */
#include "kernels/gpu_host.h"

void kvt_gpu_div_init(struct gpu_div *div, uint32_t n)
{
	uint32_t shift = 0;

	while (((uint64_t)1 << shift) < n)
		shift++;
	*div = (struct gpu_div){
		.n = n, .shift = shift,
		.mul = (uint32_t)(((((uint64_t)1 << shift) - n) << 32) / n + 1),
	};
}

/*
 * Bits that some address of a side has, the addresses of all runs being sums
 * of these.  'skip' is a loop that does not count; -1: all do.
 */
static uint64_t side_bits(const void *base, int64_t offset, const int64_t stride[],
			  const struct kvt_plan *plan, int skip)
{
	uint64_t bits = (uint64_t)(uintptr_t)base + (uint64_t)offset;

	for (int i = 0; i < plan->nloops; i++)
		if (i != skip)
			bits |= (uint64_t)stride[i];
	return bits;
}

int kvt_gpu_width(const struct kvt_plan *plan, const void *dst, const void *src)
{
	const uint64_t bits = (uint64_t)plan->run |
		side_bits(dst, plan->dst_offset, plan->dst_stride, plan, -1) |
		side_bits(src, plan->src_offset, plan->src_stride, plan, -1);
	int width = 16;

	while (bits % (uint64_t)width)
		width /= 2;
	return width;
}

void kvt_gpu_dims_init(struct gpu_dims *dims, const struct kvt_plan *plan,
		       int skip1, int skip2)
{
	int at = GPU_DIMS;

	*dims = (struct gpu_dims){ 0 };
	for (int i = plan->nloops - 1; i >= 0; i--) {
		if (i == skip1 || i == skip2)
			continue;
		at--;
		kvt_gpu_div_init(&dims->div[at], (uint32_t)plan->n[i]);
		dims->src[at] = plan->src_stride[i];
		dims->dst[at] = plan->dst_stride[i];
	}
	while (at-- > 0)
		kvt_gpu_div_init(&dims->div[at], 1);
}

/* ---- tiles -------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* n, or if that is less than all a multiple of step; 0 if there is none. */
static int64_t whole_steps(int64_t n, int64_t all, int64_t step)
{
	return n >= all ? all : n / step * step;
}

/*
 * Entries of both loops, so that rows of either side begin at multiples of
 * 'line' bytes of it and the tile is as square as they allow.
 */
static bool shape_tile(int64_t *td, int64_t *ts, int64_t nd, int64_t ns,
		       int64_t run, int64_t pad, int64_t line)
{
	const int64_t step = line / kvt_gcd(line, run), room = GPU_TILE_BYTES;
	int64_t side = 1;

	while ((side + 1) * (side + 1) * run <= room)
		side++;
	*ts = whole_steps(side > step ? side : step, ns, step);
	*td = whole_steps(room / (*ts * run + 2 * pad), nd, step);
	if (!*td)
		return false;
	/* a short side leaves room to the other one */
	*ts = whole_steps((room / *td - 2 * pad) / run, ns, step);
	return *ts > 0;
}

static int loop_of(const int64_t stride[], const struct kvt_plan *plan)
{
	for (int i = plan->nloops - 1; i >= 0; i--)
		if (stride[i] == plan->run)
			return i;
	return -1;
}

static void tile_counts(struct gpu_tile *t, const struct kvt_plan *plan,
			int unit)
{
	const uint32_t in = t->wide_in ? 16 : (uint32_t)unit;
	const uint32_t out = t->wide_out ? 16 : (uint32_t)unit;

	kvt_gpu_div_init(&t->tiles_d, (t->nd + t->td - 1) / t->td);
	kvt_gpu_div_init(&t->tiles_s, (t->ns + t->ts - 1) / t->ts);
	kvt_gpu_div_init(&t->row_in, t->ts * t->run / in);
	kvt_gpu_div_init(&t->rows_in, t->td);
	kvt_gpu_div_init(&t->row_out, t->td * t->run / out);
	kvt_gpu_div_init(&t->rows_out, t->ts);
	kvt_gpu_div_init(&t->units, t->run / (uint32_t)unit);
	t->tiles = (uint32_t)(kvt_plan_nruns(plan) / t->nd / t->ns) *
		   t->tiles_d.n * t->tiles_s.n;
	t->per_block = (uint32_t)least(GPU_TILE_BYTES / t->tile_pitch,
				       GPU_TILE_PLACES);
	t->per_block = (uint32_t)least(t->per_block, t->tiles);
}

bool kvt_gpu_tile_init(struct gpu_tile *tile, const struct kvt_plan *plan,
		       const void *dst, const void *src)
{
	const int d = loop_of(plan->dst_stride, plan);
	const int s = loop_of(plan->src_stride, plan);
	const int unit = kvt_gpu_width(plan, dst, src), pad = unit > 4 ? unit : 4;
	int64_t td, ts, line;

	if (d < 0 || s < 0 || d == s || plan->nloops > GPU_DIMS + 2 ||
	    plan->run > GPU_TILE_BYTES / 8)
		return false;
	for (line = 128; line >= 16; line /= 2)
		if (shape_tile(&td, &ts, plan->n[d], plan->n[s], plan->run, pad, line))
			break;
	if (line < 16 &&
	    !shape_tile(&td, &ts, plan->n[d], plan->n[s], plan->run, pad, unit))
		return false;
	*tile = (struct gpu_tile){
		.src_d = plan->src_stride[d], .dst_s = plan->dst_stride[s],
		.nd = (uint32_t)plan->n[d], .ns = (uint32_t)plan->n[s],
		.td = (uint32_t)td, .ts = (uint32_t)ts,
		.run = (uint32_t)plan->run,
		.pitch = (uint32_t)((ts * plan->run + pad - 1) / pad * pad + pad),
		.wide_in = !((side_bits(src, plan->src_offset, plan->src_stride,
					plan, s) | (uint64_t)(ts * plan->run) |
			      (uint64_t)(plan->n[s] * plan->run)) % 16),
		.wide_out = !((side_bits(dst, plan->dst_offset, plan->dst_stride,
					 plan, d) | (uint64_t)(td * plan->run) |
			       (uint64_t)(plan->n[d] * plan->run)) % 16),
	};
	tile->tile_pitch = tile->pitch * tile->td;
	kvt_gpu_dims_init(&tile->dims, plan, d, s);
	tile_counts(tile, plan, unit);
	return true;
}

/*
 * A line of 128 bytes is what a request moves at best.  Runs shorter than that come in
 * and go out as whole lines only by way of a tile, if both its sides are 16 bytes wide;
 * of runs shorter than one access, a tile of narrow sides is still better than none.
 * Measured: bench/GPU.md.
 */
bool kvt_gpu_tile_pays(const struct gpu_tile *t)
{
	return t->run < 16 || (t->run < 128 && t->wide_in && t->wide_out);
}
