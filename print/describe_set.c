/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_set.c - several dumps: one of a kind in full, and how the others differ
 *
 * What is compared are the lines that would be printed, so that nothing that a
 * description shows can differ in silence.  Dumps are alike where the model, the groups
 * and their layouts are: what differs then fits into a line.
 */
#include "print/out/say.h"
#include "print/describe.h"
#include "print/out/screen.h"

#include <stdlib.h>
#include <string.h>

/* ---- lines of facts ------------------------------------------------------- */

struct fact {
	const char *label, *what;	/* what may go on in lines behind a tab */
	int nlabel, nwhat;
	const char *group;		/* whose header has this label; NULL: of none */
	int ngroup, nth;		/* of those with this label in the group */
};

static bool same_text(const char *a, int na, const char *b, int nb)
{
	return na == nb && !strncmp(a, b, (size_t)na);
}

/* The next one from *s on; false at the end.  Begin with a zeroed 'f'. */
static bool next_fact(struct fact *f, const char **s)
{
	bool header = **s == '\n';
	const char *at = *s + strspn(*s, "\n"), *end, *before = f->label;
	int nbefore = f->nlabel;

	if (!*at)
		return false;
	f->label = at;
	f->nlabel = (int)strcspn(at, "\t\n");
	f->nth = before && same_text(before, nbefore, at, f->nlabel) ? f->nth + 1 : 0;
	f->what = at + f->nlabel + (at[f->nlabel] == '\t');
	if (header) {
		f->group = f->label;
		f->ngroup = f->nlabel;
	}
	for (end = f->what + strcspn(f->what, "\n"); end[0] && end[1] == '\t';)
		end += 1 + strcspn(end + 1, "\n");
	f->nwhat = (int)(end - f->what);
	*s = end + (*end && end[1] != '\n' && end[1]);
	return true;
}

static bool same_place(const struct fact *a, const struct fact *b)
{
	return a->nth == b->nth &&
	       same_text(a->label, a->nlabel, b->label, b->nlabel) &&
	       same_text(a->group ? a->group : "", a->ngroup,
			 b->group ? b->group : "", b->ngroup);
}

/* Where 'facts' say the same thing of another dump; false: nowhere. */
static bool find_fact(struct fact *out, const char *facts, const struct fact *of)
{
	*out = (struct fact){ .label = NULL };
	while (next_fact(out, &facts))
		if (same_place(out, of))
			return true;
	return false;
}

static bool is_header(const struct fact *f)
{
	return f->group && f->label == f->group;
}

/* What no two dumps that are alike differ in. */
static bool is_kind(const struct fact *f)
{
	static const char *const labels[] = { "model", "layout", "indexed", "holds" };

	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
		if (same_text(f->label, f->nlabel, labels[i], (int)strlen(labels[i])))
			return true;
	return is_header(f);
}

/* All that is of a kind in 'a' is the same in 'b'. */
static bool covers(const char *a, const char *b)
{
	struct fact f = { .label = NULL }, other;

	while (next_fact(&f, &a))
		if (is_kind(&f) && (!find_fact(&other, b, &f) ||
				    !same_text(f.what, f.nwhat, other.what, other.nwhat)))
			return false;
	return true;
}

/* ---- what differs --------------------------------------------------------- */

/* How long the line of a fact is, of which others may follow behind a tab. */
static int line_of(const char *s, int n)
{
	const char *end = memchr(s, '\n', (size_t)n);

	return end ? (int)(end - s) : n;
}

/* On one line; of several only those that are others than at their place in 'from'. */
static void print_what(const struct fact *f, const struct fact *from)
{
	const char *s = f->what, *other = from ? from->what : "";
	int left = f->nwhat, rest = from ? from->nwhat : 0, n, nother, printed = 0;

	for (; left > 0; s += n, left -= n) {
		n = line_of(s, left);
		nother = line_of(other, rest);
		if (!same_text(s, n, other, nother))
			plainf("%s%.*s", printed++ ? ", " : "", n, s);
		n += 2 * (n < left);
		nother += 2 * (nother < rest);
		other += nother;
		rest -= nother;
	}
}

struct list {
	bool groups;			/* they are named, for there are several */
	int n;
	const char *group;		/* the last that was named */
	int ngroup;
};

static void begin_item(struct list *list, const struct fact *f)
{
	fputs(list->n++ ? "; " : "", stdout);
	if (list->groups && f->group &&
	    !same_text(f->group, f->ngroup, list->group ? list->group : "", list->ngroup))
		plainf("%.*s: ", f->ngroup, f->group);
	list->group = f->group;
	list->ngroup = f->ngroup;
	if (!is_header(f))
		plainf("%.*s", f->nlabel, f->label);
}

static bool several_groups(const char *facts)
{
	struct fact f = { .label = NULL };
	int n = 0;

	while (next_fact(&f, &facts))
		n += is_header(&f);
	return n > 1;
}

