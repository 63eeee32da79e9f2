/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonical.c - the one tensor that all layers of a model could share
 *
 * Of the twelve conditions of vLLM #37885 a dump answers nine; the first three
 * are the connector's, which is taken to be one that wants such a tensor.
 */
#include "cli/print/describe.h"

#include "lib/kvt/connect.h"

#include <stdlib.h>
#include <string.h>

struct canonical_facts {
	const struct kvt_snapshot *snapshot;
	struct kvt_spec spec[KVT_MAX_GROUPS];
	struct kvt_backend_order backend[KVT_MAX_GROUPS];
	char letters[KVT_MAX_GROUPS][KVT_NAXES + 1];
	struct kvt_canonical_group group[KVT_MAX_GROUPS];
	int64_t *tensor;
	struct kvt_canonical_request request;
	struct kvt_canonical_verdict verdict;
	struct kvt_canonical whole;		/* if no reason is against it */
};

/* ---- the request that the dump makes ------------------------------------ */

static struct kvt_spec spec_of(const struct kvt_group *group)
{
	const int64_t *n = group->shape.n;
	int64_t content = n[KVT_AXIS_K] * n[KVT_AXIS_D] * group->shape.elem;
	struct kvt_spec spec = {
		.kind = group->kind, .block_size = group->block_size,
		.num_heads = n[KVT_AXIS_H], .total_heads = group->total_heads,
		.head_start = group->head_start, .replication = group->replication,
		.tokens_per_state = { group->tokens_per_state, 1 },
		.state_content_size = content, .elem = group->shape.elem,
		.page_size_padded = group->page_bytes, .window = group->window,
		.ncontent = n[KVT_AXIS_K] == 2 ? 2 : 1,
		.content = { n[KVT_AXIS_K] == 2 ? 2 : n[KVT_AXIS_D], n[KVT_AXIS_D] },
	};

	/* taps and the like are one state here: only its size counts */
	if (group->tokens_per_state < 0) {
		spec.ncontent = 0;
		spec.state_content_size = content * n[KVT_AXIS_S];
	}
	return spec;
}

/* As vLLM numbers the axes of a layer, whatever their order in memory. */
static int axis_number(const char *letters, enum kvt_axis axis)
{
	return axis == KVT_AXIS_L ? 0 :
	       1 + (int)(strchr(letters, kvt_axis_letter(axis)) - letters);
}

/* The stride order of a cache that has this layout; none if it is no such. */
static void order_of(struct kvt_backend_order *out, char letters[KVT_NAXES + 1],
		     const struct kvt_layout *layout)
{
	static const enum kvt_axis logical[] = { KVT_AXIS_B, KVT_AXIS_H, KVT_AXIS_S,
						 KVT_AXIS_K, KVT_AXIS_D };
	const struct kvt_order *order = &layout->plane[0];
	unsigned there = 0;
	int n = 0;

	*out = (struct kvt_backend_order){ .name = "dump", .shape = letters };
	letters[0] = '\0';
	if (layout->nplanes != 1 || order->nparts > KVT_NAXES)
		return;
	for (int i = 0; i < order->nparts; i++) {
		if (order->part[i].kind != KVT_WHOLE)
			return;
		there |= 1u << order->part[i].axis;
	}
	for (size_t i = 0; i < sizeof(logical) / sizeof(logical[0]); i++)
		if (there >> logical[i] & 1)
			letters[n++] = kvt_axis_letter(logical[i]);
	letters[n] = '\0';
	for (int i = 0; i < order->nparts; i++)
		out->order[i] = axis_number(letters, order->part[i].axis);
	out->norder = order->nparts;
}

/* Of one head and the like a layout has several names: that of the first group. */
static const struct kvt_layout *layout_of(const struct kvt_snapshot *s, int g)
{
	const struct kvt_layout *first = &s->group[0].layout;

	return kvt_layout_agree(first, &s->group[g].layout, &s->group[g].shape) ?
	       first : &s->group[g].layout;
}

