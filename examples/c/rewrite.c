/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.c - some layers in another layout, verified before the file has its name */
#include <kvt/derive.h>
#include <kvt/ops.h>
#include <kvt/write.h>
#include <stdio.h>

static enum kvt_status rewrite(const struct kvt_dump *dump, const char *layout,
			       const char *path, struct kvt_error *err)
{
	struct kvt_writer *writer = NULL;
	struct kvt_snapshot info;
	struct kvt_dump *written;
	struct kvt_layout to;
	enum kvt_status status;

	if ((status = kvt_layout_parse(&to, layout, err)) ||
	    (status = kvt_snapshot_copy(&info, kvt_dump_snapshot(dump), err)))
		return status;
	if (!(status = kvt_snapshot_set_layout(&info, &to, err)) &&
	    !(status = kvt_create(&writer, path, NULL, &info, err)) &&
	    !(status = kvt_write(&writer, &dump, 1, NULL, err)) &&
	    !(status = kvt_open_written(&written, writer, err))) {
		status = kvt_verify(dump, written, NULL, err);
		kvt_dump_close(written);
		if (!status)
			status = kvt_publish(&writer, 1, err);
	}
	kvt_close_writer(writer);
	kvt_snapshot_free(&info);
	return status;
}

int main(int argc, char **argv)
{
	const struct kvt_range layers = { 1, 3 };
	const struct kvt_slice_options some = { .layers = { 1, &layers } };
	struct kvt_dump *whole = NULL, *part = NULL;
	struct kvt_error err;
	enum kvt_status status;

	if (argc != 4) {
		fputs("usage: rewrite DUMP LAYOUT OUT\n", stderr);
		return 2;
	}
	if (!(status = kvt_open(&whole, argv[1], NULL, &err)) &&
	    !(status = kvt_dump_slice(&part, whole, &some, &err)))
		status = rewrite(part, argv[2], argv[3], &err);
	if (status)
		fprintf(stderr, "rewrite: %s\n", err.text);
	kvt_dump_close(part);
	kvt_dump_close(whole);
	return (int)status;
}
