/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_body.inl - the GPU kernels, once for CUDA, HIP and the executor
 *
 * All but 'cast' move bytes; that one makes elements of another type of them.
 *
 * Who includes this has defined:
 *
 *   gpu_unit16          a type of 16 bytes that one access moves
 *   GPU_ENTRY           in front of an entry point, with its linkage
 *   GPU_INLINE          in front of everything else
 *   GPU_THREAD          index of the thread in its block
 *   GPU_BLOCK, GPU_GRID index of the block, and how many there are
 *   GPU_UNROLL          in front of a loop whose arrays must be registers
 *   GPU_NO_UNROLL       in front of one that must stay a loop
 *   GPU_BARRIER()       all threads of the block have come here
 *   GPU_LOAD(p)         *p of device memory
 *   GPU_STORE(p, v)     *p = v in device memory
 *   GPU_SHARED(t, a, n) t a[n], one for all threads of a block
 *   GPU_SLOAD(p), GPU_SSTORE(p, v)  the same for what lies there
 *   GPU_MULHI(a, b)     high half of a 32 by 32 bit product
 *   GPU_FAULT(n)        0; the executor plants the fault n of its tests here
 *
 * No warp is as wide as the other vendor's, so no warp is mentioned; threads
 * meet at barriers only, and all of them come there.
 */
#include "kernels/gpu_plan.h"

#define CAST_FN	GPU_INLINE
#include "lib/layout/cast_bits.h"

/* ---- index arithmetic --------------------------------------------------- */

GPU_INLINE uint32_t gpu_quotient(uint32_t x, const gpu_div &d)
{
	return (GPU_MULHI(x, d.mul) + x) >> d.shift;
}

/* x becomes x / d, the remainder is returned. */
GPU_INLINE uint32_t gpu_digit(uint32_t &x, const gpu_div &d)
{
	const uint32_t q = gpu_quotient(x, d), r = x - q * d.n;

	x = q;
	return r;
}

/* Adds the offsets of the x-th round of the last ND loops. */
template <int ND>
GPU_INLINE void gpu_place(int64_t &src, int64_t &dst, uint32_t x,
			  const gpu_dims &dims)
{
	GPU_UNROLL
	for (int i = GPU_DIMS - 1; i > GPU_DIMS - ND; i--) {
		const uint32_t k = gpu_digit(x, dims.div[i]);

		src += k * dims.src[i];
		dst += k * dims.dst[i];
	}
	src += x * dims.src[GPU_DIMS - ND];
	dst += x * dims.dst[GPU_DIMS - ND];
}

/* ---- spread ------------------------------------------------------------- */

/*
 * Neighbours in the grid are neighbours in the destination, so each request
 * writes whole lines; the scatter is on the loads, which caches absorb.
 */
template <typename T, int ND>
GPU_INLINE void gpu_spread(char *dst, const char *src, const gpu_copy &c)
{
	const uint32_t step = GPU_GRID * (GPU_THREADS * GPU_BATCH);
	const uint32_t total = c.total + (GPU_FAULT(2) ? 1 : 0);

	for (uint32_t x = GPU_BLOCK * (GPU_THREADS * GPU_BATCH) + GPU_THREAD;
	     x < total; x += step) {
		T value[GPU_BATCH];
		int64_t to[GPU_BATCH];

		GPU_UNROLL
		for (int j = 0; j < GPU_BATCH; j++) {
			uint32_t run = x + j * GPU_THREADS;
			int64_t from = 0;

			to[j] = 0;
			if (run >= total)
				continue;
			from = to[j] = (int64_t)sizeof(T) *
				       gpu_digit(run, c.per_run);
			gpu_place<ND>(from, to[j], run, c.dims);
			value[j] = GPU_LOAD((const T *)(src + from));
		}
		GPU_UNROLL
		for (int j = 0; j < GPU_BATCH; j++)
			if (x + j * GPU_THREADS < total)
				GPU_STORE((T *)(dst + to[j]), value[j]);
	}
}

/* ---- lanes -------------------------------------------------------------- */

