/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt_place.c - blocks with names become the requests whose prompts are known
 *
 * File j of a group has the tokens up to (j + 1) * block size * blocks a file, and is
 * called after the hash there.  How long a request is follows from all groups: an engine
 * goes on from the last place before which each has what it needs, all of it, or as much
 * as its window.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/store/prompt.h"
#include "lib/base/number.h"

/* ---- blocks by name ------------------------------------------------------- */

/* HASH, or of HASH:PLACE what is before the colon. */
struct entry {
	const char *name;
	size_t n;
	int64_t block;
};

struct index {
	int64_t count;
	struct entry *entry;		/* owned; by name, then by block */
};

static int compare_names(const struct entry *x, const struct entry *y)
{
	size_t n = x->n < y->n ? x->n : y->n;
	int order = memcmp(x->name, y->name, n);

	return order ? order : (x->n > y->n) - (x->n < y->n);
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = compare_names(x, y);

	return order ? order : (x->block > y->block) - (x->block < y->block);
}

static enum kvt_status make_index(struct index *out, const struct kvt_group *group,
				  const char *path, struct kvt_error *err)
{
	int64_t n = group->block_names ? group->shape.n[KVT_AXIS_B] : 0;

	*out = (struct index){ 0, calloc((size_t)n + 1, sizeof(*out->entry)) };
	if (!out->entry)
		return kvt_no_memory(err, path);
	for (int64_t b = 0; b < n; b++) {
		const char *name = group->block_names[b];
		size_t length = name ? strcspn(name, ":") : 0;

		if (name)
			out->entry[out->count++] = (struct entry){ name, length, b };
	}
	qsort(out->entry, (size_t)out->count, sizeof(*out->entry), compare_entries);
	return KVT_OK;
}

/* The first block of that name, and how many there are; 0: there is none. */
static int64_t find(int64_t *first, const struct index *index, const char *name)
{
	const struct entry wanted = { name, strlen(name), 0 };
	int64_t from = 0, to = index->count, n = 0;

	while (from < to) {
		int64_t mid = from + (to - from) / 2;

		if (compare_names(&index->entry[mid], &wanted) < 0)
			from = mid + 1;
		else
			to = mid;
	}
	while (from + n < index->count &&
	       !compare_names(&index->entry[from + n], &wanted))
		n++;
	*first = n ? index->entry[from].block : -1;
	return n;
}

/* ---- all of them ---------------------------------------------------------- */

struct placing {
	struct kvt_reader *reader;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_named named;
	struct index index[KVT_MAX_GROUPS];
	int64_t each[KVT_MAX_GROUPS];		/* tokens of a file */
	int64_t blocks[KVT_MAX_GROUPS];		/* of a file */
	bool *there[KVT_MAX_GROUPS];		/* files of the prompt at hand; owned */
	int64_t files[KVT_MAX_GROUPS];
};

static enum kvt_status no_memory(const struct placing *p)
{
	return kvt_no_memory(p->err, p->reader->leaf.path);
}

static bool has_name(const void *context, const char *name)
{
	const struct placing *p = context;
	int64_t first;

	for (int g = 0; g < p->reader->leaf.snapshot.ngroups; g++)
		if (find(&first, &p->index[g], name))
			return true;
	return false;
}

/* "g0:64,g1:128": windows of groups, which no file of a tree says. */
static enum kvt_status take_windows(struct placing *p)
{
	const char *said = kvt_fact(p->hints, "window"), *at = said;
	struct kvt_snapshot *s = &p->reader->leaf.snapshot;

	while (at && *at) {
		size_t n = strcspn(at, ":,");
		struct kvt_group *group = NULL;
		int64_t window = 0;

		for (int g = 0; g < s->ngroups; g++)
			if (!strncmp(s->group[g].id, at, n) && !s->group[g].id[n])
				group = &s->group[g];
		at += n + (at[n] == ':');
		if (!group || !kvt_number_take(&window, &at) || window < 1 ||
		    (*at && *at != ','))
			return kvt_fail(p->err, KVT_USAGE,
					"--set=window=%.80s, expected GROUP:TOKENS,... with groups of the tree, the first of which is %s",
					said, s->group[0].id);
		group->window = window;
		group->kind = KVT_SLIDING_WINDOW;
		at += *at == ',';
	}
	return KVT_OK;
}

/* Names are of whole units of tokens; a file ends with one. */
static enum kvt_status measure(struct placing *p)
{
	struct kvt_reader *reader = p->reader;
	const struct kvt_snapshot *s = &reader->leaf.snapshot;
	const char *path = reader->leaf.path;
	int64_t unit = reader->named_unit ? reader->named_unit : s->group[0].block_size;
	enum kvt_status status = KVT_OK;

	p->named.unit = unit;
	for (int g = 0; !status && g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];

		if (group->block_size < 1 || group->tokens_per_slot != 1 ||
		    !group->block_names)
			return kvt_fail(p->err, KVT_UNSUPPORTED,
					"%s: --prompt: group %s is no blocks of tokens that have names; --set=group or --set=pool reads others alone",
					path, group->id);
		p->blocks[g] = reader->named_blocks ? reader->named_blocks : 1;
		if (unit < 1 ||
		    __builtin_mul_overflow(group->block_size, p->blocks[g],
					   &p->each[g]) || p->each[g] % unit)
			return kvt_fail(p->err, KVT_UNSUPPORTED,
					"%s: files of group %s have %lld tokens, names are of %lld: which is which is not known",
					path, group->id, LL(p->each[g]), LL(unit));
		status = make_index(&p->index[g], group, path, p->err);
	}
	return status;
}

