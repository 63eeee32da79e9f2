/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_executor.cpp - the GPU kernels on a CPU, and a driver that runs them
 *
 * Each access is checked: inside one allocation, aligned, and in shared memory
 * written before it is read, with a barrier between threads.  What a GPU leaves
 * open is shuffled.  A kernel that meets at barriers has a fiber for a thread.
 *
 * It says nothing about speed, about what compilers make of the kernels, and
 * about blocks that race with each other.
 */
#include "tests/gpu_executor.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#endif
#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

/* Codes of both drivers. */
enum { INVALID = 1, NO_MEMORY = 2, BAD_DEVICE = 101, NOT_FOUND = 500,
       ILLEGAL_ADDRESS = 700, MISALIGNED = 716, LAUNCH_FAILED = 719 };

enum { WARP = 32, SECTOR = 32, LINE = 128, STACK = 256 << 10, MOST_THREADS = 1024,
       SHARED_MOST = 48 << 10, POISON = 0xc3, SHARED_POISON = 0x5a };

struct fault {
	int code;
};

int sticky;			/* the device is dead with this code */
char trouble[256];
int planted;

[[noreturn]] void fail(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	std::vsnprintf(trouble, sizeof(trouble), format, args);
	va_end(args);
	throw fault{ code };
}

/* ---- order -------------------------------------------------------------- */

uint64_t state = 1;

uint64_t next_random()
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

std::vector<unsigned> shuffled(unsigned n)
{
	std::vector<unsigned> order(n);

	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--)
		std::swap(order[i - 1], order[next_random() % i]);
	return order;
}

/* ---- device memory ------------------------------------------------------ */

std::map<uintptr_t, size_t> allocations;
uintptr_t last_begin, last_end;		/* where the last access was */

bool inside(uintptr_t address, size_t n)
{
	if (address >= last_begin && address < last_end)
		return n <= last_end - address;
	auto next = allocations.upper_bound(address);

	if (next == allocations.begin())
		return false;
	--next;
	last_begin = next->first;
	last_end = next->first + next->second;
	return address < last_end && n <= last_end - address;
}

/* ---- counting ----------------------------------------------------------- */

struct access {
	uint32_t warp, sequence;	/* the n-th of its thread */
	uintptr_t address;
	uint32_t size;
};

bool counting;
std::vector<access> accesses[2];	/* loads and stores of a block */
uint32_t sequence[2][MOST_THREADS];
kvt_exec_traffic traffic[2];

void count_request(kvt_exec_traffic &t, const access *a, size_t n)
{
	std::set<uintptr_t> sectors, lines;

	t.requests++;
	for (size_t i = 0; i < n; i++) {
		t.bytes += a[i].size;
		for (uintptr_t at = a[i].address / SECTOR;
		     at <= (a[i].address + a[i].size - 1) / SECTOR; at++) {
			sectors.insert(at);
			lines.insert(at / (LINE / SECTOR));
		}
	}
	t.sectors += (int64_t)sectors.size();
	t.lines += (int64_t)lines.size();
}

void count_block()
{
	for (int kind = 0; kind < 2; kind++) {
		std::vector<access> &all = accesses[kind];

		std::sort(all.begin(), all.end(), [](const access &a, const access &b) {
			return std::pair(a.warp, a.sequence) <
			       std::pair(b.warp, b.sequence);
		});
		for (size_t i = 0, end; i < all.size(); i = end) {
			for (end = i + 1; end < all.size() &&
			     all[end].warp == all[i].warp &&
			     all[end].sequence == all[i].sequence; end++)
				;
			count_request(traffic[kind], &all[i], end - i);
		}
		all.clear();
		std::fill_n(sequence[kind], (size_t)MOST_THREADS, 0u);
	}
}

/* ---- what the kernels see ----------------------------------------------- */

/* Shared memory of one size, and who did what to each byte since when. */
struct shadow {
	uint32_t written, read;		/* at which epoch last */
	uint16_t writer, reader;
};
struct shared_array {
	char *bytes;
	size_t size;
	std::vector<shadow> shadows;
};

const uint16_t SEVERAL = 0xffff;

uint32_t thread_now, block_now, blocks_all;
uint32_t epoch, block_began;		/* counts barriers; when the block began */
std::vector<shared_array> shared_arrays;
size_t shared_seen[MOST_THREADS], shared_bytes;
bool fibers;				/* may threads wait for each other? */

uintptr_t checked(const void *p, size_t size, size_t align, int kind)
{
	const uintptr_t address = (uintptr_t)p;

	if (address % align)
		fail(MISALIGNED, "misaligned %s of %zu bytes",
		     kind ? "store" : "load", size);
	if (!inside(address, size))
		fail(ILLEGAL_ADDRESS, "%s of %zu bytes outside every allocation",
		     kind ? "store" : "load", size);
	if (counting)
		accesses[kind].push_back({ thread_now / WARP,
					   sequence[kind][thread_now]++, address,
					   (uint32_t)size });
	return address;
}

