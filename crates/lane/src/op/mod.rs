//! An operation on one stripe (or a run of stripes), as data: what it does (`task.rs`), how far it is (`phase.rs`), the
//! memory that its plan needs (`work.rs`), and what it has found (`findings.rs`).
//!
//! Machines read operations and change them; `ops/` moves them from phase to phase. This room imports from no machine
//! that knows operations, but has the types of what an operation carries for a machine: its search for stale blocks, its
//! parts of requests, its epoch, its turn, and the room that it was charged with.

mod findings;
mod held;
mod phase;
mod prepared;
mod task;
mod work;

use std::collections::BTreeSet;
use std::ops::Range;

use block::{Fault, Instant};
use format::{Column, DataStripe, Form, GroupId, StripeId};
use plan::action::{Origin, Service};
use plan::{Geometry, Plan, RequestId};

pub(super) use self::findings::{Findings, Probe};
pub(super) use self::held::{Held, pages_beside};
pub(super) use self::phase::{Phase, waits_for_verdict};
pub(super) use self::prepared::{Prepared, Staging};
pub(super) use self::task::{Assessed, Convert, Discarded, Repair, Task};
pub(super) use self::work::{BounceBuffer, Direct, Memory};
use super::coalesce::Part;
use super::epochs::Epoch;
use super::ids::{JobId, OpId};
use super::rare::Rare;

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

/// Where the data of an operation is, and where it goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Location {
    /// The version of the maps by which its stripes were found.
    pub(crate) version: Option<u64>,
    /// The forms of its stripes when it was planned.
    pub(crate) forms: Forms,
    pub(crate) destination: Destination,
}

/// The stripe that a write goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The stripe that holds its data, or a free one if it may go there.
    #[default]
    Open,
    /// A free stripe, in place of `from`.
    Free { from: StripeId },
    /// The stripe that holds its data.
    Home,
}

/// How an operation avoids drives that are late, or as a second read serves one that does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detour {
    /// Blocks that are read only if there is no other way, because their drive is late.
    pub(crate) avoid: BTreeSet<(Column, u64)>,
    /// It waits for late drives, because there is no way around them.
    pub(crate) waits: bool,
    pub(crate) hedge: Hedge,
    /// Its reader has ended: its result is not needed any more.
    pub(crate) orphan: bool,
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

/// An operation. The first fields say what it is for, the others are its state.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) owner: Owner,
    /// The parts of each request, if it writes for several requests: the owner is the first of them.
    pub(crate) parts: Option<Box<[Part]>>,
    /// Later writes to its stripe wait for their neighbours while it runs.
    pub(crate) occupies: bool,
    /// The service class of its drive operations.
    pub(crate) service: Service,
    /// When it began.
    pub(crate) begun: Instant,
    pub(crate) group: GroupId,
    /// In an operation for a client: the first stripe of the group's data that it works on.
    pub(crate) data: Option<DataStripe>,
    pub(crate) task: Task,

    pub(crate) phase: Phase,
    /// The stripes that it is planned for and locks. In an operation for a client these are the stripes that hold its
    /// data, once its location has a version.
    pub(crate) stripes: Range<StripeId>,
    pub(crate) location: Location,
    pub(crate) lock: Lock,
    pub(crate) plan: Option<Plan>,
    /// The epoch of this plan.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) memory: Memory,
    /// Set if its blocks go in place before they are logged.
    pub(crate) direct: Option<Box<Direct>>,
    pub(crate) detour: Detour,
    pub(crate) found: Findings,
    /// The fault with which the operation will end.
    pub(crate) fault: Option<Fault>,
}

impl Op {
    pub(crate) fn new(owner: Owner, group: GroupId, stripes: Range<StripeId>, task: Task) -> Self {
        Self {
            service: service_of(owner, &task),
            owner,
            parts: None,
            occupies: false,
            begun: Instant::ZERO,
            group,
            data: None,
            task,
            phase: Phase::Locking,
            stripes,
            location: Location::default(),
            lock: Lock::None,
            plan: None,
            epoch: None,
            memory: Memory::default(),
            direct: None,
            detour: Detour::default(),
            found: Findings::default(),
            fault: None,
        }
    }

    /// An operation for a client on stripes of the group's data. Until it is located, its stripes are those that hold
    /// the data if nothing has moved.
    pub(crate) fn of_data(
        owner: Owner,
        group: GroupId,
        data: Range<DataStripe>,
        task: Task,
    ) -> Self {
        let stripes = data.start.own_place()..data.end.own_place();
        Self {
            data: Some(data.start),
            ..Self::new(owner, group, stripes, task)
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.lock != Lock::None
    }

    /// The stripe that it leaves, if it is planned for a free stripe.
    pub(crate) const fn moves_from(&self) -> Option<StripeId> {
        match self.location.destination {
            Destination::Free { from } => Some(from),
            Destination::Open | Destination::Home => None,
        }
    }

    /// Its stripes have these forms now. What was found out about places of other forms does not count any more.
    pub(crate) fn has_forms(&mut self, geometry: &Geometry, forms: Forms) {
        if self.location.forms == forms {
            return;
        }
        self.location.forms = forms;
        self.found.bad.clear();
        self.found.unknown.clear();
        self.detour.avoid.clear();
        self.found.arbitration = Rare::BLANK;
        if let Task::Repair(repair) = &mut self.task {
            // Data has the same slots in both forms.
            let data = geometry.code().data().len();
            repair.blocks.retain(|&(slot, _)| slot < data);
        }
    }

    /// The form of one of its stripes.
    pub(crate) fn form_of(&self, stripe: StripeId) -> Form {
        self.location
            .forms
            .of_stripe(stripe.0.wrapping_sub(self.stripes.start.0))
    }

    /// The form of its first stripe; nearly all operations have only one.
    pub(crate) fn form(&self) -> Form {
        self.form_of(self.stripes.start)
    }

    /// The stripes of the group's data that it works on.
    pub(crate) fn data_stripes(&self) -> Option<Range<DataStripe>> {
        let count = StripeId::count(&self.stripes);
        self.data.map(|first| first..first.plus(count))
    }

    /// The repair of blocks of a stripe.
    pub(crate) fn repair(owner: Owner, group: GroupId, stripe: StripeId, repair: Repair) -> Self {
        Self::new(owner, group, stripe..stripe.next(), Task::Repair(repair))
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
