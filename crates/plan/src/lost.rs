//! Which data of a stripe is lost.

use erasure::ElementSet;

use super::Stripe;
use super::sub_stripe::SubStripePlans;

/// Data elements whose block at byte `at` can neither be read nor reconstructed from the `readable` elements, because
/// blocks are bad or unknown. Elements that only missing columns make unavailable are left out: they return with their
/// drives.
///
/// ```text
///   raid5, columns  0    1    2    3 = P
///     row a         .    bad  .    bad      lost: 1
///     row b         out  bad  .    .        lost: 0 and 1 (without the bad block, 0 could be reconstructed)
///     row c         out  .    out  .        lost: none of it to blocks
/// ```
pub(crate) fn lost_data(
    plans: &mut SubStripePlans,
    stripe: &Stripe<'_>,
    at: u64,
    readable: &ElementSet,
) -> Vec<usize> {
    let code = stripe.code();
    let by_column = stripe.by_column(at);
    let mut is_lost = |slot: usize| {
        let wanted: ElementSet = std::iter::once(slot).collect();
        !readable.contains(slot)
            && plans.recover(code, readable, &wanted).is_err()
            && (by_column.contains(slot) || plans.recover(code, &by_column, &wanted).is_ok())
    };
    code.data_slots().filter(|&slot| is_lost(slot)).collect()
}