/* The units of one run from 'first', GPU_BATCH of them 'step' apart. */
template <typename T>
GPU_INLINE void gpu_batch(char *dst, const char *src, int64_t first,
			  int64_t step, int64_t units)
{
	T value[GPU_BATCH];

	GPU_UNROLL
	for (int j = 0; j < GPU_BATCH; j++)
		if (first + j * step < units)
			value[j] = GPU_LOAD((const T *)src + first + j * step);
	GPU_UNROLL
	for (int j = 0; j < GPU_BATCH; j++)
		if (first + j * step < units)
			GPU_STORE((T *)dst + first + j * step, value[j]);
}

/* The entry of a table, which may be left out. */
GPU_INLINE int64_t gpu_entry(const int32_t *table, uint32_t i)
{
	return table ? GPU_LOAD(table + i) : (int64_t)i;
}

/* One division a batch, for runs that keep enough threads busy. */
template <typename T, int ND, bool TABLES>
GPU_INLINE void gpu_lanes(char *dst, const char *src, const gpu_copy &c,
			  const int32_t *src_table, const int32_t *dst_table)
{
	const uint32_t lanes = 1u << c.lanes_log2;
	const uint32_t step = GPU_GRID * GPU_THREADS;

	for (uint32_t x = GPU_BLOCK * GPU_THREADS + GPU_THREAD; x < c.total;
	     x += step) {
		uint32_t run = x >> c.lanes_log2;
		const uint32_t chunk = gpu_digit(run, c.per_run);
		const uint32_t first = chunk * (lanes * GPU_BATCH) +
				       (x & (lanes - 1));
		int64_t from = 0, to = 0;

		if (TABLES) {
			uint32_t block = run;

			/* the slowest loop: what the others leave */
			GPU_UNROLL
			for (int i = GPU_DIMS - 1; i > GPU_DIMS - ND; i--)
				block = gpu_quotient(block, c.dims.div[i]);
			from = (gpu_entry(src_table, block) - block) *
			       c.dims.src[GPU_DIMS - ND];
			to = (gpu_entry(dst_table, block) - block) *
			     c.dims.dst[GPU_DIMS - ND];
		}
		gpu_place<ND>(from, to, run, c.dims);
		gpu_batch<T>(dst + to, src + from, first, lanes,
			     c.units + (GPU_FAULT(3) ? 1 : 0));
	}
}

/* ---- tile --------------------------------------------------------------- */

/* What the threads of a block tell each other about each of its tiles. */
struct gpu_places {
	int64_t *src, *dst;
	uint32_t *nd, *ns;	/* entries in it; fewer at an edge, 0: no tile */
};

GPU_INLINE void gpu_tile_place(const gpu_places &p, uint32_t i, uint32_t tile,
			       const gpu_tile &t)
{
	const bool none = tile >= t.tiles;
	int64_t src = 0, dst = 0;
	uint32_t d, s;

	s = gpu_digit(tile, t.tiles_s) * t.ts;
	d = gpu_digit(tile, t.tiles_d) * t.td;
	/* unrolled, it would keep all of the loops in registers */
	GPU_NO_UNROLL
	for (int i = GPU_DIMS - 1; i >= 0; i--) {
		const uint32_t k = gpu_digit(tile, t.dims.div[i]);

		src += k * t.dims.src[i];
		dst += k * t.dims.dst[i];
	}
	GPU_SSTORE(p.src + i, src + d * t.src_d + (int64_t)s * t.run);
	GPU_SSTORE(p.dst + i, dst + s * t.dst_s + (int64_t)d * t.run);
	GPU_SSTORE(p.nd + i, none ? 0 : t.nd - d < t.td ? t.nd - d : t.td);
	GPU_SSTORE(p.ns + i, none ? 0 : t.ns - s < t.ts && !GPU_FAULT(4) ?
					t.ns - s : t.ts);
}

/* A whole made of parts, and the other way. */
template <typename W, typename P>
union gpu_parts {
	W whole;
	P part[sizeof(W) / sizeof(P)];
};

