/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector.c - kvtool expect connector: which order does each connector ask for?
 *
 *	vLLM 0.32                    plain     mla       no-model  hisparse
 *	NixlConnector                LBHNC     none      none      LBHNC
 *
 *	{"release": "0.32", "connectors": [{"connector": "NixlConnector",
 *	 "plain": "LBHNC", "mla": null, "no_model": null, "hisparse": "LBHNC"}]}
 *
 * Without names a line for each connector of the release; with several one line for all
 * of them together, which has "conflict" where they ask for different orders.  That is
 * KVT_MISMATCH, with the first reason, and is printed all the same.
 */
#include "cli/cmd/expect/modes.h"

#include "cli/opt.h"
#include "lib/kvt/choice.h"
#include "print/out/json_out.h"

/* ---- what the answer depends on ----------------------------------------- */

static const struct {
	const char *text, *key;
	struct kvt_connector_model model;
} cases[] = {
	{ "plain", "plain", { .mla = false } },
	{ "mla", "mla", { .mla = true } },
	{ "no-model", "no_model", { .unknown = true } },
	{ "hisparse", "hisparse", { .hisparse = true } },
};
enum { NCASES = sizeof(cases) / sizeof(cases[0]) };

enum { CONFLICT = -2 };

static const char *name_of(int layout, enum kvt_release release)
{
	return layout == CONFLICT ? "conflict" : layout < 0 ? "none" :
	       kvt_kv_layout_word((enum kvt_kv_layout)layout, release);
}

/* ---- printing ----------------------------------------------------------- */

/* Where the answer goes, and which release it is of. */
struct asked {
	enum kvt_release release;
	struct json_out *out;		/* NULL: text */
	json_t *list;
};

static void print_head(enum kvt_release release)
{
	plainf("vLLM %-24s", kvt_release_name(release));
	for (int i = 0; i < NCASES; i++)
		plainf(i < NCASES - 1 ? "%-10s" : "%s", cases[i].text);
	putchar('\n');
}

static void print_answer(const struct asked *a, const char *title,
			 const int layout[NCASES], bool first)
{
	json_t *o;

	if (!a->out) {
		if (first)
			print_head(a->release);
		plainf("%-29s", title);
		for (int i = 0; i < NCASES; i++)
			plainf(i < NCASES - 1 ? "%-10s" : "%s",
			       name_of(layout[i], a->release));
		putchar('\n');
		return;
	}
	o = json_append_object(a->out, a->list);
	json_put_text(a->out, o, "connector", title);
	for (int i = 0; i < NCASES; i++)
		json_put_text(a->out, o, cases[i].key,
			      layout[i] == -1 ? NULL : name_of(layout[i], a->release));
}

/* One connector, or several that are used together; what they differ in is an answer. */
static enum kvt_status answer(const struct asked *a, const char *title,
			      const char *const *name, int n, bool first,
			      struct kvt_error *err)
{
	enum kvt_status worst = KVT_OK, status;
	int layout[NCASES];

	for (int i = 0; i < NCASES; i++) {
		struct kvt_connector_model model = cases[i].model;
		struct kvt_error why = { "" };

		model.release = a->release;
		status = kvt_connector_layout(&layout[i], name, n, &model, &why);
		if (status == KVT_BAD_INPUT) {
			if (!worst)
				kvt_fail(err, KVT_MISMATCH, "%s: %s", cases[i].text,
					 why.text);
			layout[i] = CONFLICT;
			worst = KVT_MISMATCH;
		} else if (status) {
			return kvt_fail(err, status, "%s", why.text);
		}
	}
	print_answer(a, title, layout, first);
	return worst;
}

static enum kvt_status answer_all(const struct asked *a, char **argv, int n,
				  struct kvt_error *err)
{
	const char *name;
	enum kvt_status status = KVT_OK;

	if (n)
		return answer(a, n > 1 ? "all of them" : argv[0],
			      (const char *const *)argv, n, true, err);
	for (int i = 0; !status && (name = kvt_connector_at(a->release, i)); i++)
		status = answer(a, name, &name, 1, !i, err);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked a = { .release = KVT_NEWEST_RELEASE };
	struct json_out out = { NULL, false };
	bool json = false;
	const struct opt opts[] = {
		OPT_RELEASE(&a.release),
		OPT_JSON(&json),
		{ 0 }
	};
	int n = opt_parse(&expect_connector, opts, argc, argv, err);
	enum kvt_status status;

	if (n < 0)
		return opt_status(n);
	if (json) {
		json_start(&out);
		json_put_text(&out, out.root, "release", kvt_release_name(a.release));
		a.out = &out;
		a.list = json_put_array(&out, out.root, "connectors");
	}
	status = answer_all(&a, argv, n, err);
	if (json && status <= KVT_MISMATCH)
		status = worse(status, json_print(&out, false, err));
	json_free(&out);
	return status;
}

const struct command expect_connector = {
	.name = "expect connector",
	.args = "[CONNECTOR]...",
	.summary = "say which order of a cache vLLM's connectors ask for",
	.run = run,
	.examples =
		"  kvtool expect connector\n"
		"  kvtool expect connector NixlConnector OffloadingConnector\n",
};
