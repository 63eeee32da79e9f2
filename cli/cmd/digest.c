/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - a digest over what the bytes mean, not where they are
 *
 * A digest is a sum of hashes of cells (lib/tile/hash.c), so rows are sums of sums: of a
 * layer, a head, a block over all groups, rows of one key are sorted next to each other
 * and added.  No digest covers the types: rows remember their groups, and --types names
 * these.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/set.h"
#include "print/out/json_out.h"
#include "cli/opt.h"
#include "lib/base/grow.h"
#include "print/out/signals.h"
#include "lib/run/device.h"
#include "lib/ops/digest/digest.h"

enum by { BY_WHOLE, BY_REQUEST, BY_LAYER, BY_HEAD, BY_BLOCK };

static const char *const by_names[] = {
	"whole", "request", "layer", "head", "block", NULL
};
static const char *const scope_names[] = {
	[DIGEST_TOKENS] = "tokens", [DIGEST_BLOCKS] = "blocks", NULL
};

/* One line of output; rows of one key add up, whatever group they come from. */
struct row {
	const char *request;		/* by request */
	uint64_t layer, head, block;
	uint64_t groups;		/* bits: those that it may have cells of */
	enum digest_version version;
	struct kvt_digest value;
};

_Static_assert(KVT_MAX_GROUPS <= 64, "a bit for each group");

struct rows {
	int64_t n;
	struct row *row;
	bool failed;			/* out of memory */
};

static void add_row(struct rows *rows, struct row row)
{
	if (!KVT_GROW(&rows->row, rows->n)) {
		rows->failed = true;
		return;
	}
	rows->row[rows->n++] = row;
}

static int compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->head != y->head)
		return x->head < y->head ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

static void add_to_row(struct row *to, const struct row *row)
{
	kvt_digest_add(&to->value, &row->value);
	to->groups |= row->groups;
	if (to->version < row->version)
		to->version = row->version;
}

static void add_equal_rows(struct rows *rows)
{
	int64_t kept = 0;

	if (!rows->n)
		return;
	qsort(rows->row, (size_t)rows->n, sizeof(*rows->row), compare_rows);
	for (int64_t i = 1; i < rows->n; i++)
		if (compare_rows(&rows->row[kept], &rows->row[i]))
			rows->row[++kept] = rows->row[i];
		else
			add_to_row(&rows->row[kept], &rows->row[i]);
	rows->n = kept + 1;
}

/* ---- rows of a dump ----------------------------------------------------- */

static void group_rows(struct rows *rows, const struct digests *d, int g,
		       enum digest_scope scope, enum by by)
{
	const struct kvt_group *group = &kvt_dump_snapshot(d->reader)->group[g];
	const struct digest_group *sums = &d->group[g];

	if (by == BY_BLOCK) {
		for (int64_t b = 0; b < group->shape.n[KVT_AXIS_B]; b++)
			add_row(rows, (struct row){ .value = sums->block[scope][b],
				.block = kvt_block_id(group, b),
				.groups = UINT64_C(1) << g, .version = sums->version });
		return;
	}
	for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++)
		for (int64_t h = 0; h < sums->nheads; h++)
			add_row(rows, (struct row){
				.value = sums->head[scope][l * sums->nheads + h],
				.groups = UINT64_C(1) << g,
				.version = sums->version,
				.layer = kvt_layer_id(group, l),
				.head = by == BY_HEAD ? kvt_head_id(group, h) : 0 });
}

/* Of the dump, or of a request. */
static uint64_t groups_of(const struct kvt_snapshot *snap,
			  const struct kvt_request *request)
{
	uint64_t groups = 0;

	for (int g = 0; g < snap->ngroups; g++)
		if (!request || request->nblocks[g])
			groups |= UINT64_C(1) << g;
	return groups;
}

static void all_rows(struct rows *rows, const struct digests *d,
		     enum digest_scope scope, enum by by)
{
	const struct kvt_snapshot *snap = kvt_dump_snapshot(d->reader);

	if (by == BY_WHOLE) {
		add_row(rows, (struct row){ .value = d->whole[scope],
					    .groups = groups_of(snap, NULL),
					    .version = d->version });
	} else if (by == BY_REQUEST) {
		for (int64_t r = 0; scope == DIGEST_TOKENS && r < snap->nrequests; r++)
			add_row(rows, (struct row){ .request = snap->request[r].id,
						    .groups = groups_of(snap,
							&snap->request[r]),
						    .version = kvt_digests_version(d, r),
						    .value = d->request[r] });
	} else {
		for (int g = 0; g < snap->ngroups; g++)
			group_rows(rows, d, g, scope, by);
		add_equal_rows(rows);
	}
}

