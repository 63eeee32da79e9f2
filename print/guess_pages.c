/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess_pages.c - pages in another order than the layout says: what undoes it, as JSON
 *
 *	"pages": {"fault": .., "arguments": .., "text": "[S,H] rows under a shape of ..",
 *	          "said": .., "layout": .., "evidence": .., "undo": "kvtool mutate .."}
 *
 * null where they lie as the layout says, or not clearly otherwise.  The command of
 * "undo" has neither names of files nor the options that describe them.
 */
#include "print/guess_pages.h"

struct kvt_text guess_undo(const struct kvt_guess_pages *p)
{
	const struct kvt_window none = { .head_start = 0 };
	struct kvt_text text;

	snprintf(text.s, sizeof(text.s), "kvtool mutate --fault=%s,%.40s", p->fault->name,
		 kvt_fault_text(p->fault, &p->undo, &none).s);
	return text;
}

/* In one line, however long: it is pasted. */
void guess_pages_json(struct json_out *out, json_t *o, const struct kvt_guess_pages *p)
{
	const struct kvt_window none = { .head_start = 0 };
	json_t *pages = json_put_if(out, o, "pages", p && p->fault && p->clear);

	if (!pages)
		return;
	json_put_text(out, pages, "fault", p->fault->name);
	json_put_text(out, pages, "arguments",
		      kvt_fault_text(p->fault, &p->args, &none).s);
	json_put_text(out, pages, "text", p->text);
	json_put_text(out, pages, "said", kvt_layout_string(&p->said).s);
	json_put_text(out, pages, "layout", p->is_layout ?
		      kvt_layout_string(&p->layout).s : NULL);
	json_put_real(out, pages, "evidence", p->evidence);
	json_put_text(out, pages, "undo", guess_undo(p).s);
}
