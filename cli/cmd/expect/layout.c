/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - kvtool expect layout: which order would vLLM give a cache?
 *
 * In: what each worker's backends take, what connectors ask for, the specs of the
 * caches.  lib/vllm/kv_layout.c chooses; here the three are made of options, of names of
 * backends, or of a dump's own groups, and it is said where the bytes of each backend
 * are under the order that came out.
 */
#include "cli/cmd/expect/modes.h"

#include <stdlib.h>
#include <string.h>

#include "cli/expect/expect.h"
#include "print/out/json_out.h"
#include "cli/opt.h"
#include "lib/kvt/choice.h"
#include "lib/kvt/connect.h"
#include "lib/kvt/dump.h"
#include "lib/kvt/kind.h"
#include "lib/base/number.h"

enum { MAX_SPECS = 64 };

struct asked {
	struct kvt_hints hints;
	struct opt_strings backends, connectors, workers, shapes, caches, with;
	const char *requested, *resolved, *on_text;
	enum kvt_release release;
	struct expect_on on;
	bool json;
};

struct answer {
	struct kvt_layout_choice choice;
	int connector;
	struct kvt_layout_spec spec[MAX_SPECS];
	struct kvt_zeroing_spec cache[MAX_SPECS];
	int nspecs, ncaches;
	char word[MAX_SPECS][64];	/* of --cache */
	enum kvt_release release;
	int nbackends;			/* whose bytes have a place of their own */
	struct {
		const char *name;
		char bytes[96];		/* words of where they are */
	} backend[32];
	bool agrees;
};

/* ---- options ------------------------------------------------------------ */

static enum kvt_status take_with(struct kvt_connector_model *out,
				 const struct opt_strings *with, struct kvt_error *err)
{
	for (int i = 0; i < with->n; i++) {
		if (!strcmp(with->s[i], "mla"))
			out->mla = true;
		else if (!strcmp(with->s[i], "hisparse"))
			out->hisparse = true;
		else if (!strcmp(with->s[i], "no-model"))
			out->unknown = true;
		else
			return kvt_fail(err, KVT_USAGE,
					"--with is '%.40s', expected mla, hisparse or no-model", with->s[i]);
	}
	return KVT_OK;
}

/* -1 where the option is not given. */
static enum kvt_status take_name(int *out, const char *option, const char *text,
				 struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_kv_layout layout;
	enum kvt_status status;

	*out = -1;
	if (!text)
		return KVT_OK;
	if ((status = kvt_kv_layout_parse(&layout, text, &why)))
		return kvt_fail(err, status, "%s: %s", option, why.text);
	*out = (int)layout;
	return KVT_OK;
}

/* "8,16,65536" and perhaps ",dcp" or ",whole" */
static enum kvt_status take_shape(struct kvt_layout_spec *out, const char *text,
				  struct kvt_error *err)
{
	const char *p = text;

	out->dcp_sharded = -1;
	if (kvt_number_take(&out->heads, &p) && *p++ == ',' &&
	    kvt_number_take(&out->states, &p) && *p++ == ',' &&
	    kvt_number_take(&out->page, &p) &&
	    out->heads > 0 && out->states > 0 && out->page > 0) {
		if (!*p)
			return KVT_OK;
		out->dcp_sharded = !strcmp(p, ",dcp");
		if (out->dcp_sharded || !strcmp(p, ",whole"))
			return KVT_OK;
	}
	return kvt_fail(err, KVT_USAGE,
			"--shape is '%.60s', expected heads, slots and bytes of a page, as in 8,16,65536, and perhaps ,dcp or ,whole behind it", text);
}

