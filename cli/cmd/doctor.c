/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c - kvtool doctor: is anything wrong with a dump, or between two, and what next
 *
 * It asks what describe, fsck, guess and diff ask, of the same functions, and leaves the
 * answer to doctor_judge.c.  A dump is opened once and its data read twice: by fsck's
 * look and by the search for what is strange; with a second dump both once more.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cmd/diff.h"
#include "cli/cmd/doctor.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "formats/hints.h"
#include "print/out/signals.h"

/* Bytes of it that are asked which layout they have. */
enum { SAMPLE = 8 << 20, TREE_FILES = 256 };	/* bytes; files of a tree */

struct arguments {
	struct kvt_hints hints, side[NSIDES];	/* of both, of one alone */
	struct kvt_run run;
	bool json;
	struct doctor_said said;
};

/* ---- opening, with the layout that the data speaks for ------------------- */

static enum kvt_status open_as(struct kvt_dump **out, void *context,
			       const struct kvt_hints *hints, struct kvt_error *err)
{
	return kvt_open(out, context, hints, err);
}

static void say_guess(struct patient *p, const struct kvt_guess *g)
{
	const struct kvt_guess_candidate *c = &g->candidate[0];
	const int64_t *n = c->group.shape.n;
	const char *name = kvt_layout_name(&c->layout, 0);

	snprintf(p->guessed, sizeof(p->guessed),
		 " --layout=%s --dtype=%s --layers=%lld --block-size=%lld --heads=%lld --%s=%lld",
		 name ? name : kvt_layout_string(&c->layout).s, g->type[0].dtype->name,
		 LL(n[KVT_AXIS_L]), LL(c->group.block_size),
		 LL(n[KVT_AXIS_H]),
		 n[KVT_AXIS_K] == 2 ? "head-dim" : "content-size", LL(n[KVT_AXIS_D]));
}

/* Is the layout that was said the first candidate, or has it the same bytes? */
static bool agrees(const struct kvt_guess *g, const struct kvt_layout *layout)
{
	for (int i = 0; i < g->ncandidates; i++)
		if ((!i || g->candidate[i].same == 0) &&
		    kvt_layout_equal(&g->candidate[i].layout, layout))
			return true;
	return false;
}

/* What the first candidate says of the file, as hints. */
static struct kvt_hints as_guessed(struct kvt_text *layout, const struct kvt_hints *hints,
				   const struct kvt_guess *g)
{
	const struct kvt_guess_candidate *c = &g->candidate[0];
	const int64_t *n = c->group.shape.n;
	struct kvt_hints out = *hints;

	*layout = kvt_layout_string(&c->layout);
	out.layout = layout->s;
	out.dtype = g->type[0].dtype->name;
	out.layers = n[KVT_AXIS_L];
	out.block_size = c->group.block_size;
	out.heads = n[KVT_AXIS_H];
	if (n[KVT_AXIS_K] == 2)
		out.head_dim = n[KVT_AXIS_D];
	else
		out.content = n[KVT_AXIS_D];
	return out;
}

/*
 * Of a file that does not say its layout, and of one whose user has: 'told' is that, or
 * NULL.  Where the data speaks for none nothing happens.
 */
static void ask_data(struct patient *p, const struct kvt_hints *hints,
		     const struct kvt_layout *told)
{
	struct kvt_guess_source of = { .name = p->name, .open = open_as,
				       .context = (void *)(uintptr_t)p->name,
				       .hints = *hints, .nbytes = SAMPLE };
	struct kvt_guess g = { .ncandidates = 0 };
	struct kvt_error why = { "" };
	struct kvt_text layout;
	struct kvt_hints guessed;

	of.hints.layout = NULL;
	of.hints.inspector = NULL;
	if (!kvt_hints_of_model(&of.hints, &why) && !kvt_guess(&g, &of, &why) &&
	    !g.why_not[0] && !(told && agrees(&g, told))) {
		guessed = as_guessed(&layout, hints, &g);
		say_guess(p, &g);
		p->contradicted = told != NULL;
		if (!told && kvt_open(&p->dump, p->name, &guessed, &why))
			p->dump = NULL;
	}
	/* why the one that its shape allows is none */
	if (!told && !p->dump && g.pages.clear)
		kvt_fail(&p->refused, p->status, "%s; give --layout", g.why_not);
	kvt_guess_free(&g);
}

static void found(void *context, const char *name, const char *text)
{
	kvt_find(context, name, kvt_find_at("%s", ""), "%s", text);
}

