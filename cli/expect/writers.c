/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writers.c - which backends of a release could have a cache, as lists of names
 *
 *	  vLLM 0.32  FLASH_ATTN, FLASH_ATTN_DIFFKV, FLEX_ATTENTION
 *
 *	{"release": "0.32", "possible": ["FLASH_ATTN", ..]}
 *
 * A backend is listed if vLLM has nothing against it in this configuration and, where
 * there is a group, if it could have put bytes where that has them.  Names beyond the
 * width of the screen, or 90 columns, go on below the first.
 */
#include "cli/expect/expect.h"
#include "print/out/screen.h"

#include <string.h>

/* Names by commas, on as many lines as they need, behind a label. */
struct name_list {
	const char *label;
	int column;			/* 0: nothing was printed so far */
};

bool backend_fits(const struct kvt_backend *backend,
		  const struct kvt_backend_config *config, const struct kvt_group *group)
{
	return !kvt_backend_check(backend, config) &&
	       (!group || kvt_backend_writes(backend, config, &group->layout,
					     &group->shape));
}

int name_list_width(void)
{
	enum { MOST = 90 };
	size_t screen = screen_width();

	return screen && screen < MOST ? (int)screen : MOST;
}

static void name_list_add(struct name_list *l, const char *name)
{
	enum { LABEL = NAME_COLUMN };
	int n = (int)strlen(name);
	/* a comma may follow */
	bool fits = l->column && l->column + 2 + n < name_list_width();

	if (!l->column)
		plainf("%-*s%s", LABEL, l->label, name);
	else if (fits)
		plainf(", %s", name);
	else
		plainf(",\n%*s%s", LABEL, "", name);
	l->column = fits ? l->column + 2 + n : LABEL + n;
}

static void name_list_end(struct name_list *l, const char *nothing)
{
	if (!l->column && nothing)
		name_list_add(l, nothing);
	if (l->column)
		putchar('\n');
}

void writers_text(const char *label, const struct kvt_backend_config *config,
		  const struct kvt_group *group, const char *nothing)
{
	struct name_list list = { label, 0 };
	const struct kvt_backend *b;

	for (int i = 0; (b = kvt_backend_at(i)); i++)
		if (backend_fits(b, config, group))
			name_list_add(&list, kvt_backend_name(b));
	name_list_end(&list, nothing);
}

void writers_json(struct json_out *out, json_t *o,
		  const struct kvt_backend_config *config, const struct kvt_group *group)
{
	json_t *names = json_put_array(out, o, "possible");
	const struct kvt_backend *b;

	json_put_text(out, o, "release", kvt_release_name(config->release));
	for (int i = 0; (b = kvt_backend_at(i)); i++)
		if (backend_fits(b, config, group))
			json_append_text(out, names, kvt_backend_name(b));
}
