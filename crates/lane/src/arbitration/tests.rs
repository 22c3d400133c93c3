use block::Seat;
use erasure::ElementSet;
use format::{Column, Entry, Form, GroupId, Sequence, StripeId};
use plan::ScratchId;
use plan::action::BufferId;

use super::*;
use crate::blocks::block;
use crate::overlay::{Bytes, Logged, Overlay};
use crate::pages::{PageCache, sum_of};

/// A search among the rows of stripe 1 of a small lane, whose blocks were all written by batch 9: blocks 4 to 7 of six columns.
struct Lab {
    arbitration: Arbitration,
    cx: Context,
    overlay: Overlay,
    pages: PageCache,
}

const ROW: Row = Row {
    stripe: StripeId(1),
    form: Form::Parity,
    low: 0,
};
const NEXT: Row = Row {
    stripe: StripeId(1),
    form: Form::Parity,
    low: BLOCK_BYTES,
};

impl Lab {
    /// Pages have this many copies. Two copies are as many as the drives that the code may lose.
    fn new(page_copies: Option<u16>) -> Self {
        let change = |regions: &mut plan::Regions| regions.page_copies = page_copies;
        let cx = Context::of_test_with("raid6", 6, 256 << 10, change);
        Self {
            arbitration: Arbitration::default(),
            pages: PageCache::of_test(&cx),
            cx,
            overlay: Overlay::default(),
        }
    }

    fn written(&mut self, column: Column, at: u32, sequence: Sequence) {
        let pool = self.cx.geometry.regions().unwrap().pool;
        let name = block(column, at);
        let entry = Entry::new(pool, name, sum_of(name), sequence);
        self.pages.set(name, entry);
    }

    /// The block of a column in `ROW`, or the row behind it, reconstructed with the content that it should have, or
    /// not.
    fn reconstructed(&self, column: Column, row: Row, right: bool) -> Reconstructed {
        let name = block(column, if row == ROW { 4 } else { 5 });
        let sum = sum_of(name) + u32::from(!right);
        Reconstructed { name, row, sum }
    }

    fn compare(
        &self,
        blocks: &[Reconstructed],
        scrubbed: Option<&BTreeSet<(Column, u64)>>,
    ) -> Option<Vec<(Row, usize)>> {
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let blocks = blocks.iter().copied();
        let doubts = { &self.arbitration }.compare(&self.cx, entries, GroupId(0), blocks, scrubbed);
        doubts.map(|doubts| doubts.into_iter().collect())
    }

    /// The slot of a column in stripe 1.
    fn slot(&self, column: Column) -> usize {
        let places = 0..self.cx.geometry.code().elements();
        let mut places = places.map(|slot| {
            self.cx
                .geometry
                .place(GroupId(0), StripeId(1), Form::Parity, slot)
                .0
        });
        places.position(|other| other == column).unwrap()
    }

    /// Tries `ROW` with each of these columns doubted. `right`: all results match, except that of the doubted column.
    fn try_columns(&mut self, columns: &[(Column, bool)]) -> Vec<(usize, u64)> {
        let code = self.cx.geometry.code();
        let mut trials = Vec::new();
        let mut sums = Vec::new();
        for &(column, right) in columns {
            let doubted = self.slot(column);
            let believed: ElementSet = (0..6).filter(|&slot| slot != doubted).collect();
            let slice = Slice {
                buffer: BufferId::Scratch(ScratchId(1)),
                offset: 0,
                length: BLOCK_BYTES,
            };
            let computed = |&slot: &usize| !code.is_data(slot) || slot == doubted;
            let results: Vec<usize> = (0..6).filter(computed).collect();
            for &slot in &results {
                let (column, _) =
                    self.cx
                        .geometry
                        .place(GroupId(0), StripeId(1), Form::Parity, slot);
                let same = right && slot != doubted;
                sums.push(sum_of(block(column, 4)) + u32::from(!same));
            }
            trials.push(Trial {
                row: ROW,
                believed,
                doubted: vec![column],
                results: results.into_iter().map(|slot| (slot, slice)).collect(),
            });
        }
        self.arbitration.begin_trials(trials);
        assert!(self.arbitration.is_trying());
        assert_eq!(self.arbitration.results().count(), sums.len());
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let stale = { &mut self.arbitration }.tried(
            &mut self.cx,
            entries,
            GroupId(0),
            &sums,
            Sequence(100),
        );
        assert!(!self.arbitration.is_trying());
        stale
    }

