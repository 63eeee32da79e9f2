/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_sim.c - kvtool transfer-sim: the modes, each a command of its own
 *
 *	MODE ..		that mode, with its name as argv[0]
 *	WORD ..		KVT_USAGE, with the nearest mode: it is no option, has no '.' or
 *			'/', and no file has that name
 *	else		plan, with "" as argv[0]
 */
#include "sim/cmd/options.h"

#include <string.h>
#include <unistd.h>

#include "lib/base/nearest.h"

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
	&transfer_matrix,
	&transfer_compare,
	&transfer_emit,
	&transfer_calibrate,
	&transfer_topology,
	&transfer_receive,
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

/* No option, nothing that is there, nothing that looks like the name of a file. */
static bool is_word(const char *text)
{
	return text[0] != '-' && !strpbrk(text, "./") && access(text, F_OK);
}

static enum kvt_status no_mode(const char *word, struct kvt_error *err)
{
	struct kvt_error names = { "" };
	struct kvt_nearest near = kvt_nearest_start(word);
	size_t n = 0;

	for (int i = 0; i < NMODES; i++) {
		kvt_nearest_offer(&near, mode_name(modes[i]));
		n += (size_t)snprintf(names.text + n, sizeof(names.text) - n, "%s%s",
				      i ? ", " : "", mode_name(modes[i]));
	}
	if (kvt_nearest_found(&near))
		return kvt_fail(err, KVT_USAGE, "there is no mode '%.40s'%s", word,
				kvt_nearest_hint(&near, "").s);
	return kvt_fail(err, KVT_USAGE,
			"there is no mode '%.40s', and no such file: modes are %.200s",
			word, names.text);
}

static void print_help(void)
{
	puts("usage: kvtool transfer-sim [MODE] [OPTION]... "
	     "[SRC DST | SRC... --dst=...]\n\nmodes:");
	for (int i = 0; i < NMODES; i++)
		plainf("  %-10s %s\n", mode_name(modes[i]), modes[i]->summary);
	plainf("\nWithout a mode it is %s.  'kvtool transfer-sim MODE --help' says "
	       "more.\n--model=list, --link=list and --emulate=list print what is known; "
	       "'kvtool help specs'\nsays what --spec takes.\n\nexamples:\n",
	       mode_name(modes[0]));
	fputs(modes[0]->examples, stdout);
}

/* Without a mode argv[0] is the command's name, and messages have no mode. */
static enum kvt_status run_default(int argc, char **argv, struct kvt_error *err)
{
	char none[] = "";

	argv[0] = none;
	return modes[0]->run(argc, argv, err);
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
	if (argc > 1 && is_word(argv[1]))
		return no_mode(argv[1], err);
	return run_default(argc, argv, err);
}

const struct command cmd_transfer_sim = {
	.name = TRANSFER_SIM,
	.args = "[MODE] [SRC DST]",
	.shards = "sweep",
	.summary = "plan, run and time a transfer between two deployments",
	.run = run,
};
