//! Preserved blocks: logged blocks that have no place. They stay in the journal until they have one. A record that a
//! block has changed is preserved too, while all copies of the page that should hold its entry are away.
//!
//! ```text
//!   logged ── a checkpoint may not release it ─► preserved ── a drive has gone out since, or the ring needs room ─► logged again
//!                                                 │      ▲                                                            │
//!                                                 │      └────────────────────────────────────────────────────────────┘
//!                                                 └── its column or its page is back, or there is no room to log it again ─► released
//! ```
//!
//! A stripe that has lost more columns than its code survives cannot reconstruct its missing blocks. The same is true
//! of a stripe in which parity is unknown, because the parity's drive was away when the parity changed, and has
//! returned before the others. If such a block is logged, only the journal has it. If it were released, its drive could
//! return and the block would still be lost. So the block is preserved: it stays in the overlay and holds the ring's
//! tail. It is logged again, on the drives that are there, after a drive has gone out (its batch may have one copy
//! less), and when the ring needs room and would have more of it afterwards. It is released only if clients' writes find
//! no room even then: first as many blocks as cannot be logged again at once, then all.
//!
//! Few blocks are preserved: those that were logged when the drives failed. A stripe that cannot be read is not written
//! to. A stripe that can be read only with its preserved blocks is not written to either if the write would change a
//! block of an absent column: the drive of that column may return and count as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use block::BLOCK_BYTES;
use format::{BlockName, Entry, Form, GroupId, PageName, Sequence, StripeId};
use plan::action::IoKind;
use plan::{Kind, Plan, Transfer};

use super::context::Context;
use super::entries::Entries;
use super::overlay::{Bytes, Logged, Overlay};
use super::pages;

/// The preserved blocks of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Preserved {
    /// As of the last checkpoint that has put blocks in place.
    names: BTreeSet<BlockName>,
    /// The number of operations in flight that log some of the blocks again.
    relogs: u64,
    /// Batches before this one may have a column on a drive that has gone out since.
    under_replicated: Sequence,
    /// Stripes with blocks that must be logged again, and that were locked.
    locked: BTreeSet<(GroupId, StripeId)>,
    /// There was no room: the next checkpoint preserves no more blocks than this.
    limit: Option<usize>,
}

/// Blocks of a stripe that are to be logged again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relog {
    pub(super) group: GroupId,
    pub(super) stripe: StripeId,
    pub(super) names: Vec<BlockName>,
}

impl Preserved {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// True while blocks are being logged again.
    pub(super) const fn relogs(&self) -> bool {
        self.relogs > 0
    }

    /// A drive has gone out: batches before `next_sequence` may have one column less.
    pub(super) const fn drive_out(&mut self, next_sequence: Sequence) {
        self.under_replicated = next_sequence;
    }

    /// Chooses the preserved blocks: of the blocks that a checkpoint would release those that have no place. Earlier
    /// choices end. `forgotten`: groups that are about to be made blank; none of their blocks is preserved.
    pub(super) fn select(
        &mut self,
        cx: &Context,
        entries: Entries<'_>,
        blocks: &[(BlockName, Logged)],
        forgotten: &BTreeSet<GroupId>,
    ) -> BTreeSet<BlockName> {
        self.names.clear();
        self.select_more(cx, entries, blocks, forgotten)
    }

    /// The same, in addition to the blocks that are preserved already. Returns only the additional ones.
    pub(super) fn select_more(
        &mut self,
        cx: &Context,
        entries: Entries<'_>,
        blocks: &[(BlockName, Logged)],
        forgotten: &BTreeSet<GroupId>,
    ) -> BTreeSet<BlockName> {
        if cx.view().is_whole() {
            return BTreeSet::new();
        }
        let most = self.limit.unwrap_or(usize::MAX);
        let most = most.saturating_sub(self.names.len());
        let more = blocks.iter().filter(|&&(name, logged)| {
            entries.overlay.get_of(name, logged.sequence).is_some()
                && !forgotten.contains(&name.group)
                && is_in_the_journal_alone(cx, entries, name, logged)
        });
        let more: BTreeSet<BlockName> = more.take(most).map(|&(name, _)| name).collect();
        self.names.extend(&more);
        more
    }

