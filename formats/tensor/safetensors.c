/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - dumps as safetensors
 *
 * What kvtool writes has the manifest in the header's metadata, so that such a
 * file describes itself.
 */
#include "formats/tensor/safetensors_header.h"

static bool safetensors_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	/* a length that no header has is still a damaged header of this kind */
	return nhead >= 10 && head[8] == '{' &&
	       (head[9] == '"' || head[9] == '}' || head[9] == ' ');
}

static enum kvt_status safetensors_open(struct kvt_dump *reader, const char *path,
					const struct kvt_hints *hints,
					struct kvt_error *err)
{
	return kvt_tensors_open(reader, path, hints, kvt_tensors_read, err);
}

static const char *const endings[] = { ".safetensors", NULL };

const struct kvt_format kvt_safetensors_format = {
	.info = { "safetensors", "tensors with a JSON header that describes them",
		  true, true },
	.endings = endings,
	.facts = kvt_tensors_facts,
	.probe = safetensors_probe,
	.open = safetensors_open,
	.create = kvt_safetensors_create,
	.finish = kvt_safetensors_finish,
};