/* ---- types ---------------------------------------------------------------- */

/* What the bytes of cells mean, which no digest covers. */
static struct kvt_text type_of(const struct kvt_group *group)
{
	struct kvt_text out;

	if (group->content.type)
		return kvt_content_name(&group->content);
	snprintf(out.s, sizeof(out.s), "%s", group->dtype->name);
	return out;
}

/* The next group of a row, from g on, whose type none before it has; or ngroups. */
static int next_type(const struct kvt_snapshot *s, uint64_t groups, int g)
{
	for (; g < s->ngroups; g++) {
		bool known = !(groups >> g & 1);

		for (int i = 0; !known && i < g; i++)
			known = groups >> i & 1 &&
				!strcmp(type_of(&s->group[i]).s, type_of(&s->group[g]).s);
		if (!known)
			break;
	}
	return g;
}

/* By any of its names. */
static bool has_type(const struct kvt_group *group, const char *name)
{
	struct kvt_content wanted;

	if (group->content.type)
		return kvt_content_find(&wanted, name) &&
		       !strcmp(kvt_content_name(&wanted).s, type_of(group).s);
	return kvt_dtype_find(name) == group->dtype;
}

/* What no digest of the source can be equal to; once, and not in what is compared. */
static void tell_casts(const struct kvt_run *run, const char *path,
		       const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++)
		if (s->group[g].cast_from[0])
			kvt_run_warn(run, "%s: %s: values changed: %s", path,
				     s->group[g].id, kvt_group_cast_text(&s->group[g]).s);
}

static enum kvt_status check_types(const struct kvt_snapshot *s, const char *wanted,
				   const char *path, struct kvt_error *err)
{
	for (int g = 0; wanted && g < s->ngroups; g++)
		if (!has_type(&s->group[g], wanted))
			return kvt_fail(err, KVT_MISMATCH,
					"%s: elements of group %s are %s, expected %s",
					path, s->group[g].id, type_of(&s->group[g]).s,
					wanted);
	return KVT_OK;
}

/* ---- output ------------------------------------------------------------- */

/*
 * As sha256sum(1) does it: a line that begins with a backslash has names in which
 * a backslash is \\, and what is not plain is as plainf() has it.  Blanks of a
 * request are \x20 there, since two of them end it.
 */
static int name_next(char part[KVT_PLAIN_MAX], const char *s, const char *end,
		     bool blanks)
{
	int n = kvt_plain_next(part, s, end);

	if (*s == '\\' || (*s == ' ' && !blanks))
		strcpy(part, *s == ' ' ? "\\x20" : "\\\\");
	return n;
}

static bool is_plain(const char *name, bool blanks)
{
	const char *end = name + strlen(name);
	char part[KVT_PLAIN_MAX] = "";

	while (name < end && *part != '\\')
		name += name_next(part, name, end, blanks);
	return *part != '\\';
}

static void print_name(const char *name, bool blanks)
{
	const char *end = name + strlen(name);
	char part[KVT_PLAIN_MAX];

	while (name < end) {
		name += name_next(part, name, end, blanks);
		plainf("%s", part);
	}
}

static void print_types(const struct kvt_snapshot *s, const struct row *row)
{
	const char *before = "dtype=";

	for (int g = next_type(s, row->groups, 0); g < s->ngroups;
	     g = next_type(s, row->groups, g + 1)) {
		plainf("%s%s", before, type_of(&s->group[g]).s);
		before = ",";
	}
	if (*before == ',')
		plainf("  ");
}

/* 's': with types; or NULL. */
static void print_row(const char *path, enum digest_scope scope, enum by by,
		      const struct row *row, const struct kvt_snapshot *s)
{
	bool plain = is_plain(path, true) &&
		     (by != BY_REQUEST || is_plain(row->request, false));

	plainf("%s%s  ", plain ? "" : "\\",
	       kvt_digest_text(scope, row->version, &row->value).s);
	if (by == BY_REQUEST) {
		plainf("request=");
		print_name(row->request, false);
		plainf("  ");
	}
	if (by == BY_LAYER || by == BY_HEAD)
		plainf("layer=%" PRIu64 "%s", row->layer, by == BY_LAYER ? "  " : " ");
	if (by == BY_HEAD)
		plainf("head=%" PRIu64 "  ", row->head);
	if (by == BY_BLOCK)
		plainf("block=%" PRIu64 "  ", row->block);
	if (s)
		print_types(s, row);
	print_name(path, true);
	putchar('\n');
}

