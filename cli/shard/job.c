/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - what a folder of results belongs to: a command, its inputs, its work list
 *
 * The fingerprint is a digest of a text:
 *
 *	kvtool VERSION n		n: of what results have inside
 *	word LENGTH:TEXT		of the command, but for --threads
 *	file LENGTH:PATH SIZE TIME	of each word that names one, or folder: all in it
 *	pass LABEL ABOUT PART UNITS BYTES
 *
 * What has another fingerprint is another job.
 */
#include "cli/shard/shard.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/shard/sharing.h"
#include "formats/file/reads.h"
#include "formats/parse/json.h"
#include "print/out/text_file.h"

/* Of what a result has inside: another number, another job. */
enum { RESULTS_VERSION = 2, MOST_JOB = 16 << 20 };

/* ---- the fingerprint --------------------------------------------------- */

static int visible(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

/* A file, or all files below a folder, by name; KVT_SYSTEM: nobody can tell. */
static enum kvt_status describe_path(FILE *out, const char *path, int depth,
				     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct dirent **entry = NULL;
	struct stat st;
	int n;

	if (stat(path, &st))
		return errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG ?
			KVT_OK :
			kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode)) {
		fplainf(out, "file %zu:%s %lld %lld.%ld\n", strlen(path), path,
			LL(st.st_size), LL(st.st_mtim.tv_sec), st.st_mtim.tv_nsec);
		return KVT_OK;
	}
	fplainf(out, "folder %zu:%s\n", strlen(path), path);
	if ((n = depth < 32 ? scandir(path, &entry, visible, alphasort) : 0) < 0)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	for (int i = 0; i < n; i++) {
		char below[PATH_MAX];

		if (!status && snprintf(below, sizeof(below), "%s/%s", path,
					entry[i]->d_name) < (int)sizeof(below))
			status = describe_path(out, below, depth + 1, err);
		free(entry[i]);
	}
	free(entry);
	return status;
}

static bool is_threads(const struct shard_job *job, int i)
{
	return !strncmp(job->argv[i], "--threads", 9) ||
	       (i && !strcmp(job->argv[i - 1], "--threads"));
}

/* A word, and the file that it names, or that its value names. */
static enum kvt_status describe_word(FILE *out, const struct shard_job *job, int i,
				     struct kvt_error *err)
{
	const char *word = job->argv[i], *value = word;

	if (is_threads(job, i))
		return KVT_OK;
	fplainf(out, "word %zu:%s\n", strlen(word), word);
	if (!strncmp(word, "--", 2) && strchr(word, '='))
		value = strchr(word, '=') + 1;
	if (i && *value && (!job->output || strcmp(value, job->output)))
		return describe_path(out, value, 0, err);
	return KVT_OK;
}

static enum kvt_status fingerprint(struct shard_job *job, struct kvt_error *err)
{
	struct text_output text = { .path = NULL };
	FILE *out = text_output_open(&text);
	enum kvt_status status = KVT_OK;
	struct kvt_digest d;

	if (!out)
		return kvt_no_memory(err, NULL);
	fplainf(out, "kvtool %s %d\n", KVT_VERSION, RESULTS_VERSION);
	for (int i = 0; !status && i < job->argc; i++)
		status = describe_word(out, job, i, err);
	for (int64_t p = 0; p < job->list.npasses; p++) {
		const struct kvt_pass *pass = &job->list.pass[p];

		fplainf(out, "pass %s %lld %lld %lld %lld\n", pass->label,
			LL(pass->about), LL(pass->part),
			LL(pass->count), LL(pass->nbytes));
	}
	if (!text_output_close(out))
		return kvt_no_memory(err, NULL);
	if (status) {
		free(text.text);
		return status;
	}
	d = kvt_digest_content(text.text, (int64_t)text.nbytes);
	snprintf(job->fingerprint, sizeof(job->fingerprint), "%016" PRIx64 "%016" PRIx64,
		 d.hi, d.lo);
	free(text.text);
	return KVT_OK;
}

enum kvt_status shard_job_finish(struct shard_job *job, struct kvt_error *err)
{
	enum kvt_status status = kvt_work_list_cut(&job->list, err);

	return status ? status : fingerprint(job, err);
}

void shard_job_free(struct shard_job *job)
{
	kvt_work_list_free(&job->list);
	free(job->output);
	job->output = NULL;
}

/* ---- job.json ---------------------------------------------------------- */

static void job_path(char *out, size_t room, const char *dir)
{
	snprintf(out, room, "%s/job.json", dir);
}

