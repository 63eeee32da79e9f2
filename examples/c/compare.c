/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - what differs between two dumps, told to callbacks */
#include <kvt/ops.h>
#include <stdio.h>

static void tell_group(void *context, const struct kvt_diff_group *g)
{
	(void)context;
	printf("%s: %lld of %lld elements differ; %s\n", g->id, (long long)g->unequal,
	       (long long)g->elements, g->fault ? g->fault_text : "no known fault");
}

static void tell_element(void *context, const struct kvt_diff_element *e)
{
	++*(int *)context;
	printf("  layer %lld, token %lld of %s, head %lld, %c: %g, not %g\n",
	       (long long)e->layer, (long long)e->token, e->request ? e->request : "-",
	       (long long)e->head, e->kv ? 'v' : 'k', e->value[1], e->value[0]);
}

int main(int argc, char **argv)
{
	const struct kvt_diff_options options = { .most = 3 };
	int count = 0;
	const struct kvt_diff_told told = { .context = &count, .group = tell_group,
					    .element = tell_element };
	struct kvt_dump *a = NULL, *b = NULL;
	struct kvt_error err;
	enum kvt_status status;

	if (argc != 3) {
		fputs("usage: compare A B\n", stderr);
		return 2;
	}
	if (!(status = kvt_open(&a, argv[1], NULL, &err)) &&
	    !(status = kvt_open(&b, argv[2], NULL, &err)))
		status = kvt_diff(a, b, &options, &told, NULL, &err);
	if (status)
		fprintf(stderr, "compare: %s\n", err.text);
	kvt_dump_close(b);
	kvt_dump_close(a);
	return (int)status;
}
