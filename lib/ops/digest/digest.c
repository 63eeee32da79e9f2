/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - every cell of a dump once, whatever its layout and format
 *
 * In: a dump.  Out: sums of cell hashes, by layer and head, by block, by request and
 * of all; kvtool-digest(1) defines them, lib/tile/hash.c has the hashes.
 *
 * A cell is what one head holds of one slot, its key or its value; of a conv state
 * it is the taps of one channel.  Its bytes are hashed once.  Then this hash is hashed
 * with each of the cell's coordinates: layer, block id, slot, head and component in
 * the pool (scope blocks), and layer, position, head and component in every request
 * that uses the block and still needs the slot (scope tokens).  So that two requests
 * cannot swap their content, the hashes of a request are multiplied with one of its
 * id before those of different requests add up.
 *
 * Sums are modulo 2^64 in two lanes, and adding is exact: boxes may come in any order
 * from any number of threads.  A box whose cells are not one run each is brought into
 * an order in which they are; it sums into buffers of its worker, and merges them under
 * the pipeline's lock.
 *
 * Cost: all data are read, permuted and hashed once, and 56 bytes more are hashed
 * for each place of a cell.
 */
#include "lib/ops/digest/digest.h"
#include "lib/kvt/ops.h"
#include "lib/dump/read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* In which a cell of a conv state, a channel's taps, is contiguous. */
static const struct kvt_layout channel_cells = {
	.nplanes = 1,
	.plane = { { .nparts = 6, .part = {
		{ KVT_AXIS_L, KVT_WHOLE, 0 }, { KVT_AXIS_B, KVT_WHOLE, 0 },
		{ KVT_AXIS_H, KVT_WHOLE, 0 }, { KVT_AXIS_K, KVT_WHOLE, 0 },
		{ KVT_AXIS_D, KVT_WHOLE, 0 }, { KVT_AXIS_S, KVT_WHOLE, 0 },
	} } },
};

/* A request that uses a block, and the ordinal of the block in it. */
struct block_use {
	int64_t request, ordinal;
};

/* One group: what its workers share, and only read but for 'out'. */
struct digest_job {
	struct digests *out;
	int index;
	const struct kvt_group *group;
	struct kvt_cut cut;
	int64_t *first_use;		/* [B + 1] into use[] */
	struct block_use *use;
	struct kvt_digest *multiplier;	/* [nrequests] */
	struct kvt_table *table;	/* [nrequests] */
};

/* Sums of one box, in a worker's buffer; zero before the first cell. */
struct box_sums {
	struct kvt_digest *head[DIGEST_NSCOPES];	/* [box L][nheads] */
	struct kvt_digest *block[DIGEST_NSCOPES];	/* [box B] */
	struct kvt_digest *request;			/* [nrequests] */
};

/* ---- coordinates -------------------------------------------------------- */

static uint64_t channel_component(const struct kvt_group *group, int64_t d)
{
	static const struct {
		const char *name;
		enum kvt_component_code code;
	} parts[] = { { "x", KVT_COMPONENT_CONV_X }, { "B", KVT_COMPONENT_CONV_B },
		      { "C", KVT_COMPONENT_CONV_C } };
	const struct kvt_component *c = kvt_group_component(group, d);

	for (size_t p = 0; c && p < sizeof(parts) / sizeof(parts[0]); p++)
		if (!strcmp(c->name, parts[p].name))
			return parts[p].code;
	return KVT_COMPONENT_CONV;
}

static uint64_t content_component(const struct kvt_group *group, int64_t k)
{
	int half = kvt_group_half(group);

	if (group->kind == KVT_MAMBA_SSM)
		return KVT_COMPONENT_SSM;
	if (half >= 0)
		return (uint64_t)half;
	return group->shape.n[KVT_AXIS_K] == 1 ? KVT_COMPONENT_CONTENT : (uint64_t)k;
}

/* ---- one cell at all its places ----------------------------------------- */

struct cell_place {
	int64_t l, b, s;		/* in the file */
	int64_t box_l, box_b;		/* in the box */
	int64_t head;			/* or channel, in the file */
	uint64_t component;
};

