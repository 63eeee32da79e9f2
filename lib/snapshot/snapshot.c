/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.c - struct kvt_snapshot: copies, and what follows from its fields
 *
 * Everything in it is owned by it, so a copy is deep.  What several files ask, ids,
 * names, halves, scales, sizes of states and holes, is answered here, once; what must
 * hold between fields is snapshot_check.c's.
 */
#include "lib/kvt/snapshot.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

void kvt_snapshot_init(struct kvt_snapshot *snapshot)
{
	*snapshot = (struct kvt_snapshot){
		.parallel = { .tp_size = 1, .pp_size = 1, .dp_size = 1, .dcp_size = 1 },
		.null_block = -1,
	};
}

int kvt_group_half(const struct kvt_group *group)
{
	const struct kvt_component *c = &group->component[0];
	bool attention = group->kind == KVT_FULL_ATTENTION ||
			 group->kind == KVT_SLIDING_WINDOW ||
			 group->kind == KVT_CHUNKED_LOCAL ||
			 group->kind == KVT_RSWA || group->kind == KVT_CROSS;

	if (!attention || group->shape.n[KVT_AXIS_K] != 1 || group->ncomponents != 1 ||
	    c->start || c->length != group->shape.n[KVT_AXIS_D])
		return -1;
	return !strcmp(c->name, "k") ? 0 : !strcmp(c->name, "v") ? 1 : -1;
}

struct kvt_text kvt_group_type(const struct kvt_group *group)
{
	struct kvt_text text = kvt_content_name(&group->content);

	if (!group->content.type)
		snprintf(text.s, sizeof(text.s), "%s", group->dtype->name);
	return text;
}

bool kvt_group_casts(const struct kvt_group *group)
{
	/* pages of keys and values, which engines have as bytes */
	if (group->kind == KVT_OPAQUE)
		return group->content.type && group->content.type->all_heads;
	return group->kind != KVT_MAMBA_CONV && group->kind != KVT_MAMBA_SSM &&
	       (group->content.type || group->dtype->is_float);
}

float kvt_group_scale(const struct kvt_group *group, int64_t l, int64_t h, int64_t k)
{
	int64_t head = group->scale_heads > 1 ? group->head_start + h : 0;
	int half = kvt_group_half(group);

	return group->scales ? group->scales[(l * 2 + (half < 0 ? k : half)) *
					     group->scale_heads + head] : 1;
}

struct kvt_text kvt_group_cast_text(const struct kvt_group *group)
{
	struct kvt_text out = { "" };
	float least = 0, most = 0;
	char scale[64] = "";

	for (int64_t i = 0; i < kvt_group_nscales(group); i++) {
		if (!i || group->scales[i] < least)
			least = group->scales[i];
		if (!i || group->scales[i] > most)
			most = group->scales[i];
	}
	if (most > least)
		snprintf(scale, sizeof(scale), ", scales %.3g to %.3g", (double)least,
			 (double)most);
	else if (most > 0)
		snprintf(scale, sizeof(scale), ", scale %.3g", (double)most);
	if (group->cast_from[0])
		snprintf(out.s, sizeof(out.s), "%.47s to %.40s%s", group->cast_from,
			 kvt_group_type(group).s, scale);
	return out;
}

bool kvt_group_same_type(const struct kvt_group *a, const struct kvt_group *b)
{
	return a->dtype == b->dtype && kvt_content_equal(&a->content, &b->content);
}

/* The last place of ->state is for the 0 that ends it. */
bool kvt_group_set_state(struct kvt_group *group, const int64_t *extents, int n)
{
	memset(group->state, 0, sizeof(group->state));
	if (n < 1 || n >= KVT_STATE_AXES)
		return false;
	memcpy(group->state, extents, (size_t)n * sizeof(*extents));
	return true;
}

int kvt_group_state_shape(int64_t out[KVT_STATE_AXES], const struct kvt_group *group)
{
	int n = 0;

	if (group->kind == KVT_MAMBA_CONV) {
		out[n++] = group->shape.n[KVT_AXIS_D];
		out[n++] = group->shape.n[KVT_AXIS_S];
	} else if (group->state[0]) {
		out[n++] = group->shape.n[KVT_AXIS_H];
		for (int i = 0; i < KVT_STATE_AXES - 1 && group->state[i]; i++)
			out[n++] = group->state[i];
	}
	return n;
}

