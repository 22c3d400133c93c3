//! Bytes: sums of slices times coefficients. The only `unsafe` of the crate is here.
//!
//! A kernel has one operation, [`Job`]: up to three target rows, each the sum of all sources times
//! its own coefficients, computed in one pass over the sources. Rows start from zero or from a
//! slice of their own. A small matrix may mix them before they are stored: so one pass that sums
//! the two syndromes also computes two lost columns. The plain multi-source XOR is the case of one
//! row of ones.
//!
//! | kernel | a product of 64 bytes |
//! | --- | --- |
//! | `naive` | shift and add, byte by byte: the reference |
//! | `portable` | shift and add on 64-bit words |
//! | `avx2`, `neon` | two table look-ups by nibble |
//! | `avx2-gfni`, `avx512-gfni` | one affine transformation |
//!
//! `vector` has the loop; the others have the operations of their vectors.

#![expect(
    unsafe_code,
    reason = "SIMD and raw slices; every block says why it is sound"
)]

mod groups;
mod naive;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod run;
mod tables;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::LazyLock;

use crate::gf;

pub(crate) use run::run;

/// How a kernel writes its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stores {
    /// Into the cache: best when this CPU reads the results soon.
    Cached,
    /// Past the cache: best when the results go to a drive by DMA and the working set is larger
    /// than the cache. If the working set fits the cache, this costs up to 2.5x.
    Streaming,
    /// Past the cache when one call's slices together are larger than [`STREAM_ABOVE_BYTES`].
    #[default]
    Auto,
}

/// The working set from which [`Stores::Auto`] streams: two typical L2 caches. Below it, results
/// written through the cache are cheaper than writes to memory; far above, not polluting the cache
/// wins.
pub const STREAM_ABOVE_BYTES: usize = 4 << 20;

/// A coefficient in a job: its value, and the bit matrix of its multiplication, which the affine
/// kernels read directly. (A look-up by the value is one more load for each source, a tenth of
/// P+Q's time in L1.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coefficient {
    pub(crate) affine: u64,
    pub(crate) value: u8,
}

impl From<u8> for Coefficient {
    fn from(value: u8) -> Self {
        let affine = tables::AFFINE[usize::from(value)];
        Self { affine, value }
    }
}

/// Most target rows of one job.
pub(crate) const ROWS_MAX: usize = 3;

/// `row[t] = initial[t] + Σ_i matrix[t * n + i] · source[i]`, then
/// `target[k] = Σ_t after[k * rows + t] · row[t]`, or `target[t] = row[t]` when `after` is empty.
pub(crate) struct Job<'a> {
    pub(crate) targets: &'a [*mut u8],
    /// For each target a second place, stored through the cache, or null. Empty if no target has
    /// one.
    pub(crate) copies: &'a [*mut u8],
    /// Null starts from zero. One for each row.
    pub(crate) initial: &'a [*const u8],
    pub(crate) sources: &'a [*const u8],
    pub(crate) matrix: &'a [Coefficient],
    pub(crate) after: &'a [Coefficient],
    /// The first row of `matrix` is all ones.
    pub(crate) ones: bool,
    /// The whole job is P and Q in powers of 2: see [`powers`].
    pub(crate) powers: bool,
    pub(crate) stream: bool,
    pub(crate) length: usize,
}

impl Job<'_> {
    fn rows(&self) -> usize {
        self.initial.len()
    }

    /// The conditions that every kernel relies on, besides valid pointers.
    fn has_shape(&self) -> bool {
        let (sources, rows) = (self.sources.len(), self.rows());
        let copied = self.copies.is_empty() || self.copies.len() == self.targets.len();
        copied
            && self.matrix.len() == rows * sources
            && shape(sources, rows, self.targets.len(), self.after)
    }
}

/// True if the parts of a job fit each other: 1 to [`ROWS_MAX`] rows over some sources, and as many
/// targets as rows, or as rows of `after`.
pub(crate) fn shape(sources: usize, rows: usize, targets: usize, after: &[Coefficient]) -> bool {
    let mixed = if after.is_empty() {
        targets == rows
    } else {
        targets <= rows && after.len() == rows * targets
    };
    sources > 0 && (1..=ROWS_MAX).contains(&rows) && mixed
}

/// True if a job is P and Q of some strips: two rows from zero, unmixed, the first of ones, the
/// second of the powers of 2 in order. Then Q = d0 + 2·(d1 + 2·(d2 + …)) needs no coefficients.
pub(crate) fn powers(matrix: &[Coefficient], sources: usize, from_zero: bool) -> bool {
    let doubled = |pair: &[Coefficient]| gf::multiply(2, pair[0].value) == pair[1].value;
    from_zero
        && sources > 1
        && matrix.len() == 2 * sources
        && matrix[..=sources].iter().all(|c| c.value == 1)
        && matrix[sources..].windows(2).all(doubled)
}

/// A way to do the arithmetic, by instruction set.
pub struct Kernel {
    name: &'static str,
    /// # Safety
    ///
    /// The job has its shape ([`Job::has_shape`]). `length` bytes can be read behind every source
    /// and initial pointer that is not null, and written behind every target and copy that is not
    /// null. Targets and copies overlap no other slice of the job, except that a target may be the
    /// very same slice as its `initial`.
    combine: unsafe fn(&Job<'_>),
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernel").field(&self.name).finish()
    }
}

static NAIVE: Kernel = Kernel {
    name: "naive",
    combine: naive::combine,
};

