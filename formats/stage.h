/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h - files that get their names all together, or not at all
 *
 *	OUT			what was there before, or nothing
 *	OUT.tmp-PID/OUT		what is written, under the name that it will have
 *	OUT.tmp-PID/NAME	what belongs to it, if anything does: a manifest
 *
 * An output is written in a folder of its own beside its place, with what belongs to it
 * beside it, so that it can be opened and verified there.  When every output of a
 * command is complete and on disk, all of them are given their names; if one
 * cannot be, those before it are taken back.  What was there before is removed
 * last.  A process that ends by exit(), as libhdf5 does where it has no memory, leaves
 * nothing; one that is killed leaves the folder, which says whose it is.
 */
#ifndef KVT_STAGE_H
#define KVT_STAGE_H

#include <sys/types.h>

#include "lib/kvt/kvt.h"

enum { KVT_STAGE_FILES = 2 };

/* One name, and how it was given to the new file. */
struct kvt_staged {
	char *path;			/* the name; owned, as are the next two */
	char *file;			/* where it is until then */
	char *old;			/* where what was there before is set aside */
	bool folder;			/* it is one; only an empty one is replaced */
	enum {
		KVT_STAGED,		/* has no name yet, or none any more */
		KVT_NAMED,		/* nothing had the name */
		KVT_REPLACED,		/* an empty folder had */
		KVT_EXCHANGED,		/* 'file' is now what was there before */
		KVT_SET_ASIDE,		/* that is 'old' now */
		KVT_DONE,		/* and that is gone */
	} state;
};

struct kvt_stage {
	char *folder;			/* owned; NULL: none was made */
	bool force;			/* names that exist are replaced */
	int n;
	struct kvt_staged file[KVT_STAGE_FILES];
	pid_t pid;			/* whose it is: a child has it as a copy */
	struct kvt_stage *before, *next;	/* of those that are open */
};

/*
 * Makes the folder for an output at 'path' and, if 'beside' is not NULL, one with
 * that name in the same folder.  KVT_SYSTEM if it cannot be made.  The caller
 * creates file[0] (and file[1]) inside it, and does not move the stage itself.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stage_open(struct kvt_stage *stage, const char *path, const char *beside,
	       bool folder, bool force, struct kvt_error *err);

/*
 * May 'path' be written: is it free, or replaceable as 'force' and 'folder' say?  What
 * is of the input is KVT_USAGE, whatever 'force' says (formats/file/reads.h).
 * 'what' is what needs a regular file there, for the message.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stage_check(const char *path, bool folder, bool force, const char *what,
		struct kvt_error *err);

/*
 * May they have their names, as far as can be told before one has?  KVT_USAGE if one is
 * of the input (formats/file/reads.h), or two are one.  kvt_stage_publish() asks, too.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stage_settle(struct kvt_stage *const *stages, int n, struct kvt_error *err);

/*
 * Gives all files of all stages their names; on failure none has one and what was
 * there before is there again.  'sync': the names are on disk, too; the content
 * must be already.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stage_publish(struct kvt_stage *const *stages, int n, bool sync,
		  struct kvt_error *err);

/*
 * Removes what has no name yet and the folder; folders of several files must have
 * been emptied by the caller.  Fine for a stage that is all zeros.
 */
void kvt_stage_close(struct kvt_stage *stage);

/* In a sentence about a file of the stage: the name that it will have. */
void kvt_stage_retell(const struct kvt_stage *stage, struct kvt_error *err);

/* Syncs a file or folder that is there. */
KVT_MUST_CHECK enum kvt_status
kvt_sync_path(const char *path, struct kvt_error *err);

/* Is this the name of a stage's folder?  It belongs to no dump. */
bool kvt_stage_is_one(const char *entry);

/*
 * What runs that were killed left for an output at 'path', or with 'path' NULL for
 * any in 'folder': calls fn with the path of each.  Nothing is removed: it may
 * belong to a process that is still writing.  What this one has open is none.
 */
void kvt_stage_leftovers(const char *folder, const char *path,
			 void (*fn)(void *context, const char *left), void *context);

#endif