bool kvt_group_same_state(const struct kvt_group *a, const struct kvt_group *b)
{
	return !a->state[0] || !b->state[0] ||
	       (a->state_order == b->state_order &&
		!memcmp(a->state, b->state, sizeof(a->state)));
}

static const char *const state_orders[KVT_STATE_ORDERS] = {
	[KVT_STATE_VK] = "vk", [KVT_STATE_KV] = "kv", [KVT_STATE_EITHER] = "either",
};

const char *kvt_state_order_name(enum kvt_state_order order)
{
	return state_orders[order];
}

enum kvt_state_order kvt_state_order_find(const char *name)
{
	int i = 0;

	while (i < KVT_STATE_ORDERS && strcmp(name, state_orders[i]))
		i++;
	return (enum kvt_state_order)i;
}

struct kvt_packing kvt_group_packing(const struct kvt_group *group)
{
	struct kvt_packing packing = { .nbytes = 0 };
	struct kvt_content content = group->content;

	/* of values alone what is said of keys means nothing */
	if (kvt_group_half(group) == 1)
		content.turn[0] = content.turn[1];
	if (kvt_packing_init(&packing, &content, &group->shape,
			     group->tokens_per_slot, NULL))
		assert(!"the group was checked");
	return packing;
}

/* ---- freeing ------------------------------------------------------------ */

void kvt_names_free(char **names, int64_t n)
{
	for (int64_t i = 0; names && i < n; i++)
		free(names[i]);
	free(names);
}

void kvt_group_drop_names(struct kvt_group *group)
{
	kvt_names_free(group->block_names, group->shape.n[KVT_AXIS_B]);
	group->block_names = NULL;
}

void kvt_requests_free(struct kvt_request *requests, int64_t n)
{
	for (int64_t r = 0; r < n; r++) {
		free(requests[r].id);
		free(requests[r].token_ids);
		free(requests[r].hole);
		for (int g = 0; g < KVT_MAX_GROUPS; g++)
			free(requests[r].blocks[g]);
	}
	free(requests);
}

void kvt_snapshot_free(struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; g++) {
		struct kvt_group *group = &snapshot->group[g];

		kvt_names_free(group->layer_names, group->shape.n[KVT_AXIS_L]);
		free(group->layer_ids);
		free(group->scales);
		free(group->block_ids);
		free(group->block_valid);
		kvt_group_drop_names(group);
	}
	kvt_requests_free(snapshot->request, snapshot->nrequests);
	free(snapshot->model);
	free(snapshot->source_format);
	free(snapshot->note);
	kvt_snapshot_init(snapshot);
}

/* ---- copying ------------------------------------------------------------ */

/* These clear '*ok' when memory is out, so that a copy is checked once. */
static void *copy_table(const void *table, int64_t n, size_t elem, bool *ok)
{
	void *out;

	if (!table)
		return NULL;
	/* an empty table is still a table */
	out = malloc(n > 0 ? (size_t)n * elem : 1);
	if (!out)
		*ok = false;
	else if (n > 0)
		memcpy(out, table, (size_t)n * elem);
	return out;
}

static char *copy_string(const char *s, bool *ok)
{
	return copy_table(s, s ? (int64_t)strlen(s) + 1 : 0, 1, ok);
}

static char **copy_strings(char *const *strings, int64_t n, bool *ok)
{
	char **out;

	if (!strings)
		return NULL;
	out = calloc(n > 0 ? (size_t)n : 1, sizeof(*out));
	if (!out)
		*ok = false;
	for (int64_t i = 0; out && i < n; i++)
		out[i] = copy_string(strings[i], ok);
	return out;
}

static void copy_group(struct kvt_group *out, const struct kvt_group *in, bool *ok)
{
	int64_t layers = in->shape.n[KVT_AXIS_L], blocks = in->shape.n[KVT_AXIS_B];

	*out = *in;
	out->layer_names = copy_strings(in->layer_names, layers, ok);
	out->layer_ids = copy_table(in->layer_ids, layers, sizeof(*in->layer_ids), ok);
	out->block_ids = copy_table(in->block_ids, blocks, sizeof(*in->block_ids), ok);
	out->block_valid = copy_table(in->block_valid, blocks,
				      sizeof(*in->block_valid), ok);
	out->block_names = copy_strings(in->block_names, blocks, ok);
	out->scales = copy_table(in->scales, kvt_group_nscales(in), sizeof(*in->scales),
				 ok);
}

