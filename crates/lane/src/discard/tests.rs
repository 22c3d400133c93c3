use block::BLOCK_BYTES;
use format::{BlockName, Column, DataStripe, Entry, GroupId, HeldIn, MetaPage, Sequence, StripeId};
use plan::action::Action;

use super::*;
use crate::blocks::block;
use crate::entries::Entries;
use crate::maps::{MapEntries, Taken};
use crate::overlay::{Bytes, Logged, Overlay};
use crate::pages::{CheckpointPages, PageCache};

/// The discards of a small lane: all of it is unwritten, and all its pages are in memory. It has 16 stripes of four
/// blocks of each of six columns.
struct Lab {
    discards: Discards,
    cx: Context,
    ios: IoTable,
    overlay: Overlay,
    pages: PageCache,
    maps: StripeMaps,
    /// Pages that the running checkpoint writes.
    written: BTreeSet<PageName>,
    has_job: bool,
    past_ring: bool,
}

const OP: OpId = OpId(1000);
const STRIPES: u64 = 16;

/// A stripe of group 0.
const fn emptied(stripe: StripeId) -> Emptied {
    Emptied {
        only: None,
        group: GroupId(0),
        stripe,
    }
}

impl Lab {
    fn new() -> Self {
        Self::with_free_stripes(0)
    }

    fn with_free_stripes(free_stripes: u64) -> Self {
        let change = |regions: &mut plan::Regions| regions.free_stripes = free_stripes;
        let cx = Context::of_test_with("raid6", 6, 256 << 10, change);
        assert_eq!(cx.geometry.stripes_per_group(), STRIPES);
        let mut pages = PageCache::new(64);
        for column in (0..6).map(Column) {
            let page = MetaPage::filled(Entry::UNWRITTEN, 1);
            pages.put(block(column, 0).page(), page);
        }
        let mut lab = Self {
            discards: Discards::default(),
            cx,
            ios: IoTable::new(6),
            overlay: Overlay::default(),
            pages,
            maps: StripeMaps::default(),
            written: BTreeSet::new(),
            has_job: false,
            past_ring: true,
        };
        let entries = MapEntries {
            overlay: &lab.overlay,
            pages: &lab.pages,
            sequence: Sequence(100),
        };
        assert_eq!(lab.maps.load(&lab.cx, entries, GroupId(0)), Ok(Vec::new()));
        lab
    }

    /// A checkpoint has made these stripes unwritten, and is durable.
    fn unwritten(&mut self, stripes: Range<StripeId>) {
        self.discards
            .made_unwritten(StripeId::each(stripes).map(emptied));
        assert!(self.checkpoint_ends(true));
    }

    fn checkpoint_ends(&mut self, whole: bool) -> bool {
        { &mut self.discards }.checkpoint_ended(&self.cx, &self.maps, whole)
    }

    fn next(&mut self) -> Option<Run> {
        self.discards.next(&self.cx, self.past_ring)
    }

    /// The next run of stripes of group 0.
    fn next_stripes(&mut self) -> Option<Range<u64>> {
        let run = self.next()?;
        assert_eq!((run.group, run.what), (GroupId(0), Discarded::Stripes));
        Some(StripeId::numbers(&run.stripes))
    }

