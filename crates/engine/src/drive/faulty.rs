//! `faulty:`: another drive that fails on request, for tests at every level above.
//!
//! Faults are set through a [`FaultHandle`] while requests run, or from the start by the drive's
//! URI. Failed and held requests never reach the inner drive.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use block::{
    BlockDevice, ByteSize, Completed, Extent, Fault, Limits, Memory, Outcome, Permission, Request,
    RequestKind, Usage,
};

use super::telemetry::Telemetry;
use super::ticket::Ticket;
use super::timer::Group;
use super::uri::{
    DriveKind, DriveSpec, NameText, ParseDriveUriError, Wrapper, bad, parse_path, parse_word,
    path_text, size_text, word_of, wrapped, write_options,
};
use super::{OpenDriveError, Opened, Opening};

pub(super) static KIND: DriveKind = DriveKind {
    word: "faulty",
    names: &["faulty:disk.img?fail=eio&nth=7&times=1&on=read&bad=1M+4K"],
    what: "another drive that fails, for tests",
    options: "fail=, nth=, times=, on=, while= and bad=",
    parse: wrapped::<Faults>,
};

/// Values of `fail=`.
const EFFECTS: [(&str, Effect); 4] = [
    ("eio", Effect::Medium),
    ("enospc", Effect::Full),
    ("gone", Effect::Gone),
    ("hang", Effect::Hang),
];

/// Values of `on=`.
const REQUESTS: [(&str, Option<RequestKind>); 7] = [
    ("any", None),
    ("read", Some(RequestKind::Read)),
    ("write", Some(RequestKind::Write)),
    ("flush", Some(RequestKind::Flush)),
    ("trim", Some(RequestKind::Trim)),
    ("discard", Some(RequestKind::Discard)),
    ("zero", Some(RequestKind::WriteZeroes)),
];

/// The parameters of `faulty:`.
#[derive(Clone, Debug, Default)]
struct Faults {
    /// `fail=`, `nth=`, `times=`, `on=`: which requests fail and how.
    trap: Option<Trap>,
    /// `while=FILE`: the trap catches, and counts, only what comes while this file exists.
    only_while: Option<PathBuf>,
    /// `bad=OFFSET+LENGTH`, repeatable: bytes that cannot be read until they are written.
    bad: Vec<(u64, u64)>,
}

impl Wrapper for Faults {
    fn parse(text: &NameText<'_>) -> Result<Self, ParseDriveUriError> {
        let mut faults = Self::default();
        let mut trap = Trap::default();
        let mut armed = false;
        for (key, value) in text.options() {
            match key {
                "fail" => {
                    armed = true;
                    let wanted = "eio, enospc, gone or hang";
                    trap.effect = parse_word("fail", value, &EFFECTS, wanted)?;
                }
                "nth" => {
                    let nth = value.parse().ok().filter(|&nth: &u64| nth > 0);
                    trap.nth = nth.ok_or_else(|| bad("nth", value, "a count from 1"))?;
                }
                "times" => {
                    trap.times = match value {
                        "all" => None,
                        _ => {
                            let times = value.parse().ok();
                            Some(times.ok_or_else(|| bad("times", value, "a count or all"))?)
                        }
                    };
                }
                "on" => {
                    let wanted = "any, read, write, flush, trim, discard or zero";
                    trap.on = parse_word("on", value, &REQUESTS, wanted)?;
                }
                "while" => {
                    let file = parse_path(value);
                    faults.only_while = Some(file.ok_or_else(|| bad("while", value, "a file"))?);
                }
                "bad" => {
                    let wanted = "OFFSET+LENGTH in sizes, such as 1M+4K";
                    let range = value.split_once('+').and_then(|(offset, length)| {
                        let ByteSize(offset) = offset.parse().ok()?;
                        let ByteSize(length) = length.parse().ok()?;
                        offset.checked_add(length)?;
                        Some((offset, length))
                    });
                    faults
                        .bad
                        .push(range.ok_or_else(|| bad("bad", value, wanted))?);
                }
                _ => return Err(text.unknown(key)),
            }
        }
        faults.trap = armed.then_some(trap);
        Ok(faults)
    }

    fn open(&self, inner: &DriveSpec, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        let inner = inner.open(opening)?;
        let telemetry = Arc::new(Telemetry::new());
        let drive = FaultyDrive::new(inner.device, self, &telemetry).map_err(KIND.start_error())?;
        Ok(Opened {
            faults: Some(drive.handle()),
            device: Arc::new(drive),
            kind: KIND.word,
            works_in_caller: false,
            telemetry,
            ..inner
        })
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trap = self.trap.as_ref();
        let times = |times: Option<u64>| times.map_or("all".to_owned(), |times| times.to_string());
        // In an option `&` would end the path.
        let only_while = |file: &PathBuf| path_text(file).replace('&', "%26");
        let bad = |&(offset, length)| {
            let range = format!("{}+{}", size_text(offset), size_text(length));
            ("bad", Some(range))
        };
        let mut options = vec![
            ("fail", trap.map(|trap| word_of(&trap.effect, &EFFECTS))),
            ("nth", trap.map(|trap| trap.nth.to_string())),
            ("times", trap.map(|trap| times(trap.times))),
            ("on", trap.map(|trap| word_of(&trap.on, &REQUESTS))),
            ("while", self.only_while.as_ref().map(only_while)),
        ];
        options.extend(self.bad.iter().map(bad));
        // An empty `?` is written, too: without it the wrapped drive's options would be taken for
        // the wrapper's.
        if options.iter().all(|(_, value)| value.is_none()) {
            return f.write_str("?");
        }
        write_options(f, options)
    }
}

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
struct FaultyDrive {
    control: Arc<Control>,
    telemetry: Arc<Telemetry>,
}

impl FaultyDrive {
    fn new(
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

    fn handle(&self) -> FaultHandle {
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