/* Which files of prompt i are there. */
static enum kvt_status look(struct placing *p, int64_t i)
{
	const struct kvt_prompt *prompt = &p->named.prompts.prompt[i];
	int64_t first;

	for (int g = 0; g < p->reader->leaf.snapshot.ngroups; g++) {
		int64_t step = p->each[g] / p->named.unit;

		p->files[g] = prompt->ntokens / p->each[g];
		free(p->there[g]);
		if (!(p->there[g] = calloc((size_t)p->files[g] + 1, sizeof(bool))))
			return no_memory(p);
		for (int64_t f = 0; f < p->files[g]; f++)
			p->there[g][f] = find(&first, &p->index[g],
					      p->named.name[i][(f + 1) * step - 1]) ==
					 p->blocks[g];
	}
	return KVT_OK;
}

/* The first file that the group needs before token 'end'. */
static int64_t first_needed(const struct placing *p, int g, int64_t end)
{
	int64_t window = p->reader->leaf.snapshot.group[g].window;

	return !window || end < window ? 0 : (end - window + 1) / p->each[g];
}

static bool goes_on(const struct placing *p, int64_t end)
{
	for (int g = 0; g < p->reader->leaf.snapshot.ngroups; g++)
		for (int64_t f = first_needed(p, g, end); f < end / p->each[g]; f++)
			if (!p->there[g][f])
				return false;
	return true;
}

/* Files in a row from the first on; those behind a hole count where a window is. */
static int64_t most_tokens(const struct placing *p, int g)
{
	int64_t n = 0;

	if (p->reader->leaf.snapshot.group[g].window)
		return p->files[g] * p->each[g];
	while (n < p->files[g] && p->there[g][n])
		n++;
	return n * p->each[g];
}

/* The last place before which every group has what it needs. */
static int64_t length(const struct placing *p)
{
	int64_t most = INT64_MAX, step = 1;

	for (int g = 0; g < p->reader->leaf.snapshot.ngroups; g++) {
		int64_t n = most_tokens(p, g);

		most = n < most ? n : most;
		step = kvt_lcm(step, p->each[g]);
		if (step > most)
			return 0;
	}
	for (most -= most % step; most > 0 && !goes_on(p, most);)
		most -= step;
	return most;
}

/* ---- a request ------------------------------------------------------------ */

static enum kvt_status set_table(struct placing *p, struct kvt_request *request, int g,
				 int64_t i)
{
	int64_t begin = first_needed(p, g, request->ntokens), per = p->blocks[g];
	int64_t end = request->ntokens / p->each[g], step = p->each[g] / p->named.unit;
	uint32_t *table = calloc((size_t)((end - begin) * per) + 1, sizeof(*table));

	request->blocks[g] = table;
	request->nblocks[g] = (end - begin) * per;
	if (!table)
		return no_memory(p);
	for (int64_t f = begin; f < end; f++) {
		int64_t first;

		find(&first, &p->index[g], p->named.name[i][(f + 1) * step - 1]);
		for (int64_t b = 0; b < per; b++)
			table[(f - begin) * per + b] = (uint32_t)(first + b);
	}
	return KVT_OK;
}

static enum kvt_status add_request(struct placing *p, int64_t i)
{
	const struct kvt_prompt *prompt = &p->named.prompts.prompt[i];
	struct kvt_snapshot *s = &p->reader->leaf.snapshot;
	struct kvt_request *request = &s->request[s->nrequests];
	enum kvt_status status = look(p, i);

	if (status)
		return status;
	s->nrequests++;
	request->ntokens = length(p);
	if (!(request->id = strdup(prompt->name)))
		return no_memory(p);
	for (int g = 0; !status && g < s->ngroups; g++) {
		int64_t reached = request->ntokens / p->each[g];

		if (!(status = set_table(p, request, g, i)))
			status = kvt_sought_add(&p->reader->leaf, prompt, s->group[g].id,
						p->there[g], p->files[g], p->each[g],
						reached, p->hints, p->err);
	}
	return status;
}

static enum kvt_status place(struct placing *p)
{
	struct kvt_reader *reader = p->reader;
	struct kvt_snapshot *s = &reader->leaf.snapshot;
	enum kvt_status status;

	if ((status = take_windows(p)) || (status = measure(p)) ||
	    (status = kvt_named_find(&p->named, reader->named_by, p->named.unit, has_name,
				     p, reader->leaf.path, p->hints, p->err)))
		return status;
	kvt_requests_free(s->request, s->nrequests);
	s->nrequests = 0;
	s->request = calloc((size_t)p->named.prompts.count + 1, sizeof(*s->request));
	if (!s->request)
		return no_memory(p);
	snprintf(reader->leaf.named_by, sizeof(reader->leaf.named_by), "%s",
		 p->named.how);
	for (int64_t i = 0; !status && i < p->named.prompts.count; i++)
		status = add_request(p, i);
	return status;
}

enum kvt_status kvt_prompt_place(struct kvt_reader *reader, const struct kvt_hints *hints,
				 struct kvt_error *err)
{
	struct placing *p = NULL;
	enum kvt_status status;

	/* chunks have made their requests themselves */
	if (reader->leaf.nsought)
		return KVT_OK;
	if (!reader->named_by)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: --prompt: its names are no hashes that kvtool knows how to make",
				reader->leaf.path);
	if (!(p = calloc(1, sizeof(*p))))
		return kvt_no_memory(err, reader->leaf.path);
	*p = (struct placing){ .reader = reader, .hints = hints, .err = err };
	status = place(p);
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		free(p->index[g].entry);
		free(p->there[g]);
	}
	kvt_named_free(&p->named);
	free(p);
	return status;
}
