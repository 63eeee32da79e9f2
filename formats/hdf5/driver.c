/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - the file under HDF5: it can say where a chunk is, or gets its
 * place, instead of reading or writing it; and it forgets no error
 *
 * One thread at a time may be in HDF5, and it moves one chunk a call.  With the
 * addresses, any thread reads and writes many chunks at once, through descriptors of
 * our own.
 * (H5Dget_chunk_info_by_coord() would tell, after a search through all chunks
 * before.)
 *
 * HDF5 does not always say that the last bytes of a dataset were not written, reads
 * zeros where a file ends early, and 1.10 crashes when it closes what it could not
 * write.  So it never hears of a write that failed: that is kept here, nothing more
 * is written, and a writer asks kvt_h5_check_fault().  A file that has become
 * shorter is an error of reading.
 */
#include "formats/hdf5/hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct driver {
	H5FD_t base;			/* HDF5's part; comes first */
	struct kvt_h5_catch catch;
	haddr_t eoa, eof;		/* of addresses in use; of the file */
	dev_t dev;
	ino_t ino;
	bool writes;
	struct kvt_h5_fault own;	/* until kvt_h5_driver_catch() takes it */
};

static struct driver *driver_of(H5FD_t *file)
{
	return (struct driver *)file;
}

/* ---- errors ------------------------------------------------------------- */

/*
 * Keeps the first one, and puts the system's words where kvt_h5_failed() looks for
 * them.  'error' 0: the file has become shorter.
 */
static herr_t failed(struct kvt_h5_fault *fault, int error, const char *what)
{
	char text[160];

	if (!fault->what) {
		fault->error = error;
		fault->what = what;
	}
	if (error)
		snprintf(text, sizeof(text), "cannot %s: error message = '%s'", what,
			 strerror(error));
	else
		snprintf(text, sizeof(text), "the file has become shorter");
	H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_IO,
		 H5E_SYSERRSTR, "%s", text);
	return -1;
}

/* The same once the file is open: HDF5 hears of it only if it reads. */
static herr_t failed_open(struct driver *driver, int error, const char *what)
{
	herr_t result = failed(driver->catch.fault, error, what);

	return driver->writes ? 0 : result;
}

/* ---- opening ------------------------------------------------------------ */

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t most)
{
	struct driver *driver = calloc(1, sizeof(*driver));
	int how = O_CLOEXEC | (flags & H5F_ACC_RDWR ? O_RDWR : O_RDONLY) |
		  (flags & H5F_ACC_TRUNC ? O_TRUNC : 0) |
		  (flags & H5F_ACC_CREAT ? O_CREAT : 0) |
		  (flags & H5F_ACC_EXCL ? O_EXCL : 0);
	struct kvt_h5_fault fault = { 0 };
	struct stat st;

	(void)fapl;
	(void)most;
	if (!driver) {
		failed(&fault, ENOMEM, "open");
		return NULL;
	}
	driver->catch.fault = &driver->own;
	driver->writes = flags & H5F_ACC_RDWR;
	driver->catch.fd = open(name, how, 0666);
	if (driver->catch.fd < 0 || fstat(driver->catch.fd, &st)) {
		failed(&fault, errno, "open");
		if (driver->catch.fd >= 0)
			close(driver->catch.fd);
		free(driver);
		return NULL;
	}
	driver->eof = (haddr_t)st.st_size;
	driver->dev = st.st_dev;
	driver->ino = st.st_ino;
	return &driver->base;
}

/* HDF5 1.10 would keep a file that cannot be closed, and crash on it later. */
static herr_t driver_close(H5FD_t *file)
{
	struct driver *driver = driver_of(file);

	if (close(driver->catch.fd) && driver->writes)
		failed(driver->catch.fault, errno, "write");
	free(driver);
	return 0;
}

