/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_written.c - by how many ranks a tree was written, and with which pages
 *
 * A config that is the same for every TP does not say it, and a folder that was used
 * again after a change of either has files of both.  whose.h tells them apart; here it
 * is given the files, and what it says is held against what is said of the tree.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/vllm/offload.h"
#include "formats/vllm/whose.h"
#include "lib/layout/words.h"

enum { FEW = 16, MOST_READ = 64 << 20, MOST_FILE = 512 << 20, MOST_KINDS = 8 };

/* Files that gave one answer. */
struct kind {
	struct kvt_whose_answer is;
	int64_t n;
};

struct looking {
	struct kvt_offload *o;
	const struct kvt_group *group;
	struct kvt_whose_shape shape;
	struct kvt_whose *whose;
	int64_t n, *file;		/* in the tree */
	struct kvt_whose_answer *is;	/* of each */
	struct kvt_whose_answer all;	/* of all files, or of those that most agree on */
	bool together;			/* all of them */
	struct kind kind[MOST_KINDS];
	int nkinds;
	int64_t unknown;
};

/* ---- what is looked at ---------------------------------------------------- */

/* Rows of one group with all heads, each page without a byte that is no row. */
static bool can_tell(struct looking *l)
{
	const struct kvt_offload *o = l->o;
	const int64_t *n = l->group->shape.n;

	l->shape = (struct kvt_whose_shape){
		.layers = n[KVT_AXIS_L], .heads = n[KVT_AXIS_H], .slots = n[KVT_AXIS_S],
		.blocks = o->config.blocks_per_file,
		.row = n[KVT_AXIS_D] * l->group->shape.elem };
	return o->rows && o->config.ngroups <= 1 && n[KVT_AXIS_K] == 2 && !o->row.page &&
	       !kvt_group_opaque(l->group) && !l->group->content.type &&
	       kvt_whose_can_tell(&l->shape) && kvt_whose_bytes(&l->shape) <= MOST_FILE;
}

/* So many, evenly spread over those of the group. */
static enum kvt_status choose(struct looking *l, int number, int64_t most)
{
	const struct kvt_offload *o = l->o;
	int64_t of = o->of[number].count, seen = 0;

	if (of > most)
		of = most;
	l->file = calloc((size_t)of + 1, sizeof(*l->file));
	l->is = calloc((size_t)of + 1, sizeof(*l->is));
	if (!l->file || !l->is)
		return kvt_no_memory(o->err, o->path);
	for (int64_t i = 0; i < o->tree.count; i++) {
		if (kvt_offload_group_of(o, i) != number)
			continue;
		if (l->n < of && seen++ * of / o->of[number].count >= l->n)
			l->file[l->n++] = i;
	}
	return KVT_OK;
}

/* 'first' is where the reader has the group's first file; -1: it has none yet. */
static enum kvt_status read_files(struct looking *l, int number, int64_t first)
{
	struct kvt_files *files = &l->o->reader->files;
	int64_t nbytes = kvt_whose_bytes(&l->shape), at = first, next = 0;
	uint8_t *buf = malloc((size_t)nbytes);
	enum kvt_status status = KVT_OK;

	if (!buf)
		return kvt_no_memory(l->o->err, l->o->path);
	for (int64_t i = 0; !status && next < l->n && i < l->o->tree.count; i++) {
		int index = (int)at;

		if (kvt_offload_group_of(l->o, i) != number)
			continue;
		at++;
		if (i != l->file[next])
			continue;
		next++;
		if (l->o->tree.file[i].nbytes < nbytes)
			status = kvt_fail(l->o->err, KVT_BAD_INPUT, "%s: is too short",
					  l->o->tree.file[i].name);
		else if (first < 0)
			status = kvt_tree_list(files, &index, &l->o->tree, i, l->o->err);
		if (!status)
			status = kvt_file_read(&files->file[index], buf, nbytes, 0,
					       l->o->err);
		if (!status)
			kvt_whose_see(l->whose, buf);
	}
	free(buf);
	return status;
}

/* ---- what it says --------------------------------------------------------- */

static bool same(struct kvt_whose_answer a, struct kvt_whose_answer b)
{
	return a.order == b.order && a.page == b.page;
}

/*
 * Of the orders that some files have, the one that this does not contradict; if it
 * contradicts them all, the only one that it does not.
 */
static int only_order(const struct looking *l, uint64_t orders, int64_t i)
{
	uint64_t fits = kvt_whose_fits(l->whose, i);

	if (fits & orders)
		fits &= orders;
	return orders && fits && !(fits & (fits - 1)) ? __builtin_ctzll(fits) : -1;
}

/* Of one order, the pages that most of its files have that tell. */
static enum kvt_whose_page most_pages(const struct looking *l, int order)
{
	int64_t n[KVT_WHOSE_NPAGES] = { 0 };