/* "bfloat16", "uint8:nvfp4", "uint8:none:host", "mamba", "other" */
static enum kvt_status take_cache(struct kvt_zeroing_spec *out, char word[64],
				  const char *text, struct kvt_error *err)
{
	const struct kvt_dtype *dtype;
	char *quant, *host;

	if (snprintf(word, 64, "%s", text) >= 64 || !*text)
		return kvt_fail(err, KVT_USAGE,
				"--cache is '%.60s', expected a type such as bfloat16, uint8:nvfp4, mamba or other", text);
	if ((quant = strchr(word, ':')))
		*quant++ = '\0';
	if (quant && (host = strchr(quant, ':')))
		*host++ = '\0';
	else
		host = NULL;
	if (host && strcmp(host, "host"))
		return kvt_fail(err, KVT_USAGE,
				"--cache is '%.60s', expected host in the third part", text);
	*out = (struct kvt_zeroing_spec){
		.kind = !strcmp(word, "mamba") ? KVT_ZEROING_STATE :
			!strcmp(word, "other") ? KVT_ZEROING_OTHER :
			KVT_ZEROING_ATTENTION,
		.quant = quant && *quant && strcmp(quant, "none") ? quant : NULL,
		.host_resident = host != NULL,
	};
	if (out->kind != KVT_ZEROING_ATTENTION)
		return KVT_OK;
	/* one name for bf16 and bfloat16, which are one type */
	if (!(dtype = kvt_dtype_find(word)))
		return kvt_fail(err, KVT_USAGE,
				"--cache is '%.60s', but there is no type '%.40s'; expected one such as bfloat16", text, word);
	out->dtype = dtype->name;
	return KVT_OK;
}

static struct kvt_backend_config config_of(const struct asked *a)
{
	struct kvt_backend_config config = {
		.release = a->release, .connector = a->connectors.n > 0,
	};

	expect_on_config(&config, &a->on);
	return config;
}

/* What --on rules out for all configurations. */
static enum kvt_status check_device(const struct asked *a, const struct kvt_backend *b,
				    struct kvt_error *err)
{
	const struct kvt_backend_config config = config_of(a);
	unsigned reasons = kvt_backend_check(b, &config);

	for (int i = KVT_BACKEND_CUDA_ONLY; i <= KVT_BACKEND_XPU_ONLY; i++)
		if (reasons >> i & 1)
			return kvt_fail(err, KVT_USAGE,
				"--backend is %s, which %s, not on %s", kvt_backend_name(b),
				kvt_backend_reason_text((enum kvt_backend_reason)i),
				a->on.text);
	return KVT_OK;
}

static const struct kvt_backend_layout *row_of(const struct asked *a, const char *name)
{
	const struct kvt_backend_config config = config_of(a);

	return kvt_backend_layouts(kvt_backend_find(name), &config);
}

/* What the backends of a worker have in common; without --backend: all layouts. */
static enum kvt_status ask_backends(struct kvt_kv_layouts *out, const struct asked *a,
				    struct kvt_error *err)
{
	const struct opt_strings *names = &a->backends;
	struct kvt_kv_layouts list[sizeof(names->s) / sizeof(names->s[0])] = { { 0 } };
	enum kvt_status status;

	for (int i = 0; i < names->n; i++) {
		const struct kvt_backend_layout *row;

		if (!kvt_backend_find(names->s[i]))
			return kvt_fail(err, KVT_USAGE,
					"--backend is '%.40s', which is no backend of vLLM; 'kvtool expect backend' lists them",
					names->s[i]);
		if ((status = check_device(a, kvt_backend_find(names->s[i]), err)))
			return status;
		row = row_of(a, names->s[i]);
		if (!row && a->release == KVT_NEWEST_RELEASE)
			continue;	/* a name without code asks for nothing */
		if (!row)
			return kvt_fail(err, KVT_USAGE,
					"--backend is %s, of which release %s has no code or no layout",
					names->s[i], kvt_release_name(a->release));
		if (row->names &&
		    (status = kvt_kv_layouts_parse(&list[i], row->names, err)))
			return status;
	}
	if (!names->n && a->release < KVT_VLLM_0_32)
		return kvt_kv_layouts_parse(out, "NHD HND", err);
	return kvt_kv_layouts_common(out, list, names->n, err);
}

/* ---- a dump's own specs ------------------------------------------------- */

static bool is_attention(const struct kvt_group *g)
{
	return !kvt_is_recurrent(g->kind) && g->kind != KVT_OPAQUE;
}

static void take_group(struct answer *out, const struct kvt_group *g)
{
	const int64_t *n = g->shape.n;
	int64_t page = n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K] * n[KVT_AXIS_D] *
		       g->shape.elem;

	out->cache[out->ncaches++] = (struct kvt_zeroing_spec){
		.kind = kvt_is_recurrent(g->kind) ? KVT_ZEROING_STATE :
			is_attention(g) ? KVT_ZEROING_ATTENTION : KVT_ZEROING_OTHER,
		.dtype = g->dtype->name,
		.quant = g->content.type ? g->content.type->name : NULL,
	};
	if (is_attention(g))
		out->spec[out->nspecs++] = (struct kvt_layout_spec){
			n[KVT_AXIS_H], n[KVT_AXIS_S],
			g->page_bytes ? g->page_bytes : page, -1 };
}

