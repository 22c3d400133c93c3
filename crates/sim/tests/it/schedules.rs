//! Schedules: the same seed is the same run, and each schedule has the parts that its definition
//! requires.

use sim::enumerate::{Share, Tally, cuts, joins, phases, reported, silent, stories, workloads};
use sim::schedule::{Event, Runner, Schedule, Scope};

#[test]
fn a_seed_gives_the_same_run_again() {
    let (mut one, mut other) = (Runner::new(), Runner::new());
    for scope in [Scope::Reported, Scope::Silent] {
        for seed in 0..20 {
            let schedule = Schedule::from_seed(seed, scope);
            assert_eq!(one.run(&schedule), other.run(&schedule), "seed {seed}");
        }
    }
}

#[test]
fn every_seed_has_a_hundred_requests_a_cut_and_two_faults_within_the_budget() {
    let (mut renamed, mut moved) = (0, 0);
    for seed in 0..2000 {
        let schedule = Schedule::from_seed(seed, Scope::Reported);
        let has = |is: fn(&Event) -> bool| u32::from(schedule.events.iter().any(is));
        renamed += has(|event| matches!(event, Event::Names(_)));
        moved += has(|event| matches!(event, Event::Moves(_)));
        let count = |is: fn(&Event) -> bool| schedule.events.iter().filter(|at| is(at)).count();
        assert!(count(|event| event.is_request()) >= 100);
        assert!(count(|event| matches!(event, Event::Cut(_) | Event::Kill)) >= 1);
        let fault = |event: &Event| {
            matches!(
                event,
                Event::Fault { .. } | Event::Fail(_) | Event::Stale(_) | Event::SetBack { .. }
            )
        };
        assert!(count(fault) >= 2);
        assert!(schedule.is_within_budget(), "seed {seed}");
    }
    // Drives are found under other names in nearly all of them, and come back from other places in many.
    assert!(renamed > 1700 && moved > 300, "{renamed}, {moved}");
}

/// The swarm that every push runs: fixed seeds, so that a push that fails fails again.
#[test]
fn fixed_seeds_of_the_swarm_find_nothing() {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let (reported, silent) = if long { (200_000, 50_000) } else { (1600, 500) };
    let mut runner = Runner::new();
    let (mut full, mut blinks) = (0, 0);
    for (scope, seeds) in [(Scope::Reported, reported), (Scope::Silent, silent)] {
        for seed in 0..seeds {
            let schedule = Schedule::from_seed(seed, scope);
            let verdict = runner.run(&schedule);
            assert_eq!(verdict.violation, None, "{scope:?} seed {seed}");
            full += u64::from(verdict.is_full());
            let blink = |event: &Event| matches!(event, Event::Blink { .. });
            blinks += u64::from(schedule.events.iter().any(blink));
        }
    }
    // Without the mirrors, a quarter.
    assert!(blinks * 8 > reported + silent, "{blinks} with a blink");
    assert!(
        full * 4 > (reported + silent) * 3,
        "{full} were full schedules"
    );
}

/// A fixed part of the enumerations: every push runs the same cases.
#[test]
fn fixed_parts_of_the_enumerations_find_nothing() {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let mut runner = Runner::new();
    let mut all = Tally::default();
    for workload in workloads() {
        let share = Share {
            again_one_in: 50,
            ..Share::one_in(if long { 50 } else { 1000 })
        };
        all.add(cuts(&mut runner, &workload, share));
        let share = Share::one_in(if long { 1 } else { 50 });
        all.add(reported(&mut runner, &workload, share));
        all.add(silent(&mut runner, &workload, share));
        all.add(phases(&mut runner, &workload, share));
    }
    assert_eq!(all.violations, Vec::<String>::new());
    assert!(all.merged > 1000, "{}", all.merged);
    // Some faults end an attempt to create a pool.
    assert!(
        all.refused > 0 && all.refused < all.merged / 10,
        "{}",
        all.refused
    );
}

/// Drives that are exchanged, return from other places and take over, and pools that take other names: nothing is lost,
/// and no two drives have one seat, wherever the power is cut in a label.
#[test]
fn cuts_at_labels_lose_nothing_and_give_no_seat_to_two_drives() {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let mut runner = Runner::new();
    let mut all = Tally::default();
    for story in stories() {
        let share = Share {
            again_one_in: if long { 1 } else { 20 },
            ..Share::ALL
        };
        all.add(joins(&mut runner, &story, share));
    }
    assert_eq!(all.violations, Vec::<String>::new());
    assert!(all.merged > 1800, "{all}");
    eprintln!("{all}");
}

#[test]
fn runs_of_one_healthy_pool_find_nothing() {
    let mut runner = Runner::new();
    for seed in 0..60 {
        let mut schedule = Schedule::from_seed(seed, Scope::Orderly);
        schedule.events.retain(|event| event.is_request());
        let verdict = runner.run(&schedule);
        assert_eq!(verdict.violation, None, "seed {seed}");
        assert!(verdict.requests >= 100, "seed {seed}");
    }
}

#[test]
fn reference_workloads_have_at_least_one_boundary_and_cuts_of_them_merge() {
    let mut runner = Runner::new();
    let all = workloads();
    assert_eq!(all.len(), 57);
    let share = Share::one_in(5000);
    let tally = cuts(&mut runner, &all[0], share);
    assert!(tally.points > 0 && tally.states > tally.merged);
}
