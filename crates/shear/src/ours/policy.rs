//! What small writes cost on a layout, by how the array finds the new parity.

use super::class::Candidate;

/// How a small write finds the new parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// From the changed data and the old parity: both are read and written.
    ReadModify,
    /// From the rest of the stripe, which is read.
    Reconstruct,
}

/// Time of small writes over that of as many reads: the drive operations of a write, unless drives that hold nothing
/// but parity have more to do than the others.
fn cost(candidate: &Candidate, policy: Policy) -> f64 {
    if candidate.parity == 0 {
        return f64::from(candidate.copies);
    }
    let read_from = candidate.seats().len();
    let only_parity = usize::from(candidate.drives).saturating_sub(read_from);
    #[expect(clippy::cast_precision_loss, reason = "drives")]
    let (read_from, only_parity) = (read_from as f64, only_parity as f64);
    // Operations of a write on each drive of parity alone.
    let each = match policy {
        Policy::ReadModify => 2.0,
        Policy::Reconstruct => 1.0,
    };
    let all = operations(candidate, policy);
    match only_parity > 0.0 {
        true => (all - each * only_parity).max(read_from * each),
        false => all,
    }
}

/// Drive operations of a small write on a layout with parity.
fn operations(candidate: &Candidate, policy: Policy) -> f64 {
    let (data, parity) = (f64::from(candidate.data), f64::from(candidate.parity));
    match policy {
        Policy::ReadModify => 2.0 * (1.0 + parity),
        Policy::Reconstruct => data + parity,
    }
}

/// The policy with fewer operations; both if they have equally many.
fn policies(candidate: &Candidate) -> Vec<Policy> {
    let policies = [Policy::ReadModify, Policy::Reconstruct];
    let all = policies.map(|policy| operations(candidate, policy));
    let fewest = all[0].min(all[1]);
    let cheapest = policies.into_iter().zip(all);
    let cheapest = cheapest.filter(|&(_, operations)| operations <= fewest);
    cheapest.map(|(policy, _)| policy).collect()
}

/// The expected times of small writes over those of as many reads.
pub(super) fn costs(candidate: &Candidate) -> Vec<f64> {
    let policies = policies(candidate).into_iter();
    policies.map(|policy| cost(candidate, policy)).collect()
}

/// Time of small writes to one chunk over that of as many to all chunks. Read-modify-write keeps the drive of the chunk
/// twice as busy as reads do, and the other drives idle except for parity. Reconstruct-write uses all drives equally,
/// and every write uses a drive of parity alone in any case.
fn spread(candidate: &Candidate, policy: Policy) -> f64 {
    let read_from = candidate.seats().len();
    if policy == Policy::Reconstruct || read_from < usize::from(candidate.drives) {
        return 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "drives")]
    let read_from = read_from as f64;
    read_from / f64::from(1 + candidate.parity)
}

/// The expected logarithms of the time of small writes to one chunk over that of as many to all chunks.
pub(super) fn spreads(candidate: &Candidate) -> Vec<f64> {
    let policies = policies(candidate).into_iter();
    policies
        .map(|policy| spread(candidate, policy).ln())
        .collect()
}
