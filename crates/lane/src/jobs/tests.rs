use block::BLOCK_BYTES;
use format::{BlockName, Column, GroupId, MetaPage, Sequence, StripeId};
use plan::action::{Action, Computed, Io, IoKind};

use super::*;
use crate::io::{Answered, Ended as IoEnded};
use crate::op::Held;
use crate::purpose::{Computing, Purpose};

/// The jobs of a small lane: cells of 16 MiB, 1,024 stripes.
struct Lab {
    jobs: GroupJobs,
    cx: Context,
    ios: IoTable,
}

const STRIPES: u64 = 1024;
const NEXT_SEQUENCE: Sequence = Sequence(100);

fn at(millis: u64) -> Instant {
    Instant(millis * 1_000_000)
}

impl Lab {
    fn new() -> Self {
        let cx = Context::of_test_with("raid6", 6, 16 << 20, |_| {});
        assert_eq!(cx.geometry.stripes_per_group(), STRIPES);
        Self {
            jobs: GroupJobs::default(),
            cx,
            ios: IoTable::new(6),
        }
    }

    fn begin(&mut self, job: Job) -> (JobId, Begun) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        self.jobs.begin(cx, ios, job, NEXT_SEQUENCE)
    }

    /// Begins a job that takes its first step at once.
    fn begun(&mut self, job: Job) -> JobId {
        let (id, begun) = self.begin(job);
        assert_eq!(begun, Begun::Steps);
        id
    }

    fn target(&self, column: Column) -> Cell {
        self.cx.geometry.home(GroupId(0), column)
    }

    /// A fill of a column of group 0, at home.
    fn fill(&self, column: Column) -> Job {
        Job::fill(GroupId(0), column, self.target(column), Vec::new(), None)
    }

    /// The stripes of the job's next step.
    fn step(&mut self, id: JobId) -> Option<Range<StripeId>> {
        match self.jobs.next(&mut self.cx, id) {
            Next::Step { group, stripes, .. } => {
                assert_eq!(group, GroupId(0));
                Some(stripes)
            }
            _ => None,
        }
    }

    fn next(&mut self, id: JobId) -> String {
        match self.jobs.next(&mut self.cx, id) {
            Next::Step { stripes, .. } => format!("{stripes:?}"),
            Next::Wait => "wait".into(),
            Next::Checkpoint(pages) => format!("checkpoint of {} pages", pages.len()),
            Next::Flush => "flush".into(),
            Next::End(outcome) => format!("{outcome:?}"),
        }
    }

    fn end_step(&mut self, id: JobId, stripes: Range<StripeId>, outcome: Outcome) {
        { &mut self.jobs }.step_ended(&mut self.cx, id, &stripes, outcome);
    }

    /// Takes all steps of a job one after the other. Returns how many there were.
    fn take_steps(&mut self, id: JobId) -> u64 {
        let mut steps = 0;
        while self.jobs.job(id).next_stripe < StripeId(STRIPES) {
            let stripes = self.step(id).expect("it has more");
            self.end_step(id, stripes, Ok(()));
            steps += 1;
        }
        steps
    }

    fn end(&mut self, id: JobId, outcome: Outcome) -> Ended {
        self.jobs.end(&mut self.cx, id, outcome)
    }

    /// Clients send requests to another lane.
    fn clients_ask(&mut self) {
        assert!(!self.jobs.make_way(self.cx.now, true));
    }
}

#[test]
fn a_scrub_has_two_steps_in_flight_and_reports_when_all_have_ended() {
    let mut lab = Lab::new();
    let id = lab.begun(Job::scrub(GroupId(0)));
    assert_eq!(lab.next(id), "0..64");
    assert_eq!(lab.next(id), "64..128");
    assert_eq!(lab.next(id), "wait");
    lab.jobs.verified(id, 600, 2);
    lab.end_step(id, StripeId::range(0..64), Ok(()));
    lab.end_step(id, StripeId::range(64..128), Ok(()));
    assert_eq!(lab.take_steps(id), STRIPES / 64 - 2);
    assert_eq!(lab.next(id), "Ok(())");
    assert_eq!(lab.end(id, Ok(())), Ended::Scrubbed);
    let scrubbed = Event::Scrubbed {
        group: GroupId(0),
        blocks: 600,
        bad: 2,
        mended: 0,
        lost: 0,
        outcome: Ok(()),
    };
    assert_eq!(lab.cx.take_events(), [scrubbed]);
    assert!(lab.jobs.is_empty());
}

