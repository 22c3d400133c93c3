use block::BLOCK_BYTES;
use format::{Column, Entry, GroupId, HeldIn, MetaPage, Sequence, StripeId};
use plan::action::IoId;

use super::*;
use crate::blocks::block;
use crate::overlay::Bytes;
use crate::purpose::Purpose;
use testing::walk::{Changes, Machine};

/// The checkpoints of a small lane whose pages are all in memory: a stripe has four blocks of each of six columns, and a page has
/// two copies.
#[derive(Clone)]
struct Lab {
    checkpoints: Checkpoints,
    cx: Context,
    ios: IoTable,
    overlay: Overlay,
    pages: PageCache,
    /// Blocks to be preserved: of those to be put in place, and of those that were put in place.
    preserved: BTreeSet<BlockName>,
    preserved_late: BTreeSet<BlockName>,
    /// Stripes that were made unwritten.
    unwritten: Vec<(GroupId, StripeId)>,
    /// The fault of an install that a drive that stays in the pool has refused.
    refused: Option<Fault>,
}

fn page(column: Column) -> PageName {
    block(column, 0).page()
}

const JOB: CheckpointWaiter = CheckpointWaiter::Job(JobId(5));

impl Lab {
    fn new() -> Self {
        let cx = Context::of_test("raid6", 6);
        let pages = PageCache::all_written(6);
        Self {
            checkpoints: Checkpoints::default(),
            cx,
            ios: IoTable::new(6),
            overlay: Overlay::default(),
            pages,
            preserved: BTreeSet::new(),
            preserved_late: BTreeSet::new(),
            unwritten: Vec::new(),
            refused: None,
        }
    }

    /// Batch `sequence` has logged a block.
    fn log(&mut self, column: Column, at: u32, sequence: Sequence) {
        let slice = Slice {
            buffer: BufferId::Scratch(ScratchId(sequence.0)),
            offset: u64::from(at) * BLOCK_BYTES,
            length: BLOCK_BYTES,
        };
        let logged = Logged {
            bytes: Bytes::Memory(slice),
            entry: Entry::of_map(HeldIn::parity(StripeId(column.0.into())), sequence),
            sequence,
        };
        self.overlay.insert(block(column, at), logged);
    }

    /// With block 4 of column 1 logged by batch 7.
    fn logged() -> Self {
        let mut lab = Self::new();
        lab.log(Column(1), 4, Sequence(7));
        lab
    }

    /// Begins a checkpoint that covers batches up to this one.
    fn begin(&mut self, covers: Sequence) -> Next {
        self.checkpoints.want();
        assert!(self.checkpoints.is_due(false, false, Sequence(0)));
        self.checkpoints.begin(covers);
        Next::Flush
    }

    /// Performs the steps that need no drive. Returns the first one that waits.
    fn go_on(&mut self, next: Next) -> Next {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let next = match next {
            Next::Collect => {
                let running = self.checkpoints.running();
                running.collect(cx, &mut self.overlay, &self.pages);
                running.page_here(cx, ios, &self.overlay, &self.pages)
            }
            Next::Installed(refused) => {
                self.refused = refused;
                let running = self.checkpoints.running();
                let (overlay, pages) = (&mut self.overlay, &mut self.pages);
                let stripes = running.enter(cx, overlay, pages, self.preserved.clone(), false);
                let all = stripes
                    .into_iter()
                    .map(|emptied| (emptied.group, emptied.stripe));
                self.unwritten.extend(all);
                match running.write_pages(cx, pages) {
                    Next::Wait => running.paged(cx, ios, pages),
                    next => next,
                }
            }
            Next::Settle => {
                self.checkpoints.running().settle(cx, ios, &self.overlay);
                return Next::Flush;
            }
            Next::Durable => {
                let running = self.checkpoints.running();
                let installed = running.take_installed();
                let (overlay, pages) = (&mut self.overlay, &mut self.pages);
                let preserved = self.preserved_late.clone();
                let first = running.release(cx, overlay, pages, &installed, preserved);
                if !running.begin_anchor(first > Sequence(1)) {
                    return Next::End;
                }
                let drives = submit_anchor(cx, ios, 1, ScratchId(99));
                running.anchor_submitted(ScratchId(99), drives)
            }
            waits => return waits,
        };
        self.go_on(next)
    }

