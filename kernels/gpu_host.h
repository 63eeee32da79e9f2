/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_host.h - what the host side of the GPUs shares; tests include it, too
 *
 * The CUDA and the HIP driver offer the same calls in the same shapes (device
 * addresses are integers in one and pointers in the other, but both as wide as
 * a pointer).  So there is one copy of the code, and one table of names a vendor.
 */
#ifndef GPU_HOST_H
#define GPU_HOST_H

#include "kernels/gpu_plan.h"
#include "lib/kvt/device.h"

/* Calls of a driver: X(name, arguments).  Each returns a code, 0 for success. */
#define GPU_CALLS(X)							\
	X(init, (unsigned flags))					\
	X(device_count, (int *count))					\
	X(device_get, (int *handle, int index))				\
	X(context_retain, (void **context, int handle))			\
	X(context_release, (int handle))				\
	X(context_set, (void *context))					\
	X(alloc, (void **address, size_t nbytes))			\
	X(free, (void *address))					\
	X(copy_in, (void *dst, const void *host, size_t n, void *stream)) \
	X(copy_out, (void *host, const void *src, size_t n, void *stream)) \
	X(copy_within, (void *dst, const void *src, size_t n, void *stream)) \
	X(fill, (void *dst, unsigned char byte, size_t n, void *stream)) \
	X(module_load, (void **module, const void *image))		\
	X(module_unload, (void *module))				\
	X(function_get, (void **function, void *module, const char *name)) \
	X(launch, (void *function, unsigned gx, unsigned gy, unsigned gz, \
		   unsigned bx, unsigned by, unsigned bz, unsigned shared, \
		   void *stream, void **args, void **extra))		\
	X(attribute, (int *value, int which, int handle))		\
	X(name, (char *name, int size, int handle))			\
	X(memory, (size_t *free, size_t *total))			\
	X(version, (int *version))					\
	X(pinned_alloc, (void **host, size_t nbytes, unsigned flags))	\
	X(pinned_free, (void *host))					\
	X(stream_new, (void **stream, unsigned flags))			\
	X(stream_free, (void *stream))					\
	X(stream_wait, (void *stream))					\
	X(stream_wait_event, (void *stream, void *event, unsigned flags)) \
	X(event_new, (void **event, unsigned flags))			\
	X(event_free, (void *event))					\
	X(event_record, (void *event, void *stream))			\
	X(event_wait, (void *event))					\
	X(event_elapsed, (float *milliseconds, void *begin, void *end))

enum {
#define ENTRY(name, args) GPU_CALL_##name,
	GPU_CALLS(ENTRY)
#undef ENTRY
	GPU_NCALLS
};

struct gpu_driver {
#define MEMBER(name, args) int (*name) args;
	GPU_CALLS(MEMBER)
#undef MEMBER
};

enum gpu_kernel {
#define KERNEL(name, type, dims) GPU_##name,
	GPU_KERNELS(KERNEL)
#undef KERNEL
	GPU_NKERNELS
};

/* Attributes of a device, whose numbers differ. */
enum gpu_attribute {
	GPU_MAJOR, GPU_MINOR, GPU_MULTIPROCESSORS, GPU_WARP, GPU_L2,
	GPU_NATTRIBUTES
};

enum { GPU_NODES = 3 };

struct gpu_vendor {
	const char *name;			/* "cuda" */
	const char *driver, *compiler;		/* "NVIDIA", "nvcc" */
	const char *library[4];			/* newest first, then NULL */
	const char *missing;			/* all of them, in a sentence */
	const char *call[GPU_NCALLS];
	const char *error_name;
	bool error_returned;			/* or through a second argument */
	const char *visible[3];			/* variables that hide devices */
	/* of a server's driver, of an embedded one, under Windows */
	const char *node[GPU_NODES];
	int attribute[GPU_NATTRIBUTES];
	void (*version)(char *text, size_t size, int number);
	const unsigned char *image, *image_end;
	const char *archs;
	bool kernels_in_library;		/* the executor's: no image */
};

/* The i-th vendor; NULL past the last one. */
const struct gpu_vendor *kvt_gpu_vendor(int i);

struct kvt_device {
	const struct gpu_vendor *vendor;
	struct gpu_driver driver;
	void *library;
	void *error_name;
	void *context, *module;
	int index, handle;
	bool retained;
	/* Work of a launch and its blocks, at most; tests make them smaller. */
	int64_t launch_max, blocks_max;
	int facts[GPU_NATTRIBUTES];
	void *kernel[GPU_NKERNELS];
};

/* ---- gpu_driver.c ------------------------------------------------------- */

/* Opens the library and finds every call. */
KVT_MUST_CHECK enum kvt_status
kvt_gpu_load(struct kvt_device *device, struct kvt_error *err);
void kvt_gpu_unload(struct kvt_device *device);

/* What a code means before any data was touched, and afterwards. */
enum kvt_status kvt_gpu_cannot(const struct kvt_device *device, int code,
			       struct kvt_error *err);
enum kvt_status kvt_gpu_failed(const struct kvt_device *device, int code,
			       struct kvt_error *err);

/* ---- gpu_device.c ------------------------------------------------------- */

/* kvt_device_open() of this vendor's 'index'. */
KVT_MUST_CHECK enum kvt_status
kvt_gpu_open(struct kvt_device **out, const struct gpu_vendor *vendor,
	     int index, struct kvt_error *err);

/* ---- gpu_launch.c ------------------------------------------------------- */

/* What may run a plan: what fits it best, or one kind, to compare them. */
enum gpu_method { GPU_BEST, GPU_SPREAD, GPU_LANES, GPU_TILE, GPU_NAIVE };

/* kvt_device_copy() by a method; KVT_UNSUPPORTED where a tile fits nowhere. */
KVT_MUST_CHECK enum kvt_status
kvt_gpu_copy(struct kvt_device *device, enum gpu_method method, void *dst,
	     const void *src, const struct kvt_plan *plan, void *stream,
	     struct kvt_error *err);

/* The kernel that GPU_BEST runs for this plan; -1 if there is nothing to copy. */
int kvt_gpu_choice(const struct kvt_plan *plan, const void *dst, const void *src);
const char *kvt_gpu_kernel_name(int kernel);	/* "kvt_spread_16_4" */

/* 'args' are addresses of the kernel's parameters; blocks loop over what is more. */
KVT_MUST_CHECK enum kvt_status
kvt_gpu_launch(struct kvt_device *device, int kernel, int64_t nblocks, void *args[],
	       void *stream, struct kvt_error *err);

/* ---- gpu_shape.c -------------------------------------------------------- */

/* 1, 2, 4, 8 or 16: the widest access that all runs of the plan allow. */
int kvt_gpu_width(const struct kvt_plan *plan, const void *dst, const void *src);

void kvt_gpu_div_init(struct gpu_div *div, uint32_t n);

/*
 * The loops [first, nloops) of the plan but 'skip1' and 'skip2'; at most
 * GPU_DIMS of them.
 */
void kvt_gpu_dims_init(struct gpu_dims *dims, const struct kvt_plan *plan,
		       int skip1, int skip2);

/* False: no tile fits this plan. */
bool kvt_gpu_tile_init(struct gpu_tile *tile, const struct kvt_plan *plan,
		       const void *dst, const void *src);

/* Is the tile faster than direct copies? */
bool kvt_gpu_tile_pays(const struct gpu_tile *tile);

#endif
