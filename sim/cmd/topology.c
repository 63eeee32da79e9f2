/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c - transfer-sim topology: which ranks of other engines a rank reads from
 *
 * In: the rank here and each remote engine, as KEY=VALUE.  Which ranks is lib/transfer's
 * (lib/kvt/topology.h), as vLLM's NIXL connector has it; here it is printed, with the
 * line of the engine's own log that says the same.
 */
#include "sim/cmd/options.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/keys.h"
#include "lib/kvt/connect.h"
#include "lib/kvt/topology.h"
#include "print/out/json_out.h"

enum { MAX_REMOTES = 32 };

struct asked {
	struct kvt_topology local;
	enum kvt_release release;
	const struct kvt_backend *backend;	/* of the caches here; NULL: not said */
	bool cross_layer;
	struct kvt_remote remote[MAX_REMOTES];
	int nremotes;
	bool one_rank;			/* local.tp_rank; else all of them */
	char *text[MAX_REMOTES + 1];	/* the words, cut up */
};

/* What is true of a remote engine for all ranks here. */
struct facts {
	int64_t tp_ratio, block_ratio;
};

/* ---- options ------------------------------------------------------------ */

/* What is said of the rank besides its topology. */
struct local_words {
	struct kvt_topology topology;
	const char *backend;
	bool cross_layer;
};

#define LOCAL(name, type, field) \
	{ name, type, offsetof(struct local_words, topology.field), NULL }
#define REMOTE(name, type, field) \
	{ name, type, offsetof(struct kvt_remote, field), NULL }

static const struct kvt_key local_keys[] = {
	LOCAL("engine", KVT_KEY_TEXT, engine), LOCAL("tp", KVT_KEY_NUMBER, tp_size),
	LOCAL("rank", KVT_KEY_NUMBER, tp_rank),
	LOCAL("block-size", KVT_KEY_NUMBER, block_size),
	LOCAL("heads", KVT_KEY_NUMBER, kv_heads), LOCAL("dcp", KVT_KEY_NUMBER, dcp_size),
	LOCAL("mla", KVT_KEY_FLAG, mla), LOCAL("mamba", KVT_KEY_FLAG, has_states),
	{ "backend", KVT_KEY_TEXT, offsetof(struct local_words, backend), NULL },
	{ "cross-layer", KVT_KEY_FLAG, offsetof(struct local_words, cross_layer), NULL },
	{ NULL, KVT_KEY_FLAG, 0, NULL },
};
static const struct kvt_key remote_keys[] = {
	REMOTE("engine", KVT_KEY_TEXT, engine), REMOTE("pp", KVT_KEY_NUMBER, pp_rank),
	REMOTE("tp", KVT_KEY_NUMBER, tp_size),
	REMOTE("block-size", KVT_KEY_NUMBER, block_size),
	REMOTE("block-len", KVT_KEY_NUMBER, block_len),
	REMOTE("physical", KVT_KEY_NUMBER, physical),
	/* start_layer and end_layer follow each other */
	REMOTE("layers", KVT_KEY_SPAN, start_layer),
	REMOTE("dcp", KVT_KEY_NUMBER, dcp_size), { NULL, KVT_KEY_FLAG, 0, NULL },
};

static enum kvt_status copy_text(char **out, const char *text, struct kvt_error *err)
{
	return (*out = strdup(text)) ? KVT_OK : kvt_no_memory(err, NULL);
}

/* Rank -1 until it is said. */
static enum kvt_status take_local(struct asked *a, const char *text,
				  struct kvt_error *err)
{
	struct local_words words = { .topology = { .tp_rank = -1, .tp_size = 1,
						   .block_size = 16, .dcp_size = 1 } };
	struct kvt_keys keys = { "--local", local_keys, &words, 0 };
	enum kvt_status status;