static void add_cell(const struct digest_job *job, struct box_sums *sums,
		     const struct cell_place *p, const void *bytes, int64_t nbytes)
{
	const struct kvt_group *group = job->group;
	const bool recurrent = group->tokens_per_slot < 0;
	int64_t nheads = job->out->group[job->index].nheads;
	struct kvt_digest content = kvt_digest_content(bytes, nbytes), hash;
	struct kvt_cell cell = {
		.layer = kvt_layer_id(group, p->l),
		.position = kvt_block_id(group, p->b),
		.slot = recurrent ? 0 : (uint64_t)p->s,
		.head = kvt_head_id(group, p->head), .component = p->component,
	};
	int64_t at = p->box_l * nheads + p->head;

	if (!job->out->tokens_only) {
		hash = kvt_digest_cell(&content, &cell);
		kvt_digest_add(&sums->head[DIGEST_BLOCKS][at], &hash);
		kvt_digest_add(&sums->block[DIGEST_BLOCKS][p->box_b], &hash);
	}
	if (!job->out->has_tokens)
		return;
	for (int64_t u = job->first_use[p->b]; u < job->first_use[p->b + 1]; u++) {
		int64_t r = job->use[u].request, j = job->use[u].ordinal;
		int64_t position = recurrent ? j : j * group->shape.n[KVT_AXIS_S] + p->s;

		if (p->b == job->table[r].null_block ||
		    !kvt_table_needs(&job->table[r], position))
			continue;
		cell.position = (uint64_t)position;
		cell.slot = 0;
		hash = kvt_digest_cell(&content, &cell);
		kvt_digest_add(&sums->request[r], &hash);
		hash = kvt_digest_times(&hash, &job->multiplier[r]);
		kvt_digest_add(&sums->head[DIGEST_TOKENS][at], &hash);
		kvt_digest_add(&sums->block[DIGEST_TOKENS][p->box_b], &hash);
	}
}

/* Every cell of one block of one layer; 'bytes' is where it begins. */
static void add_block(const struct digest_job *job, struct box_sums *sums,
		      struct cell_place p, const uint8_t *bytes,
		      const int64_t stride[KVT_NAXES])
{
	const struct kvt_group *group = job->group;
	const int64_t *n = group->shape.n;

	if (group->kind == KVT_MAMBA_CONV) {
		for (p.head = 0; p.head < n[KVT_AXIS_D]; p.head++) {
			p.component = channel_component(group, p.head);
			add_cell(job, sums, &p, bytes + p.head * stride[KVT_AXIS_D],
				 n[KVT_AXIS_S] * group->shape.elem);
		}
		return;
	}
	for (p.head = 0; p.head < n[KVT_AXIS_H]; p.head++)
	for (int64_t k = 0; k < n[KVT_AXIS_K]; k++) {
		const uint8_t *cell = bytes + p.head * stride[KVT_AXIS_H] +
				      k * stride[KVT_AXIS_K];

		p.component = content_component(group, k);
		for (p.s = 0; p.s < n[KVT_AXIS_S]; p.s++)
			add_cell(job, sums, &p, cell + p.s * stride[KVT_AXIS_S],
				 n[KVT_AXIS_D] * group->shape.elem);
	}
}

/* ---- one box ------------------------------------------------------------ */

static int64_t requests_of(const struct digest_job *job)
{
	return kvt_dump_snapshot(job->out->reader)->nrequests;
}

/* Sums of heads and blocks. */
static int64_t parts_count(const struct digest_job *job)
{
	return DIGEST_NSCOPES * (job->cut.layers * job->out->group[job->index].nheads +
				 job->cut.blocks);
}

static int64_t box_sums_count(const struct digest_job *job)
{
	return parts_count(job) + requests_of(job);
}

static struct box_sums box_sums_at(const struct digest_job *job, struct kvt_digest *p)
{
	struct box_sums sums;

	for (int s = 0; s < DIGEST_NSCOPES; s++) {
		sums.head[s] = p;
		p += job->cut.layers * job->out->group[job->index].nheads;
		sums.block[s] = p;
		p += job->cut.blocks;
	}
	sums.request = p;
	return sums;
}