/* Rows of the source, R at a time, into shared memory, P at a time. */
template <typename R, typename P>
GPU_INLINE void gpu_tile_read(char *stage, const char *src, const gpu_tile &t,
			      const gpu_places &p)
{
	const uint32_t total = t.per_block * t.td * t.row_in.n;

	for (uint32_t x = GPU_THREAD; x < total; x += GPU_THREADS * GPU_BATCH) {
		gpu_parts<R, P> value[GPU_BATCH];
		uint32_t at[GPU_BATCH];

		GPU_UNROLL
		for (int j = 0; j < GPU_BATCH; j++) {
			uint32_t z = x + j * GPU_THREADS, a, d;

			at[j] = UINT32_MAX;
			if (z >= total)
				continue;
			a = gpu_digit(z, t.row_in) * (uint32_t)sizeof(R);
			d = gpu_digit(z, t.rows_in);
			if (d >= GPU_SLOAD(p.nd + z) ||
			    a >= GPU_SLOAD(p.ns + z) * t.run)
				continue;
			at[j] = z * t.tile_pitch + d * t.pitch + a;
			value[j].whole = GPU_LOAD((const R *)
				(src + GPU_SLOAD(p.src + z) + d * t.src_d + a));
		}
		GPU_UNROLL
		for (int j = 0; j < GPU_BATCH; j++) {
			if (at[j] == UINT32_MAX)
				continue;
			GPU_UNROLL
			for (unsigned k = 0; k < sizeof(R) / sizeof(P); k++)
				GPU_SSTORE((P *)(stage + at[j]) + k,
					   value[j].part[k]);
		}
	}
}

/* Puts the k-th unit E of a P in its place; the first comes first. */
template <typename P, typename E>
GPU_INLINE void gpu_join(P &whole, unsigned k, const E &unit)
{
	if constexpr (sizeof(P) == sizeof(E))
		whole = unit;
	else if (k == 0)
		whole = unit;
	else
		whole |= (P)unit << (8 * sizeof(E) * k);
}

/*
 * Rows of the destination, W at a time, each put together of units E; P is in
 * between, because not every compiler keeps an array of bytes in registers.
 */
template <typename W, typename P, typename E>
GPU_INLINE void gpu_tile_write(char *dst, const char *stage, const gpu_tile &t,
			       const gpu_places &p)
{
	const uint32_t total = t.per_block * t.ts * t.row_out.n;
	const unsigned n = sizeof(W) / sizeof(E), each = sizeof(P) / sizeof(E);

	for (uint32_t x = GPU_THREAD; x < total; x += GPU_THREADS) {
		gpu_parts<W, P> value;
		uint32_t z = x, b, s, d, unit, from;

		b = gpu_digit(z, t.row_out);
		s = gpu_digit(z, t.rows_out);
		if (s >= GPU_SLOAD(p.ns + z) ||
		    b * (uint32_t)sizeof(W) >= GPU_SLOAD(p.nd + z) * t.run)
			continue;
		d = b * n;
		unit = gpu_digit(d, t.units);
		from = z * t.tile_pitch + s * t.run + (GPU_FAULT(5) ? t.run : 0);
		GPU_UNROLL
		for (unsigned k = 0; k < n; k++) {
			gpu_join<P, E>(value.part[k / each], k % each,
				       GPU_SLOAD((const E *)(stage + from +
							     d * t.pitch) + unit));
			if (++unit == t.units.n) {
				unit = 0;
				d++;
			}
		}
		GPU_STORE((W *)(dst + GPU_SLOAD(p.dst + z) + s * t.dst_s) + b,
			  value.whole);
	}
}

/* P: the access to shared memory that keeps 16 bytes of a row together. */
template <typename E, typename P>
GPU_INLINE void gpu_tiles(char *dst, const char *src, const gpu_tile &t)
{
	GPU_SHARED(gpu_unit16, stage, GPU_TILE_BYTES / 16);
	GPU_SHARED(int64_t, src_at, GPU_TILE_PLACES);
	GPU_SHARED(int64_t, dst_at, GPU_TILE_PLACES);
	GPU_SHARED(uint32_t, nd, GPU_TILE_PLACES);
	GPU_SHARED(uint32_t, ns, GPU_TILE_PLACES);
	const gpu_places p = { src_at, dst_at, nd, ns };

	for (uint32_t first = GPU_BLOCK * t.per_block; first < t.tiles;
	     first += GPU_GRID * t.per_block) {
		if (GPU_THREAD < t.per_block)
			gpu_tile_place(p, GPU_THREAD, first + GPU_THREAD, t);
		GPU_BARRIER();
		if (t.wide_in)
			gpu_tile_read<gpu_unit16, P>((char *)stage, src, t, p);
		else
			gpu_tile_read<E, E>((char *)stage, src, t, p);
		if (!GPU_FAULT(1))
			GPU_BARRIER();
		if (t.wide_out)
			gpu_tile_write<gpu_unit16, P, E>(dst, (char *)stage, t, p);
		else
			gpu_tile_write<E, E, E>(dst, (char *)stage, t, p);
		/* the next tiles need the room */
		if (!GPU_FAULT(7) && !(GPU_FAULT(6) && GPU_THREAD == 1))
			GPU_BARRIER();
	}
}

