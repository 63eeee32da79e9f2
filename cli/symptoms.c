/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symptoms.c - what one sees, what it usually is, and what to type: kvtool help symptoms
 *
 * The one table of it.  kvtool-symptoms(7) has the same rows in the same words, and
 * tests/cli/symptoms.bats holds the page against them and runs every command.  'good' is
 * a dump that is right, 'bad' one that is not; of one alone nothing is known yet.
 */
#include "cli/cli.h"

static const struct symptom {
	const char *part;		/* heading of the rows from here on; or NULL */
	const char *seen, *cause, *command;
} symptoms[] = {
	{ "What the model says",
	  "Garbage from the first token on",
	  "the reader takes another layout or element type than the writer had",
	  "kvtool doctor good.npy bad.npy" },
	{ NULL, "Garbage, and there is one dump alone, nothing to compare it with",
	  "keys and values exchanged, a scale forgotten, NaN, zeros, a block used twice",
	  "kvtool doctor bad.npy" },
	{ NULL, "Garbage, and nothing says which layout the array is in",
	  "channels of the data have an order in one layout alone",
	  "kvtool doctor --layers=5 --block-size=16 --heads=4 --head-dim=8 unknown.npy" },
	{ NULL, "Garbage after I changed the block size",
	  "block tables count blocks of the other size, or pages were cut at other tokens",
	  "kvtool diff --by=tokens good.npy bs32.npy" },
	{ NULL, "Garbage after I changed the backend, or its layout (NHD, HND)",
	  "pages of one order are read in the other: heads are taken for slots",
	  "kvtool doctor good.npy turned.npy" },
	{ NULL, "Garbage at TP 4 but not at TP 2 or TP 1",
	  "ranks in another order, a rank twice, or heads dealt in another way",
	  "kvtool diff good.npy : ranks/*.safetensors" },
	{ NULL, "Wrong on one rank, or half of the heads are wrong",
	  "that rank's part was never written, or not in the layout of the others",
	  "kvtool doctor good.npy rank1-bad.npy" },
	{ NULL, "NaN in the logits, after a restore, a transfer or with a long prompt",
	  "NaN or infinity in a slot in use, or in one that is read without being in use",
	  "kvtool fsck nan.npy" },
	{ NULL, "Only the first tokens are right",
	  "from some block on the table names others: shifted by one, stale, never written",
	  "kvtool doctor good.npy shifted.npy" },
	{ NULL, "Fine for short prompts, wrong for long ones",
	  "all is well within a block or a window: look at which tokens differ first",
	  "kvtool diff --map good.npy shifted.npy" },
	{ NULL, "The last tokens are missing or wrong",
	  "only full blocks were stored, or the number of valid slots is wrong",
	  "kvtool describe --block-tables bad.npy" },
	{ NULL, "Wrong after a prefix cache hit",
	  "two requests share a block though they do not begin alike, or it was overwritten",
	  "kvtool doctor twice.npy" },
	{ NULL, "No prefix cache hit for the same prompt",
	  "another seed, salt, LoRA, block size or algorithm, a block evicted, or not full",
	  "kvtool why --engine=vllm --seed=0 --block-size=2 --prompt=1,2,3,4 --prompt=1,2,9,4" },
	{ NULL, "Wrong after preemption, swapping out or offloading",
	  "blocks came back to other ids than the table has, or stale ones were kept",
	  "kvtool doctor good.npy stale.npy" },
	{ NULL, "The answer of another request, or of an older prompt",
	  "block tables exchanged, or blocks not freed: whose tokens lie there?",
	  "kvtool where good.npy request=A,token=69,layer=3,head=2,kv=v,dim=0" },
	{ NULL, "An fp8 cache is worse than expected",
	  "the scale is too small, and large numbers were cut off; or it is not applied",
	  "kvtool describe --stats fp8.npy" },
	{ NULL, "Attention is flat, or all on one token",
	  "the scale of the keys was forgotten, or applied twice, in a layer or a rank",
	  "kvtool doctor scaled.npy" },
	{ NULL, "Ignores the prompt, or repeats itself",
	  "layers or blocks were never written and are zeros",
	  "kvtool fsck zeros.npy" },
	{ "What a comparison shows",
	  "One layer differs, all others are equal",
	  "its keys and values are exchanged, or it was written where another belongs",
	  "kvtool doctor good.npy swapped.npy" },
	{ NULL, "K and V are swapped, somewhere",
	  "in a layer, in a block, or in the heads of one rank",
	  "kvtool doctor swapped.npy" },
	{ NULL, "All differs, but only a little",
	  "another type or kernel: rounding, and no fault",
	  "kvtool diff --tolerance=auto good.npy fp16.npy" },
	{ NULL, "All differs from some token on",
	  "tokens shifted, or another prompt from there on",
	  "kvtool diff --top=1 good.npy shifted.npy" },
	{ NULL, "Two dumps of one prompt cannot be compared: requests have other names",
	  "engines make names up: say which is which",
	  "kvtool diff --common --match=A=A good.npy bad.npy" },
	{ NULL, "Tensors that a connector registered arrive where they do not belong",
	  "the two sides count blocks, strides or keys and values in another way",
	  "kvtool diff prefill.json decode.json" },
	{ "What an engine does",
	  "The restore crashes, or refuses the file",
	  "the file was cut, is damaged, or says other sizes than it has",
	  "kvtool fsck good.npy" },
	{ NULL, "Nothing is reused after a restore, no block is hit",
	  "keys are of another model, type or block size: what is really there?",
	  "kvtool describe --layout=nhd --block-size=16 connector" },
	{ NULL, "Two runs should have left the same cache; did they?",
	  "digests are of the content alone, in whatever layout and format",
	  "kvtool digest good.npy nhd.npy" },
	{ NULL, "The cache takes more memory than was computed",
	  "padding of pages, groups of layers that share a pool, heads held twice",
	  "kvtool size --model=llama-3.1-8b --tp=4 --tokens=32k" },
};
enum { NSYMPTOMS = sizeof(symptoms) / sizeof(symptoms[0]) };

void symptoms_print(void)
{
	puts("What one sees, what it usually is, and what to type.  good.npy is a dump "
	     "that is\n"
	     "right; any format, layout and number of ranks will do (kvtool help how).\n"
	     "docs/nonsense.md of the source is such a search, step by step.");
	for (int i = 0; i < NSYMPTOMS; i++) {
		const struct symptom *s = &symptoms[i];

		if (s->part)
			plainf("\n%s\n", s->part);
		plainf("\n%s\n    %s\n    $ %s\n", s->seen, s->cause, s->command);
	}
}
