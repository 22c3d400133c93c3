//! The one loop of all vector kernels: blocks of a few vectors, all rows' sums in registers.
//!
//! In each block the sources are taken two at a time, because `a ^ b ^ c` is one instruction on
//! AVX-512 and costs no more elsewhere. Long blocks spread the work per source (its pointer, its
//! coefficients' matrices) over more bytes: with eight vectors of 64 bytes P+Q 8+2 in L1 is 1.15
//! times as fast as with four. More than three rows would not leave registers for the sums.

use super::{Coefficient, Job};

/// The vector operations of an instruction set.
///
/// # Safety
///
/// All methods: the CPU has the instructions. Methods with pointers: `BYTES` bytes (or `count <
/// BYTES` for the partial ones) can be read or written there. `stream`: `pointer` is aligned to
/// `BYTES`.
pub(super) trait Vector: Copy {
    const BYTES: usize;
    /// A coefficient, prepared.
    type Multiplier: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(pointer: *const u8) -> Self;
    unsafe fn store(self, pointer: *mut u8);
    unsafe fn stream(self, pointer: *mut u8);
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn multiplier(coefficient: &Coefficient) -> Self::Multiplier;
    unsafe fn multiply(self, by: Self::Multiplier) -> Self;

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller's CPU has the instructions.
        unsafe { self.xor(b).xor(c) }
    }

    /// The first `count` bytes, then zeros.
    #[inline(always)]
    unsafe fn load_partial(pointer: *const u8, count: usize) -> Self {
        let mut bytes = [0u8; 64];
        // SAFETY: `count` bytes are there, and `count < BYTES <= 64`.
        unsafe {
            std::ptr::copy_nonoverlapping(pointer, bytes.as_mut_ptr(), count);
            Self::load(bytes.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store_partial(self, pointer: *mut u8, count: usize) {
        let mut bytes = [0u8; 64];
        // SAFETY: as above.
        unsafe {
            self.store(bytes.as_mut_ptr());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, count);
        }
    }
}

/// Orders streamed stores before all later stores, so that other threads see the data.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has sfence.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// From this many sources on, blocks are short in cache: lines at one distance from a page share a
/// set of the L1 cache (8 to 12 ways), and a long block of many sources evicts its own lines. For
/// jobs from memory long blocks are faster all the same.
const SOURCES_MANY: usize = 12;

/// From this many bytes on, a job's slices do not fit an L1 cache, and long blocks gain nothing
/// there: P 4+1 from L2 runs 5 to 8 % slower with them.
const BYTES_MANY: usize = 16 << 10;

/// Runs a job in blocks. The block length in vectors is `SHORT` with many sources or bytes in cache
/// and for a plain XOR, `U3` where three rows need the registers, `H` for P and Q by doubling
/// (unless 0), and `U` otherwise.
///
/// A plain XOR has no coefficients to spread over a long block, and short blocks mix its loads
/// better with its stores: on Zen 4 blocks of four are 1.04 times as fast as blocks of eight in L1,
/// and from memory 1.17 (P 4+1) to 1.29 times (8+1).
///
/// Doubling needs no load for a coefficient, but is a chain of additions. It is faster in cache on
/// CPUs that process a vector in two halves (Zen 4: 1.1 to 1.3 times), but not from memory.
///
/// # Safety
///
/// As for `Kernel::combine`, and the CPU has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn combine<
    V: Vector,
    const U: usize,
    const SHORT: usize,
    const U3: usize,
    const H: usize,
>(
    job: &Job<'_>,
) {
    let large = job.sources.len() >= SOURCES_MANY || job.length > BYTES_MANY;
    let short = U != SHORT && large && !job.stream;
    // SAFETY: passed on; `powers` means that the job is P and Q.
    unsafe {
        if H > 0 && job.powers && !job.stream && job.copies.is_empty() {
            return doubling::<V, H>(job);
        }
        match (job.rows(), job.ones, short) {
            (1, true, _) => rows::<V, SHORT, 1, true>(job),
            (1, false, _) => rows::<V, U, 1, false>(job),
            (2, true, false) => rows::<V, U, 2, true>(job),
            (2, true, true) => rows::<V, SHORT, 2, true>(job),
            (2, false, _) => rows::<V, U, 2, false>(job),
            (_, true, _) => rows::<V, U3, 3, true>(job),
            (_, false, _) => rows::<V, U3, 3, false>(job),
        }
    }
}

/// P and Q of all sources, Q = d0 + 2·(d1 + 2·(d2 + …)).
#[inline(always)]
unsafe fn doubling<V: Vector, const H: usize>(job: &Job<'_>) {
    let blocks = job.length / (H * V::BYTES);
    let vectors = job.length / V::BYTES;
    let mut at = 0usize;
    // SAFETY: as in `rows`.
    unsafe {
        for _ in 0..blocks {
            doubling_block::<V, H>(job, at);
            at = at.wrapping_add(H * V::BYTES);
        }
        for _ in blocks * H..vectors {
            doubling_block::<V, 1>(job, at);
            at = at.wrapping_add(V::BYTES);
        }
        if at < job.length {
            block::<V, 1, 2, true, true>(job, at, job.length - at, To::default());
        }
    }
}

#[expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays"
)]
#[inline(always)]
unsafe fn doubling_block<V: Vector, const H: usize>(job: &Job<'_>, at: usize) {
    // SAFETY: two targets, two sources at least, and twice as many coefficients, the second row's
    // second being 2 (`powers`); `doubling` keeps the block inside of `length`.
    unsafe {
        let n = job.sources.len();
        let two = V::multiplier(&*job.matrix.as_ptr().add(n + 1));
        let first = job.sources.as_ptr();
        let mut source = first.add(n - 1);
        let mut p = [V::zero(); H];
        for u in 0..H {
            p[u] = V::load((*source).add(at).add(u * V::BYTES));
        }
        let mut q = p;
        while source > first {
            source = source.sub(1);
            let a = (*source).add(at);
            for u in 0..H {
                let x = V::load(a.add(u * V::BYTES));
                p[u] = p[u].xor(x);
                q[u] = q[u].multiply(two).xor(x);
            }
        }
        let targets = job.targets.as_ptr();
        for (t, sums) in [p, q].into_iter().enumerate() {
            let target = (*targets.add(t)).add(at);
            for u in 0..H {
                sums[u].store(target.add(u * V::BYTES));
            }
        }
    }
}