    /// Batches up to this one must become unnecessary: their preserved blocks are logged again.
    pub(super) fn log_again_up_to(&mut self, sequence: Sequence) {
        self.under_replicated = self.under_replicated.max(sequence.next());
    }

    /// The stripes with blocks that must be logged again, and that were locked.
    pub(super) fn locked(&self) -> impl Iterator<Item = (GroupId, StripeId)> {
        self.locked.iter().copied()
    }

    /// The preserved blocks that must be logged again: all of them if the ring needs `room`. Blocks of a locked stripe
    /// are left to the checkpoint that begins when the stripe is unlocked, because the operation that has the lock may
    /// wait for this checkpoint.
    pub(super) fn relog(
        &mut self,
        cx: &Context,
        overlay: &Overlay,
        room: bool,
        is_free: impl Fn(GroupId, StripeId) -> bool,
    ) -> Vec<Relog> {
        let mut stripes: BTreeMap<(GroupId, StripeId), Vec<BlockName>> = BTreeMap::new();
        for &name in &self.names {
            let logged = overlay.get(name).expect("it is preserved");
            if room || logged.sequence < self.under_replicated {
                let stripe = cx.geometry.stripe_of(name);
                stripes.entry((name.group, stripe)).or_default().push(name);
            }
        }
        self.locked.clear();
        let mut relogs = Vec::new();
        for ((group, stripe), names) in stripes {
            if is_free(group, stripe) {
                relogs.push(Relog {
                    group,
                    stripe,
                    names,
                });
            } else {
                self.locked.insert((group, stripe));
            }
        }
        self.relogs += relogs.len() as u64;
        relogs
    }

    /// An operation that logs preserved blocks again has ended.
    pub(super) const fn relogged(&mut self) {
        self.relogs -= 1;
    }

    /// Stripes have been unlocked. True if a checkpoint is needed that logs the blocks again that it could not log
    /// because of these locks.
    pub(super) fn unlocked(&mut self, group: GroupId, stripes: Range<StripeId>) -> bool {
        let here = (group, stripes.start)..(group, stripes.end);
        self.locked.extract_if(here, |_| true).count() > 0
    }

    /// A checkpoint has ended. `in_the_way`: the blocks that it holds back leave no room for new batches. `most`: the
    /// number of blocks that can be logged again at once. The next checkpoint keeps so many, or none if there are no more.
    pub(super) fn checkpoint_ended(&mut self, in_the_way: bool, most: usize) {
        let limit = if self.names.len() > most { most } else { 0 };
        self.limit = (in_the_way && !self.names.is_empty()).then_some(limit);
    }

    /// The next checkpoint preserves nothing.
    pub(super) const fn release(&mut self) {
        self.limit = Some(0);
    }

    /// True if the next checkpoint does not preserve all blocks that have no place.
    pub(super) const fn releases(&self) -> bool {
        self.limit.is_some()
    }

    /// The oldest batch that has a preserved block.
    pub(super) fn oldest(&self, overlay: &Overlay) -> Option<Sequence> {
        let logged = self.names.iter().filter_map(|&name| overlay.get(name));
        logged.map(|logged| logged.sequence).min()
    }
}

