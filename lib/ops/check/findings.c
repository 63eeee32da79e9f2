/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings.c - the names of findings, and a list of those of one dump
 *
 * Names are kvtool-fsck(1)'s and stay.  Of one rule the first 16 findings are kept,
 * and all are counted, so that a damaged file of a million blocks is told in a page.
 */
#include "lib/ops/check/check.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

static const struct kvt_rule rules[] = {
	{ "file.unreadable", KVT_ERROR, "a file, or its data, that cannot be read" },
	{ "file.leftover", KVT_WARNING, "an incomplete output that a killed process "
					"left" },
	{ "file.empty", KVT_ERROR, "a file or value without a byte" },
	{ "file.foreign", KVT_ERROR, "a file whose name none of its tree has" },
	{ "file.short", KVT_NOTE, "shorter than others: cut, or the last of its "
				  "request" },
	{ "prompt.missing", KVT_NOTE, "blocks of a prompt that are not there" },
	{ "prompt.unreachable", KVT_WARNING, "blocks of a prompt behind one that is "
					     "not there" },
	{ "store.stale", KVT_NOTE, "records that were written over, or are damaged" },
	{ "pool.missing", KVT_ERROR, "a page of other pools or ranks is not in this "
				     "one" },
	{ "pool.orphan", KVT_WARNING, "a page of a pool without keys and values" },
	{ "pool.size", KVT_ERROR, "pages of a pool that differ in size" },
	{ "pool.partial", KVT_NOTE, "a pool that lacks most pages" },
	{ "manifest.mismatch", KVT_ERROR, "a manifest that belongs to other data" },
	{ "group.count", KVT_ERROR, "no group, or too many" },
	{ "group.id", KVT_ERROR, "a group without an id" },
	{ "group.duplicate", KVT_ERROR, "two groups of one id" },
	{ "group.kind", KVT_ERROR, "a group of no known kind" },
	{ "group.type", KVT_ERROR, "elements do not fit their type" },
	{ "group.extent", KVT_ERROR, "an impossible extent" },
	{ "group.kv", KVT_ERROR, "the extent of the kv axis is not 1 or 2" },
	{ "group.size", KVT_ERROR, "larger than 2^63 bytes" },
	{ "group.slots", KVT_ERROR, "slots, tokens a slot and block size disagree" },
	{ "layout.missing", KVT_ERROR, "a group without a layout" },
	{ "layout.misfit", KVT_ERROR, "the layout does not fit the shape" },
	{ "page.size", KVT_ERROR, "a page cannot hold its content" },
	{ "page.split", KVT_ERROR, "padded pages, but a page is not one run" },
	{ "content.type", KVT_ERROR, "packed content whose elements are not bytes" },
	{ "content.row", KVT_ERROR, "the size of rows does not match the content type" },
	{ "content.torn", KVT_ERROR, "the layout does not keep rows contiguous" },
	{ "content.rotation", KVT_WARNING, "whether numbers are rotated is not known" },
	{ "parts.count", KVT_ERROR, "too many parts of the content" },
	{ "parts.range", KVT_ERROR, "a part outside of the content" },
	{ "parts.duplicate", KVT_ERROR, "two parts of one name" },

	{ "kv.heads", KVT_ERROR, "keys and values of a layer that have other heads" },
	{ "tp.rank", KVT_ERROR, "a rank beyond the number of ranks" },
	{ "tp.heads", KVT_ERROR, "heads that the rank cannot hold" },
	{ "tp.replication", KVT_ERROR, "a number of replicas that does not follow from "
				       "the ranks" },
	{ "tp.partial", KVT_WARNING, "fewer heads than the rank should hold" },

	{ "layers.name", KVT_ERROR, "a layer without a name" },
	{ "layers.duplicate-name", KVT_ERROR, "two layers of one name in a group" },
	{ "layers.duplicate-id", KVT_ERROR, "two layers of one id in a group" },
	{ "layers.name-id", KVT_WARNING, "the number in a name is not the layer's id" },
	{ "layers.order", KVT_WARNING, "layers are not in the order of the model" },
	{ "layers.gap", KVT_WARNING, "a layer between others is in no group" },
	{ "layers.chosen", KVT_NOTE, "the ids of layers have gaps" },

	{ "blocks.duplicate-id", KVT_ERROR, "two blocks of one id in the pool" },
	{ "request.id", KVT_ERROR, "a request without an id" },
	{ "request.duplicate", KVT_ERROR, "two requests of one id" },
	{ "request.tokens", KVT_ERROR, "an impossible number of tokens" },
	{ "request.first-token", KVT_ERROR, "an impossible first token" },
	{ "request.holes", KVT_ERROR, "missing tokens that a request does not have" },
	{ "request.missing", KVT_NOTE, "tokens of a request have no slot" },
	{ "request.token-ids", KVT_WARNING, "fewer token ids than tokens" },
	{ "table.broken", KVT_ERROR, "a malformed block table" },
	{ "table.missing", KVT_ERROR, "a request with tokens, but no block table" },
	{ "table.too-short", KVT_ERROR, "more tokens than the blocks can hold" },
	{ "table.out-of-pool", KVT_ERROR, "a block that is not in the pool" },
	{ "table.null-block", KVT_ERROR, "the null block where a token should be" },
	{ "table.repeated", KVT_ERROR, "one block in two entries of a request" },
	{ "table.shared", KVT_ERROR, "two requests share a block, but not all before "
				     "it" },
	{ "table.shared-tokens", KVT_ERROR, "two requests share a block with different "
					    "tokens" },
	{ "table.spare", KVT_NOTE, "more blocks than the tokens need" },
	{ "valid.capacity", KVT_ERROR, "more valid slots than a block has" },
	{ "valid.short", KVT_ERROR, "fewer valid slots than requests hold" },
	{ "valid.excess", KVT_WARNING, "more valid slots than requests hold" },
	{ "null.out-of-pool", KVT_ERROR, "the null block is not in the pool" },
	{ "null.valid", KVT_WARNING, "the null block has valid slots" },

	{ "tile.damaged", KVT_ERROR, "a checksum of stored data is wrong" },
	{ "digest.cell", KVT_ERROR, "data is not what the stored digest says" },
	{ "live.nonfinite", KVT_ERROR,
	  "NaN or infinity in a live slot or a recurrent state" },
	{ "pool.nonfinite", KVT_WARNING, "NaN or infinity in slots that may be in use" },
	{ "stale.nonfinite", KVT_NOTE, "NaN or infinity in slots that no request uses" },
	{ "null.nonfinite", KVT_NOTE, "NaN or infinity in the null block" },
	{ "layer.zero", KVT_WARNING, "all live slots of a layer are zeros" },
	{ "component.zero", KVT_WARNING, "keys, values or another part are zeros, the "
					 "rest is not" },
	{ "head.zero", KVT_WARNING, "a head is zero in all live slots" },
	{ "live.zero", KVT_WARNING, "a live slot is all zeros" },
	{ "null.nonzero", KVT_NOTE, "the null block is not zero" },
	{ "stale.slots", KVT_NOTE, "slots that no request uses still hold old data" },
	{ "padding.nonzero", KVT_WARNING, "the padding of a page is not zero" },
	{ "row.tail", KVT_ERROR, "bytes after the last rank of a file are not zero" },
	{ "row.length", KVT_ERROR, "a file that is longer or shorter than the others" },
	{ "row.ranks", KVT_ERROR, "the bytes of rows fit another number of ranks" },
	{ "row.layout", KVT_ERROR, "the bytes of rows fit another order of slots and "
				   "heads" },
	{ "row.mixed", KVT_ERROR, "a file in another order than most files of its tree" },
	{ "row.foreign", KVT_WARNING, "a file that shares no row with the others" },

	{ "ranks.missing", KVT_ERROR, "a rank is in none of the files" },
	{ "ranks.duplicate", KVT_ERROR, "two files are of one rank" },
	{ "ranks.differ", KVT_ERROR, "ranks contradict each other about the model" },
	{ "ranks.coverage", KVT_ERROR, "all ranks together do not hold each head once" },
	{ "ranks.replicas", KVT_ERROR, "ranks hold different data of one head" },
	{ "ranks.unknown", KVT_NOTE, "it is not known which part of this kind a rank "
				     "holds" },

	{ "model.layer-missing", KVT_ERROR, "layers of the model have no tokens" },
	{ "model.state-missing", KVT_ERROR, "layers lack the model's recurrent state" },
	{ "model.request", KVT_ERROR, "a request has blocks in some groups alone" },
	{ "model.zero", KVT_ERROR, "layers of the model hold zeros alone" },
	{ "model.no-tables", KVT_WARNING, "tables tell of some groups alone" },
	{ "model.part", KVT_NOTE, "layers or ranks of the model that need not be there" },

	{ "region.unregistered", KVT_ERROR,
	  "a block of a region is not in registered memory" },
	{ "region.memory", KVT_WARNING, "two ranges of registered memory share bytes" },
	{ "region.kv", KVT_ERROR,
	  "keys and values are swapped, or split by one side alone" },
	{ "region.block-unit", KVT_ERROR,
	  "the kernel's blocks where the manager's count, or reversed" },
	{ "region.merged", KVT_ERROR,
	  "layers of unlike blocks merged into the region of one" },
	{ "region.block-len", KVT_ERROR,
	  "block_len is not what a block of the layer has" },
	{ "region.stride", KVT_ERROR, "the stride is not that of the layer" },
	{ "region.padding", KVT_ERROR, "the stride leaves out the padding of pages" },
	{ "region.base", KVT_ERROR, "a region is not where its layer is" },
	{ "region.blocks", KVT_ERROR,
	  "a region has more or fewer blocks than its layer" },
	{ "region.layer-twice", KVT_ERROR, "a layer is in two regions" },
	{ "region.layer-missing", KVT_ERROR, "a layer is in no region" },
	{ "region.overlay", KVT_ERROR, "layers share bytes of unlike blocks" },
	{ "region.overlap", KVT_ERROR, "regions share bytes, and it is not known whose" },
	{ "region.no-layers", KVT_NOTE, "a table without the layers of the engine" },
	{ "transfer.count", KVT_ERROR,
	  "prefill and decode have unlike numbers of regions" },
	{ "transfer.missing", KVT_ERROR, "only one side has a layer" },
	{ "transfer.layer", KVT_ERROR, "bytes land in another layer" },
	{ "transfer.kv", KVT_ERROR, "keys land where values should, or reversed" },
	{ "transfer.block", KVT_ERROR,
	  "bytes land in another block, or elsewhere in it" },
	{ "transfer.padding", KVT_ERROR, "one side counts padding in its blocks" },
	{ "transfer.block-len", KVT_ERROR,
	  "not all bytes of a block arrive, or too many" },
	{ "transfer.content", KVT_ERROR,
	  "a head of a block has other bytes on one side" },
};
enum { NRULES = sizeof(rules) / sizeof(rules[0]) };
_Static_assert(sizeof(rules) / sizeof(rules[0]) <= (size_t)KVT_MAX_RULES, "too many");

