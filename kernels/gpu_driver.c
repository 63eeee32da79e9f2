/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_driver.c - the vendors, their libraries, and what their codes mean
 *
 * Nothing is linked: the driver's library is opened when a GPU is asked for, and each
 * call found by its name.  Facts: CUDA's cuda.h, whose calls have versions in their
 * names; HIP's hip_runtime_api.h, and numbers of attributes of HIP 5.2.
 */
#include "kernels/gpu_host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const unsigned char kvt_cuda_image[], kvt_cuda_image_end[];
extern const unsigned char kvt_hip_image[], kvt_hip_image_end[];
extern const char kvt_cuda_archs[], kvt_hip_archs[];

static void cuda_version(char *text, size_t size, int number)
{
	snprintf(text, size, "%d.%d", number / 1000, number % 1000 / 10);
}

static void hip_version(char *text, size_t size, int number)
{
	snprintf(text, size, "%d.%d.%d", number / 10000000,
		 number / 100000 % 100, number % 100000);
}

/*
 * The names that cuda.h hides behind macros have their version.  Where HIP has
 * a call with flags and one without, it is the one shaped like CUDA's.
 */
static const struct gpu_vendor cuda = {
	.name = "cuda", .driver = "NVIDIA", .compiler = "nvcc",
	.library = { "libcuda.so.1" },
	.missing = "libcuda.so.1",
	.call = {
		[GPU_CALL_init]              = "cuInit",
		[GPU_CALL_device_count]      = "cuDeviceGetCount",
		[GPU_CALL_device_get]        = "cuDeviceGet",
		[GPU_CALL_context_retain]    = "cuDevicePrimaryCtxRetain",
		[GPU_CALL_context_release]   = "cuDevicePrimaryCtxRelease_v2",
		[GPU_CALL_context_set]       = "cuCtxSetCurrent",
		[GPU_CALL_alloc]             = "cuMemAlloc_v2",
		[GPU_CALL_free]              = "cuMemFree_v2",
		[GPU_CALL_copy_in]           = "cuMemcpyHtoDAsync_v2",
		[GPU_CALL_copy_out]          = "cuMemcpyDtoHAsync_v2",
		[GPU_CALL_copy_within]       = "cuMemcpyDtoDAsync_v2",
		[GPU_CALL_fill]              = "cuMemsetD8Async",
		[GPU_CALL_module_load]       = "cuModuleLoadData",
		[GPU_CALL_module_unload]     = "cuModuleUnload",
		[GPU_CALL_function_get]      = "cuModuleGetFunction",
		[GPU_CALL_launch]            = "cuLaunchKernel",
		[GPU_CALL_attribute]         = "cuDeviceGetAttribute",
		[GPU_CALL_name]              = "cuDeviceGetName",
		[GPU_CALL_memory]            = "cuMemGetInfo_v2",
		[GPU_CALL_version]           = "cuDriverGetVersion",
		[GPU_CALL_pinned_alloc]      = "cuMemHostAlloc",
		[GPU_CALL_pinned_free]       = "cuMemFreeHost",
		[GPU_CALL_stream_new]        = "cuStreamCreate",
		[GPU_CALL_stream_free]       = "cuStreamDestroy_v2",
		[GPU_CALL_stream_wait]       = "cuStreamSynchronize",
		[GPU_CALL_stream_wait_event] = "cuStreamWaitEvent",
		[GPU_CALL_event_new]         = "cuEventCreate",
		[GPU_CALL_event_free]        = "cuEventDestroy_v2",
		[GPU_CALL_event_record]      = "cuEventRecord",
		[GPU_CALL_event_wait]        = "cuEventSynchronize",
		[GPU_CALL_event_elapsed]     = "cuEventElapsedTime",
	},
	.error_name = "cuGetErrorName",
	.visible = { "CUDA_VISIBLE_DEVICES" },
	.node = { "/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/dxg" },
	.attribute = { [GPU_MAJOR] = 75, [GPU_MINOR] = 76,
		       [GPU_MULTIPROCESSORS] = 16, [GPU_WARP] = 10,
		       [GPU_L2] = 38 },
	.version = cuda_version,
	.image = kvt_cuda_image, .image_end = kvt_cuda_image_end,
	.archs = kvt_cuda_archs,
};

