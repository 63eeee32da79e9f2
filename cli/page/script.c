/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.c - view.js as a text of the program, byte by byte
 *
 * The assembler reads the file; make knows that this one depends on it.
 */
#include <string.h>

#include "cli/page/page.h"

__asm__(".pushsection .rodata\n"
	"kvtool_view_script:\n"
	".incbin \"cli/page/view.js\"\n"
	".byte 0\n"
	".popsection\n");

extern const char script[] __asm__("kvtool_view_script");

void html_script(FILE *f)
{
	fputs("<script>\n", f);
	fwrite(script, 1, strlen(script), f);
	fputs("</script>\n", f);
}
