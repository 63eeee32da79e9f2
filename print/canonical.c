/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonical.c - the one tensor that all layers could share, or why there is none
 *
 *	canonical one tensor of 48 blocks x 10240 B, 480 KiB; a row is 5 layers of 2048 B
 *	          byte 0: g0 model.layers.0.self_attn.attn
 *	          byte 2048: g0 model.layers.1.self_attn.attn
 *
 *	"canonical": {"applies": true, "first_reason": null, "reasons": [],
 *	  "caches": {keys of a manifest ..,
 *	    "tensors": [{"num_blocks": 48, "page_size_bytes": 10240}],
 *	    "group_data_refs": [[{"layer_name": .., "tensor_idx": 0, "offset": 0, ..}]]},
 *	  "blocks": 48, "page_bytes": 2048, .., "references": [{"group": "g0", ..}]}
 *
 * "caches" is vLLM's CanonicalKVCaches: where one tensor does not apply it has one for
 * each position of layers, and what follows is left out.  It is null where
 * kvt_cache_tensors() finds none.
 */
#include <stdlib.h>

#include "print/out/say.h"
#include "print/describe.h"

/* ---- text --------------------------------------------------------------- */

static void print_position(const struct kvt_canonical_facts *f, int64_t i)
{
	const struct kvt_snapshot *s = f->snapshot;
	struct kvt_canonical_place p = { .known = false };
	const char *comma = "";

	for (int g = 0; g < s->ngroups && !p.known; g++)
		if (i < s->group[g].shape.n[KVT_AXIS_L])
			p = kvt_canonical_place(f, g, i);
	print_label("");
	if (p.known)
		plainf("byte %lld%s: ", LL(p.offset),
		       p.one_run ? "" : ", not contiguous");
	else
		plainf("not contiguous: ");
	for (int g = 0; g < s->ngroups; g++)
		if (i < s->group[g].shape.n[KVT_AXIS_L]) {
			plainf("%s%s %s", comma, s->group[g].id,
			       s->group[g].layer_names ? s->group[g].layer_names[i] :
			       "?");
			comma = ", ";
		}
	putchar('\n');
}

void canonical_text(const struct kvt_canonical_facts *f)
{
	const char *comma = "";

	putchar('\n');
	print_label("canonical");
	if (!f->verdict.reasons) {
		plainf("one tensor of %lld block%s x %lld B, %s; "
		       "a row is %lld layer%s of %lld B\n", LL(f->whole.nblocks),
		       plural(f->whole.nblocks), LL(f->whole.row),
		       kvt_size_string(f->whole.nbytes).s, LL(f->whole.npositions),
		       plural(f->whole.npositions), LL(f->whole.page));
		for (int64_t i = 0; i < f->whole.npositions; i++)
			print_position(f, i);
		return;
	}
	plainf("does not apply: ");
	for (int i = 0; i < KVT_NCANONICAL_REASONS; i++)
		if (f->verdict.reasons >> i & 1) {
			plainf("%s%s", comma, kvt_canonical_reason_name(i));
			comma = ", ";
		}
	putchar('\n');
}

/* ---- JSON --------------------------------------------------------------- */

static void put_layer(struct json_out *out, json_t *list,
		      const struct kvt_canonical_facts *f, int group, int64_t i)
{
	const struct kvt_group *g = &f->snapshot->group[group];
	json_t *o = json_append_object(out, list), *strides;
	struct kvt_canonical_place p = kvt_canonical_place(f, group, i);
	int block = 0;

	json_put_text(out, o, "name", g->layer_names ? g->layer_names[i] : NULL);
	json_put_int(out, o, "position", i);
	json_put_known(out, o, "offset", p.offset, p.known);
	json_put_bool(out, o, "one_run", p.one_run);
	strides = json_put_if(out, o, "strides", p.has_view);
	for (int n = 0; strides && n < p.view.nfactors; n++) {
		const struct kvt_factor *is = &p.view.factor[n];
		const char letter[2] = { kvt_axis_letter(is->axis), '\0' };

		if (is->axis == KVT_AXIS_L)
			continue;
		/* a block is several of the kernel's, which come after it */
		json_put_int(out, strides, is->axis != KVT_AXIS_B || !block++ ? letter :
			     "kernel_block", is->stride);
	}
}

