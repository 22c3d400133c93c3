//! Rebuilds that are steered, in virtual time: what each priority costs clients and takes, how even a rate is, and how
//! well the end is foreseen.

use std::time::Duration;

use array::pool::Steering;
use array::priority;
use block::{Instant, Seat};
use sim::load::{Arrivals, Load, LoadOptions, Run, Target};
use sim::model::preset;
use sim::{StudyOptions, StudyVolume};
use stats::{ratio, to_f64};

const SCHEME: &str = "pddl2:4d:13c:1s";

/// The part of each drive that the pool uses.
const DRIVE_BYTES: u64 = 4 << 30;

fn pool(seed: u64) -> StudyVolume {
    let options = StudyOptions {
        drive_bytes: Some(DRIVE_BYTES),
        cell_bytes: Some(4 << 20),
        seed,
        ..StudyOptions::new(SCHEME, preset("15k").unwrap())
    };
    StudyVolume::create(&options, None).unwrap()
}

fn load(arrivals: Arrivals) -> LoadOptions {
    LoadOptions {
        arrivals,
        read_percent: 70,
        sizes: vec![(8192, 1)],
        ..LoadOptions::default()
    }
}

fn paused(paused: bool) -> Steering {
    Steering {
        paused: Some(paused),
        ..Steering::default()
    }
}

/// A pool with a drive out and its rebuild paused, and a load on it.
fn degraded(seed: u64, arrivals: Arrivals) -> (StudyVolume, Run) {
    let mut pool = pool(seed);
    assert!(pool.steer(paused(true)));
    pool.fail(Seat(3)).unwrap();
    let load = Load::new(&load(arrivals), pool.capacity_bytes(), seed).unwrap();
    let run = Run::new(load, None).starting_at(pool.now());
    (pool, run)
}

/// What the degraded pool gives with the rebuild paused, in requests per second.
fn capacity() -> f64 {
    let closed = Arrivals::Closed {
        clients: 64,
        think_ns: 0,
    };
    let (mut pool, mut run) = degraded(1, closed);
    run.requests(&mut pool, 4000);
    run.count_anew();
    run.requests(&mut pool, 12_000);
    run.numbers().per_second()
}

fn after(run: &Run, seconds: u64) -> Instant {
    run.now() + Duration::from_secs(seconds)
}

/// A look at the rebuild: time since it began, the share that is done, and the end that it foresees.
type Look = (f64, f64, Option<[f64; 3]>);

/// What a rebuild of a priority cost and took.
#[derive(Debug)]
struct Outcome {
    p99_ns: u64,
    seconds: f64,
    looks: Vec<Look>,
}

fn rebuild(seed: u64, per_second: f64, name: &str) -> Outcome {
    let (mut pool, mut run) = degraded(seed, Arrivals::Poisson { per_second });
    let at = after(&run, 4);
    run.until(&mut pool, at);
    let priority = priority::named(name).unwrap();
    assert!(pool.steer(Steering {
        priority: Some(priority),
        paused: Some(false),
        ..Steering::default()
    }));
    run.count_anew();
    let began = run.now();
    let mut looks = Vec::new();
    while pool.rebuild().ended.is_none() {
        let next = run.now() + Duration::from_millis(500);
        run.until(&mut pool, next);
        let seconds = run.now().since(began).as_secs_f64();
        if let Some(work) = pool.world().pool().work(run.now()).first() {
            let share = ratio(work.done_bytes, work.total_bytes);
            looks.push((seconds, share, work.eta_seconds));
        }
        assert!(seconds < 4000.0, "{name} does not end");
    }
    Outcome {
        p99_ns: run.numbers().latency().quantile(0.99),
        seconds: pool.rebuild().ended.unwrap().since(began).as_secs_f64(),
        looks,
    }
}

fn paused_p99(seed: u64, per_second: f64) -> u64 {
    let (mut pool, mut run) = degraded(seed, Arrivals::Poisson { per_second });
    let at = after(&run, 4);
    run.until(&mut pool, at);
    run.count_anew();
    let at = after(&run, 30);
    run.until(&mut pool, at);
    assert_eq!(pool.rebuild().cells_done, 0, "nothing moves");
    run.numbers().latency().quantile(0.99)
}

