/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - links, and what is posted on them, as JSON and as a table
 *
 *	link                   overlap  setup us     op ns   post ns     GB/s  figures
 *	cx7-400g-verbs               2      54.8        60        40     45.7  published..
 *
 *	{.., "emulate": "rfc", "coalesce": "stack", .., "direction": "pull", ..,
 *	 "link": {"name": .., "overlap": 2, "setup_us": 54.8, "op_ns": 60.0, ..},
 *	 "assumed": ["emulate", "link"]}
 *
 * A rate of null is no limit, an overlap of "inf" a full one.  "assumed" lists what was
 * not said, so that a default counts; text has "(default)" there.
 */
#include "sim/print/link.h"

#include <math.h>
#include <string.h>

void link_put(struct json_out *out, json_t *object, const struct kvt_link *link)
{
	json_put_text(out, object, "name", link->name);
	if (link->overlap == KVT_OVERLAP_FULL)
		json_put_text(out, object, "overlap", "inf");
	else
		json_put_int(out, object, "overlap", link->overlap);
	json_put_real(out, object, "setup_us", (double)link->setup_ns / 1e3);
	json_put_real(out, object, "op_ns", (double)link->op_ps / 1e3);
	json_put_real(out, object, "post_ns", (double)link->post_ps / 1e3);
	json_put_real(out, object, "rate_gbps",
		      link->rate ? (double)link->rate / 1e9 : NAN);
	json_put_int(out, object, "slice", link->slice);
	json_put_text(out, object, "quality", kvt_quality_name(link->quality));
	json_put_text(out, object, "source", link->source);
}

void link_print_presets(void)
{
	const struct kvt_link *link;

	plainf("%-22s %7s %9s %9s %9s %8s  %s\n", "link", "overlap", "setup us", "op ns",
	       "post ns", "GB/s", "figures");
	for (int i = 0; (link = kvt_link_preset(i)); i++) {
		char k[8] = "inf", rate[32] = "inf";

		if (link->overlap)
			snprintf(k, sizeof(k), "%d", link->overlap);
		if (link->rate)
			snprintf(rate, sizeof(rate), "%.4g", (double)link->rate / 1e9);
		plainf("%-22s %7s %9.6g %9.6g %9.6g %8s  %s: %s\n", link->name, k,
		       (double)link->setup_ns / 1e3, (double)link->op_ps / 1e3,
		       (double)link->post_ps / 1e3, rate,
		       kvt_quality_name(link->quality), link->source);
	}
}

/* ---- stacks, and what was assumed ------------------------------------------- */

const char *stack_link(const char *emulate)
{
	if (emulate && !strncmp(emulate, "nixl", 4))
		return "vllm-nixl-rc";
	if (emulate && !strcmp(emulate, "mooncake"))
		return "vllm-mooncake";
	return "cx7-400g-verbs";
}

void stack_print_all(void)
{
	static const char *const what[] = {
		[KVT_STACK_NIXL] = "vLLM's NIXL connector: one a block and layer",
		[KVT_STACK_NIXL_PACKED] = "the same, of layers that lie together",
		[KVT_STACK_MOONCAKE] = "vLLM's Mooncake connector: as nixl, in slices",
		[KVT_STACK_RFC] =
			"vLLM's layout RFC: one a contiguous run of a block (default)",
		[KVT_STACK_LAYER] = "the same, but never beyond one layer",
		[KVT_STACK_MAX] =
			"one a contiguous run, also beyond blocks: the fewest there can be",
	};

	plainf("%-12s %-15s %s\n", "stack", "default link", "operations");
	for (int i = 0; i < KVT_NSTACKS; i++) {
		const char *name = kvt_stack_name((enum kvt_stack)i);

		plainf("%-12s %-15s %s\n", name, stack_link(name), what[i]);
	}
}

void assumed_put(struct json_out *out, json_t *object, struct assumed assumed)
{
	json_t *list = json_put_array(out, object, "assumed");

	if (assumed.emulate)
		json_append_text(out, list, "emulate");
	if (assumed.link)
		json_append_text(out, list, "link");
}

struct human assumed_stack(struct assumed assumed)
{
	struct human out = { "" };

	if (assumed.emulate)
		snprintf(out.s, sizeof(out.s), " (default)");
	return out;
}

struct human assumed_link(struct assumed assumed, enum kvt_stack stack)
{
	struct human out = { "" };

	if (assumed.link)
		snprintf(out.s, sizeof(out.s), " (default for --emulate=%s)",
			 kvt_stack_name(stack));
	return out;
}

void posting_put(struct json_out *out, json_t *object, const struct kvt_batch_how *how,
		 struct assumed assumed)
{
	const struct kvt_posting *p = &how->posting;

	json_put_text(out, object, "emulate", kvt_stack_name(p->stack));
	json_put_text(out, object, "coalesce", kvt_coalesce_name(p->coalesce));
	json_put_bool(out, object, "merge_descending", p->descending);
	json_put_int(out, object, "sge", p->sge ? p->sge : 1);
	json_put_int(out, object, "slice_bytes", p->slice);
	json_put_int(out, object, "stage_bytes", how->stage);
	json_put_int(out, object, "copy_rate", how->copy_rate);
	json_put_text(out, object, "direction", how->push ? "push" : "pull");
	json_put_text(out, object, "share", kvt_share_name(how->share));
	json_put_int(out, object, "window", how->window);
	json_put_int(out, object, "latency_ns", how->latency_ps / 1000);
	link_put(out, json_put_object(out, object, "link"), &how->link);
	assumed_put(out, object, assumed);
}