#[test]
fn a_scrub_waits_for_the_repairs_of_what_it_has_found() {
    let mut lab = Lab::new();
    let id = lab.begun(Job::scrub(GroupId(0)));
    lab.jobs.repair_begins(id);
    lab.jobs.repair_begins(id);
    lab.take_steps(id);
    assert_eq!(lab.next(id), "wait");
    assert!(lab.jobs.repair_ended(id, (3, 1), Ok(())));
    assert_eq!(lab.next(id), "wait");
    assert!(lab.jobs.repair_ended(id, (1, 0), Ok(())));
    assert_eq!(lab.next(id), "Ok(())");
    lab.end(id, Ok(()));
    let events = lab.cx.take_events();
    assert!(
        matches!(
            events[..],
            [Event::Scrubbed {
                mended: 4,
                lost: 1,
                ..
            }]
        ),
        "{events:?}"
    );
    let again = lab.jobs.repair_ended(id, (1, 0), Ok(()));
    assert!(!again, "nothing waits for it");
}

#[test]
fn a_scrub_that_cannot_write_what_it_has_repaired_fails() {
    let mut lab = Lab::new();
    let id = lab.begun(Job::scrub(GroupId(0)));
    lab.jobs.repair_begins(id);
    lab.take_steps(id);
    assert!({ &mut lab.jobs }.repair_ended(id, (0, 0), Err(Fault::Medium)));
    assert_eq!(lab.next(id), "Ok(())", "the whole group has been scrubbed");
    lab.end(id, Ok(()));
    let events = lab.cx.take_events();
    let failed = [Event::Scrubbed {
        group: GroupId(0),
        blocks: 0,
        bad: 0,
        mended: 0,
        lost: 0,
        outcome: Err(Fault::Medium),
    }];
    assert_eq!(events, failed);
}

#[test]
fn a_fill_takes_one_step_at_a_time_and_ends_when_its_pages_are_written() {
    let mut lab = Lab::new();
    let id = lab.begun(lab.fill(Column(2)));
    assert!(lab.jobs.has(GroupId(0)) && !lab.jobs.has(GroupId(1)));
    assert_eq!(lab.next(id), "0..256");
    assert_eq!(lab.next(id), "wait");
    lab.jobs.copies(id, 8 << 20, 4 << 20);
    lab.end_step(id, StripeId::range(0..256), Ok(()));
    let stepped = Event::FillStepped {
        group: GroupId(0),
        column: Column(2),
        bytes: 4 << 20,
        read_bytes: 8 << 20,
        verified_blocks: 0,
    };
    assert_eq!(lab.cx.take_events(), [stepped]);
    assert_eq!(lab.take_steps(id), 3);
    lab.cx.take_events();
    let pages = 2 * lab.cx.geometry.pages_per_cell();
    assert_eq!(lab.next(id), format!("checkpoint of {pages} pages"));
    let copied = Event::Copied {
        group: GroupId(0),
        column: Column(2),
    };
    assert_eq!(lab.cx.take_events(), [copied]);
    assert_eq!(lab.jobs.checkpointed(id, None), None, "it is at its end");
    assert_eq!(lab.end(id, Ok(())), Ended::Reported);
    let filled = Event::Filled {
        group: GroupId(0),
        column: Column(2),
        target: lab.target(Column(2)),
        copied_bytes: 4 << 20,
    };
    assert_eq!(lab.cx.take_events(), [filled]);
}

