/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_layout.c - the order that vLLM gives the caches of a model
 *
 * In: of each worker the layouts that its backends take, in their order of preference,
 * and those that connectors ask for.  Out: one for all, or why there is none.  Rows are
 * the six of KVCacheLayout in vLLM 0.32; NHD and HND are the words of releases before
 * for LBNHC and LBHNC.
 */
#include "lib/kvt/choice.h"

#include <stdio.h>
#include <string.h>

/* ---- names -------------------------------------------------------------- */

static const struct {
	const char *name;
	bool block_compact, block_outermost;
} layouts[KVT_NKV_LAYOUTS] = {
	[KVT_LBHNC] = { "LBHNC", true, false },
	[KVT_LBNHC] = { "LBNHC", true, false },
	[KVT_LHBNC] = { "LHBNC", false, false },
	[KVT_BLHNC] = { "BLHNC", true, true },
	[KVT_BLNHC] = { "BLNHC", true, true },
	[KVT_BHLNC] = { "BHLNC", false, true },
};

/* Of workers whose backends declare nothing. */
static const struct kvt_kv_layouts preference = { KVT_NKV_LAYOUTS, {
	KVT_LBNHC, KVT_LBHNC, KVT_BLNHC, KVT_BLHNC, KVT_BHLNC, KVT_LHBNC,
} };

const char *kvt_kv_layout_name(enum kvt_kv_layout layout)
{
	return layouts[layout].name;
}

const char *kvt_kv_layout_word(enum kvt_kv_layout layout, enum kvt_release release)
{
	return release >= KVT_VLLM_0_32 ? layouts[layout].name :
	       layout == KVT_LBNHC ? "NHD" : "HND";
}

bool kvt_kv_layout_block_compact(enum kvt_kv_layout layout)
{
	return layouts[layout].block_compact;
}

bool kvt_kv_layout_block_outermost(enum kvt_kv_layout layout)
{
	return layouts[layout].block_outermost;
}

enum kvt_status kvt_kv_layout_parse(enum kvt_kv_layout *out, const char *name,
				    struct kvt_error *err)
{
	const char *known = !strcmp(name, "NHD") ? "LBNHC" :
			    !strcmp(name, "HND") ? "LBHNC" : name;

	for (int i = 0; i < KVT_NKV_LAYOUTS; i++)
		if (!strcmp(layouts[i].name, known)) {
			*out = (enum kvt_kv_layout)i;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_USAGE,
			"'%.20s' is no layout of vLLM, expected LBHNC (HND), LBNHC (NHD), LHBNC, BLHNC, BLNHC or BHLNC", name);
}

/* ---- lists -------------------------------------------------------------- */

static bool has(const struct kvt_kv_layouts *list, enum kvt_kv_layout layout)
{
	for (int i = 0; i < list->n; i++)
		if (list->at[i] == layout)
			return true;
	return false;
}

enum kvt_status kvt_kv_layouts_parse(struct kvt_kv_layouts *out, const char *names,
				     struct kvt_error *err)
{
	static const char between[] = " ,";
	struct kvt_kv_layouts list = { .n = 0 };
	enum kvt_kv_layout layout;
	enum kvt_status status;

	while (*(names += strspn(names, between))) {
		size_t n = strcspn(names, between);
		char name[24];

		snprintf(name, sizeof(name), "%.*s", (int)(n < 23 ? n : 23), names);
		if ((status = kvt_kv_layout_parse(&layout, name, err)))
			return status;
		if (has(&list, layout))
			return kvt_fail(err, KVT_USAGE, "%s is listed twice", name);
		list.at[list.n++] = layout;
		names += n;
	}
	*out = list;
	return KVT_OK;
}

static struct kvt_text list_text(const struct kvt_kv_layouts *list)
{
	struct kvt_text text = { "" };
	size_t n = 0;

	for (int i = 0; i < list->n && n < sizeof(text.s); i++)
		n += (size_t)snprintf(text.s + n, sizeof(text.s) - n, "%s%s",
				      i ? ", " : "", layouts[list->at[i]].name);
	return text;
}

static bool equal(const struct kvt_kv_layouts *a, const struct kvt_kv_layouts *b)
{
	return a->n == b->n && !memcmp(a->at, b->at, (size_t)a->n * sizeof(a->at[0]));
}

/* Stable: those of equal votes stay in the enum's order. */
static void sort_by_votes(struct kvt_kv_layouts *list, const int votes[KVT_NKV_LAYOUTS])
{
	for (int i = 1; i < list->n; i++) {
		enum kvt_kv_layout layout = list->at[i];
		int j = i;

		for (; j > 0 && votes[list->at[j - 1]] < votes[layout]; j--)
			list->at[j] = list->at[j - 1];
		list->at[j] = layout;
	}
}

enum kvt_status kvt_kv_layouts_common(struct kvt_kv_layouts *out,
				      const struct kvt_kv_layouts *list, int n,
				      struct kvt_error *err)
{
	int votes[KVT_NKV_LAYOUTS] = { 0 }, in[KVT_NKV_LAYOUTS] = { 0 }, declared = 0;
	const struct kvt_kv_layouts *first = NULL;
	struct kvt_kv_layouts common = { .n = 0 };
	bool alike = true;

