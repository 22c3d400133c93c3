//! An operation on one stripe (or a run of stripes), and its state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use block::{Fault, Instant, Outcome, Seat};
use format::{BlockName, Entry, Form};
use layout::Cell;
use plan::action::{Origin, Service, Slice};
use plan::{Geometry, Piece, Plan, RequestId, ScratchId};

use super::{BounceBuffer, Prepared};
use crate::arbitration::Arbitration;
use crate::coalesce::Part;
use crate::convert::Convert;
use crate::direct::Direct;
use crate::discard::Discarded;
use crate::epochs::Epoch;
use crate::ids::{JobId, OpId};
use crate::jobs::Held;
use crate::known_losses::Assessed;
use crate::rare::{Blank, Rare};

/// The owner of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Request(RequestId),
    Job(JobId),
    /// A second read of the bytes that this operation reads, because the operation is late.
    Hedge(OpId),
    /// The lane itself; nothing waits for the operation: a repair, the logging of preserved blocks, a discard.
    Background,
    /// Recovery, which has found the stripe torn.
    Recovery,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Read(Vec<Piece>),
    Write(Prepared),
    Fill {
        column: u16,
        target: Cell,
        avoid: Vec<u16>,
        /// The blocks that the target already has.
        held: Option<Arc<Held>>,
    },
    Zero,
    Resync,
    Scrub,
    /// Stripes get their other form.
    Convert(Convert),
    /// Blocks (element, first byte in it) that are reconstructed and written again.
    Repair(Vec<(usize, u64)>),
    /// Blocks that are logged and cannot be put in place: they are logged again.
    Relog(Vec<BlockName>),
    /// Space that holds nothing is discarded on its drives.
    Discard(Discarded),
}

impl Task {
    /// The blocks that the target of a fill already has.
    pub(crate) fn held(&self) -> Option<&Held> {
        match self {
            Self::Fill { held, .. } => held.as_deref(),
            _ => None,
        }
    }
}

/// Whether an operation has asked the drives that failed its reads for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    None,
    /// So many drives have not answered yet; and whether one has failed.
    Asks {
        left: usize,
        failed: bool,
    },
    /// All of them have answered: the blocks are on bad sectors if they cannot be read now.
    Answered,
}

/// The phase of an operation. The diagram is in `mod.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for the locks of its stripes.
    Locking,
    /// The pages with the entries of its blocks are being read, or drives that have failed its reads are asked.
    Fetching,
    /// So many reads are in flight. `failed`: some of the blocks are not available.
    Reading { in_flight: u64, failed: bool },
    /// The blocks that it has read are compared with their checksums.
    Verifying,
    /// Its computation is in flight.
    Computing,
    /// It waits for a free stripe.
    Waiting,
    /// What it writes in place waits until the other stripes of its turn are computed.
    Gathering,
    /// So many of its units are waiting for the journal, or being written to it.
    Logging { units: u64 },
    /// So many writes are in flight. The pool decides about drives that have failed one. The writes have ended with the
    /// last write and the last verdict.
    Writing {
        in_flight: u64,
        failed: BTreeMap<Seat, Fault>,
    },
    /// Drives discard its space.
    Discarding,
}

/// The owner of the locks that an operation has, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// It has no locks.
    None,
    /// Its own.
    Own,
    /// The locks of its reader: no other operation can have them meanwhile.
    Borrowed,
}

/// The stripe that a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The stripe that holds its data, or a free one if it may go there.
    Open,
    /// A free stripe, in place of `from`.
    Free { from: u64 },
    /// The stripe that holds its data.
    Home,
}

/// How an operation avoids drives that are late.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detour {
    /// Blocks that are read only if there is no other way, because their drive is late.
    pub(crate) avoid: BTreeSet<(u16, u64)>,
    /// It waits for late drives, because there is no way around them.
    pub(crate) waits: bool,
    pub(crate) hedge: Hedge,
}

/// The state of the one hedge of a late read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hedge {
    #[default]
    None,
    /// This second read is under way.
    Running(OpId),
    /// The second read has ended, or the operation was planned again around the late blocks.
    Over,
}

/// True if the pool decides about a drive that has failed a write with this fault. A full drive is not broken: the
/// request fails, and the drive stays.
pub(crate) fn waits_for_verdict(fault: Fault) -> bool {
    fault != Fault::Full
}