static void copy_request(struct kvt_request *out, const struct kvt_request *in, bool *ok)
{
	*out = *in;
	out->id = copy_string(in->id, ok);
	out->token_ids = copy_table(in->token_ids, in->ntoken_ids,
				    sizeof(*in->token_ids), ok);
	out->hole = copy_table(in->hole, in->nholes, sizeof(*in->hole), ok);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		out->blocks[g] = copy_table(in->blocks[g], in->nblocks[g],
					    sizeof(*in->blocks[g]), ok);
}

enum kvt_status kvt_snapshot_copy(struct kvt_snapshot *out, const struct kvt_snapshot *in,
				  struct kvt_error *err)
{
	bool ok = true;

	*out = *in;
	for (int g = 0; g < in->ngroups; g++)
		copy_group(&out->group[g], &in->group[g], &ok);
	out->model = copy_string(in->model, &ok);
	out->source_format = copy_string(in->source_format, &ok);
	out->note = copy_string(in->note, &ok);
	out->nrequests = 0;
	out->request = NULL;
	if (in->nrequests > 0) {
		out->request = calloc((size_t)in->nrequests, sizeof(*out->request));
		ok &= out->request != NULL;
	}
	for (; out->request && out->nrequests < in->nrequests; out->nrequests++)
		copy_request(&out->request[out->nrequests],
			     &in->request[out->nrequests], &ok);
	if (ok)
		return KVT_OK;
	kvt_snapshot_free(out);
	return kvt_fail(err, KVT_SYSTEM, "out of memory for a snapshot's tables");
}

/* Places behind a group move by one, and its own table is there twice. */
static void double_tables(struct kvt_request *q, int g, int ngroups, bool *ok)
{
	struct kvt_hole *hole = calloc(2 * (size_t)q->nholes + 1, sizeof(*hole));
	int64_t n = 0;

	memmove(&q->blocks[g + 2], &q->blocks[g + 1],
		(size_t)(ngroups - g - 1) * sizeof(*q->blocks));
	memmove(&q->nblocks[g + 2], &q->nblocks[g + 1],
		(size_t)(ngroups - g - 1) * sizeof(*q->nblocks));
	q->nblocks[g + 1] = q->nblocks[g];
	q->blocks[g + 1] = copy_table(q->blocks[g], q->nblocks[g],
				      sizeof(*q->blocks[g]), ok);
	*ok &= hole != NULL;
	for (int at = 0; hole && at <= ngroups; at++)
		for (int64_t i = 0; i < q->nholes; i++)
			if (q->hole[i].group == (at > g ? at - 1 : at)) {
				hole[n] = q->hole[i];
				hole[n++].group = at;
			}
	free(q->hole);
	q->hole = hole;
	q->nholes = n;
}

enum kvt_status kvt_snapshot_double(struct kvt_snapshot *snapshot, int g,
				    struct kvt_error *err)
{
	struct kvt_group *group = &snapshot->group[g];
	bool ok = true;

	if (snapshot->ngroups == KVT_MAX_GROUPS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"keys and values as groups of their own are more than the %d groups that there may be",
				KVT_MAX_GROUPS);
	memmove(&group[2], &group[1],
		(size_t)(snapshot->ngroups - g - 1) * sizeof(*group));
	copy_group(&group[1], &group[0], &ok);
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		double_tables(&snapshot->request[r], g, snapshot->ngroups, &ok);
	snapshot->ngroups++;
	return ok ? KVT_OK :
	       kvt_fail(err, KVT_SYSTEM, "out of memory for a snapshot's tables");
}

/* ---- holes -------------------------------------------------------------- */

struct kvt_range kvt_request_live(const struct kvt_request *request, int group,
				  int64_t begin, int64_t end)
{
	struct kvt_range out = { begin, end };
	int64_t from = 0, to = request->nholes;

	if (out.begin < request->first_token)
		out.begin = request->first_token < end ? request->first_token : end;

	/* the first hole of the group that ends behind 'begin' */
	while (from < to) {
		int64_t i = from + (to - from) / 2;
		const struct kvt_hole *h = &request->hole[i];

		if (h->group < group || (h->group == group && h->end <= out.begin))
			from = i + 1;
		else
			to = i;
	}
	for (; from < request->nholes && request->hole[from].group == group; from++) {
		const struct kvt_hole *h = &request->hole[from];

		if (h->begin > out.begin) {
			out.end = h->begin < end ? h->begin : end;
			break;
		}
		out.begin = h->end < end ? h->end : end;
	}
	return out;
}