static struct box_sums box_sums_init(const struct digest_job *job, uint8_t *buffer)
{
	memset(buffer, 0, (size_t)box_sums_count(job) * sizeof(struct kvt_digest));
	return box_sums_at(job, (struct kvt_digest *)(void *)buffer);
}

static void add_parts(const struct digest_job *job, const struct box_sums *sums,
		  const struct kvt_box *box)
{
	struct digest_group *g = &job->out->group[job->index];
	int64_t l0 = box->begin[KVT_AXIS_L], b0 = box->begin[KVT_AXIS_B];
	int64_t nl = box->end[KVT_AXIS_L] - l0, nb = box->end[KVT_AXIS_B] - b0;

	for (int s = 0; s < DIGEST_NSCOPES; s++) {
		for (int64_t i = 0; i < nl * g->nheads; i++) {
			kvt_digest_add(&g->head[s][l0 * g->nheads + i],
				       &sums->head[s][i]);
			kvt_digest_add(&job->out->whole[s], &sums->head[s][i]);
		}
		for (int64_t i = 0; i < nb; i++)
			kvt_digest_add(&g->block[s][b0 + i], &sums->block[s][i]);
	}
}

static void merge(const struct digest_job *job, const struct box_sums *sums,
		  const struct kvt_box *box)
{
	add_parts(job, sums, box);
	for (int64_t r = 0; r < requests_of(job); r++)
		kvt_digest_add(&job->out->request[r], &sums->request[r]);
}

/* ---- the result of a box: sums of its parts, and of the requests that are in it -- */

struct request_sum {
	uint64_t request;
	struct kvt_digest sum;
};

static void put_result(const struct digest_job *job, struct kvt_worker *worker,
		       const struct box_sums *sums)
{
	int64_t nparts = parts_count(job) * (int64_t)sizeof(struct kvt_digest);
	struct request_sum *to = (struct request_sum *)(void *)(worker->result + nparts);

	memcpy(worker->result, worker->buffer[1], (size_t)nparts);
	for (int64_t r = 0; r < requests_of(job); r++)
		if (sums->request[r].hi | sums->request[r].lo)
			*to++ = (struct request_sum){ (uint64_t)r, sums->request[r] };
	worker->nresult = (uint8_t *)to - worker->result;
}

/* kvt_merge_fn */
static bool take_result(void *context, int64_t i, const void *result, int64_t nbytes)
{
	const struct digest_job *job = context;
	struct kvt_digest *parts = (struct kvt_digest *)(uintptr_t)result;
	const struct box_sums sums = box_sums_at(job, parts);
	const struct kvt_box box = kvt_cut_box(&job->cut, i);
	const struct request_sum *r = (const void *)(parts + parts_count(job));
	int64_t left = nbytes - parts_count(job) * (int64_t)sizeof(*parts);

	if (left < 0 || left % (int64_t)sizeof(*r))
		return false;
	add_parts(job, &sums, &box);
	for (; left; left -= (int64_t)sizeof(*r), r++) {
		if (r->request >= (uint64_t)requests_of(job))
			return false;
		kvt_digest_add(&job->out->request[r->request], &r->sum);
	}
	return true;
}

static const struct kvt_layout *cells_of(const struct kvt_group *group)
{
	return group->kind == KVT_MAMBA_CONV ? &channel_cells : &kvt_layout_slots;
}

/*
 * From one index to the next in a box of this order.  False if a cell is not one run
 * in it, or if an axis has no stride, for it is split, or K has planes.
 */
static bool cell_strides(int64_t stride[KVT_NAXES], const struct kvt_layout *layout,
			 const struct kvt_box *box, const struct kvt_group *group)
{
	enum kvt_axis run = group->kind == KVT_MAMBA_CONV ? KVT_AXIS_S : KVT_AXIS_D;
	int factors[KVT_NAXES] = { 0 };
	struct kvt_views views;

	if (kvt_layout_views(&views, layout, box, group->shape.elem, NULL) ||
	    views.count != 1)
		return false;
	for (int f = 0; f < views.view[0].nfactors; f++)
		if (++factors[views.view[0].factor[f].axis] > 1 ||
		    views.view[0].factor[f].div > 1)
			return false;
	for (int a = 0; a < KVT_NAXES; a++)
		stride[a] = kvt_view_stride(&views.view[0], (enum kvt_axis)a);
	return group->shape.n[run] == 1 || stride[run] == group->shape.elem;
}

