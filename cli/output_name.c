/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output_name.c - where to write if nobody says
 *
 *	dir/kv.npy for hnd	dir/kv.hnd.npy
 *	dir/cache/ for hnd	dir/cache.hnd.h5
 *
 * KVT_USAGE for standard input, and for a layout with anything but letters, digits and
 * '-'.
 */
#define _GNU_SOURCE		/* memrchr */
#include "cli/rewrite.h"
#include "print/out/streams.h"

#include <ctype.h>
#include <string.h>

/*
 * "dir/kv.npy" for hnd becomes "dir/kv.hnd.npy": beside the input, told apart by
 * what was asked for.  A folder becomes a snapshot.
 */
enum kvt_status rewrite_default_output(char *out, size_t room, const char *input,
				       const char *what, struct kvt_error *err)
{
	size_t n = strlen(input);
	const char *slash, *dot;

	if (!strcmp(input, stream_in_path))
		return kvt_fail(err, KVT_USAGE,
				"expected an output: no file name can be made of standard input's");
	for (const char *p = what; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-')
			return kvt_fail(err, KVT_USAGE,
					"expected an output: no file name can be made of layout '%.60s'",
					what);
	while (n > 1 && input[n - 1] == '/')
		n--;
	slash = memrchr(input, '/', n);
	dot = memrchr(input, '.', n);
	if (!dot || (slash && dot < slash) || input[n - 1] == '.')
		dot = NULL;
	if (snprintf(out, room, "%.*s.%s%.*s",
		     (int)(dot ? dot - input : (long)n), input, what,
		     dot ? (int)(input + n - dot) : 3,
		     dot ? dot : ".h5") >= (int)room)
		return kvt_fail(err, KVT_USAGE, "the name of the input is too long");
	return KVT_OK;
}
