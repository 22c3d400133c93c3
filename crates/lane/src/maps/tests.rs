use format::{Column, DataStripe, GroupId, Sequence, StripeId};

use super::*;
use crate::epochs::Epoch;
use crate::overlay::{Bytes, Logged};

/// The maps of a small lane with two free stripes, over pages by which nothing has moved.
struct Lab {
    maps: StripeMaps,
    cx: Context,
    overlay: Overlay,
    pages: PageCache,
    progress: Progress,
}

/// The number of the next batch.
const NEXT: Sequence = Sequence(100);

impl Lab {
    fn new() -> Self {
        let mut lab = Self {
            maps: StripeMaps::default(),
            cx: Context::of_test_with("raid6", 6, 256 << 10, |regions| regions.free_stripes = 2),
            overlay: Overlay::default(),
            pages: PageCache::new(64),
            progress: Progress {
                completed: Sequence(10),
                flushed: Sequence(10),
                gaps: false,
            },
        };
        for name in pages_of_map(&lab.cx.geometry, GroupId(0)) {
            let page = MetaPage::filled(Entry::UNWRITTEN, 1);
            lab.pages.put(name, page);
        }
        lab
    }

    fn stripes(&self) -> u64 {
        self.cx.geometry.stripes_per_group()
    }

    fn load(&mut self) -> Result<Vec<(BlockName, Entry)>, BTreeSet<PageName>> {
        let entries = MapEntries {
            overlay: &self.overlay,
            pages: &self.pages,
            sequence: NEXT,
        };
        self.maps.load(&self.cx, entries, GroupId(0))
    }

    /// With the map of group 0 in memory.
    fn loaded() -> Self {
        let mut lab = Self::new();
        assert_eq!(lab.load(), Ok(Vec::new()));
        lab
    }

    fn known(&self) -> Known<'_> {
        let entries = MapEntries {
            overlay: &self.overlay,
            pages: &self.pages,
            sequence: NEXT,
        };
        self.maps.if_known(&self.cx, entries, GroupId(0))
    }

    fn holding(&self, data: u64) -> Option<StripeId> {
        self.maps
            .stripe_holding(&self.cx, GroupId(0), DataStripe(data))
    }

    /// By a page of the map of a column, a stripe of the data has moved.
    fn page_says(&mut self, column: Column, data: u64, to: StripeId, sequence: Sequence) {
        let name = { &self.cx.geometry }.map_name(GroupId(0), column, DataStripe(data));
        self.pages
            .set(name, Entry::of_map(HeldIn::parity(to), sequence));
    }

    fn take(&mut self, from: u64) -> Taken {
        self.maps
            .take_free((GroupId(0), StripeId(from)), false, |_| true)
    }

    fn wait(&mut self, op: u64) {
        self.maps.wait(GroupId(0), OpId(op));
    }

    /// Batch `sequence` logs that a stripe of the data is in a free stripe that was taken for it.
    fn moved(&mut self, data: u64, to: StripeId, sequence: Sequence) -> bool {
        let to = HeldIn::parity(to);
        self.progress.completed = self.progress.completed.max(sequence);
        self.maps
            .moved(&mut self.cx, (GroupId(0), DataStripe(data)), to, sequence)
    }

    fn pump(&mut self) -> Pumped {
        self.maps.pump(&self.cx, self.progress, true)
    }
}

fn go_on(ops: &[u64]) -> Pumped {
    Pumped {
        go_on: ops.iter().map(|&op| OpId(op)).collect(),
        ..Pumped::default()
    }
}

fn stay(ops: &[u64]) -> Pumped {
    Pumped {
        stay: ops.iter().map(|&op| OpId(op)).collect(),
        ..Pumped::default()
    }
}

#[test]
fn in_a_pool_without_free_stripes_all_data_is_in_its_own_place() {
    let mut lab = Lab::new();
    lab.cx = Context::of_test("raid6", 6);
    lab.pages = PageCache::new(64);
    assert_eq!(lab.load(), Ok(Vec::new()), "without a page");
    assert_eq!(lab.holding(3), Some(StripeId(3)));
    assert_eq!(
        lab.maps.data_held_by(&lab.cx, GroupId(0), StripeId(3)),
        Some(DataStripe(3))
    );
    assert!(matches!(lab.known(), Known::Unmoved));
    assert!(!lab.moved(3, StripeId(4), Sequence(11)), "no entry says so");
}

#[test]
fn a_map_is_made_when_its_pages_are_there() {
    let mut lab = Lab::new();
    let pages = std::mem::replace(&mut lab.pages, PageCache::new(64));
    let wanted = pages_of_map(&lab.cx.geometry, GroupId(0));
    assert_eq!(lab.load(), Err(wanted));
    assert_eq!(lab.holding(3), None);
    assert!(matches!(lab.known(), Known::Nothing));
    lab.pages = pages;
    assert_eq!(
        lab.known().stripe_holding(DataStripe(3)),
        Some(StripeId(3)),
        "for a look"
    );
    assert_eq!(lab.holding(3), None, "and not kept");
    assert_eq!(lab.load(), Ok(Vec::new()));
    assert_eq!(lab.holding(3), Some(StripeId(3)));
    let free = lab.stripes() - 2..lab.stripes();
    let known_free =
        (0..lab.stripes()).filter(|&stripe| lab.maps.is_known_free(GroupId(0), StripeId(stripe)));
    assert!(known_free.eq(free));
}