static PORTABLE: Kernel = Kernel {
    name: "portable",
    combine: portable::combine,
};

/// The kernels that this CPU can run, slowest first: `naive`, `portable`, …
pub fn available() -> &'static [&'static Kernel] {
    static AVAILABLE: LazyLock<Vec<&'static Kernel>> = LazyLock::new(|| {
        let mut kernels = vec![&NAIVE, &PORTABLE];
        #[cfg(target_arch = "x86_64")]
        kernels.extend(x86::available());
        #[cfg(target_arch = "aarch64")]
        kernels.extend(neon::available());
        kernels
    });
    &AVAILABLE
}

/// The fastest kernel that this CPU can run.
pub fn best() -> &'static Kernel {
    available().last().expect("the portable ones always run")
}

/// A kernel by its name, if this CPU can run it.
pub fn by_name(name: &str) -> Option<&'static Kernel> {
    available()
        .iter()
        .copied()
        .find(|kernel| kernel.name == name)
}

impl Kernel {
    /// Its name: `naive`, `portable`, `avx2`, `avx2-gfni`, `avx512-gfni`, `neon`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `target (^)= Σ coefficient · source`. A shorter source is extended by zeros to the target's
    /// length, a longer one is cut. No terms give zeros.
    pub fn step(&self, target: &mut [u8], accumulate: bool, terms: &[(&[u8], u8)]) {
        let sources: Vec<&[u8]> = terms.iter().map(|&(source, _)| source).collect();
        let matrix: Vec<u8> = terms.iter().map(|&(_, coefficient)| coefficient).collect();
        self.combine(&mut [target], accumulate, &sources, &matrix, Stores::Cached);
    }

    /// `targets[t] (^)= Σ_i matrix[t * sources.len() + i] · sources[i]`, in one pass for every
    /// three targets.
    ///
    /// Slices may have any lengths and alignments: a shorter source is extended by zeros to the
    /// target's length, a longer one is cut.
    ///
    /// # Panics
    ///
    /// When `matrix` does not have `targets.len() * sources.len()` coefficients.
    pub fn combine(
        &self,
        targets: &mut [&mut [u8]],
        accumulate: bool,
        sources: &[&[u8]],
        matrix: &[u8],
        stores: Stores,
    ) {
        let count = sources.len();
        assert_eq!(
            matrix.len(),
            targets.len() * count,
            "a coefficient for each pair"
        );
        let mut from = 0;
        while from < targets.len() {
            // Consecutive targets of the same length are computed together.
            let length = targets[from].len();
            let same = targets[from..].iter().take_while(|t| t.len() == length);
            let rows = same.take(ROWS_MAX).count();
            let part = &mut targets[from..from + rows];
            let coefficients = &matrix[from * count..(from + rows) * count];
            self.combine_equal(part, accumulate, sources, coefficients, stores);
            from += rows;
        }
    }

    /// Up to three targets of one length, sources of any length.
    fn combine_equal(
        &self,
        targets: &mut [&mut [u8]],
        accumulate: bool,
        sources: &[&[u8]],
        matrix: &[u8],
        stores: Stores,
    ) {
        let length = targets[0].len();
        let mut cuts: Vec<usize> = sources.iter().map(|s| s.len().min(length)).collect();
        cuts.push(length);
        cuts.sort_unstable();
        cuts.dedup();
        let stream = stores.streams(length * (targets.len() + sources.len()));
        let mut start = 0;
        for end in cuts.into_iter().filter(|&cut| cut > 0) {
            let here: Vec<usize> = (0..sources.len())
                .filter(|&i| sources[i].len() >= end)
                .collect();
            if here.is_empty() {
                if !accumulate {
                    targets.iter_mut().for_each(|t| t[start..end].fill(0));
                }
                continue;
            }
            let coefficients: Vec<Coefficient> = (0..targets.len())
                .flat_map(|t| here.iter().map(move |&i| (t, i)))
                .map(|(t, i)| matrix[t * sources.len() + i].into())
                .collect();
            let slices: Vec<*const u8> = here
                .iter()
                .map(|&i| sources[i][start..end].as_ptr())
                .collect();
            let pointers: Vec<*mut u8> = targets
                .iter_mut()
                .map(|t| t[start..end].as_mut_ptr())
                .collect();
            let initial: Vec<*const u8> = pointers
                .iter()
                .map(|&p| {
                    if accumulate {
                        p.cast_const()
                    } else {
                        std::ptr::null()
                    }
                })
                .collect();
            let job = Job {
                targets: &pointers,
                copies: &[],
                initial: &initial,
                sources: &slices,
                matrix: &coefficients,
                after: &[],
                ones: coefficients[..here.len()].iter().all(|c| c.value == 1),
                powers: powers(&coefficients, here.len(), !accumulate),
                stream,
                length: end - start,
            };
            assert!(job.has_shape());
            // SAFETY: the shape was asserted; every pointer comes from a slice cut to
            // `start..end`, so `length` bytes are behind it, and the targets are unique borrows.
            unsafe { groups::combine(self, &job) };
            start = end;
        }
        if stream {
            vector::fence();
        }
    }
}

impl Stores {
    fn streams(self, working_set_bytes: usize) -> bool {
        match self {
            Self::Cached => false,
            Self::Streaming => true,
            Self::Auto => working_set_bytes > STREAM_ABOVE_BYTES,
        }
    }
}
