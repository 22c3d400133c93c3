//! Where the copies of a page lie, and whether a group can do without them.

use block::Seat;
use format::{Column, GroupId, PageName};

use crate::context::Context;

/// Where a copy of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePlace {
    pub(crate) seat: Seat,
    /// First byte on the drive.
    pub(crate) offset: u64,
    /// The column whose cell it lies beside.
    pub(crate) column: Column,
    /// True if this copy is read: its cell is not just being filled.
    pub(crate) counts: bool,
}

/// The places of a page: one copy beside its column's cells, and one beside those of each column that follows.
/// `sources`: only places where the page can be read.
pub(crate) fn page_places(cx: &Context, name: PageName, sources: bool) -> Vec<PagePlace> {
    let Some(regions) = cx.geometry.regions() else {
        return Vec::new();
    };
    let columns = u64::from(cx.geometry.layout().columns());
    let mut places = Vec::new();
    for distance in 0..cx.geometry.page_copies() {
        let column = (u64::from(name.column.0) + distance) % columns;
        let column = Column(u16::try_from(column).expect("below the number of columns"));
        let state = cx.view().column(&cx.geometry, name.group, column);
        let target = state.target.filter(|_| !sources);
        let cells = state.source.map(|cell| (cell, true)).into_iter();
        for (cell, counts) in cells.chain(target.map(|cell| (cell, false))) {
            let index = u64::from(name.index);
            places.push(PagePlace {
                seat: cell.seat,
                offset: cx.geometry.page_offset(regions, cell, index, distance),
                column,
                counts,
            });
        }
    }
    places
}

/// The places of a page from which a drive that is not out can read it.
pub(super) fn readable_places(cx: &Context, name: PageName) -> Vec<PagePlace> {
    let mut places = page_places(cx, name, true);
    places.retain(|place| !cx.view().is_out(place.seat));
    places
}

/// True if no drive that is not out has a copy of a page.
pub(crate) fn is_away(cx: &Context, name: PageName) -> bool {
    let places = page_places(cx, name, true);
    places.iter().all(|place| cx.view().is_out(place.seat))
}

/// True if all stripes of a group have lost more columns than the code survives.
pub(super) fn is_beyond_reading(cx: &Context, group: GroupId) -> bool {
    if cx.geometry.regions().is_none() || !cx.geometry.stripes_use_all_columns() {
        return false;
    }
    let columns = cx.view().columns(&cx.geometry, group);
    let absent = columns.iter().filter(|column| !column.readable()).count();
    absent > usize::from(cx.geometry.code().tolerance())
}

/// True if a group has lost more columns than the code survives, and the columns that were lost last will return with
/// their drives as they are.
pub(super) fn comes_back_as_it_is(cx: &Context, group: GroupId) -> bool {
    // Where columns may lie in spare space no column returns without a fill.
    !cx.geometry.layout().has_spare_space() && is_beyond_reading(cx, group)
}