static void put_references(struct json_out *out, json_t *o,
			   const struct kvt_canonical_facts *f)
{
	json_t *list = json_put_array(out, o, "references");

	for (int g = 0; g < f->snapshot->ngroups; g++) {
		json_t *group = json_append_object(out, list), *layers;

		json_put_text(out, group, "group", f->snapshot->group[g].id);
		json_put_int(out, group, "tensor", 0);
		json_put_int(out, group, "row_bytes", f->whole.row);
		layers = json_put_array(out, group, "layers");
		for (int64_t i = 0; i < f->snapshot->group[g].shape.n[KVT_AXIS_L]; i++)
			put_layer(out, layers, f, g, i);
	}
}

static void put_ref(struct json_out *out, json_t *list,
		    const struct kvt_canonical_facts *f, int group, int64_t i)
{
	const struct kvt_group *g = &f->snapshot->group[group];
	struct kvt_head_slices cut = kvt_head_slices_of(f->snapshot, group);
	struct kvt_cache_ref ref = kvt_cache_ref(f, group, i);
	json_t *o = json_append_object(out, list);

	json_put_text(out, o, "layer_name", g->layer_names ? g->layer_names[i] : NULL);
	json_put_int(out, o, "layer_slot", i);
	json_put_int(out, o, "tensor_idx", ref.tensor);
	json_put_int(out, o, "offset", ref.offset);
	json_put_int(out, o, "page_size_bytes", ref.page_bytes);
	json_put_int(out, o, "n_heads", cut.n_heads);
	json_put_int(out, o, "h_stride", cut.h_stride);
	json_put_int(out, o, "bs_stride", cut.bs_stride);
	json_put_bool(out, o, "replicated", cut.replicated);
}

/* What the groups are, as a manifest says it: what follows describes the bytes. */
static json_t *groups_json(const struct kvt_canonical_facts *f)
{
	struct kvt_snapshot copy;
	json_t *o = NULL;
	char *text;

	if (kvt_snapshot_copy(&copy, f->snapshot, NULL))
		return NULL;
	for (int g = 0; g < copy.ngroups; g++)
		copy.group[g].layout = *f->layout[g];
	if ((text = kvt_snapshot_json(&copy)))
		o = json_loads(text, 0, NULL);
	free(text);
	kvt_snapshot_free(&copy);
	return o;
}

/* vLLM's CanonicalKVCaches. */
static void put_caches(struct json_out *out, json_t *canonical,
		       const struct kvt_canonical_facts *f)
{
	int64_t n = kvt_cache_tensors(f);
	json_t *o = n ? groups_json(f) : json_null(), *list;

	json_put(out, canonical, "caches", o);
	if (!n || !o)
		return;
	list = json_put_array(out, o, "tensors");
	for (int64_t i = 0; i < n; i++) {
		struct kvt_cache_tensor t = kvt_cache_tensor(f, i);
		json_t *tensor = json_append_object(out, list);

		json_put_int(out, tensor, "num_blocks", t.num_blocks);
		json_put_int(out, tensor, "page_size_bytes", t.page_bytes);
	}
	list = json_put_array(out, o, "group_data_refs");
	for (int g = 0; g < f->snapshot->ngroups; g++) {
		json_t *refs = json_array();

		json_append(out, list, refs);
		for (int64_t i = 0; i < f->snapshot->group[g].shape.n[KVT_AXIS_L]; i++)
			put_ref(out, refs, f, g, i);
	}
}

void canonical_json(struct json_out *out, const struct kvt_canonical_facts *f)
{
	json_t *o = json_put_object(out, out->root, "canonical"), *reasons;

	json_put_bool(out, o, "applies", !f->verdict.reasons);
	json_put_text(out, o, "first_reason", f->verdict.reasons ?
		      kvt_canonical_reason_name(f->verdict.first) : NULL);
	reasons = json_put_array(out, o, "reasons");
	for (int i = 0; i < KVT_NCANONICAL_REASONS; i++)
		if (f->verdict.reasons >> i & 1)
			json_append_text(out, reasons, kvt_canonical_reason_name(i));
	put_caches(out, o, f);
	if (f->verdict.reasons)
		return;
	json_put_int(out, o, "blocks", f->whole.nblocks);
	json_put_int(out, o, "page_bytes", f->whole.page);
	json_put_int(out, o, "positions", f->whole.npositions);
	json_put_int(out, o, "row_bytes", f->whole.row);
	json_put_int(out, o, "bytes", f->whole.nbytes);
	put_references(out, o, f);
}