/* Takes the next word of a list; false at its end. */
static bool next_word(char out[32], const char **list)
{
	size_t n = strcspn(*list, " ");

	snprintf(out, 32, "%.*s", (int)(n < 31 ? n : 31), *list);
	*list += n;
	*list += **list == ' ';
	return *out;
}

static bool are_there(const char *words, const struct kvt_group *g)
{
	struct kvt_layout layout;
	char word[32];

	while (next_word(word, &words))
		if (!kvt_layout_parse(&layout, word, NULL) &&
		    kvt_layout_agree(&layout, &g->layout, &g->shape))
			return true;
	return false;
}

static bool agrees(const struct answer *a, const struct kvt_group *g)
{
	bool there = !is_attention(g);

	for (int i = 0; i < a->nbackends; i++)
		there |= are_there(a->backend[i].bytes, g);
	return a->nbackends ? there :
	       there || are_there(kvt_kv_layout_name(a->choice.layout), g);
}

/*
 * Where the bytes of the backends are under the order that was chosen: of a name, the
 * word at its place; of a CPU, all, for the instruction set decides.
 */
static void add_bytes(struct answer *out, const char *backend,
		      const struct kvt_backend_layout *row)
{
	const char *names = row ? row->names : NULL, *bytes = row ? row->bytes : NULL;
	char name[32], word[32], *to = out->backend[out->nbackends].bytes;
	size_t room = sizeof(out->backend[0].bytes);
	enum kvt_kv_layout layout;
	bool paired = true;

	if (!row || !names || !bytes || out->nbackends == 32)
		return;
	while (paired && next_word(name, &names) && next_word(word, &bytes))
		if (!kvt_kv_layout_parse(&layout, name, NULL) &&
		    layout == out->choice.layout) {
			paired = *names || !*bytes;
			break;
		}
	snprintf(to, room, "%s", paired ? word : row->bytes);
	out->backend[out->nbackends++].name = backend;
}

/* ---- printing ----------------------------------------------------------- */

static const char *const why_text[] = {
	[KVT_LAYOUT_RESOLVED] = "chosen before",
	[KVT_LAYOUT_REQUESTED] = "requested",
	[KVT_LAYOUT_CONNECTOR] = "the connector asks for it",
	[KVT_LAYOUT_FIRST] = "the first that is possible",
	[KVT_LAYOUT_DROPPED] = "the first that is possible: the connector's is not",
};
static const char *const why_word[] = {
	[KVT_LAYOUT_RESOLVED] = "resolved", [KVT_LAYOUT_REQUESTED] = "requested",
	[KVT_LAYOUT_CONNECTOR] = "connector", [KVT_LAYOUT_FIRST] = "first",
	[KVT_LAYOUT_DROPPED] = "dropped",
};

static const char *connector_name(const struct answer *a)
{
	return a->connector < 0 ? NULL :
	       kvt_kv_layout_word((enum kvt_kv_layout)a->connector, a->release);
}

static void print_text(const struct answer *a, const struct kvt_dump *dump)
{
	const struct kvt_kv_layouts *c = &a->choice.candidates;

	plainf("release    %s\n", kvt_release_name(a->release));
	plainf("layout     %s: %s\n", kvt_kv_layout_word(a->choice.layout, a->release),
	       why_text[a->choice.why]);
	if (c->n) {
		plainf("possible   ");
		for (int i = 0; i < c->n; i++)
			plainf("%s%s", i ? ", " : "",
			       kvt_kv_layout_word(c->at[i], a->release));
		putchar('\n');
	}
	for (int i = 0; i < a->nbackends; i++)
		plainf("bytes      %s: %s\n", a->backend[i].name, a->backend[i].bytes);
	plainf("connector  %s\n", connector_name(a) ? connector_name(a) : "none");
	if (a->ncaches)
		plainf("zeroing    %s\n",
		       kvt_needs_zeroing(a->release, a->cache, a->ncaches) ?
		       "yes: newly allocated blocks are zeroed" :
		       "no: newly allocated blocks are not cleared");
	for (int g = 0; dump && g < kvt_dump_snapshot(dump)->ngroups; g++)
		plainf("%-11s%s: %s\n", kvt_dump_group(dump, g)->id,
		       human_layout(&kvt_dump_group(dump, g)->layout).s,
		       !is_attention(kvt_dump_group(dump, g)) ? "no attention" :
		       agrees(a, kvt_dump_group(dump, g)) ? "the same" : "another one");
}