	for (int64_t i = 0; i < l->n; i++)
		n[l->is[i].page] += l->is[i].order == order;
	n[KVT_WHOSE_UNKNOWN] = 0;
	return n[KVT_WHOSE_HND] > n[KVT_WHOSE_NHD] ? KVT_WHOSE_HND :
	       n[KVT_WHOSE_NHD] ? KVT_WHOSE_NHD : KVT_WHOSE_UNKNOWN;
}

/* What a file does not tell by itself, the others do, if nothing speaks against it. */
static void answer_files(struct looking *l)
{
	uint64_t orders = 0;

	for (int64_t i = 0; i < l->n; i++) {
		l->is[i] = kvt_whose_file(l->whose, i);
		if (l->is[i].order >= 0)
			orders |= UINT64_C(1) << l->is[i].order;
	}
	for (int64_t i = 0; i < l->n; i++)
		if (l->is[i].order < 0) {
			l->is[i].order = only_order(l, orders, i);
			l->is[i].page = kvt_whose_page(l->whose, i, l->is[i].order);
		}
}

static void count_kind(struct looking *l, struct kvt_whose_answer is)
{
	int i = 0;

	while (i < l->nkinds && !same(l->kind[i].is, is))
		i++;
	if (is.order < 0 || i == MOST_KINDS) {
		l->unknown++;
		return;
	}
	if (i == l->nkinds)
		l->kind[l->nkinds++] = (struct kind){ is, 0 };
	l->kind[i].n++;
}

static void judge(struct looking *l)
{
	const struct kind *most = NULL;

	kvt_whose_settle(l->whose);
	answer_files(l);
	for (int64_t i = 0; i < l->n; i++) {
		struct kvt_whose_answer is = l->is[i];

		if (is.order >= 0 && !is.page)
			is.page = most_pages(l, is.order);
		count_kind(l, is);
	}
	for (int i = 0; i < l->nkinds; i++)
		if (!most || l->kind[i].n > most->n)
			most = &l->kind[i];
	l->all = kvt_whose_all(l->whose);
	/* pages of two kinds in one order of ranks */
	l->together = l->all.order >= 0 && l->nkinds < 2;
	if (!l->together && most)
		l->all = most->is;
}

/* "TP 2, HND" */
static int say(char *out, size_t room, const struct looking *l,
	       struct kvt_whose_answer is)
{
	static const char *const pages[] = { "", ", NHD", ", HND" };
	const struct kvt_whose_order *o = kvt_whose_order_at(l->whose, is.order);
	const char *also = "";

	if (o->family == KVT_WHOSE_HEADS)
		return snprintf(out, room, "heads outside of layers");
	if (l->o->row.canonical && l->shape.blocks == 1 && o->ranks == 1)
		return snprintf(out, room, "canonical form%s", pages[is.page]);
	if (l->shape.blocks > 1)
		also = o->family == KVT_WHOSE_LAYERS ? ", layers outermost" :
						       ", blocks outermost";
	else if (o->ranks == l->shape.heads)
		also = ", or heads outside of layers";
	return snprintf(out, room, "TP %lld%s%s", LL(o->ranks), also, pages[is.page]);
}

static double odds_of(const struct looking *l)
{
	return kvt_whose_odds(l->whose, l->all.order);
}

/* "1 in 165 by chance", "1 in 10^9 by chance" */
static int say_odds(char *out, size_t room, double odds)
{
	int digits = 0;

	if (odds < 1e6)
		return snprintf(out, room, "1 in %.0f by chance", odds);
	for (; odds >= 10; odds /= 10)
		digits++;
	return snprintf(out, room, "1 in 10^%d by chance", digits);
}

/* malloc()ed; NULL: out of memory. */
static char *make_text(const struct looking *l)
{
	size_t room = 200 + MOST_KINDS * 100, at = 0;
	char *text = malloc(room);

	if (!text)
		return NULL;
	if (l->together) {
		at += (size_t)say(text, room, l, l->all);
		at += (size_t)snprintf(text + at, room - at, ": likely (");
		at += (size_t)say_odds(text + at, room - at, odds_of(l));
		snprintf(text + at, room - at, "), by %lld of %lld file%s", LL(l->n),
			 LL(l->o->tree.count), l->o->tree.count == 1 ? "" : "s");
		return text;
	}
	if (!l->nkinds) {
		snprintf(text, room,
			 "not known: no TP has its first layer where tokens repeat, of %lld file%s",
			 LL(l->n), l->n == 1 ? "" : "s");
		return text;
	}
	if (l->nkinds > 1)
		at += (size_t)snprintf(text, room, "mixed: ");
	for (int i = 0; i < l->nkinds; i++) {
		at += (size_t)snprintf(text + at, room - at, "%s%lld file%s ",
				       i ? "; " : "", LL(l->kind[i].n),
				       l->kind[i].n == 1 ? "" : "s");
		at += (size_t)say(text + at, room - at, l, l->kind[i].is);
	}
	if (l->unknown)
		snprintf(text + at, room - at, "; %lld not known", LL(l->unknown));
	return text;
}

/* ---- against what is said ------------------------------------------------- */

