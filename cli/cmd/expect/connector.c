/* SPDX-License-Identifier: Apache-2.0 */
/* connector.c - kvtool expect connector: which order does each connector ask for? */
#include "cli/cmd/expect/modes.h"

#include "cli/json_out.h"
#include "cli/opt.h"
#include "lib/kvt/choice.h"

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

static const char *name_of(int layout)
{
	return layout == CONFLICT ? "conflict" : layout < 0 ? "none" :
	       kvt_kv_layout_name((enum kvt_kv_layout)layout);
}

/* ---- printing ----------------------------------------------------------- */

static void print_head(void)
{
	plainf("%-29s", "connector");
	for (int i = 0; i < NCASES; i++)
		plainf(i < NCASES - 1 ? "%-10s" : "%s", cases[i].text);
	putchar('\n');
}

static void print_answer(struct json_out *out, json_t *list, const char *title,
			 const int layout[NCASES], bool first)
{
	json_t *o;

	if (!out) {
		if (first)
			print_head();
		plainf("%-29s", title);
		for (int i = 0; i < NCASES; i++)
			plainf(i < NCASES - 1 ? "%-10s" : "%s", name_of(layout[i]));
		putchar('\n');
		return;
	}
	o = json_append_object(out, list);
	json_put_text(out, o, "connector", title);
	for (int i = 0; i < NCASES; i++)
		json_put_text(out, o, cases[i].key,
			      layout[i] == -1 ? NULL : name_of(layout[i]));
}

/* One connector, or several that are used together; what they differ in is an answer. */
static enum kvt_status answer(struct json_out *out, json_t *list, const char *title,
			      const char *const *name, int n, bool first,
			      struct kvt_error *err)
{
	enum kvt_status worst = KVT_OK, status;
	int layout[NCASES];

	for (int i = 0; i < NCASES; i++) {
		struct kvt_error why = { "" };

		status = kvt_connector_layout(&layout[i], name, n, &cases[i].model, &why);
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
	print_answer(out, list, title, layout, first);
	return worst;
}

static enum kvt_status answer_all(struct json_out *out, char **argv, int n,
				  struct kvt_error *err)
{
	json_t *list = out ? json_put_array(out, out->root, "connectors") : NULL;
	const char *name;
	enum kvt_status status = KVT_OK;

	if (n)
		return answer(out, list, n > 1 ? "all of them" : argv[0],
			      (const char *const *)argv, n, true, err);
	for (int i = 0; !status && (name = kvt_connector_at(i)); i++)
		status = answer(out, list, name, &name, 1, !i, err);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct json_out out = { NULL, false };
	bool json = false;
	const struct opt opts[] = {
		OPT_JSON(&json),
		{ 0 }
	};
	int n = opt_parse(&expect_connector, opts, argc, argv, err);
	enum kvt_status status;

	if (n < 0)
		return opt_status(n);
	if (json)
		json_start(&out);
	status = answer_all(json ? &out : NULL, argv, n, err);
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
