//! A failure of the n-th operation, for every n, while a pool is created, opened and closed.
//!
//! ```text
//!   make    used drives ─ wipe ─► labels, journal ─► volume: zeroed ─► written, closed, opened, read back
//!                 ▲                      │ refused
//!                 └──── again, no fault ◄┘
//!
//!   open    closed │ killed │ cut ─► labels read, journal read ─► everything durable is there
//!                 ▲                      │ refused            └─ and again after a second opening
//!                 └──── again, no fault ◄┘
//!
//!   close   everything flushed ─► put in place, labels ─► killed or cut ─► opened ─► everything is there
//! ```
//!
//! `faults` does the same for the client's requests in between.

use array::pool::PoolError;
use block::{Seat, mix};

use super::faults::REPORTED;
use super::{Share, Tally, Workload, guarded};
use crate::drive::{Drive, DriveFault, Trigger};
use crate::ledger::Ledger;
use crate::schedule::{Checked, Event, Run, Runner, SETTINGS, VOLUME, Violation, options};
use crate::world::{CutSpec, World, wipe};

/// The task was completed, or refused with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    It,
    Refused,
}

type Outcome = Result<Did, Violation>;

/// The drives, and the legal values, before a pool is opened.
struct Start {
    name: &'static str,
    drives: Vec<Drive>,
    ledger: Ledger,
}

/// Every operation of every drive has each reported fault once, while the workload's pool is created, opened (after it
/// was closed, killed and cut), and closed.
pub fn phases(runner: &mut Runner, workload: &Workload, share: Share) -> Tally {
    let mut tally = Tally::default();
    if workload.spare_losses == 0 {
        return tally;
    }
    let of = |phase: &'static str| Phase {
        workload,
        share,
        phase,
    };
    if workload.makes {
        let phase = of("make");
        let used = used_drives(runner, workload);
        let operations = phase.operations(&used, |drives| {
            let mut run = phase.makes(drives)?;
            run.settle()?;
            Ok(run.stop(None))
        });
        phase.each(&operations, &mut tally, |seat, trigger, fault| {
            let mut drives = used.clone();
            drives[seat.index()].inject(trigger, fault);
            phase.make(drives)
        });
    }
    let written = written(runner, workload);
    for start in starts(&written) {
        let phase = of(start.name);
        let operations = phase.operations(&start.drives, |drives| {
            let mut run = phase.after(&start.ledger);
            run.open(drives)?;
            run.settle()?;
            Ok(run.stop(None))
        });
        phase.each(&operations, &mut tally, |seat, trigger, fault| {
            let mut drives = start.drives.clone();
            drives[seat.index()].inject(trigger, fault);
            phase.open(drives, &start.ledger)
        });
    }
    let mut quiet = written;
    guarded(|| quiet.events(&[Event::Drain, Event::Settle])).expect("the workload ends");
    let phase = of("close");
    let operations = phase.operations(&quiet.clone().stop(None), |_| {
        let mut run = quiet.clone();
        close(&mut run)?.expect("nothing is wrong");
        Ok(run.stop(None))
    });
    phase.each(&operations, &mut tally, |seat, trigger, fault| {
        let mut run = quiet.clone();
        if let Some(drive) = run.world().drive_in(seat) {
            drive.inject(trigger, fault);
        }
        phase.close(&run, seat)
    });
    tally
}

/// Drives that held another pool of the same scheme, with all its blocks written.
fn used_drives(runner: &mut Runner, workload: &Workload) -> Vec<Drive> {
    let mut run = runner.begin(&workload.frame, None);
    let whole = Event::Write {
        offset: 0,
        length: SETTINGS[workload.frame.setting].volume_bytes,
        fua: true,
    };
    guarded(|| run.events(&[whole, Event::Reopen])).expect("nothing is wrong");
    run.stop(None)
}

/// The workload, after its last event.
fn written(runner: &mut Runner, workload: &Workload) -> Run {
    let mut run = runner.begin(&workload.frame, None);
    guarded(|| {
        run.events(&workload.prepare)?;
        run.events(&workload.events)
    })
    .expect("the workload runs");
    run
}

/// The states in which a pool is opened: after a clean end, after a kill with requests in flight, and after cuts.
fn starts(written: &Run) -> [Start; 4] {
    let cut = |name, cut: Option<CutSpec>| {
        let mut run = written.clone();
        let drives = run.stop(cut);
        let ledger = run.ledger().clone();
        Start {
            name,
            drives,
            ledger,
        }
    };
    let mut run = written.clone();
    guarded(|| {
        run.events(&[Event::Drain, Event::Settle])?;
        close(&mut run)
    })
    .expect("the workload ends")
    .expect("nothing is wrong");
    let drives = run.stop(None);
    let closed = Start {
        name: "open closed",
        drives,
        ledger: run.ledger().clone(),
    };
    [
        closed,
        cut("open killed", None),
        cut("open cut", Some(CutSpec::None)),
        cut("open torn", Some(CutSpec::Seed(1))),
    ]
}

fn close(run: &mut Run) -> Result<Result<(), PoolError>, Violation> {
    let ticket = run.world().begin_close();
    let closed = run.command_ends(ticket)?;
    run.settle()?;
    Ok(closed)
}

fn mended(mut drives: Vec<Drive>) -> Vec<Drive> {
    for drive in &mut drives {
        drive.mend();
    }
    drives
}

/// One phase of the use of a pool, for one workload.
struct Phase<'a> {
    workload: &'a Workload,
    share: Share,
    phase: &'static str,
}

