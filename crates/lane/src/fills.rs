//! What a fill learns about the entries of the blocks that it writes.
//!
//! A fill writes a column that other columns have. If the entry of a block was UNKNOWN, or differs from what was
//! reconstructed under the stripe's lock, the block gets a new entry. Blocks that are logged meanwhile will be written
//! to the target too, and their entries with them.
//!
//! A target that already has part of the column keeps its own pages where they are right. A page that differs is
//! written again with the job's last checkpoint. Before that the target's page must not count as the later copy.

use std::collections::BTreeSet;

use block::BLOCK_BYTES;
use format::seeded::{self, SeededFault};
use format::{BlockName, Entry, PageName, Sequence};
use plan::action::Event;

use super::context::Context;
use super::op::Op;
use super::overlay::{Bytes, Overlay};
use super::pages::PageCache;

/// A fill writes these blocks, with these checksums: entries that were UNKNOWN or stale are replaced. `completed`: the
/// last batch that is complete. False if a page that must be updated has been dropped from memory meanwhile: then the
/// fill is planned again.
pub(super) fn note_filled(
    cx: &mut Context,
    overlay: &mut Overlay,
    pages: &mut PageCache,
    op: &Op,
    blocks: &[(BlockName, u32)],
    completed: Sequence,
) -> bool {
    let pool = cx.geometry.regions().expect("it has a journal").pool;
    let dropped =
        |&(name, _): &(BlockName, u32)| overlay.get(name).is_none() && pages.entry(name).is_none();
    if blocks.iter().any(dropped) {
        return false;
    }
    note_absent(cx, pages, op);
    for &(name, sum) in blocks {
        let logged = overlay.get(name).map(|logged| logged.bytes);
        let entry = Entry::new(pool, name, sum, completed);
        match (logged, pages.entry(name)) {
            (Some(Bytes::Nowhere), _) if seeded::is(SeededFault::FilledStaysUnknown) => {}
            (Some(Bytes::Memory(_) | Bytes::InPlace), _) | (None, None) => {}
            (Some(Bytes::Nowhere), _) => overlay.known(name, entry),
            // Blocks that lie in the target are compared before this call, so an entry that differs is stale.
            (None, Some(now)) if now == Entry::UNKNOWN || !now.matches(pool, name, sum) => {
                pages.set(name, entry);
            }
            (None, Some(_)) => {}
        }
    }
    true
}

/// Some blocks of the fill are recoverable from nowhere, but the target has other blocks of its column. Keeps the valid
/// blocks; marks the missing ones UNKNOWN.
fn note_absent(cx: &mut Context, pages: &mut PageCache, op: &Op) {
    let absent = &op.plan.as_ref().expect("it was planned").absent;
    let Some(first) = absent.first() else {
        return;
    };
    let bytes: u64 = absent.iter().map(|part| part.length).sum();
    cx.events.push_back(Event::BlocksUnrecovered {
        group: op.group,
        column: first.column,
        blocks: bytes / BLOCK_BYTES,
    });
    for part in absent {
        let first = part.offset / BLOCK_BYTES;
        for block in first..first + part.length / BLOCK_BYTES {
            let name = BlockName {
                group: op.group,
                column: part.column,
                block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
            };
            // An unwritten block holds nothing that could be lost.
            if pages.entry(name) != Some(Entry::UNWRITTEN) {
                pages.set(name, Entry::UNKNOWN);
            }
        }
    }
}

