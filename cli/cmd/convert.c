/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - another format, the same memory layout
 *
 * Options fill a struct rewrite, and cli/rewrite.c does the rest.  With --decode the
 * dump is opened here, and what is written is a derived one, of the numbers that its
 * bytes stand for.  --cache-dtype=template is no type, but those of another state file:
 * it leaves the cast for a member of its own.  --decode with --cache-dtype, and a scale
 * or rotation without what it is for, are KVT_USAGE before a dump is opened.
 */
#include "cli/set.h"

#include <string.h>

#include "lib/kvt/derive.h"

struct numbers {
	const char *type;		/* NULL: none */
};

/* As numbers, whatever the bytes are. */
static enum kvt_status rewrite_decoded(const struct rewrite *r, const char *type,
				       const char *scale, struct kvt_error *err)
{
	struct kvt_dump *dump, *decoded;
	const struct kvt_dtype *dtype;
	double factor[2] = { 1, 1 };
	enum kvt_status status;

	if ((status = kvt_dtype_parse(&dtype, type, err)) ||
	    (scale && (status = scale_parse(factor, "scale", scale, err))) ||
	    (status = kvt_open(&dump, r->input, &r->hints, err)))
		return status;
	status = kvt_dump_decode(&decoded, dump, dtype, scale ? factor : NULL, err);
	if (!status) {
		status = rewrite_dump(r, decoded, err);
		kvt_dump_close(decoded);
	}
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status convert(struct rewrite *r, void *context, struct kvt_error *err)
{
	const struct numbers *n = context;

	return n->type ? rewrite_decoded(r, n->type, r->cast.scale, err) :
			 rewrite(r, err);
}

/* --cache-dtype=template, which is no type but those of a state of llama.cpp. */
static enum kvt_status take_template(struct rewrite *r, struct kvt_error *err)
{
	if (!r->cast.type || strcmp(r->cast.type, "template"))
		return !r->rotation ? KVT_OK : kvt_fail(err, KVT_USAGE,
				"--rotation is for --cache-dtype=template; that of the input is --set=rotation=%.40s",
				r->rotation);
	if (r->cast.scale || r->cast.from)
		return kvt_fail(err, KVT_USAGE,
				"--%s is not for --cache-dtype=template: its types have their own scales",
				r->cast.scale ? "scale" : "from-scale");
	r->cache_dtype = r->cast.type;
	r->cast.type = NULL;
	return KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	struct numbers numbers = { NULL };
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		OPT_OUT_DIR(&r.out_dir),
		{ "request", 0, OPT_STRING, &r.request, "NAME",
		  "mlx, transformers: the one to write; default: the only one" },
		{ "as-is", 0, OPT_FLAG, &r.create.as_is, NULL,
		  "mlx, transformers: keep the order that another engine gave" },
		{ "template", 0, OPT_STRING, &r.create.template_path, "STATE",
		  "ggsq, ggsn: a state of the llama.cpp and model that is to read it" },
		{ "context", 0, OPT_STRING, &r.create.context, "KEY=VALUE,...",
		  "ggsq, ggsn: without --template: the context of --model's GGUF" },
		{ "key-order", 0, OPT_STRING, &r.create.key_order, "ORDER",
		  "ggsq, ggsn: of its keys, if they come from elsewhere: pairs, halves" },
		{ "rotation", 0, OPT_STRING, &r.rotation, "R",
		  "of --cache-dtype=template, what its build does: hadamard, none, k, v, k128/v64" },
		{ "row-ranks", 0, OPT_COUNT, &r.create.row_ranks, "N",
		  "offload: files as of an engine with N ranks" },
		{ "row-form", 0, OPT_STRING, &r.create.row_form, "FORM",
		  "offload: canonical, a page has all heads; or ranks" },
		{ "decode", 0, OPT_STRING, &numbers.type, "TYPE",
		  "write the numbers that the bytes stand for: float32, float16, ..." },
		OPT_CAST(&r.cast),
		REWRITE_OPTS(&r),
		{ 0 }
	};
	enum kvt_status status;
	int nargs = opt_parse(&cmd_convert, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = rewrite_each_operands(&r, argv, &nargs, err)) ||
	    (status = opt_need(&cmd_convert, (struct opt_need[]){
			{ nargs, "a dump" },
			{ r.output || r.out_dir, "an output" }, { 0 } }, err)))
		return status;
	r.to_another = true;
	r.create.model_path = r.hints.model;
	if (numbers.type && r.cast.type)
		return kvt_fail(err, KVT_USAGE,
				"--decode and --cache-dtype exclude each other; the latter decodes, too, and says of what");
	if (r.cast.scale && !numbers.type && !r.cast.type)
		return kvt_fail(err, KVT_USAGE,
				"--scale is for --decode and --cache-dtype");
	if ((!numbers.type && (status = cast_check(&r.cast, err))) ||
	    (status = take_template(&r, err)))
		return status;
	return rewrite_each(&r, &cmd_convert, argv, nargs, convert, &numbers, err);
}

const struct command cmd_convert = {
	.name = "convert",
	.args = "IN OUT | --out-dir=DIR IN...",
	.shards = "",
	.summary = "write a dump in another file format",
	.run = run,
	.examples =
		"  kvtool convert nhd.npy snapshot.h5\n"
		"  kvtool convert --verify snapshot.h5 cache.safetensors\n"
		"  kvtool convert --layout=nhd --dtype=bf16 --layers=32 --block-size=16 \\\n"
		"      --heads=8 --head-dim=128 cache.bin snapshot.h5\n"
		"  kvtool convert --out-dir=snapshots *.npy\n"
		"  kvtool convert --decode=float32 fp8.h5 numbers.npy\n"
		"  kvtool convert --format=mlx --request=0 snapshot.h5 prompt.safetensors\n"
		"  kvtool convert --format=ggsq --template=q8_0.ggsq --cache-dtype=template \\\n"
		"      --rotation=hadamard --heads=8 f16.ggsq mine.ggsq\n"
		"  kvtool convert --format=safetensors snapshot.h5 - | ssh host 'cat >kv.st'\n",
	.streams = STREAM_FIRST,
};
