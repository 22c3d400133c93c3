//! The power goes after writes and flushes of drives, and some drives with it: the pool opens, reads what it should, goes
//! on to the end, and the other drives have everything.

use std::collections::BTreeSet;

use block::Seat;
use sim::{CutSpec, Drive, World};

use super::{Case, Change, Client, Template};

/// Of at most so many un-flushed writes every subset survives.
const SUBSETS_OF_MAX: usize = 6;

/// The client's pool when the power has gone.
pub(crate) struct Cut<'a> {
    pub(crate) template: &'a Template,
    pub(crate) client: &'a Client,
    pub(crate) when: String,
}

impl Cut<'_> {
    /// All drives are there: the change goes on to the end, unless it had not begun. Then as many drives fail as may, those of
    /// set number `turn`, and no other copy of anything is missing. Returns whether the change had begun.
    fn with_all(&self, drives: Vec<Drive>, turn: usize) -> bool {
        let when = &self.when;
        let mut world = World::open(drives, false, 7).expect(when);
        self.client.check(&mut world, when);
        world.settle();
        self.template.check_over_with_all(&world, when);
        self.client.check(&mut world, &format!("{when}, settled"));
        let sets = sets(self.template.case.drives.into(), self.template.tolerance);
        let failing = { sets[turn % sets.len()].iter() }
            .map(|&seat| Seat(u16::try_from(seat).unwrap()))
            .filter(|&seat| world.drive_at(seat).is_some());
        let failing: Vec<Seat> = failing.collect();
        for &seat in &failing {
            world.pull(seat);
        }
        let when = format!("{when}, settled, {failing:?} out");
        self.client.check(&mut world, &when);
        self.template.has_begun(&world)
    }

    /// Drives fail for good with the power. With fresh ones in their seats everything ends as without the failure.
    pub(crate) fn without(&self, mut drives: Vec<Drive>, lost: &[usize]) {
        for &lost in lost {
            drives[lost].pull();
        }
        let when = format!("{}, {lost:?} lost", self.when);
        let mut world = World::open(drives, true, 7).expect(&when);
        self.client.check(&mut world, &when);
        world.settle();
        self.client.check(&mut world, &format!("{when}, settled"));
        self.template.make_whole(&mut world, &when);
        self.template.check_over(&world, &when);
        self.client.check(&mut world, &format!("{when}, whole"));
    }
}

/// Every set of `of` of the numbers below `count`.
pub(super) fn sets(count: usize, of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let smaller = sets(count, of - 1);
    let larger = smaller.iter().flat_map(|set| {
        let next = set.last().map_or(0, |last| last + 1);
        (next..count).map(move |one| [set.as_slice(), &[one]].concat())
    });
    larger.collect()
}

/// What a run has tried.
#[derive(Default)]
struct Tally {
    /// Different states of the drives after a cut, by what the client knows.
    states: usize,
    /// Those in which the labels know of the change.
    begun: usize,
    /// Those without as many drives as may fail: each set counts.
    losses: usize,
}

impl Tally {
    fn print(&self, case: Case, boundaries: u64) {
        let Self {
            states,
            begun,
            losses,
        } = self;
        eprintln!(
            "{case:?}: {boundaries} writes and flushes, {states} states after a cut, the change had begun in {begun}, \
             {losses} with drives lost, {:.1} s of CPU",
            testing::thread_cpu_time().as_secs_f64()
        );
        let both = matches!(case.change, Change::Leave { .. }) || begun < states;
        assert!(*begun > 0 && both, "{begun} of {states}");
        assert!(boundaries > 60, "{boundaries}");
    }
}

/// Some of the cuts: after every `every`th write and flush from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) every: u64,
    pub(crate) first: u64,
}

/// Cuts the power after every write and flush. Of at most six un-flushed writes every subset survives; of more none, all, all
/// but each one, and each number of first ones. Each state that is different is opened. With each cut every set of as many drives
/// as may fail is lost, each with the next of these states.
///
/// Of a sample, with each cut: none, all, all but one, the first ones, and a choice by chance, with torn writes.
pub(crate) fn power_goes(case: Case, sample: Option<Sample>) {
    let template = Template::new(case);
    let mut tally = Tally::default();
    let mut seen = BTreeSet::new();
    let boundaries = template.moments(|at, world, client| {
        if sample.is_some_and(|Sample { every, first }| at % every != first) {
            return;
        }
        let power = world.clone().lose_power();
        let specs = match sample {
            Some(_) => few(at, power.writes()),
            None => CutSpec::of(power.writes(), SUBSETS_OF_MAX),
        };
        let cut = |spec| Cut {
            template: &template,
            client,
            when: format!("{case:?}: cut after {at}, {spec:?}"),
        };
        for lost in sets(world.drives().len(), template.tolerance) {
            let spec = specs[tally.losses % specs.len()];
            cut(spec).without(power.with(spec), &lost);
            tally.losses += 1;
        }
        for spec in specs {
            let drives = power.with(spec);
            if seen.insert((World::image_digest(&drives), client.flushes)) {
                tally.begun += usize::from(cut(spec).with_all(drives, tally.states));
                tally.states += 1;
            }
        }
    });
    tally.print(case, boundaries);
}

fn few(at: u64, writes: usize) -> Vec<CutSpec> {
    let mut specs = vec![CutSpec::None, CutSpec::All, CutSpec::Seed(at)];
    if writes > 0 {
        let one = usize::try_from(at).unwrap() % writes;
        specs.extend([CutSpec::Missing(one), CutSpec::Prefix(one)]);
    }
    specs
}