	if ((status = copy_text(&a->text[MAX_REMOTES], text, err)) ||
	    (status = kvt_keys_parse(&keys, a->text[MAX_REMOTES], err)))
		return status;
	a->local = words.topology;
	a->cross_layer = words.cross_layer;
	if (words.backend && !(a->backend = kvt_backend_find(words.backend)))
		return kvt_fail(err, KVT_USAGE,
				"--local: backend is '%.40s', which is no backend of vLLM; 'kvtool expect backend' lists them",
				words.backend);
	if (a->local.mla && !a->local.kv_heads)
		a->local.kv_heads = 1;
	if (!a->local.kv_heads)
		return kvt_fail(err, KVT_USAGE, "--local: heads=N is missing");
	a->one_rank = a->local.tp_rank >= 0;
	if (!a->one_rank)
		a->local.tp_rank = 0;
	return kvt_topology_check(&a->local, err);
}

static enum kvt_status take_remote(struct asked *a, const char *text,
				   struct kvt_error *err)
{
	struct kvt_remote *r = &a->remote[a->nremotes];
	char **copy = &a->text[a->nremotes];
	struct kvt_keys keys = { "--remote", remote_keys, r, 0 };
	enum kvt_status status;

	*r = (struct kvt_remote){ .engine = "remote", .tp_size = a->local.tp_size,
				  .block_size = a->local.block_size, .physical = 1,
				  .dcp_size = 1 };
	if ((status = copy_text(copy, text, err)))
		return status;
	a->nremotes++;
	if ((status = kvt_keys_parse(&keys, *copy, err)) ||
	    (status = kvt_remote_check(&a->local, r, err)))
		return status;
	for (int i = 0; i < a->nremotes - 1; i++)
		if (!strcmp(a->remote[i].engine, r->engine) &&
		    a->remote[i].pp_rank == r->pp_rank)
			return kvt_fail(err, KVT_BAD_INPUT,
					"--remote: '%.60s' has two of pipeline rank %lld, of which vLLM would keep the first",
					r->engine, LL(r->pp_rank));
	return KVT_OK;
}

/* ---- text --------------------------------------------------------------- */

/* A column of ranks, or of other numbers. */
static void print_list(int64_t n, const int64_t *at, int width)
{
	char text[KVT_MAX_REMOTE_RANKS * 8] = "none";
	size_t used = 0;

	for (int64_t i = 0; i < n && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%lld",
					 i ? "," : "", LL(at[i]));
	plainf("  %-*s", width, text);
}

/* Of several ranks that hold the same heads. */
static const char *replicated_text(bool here, bool there)
{
	return here && there ? "on both sides" : here ? "here only" :
	       there ? "there only" : "on neither side";
}

static void print_remote(const struct asked *a, const struct kvt_remote *r,
			 const struct facts *f)
{
	plainf("%s, pipeline rank %lld: TP %lld, blocks of %lld tokens", r->engine,
	       LL(r->pp_rank), LL(r->tp_size), LL(r->block_size));
	if (r->block_len)
		plainf(" and %lld B", LL(r->block_len));
	if (r->end_layer)
		plainf(", layers %lld to %lld", LL(r->start_layer), LL(r->end_layer - 1));
	if (r->dcp_size > 1)
		plainf(", DCP %lld", LL(r->dcp_size));
	plainf("\ntp_ratio %lld, block_size_ratio %lld", LL(f->tp_ratio),
	       LL(f->block_ratio));
	if (r->physical > 1)
		plainf(", %lld physical blocks each", LL(r->physical));
	plainf("; replicated heads: %s\n",
	       replicated_text(kvt_topology_replicates(&a->local),
			       kvt_remote_replicates(&a->local, r)));
	plainf("  %4s  %-14s  %-10s", "RANK", "HANDSHAKE WITH", "READS FROM");
	if (a->local.has_states)
		plainf("  %-10s", "RECURRENT");
	puts("  INTO PART  FROM PART  READERS OF EACH");
}

/* What connectors of 0.24 and before make of the caches here. */
static bool regions_of(struct kvt_kv_regions *out, const struct asked *a)
{
	return kvt_kv_regions(out, a->release, a->backend, a->local.mla,
			      a->local.has_states, a->cross_layer);
}

static void print_local(const struct asked *a)
{
	struct kvt_kv_regions regions;

	plainf("release %s of vLLM", kvt_release_name(a->release));
	if (regions_of(&regions, a))
		plainf(": is_kv_layout_blocks_first %s, split_k_and_v %s",
		       regions.blocks_first ? "true" : "false",
		       regions.split ? "true" : "false");
	putchar('\n');
}

