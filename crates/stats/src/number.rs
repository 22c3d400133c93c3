//! Counts as numbers.

/// A count as a floating-point number. Exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
#[must_use]
pub const fn to_f64(count: u64) -> f64 {
    count as f64
}

/// A part of a whole; 0 if there is no whole.
#[must_use]
pub const fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => to_f64(part) / to_f64(whole),
    }
}

/// The mean of a few numbers; NaN without numbers.
#[must_use]
pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / to_f64(numbers.len() as u64)
}
