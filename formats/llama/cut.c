/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - how much is whole of a state file that ends too early
 *
 * Positions come before the keys of all layers, and these before all values: so of the
 * tokens that are listed everything, some layers, or nothing is there.
 */
#include "formats/llama/llama.h"

#include <stdio.h>

static enum kvt_status tell_cells(const struct kvt_llama_cursor *c, int64_t listed)
{
	const struct kvt_llama_cut *cut = &c->cut;

	return kvt_fail(c->err, KVT_BAD_INPUT,
			"%s: cut: it has %lld bytes, and ends in its list of positions: %lld of %lld are whole, %lld token ids before them, and no keys or values",
			c->file->path, LL(c->file->nbytes), LL(cut->there), LL(cut->of),
			LL(listed));
}

static enum kvt_status tell_states(const struct kvt_llama_cursor *c)
{
	const struct kvt_llama_cut *cut = &c->cut;

	return kvt_fail(c->err, KVT_BAD_INPUT,
			"%s: cut: it has %lld bytes, but recurrent states would end at byte %lld; %lld rows of layers are whole, and what is before byte %lld",
			c->file->path, LL(c->file->nbytes), LL(cut->end), LL(cut->layer),
			LL(cut->at));
}

enum kvt_status kvt_llama_tell_cut(const struct kvt_llama_cursor *c, int64_t listed)
{
	const struct kvt_llama_cut *cut = &c->cut;
	const bool values = cut->part == KVT_LLAMA_VALUES;
	char whole[120];

	if (cut->part == KVT_LLAMA_CELLS)
		return tell_cells(c, listed);
	if (cut->part == KVT_LLAMA_STATES)
		return tell_states(c);
	snprintf(whole, sizeof(whole), values ? "keys of all layers and values of %lld" :
		 "keys of %lld layers, no values", LL(cut->layer));
	return kvt_fail(c->err, KVT_BAD_INPUT,
			"%s: cut: it has %lld bytes, but %s of layer %lld of %lld would end at byte %lld; whole are %s, and %lld of %lld %s of this layer",
			c->file->path, LL(c->file->nbytes), values ? "values" : "keys",
			LL(cut->layer), LL(cut->nlayers), LL(cut->end), whole,
			LL(cut->there), LL(cut->of), cut->turned ? "elements" : "rows");
}
