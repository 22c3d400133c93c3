//! One job: the work on every stripe of a group, and its progress.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use block::{Fault, Instant};
use format::{Column, Form, GroupId, PageName, Sequence, StripeId};
use layout::Cell;
use plan::action::FormCounts;

use super::catchup::PageScan;
use crate::op::{Convert, Held, Task};

/// Bytes of one cell that a step of a scrub or resync reads. Clients wait for its stripes' locks.
/// A scrub's is shorter while clients ask (`pace.rs`).
pub(super) const STEP_BYTES: u64 = 1 << 20;

/// Bytes of one plane of a cell that a step of a conversion covers. Smaller operations cost disks more than the bytes.
pub(super) const CONVERT_STEP_BYTES: u64 = 256 << 10;

/// Steps of a scrub or resync in flight: one reads while the other writes.
const STEPS_IN_FLIGHT: u64 = 2;

/// Steps of a fill in flight. Other fills keep the drives busy while this one writes; a second step would take the
/// memory of another fill, and reach fewer drives.
const FILL_STEPS_IN_FLIGHT: u64 = 1;

/// The least rest of a scrub after a step while clients send requests: a mebibyte of each of the group's drives in this
/// time.
const SCRUB_REST: Duration = Duration::from_millis(100);

/// Work on every stripe of a group.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(super) group: GroupId,
    pub(super) kind: Kind,
    pub(super) next_stripe: StripeId,
    /// The first of its stripes.
    pub(super) first_stripe: StripeId,
    /// The end of its stripes; by default that of the group.
    pub(super) end_stripe: Option<StripeId>,
    pub(super) in_flight: u64,
    pub(super) fault: Option<Fault>,
    /// The job waits for a checkpoint: before its first step, or after its last.
    pub(super) waiting: bool,
    /// Blocks compared with their checksums, and how many of them were wrong.
    pub(super) verified: (u64, u64),
    /// Repairs under way of blocks that a scrub has found bad.
    pub(super) repairs: u64,
    /// Blocks that these repairs have restored, and blocks of data that they have found to be lost.
    pub(super) repaired: (u64, u64),
    /// The fault of a repair that has failed: bad blocks are still there.
    pub(super) repair_fault: Option<Fault>,
    /// When its last step began.
    pub(super) began: Instant,
    /// It fills a group that could not lose another column when it was asked for its last step.
    pub(super) urgent: bool,
    /// It makes way for clients until this time.
    pub(super) resume: Option<Instant>,
    /// It is a fill or a scrub that makes way now.
    pub(super) paced: bool,
    /// It is a fill that takes no further step while a more urgent one uses one of its drives.
    pub(super) yields: bool,
    /// The pages of a fill's target are yet to be scanned.
    pub(super) scan: Option<PageScan>,
    /// Blocks that a fill's target has already.
    pub(super) held: Option<Arc<Held>>,
    /// A fill's target may have blocks already: if not in this incarnation of the pool, then in the next.
    pub(super) catches_up: bool,
    /// Pages of the target that are not what they should be.
    pub(super) stale_pages: BTreeSet<PageName>,
    /// Bytes written to a fill's target.
    pub(super) copied_bytes: u64,
    /// The stripes that a conversion has counted.
    pub(super) forms: FormCounts,
    /// Bytes written to a fill's target and read for it in the step that is in flight.
    pub(super) step_copied_bytes: u64,
    pub(super) step_read_bytes: u64,
}

/// The kind of work.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Fill {
        column: Column,
        target: Cell,
        avoid: Vec<Column>,
    },
    Zero,
    Resync,
    Scrub,
    /// Stripes get this form, at most so many; `None`: they are only counted.
    Convert {
        to: Option<Form>,
        most: u64,
    },
}

impl Kind {
    /// True if it makes way for clients. Users wait for a volume and for a drive's blank pages, but not for a fill or a
    /// scrub.
    pub(super) const fn makes_way(&self) -> bool {
        matches!(
            self,
            Self::Fill { .. } | Self::Scrub | Self::Convert { to: Some(_), .. }
        )
    }

