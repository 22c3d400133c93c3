//! Judges a row by its trials: is a block of the row stale, and which one?
//!
//! A trial is accepted when
//!
//! - all blocks that it does not doubt agree: each believed parity matches the data, and each block that cannot be
//!   read, and whose entry is known, follows from the rest and matches its entry;
//! - there is proof at all: the believed and the checked blocks are more than the data;
//! - each block that it finds stale is older, by its generation, than a block that is written whenever the stale one is
//!   (parity for data, data for parity). A write that was computed from a stale block spoils parity and makes the
//!   block's entry as new as that parity: such a block must not be taken for stale;
//! - no other trial of as many columns is accepted.
//!
//! In a row of copies each family (an element and its copies) is judged by itself: other families prove nothing about it.
//!
//! Without proof (all columns of a code that survives one loss are there) only a parity, or a copy in a mirror, is
//! repaired, by its generation. Data is never computed from blocks that nothing confirms.

use std::collections::BTreeMap;

use erasure::Code;
use format::{BlockName, Entry, Sequence, StripeId};
use plan::Trial;
use uuid::Uuid;

use crate::entries::Entries;

/// The expected content of a block of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    name: BlockName,
    entry: Entry,
}

impl Element {
    /// The entry of a block, wherever the block is; `None` if its page is not in memory.
    pub(super) fn of(entries: Entries<'_>, name: BlockName, stripe: StripeId) -> Option<Self> {
        let entry = match entries.overlay.get(name) {
            Some(logged) => logged.entry,
            None if entries.overlay.is_zeroed(name.group, stripe) => Entry::UNWRITTEN,
            None => entries.pages.entry(name)?,
        };
        Some(Self { name, entry })
    }

    /// True if the block's entry is known.
    pub(super) fn is_known(&self) -> bool {
        self.entry != Entry::UNKNOWN
    }

    /// True if a block with this plain CRC-32C matches the entry.
    pub(super) fn agrees(&self, pool: Uuid, sum: u32) -> bool {
        match self.entry {
            Entry::UNWRITTEN => sum == zero_sum(),
            entry => entry.matches(pool, self.name, sum),
        }
    }
}

/// CRC-32C of a block of zeros.
fn zero_sum() -> u32 {
    block::crc32c(&[0; 4096])
}

/// The result of a round of trials of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// No block of the row is stale.
    Sound,
    /// These slots are stale.
    Stale(Vec<usize>),
    /// More columns must be doubted.
    Open,
}

/// A row and what is known of its blocks.
pub(super) struct Facts<'a> {
    pub(super) code: &'a Code,
    /// The row is several families of copies, each of which proves nothing about the others.
    pub(super) families: bool,
    pub(super) pool: Uuid,
    pub(super) elements: &'a [Element],
    /// The number of the next batch: ages are counted from there.
    pub(super) sequence: Sequence,
}

