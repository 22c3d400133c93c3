//! `faulty:`: another drive that fails on request, for tests at every level above.
//!
//! Faults are set through a [`FaultHandle`] while requests run, or from the start by the drive's
//! URI. Failed and held requests never reach the inner drive.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use block::{
    BlockDevice, Completed, Extent, Fault, Limits, Memory, Outcome, Permission, Request,
    RequestKind, Usage,
};

use super::telemetry::Telemetry;
use super::ticket::Ticket;
use super::timer::Group;
use super::uri::Faults;

/// What happens to a request that a trap catches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It fails with a medium error (EIO).
    #[default]
    Medium,
    /// It fails for lack of space (ENOSPC).
    Full,
    /// It fails, and so does everything after it: the drive is gone.
    Gone,
    /// It is held until the drive is restored, fails or is dropped.
    Hang,
}

/// Which requests fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trap {
    /// The kind of requests that count; all kinds if `None`.
    pub on: Option<RequestKind>,
    /// The first of those requests that is caught, counted from 1 when the trap is set.
    pub nth: u64,
    /// How many are caught from there on; all if `None`.
    pub times: Option<u64>,
    /// What happens to them.
    pub effect: Effect,
}

impl Default for Trap {
    /// The next request of any kind fails once with a medium error.
    fn default() -> Self {
        Self {
            on: None,
            nth: 1,
            times: Some(1),
            effect: Effect::Medium,
        }
    }
}

struct Held {
    request: Request,
    memory: Memory,
    ticket: Ticket,
}

#[derive(Default)]
struct State {
    gone: bool,
    /// Each trap with the number of requests it has counted.
    traps: Vec<(Trap, u64)>,
    /// The traps catch, and count, only what comes while this file exists.
    only_while: Option<PathBuf>,
    /// Bytes that cannot be read.
    bad: Vec<Range<u64>>,
    held: Vec<Held>,
    requests: u64,
}

/// What becomes of a request.
enum Verdict {
    Pass,
    Fail(Fault),
    Hold,
}

impl State {
    fn judge(&mut self, request: &Request) -> Verdict {
        self.requests += 1;
        if self.gone {
            return Verdict::Fail(Fault::Gone);
        }
        let mut caught = None;
        let armed = self.only_while.as_ref().is_none_or(|file| file.exists());
        for (trap, seen) in self.traps.iter_mut().filter(|_| armed) {
            if trap.on.is_none_or(|kind| kind == request.kind) {
                *seen += 1;
                let end = trap.times.map(|times| trap.nth.saturating_add(times));
                if *seen >= trap.nth && end.is_none_or(|end| *seen < end) {
                    caught.get_or_insert(trap.effect);
                }
            }
        }
        match caught {
            Some(Effect::Medium) => return Verdict::Fail(Fault::Medium),
            Some(Effect::Full) => return Verdict::Fail(Fault::Full),
            Some(Effect::Gone) => {
                self.gone = self.only_while.is_none();
                return Verdict::Fail(Fault::Gone);
            }
            Some(Effect::Hang) => return Verdict::Hold,
            None => {}
        }
        let range = request.offset..request.offset.saturating_add(request.length);
        if request.kind == RequestKind::Read {
            let overlaps = |bad: &Range<u64>| bad.start < range.end && range.start < bad.end;
            if self.bad.iter().any(overlaps) {
                return Verdict::Fail(Fault::Medium);
            }
        } else if request.kind.mutates() {
            // A write makes bad bytes readable, as a disk remaps a bad sector when it is written.
            let before = std::mem::take(&mut self.bad);
            for bad in before {
                let left = bad.start..bad.end.min(range.start);
                let right = bad.start.max(range.end)..bad.end;
                self.bad
                    .extend([left, right].into_iter().filter(|part| !part.is_empty()));
            }
        }
        Verdict::Pass
    }
}

struct Control {
    inner: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    group: Group,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, request: Request, memory: Memory, ticket: Ticket) {
        let relay: Arc<dyn Completed> = Arc::new(Relay::new(ticket));
        self.inner.submit(request, memory, 0, &relay);
    }
}

/// Passes the inner drive's answer on.
pub(super) struct Relay(Mutex<Option<Ticket>>);