static void put_row(struct json_out *out, json_t *list, enum digest_scope scope,
		    enum by by, const struct row *row, const struct kvt_snapshot *s)
{
	json_t *o = json_append_object(out, list), *types, *casts;

	json_put_text(out, o, "scope", scope_names[scope]);
	json_put_text(out, o, "by", by_names[by]);
	if (by == BY_REQUEST)
		json_put_text(out, o, "request", row->request);
	if (by == BY_LAYER || by == BY_HEAD)
		json_put_int(out, o, "layer", (int64_t)row->layer);
	if (by == BY_HEAD)
		json_put_int(out, o, "head", (int64_t)row->head);
	if (by == BY_BLOCK)
		json_put_int(out, o, "block", (int64_t)row->block);
	json_put_text(out, o, "value",
		      kvt_digest_text(scope, row->version, &row->value).s);
	types = json_put_array(out, o, "dtypes");
	for (int g = next_type(s, row->groups, 0); g < s->ngroups;
	     g = next_type(s, row->groups, g + 1))
		json_append_text(out, types, type_of(&s->group[g]).s);
	casts = json_put_array(out, o, "casts");
	for (int g = 0; g < s->ngroups; g++)
		if (row->groups >> g & 1 && s->group[g].cast_from[0])
			json_append_text(out, casts, kvt_group_cast_text(&s->group[g]).s);
}

/* ---- the command -------------------------------------------------------- */

struct arguments {
	struct kvt_hints hints;
	struct kvt_run run;
	bool scope[DIGEST_NSCOPES];
	bool scope_named, json, several, types;
	const char *expect_dtype;
	enum digest_version version;
	enum by by;
};

/* Prints the rows of one scope, or puts them into the list. */
static enum kvt_status print_scope(const struct arguments *args, const char *path,
				   const struct digests *d, enum digest_scope scope,
				   struct json_out *out, json_t *list,
				   struct kvt_error *err)
{
	const struct kvt_snapshot *snap = kvt_dump_snapshot(d->reader);
	struct rows rows = { 0 };

	all_rows(&rows, d, scope, args->by);
	for (int64_t i = 0; !rows.failed && i < rows.n; i++)
		if (args->json)
			put_row(out, list, scope, args->by, &rows.row[i], snap);
		else
			print_row(path, scope, args->by, &rows.row[i],
				  args->types ? snap : NULL);
	free(rows.row);
	return rows.failed ? kvt_no_memory(err, NULL) : KVT_OK;
}

/* 'before' is what the device had written before this file. */
static enum kvt_status print_digests(const struct arguments *args, const char *path,
				     const struct digests *d, int64_t before,
				     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct json_out out;
	json_t *list;

	json_start(&out);
	json_put_text(&out, out.root, "file", path);
	json_put_text(&out, out.root, "device", kvt_device_pool_name(args->run.device));
	json_put_int(&out, out.root, "device_bytes",
		     kvt_device_pool_nbytes(args->run.device) - before);
	list = json_put_array(&out, out.root, "digests");
	for (int s = 0; !status && s < DIGEST_NSCOPES; s++)
		if (args->scope[s] && (s != DIGEST_TOKENS || d->has_tokens))
			status = print_scope(args, path, d, s, &out, list, err);
	if (!status && args->json)
		status = json_print(&out, args->several, err);
	json_free(&out);
	return status;
}

static enum kvt_status digest_file(const struct arguments *args, const char *path,
				   struct kvt_error *err)
{
	struct kvt_dump *reader;
	struct digests digests;
	struct kvt_error why = { "" };
	int64_t before = kvt_device_pool_nbytes(args->run.device);
	enum kvt_status status = kvt_open(&reader, path, &args->hints, err);

	if (status)
		return status;
	if (args->scope_named && args->scope[DIGEST_TOKENS] &&
	    kvt_dump_snapshot(reader)->ngroups &&
	    !kvt_dump_snapshot(reader)->nrequests) {
		kvt_dump_close(reader);
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no tokens scope: the dump has no block tables",
				path);
	}
	if ((status = check_types(kvt_dump_snapshot(reader), args->expect_dtype, path,
				  err))) {
		kvt_dump_close(reader);
		return status;
	}
	tell_casts(&args->run, path, kvt_dump_snapshot(reader));
	status = kvt_digests_compute(&digests, reader, args->version, &args->run, &why);
	if (!status)
		status = kvt_dump_unchanged(reader, &why);
	if (status)
		kvt_fail_about(err, status, path, &why);
	else
		status = print_digests(args, path, &digests, before, err);
	kvt_digests_free(&digests);
	kvt_dump_close(reader);
	return status;
}

