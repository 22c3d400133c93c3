//! The choice between read-modify-write and reconstruct-write, on one sub-stripe.
//!
//! Both answer the same question: which old elements are needed to compute the new parities?
//!
//! - read-modify-write: the old values of what changes, and the old parities;
//! - reconstruct-write: the data that does not change.
//!
//! An old element that cannot be read is first reconstructed from others. The plan takes the way that reads fewer
//! elements; on a tie reconstruct-write, which reads nothing that is about to be overwritten. If everything changes,
//! reconstruct-write reads nothing: the full stripe is not a special case.

use std::collections::BTreeMap;
use std::sync::Arc;

use erasure::{Code, ElementSet, Recovery};
use format::seeded::{self, SeededFault};

use super::{Kind, Lost};

/// An element's bytes within a sub-stripe, or a temporary sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// The element as it is on the drives (read or reconstructed); updated in place for parity.
    Old(usize),
    /// The element as it will be.
    New(usize),
    /// A sum that several steps share.
    Temporary(usize),
}

/// `target (^)= Σ coefficient · operand`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubStripeStep {
    /// Where the sum goes.
    pub target: Operand,
    /// Whether the target's bytes are one of the summands.
    pub accumulate: bool,
    /// The summands.
    pub terms: Vec<(Operand, u8)>,
}

/// The operations on one sub-stripe of one stripe, with slots instead of addresses, so that the same plan serves every
/// stripe in the same condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubStripePlan {
    /// The kind of write.
    pub kind: Kind,
    /// Slots to read into `Old`.
    pub reads: Vec<usize>,
    /// Computations in order.
    pub steps: Vec<SubStripeStep>,
    /// How many of them reconstruct old elements.
    pub recovery_steps: usize,
    /// Slots whose old bytes are reconstructed.
    pub recovered: Vec<usize>,
    /// Slots to write, and their new bytes.
    pub writes: Vec<(usize, Operand)>,
    /// Parities that become unknown.
    pub unknown: Vec<usize>,
}

/// Condition of a stripe and set of changing elements: what a sub-stripe's plan depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Elements of the code: the two codes of an elastic pool differ in it.
    elements: usize,
    readable: ElementSet,
    writable: ElementSet,
    changed: ElementSet,
}

/// Which of the two ways to new parity is taken if both are possible. The pool takes the cheaper one; models of other
/// arrays state theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The one that reads fewer elements.
    #[default]
    Cheaper,
    /// Read-modify-write.
    ReadModify,
    /// Reconstruct-write.
    Reconstruct,
}

/// Cache of plans and recoveries. Elimination over a wide stripe costs microseconds to milliseconds, and the same few
/// conditions recur with every request.
#[derive(Clone, Debug, Default)]
pub struct SubStripePlans {
    preference: Preference,
    writes: BTreeMap<Key, Result<Arc<SubStripePlan>, Lost>>,
    /// By elements of the code, readable and wanted elements.
    recoveries: BTreeMap<(usize, ElementSet, ElementSet), Result<Arc<Recovery>, Lost>>,
}

/// Maximum of cached plans per lane, of each sort. A guess: dozens are in use at any time; at this number the table is
/// emptied.
const PLANS_MAX: usize = 1024;

impl SubStripePlans {
    /// An empty cache; plans for parts of stripes will take the preferred way.
    #[must_use]
    pub fn preferring(preference: Preference) -> Self {
        Self {
            preference,
            ..Self::default()
        }
    }

    /// How to change the `changed` data elements of a stripe.
    ///
    /// # Errors
    /// [`Lost`] when old elements that are needed cannot be reconstructed, or when the new ones
    /// could not be read back.
    pub fn write(
        &mut self,
        code: &Code,
        readable: &ElementSet,
        writable: &ElementSet,
        changed: &ElementSet,
    ) -> Result<Arc<SubStripePlan>, Lost> {
        let key = Key {
            elements: code.elements(),
            readable: readable.clone(),
            writable: writable.clone(),
            changed: changed.clone(),
        };
        if let Some(plan) = self.writes.get(&key) {
            return plan.clone();
        }
        let plan = plan_sub_stripe(self.preference, code, readable, writable, changed, false)
            .map(Arc::new);
        if self.writes.len() >= PLANS_MAX {
            self.writes.clear();
        }
        self.writes.insert(key, plan.clone());
        plan
    }

    /// How to get the `wanted` elements from readable ones.
    ///
    /// # Errors
    /// [`Lost`] when they cannot be reconstructed.
    pub fn recover(
        &mut self,
        code: &Code,
        readable: &ElementSet,
        wanted: &ElementSet,
    ) -> Result<Arc<Recovery>, Lost> {
        let key = (code.elements(), readable.clone(), wanted.clone());
        if let Some(recovery) = self.recoveries.get(&key) {
            return recovery.clone();
        }
        let recovery = match code.recover(readable, wanted) {
            Ok(recovery) => Ok(Arc::new(recovery)),
            Err(_) => Err(Lost),
        };
        if self.recoveries.len() >= PLANS_MAX {
            self.recoveries.clear();
        }
        self.recoveries.insert(key, recovery.clone());
        recovery
    }
}

