/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - the file of a block, or its key in a store
 *
 *	vLLM		762/b2_g0/762b2e7e15...bin	below <root>/<model>_<digest>_r0
 *	LMCache		org/m@1@0@-18f13b82...@bfloat16	a key; of files slashes vary
 *	LMCache MP	org-SEP-m@0x01000100@0@6309...[@salt].data
 *	SGLang		cf97adee..._org-m_0_2.bin	ranks where pages are unlike
 */
#include <stdio.h>
#include <string.h>

#include "lib/kvt/prefix.h"

/* The model's name with something else for each slash. */
static bool put_model(char *out, size_t room, const char *model, const char *slash)
{
	size_t n = 0, m = strlen(slash);

	for (; *model; model++) {
		if (n + m + 1 >= room)
			return false;
		if (*model == '/') {
			memcpy(out + n, slash, m);
			n += m;
		} else {
			out[n++] = *model;
		}
	}
	out[n] = '\0';
	return true;
}

static bool fits(int n, size_t room)
{
	return n > 0 && (size_t)n < room;
}

static bool sglang_file(char *out, size_t room, const char *name, const char *model,
			const struct kvt_prefix_place *place)
{
	if (!place->rank.size)
		return fits(snprintf(out, room, "%s_%s.bin", name, model), room);
	return fits(snprintf(out, room, "%s_%s_%lld_%lld.bin", name, model,
			     LL(place->rank.index), LL(place->rank.size)), room);
}

/* Ranks of all machines and of this one are the same: one machine. */
static bool lmcache_file(char *out, size_t room, const char *name, const char *model,
			 const struct kvt_prefix_place *place)
{
	struct kvt_rank rank = place->rank.size ? place->rank : (struct kvt_rank){ 1, 0 };
	unsigned long long size = (unsigned long long)rank.size & 255;
	unsigned long long index = (unsigned long long)rank.index & 255;

	return fits(snprintf(out, room, "%s@0x%02llx%02llx%02llx%02llx@%llx@%s%s%s.data",
			     model, size, index, size, index,
			     (unsigned long long)place->group, name,
			     place->salt ? "@" : "", place->salt ? place->salt : ""),
		    room);
}

bool kvt_prefix_file(char *out, size_t room, const struct kvt_prefix *prefix,
		     const struct kvt_prefix_place *place)
{
	enum kvt_prefix_form form = prefix->key->rule->form;
	struct kvt_rank rank = place->rank.size ? place->rank : (struct kvt_rank){ 1, 0 };
	char name[KVT_PREFIX_NAME], model[512] = "";
	const char *slash = form == KVT_PREFIX_SGLANG ? "-" :
			    form == KVT_PREFIX_LMCACHE_MP ? "-SEP-" : "/";

	kvt_prefix_name(name, prefix);
	if (form == KVT_PREFIX_VLLM)
		return fits(snprintf(out, room, "%.3s/%.2s_g%lld/%s.bin", name, name + 3,
				     LL(place->group), name), room);
	if (!place->model || !put_model(model, sizeof(model), place->model, slash))
		return false;
	if (form == KVT_PREFIX_SGLANG)
		return sglang_file(out, room, name, model, place);
	if (form == KVT_PREFIX_LMCACHE_MP)
		return lmcache_file(out, room, name, model, place);
	return form == KVT_PREFIX_LMCACHE && place->dtype &&
	       fits(snprintf(out, room, "%s@%lld@%lld@%s@%s", model, LL(rank.size),
			     LL(rank.index), name, place->dtype), room);
}