/// The forms of some neighbouring stripes. Nearly always all of them are parity, which takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forms(Option<Box<[Form]>>);

impl Forms {
    /// All stripes are parity.
    pub(crate) const PARITY: Self = Self(None);

    /// The forms of stripes, in their order.
    pub(crate) fn of_stripe(&self, index: u64) -> Form {
        let forms = self.0.as_ref();
        let form = forms.and_then(|forms| forms.get(usize::try_from(index).ok()?));
        form.copied().unwrap_or_default()
    }
}

impl FromIterator<Form> for Forms {
    fn from_iter<I: IntoIterator<Item = Form>>(forms: I) -> Self {
        let forms: Box<[Form]> = forms.into_iter().collect();
        let all_parity = forms.iter().all(|&form| form == Form::Parity);
        Self((!all_parity).then_some(forms))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) owner: Owner,
    /// The parts of each request, if it writes for several requests: the owner is the first of them.
    pub(crate) parts: Option<Box<[Part]>>,
    /// The service class of its drive operations.
    pub(crate) service: Service,
    pub(crate) group: u64,
    /// In an operation for a client: the first stripe of the group's data that it works on.
    pub(crate) data: Option<u64>,
    /// The stripes that it is planned for and locks. In an operation for a client these are the stripes that hold its
    /// data, once it is `located`.
    pub(crate) stripes: Range<u64>,
    /// The forms of these stripes when it was planned.
    pub(crate) forms: Forms,
    /// The version of the maps by which the place of its data was found.
    pub(crate) located: Option<u64>,
    pub(crate) destination: Destination,
    /// Later writes to its stripe wait for their neighbours while it runs.
    pub(crate) occupies: bool,
    pub(crate) task: Task,
    pub(crate) phase: Phase,
    /// When it began.
    pub(crate) begun: Instant,
    pub(crate) lock: Lock,
    pub(crate) plan: Option<Plan>,
    pub(crate) scratch: Option<ScratchId>,
    /// Blocks (column, block of its cell) that could not be read, or were wrong: the plan avoids them.
    pub(crate) bad: BTreeSet<(u16, u64)>,
    pub(crate) detour: Detour,
    /// Its reader has ended: its result is not needed any more.
    pub(crate) orphan: bool,
    /// Blocks whose entry was UNKNOWN although their column is readable.
    pub(crate) unknown: BTreeSet<(u16, u64)>,
    /// The search for stale blocks among the blocks that it reads.
    pub(crate) arbitration: Rare<Arbitration>,
    /// The blocks that its plan reconstructs have been compared with their entries.
    pub(crate) checked: bool,
    /// The input and the results of a repair.
    pub(crate) repair: Rare<Repair>,
    /// The number of blocks that were compared with their checksums.
    pub(crate) verified: u64,
    /// Batches whose buffers its plan reads.
    pub(crate) pinned: Vec<u64>,
    /// Bytes that are copied into memory before its computation.
    pub(crate) puts: Vec<(Slice, Arc<[u8]>)>,
    /// Set if its blocks go in place before they are logged.
    pub(crate) direct: Option<Box<Direct>>,
    /// The number of times that failed reads have been tried again.
    pub(crate) retries: u8,
    pub(crate) probe: Probe,
    /// The worst fault of its reads.
    pub(crate) read_fault: Option<Fault>,
    /// The fault with which the operation will end.
    pub(crate) fault: Option<Fault>,
    /// The bounce buffer of a read, if a straggler may write into the read's own memory.
    pub(crate) bounce_buffer: Option<BounceBuffer>,
    /// The epoch of its latest plan.
    pub(crate) epoch: Option<Epoch>,
}