/// The destination of results.
#[derive(Clone, Copy, Default)]
struct To {
    /// Past the cache.
    memory: bool,
    /// To the job's copies as well.
    copies: bool,
}

#[inline(always)]
unsafe fn rows<V: Vector, const U: usize, const T: usize, const ONES: bool>(job: &Job<'_>) {
    let aligned = job
        .targets
        .iter()
        .all(|t| t.addr().is_multiple_of(V::BYTES));
    let stores = To {
        memory: job.stream && aligned,
        copies: !job.copies.is_empty(),
    };
    let blocks = job.length / (U * V::BYTES);
    let vectors = job.length / V::BYTES;
    let mut at = 0usize;
    // SAFETY: blocks end at `length` or before; the last, partial one gets its number of bytes.
    // Streaming stores go to targets aligned to a vector, `at` being a multiple of one.
    unsafe {
        for _ in 0..blocks {
            block::<V, U, T, ONES, false>(job, at, 0, stores);
            at = at.wrapping_add(U * V::BYTES);
        }
        for _ in blocks * U..vectors {
            block::<V, 1, T, ONES, false>(job, at, 0, stores);
            at = at.wrapping_add(V::BYTES);
        }
        if at < job.length {
            block::<V, 1, T, ONES, true>(job, at, job.length - at, stores);
        }
    }
}

