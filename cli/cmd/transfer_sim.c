/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_sim.c - kvtool transfer-sim: the modes, each a command of its own */
#include "cli/cmd/transfer/options.h"

#include <string.h>

/* The first is what is meant if none is named. */
static const struct command *const modes[] = {
	&transfer_plan,
	&transfer_exec,
	&transfer_wire,
	&transfer_time,
	&transfer_replay,
	&transfer_faults,
	&transfer_report,
	&transfer_sweep,
	&transfer_compare,
	&transfer_emit,
	&transfer_calibrate,
};
enum { NMODES = sizeof(modes) / sizeof(modes[0]) };

/* "transfer-sim plan" is called plan. */
static const char *mode_name(const struct command *mode)
{
	return strchr(mode->name, ' ') + 1;
}

/* A file that is named like a mode is written ./plan. */
static const struct command *mode_of(int argc, char **argv)
{
	for (int i = 0; argc > 1 && i < NMODES; i++)
		if (!strcmp(argv[1], mode_name(modes[i])))
			return modes[i];
	return NULL;
}

static void print_help(void)
{
	puts("usage: kvtool transfer-sim [MODE] [OPTION]... [SRC DST]\n\nmodes:");
	for (int i = 0; i < NMODES; i++)
		plainf("  %-10s %s\n", mode_name(modes[i]), modes[i]->summary);
	plainf("\nWithout a mode it is %s.  'kvtool transfer-sim MODE --help' says "
	       "more.\n\nexamples:\n", mode_name(modes[0]));
	fputs(modes[0]->examples, stdout);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	const struct command *mode = mode_of(argc, argv);

	if (mode)
		return mode->run(argc - 1, argv + 1, err);
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		print_help();
		return KVT_OK;
	}
	if (argc == 2 && !strcmp(argv[1], "--list-modes")) {
		for (int i = 0; i < NMODES; i++)
			plainf("%s\n", mode_name(modes[i]));
		return KVT_OK;
	}
	return modes[0]->run(argc, argv, err);
}

const struct command cmd_transfer_sim = {
	.name = "transfer-sim",
	.args = "[MODE] [SRC DST]",
	.summary = "plan, prove, run and time a transfer between two deployments",
	.run = run,
};