int64_t kvt_request_missing(const struct kvt_request *request, int group)
{
	int64_t n = 0;

	for (int64_t i = 0; i < request->nholes; i++)
		if (request->hole[i].group == group)
			n += request->hole[i].end - request->hole[i].begin;
	return n;
}

void kvt_request_cut_holes(struct kvt_request *request, int64_t begin, int64_t end)
{
	int64_t kept = 0;

	for (int64_t i = 0; i < request->nholes; i++) {
		struct kvt_hole h = request->hole[i];

		h.begin = h.begin > begin ? h.begin : begin;
		h.end = h.end < end ? h.end : end;
		if (h.begin < h.end)
			request->hole[kept++] = h;
	}
	request->nholes = kept;
}

bool kvt_request_add_hole(struct kvt_request *request, int group, int64_t begin,
			  int64_t end)
{
	size_t n = (size_t)request->nholes;

	if (!KVT_GROW(&request->hole, n))
		return false;
	request->hole[request->nholes++] = (struct kvt_hole){ group, begin, end };
	return true;
}

/* ---- what follows ------------------------------------------------------- */

static bool name_layers(struct kvt_group *group)
{
	int64_t layers = group->shape.n[KVT_AXIS_L];
	char name[32];

	if (group->layer_names)
		return true;
	group->layer_names = calloc(layers > 0 ? (size_t)layers : 1,
				    sizeof(*group->layer_names));
	for (int64_t i = 0; group->layer_names && i < layers; i++) {
		snprintf(name, sizeof(name), "layers.%lld", LL(i));
		if (!(group->layer_names[i] = strdup(name)))
			return false;
	}
	return group->layer_names != NULL;
}

void kvt_share_null(struct kvt_snapshot *snapshot)
{
	int64_t first = snapshot->group[0].null_block;

	for (int g = 1; g < snapshot->ngroups; g++)
		if (snapshot->group[g].null_block != first)
			return;
	for (int g = 0; g < snapshot->ngroups; g++)
		snapshot->group[g].has_null = false;
	snapshot->null_block = first;
}

/* Do the tables of requests account for all tokens of this group? */
static bool tables_tell(const struct kvt_snapshot *snapshot, int g)
{
	const struct kvt_group *group = &snapshot->group[g];
	const struct kvt_retention keep = { .kind = group->kind };
	bool any = false;

	if (group->tokens_per_slot < 1 || group->window > 0 ||
	    kvt_retention_forgets(&keep))
		return false;
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		const struct kvt_request *request = &snapshot->request[r];

		any |= request->nblocks[g] > 0;
		/* the tokens of a table that is too short are who knows where */
		if (request->ntokens > 0 &&
		    request->nblocks[g] <= (kvt_request_skip(request, group) +
					    request->ntokens - 1) / group->block_size)
			return false;
	}
	return any;
}

/* Behind the last of the first 'n' slots of an entry that is in no hole. */
static int64_t live_end(const struct kvt_request *request, int g,
			const struct kvt_group *group, int64_t entry, int64_t n)
{
	int64_t first = (request->first_token / group->block_size + entry) *
			group->block_size, last = 0;
	struct kvt_range run = { 0, first };

	if (!request->nholes)
		return n;
	while (run.end < first + n) {
		run = kvt_request_live(request, g, run.end, first + n);
		if (run.begin < run.end)
			last = run.end - first;
	}
	return last;
}

static void count_live(uint32_t *valid, const struct kvt_group *group,
		       const struct kvt_request *request, int g, int64_t null)
{
	for (int64_t i = 0; i < request->nblocks[g]; i++) {
		int64_t left = kvt_request_skip(request, group) + request->ntokens -
			       i * group->block_size, slots;

		if (left <= 0)
			break;
		if (request->blocks[g][i] == null)
			continue;
		if (left > group->block_size)
			left = group->block_size;
		left = live_end(request, g, group, i, left);
		if (!left)
			continue;
		/* a started slot counts: it has a token in it */
		slots = (left - 1) / group->tokens_per_slot + 1;
		/* a shared block is as full as its fullest reader says */
		if (valid[request->blocks[g][i]] < slots)
			valid[request->blocks[g][i]] = (uint32_t)slots;
	}
}

