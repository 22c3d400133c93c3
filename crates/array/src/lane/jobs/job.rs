//! One job: what is to be done to every stripe of a group, and how far it has come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use block::{Fault, Instant};
use layout::Cell;

use super::catchup::{Held, PageScan};
use crate::format::PageName;
use crate::lane::ops::Task;

/// Bytes of one cell that a step of a scrub or resync reads. Clients wait for its stripes' locks.
/// A scrub's is shorter while clients ask (`pace.rs`).
pub(super) const STEP_BYTES: u64 = 1 << 20;

/// Steps of a scrub or resync in flight: one reads while the other writes.
const STEPS_IN_FLIGHT: u64 = 2;

/// Bytes of one cell that a step of a fill moves. A disk turns to another fill after each step: in a rebuild at 7,200 rpm
/// the arm and the rotation take 42 % of its time with 1 MiB, 22 % with 4 MiB. A step's memory is as many times this
/// as columns are read and written.
/// While clients ask it is shorter (`pace.rs`).
pub(crate) const FILL_STEP_BYTES: u64 = 4 << 20;

/// Steps of a fill in flight. Other fills keep the drives busy while this one writes; a second step would take the
/// memory of another fill, and reach fewer drives.
const FILL_STEPS_IN_FLIGHT: u64 = 1;

/// What a scrub rests at least after a step while clients ask: a mebibyte of each of the group's drives in this time.
const SCRUB_REST: Duration = Duration::from_millis(100);

/// Something to be done to every stripe of a group.
#[derive(Clone, Debug)]
pub(in crate::lane) struct Job {
    pub(super) group: u64,
    pub(super) kind: Kind,
    pub(super) next_stripe: u64,
    pub(super) in_flight: u64,
    pub(super) fault: Option<Fault>,
    /// A checkpoint that it needs is under way: before its first step, or after its last.
    pub(super) waiting: bool,
    /// Blocks compared with their checksums, and how many of them were wrong.
    pub(super) verified: (u64, u64),
    /// Repairs of what a scrub has found that are under way.
    pub(super) repairs: u64,
    /// Blocks that these have mended, and blocks of data that they have found to be lost.
    pub(super) repaired: (u64, u64),
    /// It makes way for clients until then.
    pub(super) resume: Option<Instant>,
    /// It is a fill or a scrub that makes way.
    pub(super) paced: bool,
    /// The pages of a fill's target are yet to be scanned.
    pub(super) scan: Option<PageScan>,
    /// What a fill's target has already.
    pub(super) held: Option<Arc<Held>>,
    /// A fill's target may have blocks already: if not in this life of the pool, then in the next.
    pub(super) catches_up: bool,
    /// Of the target's pages those that are not what they should be.
    pub(super) stale_pages: BTreeSet<PageName>,
    /// Bytes written to a fill's target.
    pub(super) copied_bytes: u64,
}

/// What it does to them.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Fill {
        column: u16,
        target: Cell,
        avoid: Vec<u16>,
    },
    Zero,
    Resync,
    Scrub,
}

impl Kind {
    /// Whether it makes way for clients. Nobody waits for a fill or a scrub as for a volume or a drive's blank pages.
    pub(super) const fn makes_way(&self) -> bool {
        matches!(self, Self::Fill { .. } | Self::Scrub)
    }

    /// How long it rests at least after a step.
    pub(super) const fn rest_min(&self) -> Duration {
        match self {
            Self::Scrub => SCRUB_REST,
            Self::Fill { .. } | Self::Zero | Self::Resync => Duration::ZERO,
        }
    }
}

impl Job {
    fn new(group: u64, kind: Kind) -> Self {
        Self {
            group,
            kind,
            next_stripe: 0,
            in_flight: 0,
            fault: None,
            waiting: false,
            verified: (0, 0),
            repairs: 0,
            repaired: (0, 0),
            resume: None,
            paced: false,
            scan: None,
            held: None,
            catches_up: false,
            stale_pages: BTreeSet::new(),
            copied_bytes: 0,
        }
    }

    /// With `holds` the target has everything that was logged before that batch.
    pub(in crate::lane) fn fill(
        group: u64,
        column: u16,
        target: Cell,
        avoid: Vec<u16>,
        holds: Option<u64>,
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

    pub(in crate::lane) fn zero(group: u64) -> Self {
        Self::new(group, Kind::Zero)
    }

    pub(in crate::lane) fn resync(group: u64) -> Self {
        Self::new(group, Kind::Resync)
    }

    pub(in crate::lane) fn scrub(group: u64) -> Self {
        Self::new(group, Kind::Scrub)
    }

    /// It ends with this fault, if not with an earlier one.
    pub(in crate::lane) fn fail(&mut self, fault: Fault) {
        self.fault = self.fault.or(Some(fault));
    }

    /// Steps of it that may be in flight.
    pub(super) const fn steps_in_flight(&self) -> u64 {
        match self.kind {
            Kind::Fill { .. } => FILL_STEPS_IN_FLIGHT,
            Kind::Zero | Kind::Resync | Kind::Scrub => STEPS_IN_FLIGHT,
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
        }
    }

    /// The column that it fills, if it fills one.
    pub(super) const fn column_filled(&self) -> Option<u16> {
        match self.kind {
            Kind::Fill { column, .. } => Some(column),
            Kind::Zero | Kind::Resync | Kind::Scrub => None,
        }
    }
}
