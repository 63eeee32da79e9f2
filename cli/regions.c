/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.c - tables of registered regions: described, checked, held together
 *
 * Such a table is not a dump, and describe, fsck and diff of it have other answers.  They
 * ask is_regions() first, by the beginning of the file, and come here if it is one; two
 * tables are compared as the two sides of a transfer.
 */
#include "cli/regions.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/log/regions.h"
#include "lib/ops/regions/regions.h"
#include "print/fsck.h"
#include "print/out/text_file.h"

enum { MOST_BYTES = 64 << 20, PROBED = 65536 };

bool is_regions(const char *path)
{
	static char text[PROBED];
	struct stat st;
	FILE *in;
	size_t n;

	if (stat(path, &st) || !S_ISREG(st.st_mode) || !(in = fopen(path, "rb")))
		return false;
	n = fread(text, 1, sizeof(text), in);
	fclose(in);
	return kvt_regions_probe(text, n);
}

static enum kvt_status load(struct kvt_regions *out, size_t *nbytes, const char *path,
			    struct kvt_error *err)
{
	enum kvt_status status;
	char *text = NULL;

	if ((status = text_file_read(&text, nbytes, path, MOST_BYTES, err)))
		return status;
	status = kvt_regions_parse(out, text, *nbytes, path, err);
	free(text);
	return status;
}

/* ---- describe ------------------------------------------------------------ */

static void put_layers(struct json_out *out, json_t *o, const struct kvt_region_table *t,
		       const struct kvt_registered *region)
{
	json_t *list = json_put_array(out, o, "layers");

	for (int64_t i = 0; i < region->nlayers; i++)
		json_append_text(out, list, t->name[region->layer[i]]);
}

static void put_rows(struct json_out *out, json_t *o, const struct kvt_rows *rows)
{
	json_put_int(out, o, "base", rows->base);
	json_put_int(out, o, "stride", rows->stride);
	json_put_int(out, o, "blocks", rows->blocks);
	json_put_int(out, o, "block_len", rows->len);
}

static void put_table(struct json_out *out, const struct kvt_region_table *t,
		      const char *path)
{
	json_t *list;

	json_put_text(out, out->root, "file", path);
	json_put_text(out, out->root, "format", "regions");
	json_put_text(out, out->root, "engine", t->engine);
	json_put_text(out, out->root, "connector", t->connector);
	json_put_text(out, out->root, "role", t->role);
	json_put_int(out, out->root, "tp_size", t->tp_size);
	json_put_int(out, out->root, "tp_rank", t->tp_rank);
	json_put_text(out, out->root, "pairing", t->by_layer ? "layer" : "order");
	json_put_int(out, out->root, "layers", t->nnames);
	json_put_int(out, out->root, "groups", t->ngroups);
	json_put_int(out, out->root, "memory_ranges", t->nmemory);
	list = json_put_array(out, out->root, "regions");
	for (int64_t i = 0; i < t->nregions; i++) {
		const struct kvt_registered *region = &t->region[i];
		json_t *o = json_append_object(out, list);

		put_rows(out, o, &region->at);
		json_put_text(out, o, "part", kvt_region_part_name(region->part));
		json_put_text(out, o, "ids", region->manager ? "manager" : "kernel");
		json_put_known(out, o, "group", region->group, region->group >= 0);
		json_put_text(out, o, "device", region->device);
		put_layers(out, o, t, region);
	}
}

static void print_groups(const struct kvt_region_table *t)
{
	for (int64_t i = 0; i < t->ngroups; i++) {
		const struct kvt_region_group *g = &t->group[i];

		plainf("  group %lld: blocks of %lld tokens", LL(g->id),
		       LL(g->block_size));
		if (g->kernel_size != g->block_size)
			plainf(", %lld blocks of the kernel in each",
			       LL(g->block_size / g->kernel_size));
		putchar('\n');
	}
}

static void print_region(const struct kvt_region_table *t, int64_t i)
{
	const struct kvt_registered *region = &t->region[i];
	const struct kvt_rows *at = &region->at;

	plainf("  region %lld: 0x%llx, %lld blocks of %lld B", LL(i), LL(at->base),
	       LL(at->blocks), LL(at->len));
	if (at->stride != at->len)
		plainf(" every %lld B", LL(at->stride));
	plainf(", %s", kvt_region_part_name(region->part));
	if (region->group >= 0)
		plainf(", group %lld", LL(region->group));
	if (region->manager)
		plainf(", ids of the manager");
	for (int64_t k = 0; k < region->nlayers && k < 3; k++)
		plainf("%s%s", k ? ", " : ": ", t->name[region->layer[k]]);
	if (region->nlayers > 3)
		plainf(" and %lld more", LL(region->nlayers - 3));
	putchar('\n');
}

static void print_table(const struct kvt_region_table *t, const char *path)
{
	int64_t bytes = 0;

	for (int64_t i = 0; i < t->nmemory; i++)
		bytes += t->memory[i].length / 1024;
	plainf("%s: regions that %s registered", path,
	       t->connector ? t->connector : "a connector");
	if (t->engine)
		plainf(", %s", t->engine);
	if (t->role)
		plainf(", %s", t->role);
	plainf(", rank %lld of %lld\n", LL(t->tp_rank), LL(t->tp_size));
	plainf("  %lld region%s, which pair by %s; %lld layer%s in %lld tensor%s; "
	       "%lld range%s of registered memory, %s\n",
	       LL(t->nregions), plural(t->nregions), t->by_layer ? "layer" : "order",
	       LL(t->nnames), plural(t->nnames), LL(t->nlayers), plural(t->nlayers),
	       LL(t->nmemory), plural(t->nmemory),
	       kvt_size_string(bytes <= INT64_MAX / 1024 ? bytes * 1024 : 0).s);
	print_groups(t);
	for (int64_t i = 0; i < t->nregions; i++)
		print_region(t, i);
}