    /// A flush has ended well.
    fn flushed(&mut self) -> Next {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let next = self.checkpoints.running().flushed(cx, ios, Ok(()));
        self.go_on(next)
    }

    /// Writes in flight: their kind and drive.
    fn writes(&self) -> Vec<(&'static str, u16)> {
        let in_flight = self.ios.in_flight();
        let kind = |purpose| match purpose {
            Purpose::Install { .. } => "block",
            Purpose::PageWrite { .. } => "page",
            Purpose::Anchor { .. } => "anchor",
            other => panic!("{other:?} is no write of a checkpoint"),
        };
        in_flight
            .map(|(_, flight)| (kind(flight.purpose), flight.io.seat.0))
            .collect()
    }

    /// Drives answer all that is in flight. Those in `full` answer that they are full.
    fn answer(&mut self, full: &[u16]) -> Next {
        let in_flight = self.ios.in_flight();
        let in_flight: Vec<(IoId, Purpose, Seat)> = in_flight
            .map(|(id, flight)| (id, flight.purpose, flight.io.seat))
            .collect();
        let mut next = Next::Wait;
        for (id, purpose, seat) in in_flight {
            let outcome = match full.contains(&seat.0) {
                true => Err(Fault::Full),
                false => Ok(()),
            };
            let (cx, ios) = (&mut self.cx, &mut self.ios);
            ios.answered(cx, id, outcome);
            let running = self.checkpoints.running();
            next = match purpose {
                Purpose::Install { transfer } => {
                    running.install_written(cx, ios, &transfer, outcome, false)
                }
                Purpose::PageWrite { .. } => running.page_written(seat, outcome, false),
                _ => running.anchor_written(cx, ios, seat, outcome, false),
            };
        }
        self.go_on(next)
    }

    fn judge(&mut self, seat: u16, out: bool) -> Next {
        if out {
            self.cx.change_view(|view, _| view.seat_out(Seat(seat)));
        }
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let next = self.checkpoints.running().judged(cx, ios, Seat(seat), out);
        self.go_on(next)
    }

    /// Drives and flushes succeed until the checkpoint ends. Returns the steps that it takes.
    fn finish(&mut self, mut next: Next) -> Vec<String> {
        let mut steps = Vec::new();
        loop {
            match next {
                Next::Flush => {
                    steps.push("flush".into());
                    next = self.flushed();
                }
                Next::Wait => {
                    let writes = self.writes();
                    assert!(!writes.is_empty(), "it waits for something");
                    steps.push(format!("{} x {}", writes.len(), writes[0].0));
                    next = self.answer(&[]);
                }
                Next::End => return steps,
                other => panic!("{other:?} ends it"),
            }
        }
    }

    /// The same; returns how the checkpoint has ended.
    fn end(&mut self, next: Next) -> Ended {
        self.finish(next);
        self.checkpoints.end()
    }

    fn refuse(&mut self) -> Ended {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        self.checkpoints.refuse(cx, ios, &mut self.pages);
        self.checkpoints.end()
    }
}

#[test]
fn blocks_pages_in_two_turns_and_the_anchor_follow_one_another_with_flushes_between() {
    let mut lab = Lab::logged();
    let next = lab.begin(Sequence(7));
    let steps = lab.finish(next);
    let expected = [
        "flush",
        "1 x block",
        "1 x page",
        "flush",
        "1 x page",
        "flush",
        "6 x anchor",
        "flush",
    ];
    assert_eq!(steps, expected);
    let ended = lab.checkpoints.end();
    assert!(
        (ended.covers, ended.first) == (Sequence(7), Sequence(8))
            && !ended.holds_back()
            && ended.progress
    );
    assert!(lab.overlay.get(block(Column(1), 4)).is_none());
    assert_eq!(
        lab.pages.entry(block(Column(1), 4)),
        Some(Entry::of_map(HeldIn::parity(StripeId(1)), Sequence(7)))
    );
    assert!(!lab.pages.is_dirty(page(Column(1))));
    assert!(lab.checkpoints.is_idle());
}

