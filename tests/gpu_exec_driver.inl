/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_exec_driver.inl - the executor's driver calls, under both vendors' names
 *
 * KVT_EXEC_FAIL=cuInit:34 makes a call fail with a code, KVT_EXEC_DEVICES=N
 * says how many devices there are, KVT_EXEC_MEMORY=N how many bytes each has,
 * KVT_EXEC_FAULT=N which fault is planted.
 */
namespace {

std::set<void *> handles;		/* streams and events */
int64_t memory_used;

int64_t setting(const char *name, int64_t otherwise)
{
	const char *text = std::getenv(name);

	return text ? std::strtoll(text, nullptr, 0) : otherwise;
}

/* The code that this call must fail with; 0: none. */
int injected(const char *call)
{
	const char *text = std::getenv("KVT_EXEC_FAIL");
	const size_t n = std::strlen(call);

	if (!text || std::strncmp(text, call, n) || text[n] != ':')
		return 0;
	return std::atoi(text + n + 1);
}

void *new_handle()
{
	void *handle = std::malloc(8);

	if (handle)
		handles.insert(handle);
	return handle;
}

bool known(void *handle)
{
	return !handle || handles.count(handle);
}

bool ours(const void *p, size_t n)
{
	return n == 0 || inside((uintptr_t)p, n);
}

int use(void *stream)
{
	return sticky ? sticky : known(stream) ? 0 : INVALID;
}

int64_t memory_all()
{
	return setting("KVT_EXEC_MEMORY", (int64_t)1 << 30);
}

}