static int driver_cmp(const H5FD_t *a, const H5FD_t *b)
{
	const struct driver *x = (const struct driver *)a;
	const struct driver *y = (const struct driver *)b;

	return x->dev != y->dev ? (x->dev < y->dev ? -1 : 1) :
	       x->ino != y->ino ? (x->ino < y->ino ? -1 : 1) : 0;
}

/* As HDF5's usual driver, as far as it shapes the file. */
static herr_t driver_query(const H5FD_t *file, unsigned long *flags)
{
	(void)file;
	*flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
		 H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA;
	return 0;
}

static herr_t driver_handle(H5FD_t *file, hid_t fapl, void **handle)
{
	(void)fapl;
	*handle = &driver_of(file)->catch;
	return 0;
}

/* ---- sizes -------------------------------------------------------------- */

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
	(void)type;
	return ((const struct driver *)file)->eoa;
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t addr)
{
	(void)type;
	driver_of(file)->eoa = addr;
	return 0;
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
	(void)type;
	return ((const struct driver *)file)->eof;
}

static herr_t driver_truncate(H5FD_t *file, hid_t dxpl, hbool_t closing)
{
	struct driver *driver = driver_of(file);

	(void)dxpl;
	(void)closing;
	if (driver->eof == driver->eoa || driver->catch.fault->what)
		return 0;
	while (ftruncate(driver->catch.fd, (off_t)driver->eoa))
		if (errno != EINTR)
			return failed_open(driver, errno, "write");
	driver->eof = driver->eoa;
	return 0;
}

/* ---- bytes -------------------------------------------------------------- */

/*
 * Raw bytes to or from the caller's buffer.  Others may move meanwhile: what
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

/* What HDF5 has a place for but has not written yet reads as zeros. */
static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t addr,
			  size_t n, void *buf)
{
	struct driver *driver = driver_of(file);
	uint8_t *to = buf;

	(void)dxpl;
	if (caught(driver, type, addr, n, buf))
		return 0;
	memset(buf, 0, n);
	if (addr > INT64_MAX - n || (addr + n > driver->eof && !driver->writes))
		return failed_open(driver, 0, "read");
	while (n > 0) {
		ssize_t done = pread(driver->catch.fd, to, n, (off_t)addr);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return failed_open(driver, errno, "read");
		if (done == 0) {
			return addr < driver->eof ? failed_open(driver, 0, "read") : 0;
		}
		to += done;
		addr += (haddr_t)done;
		n -= (size_t)done;
	}
	return 0;
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t addr,
			   size_t n, const void *buf)
{
	struct driver *driver = driver_of(file);
	const uint8_t *from = buf;

	(void)dxpl;
	if (caught(driver, type, addr, n, buf) || driver->catch.fault->what)
		return 0;
	while (n > 0) {
		ssize_t done = pwrite(driver->catch.fd, from, n, (off_t)addr);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return failed_open(driver, done ? errno : EIO, "write");
		from += done;
		addr += (haddr_t)done;
		n -= (size_t)done;
		if (driver->eof < addr)
			driver->eof = addr;
	}
	return 0;
}

/* ---- locks -------------------------------------------------------------- */

/* Best effort: there are file systems without. */
static herr_t lock(struct driver *driver, int how, const char *what)
{
	if (!flock(driver->catch.fd, how | LOCK_NB) || errno == ENOSYS ||
	    errno == EOPNOTSUPP || errno == EINVAL || errno == ENOLCK)
		return 0;
	return failed_open(driver, errno, what);
}

static herr_t driver_lock(H5FD_t *file, hbool_t writes)
{
	return lock(driver_of(file), writes ? LOCK_EX : LOCK_SH, "lock");
}

static herr_t driver_unlock(H5FD_t *file)
{
	return lock(driver_of(file), LOCK_UN, "unlock");
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

struct kvt_h5_catch *kvt_h5_driver_catch(hid_t file, struct kvt_h5_fault *fault)
{
	struct kvt_h5_catch *catch;
	void *handle;

	if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0)
		return NULL;
	catch = handle;
	*fault = *catch->fault;
	catch->fault = fault;
	return catch;
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
