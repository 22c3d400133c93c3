//! Jobs with many sources from memory: a few sources at a time, over partial sums.
//!
//! The memory's prefetchers follow a limited number of streams. On Zen 4 a P+Q of 14 sources still
//! runs at the speed of eight; from 15 on it loses a third, and so does a loop that only loads the
//! sources side by side. Taking eight sources at a time over 64 KiB, with the rows' partial sums
//! kept in L2 between, restores the speed: 16+2 1.3 times as fast, 24+2 1.6 times. Over 4 KiB it
//! gains nothing, since each source then restarts too often; up to 14 sources it loses.

use super::{Coefficient, Job, Kernel, ROWS_MAX};

/// From this many sources on, a streaming job is done in groups.
const SOURCES_MANY: usize = 15;

/// Sources taken at a time.
const GROUP: usize = 8;

/// How much of each source is taken at a time.
const PART_BYTES: usize = 64 << 10;

/// Does what `kernel.combine` does, in groups where that is faster.
///
/// # Safety
///
/// As for `Kernel::combine`.
#[inline(always)]
pub(super) unsafe fn combine(kernel: &Kernel, job: &Job<'_>) {
    // SAFETY: passed on.
    unsafe {
        if job.stream && job.sources.len() >= SOURCES_MANY {
            in_groups(kernel, job);
        } else {
            (kernel.combine)(job);
        }
    }
}

/// # Safety
///
/// As for `Kernel::combine`.
unsafe fn in_groups(kernel: &Kernel, job: &Job<'_>) {
    let (rows, count) = (job.initial.len(), job.sources.len());
    let part = PART_BYTES.min(job.length);
    // Written before it is read; clearing it would take as long as an eighth of the work.
    let mut scratch: Vec<u8> = Vec::with_capacity(rows * part);
    let start = scratch.as_mut_ptr();
    let partial: [*mut u8; ROWS_MAX] = std::array::from_fn(|t| start.wrapping_add(t * part));
    // From the last group to the first, as in the kernels.
    let groups: Vec<(&[*const u8], Vec<Coefficient>)> = (0..count.div_ceil(GROUP))
        .rev()
        .map(|group| {
            let members = group * GROUP..count.min((group + 1) * GROUP);
            let of_row = |t: usize| &job.matrix[t * count..][members.clone()];
            let matrix = (0..rows).flat_map(of_row).copied().collect();
            (&job.sources[members.clone()], matrix)
        })
        .collect();
    let mut at = 0;
    while at < job.length {
        let length = part.min(job.length - at);
        let given: [*const u8; ROWS_MAX] =
            std::array::from_fn(|t| match job.initial.get(t).copied() {
                Some(pointer) if !pointer.is_null() => pointer.wrapping_add(at),
                _ => std::ptr::null(),
            });
        let kept = partial.map(<*mut u8>::cast_const);
        let targets: [*mut u8; ROWS_MAX] = std::array::from_fn(|k| {
            let target = job.targets.get(k).copied();
            target.unwrap_or(std::ptr::null_mut()).wrapping_add(at)
        });
        let copies: [*mut u8; ROWS_MAX] = std::array::from_fn(|k| match job.copies.get(k) {
            Some(copy) if !copy.is_null() => copy.wrapping_add(at),
            _ => std::ptr::null_mut(),
        });
        for (g, (members, matrix)) in groups.iter().enumerate() {
            let sources: [*const u8; GROUP] = std::array::from_fn(|i| {
                let source = members.get(i).copied();
                source.unwrap_or(std::ptr::null()).wrapping_add(at)
            });
            let last = g + 1 == groups.len();
            let job = Job {
                targets: if last {
                    &targets[..job.targets.len()]
                } else {
                    &partial[..rows]
                },
                copies: if last {
                    &copies[..job.copies.len()]
                } else {
                    &[]
                },
                initial: if g == 0 {
                    &given[..rows]
                } else {
                    &kept[..rows]
                },
                sources: &sources[..members.len()],
                matrix,
                after: if last { job.after } else { &[] },
                ones: job.ones,
                powers: false,
                stream: last,
                length,
            };
            debug_assert!(job.has_shape());
            // SAFETY: each group has its sources' columns of the matrix, so the shape is that of
            // the caller's job. Pointers are the caller's, moved by `at`, with `length` bytes
            // behind them. `scratch` has room for `rows` parts, and the first group writes the
            // parts that the others read. Partial sums do not overlap slices of the caller; a
            // partial sum that is both target and `initial` is the very same slice.
            unsafe { (kernel.combine)(&job) };
        }
        at += length;
    }
}