impl Facts<'_> {
    fn age(&self, slot: usize) -> u64 {
        self.elements[slot].entry.age(self.sequence)
    }

    /// Slots that are written whenever `slot` is, or whose writes change it.
    fn relatives(&self, slot: usize) -> Vec<usize> {
        match self.code.is_data(slot) {
            true => self.code.parities_of(slot).to_vec(),
            false => self
                .code
                .data_slots()
                .filter(|&data| self.code.coefficient(slot, data) != 0)
                .collect(),
        }
    }

    fn is_doubted(&self, trial: &Trial, slot: usize) -> bool {
        trial.doubted.contains(&self.elements[slot].name.column)
    }

    /// The slots that are stale if the trial is right, and how much confirms it; `None` if it is not
    /// right.
    fn weigh(&self, trial: &Trial, sums: &[u32]) -> Option<(Vec<usize>, usize)> {
        let mut stale = Vec::new();
        let mut checks = trial.believed.len();
        for (&(slot, _), &sum) in trial.results.iter().zip(sums) {
            let element = &self.elements[slot];
            if !element.is_known() {
                continue;
            }
            let agrees = element.agrees(self.pool, sum);
            if self.is_doubted(trial, slot) {
                if !agrees {
                    stale.push(slot);
                }
            } else if !agrees {
                return None;
            } else if !trial.believed.contains(slot) {
                checks += 1;
            }
        }
        let proof = checks.checked_sub(self.code.data().len())?;
        let proof = match self.families {
            true => self.proof_of_families(trial, sums, &stale),
            false => proof,
        };
        let outdated = |&slot: &usize| {
            let newer = |other: &usize| {
                !self.is_doubted(trial, *other)
                    && self.elements[*other].is_known()
                    && self.age(*other) < self.age(slot)
            };
            self.relatives(slot).iter().any(newer)
        };
        stale.iter().all(outdated).then_some((stale, proof))
    }

    /// The least confirmation of the families of copies that the stale slots belong to: how many of a family's blocks
    /// are believed or agree, beyond the one that it takes to know the others.
    fn proof_of_families(&self, trial: &Trial, sums: &[u32], stale: &[usize]) -> usize {
        let data = self.code.data().len();
        let results = trial.results.iter().zip(sums);
        let computed: BTreeMap<usize, u32> =
            results.map(|(&(slot, _), &sum)| (slot, sum)).collect();
        let confirms = |&slot: &usize| {
            let element = &self.elements[slot];
            let agrees = |&sum: &u32| element.is_known() && element.agrees(self.pool, sum);
            let computed = computed.get(&slot);
            trial.believed.contains(slot)
                || !self.is_doubted(trial, slot) && computed.is_some_and(agrees)
        };
        let of_family = |family: usize| {
            let members = (family..self.code.elements()).step_by(data);
            members.filter(confirms).count().saturating_sub(1)
        };
        let families = stale.iter().map(|slot| slot % data);
        families.map(of_family).min().unwrap_or(0)
    }

    /// True if a trial that nothing confirms may be accepted by generations alone.
    fn may_do_without_proof(&self, trial: &Trial, stale: &[usize]) -> bool {
        let copies = self.families || self.code.data().len() == 1;
        let whole = trial.believed.iter().count()
            + (0..self.elements.len())
                .filter(|&slot| self.is_doubted(trial, slot))
                .count()
            == self.elements.len();
        let believed_parity = |slot: &usize| !self.code.is_data(*slot);
        // No believed data is newer than a believed parity of it.
        let in_order = trial.believed.iter().filter(believed_parity).all(|parity| {
            let data = self.relatives(parity);
            let mut believed = data.iter().filter(|&&data| trial.believed.contains(data));
            believed.all(|&data| self.age(parity) <= self.age(data))
        });
        whole && (copies || in_order && stale.iter().all(|&slot| !self.code.is_data(slot)))
    }

    /// Judges a row by its trials, all of which doubt the same number of columns, and the sums of their results.
    pub(super) fn judge(&self, trials: &[(&Trial, &[u32])]) -> Judgement {
        let mut confirmed = Vec::new();
        let mut likely = Vec::new();
        for &(trial, sums) in trials {
            let Some((stale, proof)) = self.weigh(trial, sums) else {
                continue;
            };
            if trial.doubted.is_empty() {
                return Judgement::Sound;
            }
            if stale.is_empty() {
                // The results are the same as without doubting these columns.
                continue;
            }
            if proof > 0 {
                confirmed.push(stale);
            } else if self.may_do_without_proof(trial, &stale) {
                likely.push(stale);
            }
        }
        for mut found in [confirmed, likely] {
            found.dedup();
            match found.len() {
                0 => {}
                1 => return Judgement::Stale(found.remove(0)),
                _ => return Judgement::Open,
            }
        }
        Judgement::Open
    }
}

#[cfg(test)]
mod tests {
    use block::BLOCK_BYTES;
    use erasure::ElementSet;
    use format::{Column, Form, GroupId};
    use plan::action::{BufferId, Slice};
    use plan::{Row, ScratchId};

    use super::*;

    const POOL: Uuid = Uuid::from_u128(7);

    /// What should be in each slot: plain sum, and the batch that wrote it.
    fn elements(of: &[(u32, u64)]) -> Vec<Element> {
        let element = |(column, &(sum, sequence)): (Column, &(u32, u64))| {
            let name = BlockName {
                group: GroupId(0),
                column,
                block: 3,
            };
            let entry = Entry::new(POOL, name, sum, Sequence(sequence));
            Element { name, entry }
        };
        (0..).map(Column).zip(of).map(element).collect()
    }

    /// A trial in a row of one element per column, all of which were read.
    fn trial(code: &Code, doubted: u16) -> Trial {
        let believed: ElementSet = (0..code.elements())
            .filter(|&slot| slot != usize::from(doubted))
            .collect();
        let slice = Slice {
            buffer: BufferId::Scratch(ScratchId(1)),
            offset: 0,
            length: BLOCK_BYTES,
        };
        let computed = |&slot: &usize| !code.is_data(slot) || !believed.contains(slot);
        let results = (0..code.elements()).filter(computed);
        Trial {
            row: Row {
                stripe: StripeId(0),
                form: Form::Parity,
                low: 0,
            },
            doubted: vec![Column(doubted)],
            results: results.map(|slot| (slot, slice)).collect(),
            believed,
        }
    }

