//! The pages of a small lane, with drives that are a table of copies.

use block::BLOCK_BYTES;
use format::{Column, GroupId, PAGE_BYTES};
use plan::action::{Action, BufferId, Compute, Io, IoKind, Slice};
use plan::{ComputeId, ScratchId};

use super::*;
use crate::blocks::block;
use crate::io::{Answered, Ended};
use crate::purpose::{Computing, Purpose};

struct Lab {
    pages: PageCache,
    cx: Context,
    ios: IoTable,
    /// The copies of pages, by their places.
    drives: BTreeMap<(Seat, u64), Vec<u8>>,
    memory: BTreeMap<(ScratchId, u64), Vec<u8>>,
    /// Reads that drives have not answered, and computations.
    reads: Vec<Io>,
    computes: Vec<Compute>,
    anchor: u64,
    /// Pages that a checkpoint is writing to all their places.
    written: BTreeSet<PageName>,
}

/// The page of a column of group 0.
const fn page(column: Column) -> PageName {
    PageName {
        group: GroupId(0),
        column,
        index: 0,
    }
}

fn written(clock: u64) -> MetaPage {
    MetaPage::filled(Entry::WRITTEN, clock)
}

fn here(ready: &[u64], readable: bool) -> Loaded {
    Loaded::Here {
        ready: ready.iter().map(|&id| OpId(id)).collect(),
        readable,
    }
}

/// A checkpoint that writes these pages.
const fn writing(anchor: u64, pages: &BTreeSet<PageName>) -> CheckpointPages<'_> {
    CheckpointPages {
        written: pages,
        on_their_way: true,
        ..CheckpointPages::none(anchor)
    }
}

impl Lab {
    /// Each column has blocks that are all written.
    fn new() -> Self {
        let cx = Context::of_test("raid6", 6);
        let blocks = cx.geometry.cell_bytes() / BLOCK_BYTES;
        let mut lab = Self {
            pages: PageCache::new(blocks),
            cx,
            ios: IoTable::new(6),
            drives: BTreeMap::new(),
            memory: BTreeMap::new(),
            reads: Vec::new(),
            computes: Vec::new(),
            anchor: 1,
            written: BTreeSet::new(),
        };
        for column in lab.cx.geometry.columns() {
            for copy in 0..2 {
                lab.put(column, copy, &written(5));
            }
        }
        lab
    }

    fn place(&self, column: Column, copy: usize) -> PagePlace {
        let geometry = &self.cx.geometry;
        let beside = (column.0 + u16::try_from(copy).unwrap()) % geometry.layout().columns();
        let beside = Column(beside);
        let cell = geometry.home(GroupId(0), beside);
        let regions = self.cx.geometry.regions().unwrap();
        PagePlace {
            seat: cell.seat,
            offset: self.cx.geometry.page_offset(regions, cell, 0, copy as u64),
            column: beside,
            counts: true,
        }
    }

    fn put(&mut self, column: Column, copy: usize, contents: &MetaPage) {
        let pool = self.cx.geometry.regions().unwrap().pool;
        let place = self.place(column, copy);
        let bytes = contents.encode(pool, page(column));
        self.drives.insert((place.seat, place.offset), bytes);
    }

    fn damage(&mut self, column: Column, copy: usize) {
        let place = self.place(column, copy);
        let bytes = self.drives.get_mut(&(place.seat, place.offset)).unwrap();
        bytes.fill(0xa5);
    }

    fn drive_out(&mut self, column: Column) {
        let seat = self.place(column, 0).seat;
        self.cx.change_view(|view, _| view.seat_out(seat));
    }

    /// Collects the actions since the last call.
    fn collect(&mut self) {
        for action in self.cx.take_actions() {
            match action {
                Action::Io(io) => {
                    assert_eq!(io.kind, IoKind::Read);
                    self.reads.push(io);
                }
                Action::Compute(compute) => self.computes.push(compute),
                Action::Allocate(..) | Action::Release(_) => {}
                other => panic!("{other:?} is not for pages"),
            }
        }
    }

