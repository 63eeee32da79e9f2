/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size_held.c - what transformers holds of a request, kind by kind or layer by layer
 *
 * Layers whose objects are alike are one line with their numbers for people; JSON has
 * each layer by itself, with the tensors as its object's attributes are called, so that
 * it can be compared with a cache that the library made.
 */
#include "print/size.h"

#include <stdio.h>
#include <string.h>

#include "print/out/json_out.h"
#include "print/out/say.h"

static int64_t elem_of(const struct size_report *r, const struct kvt_held_tensor *t)
{
	return t->wide ? 4 : r->held->dtype->elem;
}

static const char *type_of(const struct size_report *r, const struct kvt_held_tensor *t)
{
	return t->wide ? "float32" : r->held->dtype->name;
}

/* Shapes are of numbers up to 2^20, and tokens: no sum is beyond a double. */
static double tensor_bytes(const struct size_report *r, const struct kvt_held_tensor *t)
{
	double n = (double)elem_of(r, t);

	for (int i = 0; i < t->ndims; i++)
		n *= (double)t->shape[i];
	return n;
}

static double layer_bytes(const struct size_report *r, const struct kvt_held_kind *of)
{
	double n = 0;

	for (int i = 0; i < of->ntensors; i++)
		n += tensor_bytes(r, &of->tensor[i]);
	return n;
}

double size_held_bytes(const struct size_report *r)
{
	double n = 0;

	for (int64_t i = 0; i < r->held->layers; i++)
		n += layer_bytes(r, &r->held->of[r->held->kind[i]]);
	return n;
}

/* ---- text ------------------------------------------------------------------ */

/* "0-2, 4-6", cut short where there is no room. */
static void list_layers(char out[static 64], const struct kvt_held *held, int kind)
{
	int64_t at = 0;
	size_t n = 0;

	*out = '\0';
	while (at < held->layers && n < 40) {
		int64_t begin = at;

		while (at < held->layers && held->kind[at] == kind)
			at++;
		if (at > begin)
			n += (size_t)snprintf(out + n, 64 - n, at - begin > 1 ?
					      "%s%lld-%lld" : "%s%lld", n ? "," : "",
					      LL(begin), LL(at - 1));
		at += at == begin;
	}
	for (; at < held->layers; at++)
		if (held->kind[at] == kind) {
			snprintf(out + n, 64 - n, ",...");
			return;
		}
}

static void print_tensor(const struct size_report *r, const struct kvt_held_tensor *t)
{
	char name[40];

	snprintf(name, sizeof(name), t->index < 0 ? "%s" : "%s[%d]", t->name, t->index);
	plainf("    %-20s %-10s", name, type_of(r, t));
	for (int i = 0; i < t->ndims; i++)
		plainf("%s%lld", i ? " x " : " ", LL(t->shape[i]));
	plainf("\n");
}

void size_held_text(const struct size_report *r)
{
	const struct kvt_held *held = r->held;
	char layers[64];

	plainf("%s: %s, %lld layers in a %s, %lld tokens\n", r->path, r->config.family,
	       LL(held->layers), held->cache, LL(held->tokens));
	for (int i = 0; i < r->config.nnotes; i++)
		plainf("  note: %s\n", r->config.note[i]);
	for (int k = 0; k < KVT_HELD_KINDS; k++) {
		const struct kvt_held_kind *of = &held->of[k];

		if (!memchr(held->kind, k, (size_t)held->layers))
			continue;
		list_layers(layers, held, k);
		plainf("  %s: %s", layers, of->type);
		if (of->window)
			plainf(", window %lld", LL(of->window));
		plainf(", %.0f bytes each\n", layer_bytes(r, of));
		for (int i = 0; i < of->ntensors; i++)
			print_tensor(r, &of->tensor[i]);
	}
	plainf("  in all: %.0f bytes\n", size_held_bytes(r));
}

/* ---- JSON ------------------------------------------------------------------ */

static void put_tensor(struct json_out *out, json_t *array, const struct size_report *r,
		       const struct kvt_held_tensor *t)
{
	json_t *o = json_append_object(out, array);

	json_put_text(out, o, "name", t->name);
	json_put_known(out, o, "index", t->index, t->index >= 0);
	json_put_text(out, o, "dtype", type_of(r, t));
	json_put_ints(out, o, "shape", t->ndims, t->shape);
}

static void put_layer(struct json_out *out, json_t *array, const struct size_report *r,
		      int64_t layer)
{
	const struct kvt_held_kind *of = &r->held->of[r->held->kind[layer]];
	json_t *o = json_append_object(out, array), *tensors;

	json_put_int(out, o, "layer", layer);
	json_put_text(out, o, "type", of->type);
	json_put_known(out, o, "sliding_window", of->window, of->window);
	json_put_int(out, o, "bytes", (int64_t)layer_bytes(r, of));
	tensors = json_put_array(out, o, "tensors");
	for (int i = 0; i < of->ntensors; i++)
		put_tensor(out, tensors, r, &of->tensor[i]);
}

enum kvt_status size_held_json(const struct size_report *r, struct kvt_error *err)
{
	const struct kvt_held *held = r->held;
	struct json_out out;
	json_t *array;

	json_start(&out);
	json_put_text(&out, out.root, "engine", "transformers");
	json_put_text(&out, out.root, "config", r->path);
	json_put_text(&out, out.root, "family", r->config.family);
	json_put_int(&out, out.root, "layers", held->layers);
	json_put_text(&out, out.root, "cache", held->cache);
	json_put_text(&out, out.root, "cache_dtype", held->dtype->name);
	json_put_int(&out, out.root, "tokens", held->tokens);
	json_put_int(&out, out.root, "request_bytes", (int64_t)size_held_bytes(r));
	array = json_put_array(&out, out.root, "notes");
	for (int i = 0; i < r->config.nnotes; i++)
		json_append_text(&out, array, r->config.note[i]);
	array = json_put_array(&out, out.root, "cache_layers");
	for (int64_t i = 0; i < held->layers; i++)
		put_layer(&out, array, r, i);
	return json_print(&out, false, err);
}
