//! Quantiles of a few numbers that are all in memory.

/// The quantile `at` (0 least, 0.5 median, 1 greatest) of `sorted`, linear between neighbours
/// (type 7 of Hyndman and Fan, 1996). None without values.
///
/// # Panics
///
/// When `at` is not within 0 to 1, or (in debug builds) the values are not sorted.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index into a slice, as a position and back"
)]
pub fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&at), "a quantile is a share");
    debug_assert!(sorted.is_sorted(), "quantiles are of sorted values");
    let last = sorted.len().checked_sub(1)?;
    let position = at * last as f64;
    let below = (position.floor() as usize).min(last);
    let above = (below + 1).min(last);
    Some(sorted[below] + (position - position.floor()) * (sorted[above] - sorted[below]))
}

/// The middle `share` of the values, in any order: its lower and its upper end. None without values.
///
/// # Panics
///
/// When `share` is not within 0 to 1.
#[must_use]
pub fn spread(values: &[f64], share: f64) -> Option<(f64, f64)> {
    assert!((0.0..=1.0).contains(&share), "a share");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let tail = (1.0 - share) / 2.0;
    Some((quantile(&sorted, tail)?, quantile(&sorted, 1.0 - tail)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(quantile(&sorted, 0.0), Some(1.0));
        assert_eq!(quantile(&sorted, 0.5), Some(3.0));
        assert_eq!(quantile(&sorted, 1.0), Some(8.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_spread_leaves_both_tails_out() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let (low, high) = spread(&values, 0.9).unwrap();
        assert!((low - 5.0).abs() < 1e-9 && (high - 95.0).abs() < 1e-9);
    }
}