    /// Begins to load pages of columns. Returns those of which there is no copy.
    fn load(&mut self, columns: &[Column]) -> Vec<PageName> {
        let names = columns.iter().map(|&column| page(column));
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let nowhere = self.pages.load(cx, ios, self.anchor, names);
        self.collect();
        nowhere
    }

    fn wait(&mut self, op: u64, columns: &[Column]) -> bool {
        let names = columns.iter().map(|&column| page(column)).collect();
        self.pages.wait(OpId(op), names)
    }

    /// Seats that are asked, and for how many pages.
    fn asked(&self) -> Vec<(u16, u64)> {
        let reads = self.reads.iter();
        reads
            .map(|io| (io.seat.0, io.length / PAGE_BYTES))
            .collect()
    }

    fn seats(&self, places: &[(Column, usize)]) -> Vec<u16> {
        let places = places.iter();
        places
            .map(|&(column, copy)| self.place(column, copy).seat.0)
            .collect()
    }

    /// The drive with a copy answers the first read that it has.
    fn answer(&mut self, column: Column, copy: usize, outcome: Outcome) {
        let seat = self.place(column, copy).seat;
        let at = self.reads.iter().position(|io| io.seat == seat);
        let io = self.reads.remove(at.expect("it was asked"));
        let slice = io.slice.expect("it has memory");
        for number in 0..io.length / PAGE_BYTES {
            let part = number * PAGE_BYTES;
            if let (Ok(()), BufferId::Scratch(scratch)) = (outcome, slice.buffer) {
                let bytes = self.drives.get(&(seat, io.offset + part)).cloned();
                let bytes = bytes.unwrap_or_else(|| vec![0; PAGE_BYTES.try_into().unwrap()]);
                self.memory.insert((scratch, slice.offset + part), bytes);
            }
        }
        let checkpoint = writing(self.anchor, &self.written);
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        match ios.answered(cx, io.id, outcome) {
            Answered::Ended(Ended {
                purpose: Purpose::PageRead { read, seat },
                outcome,
                ..
            }) => {
                let pages = &mut self.pages;
                pages.read_ended(cx, ios, &checkpoint, (read, seat), outcome);
            }
            Answered::Late(late) => {
                let (seat, copies) = (late.seat, late.copies);
                self.pages
                    .late_copies_came(cx, ios, &checkpoint, seat, copies);
                ios.straggler_came_back(cx);
            }
            other => panic!("{other:?} is no read of pages"),
        }
        self.collect();
    }

    /// All drives answer.
    fn answer_all(&mut self) {
        while let Some(io) = self.reads.first() {
            let seat = io.seat;
            let columns = self.cx.geometry.columns();
            let column = { columns }.find(|&column| self.place(column, 0).seat == seat);
            self.answer(column.unwrap(), 0, Ok(()));
        }
    }

    /// The oldest computation ends.
    fn compute(&mut self) -> Loaded {
        let Compute { id, takes, .. } = self.computes.remove(0);
        let bytes_of = |slice: &Slice| match slice.buffer {
            BufferId::Scratch(scratch) => self.memory[&(scratch, slice.offset)].clone(),
            other @ BufferId::Request(_) => panic!("{other:?} has no pages"),
        };
        let computed = Computed {
            bytes: takes.iter().map(bytes_of).collect(),
            ..Computed::default()
        };
        let name = self.page_of(id);
        let checkpoint = writing(self.anchor, &self.written);
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let loaded = { &mut self.pages }.computed(cx, ios, &checkpoint, name, &computed);
        self.collect();
        loaded
    }

    fn page_of(&mut self, id: ComputeId) -> PageName {
        match self.cx.computes.remove(id) {
            Some(Computing::Page(name)) => name,
            other => panic!("{other:?} is no page"),
        }
    }

    /// Loads the page of a column from its copies.
    fn bring(&mut self, column: Column) {
        assert!(self.load(&[column]).is_empty());
        self.answer_all();
        let loaded = self.compute();
        assert!(matches!(loaded, Loaded::Here { .. }), "{loaded:?}");
        self.cx.take_events();
    }

    fn compare_copies(&mut self) {
        let checkpoint = CheckpointPages::none(self.anchor);
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        { &mut self.pages }.compare_copies(cx, ios, &checkpoint, GroupId(0));
        self.collect();
    }

