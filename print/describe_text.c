/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_text.c - facts of a dump for people; may change, --json is the interface
 *
 * The file in one sentence, where it is from, requests, groups (describe_group.c), and
 * last what nothing proves, what is known of the data and what to type next.  For
 * comparison the same facts have names in one column.
 */
#include "print/out/say.h"
#include "lib/kvt/tile.h"
#include "print/describe.h"
#include "print/out/screen.h"

#include <stdlib.h>
#include <string.h>

static void print_table(const struct kvt_group *group, const uint32_t *blocks, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		if (i % 12 == 0 && i)
			plainf("\n%*s", 14, "");
		plainf("%s%llu", i % 12 ? " " : "",
		       (unsigned long long)kvt_block_id(group, blocks[i]));
	}
	putchar('\n');
}

/* Blocks of each group; once, where all have as many. */
static void say_counts(FILE *out, const struct kvt_request *q, int ngroups)
{
	bool same = true;

	for (int g = 1; g < ngroups; g++)
		same &= q->nblocks[g] == q->nblocks[0];
	for (int g = 0; g < (same ? 1 : ngroups); g++)
		fplainf(out, "%s%lld", g ? ", " : "", LL(q->nblocks[g]));
	fplainf(out, " block%s%s", plural(same ? q->nblocks[0] : 2),
		q->ntokens ? "" : ": it is empty");
}

/* "A: 421 tokens in 27 blocks", to be freed; NULL: out of memory */
static char *request_words(const struct kvt_snapshot *s, const struct kvt_request *q)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	fplainf(out, "%s: %lld token%s", q->id ? q->id : "?", LL(q->ntokens),
		plural(q->ntokens));
	if (q->first_token)
		fplainf(out, " from token %lld on", LL(q->first_token));
	fputs(" in ", out);
	say_counts(out, q, s->ngroups);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

enum { MOST_HOLES = 8 };			/* of a group in one line */

/* Positions without a slot, a line a group. */
static void print_holes(const struct kvt_snapshot *s, const struct kvt_request *q)
{
	for (int64_t i = 0, n = 0; i < q->nholes; i++) {
		const struct kvt_hole *h = &q->hole[i];

		n = i && h[-1].group == h->group ? n + 1 : 0;
		if (i && !n)
			putchar('\n');
		if (!n) {
			plainf("%*s", 14, "");
			screen_paint(SCREEN_MISSING);
			plainf("%lld missing", LL(kvt_request_missing(q, (int)h->group)));
			screen_plain();
			plainf(" in %s: tokens", s->group[h->group].id);
		}
		if (n < MOST_HOLES)
			plainf("%s%lld to %lld", n ? ", " : " ", LL(h->begin),
			       LL(h->end) - 1);
		else if (n == MOST_HOLES)
			plainf(", ...");
	}
	if (q->nholes)
		putchar('\n');
}

/* What the bars of requests have in common. */
struct bars {
	int column;			/* behind the longest text */
	int64_t most;			/* tokens; 0: there are no bars */
};

static struct bars measure_requests(const struct kvt_snapshot *s)
{
	struct bars bars = { 0, 0 };

	for (int64_t r = 0; r < s->nrequests && s->nrequests > 1 && screen_width(); r++) {
		const struct kvt_request *q = &s->request[r];
		char *words = request_words(s, q);
		int n = words ? (int)strlen(words) : 0;

		bars.column = n > bars.column ? n : bars.column;
		bars.most = q->ntokens > bars.most ? q->ntokens : bars.most;
		free(words);
	}
	return bars;
}

static void print_requests(const struct kvt_snapshot *s, bool tables)
{
	struct bars bars = measure_requests(s);

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];
		char *words = request_words(s, q);

		print_label(r ? "" : "requests");
		screen_put(words ? words : "(no memory for this text)");
		if (words)
			describe_request_bar(q->ntokens, bars.most, (int)strlen(words),
					     bars.column);
		putchar('\n');
		free(words);
		print_holes(s, q);
		for (int g = 0; tables && g < s->ngroups; g++)
			if (q->blocks[g]) {
				plainf("%*s", 14, "");
				print_table(&s->group[g], q->blocks[g], q->nblocks[g]);
			}
	}
}

/* What is there of prompts, in files that are named by hashes. */
static void print_sought(const struct kvt_dump *dump)
{
	const struct kvt_sought *q = kvt_dump_sought(dump, 0);
	bool groups = kvt_dump_snapshot(dump)->ngroups > 1;

	if (!q)
		return;
	print_label("names");
	plainf("%s; each of %lld tokens\n", kvt_dump_named_by(dump), LL(q->each));
	for (int64_t i = 0; (q = kvt_dump_sought(dump, i)); i++) {
		print_label(i ? "" : "prompts");
		plainf("%s%s%s: %s\n", q->prompt, groups && q->group[0] ? ", " : "",
		       groups ? q->group : "", kvt_sought_text(q).s);
	}
}

static void print_parallel(const struct kvt_parallel *p)
{
	const struct {
		const char *name;
		int64_t size, rank;
	} all[] = {
		{ "tp", p->tp_size, p->tp_rank }, { "pp", p->pp_size, p->pp_rank },
		{ "dp", p->dp_size, p->dp_rank }, { "dcp", p->dcp_size, p->dcp_rank },
	};
	int printed = 0;

	print_label("rank");
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].size > 1 || i == 0)
			plainf("%s%s %lld of %lld", printed++ ? ", " : "", all[i].name,
			       LL(all[i].rank), LL(all[i].size));
	putchar('\n');
}

