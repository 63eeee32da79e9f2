/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models.c - where models are, and reading one
 *
 * A NAME is a file or folder, or that of a file in the folder of models, or the id on a
 * hub of one of these.  Where there is none, names that have all words and numbers of
 * what was asked, in its order, are offered, or the nearest by spelling that has the
 * same numbers: llama-70b is no slip of llama-8b.
 */
#include "cli/models.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "formats/file/tree.h"
#include "lib/base/nearest.h"
#include "print/out/streams.h"
#include "print/out/text_file.h"

static const char ending[] = ".json";

/* ---- the folder --------------------------------------------------------- */

static enum kvt_status find_folder(char out[static PATH_MAX], const char *told,
				   struct kvt_error *err)
{
	if (!told && (beside_program(out, "models") ||
		      beside_program(out, "../share/kvtool/models")))
		return KVT_OK;
	if (!told)
		return kvt_fail(err, KVT_SYSTEM,
				"models and ../share/kvtool/models: no folder of models is there, seen from the program; --models=DIR says where one is");
	snprintf(out, PATH_MAX, "%s", told);
	if (!kvt_is_folder(out))
		return kvt_fail(err, KVT_SYSTEM, "%.400s: no folder of models is there",
				out);
	return KVT_OK;
}

static int is_model(const struct dirent *entry)
{
	return kvt_path_ends(entry->d_name, ending);
}

/* Names without their ending; free each, and the list. */
static enum kvt_status list(struct dirent ***names, int *n, const char *folder,
			    struct kvt_error *err)
{
	*n = scandir(folder, names, is_model, alphasort);
	if (*n < 0)
		return kvt_fail(err, KVT_SYSTEM, "%.400s: cannot read the folder: %s",
				folder, strerror(errno));
	for (int i = 0; i < *n; i++)
		*strrchr((*names)[i]->d_name, '.') = '\0';
	return KVT_OK;
}