#[test]
fn a_fill_whose_step_fails_takes_no_more_and_its_target_is_given_up() {
    let mut lab = Lab::new();
    let id = lab.begun(lab.fill(Column(2)));
    let stripes = lab.step(id).unwrap();
    lab.end_step(id, stripes, Err(Fault::Lost));
    assert_eq!(lab.next(id), "Err(Lost)");
    let failed = Ended::FillFailed {
        group: GroupId(0),
        column: Column(2),
        target: lab.target(Column(2)),
        fault: Fault::Lost,
    };
    assert_eq!(lab.end(id, Err(Fault::Lost)), failed);
    assert!(
        lab.cx.take_events().is_empty(),
        "its epoch must drain first"
    );
}

#[test]
fn the_first_fault_of_a_job_counts_and_what_is_in_flight_is_waited_for() {
    let mut lab = Lab::new();
    let id = lab.begun(Job::resync(GroupId(0)));
    let (first, second) = (lab.step(id).unwrap(), lab.step(id).unwrap());
    lab.end_step(id, first, Err(Fault::Medium));
    assert_eq!(lab.next(id), "wait");
    lab.end_step(id, second, Err(Fault::Gone));
    assert_eq!(lab.next(id), "Err(Medium)");
    assert_eq!(lab.end(id, Ok(())), Ended::Reported);
    let resynced = Event::Resynced {
        group: GroupId(0),
        outcome: Err(Fault::Medium),
    };
    assert_eq!(lab.cx.take_events(), [resynced]);
}

#[test]
fn what_a_resync_has_written_is_flushed_before_its_end() {
    let mut lab = Lab::new();
    let id = lab.begun(Job::resync(GroupId(0)));
    lab.take_steps(id);
    assert_eq!(lab.next(id), "flush");
}

#[test]
fn a_group_begins_a_new_life_when_the_ring_has_nothing_of_the_earlier_one() {
    let mut lab = Lab::new();
    let (id, begun) = lab.begin(Job::zero(GroupId(0)));
    assert_eq!(begun, Begun::Checkpoint);
    assert_eq!(lab.jobs.zeroes(id), Some(GroupId(0)));
    assert_eq!(lab.jobs.checkpointed(id, None), Some(GroupId(0)));
    assert_eq!(lab.next(id), format!("0..{STRIPES}"), "all in one step");
    lab.end_step(id, StripeId::range(0..STRIPES), Ok(()));
    assert_eq!(lab.next(id), "flush");
    lab.end(id, Ok(()));
    let outcome = Ok(());
    assert_eq!(
        lab.cx.take_events(),
        [Event::Zeroed {
            group: GroupId(0),
            outcome
        }]
    );
}

#[test]
fn a_group_whose_checkpoint_fails_keeps_its_earlier_life() {
    let mut lab = Lab::new();
    let (id, _) = lab.begin(Job::zero(GroupId(0)));
    assert_eq!(lab.jobs.checkpointed(id, Some(Fault::Medium)), None);
    lab.end(id, Ok(()));
    let outcome = Err(Fault::Medium);
    assert_eq!(
        lab.cx.take_events(),
        [Event::Zeroed {
            group: GroupId(0),
            outcome
        }]
    );
}

#[test]
fn fills_onto_a_drive_that_leaves_and_those_that_are_abandoned_fail() {
    let mut lab = Lab::new();
    let ids = [1, 2, 3].map(|column| lab.begun(lab.fill(Column(column))));
    for id in ids {
        let stripes = lab.step(id).unwrap();
        lab.end_step(id, stripes, Ok(()));
    }
    lab.jobs.lost_seat(at(0), lab.target(Column(1)).seat);
    lab.jobs.abandon_fill(at(0), GroupId(0), Column(2));
    lab.jobs.abandon_fill(at(0), GroupId(1), Column(3));
    let next = ids.map(|id| lab.next(id));
    assert_eq!(next, ["Err(Gone)", "Err(Shutdown)", "256..512"]);
}

