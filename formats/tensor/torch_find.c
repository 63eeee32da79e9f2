/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_find.c - what a pickle speaks of, found: attributes in its tree, and tensors in
 * the members of the archive
 *
 *	member PREFIX/data/KEY	the bytes of the storage KEY, as long as the pickle says
 *	a tensor		begins at the member's data plus its own offset
 *
 * Any other length of a member is refused, so a tensor that kvt_pickle_tensor() found to
 * lie in its storage lies in the file.
 */
#include "formats/tensor/torch_walk.h"

#include <string.h>

#include "formats/file/proof.h"

enum kvt_status kvt_torch_take(const struct torch_walk *w, void *buf, int64_t nbytes,
			       int64_t offset)
{
	enum kvt_status status = kvt_file_read(w->file, buf, nbytes, offset, w->err);
	int64_t first = 0;

	return status ? status : kvt_proof_settle(w->file, &first, false, NULL, w->err);
}

static enum kvt_status find_storage(const struct kvt_zip_member **out,
				    const struct torch_walk *w,
				    const struct kvt_pickle_tensor *t)
{
	char name[TORCH_MAX_PATH];
	const struct kvt_zip_member *m;

	snprintf(name, sizeof(name), "%.*s/data/%.*s", w->nprefix, w->prefix,
		 t->nkey < 64 ? t->nkey : 64, t->key);
	if (!(m = kvt_zip_find(w->zip, name)))
		return kvt_fail(w->err, KVT_BAD_INPUT, "%s: no member %.100s for %.100s",
				w->file->path, name, w->path);
	if (m->nbytes != t->nbytes)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: member %.100s has %lld bytes, but its storage %lld",
				w->file->path, name, LL(m->nbytes), LL(t->nbytes));
	*out = m;
	return KVT_OK;
}

enum kvt_status kvt_torch_place(struct kvt_pickle_tensor *out, int64_t *begin,
				const struct torch_walk *w, int32_t node)
{
	const struct kvt_zip_member *m = NULL;
	enum kvt_status status;

	if ((status = kvt_pickle_tensor(out, &w->pickle, node, w->file->path, w->err)) ||
	    (status = find_storage(&m, w, out)))
		return status;
	*begin = m->data + out->offset;
	return KVT_OK;
}

int32_t kvt_torch_attribute(const struct torch_walk *w,
			    const struct kvt_pickle_node *object, const char *name)
{
	if (object->kind == KVT_PICKLE_DICT)
		return kvt_pickle_value(&w->pickle, (int32_t)(object - w->pickle.node),
					name);
	return kvt_pickle_attribute(&w->pickle, object, name);
}