    fn without_copies(&mut self, column: Column) -> Vec<OpId> {
        let checkpoint = CheckpointPages::none(self.anchor);
        { &mut self.pages }.without_copies(&self.cx, &checkpoint, page(column))
    }
}

#[test]
fn a_page_comes_from_all_its_copies_and_what_has_waited_goes_on() {
    let mut lab = Lab::new();
    assert!(lab.load(&[Column(2)]).is_empty());
    assert!(lab.wait(7, &[Column(2)]));
    let seats = lab.seats(&[(Column(2), 0), (Column(2), 1)]);
    assert_eq!(lab.asked(), [(seats[0], 1), (seats[1], 1)]);
    lab.answer(Column(2), 0, Ok(()));
    assert!(lab.computes.is_empty(), "a copy is still to come");
    assert!(lab.pages.reads_group(GroupId(0)) && !lab.pages.reads_group(GroupId(1)));
    lab.answer(Column(2), 1, Ok(()));
    assert_eq!(lab.compute(), here(&[7], true));
    assert_eq!(lab.pages.entry(block(Column(2), 3)), Some(Entry::WRITTEN));
    assert!(lab.pages.is_clean(page(Column(2))) && !lab.pages.reads_group(GroupId(0)));
    assert!(!lab.wait(8, &[Column(2)]), "it is here");
}

#[test]
fn an_operation_goes_on_with_the_last_page_that_it_waits_for() {
    let mut lab = Lab::new();
    assert!(lab.load(&[Column(0), Column(3)]).is_empty());
    lab.wait(7, &[Column(0), Column(3)]);
    lab.wait(8, &[Column(3)]);
    lab.answer_all();
    let first = lab.compute();
    let second = lab.compute();
    assert_eq!(
        [first, second],
        [here(&[], true), here(&[7, 8], true)],
        "in the order in which they began"
    );
}

#[test]
fn what_is_here_or_on_its_way_is_not_read_again() {
    let mut lab = Lab::new();
    lab.load(&[Column(1), Column(1)]);
    assert_eq!(lab.asked().len(), 2);
    lab.load(&[Column(1)]);
    assert_eq!(lab.asked().len(), 2);
    lab.answer_all();
    lab.compute();
    lab.load(&[Column(1)]);
    assert!(lab.asked().is_empty());
}

#[test]
fn neighbours_are_one_read_and_if_it_fails_one_each() {
    let mut lab = Lab::new();
    lab.load(&[Column(2), Column(3)]);
    let seat = lab.place(Column(3), 0).seat.0;
    assert!(lab.asked().contains(&(seat, 2)), "page 3, and a copy of 2");
    lab.answer(Column(3), 0, Err(Fault::Medium));
    assert!(lab.cx.take_events().is_empty(), "which of them is bad?");
    let alone = lab.asked().into_iter().filter(|&asked| asked == (seat, 1));
    assert_eq!(alone.count(), 2);
    lab.answer_all();
    for _ in 0..2 {
        assert_eq!(lab.compute(), here(&[], true));
    }
    assert!(lab.pages.is_clean(page(Column(2))) && lab.pages.is_clean(page(Column(3))));
}

#[test]
fn a_copy_that_cannot_be_read_is_reported_and_written_anew() {
    let mut lab = Lab::new();
    lab.load(&[Column(2)]);
    lab.answer(Column(2), 0, Err(Fault::Medium));
    lab.answer(Column(2), 1, Ok(()));
    assert_eq!(lab.compute(), here(&[], true));
    assert!(lab.pages.is_dirty(page(Column(2))));
    let place = page_places(&lab.cx, page(Column(2)), true)[0];
    let failed = Event::DriveFault {
        seat: place.seat,
        kind: IoKind::Read,
        offset: place.offset,
        fault: Fault::Medium,
        waiting: false,
    };
    assert_eq!(lab.cx.take_events(), [failed]);
}