/* The numbers of the attributes are those of HIP 5.2. */
static const struct gpu_vendor hip = {
	.name = "hip", .driver = "AMD", .compiler = "hipcc",
	.library = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5" },
	.missing = "libamdhip64.so.7, .6 or .5",
	.call = {
		[GPU_CALL_init]              = "hipInit",
		[GPU_CALL_device_count]      = "hipGetDeviceCount",
		[GPU_CALL_device_get]        = "hipDeviceGet",
		[GPU_CALL_context_retain]    = "hipDevicePrimaryCtxRetain",
		[GPU_CALL_context_release]   = "hipDevicePrimaryCtxRelease",
		[GPU_CALL_context_set]       = "hipCtxSetCurrent",
		[GPU_CALL_alloc]             = "hipMalloc",
		[GPU_CALL_free]              = "hipFree",
		[GPU_CALL_copy_in]           = "hipMemcpyHtoDAsync",
		[GPU_CALL_copy_out]          = "hipMemcpyDtoHAsync",
		[GPU_CALL_copy_within]       = "hipMemcpyDtoDAsync",
		[GPU_CALL_fill]              = "hipMemsetD8Async",
		[GPU_CALL_module_load]       = "hipModuleLoadData",
		[GPU_CALL_module_unload]     = "hipModuleUnload",
		[GPU_CALL_function_get]      = "hipModuleGetFunction",
		[GPU_CALL_launch]            = "hipModuleLaunchKernel",
		[GPU_CALL_attribute]         = "hipDeviceGetAttribute",
		[GPU_CALL_name]              = "hipDeviceGetName",
		[GPU_CALL_memory]            = "hipMemGetInfo",
		[GPU_CALL_version]           = "hipDriverGetVersion",
		[GPU_CALL_pinned_alloc]      = "hipHostMalloc",
		[GPU_CALL_pinned_free]       = "hipHostFree",
		[GPU_CALL_stream_new]        = "hipStreamCreateWithFlags",
		[GPU_CALL_stream_free]       = "hipStreamDestroy",
		[GPU_CALL_stream_wait]       = "hipStreamSynchronize",
		[GPU_CALL_stream_wait_event] = "hipStreamWaitEvent",
		[GPU_CALL_event_new]         = "hipEventCreateWithFlags",
		[GPU_CALL_event_free]        = "hipEventDestroy",
		[GPU_CALL_event_record]      = "hipEventRecord",
		[GPU_CALL_event_wait]        = "hipEventSynchronize",
		[GPU_CALL_event_elapsed]     = "hipEventElapsedTime",
	},
	.error_name = "hipGetErrorName", .error_returned = true,
	.visible = { "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES" },
	.node = { "/dev/kfd", "/dev/dxg" },
	.attribute = { [GPU_MAJOR] = 23, [GPU_MINOR] = 61,
		       [GPU_MULTIPROCESSORS] = 63, [GPU_WARP] = 87,
		       [GPU_L2] = 19 },
	.version = hip_version,
	.image = kvt_hip_image, .image_end = kvt_hip_image_end,
	.archs = kvt_hip_archs,
};

const struct gpu_vendor *kvt_gpu_vendor(int i)
{
	static const struct gpu_vendor *const vendors[] = { &cuda, &hip };

	return i >= 0 && i < 2 ? vendors[i] : NULL;
}

/* ---- the library -------------------------------------------------------- */

static enum kvt_status open_library(struct kvt_device *d, struct kvt_error *err)
{
	const struct gpu_vendor *v = d->vendor;
	const char *why = NULL;

	for (int i = 0; v->library[i]; i++) {
		d->library = dlopen(v->library[i], RTLD_NOW | RTLD_LOCAL);
		if (d->library)
			return KVT_OK;
		why = dlerror();
		/* one that is there and cannot be used tells more than the
		   absence of an older one */
		if (why && !strstr(why, "No such file"))
			return kvt_fail(err, KVT_UNSUPPORTED, "%s: no device: %s",
					v->name, why);
	}
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s: no device: %s not found (no %s driver)", v->name,
			v->missing, v->driver);
}

enum kvt_status kvt_gpu_load(struct kvt_device *d, struct kvt_error *err)
{
	void *call[GPU_NCALLS];
	enum kvt_status status = open_library(d, err);