#[test]
fn while_clients_ask_a_fill_rests_after_each_step_as_long_as_it_took() {
    let mut lab = Lab::new();
    let id = lab.begun(lab.fill(Column(2)));
    lab.clients_ask();
    assert_eq!(lab.next(id), "0..64", "and its steps are shorter");
    assert_eq!(lab.jobs.resume_at(), None);
    lab.cx.now = at(30);
    lab.end_step(id, StripeId::range(0..64), Ok(()));
    assert_eq!(lab.next(id), "wait");
    assert_eq!(lab.jobs.resume_at(), Some(at(60)));
    assert_eq!(lab.jobs.due(at(59)), []);
    assert_eq!(lab.jobs.due(at(60)), [id]);
    lab.cx.now = at(60);
    assert_eq!(lab.next(id), "64..128");
}

#[test]
fn a_fill_of_a_group_that_cannot_lose_another_column_does_not_rest() {
    let mut lab = Lab::new();
    let id = lab.begun(lab.fill(Column(2)));
    for column in [2, 3].map(Column) {
        let seat = lab.target(column).seat;
        lab.cx.change_view(|view, _| view.seat_out(seat));
    }
    lab.clients_ask();
    let stripes = lab.step(id).unwrap();
    lab.cx.now = at(30);
    lab.end_step(id, stripes, Ok(()));
    assert_eq!(lab.next(id), "64..192", "and the steps become longer");
}

#[test]
fn while_clients_ask_one_step_of_a_lane_is_in_flight_and_fills_come_first() {
    let mut lab = Lab::new();
    lab.clients_ask();
    let scrub = lab.begun(Job::scrub(GroupId(0)));
    let fill = lab.begun(lab.fill(Column(2)));
    let stripes = lab.step(scrub).unwrap();
    assert_eq!(lab.next(fill), "wait");
    lab.cx.now = at(10);
    lab.end_step(scrub, stripes, Ok(()));
    assert_eq!(lab.next(scrub), "wait");
    let at_last = lab.jobs.resume_at().unwrap();
    assert_eq!(at_last, at(110), "a scrub rests longer");
    assert_eq!(lab.jobs.due(at_last), [fill, scrub]);
}

#[test]
fn jobs_go_on_at_once_when_clients_are_gone() {
    let mut lab = Lab::new();
    lab.clients_ask();
    let first = lab.begun(lab.fill(Column(2)));
    let second = lab.begun(lab.fill(Column(3)));
    assert_eq!(lab.next(first), "0..64");
    assert_eq!(lab.next(second), "wait");
    assert_eq!(lab.jobs.due(at(1000)), []);
    assert!(lab.jobs.make_way(at(5), false));
    assert_eq!(lab.jobs.due(at(5)), [second]);
    assert_eq!(lab.next(second), "0..256");
}

/// A fill of column 2 whose drive has everything before batch 50, and the read of its pages.
fn scanning(lab: &mut Lab) -> (JobId, Io) {
    let job = Job::fill(
        GroupId(0),
        Column(2),
        lab.target(Column(2)),
        Vec::new(),
        Some(Sequence(50)),
    );
    let (id, begun) = lab.begin(job);
    assert_eq!(begun, Begun::Looks);
    assert!(lab.jobs.catches_up(id));
    let actions = lab.cx.take_actions();
    let [Action::Allocate(..), Action::Io(io)] = actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(
        (io.kind, io.seat),
        (IoKind::Read, lab.target(Column(2)).seat)
    );
    assert_eq!(io.length, lab.cx.geometry.pages_beside_bytes());
    (id, io)
}

fn answer(lab: &mut Lab, io: Io, outcome: Outcome) -> bool {
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    let Answered::Ended(IoEnded {
        purpose: Purpose::PageScan { job, seat },
        ..
    }) = ios.answered(cx, io.id, outcome)
    else {
        panic!("it ends");
    };
    lab.jobs.scanned(cx, ios, job, (seat, 4096), outcome)
}