static void open_patient(struct patient *p, struct kvt_hints hints)
{
	const struct kvt_inspector inspector = { .found = found, .context = &p->check };
	bool said = hints.spec || hints.manifest || hints.format;

	snprintf(p->check.path, sizeof(p->check.path), "%s", p->name);
	hints.empty = true;
	hints.inspector = &inspector;
	hints.look_into = TREE_FILES;
	p->status = kvt_open(&p->dump, p->name, &hints, &p->refused);
	if (p->status) {
		p->dump = NULL;
		if (!said && p->status == KVT_BAD_INPUT && !p->check.total[KVT_ERROR])
			ask_data(p, &hints, NULL);
		if (p->dump)
			p->status = KVT_OK;
		p->contradicted = p->dump && hints.layout;
	} else if (hints.layout && kvt_dump_snapshot(p->dump)->ngroups == 1) {
		ask_data(p, &hints, &kvt_dump_snapshot(p->dump)->group[0].layout);
	}
}

/* ---- looking ------------------------------------------------------------ */

/* A reading that fails is a finding, as fsck has it; what else fails is none. */
static enum kvt_status examine(struct patient *p, const struct kvt_run *run,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(p->dump);
	struct kvt_error why = { "" };

	p->facts = calloc(1, sizeof(*p->facts));
	p->strange = calloc((size_t)s->ngroups + 1, sizeof(*p->strange));
	p->pages = calloc((size_t)s->ngroups + 1, sizeof(*p->pages));
	if (!p->facts || !p->strange || !p->pages)
		return kvt_no_memory(err, NULL);
	p->status = kvt_describe(p->facts, p->name, p->dump, &why);
	/* what cannot be read is a finding of the check */
	for (int g = 0; !p->contradicted && g < s->ngroups; g++)
		if (kvt_guess_pages(&p->pages[g], p->dump, g, SAMPLE, &why) == KVT_SYSTEM)
			return kvt_fail(err, KVT_SYSTEM, "%s", why.text);
	if (!p->status)
		p->status = kvt_check_dump(&p->check, p->dump, p->name, true, run, &why);
	for (int g = 0; !p->status && g < s->ngroups; g++)
		p->status = kvt_seek_strange(&p->strange[g], p->dump, g, run, &why);
	if (p->status == KVT_BAD_INPUT)
		kvt_find(&p->check, "file.unreadable", kvt_find_at("%s", ""), "%s",
			 kvt_without_path(why.text, p->name));
	else if (p->status)
		return kvt_fail(err, p->status, "%s", why.text);
	if (p->check.out_of_memory)
		return kvt_no_memory(err, p->name);
	return KVT_OK;
}

/* Bits decide, but of two types only what rounding cannot have done. */
static bool types_differ(const struct diff_pairs *pairs)
{
	for (int i = 0; i < pairs->n; i++)
		if (!kvt_group_same_type(pairs->pair[i].group[SIDE_A],
					 pairs->pair[i].group[SIDE_B]))
			return true;
	return false;
}

static enum kvt_status compare(struct doctor *d, struct rank_file file[NSIDES],
			       const struct kvt_run *run, struct kvt_error *err)
{
	struct diff *diff = d->diff;
	enum kvt_status status;

	diff->common = true;
	diff->options.run = *run;
	for (int s = 0; s < NSIDES; s++)
		file[s] = (struct rank_file){ d->patient[s].name, d->patient[s].dump };
	if ((status = diff_align_two(diff, file, err)))
		return status;
	if (types_differ(&diff->pairs))
		diff->criteria.tolerance = (struct diff_tolerance){ .given = true,
							    .automatic = true };
	diff->common = diff->pairs.unmatched.n > 0;
	return kvt_diff_results(&diff->result, &diff->pairs, diff->side, &diff->criteria,
				&diff->options, true, err);
}

/* That two dumps cannot be compared is an answer, too. */
static enum kvt_status compare_both(struct doctor *d, struct rank_file file[NSIDES],
				    const struct kvt_run *run, struct kvt_error *err)
{
	enum kvt_status status;

	if (!(d->diff = calloc(1, sizeof(*d->diff))))
		return kvt_no_memory(err, NULL);
	status = compare(d, file, run, &d->apart);
	d->compared = !status;
	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%s", d->apart.text);
	return KVT_OK;
}

static void doctor_free(struct doctor *d)
{
	if (d->diff)
		diff_clear(d->diff);
	free(d->diff);
	for (int i = 0; i < d->npatients; i++) {
		struct patient *p = &d->patient[i];

		for (int g = 0; p->strange && g < kvt_dump_snapshot(p->dump)->ngroups;
		     g++)
			kvt_strangeness_free(&p->strange[g]);
		free(p->strange);
		free(p->pages);
		if (p->facts)
			kvt_description_free(p->facts);
		free(p->facts);
		kvt_findings_free(&p->check);
		if (p->dump)
			kvt_dump_close(p->dump);
	}
}

