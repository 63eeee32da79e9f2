/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_file.c - a link from a JSON file: link_file.h draws it
 *
 * Figures become whole numbers of ps, ns and bytes a second, to the nearest;
 * kvt_link_check() then judges them as it judges those of options.
 */
#include "formats/log/link_file.h"

#include <string.h>

#include "formats/parse/json.h"

/* A number of 0 or more as a whole one of smaller units; null is 0. */
static void get_figure(int64_t *out, const struct kvt_json *in, const char *key,
		       double unit)
{
	const json_t *value = json_object_get(in->object, key);
	double x = json_number_value(value) * unit;

	if (json_is_null(value))
		return;
	if (!json_is_number(value) || !(x >= 0 && x < 9e18))
		kvt_json_bad(in, "'%s' is not a number of 0 or more", key);
	else
		*out = (int64_t)(x + 0.5);
}

static void get_overlap(int *out, const struct kvt_json *in)
{
	const json_t *value = json_object_get(in->object, "overlap");
	const char *word = json_string_value(value);
	json_int_t k = json_integer_value(value);

	if (word && !strcmp(word, "inf"))
		*out = KVT_OVERLAP_FULL;
	else if (k == 1 || k == 2 || k == 4)
		*out = (int)k;
	else
		kvt_json_bad(in, "'overlap' is not 1, 2, 4 or \"inf\"");
}

static void get_word(char *out, size_t room, const struct kvt_json *in, const char *key)
{
	const char *word = NULL;

	kvt_json_string(&word, in, key);
	if (word && snprintf(out, room, "%s", word) >= (int)room)
		kvt_json_bad(in, "'%s' is longer than %zu bytes", key, room - 1);
}

static void get_quality(enum kvt_quality *out, const struct kvt_json *in)
{
	char word[32] = "given";
	int q = 0;

	get_word(word, sizeof(word), in, "quality");
	while (q < KVT_NQUALITIES && strcmp(word, kvt_quality_name((enum kvt_quality)q)))
		q++;
	if (q == KVT_NQUALITIES)
		kvt_json_bad(in, "there is no quality '%s'", word);
	else
		*out = (enum kvt_quality)q;
}

static void get_figures(struct kvt_link *link, const struct kvt_json *in)
{
	static const char *const needed[] = {
		"overlap", "setup_us", "op_ns", "rate_gbps",
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!json_object_get(in->object, needed[i]))
			kvt_json_bad(in, "there is no '%s'", needed[i]);
	get_overlap(&link->overlap, in);
	get_figure(&link->setup_ns, in, "setup_us", 1e3);
	get_figure(&link->op_ps, in, "op_ns", 1e3);
	get_figure(&link->rate, in, "rate_gbps", 1e9);
	kvt_json_int(&link->slice, in, "slice", 0, INT64_MAX);
	link->post_ps = link->op_ps / 2;
	if (json_object_get(in->object, "post_ns"))
		get_figure(&link->post_ps, in, "post_ns", 1e3);
}

enum kvt_status link_parse(struct link_file *out, const char *text, size_t nbytes,
			   const char *path, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, path, err, &status };
	json_t *root;

	memset(out, 0, sizeof(*out));
	out->link.name = out->name;
	out->link.source = out->source;
	if ((status = kvt_json_parse(&root, text, nbytes, path, err)))
		return status;
	in.object = root;
	snprintf(out->name, sizeof(out->name), "%.60s", path);
	get_word(out->name, sizeof(out->name), &in, "name");
	get_word(out->source, sizeof(out->source), &in, "source");
	get_quality(&out->link.quality, &in);
	get_figures(&out->link, &in);
	if (!status)
		status = kvt_link_check(&out->link, err);
	json_decref(root);
	return status;
}