#[test]
fn without_anything_to_put_in_place_only_the_tail_moves() {
    let mut lab = Lab::new();
    let next = lab.begin(Sequence(7));
    assert_eq!(lab.finish(next), ["flush", "flush", "6 x anchor", "flush"]);
    assert!(lab.checkpoints.end().progress);
}

#[test]
fn what_is_logged_meanwhile_is_left_to_the_next_checkpoint() {
    let mut lab = Lab::logged();
    lab.log(Column(2), 4, Sequence(7));
    lab.begin(Sequence(7));
    lab.log(Column(1), 4, Sequence(8));
    lab.flushed();
    assert_eq!(lab.writes(), [("block", 2)]);
    lab.log(Column(2), 4, Sequence(9));
    let ended = lab.end(Next::Wait);
    assert_eq!(
        ended.first,
        Sequence(8),
        "batch 9 is newer than what it has put in place"
    );
    assert!(lab.overlay.get(block(Column(1), 4)).is_some());
    assert!(lab.overlay.get(block(Column(2), 4)).is_some());
    assert_eq!(
        lab.pages.entry(block(Column(2), 4)),
        Some(Entry::of_map(HeldIn::parity(StripeId(2)), Sequence(7)))
    );
}

#[test]
fn it_waits_for_its_pages() {
    let mut lab = Lab::logged();
    lab.pages = PageCache::new(64);
    lab.begin(Sequence(7));
    assert_eq!(lab.flushed(), Next::Wait);
    assert_eq!(lab.writes(), []);
    assert!(lab.checkpoints.pages(0).written.contains(&page(Column(1))));
    lab.pages
        .put(page(Column(1)), MetaPage::filled(Entry::WRITTEN, 1));
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    let running = lab.checkpoints.running();
    running.page_here(cx, ios, &lab.overlay, &lab.pages);
    assert_eq!(lab.writes(), [("block", 1)]);
}

#[test]
fn trimmed_stripes_are_unwritten_by_their_pages() {
    let mut lab = Lab::new();
    lab.overlay.zero(
        GroupId(0),
        StripeId::range(3..4),
        Sequence(7),
        std::iter::empty(),
    );
    let next = lab.begin(Sequence(7));
    lab.end(next);
    assert_eq!(lab.unwritten, [(GroupId(0), StripeId(3))]);
    assert!(!lab.overlay.is_zeroed(GroupId(0), StripeId(3)));
    assert!(
        (0..6)
            .map(Column)
            .all(|column| lab.pages.are_unwritten(block(column, 12), 4))
    );
}

#[test]
fn a_flush_that_fails_ends_it() {
    let mut lab = Lab::logged();
    lab.begin(Sequence(7));
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    let next = { lab.checkpoints.running() }.flushed(cx, ios, Err(Fault::Medium));
    assert_eq!(next, Next::Refused(Fault::Medium));
    let ended = lab.refuse();
    assert!(ended.holds_back() && !ended.progress);
    assert_eq!(lab.writes(), [], "nothing is put in place");
}

#[test]
fn what_a_drive_that_stays_has_refused_stays_logged() {
    let mut lab = Lab::logged();
    lab.log(Column(2), 5, Sequence(9));
    lab.begin(Sequence(9));
    lab.flushed();
    assert_eq!(lab.answer(&[1]), Next::Wait, "for the pool's verdict");
    let next = lab.judge(1, false);
    let ended = lab.end(next);
    assert_eq!(lab.refused, Some(Fault::Full));
    assert!(ended.first == Sequence(7) && ended.holds_back() && ended.progress);
    assert!(lab.overlay.get(block(Column(1), 4)).is_some());
    assert!(lab.overlay.get(block(Column(2), 5)).is_none());
}

#[test]
fn what_a_drive_that_goes_out_has_refused_is_not_missed() {
    let mut lab = Lab::logged();
    lab.begin(Sequence(7));
    lab.flushed();
    lab.answer(&[1]);
    let next = lab.judge(1, true);
    let ended = lab.end(next);
    assert_eq!((lab.refused, ended.first), (None, Sequence(8)));
}