#[test]
fn of_copies_the_later_one_counts_and_the_older_one_is_reported() {
    let mut lab = Lab::new();
    lab.put(Column(2), 1, &MetaPage::filled(Entry::UNWRITTEN, 4));
    lab.load(&[Column(2)]);
    lab.answer_all();
    assert_eq!(lab.compute(), here(&[], true));
    let older = Event::PageMended {
        seat: lab.place(Column(2), 1).seat,
        group: GroupId(0),
        column: Column(2),
        damaged: false,
    };
    assert_eq!(lab.cx.take_events(), [older]);
    assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(Entry::WRITTEN));
    assert!(lab.pages.is_dirty(page(Column(2))));
}

#[test]
fn a_page_of_which_all_copies_are_damaged_is_lost() {
    let mut lab = Lab::new();
    lab.damage(Column(2), 0);
    lab.damage(Column(2), 1);
    lab.load(&[Column(2)]);
    lab.wait(7, &[Column(2)]);
    lab.answer_all();
    assert_eq!(lab.compute(), here(&[7], false));
    let lost = Event::PageLost {
        group: GroupId(0),
        column: Column(2),
    };
    assert_eq!(lab.cx.take_events().last(), Some(&lost));
    assert!(lab.pages.lack_entries() && lab.pages.is_dirty(page(Column(2))));
}

/// Both copies of the page of column 2 are read with this outcome.
fn both_copies(lab: &mut Lab, outcome: Outcome) {
    for copy in 0..2 {
        lab.answer(Column(2), copy, outcome);
    }
}

#[test]
fn a_page_on_bad_sectors_of_drives_that_work_is_lost() {
    let mut lab = Lab::new();
    lab.load(&[Column(2)]);
    lab.wait(7, &[Column(2)]);
    both_copies(&mut lab, Err(Fault::Medium));
    assert!(lab.computes.is_empty(), "the drives are tried elsewhere");
    both_copies(&mut lab, Ok(()));
    both_copies(&mut lab, Err(Fault::Medium));
    assert_eq!(lab.compute(), here(&[7], false));
    assert!(lab.pages.is_dirty(page(Column(2))));
}

#[test]
fn a_page_of_drives_that_work_again_is_not_lost() {
    let mut lab = Lab::new();
    lab.load(&[Column(2)]);
    both_copies(&mut lab, Err(Fault::Medium));
    both_copies(&mut lab, Ok(()));
    both_copies(&mut lab, Ok(()));
    assert_eq!(lab.compute(), here(&[], true));
    assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(Entry::WRITTEN));
}

#[test]
fn a_drive_that_works_again_delivers_its_copy_beside_one_that_does_not() {
    let mut lab = Lab::new();
    lab.load(&[Column(2)]);
    both_copies(&mut lab, Err(Fault::Medium));
    lab.answer(Column(2), 0, Err(Fault::Medium));
    lab.answer(Column(2), 1, Ok(()));
    lab.answer(Column(2), 1, Ok(()));
    assert_eq!(lab.compute(), here(&[], true));
    assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(Entry::WRITTEN));
}

#[test]
fn more_drives_that_do_not_work_than_the_code_survives_decide_nothing_about_a_page() {
    for fault in [Fault::Medium, Fault::Gone] {
        let mut lab = Lab::new();
        lab.drive_out(Column(5));
        lab.load(&[Column(2)]);
        lab.wait(7, &[Column(2)]);
        lab.wait(8, &[Column(2), Column(3)]);
        both_copies(&mut lab, Err(fault));
        if fault == Fault::Medium {
            both_copies(&mut lab, Err(fault));
        }
        let waited = vec![OpId(7), OpId(8)];
        assert_eq!(lab.compute(), Loaded::Unread { waited, fault });
        assert!(!lab.pages.contains(page(Column(2))) && !lab.pages.lack_entries());
        lab.bring(Column(2));
        assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(Entry::WRITTEN));
    }
}

#[test]
fn blocks_that_an_earlier_life_lost_are_reported() {
    let mut lab = Lab::new();
    for copy in 0..2 {
        lab.put(Column(2), copy, &MetaPage::filled(Entry::UNKNOWN, 5));
    }
    lab.bring(Column(2));
    lab.bring(Column(4));
    for column in [2, 4].map(Column) {
        let (pages, cx) = (&lab.pages, &mut lab.cx);
        pages.report_unknown(cx, page(column));
    }
    assert_eq!(
        lab.cx.take_events(),
        [Event::BlocksUnknown { group: GroupId(0) }],
        "of column 4 all is known"
    );
}

