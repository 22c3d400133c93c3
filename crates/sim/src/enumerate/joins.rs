//! Cuts the power at every write of labels and cell tables while drives are exchanged, return and take over for others,
//! and while a pool takes another name.
//!
//! ```text
//!   story ─┬─ after each write or flush of the pool's own: any subset of what is un-flushed survives
//!          │     └─ equal images merged ─► all drives under other names ─► open: one drive for each seat
//!          │            └─ who is out is brought back, or replaced ─► everything is read, also with drives lost
//! ```

use std::collections::BTreeSet;

use block::{Seat, mix};

use super::cuts::every_subset;
use super::{Share, Tally, guarded};
use crate::drive::Drive;
use crate::ledger::Ledger;
use crate::schedule::{Checked, Event, Moment, Run, Runner, SETTINGS, Schedule, Setting};
use crate::world::{CutSpec, World};

/// For each moment, so many cuts that also tear writes.
const TORN: u64 = 8;

/// How a pool gets into a state, and what then happens to its drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Scheme and what happens.
    pub name: String,
    /// Before the cuts.
    pub prepare: Vec<Event>,
    /// What is cut.
    pub events: Vec<Event>,
    frame: Schedule,
}

/// All stories.
///
/// # Panics
/// Never: all settings have a name.
#[must_use]
pub fn stories() -> Vec<Story> {
    const fn back(seat: u16) -> Event {
        Event::Return {
            seat: Seat(seat),
            lost: None,
        }
    }
    let mut all = Vec::new();
    let names = [
        "raid1-small",
        "raid5-small",
        "raid6-small",
        "pddl2-small",
        "raid5-small-spare",
    ];
    for name in names {
        let setting = Setting::by_name(name).expect("all settings have a name");
        let of = SETTINGS[setting];
        let write = |offset, length| Event::Write {
            offset,
            length,
            fua: false,
        };
        let filled = [write(0, of.volume_bytes), Event::Drain, Event::Settle];
        let fail = |seat| [Event::Fail(Seat(seat)), Event::Settle];
        // What a drive that is out does not know.
        let missed = [write(4096, 8192), Event::Drain, Event::Settle];
        let mut add = |what: &str, before: &[&[Event]], events: &[Event]| {
            all.push(Story {
                name: format!("{name} {what}"),
                prepare: [&filled[..]]
                    .into_iter()
                    .chain(before.iter().copied())
                    .flatten()
                    .copied()
                    .collect(),
                events: [events, &[Event::Settle]].concat(),
                frame: Schedule {
                    seed: setting as u64,
                    setting,
                    depth: 2,
                    events: Vec::new(),
                },
            });
        };
        let spare = of.spares > 0;
        // A spare has the seat of the drive that left, and that drive the spare's.
        let out = if spare { of.drives } else { 0 };
        add("another name", &[], &[Event::Kill, Event::Rename(7)]);
        if spare || of.scheme.ends_with('s') {
            add("a spare takes over", &[], &[Event::Fail(Seat(0))]);
        }
        add("returns", &[&fail(0), &missed], &[back(out)]);
        add(
            "returns elsewhere",
            &[&fail(0), &missed],
            &[Event::Moves(Seat(out)), back(out)],
        );
        add(
            "exchanged",
            &[&fail(0), &missed],
            &[Event::Insert(Seat(out))],
        );
        if of.tolerance > 1 {
            let two = [fail(0), fail(1)].concat();
            add(
                "two return with names exchanged",
                &[&two, &missed, &[Event::Moves(Seat(0))]],
                &[back(0), back(1)],
            );
        }
    }
    all
}

/// Cuts the power of a story at each write and flush of the pool's own, and again in the opening that follows.
///
/// # Panics
/// When the story does not run without a cut.
pub fn joins(runner: &mut Runner, story: &Story, share: Share) -> Tally {
    let mut run = runner.begin(&story.frame, None);
    run.events(&story.prepare).expect("it can be prepared");
    run.moments = Some(Vec::new());
    run.moments_of_pool = true;
    run.events(&story.events).expect("it runs without a cut");
    let moments = run.moments.take().expect("they were wanted");
    let mut cut = Cut {
        story,
        share,
        seen: BTreeSet::new(),
        tally: Tally::default(),
    };
    cut.tally.boundaries = moments.len() as u64;
    for (at, moment) in (0..).zip(moments) {
        cut.moment(at, moment);
    }
    cut.tally
}

/// The enumeration of the cuts of a story, with the states that have been seen.
struct Cut<'a> {
    story: &'a Story,
    share: Share,
    seen: BTreeSet<u64>,
    tally: Tally,
}

impl Cut<'_> {
    fn moment(&mut self, at: u64, moment: Moment) {
        self.tally.points += 1;
        let Moment { world, mut ledger } = moment;
        ledger.cut(false);
        let loss = world.lose_power();
        let torn = (0..TORN).map(|seed| CutSpec::Seed(mix(seed ^ at << 8)));
        let cuts = every_subset(loss.writes()).into_iter().chain(torn);
        for (number, spec) in (0..).zip(cuts) {
            self.tally.states += 1;
            let case = mix(at) ^ number;
            if self.share.has(case) {
                let what = format!("point {at} cut {spec}");
                self.state(loss.with(spec), &ledger, (case, &what), true);
            }
        }
    }

    /// Opens the pool in one state, if it has not been seen before.
    fn state(
        &mut self,
        drives: Vec<Drive>,
        ledger: &Ledger,
        (case, what): (u64, &str),
        again: bool,
    ) {
        if !self.seen.insert(World::image_digest(&drives)) {
            return;
        }
        self.tally.merged += 1;
        let ended = guarded(|| {
            let mut run = Run::after(ledger.clone(), case, self.story.frame.setting);
            run.degraded = false;
            run.names = Some(case);
            run.moments = (again && self.share.cuts_again(case)).then(Vec::new);
            run.moments_of_pool = true;
            run.open(drives)?;
            run.settle()?;
            let moments = run.moments.take();
            ends_well(run)?;
            Ok(moments)
        });
        match ended {
            Err(violation) => {
                let line = format!("{}: {what}: {violation}", self.story.name);
                self.tally.violations.push(line);
            }
            Ok(moments) => {
                for (at, moment) in (0..).zip(moments.into_iter().flatten()) {
                    self.again(moment, mix(case) ^ at, &format!("{what}, again at {at}"));
                }
            }
        }
    }

    /// Cuts the power again during the opening.
    fn again(&mut self, moment: Moment, case: u64, what: &str) {
        self.tally.points += 1;
        let Moment { world, mut ledger } = moment;
        ledger.cut(false);
        let loss = world.lose_power();
        for (number, spec) in (0..).zip(CutSpec::of(loss.writes(), 0)) {
            self.tally.states += 1;
            let case = case ^ mix(number);
            if self.share.has(case) {
                let what = format!("{what} {spec}");
                self.state(loss.with(spec), &ledger, (case, &what), false);
            }
        }
    }
}

/// Brings the pool back to full redundancy, and reads everything.
fn ends_well(mut run: Run) -> Checked {
    run.all_come_back()?;
    run.read_back()?;
    run.lose_and_read_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_story_writes_labels_and_each_of_its_writes_can_be_cut() {
        let mut runner = Runner::new();
        for story in stories() {
            let tally = joins(&mut runner, &story, Share::one_in(u64::MAX));
            assert!(tally.points >= 4, "{}: {tally}", story.name);
            assert!(tally.states > 4 * tally.points, "{}: {tally}", story.name);
        }
    }
}
