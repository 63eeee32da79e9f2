/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess_names.c - which number in names is the layer, and what tells keys from values
 *
 * Every number of every name might be that of the layer.  Names that are the same but for
 * it are a family; two families of the same layers, which differ in a word or in 0 and 1,
 * are keys and values.  The reading that explains most tensors is meant; of two that
 * explain as many the user chooses.
 */
#include "formats/tensor/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_READINGS = 3, MAX_NUMBERS = 8, HOLE = 3 };

/* A number in a name. */
struct spot {
	const char *name;		/* borrowed */
	size_t at, n;
	int64_t number;
};

/* Names that differ in that number alone, by it. */
struct family {
	const struct spot *spot;
	int64_t count;
	bool whole;			/* no number is there twice */
};

/* How keys and values are told apart, from the plainest on; or they are in one tensor. */
enum how { BY_WORD, BY_NUMBER, AS_ONE };

struct reading {
	char *names;			/* owned */
	enum how how;
	bool lists;			/* one of keys and one of values */
	int64_t tensors;
};

struct guess {
	const struct kvt_tensors *tensors;
	int64_t total;			/* tensors that may be of a cache */
	struct spot *spot;		/* owned */
	struct family *family;		/* owned */
	int64_t nspots, nfamilies;
	struct reading reading[MAX_READINGS];
	int nreadings;
	bool more;			/* readings than there is room for */
};

/* ---- families ----------------------------------------------------------- */

static int compare_names(const struct spot *a, const struct spot *b)
{
	int order;

	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	if ((order = memcmp(a->name, b->name, a->at)))
		return order;
	return strcmp(a->name + a->at + a->n, b->name + b->at + b->n);
}

static int compare_spots(const void *one, const void *other)
{
	const struct spot *a = one, *b = other;
	int order = compare_names(a, b);

	return order ? order : (a->number > b->number) - (a->number < b->number);
}

static int compare_families(const void *one, const void *other)
{
	return compare_names(((const struct family *)one)->spot,
			     ((const struct family *)other)->spot);
}

/* Where the number after the word layer or layers begins; NULL: there is none. */
static const char *after_layer(const char *name)
{
	const char *at = strstr(name, "layer");

	if (!at)
		return NULL;
	at += strlen("layer");
	at += *at == 's';
	at += *at && !isdigit((unsigned char)*at);
	return isdigit((unsigned char)*at) ? at : NULL;
}

static void find_spots(struct guess *g, const char *name)
{
	const char *only = after_layer(name);
	int numbers = 0;

	/* what would be something else in a list of names */
	if (strpbrk(name, ",{") || strlen(name) > KVT_MAX_NAME)
		return;
	for (const char *at = name; *at && numbers < MAX_NUMBERS;) {
		size_t n = strspn(at, "0123456789");

		if (n && n <= 6 && (!only || at == only) && ++numbers)
			g->spot[g->nspots++] = (struct spot){
				name, (size_t)(at - name), n, strtoll(at, NULL, 10) };
		at += n ? n : 1;
	}
}

static bool find_families(struct guess *g)
{
	size_t room = (size_t)g->tensors->count * MAX_NUMBERS + 1;

	g->spot = calloc(room, sizeof(*g->spot));
	g->family = calloc(room, sizeof(*g->family));
	if (!g->spot || !g->family)
		return false;
	for (int64_t i = 0; i < g->tensors->count; i++)
		if (g->tensors->tensor[i].rank >= 2) {
			g->total++;
			find_spots(g, g->tensors->tensor[i].name);
		}
	qsort(g->spot, (size_t)g->nspots, sizeof(*g->spot), compare_spots);
	for (int64_t i = 0; i < g->nspots; i++) {
		const struct spot *s = &g->spot[i];
		struct family *f = &g->family[g->nfamilies - 1];

		if (!i || compare_names(s - 1, s)) {
			g->family[g->nfamilies++] = (struct family){ s, 1, true };
			continue;
		}
		f->whole &= s[-1].number != s->number;
		f->count++;
	}
	return true;
}

/* Their name with {l}; false: it is too long, or a number is there twice. */
static bool name_family(char out[KVT_MAX_NAME + 8], const struct family *f)
{
	snprintf(out, KVT_MAX_NAME + 8, "%.*s{l}%s", (int)f->spot->at, f->spot->name,
		 f->spot->name + f->spot->at + f->spot->n);
	return f->whole && strlen(out) <= KVT_MAX_NAME;
}

