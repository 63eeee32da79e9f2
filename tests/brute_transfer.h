/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brute_transfer.h - a transfer byte by byte, from the definitions
 *
 * Uses nothing of lib/ but its names of scopes: addresses, owners and runs are
 * worked out here again, one byte at a time.
 */
#ifndef BRUTE_TRANSFER_H
#define BRUTE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BL, BB, BS, BH, BK, BD, BNAXES };

/* One byte that moves. */
struct brute_byte {
	int64_t src, dst, entry;
	int layer, slice;
};

struct brute_run {
	int64_t src, dst, len;
};

struct brute_side {
	const char *layout;		/* axis string as in kvtool, written out */
	int64_t n[BNAXES];		/* of a rank */
	int64_t stride[BNAXES];		/* 0: dense */
	int64_t offset;
	int ranks;
	bool modulo;
};

/* A part of what ranks are dealt: heads, or x, B, C. */
struct brute_part {
	int units, rows;
};

struct brute_case {
	struct brute_side src, dst;
	int nparts;
	struct brute_part part[3];
	bool conv, tap_slices, state;	/* state: a block holds one state */
	int nrequests;
	int tokens[3];			/* slots to move */
	uint32_t ids[3][2][64];
	int scope;			/* 0 max, 1 rfc, 2 layer */
};

/* ---- addresses ---------------------------------------------------------- */

struct letter {
	int axis;
	int64_t div, n;
};

static const char brute_axes[] = "LBSHKD";

/* Letters of one plane, slowest first; "S/4" and "S%4" are its parts. */
static int brute_letters(struct letter *out, const char *text, const int64_t *n)
{
	int count = 0;

	while (*text && *text != 'V') {
		const char *at = strchr(brute_axes, *text);
		struct letter l;

		if (*text == ' ') {
			text++;
			continue;
		}
		if (*text == 'C') {	/* K, then D */
			out[count++] = (struct letter){ BK, 1, n[BK] };
			out[count++] = (struct letter){ BD, 1, n[BD] };
			text++;
			continue;
		}
		l = (struct letter){ (int)(at - brute_axes), 1, n[at - brute_axes] };
		text++;
		if (*text == '/') {
			l.div = text[1] - '0';
			l.n /= l.div;
			text += 2;
		} else if (*text == '%') {
			l.n = text[1] - '0';
			text += 2;
		}
		out[count++] = l;
	}
	return count;
}

static int64_t brute_address(const struct brute_side *s, const int64_t index[BNAXES])
{
	const char *text = s->layout, *values = strstr(text, "V:");
	struct letter l[12];
	int64_t at = s->offset, stride = 1;
	int n;

	if (values)
		text = index[BK] ? values + 2 : text + 2;
	n = brute_letters(l, text, s->n);
	for (int i = n - 1; i >= 0; i--) {
		int64_t own = s->stride[l[i].axis] ? s->stride[l[i].axis] : stride;

		at += index[l[i].axis] / l[i].div % l[i].n * own;
		stride *= l[i].n;
	}
	return at;
}

/* ---- owners ------------------------------------------------------------- */

static int brute_first(int units, int ranks, int rank, bool modulo)
{
	if (ranks > units && modulo)
		return rank % units;
	return ranks > units ? rank / (ranks / units) : rank * (units / ranks);
}

static int brute_count(int units, int ranks)
{
	return ranks > units ? 1 : units / ranks;
}

static bool brute_holds(int units, int ranks, int rank, bool modulo, int unit)
{
	int first = brute_first(units, ranks, rank, modulo);

	return unit >= first && unit < first + brute_count(units, ranks);
}

/* With modulo ranks have other names; grouped ones are found again. */
static int brute_grouped(int units, int ranks, int rank, bool modulo)
{
	if (!modulo || ranks <= units)
		return rank;
	return rank % units * (ranks / units) + rank / units;
}

static int brute_named(int units, int ranks, int grouped, bool modulo)
{
	for (int r = 0; r < ranks; r++)
		if (brute_grouped(units, ranks, r, modulo) == grouped)
			return r;
	return -1;
}

/* The rank that gives 'unit' of a part to destination rank d. */
static int brute_giver(const struct brute_case *c, int part, int d, int unit)
{
	int units = c->part[part].units, ns = c->src.ranks, nd = c->dst.ranks;
	int most = c->part[0].units;
	int g = brute_grouped(most, nd, d, c->dst.modulo), r;

	if (nd % ns == 0 || (ns % nd && units == 1)) {
		r = g * ns / nd;
	} else if (ns % nd == 0) {
		for (r = g * (ns / nd); r < (g + 1) * (ns / nd); r++)
			if (brute_holds(units, ns, r, false, unit))
				break;
	} else {
		for (r = 0; r < ns; r++)
			if (brute_holds(units, ns, r, false, unit))
				break;
	}
	return brute_named(most, ns, r, c->src.modulo);
}

