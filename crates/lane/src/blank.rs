//! Makes a group blank: all its metadata pages are written as *unwritten*. Its blocks are not touched.

use std::sync::Arc;

use format::{GroupId, MetaPage, PAGE_BYTES, PageName};
use plan::action::{BufferId, IoKind, Slice};
use plan::{Kind, Plan, ScratchId, Transfer};

use super::context::Context;

/// Bytes to be copied into memory before the plan's computation.
type Puts = Vec<(Slice, Arc<[u8]>)>;

/// The plan that writes a blank page to the place of each page beside the cells of a group, and the bytes that are
/// copied into the plan's memory before.
pub(super) fn plan_blank(
    cx: &Context,
    page: &MetaPage,
    group: GroupId,
    scratch: ScratchId,
) -> (Plan, Puts) {
    let regions = *cx.geometry.regions().expect("it has a journal");
    let columns = cx.geometry.layout().columns();
    let cell_bytes = cx.geometry.pages_beside_bytes();
    let mut plan = Plan::new(Kind::Zero);
    plan.scratch_bytes = u64::from(columns) * cell_bytes;
    let mut puts = Vec::new();
    for column in cx.geometry.columns() {
        let slice = Slice {
            buffer: BufferId::Scratch(scratch),
            offset: u64::from(column.0) * cell_bytes,
            length: cell_bytes,
        };
        let beside = cx.geometry.pages_beside(column);
        for (place, (column, index)) in (0..).zip(beside) {
            let place = slice.part(place * PAGE_BYTES, PAGE_BYTES);
            let name = PageName {
                group,
                column,
                index,
            };
            puts.push((place, page.encode(regions.pool, name).into()));
        }
        let cells = cx.view().column(&cx.geometry, group, column).cells();
        plan.writes.extend(cells.map(|cell| Transfer {
            seat: cell.seat,
            column,
            kind: IoKind::Write,
            offset: cx.geometry.pages_offset(&regions, cell),
            length: cell_bytes,
            slice: Some(slice),
        }));
    }
    (plan, puts)
}

#[cfg(test)]
mod tests {
    use block::Seat;
    use format::{Column, Entry};

    use super::*;

    /// The drives that are written for group 0 of a small lane, and the number of pages that are laid out.
    fn planned(cx: &Context) -> (Vec<u16>, usize) {
        let page = MetaPage::filled(Entry::UNWRITTEN, 7);
        let (plan, puts) = plan_blank(cx, &page, GroupId(0), ScratchId(1));
        let bytes: u64 = puts.iter().map(|(place, _)| place.length).sum();
        assert_eq!(
            plan.scratch_bytes, bytes,
            "each byte of the memory is laid out"
        );
        let seats = plan.writes.iter().map(|write| write.seat.0);
        (seats.collect(), puts.len())
    }

    #[test]
    fn all_copies_of_all_pages_are_written() {
        let cx = Context::of_test("raid6", 6);
        assert_eq!(planned(&cx), (vec![0, 1, 2, 3, 4, 5], 12));
        let cx = Context::of_test_with("raid6", 6, 256 << 10, |regions| {
            regions.page_copies = Some(3);
        });
        assert_eq!(planned(&cx), (vec![0, 1, 2, 3, 4, 5], 18));
    }

    #[test]
    fn each_place_has_the_page_of_its_name() {
        let cx = Context::of_test("raid6", 6);
        let page = MetaPage::filled(Entry::UNWRITTEN, 7);
        let (_, puts) = plan_blank(&cx, &page, GroupId(0), ScratchId(1));
        let pool = cx.geometry.regions().unwrap().pool;
        let names = (0..6)
            .map(Column)
            .flat_map(|column| cx.geometry.pages_beside(column));
        for ((column, index), (_, bytes)) in names.zip(&puts) {
            let name = PageName {
                group: GroupId(0),
                column,
                index,
            };
            let (read, merged) = MetaPage::merge(pool, name, &[bytes]);
            assert!(read == page && merged.damaged == 0);
        }
    }

    #[test]
    fn a_column_that_is_nowhere_is_left_and_one_that_is_filled_is_written_at_its_target() {
        let mut cx = Context::of_test("raid6", 6);
        cx.change_view(|view, _| view.seat_out(Seat(1)));
        assert_eq!(planned(&cx).0, [0, 2, 3, 4, 5]);
        cx.change_view(|view, geometry| {
            view.seat_in(Seat(1));
            view.begin_fill(
                geometry,
                GroupId(0),
                Column(1),
                geometry.home(GroupId(0), Column(1)),
            );
        });
        assert_eq!(planned(&cx).0, [0, 1, 2, 3, 4, 5]);
    }
}
