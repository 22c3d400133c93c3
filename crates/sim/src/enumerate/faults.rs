//! A fault at the n-th operation, for every n.

use block::{Seat, mix};

use super::{Share, Tally, Workload};
use crate::drive::{Counted, Drive, DriveFault, Pieces, Region, Regions, Trigger};
use crate::schedule::{Event, Runner, SETTINGS, Schedule};
use crate::world::CutSpec;

/// Faults that a drive reports.
pub(super) const REPORTED: [DriveFault; 7] = [
    DriveFault::Gone,
    DriveFault::Eio { for_good: false },
    DriveFault::Eio { for_good: true },
    DriveFault::Full { for_good: false },
    DriveFault::Full { for_good: true },
    DriveFault::Hang { for_good: false },
    DriveFault::Hang { for_good: true },
];

/// Silent faults. A drive that is set back to an earlier state is added to them.
const SILENT: [DriveFault; 7] = [
    DriveFault::Flip { bit: 12_345 },
    DriveFault::Dropped,
    DriveFault::Stray { blocks: 1 },
    DriveFault::Stray { blocks: -2 },
    DriveFault::Shorn(Pieces::prefix(3)),
    DriveFault::Shorn(Pieces {
        runs: [(0, 1), (5, 8)],
    }),
    DriveFault::WrongRead { blocks: 1 },
];

/// The workload as a schedule, with its pool closed and opened at the end.
fn schedule(workload: &Workload, events: impl IntoIterator<Item = Event>) -> Schedule {
    let mut schedule = workload.frame.clone();
    schedule.events.extend(&workload.prepare);
    schedule.events.extend(events);
    schedule.events.extend(&workload.events);
    schedule.events.push(Event::Reopen);
    schedule
}