#[test]
fn what_is_logged_counts_and_not_what_the_page_says() {
    let mut lab = Lab::new();
    let to = StripeId(lab.stripes() - 1);
    for column in lab.cx.geometry.columns() {
        let name = lab.cx.geometry.map_name(GroupId(0), column, DataStripe(1));
        let logged = Logged {
            bytes: Bytes::InPlace,
            entry: Entry::of_map(HeldIn::parity(to), Sequence(40)),
            sequence: Sequence(40),
        };
        lab.overlay.insert(name, logged);
    }
    assert_eq!(lab.load(), Ok(Vec::new()), "its page is written later");
    assert_eq!(lab.holding(1), Some(to));
    assert_eq!(
        lab.maps.data_held_by(&lab.cx, GroupId(0), to),
        Some(DataStripe(1))
    );
}

#[test]
fn columns_that_lack_a_move_or_have_an_older_one_are_corrected() {
    let mut lab = Lab::new();
    let to = StripeId(lab.stripes() - 1);
    let last = Column(lab.cx.geometry.layout().columns() - 1);
    lab.page_says(Column(0), 1, to, Sequence(40));
    for column in Column::each(Column(1)..last) {
        lab.page_says(column, 1, to, Sequence(50));
    }
    let latest = Entry::of_map(HeldIn::parity(to), Sequence(50));
    let name = |column| lab.cx.geometry.map_name(GroupId(0), column, DataStripe(1));
    let expected = vec![(name(Column(0)), latest), (name(last), latest)];
    assert_eq!(lab.load(), Ok(expected));
    assert_eq!(lab.holding(1), Some(to));
}

#[test]
fn data_moves_to_a_free_stripe_and_its_old_one_is_free_when_that_is_durable() {
    let mut lab = Lab::loaded();
    let to = StripeId(lab.stripes() - 2);
    let version = lab.maps.version();
    assert_eq!(lab.take(3), Taken::Stripe(to));
    assert_eq!(lab.holding(3), Some(StripeId(3)), "nothing says so yet");
    assert!(lab.moved(3, to, Sequence(11)));
    assert_eq!(lab.holding(3), Some(to));
    assert_ne!(lab.maps.version(), version);
    assert_eq!(lab.pump(), Pumped::default(), "nothing waits for it");
    assert_eq!(lab.take(4), Taken::Stripe(to.next()));
    assert_eq!(lab.take(5), Taken::Later);
    lab.progress.flushed = Sequence(11);
    assert_eq!(lab.pump(), Pumped::default());
    assert_eq!(lab.take(5), Taken::Stripe(StripeId(3)));
}

#[test]
fn vacated_stripes_are_flushed_if_something_waits_for_them() {
    let mut lab = Lab::loaded();
    for (data, sequence) in [(3, 11), (4, 12)] {
        let Taken::Stripe(to) = lab.take(data) else {
            panic!("two are free");
        };
        lab.moved(data, to, Sequence(sequence));
    }
    assert_eq!(lab.take(5), Taken::Later);
    lab.wait(7);
    let flush = Pumped {
        flush: true,
        ..Pumped::default()
    };
    assert_eq!(lab.pump(), flush);
    lab.maps.flush_begun(true);
    assert_eq!(lab.pump(), Pumped::default(), "one at a time");
    lab.progress.flushed = Sequence(12);
    assert_eq!(lab.maps.flush_ended(Ok(())), []);
    assert_eq!(lab.pump(), go_on(&[7]));
}

#[test]
fn the_flush_waits_for_the_groups_other_moves() {
    let mut lab = Lab::loaded();
    let Taken::Stripe(to) = lab.take(3) else {
        panic!("two are free");
    };
    assert!(matches!(lab.take(4), Taken::Stripe(_)));
    lab.moved(3, to, Sequence(11));
    lab.wait(7);
    assert_eq!(lab.pump(), Pumped::default(), "another is under way");
}

#[test]
fn a_stripe_is_not_free_before_what_was_planned_for_it_has_ended() {
    let mut lab = Lab::loaded();
    let mut reader: Option<Epoch> = None;
    lab.cx.epochs.enter(&mut reader);
    let Taken::Stripe(to) = lab.take(3) else {
        panic!("two are free");
    };
    lab.moved(3, to, Sequence(11));
    lab.wait(7);
    lab.progress.flushed = Sequence(11);
    assert_eq!(lab.pump(), Pumped::default());
    lab.cx.epochs.leave(&mut reader);
    assert_eq!(lab.pump(), go_on(&[7]));
}

