/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c - one line of a log of what workers report */
#include "formats/log/workers.h"
#include "formats/parse/json.h"

#include <string.h>

/* ---- keys --------------------------------------------------------------- */

static const char *const head_keys[] = { "workers", "expected_finished_count", NULL };
static const char *const worker_keys[] = {
	"step", "worker", "finished_sending", "finished_recving", "invalid_block_ids",
	"expected_finished_count", NULL
};
static const char *const no_output_keys[] = { "step", "output", NULL };
static const char *const aggregated_keys[] = { "step", "aggregated", NULL };
static const char *const set_keys[] = {
	"finished_sending", "finished_recving", "invalid_block_ids", NULL
};

/* In the order of enum kvt_log_kind; the second key of each tells the kind. */
static const char *const *const keys_of[] = {
	head_keys, worker_keys, no_output_keys, aggregated_keys,
};

static enum kvt_status check_keys(const struct kvt_json *in, const char *const *known)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)in->object, key, value) {
		int i = 0;

		while (known[i] && strcmp(known[i], key))
			i++;
		if (!known[i])
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: key '%.64s' has no meaning here", in->name,
					key);
	}
	return KVT_OK;
}

static enum kvt_status find_kind(enum kvt_log_kind *out, const struct kvt_json *in)
{
	static const struct {
		const char *key;
		enum kvt_log_kind kind;
	} tells[] = {
		{ "aggregated", KVT_LOG_AGGREGATED },
		{ "output", KVT_LOG_NO_OUTPUT },
		{ "worker", KVT_LOG_WORKER },
		{ "workers", KVT_LOG_HEAD },
	};

	for (size_t i = 0; i < sizeof(tells) / sizeof(tells[0]); i++)
		if (json_object_get(in->object, tells[i].key)) {
			*out = tells[i].kind;
			return check_keys(in, keys_of[*out]);
		}
	return kvt_fail(in->err, KVT_BAD_INPUT,
			"%s: expected a worker, workers, output or aggregated", in->name);
}

/* ---- values ------------------------------------------------------------- */

static enum kvt_status take_ids(struct kvt_log_line *out, enum kvt_direction direction,
				const struct kvt_json *in)
{
	const char *key = kvt_direction_name(direction), *id;
	const json_t *list = NULL;
	enum kvt_status status;

	if ((status = kvt_json_array(&list, in, key)))
		return status;
	for (size_t i = 0; i < json_array_size(list); i++) {
		if ((status = kvt_json_string_at(&id, in, key, list, i)))
			return status;
		if (!*id)
			return kvt_fail(in->err, KVT_BAD_INPUT, "%s: %s has an empty id",
					in->name, key);
	}
	out->ids[direction] = list;
	out->nids[direction] = json_array_size(list);
	return KVT_OK;
}

static enum kvt_status take_sets(struct kvt_log_line *out, const struct kvt_json *in)
{
	static const char key[] = "invalid_block_ids";
	const json_t *list = NULL;
	enum kvt_status status;
	int64_t block;

	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		if ((status = take_ids(out, (enum kvt_direction)d, in)))
			return status;
	if ((status = kvt_json_array(&list, in, key)))
		return status;
	for (size_t i = 0; i < json_array_size(list); i++)
		if ((status = kvt_json_int_at(&block, in, key, list, i, 0, INT64_MAX)))
			return status;
	out->blocks = list;
	out->nblocks = json_array_size(list);
	return KVT_OK;
}

static enum kvt_status need_int(int64_t *out, const struct kvt_json *in, const char *key,
				int64_t min, int64_t max)
{
	enum kvt_status status;

	*out = -1;
	if ((status = kvt_json_int(out, in, key, min, max)))
		return status;
	return *out >= 0 ? KVT_OK :
	       kvt_fail(in->err, KVT_BAD_INPUT, "%s: %s is missing", in->name, key);
}

/* Only the absence of an output says anything. */
static enum kvt_status take_output(const struct kvt_json *in)
{
	const json_t *value = json_object_get(in->object, "output");

	if (json_is_false(value))
		return KVT_OK;
	return kvt_fail(in->err, KVT_BAD_INPUT, "%s: output is not false", in->name);
}

static enum kvt_status take(struct kvt_log_line *out, const struct kvt_json *in)
{
	const int64_t most = INT32_MAX;
	struct kvt_json sets;
	enum kvt_status status;

	if ((status = find_kind(&out->kind, in)))
		return status;
	if (out->kind == KVT_LOG_HEAD)
		status = need_int(&out->workers, in, "workers", 1, KVT_LOG_MAX_WORKERS);
	else
		status = need_int(&out->step, in, "step", 0, INT64_MAX - 1);
	if (!status && out->kind == KVT_LOG_WORKER)
		status = need_int(&out->worker, in, "worker", 0, KVT_LOG_MAX_WORKERS - 1);
	if (!status)
		status = kvt_json_int(&out->expected, in, "expected_finished_count", 0,
				      most);
	if (!status && out->kind == KVT_LOG_NO_OUTPUT)
		status = take_output(in);
	if (!status && out->kind == KVT_LOG_WORKER)
		status = take_sets(out, in);
	if (!status && out->kind == KVT_LOG_AGGREGATED &&
	    !(status = kvt_json_object(&sets, in, "aggregated")) &&
	    !(status = check_keys(&sets, set_keys)))
		status = take_sets(out, &sets);
	return status;
}

/* ---- lines -------------------------------------------------------------- */

enum kvt_status kvt_log_parse(struct kvt_log_line *out, const char *text, size_t nbytes,
			      const char *name, struct kvt_error *err)
{
	struct kvt_log_line line = { .step = -1, .worker = -1 };
	struct kvt_json in = { NULL, name, err };
	enum kvt_status status;
	json_t *json;

	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	in.object = json;
	line.json = json;
	if ((status = take(&line, &in))) {
		json_decref(json);
		return status;
	}
	*out = line;
	return KVT_OK;
}

void kvt_log_free(struct kvt_log_line *line)
{
	json_decref(line->json);
}

const char *kvt_log_id(const struct kvt_log_line *line, enum kvt_direction direction,
		       size_t i)
{
	return json_string_value(json_array_get(line->ids[direction], i));
}

int64_t kvt_log_block(const struct kvt_log_line *line, size_t i)
{
	return json_integer_value(json_array_get(line->blocks, i));
}