/// Operations of each seat's drive in the enumerated part of a workload.
fn operations(runner: &mut Runner, workload: &Workload) -> Vec<u64> {
    let mut run = runner.begin(&workload.frame, None);
    let mut count = |events: &[Event]| -> Vec<u64> {
        run.events(events).expect("the workload runs");
        run.world().drives().iter().map(Drive::admitted).collect()
    };
    let before = count(&workload.prepare);
    count(&workload.events);
    let after = count(&[Event::Reopen]);
    let before = before.into_iter().chain(std::iter::repeat(0));
    after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

fn run(runner: &mut Runner, workload: &Workload, fault: Event, tally: &mut Tally) {
    tally.merged += 1;
    let schedule = schedule(workload, [fault]);
    if let Some(violation) = runner.run(&schedule).violation {
        let line = format!("{}: {fault}: {violation}", workload.name);
        tally.violations.push(line);
    }
}

/// Every operation of every drive has each reported fault once: workload, closing and opening.
pub fn reported(runner: &mut Runner, workload: &Workload, share: Share) -> Tally {
    let mut tally = Tally::default();
    if workload.spare_losses == 0 {
        return tally;
    }
    let operations = operations(runner, workload);
    for &seat in &workload.seats {
        for skip in 0..operations[seat.index()] {
            tally.points += 1;
            for (kind, fault) in REPORTED.into_iter().enumerate() {
                tally.states += 1;
                let case = mix(u64::from(seat.0) << 32 | skip << 8 | kind as u64);
                if share.has(case) {
                    let trigger = Trigger::nth(skip);
                    let event = Event::Fault {
                        seat,
                        trigger,
                        fault,
                    };
                    run(runner, workload, event, &mut tally);
                }
            }
        }
    }
    tally
}

/// Every operation of every drive in every region has every silent fault once.
pub fn silent(runner: &mut Runner, workload: &Workload, share: Share) -> Tally {
    let mut tally = Tally::default();
    if workload.spare_losses == 0 {
        return tally;
    }
    let operations = operations(runner, workload);
    for &seat in &workload.seats {
        for region in Region::ALL {
            for skip in 0..operations[seat.index()] {
                tally.points += 1;
                let Some(hit) = silent_at(runner, workload, (seat, region, skip), share) else {
                    // The region has no operation with that number, so it has no later one either.
                    tally.points -= 1;
                    break;
                };
                tally.add(hit);
            }
        }
        tally.add(set_back(runner, workload, seat, share));
    }
    tally
}

/// Sets the drive, or regions of it, back to the state before the workload's requests when the pool is opened again,
/// after a clean stop or a power cut. Then the same with the loss of one other drive, for each that the code survives
/// in addition.
fn set_back(runner: &mut Runner, workload: &Workload, seat: Seat, share: Share) -> Tally {
    let mut tally = Tally::default();
    let mut regions: Vec<Regions> = Region::ALL
        .iter()
        .map(|&region| Regions::of(&[region]))
        .collect();
    regions.push(Regions::of(&[Region::Metadata, Region::Data]));
    regions.push(Regions::ALL);
    let others = workload.seats.iter().filter(|&&other| other != seat);
    let lost = [None].into_iter().chain(others.map(|&other| Some(other)));
    for (number, lost) in lost.enumerate() {
        for (kind, &regions) in regions.iter().enumerate() {
            for stop in [Event::Reopen, Event::Cut(CutSpec::All)] {
                let schedule = set_back_schedule(workload, (seat, regions), stop, lost);
                if !schedule.is_within_budget() {
                    continue;
                }
                tally.points += u64::from(kind == 0);
                tally.states += 1;
                let case = u64::from(seat.0) << 32 | (number as u64) << 16 | (kind as u64) << 8;
                if !share.has(mix(case | u64::from(stop == Event::Reopen))) {
                    continue;
                }
                tally.merged += 1;
                if let Some(violation) = runner.run(&schedule).violation {
                    let line = format!(
                        "{}: {regions:?} of {seat} set back, {stop}, {lost:?} lost: {violation}",
                        workload.name
                    );
                    tally.violations.push(line);
                }
            }
        }
    }
    tally
}

fn set_back_schedule(
    workload: &Workload,
    (seat, regions): (Seat, Regions),
    stop: Event,
    lost: Option<Seat>,
) -> Schedule {
    let event = match regions {
        Regions::ALL => Event::Stale(seat),
        regions => Event::SetBack { seat, regions },
    };
    let mut schedule = schedule(workload, [event]);
    schedule.events.pop();
    schedule.events.extend([Event::Drain, stop]);
    schedule.events.extend(lost.map(Event::Fail));
    // Everything is read before the lost drive is replaced.
    let length = SETTINGS[workload.frame.setting].volume_bytes;
    schedule
        .events
        .extend([Event::Read { offset: 0, length }, Event::Drain]);
    schedule
}

/// All silent faults at one operation of a region; `None` if there is no such operation.
fn silent_at(
    runner: &mut Runner,
    workload: &Workload,
    (seat, region, skip): (Seat, Region, u64),
    share: Share,
) -> Option<Tally> {
    let mut tally = Tally::default();
    let trigger = |counted| Trigger {
        counted,
        region: Some(region),
        skip,
    };
    // A fault that changes nothing shows whether there is such an operation.
    let probe = Event::Fault {
        seat,
        trigger: trigger(Counted::Any),
        fault: DriveFault::Slow { factor: 1 },
    };
    if runner.run(&schedule(workload, [probe])).faults == 0 {
        return None;
    }
    for (kind, fault) in SILENT.into_iter().enumerate() {
        tally.states += 1;
        let place = u64::from(seat.0) << 40 | (region as u64) << 32 | skip << 8;
        if !share.has(mix(place | kind as u64)) {
            continue;
        }
        let counted = match fault {
            DriveFault::WrongRead { .. } => Counted::Reads,
            DriveFault::Flip { .. } => Counted::Any,
            _ => Counted::Writes,
        };
        let event = Event::Fault {
            seat,
            trigger: trigger(counted),
            fault,
        };
        run(runner, workload, event, &mut tally);
    }
    Some(tally)
}
