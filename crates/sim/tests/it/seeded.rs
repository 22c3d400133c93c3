//! The simulator finds seeded faults: how soon, and by which invariant.
//!
//! Without `RAVELIN_LONG=1`: one first seed for each fault that is found quickly from there. With it: five first seeds for each
//! fault, at most a minute of CPU time for each, and a table. `docs/design/seeded-faults.md` has the list.

#![expect(clippy::print_stdout, reason = "figures for the documents")]

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sim::schedule::{Event, Runner, Schedule, Scope};
use sim::{CutSpec, SeededFault, seed_fault};
use testing::thread_cpu_time;

/// CPU time that the search for one fault may take.
const LIMIT: Duration = Duration::from_secs(60);

struct Found {
    took: Duration,
    schedules: u64,
    invariant: String,
    seed: u64,
}

/// Schedules with silent and with reported drive faults in turn: every seeded fault is searched for in the same
/// schedules.
fn schedule(seed: u64) -> Schedule {
    let scope = if seed % 3 == 2 {
        Scope::Silent
    } else {
        Scope::Reported
    };
    Schedule::from_seed(seed, scope)
}

/// Histories by number: one panics if something is wrong.
struct Histories {
    name: &'static str,
    run: fn(u64),
}

/// Histories in which a fault is searched for instead of in schedules: it needs more drives away than the code survives, a
/// drive without space, or drives that are lost with the power in the middle of a growth.
fn histories_of(fault: SeededFault) -> Option<Histories> {
    let of = |name, run| Some(Histories { name, run });
    match fault {
        SeededFault::FoundNotAsked
        | SeededFault::UndecidedDropped
        | SeededFault::LogCutShort
        | SeededFault::GoneForGood => of("glitch", super::glitch::numbered),
        SeededFault::FullGoesOut => of("full", super::full::numbered),
        SeededFault::LabelsBeforeEntries => of("growing", super::growing::numbered),
        SeededFault::VacantCountsAsLost => of("removing", super::removing::numbered),
        _ => None,
    }
}

/// Faults of pools that grow and shrink: they are searched for in the schedules of the swarm in which drives join the layout
/// or leave it.
const OF_GROWTH: [SeededFault; 5] = [
    SeededFault::HomeWithoutEntry,
    SeededFault::HomeOnTakenCell,
    SeededFault::ColumnsShareDrive,
    SeededFault::ExchangeWithoutSpare,
    SeededFault::LeftCellUsedEarly,
];

fn changes_the_layout(schedule: &Schedule) -> bool {
    let mut events = schedule.events.iter();
    events.any(|event| matches!(event, Event::Expand(_) | Event::Remove(_)))
}

fn find_in(
    Histories { name, run }: Histories,
    fault: SeededFault,
    first: u64,
    limit: Duration,
) -> Option<Found> {
    let begun = thread_cpu_time();
    seed_fault(Some(fault));
    let fails = |number| std::panic::catch_unwind(|| run(number)).is_err();
    let seed = (first..).take_while(|_| thread_cpu_time() - begun <= limit);
    let seed = { seed }.find(|&number| fails(number));
    seed_fault(None);
    seed.map(|seed| Found {
        took: thread_cpu_time() - begun,
        schedules: seed - first + 1,
        invariant: name.to_owned(),
        seed,
    })
}

fn find(fault: SeededFault, first: u64, limit: Duration) -> Option<Found> {
    if let Some(histories) = histories_of(fault) {
        return find_in(histories, fault, first, limit);
    }
    let begun = thread_cpu_time();
    seed_fault(Some(fault));
    let mut runner = Runner::new();
    let of_growth = OF_GROWTH.contains(&fault);
    let schedules = { first.. }
        .map(schedule)
        .filter(|schedule| !of_growth || changes_the_layout(schedule));
    let mut found = None;
    for (ran, schedule) in (1..).zip(schedules) {
        let seed = schedule.seed;
        if let Some(violation) = runner.run(&schedule).violation {
            // The seeded fault must be the cause of the violation.
            seed_fault(None);
            let without = Runner::new().run(&schedule).violation;
            seed_fault(Some(fault));
            if let Some(violation) = without {
                println!("seed {seed} fails without a seeded fault: {violation}");
                continue;
            }
            found = Some(Found {
                took: thread_cpu_time() - begun,
                schedules: ran,
                invariant: violation.invariant.to_owned(),
                seed,
            });
            break;
        }
        if thread_cpu_time() - begun > limit {
            break;
        }
    }
    seed_fault(None);
    found
}

fn is_long() -> bool {
    std::env::var_os("RAVELIN_LONG").is_some()
}