/// `U` vectors from byte `at` on, or `count` bytes when `PARTIAL`.
///
/// The sources are taken from the last to the first. Strips of one allocation are at a fixed
/// distance from each other. With ascending order, the CPU's stride prefetcher (seen on Zen 5)
/// continues beyond the last source and fetches lines that are not needed: P+Q 8+2 runs at 85 GB/s
/// from L2 and 18 from DRAM, with descending order at 149 and 30.
///
/// Pointers are stepped, not indexed, and arrays are indexed by constants only: the sums have to
/// stay in registers, and a check for overflow per source costs a fifth of the speed in L1.
#[expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays"
)]
#[inline(always)]
unsafe fn block<
    V: Vector,
    const U: usize,
    const T: usize,
    const ONES: bool,
    const PARTIAL: bool,
>(
    job: &Job<'_>,
    at: usize,
    count: usize,
    stores: To,
) {
    let n = job.sources.len();
    // SAFETY: the job's shape gives `n` sources, `T` initial pointers, `T * n` coefficients, and at most `T` targets,
    // each with `T` coefficients of `after` and a copy, if there are any. `length` bytes are behind each pointer;
    // `rows` keeps the block inside of `length`.
    unsafe {
        let load = |pointer: *const u8, u: usize| {
            if PARTIAL {
                V::load_partial(pointer.add(at), count)
            } else {
                V::load(pointer.add(at).add(u * V::BYTES))
            }
        };
        let mut sums = [[V::zero(); U]; T];
        let initial = job.initial.as_ptr();
        for t in 0..T {
            let initial = *initial.add(t);
            if !initial.is_null() {
                for u in 0..U {
                    sums[t][u] = load(initial, u);
                }
            }
        }
        let mut coefficients = [job.matrix.as_ptr(); T];
        for t in 0..T {
            coefficients[t] = coefficients[t].add((t + 1) * n);
        }
        let first = job.sources.as_ptr();
        let mut source = first.add(n);
        while source > first.add(1) {
            source = source.sub(2);
            let (a, b) = (*source.add(1), *source);
            let mut x = [V::zero(); U];
            let mut y = [V::zero(); U];
            for u in 0..U {
                x[u] = load(a, u);
                y[u] = load(b, u);
            }
            for t in 0..T {
                if ONES && t == 0 {
                    for u in 0..U {
                        sums[t][u] = sums[t][u].xor3(x[u], y[u]);
                    }
                } else {
                    coefficients[t] = coefficients[t].sub(2);
                    let ma = V::multiplier(&*coefficients[t].add(1));
                    let mb = V::multiplier(&*coefficients[t]);
                    for u in 0..U {
                        sums[t][u] = sums[t][u].xor3(x[u].multiply(ma), y[u].multiply(mb));
                    }
                }
            }
        }
        if n & 1 == 1 {
            let a = *first;
            for u in 0..U {
                let x = load(a, u);
                for t in 0..T {
                    let product = if ONES && t == 0 {
                        x
                    } else {
                        x.multiply(V::multiplier(&*job.matrix.as_ptr().add(t * n)))
                    };
                    sums[t][u] = sums[t][u].xor(product);
                }
            }
        }
        let put = |target: *mut u8, u: usize, value: V, stream: bool| {
            let pointer = target.add(at);
            if PARTIAL {
                value.store_partial(pointer, count);
            } else if stream {
                value.stream(pointer.add(u * V::BYTES));
            } else {
                value.store(pointer.add(u * V::BYTES));
            }
        };
        let targets = job.targets.as_ptr();
        let store = |k: usize, u: usize, value: V| {
            put(*targets.add(k), u, value, stores.memory);
            if stores.copies {
                let copy = *job.copies.as_ptr().add(k);
                if !copy.is_null() {
                    put(copy, u, value, false);
                }
            }
        };
        if job.after.is_empty() {
            for t in 0..T {
                for u in 0..U {
                    store(t, u, sums[t][u]);
                }
            }
            return;
        }
        let mut after = job.after.as_ptr();
        for k in 0..job.targets.len() {
            let mut mixed = [V::zero(); U];
            for t in 0..T {
                let by = V::multiplier(&*after.add(t));
                for u in 0..U {
                    mixed[u] = mixed[u].xor(sums[t][u].multiply(by));
                }
            }
            after = after.add(T);
            for u in 0..U {
                store(k, u, mixed[u]);
            }
        }
    }
}