/* Shared memory is accessed by 4 bytes at least, or by whole units. */
template <typename E> struct gpu_stage { typedef uint32_t part; };
template <> struct gpu_stage<uint64_t> { typedef uint64_t part; };
template <> struct gpu_stage<gpu_unit16> { typedef gpu_unit16 part; };

/* ---- list --------------------------------------------------------------- */

template <typename T>
GPU_INLINE void gpu_share_run(char *dst, const char *src, int64_t len,
			      int64_t lane, int64_t lanes)
{
	const int64_t units = len / (int64_t)sizeof(T);

	for (int64_t u = lane; u < units; u += lanes * GPU_BATCH)
		gpu_batch<T>(dst, src, u, lanes, units);
}

/* Each run gets the widest access that it allows, whatever the others do. */
GPU_INLINE void gpu_list_runs(char *dst, const char *src, const gpu_list &c,
			      const gpu_run *list)
{
	const uint32_t lanes = 1u << c.lanes_log2;
	const uint32_t step = GPU_GRID * GPU_THREADS;

	for (uint32_t x = GPU_BLOCK * GPU_THREADS + GPU_THREAD; x < c.total;
	     x += step) {
		const gpu_run *run = list + (x >> c.lanes_log2);
		const uint32_t lane = x & (lanes - 1);
		const char *from = src + GPU_LOAD(&run->src);
		char *to = dst + GPU_LOAD(&run->dst);
		const int64_t len = GPU_LOAD(&run->len);
		const uint32_t low = (uint32_t)(uintptr_t)from |
				     (uint32_t)(uintptr_t)to | (uint32_t)len;

		if (low % 16 == 0 || (GPU_FAULT(8) && low % 8 == 0))
			gpu_share_run<gpu_unit16>(to, from, len, lane, lanes);
		else if (low % 8 == 0)
			gpu_share_run<uint64_t>(to, from, len, lane, lanes);
		else if (low % 4 == 0)
			gpu_share_run<uint32_t>(to, from, len, lane, lanes);
		else if (low % 2 == 0)
			gpu_share_run<uint16_t>(to, from, len, lane, lanes);
		else
			gpu_share_run<uint8_t>(to, from, len, lane, lanes);
	}
}

/* ---- cast --------------------------------------------------------------- */

template <int BYTES> struct gpu_word;
template <> struct gpu_word<1> { typedef uint8_t held; };
template <> struct gpu_word<2> { typedef uint16_t held; };
template <> struct gpu_word<4> { typedef uint32_t held; };
template <> struct gpu_word<8> { typedef uint64_t held; };
template <> struct gpu_word<16> { typedef gpu_unit16 held; };

/* By what numbers are multiplied, and then divided. */
struct gpu_factors {
	float times, by;
};

/* A type of BYTES is meant; the branches are the same for all threads. */
template <int BYTES>
GPU_INLINE float gpu_number(uint32_t element, uint32_t type)
{
	const int32_t bits = (int32_t)element;

	if constexpr (BYTES == 4)
		return cast_float_of(bits);
	else if constexpr (BYTES == 2)
		return type == CAST_f16 ? cast_from_f16(bits) : cast_from_bf16(bits);
	else
		return type == CAST_e4m3fn ? cast_from_e4m3fn(bits) :
		       type == CAST_e5m2 ? cast_from_e5m2(bits) :
					   cast_from_e4m3fnuz(bits);
}