fn idle_seconds(seed: u64) -> f64 {
    let (mut pool, mut run) = degraded(seed, Arrivals::Regular { per_second: 0.001 });
    assert!(pool.steer(paused(false)));
    run.stop();
    run.finish(&mut pool, |pool| pool.rebuild().ended.is_some());
    let progress = pool.rebuild();
    progress.ended.unwrap().since(progress.began).as_secs_f64()
}

/// Measures; `RAVELIN_SEEDS` says how many seeds.
#[test]
#[ignore = "prints what to tune by"]
fn what_priorities_cost_and_take() {
    let seeds: u64 = std::env::var("RAVELIN_SEEDS").map_or(3, |n| n.parse().unwrap());
    let all = capacity();
    eprintln!("capacity {all:.0}/s");
    for seed in 1..=seeds {
        let base = paused_p99(seed, all / 2.0);
        let idle = idle_seconds(seed);
        eprintln!(
            "seed {seed}: paused p99 {} us, idle {idle:.1} s",
            base / 1000
        );
        for name in ["low", "medium", "high"] {
            let outcome = rebuild(seed, all / 2.0, name);
            let (inside, errors) = Judged::of(&outcome).verdict();
            if seed == 1 {
                for (at, share, eta) in outcome.looks.iter().step_by(1 + outcome.looks.len() / 12) {
                    eprintln!(
                        "    {at:.1} {share:.2}: {:.1} left, {eta:.1?}",
                        outcome.seconds - at
                    );
                }
            }
            eprintln!(
                "  {name}: p99 {:.2}, {:.1} s = {:.2} x idle; eta inside {inside:.2}, error {errors:.2}",
                ratio(outcome.p99_ns, base),
                outcome.seconds,
                outcome.seconds / idle
            );
        }
    }
}

/// Looks after the first tenth.
#[derive(Clone, Debug, Default)]
struct Judged {
    /// Looks within which the end lay.
    inside: u64,
    /// How far the likely end was off, as a share of the time left.
    errors: Vec<f64>,
}

impl Judged {
    fn of(outcome: &Outcome) -> Self {
        let late = outcome.looks.iter().filter(|(_, share, _)| *share >= 0.1);
        let mut judged = Self::default();
        for (at, _, eta) in late {
            let left = outcome.seconds - at;
            if left <= 0.0 {
                continue;
            }
            let Some([least, likely, most]) = eta else {
                judged.errors.push(1.0);
                continue;
            };
            judged.inside += u64::from((*least..=*most).contains(&left));
            judged.errors.push((likely - left).abs() / left);
        }
        judged
    }

    fn add(&mut self, other: Self) {
        self.inside += other.inside;
        self.errors.extend(other.errors);
    }

    /// The share of looks within which the end lay, and the median error.
    fn verdict(&self) -> (f64, f64) {
        let mut errors = self.errors.clone();
        errors.sort_by(f64::total_cmp);
        let count = errors.len() as u64;
        (ratio(self.inside, count), errors[errors.len() / 2])
    }
}

/// A seed's rebuilds at all priorities, beside its pool at rest and its rebuild without clients.
struct Compared {
    base_ns: u64,
    idle: f64,
    outcomes: [Outcome; 3],
}

impl Compared {
    fn of(seed: u64, per_second: f64) -> Self {
        Self {
            base_ns: paused_p99(seed, per_second),
            idle: idle_seconds(seed),
            outcomes: ["low", "medium", "high"].map(|name| rebuild(seed, per_second, name)),
        }
    }
}

/// Looks within which the end lies, and the median error of the likely end, at the least.
const INSIDE: f64 = 0.9;
const ERROR: f64 = 0.15;