#[test]
fn a_drive_that_is_out_is_not_written() {
    let mut lab = Lab::logged();
    lab.cx.change_view(|view, _| view.seat_out(Seat(1)));
    let next = lab.begin(Sequence(7));
    let steps = lab.finish(next);
    assert_eq!(steps, ["flush", "1 x page", "flush", "5 x anchor", "flush"]);
}

#[test]
fn pages_that_a_drive_has_refused_are_written_anew_by_the_next_checkpoint() {
    let mut lab = Lab::logged();
    lab.begin(Sequence(7));
    lab.flushed();
    let next = lab.answer(&[]);
    assert_eq!((next, lab.writes()), (Next::Wait, vec![("page", 2)]));
    lab.answer(&[2]);
    assert_eq!(lab.judge(2, false), Next::Refused(Fault::Full));
    assert!(lab.refuse().holds_back());
    assert!(lab.pages.is_dirty(page(Column(1))));
    let next = lab.begin(Sequence(7));
    let ended = lab.end(next);
    assert_eq!(ended.first, Sequence(8));
    assert!(!lab.pages.is_dirty(page(Column(1))));
}

#[test]
fn pages_of_a_trim_are_written_anew_where_the_flush_fails_that_covers_them() {
    let mut lab = Lab::new();
    lab.overlay.zero(
        GroupId(0),
        StripeId::range(3..4),
        Sequence(7),
        std::iter::empty(),
    );
    let mut next = lab.begin(Sequence(7));
    for _ in 0..2 {
        assert_eq!(next, Next::Flush, "of the records, and between the turns");
        next = lab.flushed();
        assert_eq!(next, Next::Wait);
        next = lab.answer(&[]);
    }
    assert_eq!(next, Next::Flush, "of the pages");
    assert!(
        (0..6)
            .map(Column)
            .all(|column| !lab.pages.is_dirty(page(column)))
    );
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    let next = { lab.checkpoints.running() }.flushed(cx, ios, Err(Fault::Medium));
    assert_eq!(next, Next::Refused(Fault::Medium));
    assert!(lab.refuse().holds_back());
    assert!(
        (0..6)
            .map(Column)
            .all(|column| lab.pages.is_dirty(page(column)))
    );
    let next = lab.begin(Sequence(7));
    let steps = lab.finish(next);
    assert_eq!(steps[..4], ["flush", "6 x page", "flush", "6 x page"]);
}

#[test]
fn a_column_that_came_back_meanwhile_stays_logged() {
    let mut lab = Lab::logged();
    lab.checkpoints.column_is_back(GroupId(0), Column(1));
    assert!(lab.checkpoints.is_idle(), "none runs");
    lab.begin(Sequence(7));
    lab.flushed();
    lab.checkpoints.column_is_back(GroupId(0), Column(1));
    let ended = lab.end(Next::Wait);
    assert!(ended.first == Sequence(7) && !ended.progress);
    assert!(lab.checkpoints.waits(), "the next one puts it in place");
}

#[test]
fn preserved_blocks_hold_the_tail() {
    let mut lab = Lab::logged();
    lab.preserved.insert(block(Column(1), 4));
    let next = lab.begin(Sequence(8));
    assert_eq!(lab.end(next).first, Sequence(7));
    // Batch 9 logs the block again while pages are written.
    let next = lab.begin(Sequence(8));
    lab.log(Column(1), 4, Sequence(9));
    assert_eq!(lab.end(next).first, Sequence(9));
}

#[test]
fn what_turns_out_to_have_no_place_when_it_should_be_durable_stays_logged() {
    let mut lab = Lab::logged();
    lab.preserved_late.insert(block(Column(1), 4));
    let next = lab.begin(Sequence(7));
    let ended = lab.end(next);
    assert!(ended.first == Sequence(7) && ended.holds_back() && !ended.in_the_way);
    assert!(lab.overlay.get(block(Column(1), 4)).is_some());
}