template <int BYTES>
GPU_INLINE uint32_t gpu_element(float number, uint32_t type)
{
	if constexpr (BYTES == 4)
		return (uint32_t)cast_bits_of(number);
	else if constexpr (BYTES == 2)
		return (uint32_t)(type == CAST_f16 ? cast_to_f16(number) :
						     cast_to_bf16(number));
	else
		return (uint32_t)(type == CAST_e4m3fn ? cast_to_e4m3fn(number) :
				  type == CAST_e5m2 ? cast_to_e5m2(number) :
						      cast_to_e4m3fnuz(number));
}

/* Arithmetic of a GPU forgets what NaN it was; that of the CPU keeps it, quiet. */
GPU_INLINE float gpu_scaled(float number, const gpu_factors &f)
{
	const int32_t bits = cast_bits_of(number);
	const int32_t nan = (bits & 0x7fffffff) > 0x7f800000;

	return cast_float_of(cast_pick(nan, bits | 0x400000,
				       cast_bits_of(number * f.times / f.by)));
}

template <typename S, typename D>
GPU_INLINE uint32_t gpu_cast_one(uint32_t element, const gpu_cast &c,
				 const gpu_factors &f, bool scaled)
{
	float number = gpu_number<sizeof(S)>(element, c.from);

	if (scaled)
		number = gpu_scaled(number, f);
	return gpu_element<sizeof(D)>(number, c.to);
}

/* Elements that lie as accesses need them, from words of 4 bytes into such words. */
template <typename S, typename D>
GPU_INLINE void gpu_cast_wide(char *dst, const char *src, const gpu_cast &c,
			      const gpu_factors &f, bool scaled)
{
	const int n = GPU_CAST_EACH(sizeof(S), sizeof(D));
	typedef typename gpu_word<n * sizeof(S)>::held in_type;
	typedef typename gpu_word<n * sizeof(D)>::held out_type;
	gpu_parts<in_type, uint32_t> in;
	gpu_parts<out_type, uint32_t> out;

	in.whole = GPU_LOAD((const in_type *)src);
	GPU_UNROLL
	for (int i = 0; i < n; i++) {
		const int s = i * (int)sizeof(S), d = i * (int)sizeof(D);
		const uint32_t word = in.part[s / 4] >> (8 * (s % 4));
		const uint32_t to = gpu_cast_one<S, D>(sizeof(S) == 4 ? word :
						       (uint32_t)(S)word, c, f,
						       scaled);

		if (d % 4)
			out.part[d / 4] |= to << (8 * (d % 4));
		else
			out.part[d / 4] = to;
	}
	GPU_STORE((out_type *)dst, out.whole);
}

/* One element, byte by byte if it has to be. */
template <typename S, typename D>
GPU_INLINE void gpu_cast_narrow(char *dst, const char *src, const gpu_cast &c,
				const gpu_factors &f, bool scaled)
{
	uint32_t element = 0;

	if (!c.bytes)
		element = GPU_LOAD((const S *)src);
	else
		for (int i = 0; i < (int)sizeof(S); i++)
			element |= (uint32_t)GPU_LOAD((const uint8_t *)src + i)
				   << (8 * i);
	element = gpu_cast_one<S, D>(element, c, f, scaled);
	if (!c.bytes)
		GPU_STORE((D *)dst, (D)element);
	else
		for (int i = 0; i < (int)sizeof(D); i++)
			GPU_STORE((uint8_t *)dst + i, (uint8_t)(element >> (8 * i)));
}

/* Neighbours in the grid are neighbours in the destination, as in 'spread'. */
template <typename S, typename D>
GPU_INLINE void gpu_casts(char *dst, const char *src, const gpu_cast &c,
			  const gpu_factors *factors)
{
	const uint32_t step = GPU_GRID * GPU_THREADS;
	const int64_t n = GPU_CAST_EACH(sizeof(S), sizeof(D));

	for (uint32_t x = GPU_BLOCK * GPU_THREADS + GPU_THREAD; x < c.total;
	     x += step) {
		gpu_factors f = { 1, 1 };
		uint32_t run = x;
		int64_t first = (int64_t)gpu_digit(run, c.per_run) * c.each;
		int64_t from = first, to = first, pair = 0, left = c.run - first;
		bool scaled;

		GPU_UNROLL
		for (int i = GPU_DIMS - 1; i >= 0; i--) {
			const uint32_t k = gpu_digit(run, c.dims.div[i]);

			from += k * c.dims.src[i];
			to += k * c.dims.dst[i];
			pair += k * c.factor[i];
		}
		if (factors) {
			f.times = GPU_LOAD(&factors[pair].times);
			f.by = GPU_LOAD(&factors[pair].by);
		}
		scaled = f.times < 1 || f.times > 1 || f.by < 1 || f.by > 1;
		if (c.each == n && (left >= n || GPU_FAULT(9))) {
			gpu_cast_wide<S, D>(dst + to * (int64_t)sizeof(D),
					    src + from * (int64_t)sizeof(S), c, f,
					    scaled);
			continue;
		}
		left = left < c.each ? left : c.each;
		GPU_NO_UNROLL
		for (int64_t i = 0; i < left; i++)
			gpu_cast_narrow<S, D>(dst + (to + i) * (int64_t)sizeof(D),
					      src + (from + i) * (int64_t)sizeof(S), c, f,
					      scaled);
	}
}

