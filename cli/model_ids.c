/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_ids.c - which model of the folder an id of the Hugging Face hub is
 *
 * An id is understood if its caches are those of the model, in number and in type: so
 * each is written out, and a quantised, a distilled or a larger one of the same name is
 * another model, of which no more is said than what it is like.  No id was compared with
 * the hub, which could not be had here (models/README.md).
 */
#include "cli/models.h"

#include <string.h>
#include <strings.h>

/* Behind an id: "" is the id alone. */
static const struct {
	const char *model, *id, *endings;
} rows[] = {
	{ "deepseek-r1", "deepseek-ai/DeepSeek-R1", "|-0528|-Zero" },
	{ "deepseek-v3", "deepseek-ai/DeepSeek-V3", "|-Base|-0324" },
	{ "deepseek-v3", "deepseek-ai/DeepSeek-V3.1", "|-Base|-Terminus" },
	{ "deepseek-v3.2", "deepseek-ai/DeepSeek-V3.2", "|-Exp|-Exp-Base|-Speciale" },
	{ "deepseek-v4-flash", "deepseek-ai/DeepSeek-V4-Flash", "" },
	{ "deepseek-v4.1-flash", "deepseek-ai/DeepSeek-V4.1-Flash", "" },
	{ "gemma-4-e2b", "google/gemma-4-E2B", "|-it" },
	{ "glm-5.2", "zai-org/GLM-5.2", "" },
	{ "glm-5.3-flash", "zai-org/GLM-5.3-Flash", "" },
	{ "gpt-oss-120b", "openai/gpt-oss-120b", "" },
	{ "gpt-oss-20b", "openai/gpt-oss-20b", "" },
	{ "jamba-v0.1", "ai21labs/Jamba-v0.1", "" },
	{ "kimi-k3", "moonshotai/Kimi-K3", "" },
	{ "kimi-linear-48b-a3b", "moonshotai/Kimi-Linear-48B-A3B", "-Base|-Instruct" },
	{ "llama-3.1-8b", "meta-llama/Llama-3.1-8B", "|-Instruct" },
	{ "llama-3.1-70b", "meta-llama/Llama-3.1-70B", "|-Instruct" },
	{ "llama-3.1-405b", "meta-llama/Llama-3.1-405B", "|-Instruct" },
	{ "llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", "|-Instruct" },
	{ "llama-3.1-70b", "meta-llama/Meta-Llama-3.1-70B", "|-Instruct" },
	{ "llama-3.1-405b", "meta-llama/Meta-Llama-3.1-405B", "|-Instruct" },
	{ "llama-3.1-70b", "meta-llama/Llama-3.3-70B", "-Instruct" },
	{ "minimax-m3", "MiniMaxAI/MiniMax-M3", "" },
	{ "nemotron-h-8b", "nvidia/Nemotron-H-8B", "-Base-8K|-Reasoning-128K" },
	{ "qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", "|-Instruct-2507|-Thinking-2507" },
	{ "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "|-Base|-Instruct-2507|-Thinking-2507" },
	{ "qwen3-30b-a3b", "Qwen/Qwen3-Coder-30B-A3B", "-Instruct" },
	{ "qwen3-8b", "Qwen/Qwen3-8B", "|-Base" },
	{ "qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B", "-Instruct|-Thinking" },
	{ "qwen3.8-flash-next", "Qwen/Qwen3.8-Flash-Next", "" },
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

/* Is it one of "|-Base|-0324"? */
static bool has_ending(const char *endings, const char *ending)
{
	for (size_t n = strlen(ending), more; ; endings += more + 1) {
		more = strcspn(endings, "|");
		if (more == n && !strncasecmp(endings, ending, n))
			return true;
		if (!endings[more])
			return false;
	}
}

const char *model_of_id(const char *id)
{
	for (int i = 0; i < NROWS; i++) {
		size_t n = strlen(rows[i].id);

		if (!strncasecmp(id, rows[i].id, n) &&
		    has_ending(rows[i].endings, id + n))
			return rows[i].model;
	}
	return NULL;
}

const char *model_like_id(const char *id)
{
	const char *slash = strrchr(id, '/'), *name = slash ? slash + 1 : id;
	const char *best = NULL;
	size_t longest = 0;

	for (int i = 0; i < NROWS; i++) {
		const char *of = strchr(rows[i].id, '/') + 1;
		size_t n = strlen(of);

		if (n > longest && !strncasecmp(name, of, n) &&
		    (!name[n] || name[n] == '-')) {
			best = rows[i].model;
			longest = n;
		}
	}
	return best;
}