static void print_mapping(const struct kvt_topology *t, const struct kvt_rank_list *asks,
			  const struct kvt_tp_mapping *m)
{
	plainf("  %4lld", LL(t->tp_rank));
	print_list(asks->n, asks->at, 14);
	print_list(m->attention.n, m->attention.at, 10);
	if (t->has_states)
		print_list(m->states.n, m->states.at, 10);
	print_list(m->all.n, m->slot, 9);
	plainf("  %-9lld  %lld\n", LL(m->offset), LL(m->consumers));
}

/* ---- JSON --------------------------------------------------------------- */

static json_t *put_remote(struct json_out *out, json_t *list, const struct asked *a,
			  const struct kvt_remote *r, const struct facts *f)
{
	json_t *o = json_append_object(out, list);

	json_put_text(out, o, "engine", r->engine);
	json_put_int(out, o, "pp_rank", r->pp_rank);
	json_put_int(out, o, "tp_size", r->tp_size);
	json_put_int(out, o, "dcp_size", r->dcp_size);
	json_put_int(out, o, "block_size", r->block_size);
	json_put_int(out, o, "block_len", r->block_len);
	json_put_int(out, o, "physical_blocks", r->physical);
	json_put_int(out, o, "start_layer", r->start_layer);
	json_put_int(out, o, "end_layer", r->end_layer);
	json_put_int(out, o, "tp_ratio", f->tp_ratio);
	json_put_int(out, o, "block_size_ratio", f->block_ratio);
	json_put_bool(out, o, "local_replicates", kvt_topology_replicates(&a->local));
	json_put_bool(out, o, "remote_replicates", kvt_remote_replicates(&a->local, r));
	json_put_bool(out, o, "is_kv_replicated", r->tp_size > a->local.kv_heads);
	json_put_int(out, o, "local_heads", kvt_topology_heads(&a->local));
	return json_put_array(out, o, "ranks");
}

/* The engine's own line of its log about them. */
static void put_log_line(struct json_out *out, json_t *o, const struct kvt_topology *t,
			 const struct kvt_remote *r, const struct facts *f)
{
	char line[400];

	snprintf(line, sizeof(line),
		 "TransferTopology(tp_ratio=%lld, num_kv_heads=%lld, local_tp=%lld, remote_tp=%lld, remote_pp=%lld, local_dcp=%lld, remote_dcp=%lld, local_rank=%lld, remote_block_len=%lld)", LL(f->tp_ratio),
		 LL(t->mla ? 1 : t->kv_heads), LL(t->tp_size), LL(r->tp_size),
		 LL(r->pp_rank), LL(t->dcp_size), LL(r->dcp_size), LL(t->tp_rank),
		 LL(r->block_len));
	json_put_text(out, o, "log_line", line);
}

static void put_local(struct json_out *out, const struct asked *a)
{
	struct kvt_kv_regions regions;

	json_put_text(out, out->root, "release", kvt_release_name(a->release));
	if (regions_of(&regions, a)) {
		json_put_bool(out, out->root, "is_kv_layout_blocks_first",
			      regions.blocks_first);
		json_put_bool(out, out->root, "split_k_and_v", regions.split);
	} else {
		json_put(out, out->root, "is_kv_layout_blocks_first", json_null());
		json_put(out, out->root, "split_k_and_v", json_null());
	}
}

static void put_mapping(struct json_out *out, json_t *list, const struct kvt_topology *t,
			const struct kvt_remote *r, const struct facts *f,
			const struct kvt_rank_list *asks, const struct kvt_tp_mapping *m)
{
	json_t *o = json_append_object(out, list);

	json_put_int(out, o, "rank", t->tp_rank);
	json_put_ints(out, o, "handshake_ranks", asks->n, asks->at);
	json_put_ints(out, o, "attention_ranks", m->attention.n, m->attention.at);
	json_put_ints(out, o, "mamba_ranks", m->states.n, m->states.at);
	json_put_ints(out, o, "all_ranks", m->all.n, m->all.at);
	json_put_ints(out, o, "attention_slots", m->all.n, m->slot);
	json_put_int(out, o, "rank_offset_factor", m->offset);
	json_put_int(out, o, "local_consumers", m->consumers);
	put_log_line(out, o, t, r, f);
}