    /// A run has its locks.
    fn begin(&mut self, run: &Run) -> Begun {
        let known = KnownSpace {
            entries: Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            },
            maps: &self.maps,
            checkpoint: CheckpointPages {
                written: &self.written,
                ..CheckpointPages::none(0)
            },
            has_job: self.has_job,
        };
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        self.discards
            .begin(cx, ios, &known, (OP, run), self.past_ring)
    }

    /// The next run, which has its locks at once.
    fn begin_next(&mut self) -> Begun {
        let run = self.next().expect("a run");
        self.begin(&run)
    }

    /// What drives are asked to discard: seat, first block and blocks.
    fn asked(&mut self) -> Vec<(u16, u64, u64)> {
        let geometry = std::sync::Arc::clone(&self.cx.geometry);
        let asked = |io: Io| {
            assert_eq!(io.kind, IoKind::Discard);
            let block = geometry.block_of(io.offset);
            (io.seat.0, block, io.length / BLOCK_BYTES)
        };
        self.ios.end_turn(&mut self.cx);
        let actions = self.cx.take_actions().into_iter();
        let ios = actions.filter_map(|action| match action {
            Action::Io(io) => Some(asked(io)),
            _ => None,
        });
        ios.collect()
    }

    /// All drives that were asked have this outcome.
    fn answer(&mut self, drives: usize, outcome: Outcome) {
        for left in (0..drives).rev() {
            assert_eq!(self.discards.discarded(outcome), left == 0);
        }
        self.discards.end(&mut self.cx);
    }

    fn log(&mut self, name: BlockName) {
        let logged = Logged {
            bytes: Bytes::InPlace,
            entry: Entry::WRITTEN,
            sequence: Sequence(7),
        };
        self.overlay.insert(name, logged);
    }

    fn ring(&mut self, taken: u64, unused: bool) -> usize {
        let ring = RingUse {
            blocks: 80,
            taken,
            unused,
        };
        { &mut self.discards }.begin_ring(&mut self.cx, &mut self.ios, ring);
        self.cx.take_actions().len()
    }
}

#[test]
fn stripes_that_a_durable_checkpoint_made_unwritten_are_discarded_in_all_columns() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(3..5));
    assert_eq!(lab.begin_next(), Begun::Asked);
    let asked: Vec<_> = (0..6).map(|seat| (seat, 12, 8)).collect();
    assert_eq!(lab.asked(), asked);
    lab.answer(6, Ok(()));
    assert_eq!(lab.next(), None);
}

#[test]
fn what_a_checkpoint_that_held_something_back_made_unwritten_is_left() {
    let mut lab = Lab::new();
    lab.discards.made_unwritten([emptied(StripeId(3))]);
    assert!(!lab.checkpoint_ends(false));
    assert!(lab.checkpoint_ends(true));
    assert_eq!(lab.next(), None);
}

#[test]
fn one_run_is_under_way_at_a_time() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..1));
    lab.unwritten(StripeId::range(9..10));
    assert_eq!(lab.next_stripes(), Some(0..1));
    assert_eq!(lab.next_stripes(), None);
    lab.discards.end(&mut lab.cx);
    assert_eq!(lab.next_stripes(), Some(9..10));
}

#[test]
fn nothing_is_discarded_that_the_ring_may_still_describe() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..1));
    lab.past_ring = false;
    assert_eq!(lab.next_stripes(), None);
    lab.past_ring = true;
    let run = lab.next().unwrap();
    assert!(lab.discards.needs_map(&run, true));
    lab.past_ring = false;
    assert!(!lab.discards.needs_map(&run, false));
    assert_eq!(lab.begin(&run), Begun::Nothing);
    lab.discards.end(&mut lab.cx);
    lab.past_ring = true;
    assert_eq!(lab.next_stripes(), None, "a checkpoint ends first");
    lab.unwritten(StripeId::range(5..5));
    assert_eq!(lab.next_stripes(), Some(0..1));
}

#[test]
fn stripes_that_were_written_since_are_not_discarded() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..5));
    // Stripe 1 is logged, stripe 2 trimmed again, stripe 3 in place and its entry on drives.
    lab.log(block(Column(2), 4));
    lab.overlay.zero(
        GroupId(0),
        StripeId::range(2..3),
        Sequence(8),
        std::iter::empty(),
    );
    let mut page = MetaPage::filled(Entry::UNWRITTEN, 1);
    page.set(block(Column(2), 12).entry(), Entry::WRITTEN, 2);
    lab.pages.put(block(Column(2), 0).page(), page);
    assert_eq!(lab.begin_next(), Begun::Asked);
    let asked: Vec<_> = (0..6)
        .flat_map(|seat| [(seat, 0, 4), (seat, 16, 4)])
        .collect();
    assert_eq!(lab.asked(), asked);
}