/* And the data, where it was the manifest that was named. */
static void print_manifest(const struct kvt_description *d)
{
	static const char *const proofs[] = {
		[KVT_PROOF_NONE] = "does not prove that it belongs to the data",
		[KVT_PROOF_SIZE] = "matches the size of the file",
		[KVT_PROOF_SAMPLES] = "matches size and checksum of the file",
		[KVT_PROOF_FAILED] = "of other data, used because of --trust-manifest",
	};
	const char *path = kvt_dump_manifest(d->dump);

	if (!path)
		return;
	if (labels_facts_alone()) {
		print_label("manifest");
		plainf("%s\n", proofs[kvt_dump_proof(d->dump)]);
		return;
	}
	if (!strcmp(path, d->path)) {
		print_label("data");
		plainf("%s\n", kvt_dump_path(d->dump));
	}
	print_label("manifest");
	plainf("%s: %s\n", path, proofs[kvt_dump_proof(d->dump)]);
}

/* Last, where it is seen: what all of the above rests on. */
static void print_unproven(const struct kvt_dump *dump)
{
	const char *const lines[] = {
		kvt_dump_unlisted(dump) ? KVT_UNLISTED : NULL, kvt_dump_unnoticed(dump),
	};

	if (lines[0] || lines[1])
		putchar('\n');
	for (int i = 0; i < 2; i++)
		if (lines[i]) {
			print_label("unproven");
			plainf("%s\n", lines[i]);
		}
}

static bool is_compressed(const struct kvt_description *d)
{
	for (int g = 0; g < d->snapshot->ngroups; g++)
		if (d->group[g].tiling && d->group[g].tiling->zstd)
			return true;
	return false;
}

static void print_file(const struct kvt_description *d)
{
	bool compressed = is_compressed(d);

	plainf("%s", kvt_dump_format(d->dump));
	/* what is added to the data, headers and manifests, is nothing to compare */
	if (compressed || !labels_facts_alone())
		plainf(", %s", kvt_size_string(d->file_bytes).s);
	if (compressed)
		plainf(", ratio %.2f", kvt_compression_ratio(d));
	putchar('\n');
}

/* Where it is from. */
static void print_origin(const struct kvt_description *d)
{
	const struct kvt_snapshot *s = d->snapshot;

	print_manifest(d);
	if (s->model) {
		print_label("model");
		plainf("%s\n", s->model);
	}
	if (kvt_dump_written_by(d->dump)) {
		print_label("writer");
		plainf("%s\n", kvt_dump_written_by(d->dump));
	}
	if (kvt_dump_decoded(d->dump)) {
		print_label("decoded");
		plainf("from %s, as their library does; digests are of the numbers\n",
		       kvt_dump_decoded(d->dump));
	} else if (s->source_format &&
		   strcmp(s->source_format, kvt_dump_format(d->dump))) {
		print_label("made from");
		plainf("%s\n", s->source_format);
	}
}

static void print_groups(const struct kvt_description *d,
			 const struct describe_options *options)
{
	const struct kvt_snapshot *s = d->snapshot;

	if (!s->ngroups) {
		print_label("holds");
		plainf("nothing: no request has a token\n");
	}
	for (int g = 0; g < s->ngroups; g++)
		describe_group(&d->group[g], d, options);
}

void describe_text(const struct kvt_description *d,
		   const struct describe_options *options)
{
	const struct kvt_snapshot *s = d->snapshot;

	screen_fold_begin(4);
	screen_paint(SCREEN_NAME);
	plainf("%s", d->path);
	screen_plain();
	plainf(": ");
	print_file(d);
	describe_sentence(stdout, d);
	screen_fold_end();
	screen_fold_begin(12);
	print_origin(d);
	if (s->has_parallel)
		print_parallel(&s->parallel);
	print_requests(s, options->tables);
	describe_saved_text(d, options->ids);
	print_sought(d->dump);
	print_groups(d, options);
	if (d->canonical)
		canonical_text(d->canonical);
	if (d->peeks)
		peeks_text(d->peeks);
	print_unproven(d->dump);
	describe_outlook(d, options->hints);
	screen_fold_end();
}

/* ---- the same for comparison ------------------------------------------------ */

enum { MOST_NAMES = 4 };		/* of requests */

/* "3, 689 tokens (A, B, C)" */
static void print_request_names(const struct kvt_snapshot *s)
{
	int64_t tokens = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		tokens += s->request[r].ntokens;
	print_label("requests");
	plainf("%lld, %lld token%s", LL(s->nrequests), LL(tokens), plural(tokens));
	for (int64_t r = 0; r < s->nrequests && s->nrequests <= MOST_NAMES; r++)
		plainf("%s%s", r ? ", " : ": ",
		       s->request[r].id ? s->request[r].id : "?");
	putchar('\n');
}

void describe_facts(const struct kvt_description *d)
{
	const struct describe_options nothing = { .names = false };
	const struct kvt_snapshot *s = d->snapshot;

	labels_are_facts(true);
	print_label("file");
	print_file(d);
	print_origin(d);
	if (s->has_parallel)
		print_parallel(&s->parallel);
	print_request_names(s);
	print_groups(d, &nothing);
	print_unproven(d->dump);
	labels_are_facts(false);
}
