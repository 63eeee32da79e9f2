/* SPDX-License-Identifier: Apache-2.0 */
/* view_watch.h - a dump that something writes, looked at again and again */
#ifndef KVTOOL_VIEW_WATCH_H
#define KVTOOL_VIEW_WATCH_H

#include "print/view.h"

struct watch {
	const char *path;
	bool once;			/* print what a look shows */
	/* Opens it; what was opened is in 'out' either way. */
	enum kvt_status (*look)(struct view_dump *out, const char *path,
				const void *context, struct kvt_error *err);
	void (*close)(struct view_dump *d);
	const void *context;
};

KVT_MUST_CHECK enum kvt_status
view_watch(const struct watch *w, struct kvt_error *err);

#endif
