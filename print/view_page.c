/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_page.c - a page that stands for itself: JSON, and the script that draws it
 *
 *	<noscript>..</noscript>
 *	<script type="application/json" id="data">view_json()'s object</script>
 *	<script>view.js</script>
 *
 * The object is ASCII, without blanks, and has \u003c for '<': no text of a dump can end
 * its element.
 */
#include "print/out/say.h"
#include "print/page/page.h"
#include "print/view.h"

/* In a script element nothing is escaped, but it ends at "</". */
static int put_json(const char *text, size_t n, void *stream)
{
	for (size_t i = 0; i < n; i++)
		if (text[i] == '<' ? fputs("\\u003c", stream) < 0 :
				     fputc(text[i], stream) == EOF)
			return -1;
	return 0;
}

enum kvt_status view_page(FILE *f, const struct view *view, struct kvt_error *err)
{
	struct json_out out;
	bool bad;

	view_json(&out, view);
	html_begin(f, view->n == 1 ? view->dump[0].facts.path : "kvtool view");
	fputs("<noscript>This page is drawn by a script.</noscript>\n"
	      "<script type=\"application/json\" id=\"data\">", f);
	bad = out.failed || json_dump_callback(out.root, put_json, f,
					       JSON_COMPACT | JSON_ENSURE_ASCII |
					       JSON_REAL_PRECISION(15));
	fputs("</script>\n", f);
	html_script(f);
	html_end(f);
	json_free(&out);
	return bad ? kvt_no_memory(err, NULL) : KVT_OK;
}