#[test]
fn what_the_target_has_by_its_own_pages_is_known_to_each_step() {
    let mut lab = Lab::new();
    let (id, io) = scanning(&mut lab);
    assert!(!answer(&mut lab, io, Ok(())));
    let pool = lab.cx.geometry.regions().unwrap().pool;
    let block = |block| BlockName {
        group: GroupId(0),
        column: Column(2),
        block,
    };
    let [before, after] = [40, 60]
        .map(Sequence)
        .map(|sequence| Entry::new(pool, block(0), 7, sequence));
    let pages = lab.cx.geometry.pages_beside(Column(2)).into_iter();
    let bytes = pages.flat_map(|(column, index)| {
        let name = PageName {
            group: GroupId(0),
            column,
            index,
        };
        let mut page = MetaPage::filled(before, 1);
        page.set(1, after, 2);
        page.encode(pool, name)
    });
    let computed = Computed {
        bytes: vec![bytes.collect()],
        ..Computed::default()
    };
    let actions = lab.cx.take_actions();
    let [Action::Compute(compute)] = &actions[..] else {
        panic!("{actions:?}");
    };
    let purpose = lab.cx.computes.remove(compute.id);
    assert!(matches!(purpose, Some(Computing::PageScan(job)) if job == id));
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    lab.jobs.scan_computed(cx, ios, id, &computed);
    let Next::Step { task, .. } = lab.jobs.next(&mut lab.cx, id) else {
        panic!("it takes its first step");
    };
    let held = task.held().expect("it has scanned");
    assert!(held.holds(block(0), before));
    assert!(!held.holds(block(1), after) && held.has_entry(block(1), after));
    assert!(!held.has_entry(block(1), before), "the drive's is another");

    // Only pages that differ are written at its end.
    let pages = held.pages_of(&lab.cx.geometry, GroupId(0), &StripeId::range(0..STRIPES));
    assert_eq!(pages.len() as u64, 2 * lab.cx.geometry.pages_per_cell());
    lab.jobs.page_is_stale(id, pages[3]);
    lab.end_step(id, StripeId::range(0..256), Ok(()));
    lab.take_steps(id);
    assert_eq!(lab.next(id), "checkpoint of 1 pages");
}

#[test]
fn a_step_compares_the_pages_that_describe_its_stripes() {
    let mut lab = Lab::new();
    let held = Held::of_test(Column(2));
    let per_chunk = lab.cx.geometry.chunk_bytes() / BLOCK_BYTES;
    let last = STRIPES * per_chunk / u64::from(format::ENTRIES_PER_META_PAGE);
    let indexes = |stripes: Range<StripeId>| {
        let pages = held
            .pages_of(&lab.cx.geometry, GroupId(0), &stripes)
            .into_iter();
        let mut indexes: Vec<u64> = pages.map(|page| page.index.into()).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes
    };
    assert_eq!(indexes(StripeId::range(0..1)), [0]);
    assert_eq!(
        indexes(StripeId::range(124..125)),
        [1],
        "496 entries on a page"
    );
    assert_eq!(indexes(StripeId::range(0..125)), [0, 1]);
    assert_eq!(indexes(StripeId::range(STRIPES - 1..STRIPES)), [last]);
    lab.cx.take_actions();
}

#[test]
fn a_target_whose_pages_cannot_be_read_is_filled_as_a_whole() {
    let mut lab = Lab::new();
    let (id, io) = scanning(&mut lab);
    assert!(answer(&mut lab, io, Err(Fault::Medium)));
    assert!(matches!(
        lab.cx.take_events()[..],
        [Event::DriveFault {
            offset: 4096,
            waiting: false,
            ..
        }]
    ));
    let Next::Step { task, .. } = lab.jobs.next(&mut lab.cx, id) else {
        panic!("it takes its first step");
    };
    assert!(task.held().is_none());
}

#[test]
fn a_drive_that_was_away_for_too_long_is_not_looked_at() {
    let mut lab = Lab::new();
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    let job = Job::fill(
        GroupId(0),
        Column(2),
        cx.geometry.home(GroupId(0), Column(2)),
        Vec::new(),
        Some(Sequence(1)),
    );
    let (_, begun) = lab.jobs.begin(cx, ios, job, Sequence(1 + Entry::AGE_MAX));
    assert_eq!(begun, Begun::Steps);
}
