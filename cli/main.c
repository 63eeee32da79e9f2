/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the command table, and how kvtool begins and ends
 *
 *	command -> enum kvt_status -> finish(): a caught signal kills now; else the one
 *	sentence on standard error, standard output flushed and checked -> exit status
 *
 * The exit status is the number of the status (lib/kvt/base.h), made worse where what
 * was printed could not be written.  Nothing is printed here that a command should say
 * itself.
 */
#include "cli/cli.h"
#include "cli/shard/shard.h"
#include "formats/file/reads.h"
#include "lib/base/nearest.h"
#include "print/out/screen.h"
#include "print/out/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* As kvtool help has them: what people want to do, and with what. */
static const struct command_row commands[] = {
	{ "look",   &cmd_describe },
	{ NULL,     &cmd_view },
	{ NULL,     &cmd_where },
	{ NULL,     &cmd_digest },
	{ NULL,     &cmd_guess },
	{ "change", &cmd_relayout },
	{ NULL,     &cmd_convert },
	{ NULL,     &cmd_import },
	{ NULL,     &cmd_reblock },
	{ NULL,     &cmd_slice },
	{ NULL,     &cmd_merge },
	{ "check",  &cmd_doctor },
	{ NULL,     &cmd_diff },
	{ NULL,     &cmd_fsck },
	{ NULL,     &cmd_expect },
	{ NULL,     &cmd_mutate },
	{ NULL,     &cmd_shrink },
	{ "move",   &cmd_size },
	{ NULL,     &cmd_transfer_sim },
	{ "more",   &cmd_prefix },
	{ NULL,     &cmd_why },
	{ NULL,     &cmd_copy_blocks },
	{ NULL,     &cmd_workers },
	{ NULL,     &cmd_reduce },
	{ NULL,     &cmd_bench },
	{ NULL,     NULL },
};
enum { NCOMMANDS = sizeof(commands) / sizeof(commands[0]) - 1 };

static const struct command *command_find(const char *name)
{
	for (int i = 0; i < NCOMMANDS; i++)
		if (!strcmp(name, commands[i].command->name))
			return commands[i].command;
	return NULL;
}

/*
 * A file opened while 0, 1 or 2 is closed would take its number, and our
 * output would go into it.  The stand-ins fail when used the usual way.
 */
static void occupy_standard_streams(void)
{
	static const int mode[] = { O_WRONLY, O_RDONLY, O_RDWR };

	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", mode[fd]) < 0)
			return;
}

/* A full disk must not look like success. */
static enum kvt_status finish_output(struct kvt_error *err)
{
	bool failed = ferror(stdout);

	errno = 0;
	if (fclose(stdout) || failed)
		return kvt_fail(err, KVT_SYSTEM, "writing standard output: %s",
				errno ? strerror(errno) : "write failed");
	return KVT_OK;
}

static int finish(const struct command *command, enum kvt_status status,
		  struct kvt_error *err)
{
	struct kvt_error output = { "" };

	signals_die(status == KVT_SYSTEM);
	if (status && err->text[0])
		complain(command, "%s", err->text);
	if (finish_output(&output)) {
		signals_die(false);	/* a reader that went away is no error */
		fplainf(stderr, "kvtool%s%s: %s\n", command ? " " : "",
			command ? command->name : "", output.text);
		return worse(status, KVT_SYSTEM);
	}
	return status;
}

/* What people type who come from other tools. */
static const struct {
	const char *word, *command;
} synonyms[] = {
	{ "info", "describe" },	{ "show", "describe" },	{ "inspect", "describe" },
	{ "ls", "describe" },	{ "peek", "describe" },	{ "stats", "describe" },
	{ "cmp", "diff" },	{ "compare", "diff" },	{ "check", "fsck" },
	{ "verify", "fsck" },	{ "hash", "digest" },	{ "checksum", "digest" },
	{ "find", "where" },	{ "locate", "where" },	{ "split", "slice" },
	{ "extract", "slice" },	{ "join", "merge" },	{ "concat", "merge" },
	{ "export", "convert" },	{ "transpose", "relayout" },
	{ "corrupt", "mutate" },	{ "detect", "guess" },
	{ "minimize", "shrink" },	{ "minimise", "shrink" },
	{ "transfer", "transfer-sim" },	{ "replay", "transfer-sim replay" },
	{ "sweep", "transfer-sim sweep" },	{ "copy", "copy-blocks" },
};

static const char *meant(const char *word)
{
	struct kvt_nearest near;

	for (size_t i = 0; i < sizeof(synonyms) / sizeof(synonyms[0]); i++)
		if (!strcmp(synonyms[i].word, word))
			return synonyms[i].command;
	near = kvt_nearest_start(word);
	for (int i = 0; i < NCOMMANDS; i++)
		kvt_nearest_offer(&near, commands[i].command->name);
	return kvt_nearest_found(&near);
}

