/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_order.c - the list that says which chunks follow each other */
#include "formats/store/chunk_order.h"

#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"

enum { MAX_LIST = 64 << 20 };		/* bytes */

void kvt_chunk_order_free(struct kvt_chunk_order *order)
{
	free(order->list);
	free(order->runs);
	free(order->text);
	*order = (struct kvt_chunk_order){ 0 };
}

/* Room for as many requests, and runs in all of them. */
static enum kvt_status reserve(struct kvt_chunk_order *order, int64_t requests,
			       int64_t runs, const char *where, struct kvt_error *err)
{
	order->list = calloc((size_t)requests + 1, sizeof(*order->list));
	order->runs = calloc((size_t)runs + 1, sizeof(*order->runs));
	if (!order->list || !order->runs)
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", where);
	return KVT_OK;
}

static enum kvt_status each_alone(struct kvt_chunk_order *order,
				  const struct kvt_chunks *c, struct kvt_error *err)
{
	enum kvt_status status = reserve(order, c->nruns, c->nruns, c->where, err);

	for (int64_t i = 0; !status && i < c->nruns; i++) {
		order->runs[i] = i;
		order->list[order->count++] = (struct kvt_chunk_list){
			c->chunk[c->run[i].first].id, 1, &order->runs[i] };
	}
	return status;
}

/* ---- the user's list ----------------------------------------------------- */

static int64_t find_run(const struct kvt_chunks *c, const char *id)
{
	int64_t from = 0, to = c->nruns;

	while (from < to) {
		int64_t mid = from + (to - from) / 2;
		int order = strcmp(c->chunk[c->run[mid].first].id, id);

		if (!order)
			return mid;
		if (order < 0)
			from = mid + 1;
		else
			to = mid;
	}
	return -1;
}

static char *next_word(char **rest)
{
	char *word = *rest + strspn(*rest, " \t\r"), *end;

	if (!*word)
		return NULL;
	end = word + strcspn(word, " \t\r");
	*rest = *end ? end + 1 : end;
	*end = '\0';
	return word;
}

static int64_t count_words(const char *s)
{
	int64_t n = 0;

	for (s += strspn(s, " \t\r\n"); *s; s += strspn(s, " \t\r\n")) {
		n++;
		s += strcspn(s, " \t\r\n");
	}
	return n;
}

static int64_t count_lines(const char *s)
{
	int64_t n = 1;

	while ((s = strchr(s, '\n'))) {
		n++;
		s++;
	}
	return n;
}

static enum kvt_status take_line(struct kvt_chunk_order *order, int64_t *used, char *line,
				 int64_t number, const struct kvt_chunks *c,
				 const char *path, struct kvt_error *err)
{
	struct kvt_chunk_list *list = &order->list[order->count];
	char *word = next_word(&line);

	if (!word || *word == '#')
		return KVT_OK;
	*list = (struct kvt_chunk_list){ word, 0, &order->runs[*used] };
	while ((word = next_word(&line))) {
		list->run[list->count] = find_run(c, word);
		if (list->run[list->count++] < 0)
			return kvt_fail(
				err, KVT_BAD_INPUT,
				"%s:%lld: chunk %.80s of request %.80s is not in %s",
				path, (long long)number, word, list->request, c->where);
	}
	if (!list->count)
		return kvt_fail(err, KVT_BAD_INPUT, "%s:%lld: request %.80s has no chunk",
				path, (long long)number, list->request);
	*used += list->count;
	order->count++;
	return KVT_OK;
}

static int by_request(const void *a, const void *b)
{
	const struct kvt_chunk_list *x = *(const struct kvt_chunk_list *const *)a;
	const struct kvt_chunk_list *y = *(const struct kvt_chunk_list *const *)b;

	return strcmp(x->request, y->request);
}

static enum kvt_status check_names(const struct kvt_chunk_order *order, const char *path,
				   struct kvt_error *err)
{
	const struct kvt_chunk_list **by_name;
	enum kvt_status status = KVT_OK;

	if (!order->count)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: names no request", path);
	if (!(by_name = calloc((size_t)order->count, sizeof(*by_name))))
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", path);
	for (int64_t i = 0; i < order->count; i++)
		by_name[i] = &order->list[i];
	qsort(by_name, (size_t)order->count, sizeof(*by_name), by_request);
	for (int64_t i = 1; !status && i < order->count; i++)
		if (!strcmp(by_name[i]->request, by_name[i - 1]->request))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: request %.80s comes twice", path,
					  by_name[i]->request);
	free(by_name);
	return status;
}

static enum kvt_status take_list(struct kvt_chunk_order *order,
				 const struct kvt_chunks *c, const char *path,
				 struct kvt_error *err)
{
	int64_t used = 0, number = 0;
	char *line = order->text, *end;
	enum kvt_status status = reserve(order, count_lines(line), count_words(line),
					 path, err);

	for (; !status && line; line = end) {
		if ((end = strchr(line, '\n')))
			*end++ = '\0';
		status = take_line(order, &used, line, ++number, c, path, err);
	}
	return status ? status : check_names(order, path, err);
}

enum kvt_status kvt_chunk_order_load(struct kvt_chunk_order *out,
				     struct kvt_dump *reader,
				     const struct kvt_chunks *c,
				     const struct kvt_hints *hints, struct kvt_error *err)
{
	const char *path = kvt_fact(hints, KVT_CHUNKS_ORDER);
	enum kvt_status status;
	size_t nbytes;

	*out = (struct kvt_chunk_order){ 0 };
	if (!path)
		return each_alone(out, c, err);
	if ((status = kvt_tree_text(&out->text, &nbytes, &reader->files, path, MAX_LIST,
				    err)))
		return status;
	if (strlen(out->text) != nbytes)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: holds a NUL character", path);
	return take_list(out, c, path, err);
}