#[test]
fn an_anchor_is_written_though_the_tail_stays_if_it_is_wanted() {
    let mut lab = Lab::new();
    let next = lab.begin(Sequence(0));
    assert_eq!(lab.finish(next), ["flush", "flush"]);
    lab.checkpoints.end();
    lab.checkpoints.want_anchor();
    let next = lab.begin(Sequence(0));
    assert_eq!(lab.finish(next), ["flush", "flush", "6 x anchor", "flush"]);
}

#[test]
fn a_drive_that_stays_must_have_the_anchor() {
    let mut lab = Lab::new();
    lab.begin(Sequence(7));
    lab.flushed();
    lab.flushed();
    lab.answer(&[3]);
    assert_eq!(lab.judge(3, false), Next::Refused(Fault::Full));
    assert!(lab.refuse().holds_back());
}

#[test]
fn without_any_drive_the_tail_stays() {
    let mut lab = Lab::new();
    lab.begin(Sequence(7));
    lab.flushed();
    (0..6).for_each(|seat| lab.cx.change_view(|view, _| view.seat_out(Seat(seat))));
    assert_eq!(lab.flushed(), Next::Refused(Fault::Lost));
}

#[test]
fn a_page_that_has_not_changed_is_written_where_a_cell_is_filled() {
    let mut lab = Lab::new();
    lab.cx.change_view(|view, geometry| {
        view.seat_out(Seat(1));
        view.seat_in(Seat(1));
        view.begin_fill(
            geometry,
            GroupId(0),
            Column(1),
            geometry.home(GroupId(0), Column(1)),
        );
    });
    lab.checkpoints
        .await_next(JOB, [page(Column(0)), page(Column(1))]);
    lab.begin(Sequence(7));
    assert_eq!(lab.flushed(), Next::Flush, "the first turn has no copy");
    assert_eq!(lab.flushed(), Next::Wait);
    assert_eq!(lab.writes(), [("page", 1), ("page", 1)]);
    let ended = lab.end(Next::Wait);
    assert_eq!(ended.waiters, [JOB]);
}

#[test]
fn while_tries_would_fail_only_what_is_awaited_begins() {
    let mut checkpoints = Checkpoints::default();
    assert!(
        !checkpoints.is_due(false, true, Sequence(0)),
        "none is wanted"
    );
    checkpoints.want();
    assert!(!checkpoints.is_due(true, true, Sequence(0)));
    assert!(checkpoints.waits(), "something waits to be logged");
    assert!(!checkpoints.is_due(true, false, Sequence(0)));
    assert!(!checkpoints.waits());
    checkpoints.await_next(JOB, []);
    assert!(checkpoints.is_due(true, false, Sequence(0)));
    checkpoints.begin(Sequence(3));
    checkpoints.want();
    assert!(
        !checkpoints.is_due(false, true, Sequence(0)),
        "one is under way"
    );
}

#[test]
fn one_begins_by_itself_when_nothing_has_been_logged_for_a_second() {
    let mut checkpoints = Checkpoints::default();
    let at = |millis: u64| Instant(millis * 1_000_000);
    assert_eq!(checkpoints.idle_at(Sequence(0)), None, "nothing is logged");
    checkpoints.logged(at(500));
    assert_eq!(checkpoints.idle_at(Sequence(7)), Some(at(1500)));
    assert!(!checkpoints.is_quiet(at(1400)) && checkpoints.is_quiet(at(1500)));
    checkpoints.begin(Sequence(7));
    assert_eq!(checkpoints.idle_at(Sequence(7)), None);
    assert_eq!(checkpoints.end().covers, Sequence(7));
    assert_eq!(checkpoints.idle_at(Sequence(7)), None);
    assert_eq!(checkpoints.first_uncovered(), Sequence(8));
}

