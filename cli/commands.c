/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands.c - the table of commands, for those that are in it
 *
 * main.c has the table, as it needs every command; help and reduce look others up.  So
 * that neither needs main.c, which needs both, it is handed down before a command runs.
 */
#include "cli/cli.h"

static const struct command_row *table;

void commands_are(const struct command_row *rows)
{
	table = rows;
}

const struct command *command_at(int i)
{
	return table[i].command;
}

const char *command_purpose(int i)
{
	return table[i].purpose;
}