/* The family of a name with {l}. */
static const struct family *family_of(const struct guess *g, const char *names)
{
	const char *hole = strstr(names, "{l}");
	struct spot spot = { names, hole ? (size_t)(hole - names) : 0, HOLE, 0 };
	const struct family key = { .spot = &spot };

	return !hole ? NULL : bsearch(&key, g->family, (size_t)g->nfamilies,
				      sizeof(*g->family), compare_families);
}

static bool same_layers(const struct family *a, const struct family *b)
{
	bool same = b && a->whole && b->whole && a->count == b->count;

	for (int64_t i = 0; same && i < a->count; i++)
		same = a->spot[i].number == b->spot[i].number;
	return same;
}

/* Keys and values have as many axes and types that fit: what has others may be scales. */
static bool may_pair(const struct guess *g, const struct family *a,
		     const struct family *b)
{
	const struct kvt_tensor *k, *v;

	if (!same_layers(a, b))
		return false;
	k = kvt_tensors_find(g->tensors, a->spot->name);
	v = kvt_tensors_find(g->tensors, b->spot->name);
	return k && v && k->rank == v->rank && kvt_tensors_types_fit(k, v);
}

/* ---- readings ----------------------------------------------------------- */

static void forget(struct guess *g)
{
	while (g->nreadings)
		free(g->reading[--g->nreadings].names);
	g->more = false;
}

static bool push(struct guess *g, const char *keys, const char *values,
		 struct reading reading)
{
	size_t room = strlen(keys) + (values ? strlen(values) : 0) + 2;

	if (g->nreadings == MAX_READINGS)
		return g->more = true;
	if (!(reading.names = malloc(room)))
		return false;
	snprintf(reading.names, room, "%s%s%s", keys, values ? "," : "",
		 values ? values : "");
	g->reading[g->nreadings++] = reading;
	return true;
}

/* Takes the place of readings that explain less, or by worse means. */
static bool add_reading(struct guess *g, const char *keys, const char *values,
			struct reading reading)
{
	const struct reading *best = g->nreadings ? g->reading : NULL;

	if (best && (reading.tensors < best->tensors ||
		     (reading.tensors == best->tensors && reading.how > best->how)))
		return true;
	if (best && (reading.tensors > best->tensors || reading.how < best->how))
		forget(g);
	return push(g, keys, values, reading);
}

/* "x.{l}.0" and "x.{l}.1"; where the number comes before, they are lists. */
static bool add_numbered(struct guess *g, const struct family *f, char *names)
{
	char *hole = strstr(names, "{l}");
	bool good = true;

	for (char *at = names; good && *at;) {
		size_t n = strspn(at, "0123456789");

		if (n == 1 && *at == '0') {
			char *keys = strdup(names);

			*at = '1';
			good = keys != NULL;
			if (good && may_pair(g, f, family_of(g, names)))
				good = add_reading(g, keys, names, (struct reading){
					.tensors = 2 * f->count, .how = BY_NUMBER,
					.lists = at < hole });
			free(keys);
			*at = '0';
		}
		at += n ? n : 1;
	}
	return good;
}

static bool add_readings(struct guess *g, const struct family *f)
{
	char names[KVT_MAX_NAME + 8], values[KVT_MAX_NAME + 16];
	bool more = true, good = true;

	if (!name_family(names, f))
		return true;
	for (int i = 0; good && more; i++)
		if (kvt_names_values(values, &more, names, i) &&
		    may_pair(g, f, family_of(g, values)))
			good = add_reading(g, names, values, (struct reading){
				.tensors = 2 * f->count, .how = BY_WORD });
	return good && add_numbered(g, f, names) &&
	       add_reading(g, names, NULL, (struct reading){
		       .tensors = f->count, .how = AS_ONE });
}

/* ---- what is meant ------------------------------------------------------ */

/* Lines to give, each after 'before'. */
static void list_readings(char *out, size_t room, const struct guess *g,
			  const char *before)
{
	size_t n = 0;

	for (int i = 0; i < g->nreadings && n < room; i++)
		n += (size_t)snprintf(out + n, room - n, "%s%s--set=names=%s",
				      i ? " or " : "", before, g->reading[i].names);
	/* whoever is told to open it as a cache must hear what that means */
	if (*before && n < room)
		snprintf(out + n, room - n,
			 ", with --set=axes=BTHD where tokens come before heads");
}

static enum kvt_status ask(const struct guess *g, const char *path, const char *before,
			   struct kvt_error *err)
{
	const struct reading *r = g->reading;
	char lines[400];