/* All cells of a box, whose strides are those of cell_strides(). */
static struct box_sums sum_cells(const struct digest_job *job, const struct placed *at,
				 const int64_t stride[KVT_NAXES], uint8_t *room)
{
	const int64_t *begin = at->box.begin, *end = at->box.end;
	struct box_sums sums = box_sums_init(job, room);
	struct cell_place p = { 0 };

	for (p.l = begin[KVT_AXIS_L]; p.l < end[KVT_AXIS_L]; p.l++)
		for (p.b = begin[KVT_AXIS_B]; p.b < end[KVT_AXIS_B]; p.b++) {
			p.box_l = p.l - begin[KVT_AXIS_L];
			p.box_b = p.b - begin[KVT_AXIS_B];
			add_block(job, &sums, p, at->bytes +
				  p.box_l * stride[KVT_AXIS_L] +
				  p.box_b * stride[KVT_AXIS_B], stride);
		}
	return sums;
}

enum kvt_status digest_box(struct digest_job *job, struct kvt_worker *worker,
			   const struct placed *box, uint8_t *cells, uint8_t *sums,
			   struct kvt_error *err)
{
	const struct placed sorted = { cells_of(job->group), box->box, cells };
	const struct placed *at = box;
	int64_t stride[KVT_NAXES];
	struct box_sums found;
	enum kvt_status status;

	if (!cell_strides(stride, box->layout, &box->box, job->group)) {
		if ((status = copy_box(worker, &sorted, box, &box->box,
				       job->group->shape.elem, err)))
			return status;
		at = &sorted;
		cell_strides(stride, sorted.layout, &sorted.box, job->group);
	}
	found = sum_cells(job, at, stride, sums);
	kvt_worker_lock(worker);
	merge(job, &found, &at->box);
	kvt_worker_unlock(worker);
	return KVT_OK;
}

static enum kvt_status sum_box(struct kvt_worker *worker, void *context, int64_t i,
			       struct kvt_error *err)
{
	struct digest_job *job = context;
	struct kvt_box box = kvt_cut_box(&job->cut, i);
	const struct placed cells = { cells_of(job->group), box, worker->buffer[0] };
	struct kvt_shape shape = kvt_box_shape(&box, job->group->shape.elem);
	int64_t stride[KVT_NAXES], nbytes;
	struct box_sums sums;
	enum kvt_status status;

	if ((status = kvt_shape_nbytes(&nbytes, &shape, err)) ||
	    (status = kvt_read(worker, job->out->reader, job->index, &box, cells.layout,
			       cells.bytes, err)))
		return status;
	cell_strides(stride, cells.layout, &box, job->group);
	sums = sum_cells(job, &cells, stride, worker->buffer[1]);
	put_result(job, worker, &sums);
	kvt_worker_progress(worker, nbytes);
	return KVT_OK;
}

/* ---- the requests of a group -------------------------------------------- */

static enum kvt_status index_uses(struct digest_job *job, struct kvt_error *err)
{
	const struct kvt_snapshot *snap = kvt_dump_snapshot(job->out->reader);
	int64_t nb = job->group->shape.n[KVT_AXIS_B], total = 0, at;