/// Compares the target's pages with the cached ones, for the stripes of an operation. Returns the pages that must be
/// written again, or the pages that must be read first.
pub(super) fn compare_pages(
    cx: &Context,
    pages: &mut PageCache,
    op: &Op,
) -> Result<Vec<PageName>, BTreeSet<PageName>> {
    let Some(held) = op.task.held() else {
        return Ok(Vec::new());
    };
    let mut names = held.pages_of(&cx.geometry, op.group, &op.stripes);
    let missing = { names.iter().copied() }.filter(|&name| !pages.contains(name));
    let missing: BTreeSet<PageName> = missing.collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    names.retain(|&name| {
        let theirs = held.page(name);
        let stale = theirs.filter(|theirs| pages.page(name).is_some_and(|page| page != *theirs));
        if let Some(theirs) = stale {
            // If the target keeps its own page, that page must not count as the later one.
            pages.outdate(name, theirs);
        }
        stale.is_some()
    });
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use format::{Column, GroupId, MetaPage, StripeId};
    use plan::action::{BufferId, Slice};
    use plan::{Absent, Kind, Plan, ScratchId};

    use super::*;
    use crate::blocks::block;
    use crate::ids::JobId;
    use crate::op::{Held, Owner, Task};
    use crate::overlay::Logged;

    /// A step of a fill of column 2 of a small lane, and the pages of its group: blocks 0 and 1 of the column are written.
    struct Lab {
        cx: Context,
        overlay: Overlay,
        pages: PageCache,
        op: Op,
    }

    const COMPLETED: Sequence = Sequence(12);

    impl Lab {
        fn new() -> Self {
            Self::with_held(None)
        }

        fn with_held(held: Option<Held>) -> Self {
            let cx = Context::of_test("raid6", 6);
            let mut pages = PageCache::new(64);
            for column in (0..6).map(Column) {
                let page = MetaPage::filled(Entry::UNWRITTEN, 1);
                pages.put(block(column, 0).page(), page);
            }
            let task = Task::Fill {
                column: Column(2),
                target: cx.geometry.home(GroupId(0), Column(2)),
                avoid: Vec::new(),
                held: held.map(Arc::new),
            };
            let mut op = Op::new(
                Owner::Job(JobId(1)),
                GroupId(0),
                StripeId::range(0..4),
                task,
            );
            op.plan = Some(Plan::new(Kind::Fill));
            let mut lab = Self {
                cx,
                overlay: Overlay::default(),
                pages,
                op,
            };
            for at in [0, 1] {
                let entry = lab.entry(at, 70, Sequence(5));
                lab.pages.set(block(Column(2), at), entry);
            }
            lab
        }

        fn entry(&self, at: u32, sum: u32, sequence: Sequence) -> Entry {
            let pool = self.cx.geometry.regions().unwrap().pool;
            Entry::new(pool, block(Column(2), at), sum, sequence)
        }

        /// The fill writes these blocks of column 2, with these checksums.
        fn filled(&mut self, blocks: &[(u32, u32)]) -> bool {
            let blocks = blocks.iter().map(|&(at, sum)| (block(Column(2), at), sum));
            let blocks: Vec<(BlockName, u32)> = blocks.collect();
            let (overlay, pages) = (&mut self.overlay, &mut self.pages);
            note_filled(&mut self.cx, overlay, pages, &self.op, &blocks, COMPLETED)
        }

        fn log(&mut self, at: u32, bytes: Bytes) {
            let logged = Logged {
                bytes,
                entry: Entry::UNKNOWN,
                sequence: Sequence(9),
            };
            self.overlay.insert(block(Column(2), at), logged);
        }

        fn compare(&mut self) -> Result<Vec<PageName>, BTreeSet<PageName>> {
            compare_pages(&self.cx, &mut self.pages, &self.op)
        }
    }

    #[test]
    fn what_agrees_with_its_entry_changes_nothing() {
        let mut lab = Lab::new();
        lab.pages.written(block(Column(2), 0).page());
        assert!(lab.filled(&[(0, 70), (1, 70)]));
        assert!(lab.pages.is_clean(block(Column(2), 0).page()));
    }

    #[test]
    fn an_entry_that_was_not_known_is_known_now() {
        let mut lab = Lab::new();
        lab.pages.set(block(Column(2), 0), Entry::UNKNOWN);
        assert!(lab.filled(&[(0, 77)]));
        let entry = lab.entry(0, 77, COMPLETED);
        assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(entry));
    }

    #[test]
    fn an_entry_that_differs_is_stale() {
        let mut lab = Lab::new();
        assert!(lab.filled(&[(0, 77), (1, 70)]));
        let (new, old) = (lab.entry(0, 77, COMPLETED), lab.entry(1, 70, Sequence(5)));
        assert_eq!(lab.pages.entry(block(Column(2), 0)), Some(new));
        assert_eq!(lab.pages.entry(block(Column(2), 1)), Some(old));
    }

    #[test]
    fn what_is_logged_brings_its_own_entry() {
        let mut lab = Lab::new();
        let memory = Slice {
            buffer: BufferId::Scratch(ScratchId(2)),
            offset: 0,
            length: BLOCK_BYTES,
        };
        lab.log(0, Bytes::Memory(memory));
        lab.log(1, Bytes::InPlace);
        assert!(lab.filled(&[(0, 77), (1, 78)]));
        assert_eq!(
            lab.pages.entry(block(Column(2), 0)),
            Some(lab.entry(0, 70, Sequence(5)))
        );
        let logged = lab.overlay.get(block(Column(2), 1)).unwrap();
        assert_eq!(logged.entry, Entry::UNKNOWN);
    }

    #[test]
    fn a_block_that_changed_while_its_column_was_nowhere_is_in_place_now() {
        let mut lab = Lab::new();
        lab.log(0, Bytes::Nowhere);
        assert!(lab.overlay.lacks_blocks());
        assert!(lab.filled(&[(0, 77)]));
        let entry = lab.entry(0, 77, COMPLETED);
        let logged = lab.overlay.get(block(Column(2), 0)).unwrap();
        assert_eq!((logged.bytes, logged.entry), (Bytes::InPlace, entry));
        assert!(!lab.overlay.lacks_blocks());
    }

    #[test]
    fn a_page_that_was_dropped_has_it_planned_again_and_nothing_is_noted() {
        let mut lab = Lab::new();
        lab.pages = PageCache::new(64);
        lab.log(0, Bytes::Nowhere);
        assert!(!lab.filled(&[(0, 77), (1, 70)]));
        assert!(lab.overlay.lacks_blocks());
        assert!(lab.filled(&[(0, 77)]), "what is logged needs no page");
    }

    #[test]
    fn what_can_be_had_nowhere_is_reported_and_unknown() {
        let mut lab = Lab::new();
        lab.op.plan.as_mut().unwrap().absent = vec![Absent {
            column: Column(2),
            offset: 2 * BLOCK_BYTES,
            length: 3 * BLOCK_BYTES,
            slice: None,
        }];
        for written in [2, 4] {
            lab.pages.set(block(Column(2), written), Entry::WRITTEN);
        }
        lab.pages.set(block(Column(2), 3), Entry::UNWRITTEN);
        assert!(lab.filled(&[(0, 70)]));
        let reported = Event::BlocksUnrecovered {
            group: GroupId(0),
            column: Column(2),
            blocks: 3,
        };
        assert_eq!(lab.cx.take_events(), [reported]);
        let unknown =
            (0..64).filter(|&at| lab.pages.entry(block(Column(2), at)) == Some(Entry::UNKNOWN));
        assert_eq!(unknown.collect::<Vec<u32>>(), [2, 4], "3 was never written");
    }

    #[test]
    fn a_target_that_has_nothing_has_no_pages_to_compare() {
        let mut lab = Lab::new();
        lab.pages = PageCache::new(64);
        assert_eq!(lab.compare(), Ok(Vec::new()));
    }

    #[test]
    fn pages_that_are_not_in_memory_are_read_before_they_are_compared() {
        let mut lab = Lab::with_held(Some(Held::of_test(Column(2))));
        lab.pages = PageCache::new(64);
        let beside = BTreeSet::from([block(Column(1), 0).page(), block(Column(2), 0).page()]);
        assert_eq!(
            lab.compare(),
            Err(beside),
            "a page has a copy beside the next column"
        );
    }

    #[test]
    fn a_page_of_the_target_that_differs_is_written_anew_as_the_later_one() {
        let mut theirs = MetaPage::filled(Entry::UNWRITTEN, 1);
        theirs.set(block(Column(1), 0).entry(), Entry::WRITTEN, 1000);
        let same = MetaPage::filled(Entry::UNWRITTEN, 1);
        let held = Held::of_test(Column(2))
            .with_page(block(Column(1), 0).page(), theirs.clone())
            .with_page(block(Column(2), 0).page(), same.clone());
        let mut lab = Lab::with_held(Some(held));
        lab.pages.put(block(Column(2), 0).page(), same);
        assert_eq!(lab.compare(), Ok(vec![block(Column(1), 0).page()]));
        let ours = lab.pages.page(block(Column(1), 0).page()).unwrap();
        assert!(!ours.is_overruled_by(&theirs));
        assert!(lab.pages.is_dirty(block(Column(1), 0).page()));
    }
}
