/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strides.c - the memory order of a tensor whose axes are indexed in another one
 *
 * torch.save() keeps strides, and engines index a cache in one order while it lies in
 * another: vLLM's HND is a tensor [2, B, S, H, D] whose heads are outside the slots.
 * The layout that a user says, or that fits the shape, is that of the indices; where the
 * strides are those of the same bytes without gaps in another order, that order is what
 * a dump is said to have.
 *
 *	indexed    K  B  S   H   D	shape 2, 3, 4, 5, 8
 *	strides    480 160 8 32  1
 *	memory     K  B  H   S   D
 */
#include "formats/tensor/tensors.h"

#include <string.h>

/* Parts of an order that one axis of a tensor has, or several of them joined. */
struct run {
	int first, end;
	int64_t n, stride;	/* of the tensor */
};

static int64_t extent_of(const struct kvt_part *part, const struct kvt_shape *shape)
{
	return part->kind == KVT_WHOLE ? shape->n[part->axis] : 0;
}

/*
 * The parts from 'first' on, a run for each axis above 1; parts of extent 1 go with the
 * run around them.  -1: the tensor has other axes.
 */
static int find_runs(struct run out[KVT_MAX_PARTS], const struct kvt_order *order,
		     int first, const struct kvt_shape *shape, const struct kvt_tensor *t)
{
	int count = 0, part = first;

	for (int axis = 0; axis < t->rank; axis++) {
		struct run *run = &out[count];
		int64_t left = t->shape[axis];

		if (left == 1)
			continue;
		if (count == KVT_MAX_PARTS)
			return -1;
		*run = (struct run){ part, part, left, t->stride[axis] };
		while (left > 1 && part < order->nparts) {
			int64_t n = extent_of(&order->part[part++], shape);

			if (n < 1 || left % n)
				return -1;
			left /= n;
		}
		if (left != 1)
			return -1;
		run->end = part;
		count++;
	}
	for (; part < order->nparts && count; part++) {
		if (extent_of(&order->part[part], shape) != 1)
			return -1;
		out[count - 1].end = part + 1;
	}
	return count;
}

bool kvt_tensor_memory(struct kvt_layout *out, const struct kvt_layout *indexed,
		       const struct kvt_shape *shape, const struct kvt_tensor *t,
		       bool of_layer)
{
	const struct kvt_order *order = &indexed->plane[0];
	int first = of_layer ? 1 : 0, count, at;
	struct run run[KVT_MAX_PARTS];
	int64_t dense = shape->elem;

	if (!t->strided || indexed->nplanes != 1)
		return false;
	while (first < order->nparts && extent_of(&order->part[first], shape) == 1)
		first++;
	if ((count = find_runs(run, order, first, shape, t)) < 1)
		return false;
	for (int i = 1; i < count; i++)			/* slowest first */
		for (int j = i; j > 0 && run[j].stride > run[j - 1].stride; j--) {
			const struct run moved = run[j];

			run[j] = run[j - 1];
			run[j - 1] = moved;
		}
	for (int i = count - 1; i >= 0; dense *= run[i--].n)
		if (run[i].stride != dense)
			return false;
	*out = *indexed;
	at = first;
	for (int i = 0; i < count; i++) {
		int n = run[i].end - run[i].first;

		memcpy(&out->plane[0].part[at], &order->part[run[i].first],
		       (size_t)n * sizeof(order->part[0]));
		at += n;
	}
	return true;
}