static int find_name(const char *const *names, const char *name)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

static enum kvt_status read_choices(struct arguments *args, const char *scope,
				    const char *by, struct kvt_error *err)
{
	int s = scope ? find_name(scope_names, scope) : 0;
	int b = by ? find_name(by_names, by) : BY_WHOLE;

	if (s < 0)
		return kvt_fail(err, KVT_USAGE,
				"--scope is '%.60s', expected tokens or blocks", scope);
	if (b < 0)
		return kvt_fail(err, KVT_USAGE,
				"--by is '%.60s', expected whole, request, layer, head or block",
				by);
	if (b == BY_REQUEST && scope && s == DIGEST_BLOCKS)
		return kvt_fail(err, KVT_USAGE,
				"requests have no blocks scope: blocks of the pool belong to no request");
	for (int i = 0; i < DIGEST_NSCOPES; i++)
		args->scope[i] = !scope || i == s;
	args->scope_named = scope != NULL;
	args->by = b;
	return KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct arguments args = { .hints.empty = true };
	const char *scope = NULL, *by = NULL, *device = NULL;
	int64_t threads = 0, memory = 0, kvd = 0;
	struct kvt_content content;
	bool quiet = false;
	const struct opt opts[] = {
		{ "scope", 0, OPT_STRING, &scope, "SCOPE",
		  "tokens (of requests) or blocks (of the pool); default: both" },
		{ "by", 0, OPT_STRING, &by, "PART",
		  "whole, request, layer, head or block; default: whole" },
		{ "types", 0, OPT_FLAG, &args.types, NULL,
		  "print the type of the elements, which no digest covers" },
		{ "expect-dtype", 0, OPT_STRING, &args.expect_dtype, "DTYPE",
		  "exit with status 1 unless all elements have this type" },
		{ "kvd", 0, OPT_COUNT, &kvd, "N",
		  "1: as before version 2, with null blocks and old tokens" },
		OPT_THREADS(&threads),
		OPT_MEMORY(&memory),
		OPT_DEVICE(&device),
		OPT_JSON(&args.json),
		{ "quiet", 'q', OPT_FLAG, &quiet, NULL, "show no progress" },
		OPT_SHARD,
		OPT_INPUT(&args.hints),
		{ 0 }
	};
	enum kvt_status worst = KVT_OK, status;
	int nargs = opt_parse(&cmd_digest, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = opt_need(&cmd_digest, (struct opt_need[]){
			{ nargs, "a dump" }, { 0 } }, err)))
		return status;
	if (kvd > 2)
		return kvt_fail(err, KVT_USAGE, "--kvd is %lld, expected 1 or 2",
				LL(kvd));
	if (args.expect_dtype && !kvt_dtype_find(args.expect_dtype) &&
	    !kvt_content_find(&content, args.expect_dtype))
		return kvt_fail(err, KVT_USAGE,
				"--expect-dtype is '%.60s', expected a type such as bfloat16",
				args.expect_dtype);
	args.version = kvd == 1 ? DIGEST_KVD1 : DIGEST_NEWEST;
	args.run = run_watched(threads, memory, quiet);
	if ((status = read_choices(&args, scope, by, err)) ||
	    (status = kvt_device_pool_new(&args.run.device, device, &args.run, err)))
		return status;
	nargs = pass_over_manifests(argv, nargs, &args.hints);
	args.several = nargs > 1;
	signals_catch();
	for (int i = 0; i < nargs && !interrupted; i++) {
		args.run.about = i;
		if ((status = digest_file(&args, argv[i], err)) && !interrupted)
			complain(&cmd_digest, "%s", err->text);
		worst = worse(worst, status);
		err->text[0] = '\0';
	}
	kvt_device_pool_free(args.run.device);
	return worst;
}

const struct command cmd_digest = {
	.name = "digest",
	.args = "FILE...",
	.shards = "",
	.summary = "print a digest that is the same in every layout and format",
	.run = run,
	.examples =
		"  kvtool digest nhd.npy hnd.h5\n"
		"  kvtool digest --by=layer --scope=tokens snapshot.h5\n"
		"  kvtool digest --by=request rank0.safetensors\n"
		"  kvtool digest --expect-dtype=bfloat16 dump.npy\n",
};
