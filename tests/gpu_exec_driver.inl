/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_exec_driver.inl - the executor's driver calls, under both vendors' names
 *
 * KVT_EXEC_FAIL=cuInit:34 makes a call fail with a code, cuLaunchKernel:700:5 the
 * sixth one, KVT_EXEC_DEVICES=N says how many devices there are, KVT_EXEC_MEMORY=N
 * how many bytes each has, KVT_EXEC_PINNED=N how many the host may pin,
 * KVT_EXEC_FAULT=N which fault is planted, and KVT_EXEC_FLIP=1 that what comes back
 * is wrong.
 */
namespace {

std::recursive_mutex one_call;		/* at a time */
int64_t memory_used, pinned_used;
std::map<void *, size_t> pinned;

int64_t setting(const char *name, int64_t otherwise)
{
	const char *text = std::getenv(name);

	return text ? std::strtoll(text, nullptr, 0) : otherwise;
}

/* The code that this call must fail with; 0: none. */
int injected(const char *call)
{
	static int calls;
	const char *text = std::getenv("KVT_EXEC_FAIL");
	const size_t n = std::strlen(call);
	int code = 0, good = 0;

	if (!text || std::strncmp(text, call, n) ||
	    std::sscanf(text + n, ":%d:%d", &code, &good) < 1)
		return 0;
	return calls++ < good ? 0 : code;
}

bool ours(const void *p, size_t n)
{
	return n == 0 || inside((uintptr_t)p, n);
}

int use(void *stream)
{
	return sticky ? sticky : streams.count(stream) ? 0 : INVALID;
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
		std::lock_guard<std::recursive_mutex> lock(one_call);	\
		const int code = injected(#cuda);			\
		return code ? code : exec_##cuda arguments;		\
	}								\
	extern "C" __attribute__((visibility("default")))		\
	int hip parameters						\
	{								\
		std::lock_guard<std::recursive_mutex> lock(one_call);	\
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
	*context = &allocations;
	return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease, (int handle), (handle))
{
	(void)handle;
	return 0;
}

CALL(cuCtxSetCurrent, hipCtxSetCurrent, (void *context), (context))
{
	return sticky ? sticky : context == &allocations ? 0 : INVALID;
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
	finish();
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
	later(stream, [=] { return std::memcpy(dst, host, n) != nullptr; });
	return 0;
}

CALL(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync,
     (void *host, const void *src, size_t n, void *stream), (host, src, n, stream))
{
	if (use(stream) || !ours(src, n))
		return sticky ? sticky : INVALID;
	later(stream, [=] {
		std::memcpy(host, src, n);
		*(uint8_t *)host ^= (uint8_t)setting("KVT_EXEC_FLIP", 0);
		return true;
	});
	return 0;
}

CALL(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync,
     (void *dst, const void *src, size_t n, void *stream), (dst, src, n, stream))
{
	if (use(stream) || !ours(src, n) || !ours(dst, n))
		return sticky ? sticky : INVALID;
	later(stream, [=] { return std::memcpy(dst, src, n) != nullptr; });
	return 0;
}

CALL(cuMemsetD8Async, hipMemsetD8Async,
     (void *dst, unsigned char byte, size_t n, void *stream), (dst, byte, n, stream))
{
	if (use(stream) || !ours(dst, n))
		return sticky ? sticky : INVALID;
	later(stream, [=] { return std::memset(dst, byte, n) != nullptr; });
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

/* What a kernel does wrong is told by a call that follows, as by a device. */
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
	const kernel *k = (const kernel *)function;
	later(stream, [=, thread = k->bind(args)] {
		run_kernel(k, gx, bx, thread);
		return true;
	});
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
	if ((int64_t)n > setting("KVT_EXEC_PINNED", INT64_MAX) - pinned_used)
		return NO_MEMORY;
	*host = std::malloc(n);
	if (!*host)
		return NO_MEMORY;
	pinned_used += (int64_t)n;
	pinned[*host] = n;
	return 0;
}

CALL(cuMemFreeHost, hipHostFree, (void *host), (host))
{
	if (!pinned.count(host))
		return INVALID;
	finish();
	pinned_used -= (int64_t)pinned[host];
	pinned.erase(host);
	std::free(host);
	return 0;
}

CALL(cuStreamCreate, hipStreamCreateWithFlags, (void **stream, unsigned flags),
     (stream, flags))
{
	(void)flags;
	*stream = std::malloc(1);
	if (!*stream)
		return NO_MEMORY;
	streams[*stream] = {};
	return sticky;
}

CALL(cuStreamDestroy_v2, hipStreamDestroy, (void *stream), (stream))
{
	if (!stream || !streams.count(stream))
		return INVALID;
	finish();
	streams.erase(stream);
	std::free(stream);
	return 0;
}

CALL(cuStreamSynchronize, hipStreamSynchronize, (void *stream), (stream))
{
	const int code = use(stream);

	return code ? code : run_until([=] { return streams[stream].empty(); });
}

CALL(cuStreamWaitEvent, hipStreamWaitEvent,
     (void *stream, void *handle, unsigned flags), (stream, handle, flags))
{
	event *e = (event *)handle;

	(void)flags;
	if (use(stream) || !events.count(e))
		return sticky ? sticky : INVALID;
	later(stream, [e, asked = e->asked] { return e->done >= asked; });
	return 0;
}

CALL(cuEventCreate, hipEventCreateWithFlags, (void **handle, unsigned flags),
     (handle, flags))
{
	event *e = new event{};

	(void)flags;
	events.insert(e);
	*handle = e;
	return sticky;
}

CALL(cuEventDestroy_v2, hipEventDestroy, (void *handle), (handle))
{
	event *e = (event *)handle;

	if (!events.count(e))
		return INVALID;
	finish();
	events.erase(e);
	delete e;
	return 0;
}

CALL(cuEventRecord, hipEventRecord, (void *handle, void *stream), (handle, stream))
{
	event *e = (event *)handle;

	if (use(stream) || !events.count(e))
		return sticky ? sticky : INVALID;
	e->asked++;
	later(stream, [e, asked = e->asked] {
		const auto now = std::chrono::steady_clock::now().time_since_epoch();

		e->ms = std::chrono::duration<double, std::milli>(now).count();
		e->done = asked;
		return true;
	});
	return 0;
}

CALL(cuEventSynchronize, hipEventSynchronize, (void *handle), (handle))
{
	event *e = (event *)handle;

	if (!events.count(e))
		return INVALID;
	return run_until([e, asked = e->asked] { return e->done >= asked; });
}

CALL(cuEventElapsedTime, hipEventElapsedTime, (float *ms, void *begin, void *end),
     (ms, begin, end))
{
	*ms = (float)(((event *)end)->ms - ((event *)begin)->ms);
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
	finish();
	state = seed;
}

EXPORT void kvt_exec_fault(int n)
{
	finish();
	planted = n;
}

EXPORT const char *kvt_exec_trouble()
{
	finish();
	return trouble;
}

EXPORT void kvt_exec_reset()
{
	finish();
	sticky = 0;
	trouble[0] = '\0';
}

EXPORT void kvt_exec_count(int on)
{
	finish();
	counting = on;
	traffic[0] = traffic[1] = {};
}

EXPORT void kvt_exec_read(struct kvt_exec_traffic *loads,
			  struct kvt_exec_traffic *stores)
{
	finish();
	*loads = traffic[0];
	*stores = traffic[1];
}