template <typename T> T device_load(const T *p)
{
	T value;

	std::memcpy(&value, (const void *)checked(p, sizeof(T), alignof(T), 0),
		    sizeof(T));
	return value;
}

template <typename T> void device_store(T *p, const T &value)
{
	std::memcpy((void *)checked(p, sizeof(T), alignof(T), 1), &value, sizeof(T));
}

void *shared_array_of(size_t size)
{
	const size_t i = shared_seen[thread_now]++;

	if (i == shared_arrays.size()) {
		void *bytes;

		shared_bytes += size;
		if (shared_bytes > SHARED_MOST)
			fail(INVALID, "%zu bytes of shared memory", shared_bytes);
		if (posix_memalign(&bytes, 16, size))
			std::abort();
		shared_arrays.push_back({ (char *)bytes, size,
					  std::vector<shadow>(size) });
		std::memset(bytes, SHARED_POISON, size);
	}
	return shared_arrays[i].bytes;
}

/* The shadows of what is accessed. */
shadow *shared_checked(const void *p, size_t size, size_t align)
{
	const uintptr_t address = (uintptr_t)p;

	if (address % align)
		fail(MISALIGNED, "misaligned access to shared memory");
	for (shared_array &a : shared_arrays)
		if (address >= (uintptr_t)a.bytes &&
		    address < (uintptr_t)a.bytes + a.size &&
		    size <= (uintptr_t)a.bytes + a.size - address)
			return &a.shadows[address - (uintptr_t)a.bytes];
	fail(ILLEGAL_ADDRESS, "access outside shared memory");
}

template <typename T> T shared_load(const T *p)
{
	shadow *s = shared_checked(p, sizeof(T), alignof(T));
	T value;

	for (size_t i = 0; i < sizeof(T); i++, s++) {
		if (s->written < block_began)
			fail(LAUNCH_FAILED, "shared memory read that nobody wrote");
		if (s->written == epoch && s->writer != thread_now)
			fail(LAUNCH_FAILED, "no barrier between a write and a read");
		s->reader = s->read == epoch && s->reader != thread_now ?
			SEVERAL : (uint16_t)thread_now;
		s->read = epoch;
	}
	std::memcpy(&value, p, sizeof(T));
	return value;
}

template <typename T> void shared_store(T *p, const T &value)
{
	shadow *s = shared_checked(p, sizeof(T), alignof(T));

	for (size_t i = 0; i < sizeof(T); i++, s++) {
		if (s->read == epoch && s->reader != thread_now)
			fail(LAUNCH_FAILED, "no barrier between a read and a write");
		if (s->written == epoch && s->writer != thread_now)
			fail(LAUNCH_FAILED, "two threads write the same");
		s->writer = (uint16_t)thread_now;
		s->written = epoch;
	}
	std::memcpy(p, &value, sizeof(T));
}

void barrier(int where);

}

struct alignas(16) gpu_unit16 {
	uint32_t word[4];
};

#define GPU_ENTRY	static
#define GPU_INLINE	static inline
#define GPU_THREAD	thread_now
#define GPU_BLOCK	block_now
#define GPU_GRID	blocks_all
#define GPU_UNROLL
#define GPU_NO_UNROLL
#define GPU_BARRIER()	barrier(__LINE__)
#define GPU_LOAD(p)	device_load(p)
#define GPU_STORE(p, v)	device_store(p, v)
#define GPU_SLOAD(p)	shared_load(p)
#define GPU_SSTORE(p, v) shared_store(p, v)
#define GPU_SHARED(type, name, n) \
	type *const name = (type *)shared_array_of(sizeof(type) * (n))
#define GPU_MULHI(a, b)	((uint32_t)((uint64_t)(a) * (b) >> 32))
#define GPU_FAULT(n)	(planted == (n))

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "kernels/gpu_body.inl"