/// True if only the journal has a block, or only the journal records that it has changed.
fn is_in_the_journal_alone(
    cx: &Context,
    entries: Entries<'_>,
    name: BlockName,
    logged: Logged,
) -> bool {
    match logged.bytes {
        Bytes::Memory(_) => {
            let column = cx.view().column(&cx.geometry, name.group, name.column);
            // Of a data block only the map knows the form, and it may not be in memory: the block is preserved if it
            // cannot be reconstructed in one of the forms.
            let forms: Vec<Form> = match cx.geometry.form_at(name) {
                Some(form) => vec![form],
                None => cx.geometry.forms().to_vec(),
            };
            let lost = |&form: &Form| !can_be_reconstructed(cx, entries, (name, form));
            !column.readable() && forms.iter().any(lost)
        }
        // All copies of its page are away, and will have an older entry when they are back. Maps have more copies.
        // What a conversion has given up does not count in the stripe's form, whatever its entry is.
        Bytes::InPlace if logged.entry == Entry::UNWRITTEN => false,
        Bytes::Nowhere | Bytes::InPlace => {
            !cx.geometry.is_of_map(name) && pages::is_away(cx, name.page())
        }
    }
}

/// True if a block of an unreadable column can be reconstructed from the other blocks of its stripe. A drive may return
/// with a column of which a block is unknown: parity that a write did not reach because the drive was away, and that
/// cannot be computed before other columns are back.
fn can_be_reconstructed(
    cx: &Context,
    entries: Entries<'_>,
    (name, form): (BlockName, Form),
) -> bool {
    let code = cx.geometry.code_of(form);
    let mut lost = erasure::ElementSet::new(code.elements());
    for (slot, other) in cx.geometry.row_of(name, form) {
        let column = cx.view().column(&cx.geometry, other.group, other.column);
        let known = match entries.overlay.get(other) {
            Some(logged) => !matches!(logged.bytes, Bytes::Nowhere),
            // A page that is not in memory counts as unknown: the checkpoint reads it first.
            None => { entries.pages.entry(other) }.is_some_and(|entry| entry != Entry::UNKNOWN),
        };
        if !column.readable() || !known {
            lost.insert(slot);
        }
    }
    code.is_recoverable(&lost)
}

/// The pages that decide whether blocks of unreadable columns can be reconstructed without what is logged.
pub(super) fn pages_to_select_by(
    cx: &Context,
    blocks: &[(BlockName, Logged)],
) -> BTreeSet<PageName> {
    if cx.view().is_whole() {
        return BTreeSet::new();
    }
    let absent = |&&(name, logged): &&(BlockName, Logged)| {
        let column = || cx.view().column(&cx.geometry, name.group, name.column);
        logged.bytes.memory().is_some() && !column().readable()
    };
    { blocks.iter().filter(absent) }
        .flat_map(|&(name, _)| {
            let forms = cx.geometry.forms().iter();
            forms.flat_map(move |&form| cx.geometry.row_of(name, form))
        })
        .map(|(_, other)| other.page())
        .collect()
}

/// The plan of an operation that logs blocks again from the memory that holds them, and the batches that own this
/// memory.
pub(super) fn plan_relog(
    cx: &Context,
    overlay: &Overlay,
    names: &[BlockName],
) -> (Plan, BTreeSet<Sequence>) {
    let mut plan = Plan::new(Kind::Relog);
    let mut pinned = BTreeSet::new();
    for &name in names {
        let logged = overlay.get(name);
        let Some((slice, sequence)) =
            logged.and_then(|logged| Some((logged.bytes.memory()?, logged.sequence)))
        else {
            continue;
        };
        pinned.insert(sequence);
        let home = cx.geometry.home(name.group, name.column);
        plan.writes.push(Transfer {
            seat: home.seat,
            column: name.column,
            kind: IoKind::Write,
            offset: cx.geometry.block_offset(home, name.block.into()),
            length: BLOCK_BYTES,
            slice: Some(slice),
        });
    }
    (plan, pinned)
}