static void list_free(struct dirent **names, int n)
{
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

/* ---- one model ---------------------------------------------------------- */

/* Standard input is text; all else is a file, or a folder of a model. */
static enum kvt_status read_file(struct kvt_model_config *out, const char *path,
				 const struct kvt_config_hints *hints,
				 struct kvt_error *err)
{
	enum { MOST = 16 << 20 };
	enum kvt_status status;
	size_t nbytes;
	struct stat st;
	char *text;

	if (!is_stream(path) && !stat(path, &st) &&
	    (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		return kvt_model_open(out, path, hints, err);
	if ((status = text_file_read(&text, &nbytes, path, MOST, err)))
		return status;
	status = kvt_model_config_parse(out, text, nbytes, text_file_name(path), hints,
					err);
	free(text);
	return status;
}

static enum kvt_status read_named(struct kvt_model_config *out, const char *folder,
				  const char *name, const struct kvt_config_hints *hints,
				  struct kvt_error *err)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s%s", folder, name, ending) >=
	    (int)sizeof(path))
		return kvt_fail(err, KVT_USAGE, "the name of a model is too long");
	return read_file(out, path, hints, err);
}

/* Typed over by a slip or two; another number is another model. */
static bool same_digits(const char *a, const char *b)
{
	static const char digits[] = "0123456789";

	while (*(a += strcspn(a, digits)) && *(b += strcspn(b, digits)))
		if (*a++ != *b++)
			return false;
	return !*a && !*(b + strcspn(b, digits));
}

/* The last part of "meta-llama/Llama-3.1-8B", in small letters. */
static void small_name(char out[static 64], const char *name)
{
	const char *slash = strrchr(name, '/');

	snprintf(out, 64, "%s", slash ? slash + 1 : name);
	for (; *out; out++)
		*out = (char)tolower((unsigned char)*out);
}

static size_t run_of_digits(const char *text)
{
	return strspn(text, "0123456789");
}

/* "llama" and "70" of "llama70"; 0 behind the last one. */
static size_t next_run(const char **text)
{
	*text += strspn(*text, "-_. ");
	return run_of_digits(*text) ? run_of_digits(*text) :
				      strcspn(*text, "-_. 0123456789");
}

/* Has 'name' all words and numbers of 'asked', in that order: "llama70", "qwen3"? */
static bool has_runs(const char *name, const char *asked)
{
	size_t want, have;

	for (; (want = next_run(&asked)); asked += want, name += have)
		while ((have = next_run(&name)) != want || memcmp(name, asked, want)) {
			if (!have)
				return false;
			name += have;
		}
	return true;
}

/* The names that the asked one may be short for; "" if there is none. */
static const char *short_for(char out[static 160], const char *asked,
			     struct dirent *const *names, int n)
{
	size_t used = 0;

	out[0] = 0;
	for (int i = 0; i < n && used < 120; i++) {
		const char *name = names[i]->d_name;

		if (!has_runs(name, asked))
			continue;
		used += (size_t)snprintf(out + used, 160 - used, "%s%.30s",
					 used ? ", " : "", name);
		if (used >= 120)
			snprintf(out + used, 160 - used, ", ...");
	}
	return out;
}

static enum kvt_status no_such(const char *name, const char *folder,
			       struct kvt_error *err)
{
	struct dirent **names;
	struct kvt_nearest near;
	enum kvt_status status;
	char small[64], some[160];
	int n;

	if ((status = list(&names, &n, folder, err)))
		return status;
	small_name(small, name);
	near = kvt_nearest_start(small);
	for (int i = 0; i < n; i++)
		if (same_digits(small, names[i]->d_name))
			kvt_nearest_offer(&near, names[i]->d_name);
	if (near.distance > 2 && model_like_id(name))
		kvt_fail(err, KVT_USAGE,
			 "there is no model '%.60s', did you mean '%s'? If it is another, give its config.json: --model=FILE",
			 name, model_like_id(name));
	else if (near.distance <= 2)
		kvt_fail(err, KVT_USAGE, "there is no model '%.60s', did you mean '%s'?",
			 name, near.best);
	else if (*small && *short_for(some, small, names, n))
		kvt_fail(err, KVT_USAGE,
			 "there is no model '%.60s'; of that name there are: %s",
			 name, some);
	else
		kvt_fail(err, KVT_USAGE,
			 "there is no model '%.60s'; --model=list prints the %d that are known; for any other give its config.json: --model=FILE",
			 name, n);
	list_free(names, n);
	return KVT_USAGE;
}

static bool is_there(const char *folder, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	return snprintf(path, sizeof(path), "%s/%s%s", folder, name, ending) <
	       (int)sizeof(path) && !stat(path, &st);
}

enum kvt_status model_read(struct kvt_model_config *out, const char *name,
			   const char *folder, const struct kvt_config_hints *hints,
			   struct kvt_error *err)
{
	bool exists = is_stream(name) || !access(name, F_OK);
	char path[PATH_MAX];
	enum kvt_status status;

	if (is_stream(name) || strstr(name, ending) || strstr(name, ".gguf") ||
	    (strchr(name, '/') && exists))
		return read_file(out, name, hints, err);
	if ((status = find_folder(path, folder, err)))
		return status;
	if (model_of_id(name))
		name = model_of_id(name);
	if (is_there(path, name) && !strchr(name, '/'))
		return read_named(out, path, name, hints, err);
	return exists ? read_file(out, name, hints, err) : no_such(name, path, err);
}

enum kvt_status model_said(const char **out, const struct model_words *words,
			   struct kvt_error *err)
{
	*out = words->config ? words->config : words->model;
	if (words->config && words->model)
		return kvt_fail(err, KVT_USAGE,
				"--model and --config are one option with two names: give one of them");
	return KVT_OK;
}

bool model_list_asked(const struct model_words *words)
{
	const char *said = words->config ? words->config : words->model;

	return said && !strcmp(said, "list");
}

/* ---- all ---------------------------------------------------------------- */

static enum kvt_status print(const char *folder, const char *name, struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_model_config config;
	enum kvt_status status = read_named(&config, folder, name, &none, err);

	for (int i = 0; !status && i < config.model.ngroups; i++)
		plainf("%-20s %-8s %s\n", name, config.model.group[i].name,
		       kvt_model_group_text(&config.model.group[i]).s);
	return status;
}

enum kvt_status models_print(const char *folder, struct kvt_error *err)
{
	char path[PATH_MAX];
	struct dirent **names;
	enum kvt_status status;
	int n;

	if ((status = find_folder(path, folder, err)) ||
	    (status = list(&names, &n, path, err)))
		return status;
	for (int i = 0; !status && i < n; i++)
		status = print(path, names[i]->d_name, err);
	list_free(names, n);
	return status;
}