#[test]
fn those_that_wait_have_free_stripes_in_the_order_in_which_they_came() {
    let mut lab = Lab::loaded();
    let Taken::Stripe(first) = lab.take(3) else {
        panic!("two are free");
    };
    let Taken::Stripe(second) = lab.take(4) else {
        panic!("two are free");
    };
    for op in [9, 7, 8] {
        assert_eq!(lab.take(5), Taken::Later);
        lab.wait(op);
    }
    assert_eq!(
        lab.maps.move_ended(GroupId(0), first),
        Some(OpId(7)),
        "it is unused"
    );
    assert_eq!(lab.take(6), Taken::Later, "others came before it");
    assert_eq!(
        lab.maps
            .take_free((GroupId(0), StripeId(5)), true, |_| true),
        Taken::Stripe(first)
    );
    lab.moved(4, second, Sequence(11));
    assert_eq!(lab.maps.move_ended(GroupId(0), second), None, "it is used");
}

#[test]
fn a_stripe_that_somebody_has_locked_is_not_taken() {
    let mut lab = Lab::loaded();
    let last = StripeId(lab.stripes() - 1);
    let taken = lab
        .maps
        .take_free((GroupId(0), StripeId(3)), false, |stripe| stripe == last);
    assert_eq!(taken, Taken::Stripe(last));
    let taken = lab
        .maps
        .take_free((GroupId(0), StripeId(4)), false, |stripe| stripe == last);
    assert_eq!(taken, Taken::Later, "one is under way");
}

#[test]
fn where_nothing_becomes_free_nothing_waits() {
    let mut lab = Lab::loaded();
    assert_eq!(
        lab.maps
            .take_free((GroupId(0), StripeId(3)), false, |_| false),
        Taken::Nowhere
    );
    lab.wait(7);
    lab.wait(8);
    let busy = lab.maps.pump(&lab.cx, lab.progress, false);
    assert_eq!(busy, Pumped::default(), "one that runs may free one");
    assert_eq!(lab.pump(), go_on(&[7, 8]));
    assert_eq!(lab.pump(), Pumped::default());
}

#[test]
fn nothing_waits_for_what_a_gap_in_the_journal_holds_back() {
    let mut lab = Lab::loaded();
    let Taken::Stripe(to) = lab.take(3) else {
        panic!("two are free");
    };
    lab.moved(3, to, Sequence(11));
    lab.wait(7);
    lab.progress.gaps = true;
    assert_eq!(lab.pump(), stay(&[7]));
    assert_eq!(lab.pump(), Pumped::default());
}

#[test]
fn nothing_waits_when_the_flush_has_failed() {
    let mut lab = Lab::loaded();
    let Taken::Stripe(to) = lab.take(3) else {
        panic!("two are free");
    };
    lab.moved(3, to, Sequence(11));
    lab.wait(7);
    assert!(lab.pump().flush);
    lab.maps.flush_begun(true);
    let stay = lab.maps.flush_ended(Err(block::Fault::Medium));
    assert_eq!(stay, [OpId(7)]);
}

#[test]
fn a_map_that_is_made_anew_knows_what_is_under_way() {
    let mut lab = Lab::loaded();
    let to = StripeId(lab.stripes() - 2);
    assert_eq!(lab.take(3), Taken::Stripe(to));
    let version = lab.maps.version();
    lab.maps.drop_group(GroupId(0));
    assert_ne!(lab.maps.version(), version);
    assert_eq!(lab.holding(3), None);
    assert_eq!(lab.load(), Ok(Vec::new()));
    assert_eq!(lab.take(4), Taken::Stripe(to.next()));
    assert_eq!(lab.take(5), Taken::Later);
    assert_eq!(lab.maps.move_ended(GroupId(0), to), None);
    assert_eq!(lab.take(5), Taken::Stripe(to), "given back to the new map");
}

#[test]
fn maps_with_what_is_not_known_are_looked_for_again() {
    let mut lab = Lab::new();
    for column in lab.cx.geometry.columns() {
        let name = lab.cx.geometry.map_name(GroupId(0), column, DataStripe(3));
        lab.pages.set(name, Entry::UNKNOWN);
    }
    assert_eq!(lab.load(), Ok(Vec::new()));
    assert_eq!((lab.holding(3), lab.holding(4)), (None, Some(StripeId(4))));
    assert_eq!(lab.take(4), Taken::Nowhere, "which of them is free?");
    lab.maps.drop_unknown();
    assert_eq!(lab.holding(4), None);
}

#[test]
fn a_lane_keeps_so_many_stripes_of_maps() {
    let mut maps = StripeMaps::default();
    let stripes = 1 << 12;
    for group in (0..70).map(GroupId) {
        maps.insert(group, GroupMap::new(stripes, &[], NEXT));
    }
    assert_eq!(maps.groups.len(), STRIPES_MAX >> 12);
    assert!(maps.groups.contains_key(&GroupId(69)), "the last one");
}