	for (int i = 0; i < n; i++) {
		if (!list[i].n)
			continue;
		first = first ? first : &list[i];
		alike &= equal(first, &list[i]);
		declared++;
		votes[list[i].at[0]]++;
		for (int j = 0; j < list[i].n; j++)
			in[list[i].at[j]]++;
	}
	if (!first || alike) {
		*out = first ? *first : preference;
		return KVT_OK;
	}
	for (int i = 0; i < KVT_NKV_LAYOUTS; i++)
		if (in[i] == declared)
			common.at[common.n++] = (enum kvt_kv_layout)i;
	if (!common.n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"no layout is in every list: %d backends declare one",
				declared);
	sort_by_votes(&common, votes);
	*out = common;
	return KVT_OK;
}

/* ---- one for all -------------------------------------------------------- */

static bool same_shape(const struct kvt_layout_spec *a, const struct kvt_layout_spec *b)
{
	return a->heads == b->heads && a->states == b->states && a->page == b->page;
}

static void keep(struct kvt_kv_layouts *list, bool (*wanted)(enum kvt_kv_layout layout))
{
	int n = 0;

	for (int i = 0; i < list->n; i++)
		if (wanted(list->at[i]))
			list->at[n++] = list->at[i];
	list->n = n;
}

/* Specs of several shapes need an order in which a page is one run, ... */
static enum kvt_status ask_shapes(struct kvt_kv_layouts *candidates,
				  const struct kvt_layout_request *r,
				  struct kvt_error *err)
{
	struct kvt_text before = list_text(candidates);
	bool mixed = false;

	for (int i = 1; i < r->nspecs; i++)
		mixed |= !same_shape(&r->spec[0], &r->spec[i]);
	if (!mixed)
		return KVT_OK;
	keep(candidates, kvt_kv_layout_block_compact);
	return candidates->n ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT,
			"specs of several shapes need a layout in which a page is one run, and there is none in %s", before.s);
}

/* ... and those of which DCP shards some one in which blocks come first. */
static enum kvt_status ask_dcp(struct kvt_kv_layouts *candidates,
			       const struct kvt_layout_request *r, struct kvt_error *err)
{
	bool pages = false, sharded = false, whole = false;
	struct kvt_text before = list_text(candidates);

	for (int i = 0; i < r->nspecs; i++) {
		pages |= r->spec[i].page != r->spec[0].page;
		sharded |= r->spec[i].dcp_sharded == 1;
		whole |= r->spec[i].dcp_sharded == 0;
	}
	if (!pages || !sharded || !whole)
		return KVT_OK;
	keep(candidates, kvt_kv_layout_block_outermost);
	return candidates->n ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT,
			"sharded and whole caches with pages of several sizes need a layout with blocks outermost, and there is none in %s",
			before.s);
}

static enum kvt_status ask_workers(struct kvt_kv_layouts *out,
				   const struct kvt_layout_request *r,
				   struct kvt_error *err)
{
	for (int i = 0; i < r->nworkers; i++) {
		if (!r->worker[i].n)
			return kvt_fail(err, KVT_BAD_INPUT,
					"worker %d reports no layout", i);
		if (!equal(&r->worker[i], &r->worker[0]))
			return kvt_fail(err, KVT_BAD_INPUT,
					"workers 0 and %d report different layouts: %s; %s", i, list_text(&r->worker[0]).s,
					list_text(&r->worker[i]).s);
	}
	if (r->nworkers < 1)
		return kvt_fail(err, KVT_BAD_INPUT, "no worker reports layouts");
	*out = r->worker[0];
	return KVT_OK;
}

enum kvt_status kvt_layout_choose(struct kvt_layout_choice *out,
				  const struct kvt_layout_request *r,
				  struct kvt_error *err)
{
	struct kvt_layout_choice c = { .why = KVT_LAYOUT_FIRST };
	enum kvt_status status;

	if (r->resolved >= 0) {
		*out = (struct kvt_layout_choice){
			.layout = (enum kvt_kv_layout)r->resolved,
			.why = KVT_LAYOUT_RESOLVED };
		return KVT_OK;
	}
	if ((status = ask_workers(&c.candidates, r, err)) ||
	    (status = ask_shapes(&c.candidates, r, err)) ||
	    (status = ask_dcp(&c.candidates, r, err)))
		return status;
	c.layout = c.candidates.at[0];
	if (r->requested >= 0) {
		c.layout = (enum kvt_kv_layout)r->requested;
		c.why = KVT_LAYOUT_REQUESTED;
		if (!has(&c.candidates, c.layout))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is requested, but possible are %s",
					layouts[c.layout].name,
					list_text(&c.candidates).s);
	} else if (r->connector >= 0) {
		c.why = KVT_LAYOUT_DROPPED;
		if (has(&c.candidates, (enum kvt_kv_layout)r->connector)) {
			c.layout = (enum kvt_kv_layout)r->connector;
			c.why = KVT_LAYOUT_CONNECTOR;
		}
	}
	*out = c;
	return KVT_OK;
}