    fn doubt(&mut self, rows: &[(Row, usize)]) {
        let doubts = rows.iter().copied().collect();
        self.arbitration
            .doubt(&self.cx.geometry, GroupId(0), doubts);
    }

    /// A column of data in stripe 1.
    fn data(&self) -> Column {
        let slot = self.cx.geometry.code().data_slots().next().unwrap();
        self.cx
            .geometry
            .place(GroupId(0), StripeId(1), Form::Parity, slot)
            .0
    }
}

#[test]
fn what_agrees_with_its_entry_is_right() {
    let lab = Lab::new(None);
    let blocks = [
        lab.reconstructed(Column(2), ROW, true),
        lab.reconstructed(Column(2), NEXT, true),
    ];
    assert_eq!(lab.compare(&blocks, None), Some(vec![]));
}

#[test]
fn a_row_with_a_block_that_differs_is_in_doubt_with_one_column() {
    let lab = Lab::new(None);
    let blocks = [
        lab.reconstructed(Column(2), ROW, true),
        lab.reconstructed(Column(2), NEXT, false),
    ];
    assert_eq!(lab.compare(&blocks, None), Some(vec![(NEXT, 1)]));
}

#[test]
fn what_is_logged_or_trimmed_counts_before_pages() {
    let mut lab = Lab::new(None);
    let name = block(Column(2), 4);
    let logged = Logged {
        bytes: Bytes::Nowhere,
        entry: Entry::new(
            lab.cx.geometry.regions().unwrap().pool,
            name,
            77,
            Sequence(10),
        ),
        sequence: Sequence(10),
    };
    lab.overlay.insert(name, logged);
    let new = Reconstructed {
        name,
        row: ROW,
        sum: 77,
    };
    assert_eq!(lab.compare(&[new], None), Some(vec![]));
    lab.overlay = Overlay::default();
    lab.overlay.zero(
        GroupId(0),
        StripeId::range(1..2),
        Sequence(11),
        std::iter::empty(),
    );
    let zero = Reconstructed {
        sum: block::crc32c(&[0; 4096]),
        ..new
    };
    assert_eq!(lab.compare(&[zero], None), Some(vec![]));
    assert_eq!(lab.compare(&[new], None), Some(vec![(ROW, 1)]));
}

#[test]
fn a_page_that_was_dropped_is_read_again_first() {
    let mut lab = Lab::new(None);
    lab.pages = PageCache::new(64);
    let blocks = [lab.reconstructed(Column(2), ROW, false)];
    assert_eq!(lab.compare(&blocks, None), None);
}

#[test]
fn where_one_drive_may_have_all_copies_of_an_entry_an_unknown_one_puts_its_row_in_doubt() {
    let name = block(Column(2), 4);
    // Of three copies one is left when the two drives that the code may lose are gone.
    for (copies, expected) in [(None, vec![(ROW, 0)]), (Some(3), vec![])] {
        let mut lab = Lab::new(copies);
        lab.pages.set(name, Entry::UNKNOWN);
        let blocks = [lab.reconstructed(Column(2), ROW, true)];
        assert_eq!(lab.compare(&blocks, None), Some(expected));
        assert_eq!(
            lab.compare(&blocks, Some(&BTreeSet::new())),
            Some(vec![]),
            "a scrub"
        );
    }
}

#[test]
fn a_scrub_leaves_a_row_with_a_bad_block_to_the_repair_of_that() {
    let lab = Lab::new(None);
    let blocks = [
        lab.reconstructed(Column(2), ROW, false),
        lab.reconstructed(Column(2), NEXT, false),
    ];
    let bad = BTreeSet::from([(Column(5), 4)]);
    assert_eq!(lab.compare(&blocks, Some(&bad)), Some(vec![(NEXT, 1)]));
}

#[test]
fn rows_are_tried_that_doubt_as_many_columns_as_the_first() {
    let mut lab = Lab::new(None);
    let third = Row {
        stripe: StripeId(1),
        form: Form::Parity,
        low: 2 * BLOCK_BYTES,
    };
    lab.doubt(&[(ROW, 1), (NEXT, 2), (third, 1)]);
    assert_eq!(lab.arbitration.in_doubt(), 3);
    assert_eq!(lab.arbitration.next_rows(6), (vec![ROW, third], 1));
    let many = (0..200)
        .map(StripeId)
        .map(|stripe| (Row { stripe, ..ROW }, 2));
    lab.arbitration.begin(many.collect());
    let (rows, doubted) = lab.arbitration.next_rows(6);
    assert_eq!((rows.len(), doubted), (TRIALS_MAX / 15, 2));
}

