/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rewrite.c - from operands to what is written: opened, fitted, cast, or shared out
 *
 * rewrite_dump() asks in this order.  The first two make another dump, of which the rest
 * is asked; then one of the others writes it:
 *
 *	--dtype			numbers of another type
 *	format of one pool	groups put into one; of one request: that one cut out
 *	--cache-dtype=template	rewrite_retyped(): the types of another state file
 *	--shard			rewrite_parts(): a snapshot a patch
 *	-o -			staged in TMPDIR, then copied to standard output
 *	else			rewrite_alone(): create, plan, run, verify, publish
 */
#include "cli/rewrite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/shard/shard.h"
#include "print/out/signals.h"
#include "print/out/streams.h"

/* A file may say all but what its bytes are, or which fp8. */
static bool lacks_content(const struct kvt_dump *dump, const struct kvt_hints *hints)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const struct kvt_content *is = &s->group[0].content;
	struct kvt_content told;

	if (!hints->content_type || s->ngroups > 1 ||
	    !kvt_content_find(&told, hints->content_type))
		return false;
	return is->type ? is->type == told.type && !is->fp8 && told.fp8 :
			  !strcmp(s->group[0].dtype->name, "uint8");
}

enum kvt_status open_as_told(struct kvt_dump **out, const char *name,
			     const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_hints facts = {
		.facts = hints->facts, .blocks_of = hints->blocks_of,
		.seq_lens = hints->seq_lens, .slot_mapping = hints->slot_mapping,
		.tp_size = hints->tp_size, .tp_rank = hints->tp_rank,
		.total_heads = hints->total_heads,
	};
	struct kvt_error why;
	enum kvt_status status = kvt_open(out, name, &facts, &why);

	/* facts of the other input's format */
	if (status == KVT_USAGE && hints->facts.n)
		status = kvt_open(out, name, NULL, &why);
	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%s", why.text);
	if (!status && !lacks_content(*out, hints))
		return KVT_OK;
	if (!status)
		kvt_dump_close(*out);
	return kvt_open(out, name, hints, err);
}

bool is_as_told(const char *name, const struct kvt_hints *hints, struct kvt_error *why)
{
	const struct kvt_hint *hint;
	struct kvt_dump *dump = NULL;
	bool said = false;

	for (int i = 0; (hint = kvt_hint_at(i)); i++)
		said |= hint->type != KVT_HINT_FACTS && kvt_hint_said(hints, hint);
	if (said && kvt_open(&dump, name, hints, why))
		return false;
	kvt_dump_close(dump);
	return true;
}

/* ---- files of ranks ------------------------------------------------------ */

/* The first number in which two names differ, of each; false if something else does. */
static bool numbers_apart(long long *x, long long *y, const char *a, const char *b)
{
	size_t i = 0, na, nb;

	while (a[i] && a[i] == b[i])
		i++;
	while (i > 0 && isdigit((unsigned char)a[i - 1]))
		i--;
	na = strspn(a + i, "0123456789");
	nb = strspn(b + i, "0123456789");
	*x = strtoll(a + i, NULL, 10);
	*y = strtoll(b + i, NULL, 10);
	return na && nb && !strcmp(a + i + na, b + i + nb);
}

enum kvt_status names_in_order(int n, char *const *names, struct kvt_error *err)
{
	long long x, y;

	for (int i = 1; i < n; i++)
		if (numbers_apart(&x, &y, names[i - 1], names[i]) && x >= y)
			return kvt_fail(err, KVT_USAGE,
					"%.100s comes before %.100s; --in-order expects ranks in ascending order",
					names[i - 1], names[i]);
	return KVT_OK;
}

