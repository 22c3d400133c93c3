//! The reference kernel: one byte at a time, multiplication by shift and add. Slow and obvious.

use super::Job;

fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

/// # Safety
///
/// As for `Kernel::combine`.
#[expect(
    clippy::needless_range_loop,
    reason = "the index runs over several arrays"
)]
pub(super) unsafe fn combine(job: &Job<'_>) {
    let (rows, count) = (job.rows(), job.sources.len());
    for at in 0..job.length {
        let mut row = [0; super::ROWS_MAX];
        for t in 0..rows {
            if !job.initial[t].is_null() {
                // SAFETY: `length` bytes are behind it, and `at` is less.
                row[t] = unsafe { *job.initial[t].add(at) };
            }
            for i in 0..count {
                // SAFETY: as above.
                let byte = unsafe { *job.sources[i].add(at) };
                row[t] ^= multiply(job.matrix[t * count + i].value, byte);
            }
        }
        for (k, target) in job.targets.iter().enumerate() {
            let value = if job.after.is_empty() {
                row[k]
            } else {
                let terms = (0..rows).map(|t| multiply(job.after[k * rows + t].value, row[t]));
                terms.fold(0, |a, b| a ^ b)
            };
            // SAFETY: `length` bytes behind a target can be written, and `at` is less.
            unsafe { *target.add(at) = value };
            if let Some(copy) = job.copies.get(k).filter(|copy| !copy.is_null()) {
                // SAFETY: as for the target.
                unsafe { *copy.add(at) = value };
            }
        }
    }
}