#[test]
fn a_fill_does_not_write_to_a_column_while_blocks_go_there() {
    let mut lab = Lab::logged();
    assert!(
        !lab.checkpoints
            .fill_must_wait(OpId(3), GroupId(0), Column(1))
    );
    lab.begin(Sequence(7));
    assert!(
        !lab.checkpoints
            .fill_must_wait(OpId(3), GroupId(0), Column(1))
    );
    lab.flushed();
    assert!(
        !lab.checkpoints
            .fill_must_wait(OpId(3), GroupId(0), Column(2))
    );
    assert!(
        lab.checkpoints
            .fill_must_wait(OpId(3), GroupId(0), Column(1))
    );
    assert_eq!(lab.checkpoints.take_fills(), [OpId(3)]);
    lab.answer(&[]);
    assert!(
        !lab.checkpoints
            .fill_must_wait(OpId(3), GroupId(0), Column(1))
    );
    lab.checkpoints.fill_waits(OpId(4), Sequence(7));
    assert_eq!(lab.checkpoints.take_fills(), [OpId(4)]);
    lab.checkpoints.fill_waits(OpId(4), Sequence(8));
    assert_eq!(lab.checkpoints.take_fills(), [], "it covers batch 7");
}

#[test]
fn no_checkpoint_begins_for_a_fill_before_the_batch_that_the_fill_waits_for_is_complete() {
    let mut checkpoints = Checkpoints::default();
    checkpoints.fill_waits(OpId(4), Sequence(8));
    assert!(!checkpoints.is_due(false, false, Sequence(7)));
    assert!(checkpoints.waits() && !checkpoints.is_idle());
    assert!(
        !checkpoints.is_due(true, false, Sequence(8)),
        "it would be refused"
    );
    assert!(checkpoints.is_due(false, false, Sequence(8)));
    checkpoints.begin(Sequence(8));
    assert_eq!(checkpoints.take_fills(), [OpId(4)]);
    assert!(!checkpoints.waits());
    checkpoints.end();
    checkpoints.fill_waits(OpId(5), Sequence(9));
    checkpoints.want();
    assert!(
        checkpoints.is_due(false, false, Sequence(8)),
        "for something else"
    );
}

#[test]
fn pages_count_as_on_their_way_from_when_they_are_laid_out_until_they_are_durable() {
    let mut lab = Lab::logged();
    lab.begin(Sequence(7));
    let on_their_way = |lab: &Lab| lab.checkpoints.pages(0).on_their_way;
    lab.flushed();
    assert!(!on_their_way(&lab) && lab.checkpoints.writes_of(GroupId(0)));
    lab.answer(&[]);
    assert!(on_their_way(&lab));
    assert_eq!(lab.answer(&[]), Next::Flush);
    assert!(on_their_way(&lab));
    lab.flushed();
    assert_eq!(lab.answer(&[]), Next::Flush);
    assert!(on_their_way(&lab));
    lab.flushed();
    assert!(!on_their_way(&lab), "the anchor is");
}

/// A checkpoint on its way, whose inputs are all that may come: for the drawing of its phases.
#[derive(Clone)]
struct Way {
    lab: Lab,
    /// What the checkpoint asks for. `None` before it begins and when it is over.
    next: Option<Next>,
    begins: bool,
    /// Drives whose refusals are to be judged.
    refusing: BTreeSet<u16>,
    /// So many drives may still refuse a write.
    faults: usize,
    /// All drives may still go out.
    may_leave: bool,
}

impl Way {
    fn of(lab: Lab) -> Self {
        Self {
            lab,
            next: None,
            begins: true,
            refusing: BTreeSet::new(),
            faults: 1,
            may_leave: true,
        }
    }

    /// With an input, of which the checkpoint asks for this.
    fn with(&self, input: impl FnOnce(&mut Lab) -> Next) -> Self {
        let mut after = self.clone();
        after.next = Some(input(&mut after.lab));
        after
    }

    /// The checkpoint is over.
    fn over(&self, refused: bool) -> Self {
        let mut after = self.clone();
        match refused {
            true => _ = after.lab.refuse(),
            false => _ = after.lab.checkpoints.end(),
        }
        after.next = None;
        after
    }

    fn begin(&self) -> Self {
        let mut after = self.with(|lab| {
            lab.checkpoints.begin(Sequence(7));
            Next::Flush
        });
        after.begins = false;
        after
    }