/* ---- the command -------------------------------------------------------- */

static struct kvt_hints hints_of(const struct arguments *args, int s)
{
	struct kvt_hints hints = args->hints;

	kvt_hints_overlay(&hints, &args->side[s]);
	hints.tp_size = args->hints.tp_size;
	hints.tp_rank = args->hints.tp_rank;
	hints.total_heads = args->hints.total_heads;
	hints.has_sides = args->hints.has_sides;
	return hints;
}

static enum kvt_status answer(const struct doctor *d, bool json, struct kvt_error *err)
{
	struct json_out out = { NULL, false };

	if (!json) {
		doctor_text(d);
		return KVT_OK;
	}
	doctor_json(&out, d);
	return json_print(&out, false, err);
}

static enum kvt_status run_parsed(struct doctor *d, const struct arguments *args,
				  struct kvt_error *err)
{
	struct rank_file file[NSIDES];
	bool all = true;
	enum kvt_status status = KVT_OK, told;

	for (int i = 0; i < d->npatients; i++) {
		open_patient(&d->patient[i], hints_of(args, i));
		all &= d->patient[i].dump != NULL;
		if (d->patient[i].status == KVT_USAGE ||
		    d->patient[i].status == KVT_SYSTEM)
			return kvt_fail(err, d->patient[i].status, "%s",
					d->patient[i].refused.text);
	}
	for (int i = 0; !status && i < d->npatients; i++)
		if (d->patient[i].dump)
			status = examine(&d->patient[i], &args->run, err);
	for (int i = 0; i < d->npatients; i++)
		all &= !d->patient[i].status;
	if (!status && all && d->npatients > 1)
		status = compare_both(d, file, &args->run, err);
	if (status)
		return status;
	told = doctor_judge(d, &args->said);
	status = answer(d, args->json, err);
	return status ? status : told;
}

/* What is no operand and is not of this command alone goes to the next one, too. */
static void keep_words(struct doctor_said *said, char *const *words, int n,
		       char *const *operands, int noperands)
{
	for (int i = 1; i < n && said->n < DOCTOR_WORDS; i++) {
		bool operand = !strcmp(words[i], "--") || !strcmp(words[i], "--json") ||
			       !strcmp(words[i], "-j");

		for (int k = 0; k < noperands; k++)
			operand |= words[i] == operands[k];
		if (operand)
			continue;
		said->of_sides |= !strncmp(words[i], "--a", 3) ||
				  !strncmp(words[i], "--b=", 4);
		said->word[said->n++] = words[i];
	}
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct arguments args = { .json = false };
	struct doctor *d = calloc(1, sizeof(*d));
	char **words = calloc((size_t)argc + 1, sizeof(*words));
	int64_t threads = 0, memory = 0;
	const struct opt opts[] = {
		OPT_SIDES(args.side),
		OPT_TOTAL_HEADS(&args.hints.total_heads),
		OPT_THREADS(&threads),
		OPT_MEMORY(&memory),
		OPT_JSON(&args.json),
		OPT_INPUT(&args.hints),
		{ 0 }
	};
	enum kvt_status status = KVT_SYSTEM;
	int n;

	if (!d || !words) {
		free(d);
		free(words);
		return kvt_no_memory(err, NULL);
	}
	memcpy(words, argv, (size_t)argc * sizeof(*words));
	n = opt_parse(&cmd_doctor, opts, argc, argv, err);
	if (n < 0) {
		status = opt_status(n);
	} else if (n > 2) {
		status = kvt_fail(err, KVT_USAGE,
				  "expected one dump or two, got %d: '%.60s', '%.60s', ...",
				  n, argv[0], argv[1]);
	} else if (!(status = opt_need(&cmd_doctor, (struct opt_need[]){
			{ n, "a dump" }, { 0 } }, err))) {
		keep_words(&args.said, words, argc, argv, n);
		args.run = run_watched(threads, memory, false);
		args.run.context = (void *)(uintptr_t)&cmd_doctor;
		d->npatients = n;
		args.hints.has_sides = n > 1;
		for (int i = 0; i < n; i++)
			d->patient[i].name = argv[i];
		signals_catch();
		status = run_parsed(d, &args, err);
	}
	doctor_free(d);
	free(d);
	free(words);
	return status;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.args = "A [B]",
	.summary = "say what is wrong with a dump, or two, and what to type",
	.run = run,
	.examples =
		"  kvtool doctor dump.h5\n"
		"  kvtool doctor good.npy bad.npy\n"
		"  kvtool doctor --a=layout=kv-first-nhd --b=layout=hnd before.npy after.npy\n",
};
