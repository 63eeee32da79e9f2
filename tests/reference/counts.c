/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counts.c FILE MODELS - rows of reference counts, computed anew, as in
 * testdata/golden/transfer_counts.csv; MODELS is the folder of models
 *
 * A row says model, kind, sides and pattern; what it says of the result is not
 * read, but printed as the library finds it.
 */
#include "tests/reference/reference.h"

#include <inttypes.h>

#include "formats/model/config.h"
#include "sim/ops/transfer.h"

enum column {
	MODEL, GROUP, KIND, LAYERS, HEADS, CONTENT, SLOTS, SRC_TP, DST_TP, SRC_BLOCK,
	DST_BLOCK, SRC_LAYOUT, DST_LAYOUT, PATTERN, SCOPE, NINPUTS,
};
enum { LINE = 1024 };
static const char header[] =
	"model,group,kind,layers,kv_heads,content_bytes,slots,src_tp,dst_tp,"
	"src_block_size,dst_block_size,src_layout,dst_layout,pattern,scope,"
	"rank_pairs,ops,bytes,op_min,op_median,op_max,ops_per_pair";

struct row {
	char *text[NINPUTS];
	int64_t n[NINPUTS];		/* of the columns that are numbers */
	enum kvt_scope scope;
	const char *where, *models;
};