enum kvt_status rewrite_operands(struct rewrite *r, char **argv, int n,
				 struct kvt_error *err)
{
	if (n > 2)
		return kvt_fail(err, KVT_USAGE,
				"expected one input and one output, got %d operands: '%.60s', '%.60s', '%.60s'%s",
				n, argv[0], argv[1], argv[2], n > 3 ? "..." : "");
	if (n > 1 && r->output)
		return kvt_fail(err, KVT_USAGE,
				"-o is '%.100s', and '%.100s' is an output, too; expected one of them",
				r->output, argv[1]);
	if (n > 0)
		r->input = argv[0];
	if (n > 1)
		r->output = argv[1];
	return KVT_OK;
}

static enum kvt_status rewrite_to_stdout(const struct rewrite *asked,
					 const struct kvt_dump *dump,
					 struct kvt_error *err)
{
	struct rewrite streamed = *asked, *r = &streamed;
	char path[4096];
	enum kvt_status status;

	if (r->json && !r->dry_run)
		return kvt_fail(err, KVT_USAGE,
				"--json and the dump cannot both go to standard output");
	/* no name says the format, and an array alone would not say where groups are */
	if (!r->create.format && kvt_dump_snapshot(dump)->ngroups > 1)
		return kvt_fail(err, KVT_USAGE,
				"%s: has %d groups, and one array on standard output holds one; expected --format, such as --format=hdf5",
				r->input, kvt_dump_snapshot(dump)->ngroups);
	if ((status = stream_out_path(path, sizeof(path), err)))
		return status;
	if (!r->create.format)
		r->create.format = "npy";
	r->output = path;
	r->create.force = true;		/* it never gets that name */
	r->to_stdout = true;
	return rewrite_dump(r, dump, err);
}

/* One request and the blocks that it uses. */
static enum kvt_status take_request(struct kvt_dump **out, const struct rewrite *r,
				    const struct kvt_dump *dump,
				    const struct kvt_format_info *info,
				    struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const char *name = r->request ? r->request :
			   s->nrequests == 1 ? s->request[0].id : NULL;
	const struct kvt_slice_options options = { .requests = { 1, &name } };

	if (!s->nrequests)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s holds the tokens of one request, and the dump has no block tables that say where they are",
				info->name);
	if (!name)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s holds one request, and the dump has %lld, of which %.60s is the first; give --request=NAME",
				info->name, LL(s->nrequests), s->request[0].id);
	return kvt_dump_slice(out, dump, &options, err);
}

/* What the format can hold of it. */
static enum kvt_status fit(struct kvt_dump **out, const struct rewrite *r,
			   const struct kvt_dump *dump, struct kvt_error *err)
{
	const struct kvt_format_info *info;
	struct kvt_error why;
	enum kvt_status status;

	*out = NULL;
	/* what has no name yet, or a wrong one, is told of later */
	if (!r->output || is_stream_out(r->output) ||
	    kvt_output_format(&info, r->output, r->create.format, &why))
		return KVT_OK;
	if (r->request && !info->one_request)
		return kvt_fail(err, KVT_USAGE,
				"--request is for formats that hold one request, and %s holds all; kvtool slice cuts one out",
				info->name);
	if (!info->one_pool && !info->one_request)
		return KVT_OK;
	status = info->one_pool ? kvt_dump_one_pool(out, dump, &why) :
				  take_request(out, r, dump, info, &why);
	return status ? kvt_fail(err, status, "%s: %s", r->input, why.text) : KVT_OK;
}

/* ---- other types ----------------------------------------------------------- */

/* What became of the groups of an output. */
struct changes {
	struct kvt_text from[KVT_MAX_GROUPS], to[KVT_MAX_GROUPS];
	struct kvt_text id[KVT_MAX_GROUPS];
};

static void print_change(const void *context, int g)
{
	const struct changes *c = context;

	if (strcmp(c->from[g].s, c->to[g].s))
		plainf("%s: values changed: %s to %s\n", c->id[g].s, c->from[g].s,
		       c->to[g].s);
}

