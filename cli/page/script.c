/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.c - view.js as a text of the program, byte by byte
 *
 * The assembler reads the file; make knows that this one depends on it.
 */
#include "cli/page/page.h"

__asm__(".pushsection .rodata\n"
	".global kvtool_view_script\n"
	"kvtool_view_script:\n"
	".incbin \"cli/page/view.js\"\n"
	".byte 0\n"
	".popsection\n");