static enum kvt_status unknown_word(const char *word, struct kvt_error *err)
{
	if (word[0] == '-')
		return kvt_fail(err, KVT_USAGE,
				"unknown option '%.100s'; see kvtool --help", word);
	/* a file: the first thing that anybody tries */
	if (!meant(word) && !access(word, F_OK))
		return kvt_fail(err, KVT_USAGE,
				"'%.100s' is a file, not a command; to see what it is: kvtool describe %.100s",
				word, word);
	if (meant(word))
		return kvt_fail(err, KVT_USAGE,
				"unknown command '%.100s', did you mean '%s'?", word, meant(word));
	return kvt_fail(err, KVT_USAGE,
			"unknown command '%.100s'; kvtool help lists the commands, kvtool help how what they answer", word);
}

static enum kvt_status unknown_topic(const char *word, struct kvt_error *err)
{
	struct kvt_nearest near = kvt_nearest_start(word);
	const char *topic;

	for (int i = 0; (topic = topic_at(i)); i++)
		kvt_nearest_offer(&near, topic);
	if (!kvt_nearest_found(&near))
		return unknown_word(word, err);
	return kvt_fail(err, KVT_USAGE, "unknown topic '%.100s'%s", word,
			kvt_nearest_hint(&near, "").s);
}

/* ---- words that are no commands ----------------------------------------- */

static enum kvt_status help(const char *about, struct kvt_error *err)
{
	const struct command *command = about ? command_find(about) : NULL;
	char name[32], option[] = "--help";
	char *argv[] = { name, option, NULL };

	if (!about) {
		print_usage(stdout);
		return KVT_OK;
	}
	if (command) {
		snprintf(name, sizeof(name), "%s", command->name);
		return command->run(2, argv, err);
	}
	return print_topic(about) ? KVT_OK : unknown_topic(about, err);
}

static enum kvt_status version(const char *arg, struct kvt_error *err)
{
	(void)arg;
	(void)err;
	print_version();
	return KVT_OK;
}

static enum kvt_status plugin_dir(const char *arg, struct kvt_error *err)
{
	char folder[PATH_MAX];

	(void)arg;
	if (!plugin_folder(folder))
		return kvt_fail(err, KVT_SYSTEM,
				"the HDF5 plugin is neither in plugin nor in ../lib/kvtool/hdf5-plugin, seen from the program");
	plainf("%s\n", folder);
	return KVT_OK;
}

static enum kvt_status list_commands(const char *arg, struct kvt_error *err)
{
	(void)arg;
	(void)err;
	for (int i = 0; i < NCOMMANDS; i++)
		plainf("%s\n", commands[i].command->name);
	return KVT_OK;
}

static enum kvt_status list_options(const char *arg, struct kvt_error *err)
{
	(void)arg;
	(void)err;
	puts("--help\n--version\n--plugin-dir\n--color");
	return KVT_OK;
}

static const struct {
	const char *word;
	enum kvt_status (*run)(const char *arg, struct kvt_error *err);
} words[] = {
	{ "help",            help },
	{ "--help",          help },
	{ "-h",              help },
	{ "--version",       version },
	{ "-V",              version },
	{ "version",         version },
	{ "--plugin-dir",    plugin_dir },
	{ "--list-commands", list_commands },	/* these two for completion */
	{ "--list-options",  list_options },
};
enum { NWORDS = sizeof(words) / sizeof(words[0]) };

/* HDF5 1.10 ends the process, with -1, where it has no memory for an id. */
static bool leaving;

static void on_exit_of_others(void)
{
	static const char text[] = "kvtool: out of memory in HDF5\n";

	if (leaving)
		return;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(KVT_SYSTEM);
}

static int leave(enum kvt_status status)
{
	leaving = true;
	return status;
}

/* A dump may be thousands of files, and a part of one is two descriptors. */
static void allow_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
	struct kvt_error err = { "" };
	const struct command *command;

	atexit(on_exit_of_others);
	occupy_standard_streams();
	commands_are(commands);
	signals_ignore_limits();
	allow_files();
	kvt_reads_keep(true);
	if (screen_take_option(&argc, argv, &err))
		return leave(finish(NULL, KVT_USAGE, &err));
	if (argc < 2) {
		print_usage(stderr);
		return leave(KVT_USAGE);
	}
	for (int i = 0; i < NWORDS; i++)
		if (!strcmp(argv[1], words[i].word))
			return leave(finish(NULL, words[i].run(argv[2], &err), &err));
	command = command_find(argv[1]);
	if (!command)
		return leave(finish(NULL, unknown_word(argv[1], &err), &err));
	return leave(finish(command, run_command(command, argc - 1, argv + 1, &err),
			    &err));
}