impl Op {
    pub(crate) fn new(owner: Owner, group: u64, stripes: Range<u64>, task: Task) -> Self {
        Self {
            service: service_of(owner, &task),
            owner,
            parts: None,
            group,
            data: None,
            stripes,
            forms: Forms::PARITY,
            located: None,
            destination: Destination::Open,
            occupies: false,
            task,
            phase: Phase::Locking,
            begun: Instant::ZERO,
            lock: Lock::None,
            plan: None,
            scratch: None,
            bad: BTreeSet::new(),
            detour: Detour::default(),
            orphan: false,
            unknown: BTreeSet::new(),
            arbitration: Rare::BLANK,
            checked: false,
            repair: Rare::BLANK,
            verified: 0,
            pinned: Vec::new(),
            puts: Vec::new(),
            direct: None,
            retries: 0,
            probe: Probe::None,
            read_fault: None,
            fault: None,
            bounce_buffer: None,
            epoch: None,
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.lock != Lock::None
    }

    /// The stripe that it leaves, if it is planned for a free stripe.
    pub(crate) const fn moves_from(&self) -> Option<u64> {
        match self.destination {
            Destination::Free { from } => Some(from),
            Destination::Open | Destination::Home => None,
        }
    }

    /// Its stripes have these forms now. What was found out about places of other forms does not count any more.
    pub(crate) fn has_forms(&mut self, geometry: &Geometry, forms: Forms) {
        if self.forms == forms {
            return;
        }
        self.forms = forms;
        self.bad.clear();
        self.unknown.clear();
        self.detour.avoid.clear();
        self.arbitration = Rare::BLANK;
        if let Task::Repair(blocks) = &mut self.task {
            // Data has the same slots in both forms.
            let data = geometry.code().data().len();
            blocks.retain(|&(slot, _)| slot < data);
        }
    }

    /// The form of one of its stripes.
    pub(crate) fn form_of(&self, stripe: u64) -> Form {
        self.forms
            .of_stripe(stripe.wrapping_sub(self.stripes.start))
    }

    /// The form of its first stripe; nearly all operations have only one.
    pub(crate) fn form(&self) -> Form {
        self.form_of(self.stripes.start)
    }

    /// So many reads have been submitted.
    pub(crate) fn begin_reads(&mut self, in_flight: u64) {
        self.phase = Phase::Reading {
            in_flight,
            failed: false,
        };
    }

    /// So many writes have been submitted.
    pub(crate) fn begin_writes(&mut self, in_flight: u64) {
        self.phase = Phase::Writing {
            in_flight,
            failed: BTreeMap::new(),
        };
    }

    pub(crate) const fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::Reading { .. })
    }

    /// True if drives have not answered all of its reads or writes.
    pub(crate) const fn is_in_flight(&self) -> bool {
        matches!(self.phase, Phase::Reading { in_flight, .. } | Phase::Writing { in_flight, .. } if in_flight > 0)
    }

    /// One of its units is logged, or refused; true if it was the last one.
    pub(crate) fn unit_ended(&mut self, outcome: Outcome) -> bool {
        let Phase::Logging { units } = &mut self.phase else {
            unreachable!("it waits for its units");
        };
        *units -= 1;
        self.fault = self.fault.or(outcome.err());
        *units == 0
    }

    /// A write has ended. True if all have, and the pool has decided about the drives that have failed one. `out`: the
    /// drive is out, so that the outcome does not matter.
    pub(crate) fn write_ended(&mut self, seat: Seat, outcome: Outcome, out: bool) -> bool {
        let Phase::Writing { in_flight, failed } = &mut self.phase else {
            unreachable!("its writes are in flight");
        };
        match outcome {
            Err(fault) if !out && waits_for_verdict(fault) => {
                failed.insert(seat, fault);
            }
            Err(fault) if !out => self.fault = self.fault.or(Some(fault)),
            Ok(()) | Err(_) => {}
        }
        *in_flight -= 1;
        *in_flight == 0 && failed.is_empty()
    }

    /// True if a drive has failed one of its writes, and the pool has not decided about the drive.
    pub(crate) fn awaits_verdict(&self, seat: Seat) -> bool {
        matches!(&self.phase, Phase::Writing { failed, .. } if failed.contains_key(&seat))
    }

    /// The pool has decided about a drive; true if this was the last thing that the operation's writes waited for.
    /// `out`: the drive is out, so that its failed write does not count.
    pub(crate) fn judged(&mut self, seat: Seat, out: bool) -> bool {
        let Phase::Writing { in_flight, failed } = &mut self.phase else {
            return false;
        };
        let Some(fault) = failed.remove(&seat) else {
            return false;
        };
        if !out {
            self.fault = self.fault.or(Some(fault));
        }
        *in_flight == 0 && failed.is_empty()
    }

    /// Declares that its stripes are stripes of the group's data.
    pub(crate) const fn of_data(mut self) -> Self {
        self.data = Some(self.stripes.start);
        self
    }

    /// The stripes of the group's data that it works on.
    pub(crate) fn data_stripes(&self) -> Option<Range<u64>> {
        let count = self.stripes.end - self.stripes.start;
        self.data.map(|first| first..first + count)
    }

    /// A repair, which reconstructs blocks (element, first byte in it) of a stripe and writes them again.
    pub(crate) fn repair(owner: Owner, group: u64, stripe: u64, blocks: Vec<(usize, u64)>) -> Self {
        Self::new(owner, group, stripe..stripe + 1, Task::Repair(blocks))
    }
}

