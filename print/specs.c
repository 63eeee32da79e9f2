/* SPDX-License-Identifier: Apache-2.0 */
/*
 * specs.c - what --spec may say: kinds, keys, and an example of each kind
 *
 *	  gqa                       keys and values of some heads; MHA and MQA, too
 *	                            gqa:layers=4,heads=8,head-dim=128
 *
 * An example has layers and the keys that its kind needs, as kvt_spec_preset_needs()
 * says; then come all keys, and the classes of vLLM with the kinds that are of each.
 */
#include "print/specs.h"

#include "print/out/say.h"
#include "lib/kvt/spec.h"

/* 'usual' is a number for examples; NULL: the key is never needed. */
static const struct {
	const char *key, *member, *usual, *help;
} keys[] = {
	{ "layers", NULL, NULL, "layers that cache the same" },
	{ "heads", "heads", "8", "key/value heads; heads of a state" },
	{ "head-dim", "head_dim", "128", "elements of one head's key" },
	{ "head-dim-v", NULL, NULL, "elements of one head's value; default: head-dim" },
	{ "latent", "latent", "576", "elements of a latent row: rank and rope part" },
	{ "ratio", "ratio", "4", "tokens of a slot; of cross: slots of a token" },
	{ "window", "window", "4096", "tokens of the window, or of a chunk" },
	{ "inter", "inter", "8192", "channels of x" },
	{ "groups", "groups", "8", "groups of B and C" },
	{ "state-size", "state_size", "128", "elements of B and C of a group" },
	{ "key-heads", "key_heads", "16", "heads of q and k" },
	{ "key-dim", "key_dim", "128", "elements of a head of q and k" },
	{ "kernel", "kernel", "4", "taps of the convolution" },
	{ "spec-tokens", NULL, NULL, "draft tokens; they lengthen a convolution" },
	{ "elem", NULL, NULL, "bytes of an element; default: the cache's type" },
	{ "block-size", NULL, NULL, "tokens in a block; default: that of the command" },
	{ "retained", NULL, NULL, "tokens that a window keeps besides" },
	{ "blocks", "blocks", "32", "blocks that a request owns" },
	{ "stride", NULL, NULL, "bytes of which the step between blocks is a multiple" },
	{ "leader", NULL, NULL, "1: an indexer goes with these latents" },
	{ "replay", NULL, NULL, "1: the window is computed anew, not cached" },
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

static void print_example(const char *kind)
{
	plainf("  %-25s %s:layers=4", "", kind);
	for (int i = 0; i < NKEYS; i++)
		if (keys[i].member && kvt_spec_preset_needs(kind, keys[i].member))
			plainf(",%s=%s", keys[i].key, keys[i].usual);
	if (kvt_spec_preset_block_size(kind))
		plainf(",block-size=%lld", LL(kvt_spec_preset_block_size(kind)));
	plainf("\n");
}

/* What vLLM calls them, and what its managers do. */
static void print_classes(void)
{
	const struct kvt_spec_preset *preset;
	const struct kvt_spec_args none = { .window = 0 };

	plainf("\nclasses of vLLM 0.32, with the word in its events, and the kinds of "
	       "each;\nmla with a window is SlidingWindowMLASpec:\n");
	for (int c = 0; c < KVT_NCLASSES; c++) {
		const struct kvt_class_rule *rule =
			kvt_class_rule((enum kvt_spec_class)c);
		const char *mark = "";

		plainf("  %-25s %s; dead tokens: %s; to send: %s%s%s\n  %-25s ",
		       rule->name, rule->word, rule->dead, rule->moves,
		       rule->cached ? "" : "; never found again",
		       rule->mapped ? "" : "; no slot mapping", "");
		for (int i = 0; (preset = kvt_spec_preset_at(i)); i++) {
			if ((int)kvt_spec_class_of(preset->name, &none) != c)
				continue;
			plainf("%s%s", mark, preset->name);
			mark = " ";
		}
		plainf("\n");
	}
}

void specs_print(void)
{
	const struct kvt_spec_preset *preset;

	plainf("--spec=KIND:KEY=N,KEY=N,... says what a group of layers caches.\n\n"
	       "kinds, each with what it must be told:\n");
	for (int i = 0; (preset = kvt_spec_preset_at(i)); i++) {
		plainf("  %-25s %s\n", preset->name, preset->summary);
		print_example(preset->name);
	}
	plainf("\nkeys; head_dim is head-dim:\n");
	for (int i = 0; i < NKEYS; i++)
		plainf("  %-25s %s\n", keys[i].key, keys[i].help);
	print_classes();
	plainf("\nA model's config.json says all of this: kvtool size config.json prints "
	       "its specs.\nSee kvtool-size(1).\n");
}
