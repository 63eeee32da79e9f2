/* SPDX-License-Identifier: Apache-2.0 */
/*
 * label.c - the first word of a line of text, and what is behind it
 *
 *	  layout    LBSHC (nhd)		for people: what follows begins in column 13
 *	layout\tLBSHC (nhd)		facts alone, which describe_set.c compares
 */
#include "print/out/say.h"

/* Behind a tab what a label says, for describe_set.c, which compares it. */
static bool facts_alone;

void labels_are_facts(bool yes)
{
	facts_alone = yes;
}

bool labels_facts_alone(void)
{
	return facts_alone;
}

void print_label(const char *text)
{
	plainf(facts_alone ? "%s\t" : "  %-10s", text);
}