#[test]
fn of_a_page_without_copies_nothing_is_known_and_that_counts() {
    let mut lab = Lab::new();
    lab.drive_out(Column(2));
    lab.drive_out(Column(3));
    assert_eq!(lab.load(&[Column(2)]), [page(Column(2))]);
    lab.wait(7, &[Column(2)]);
    assert_eq!(lab.without_copies(Column(2)), [OpId(7)]);
    assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(Entry::UNKNOWN));
    assert!(
        !lab.pages.is_nowhere(page(Column(2))),
        "it is reconstructed"
    );
}

#[test]
fn a_page_of_a_group_beyond_reading_is_looked_for_again_when_its_drive_is_back() {
    let mut lab = Lab::new();
    for column in [2, 3, 4].map(Column) {
        lab.drive_out(column);
    }
    assert!(
        lab.pages.lacks_beside(&lab.cx, GroupId(0), Column(4)),
        "page 3 and its copy"
    );
    lab.load(&[Column(2)]);
    lab.without_copies(Column(2));
    assert!(lab.pages.is_nowhere(page(Column(2))) && lab.pages.has_nowhere());
    assert!(!lab.pages.is_back(&lab.cx, page(Column(2))));
    lab.pages.set(block(Column(2), 9), Entry::UNWRITTEN);
    assert!(
        !lab.pages.is_dirty(page(Column(2))),
        "it must not be written"
    );

    let seat = lab.place(Column(2), 0).seat;
    lab.cx
        .change_view(|view, geometry| view.seat_current(geometry, seat));
    assert!(lab.pages.is_back(&lab.cx, page(Column(2))));
    let checkpoint = CheckpointPages::none(lab.anchor);
    lab.pages.forget_nowhere(&checkpoint, Some(GroupId(0)));
    assert!(!lab.pages.contains(page(Column(2))) && !lab.pages.lack_entries());
    lab.load(&[Column(2)]);
    lab.answer_all();
    assert_eq!(lab.compute(), here(&[], true));
    assert_eq!(lab.pages.entry(block(Column(2), 9)), Some(Entry::UNWRITTEN));
    assert_eq!(lab.pages.entry(block(Column(2), 8)), Some(Entry::WRITTEN));
    assert!(
        lab.pages.is_dirty(page(Column(2))),
        "the drive does not have it"
    );
}

/// Column 2's page is loaded with its first copy alone. Returns the late read.
fn hurried(lab: &mut Lab) {
    lab.load(&[Column(2)]);
    lab.wait(7, &[Column(2)]);
    let late = lab.place(Column(2), 1).seat;
    let read = lab.ios.in_flight().find_map(|(_, flight)| {
        let Purpose::PageRead { read, seat } = flight.purpose else {
            return None;
        };
        (seat == late).then_some(read)
    });
    let read = read.unwrap();
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    assert!(!lab.pages.hedge(cx, ios, read), "no copy is here yet");
    lab.answer(Column(2), 0, Ok(()));
    let (cx, ios) = (&mut lab.cx, &mut lab.ios);
    assert!(lab.pages.hedge(cx, ios, read));
    lab.collect();
}

#[test]
fn a_page_does_not_wait_for_a_late_copy_and_compares_it_when_it_comes() {
    let mut lab = Lab::new();
    hurried(&mut lab);
    assert_eq!(lab.compute(), here(&[7], true));
    assert!(lab.pages.is_clean(page(Column(2))), "that is no error");
    lab.answer(Column(2), 1, Ok(()));
    assert_eq!(lab.asked().len(), 2, "both are read");
    lab.answer_all();
    assert_eq!(lab.compute(), Loaded::Alike);
    assert!(lab.cx.take_events().is_empty());
}

#[test]
fn a_late_copy_that_was_the_later_one_counts() {
    let mut lab = Lab::new();
    lab.put(Column(2), 1, &MetaPage::filled(Entry::UNWRITTEN, 6));
    hurried(&mut lab);
    lab.compute();
    lab.answer(Column(2), 1, Ok(()));
    lab.answer_all();
    assert_eq!(lab.compute(), Loaded::Differ);
    assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(Entry::UNWRITTEN));
    assert!(lab.pages.is_dirty(page(Column(2))));
    assert_eq!(lab.cx.take_events().len(), 1, "the older one is reported");
}