/* Cuts the line in place. */
static void parse_row(struct row *r, char *line)
{
	line[strcspn(line, "\r\n")] = '\0';
	for (int i = 0; i < NINPUTS; i++) {
		char *end = strchr(line, ',');

		if (!end)
			wrong(r->where, "there are too few columns");
		*end = '\0';
		r->text[i] = line;
		line = end + 1;
	}
	for (int i = LAYERS; i <= DST_BLOCK; i++) {
		char *text = r->text[i], *end;

		r->n[i] = strtoll(text, &end, 10);
		if (!*text && (i == HEADS || i == CONTENT))
			continue;
		if (*end || text[strspn(text, "0123456789")] || r->n[i] < 1 ||
		    r->n[i] == INT64_MAX)
			wrong(r->where, "a number is none, or not above 0");
	}
	r->scope = scope_of(r->where, r->text[SCOPE]);
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

static void read_model(struct kvt_model_config *out, const struct row *r)
{
	enum { MOST = 1 << 20 };
	const struct kvt_config_hints none = { .nset = 0 };
	char path[1024], *text = room(MOST);
	FILE *file;
	size_t n;
	struct kvt_error err;

	snprintf(path, sizeof(path), "%s/%s.json", r->models, r->text[MODEL]);
	if (!(file = fopen(path, "r")))
		wrong(r->where, "there is no such model");
	n = fread(text, 1, MOST, file);
	fclose(file);
	must(kvt_model_config_parse(out, text, n, path, &none, &err), r->where, &err);
	free(text);
}

static void conv_spec(struct kvt_spec *spec, const struct row *r)
{
	struct kvt_rank one = { 1, 0 };
	struct kvt_model_config config;
	struct kvt_error err;

	read_model(&config, r);
	for (int i = 0; i < config.model.ngroups; i++) {
		const struct kvt_model_group *g = &config.model.group[i];

		if (strcmp(g->name, "conv"))
			continue;
		must(kvt_spec_make(spec, g->spec, &g->args, one, &err), r->where, &err);
		return;
	}
	wrong(r->where, "this model has no conv states");
}

static void make_spec(struct kvt_spec *spec, const struct row *r)
{
	static const struct {
		const char *name;
		enum kvt_kind kind;
		int64_t tokens;
	} kinds[] = {
		{ "gqa", KVT_FULL_ATTENTION, 1 }, { "mla", KVT_MLA, 1 },
		{ "ssm", KVT_MAMBA_SSM, -1 },
	};
	int i = 0;

	while (i < 3 && strcmp(kinds[i].name, r->text[KIND]))
		i++;
	if (i == 3)
		wrong(r->where, "there is no such kind");
	if (!r->n[HEADS] || !r->n[CONTENT])
		wrong(r->where, "heads or content are missing");
	*spec = (struct kvt_spec){
		.kind = kinds[i].kind, .total_heads = r->n[HEADS],
		.tokens_per_slot = { kinds[i].tokens, 1 },
		.no_replicas = kinds[i].tokens < 0,
		.content_size = r->n[CONTENT],
	};
}

/* The ids are to be freed. */
static uint32_t *make_end(struct kvt_transfer_end *end, const struct row *r, int side)
{
	const char *kind = r->text[KIND], *layout = r->text[SRC_LAYOUT + side];
	bool conv = !strncmp(kind, "conv-", 5);
	struct kvt_id_pattern pattern = { .words = r->text[PATTERN] };
	int64_t block = r->n[SRC_BLOCK + side], n = r->n[SLOTS] / block;
	struct kvt_error err;
	uint32_t *ids;

	if (r->n[SLOTS] % block)
		wrong(r->where, "slots are no whole blocks");
	*end = (struct kvt_transfer_end){ .ranks = r->n[SRC_TP + side],
					  .layers = r->n[LAYERS],
					  .table = { .slots = block, .nids = n } };
	if (conv)
		conv_spec(&end->spec, r);
	else
		make_spec(&end->spec, r);
	if (conv ? conv_layout(&end->layout, layout, kind[5] == 'D', &err) :
		   kvt_layout_parse(&end->layout, layout, &err))
		wrong(r->where, err.text);
	if (kvt_block_ids(&ids, &end->table.pool, &pattern, n, &err))
		wrong(r->where, err.text);
	end->spec.block_size = block;
	end->table.ids = ids;
	return ids;
}

/* ---- output ------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void print_row(const struct row *r, const struct kvt_transfer_group *g,
		      struct kvt_figures *f)
{
	struct kvt_pair_walk walk = { 0, 0 };
	int64_t n = g->xfer.dst.ranks + g->xfer.src.ranks, ops = 0;
	int64_t *each = room((size_t)n * sizeof(*each));
	struct kvt_pair pair;
	struct kvt_nest nest;
	struct kvt_error err;

	while (kvt_pair_next(&pair, &walk, &g->xfer)) {
		must(kvt_nest_init(&nest, &g->xfer, &pair, &err), r->where, &err);
		must(kvt_pair_tally(&f->tally, &f->sizes, &nest, r->scope, &err),
		     r->where, &err);
		if (f->pairs < n)
			each[f->pairs++] = f->tally.ops - ops;
		ops = f->tally.ops;
	}
	for (int i = 0; i < NINPUTS; i++)
		printf("%s,", r->text[i]);
	printf("%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",",
	       f->pairs, ops, f->tally.bytes, kvt_sizes_at(&f->sizes, 0),
	       kvt_sizes_at(&f->sizes, (ops - 1) / 2), kvt_sizes_at(&f->sizes, ops - 1));
	qsort(each, (size_t)f->pairs, sizeof(*each), ascending);
	for (int64_t i = 0; i < f->pairs; i++)
		if (!i || each[i] != each[i - 1])
			printf("%s%" PRId64, i ? "/" : "", each[i]);
	putchar('\n');
	free(each);
}

static void run_row(const struct row *r)
{
	struct kvt_transfer_end src, dst;
	uint32_t *ids[2] = { make_end(&src, r, 0), make_end(&dst, r, 1) };
	struct kvt_transfer_move move = { src.table, dst.table, 0, r->n[SLOTS] };
	struct kvt_transfer_group group;
	struct kvt_figures figures;
	struct kvt_error err;

	must(kvt_transfer_group_init(&group, r->text[GROUP], &src, &dst, &move, 1, &err),
	     r->where, &err);
	must(kvt_figures_init(&figures, &err), r->where, &err);
	print_row(r, &group, &figures);
	kvt_figures_free(&figures);
	kvt_transfer_group_free(&group);
	free(ids[0]);
	free(ids[1]);
}

int main(int argc, char **argv)
{
	FILE *file = argc == 3 ? fopen(argv[1], "r") : NULL;
	char line[LINE], where[32];

	if (!file || !fgets(line, sizeof(line), file) ||
	    strncmp(line, header, sizeof(header) - 1))
		wrong("counts FILE MODELS", "these are no reference counts");
	puts(header);
	for (int number = 2; fgets(line, sizeof(line), file); number++) {
		struct row row = { .where = where, .models = argv[2] };

		snprintf(where, sizeof(where), "line %d", number);
		parse_row(&row, line);
		run_row(&row);
	}
	fclose(file);
	return 0;
}