namespace {

/* ---- fibers ------------------------------------------------------------- */

/* A thread of a launch, with parameters of its own. */
typedef std::function<void()> body;

struct kernel {
	const char *name;
	body (*bind)(void **args);
	bool barriers;
};

struct fiber {
	ucontext_t context;
	char *stack;
	bool done;
	int waits;		/* at the barrier of this line; 0: at none */
	void *fake;
};

fiber pool[MOST_THREADS];
ucontext_t scheduler;
const body *running;
int fiber_code;

/* AddressSanitizer must know which stack is in use. */
void switch_to(ucontext_t *from, ucontext_t *to, void **fake, const void *stack,
	       size_t size)
{
#ifdef WITH_ASAN
	__sanitizer_start_switch_fiber(fake, stack, size);
	swapcontext(from, to);
	__sanitizer_finish_switch_fiber(fake ? *fake : nullptr, nullptr, nullptr);
#else
	(void)fake, (void)stack, (void)size;
	swapcontext(from, to);
#endif
}

const void *scheduler_stack;
size_t scheduler_size;

void fiber_main()
{
	fiber *f = &pool[thread_now];

#ifdef WITH_ASAN
	__sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
	try {
		(*running)();
	} catch (const fault &x) {
		fiber_code = x.code;
	}
	f->done = true;
	f->waits = 0;
	switch_to(&f->context, &scheduler, nullptr, scheduler_stack, scheduler_size);
}

void barrier(int where)
{
	const uint32_t me = thread_now;
	fiber *f = &pool[me];

	if (!fibers)
		fail(LAUNCH_FAILED, "a barrier in a kernel that has none");
	f->waits = where;
	switch_to(&f->context, &scheduler, &f->fake, scheduler_stack, scheduler_size);
}

void fiber_start(fiber *f)
{
	if (!f->stack) {
		void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			std::abort();
		f->stack = (char *)p;
	}
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = STACK;
	f->context.uc_link = nullptr;
	f->done = false;
	f->waits = 0;
	f->fake = nullptr;
	makecontext(&f->context, fiber_main, 0);
}

/* All threads up to their next barrier; then they have to be at the same one. */
bool run_round(unsigned nthreads)
{
	unsigned arrived = 0, left = 0;
	int where = 0;

	for (unsigned i : shuffled(nthreads)) {
		fiber *f = &pool[i];
		void *fake = nullptr;

		if (f->done)
			continue;
		thread_now = i;
		f->waits = 0;
		switch_to(&scheduler, &f->context, &fake, f->stack, STACK);
		if (fiber_code)
			throw fault{ fiber_code };
		left += f->done;
		arrived += !f->done;
		if (!f->done && where && where != f->waits)
			fail(LAUNCH_FAILED, "threads wait at different barriers");
		if (!f->done)
			where = f->waits;
	}
	if (arrived && left)
		fail(LAUNCH_FAILED, "a barrier that not every thread reaches");
	epoch++;
	return arrived > 0;
}

void run_block(const kernel *k, unsigned nthreads, const body &thread)
{
	block_began = ++epoch;
	shared_bytes = 0;
	std::fill_n(shared_seen, nthreads, (size_t)0);
	for (shared_array &a : shared_arrays)
		std::memset(a.bytes, SHARED_POISON, a.size);
	fibers = k->barriers;
	running = &thread;
	fiber_code = 0;
	if (fibers) {
		for (unsigned i = 0; i < nthreads; i++)
			fiber_start(&pool[i]);
		while (run_round(nthreads))
			;
	} else {
		for (unsigned i : shuffled(nthreads)) {
			thread_now = i;
			thread();
		}
	}
	if (counting)
		count_block();
}

/* ---- the table of kernels ----------------------------------------------- */

/* An entry point with what its parameters point to now; it runs later. */
template <typename... A> struct caller {
	template <void (*entry)(A...), size_t... i>
	static body copied(void **args, std::index_sequence<i...>)
	{
		return [all = std::make_tuple(*(A *)args[i]...)] {
			std::apply(entry, all);
		};
	}
	template <void (*entry)(A...)> static body bind(void **args)
	{
		static_assert((sizeof(A) + ...) <= 4096, "parameters of a launch");
		return copied<entry>(args, std::index_sequence_for<A...>());
	}
};

#define COPY(name, type, nd) { "kvt_" #name,				\
	caller<char *, const char *, gpu_copy>::bind<kvt_##name>, false },
#define BLOCKS(name, type, nd) { "kvt_" #name,				\
	caller<char *, const char *, gpu_copy, const int32_t *,		\
	       const int32_t *>::bind<kvt_##name>, false },
#define TILE(name, type, nd) { "kvt_" #name,				\
	caller<char *, const char *, gpu_tile>::bind<kvt_##name>, true },
#define LIST(name, type, nd) { "kvt_" #name,				\
	caller<char *, const char *, gpu_list, const gpu_run *>::	\
	bind<kvt_##name>, false },
#define CAST(name, type, nd) { "kvt_" #name,				\
	caller<char *, const char *, gpu_cast, const gpu_factors *>::	\
	bind<kvt_##name>, false },
#define NAIVE(name, type, nd) { "kvt_" #name,				\
	caller<char *, const char *, gpu_naive>::bind<kvt_##name>, false },
const kernel kernels[] = {
	GPU_SPREAD_KERNELS(COPY) GPU_LANES_KERNELS(COPY)
	GPU_BLOCKS_KERNELS(BLOCKS) GPU_TILE_KERNELS(TILE)
	GPU_LIST_KERNELS(LIST) GPU_CAST_KERNELS(CAST)
	GPU_NAIVE_KERNELS(NAIVE)
};

void run_kernel(const kernel *k, unsigned nblocks, unsigned nthreads,
		const body &thread)
{
	blocks_all = nblocks;
	try {
		for (unsigned i : shuffled(nblocks)) {
			block_now = i;
			run_block(k, nthreads, thread);
		}
	} catch (const fault &x) {
		sticky = x.code;
		for (int kind = 0; kind < 2; kind++)
			accesses[kind].clear();
	}
	/* arrays of another kernel have other sizes */
	for (shared_array &a : shared_arrays)
		std::free(a.bytes);
	shared_arrays.clear();
}

}

#include "tests/gpu_exec_streams.inl"
#include "tests/gpu_exec_driver.inl"