	if (status)
		return status;
	for (int i = 0; i < GPU_NCALLS; i++) {
		call[i] = dlsym(d->library, d->vendor->call[i]);
		if (call[i])
			continue;
		kvt_gpu_unload(d);
		return kvt_fail(err, KVT_UNSUPPORTED, "%s: driver too old: no %s",
				d->vendor->name, d->vendor->call[i]);
	}
	/* ISO C has no cast between pointers to objects and to functions */
	_Static_assert(sizeof(call) == sizeof(d->driver), "one pointer a call");
	memcpy(&d->driver, call, sizeof(call));
	d->error_name = dlsym(d->library, d->vendor->error_name);
	return KVT_OK;
}

void kvt_gpu_unload(struct kvt_device *d)
{
	if (d->library)
		dlclose(d->library);
	d->library = NULL;
}

bool kvt_device_driver(struct kvt_device_driver *out, int i)
{
	const struct gpu_vendor *v = kvt_gpu_vendor(i);

	if (!v)
		return false;
	*out = (struct kvt_device_driver){ v->name, v->image_end > v->image,
					   v->archs };
	return true;
}

const char *kvt_device_node(int i)
{
	const struct gpu_vendor *v = kvt_gpu_vendor(i);

	for (int n = 0; v && n < GPU_NODES && v->node[n]; n++)
		if (!access(v->node[n], F_OK))
			return v->node[n];
	return NULL;
}

/* ---- codes -------------------------------------------------------------- */

/* "CUDA_ERROR_NO_DEVICE", or the number. */
static void code_name(char *text, size_t size, const struct kvt_device *d, int code)
{
	int (*into)(int code, const char **name);
	const char *(*returned)(int code);
	const char *name = NULL;

	if (d->error_name && d->vendor->error_returned) {
		memcpy(&returned, &d->error_name, sizeof(returned));
		name = returned(code);
	} else if (d->error_name) {
		memcpy(&into, &d->error_name, sizeof(into));
		if (into(code, &name))
			name = NULL;
	}
	if (name)
		snprintf(text, size, "%s", name);
	else
		snprintf(text, size, "driver code %d", code);
}

static enum kvt_status old_driver(const struct kvt_device *d, struct kvt_error *err)
{
	char version[32] = "of unknown version";
	int number;

	if (!d->driver.version(&number))
		d->vendor->version(version, sizeof(version), number);
	return kvt_fail(err, KVT_UNSUPPORTED, "%s: driver %s cannot run this build",
			d->vendor->name, version);
}

static enum kvt_status no_kernels(const struct kvt_device *d, struct kvt_error *err)
{
	char what[128] = "";

	if (!d->vendor->error_returned)
		snprintf(what, sizeof(what), "compute capability %d.%d",
			 d->facts[GPU_MAJOR], d->facts[GPU_MINOR]);
	else if (d->driver.name(what, (int)sizeof(what) - 1, d->handle))
		snprintf(what, sizeof(what), "this device");
	return kvt_fail(err, KVT_UNSUPPORTED, "%s: no kernels for %s (this build has %s)",
			d->vendor->name, what, d->vendor->archs);
}

/* HIP shares the numbers that it has. */
enum kvt_status kvt_gpu_cannot(const struct kvt_device *d, int code,
			       struct kvt_error *err)
{
	char name[96];

	switch (code) {
	case 34:
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: no device: %s is the toolkit stub",
				d->vendor->name, d->vendor->missing);
	case 35: case 100: case 101:
		return kvt_fail(err, KVT_UNSUPPORTED, "%s: no device",
				d->vendor->name);
	case 36: case 803: case 804:
		return old_driver(d, err);
	case 200: case 209: case 218: case 222:
		return no_kernels(d, err);
	}
	code_name(name, sizeof(name), d, code);
	return kvt_fail(err, KVT_UNSUPPORTED, "%s: device %d not usable: %s",
			d->vendor->name, d->index, name);
}

enum kvt_status kvt_gpu_failed(const struct kvt_device *d, int code,
			       struct kvt_error *err)
{
	char name[96];

	code_name(name, sizeof(name), d, code);
	return kvt_fail(err, KVT_SYSTEM, "%s: device failed: %s", d->vendor->name,
			name);
}