/// Those of the blocks to be logged again whose bytes no drive that is there has, with their plain CRC-32C where it is
/// known. A block in place whose page is away is one of them: its column is out.
pub(super) fn relogged_absent(
    cx: &Context,
    overlay: &Overlay,
    names: &[BlockName],
) -> Vec<(BlockName, Option<u32>)> {
    let pool = cx.geometry.regions().expect("a log needs a journal").pool;
    let absent = names.iter().filter_map(|&name| {
        let logged = overlay.get(name)?;
        let crc = (logged.entry != Entry::UNKNOWN).then(|| logged.entry.plain_crc(pool, name));
        logged.bytes.memory().is_none().then_some((name, crc))
    });
    absent.collect()
}

#[cfg(test)]
mod tests {
    use block::Seat;
    use format::Column;
    use plan::ScratchId;
    use plan::action::{BufferId, Slice};

    use super::*;
    use crate::blocks::block;
    use crate::pages::PageCache;

    struct Lab {
        preserved: Preserved,
        cx: Context,
        overlay: Overlay,
        pages: PageCache,
        forgotten: BTreeSet<GroupId>,
    }

    fn names(blocks: &[(Column, u32)]) -> BTreeSet<BlockName> {
        blocks
            .iter()
            .map(|&(column, at)| block(column, at))
            .collect()
    }

    impl Lab {
        /// All blocks of group 0 are written, and their pages are in memory. A stripe has four blocks of each of six
        /// columns.
        fn new() -> Self {
            let cx = Context::of_test("raid6", 6);
            let pages = PageCache::all_written(6);
            Self {
                preserved: Preserved::default(),
                cx,
                overlay: Overlay::default(),
                pages,
                forgotten: BTreeSet::new(),
            }
        }

        /// The drives of these columns are out.
        fn without(columns: &[Column]) -> Self {
            let mut lab = Self::new();
            columns.iter().for_each(|&column| lab.out(column));
            lab
        }

        fn out(&mut self, column: Column) {
            let seat: Seat = self.cx.geometry.home(GroupId(0), column).seat;
            self.cx.change_view(|view, _| view.seat_out(seat));
        }

        /// A block is logged by a batch, in memory.
        fn log(&mut self, column: Column, at: u32, sequence: Sequence) {
            let slice = Slice {
                buffer: BufferId::Scratch(ScratchId(sequence.0)),
                offset: u64::from(at) * BLOCK_BYTES,
                length: BLOCK_BYTES,
            };
            self.log_as(Bytes::Memory(slice), column, at, sequence);
        }

        fn log_as(&mut self, bytes: Bytes, column: Column, at: u32, sequence: Sequence) {
            let logged = Logged {
                bytes,
                entry: Entry::WRITTEN,
                sequence,
            };
            self.overlay.insert(block(column, at), logged);
        }

        /// A checkpoint would release everything that batches up to this one have logged.
        fn select(&mut self, up_to: u64) -> BTreeSet<BlockName> {
            self.select_of(&self.overlay.up_to(Sequence(up_to)))
        }

        fn select_of(&mut self, blocks: &[(BlockName, Logged)]) -> BTreeSet<BlockName> {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            self.preserved
                .select(&self.cx, entries, blocks, &self.forgotten)
        }

        /// The blocks that are logged again. These stripes are locked.
        fn relog(&mut self, room: bool, locked: &[u64]) -> Vec<(u64, usize)> {
            let is_free = |_, stripe: StripeId| !locked.contains(&stripe.0);
            let relogs = { &mut self.preserved }.relog(&self.cx, &self.overlay, room, is_free);
            let relogs = relogs.into_iter();
            relogs
                .map(|relog| (relog.stripe.0, relog.names.len()))
                .collect()
        }
    }

    #[test]
    fn nothing_is_preserved_while_all_columns_are_there() {
        let mut lab = Lab::new();
        lab.log(Column(1), 4, Sequence(7));
        assert_eq!(lab.select(7), names(&[]));
        assert!(lab.preserved.is_empty());
    }