#[test]
fn pages_that_are_not_in_memory_are_read_first() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..1));
    lab.pages = PageCache::new(64);
    let run = lab.next().unwrap();
    let Begun::Missing(names) = lab.begin(&run) else {
        panic!("no page is here");
    };
    assert_eq!(names.len(), 6);
    for name in names {
        lab.pages.put(name, MetaPage::filled(Entry::UNWRITTEN, 1));
    }
    assert_eq!(lab.begin(&run), Begun::Asked);
}

#[test]
fn pages_that_drives_do_not_have_put_it_off_until_a_checkpoint_has_ended() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..1));
    lab.pages.set(block(Column(3), 60), Entry::WRITTEN);
    assert_eq!(lab.begin_next(), Begun::Nothing);
    lab.discards.end(&mut lab.cx);
    assert_eq!(lab.next(), None);
    lab.pages.written(block(Column(3), 0).page());
    lab.written.insert(block(Column(3), 0).page());
    lab.unwritten(StripeId::range(5..5));
    assert_eq!(lab.begin_next(), Begun::Nothing, "it is on its way");
    lab.discards.end(&mut lab.cx);
    lab.written.clear();
    lab.unwritten(StripeId::range(5..5));
    assert_eq!(lab.begin_next(), Begun::Asked);
}

#[test]
fn a_column_that_is_not_at_home_alone_is_not_discarded() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..1));
    lab.ios.suspect(Seat(1), true);
    lab.ios.begin_twin(Seat(2), Seat(7));
    lab.cx.change_view(|view, geometry| {
        view.seat_out(Seat(3));
        view.begin_fill(
            geometry,
            GroupId(0),
            Column(4),
            geometry.home(GroupId(0), Column(4)),
        );
    });
    assert_eq!(lab.begin_next(), Begun::Asked);
    let seats: Vec<u16> = lab.asked().iter().map(|&(seat, ..)| seat).collect();
    assert_eq!(seats, [0, 5]);
}

#[test]
fn a_group_of_no_volume_is_discarded_whole_whatever_its_entries_say() {
    let mut lab = Lab::new();
    lab.discards.groups_freed(&lab.cx, &[(0, 1)]);
    lab.pages = PageCache::new(64);
    let run = lab.next().unwrap();
    assert!(!lab.discards.needs_map(&run, true));
    assert_eq!(lab.begin(&run), Begun::Asked);
    let asked: Vec<_> = (0..6).map(|seat| (seat, 0, 64)).collect();
    assert_eq!(lab.asked(), asked);
}

#[test]
fn a_group_that_is_logged_written_or_worked_on_is_put_off() {
    let mut lab = Lab::new();
    let put_off = |lab: &mut Lab| {
        lab.discards.groups_freed(&lab.cx, &[(0, 1)]);
        let put_off = lab.begin_next() == Begun::Nothing;
        lab.discards = Discards::default();
        put_off
    };
    lab.has_job = true;
    assert!(put_off(&mut lab));
    lab.has_job = false;
    lab.written.insert(block(Column(3), 0).page());
    assert!(put_off(&mut lab));
    lab.written.clear();
    assert!(!put_off(&mut lab));
    lab.overlay.zero(
        GroupId(0),
        StripeId::range(2..3),
        Sequence(8),
        std::iter::empty(),
    );
    assert!(put_off(&mut lab));
}

#[test]
fn drives_that_take_no_discards_are_asked_once() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..1));
    lab.unwritten(StripeId::range(9..10));
    assert_eq!(lab.begin_next(), Begun::Asked);
    lab.answer(6, Err(Fault::Invalid));
    assert_eq!(lab.next(), None);
    // A drive that fails one discard may take the next.
    lab.unwritten(StripeId::range(0..1));
    lab.unwritten(StripeId::range(9..10));
    assert_eq!(lab.begin_next(), Begun::Asked);
    lab.answer(6, Err(Fault::Medium));
    assert_eq!(lab.next_stripes(), Some(9..10));
}