impl SubStripePlans {
    /// How to change the `changed` data elements of a stripe with blocks that are lost for good. Lost elements stay
    /// lost, and every element that was available before is available after. Parity is updated where possible;
    /// otherwise it becomes unknown, and the new elements have no redundancy until the lost ones are written, too. (An
    /// array controller does the same and calls it a punctured stripe.)
    ///
    /// # Errors
    /// [`Lost`] when an element would become lost.
    pub(super) fn write_around(
        &mut self,
        code: &Code,
        readable: &ElementSet,
        writable: &ElementSet,
        changed: &ElementSet,
    ) -> Result<SubStripePlan, Lost> {
        let plan = plan_sub_stripe(self.preference, code, readable, writable, changed, true);
        if let Ok(plan) = plan {
            return Ok(plan);
        }
        let parities = changed.iter().flat_map(|slot| code.parities_of(slot));
        let parities = collect(code, parities.copied());
        if !changed.is_subset(writable) {
            return Err(Lost);
        }
        let after = readable.difference(&parities).union(changed);
        for slot in code.data_slots() {
            let alone: ElementSet = std::iter::once(slot).collect();
            if self.recover(code, readable, &alone).is_ok() {
                self.recover(code, &after, &alone)?;
            }
        }
        Ok(SubStripePlan {
            kind: Kind::PlainWrite,
            reads: Vec::new(),
            steps: Vec::new(),
            writes: changed
                .iter()
                .map(|slot| (slot, Operand::New(slot)))
                .collect(),
            unknown: parities.iter().collect(),
            recovered: Vec::new(),
            recovery_steps: 0,
        })
    }

    /// Splits the `wanted` elements into those that can be reconstructed and those that cannot.
    pub(super) fn split_lost(
        &mut self,
        code: &Code,
        readable: &ElementSet,
        wanted: &ElementSet,
    ) -> (ElementSet, ElementSet) {
        if self.recover(code, readable, wanted).is_ok() {
            return (wanted.clone(), ElementSet::default());
        }
        let mut is_lost = |slot: usize| {
            let alone: ElementSet = std::iter::once(slot).collect();
            self.recover(code, readable, &alone).is_err()
        };
        let (lost, told): (Vec<usize>, Vec<usize>) = wanted.iter().partition(|&slot| is_lost(slot));
        (told.into_iter().collect(), lost.into_iter().collect())
    }
}

/// One way to compute the new parities, not chosen yet.
struct Candidate {
    /// Old elements that its computation uses.
    needed: ElementSet,
    /// How to get those needed elements that cannot be read.
    recovery: Option<Recovery>,
    /// Everything that must be read.
    reads: ElementSet,
}

impl Candidate {
    fn new(code: &Code, readable: &ElementSet, needed: ElementSet) -> Option<Self> {
        let missing: ElementSet =
            collect(code, needed.iter().filter(|&slot| !readable.contains(slot)));
        let mut reads = collect(code, needed.iter().filter(|&slot| readable.contains(slot)));
        let recovery = if missing.is_empty() {
            None
        } else {
            let recovery = code.recover(readable, &missing).ok()?;
            for &slot in &recovery.reads {
                reads.insert(slot);
            }
            Some(recovery)
        };
        Some(Self {
            needed,
            recovery,
            reads,
        })
    }
}

fn collect(code: &Code, slots: impl Iterator<Item = usize>) -> ElementSet {
    let mut set = ElementSet::new(code.elements());
    for slot in slots {
        set.insert(slot);
    }
    set
}