/// Runs on all processors: each thread takes the next fault of the list, and seeds it for itself alone.
#[test]
fn seeded_faults_are_found_in_a_minute_of_cpu_time_each() {
    sim::quiet_panics();
    let only = std::env::var("RAVELIN_SEEDED").ok();
    let firsts: &[u64] = if is_long() {
        &[0, 1_000_000, 2_000_000, 3_000_000, 4_000_000]
    } else {
        &[0]
    };
    let faults: Vec<SeededFault> = SeededFault::ALL
        .iter()
        .copied()
        .filter(|fault| match &only {
            Some(only) => only.split(',').any(|one| one == format!("{fault:?}")),
            None => true,
        })
        .filter(|fault| is_long() || !SLOW.contains(fault))
        .collect();
    // A search is a fault and one of its first seeds, fault by fault.
    let searches = faults.len() * firsts.len();
    let found: Vec<OnceLock<Option<Found>>> = (0..searches).map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(slot) = found.get(at) else { break };
                    let (fault, first) = (faults[at / firsts.len()], firsts[at % firsts.len()]);
                    let first = if is_long() { first } else { first_of(fault) };
                    let _ = slot.set(find(fault, first, LIMIT));
                }
            });
        }
    });
    let mut found = found.into_iter().map(|slot| slot.into_inner().flatten());
    let mut missed = Vec::new();
    for fault in faults {
        let mut all: Vec<Option<Found>> = found.by_ref().take(firsts.len()).collect();
        all.sort_by_key(|found| found.as_ref().map_or(LIMIT * 2, |found| found.took));
        match &all[all.len() / 2] {
            Some(found) => println!(
                "| {fault:?} | {} | {:.2} s | {} schedules | {} | seed {} | {}/{} |",
                fault.what().trim(),
                found.took.as_secs_f64(),
                found.schedules,
                found.invariant,
                found.seed,
                all.iter().flatten().count(),
                all.len(),
            ),
            None => {
                println!("| {fault:?} | {} | not found |", fault.what().trim());
                missed.push(fault);
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn schedules_that_failed_once_fail_again_without_their_fix() {
    sim::quiet_panics();
    for (fault, text) in [
        (
            SeededFault::SkipRestore,
            include_str!("../schedules/recovery-restores-batches-ring.txt"),
        ),
        (
            SeededFault::SkipGenerations,
            include_str!("../schedules/generations-in-turn-joined.txt"),
        ),
    ] {
        let schedule: Schedule = text.parse().expect("a schedule");
        let mut runner = Runner::new();
        seed_fault(Some(fault));
        let failed: Vec<u64> = (0..NEIGHBOURS)
            .filter(|&number| {
                runner
                    .run(&neighbour(&schedule, number))
                    .violation
                    .is_some()
            })
            .collect();
        seed_fault(None);
        println!(
            "{fault:?}: {} of {NEIGHBOURS} neighbours fail",
            failed.len()
        );
        assert!(!failed.is_empty(), "{fault:?}");
        let mut runner = Runner::new();
        for number in failed {
            let violation = runner.run(&neighbour(&schedule, number)).violation;
            assert_eq!(violation, None, "{fault:?}, neighbour {number}");
        }
    }
}

/// How many neighbours of one schedule are tried. Each change of the order of drive operations changes at which
/// operation a fault strikes and which writes survive a cut, so one schedule alone soon shows no violation.
const NEIGHBOURS: u64 = 400;

/// This schedule, with other un-flushed writes surviving its cuts, and its faults a few operations earlier or later.
/// Number 0 is the schedule itself.
fn neighbour(schedule: &Schedule, number: u64) -> Schedule {
    let mut schedule = schedule.clone();
    for (at, event) in (1..).zip(&mut schedule.events) {
        // Any numbers that differ by event and neighbour will do.
        let drawn = number.wrapping_mul(at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match event {
            Event::Cut(CutSpec::Seed(kept)) => *kept = kept.wrapping_add(drawn),
            Event::Fault { trigger, .. } if number > 0 => {
                trigger.skip = (trigger.skip + drawn % 9).saturating_sub(4);
            }
            _ => {}
        }
    }
    schedule
}

/// Where the short form begins to search for a fault that the first seeds do not find: a little before a seed that does.
const FIRST: [(SeededFault, u64); 8] = [
    (SeededFault::AnyIncarnation, 2050),
    (SeededFault::InitializedEarly, 1040),
    (SeededFault::PastTorn, 840),
    (SeededFault::DirectTornUnrepaired, 630),
    (SeededFault::UnverifiedParity, 490),
    (SeededFault::AnchorBeforeBlocks, 300),
    (SeededFault::SeatOutEarly, 310),
    (SeededFault::LogCutShort, 570),
];

fn first_of(fault: SeededFault) -> u64 {
    let first = FIRST.iter().find(|(of, _)| *of == fault);
    first.map_or(0, |&(_, first)| first)
}

/// Faults whose search takes more than two seconds, wherever it begins: only in the long form.
const SLOW: &[SeededFault] = &[
    SeededFault::UnverifiedConversion,
    SeededFault::AnchorBeforePages,
    SeededFault::SkipFillTarget,
    SeededFault::UnboundChecksum,
    SeededFault::LagByTwo,
    SeededFault::RingOverwrites,
    SeededFault::SkipRestore,
    SeededFault::SkipGenerations,
    SeededFault::ScrubKeepsPages,
    SeededFault::JoinedFailureToFirst,
    SeededFault::DirectOntoTrimmed,
    SeededFault::DirectUnflushed,
    SeededFault::DiscardUnflushed,
    SeededFault::DiscardRingWritten,
    SeededFault::VacatedNotFlushed,
    SeededFault::VacatedNotDrained,
    SeededFault::MovedNotVacated,
];
