/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counts.c - rows of reference counts, computed anew
 *
 * A row says model, kind, sides and pattern; what it says of the result is not
 * read, but printed as the tool itself finds it.
 */
#include "cli/cmd/transfer/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum column {
	MODEL, GROUP, KIND, LAYERS, HEADS, CONTENT, STATES, SRC_TP, DST_TP, SRC_BLOCK,
	DST_BLOCK, SRC_LAYOUT, DST_LAYOUT, PATTERN, SCOPE, NINPUTS,
};
enum { LINE = 1024 };
static const char header[] =
	"model,group,kind,layers,kv_heads,content_bytes,states,src_tp,dst_tp,"
	"src_block_size,dst_block_size,src_layout,dst_layout,pattern,scope,"
	"rank_pairs,ops,bytes,op_min,op_median,op_max,ops_per_pair";

struct row {
	char *text[NINPUTS];
	int64_t n[NINPUTS];		/* of the columns that are numbers */
	enum kvt_scope scope;
};

static enum kvt_status wrong(const char *what, struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT, "%s", what);
}

/* Cuts the line in place. */
static enum kvt_status parse_row(struct row *r, char *line, struct kvt_error *err)
{
	line[strcspn(line, "\r\n")] = '\0';
	for (int i = 0; i < NINPUTS; i++) {
		char *end = strchr(line, ',');

		if (!end)
			return wrong("there are too few columns", err);
		*end = '\0';
		r->text[i] = line;
		line = end + 1;
	}
	for (int i = LAYERS; i <= DST_BLOCK; i++) {
		bool empty = !*r->text[i] && (i == HEADS || i == CONTENT);

		r->n[i] = 0;
		if (!empty && (!size_parse(&r->n[i], r->text[i]) || r->n[i] < 1))
			return wrong("a number is none, or not above 0", err);
	}
	r->scope = 0;
	while (r->scope < KVT_NSCOPES && strcmp(kvt_scope_name(r->scope), r->text[SCOPE]))
		r->scope++;
	return r->scope < KVT_NSCOPES ? KVT_OK : wrong("there is no such scope", err);
}

/* ---- specs -------------------------------------------------------------- */

/* Conv states have a layout of their own, with the layers where it has them. */
static enum kvt_status conv_layout(struct kvt_layout *out, const char *name, bool ds,
				   struct kvt_error *err)
{
	struct kvt_layout layout;
	char text[8];
	int n = 0;
	enum kvt_status status = kvt_layout_parse(&layout, name, err);

	if (status)
		return status;
	for (int i = 0; i < layout.plane[0].nparts; i++) {
		enum kvt_axis axis = layout.plane[0].part[i].axis;

		if ((axis == KVT_AXIS_L || axis == KVT_AXIS_B) && n < 2)
			text[n++] = kvt_axis_letter(axis);
	}
	snprintf(text + n, sizeof(text) - (size_t)n, "%s", ds ? "DS" : "SD");
	return kvt_layout_parse(out, text, err);
}

static enum kvt_status conv_spec(struct kvt_spec *spec, const struct row *r,
				 struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_rank one = { 1, 0 };
	struct kvt_model_config config;
	enum kvt_status status = model_read(&config, r->text[MODEL], NULL, &none, err);

	for (int i = 0; !status && i < config.model.ngroups; i++) {
		const struct kvt_model_group *g = &config.model.group[i];

		if (!strcmp(g->name, "conv"))
			return kvt_spec_make(spec, g->spec, &g->args, one, err);
	}
	return status ? status : wrong("this model has no conv states", err);
}

static enum kvt_status make_spec(struct kvt_spec *spec, const struct row *r,
				 struct kvt_error *err)
{
	static const struct {
		const char *name;
		enum kvt_kind kind;
		int64_t tokens;
	} kinds[] = {
		{ "gqa", KVT_FULL_ATTENTION, 1 }, { "mla", KVT_MLA, 1 },
		{ "ssm", KVT_MAMBA_SSM, -1 },
	};

	if (!strncmp(r->text[KIND], "conv-", 5))
		return conv_spec(spec, r, err);
	for (int i = 0; i < 3; i++) {
		if (strcmp(kinds[i].name, r->text[KIND]))
			continue;
		if (!r->n[HEADS] || !r->n[CONTENT])
			return wrong("heads or content are missing", err);
		*spec = (struct kvt_spec){
			.kind = kinds[i].kind, .total_heads = r->n[HEADS],
			.tokens_per_state = { kinds[i].tokens, 1 },
			.no_replicas = kinds[i].tokens < 0,
			.state_content_size = r->n[CONTENT],
		};
		return KVT_OK;
	}
	return wrong("there is no such kind", err);
}

