/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c - the verdict first, then what it rests on, then what to type
 *
 * Evidence is printed by those who print it elsewhere, so that it reads as it does there;
 * what a dump is, in one line, what is wrong with it, and how two differ.
 */
#include "print/doctor.h"
#include "print/describe.h"
#include "print/fsck.h"
#include "print/guess_pages.h"
#include "print/out/screen.h"

#include <limits.h>

static const char *verdict_name(enum doctor_verdict verdict)
{
	static const char *const names[] = {
		[DOCTOR_SOUND] = "sound", [DOCTOR_SAME] = "same",
		[DOCTOR_WRONG] = "wrong", [DOCTOR_DIFFERS] = "differs",
		[DOCTOR_APART] = "incomparable", [DOCTOR_UNREADABLE] = "unreadable",
	};

	return names[verdict];
}

const struct kvt_guess_pages *patient_pages(const struct patient *p)
{
	for (int g = 0; p->pages && g < p->facts->snapshot->ngroups; g++)
		if (p->pages[g].clear)
			return &p->pages[g];
	return NULL;
}

/* ---- text --------------------------------------------------------------- */

/* Notes only where nothing else is to be said. */
static void print_findings(const struct kvt_findings *r, bool notes)
{
	for (int i = 0; i < r->nfindings; i++) {
		const struct kvt_finding *f = &r->finding[i];
		const struct kvt_rule *rule = kvt_rule_at(f->rule);

		if (rule->severity == KVT_NOTE && !notes)
			continue;
		print_label(kvt_severity_name(rule->severity));
		plainf("%s: %s%s%s\n", rule->name, f->at, *f->at ? ": " : "", f->text);
	}
}

static void print_strange(const struct kvt_strangeness *s)
{
	for (int i = 0; i < s->n; i++) {
		print_label(kvt_sure_name(s->found[i].sure));
		plainf("%s: %s: %s\n", kvt_strange_name(s->found[i].kind),
		       s->found[i].at, s->found[i].text);
	}
	if (s->count > s->n) {
		print_label("");
		plainf("and %lld more\n", LL(s->count - s->n));
	}
}

static void print_guess(const struct patient *p)
{
	if (!p->guessed[0])
		return;
	print_label("layout");
	plainf("%s: by its data it is%s (kvtool-guess(1))\n",
	       p->contradicted ? "is not what was said" : "nothing says it", p->guessed);
}

static void print_pages(const struct patient *p, int g)
{
	const struct kvt_guess_pages *pages = &p->pages[g];
	const struct kvt_snapshot *s = p->facts->snapshot;

	if (!pages->clear)
		return;
	print_label("layout");
	if (s->ngroups > 1)
		plainf("%s ", s->group[g].id);
	plainf("is said to be %s; by its data it is %s: %s ",
	       kvt_layout_called(&pages->said).s,
	       pages->is_layout ? kvt_layout_called(&pages->layout).s : "not",
	       pages->text);
	plainf("(%.1f times the margin that is needed, kvtool-guess(1))\n",
	       pages->evidence);
}

static void print_patient(const struct patient *p, bool notes)
{
	screen_paint(SCREEN_NAME);
	plainf("%s", p->name);
	screen_plain();
	putchar('\n');
	if (p->facts)
		describe_sentence(stdout, p->facts);
	print_guess(p);
	for (int g = 0; p->pages && g < p->facts->snapshot->ngroups; g++)
		print_pages(p, g);
	print_findings(&p->check, notes);
	for (int g = 0; p->strange && g < p->facts->snapshot->ngroups; g++)
		print_strange(&p->strange[g]);
}

void doctor_text(const struct doctor *d)
{
	bool well = d->verdict == DOCTOR_SOUND || d->verdict == DOCTOR_SAME;

	screen_fold_begin(12);
	if (!well)
		screen_paint(SCREEN_DIFFERS);
	plainf("%s", d->sentence);
	if (!well)
		screen_plain();
	putchar('\n');
	for (int i = 0; i < d->npatients; i++)
		print_patient(&d->patient[i], well);
	screen_fold_end();
	if (d->compared)
		diff_text(d->diff);
	if (d->next[0])
		plainf("next: %s\n", d->next);
}

/* ---- JSON --------------------------------------------------------------- */

static void put_patient(struct json_out *out, json_t *list, const struct patient *p)
{
	json_t *o = json_append_object(out, list), *fsck = json_array(), *strange;
	const struct kvt_guess_pages *pages = patient_pages(p);

	json_put_text(out, o, "file", p->name);
	json_put_text(out, o, "refused", p->dump ? NULL : p->refused.text);
	json_put_text(out, o, "layout_arguments", p->guessed[0] ? p->guessed : NULL);
	json_put_bool(out, o, "layout_contradicted", p->contradicted || pages);
	guess_pages_json(out, o, pages);
	json_put(out, o, "fsck", fsck);
	fsck_json(out, json_append_object(out, fsck), &p->check, INT_MAX);
	strange = json_put_array(out, o, "strange");
	for (int g = 0; p->strange && g < p->facts->snapshot->ngroups; g++)
		for (int i = 0; i < p->strange[g].n; i++)
			strange_json(out, strange, &p->strange[g].found[i]);
}

void doctor_json(struct json_out *out, const struct doctor *d)
{
	struct json_out diff = { NULL, false };
	json_t *list;

	json_start(out);
	json_put_text(out, out->root, "verdict", verdict_name(d->verdict));
	json_put_text(out, out->root, "sentence", d->sentence);
	json_put_text(out, out->root, "next", d->next[0] ? d->next : NULL);
	list = json_put_array(out, out->root, "files");
	for (int i = 0; i < d->npatients; i++)
		put_patient(out, list, &d->patient[i]);
	if (!d->compared) {
		json_put(out, out->root, "diff", json_null());
		return;
	}
	diff_json(&diff, d->diff);
	out->failed |= diff.failed;
	json_put(out, out->root, "diff", diff.root);
}