#[test]
fn a_late_copy_is_asked_for_again_if_the_other_one_is_damaged() {
    let mut lab = Lab::new();
    lab.damage(Column(2), 0);
    hurried(&mut lab);
    assert_eq!(lab.compute(), Loaded::Again(Vec::new()));
    assert!(lab.cx.take_events().is_empty(), "it is not lost");
    // The late read ends, and both copies are there.
    lab.answer_all();
    assert_eq!(lab.compute(), here(&[7], true));
    assert!(matches!(
        lab.cx.take_events()[..],
        [Event::PageMended { damaged: true, .. }]
    ));
}

#[test]
fn copies_are_not_compared_while_all_of_them_are_written() {
    let mut lab = Lab::new();
    hurried(&mut lab);
    lab.compute();
    lab.written.insert(page(Column(2)));
    lab.answer(Column(2), 1, Ok(()));
    assert!(lab.asked().is_empty());
}

#[test]
fn copies_that_were_read_before_an_anchor_are_read_again() {
    let mut lab = Lab::new();
    hurried(&mut lab);
    lab.compute();
    lab.put(Column(2), 1, &MetaPage::filled(Entry::UNWRITTEN, 4));
    lab.answer(Column(2), 1, Ok(()));
    lab.answer_all();
    lab.anchor += 1;
    assert_eq!(lab.compute(), Loaded::Alike, "nothing is said of them");
    assert_eq!(lab.asked().len(), 2);
    lab.answer_all();
    assert_eq!(lab.compute(), Loaded::Differ);
}

#[test]
fn what_was_read_of_a_groups_earlier_life_does_not_count() {
    let mut lab = Lab::new();
    lab.load(&[Column(2)]);
    lab.wait(7, &[Column(2)]);
    lab.answer_all();
    lab.pages.drop_group(GroupId(0));
    for copy in 0..2 {
        lab.put(Column(2), copy, &MetaPage::filled(Entry::UNWRITTEN, 8));
    }
    assert_eq!(lab.compute(), Loaded::Again(Vec::new()));
    lab.answer_all();
    assert_eq!(lab.compute(), here(&[7], true));
    assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(Entry::UNWRITTEN));
}

#[test]
fn pages_are_read_again_but_for_those_that_have_changed_or_are_being_written() {
    let mut lab = Lab::new();
    for column in (0..3).map(Column) {
        lab.bring(column);
    }
    lab.pages.set(block(Column(1), 0), Entry::UNWRITTEN);
    let kept = BTreeSet::from([page(Column(2))]);
    let checkpoint = CheckpointPages {
        read: &kept,
        ..CheckpointPages::none(1)
    };
    lab.pages
        .read_again(&mut lab.cx, &mut lab.ios, &checkpoint, GroupId(0));
    let here = (0..3)
        .map(Column)
        .map(|column| lab.pages.contains(page(column)));
    assert_eq!(here.collect::<Vec<_>>(), [false, true, true]);
}

/// Entries of pages that were dropped for a comparison stayed counted as UNKNOWN. After a scrub of one group with an
/// UNKNOWN block, each later plan of the lane checked every block.
#[test]
fn a_page_that_is_to_be_read_again_counts_no_more_for_what_it_does_not_know() {
    let mut lab = Lab::new();
    for copy in 0..2 {
        lab.put(Column(2), copy, &MetaPage::filled(Entry::UNKNOWN, 5));
    }
    lab.bring(Column(2));
    assert!(lab.pages.lack_entries());
    let checkpoint = CheckpointPages::none(1);
    lab.pages
        .read_again(&mut lab.cx, &mut lab.ios, &checkpoint, GroupId(0));
    assert!(!lab.pages.lack_entries());
}