static void put_change(const void *context, int g, struct json_out *out, json_t *o)
{
	const struct changes *c = context;
	char text[2 * sizeof(c->from[g].s) + 8];

	if (!strcmp(c->from[g].s, c->to[g].s))
		return;
	snprintf(text, sizeof(text), "%s to %s", c->from[g].s, c->to[g].s);
	json_put_text(out, o, "cast", text);
}

/* The type that became 'to', which may be of keys alone, or of values. */
static struct kvt_text type_before(const struct kvt_group *from,
				   const struct kvt_group *to)
{
	struct kvt_group part = *from;
	int half = kvt_group_half(to);

	if (half >= 0 && part.content.turn[half])
		part.content.turn[!half] = 1;
	return kvt_group_type(&part);
}

/* With the types of the template. */
static enum kvt_status rewrite_retyped(struct rewrite *r, const struct kvt_dump *dump,
				       struct kvt_error *err)
{
	struct kvt_dump *retyped;
	struct changes changes;
	int from[KVT_MAX_GROUPS];
	enum kvt_status status;

	if (shard_sharing() || is_stream_out(r->output))
		return kvt_fail(err, KVT_USAGE,
				"--cache-dtype=template writes one file, without --shard");
	if ((status = kvt_output_retype(&retyped, from, &r->create, r->output, dump,
					r->rotation, err)))
		return status;
	for (int g = 0; retyped && g < kvt_dump_snapshot(retyped)->ngroups; g++) {
		const struct kvt_group *to = kvt_dump_group(retyped, g);

		changes.from[g] = type_before(kvt_dump_group(dump, from[g]), to);
		changes.to[g] = kvt_group_type(to);
		snprintf(changes.id[g].s, sizeof(changes.id[g].s), "%s", to->id);
	}
	if (retyped)
		r->own = (struct rewrite_own){ .context = &changes, .print = print_change,
					       .put = put_change };
	status = rewrite_alone(r, retyped ? retyped : dump, err);
	kvt_dump_close(retyped);
	return status;
}

/* Numbers of another type; what is compared with the output is made another way. */
static enum kvt_status rewrite_cast(const struct rewrite *r, const struct kvt_dump *dump,
				    struct kvt_error *err)
{
	struct kvt_run run = rewrite_run(r);
	struct kvt_dump *cast = NULL, *proof = NULL;
	struct rewrite plain = *r;
	enum kvt_status status;

	run.share = NULL;
	signals_catch_all();
	status = cast_open(&cast, r->verify ? &proof : NULL, dump, r->input, &r->cast,
			   &run, err);
	if (status)
		return status;
	plain.cast.type = NULL;
	plain.is_cast = true;
	plain.origin = proof;
	status = rewrite_dump(&plain, cast, err);
	kvt_dump_close(cast);
	kvt_dump_close(proof);
	return status;
}

enum kvt_status rewrite_dump(const struct rewrite *r, const struct kvt_dump *dump,
			     struct kvt_error *err)
{
	struct kvt_dump *fitting;
	struct rewrite own = *r;
	enum kvt_status status;

	if (r->cast.type)
		return rewrite_cast(r, dump, err);
	status = fit(&fitting, r, dump, err);
	if (status)
		return status;
	if (fitting)
		dump = fitting;
	status = r->cache_dtype ? rewrite_retyped(&own, dump, err) :
		 shard_sharing() ? rewrite_parts(r, dump, err) :
		 is_stream_out(r->output) ? rewrite_to_stdout(r, dump, err) :
					    rewrite_alone(r, dump, err);
	kvt_dump_close(fitting);
	return status;
}

enum kvt_status rewrite(const struct rewrite *r, struct kvt_error *err)
{
	struct kvt_dump *dump;
	enum kvt_status status;

	signals_catch();
	if ((status = kvt_open(&dump, r->input, &r->hints, err)))
		return status;
	status = rewrite_dump(r, dump, err);
	kvt_dump_close(dump);
	return status;
}
