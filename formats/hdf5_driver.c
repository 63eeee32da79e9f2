/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hdf5_driver.c - a file driver that can say where a chunk is, or gets its
 * place, instead of reading or writing it
 *
 * HDF5 runs under one lock and moves one chunk a call.  With the addresses, any
 * thread reads and writes many chunks at once, through descriptors of our own.
 * All else is left to HDF5's usual driver.  (H5Dget_chunk_info_by_coord() would
 * tell, after a search through all chunks before.)
 */
#include "formats/hdf5_impl.h"

#include <stdlib.h>

struct driver {
	H5FD_t base;			/* HDF5's part; comes first */
	H5FD_t *below;
	struct kvt_h5_catch catch;
};

/*
 * Raw bytes to or from the buffer of who asks.  Others may move meanwhile: what
 * falls out of the cache of metadata is written, and strings count as raw bytes.
 */
static bool caught(struct driver *driver, H5FD_mem_t type, haddr_t addr, size_t n,
		   const void *buf)
{
	struct kvt_h5_catch *catch = &driver->catch;

	if (type != H5FD_MEM_DRAW || !catch->wanted || buf != catch->wanted)
		return false;
	catch->count++;
	catch->offset = (int64_t)addr;
	catch->nbytes = (int64_t)n;
	return true;
}

/* ---- what differs ------------------------------------------------------- */

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl,
			   haddr_t most)
{
	struct driver *driver = calloc(1, sizeof(*driver));
	hid_t usual = H5Pcreate(H5P_FILE_ACCESS);
	void *fd;

	(void)fapl;
	if (driver && H5Pset_fapl_sec2(usual) >= 0)
		driver->below = H5FDopen(name, flags, usual, most);
	kvt_h5_drop(usual);
	if (driver && driver->below &&
	    H5FDget_vfd_handle(driver->below, H5P_DEFAULT, &fd) >= 0) {
		driver->catch.fd = *(int *)fd;
		return &driver->base;
	}
	if (driver && driver->below)
		H5FDclose(driver->below);
	free(driver);
	return NULL;
}

static herr_t driver_close(H5FD_t *file)
{
	herr_t result = H5FDclose(((struct driver *)file)->below);

	free(file);
	return result;
}

static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t addr,
			  size_t n, void *buf)
{
	struct driver *driver = (struct driver *)file;

	return caught(driver, type, addr, n, buf) ? 0 :
	       H5FDread(driver->below, type, dxpl, addr, n, buf);
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t addr,
			   size_t n, const void *buf)
{
	struct driver *driver = (struct driver *)file;

	return caught(driver, type, addr, n, buf) ? 0 :
	       H5FDwrite(driver->below, type, dxpl, addr, n, buf);
}

static herr_t driver_handle(H5FD_t *file, hid_t fapl, void **handle)
{
	(void)fapl;
	*handle = &((struct driver *)file)->catch;
	return 0;
}

/* The usual driver's, as far as they shape the file: its bytes stay the same. */
static herr_t driver_query(const H5FD_t *file, unsigned long *flags)
{
	(void)file;
	*flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
		 H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA;
	return 0;
}

/* ---- what does not ------------------------------------------------------ */

static H5FD_t *below(const H5FD_t *file)
{
	return ((const struct driver *)file)->below;
}

static int driver_cmp(const H5FD_t *a, const H5FD_t *b)
{
	return H5FDcmp(below(a), below(b));
}

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
	return H5FDget_eoa(below(file), type);
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t addr)
{
	return H5FDset_eoa(below(file), type, addr);
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
	return H5FDget_eof(below(file), type);
}

static herr_t driver_truncate(H5FD_t *file, hid_t dxpl, hbool_t closing)
{
	return H5FDtruncate(below(file), dxpl, closing);
}

static herr_t driver_lock(H5FD_t *file, hbool_t writes)
{
	return H5FDlock(below(file), writes);
}

static herr_t driver_unlock(H5FD_t *file)
{
	return H5FDunlock(below(file));
}

static const H5FD_class_t driver_class = {
	.name = "kvtool",
	.maxaddr = INT64_MAX,
	.fc_degree = H5F_CLOSE_WEAK,
	.open = driver_open,
	.close = driver_close,
	.cmp = driver_cmp,
	.query = driver_query,
	.get_eoa = driver_get_eoa,
	.set_eoa = driver_set_eoa,
	.get_eof = driver_get_eof,
	.get_handle = driver_handle,
	.read = driver_read,
	.write = driver_write,
	.truncate = driver_truncate,
	.lock = driver_lock,
	.unlock = driver_unlock,
	.fl_map = H5FD_FLMAP_DICHOTOMY,
};

hid_t kvt_h5_driver_new(void)
{
	return H5FDregister(&driver_class);
}

struct kvt_h5_catch *kvt_h5_driver_catch(hid_t file)
{
	void *handle;

	if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0)
		return NULL;
	return handle;
}

/* ---- chunks ------------------------------------------------------------- */

bool kvt_h5_find_chunk(struct kvt_extent *out, struct kvt_h5_catch *catch,
		       hid_t data, const hsize_t *offset)
{
	uint8_t unused;
	bool ok;

	catch->count = 0;
	catch->wanted = &unused;
	ok = H5Dread_chunk(data, H5P_DEFAULT, offset, &out->filter_mask,
			   &unused) >= 0 && catch->count == 1;
	catch->wanted = NULL;
	out->offset = catch->offset;
	out->nbytes = catch->nbytes;
	return ok;
}

bool kvt_h5_place_chunk(int64_t *at, struct kvt_h5_catch *catch, hid_t data,
			const hsize_t *offset, const struct kvt_stored *stored)
{
	bool ok;

	catch->count = 0;
	catch->wanted = stored->bytes;
	ok = H5Dwrite_chunk(data, H5P_DEFAULT, stored->filter_mask, offset,
			    (size_t)stored->nbytes, stored->bytes) >= 0 &&
	     catch->count == 1 && catch->nbytes == stored->nbytes;
	catch->wanted = NULL;
	*at = catch->offset;
	return ok;
}