/// The bounds of `docs/design/steering.md`. `RAVELIN_LONG`: of twenty seeds. Latencies and times are bounded for each seed,
/// and the foreseen end over the looks of all seeds, for each priority.
#[test]
fn priorities_keep_what_they_promise_and_the_end_is_foreseen() {
    let seeds = match std::env::var_os("RAVELIN_LONG") {
        Some(_) => 1..=20,
        None => 1..=1,
    };
    let per_second = capacity() / 2.0;
    let judge_seed = |seed: u64| {
        let Compared {
            base_ns,
            idle,
            outcomes: [low, medium, high],
        } = Compared::of(seed, per_second);
        let costs = [&low, &medium].map(|outcome| ratio(outcome.p99_ns, base_ns));
        assert!(costs[0] <= 1.5 && costs[1] <= 2.5, "seed {seed}: {costs:?}");
        let (high_seconds, low_seconds) = (high.seconds, low.seconds);
        assert!(
            high_seconds <= 1.25 * idle / 0.5,
            "seed {seed}: {high_seconds} of {idle}"
        );
        assert!(
            low_seconds <= 12.0 * high_seconds,
            "seed {seed}: {low_seconds}"
        );
        [&low, &medium, &high].map(Judged::of)
    };
    let judge_seeds = |first: usize| {
        let mut all: [Judged; 3] = Default::default();
        for seed in seeds.clone().skip(first).step_by(2) {
            for (all, judged) in all.iter_mut().zip(judge_seed(seed)) {
                all.add(judged);
            }
        }
        all
    };
    let [mut all, others] = std::thread::scope(|scope| {
        [0, 1]
            .map(|first| scope.spawn(move || judge_seeds(first)))
            .map(|thread| thread.join().expect("its seeds keep the bounds"))
    });
    for (all, others) in all.iter_mut().zip(others) {
        all.add(others);
    }
    for (name, judged) in ["low", "medium", "high"].into_iter().zip(&all) {
        let (inside, error) = judged.verdict();
        eprintln!("{name}: the end inside {inside:.3}, median error {error:.3}");
        assert!(
            inside >= INSIDE && error <= ERROR,
            "{name}: {inside} inside, error {error}"
        );
    }
}

/// With clients and without, at a rate that one lane alone could move and at one that needs several.
#[test]
fn a_rate_is_kept_within_a_tenth() {
    for (megabytes, per_second) in [(2, 0.0), (20, 0.0), (20, 600.0), (200, 0.0)] {
        let arrivals = Arrivals::Poisson {
            per_second: f64::max(per_second, 0.001),
        };
        let (mut pool, mut run) = degraded(1, arrivals);
        assert!(pool.steer(Steering {
            rate_bytes: Some(Some(megabytes * 1_000_000)),
            priority: priority::named("high"),
            paused: Some(false),
        }));
        let begins = after(&run, 1);
        run.until(&mut pool, begins);
        let bytes = |pool: &StudyVolume| pool.world().pool().rebuilt_bytes();
        let total = pool.rebuild().cells_total * pool.rebuild().cell_bytes;
        let mut first = None;
        loop {
            let next = run.now() + Duration::from_millis(100);
            run.until(&mut pool, next);
            let now = (run.now(), bytes(&pool));
            let (at, before) = *first.get_or_insert(now);
            let seconds = now.0.since(at).as_secs_f64();
            if now.1 >= total / 10 * 9 || seconds > 30.0 {
                let rate = to_f64(now.1 - before) / seconds / 1e6;
                let wanted = to_f64(megabytes);
                assert!(
                    (rate / wanted - 1.0).abs() <= 0.1,
                    "{rate} of {wanted} MB/s"
                );
                break;
            }
        }
    }
}

/// Nothing is counted while paused, and what is set takes effect within a second, also in the middle of a rest.
#[test]
fn a_priority_and_a_pause_take_effect_within_a_second() {
    let per_second = capacity() / 2.0;
    let (mut pool, mut run) = degraded(3, Arrivals::Poisson { per_second });
    let set = |pool: &mut StudyVolume, name: &str| {
        assert!(pool.steer(Steering {
            priority: priority::named(name),
            ..Steering::default()
        }));
    };
    let moved = |pool: &mut StudyVolume, run: &mut Run, millis: u64| {
        let before = pool.world().pool().rebuilt_bytes();
        let next = run.now() + Duration::from_millis(millis);
        run.until(pool, next);
        pool.world().pool().rebuilt_bytes() - before
    };
    set(&mut pool, "low");
    assert!(pool.steer(paused(false)));
    moved(&mut pool, &mut run, 4000);
    let low = moved(&mut pool, &mut run, 2000);
    set(&mut pool, "high");
    moved(&mut pool, &mut run, 1000);
    let high = moved(&mut pool, &mut run, 500) * 4;
    assert!(high > 3 * low, "{low} in two seconds, then {high}");
    assert!(pool.steer(paused(true)));
    moved(&mut pool, &mut run, 1000);
    assert_eq!(moved(&mut pool, &mut run, 5000), 0);
    assert!(pool.rebuild().ended.is_none());
}