	/* one tensor a layer is blocks, as likely as not */
	list_readings(lines, sizeof(lines), g, r->how == AS_ONE ? "" : before);
	if (g->nreadings > 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: names such as %.80s can be read in several ways; give %s",
				path, g->spot->name, lines);
	if (r->how == AS_ONE)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld of %lld tensors have names that differ in a number alone; if those are the layers give %s with a --layout",
				path, LL(r->tensors), LL(g->total), lines);
	if (r->tensors < g->total)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld of %lld tensors are keys and values by their names; to leave out the others give %s",
				path, LL(r->tensors), LL(g->total), lines);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: names such as %.80s do not say which are keys; if those are first give %s",
			path, g->spot->name, lines);
}

/*
 * Four a layer are two caches, as encoder-decoders had them in tuples.  Two lists of four
 * layers have the same names.
 */
static bool add_four(struct guess *g)
{
	const struct family *of = family_of(g, "{l}.0");
	struct reading half = { .how = BY_NUMBER };

	if (!of || 4 * of->count != g->total || !same_layers(of, family_of(g, "{l}.1")) ||
	    !same_layers(of, family_of(g, "{l}.2")) ||
	    !same_layers(of, family_of(g, "{l}.3")))
		return true;
	if (g->nreadings && g->reading->tensors < g->total)
		forget(g);
	half.tensors = 2 * of->count;
	return push(g, "{l}.0", "{l}.1", half) && push(g, "{l}.2", "{l}.3", half);
}

/* Where each explains a part the parts must be all there is, or have words. */
static bool is_worth_asking(const struct guess *g)
{
	const struct reading *r = g->reading;
	char values[KVT_MAX_NAME + 16];
	bool more;

	if (!g->nreadings || g->more)
		return false;
	/* a list of layers beside a few other things, and not of keys alone */
	if (r->how == AS_ONE)
		return g->nreadings == 1 && 2 * r->tensors > g->total &&
		       !kvt_names_values(values, &more, r->names, 0);
	return r->tensors == g->total || g->nreadings * r->tensors == g->total ||
	       (g->nreadings == 1 && r->how == BY_WORD);
}

/* The first that 'b' has no number of, where they have others in common. */
static const struct spot *find_lack(const struct family *a, const struct family *b)
{
	const struct spot *lack = NULL;
	int64_t common = 0;

	for (int64_t i = 0, j = 0; i < a->count; i++) {
		while (j < b->count && b->spot[j].number < a->spot[i].number)
			j++;
		if (j < b->count && b->spot[j].number == a->spot[i].number)
			common++;
		else if (!lack)
			lack = &a->spot[i];
	}
	return common ? lack : NULL;
}

/* Keys without their values, or the reverse, where other layers have both. */
static enum kvt_status refuse_lack(const struct guess *g, const char *path,
				   struct kvt_error *err)
{
	char names[KVT_MAX_NAME + 8], values[KVT_MAX_NAME + 16];

	for (int64_t i = 0; i < g->nfamilies; i++) {
		const struct family *f = &g->family[i], *v;
		bool more = name_family(names, f);

		for (int k = 0; more; k++) {
			const struct spot *of, *in;

			if (!kvt_names_values(values, &more, names, k) ||
			    !(v = family_of(g, values)) || !v->whole)
				continue;
			in = v->spot;
			if (!(of = find_lack(f, v)) && (of = find_lack(v, f)))
				in = f->spot;
			if (of)
				return kvt_fail(err, KVT_BAD_INPUT,
						"%s: has %.80s but no %.*s%.*s%s, and other layers have both: the file is not whole; save it again",
						path, of->name, (int)in->at, in->name,
						(int)of->n, of->name + of->at,
						in->name + in->at + in->n);
		}
	}
	return KVT_OK;
}

enum kvt_status kvt_names_guess(char **out, const struct kvt_tensors *tensors,
				const char *path, const char *before,
				struct kvt_error *err)
{
	struct guess g = { .tensors = tensors };
	enum kvt_status status = KVT_OK;
	struct kvt_layer *layer;
	int64_t count;
	bool apart, good;

	*out = NULL;
	if (!kvt_tensors_layers(&layer, &count, &apart, tensors, NULL, path, NULL)) {
		free(layer);
		return KVT_OK;
	}
	good = find_families(&g);
	for (int64_t i = 0; good && i < g.nfamilies; i++)
		good = add_readings(&g, &g.family[i]);
	if (!good || !add_four(&g)) {
		status = kvt_no_memory(err, path);
	} else if (g.nreadings == 1 && g.reading->tensors == g.total &&
		   !g.reading->lists) {
		*out = g.reading->names;
		g.nreadings = 0;
	} else if (!(status = refuse_lack(&g, path, err)) && is_worth_asking(&g)) {
		status = ask(&g, path, before, err);
	}
	forget(&g);
	free(g.spot);
	free(g.family);
	return status;
}