/* One call under the name that each driver has for it. */
#define CALL(cuda, hip, parameters, arguments)				\
	static int exec_##cuda parameters;				\
	extern "C" __attribute__((visibility("default")))		\
	int cuda parameters						\
	{								\
		const int code = injected(#cuda);			\
		return code ? code : exec_##cuda arguments;		\
	}								\
	extern "C" __attribute__((visibility("default")))		\
	int hip parameters						\
	{								\
		const int code = injected(#hip);			\
		return code ? code : exec_##cuda arguments;		\
	}								\
	static int exec_##cuda parameters

CALL(cuInit, hipInit, (unsigned flags), (flags))
{
	planted = (int)setting("KVT_EXEC_FAULT", planted);
	return flags ? (int)INVALID : 0;
}

CALL(cuDeviceGetCount, hipGetDeviceCount, (int *count), (count))
{
	*count = (int)setting("KVT_EXEC_DEVICES", 1);
	return 0;
}

CALL(cuDeviceGet, hipDeviceGet, (int *handle, int index), (handle, index))
{
	*handle = index;
	return index < setting("KVT_EXEC_DEVICES", 1) ? 0 : BAD_DEVICE;
}

CALL(cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain,
     (void **context, int handle), (context, handle))
{
	(void)handle;
	*context = &handles;
	return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease, (int handle), (handle))
{
	(void)handle;
	return 0;
}

CALL(cuCtxSetCurrent, hipCtxSetCurrent, (void *context), (context))
{
	return sticky ? sticky : context == &handles ? 0 : INVALID;
}

/* Of the exact size, so that AddressSanitizer guards both ends as well. */
CALL(cuMemAlloc_v2, hipMalloc, (void **address, size_t nbytes), (address, nbytes))
{
	if (sticky)
		return sticky;
	if (nbytes == 0)
		return INVALID;
	if ((int64_t)nbytes > memory_all() - memory_used ||
	    posix_memalign(address, 256, nbytes))
		return NO_MEMORY;
	memory_used += (int64_t)nbytes;
	std::memset(*address, POISON, nbytes);
	allocations[(uintptr_t)*address] = nbytes;
	return 0;
}

CALL(cuMemFree_v2, hipFree, (void *address), (address))
{
	auto found = allocations.find((uintptr_t)address);

	if (found == allocations.end())
		return INVALID;
	memory_used -= (int64_t)found->second;
	allocations.erase(found);
	last_begin = last_end = 0;
	std::free(address);
	return 0;
}

CALL(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync,
     (void *dst, const void *host, size_t n, void *stream), (dst, host, n, stream))
{
	if (use(stream) || !ours(dst, n))
		return sticky ? sticky : INVALID;
	std::memcpy(dst, host, n);
	return 0;
}

CALL(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync,
     (void *host, const void *src, size_t n, void *stream), (host, src, n, stream))
{
	if (use(stream) || !ours(src, n))
		return sticky ? sticky : INVALID;
	std::memcpy(host, src, n);
	return 0;
}

CALL(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync,
     (void *dst, const void *src, size_t n, void *stream), (dst, src, n, stream))
{
	if (use(stream) || !ours(src, n) || !ours(dst, n))
		return sticky ? sticky : INVALID;
	std::memcpy(dst, src, n);
	return 0;
}

CALL(cuMemsetD8Async, hipMemsetD8Async,
     (void *dst, unsigned char byte, size_t n, void *stream), (dst, byte, n, stream))
{
	if (use(stream) || !ours(dst, n))
		return sticky ? sticky : INVALID;
	std::memset(dst, byte, n);
	return 0;
}

CALL(cuModuleLoadData, hipModuleLoadData, (void **module, const void *image),
     (module, image))
{
	(void)image;		/* the kernels are in here */
	*module = &allocations;
	return 0;
}

CALL(cuModuleUnload, hipModuleUnload, (void *module), (module))
{
	return module == &allocations ? 0 : INVALID;
}

CALL(cuModuleGetFunction, hipModuleGetFunction,
     (void **function, void *module, const char *name), (function, module, name))
{
	(void)module;
	for (const kernel &k : kernels)
		if (!std::strcmp(k.name, name)) {
			*function = const_cast<kernel *>(&k);
			return 0;
		}
	return NOT_FOUND;
}

/* What a kernel does wrong is told by the call that follows, as by a device. */
CALL(cuLaunchKernel, hipModuleLaunchKernel,
     (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
      unsigned by, unsigned bz, unsigned shared, void *stream, void **args,
      void **extra),
     (function, gx, gy, gz, bx, by, bz, shared, stream, args, extra))
{
	if (use(stream) || shared || extra)
		return sticky ? sticky : INVALID;
	if (gx < 1 || gx > 0x7fffffff || gy != 1 || gz != 1 || bx < 1 ||
	    bx > MOST_THREADS || by != 1 || bz != 1)
		return INVALID;
	run_kernel((const kernel *)function, gx, bx, args);
	return 0;
}

CALL(cuDeviceGetAttribute, hipDeviceGetAttribute, (int *value, int which, int handle),
     (value, which, handle))
{
	static const std::map<int, int> values = {
		{ 75, 9 }, { 76, 0 }, { 16, 2 }, { 10, WARP }, { 38, 1 << 20 },
		{ 23, 9 }, { 61, 0 }, { 63, 2 }, { 87, WARP }, { 19, 1 << 20 },
	};
	auto found = values.find(which);

	(void)handle;
	if (found == values.end())
		return INVALID;
	*value = found->second;
	return 0;
}

CALL(cuDeviceGetName, hipDeviceGetName, (char *name, int size, int handle),
     (name, size, handle))
{
	(void)handle;
	std::snprintf(name, (size_t)size, "executor on the CPU, no GPU");
	return 0;
}

CALL(cuMemGetInfo_v2, hipMemGetInfo, (size_t *left, size_t *total), (left, total))
{
	*total = (size_t)memory_all();
	*left = (size_t)(memory_all() - memory_used);
	return sticky;
}

CALL(cuDriverGetVersion, hipDriverGetVersion, (int *version), (version))
{
	*version = 12040;
	return 0;
}

CALL(cuMemHostAlloc, hipHostMalloc, (void **host, size_t n, unsigned flags),
     (host, n, flags))
{
	(void)flags;
	*host = std::malloc(n);
	return *host ? 0 : NO_MEMORY;
}

CALL(cuMemFreeHost, hipHostFree, (void *host), (host))
{
	std::free(host);
	return 0;
}

CALL(cuStreamCreate, hipStreamCreateWithFlags, (void **stream, unsigned flags),
     (stream, flags))
{
	(void)flags;
	*stream = new_handle();
	return *stream ? sticky : NO_MEMORY;
}

CALL(cuStreamDestroy_v2, hipStreamDestroy, (void *stream), (stream))
{
	if (!handles.erase(stream))
		return INVALID;
	std::free(stream);
	return 0;
}

CALL(cuStreamSynchronize, hipStreamSynchronize, (void *stream), (stream))
{
	return use(stream);
}

CALL(cuStreamWaitEvent, hipStreamWaitEvent,
     (void *stream, void *event, unsigned flags), (stream, event, flags))
{
	(void)flags;
	return event && known(event) ? use(stream) : INVALID;
}

CALL(cuEventCreate, hipEventCreateWithFlags, (void **event, unsigned flags),
     (event, flags))
{
	(void)flags;
	*event = new_handle();
	return *event ? sticky : NO_MEMORY;
}

CALL(cuEventDestroy_v2, hipEventDestroy, (void *event), (event))
{
	if (!handles.erase(event))
		return INVALID;
	std::free(event);
	return 0;
}

CALL(cuEventRecord, hipEventRecord, (void *event, void *stream), (event, stream))
{
	const auto now = std::chrono::steady_clock::now().time_since_epoch();
	const double ms = std::chrono::duration<double, std::milli>(now).count();

	if (!event || !known(event))
		return INVALID;
	std::memcpy(event, &ms, sizeof(ms));
	return use(stream);
}

CALL(cuEventSynchronize, hipEventSynchronize, (void *event), (event))
{
	return event && known(event) ? sticky : INVALID;
}

CALL(cuEventElapsedTime, hipEventElapsedTime, (float *ms, void *begin, void *end),
     (ms, begin, end))
{
	double from, to;

	std::memcpy(&from, begin, sizeof(from));
	std::memcpy(&to, end, sizeof(to));
	*ms = (float)(to - from);
	return sticky;
}

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuGetErrorName(int code, const char **name)
{
	static char text[32];

	std::snprintf(text, sizeof(text), "EXECUTOR_ERROR_%d", code);
	*name = text;
	return 0;
}

EXPORT const char *hipGetErrorName(int code)
{
	const char *name;

	cuGetErrorName(code, &name);
	return name;
}

/* ---- what only tests ask ------------------------------------------------ */

EXPORT void kvt_exec_seed(uint64_t seed)
{
	state = seed;
}

EXPORT void kvt_exec_fault(int n)
{
	planted = n;
}

EXPORT const char *kvt_exec_trouble()
{
	return trouble;
}

EXPORT void kvt_exec_reset()
{
	sticky = 0;
	trouble[0] = '\0';
}

EXPORT void kvt_exec_count(int on)
{
	counting = on;
	traffic[0] = traffic[1] = {};
}

EXPORT void kvt_exec_read(struct kvt_exec_traffic *loads,
			  struct kvt_exec_traffic *stores)
{
	*loads = traffic[0];
	*stores = traffic[1];
}