static void put_bytes(struct json_out *out, const struct answer *a)
{
	json_t *list = json_put_array(out, out->root, "bytes");

	for (int i = 0; i < a->nbackends; i++) {
		json_t *o = json_append_object(out, list), *words;
		const char *rest = a->backend[i].bytes;
		char word[32];

		json_put_text(out, o, "backend", a->backend[i].name);
		words = json_put_array(out, o, "layouts");
		while (next_word(word, &rest))
			json_append_text(out, words, word);
	}
}

static enum kvt_status print_json(const struct answer *a, const struct kvt_dump *dump,
				  struct kvt_error *err)
{
	const struct kvt_kv_layouts *c = &a->choice.candidates;
	struct json_out out;
	json_t *list;

	json_start(&out);
	json_put_text(&out, out.root, "release", kvt_release_name(a->release));
	json_put_text(&out, out.root, "layout",
		      kvt_kv_layout_word(a->choice.layout, a->release));
	json_put_text(&out, out.root, "why", why_word[a->choice.why]);
	list = json_put_array(&out, out.root, "possible");
	for (int i = 0; i < c->n; i++)
		json_append_text(&out, list, kvt_kv_layout_word(c->at[i], a->release));
	put_bytes(&out, a);
	json_put_text(&out, out.root, "connector", connector_name(a));
	if (a->ncaches)
		json_put_bool(&out, out.root, "zeroing",
			      kvt_needs_zeroing(a->release, a->cache, a->ncaches));
	else
		json_put(&out, out.root, "zeroing", json_null());
	list = dump ? json_put_array(&out, out.root, "groups") : NULL;
	for (int g = 0; dump && g < kvt_dump_snapshot(dump)->ngroups; g++) {
		json_t *o = json_append_object(&out, list);

		json_put_text(&out, o, "group", kvt_dump_group(dump, g)->id);
		json_put_text(&out, o, "layout",
			      kvt_layout_string(&kvt_dump_group(dump, g)->layout).s);
		json_put_bool(&out, o, "agrees", agrees(a, kvt_dump_group(dump, g)));
	}
	return json_print(&out, false, err);
}

/* ---- the question ------------------------------------------------------- */

static enum kvt_status take_lists(struct answer *out, const struct asked *a,
				  struct kvt_error *err)
{
	enum kvt_status status;

	for (int i = 0; i < a->shapes.n; i++)
		if ((status = take_shape(&out->spec[out->nspecs++], a->shapes.s[i], err)))
			return status;
	for (int i = 0; i < a->caches.n; i++) {
		if ((status = take_cache(&out->cache[i], out->word[i], a->caches.s[i],
					 err)))
			return status;
		out->ncaches++;
	}
	return KVT_OK;
}

static enum kvt_status choose(struct answer *out, const struct asked *a,
			      const struct kvt_connector_model *model,
			      struct kvt_error *err)
{
	struct kvt_kv_layouts worker[sizeof(a->workers.s) / sizeof(a->workers.s[0])];
	struct kvt_layout_request r = { .worker = worker, .nworkers = a->workers.n,
					.spec = out->spec, .nspecs = out->nspecs };
	enum kvt_status status;

	for (int i = 0; i < a->workers.n; i++)
		if ((status = kvt_kv_layouts_parse(&worker[i], a->workers.s[i], err)))
			return status;
	if (!a->workers.n) {
		if ((status = ask_backends(&worker[0], a, err)))
			return status;
		r.nworkers = 1;
	}
	if (a->release < KVT_VLLM_0_32)
		r.nspecs = 0;		/* they have no say yet */
	if ((status = take_name(&r.requested, "--request", a->requested, err)) ||
	    (status = take_name(&r.resolved, "--resolved", a->resolved, err)) ||
	    (status = kvt_connector_layout(&out->connector, a->connectors.s,
					   a->connectors.n, model, err)))
		return status;
	r.connector = out->connector;
	/* what a backend needs beat what the user wanted */
	if (a->release < KVT_VLLM_0_32 && r.nworkers && worker[0].n == 1)
		r.requested = -1;
	if ((status = kvt_layout_choose(&out->choice, &r, err)))
		return status;
	for (int i = 0; i < a->backends.n; i++)
		add_bytes(out, a->backends.s[i], row_of(a, a->backends.s[i]));
	return KVT_OK;
}