enum kvt_status regions_describe(const char *path, bool json, bool stream, bool quiet,
				 struct kvt_error *err)
{
	struct kvt_regions regions;
	struct json_out out = { NULL, false };
	size_t nbytes;
	enum kvt_status status = load(&regions, &nbytes, path, err);

	if (status)
		return status;
	if (json) {
		json_start(&out);
		put_table(&out, &regions.table, path);
		status = json_print(&out, stream, err);
	} else if (!quiet) {
		print_table(&regions.table, path);
	}
	kvt_regions_free(&regions);
	return status;
}

/* ---- fsck ---------------------------------------------------------------- */

static enum kvt_status check(struct kvt_findings *r, const struct kvt_region_table *t,
			     const char *path, size_t nbytes, struct kvt_error *err)
{
	r->looked = (struct kvt_looked_at){
		.files = 1, .bytes = (int64_t)nbytes, .groups = (int)t->ngroups,
		.checks = "regions, layers, memory",
	};
	for (int64_t i = 0; i < t->nregions; i++)
		if (t->region[i].at.blocks > r->looked.blocks)
			r->looked.blocks = t->region[i].at.blocks;
	snprintf(r->path, sizeof(r->path), "%s", path);
	snprintf(r->format, sizeof(r->format), "regions");
	return kvt_regions_check(r, t) ? KVT_OK : kvt_no_memory(err, path);
}

enum kvt_status regions_check(struct kvt_findings *r, const char *path,
			      struct kvt_error *err)
{
	struct kvt_regions regions;
	size_t nbytes;
	enum kvt_status status = load(&regions, &nbytes, path, err);

	if (status)
		return status;
	status = check(r, &regions.table, path, nbytes, err);
	kvt_regions_free(&regions);
	return status;
}

/* ---- diff ---------------------------------------------------------------- */

enum { FROM, TO, BETWEEN, NLISTS };

static void print_json(struct json_out *out, const struct kvt_findings r[NLISTS],
		       const struct kvt_regions_arrived *arrived)
{
	static const char *const keys[] = { "a", "b", "transfer" };

	for (int i = 0; i < NLISTS; i++)
		fsck_json(out, json_append_object(out, json_put_array(
				out, out->root, keys[i])), &r[i], INT_MAX);
	json_put_int(out, out->root, "tensors", arrived->views);
	json_put_int(out, out->root, "tensors_whole", arrived->whole);
}

static enum kvt_status print_diff(const struct kvt_findings r[NLISTS],
				  const struct kvt_regions_arrived *arrived, bool json,
				  bool quiet, struct kvt_error *err)
{
	struct json_out out = { NULL, false };

	if (json) {
		json_start(&out);
		print_json(&out, r, arrived);
		return json_print(&out, false, err);
	}
	for (int i = 0; !quiet && i < NLISTS; i++)
		if (r[i].nfindings)
			fsck_text(&r[i], false);
	if (!quiet)
		plainf("%s: %lld of %lld tensor%s would arrive whole\n", r[BETWEEN].path,
		       LL(arrived->whole), LL(arrived->views), plural(arrived->views));
	return KVT_OK;
}

static enum kvt_status compare(struct kvt_findings r[NLISTS],
			       const struct kvt_region_table *from,
			       const struct kvt_region_table *to, bool json, bool quiet,
			       struct kvt_error *err)
{
	struct kvt_regions_arrived arrived;
	enum kvt_status status;

	if ((status = kvt_regions_transfer(&r[BETWEEN], &arrived, from, to, err)) ||
	    (status = print_diff(r, &arrived, json, quiet, err)))
		return status;
	for (int i = 0; i < NLISTS; i++) {
		if (r[i].out_of_memory)
			return kvt_no_memory(err, NULL);
		if (r[i].total[KVT_ERROR])
			status = KVT_MISMATCH;
	}
	return status;
}

enum kvt_status regions_diff(const char *from, const char *to, bool json, bool quiet,
			     struct kvt_error *err)
{
	struct kvt_findings *r = calloc(NLISTS, sizeof(*r));
	struct kvt_regions a = { .json = NULL }, b = { .json = NULL };
	enum kvt_status status;
	size_t n[2];

	if (!r)
		return kvt_no_memory(err, NULL);
	snprintf(r[BETWEEN].path, sizeof(r->path), "%.250s -> %.250s", from, to);
	snprintf(r[BETWEEN].format, sizeof(r->format), "regions");
	if (!(status = load(&a, &n[0], from, err)) &&
	    !(status = load(&b, &n[1], to, err)) &&
	    !(status = check(&r[FROM], &a.table, from, n[0], err)) &&
	    !(status = check(&r[TO], &b.table, to, n[1], err)))
		status = compare(r, &a.table, &b.table, json, quiet, err);
	kvt_regions_free(&a);
	kvt_regions_free(&b);
	for (int i = 0; i < NLISTS; i++)
		kvt_findings_free(&r[i]);
	free(r);
	return status;
}