    fn judge(code: &Code, of: &[(u32, u64)], trials: &[(u16, Vec<u32>)]) -> Judgement {
        let elements = elements(of);
        let facts = Facts {
            code,
            families: code.name() == "copies",
            pool: POOL,
            elements: &elements,
            sequence: Sequence(100),
        };
        let made: Vec<Trial> = trials.iter().map(|(at, _)| trial(code, *at)).collect();
        let sums = trials.iter().map(|(_, sums)| sums.as_slice());
        facts.judge(&made.iter().zip(sums).collect::<Vec<_>>())
    }

    /// Slots of P+Q with two columns of data, data first.
    fn pq() -> (Code, [usize; 2]) {
        let code = erasure::by_columns("pq", 4).unwrap();
        let data: Vec<usize> = code.data_slots().collect();
        (code, [data[0], data[1]])
    }

    /// Sums by slot in the order of a trial's results: `anew` for the doubted slot, else what is there.
    fn sums(code: &Code, of: &[(u32, u64)], doubted: usize, anew: u32) -> Vec<u32> {
        let results = trial(code, u16::try_from(doubted).unwrap()).results;
        let sum = |&(slot, _): &(usize, Slice)| if slot == doubted { anew } else { of[slot].0 };
        results.iter().map(sum).collect()
    }

    #[test]
    fn the_column_without_which_all_else_agrees_is_stale_if_it_is_older() {
        let (code, [first, second]) = pq();
        let mut of = vec![(10, 9), (20, 9), (30, 9), (40, 9)];
        of[first].1 = 5;
        let one = u16::try_from(first).unwrap();
        let other = u16::try_from(second).unwrap();
        let right = (one, sums(&code, &of, first, 77));
        // If another column is doubted, the computed parity differs from the one that is there.
        let wrong = (other, vec![1; right.1.len()]);
        let judged = judge(&code, &of, &[right.clone(), wrong]);
        assert_eq!(judged, Judgement::Stale(vec![first]));
        // Written by the batch that wrote the parity: this parity was computed from the stale block, and is spoilt.
        of[first].1 = 9;
        assert_eq!(judge(&code, &of, &[right]), Judgement::Open);
    }

    #[test]
    fn two_columns_that_may_each_be_stale_are_left_as_they_are() {
        let (code, [first, second]) = pq();
        let of: Vec<(u32, u64)> = (0..4)
            .map(|slot| if code.is_data(slot) { (10, 5) } else { (30, 9) })
            .collect();
        let may = |slot: usize| {
            let column = u16::try_from(slot).unwrap();
            (column, sums(&code, &of, slot, 77))
        };
        let judged = judge(&code, &of, &[may(first), may(second)]);
        assert_eq!(judged, Judgement::Open);
    }

    #[test]
    fn of_two_copies_the_newer_counts_and_data_is_not_made_from_one_parity() {
        let mirror = erasure::by_columns("mirror", 2).unwrap();
        let of = [(10, 5), (20, 7)];
        // Either copy follows from the other.
        let trials = |code: &Code, of: &[(u32, u64)]| {
            (0..2)
                .map(|slot| {
                    let other = of[1 - slot].0;
                    let results = trial(code, u16::try_from(slot).unwrap()).results;
                    (u16::try_from(slot).unwrap(), vec![other; results.len()])
                })
                .collect::<Vec<_>>()
        };
        let judged = judge(&mirror, &of, &trials(&mirror, &of));
        assert_eq!(judged, Judgement::Stale(vec![0]));

        let parity = erasure::by_columns("parity", 3).unwrap();
        let slot = parity.data_slots().next().unwrap();
        let mut of = vec![(10, 9), (20, 9), (30, 9)];
        of[slot].1 = 5;
        let one = (u16::try_from(slot).unwrap(), sums(&parity, &of, slot, 77));
        assert_eq!(judge(&parity, &of, &[one]), Judgement::Open);
        // A parity that is older than its data is stale.
        let slot = parity.parity_slots().next().unwrap();
        let mut of = vec![(10, 9), (20, 9), (30, 9)];
        of[slot].1 = 5;
        let one = (u16::try_from(slot).unwrap(), sums(&parity, &of, slot, 77));
        assert_eq!(judge(&parity, &of, &[one]), Judgement::Stale(vec![slot]));
    }
}