    /// The least rest after a step.
    pub(super) const fn rest_min(&self) -> Duration {
        match self {
            Self::Scrub => SCRUB_REST,
            Self::Fill { .. } | Self::Zero | Self::Resync | Self::Convert { .. } => Duration::ZERO,
        }
    }
}

impl Job {
    fn new(group: GroupId, kind: Kind) -> Self {
        Self {
            group,
            kind,
            first_stripe: StripeId(0),
            next_stripe: StripeId(0),
            end_stripe: None,
            in_flight: 0,
            fault: None,
            waiting: false,
            verified: (0, 0),
            repairs: 0,
            repaired: (0, 0),
            repair_fault: None,
            began: Instant::ZERO,
            urgent: false,
            resume: None,
            paced: false,
            yields: false,
            scan: None,
            held: None,
            catches_up: false,
            stale_pages: BTreeSet::new(),
            copied_bytes: 0,
            step_copied_bytes: 0,
            step_read_bytes: 0,
            forms: FormCounts::default(),
        }
    }

    /// Conversion of stripes, of which the first is the number of the first step.
    pub(crate) fn convert(
        group: GroupId,
        stripes: Range<StripeId>,
        (to, most): (Option<Form>, u64),
    ) -> Self {
        Self {
            first_stripe: stripes.start,
            next_stripe: stripes.start,
            end_stripe: Some(stripes.end),
            ..Self::new(group, Kind::Convert { to, most })
        }
    }

    /// With `holds` the target has everything that was logged before that batch.
    pub(crate) fn fill(
        group: GroupId,
        column: Column,
        target: Cell,
        avoid: Vec<Column>,
        holds: Option<Sequence>,
    ) -> Self {
        let kind = Kind::Fill {
            column,
            target,
            avoid,
        };
        Self {
            scan: holds.map(PageScan::new),
            catches_up: holds.is_some(),
            ..Self::new(group, kind)
        }
    }

    pub(crate) fn zero(group: GroupId) -> Self {
        Self::new(group, Kind::Zero)
    }

    pub(crate) fn resync(group: GroupId) -> Self {
        Self::new(group, Kind::Resync)
    }

    pub(crate) fn scrub(group: GroupId) -> Self {
        Self::new(group, Kind::Scrub)
    }

    /// The job ends with this fault, unless it has an earlier one.
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.fault = self.fault.or(Some(fault));
    }

    /// It has failed: if it waits with its next step, it waits no longer.
    pub(super) fn ends_at(&mut self, now: Instant) {
        if self.paced && self.in_flight == 0 {
            self.resume = Some(now);
        }
    }

    /// Steps of it that may be in flight.
    pub(super) const fn steps_in_flight(&self) -> u64 {
        match self.kind {
            Kind::Fill { .. } => FILL_STEPS_IN_FLIGHT,
            Kind::Zero | Kind::Resync | Kind::Scrub => STEPS_IN_FLIGHT,
            // A step is to know how many stripes those before it have converted.
            Kind::Convert { .. } => 1,
        }
    }

    pub(super) fn task(&self) -> Task {
        match &self.kind {
            Kind::Fill {
                column,
                target,
                avoid,
            } => Task::Fill {
                column: *column,
                target: *target,
                avoid: avoid.clone(),
                held: self.held.clone(),
            },
            Kind::Zero => Task::Zero,
            Kind::Resync => Task::Resync,
            Kind::Scrub => Task::Scrub,
            Kind::Convert { to, most } => {
                // Without room the rest of the group is only counted.
                let most = match self.forms.short {
                    0 => most.saturating_sub(self.forms.converted),
                    _ => 0,
                };
                Task::Convert(Convert::new(*to, most))
            }
        }
    }

    /// The column that it fills, if it fills one.
    pub(super) const fn column_filled(&self) -> Option<Column> {
        match self.kind {
            Kind::Fill { column, .. } => Some(column),
            Kind::Zero | Kind::Resync | Kind::Scrub | Kind::Convert { .. } => None,
        }
    }
}