/* Tensor i holds layer i of each group that has so many. */
static enum kvt_status count_tensors(struct canonical_facts *f, struct kvt_error *err)
{
	const struct kvt_snapshot *s = f->snapshot;
	struct kvt_canonical_request *r = &f->request;
	struct kvt_spec_size size;
	enum kvt_status status;

	for (int g = 0; g < s->ngroups; g++) {
		if (s->group[g].shape.n[KVT_AXIS_L] > r->npositions)
			r->npositions = s->group[g].shape.n[KVT_AXIS_L];
		if (s->group[g].shape.n[KVT_AXIS_B] != s->group[0].shape.n[KVT_AXIS_B])
			return kvt_fail(err, KVT_BAD_INPUT,
					"groups %s and %s have %lld and %lld blocks: there is no pool that they share",
					s->group[0].id, s->group[g].id,
					(long long)s->group[0].shape.n[KVT_AXIS_B],
					(long long)s->group[g].shape.n[KVT_AXIS_B]);
	}
	r->nblocks = s->ngroups ? s->group[0].shape.n[KVT_AXIS_B] : 0;
	f->tensor = calloc((size_t)r->npositions + 1, sizeof(*f->tensor));
	if (!f->tensor)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	r->tensor_nbytes = f->tensor;
	for (int g = s->ngroups - 1; g >= 0; g--) {
		int64_t nbytes;

		if ((status = kvt_spec_size(&size, &f->spec[g], err)))
			return status;
		if (__builtin_mul_overflow(size.page, r->nblocks, &nbytes))
			return kvt_fail(err, KVT_BAD_INPUT, "%s: its size overflows",
					s->group[g].id);
		for (int64_t i = 0; i < s->group[g].shape.n[KVT_AXIS_L]; i++)
			f->tensor[i] = nbytes;
	}
	return KVT_OK;
}

static enum kvt_status ask(struct canonical_facts *f, const struct kvt_layout *asked,
			   struct kvt_error *err)
{
	const struct kvt_snapshot *s = f->snapshot;
	enum kvt_status status;

	for (int g = 0; g < s->ngroups; g++) {
		f->spec[g] = spec_of(&s->group[g]);
		order_of(&f->backend[g], f->letters[g],
			 asked ? asked : layout_of(s, g));
		f->group[g] = (struct kvt_canonical_group){
			.spec = &f->spec[g], .nbackends = 1,
			.backend = &f->backend[g] };
	}
	f->request = (struct kvt_canonical_request){
		.has_connector = true, .prefers_cross_layer = true,
		.supports_hma = true, .ngroups = s->ngroups, .group = f->group };
	if ((status = count_tensors(f, err)))
		return status;
	f->verdict = kvt_canonical_check(&f->request);
	return f->verdict.reasons ? KVT_OK :
	       kvt_canonical_init(&f->whole, &f->request, err);
}

enum kvt_status describe_canonical(struct description *d,
				   const struct describe_options *options,
				   struct kvt_error *err)
{
	struct kvt_layout layout;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (options->canonical_layout &&
	    (status = kvt_layout_parse(&layout, options->canonical_layout, &why)))
		return kvt_fail(err, status, "layout '%.100s': %s",
				options->canonical_layout, why.text);
	d->canonical = calloc(1, sizeof(*d->canonical));
	if (!d->canonical)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	d->canonical->snapshot = d->snapshot;
	status = ask(d->canonical, options->canonical_layout ? &layout : NULL, &why);
	return status ? kvt_fail(err, status, "%.200s: %s", d->path, why.text) : KVT_OK;
}

void canonical_free(struct canonical_facts *f)
{
	if (f)
		free(f->tensor);
	free(f);
}

/* ---- where a layer is --------------------------------------------------- */

/*
 * Of the first block: what the view says, or, of a padded page that is one run,
 * what its size says.  False if only the engine knows.
 */
struct place {
	bool known, one_run, has_view;
	int64_t offset;
	struct kvt_view view;
};

