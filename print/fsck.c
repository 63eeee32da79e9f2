/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck.c - findings for people, and as kvtool-json(5) has them
 *
 *	dump.h5: note: stale.slots: group=g0: 455 unused slots still hold old data ...
 *	dump.h5: 1 note
 *
 *	dump.npy: looked at 2 files (501.4 KiB), 1 group, 25 blocks: header, length, ...
 *	dump.npy: clean
 *
 *	{"file": .., "errors": 0, "warnings": 0, "notes": 1, "looked_at": {..},
 *	 "counts": {"stale.slots": 1},
 *	 "findings": [{"name": .., "severity": "note", "at": "group=g0", "problem": ..}]}
 *
 * If a rule has more findings than are kept (KVT_MAX_FINDINGS), lines with the number of
 * each rule that has any come first.  What was looked at is told of a dump that is
 * clean, and of one in whose format something would not be noticed.
 */
#include "print/fsck.h"
#include "print/out/say.h"
#include "print/out/screen.h"

#include <string.h>

/* ---- text --------------------------------------------------------------- */

static void say_path(const struct kvt_findings *r)
{
	screen_say(SCREEN_NAME, r->path);
	plainf(": ");
}

/* An error is what differs from what must be. */
static void paint_severity(enum kvt_severity severity)
{
	if (severity == KVT_ERROR)
		screen_paint(SCREEN_DIFFERS);
}

/* "dump.h5: error: ranks.missing" */
static void say_rule(const struct kvt_findings *r, const struct kvt_rule *rule)
{
	say_path(r);
	if (strstr(rule->name, "missing"))
		screen_paint(SCREEN_MISSING);
	else
		paint_severity(rule->severity);
	plainf("%s", kvt_severity_name(rule->severity));
	screen_plain();
	plainf(": %s", rule->name);
}

/* Of many findings first how many of each kind there are. */
static void print_counts(const struct kvt_findings *r, bool errors_only)
{
	const struct kvt_rule *rule;
	bool many = false;

	for (int i = 0; kvt_rule_at(i); i++)
		many |= r->count[i] > KVT_MAX_FINDINGS;
	for (int i = 0; many && (rule = kvt_rule_at(i)); i++) {
		int64_t shown = 0;

		if (!r->count[i] || (errors_only && rule->severity != KVT_ERROR))
			continue;
		for (int k = 0; k < r->nfindings; k++)
			shown += r->finding[k].rule == i;
		say_rule(r, rule);
		plainf(": %lld in all", LL(r->count[i]));
		plainf(shown < r->count[i] ? ", of which %lld follow\n" : "\n",
		       LL(shown));
	}
}

static void print_totals(const struct kvt_findings *r)
{
	const char *before = "";

	say_path(r);
	for (int s = KVT_ERROR; s >= KVT_NOTE; s--) {
		if (!r->total[s])
			continue;
		plainf("%s", before);
		paint_severity(s);
		plainf("%lld %s%s", LL(r->total[s]), kvt_severity_name(s),
		       plural(r->total[s]));
		screen_plain();
		before = ", ";
	}
	puts(*before ? "" : r->cut ? "not looked at to the end" : "clean");
}

static bool is_clean(const struct kvt_findings *r)
{
	for (int s = 0; s < KVT_NSEVERITIES; s++)
		if (r->total[s])
			return false;
	return true;
}

/* ", NaN and infinity in 1 of 2 groups" */
static void print_groups(const char *what, int n, int groups)
{
	if (n)
		plainf(", %s", what);
	if (n && n < groups)
		plainf(" in %d of %d groups", n, groups);
}

static void print_data(const struct kvt_findings *r)
{
	const struct kvt_looked_at *l = &r->looked;

	if (!l->data) {
		plainf(r->cut ? "; not at all of the data" : "; not at the data");
		return;
	}
	plainf(", all data: zeros");
	print_groups("NaN and infinity", l->numbers, l->groups);
	print_groups("checksums", l->checksums, l->groups);
	if (l->members)
		plainf(", checksums of all members");
	if (!l->numbers && !r->total[KVT_ERROR])
		plainf("; no NaN was sought, the element type has none");
}