/* Local position of row 'row' of a unit. */
static int brute_position(const struct brute_case *c, const struct brute_side *s,
			  int rank, int part, int unit, int row)
{
	int at = 0;

	for (int p = 0; p < part; p++)
		at += brute_count(c->part[p].units, s->ranks) * c->part[p].rows;
	unit -= brute_first(c->part[part].units, s->ranks, rank, s->modulo);
	return at + unit * c->part[part].rows + row;
}

/* ---- bytes -------------------------------------------------------------- */

static void brute_add(struct brute_byte *out, int64_t *n, const struct brute_case *c,
		      int64_t src[BNAXES], int64_t dst[BNAXES], int part, int64_t entry)
{
	int64_t taps = c->conv ? c->src.n[BS] : 1, width = c->conv ? 1 : c->src.n[BD];

	for (int64_t l = 0; l < c->src.n[BL]; l++)
	for (int64_t k = 0; k < c->src.n[BK]; k++)
	for (int64_t t = 0; t < taps; t++)
	for (int64_t d = 0; d < width; d++) {
		src[BL] = dst[BL] = l;
		src[BK] = dst[BK] = k;
		if (c->conv)
			src[BS] = dst[BS] = t;
		else
			src[BD] = dst[BD] = d;
		out[(*n)++] = (struct brute_byte){
			brute_address(&c->src, src), brute_address(&c->dst, dst),
			entry, (int)l, part * 8 + (c->tap_slices ? (int)t : 0) };
	}
}

static void brute_place(int64_t *block, int64_t *slot, const struct brute_side *s,
			const uint32_t *ids, int64_t t, bool one)
{
	int64_t slots = one ? 1 : s->n[BS];

	*block = ids[t / slots];
	*slot = t % slots;
}

/* Every byte that goes from one rank to another, requests one after the other. */
static int64_t brute_bytes(struct brute_byte *out, const struct brute_case *c, int sr,
			   int dr)
{
	int64_t n = 0;

	for (int q = 0; q < c->nrequests; q++)
	for (int t = 0; t < c->tokens[q]; t++)
	for (int p = 0; p < c->nparts; p++)
	for (int u = 0; u < c->part[p].units; u++) {
		int64_t src[BNAXES] = { 0 }, dst[BNAXES] = { 0 }, entry;

		if (!brute_holds(c->part[p].units, c->dst.ranks, dr, c->dst.modulo, u) ||
		    brute_giver(c, p, dr, u) != sr)
			continue;
		brute_place(&src[BB], &src[BS], &c->src, c->ids[q][0], t, c->state);
		brute_place(&dst[BB], &dst[BS], &c->dst, c->ids[q][1], t, c->state);
		entry = src[BB] * 65536 + dst[BB];
		for (int r = 0; r < c->part[p].rows; r++) {
			int axis = c->conv ? BD : BH;

			src[axis] = brute_position(c, &c->src, sr, p, u, r);
			dst[axis] = brute_position(c, &c->dst, dr, p, u, r);
			brute_add(out, &n, c, src, dst, p, entry);
		}
	}
	return n;
}

static int brute_order(const void *a, const void *b)
{
	const struct brute_byte *x = a, *y = b;

	if (x->src != y->src)
		return x->src < y->src ? -1 : 1;
	return (x->dst > y->dst) - (x->dst < y->dst);
}

static bool brute_same(const struct brute_byte *a, const struct brute_byte *b, int scope)
{
	if (b->src != a->src + 1 || b->dst != a->dst + 1)
		return false;
	if (scope == 0)
		return true;
	return a->entry == b->entry && a->slice == b->slice &&
	       (scope == 1 || a->layer == b->layer);
}

/* Sorts the bytes, drops those that two requests share, and joins runs. */
static int64_t brute_runs(struct brute_run *out, struct brute_byte *byte, int64_t *nbytes,
			  int scope)
{
	int64_t n = 0, kept = 0;

	qsort(byte, (size_t)*nbytes, sizeof(*byte), brute_order);
	for (int64_t i = 0; i < *nbytes; i++) {
		if (kept && byte[kept - 1].src == byte[i].src)
			continue;
		byte[kept++] = byte[i];
	}
	*nbytes = kept;
	for (int64_t i = 0; i < kept; i++) {
		if (i && brute_same(&byte[i - 1], &byte[i], scope))
			out[n - 1].len++;
		else
			out[n++] = (struct brute_run){ byte[i].src, byte[i].dst, 1 };
	}
	return n;
}

#endif