static struct place place_of(const struct canonical_facts *f, int group, int64_t i)
{
	struct place p = { .one_run = f->backend[group].order[1] == 0 };
	static const int64_t first[KVT_NAXES];

	p.has_view = !kvt_canonical_layer(&p.view, &f->request, group, i, NULL);
	p.known = p.has_view || p.one_run;
	p.offset = p.has_view ? kvt_view_at(&p.view, first) : i * f->whole.page;
	return p;
}

/* ---- text --------------------------------------------------------------- */

static void print_position(const struct canonical_facts *f, int64_t i)
{
	const struct kvt_snapshot *s = f->snapshot;
	struct place p = { .known = false };
	const char *comma = "";

	for (int g = 0; g < s->ngroups && !p.known; g++)
		if (i < s->group[g].shape.n[KVT_AXIS_L])
			p = place_of(f, g, i);
	describe_label("");
	if (p.known)
		plainf("byte %lld%s: ", (long long)p.offset,
		       p.one_run ? "" : ", in pieces");
	else
		plainf("in pieces: ");
	for (int g = 0; g < s->ngroups; g++)
		if (i < s->group[g].shape.n[KVT_AXIS_L]) {
			plainf("%s%s %s", comma, s->group[g].id,
			       s->group[g].layer_names ? s->group[g].layer_names[i] :
			       "?");
			comma = ", ";
		}
	putchar('\n');
}

void canonical_text(const struct canonical_facts *f)
{
	const char *comma = "";

	putchar('\n');
	describe_label("canonical");
	if (!f->verdict.reasons) {
		plainf("one tensor of %lld block%s x %lld B, %s; "
		       "a row is %lld layer%s of %lld B\n",
		       (long long)f->whole.nblocks, plural(f->whole.nblocks),
		       (long long)f->whole.row, human_size(f->whole.nbytes).s,
		       (long long)f->whole.npositions, plural(f->whole.npositions),
		       (long long)f->whole.page);
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
		      const struct canonical_facts *f, int group, int64_t i)
{
	const struct kvt_group *g = &f->snapshot->group[group];
	json_t *o = json_append_object(out, list), *strides;
	struct place p = place_of(f, group, i);

	json_put_text(out, o, "name", g->layer_names ? g->layer_names[i] : NULL);
	json_put_int(out, o, "position", i);
	if (p.known)
		json_put_int(out, o, "offset", p.offset);
	else
		json_put(out, o, "offset", json_null());
	json_put_bool(out, o, "one_run", p.one_run);
	if (!p.has_view) {
		json_put(out, o, "strides", json_null());
		return;
	}
	strides = json_put_object(out, o, "strides");
	for (int n = 0; n < p.view.nfactors; n++) {
		char letter[2] = { kvt_axis_letter(p.view.factor[n].axis), '\0' };

		if (p.view.factor[n].axis != KVT_AXIS_L)
			json_put_int(out, strides, letter, p.view.factor[n].stride);
	}
}

static void put_references(struct json_out *out, json_t *o,
			   const struct canonical_facts *f)
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

void canonical_json(struct json_out *out, const struct canonical_facts *f)
{
	json_t *o = json_put_object(out, out->root, "canonical"), *reasons;

	json_put_bool(out, o, "applies", !f->verdict.reasons);
	json_put_text(out, o, "first_reason", f->verdict.reasons ?
		      kvt_canonical_reason_name(f->verdict.first) : NULL);
	reasons = json_put_array(out, o, "reasons");
	for (int i = 0; i < KVT_NCANONICAL_REASONS; i++)
		if (f->verdict.reasons >> i & 1)
			json_append_text(out, reasons, kvt_canonical_reason_name(i));
	if (f->verdict.reasons)
		return;
	json_put_int(out, o, "blocks", f->whole.nblocks);
	json_put_int(out, o, "page_bytes", f->whole.page);
	json_put_int(out, o, "positions", f->whole.npositions);
	json_put_int(out, o, "row_bytes", f->whole.row);
	json_put_int(out, o, "bytes", f->whole.nbytes);
	put_references(out, o, f);
}