static bool same(const struct described *a, const struct described *b)
{
	return a->tables == b->tables && !strcmp(a->facts, b->facts);
}

/* All that is said of 'd' otherwise, then what is said of 'from' alone. */
static void print_differences(const struct described *d, const struct described *from)
{
	struct list list = { .groups = several_groups(d->facts) };
	struct fact f = { .label = NULL }, other;
	const char *s = d->facts;

	while (next_fact(&f, &s)) {
		bool there = find_fact(&other, from->facts, &f);

		if (there && same_text(f.what, f.nwhat, other.what, other.nwhat))
			continue;
		begin_item(&list, &f);
		fputs(is_header(&f) ? "" : " ", stdout);
		print_what(&f, there ? &other : NULL);
	}
	f = (struct fact){ .label = NULL };
	for (s = from->facts; next_fact(&f, &s);) {
		if (find_fact(&other, d->facts, &f))
			continue;
		begin_item(&list, &f);
		fputs(" not said", stdout);
	}
	if (d->tables != from->tables)
		plainf("%sother block tables", list.n ? "; " : "");
	else if (!list.n)
		plainf("nothing");
}

/* ---- the set -------------------------------------------------------------- */

static void mix(uint64_t *sum, const void *bytes, size_t n)
{
	const unsigned char *s = bytes;

	for (size_t i = 0; i < n; i++)
		*sum = (*sum ^ s[i]) * UINT64_C(0x100000001b3);
}

/* Of what a person would not compare by reading: whether it differs is enough. */
static uint64_t sum_tables(const struct kvt_snapshot *s)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];

		if (q->id)
			mix(&sum, q->id, strlen(q->id) + 1);
		mix(&sum, &q->ntokens, sizeof(q->ntokens));
		mix(&sum, &q->first_token, sizeof(q->first_token));
		for (int g = 0; g < s->ngroups; g++)
			for (int64_t i = 0; q->blocks[g] && i < q->nblocks[g]; i++) {
				uint64_t id = kvt_block_id(&s->group[g], q->blocks[g][i]);

				mix(&sum, &id, sizeof(id));
			}
		for (int64_t i = 0; i < q->nholes; i++)
			mix(&sum, &q->hole[i], sizeof(q->hole[i]));
	}
	return sum;
}

bool describe_add(struct described *set, int n, const struct kvt_description *d)
{
	const struct describe_options nothing = { .names = false };
	struct described *one = &set[n];

	one->path = d->path;
	one->tables = sum_tables(d->snapshot);
	screen_take_begin(true);
	describe_facts(d);
	if (!(one->facts = screen_take_end()))
		return false;
	for (one->like = 0; one->like < n; one->like++)
		if (set[one->like].text && set[one->like].facts &&
		    covers(set[one->like].facts, one->facts) &&
		    covers(one->facts, set[one->like].facts))
			return true;
	screen_take_begin(false);
	describe_text(d, &nothing);
	return (one->text = screen_take_end()) != NULL;
}

/* Where what differs begins: behind the longest name, unless it is very long. */
static int name_column(const struct described *set, int n, int like)
{
	enum { MOST = 44 };
	size_t column = 0;

	for (int i = like + 1; i < n; i++)
		if (set[i].facts && set[i].like == like && strlen(set[i].path) > column)
			column = strlen(set[i].path);
	return column > MOST ? 0 : (int)column;
}

static void print_others(const struct described *set, int n, int like)
{
	int column = name_column(set, n, like), others = 0;
	bool differ = false;

	for (int i = like + 1; i < n; i++)
		if (set[i].facts && set[i].like == like) {
			differ |= !same(&set[i], &set[like]);
			others++;
		}
	if (!others)
		return;
	plainf(differ ? "\nand %d more like it, but for:\n" :
	       "\nand %d more, of which the same is said:\n", others);
	screen_fold_begin(4);
	for (int i = like + 1; i < n; i++) {
		if (!set[i].facts || set[i].like != like)
			continue;
		fputs("  ", stdout);
		screen_paint(SCREEN_NAME);
		plainf("%-*s", differ ? column : 0, set[i].path);
		screen_plain();
		if (differ) {
			fputs("  ", stdout);
			print_differences(&set[i], &set[like]);
		}
		putchar('\n');
	}
	screen_fold_end();
}

void describe_set_text(const struct described *set, int n)
{
	bool any = false;

	for (int i = 0; i < n; i++) {
		if (!set[i].text)
			continue;
		if (any)
			putchar('\n');
		any = true;
		screen_put(set[i].text);
		print_others(set, n, i);
	}
}

void describe_set_free(struct described *set, int n)
{
	for (int i = 0; set && i < n; i++) {
		free(set[i].facts);
		free(set[i].text);
	}
	free(set);
}