	for (int64_t r = 0; r < snap->nrequests; r++)
		total += snap->request[r].nblocks[job->index];
	job->first_use = calloc((size_t)nb + 2, sizeof(*job->first_use));
	job->use = calloc((size_t)total + 1, sizeof(*job->use));
	job->multiplier = calloc((size_t)snap->nrequests + 1, sizeof(*job->multiplier));
	job->table = calloc((size_t)snap->nrequests + 1, sizeof(*job->table));
	if (!job->first_use || !job->use || !job->multiplier || !job->table)
		return kvt_no_memory(err, NULL);
	for (int64_t r = 0; r < snap->nrequests; r++) {
		const struct kvt_request *q = &snap->request[r];

		job->multiplier[r] = kvt_digest_request(q->id);
		job->table[r] = job->out->group[job->index].version == DIGEST_KVD1 ?
				kvt_table_named(snap, job->index, q) :
				kvt_table_of(snap, job->index, q);
		for (int64_t j = 0; j < q->nblocks[job->index]; j++)
			job->first_use[q->blocks[job->index][j] + 2]++;
	}
	/* counting sort: [b + 1] is where the uses of b begin, then moves on */
	for (int64_t b = 0; b < nb; b++)
		job->first_use[b + 2] += job->first_use[b + 1];
	for (int64_t r = 0; r < snap->nrequests; r++) {
		const struct kvt_request *q = &snap->request[r];

		for (int64_t j = 0; j < q->nblocks[job->index]; j++) {
			at = job->first_use[q->blocks[job->index][j] + 1]++;
			job->use[at] = (struct block_use){ r, job->table[r].first + j };
		}
	}
	return KVT_OK;
}

static enum kvt_status allocate_sums(struct digest_group *g,
				     const struct kvt_group *group, struct kvt_error *err)
{
	int64_t nl = group->shape.n[KVT_AXIS_L], nb = group->shape.n[KVT_AXIS_B];
	bool ok = true;

	g->nheads = group->shape.n[group->kind == KVT_MAMBA_CONV ? KVT_AXIS_D :
								  KVT_AXIS_H];
	for (int s = 0; s < DIGEST_NSCOPES; s++) {
		g->head[s] = calloc((size_t)(nl * g->nheads) + 1, sizeof(**g->head));
		g->block[s] = calloc((size_t)nb + 1, sizeof(**g->block));
		ok &= g->head[s] && g->block[s];
	}
	return ok ? KVT_OK : kvt_no_memory(err, NULL);
}

/* ---- all of it ---------------------------------------------------------- */

/* The older one where it says the same. */
static enum digest_version version_of(const struct kvt_snapshot *snap, int g,
				      enum digest_version asked)
{
	return asked != DIGEST_KVD1 && kvt_group_forgets(snap, g) ? DIGEST_KVD2 :
								    DIGEST_KVD1;
}

enum kvt_status digests_init(struct digests *out, struct kvt_dump *reader,
			     enum digest_version asked, struct kvt_error *err)
{
	const struct kvt_snapshot *snap = kvt_dump_snapshot(reader);

	*out = (struct digests){ .reader = reader, .asked = asked, .version = DIGEST_KVD1,
				 .has_tokens = snap->nrequests > 0 || !snap->ngroups };
	for (int g = 0; g < snap->ngroups; g++) {
		out->group[g].version = version_of(snap, g, asked);
		if (out->version < out->group[g].version)
			out->version = out->group[g].version;
	}
	out->request = calloc((size_t)snap->nrequests + 1, sizeof(*out->request));
	return out->request ? KVT_OK : kvt_no_memory(err, NULL);
}

void digest_job_free(struct digest_job *job)
{
	if (!job)
		return;
	free(job->first_use);
	free(job->use);
	free(job->multiplier);
	free(job->table);
	free(job);
}

enum kvt_status digest_job_new(struct digest_job **out, struct digests *digests,
			       int group, struct kvt_error *err)
{
	struct digest_job *job = calloc(1, sizeof(*job));
	enum kvt_status status;

	if (!job)
		return kvt_no_memory(err, NULL);
	job->out = digests;
	job->index = group;
	job->group = kvt_dump_group(digests->reader, group);
	if ((status = allocate_sums(&digests->group[group], job->group, err)) ||
	    (status = index_uses(job, err)))
		digest_job_free(job);
	else
		*out = job;
	return status;
}

int64_t digest_job_cut(struct digest_job *job, const struct kvt_cut *cut)
{
	job->cut = *cut;
	return box_sums_count(job) * (int64_t)sizeof(struct kvt_digest);
}