static struct kvt_whose_answer expected(const struct looking *l)
{
	const struct kvt_layout *layout = &l->group->layout;
	const struct kvt_order *order = &layout->plane[layout->nplanes - 1];
	int heads = kvt_order_find(order, KVT_AXIS_H);
	enum kvt_whose_family family = KVT_WHOSE_LAYERS;

	if (kvt_order_whole(order, 0, KVT_AXIS_B))
		family = heads < kvt_order_find(order, KVT_AXIS_L) ? KVT_WHOSE_HEADS :
								    KVT_WHOSE_BLOCKS;
	return (struct kvt_whose_answer){
		kvt_whose_order_of(l->whose, family,
				   l->o->row.canonical ? 1 : l->o->row.ranks),
		kvt_order_find(order, KVT_AXIS_S) < heads ? KVT_WHOSE_NHD : KVT_WHOSE_HND
	};
}

static bool other_page(struct kvt_whose_answer a, struct kvt_whose_answer b)
{
	return a.page && b.page && a.page != b.page;
}

static void tell_file(const struct looking *l, int64_t i)
{
	const char *name = l->o->tree.file[l->file[i]].name;
	struct kvt_whose_answer is = l->is[i];
	char mine[80], most[80];

	if (kvt_whose_is_foreign(l->whose, i))
		kvt_tell(l->o->hints, "row.foreign",
			 "%.200s: none of its rows is that of a token in another file", name);
	if (l->together || is.order < 0 || l->all.order < 0 ||
	    (is.order == l->all.order && !other_page(is, l->all)))
		return;
	say(mine, sizeof(mine), l, is);
	say(most, sizeof(most), l, l->all);
	kvt_tell(l->o->hints, "row.mixed", "%.160s: its bytes fit %s, most files fit %s",
		 name, mine, most);
}

static void tell(const struct looking *l)
{
	struct kvt_whose_answer said = expected(l);
	char mine[80], odds[60];

	for (int64_t i = 0; i < l->n; i++)
		tell_file(l, i);
	if (l->all.order < 0 || said.order < 0)
		return;
	say(mine, sizeof(mine), l, l->all);
	say_odds(odds, sizeof(odds), odds_of(l));
	if (l->all.order != said.order)
		kvt_tell(l->o->hints, "row.ranks",
			 "its bytes fit %s (%s), but it is read as TP %lld in layout %.60s; give --set tp-size=N and --layout of the engine which wrote it",
			 mine, odds, LL(l->o->row.canonical ? 1 : l->o->row.ranks),
			 kvt_layout_string(&l->group->layout).s);
	else if (other_page(l->all, said))
		kvt_tell(l->o->hints, "row.layout",
			 "its bytes fit %s, but the layout is %.80s; give --layout of the engine which wrote it",
			 mine, kvt_layout_string(&l->group->layout).s);
}

/* ---- both ------------------------------------------------------------------ */

static void looking_free(struct looking *l)
{
	kvt_whose_free(l->whose);
	free(l->file);
	free(l->is);
}

static enum kvt_status look(struct looking *l, int number, int64_t most, int64_t first)
{
	enum kvt_status status;

	if ((status = choose(l, number, most)))
		return status;
	if (!(l->whose = kvt_whose_new(&l->shape, l->n)))
		return kvt_no_memory(l->o->err, l->o->path);
	if (!(status = read_files(l, number, first)))
		judge(l);
	return status;
}

/* A few files are enough to tell of all, and few if they are large. */
static int64_t few_files(const struct looking *l)
{
	int64_t n = MOST_READ / kvt_whose_bytes(&l->shape);

	return n < 1 ? 1 : n < FEW ? n : FEW;
}

enum kvt_status kvt_offload_written(struct kvt_offload *o, int g, int64_t first)
{
	struct looking l = { .o = o, .group = &o->reader->leaf.snapshot.group[g] };
	enum kvt_status status = KVT_OK;
	int64_t most = o->hints->look_into;

	if (!most || !can_tell(&l))
		return KVT_OK;
	if (!o->hints->inspector && most > few_files(&l))
		most = few_files(&l);
	if (!(status = look(&l, o->number[g], most, first))) {
		tell(&l);
		o->reader->leaf.written_by = make_text(&l);
		if (!o->reader->leaf.written_by)
			status = kvt_no_memory(o->err, o->path);
	}
	looking_free(&l);
	return status;
}

bool kvt_offload_fits_ranks(char *out, size_t room, struct kvt_offload *o,
			    const struct kvt_group *group, int number)
{
	struct looking l = { .o = o, .group = group };
	struct kvt_error why = { "" }, *err = o->err;
	bool fits = false;
	int n;

	o->err = &why;
	if (can_tell(&l) && !look(&l, number, few_files(&l), -1) && l.together) {
		n = say(out, room, &l, l.all);
		n += snprintf(out + n, room - (size_t)n, ": likely (");
		n += say_odds(out + n, room - (size_t)n, odds_of(&l));
		snprintf(out + n, room - (size_t)n, ")");
		fits = true;
	}
	o->err = err;
	looking_free(&l);
	return fits;
}