fn plan_sub_stripe(
    preference: Preference,
    code: &Code,
    readable: &ElementSet,
    writable: &ElementSet,
    changed: &ElementSet,
    around_lost: bool,
) -> Result<SubStripePlan, Lost> {
    let data = collect(code, code.data().iter().map(|&element| code.index(element)));
    let parities = collect(
        code,
        changed
            .iter()
            .flat_map(|slot| code.parities_of(slot).iter().copied())
            .filter(|&slot| writable.contains(slot)),
    );
    let kept = if around_lost {
        let alone = |slot: usize| std::iter::once(slot).collect::<ElementSet>();
        let told =
            |&slot: &usize| changed.contains(slot) || code.recover(readable, &alone(slot)).is_ok();
        collect(code, data.iter().filter(told))
    } else {
        data.clone()
    };
    check_durable(code, &kept, readable, writable, changed, &parities)?;
    let writes_of_data = changed
        .iter()
        .filter(|&slot| writable.contains(slot))
        .map(|slot| (slot, Operand::New(slot)));
    if parities.is_empty() {
        return Ok(SubStripePlan {
            kind: Kind::PlainWrite,
            reads: Vec::new(),
            steps: Vec::new(),
            recovery_steps: 0,
            recovered: Vec::new(),
            writes: writes_of_data.collect(),
            unknown: Vec::new(),
        });
    }

    let encode = code
        .recover(&data, &parities)
        .expect("parity follows from all data");
    let reconstruct = Candidate::new(
        code,
        readable,
        collect(
            code,
            encode
                .reads
                .iter()
                .copied()
                .filter(|&slot| !changed.contains(slot)),
        ),
    );
    let modify = Candidate::new(
        code,
        readable,
        collect(code, changed.iter().chain(parities.iter())),
    );
    let take_modify = match (&modify, &reconstruct) {
        (None, None) => return Err(Lost),
        (Some(_), None) => true,
        (None, Some(_)) => false,
        // If all data is new there is nothing to read, whatever the preference.
        (Some(_), Some(reconstruct)) if reconstruct.reads.is_empty() => false,
        (Some(modify), Some(reconstruct)) => match preference {
            Preference::Cheaper => modify.reads.len() < reconstruct.reads.len(),
            Preference::ReadModify => true,
            Preference::Reconstruct => false,
        },
    };
    let (kind, chosen) = if take_modify {
        (Kind::ReadModifyWrite, modify)
    } else {
        (Kind::ReconstructWrite, reconstruct)
    };
    let chosen = chosen.ok_or(Lost)?;
    let kind = match (&chosen.recovery, chosen.needed.is_empty()) {
        (Some(_), _) => Kind::DegradedWrite,
        (None, true) => Kind::FullStripe,
        (None, false) => kind,
    };

    let mut steps = Vec::new();
    let mut temporaries = 0;
    if let Some(recovery) = &chosen.recovery {
        steps.extend(translate(
            code,
            &recovery.schedule,
            temporaries,
            Operand::Old,
        ));
        temporaries += recovery.schedule.slots() - code.elements();
    }
    let recovery_steps = steps.len();
    let unreadable = |slot: &usize| !readable.contains(*slot);
    let recovered = chosen.needed.iter().filter(unreadable).collect();
    let mut writes: Vec<_> = writes_of_data.collect();
    if take_modify {
        for parity in parities.iter() {
            let terms = changed
                .iter()
                .map(|slot| (slot, code.coefficient(parity, slot)))
                .filter(|&(_, coefficient)| coefficient != 0)
                .flat_map(|(slot, coefficient)| {
                    let both = [
                        (Operand::Old(slot), coefficient),
                        (Operand::New(slot), coefficient),
                    ];
                    both.into_iter()
                        .skip(usize::from(seeded::is(SeededFault::AddOnly)))
                })
                .collect();
            steps.push(SubStripeStep {
                target: Operand::Old(parity),
                accumulate: true,
                terms,
            });
            writes.push((parity, Operand::Old(parity)));
        }
        if seeded::is(SeededFault::SwapParities) && parities.iter().count() > 1 {
            let last = writes.len() - 1;
            (writes[last].1, writes[last - 1].1) = (writes[last - 1].1, writes[last].1);
        }
    } else {
        let operand = |slot| {
            if data.contains(slot) && !changed.contains(slot) {
                Operand::Old(slot)
            } else {
                Operand::New(slot)
            }
        };
        steps.extend(translate(code, &encode.schedule, temporaries, operand));
        if let (true, Some(step)) = (seeded::is(SeededFault::LeaveOutColumn), steps.last_mut()) {
            step.terms.pop();
        }
        writes.extend(parities.iter().map(|slot| (slot, Operand::New(slot))));
    }
    Ok(SubStripePlan {
        kind,
        reads: chosen.reads.iter().collect(),
        steps,
        recovery_steps,
        recovered,
        writes,
        unknown: Vec::new(),
    })
}

/// After a write, all of the sub-stripe's data must still be readable. Changed elements that are written nowhere do not
/// count, though they may be readable now: a column without a cell may have blocks in memory.
fn check_durable(
    code: &Code,
    data: &ElementSet,
    readable: &ElementSet,
    writable: &ElementSet,
    changed: &ElementSet,
    parities: &ElementSet,
) -> Result<(), Lost> {
    let written = changed
        .iter()
        .chain(parities.iter())
        .filter(|&slot| writable.contains(slot));
    let changing = changed
        .iter()
        .flat_map(|slot| code.parities_of(slot).iter().copied())
        .chain(changed.iter());
    let changing = collect(code, changing);
    let stays = readable.iter().filter(|&slot| !changing.contains(slot));
    let after = collect(code, stays.chain(written));
    if after.len() == code.elements() {
        return Ok(());
    }
    match code.recover(&after, data) {
        Ok(_) => Ok(()),
        Err(_) => Err(Lost),
    }
}

/// A schedule's steps with `element` naming the elements and temporaries counted from `first`.
pub(super) fn translate(
    code: &Code,
    schedule: &erasure::Schedule,
    first: usize,
    element: impl Fn(usize) -> Operand,
) -> Vec<SubStripeStep> {
    let operand = |slot: u16| {
        let slot = usize::from(slot);
        if slot < code.elements() {
            element(slot)
        } else {
            Operand::Temporary(first + slot - code.elements())
        }
    };
    schedule
        .steps
        .iter()
        .map(|step| SubStripeStep {
            target: operand(step.target),
            accumulate: step.accumulate,
            terms: step
                .terms
                .iter()
                .map(|&(slot, coefficient)| (operand(slot), coefficient))
                .collect(),
        })
        .collect()
}
