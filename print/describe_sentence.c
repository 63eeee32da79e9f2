/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_sentence.c - a dump as a person would say it
 *
 *   bf16 K and V of 5 layers, 4 heads of 8, blocks of 16 tokens; NHD; 3 requests,
 *   689 tokens; 480 KiB
 *
 * Of several groups only what tells them apart: the table below has the rest.
 */
#include "print/out/say.h"
#include "print/describe.h"

#include <ctype.h>
#include <string.h>

enum { MOST_GROUPS = 4 };

/* "bf16": a shorter name of engines that has the number of bits, too. */
static const char *short_type(const struct kvt_dtype *type)
{
	for (int i = 0; type->alias[i]; i++)
		if (strpbrk(type->alias[i], "0123456789") &&
		    strlen(type->alias[i]) < strlen(type->name))
			return type->alias[i];
	return type->name;
}

static const char *what(const struct kvt_group *group)
{
	int half = kvt_group_half(group);

	if (half >= 0)
		return half ? "V" : "K";
	if (group->shape.n[KVT_AXIS_K] == 2)
		return "K and V";
	if (kvt_is_recurrent(group->kind))
		return group->kind == KVT_MAMBA_CONV ? "conv states" : "SSM states";
	/* as the readers of caches call that group */
	if (!strncmp(group->id, "indexer", strlen("indexer")))
		return "indexer keys";
	return group->kind == KVT_MLA ? "latents" : "content";
}

static void say_group(FILE *f, const struct kvt_group *group)
{
	int64_t layers = group->shape.n[KVT_AXIS_L];

	fplainf(f, "%s %s of %lld layer%s", group->content.type ?
	       kvt_group_type(group).s : short_type(group->dtype), what(group),
	       LL(layers), plural(layers));
}

static void say_shape(FILE *f, const struct kvt_group *group)
{
	const char *unit = group->content.type ? " bytes" : "";
	const int64_t *n = group->shape.n;

	if (group->total_heads > n[KVT_AXIS_H])
		fplainf(f, ", %lld of %lld heads of %lld%s", LL(n[KVT_AXIS_H]),
		       LL(group->total_heads), LL(n[KVT_AXIS_D]), unit);
	else if (n[KVT_AXIS_K] == 2 || n[KVT_AXIS_H] > 1)
		fplainf(f, ", %lld head%s of %lld%s", LL(n[KVT_AXIS_H]),
		       plural(n[KVT_AXIS_H]), LL(n[KVT_AXIS_D]), unit);
	else
		fplainf(f, ", rows of %lld%s", LL(n[KVT_AXIS_D]), unit);
	if (group->block_size)
		fplainf(f, ", blocks of %lld token%s", LL(group->block_size),
		       plural(group->block_size));
}

/* NHD; names that are more than letters as --layout takes them. */
static void say_layout(FILE *f, const struct kvt_layout *layout)
{
	const char *name = kvt_layout_name(layout, 0);
	char capitals[32];
	size_t n = 0;

	while (name && isalpha((unsigned char)name[n]) && n + 1 < sizeof(capitals)) {
		capitals[n] = (char)toupper((unsigned char)name[n]);
		n++;
	}
	capitals[n] = '\0';
	fplainf(f, "; %s", !name ? kvt_layout_string(layout).s :
		name[n] ? name : capitals);
}

static void say_requests(FILE *f, const struct kvt_snapshot *s)
{
	int64_t tokens = 0;

	if (!s->nrequests)
		return;
	for (int64_t r = 0; r < s->nrequests; r++)
		tokens += s->request[r].ntokens;
	fplainf(f, "; %lld request%s, %lld token%s", LL(s->nrequests),
	       plural(s->nrequests), LL(tokens), plural(tokens));
}

void describe_sentence(FILE *f, const struct kvt_description *d)
{
	const struct kvt_snapshot *s = d->snapshot;

	if (!s->ngroups)
		return;
	fputs("  ", f);
	for (int g = 0; g < s->ngroups && g < MOST_GROUPS; g++) {
		fputs(g ? ", " : "", f);
		say_group(f, &s->group[g]);
		if (s->ngroups > 1)
			fplainf(f, " (%s)", s->group[g].id);
	}
	if (s->ngroups > MOST_GROUPS)
		fplainf(f, ", and %d more group%s", s->ngroups - MOST_GROUPS,
		       plural(s->ngroups - MOST_GROUPS));
	if (s->ngroups == 1) {
		say_shape(f, &s->group[0]);
		say_layout(f, &s->group[0].layout);
	}
	say_requests(f, s);
	fplainf(f, "; %s\n", kvt_size_string(d->data_bytes).s);
}
