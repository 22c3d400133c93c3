//! Elastic pools: stripes change between parity and copies, and in both forms everything works.

use array::pool::ElasticStatus;
use block::Seat;
use sim::schedule::{Event, Runner, Schedule, Scope};
use sim::{CutSpec, Drive, Pace, WorldOptions};

use crate::support::Bench;
use testing::parts;

/// Two planes or three of whole mebibytes.
const DRIVE_BYTES: u64 = 66 << 20;

/// Groups of eight stripes, of which two are free or none.
fn bench(scheme: &str, drives: u16, free_stripes: bool, seed: u64) -> Bench {
    let chunk_bytes = 16 << 10;
    let options = WorldOptions {
        drive_bytes: DRIVE_BYTES,
        chunk_bytes,
        cell_bytes: 8 * chunk_bytes,
        free_stripes,
        seed,
        ..WorldOptions::small(scheme, drives)
    };
    let bench = Bench::of(&options, 2);
    assert!(bench.world.pool().facts().has("elastic"), "{scheme}");
    bench
}

impl Bench {
    fn status(&self) -> ElasticStatus {
        self.world.pool().elastic_status().expect("it is elastic")
    }

    /// Sets the share of copies, and waits until all conversions have ended and are in place.
    fn share(&mut self, share: Option<u8>) {
        assert!(self.world.set_elastic_share(share));
        for _ in 0..4 {
            self.world.settle();
        }
    }
}

/// Scheme and drives: n = 2 to 5, p = 1 and 2, and a declustered layout.
const POOLS: [(&str, u16); 8] = [
    ("elastic5", 3),
    ("elastic5", 4),
    ("elastic5", 5),
    ("elastic5", 6),
    ("elastic6", 4),
    ("elastic6", 5),
    ("elastic6", 7),
    ("pddl1:2d:7c:1s:elastic", 7),
];

#[test]
fn stripes_become_copies_and_parity_again_as_the_share_says() {
    for (scheme, drives) in POOLS {
        for free in [false, true] {
            let mut bench = bench(scheme, drives, free, 3);
            bench.share(Some(0));
            bench.write_all();
            for (share, percent) in [
                (Some(0), 0),
                (None, 100),
                (Some(25), 25),
                (Some(75), 75),
                (Some(0), 0),
            ] {
                bench.share(share);
                let status = bench.status();
                let stripes = bench.size / bench.stripe_bytes();
                assert_eq!(status.written, stripes, "{scheme}");
                assert_eq!(
                    status.copies,
                    stripes * percent / 100,
                    "{scheme} {share:?} {status:?}"
                );
                bench.check_here(scheme);
                let left = bench.world.clone().cut(CutSpec::All);
                bench.check(left, scheme);
            }
        }
    }
}

#[test]
fn conversions_are_work_under_way_with_an_end_until_they_have_ended() {
    let mut bench = bench("elastic5", 4, true, 7);
    bench.share(Some(0));
    bench.write_all();
    let stripes = bench.size / bench.stripe_bytes();
    for (share, wanted) in [(100, stripes), (0, stripes)] {
        assert!(bench.world.set_elastic_share(Some(share)));
        let (mut looks, mut done_bytes) = (0, 0);
        while !bench.status().reason.is_at_rest() {
            let work = bench.world.pool().work(bench.world.now());
            if let [work] = &work[..] {
                assert_eq!(work.kind, "elastic");
                assert_eq!(work.total_bytes, wanted * bench.stripe_bytes());
                assert!(done_bytes <= work.done_bytes);
                done_bytes = work.done_bytes;
                assert_eq!(work.eta_seconds.is_some(), done_bytes > 0, "{work:?}");
                looks += 1;
            }
            assert!(bench.world.step(), "{:?}", bench.status());
        }
        assert!(looks > 0 && done_bytes > 0, "to {share} %: {looks} looks");
        bench.world.settle();
        let work = bench.world.pool().work(bench.world.now());
        assert!(work.is_empty(), "{work:?}");
    }
}

#[test]
fn each_set_of_drives_that_the_code_survives_may_be_lost_in_both_forms() {
    for (scheme, drives) in POOLS {
        let mut bench = bench(scheme, drives, true, 5);
        bench.write_all();
        bench.share(Some(50));
        // Every eighth block is written once more, in either form.
        for number in 0..bench.size / (32 << 10) {
            let bytes = vec![u8::try_from(number % 250).unwrap() + 1; 4096];
            bench.write(number * (32 << 10), &bytes);
        }
        bench.flush();
        let lost_pairs = |first: u16| match scheme {
            "elastic6" => (first + 1..drives).map(Some).chain([None]).collect(),
            _ => vec![None],
        };
        for settled in [false, true] {
            if settled {
                bench.world.settle();
            }
            for first in 0..drives {
                for second in lost_pairs(first) {
                    let mut left = bench.world.clone().cut(CutSpec::None);
                    if let Some(second) = second {
                        left.remove(Seat(second).index());
                    }
                    left.remove(Seat(first).index());
                    bench.check(left, &format!("{scheme} without {first} and {second:?}"));
                }
            }
        }
    }
}

/// In groups with both forms: a drive is replaced by a fresh one, one that was away catches up, and scrubs find nothing.
#[test]
fn groups_with_both_forms_are_filled_caught_up_with_and_scrubbed() {
    for (scheme, drives) in POOLS {
        let mut bench = bench(scheme, drives, true, 9);
        bench.write_all();
        bench.share(Some(50));
        let scribble = |bench: &mut Bench, turn: u8| {
            for number in 0..bench.size / (64 << 10) {
                let offset = number * (64 << 10) + u64::from(turn) * 8192;
                bench.write(offset, &vec![turn + 1; 4096]);
            }
        };
        for (turn, seat) in (0..3).zip([0, drives - 1, drives / 2]) {
            let when = format!("{scheme}, turn {turn}");
            let seat = Seat(seat);
            bench.world.fail_drive(seat, false).unwrap();
            bench.world.settle();
            scribble(&mut bench, turn);
            bench.check_here(&when);
            let fresh = Drive::new(DRIVE_BYTES, Pace::Null);
            match turn {
                // It comes back with what it had.
                1 => bench.world.return_drive(seat).unwrap(),
                _ => bench.world.replace_drive(seat, fresh).unwrap(),
            }
            scribble(&mut bench, turn + 4);
            bench.world.settle();
            bench.check_here(&when);
            bench.share(Some(25 + 25 * turn));
            bench.world.scrub().unwrap();
            bench.world.settle();
            assert_eq!(bench.world.scrub_progress().bad, 0, "{when}");
            let left = bench.world.clone().cut(CutSpec::All);
            bench.check(left, &when);
        }
    }
}

/// Seeds of elastic settings only.
fn seeds(range: std::ops::Range<u64>, scope: Scope) {
    let mut runner = Runner::new();
    let mut ran = 0;
    for seed in range {
        let schedule = Schedule::from_seed(seed, scope);
        if !schedule
            .events
            .iter()
            .any(|event| matches!(event, Event::Elastic(_)))
        {
            continue;
        }
        ran += 1;
        let verdict = runner.run(&schedule);
        if let Some(violation) = verdict.violation {
            panic!("seed {seed}, {scope:?}: {violation}\n{schedule}");
        }
    }
    assert!(ran > 0);
}

fn count() -> u64 {
    let asked = std::env::var("RAVELIN_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1000)
}

parts! {
    schedules {
        with_reported_faults => seeds(0..count(), Scope::Reported),
        with_silent_faults => seeds(0..count(), Scope::Silent),
    }
}