/* What releases before 0.32 do not know. */
static enum kvt_status check_release(const struct asked *a, const struct kvt_dump *dump,
				     struct kvt_error *err)
{
	if (a->release >= KVT_VLLM_0_32)
		return KVT_OK;
	if (a->shapes.n || a->workers.n || a->resolved)
		return kvt_fail(err, KVT_USAGE,
				"--shape, --worker and --resolved are of release 0.32, not of %s",
				kvt_release_name(a->release));
	return !dump || a->backends.n ? KVT_OK :
	       kvt_fail(err, KVT_USAGE,
			"in release %s the backend decides where bytes are: expected --backend, such as --backend=FLASH_ATTN",
			kvt_release_name(a->release));
}

static enum kvt_status answer(const struct asked *a, const struct kvt_dump *dump,
			      struct kvt_error *err)
{
	struct answer *out = calloc(1, sizeof(*out));
	struct kvt_connector_model model = { .release = a->release };
	enum kvt_status status;

	if (!out)
		return kvt_no_memory(err, NULL);
	out->agrees = true;
	out->release = a->release;
	if (!(status = check_release(a, dump, err)) &&
	    !(status = take_with(&model, &a->with, err)))
		status = take_lists(out, a, err);
	for (int g = 0; dump && !status && g < kvt_dump_snapshot(dump)->ngroups &&
	     out->ncaches < MAX_SPECS && out->nspecs < MAX_SPECS; g++) {
		model.mla |= kvt_dump_group(dump, g)->kind == KVT_MLA;
		take_group(out, kvt_dump_group(dump, g));
	}
	if (!status)
		status = choose(out, a, &model, err);
	for (int g = 0; dump && !status && g < kvt_dump_snapshot(dump)->ngroups; g++)
		out->agrees &= agrees(out, kvt_dump_group(dump, g));
	if (!status && a->json)
		status = print_json(out, dump, err);
	else if (!status)
		print_text(out, dump);
	if (!status && !out->agrees)
		status = KVT_MISMATCH;
	free(out);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked a = { .release = KVT_NEWEST_RELEASE };
	const struct opt opts[] = {
		{ "backend", 0, OPT_STRINGS, &a.backends, "NAME",
		  "a backend that the layers use; may be repeated" },
		{ "connector", 0, OPT_STRINGS, &a.connectors, "NAME",
		  "a connector such as NixlConnector; may be repeated" },
		{ "request", 0, OPT_STRING, &a.requested, "LAYOUT",
		  "what VLLM_KV_CACHE_LAYOUT is" },
		{ "resolved", 0, OPT_STRING, &a.resolved, "LAYOUT",
		  "what was chosen already" },
		{ "worker", 0, OPT_STRINGS, &a.workers, "LAYOUTS",
		  "what a worker reports, instead of --backend; may be repeated" },
		{ "shape", 0, OPT_STRINGS, &a.shapes, "H,S,BYTES",
		  "heads, slots and bytes of a spec's page; may be repeated" },
		{ "cache", 0, OPT_STRINGS, &a.caches, "TYPE",
		  "type of a spec, such as uint8:nvfp4, for zeroing; may be repeated" },
		{ "with", 0, OPT_STRINGS, &a.with, "WORD",
		  "mla, hisparse, no-model: what connectors ask; may be repeated" },
		OPT_RELEASE(&a.release),
		OPT_ON(&a.on_text),
		OPT_JSON(&a.json),
		OPT_INPUT(&a.hints),
		{ 0 }
	};
	int n = opt_parse(&expect_layout, opts, argc, argv, err);
	struct kvt_dump *dump = NULL;
	enum kvt_status status;

	if (n < 0)
		return opt_status(n);
	if (n > 1)
		return kvt_fail(err, KVT_USAGE, "expected one dump or none, got %d", n);
	if ((status = expect_on_take(&a.on, a.on_text, err)))
		return status;
	if (n && (status = kvt_open(&dump, argv[0], &a.hints, err)))
		return status;
	status = answer(&a, dump, err);
	kvt_dump_close(dump);
	return status;
}

const struct command expect_layout = {
	.name = "expect layout",
	.args = "[FILE]",
	.summary = "say which order vLLM gives a cache, and whether it zeroes blocks",
	.run = run,
	.examples =
		"  kvtool expect layout --backend=FLASH_ATTN --connector=NixlConnector\n"
		"  kvtool expect layout --connector=OffloadingConnector dump.h5\n",
};
