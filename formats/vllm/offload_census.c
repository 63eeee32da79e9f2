/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_census.c - files of an offload tree that are not as its others
 *
 * fsck tells of them and looks at the rest.  Of a sample (fsck --sample) all files are
 * seen and a few are opened: names are judged as they come, lengths are counted, for
 * which is right is known only later.  Memory does not grow with the tree.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/vllm/offload.h"

enum { MOST_SIZES = 64, EACH = 4096 };

struct size {
	int group;
	int64_t nbytes, n;
	char first[160];
};

struct kvt_offload_census {
	const struct kvt_offload *o;
	int64_t files, of[KVT_MAX_GROUPS];
	int nsizes;
	int64_t rest;			/* of still other lengths */
	struct size size[MOST_SIZES];
};

/* ---- as they come --------------------------------------------------------- */

static void tell_name(const struct kvt_offload *o, const char *name)
{
	kvt_tell(o->hints, "file.foreign", "%.300s is not a file of an offload tree",
		 name);
}

static void count_size(struct kvt_offload_census *c, int group, const char *name,
		       int64_t nbytes)
{
	struct size *at = c->size, *end = c->size + c->nsizes;

	while (at < end && (at->nbytes != nbytes || at->group != group))
		at++;
	if (at == end && c->nsizes == MOST_SIZES) {
		c->rest++;
		return;
	}
	if (at == end) {
		c->nsizes++;
		*at = (struct size){ .group = group, .nbytes = nbytes };
		snprintf(at->first, sizeof(at->first), "%s", name);
	}
	at->n++;
}

static bool seen(void *context, const char *name, int64_t nbytes)
{
	struct kvt_offload_census *c = context;
	const struct kvt_inspector *inspector = c->o->hints->inspector;
	struct kvt_name_part hash;
	int group = -1;

	if (inspector && inspector->seen && ++c->files % EACH == 0)
		inspector->seen(inspector->context, c->files);
	if (!kvt_offload_name(&hash, &group, name) || group >= KVT_MAX_GROUPS) {
		tell_name(c->o, name);
		return false;
	}
	c->of[group]++;
	count_size(c, group, name, nbytes);
	return true;
}

static void skipped(void *context, const char *name)
{
	const struct kvt_offload_census *c = context;

	kvt_offload_tell_leftover(c->o, name);
}

enum kvt_status kvt_offload_walk(struct kvt_offload *o)
{
	struct kvt_tree_watch watch = { .keep = o->hints->sample, .seen = seen,
					.skipped = skipped };
	enum kvt_status status;

	if (!watch.keep)
		return kvt_tree_walk(&o->tree, o->folder, o->err);
	if (!(o->census = calloc(1, sizeof(*o->census))))
		return kvt_no_memory(o->err, o->path);
	o->census->o = o;
	watch.context = o->census;
	if ((status = kvt_tree_sample(&o->tree, o->folder, &watch, o->err)))
		return status;
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		o->reader->leaf.files_of += o->census->of[g];
	return KVT_OK;
}

bool kvt_offload_has_group(const struct kvt_offload *o, int number)
{
	return o->census ? o->census->of[number] : o->of[number].count;
}

bool kvt_offload_leave_names(struct kvt_offload *o, int64_t i)
{
	if (!o->hints->inspector)
		return false;
	tell_name(o, o->tree.file[i].name);
	o->tree.file[i].nbytes = -1;
	return true;
}

/* ---- lengths -------------------------------------------------------------- */

/* Files of other lengths, of a sample: the first of each length, and how many. */
static void tell_sizes(const struct kvt_offload *o, int64_t nbytes)
{
	const struct kvt_inspector *inspector = o->hints->inspector;
	int64_t more = o->census->rest;

	for (int i = 0; i < o->census->nsizes; i++) {
		const struct size *s = &o->census->size[i];

		if (s->nbytes == nbytes)
			continue;
		kvt_tell(o->hints, "row.length", "%s: has %lld bytes, expected %lld%s",
			 s->first, LL(s->nbytes), LL(nbytes),
			 s->n > 1 ? "; others have as many" : "");
		more += s->n - 1;
	}
	if (more && inspector && inspector->more)
		inspector->more(inspector->context, "row.length", more);
}

/* Have more files this length than all others together? */
static bool is_usual(const struct kvt_offload *o, int64_t nbytes)
{
	int64_t right = 0, all = o->census ? o->reader->leaf.files_of : o->tree.count;

	for (int i = 0; o->census && i < o->census->nsizes; i++)
		if (o->census->size[i].nbytes == nbytes)
			right += o->census->size[i].n;
	for (int64_t i = 0; !o->census && i < o->tree.count; i++)
		right += o->tree.file[i].nbytes == nbytes;
	return 2 * right > all;
}

bool kvt_offload_leave_lengths(struct kvt_offload *o, int64_t nbytes)
{
	int64_t right[KVT_MAX_GROUPS] = { 0 };

	if (!o->hints->inspector || !is_usual(o, nbytes))
		return false;
	for (int64_t i = 0; i < o->tree.count; i++)
		if (o->tree.file[i].nbytes == nbytes)
			right[kvt_offload_group_of(o, i)]++;
	if (o->census)
		tell_sizes(o, nbytes);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		if (o->of[g].count && !right[g])
			return false;
	for (int64_t i = 0; i < o->tree.count; i++) {
		struct kvt_tree_file *f = &o->tree.file[i];

		if (f->nbytes == nbytes)
			continue;
		if (!o->census)
			kvt_tell(o->hints, "row.length",
				 "%.200s: has %lld bytes, expected %lld", f->name,
				 LL(f->nbytes), LL(nbytes));
		f->nbytes = -1;
	}
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		o->of[g].count = right[g];
		o->of[g].name = NULL;
	}
	kvt_tree_drop(&o->tree);
	/* the others need not be counted again for the next group */
	free(o->census);
	o->census = NULL;
	return true;
}