/* "Clean" alone would say too much, and of some files everything does. */
static void print_looked(const struct kvt_findings *r)
{
	const struct kvt_looked_at *l = &r->looked;

	/* files: of a set of ranks, and of what was refused, there are none */
	if (!l->files || (!is_clean(r) && !l->unlisted && !l->unnoticed))
		return;
	if (l->written_by) {
		say_path(r);
		plainf("writer: %s\n", l->written_by);
	}
	say_path(r);
	if (l->files_of)
		plainf("saw %lld file%s, ", LL(l->files_of), plural(l->files_of));
	plainf("looked at %lld file%s (%s), %d group%s, %lld block%s: %s, tables",
	       LL(l->files), plural(l->files),
	       kvt_size_string(l->bytes).s,
	       l->groups, plural(l->groups), LL(l->blocks), plural(l->blocks),
	       l->checks ? l->checks : "names, lengths");
	print_data(r);
	putchar('\n');
	if (l->unlisted) {
		say_path(r);
		plainf(KVT_UNLISTED "\n");
	}
	if (l->unnoticed) {
		say_path(r);
		plainf("%s\n", l->unnoticed);
	}
}

void fsck_text(const struct kvt_findings *r, bool errors_only)
{
	screen_fold_begin(4);
	print_counts(r, errors_only);
	for (int i = 0; i < r->nfindings; i++) {
		const struct kvt_finding *f = &r->finding[i];
		const struct kvt_rule *rule = kvt_rule_at(f->rule);

		if (errors_only && rule->severity != KVT_ERROR)
			continue;
		say_rule(r, rule);
		plainf(": %s%s%s\n", f->at, *f->at ? ": " : "", f->text);
	}
	if (!errors_only) {
		print_looked(r);
		print_totals(r);
	}
	screen_fold_end();
}

/* ---- JSON --------------------------------------------------------------- */

/* null of a set of ranks, and of what was refused */
static void put_looked(struct json_out *out, json_t *o, const struct kvt_looked_at *l)
{
	json_t *looked = json_put_if(out, o, "looked_at", l->files);

	if (!looked)
		return;
	json_put_int(out, looked, "files", l->files);
	json_put_known(out, looked, "files_of", l->files_of, l->files_of > 0);
	json_put_int(out, looked, "bytes", l->bytes);
	json_put_int(out, looked, "groups", l->groups);
	json_put_int(out, looked, "blocks", l->blocks);
	json_put_bool(out, looked, "data", l->data);
	json_put_int(out, looked, "checksum_groups", l->checksums);
	json_put_int(out, looked, "number_groups", l->numbers);
	json_put_bool(out, looked, "member_checksums", l->members);
	json_put_text(out, looked, "checks", l->checks);
	json_put_bool(out, looked, "missing_files_noticed", !l->unlisted);
	json_put_text(out, looked, "unnoticed", l->unnoticed);
	json_put_text(out, looked, "writer", l->written_by);
}

void fsck_json(struct json_out *out, json_t *o, const struct kvt_findings *r, int most)
{
	json_t *findings, *counts;
	const struct kvt_rule *rule;

	json_put_text(out, o, "file", r->path);
	json_put_text(out, o, "format", *r->format ? r->format : NULL);
	json_put_int(out, o, "errors", r->total[KVT_ERROR]);
	json_put_int(out, o, "warnings", r->total[KVT_WARNING]);
	json_put_int(out, o, "notes", r->total[KVT_NOTE]);
	put_looked(out, o, &r->looked);
	counts = json_put_object(out, o, "counts");
	for (int i = 0; (rule = kvt_rule_at(i)); i++)
		if (r->count[i])
			json_put_int(out, counts, rule->name, r->count[i]);
	findings = json_put_array(out, o, "findings");
	for (int i = 0; i < r->nfindings && i < most; i++) {
		const struct kvt_finding *f = &r->finding[i];
		json_t *row = json_append_object(out, findings);

		rule = kvt_rule_at(f->rule);
		json_put_text(out, row, "name", rule->name);
		json_put_text(out, row, "severity", kvt_severity_name(rule->severity));
		json_put_text(out, row, "at", *f->at ? f->at : NULL);
		json_put_text(out, row, "problem", f->text);
	}
}