    /// The first of the writes in flight ends.
    fn answered(&self, outcome: Outcome) -> Option<(&'static str, Self)> {
        let mut in_flight = self.lab.ios.in_flight();
        let (id, purpose, seat) = in_flight
            .next()
            .map(|(id, flight)| (id, flight.purpose, flight.io.seat))?;
        drop(in_flight);
        let out = self.lab.cx.view().is_out(seat);
        let mut event = "";
        let mut after = self.with(|lab| {
            let (cx, ios) = (&mut lab.cx, &mut lab.ios);
            ios.answered(cx, id, outcome);
            let running = lab.checkpoints.running();
            match purpose {
                Purpose::Install { transfer } => {
                    event = "install_written";
                    running.install_written(cx, ios, &transfer, outcome, out)
                }
                Purpose::PageWrite { .. } => {
                    event = "page_written";
                    running.page_written(seat, outcome, out)
                }
                _ => {
                    event = "anchor_written";
                    running.anchor_written(cx, ios, seat, outcome, out)
                }
            }
        });
        if outcome.is_err() && !out {
            after.refusing.insert(seat.0);
            after.faults -= 1;
        }
        Some((event, after))
    }

    /// The pool decides about a drive.
    fn judged(&self, seat: u16, out: bool) -> Self {
        let mut after = self.with(|lab| {
            if out {
                lab.cx.change_view(|view, _| view.seat_out(Seat(seat)));
            }
            let (cx, ios) = (&mut lab.cx, &mut lab.ios);
            lab.checkpoints.running().judged(cx, ios, Seat(seat), out)
        });
        after.refusing.remove(&seat);
        after
    }

    fn page_here(lab: &mut Lab) -> Next {
        let (cx, ios) = (&mut lab.cx, &mut lab.ios);
        lab.checkpoints
            .running()
            .page_here(cx, ios, &lab.overlay, &lab.pages)
    }

    fn flushed(&self, outcome: Outcome) -> Self {
        self.with(|lab| {
            let (cx, ios) = (&mut lab.cx, &mut lab.ios);
            lab.checkpoints.running().flushed(cx, ios, outcome)
        })
    }

    /// The inputs that the checkpoint waits for while nothing else has to happen first.
    fn waits(&self) -> Vec<(&'static str, Self)> {
        let mut after = Vec::new();
        let running = self.lab.checkpoints.running.as_ref().expect("it runs");
        match running.phase {
            Phase::Loading(_) => {
                after.push(("page_here", self.with(Self::page_here)));
                let names = running.pages.iter().chain(&running.read_for);
                after.extend(names.copied().next().map(|name| {
                    let unread = |lab: &mut Lab| {
                        let running = lab.checkpoints.running();
                        running.page_unread(&mut lab.overlay, name, Fault::Medium)
                    };
                    ("page_unread", self.with(unread))
                }));
            }
            Phase::Laying => {
                let paged = |lab: &mut Lab| {
                    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
                    lab.checkpoints.running().paged(cx, ios, &lab.pages)
                };
                after.push(("paged", self.with(paged)));
            }
            Phase::LayingAnchor => {
                let submitted = |lab: &mut Lab| {
                    let drives = submit_anchor(&mut lab.cx, &mut lab.ios, 1, ScratchId(99));
                    let running = lab.checkpoints.running();
                    running.anchor_submitted(ScratchId(99), drives)
                };
                after.push(("anchor_submitted", self.with(submitted)));
            }
            _ => {
                after.extend(self.answered(Ok(())));
                if self.faults > 0 {
                    after.extend(self.answered(Err(Fault::Full)));
                }
            }
        }
        after
    }
}