fn service_of(owner: Owner, task: &Task) -> Service {
    match (owner, task) {
        (Owner::Request(_) | Owner::Hedge(_), _) => Service::prompt(Origin::Client),
        (_, Task::Scrub) => Service::bulk(Origin::Scrub),
        (_, Task::Discard(_)) => Service::bulk(Origin::Checkpoint),
        (Owner::Job(_), _) => Service::bulk(Origin::Rebuild),
        (Owner::Background | Owner::Recovery, _) => Service::prompt(Origin::Scrub),
    }
}

/// The input and the results of a repair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repair {
    /// The lost elements of its rows, by its plan.
    pub(crate) assessed: Assessed,
    /// The entries of its blocks when they were found bad.
    pub(crate) entries: BTreeMap<(usize, u64), Entry>,
    /// The scrub that waits for it.
    pub(crate) scrub: Option<JobId>,
}

impl Blank for Repair {
    fn blank() -> &'static Self {
        static BLANK: Repair = Repair {
            assessed: Assessed::new(),
            entries: BTreeMap::new(),
            scrub: None,
        };
        &BLANK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Seat = Seat(1);
    const SECOND: Seat = Seat(2);

    /// An operation that has submitted so many writes.
    fn writing(writes: u64) -> Op {
        let mut op = Op::new(Owner::Background, 0, 0..1, Task::Resync);
        op.begin_writes(writes);
        op
    }

    #[test]
    fn it_has_written_with_its_last_write() {
        let mut op = writing(2);
        assert!(!op.write_ended(FIRST, Ok(()), false));
        assert!(op.is_in_flight());
        assert!(op.write_ended(SECOND, Ok(()), false));
        assert!(!op.is_in_flight() && op.fault.is_none());
    }

    #[test]
    fn a_drive_that_fails_a_write_is_judged_first() {
        let mut op = writing(1);
        assert!(!op.write_ended(FIRST, Err(Fault::Medium), false));
        assert!(op.awaits_verdict(FIRST) && !op.awaits_verdict(SECOND));
        assert!(!op.judged(SECOND, true), "another drive");
        assert!(op.judged(FIRST, true));
        assert_eq!(
            op.fault, None,
            "what a drive failed that is out does not count"
        );
    }

    #[test]
    fn a_drive_that_stays_fails_what_it_has_refused() {
        let mut op = writing(1);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(op.judged(FIRST, false));
        assert_eq!(op.fault, Some(Fault::Medium));
    }

    #[test]
    fn the_fault_that_is_decided_first_is_the_operations() {
        let mut op = writing(2);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(!op.write_ended(SECOND, Err(Fault::Gone), false));
        assert!(!op.judged(SECOND, false));
        assert!(op.judged(FIRST, false));
        assert_eq!(op.fault, Some(Fault::Gone));
    }

    #[test]
    fn a_verdict_before_the_last_write_ends_nothing() {
        let mut op = writing(2);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(!op.judged(FIRST, true), "a write is in flight");
        assert!(op.write_ended(SECOND, Ok(()), false));
    }

    #[test]
    fn a_full_drive_is_not_judged() {
        let mut op = writing(1);
        assert!(op.write_ended(FIRST, Err(Fault::Full), false));
        assert_eq!(op.fault, Some(Fault::Full));
    }

    #[test]
    fn how_the_writes_of_a_drive_end_that_is_out_does_not_matter() {
        let mut op = writing(1);
        assert!(op.write_ended(FIRST, Err(Fault::Gone), true));
        assert_eq!(op.fault, None);
    }

    #[test]
    fn it_is_logged_with_its_last_unit_and_keeps_the_first_fault() {
        let mut op = writing(0);
        op.phase = Phase::Logging { units: 3 };
        assert!(!op.unit_ended(Err(Fault::Full)));
        assert!(!op.unit_ended(Err(Fault::Lost)));
        assert!(op.unit_ended(Ok(())));
        assert_eq!(op.fault, Some(Fault::Full));
    }
}