impl Relay {
    pub(super) const fn new(ticket: Ticket) -> Self {
        Self(Mutex::new(Some(ticket)))
    }
}

impl Completed for Relay {
    fn completed(&self, _token: u64, outcome: Outcome) {
        let ticket = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ticket) = ticket {
            ticket.complete(outcome);
        }
    }

    fn permission(&self) -> Permission {
        let ticket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ticket
            .as_ref()
            .map_or(Permission::Revoked, Ticket::permission)
    }
}

/// A drive that fails on request.
pub(crate) struct FaultyDrive {
    control: Arc<Control>,
    telemetry: Arc<Telemetry>,
}

impl FaultyDrive {
    pub(crate) fn new(
        inner: Arc<dyn BlockDevice>,
        faults: &Faults,
        telemetry: &Arc<Telemetry>,
    ) -> io::Result<Self> {
        let state = State {
            traps: faults.trap.iter().map(|&trap| (trap, 0)).collect(),
            only_while: faults.only_while.clone(),
            bad: faults
                .bad
                .iter()
                .map(|&(start, length)| start..start + length)
                .collect(),
            ..State::default()
        };
        Ok(Self {
            control: Arc::new(Control {
                inner,
                state: Mutex::new(state),
                group: Group::new()?,
            }),
            telemetry: Arc::clone(telemetry),
        })
    }

    pub(crate) fn handle(&self) -> FaultHandle {
        FaultHandle(Arc::downgrade(&self.control))
    }
}

impl BlockDevice for FaultyDrive {
    fn limits(&self) -> Limits {
        self.control.inner.limits()
    }

    fn usage(&self) -> Option<Usage> {
        self.control.inner.usage()
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        self.control.inner.extents(offset, length)
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let ticket = Ticket::new(&self.telemetry, &request, token, to, Instant::now());
        let mut state = self.control.lock();
        match state.judge(&request) {
            Verdict::Pass => {
                drop(state);
                self.control.pass(request, memory, ticket);
            }
            Verdict::Fail(fault) => {
                drop(state);
                drop(memory);
                self.control
                    .group
                    .complete_at(Instant::now(), ticket, Err(fault));
            }
            Verdict::Hold => state.held.push(Held {
                request,
                memory,
                ticket,
            }),
        }
    }
}

impl Drop for FaultyDrive {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.control.lock().held);
        answer(held, Fault::Shutdown);
    }
}

fn answer(held: Vec<Held>, fault: Fault) {
    for Held { memory, ticket, .. } in held {
        drop(memory);
        ticket.complete(Err(fault));
    }
}

/// Sets and lifts the faults of one `faulty:` drive. Does nothing once the drive is dropped.
#[derive(Clone)]
pub struct FaultHandle(Weak<Control>);

impl FaultHandle {
    /// Makes the drive gone: held requests and all that follow fail with [`Fault::Gone`].
    pub fn fail(&self) {
        if let Some(control) = self.0.upgrade() {
            let held = {
                let mut state = control.lock();
                state.gone = true;
                std::mem::take(&mut state.held)
            };
            answer(held, Fault::Gone);
        }
    }

    /// Lifts every fault, and passes held requests on to the inner drive.
    pub fn restore(&self) {
        if let Some(control) = self.0.upgrade() {
            let held = {
                let mut state = control.lock();
                state.gone = false;
                state.traps.clear();
                state.bad.clear();
                std::mem::take(&mut state.held)
            };
            for Held {
                request,
                memory,
                ticket,
            } in held
            {
                control.pass(request, memory, ticket);
            }
        }
    }

    /// Adds a trap to those that are set.
    pub fn set(&self, trap: Trap) {
        if let Some(control) = self.0.upgrade() {
            control.lock().traps.push((trap, 0));
        }
    }

    /// Makes bytes unreadable until they are written, trimmed or zeroed.
    pub fn set_bad(&self, range: Range<u64>) {
        if let Some(control) = self.0.upgrade() {
            control.lock().bad.push(range);
        }
    }

    /// How many requests have arrived so far, failed ones included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0
            .upgrade()
            .map_or(0, |control| control.lock().requests)
    }

    /// How many requests are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0
            .upgrade()
            .map_or(0, |control| control.lock().held.len())
    }
}
