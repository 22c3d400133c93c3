//! Schedules: the same seed is the same run, and each has what the definition asks for.

use sim::enumerate::{Share, cuts, workloads};
use sim::schedule::{Event, Runner, Schedule, Scope};

#[test]
fn a_seed_gives_the_same_run_again() {
    let (mut one, mut other) = (Runner::new(), Runner::new());
    for scope in [Scope::Said, Scope::Silent] {
        for seed in 0..20 {
            let schedule = Schedule::from_seed(seed, scope);
            assert_eq!(one.run(&schedule), other.run(&schedule), "seed {seed}");
        }
    }
}

#[test]
fn every_seed_has_a_hundred_requests_a_cut_and_two_faults_within_the_budget() {
    for seed in 0..2000 {
        let schedule = Schedule::from_seed(seed, Scope::Said);
        let count = |is: fn(&Event) -> bool| schedule.events.iter().filter(|at| is(at)).count();
        assert!(count(|event| event.is_request()) >= 100);
        assert!(count(|event| matches!(event, Event::Cut(_) | Event::Kill)) >= 1);
        assert_eq!(count(|event| matches!(event, Event::Fault { .. })), 2);
        assert!(schedule.is_within_budget(), "seed {seed}");
    }
}

#[test]
fn runs_of_one_healthy_pool_take_three_hundred_drive_operations_and_more() {
    let mut runner = Runner::new();
    for seed in 0..60 {
        let mut schedule = Schedule::from_seed(seed, Scope::Orderly);
        schedule.events.retain(|event| event.is_request());
        let verdict = runner.run(&schedule);
        assert_eq!(verdict.violation, None, "seed {seed}");
        assert!(verdict.ios >= 300 && verdict.requests >= 100, "seed {seed}");
    }
}

#[test]
fn reference_workloads_have_at_least_one_boundary_and_cuts_of_them_merge() {
    let mut runner = Runner::new();
    let all = workloads();
    assert_eq!(all.len(), 20);
    let share = Share {
        one_in: 5000,
        part: 0,
    };
    let tally = cuts(&mut runner, &all[0], share);
    assert!(tally.points > 0 && tally.states > tally.merged);
}