static enum kvt_status make_end(struct kvt_transfer_end *end, uint32_t **ids,
				const struct row *r, int side, struct kvt_error *err)
{
	const char *kind = r->text[KIND], *layout = r->text[SRC_LAYOUT + side];
	struct kvt_id_pattern pattern = { .words = r->text[PATTERN] };
	int64_t block = r->n[SRC_BLOCK + side], n = r->n[STATES] / block;
	enum kvt_status status;

	if (r->n[STATES] % block)
		return wrong("states are no whole blocks", err);
	*end = (struct kvt_transfer_end){ .ranks = r->n[SRC_TP + side],
					  .layers = r->n[LAYERS],
					  .table = { .states = block, .nids = n } };
	if ((status = make_spec(&end->spec, r, err)) ||
	    (status = !strncmp(kind, "conv-", 5) ?
		      conv_layout(&end->layout, layout, kind[5] == 'D', err) :
		      kvt_layout_parse(&end->layout, layout, err)) ||
	    (status = kvt_block_ids(ids, &end->table.pool, &pattern, n, err)))
		return status;
	end->spec.block_size = block;
	end->table.ids = *ids;
	return KVT_OK;
}

/* ---- output ------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static enum kvt_status print_row(const struct row *r, const struct kvt_transfer_group *g,
				 struct kvt_figures *f, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	int64_t n = g->xfer.dst.ranks + g->xfer.src.ranks, ops = 0;
	int64_t *each = malloc((size_t)n * sizeof(*each));
	struct kvt_pair pair;
	struct kvt_nest nest;
	enum kvt_status status = KVT_OK;

	if (!each)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	while (!status && kvt_pair_next(&pair, &walk, &g->xfer)) {
		if ((status = kvt_nest_init(&nest, &g->xfer, &pair, err)) ||
		    (status = kvt_pair_tally(&f->tally, &f->sizes, &nest, r->scope, err)))
			break;
		if (f->pairs < n)
			each[f->pairs++] = f->tally.ops - ops;
		ops = f->tally.ops;
	}
	if (!status) {
		for (int i = 0; i < NINPUTS; i++)
			plainf("%s,", r->text[i]);
		plainf("%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
		       ",%" PRId64 ",", f->pairs, ops, f->tally.bytes,
		       kvt_sizes_at(&f->sizes, 0), kvt_sizes_at(&f->sizes, (ops - 1) / 2),
		       kvt_sizes_at(&f->sizes, ops - 1));
		qsort(each, (size_t)f->pairs, sizeof(*each), ascending);
		for (int64_t i = 0; i < f->pairs; i++)
			if (!i || each[i] != each[i - 1])
				plainf("%s%" PRId64, i ? "/" : "", each[i]);
		putchar('\n');
	}
	free(each);
	return status;
}

static enum kvt_status run_row(const struct row *r, struct kvt_error *err)
{
	uint32_t *ids[2] = { NULL, NULL };
	struct kvt_transfer_end src, dst;
	struct kvt_transfer_group group;
	struct kvt_figures figures;
	enum kvt_status status;

	if (!(status = make_end(&src, &ids[0], r, 0, err)) &&
	    !(status = make_end(&dst, &ids[1], r, 1, err)) &&
	    !(status = kvt_transfer_group_init_one(&group, r->text[GROUP], &src, &dst, 0,
						   r->n[STATES], err))) {
		if (!(status = kvt_figures_init(&figures, err))) {
			status = print_row(r, &group, &figures, err);
			kvt_figures_free(&figures);
		}
		kvt_transfer_group_free(&group);
	}
	free(ids[0]);
	free(ids[1]);
	return status;
}

static enum kvt_status run_line(char *line, int number, struct kvt_error *err)
{
	struct row row;
	enum kvt_status status;

	if (!strchr(line, '\n') && strlen(line) == LINE - 1)
		return wrong("the line is too long", err);
	if (number == 1) {
		if (strncmp(line, header, sizeof(header) - 1))
			return wrong("these are no reference counts", err);
		plainf("%s\n", header);
		return KVT_OK;
	}
	if ((status = parse_row(&row, line, err)))
		return status;
	return run_row(&row, err);
}

enum kvt_status transfer_counts(const char *path, struct kvt_error *err)
{
	FILE *file = fopen(path, "r");
	char line[LINE];
	struct kvt_error why = { "these are no reference counts" };
	enum kvt_status status = KVT_OK;
	int number = 0;

	if (!file)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	while (!status && fgets(line, sizeof(line), file))
		status = run_line(line, ++number, &why);
	if (!status && ferror(file))
		status = kvt_fail(err, KVT_SYSTEM, "%s: cannot be read", path);
	else if (status || !number)	/* a bad name is not the user's here */
		status = kvt_fail(err, status == KVT_SYSTEM || status == KVT_UNSUPPORTED ?
				  status : KVT_BAD_INPUT, "%s:%d: %.400s", path, number,
				  why.text);
	fclose(file);
	return status;
}