#[test]
fn the_column_without_which_the_rest_agrees_is_stale_if_it_is_older() {
    let mut lab = Lab::new(None);
    let column = lab.data();
    lab.written(column, 4, Sequence(5));
    lab.doubt(&[(ROW, 1)]);
    let other = Column((column.0 + 1) % 6);
    let stale = lab.try_columns(&[(column, true), (other, false)]);
    assert_eq!(stale, [(lab.slot(column), 0)]);
    let cell = lab.cx.geometry.home(GroupId(0), column);
    let bad = Event::BlockBad {
        seat: cell.seat,
        offset: lab.cx.geometry.block_offset(cell, 4),
        blocks: 1,
        group: GroupId(0),
        column,
    };
    assert_eq!(lab.cx.take_events(), [bad]);
    assert_eq!(lab.arbitration.in_doubt(), 0);
    assert!(lab.arbitration.distrusted().contains(&(column, 4)));
    // The stale block is not compared again, and is repaired.
    let blocks = [lab.reconstructed(column, ROW, false)];
    assert_eq!(lab.compare(&blocks, None), Some(vec![]));
    let rows = lab.arbitration.rows_to_repair(&lab.cx, GroupId(0));
    assert_eq!(rows, BTreeSet::from([ROW]));
}

#[test]
fn what_is_stale_in_a_column_that_is_away_is_not_repaired() {
    let mut lab = Lab::new(None);
    let column = lab.data();
    lab.written(column, 4, Sequence(5));
    let seat: Seat = lab.cx.geometry.home(GroupId(0), column).seat;
    lab.cx.change_view(|view, _| view.seat_out(seat));
    lab.doubt(&[(ROW, 1)]);
    assert_eq!(lab.try_columns(&[(column, true)]), []);
    assert_eq!(lab.cx.take_events(), []);
    assert!(
        lab.arbitration
            .rows_to_repair(&lab.cx, GroupId(0))
            .is_empty()
    );
}

#[test]
fn trials_that_are_all_wrong_doubt_one_column_more_until_the_code_cannot() {
    let mut lab = Lab::new(None);
    lab.doubt(&[(ROW, 1)]);
    assert_eq!(
        lab.try_columns(&[(Column(0), false), (Column(1), false)]),
        []
    );
    assert_eq!(lab.arbitration.next_rows(6), (vec![ROW], 2));
    assert_eq!(
        lab.try_columns(&[(Column(0), false), (Column(1), false)]),
        []
    );
    assert_eq!(lab.arbitration.in_doubt(), 0, "P and Q survive two");
    let distrusted: BTreeSet<(Column, u64)> = (0..6).map(|column| (Column(column), 4)).collect();
    assert_eq!(*lab.arbitration.distrusted(), distrusted);
}

#[test]
fn a_row_that_was_judged_and_is_in_doubt_again_is_not_believed() {
    let mut lab = Lab::new(None);
    let column = lab.data();
    lab.written(column, 4, Sequence(5));
    lab.doubt(&[(ROW, 1)]);
    lab.try_columns(&[(column, true)]);
    lab.doubt(&[(ROW, 1), (NEXT, 1)]);
    assert_eq!(lab.arbitration.next_rows(6), (vec![NEXT], 1));
    assert_eq!(lab.arbitration.distrusted().len(), 6);
}

#[test]
fn a_page_that_was_dropped_leaves_its_row_in_doubt() {
    let mut lab = Lab::new(None);
    lab.doubt(&[(ROW, 1)]);
    lab.pages = PageCache::new(64);
    assert_eq!(lab.try_columns(&[(Column(0), true)]), []);
    assert_eq!(lab.arbitration.next_rows(6), (vec![ROW], 1));
}

#[test]
fn trials_whose_memory_is_released_are_forgotten() {
    let mut lab = Lab::new(None);
    lab.arbitration.begin_trials(vec![Trial {
        row: ROW,
        believed: ElementSet::new(6),
        doubted: vec![Column(1)],
        results: Vec::new(),
    }]);
    lab.arbitration.drop_trials();
    assert!(!lab.arbitration.is_trying());
}