    #[test]
    fn what_the_other_columns_tell_is_released() {
        let mut lab = Lab::without(&[Column(1), Column(2)]);
        lab.log(Column(1), 4, Sequence(7));
        assert_eq!(lab.select(7), names(&[]));
    }

    #[test]
    fn a_block_of_a_stripe_that_lost_too_many_columns_is_preserved() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.log(Column(5), 4, Sequence(7));
        assert_eq!(
            lab.select(7),
            names(&[(Column(1), 4)]),
            "column 5 has its place"
        );
        assert_eq!(lab.preserved.len(), 1);
    }

    #[test]
    fn what_else_is_logged_of_a_row_makes_it_whole() {
        let mut lab = Lab::without(&[Column(1), Column(2)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.pages.set(block(Column(4), 4), Entry::UNKNOWN);
        assert_eq!(
            lab.select(7),
            names(&[(Column(1), 4)]),
            "block 4 of column 4 is unknown"
        );
        lab.log(Column(4), 4, Sequence(7));
        assert_eq!(lab.select(7), names(&[]));
    }

    #[test]
    fn a_page_that_is_not_in_memory_says_nothing() {
        let mut lab = Lab::without(&[Column(1), Column(2)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.pages = PageCache::new(64);
        assert_eq!(lab.select(7), names(&[(Column(1), 4)]));
        let blocks = lab.overlay.up_to(Sequence(7));
        let pages = pages_to_select_by(&lab.cx, &blocks);
        assert_eq!(pages.len(), 6, "one of each column is read before");
    }

    #[test]
    fn pages_are_read_only_for_blocks_of_absent_columns() {
        let mut lab = Lab::new();
        lab.log(Column(1), 4, Sequence(7));
        assert!(pages_to_select_by(&lab.cx, &lab.overlay.up_to(Sequence(7))).is_empty());
        lab.out(Column(2));
        assert!(pages_to_select_by(&lab.cx, &lab.overlay.up_to(Sequence(7))).is_empty());
    }

    #[test]
    fn what_was_logged_anew_since_is_left_to_the_next_checkpoint() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.log(Column(1), 4, Sequence(7));
        let blocks = lab.overlay.up_to(Sequence(7));
        lab.log(Column(1), 4, Sequence(8));
        assert_eq!(lab.select_of(&blocks), names(&[]));
    }

    #[test]
    fn nothing_is_preserved_of_a_group_that_begins_a_new_life() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.forgotten.insert(GroupId(0));
        assert_eq!(lab.select(7), names(&[]));
    }

    #[test]
    fn that_a_block_has_changed_is_preserved_while_all_copies_of_its_page_are_away() {
        let mut lab = Lab::without(&[Column(1)]);
        lab.log_as(Bytes::Nowhere, Column(1), 4, Sequence(7));
        assert_eq!(lab.select(7), names(&[]), "column 2 has a copy of the page");
        lab.out(Column(2));
        assert_eq!(lab.select(7), names(&[(Column(1), 4)]));
        lab.log_as(Bytes::InPlace, Column(1), 4, Sequence(7));
        assert_eq!(lab.select(7), names(&[(Column(1), 4)]));
    }

    #[test]
    fn a_later_selection_adds_to_what_is_preserved() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.select(7);
        lab.log(Column(2), 4, Sequence(8));
        let entries = Entries {
            overlay: &lab.overlay,
            pages: &lab.pages,
        };
        let later = [(
            block(Column(2), 4),
            *lab.overlay.get(block(Column(2), 4)).unwrap(),
        )];
        let more = { &mut lab.preserved }.select_more(&lab.cx, entries, &later, &BTreeSet::new());
        assert_eq!(more, names(&[(Column(2), 4)]));
        assert_eq!(lab.preserved.len(), 2);
        assert_eq!(
            lab.select(7),
            names(&[(Column(1), 4)]),
            "a new one starts with none"
        );
    }

    #[test]
    fn what_a_drive_that_went_out_may_have_had_is_logged_again() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.log(Column(1), 5, Sequence(7));
        lab.log(Column(1), 8, Sequence(9));
        lab.select(9);
        assert_eq!(lab.relog(false, &[]), [], "no drive has gone out since");
        lab.preserved.drive_out(Sequence(8));
        assert_eq!(lab.relog(false, &[]), [(1, 2)]);
        assert!(lab.preserved.relogs());
        lab.preserved.relogged();
        assert!(!lab.preserved.relogs());
    }

    #[test]
    fn all_is_logged_again_if_the_ring_wants_room() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.log(Column(1), 8, Sequence(9));
        lab.select(9);
        assert_eq!(lab.relog(true, &[]), [(1, 1), (2, 1)]);
    }

    #[test]
    fn a_locked_stripe_is_logged_again_by_the_checkpoint_after_its_release() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.log(Column(1), 8, Sequence(7));
        lab.select(7);
        assert_eq!(lab.relog(true, &[2]), [(1, 1)]);
        assert!(
            !lab.preserved.unlocked(GroupId(0), StripeId::range(0..2)),
            "another stripe"
        );
        assert!(lab.preserved.unlocked(GroupId(0), StripeId::range(2..3)));
        assert!(
            !lab.preserved.unlocked(GroupId(0), StripeId::range(2..3)),
            "one checkpoint is enough"
        );
    }

    #[test]
    fn what_leaves_no_room_is_released_by_the_next_checkpoints() {
        let mut lab = Lab::without(&[Column(1), Column(2), Column(3)]);
        lab.preserved.checkpoint_ended(true, 2);
        (0..5).for_each(|at| lab.log(Column(1), at, Sequence(7)));
        assert_eq!(
            lab.select(7).len(),
            5,
            "nothing was preserved that was in the way"
        );
        lab.preserved.checkpoint_ended(true, 2);
        assert_eq!(lab.select(7), names(&[(Column(1), 0), (Column(1), 1)]));
        let entries = Entries {
            overlay: &lab.overlay,
            pages: &lab.pages,
        };
        let later = lab.overlay.up_to(Sequence(7));
        let more = { &mut lab.preserved }.select_more(&lab.cx, entries, &later, &lab.forgotten);
        assert_eq!(more, names(&[]), "the limit is for both together");
        lab.preserved.checkpoint_ended(true, 2);
        assert_eq!(lab.select(7).len(), 0, "not even two have room");
        lab.preserved.checkpoint_ended(false, 2);
        assert_eq!(lab.select(7).len(), 5);
        lab.preserved.release();
        assert_eq!(lab.select(7).len(), 0);
    }

    #[test]
    fn blocks_are_logged_again_from_memory_and_others_by_their_checksums() {
        let mut lab = Lab::without(&[Column(1), Column(2)]);
        lab.log(Column(1), 4, Sequence(7));
        lab.log(Column(1), 5, Sequence(6));
        lab.log_as(Bytes::Nowhere, Column(2), 4, Sequence(7));
        let logged = [
            block(Column(1), 4),
            block(Column(1), 5),
            block(Column(2), 4),
            block(Column(2), 5),
        ];
        let (plan, pinned) = plan_relog(&lab.cx, &lab.overlay, &logged);
        assert_eq!(plan.writes.len(), 2);
        assert_eq!(pinned, BTreeSet::from([6, 7].map(Sequence)));
        let absent = relogged_absent(&lab.cx, &lab.overlay, &logged);
        assert!(matches!(absent[..], [(name, Some(_))] if name == block(Column(2), 4)));
        let unknown = Logged {
            bytes: Bytes::Nowhere,
            entry: Entry::UNKNOWN,
            sequence: Sequence(7),
        };
        lab.overlay.insert(block(Column(2), 4), unknown);
        let absent = relogged_absent(&lab.cx, &lab.overlay, &logged);
        assert_eq!(absent, [(block(Column(2), 4), None)]);
    }
}