#[test]
fn a_pool_that_is_being_closed_hears_of_its_checkpoint_after_all_discards() {
    let mut lab = Lab::new();
    lab.unwritten(StripeId::range(0..1));
    lab.unwritten(StripeId::range(9..10));
    assert_eq!(lab.begin_next(), Begun::Asked);
    lab.discards.pause();
    lab.discards.report_checkpointed(&mut lab.cx);
    assert_eq!(lab.cx.take_events(), []);
    lab.answer(6, Ok(()));
    assert_eq!(lab.cx.take_events(), [Event::Checkpointed { lane: 0 }]);
    assert_eq!(lab.next(), None, "nothing more is begun");
    lab.discards.resume();
    assert_eq!(lab.next_stripes(), Some(9..10));
}

#[test]
fn a_group_that_begins_a_new_life_is_not_discarded_for_the_old_one() {
    let mut lab = Lab::new();
    lab.discards.groups_freed(&lab.cx, &[(0, 10)]);
    lab.unwritten(StripeId::range(3..5));
    lab.discards.made_unwritten([emptied(StripeId(9))]);
    let run = lab.next().unwrap();
    lab.discards.forget(GroupId::range(1..3));
    assert!(!lab.discards.is_forgotten());
    // The run waits for its locks: it must not become a candidate again.
    lab.discards.forget(GroupId::range(0..1));
    assert!(!lab.discards.needs_map(&run, true));
    assert_eq!(lab.begin(&run), Begun::Nothing);
    lab.discards.end(&mut lab.cx);
    assert!(lab.checkpoint_ends(true));
    let next = lab.next().unwrap();
    assert_eq!((next.group, next.what), (GroupId(3), Discarded::Group));
}

#[test]
fn free_stripes_are_left_but_in_a_group_that_holds_nothing() {
    let mut lab = Lab::with_free_stripes(2);
    let free: Vec<u64> = (0..STRIPES)
        .filter(|&stripe| lab.maps.is_known_free(GroupId(0), StripeId(stripe)))
        .collect();
    assert_eq!(free.len(), 2);
    lab.log(block(Column(0), 0));
    lab.unwritten(StripeId::range(3..4));
    assert_eq!(lab.begin_next(), Begun::Asked);
    lab.answer(6, Ok(()));
    assert_eq!(lab.next(), None, "block 0 counts");
    lab.overlay = Overlay::default();
    lab.unwritten(StripeId::range(3..4));
    assert_eq!(lab.begin_next(), Begun::Asked);
    lab.answer(6, Ok(()));
    let free = free[0]..free[1] + 1;
    assert_eq!(lab.next_stripes(), Some(free));
}

#[test]
fn a_stripe_that_data_has_left_is_not_a_candidate() {
    let mut lab = Lab::with_free_stripes(2);
    let Taken::Stripe(to) = lab
        .maps
        .take_free((GroupId(0), StripeId(3)), false, |_| true)
    else {
        panic!("two are free");
    };
    assert!(lab.maps.moved(
        &mut lab.cx,
        (GroupId(0), DataStripe(3)),
        HeldIn::parity(to),
        Sequence(9)
    ));
    lab.unwritten(StripeId::range(3..5));
    assert_eq!(lab.next_stripes(), Some(4..5));
}

#[test]
fn the_ring_is_discarded_when_it_is_unused_and_enough_was_written_there() {
    let mut lab = Lab::new();
    assert_eq!(lab.ring(9, true), 0, "less than an eighth");
    assert_eq!(lab.ring(10, false), 0);
    lab.ios.suspect(Seat(1), true);
    lab.cx.change_view(|view, _| view.seat_out(Seat(3)));
    assert_eq!(lab.ring(10, true), 4);
    assert!(lab.discards.hold_log());
    lab.discards.report_checkpointed(&mut lab.cx);
    for _ in 0..4 {
        assert_eq!(lab.cx.take_events(), []);
        lab.discards.ring_discarded(&mut lab.cx);
    }
    assert_eq!(lab.cx.take_events(), [Event::Checkpointed { lane: 0 }]);
    assert!(!lab.discards.hold_log());
    assert_eq!(lab.ring(19, true), 0, "less than an eighth since");
    lab.discards.pause();
    assert_eq!(lab.ring(20, true), 0);
}
