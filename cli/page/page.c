/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.c - what every page and picture has: its frame, one style, and text from outside
 *
 * Colours are names (c0 to c9, r the rest, p what is meant, w what warns), said once here
 * for light and for dark ground.
 */
#include "cli/page/page.h"


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

/* Ten colours that stay apart on light and on dark ground. */
static const char *const colours[] = {
	":root{color-scheme:light dark;--bg:#fbfbfd;--card:#fff;--ink:#1c2030;",
	"--dim:#626a7f;--line:#dfe2ea;--rest:#e6e8ee;--accent:#2f6fde;--warm:#e08b2c;",
	"--deep:#0b3a7a;--pale:#eef3f9;",
	"--c0:#3b78e0;--c1:#f0932b;--c2:#22a06b;--c3:#d6455d;--c4:#8b62d6;",
	"--c5:#1fa5b8;--c6:#c4a000;--c7:#e2679f;--c8:#6f8f3a;--c9:#a8632f}\n",
	"@media(prefers-color-scheme:dark){:root{--bg:#11141b;--card:#191d27;",
	"--ink:#e6e9f2;--dim:#98a1b6;--line:#2b3140;--rest:#2a303d;--accent:#6a9df5;",
	"--warm:#eba856;--deep:#8ec1ff;--pale:#202838}}\n",
	"svg text{fill:var(--dim);",
	"font:11px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}",
	"svg text.on{fill:var(--ink)}\n",
	".r{fill:var(--rest)}.p{fill:var(--accent)}.w{fill:var(--warm)}",
	".g{stroke:var(--line);stroke-width:1}.m{fill:var(--accent)}\n",
	".c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}",
	".c4{fill:var(--c4)}.c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}",
	".c8{fill:var(--c8)}.c9{fill:var(--c9)}\n", NULL
};

static const char *const page[] = {
	"*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);",
	"font:15px/1.5 system-ui,'Segoe UI',Helvetica,Arial,sans-serif}\n",
	"main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}\n",
	"h1{font-size:1.6rem;margin:0 0 4px;letter-spacing:-.01em}",
	"h2{font-size:1.1rem;margin:0 0 10px}h3{font-size:.95rem;margin:0 0 6px}",
	"p{margin:0 0 10px}.dim{color:var(--dim)}\n",
	".card{background:var(--card);border:1px solid var(--line);border-radius:10px;",
	"padding:18px 20px;margin-top:18px}\n",
	".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));",
	"gap:14px;margin:18px 0 0;padding:0;list-style:none}",
	".facts li{background:var(--card);border:1px solid var(--line);"
	"border-radius:10px;",
	"padding:12px 16px}.facts b{display:block;font-size:1.35rem;",
	"font-variant-numeric:tabular-nums;line-height:1.3}\n",
	".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));",
	"gap:22px}@media(max-width:520px){.two{grid-template-columns:1fr}}\n",
	"svg{display:block;width:100%;height:auto}\n",
	"table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}",
	"th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid "
	"var(--line)}",
	"th{font-weight:600;color:var(--dim);"
	"white-space:nowrap}td.n,th.n{text-align:right}\n",
	".k{display:inline-block;width:.8em;height:.8em;border-radius:2px;",
	"margin:0 .35em 0 0}.k+span{margin-right:1.2em}\n",
	".b0{background:var(--c0)}.b1{background:var(--c1)}.b2{background:var(--c2)}",
	".b3{background:var(--c3)}.b4{background:var(--c4)}.b5{background:var(--c5)}",
	".b6{background:var(--c6)}.b7{background:var(--c7)}.b8{background:var(--c8)}",
	".b9{background:var(--c9)}.br{background:var(--rest)}\n",
	"figure{margin:0 0 8px;overflow-x:auto}svg.pic{width:auto;max-width:100%}",
	"svg.pic:focus{outline:2px solid var(--accent);outline-offset:3px}",
	"p.says{min-height:1.5em;margin:4px 0 0;color:var(--dim);font-size:.85rem}\n",
	".lead{font-size:1.05rem}h2.group{margin:28px 0 0}.second{opacity:.62}",
	"svg text.in{fill:#fff;font-size:10px;pointer-events:none}",
	"svg text.on{pointer-events:none}svg text.dark{fill:var(--card)}",
	"rect.at{stroke:var(--ink);stroke-width:2}rect.lit{stroke:var(--c3);stroke-width:2}",
	"rect.null,rect.none{fill:none;stroke:var(--line)}rect.passed{opacity:.35}",
	"path.stroke{stroke:#fff;stroke-width:2}path.cross{stroke:var(--dim)}",
	"path.stroke,path.cross,rect.gap,rect.first{pointer-events:none}",
	"line.edge{stroke:var(--warm);stroke-dasharray:3 2}line.e5m2{stroke-dasharray:1 2}\n",
	".bar{display:flex;flex-wrap:wrap;gap:10px;align-items:center;margin:0 0 12px}",
	".choose{display:inline-flex;border:1px solid var(--line);border-radius:6px;",
	"overflow:hidden}button,select{font:inherit;font-size:.85rem;color:var(--dim);",
	"background:var(--card);border:0;padding:3px 10px;cursor:pointer}",
	"select,input{border:1px solid var(--line);border-radius:6px}",
	"input{font:inherit;font-size:.85rem;color:var(--ink);background:var(--bg);",
	"padding:3px 8px}input[aria-invalid=true]{border-color:var(--c3)}",
	"svg text.gap{font-style:italic}"
	"button[aria-pressed=true]{background:var(--ink);color:var(--bg)}\n",
	".verdict{border-left:4px solid var(--c2);background:var(--card);padding:10px 14px;",
	"border-radius:4px;margin:12px 0}.verdict.differs{border-color:var(--c3)}",
	"code{font:12.5px ui-monospace,'DejaVu Sans Mono',monospace;background:var(--bg);",
	"padding:2px 6px;border-radius:4px}rect.first{fill:none;stroke:var(--c3);stroke-width:2}\n",
	".small{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:10px}",
	".legend svg{display:inline-block;width:168px;vertical-align:-1px}",
	"rect.gap{fill:var(--ink)}line.fp16{stroke-dasharray:8 3}",
	"details.dump{margin-top:22px}summary{cursor:pointer;font-size:1.05rem}",
	".small p{overflow-wrap:anywhere;font-size:.85rem}.card+h1{margin-top:34px}",
	"@media print{.bar,p.says{display:none}.card{break-inside:avoid}}\n", NULL
};

/* A picture of its own also has headings, and no ground but what it draws. */
static const char *const document[] = {
	"svg text.h1{fill:var(--ink);font-size:22px;font-weight:600}",
	"svg text.h2{fill:var(--ink);font-size:14px;font-weight:600}",
	".bg{fill:var(--bg)}\n", NULL
};

static void put_style(FILE *f, const char *const *more)
{
	fputs("<style>\n", f);
	for (int i = 0; colours[i]; i++)
		fputs(colours[i], f);
	for (; *more; more++)
		fputs(*more, f);
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
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\" role=\"img\">\n<title>", width, height, width,
		height);
	html_text(f, title);
	fputs("</title>\n", f);
	put_style(f, document);
	fprintf(f, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", width, height);
}
