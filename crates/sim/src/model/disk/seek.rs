//! The seek curve: time of the arm's move by its distance in cylinders.
//!
//! ```text
//!   time                                         ┌ full
//!    │                                  ____-----┘
//!    │                  knee ____-----'' linear: the arm coasts at its highest speed
//!    │           _.-''''
//!    │       .-'   proportional to √distance: it accelerates, then brakes
//!    │     ,'
//!    ├ one '
//!    └─────┬──────────────────┬──────────────────┬──── distance
//!          1                knee               cylinders − 1
//! ```
//!
//! The two-piece form of Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994, as the
//! Shear paper uses it (section 2.2).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The points that fix a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeekCurve {
    /// Time for one cylinder.
    pub one_ns: u64,
    /// Distance in cylinders where the square root ends and the line begins, more than 1.
    pub knee_cylinders: u32,
    /// Time for that distance.
    pub knee_ns: u64,
    /// Time from the first cylinder to the last.
    pub full_ns: u64,
}

impl SeekCurve {
    /// Nanoseconds for a move by `distance` cylinders on a disk of `cylinders`; 0 for no move.
    #[must_use]
    pub fn ns(&self, distance: u32, cylinders: u32) -> u64 {
        let full = cylinders.saturating_sub(1);
        if distance == 0 {
            return 0;
        }
        if distance <= self.knee_cylinders {
            // one + (knee − one) · (√distance − 1) / (√knee − 1), roots with 20 bits behind the point.
            let root = |value: u32| (u64::from(value) << 40).isqrt() - (1 << 20);
            let over = root(self.knee_cylinders).max(1);
            return self.one_ns + (self.knee_ns - self.one_ns) * root(distance) / over;
        }
        let over = u64::from(full.saturating_sub(self.knee_cylinders).max(1));
        let beyond = u64::from(distance - self.knee_cylinders);
        self.knee_ns + (self.full_ns - self.knee_ns) * beyond / over
    }

    /// The mean over all pairs of cylinders, each as likely as the other: the sum over distances x of
    /// 2 (C − x) / C² · ns(x).
    #[must_use]
    pub fn mean_ns(&self, cylinders: u32) -> u64 {
        let all = u128::from(cylinders);
        let weighted: u128 = (1..cylinders)
            .map(|distance| {
                u128::from(self.ns(distance, cylinders)) * u128::from(cylinders - distance)
            })
            .sum();
        u64::try_from(2 * weighted / (all * all)).expect("a mean is below the largest value")
    }
}

/// A curve computed for every distance: a move is one look-up in a table that all drives of a kind share.
#[derive(Clone, Debug)]
pub(super) struct SeekTable(Arc<[u32]>);

/// The tables that have been computed. A process simulates few kinds of drives, and thousands of each.
static TABLES: Mutex<BTreeMap<(SeekCurve, u32), SeekTable>> = Mutex::new(BTreeMap::new());

impl SeekTable {
    pub(super) fn new(curve: &SeekCurve, cylinders: u32) -> Self {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables.entry((*curve, cylinders));
        table
            .or_insert_with(|| Self::compute(curve, cylinders))
            .clone()
    }

    fn compute(curve: &SeekCurve, cylinders: u32) -> Self {
        let ns = |distance| {
            u32::try_from(curve.ns(distance, cylinders)).expect("a seek takes less than 4 seconds")
        };
        Self((0..cylinders.max(1)).map(ns).collect())
    }

    pub(super) fn ns(&self, distance: u32) -> u64 {
        self.0[distance as usize].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_goes_through_its_points_and_never_falls() {
        let curve = SeekCurve {
            one_ns: 800_000,
            knee_cylinders: 400,
            knee_ns: 6_000_000,
            full_ns: 8_000_000,
        };
        assert_eq!(curve.ns(0, 6534), 0);
        assert_eq!(curve.ns(1, 6534), 800_000);
        assert_eq!(curve.ns(400, 6534), 6_000_000);
        assert_eq!(curve.ns(6533, 6534), 8_000_000);
        let quarter = curve.ns(100, 6534);
        assert_eq!(quarter, 800_000 + 5_200_000 * 9 / 19, "half of √400");
        assert!((1..6533).all(|x| curve.ns(x, 6534) <= curve.ns(x + 1, 6534)));
    }
}