impl Phase<'_> {
    /// Operations of each drive that the phase needs without a fault.
    fn operations(
        &self,
        before: &[Drive],
        run: impl FnOnce(Vec<Drive>) -> Result<Vec<Drive>, Violation>,
    ) -> Vec<u64> {
        let after = guarded(|| run(before.to_vec()));
        let after = after.unwrap_or_else(|violation| panic!("{}: {violation}", self.phase));
        let of = after.iter().map(Drive::admitted);
        of.zip(before)
            .map(|(after, before)| after - before.admitted())
            .collect()
    }

    /// Each operation with each fault.
    fn each(
        &self,
        operations: &[u64],
        tally: &mut Tally,
        run: impl Fn(Seat, Trigger, DriveFault) -> Outcome,
    ) {
        let phase = self.phase.bytes().fold(0, |all, byte| {
            mix(all ^ u64::from(byte)) // any number that distinguishes phases
        });
        for &seat in &self.workload.seats {
            for skip in 0..operations[seat.index()] {
                tally.points += 1;
                for (kind, fault) in REPORTED.into_iter().enumerate() {
                    tally.states += 1;
                    let case = u64::from(seat.0) << 32 | skip << 8 | kind as u64;
                    if !self.share.has(mix(phase ^ case)) {
                        continue;
                    }
                    tally.merged += 1;
                    let trigger = Trigger::nth(skip);
                    match guarded(|| run(seat, trigger, fault)) {
                        Ok(Did::It) => {}
                        Ok(Did::Refused) => tally.refused += 1,
                        Err(violation) => tally.violations.push(format!(
                            "{}: {}: seat {seat}, operation {skip}: {fault}: {violation}",
                            self.workload.name, self.phase
                        )),
                    }
                }
            }
        }
    }

    const fn setting(&self) -> usize {
        self.workload.frame.setting
    }

    fn after(&self, ledger: &Ledger) -> Run {
        Run::after(ledger.clone(), self.workload.frame.seed, self.setting())
    }

    // --- make --------------------------------------------------------------------------------

    /// Creates pool and volume, as `pool create` and `volume create` do.
    fn makes(&self, drives: Vec<Drive>) -> Result<Run, Violation> {
        let made = self.try_make(drives)?;
        made.map_err(|(_, why)| Violation::new("make", why))
    }

    /// The same; if the creation was refused, the drives and the reason.
    fn try_make(
        &self,
        mut drives: Vec<Drive>,
    ) -> Result<Result<Run, (Vec<Drive>, String)>, Violation> {
        for drive in &mut drives {
            if let Err(fault) = wipe(drive) {
                return Ok(Err((drives, format!("wiping: {fault}"))));
            }
        }
        let world = World::begin_create(&options(self.setting()), drives, true);
        let mut run = Run::on(world, self.workload.frame.seed, self.setting());
        let opened = run.opens()?;
        let facts = run.world().pool().facts();
        // A drive that does not take its label ends the attempt: a new pool must not be degraded.
        let whole = facts.seats().all(|(_, facts)| facts.state.takes_part());
        if opened.is_err() || !whole {
            let mut drives = run.stop(None);
            for drive in &mut drives {
                // A drive that cannot be written cannot be wiped either.
                wipe(drive).unwrap_or_default();
            }
            return Ok(Err((drives, format!("labels: {opened:?}"))));
        }
        let bytes = SETTINGS[self.setting()].volume_bytes;
        let volume = run.world().begin_create_volume(VOLUME, bytes);
        let volume = match volume {
            Ok(ticket) => run.command_ends(ticket)?,
            Err(error) => Err(error),
        };
        Ok(match volume {
            Ok(()) => Ok(run),
            Err(error) => Err((run.stop(None), error.to_string())),
        })
    }

    /// A pool that was created holds the data that is written to it. Drives of a refused creation can be used again.
    fn make(&self, drives: Vec<Drive>) -> Outcome {
        let (mut run, did) = match self.try_make(drives)? {
            Ok(run) => (run, Did::It),
            Err((drives, _)) => (self.makes(mended(drives))?, Did::Refused),
        };
        run.read_back()?;
        run.events(&self.workload.events)?;
        run.all(&[Event::Drain, Event::Reopen])?;
        Ok(did)
    }

    // --- open --------------------------------------------------------------------------------

    /// All durable data is there; or the opening is refused with a reason, and the data is there without the fault. In
    /// both cases the data is also there when the pool is killed and opened again with the drive as good as before.
    fn open(&self, drives: Vec<Drive>, ledger: &Ledger) -> Outcome {
        let mut run = self.after(ledger);
        let did = match run.try_open(drives)? {
            Ok(()) => Did::It,
            Err((drives, _)) => {
                run.open(mended(drives))?;
                Did::Refused
            }
        };
        let mut killed = run.clone();
        run.read_back()?;
        self.again(&mut killed)?;
        run.all(&[Event::Reopen])?;
        Ok(did)
    }

    fn again(&self, run: &mut Run) -> Checked {
        let drives = run.stop(None);
        run.open(mended(drives))?;
        run.read_back()?;
        run.all(&[])
    }

    // --- close -------------------------------------------------------------------------------

    /// Whatever the outcome of the closing: all acknowledged data is there, whether the drive returns or not, and
    /// whether the power is cut afterwards or not.
    fn close(&self, quiet: &Run, seat: Seat) -> Outcome {
        let mut run = quiet.clone();
        let did = match close(&mut run)? {
            Ok(()) => Did::It,
            Err(_) => Did::Refused,
        };
        for cut in [None, Some(CutSpec::None)] {
            for comes_back in [true, false] {
                let mut run = run.clone();
                let mut drives = run.stop(cut);
                if comes_back {
                    drives = mended(drives);
                } else {
                    drives[seat.index()].pull();
                }
                run.open(drives)?;
                run.read_back()?;
                run.all(&[])?;
            }
        }
        Ok(did)
    }
}
