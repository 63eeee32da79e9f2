/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_preset.c - links whose figures somebody published
 *
 * A row: name, overlap, setup, an operation, posting it, bytes a second, slice; how good
 * the figures are, and whose they are.
 */
#include "lib/kvt/link.h"

#include <stddef.h>

#define US(x)   ((int64_t)((x) * 1000 + 0.5))
#define NS(x)   ((int64_t)(x) * 1000)
#define GB(x)   ((int64_t)((x) * 1e9 + 0.5))
#define FULL    KVT_OVERLAP_FULL

/*
 * What no source gives is not guessed: a preset marked KVT_CALIBRATE has a line
 * rate at most.  Where only the cost of an operation is known, posting is half
 * of it unless a source says otherwise.
 */
static const struct kvt_link presets[] = {
	{ "cx7-400g-verbs", 2, US(54.8), NS(60), NS(40), GB(45.7), 0, KVT_PUBLISHED,
	  "PaddlePaddle/FastDeploy kvcache_transfer README, KVTransferManager, 1538 ops a batch" },
	{ "cx7-400g-mooncake", 2, 0, NS(613), NS(306), GB(40.9), 65536, KVT_PUBLISHED,
	  "PaddlePaddle/FastDeploy kvcache_transfer README, Mooncake engine" },
	{ "thor2-400g-uccl", 2, US(23.1), NS(19), NS(9), GB(48.9), 0, KVT_PUBLISHED,
	  "uccl issue 972, 128 parts an operation" },
	{ "cx-100g-uccl", FULL, US(45.8), NS(92), NS(46), GB(12.26), 0, KVT_PUBLISHED,
	  "LMCache pull request 4161, one 100G rail, host memory" },
	{ "efa-p5en-w", FULL, US(195), NS(586), NS(293), GB(372), 0, KVT_PUBLISHED,
	  "Mooncake efa_transport.md, 16 x 200G, write" },
	{ "efa-p5en-r", FULL, US(46), NS(637), NS(318), GB(301), 0, KVT_PUBLISHED,
	  "Mooncake efa_transport.md, 16 x 200G, read" },
	{ "nvlink2-cudaipc", 4, US(1.613), NS(700), NS(700), GB(24.17), 0, KVT_PUBLISHED,
	  "ucx issue 3740, synchronous put, one NVLink2" },
	{ "vllm-mooncake-8xcx7", 4, US(368), NS(135000), NS(135000), GB(145.1), 0,
	  KVT_PUBLISHED,
	  "Mooncake vllm-v1-pd-performance.md; an operation is a request" },
	{ "sglang-mooncake-4x400g", 1, 0, NS(1841000), NS(1841000), GB(171), 0,
	  KVT_PUBLISHED,
	  "Mooncake sglang-benchmark-results-v1.md; an operation is a request" },
	{ "vllm-nixl-rc", 1, 0, NS(5000), NS(3400), GB(40.9), 0, KVT_DERIVED,
	  "vLLM pull request 55841: 3.4 us to post, 1.6 us more; rate of cx7-400g-mooncake" },
	{ "vllm-mooncake", 1, 0, NS(690), NS(345), GB(40.9), 0, KVT_DERIVED,
	  "vLLM pull request 53825: 4,563 descriptors 5.2 ms, 70 of them 2.1 ms; about 1.4 us with 32,000" },
	{ "pcie5-ce-batch", 2, 0, NS(1211), NS(618), GB(54), 0, KVT_DERIVED,
	  "vLLM pull request 48434, batched copies, H100: 8,192 of 8 KiB submitted in 5.06 ms, done in 10.0 ms" },
	{ "pcie5-p2p", FULL, US(4.1), 0, 0, GB(55), 0, KVT_PUBLISHED,
	  "voipmonitor rtx6kpro wiki, p2pmark; one operation" },
	{ "cx7-2x200g", 2, US(54.8), NS(60), NS(40), GB(2 * 22.85), 0, KVT_DERIVED,
	  "rails of cx7-400g-verbs by line rate" },
	{ "cx7-4x200g", 2, US(54.8), NS(60), NS(40), GB(87), 0, KVT_DERIVED,
	  "rails of cx7-400g-verbs; at most what Mooncake FAST25 measured, 87 GB/s" },
	{ "cx7-4x400g", 2, US(54.8), NS(60), NS(40), GB(4 * 45.7), 0, KVT_DERIVED,
	  "rails of cx7-400g-verbs" },
	{ "cx7-8x400g", 2, US(54.8), NS(60), NS(40), GB(190), 0, KVT_DERIVED,
	  "rails of cx7-400g-verbs; at most what Mooncake FAST25 measured, 190 GB/s" },
	{ "hdr200", 2, US(54.8), NS(60), NS(40), GB(22.9), 0, KVT_EXTRAPOLATED,
	  "cx7-400g-verbs by line rate; not measured" },
	{ "xdr800", 2, US(54.8), NS(60), NS(40), GB(91.4), 0, KVT_EXTRAPOLATED,
	  "cx7-400g-verbs by line rate; not measured" },
	{ "tcp-25g", 1, 0, 0, 0, GB(3.125), 0, KVT_CALIBRATE, "line rate only" },
	{ "tcp-100g", 1, 0, 0, 0, GB(12.5), 0, KVT_CALIBRATE, "line rate only" },
	{ "loopback", 1, 0, 0, 0, 0, 0, KVT_CALIBRATE, "no figures" },
	{ "infinite", FULL, 0, 0, 0, 0, 0, KVT_GIVEN, "takes no time: counts only" },
};

const struct kvt_link *kvt_link_preset(int i)
{
	return i >= 0 && (size_t)i < sizeof(presets) / sizeof(presets[0]) ? &presets[i] :
									      NULL;
}
