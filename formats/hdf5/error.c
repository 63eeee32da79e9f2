/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.c - what HDF5 has to say, as one sentence
 *
 * Its error stack goes from the innermost call out, and the innermost reason is the one
 * worth telling: the system's words, if the system is to blame.
 */
#include "formats/hdf5/hdf5.h"

#include <stdarg.h>
#include <string.h>

void kvt_h5_drop(hid_t id)
{
	hid_t stack;

	if (id < 0)
		return;
	/* Every call clears the error stack, which a caller may still read. */
	stack = H5Eget_num(H5E_DEFAULT) > 0 ? H5Eget_current_stack() : -1;
	H5Idec_ref(id);
	if (stack >= 0)
		H5Eset_current_stack(stack);
}

/* ---- reasons ------------------------------------------------------------ */

struct reason {
	char text[200];
	bool system;
};

/* A file's names and strings must not reach a terminal as they are. */
static void make_printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			*s = '?';
}

/*
 * HDF5 wraps the system's words: "..., errno = 28, error message = 'No space
 * left on device', buf = 0x...".  Only those words are worth showing.
 */
static void take_reason(struct reason *reason, const char *text)
{
	static const char quote[] = "error message = '";
	const char *begin = strstr(text, quote);
	size_t n = strlen(text);

	if (begin) {
		reason->system = true;
		text = begin + sizeof(quote) - 1;
		n = strcspn(text, "'");
	}
	if (n >= sizeof(reason->text))
		n = sizeof(reason->text) - 1;
	memcpy(reason->text, text, n);
	reason->text[n] = '\0';
	make_printable(reason->text);
}

/* Called from the innermost error on; the first with words wins. */
static herr_t visit(unsigned n, const H5E_error2_t *error, void *data)
{
	struct reason *reason = data;

	(void)n;
	if (!reason->text[0] && error->desc)
		take_reason(reason, error->desc);
	return 0;
}

enum kvt_status kvt_h5_failed(struct kvt_error *err, enum kvt_status status,
			      const char *path, const char *what)
{
	struct reason reason = { "", false };

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, visit, &reason);
	if (reason.system)
		return kvt_fail(err, KVT_SYSTEM, "%s: %s: %s", path, what, reason.text);
	if (!reason.text[0])
		return kvt_fail(err, status, "%s: %s", path, what);
	return kvt_fail(err, status, "%s: %s (HDF5: %s)", path, what, reason.text);
}

enum kvt_status kvt_h5_check_fault(const struct kvt_h5_fault *fault, const char *path,
				   struct kvt_error *err)
{
	if (!fault->what)
		return KVT_OK;
	if (!fault->error)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: the file has become shorter",
				path);
	return kvt_fail(err, KVT_SYSTEM, "%s: cannot %s: %s", path, fault->what,
			strerror(fault->error));
}

/* ---- complaints --------------------------------------------------------- */

static void complain(struct kvt_h5_in *in, hid_t object, enum kvt_status status,
		     const char *format, va_list args)
{
	char name[128] = "", text[320];

	/* what could not be read is no fault of the file */
	if (in->status || (in->status = kvt_h5_check_fault(in->fault, in->path, in->err)))
		return;
	vsnprintf(text, sizeof(text), format, args);
	if (object >= 0)
		H5Iget_name(object, name, sizeof(name));
	make_printable(name);
	make_printable(text);
	in->status = kvt_fail(in->err, status, "%s: %s%s%s", in->path, name,
			      name[0] ? ": " : "", text);
}

bool kvt_h5_bad(struct kvt_h5_in *in, hid_t object, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(in, object, KVT_BAD_INPUT, format, args);
	va_end(args);
	return false;
}

bool kvt_h5_refuse(struct kvt_h5_in *in, hid_t object, enum kvt_status status,
		   const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain(in, object, status, format, args);
	va_end(args);
	return false;
}

bool kvt_h5_spend(struct kvt_h5_in *in, hid_t object, int64_t nbytes)
{
	if (in->status || nbytes > in->left)
		return kvt_h5_bad(in, object,
				  "tables are larger than the file, which has %lld bytes",
				  LL(in->nbytes));
	in->left -= nbytes;
	return true;
}
