/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_models.c - the caches of known models
 *
 * From the models' published configurations.  Element sizes are those of 16-bit
 * caches; a recurrent state has its own.
 */
#include "cli/sim.h"

#include <string.h>

#define GQA(h, d)  { .heads = h, .head_dim = d }
#define SWA(h, d, w) { .heads = h, .head_dim = d, .window = w }
#define MLA(n)     { .latent = n }
#define MAMBA2(g)  { .heads = 128, .head_dim = 64, .groups = g, .state_size = 128, \
		     .kernel = 4 }

static const struct sim_model_group groups[] = {
	{ "llama-3.1-8b", "attn", "gqa", 32, GQA(8, 128) },
	{ "llama-3.1-70b", "attn", "gqa", 80, GQA(8, 128) },
	{ "llama-3.1-405b", "attn", "gqa", 126, GQA(8, 128) },
	{ "qwen3-8b", "attn", "gqa", 36, GQA(8, 128) },
	{ "qwen3-30b-a3b", "attn", "gqa", 48, GQA(4, 128) },
	{ "qwen3-235b-a22b", "attn", "gqa", 94, GQA(4, 128) },
	{ "deepseek-r1", "attn", "mla", 61, MLA(576) },
	{ "deepseek-v3", "attn", "mla", 61, MLA(576) },
	{ "gpt-oss-20b", "attn", "gqa", 24, GQA(8, 64) },
	{ "gpt-oss-20b-hma", "full", "gqa", 12, GQA(8, 64) },
	{ "gpt-oss-20b-hma", "swa128", "sliding-window", 12, SWA(8, 64, 128) },
	{ "gpt-oss-120b", "attn", "gqa", 36, GQA(8, 64) },
	{ "gpt-oss-120b-hma", "full", "gqa", 18, GQA(8, 64) },
	{ "gpt-oss-120b-hma", "swa128", "sliding-window", 18, SWA(8, 64, 128) },
	{ "nemotron-h-8b", "attn", "gqa", 4, GQA(8, 128) },
	{ "nemotron-h-8b", "conv", "mamba2-conv", 24, MAMBA2(8) },
	{ "nemotron-h-8b", "ssm", "mamba2-ssm", 24, MAMBA2(8) },
	{ "mamba2-ngroups1", "conv", "mamba2-conv", 24, MAMBA2(1) },
	{ "mamba2-ngroups1", "ssm", "mamba2-ssm", 24, MAMBA2(1) },
	{ "jamba-v0.1", "attn", "gqa", 4, GQA(8, 128) },
	{ "jamba-v0.1", "conv", "mamba1-conv", 28,
	  { .inter = 8192, .kernel = 4 } },
	{ "jamba-v0.1", "ssm", "mamba1-ssm", 28,
	  { .inter = 8192, .state_size = 16 } },
};
enum { NGROUPS = sizeof(groups) / sizeof(groups[0]) };

const struct sim_model_group *sim_model_at(int i)
{
	return i >= 0 && i < NGROUPS ? &groups[i] : NULL;
}

static void print_number(const char *name, int64_t n)
{
	if (n)
		printf(" %s=%lld", name, (long long)n);
}

void sim_models_print(void)
{
	for (int i = 0; i < NGROUPS; i++) {
		const struct sim_model_group *g = &groups[i];

		printf("%-17s %-7s %s: layers=%lld", g->model, g->group, g->spec,
		       (long long)g->layers);
		print_number("heads", g->args.heads);
		print_number("head-dim", g->args.head_dim);
		print_number("latent", g->args.latent);
		print_number("window", g->args.window);
		print_number("inter", g->args.inter);
		print_number("groups", g->args.groups);
		print_number("state-size", g->args.state_size);
		print_number("kernel", g->args.kernel);
		putchar('\n');
	}
}
