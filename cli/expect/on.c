/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on.c - the machine that vLLM would run on, as --on says it
 *
 *	cuda:9.0		its compute capability, with a minor of one digit
 *	rocm, rocm:WORD,..	aiter, mha, mla, shuffle, rdna
 *
 * mha, mla and shuffle turn on aiter, and shuffle mha, too.  Anything else is KVT_USAGE.
 */
#include "cli/expect/expect.h"

#include <string.h>

/* "9.0": two numbers, the second of one digit. */
static bool take_capability(int *out, const char *text)
{
	int major, minor, end = 0;

	if (sscanf(text, "%2d.%1d%n", &major, &minor, &end) != 2 || text[end] ||
	    major < 1 || minor < 0)
		return false;
	*out = 10 * major + minor;
	return true;
}

/* "", ":aiter,mha,mla", ":rdna", ":shuffle" */
static bool take_rocm(struct expect_on *out, const char *text)
{
	struct kvt_backend_platform *p = &out->platform;

	p->rocm = true;
	if (!*text)
		return true;
	for (; *text == ':' || *text == ','; text += strcspn(text, ",")) {
		size_t n = strcspn(++text, ",");

		if (n == 5 && !strncmp(text, "aiter", n))
			p->aiter = true;
		else if (n == 3 && !strncmp(text, "mha", n))
			p->aiter = p->aiter_mha = true;
		else if (n == 3 && !strncmp(text, "mla", n))
			p->aiter = p->aiter_mla = true;
		else if (n == 7 && !strncmp(text, "shuffle", n))
			p->aiter = p->aiter_mha = out->shuffle = true;
		else if (n == 4 && !strncmp(text, "rdna", n))
			p->rdna_aiter = true;
		else
			return false;
	}
	return !*text;
}

enum kvt_status expect_on_take(struct expect_on *out, const char *text,
			       struct kvt_error *err)
{
	*out = (struct expect_on){ .text = text };
	if (!text ||
	    (!strncmp(text, "cuda:", 5) &&
	     take_capability(&out->platform.capability, text + 5)) ||
	    (!strncmp(text, "rocm", 4) && take_rocm(out, text + 4)))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"--on is '%.40s', expected cuda:9.0 with the compute capability, or rocm, rocm:aiter, rocm:mha,mla, rocm:shuffle or rocm:rdna", text);
}

void expect_on_config(struct kvt_backend_config *out, const struct expect_on *on)
{
	out->rocm = on->platform.rocm;
	out->capability = on->platform.capability;
	out->shuffle = on->shuffle;
}