static enum kvt_status sum_group(struct digest_job *job, const struct kvt_run *run,
				 struct kvt_error *err)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(job->out->reader, job->index);
	int64_t limit = run->memory ? run->memory : INT64_MAX;
	struct kvt_work work = { .fn = sum_box, .context = job, .label = "hashing",
				 .merge = take_result, .commutes = true };
	struct kvt_cut cut = kvt_cut_choose(job->group, tiling, NULL, NULL, limit / 4);
	enum kvt_status status = kvt_shape_nbytes(&work.total_bytes, &job->group->shape,
						  err);

	if (status)
		return status;
	work.count = work.total_bytes ? cut.nboxes : 0;
	work.buffer_bytes[0] = cut.box_bytes;
	work.buffer_bytes[1] = digest_job_cut(job, &cut);
	work.result_bytes = parts_count(job) * (int64_t)sizeof(struct kvt_digest) +
			    requests_of(job) * (int64_t)sizeof(struct request_sum);
	/* contracts may ask for both */
	work.part = job->index + (job->out->asked == DIGEST_KVD1 ? KVT_MAX_GROUPS : 0);
	kvt_work_reads(&work, job->out->reader, job->index, &cut, cells_of(job->group));
	return kvt_work_run(&work, run, err);
}

enum kvt_status kvt_digests_compute(struct digests *out, struct kvt_dump *reader,
				    enum digest_version asked, const struct kvt_run *run,
				    struct kvt_error *err)
{
	enum kvt_status status = digests_init(out, reader, asked, err);

	for (int g = 0; !status && g < kvt_dump_snapshot(reader)->ngroups; g++) {
		struct digest_job *job = NULL;

		if (!(status = digest_job_new(&job, out, g, err)))
			status = sum_group(job, run, err);
		digest_job_free(job);
	}
	return status;
}

void kvt_digests_free(struct digests *digests)
{
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		for (int s = 0; s < DIGEST_NSCOPES; s++) {
			free(digests->group[g].head[s]);
			free(digests->group[g].block[s]);
		}
	free(digests->request);
}

enum digest_version kvt_digests_version(const struct digests *digests, int64_t request)
{
	const struct kvt_snapshot *snap = kvt_dump_snapshot(digests->reader);
	enum digest_version version = DIGEST_KVD1;

	for (int g = 0; g < snap->ngroups; g++)
		if (snap->request[request].nblocks[g] &&
		    version < digests->group[g].version)
			version = digests->group[g].version;
	return version;
}

struct digest_value kvt_digest_text(enum digest_scope scope, enum digest_version version,
				    const struct kvt_digest *d)
{
	bool tokens = scope == DIGEST_TOKENS;
	struct digest_value v;

	snprintf(v.s, sizeof(v.s), "kvd%d:%s:%016" PRIx64 "%016" PRIx64,
		 tokens && version == DIGEST_KVD2 ? 2 : 1, tokens ? "tokens" : "blocks",
		 d->hi, d->lo);
	return v;
}

enum kvt_status kvt_dump_digest(struct kvt_text *out, const struct kvt_dump *dump,
				enum kvt_scope scope, const struct kvt_run *run,
				struct kvt_error *err)
{
	const struct kvt_run quiet = { 0 };
	enum digest_scope which = scope == KVT_SCOPE_BLOCKS ? DIGEST_BLOCKS :
							      DIGEST_TOKENS;
	struct digests d;
	enum kvt_status status;

	if (which == DIGEST_TOKENS && !kvt_dump_snapshot(dump)->nrequests)
		return kvt_fail(err, KVT_BAD_INPUT,
				"no tokens scope: the dump has no block tables");
	status = kvt_digests_compute(&d, (struct kvt_dump *)(uintptr_t)dump,
				     DIGEST_NEWEST, run ? run : &quiet, err);
	if (!status && !(status = kvt_dump_unchanged(dump, err)))
		snprintf(out->s, sizeof(out->s), "%s",
			 kvt_digest_text(which, which == DIGEST_TOKENS ? d.version :
					 DIGEST_KVD1, &d.whole[which]).s);
	kvt_digests_free(&d);
	return status;
}