/* ---- naive -------------------------------------------------------------- */

/*
 * The plainest kernel, which the fast ones are measured against and large
 * results are checked with: no merged index, no magic, no batch.
 */
template <typename T>
GPU_INLINE void gpu_copy_naive(char *dst, const char *src, const gpu_naive &c)
{
	const int64_t step = (int64_t)GPU_GRID * GPU_THREADS;

	for (int64_t x = (int64_t)GPU_BLOCK * GPU_THREADS + GPU_THREAD;
	     x < c.total; x += step) {
		const int64_t within = x % c.per_run * (int64_t)sizeof(T);
		int64_t run = x / c.per_run, from = within, to = within;

		for (int64_t i = c.ndims - 1; i >= 0; i--) {
			from += run % c.n[i] * c.src[i];
			to += run % c.n[i] * c.dst[i];
			run /= c.n[i];
		}
		GPU_STORE((T *)(dst + to), GPU_LOAD((const T *)(src + from)));
	}
}

/* ---- entry points ------------------------------------------------------- */

#define SPREAD(name, type, nd)						\
	GPU_ENTRY void kvt_##name(char *dst, const char *src, gpu_copy c) \
	{								\
		gpu_spread<type, nd>(dst, src, c);			\
	}
#define LANES(name, type, nd)						\
	GPU_ENTRY void kvt_##name(char *dst, const char *src, gpu_copy c) \
	{								\
		gpu_lanes<type, nd, false>(dst, src, c, nullptr, nullptr); \
	}
#define BLOCKS(name, type, nd)						\
	GPU_ENTRY void kvt_##name(char *dst, const char *src, gpu_copy c, \
				  const int32_t *src_table,		\
				  const int32_t *dst_table)		\
	{								\
		gpu_lanes<type, nd, true>(dst, src, c, src_table, dst_table); \
	}
#define TILE(name, type, nd)						\
	GPU_ENTRY void kvt_##name(char *dst, const char *src, gpu_tile t) \
	{								\
		gpu_tiles<type, gpu_stage<type>::part>(dst, src, t);	\
	}
#define LIST(name, type, nd)						\
	GPU_ENTRY void kvt_##name(char *dst, const char *src, gpu_list c, \
				  const gpu_run *list)			\
	{								\
		gpu_list_runs(dst, src, c, list);			\
	}
#define CAST(name, type, nd)						\
	GPU_ENTRY void kvt_##name(char *dst, const char *src, gpu_cast c, \
				  const gpu_factors *factors)		\
	{								\
		gpu_casts<type, gpu_word<nd>::held>(dst, src, c, factors); \
	}
#define NAIVE(name, type, nd)						\
	GPU_ENTRY void kvt_##name(char *dst, const char *src, gpu_naive c) \
	{								\
		gpu_copy_naive<type>(dst, src, c);			\
	}
GPU_SPREAD_KERNELS(SPREAD)
GPU_LANES_KERNELS(LANES)
GPU_BLOCKS_KERNELS(BLOCKS)
GPU_TILE_KERNELS(TILE)
GPU_LIST_KERNELS(LIST)
GPU_CAST_KERNELS(CAST)
GPU_NAIVE_KERNELS(NAIVE)
#undef SPREAD
#undef LANES
#undef BLOCKS
#undef TILE
#undef LIST
#undef CAST
#undef NAIVE