/* ---- all of them -------------------------------------------------------- */

static enum kvt_status show_remote(const struct asked *a, const struct kvt_remote *r,
				   struct json_out *out, json_t *list,
				   struct kvt_error *err)
{
	static struct kvt_tp_mapping mapping;
	static struct kvt_rank_list asks;
	struct kvt_topology t = a->local;
	int64_t end = a->one_rank ? t.tp_rank + 1 : t.tp_size;
	enum kvt_status status;
	struct facts f;
	json_t *ranks = NULL;

	if ((status = kvt_tp_ratio(&f.tp_ratio, t.tp_size, r->tp_size, err)) ||
	    (status = kvt_block_size_ratio(&f.block_ratio, t.block_size, r->block_size,
					   err)))
		return status;
	if (out)
		ranks = put_remote(out, list, a, r, &f);
	else
		print_remote(a, r, &f);
	for (; t.tp_rank < end; t.tp_rank++) {
		if ((status = kvt_handshake_ranks(&asks, &t, r, err)) ||
		    (status = kvt_tp_mapping(&mapping, &t, r, err)))
			return status;
		if (out)
			put_mapping(out, ranks, &t, r, &f, &asks, &mapping);
		else
			print_mapping(&t, &asks, &mapping);
	}
	return KVT_OK;
}

static enum kvt_status show(struct asked *a, bool json, struct kvt_error *err)
{
	struct json_out out = { NULL, false };
	enum kvt_status status = KVT_OK;
	json_t *list = NULL;

	if (json) {
		json_start(&out);
		put_local(&out, a);
		list = json_put_array(&out, out.root, "remotes");
	}
	if (!json)
		print_local(a);
	for (int i = 0; i < a->nremotes && !status; i++) {
		struct kvt_error why = { "" };

		if (i && !json)
			putchar('\n');
		status = show_remote(a, &a->remote[i], json ? &out : NULL, list, &why);
		if (status)
			kvt_fail(err, status, "%.60s: %s", a->remote[i].engine, why.text);
	}
	if (!status && json)
		status = json_print(&out, false, err);
	json_free(&out);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked *a = calloc(1, sizeof(*a));
	struct opt_strings remotes = { .n = 0 };
	const char *local = NULL;
	enum kvt_release release = KVT_NEWEST_RELEASE;
	bool json = false;
	const struct opt opts[] = {
		{ "local", 0, OPT_STRING, &local, "KEY=N,...",
		  "the rank that reads: tp=4,rank=1,heads=8,block-size=16,dcp=1,mla" },
		{ "remote", 0, OPT_STRINGS, &remotes, "KEY=N,...",
		  "an engine: engine=p0,pp=0,tp=2,block-size=16; may be repeated" },
		OPT_RELEASE(&release),
		OPT_JSON(&json),
		{ 0 }
	};
	int n = opt_parse(&transfer_topology, opts, argc, argv, err);
	enum kvt_status status = KVT_OK;

	if (!a)
		return kvt_no_memory(err, NULL);
	if (n < 0)
		status = opt_status(n);
	else if (n || !local || !remotes.n)
		status = kvt_fail(err, KVT_USAGE,
				  "expected --local and --remote: kvtool transfer-sim topology --local=tp=4,heads=8 --remote=tp=2");
	else if (!(status = take_local(a, local, err))) {
		a->release = release;
		if (a->backend && !kvt_backend_in(a->backend, release))
			status = kvt_fail(err, KVT_USAGE, "release %s has no backend %s",
					  kvt_release_name(release),
					  kvt_backend_name(a->backend));
		for (int i = 0; i < remotes.n && !status; i++)
			status = take_remote(a, remotes.s[i], err);
		if (!status)
			status = show(a, json, err);
	}
	for (int i = 0; i <= MAX_REMOTES; i++)
		free(a->text[i]);
	free(a);
	return status;
}

const struct command transfer_topology = {
	.name = "transfer-sim topology",
	.args = "--local=KEY=N,... --remote=KEY=N,...",
	.summary = "say which ranks of other engines each rank of vLLM reads from",
	.run = run,
	.examples =
		"  kvtool transfer-sim topology --local=tp=4,heads=8 --remote=engine=p0,tp=2 --remote=engine=p1,tp=8\n",
};