static char *job_text(const struct shard_job *job)
{
	json_t *o = json_pack("{si ss ss sI sI sI}", "kvtool_job", 1, "version",
			      KVT_VERSION, "fingerprint", job->fingerprint, "units",
			      (json_int_t)job->list.nunits, "unit_bytes",
			      (json_int_t)job->list.unit_bytes, "bytes",
			      (json_int_t)job->list.nbytes);
	json_t *words = json_array();
	bool good = o && words;
	char *text = NULL;

	for (int i = 0; good && i < job->argc; i++)
		good = is_threads(job, i) ||
		       !json_array_append_new(words, json_string(job->argv[i]));
	if (good && !json_object_set(o, "command", words))
		text = kvt_json_dump(o, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	json_decref(words);
	json_decref(o);
	return text;
}

static enum kvt_status same_text(const struct shard_job *job, const char *path,
				 struct kvt_error *err)
{
	char *is, *should = job_text(job);
	size_t nbytes;
	enum kvt_status status;

	if (!should)
		return kvt_no_memory(err, NULL);
	if (!(status = text_file_read_own(&is, &nbytes, path, MOST_JOB, err))) {
		if (nbytes != strlen(should) || memcmp(is, should, nbytes))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s is not what was written; remove it and run the shard again",
					  path);
		free(is);
	}
	free(should);
	return status;
}

/* Is it there, and the same job?  KVT_OK with *there false: there is none. */
static enum kvt_status check_job(bool *there, const struct shard_job *job,
				 const char *dir, struct kvt_error *err)
{
	struct shard_job_file file;
	char path[PATH_MAX];
	enum kvt_status status;

	job_path(path, sizeof(path), dir);
	*there = !access(path, F_OK);
	if (!*there)
		return KVT_OK;
	if ((status = shard_job_read(&file, dir, err)))
		return status;
	if (strcmp(file.fingerprint, job->fingerprint))
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s is of another command, or its inputs have changed; choose another --shard-dir",
				  dir);
	else
		status = same_text(job, path, err);
	shard_job_file_free(&file);
	return status;
}

static enum kvt_status write_job(const struct shard_job *job, const char *dir,
				 struct kvt_error *err)
{
	struct kvt_error why = { "" };
	char path[PATH_MAX], *text;
	enum kvt_status status;
	bool there = false;

	if ((status = check_job(&there, job, dir, err)) || there)
		return status;
	if (!(text = job_text(job)))
		return kvt_fail(err, KVT_BAD_INPUT,
				"a word of the command is not UTF-8, which shards need");
	job_path(path, sizeof(path), dir);
	status = text_file_write(path, text, strlen(text), true, &why);
	free(text);
	if (!status)
		return KVT_OK;
	/* another shard may have been first */
	if (check_job(&there, job, dir, err) || !there)
		return kvt_fail(err, status, "%s", why.text);
	return KVT_OK;
}

enum kvt_status shard_job_write(const struct shard_job *job, const char *dir,
				struct kvt_error *err)
{
	enum kvt_status status = kvt_reads_refuse(dir, err);
	bool made;

	if (status)
		return status;
	made = !mkdir(dir, 0777);
	if (!made && errno != EEXIST)
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot make the folder: %s", dir,
				strerror(errno));
	status = write_job(job, dir, err);
	/* it is empty, unless another shard has come; once more, as for a stage */
	if (status && made && rmdir(dir))
		(void)rmdir(dir);
	return status;
}

static enum kvt_status take_words(struct shard_job_file *out, const json_t *words,
				  const char *path, struct kvt_error *err)
{
	size_t n = json_array_size(words);

	if (n < 1 || n > SHARD_MAX_WORDS || !(out->argv = calloc(n + 1, sizeof(char *))))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s has no command; remove it and run the shards again",
				path);
	for (size_t i = 0; i < n; i++) {
		const char *word = json_string_value(json_array_get(words, i));

		if (!word || !(out->argv[out->argc++] = strdup(word)))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s has no command; remove it and run the shards again",
					path);
	}
	return KVT_OK;
}

enum kvt_status shard_job_read(struct shard_job_file *out, const char *dir,
			       struct kvt_error *err)
{
	char path[PATH_MAX], *text;
	const char *print;
	enum kvt_status status;
	size_t nbytes;
	struct kvt_error why;
	json_t *o = NULL;

	*out = (struct shard_job_file){ .argc = 0 };
	job_path(path, sizeof(path), dir);
	if (access(path, F_OK))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s has no job.json, as a folder of shards has", dir);
	if ((status = text_file_read_own(&text, &nbytes, path, MOST_JOB, err)))
		return status;
	status = kvt_json_parse(&o, text, nbytes, path, &why);
	free(text);
	if (status == KVT_SYSTEM)
		return kvt_fail(err, status, "%s", why.text);
	print = json_string_value(json_object_get(o, "fingerprint"));
	if (json_integer_value(json_object_get(o, "kvtool_job")) != 1 || !print ||
	    strlen(print) >= sizeof(out->fingerprint))
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: expected a job of kvtool; remove it and run the shards again",
				  path);
	else
		status = take_words(out, json_object_get(o, "command"), path, err);
	if (!status)
		strcpy(out->fingerprint, print);
	json_decref(o);
	if (status)
		shard_job_file_free(out);
	return status;
}

void shard_job_is_input(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	job_path(path, sizeof(path), dir);
	if (!stat(path, &st))
		kvt_reads_add(&st);
}

void shard_job_file_free(struct shard_job_file *file)
{
	for (int i = 0; i < file->argc; i++)
		free(file->argv[i]);
	free(file->argv);
	*file = (struct shard_job_file){ .argc = 0 };
}