static const char *const severities[] = {
	[KVT_NOTE] = "note", [KVT_WARNING] = "warning", [KVT_ERROR] = "error",
};

const char *kvt_severity_name(enum kvt_severity severity)
{
	return severities[severity];
}

const struct kvt_rule *kvt_rule_at(int i)
{
	return i >= 0 && i < NRULES ? &rules[i] : NULL;
}

static int find_rule(const char *name)
{
	int i = 0;

	while (i < NRULES && strcmp(rules[i].name, name))
		i++;
	assert(i < NRULES);
	return i;
}

/* ---- collecting --------------------------------------------------------- */

struct kvt_find_at kvt_find_at(const char *format, ...)
{
	struct kvt_find_at at;
	va_list args;

	va_start(args, format);
	vsnprintf(at.s, sizeof(at.s), format, args);
	va_end(args);
	return at;
}

/* NULL where it is only counted. */
static struct kvt_finding *new_finding(struct kvt_findings *r, int rule)
{
	r->total[rules[rule].severity]++;
	if (++r->count[rule] > KVT_MAX_FINDINGS)
		return NULL;
	if (!KVT_GROW(&r->finding, r->nfindings)) {
		r->out_of_memory = true;
		return NULL;
	}
	return &r->finding[r->nfindings++];
}

static void make_plain(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

void kvt_find(struct kvt_findings *r, const char *name, struct kvt_find_at at,
	      const char *format, ...)
{
	int rule = find_rule(name);
	struct kvt_finding *f = new_finding(r, rule);
	va_list args;

	if (!f)
		return;
	f->rule = rule;
	snprintf(f->at, sizeof(f->at), "%s", at.s);
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
	/* names are the file's and may hold what a terminal would obey */
	make_plain(f->at);
	make_plain(f->text);
}

void kvt_find_more(struct kvt_findings *r, const char *name, int64_t n)
{
	int rule = find_rule(name);

	r->count[rule] += n;
	r->total[rules[rule].severity] += n;
}

void kvt_findings_free(struct kvt_findings *r)
{
	free(r->finding);
	free(r->looked.unnoticed);
	free(r->looked.written_by);
	r->finding = NULL;
	r->looked.unnoticed = r->looked.written_by = NULL;
	r->nfindings = 0;
}
