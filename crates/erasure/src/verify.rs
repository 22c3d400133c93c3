//! Tests a code with real bytes: `ravelin code verify` runs this.

use std::borrow::Cow;

use crate::decode::Unrecoverable;
use crate::equations::{Code, next_combination};
use crate::kernel::{self, Kernel};

/// Counts of the checks, when none failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Sets of columns that were lost and recovered, on every kernel.
    pub recovered: u64,
    /// Sets of too many columns, whose recovery was refused.
    pub refused: u64,
}

/// What is wrong with a code, or with a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A kernel computes other parities than the equations.
    #[error("{kernel} encodes {code} to other bytes than the equations say, so either is broken")]
    Encode {
        /// The code.
        code: String,
        /// The kernel.
        kernel: &'static str,
    },
    /// A recovery computed other bytes than the lost ones.
    #[error(
        "{kernel} rebuilt columns {lost:?} of {code} to other bytes than were there, so its recovery is wrong"
    )]
    Decode {
        /// The code.
        code: String,
        /// The kernel.
        kernel: &'static str,
        /// The lost columns.
        lost: Vec<u16>,
    },
    /// A loss within the tolerance was refused.
    #[error("losing columns {lost:?} should be survivable: {refusal}")]
    Refused {
        /// The lost columns.
        lost: Vec<u16>,
        /// The error of the recovery.
        refusal: Unrecoverable,
    },
    /// More columns than the tolerance were "recovered".
    #[error("{code} claims to rebuild columns {lost:?}, more than can follow from what is left")]
    Accepted {
        /// The code.
        code: String,
        /// The lost columns.
        lost: Vec<u16>,
    },
}

impl VerifyError {
    /// One thing to try, in small letters and without a full stop.
    pub fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Encode { code, .. } => {
                Some(format!("compare `code show {code} --example` with the other kernels").into())
            }
            Self::Decode { .. } | Self::Accepted { .. } => Some("keep it off your pools".into()),
            Self::Refused { refusal, .. } => refusal.hint(),
        }
    }
}

/// All sets of up to this many columns are tried. Only mirrors of five and more columns survive
/// larger sets. For these the largest sets are tried too; the 2^n sets in between are not.
const SMALL_SETS: u16 = 3;

/// Encodes a stripe of `length`-byte elements on every kernel. Loses every set of columns up to the tolerance (for
/// mirrors see `SMALL_SETS`) and rebuilds it on every kernel. Checks that every set of one column more is refused.
///
/// The reference is the equations, evaluated one by one by the naive kernel.
///
/// # Errors
///
/// [`VerifyError`]: the first error found.
pub fn verify(code: &Code, length: usize) -> Result<Verified, VerifyError> {
    let truth = example(code, length);
    let name = || format!("{}:{}", code.name(), code.parameter());
    for kernel in kernel::available() {
        let mut stripe = truth.clone();
        code.parity_slots().for_each(|slot| stripe[slot].fill(0xff));
        code.encode().run(kernel, &mut stripe);
        if stripe != truth {
            return Err(VerifyError::Encode {
                code: name(),
                kernel: kernel.name(),
            });
        }
    }
    let mut done = Verified::default();
    let mut scratch = vec![vec![0xa5; length]; code.elements()];
    let tolerance = code.tolerance();
    for count in (1..=tolerance).filter(|&c| c <= SMALL_SETS || c == tolerance) {
        for lost in column_sets(code.columns(), count) {
            rebuild(code, &truth, &mut scratch, &lost)?;
            done.recovered += 1;
        }
    }
    for lost in column_sets(code.columns(), code.tolerance() + 1) {
        let wanted = code.columns_set(&lost);
        if code.recover(&code.without_columns(&lost), &wanted).is_ok() {
            return Err(VerifyError::Accepted { code: name(), lost });
        }
        done.refused += 1;
    }
    Ok(done)
}

fn rebuild(
    code: &Code,
    truth: &[Vec<u8>],
    stripe: &mut [Vec<u8>],
    lost: &[u16],
) -> Result<(), VerifyError> {
    let wanted = code.columns_set(lost);
    let recovery = code.recover(&code.without_columns(lost), &wanted);
    let recovery = recovery.map_err(|refusal| VerifyError::Refused {
        lost: lost.to_vec(),
        refusal,
    })?;
    // Only the elements in the recovery's read list hold their data.
    for element in stripe.iter_mut() {
        element.fill(0xa5);
    }
    for &slot in &recovery.reads {
        stripe[slot].copy_from_slice(&truth[slot]);
    }
    for kernel in kernel::available() {
        wanted.iter().for_each(|slot| stripe[slot].fill(0x5a));
        recovery.schedule.run(kernel, stripe);
        if wanted.iter().any(|slot| stripe[slot] != truth[slot]) {
            return Err(VerifyError::Decode {
                code: format!("{}:{}", code.name(), code.parameter()),
                kernel: kernel.name(),
                lost: lost.to_vec(),
            });
        }
    }
    Ok(())
}

/// Every set of `count` of `columns` columns.
fn column_sets(columns: u16, count: u16) -> impl Iterator<Item = Vec<u16>> {
    let mut next = (count <= columns).then(|| (0..count).collect::<Vec<_>>());
    std::iter::from_fn(move || {
        let set = next.take()?;
        let mut following = set.clone();
        if next_combination(&mut following, columns) {
            next = Some(following);
        }
        Some(set)
    })
}

/// An example stripe: data[i] = (37 i + 11) mod 256 in the first byte of element i, and by a
/// similar rule in its other bytes; parities by their equations.
pub fn example(code: &Code, length: usize) -> Vec<Vec<u8>> {
    let mut stripe = vec![vec![0; length]; code.elements()];
    for (i, slot) in code.data_slots().enumerate() {
        for (j, byte) in stripe[slot].iter_mut().enumerate() {
            // The second factor differs from element to element, so that no two elements are equal.
            let value = 37 * i + 11 + j * (2 * i + 1) + j / 7;
            *byte = value.to_le_bytes()[0];
        }
    }
    evaluate(
        code,
        kernel::by_name("naive").expect("always there"),
        &mut stripe,
    );
    stripe
}

/// Evaluates each equation as it is written.
fn evaluate(code: &Code, kernel: &Kernel, stripe: &mut [Vec<u8>]) {
    for equation in code.equations() {
        let target = code.index(equation.parity);
        let mut sum = std::mem::take(&mut stripe[target]);
        let members = equation.members.iter();
        let terms: Vec<(&[u8], u8)> = members
            .map(|&(member, coefficient)| (&stripe[code.index(member)][..], coefficient))
            .collect();
        kernel.step(&mut sum, false, &terms);
        stripe[target] = sum;
    }
}
