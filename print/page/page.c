/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.c - what every page and picture has: its frame, one style, and text from outside
 *
 *	a page		<!DOCTYPE html>.. <style>..</style>.. <main>..</main>..
 *	a picture	<svg viewBox=".." aria-labelledby=".."><title>..<desc>..</svg>
 *	one by itself	<?xml ..?><svg xmlns=".." ..><title>..<style>..<rect class="bg">
 *
 * Styles and script are files of this folder and bytes of the program (.incbin), so what
 * is written needs no other file.  In text from outside markup becomes entities, and a
 * byte that is not printable ASCII '?'.
 */
#include "print/page/page.h"

/* ---- text ---------------------------------------------------------------- */

void html_text(FILE *f, const char *text)
{
	static const char *const names[] = {
		['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;",
		['\''] = "&#39;",
	};

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c <= '>' && names[c])
			fputs(names[c], f);
		else
			fputc(c < ' ' || c >= 127 ? '?' : c, f);
	}
}

/* ---- the page ------------------------------------------------------------ */

/* A file of this folder as a text of the program; the Makefile knows that it is read. */
#define EMBED(name, file) \
	__asm__(".pushsection .rodata\n" \
		"kvtool_" #name ":\n" \
		".incbin \"print/page/" file "\"\n" \
		".byte 0\n" \
		".popsection\n"); \
	extern const char name[] __asm__("kvtool_" #name)

EMBED(colours, "colours.css");
EMBED(page, "page.css");
EMBED(script, "view.js");

static void put_style(FILE *f, const char *more)
{
	fputs("<style>\n", f);
	fputs(colours, f);
	fputs(more, f);
	fputs("</style>\n", f);
}

void html_begin(FILE *f, const char *title)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<title>", f);
	html_text(f, title);
	fputs("</title>\n", f);
	put_style(f, page);
	fputs("</head>\n<body>\n<main>\n", f);
}

void html_end(FILE *f)
{
	fputs("</main>\n</body>\n</html>\n", f);
}

void html_script(FILE *f)
{
	fputs("<script>\n", f);
	fputs(script, f);
	fputs("</script>\n", f);
}

/* ---- pictures ------------------------------------------------------------ */

void svg_begin(FILE *f, const struct svg_place *at, const char *id, int width,
	       int height, const char *title, const char *description)
{
	fputs("<svg ", f);
	if (at)
		fprintf(f, "x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" ", at->x, at->y,
			width, height);
	fprintf(f, "viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-t "
			"%s-d\">\n"
		"<title id=\"%s-t\">", width, height, id, id, id);
	html_text(f, title);
	fprintf(f, "</title>\n<desc id=\"%s-d\">", id);
	html_text(f, description);
	fputs("</desc>\n", f);
}

void svg_end(FILE *f)
{
	fputs("</svg>\n", f);
}

void svg_document_begin(FILE *f, int width, int height, const char *title)
{
	fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>", width, height, width,
		height);
	html_text(f, title);
	fputs("</title>\n", f);
	put_style(f, "");
	fprintf(f, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", width, height);
}