bool kvt_snapshot_live(uint32_t *live, const struct kvt_snapshot *snapshot, int g)
{
	if (!tables_tell(snapshot, g))
		return false;
	for (int64_t r = 0; live && r < snapshot->nrequests; r++)
		count_live(live, &snapshot->group[g], &snapshot->request[r], g,
			   kvt_null_block(snapshot, g));
	return true;
}

static bool count_all_live(struct kvt_snapshot *snapshot, int g)
{
	struct kvt_group *group = &snapshot->group[g];
	int64_t blocks = group->shape.n[KVT_AXIS_B];

	/* without layers there is no data, and any number of blocks */
	if (group->block_valid || !group->shape.n[KVT_AXIS_L] ||
	    !kvt_snapshot_live(NULL, snapshot, g))
		return true;
	group->block_valid = calloc((size_t)blocks, sizeof(*group->block_valid));
	return group->block_valid && kvt_snapshot_live(group->block_valid, snapshot, g);
}

enum kvt_status kvt_snapshot_complete(struct kvt_snapshot *snapshot,
				      struct kvt_error *err)
{
	for (int g = 0; g < snapshot->ngroups; g++)
		if (!name_layers(&snapshot->group[g]) || !count_all_live(snapshot, g))
			return kvt_fail(err, KVT_SYSTEM,
					"out of memory for a snapshot's tables");
	return KVT_OK;
}

const struct kvt_component *kvt_group_component(const struct kvt_group *group, int64_t d)
{
	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		if (d >= c->start && d < c->start + c->length)
			return c;
	}
	return NULL;
}

uint64_t kvt_head_id(const struct kvt_group *group, int64_t h)
{
	const struct kvt_component *c;

	if (group->kind != KVT_MAMBA_CONV)
		return (uint64_t)(group->head_start + h);
	c = kvt_group_component(group, h);
	return (uint64_t)(c ? c->global_start + h - c->start : h);
}

/* ---- by name ------------------------------------------------------------ */

const struct kvt_component *kvt_component_named(const struct kvt_group *group,
						const char *name)
{
	for (int i = 0; i < group->ncomponents; i++)
		if (!strcmp(group->component[i].name, name))
			return &group->component[i];
	return NULL;
}

int kvt_group_named(const struct kvt_snapshot *snapshot, const char *id)
{
	for (int g = 0; g < snapshot->ngroups; g++)
		if (!strcmp(snapshot->group[g].id, id))
			return g;
	return -1;
}

const struct kvt_request *kvt_request_named(const struct kvt_snapshot *snapshot,
					    const char *id)
{
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		if (!strcmp(snapshot->request[r].id, id))
			return &snapshot->request[r];
	return NULL;
}

/* ---- another layout ----------------------------------------------------------- */

static bool takes_layout(enum kvt_kind kind, const struct kvt_layout *layout)
{
	bool state = false;

	/* a conv state has taps and channels but neither heads nor K and V */
	for (int i = 0; i < layout->plane[0].nparts; i++)
		state |= layout->plane[0].part[i].axis == KVT_AXIS_H ||
			 layout->plane[0].part[i].axis == KVT_AXIS_K;
	if (kind == KVT_MAMBA_SSM)
		return false;
	return kind == KVT_MAMBA_CONV ? !state : true;
}

enum kvt_status kvt_snapshot_set_layout(struct kvt_snapshot *snapshot,
					const struct kvt_layout *layout,
					struct kvt_error *err)
{
	int taken = 0;

	for (int g = 0; g < snapshot->ngroups; g++) {
		struct kvt_group *group = &snapshot->group[g];
		struct kvt_box whole = kvt_box_whole(&group->shape);
		struct kvt_error why = { "" };
		struct kvt_views views;

		if (!takes_layout(group->kind, layout))
			continue;
		if (kvt_layout_views(&views, layout, &whole, group->shape.elem, &why))
			return kvt_fail(err, KVT_UNSUPPORTED, "%s cannot be %s: %s",
					group->id, kvt_layout_string(layout).s, why.text);
		if (kvt_content_keeps(&group->content, layout, &group->shape, &why))
			return kvt_fail(err, KVT_UNSUPPORTED, "%s: %s", group->id,
					why.text);
		group->layout = *layout;
		if (!kvt_layout_predicates(layout, &group->shape).block_compact)
			group->page_bytes = group->page_offset = 0;
		taken++;
	}
	if (!taken)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"no group of this dump can have layout %s: all are recurrent states",
				kvt_layout_string(layout).s);
	return KVT_OK;
}