/// Under a pool that was open, more drives were set back than the code survives. A scrub dropped the pages in memory and
/// believed the old copies: blocks read as zeros, and as what they had been before.
#[test]
fn a_page_in_memory_that_is_later_than_all_copies_stays_and_is_written_again() {
    let mut lab = Lab::new();
    for column in (0..3).map(Column) {
        lab.bring(column);
    }
    for copy in 0..2 {
        lab.put(Column(2), copy, &MetaPage::filled(Entry::UNWRITTEN, 0));
    }
    lab.compare_copies();
    lab.answer_all();
    let compared: Vec<Loaded> = (0..3).map(|_| lab.compute()).collect();
    let differ = compared.iter().filter(|&loaded| *loaded == Loaded::Differ);
    assert_eq!(differ.count(), 1, "{compared:?}");
    assert_eq!(lab.pages.entry(block(Column(2), 3)), Some(Entry::WRITTEN));
    assert!(lab.pages.is_dirty(page(Column(2))) && !lab.pages.is_dirty(page(Column(1))));
}

#[test]
fn a_full_cache_drops_what_nobody_needs() {
    let mut lab = Lab::new();
    let name = |group| PageName {
        group,
        ..page(Column(0))
    };
    let keep = BTreeSet::from([name(GroupId(1))]);
    for group in (0..5000).map(GroupId) {
        let found = if group == GroupId(2) {
            Found::Changed
        } else {
            Found::Same
        };
        lab.pages.insert(name(group), written(1), found, &keep);
    }
    assert!(lab.pages.is_full() && lab.pages.cached.len() == 4096);
    let stay = [1, 2, 4999]
        .map(GroupId)
        .map(|group| lab.pages.contains(name(group)));
    assert_eq!(stay, [true; 3], "kept, changed, and just come");
}

#[test]
fn what_changes_in_a_page_that_is_nowhere_does_not_hide_what_a_drive_brings_back() {
    let mut pages = PageCache::new(8);
    let nowhere = MetaPage::filled(Entry::UNKNOWN, 0);
    let found = Found::Nowhere { owes: true };
    pages.insert(page(Column(0)), nowhere, found, &BTreeSet::new());
    pages.set(block(Column(0), 3), Entry::UNWRITTEN);
    pages.unwritten(page(Column(0)));
    assert!(
        pages.is_nowhere(page(Column(0))),
        "of the others nothing is known"
    );
    assert_eq!(pages.entry(block(Column(0), 3)), Some(Entry::UNWRITTEN));
    assert_eq!(pages.dirty().count(), 0, "it must not be written");

    pages.forget_nowhere(&CheckpointPages::none(0), Some(GroupId(0)));
    assert!(!pages.contains(page(Column(0))), "it is looked for anew");
    let mut brought = MetaPage::filled(Entry::WRITTEN, 1000);
    assert!(pages.put_owed(page(Column(0)), &mut brought));
    assert_eq!(brought.get(3), Entry::UNWRITTEN);
    assert_eq!(brought.get(2), Entry::WRITTEN);
    assert!(brought.latest() > 1000, "it counts as the later one");
    assert!(!pages.lack_entries());
}

#[test]
fn pages_of_a_blank_group_need_not_be_read() {
    let mut lab = Lab::new();
    lab.drive_out(Column(0));
    lab.drive_out(Column(1));
    let blank = lab.pages.blank();
    let none = CheckpointPages::none(lab.anchor);
    lab.pages.put_blank(&lab.cx, &none, GroupId(0), &blank);
    assert!(lab.pages.are_unwritten(block(Column(2), 0), 64));
    assert!(lab.pages.is_clean(page(Column(1))), "one drive has a copy");
    assert!(!lab.pages.contains(page(Column(0))), "no drive has one");
}

/// Regression: a page of which nothing is known also has the entries of a stripe map, behind those of the cell's blocks.
/// When one became known, more was subtracted than had been counted.
#[test]
fn entries_behind_those_of_the_blocks_are_not_counted_as_unknown() {
    let mut pages = PageCache::new(8);
    pages.put(page(Column(0)), MetaPage::filled(Entry::UNKNOWN, 1));
    for index in 0..8 {
        pages.set(block(Column(0), index), Entry::WRITTEN);
    }
    assert!(!pages.lack_entries());
    pages.set(block(Column(0), 8), Entry::WRITTEN);
    pages.set(block(Column(0), 9), Entry::UNKNOWN);
    assert!(!pages.lack_entries());
}
