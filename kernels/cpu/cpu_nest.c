/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_nest.c - the loops of a plan, sorted into those of a leaf and the rest
 *
 *	leaf	the innermost loop, along the destination (d), with the one whose source
 *		steps are one run (s), and the innermost of the others (b)
 *	rest	odometer: offsets are added on, and taken back at the end of a loop
 *
 * A leaf is one call.  Where its two loops are a transposition of runs of 1 to 16 bytes
 * it is a tile in registers, of an instruction set no wider than a row; else rows are
 * copied.
 */
#include "kernels/cpu/cpu_kernels.h"

/* Which loop, if any, runs along the source. */
static int source_loop(const struct kvt_plan *box)
{
	for (int i = box->nloops - 2; i >= 0; i--)
		if (box->n[i] > 1 && box->src_stride[i] == box->run)
			return i;
	return -1;
}

int kvt_cpu_log2(int64_t run)
{
	int log2 = 0;

	while (log2 < 5 && run != 1 << log2)
		log2++;
	return log2;
}

void kvt_cpu_nest_init(struct cpu_nest *nest, const struct kvt_plan *box,
		       const struct cpu_isa *isa)
{
	const int last = box->nloops - 1, s = source_loop(box);
	const int log2 = kvt_cpu_log2(box->run);

	*nest = (struct cpu_nest){
		.in = { .run = box->run, .nd = 1, .ns = 1, .nb = 1 },
		.leaf = kvt_cpu_rows,
	};
	if (last >= 0) {
		nest->in.nd = box->n[last];
		nest->in.d_src = box->src_stride[last];
		nest->in.d_dst = box->dst_stride[last];
	}
	if (s >= 0) {
		nest->in.ns = box->n[s];
		nest->in.s_src = box->src_stride[s];
		nest->in.s_dst = box->dst_stride[s];
		while (isa->narrower && nest->in.nd * box->run < isa->width)
			isa = isa->narrower;
		nest->isa = isa;
		if (log2 < 5 && nest->in.nd > 1 && nest->in.d_dst == box->run)
			nest->leaf = isa->tile[log2];
	}
	for (int i = 0; i < last; i++) {
		if (i == s || box->n[i] == 1)
			continue;
		nest->n[nest->nloops] = box->n[i];
		nest->src[nest->nloops] = box->src_stride[i];
		nest->dst[nest->nloops++] = box->dst_stride[i];
	}
	if (nest->nloops) {
		const int b = --nest->nloops;

		nest->in.nb = nest->n[b];
		nest->in.b_src = nest->src[b];
		nest->in.b_dst = nest->dst[b];
	}
}

void kvt_cpu_nest_run(char *dst, const char *src, const struct cpu_nest *nest)
{
	int64_t at[KVT_MAX_LOOPS] = { 0 };
	int i;

	do {
		nest->leaf(dst, src, &nest->in);
		for (i = nest->nloops - 1; i >= 0; i--) {
			dst += nest->dst[i];
			src += nest->src[i];
			if (++at[i] < nest->n[i])
				break;
			dst -= nest->dst[i] * nest->n[i];
			src -= nest->src[i] * nest->n[i];
			at[i] = 0;
		}
	} while (i >= 0);
}