impl Machine for Way {
    fn state(&self) -> &'static str {
        match self
            .lab
            .checkpoints
            .running
            .as_ref()
            .map(|running| &running.phase)
        {
            None => "none",
            Some(Phase::Flushing) => "flushing",
            Some(Phase::Loading(_)) => "loading",
            Some(Phase::Installing { .. }) => "installing",
            Some(Phase::Laying) => "laying",
            Some(Phase::Paging { .. }) => "paging",
            Some(Phase::Ordering { .. }) => "ordering",
            Some(Phase::Settling) => "settling",
            Some(Phase::LayingAnchor) => "laying_anchor",
            Some(Phase::Anchoring(_)) => "anchoring",
            Some(Phase::Closing) => "closing",
        }
    }

    fn key(&self) -> String {
        let running = &self.lab.checkpoints.running;
        let (seats, writes) = (self.lab.cx.live_seats(), self.lab.writes());
        let rest = (&self.refusing, self.faults, self.may_leave, self.begins);
        let (next, logged) = (self.next, &self.lab.overlay);
        format!("{running:?} {next:?} {seats:?} {writes:?} {rest:?} {logged:?}")
    }

    fn after(&self) -> Vec<(&'static str, Self)> {
        let mut after = match self.next {
            None if self.begins => return vec![("begin", self.begin())],
            None => return Vec::new(),
            Some(Next::End) => return vec![("end", self.over(false))],
            Some(Next::Refused(_)) => return vec![("refuse", self.over(true))],
            Some(Next::Collect) => {
                let collect = |lab: &mut Lab| {
                    { lab.checkpoints.running() }.collect(&lab.cx, &mut lab.overlay, &lab.pages);
                    Next::Wait
                };
                return vec![("collect", self.with(collect))];
            }
            Some(Next::Installed(_)) => {
                let write_pages = |lab: &mut Lab| {
                    let running = lab.checkpoints.running();
                    let (overlay, pages) = (&mut lab.overlay, &mut lab.pages);
                    running.enter(&lab.cx, overlay, pages, BTreeSet::new(), false);
                    running.write_pages(&mut lab.cx, pages)
                };
                return vec![("write_pages", self.with(write_pages))];
            }
            Some(Next::Durable) => {
                let begins = |moves: bool| {
                    self.with(|lab| {
                        let running = lab.checkpoints.running();
                        let installed = running.take_installed();
                        let (overlay, pages) = (&mut lab.overlay, &mut lab.pages);
                        running.release(&lab.cx, overlay, pages, &installed, BTreeSet::new());
                        match running.begin_anchor(moves) {
                            true => Next::Wait,
                            false => Next::End,
                        }
                    })
                };
                return [true, false]
                    .map(|moves| ("begin_anchor", begins(moves)))
                    .into();
            }
            // Blocks may be on their way to the log again, and verdicts come meanwhile.
            Some(Next::Settle) => {
                let settle = |lab: &mut Lab| {
                    let running = lab.checkpoints.running();
                    running.settle(&mut lab.cx, &mut lab.ios, &lab.overlay);
                    Next::Flush
                };
                return vec![
                    ("settle", self.with(settle)),
                    ("judged", self.judged(0, false)),
                ];
            }
            Some(Next::Flush) => vec![
                ("flushed", self.flushed(Ok(()))),
                ("flushed", self.flushed(Err(Fault::Medium))),
            ],
            Some(Next::Wait) => self.waits(),
        };
        // Verdicts and pages come at any time. Those that nothing waits for do not change what is asked for.
        for &seat in &self.refusing {
            after.extend([true, false].map(|out| ("judged", self.judged(seat, out))));
        }
        let kept = |mut other: Self| {
            if other.next == Some(Next::Wait) {
                other.next = self.next;
            }
            other
        };
        after.push(("judged", kept(self.judged(0, false))));
        if !matches!(self.state(), "loading") {
            after.push(("page_here", kept(self.with(Self::page_here))));
        }
        if self.may_leave {
            let mut left = self.clone();
            left.may_leave = false;
            for seat in 0..6 {
                left.lab.cx.change_view(|view, _| view.seat_out(Seat(seat)));
            }
            after.push(("seats_out", left));
        }
        after
    }
}

/// The drawing in the head of the file is what a checkpoint does: every input, in every phase in which it may come.
#[test]
fn the_phases_of_a_checkpoint_are_those_of_the_drawing() {
    let mut filling = Lab::new();
    filling.cx.change_view(|view, geometry| {
        let home = geometry.home(GroupId(0), Column(1));
        view.seat_out(Seat(1));
        view.seat_in(Seat(1));
        view.begin_fill(geometry, GroupId(0), Column(1), home);
    });
    let forced = [page(Column(0)), page(Column(1))];
    filling.checkpoints.await_next(JOB, forced);
    let labs = [Lab::new(), Lab::logged(), filling];
    Changes::of(labs.map(Way::of)).assert_drawn_in(include_str!("mod.rs"));
}
