//! The place of data: from an offset in a group's data to elements, and from elements to bytes on drives.
//!
//! ```text
//!   a group's data      |  stripe 0          |  stripe 1          | ...
//!   a stripe's data     |  element 0 | element 1 | ...      one chunk each, in the code's order
//!   an element          (row, unit)  --layout.place-->  (column, slot)  --layout.cell-->  (seat, row)
//!   a copy (elastic)    (unit, plane)  --Planes-->  (column, slot of the plane)
//!   on the drive        data_offset + row·cell_bytes + (slot·code_rows + element row)·chunk_bytes
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use block::{BLOCK_BYTES, Hint, Request, Seat};
use erasure::{Code, Element};
use format::seeded::{self, SeededFault};
use format::{
    BlockName, Column, DataStripe, Form, GroupId, PAGE_BYTES, StripeId, VolumeId, pages_per_cell,
};
use layout::bloated::Planes;
use layout::{Cell, Layout, Role};
use uuid::Uuid;

use crate::action::FILL_STEP_BYTES;

/// The fixed shape of a pool: code × layout × sizes. Everything here has been checked once, in
/// [`Geometry::new`].
#[derive(Clone, Debug)]
pub struct Geometry {
    code: Arc<Code>,
    /// The code of stripes that are kept as copies, in elastic pools.
    copies: Option<Arc<Code>>,
    layout: Arc<dyn Layout>,
    chunk_bytes: u64,
    /// Bytes of a plane: of the whole cell, unless the pool is elastic.
    plane_bytes: u64,
    rows: u64,
    data_offset: u64,
    lanes: u16,
    stripes_per_group: u64,
    regions: Option<Regions>,
    /// Drives that have cells in the groups of one drive, and this drive.
    drives_in_rebuild: u64,
}

/// Groups that are looked at to find out with how many drives one shares groups.
const GROUPS_LOOKED_AT: u64 = 1024;
/// From so many drives that share groups with one, steps of fills are halved.
const MANY_DRIVES: u64 = 24;

/// Where journal and metadata lie, the same on every drive. A pool without them (`-o journal=off`)
/// writes in place at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Identity of the pool, mixed into every checksum.
    pub pool: Uuid,
    /// First byte of lane 0's ring.
    pub journal_offset: u64,
    /// Bytes of a lane's ring.
    pub ring_bytes: u64,
    /// First byte of the metadata pages.
    pub metadata_offset: u64,
    /// Copies of each page, those of one number side by side; `None`: two, one column's pages behind the other's.
    pub page_copies: Option<u16>,
    /// Whether whole stripes may go in place before they are logged (`lane/direct.rs`).
    pub direct_writes: bool,
    /// Whether the journal leaves out parity that follows from the data beside it (`lane/log/derived.rs`).
    pub derived_parity: bool,
    /// Stripes of each group that hold nothing: a whole stripe that is overwritten goes to one of them
    /// (`lane/ops/moves.rs`). 0 in pools without the feature `free-stripes`.
    pub free_stripes: u64,
}

/// One stripe in this many of a group is free: 3 % of the space. On six drives of 100 MB/s and 500 operations a second
/// overwrites of `raid6` run at 96 MiB/s with 4 free stripes of 256, at 144 with 8, at 157 with 16, and at 175 with 32;
/// the drives can take 222.
const FREE_STRIPES_ONE_IN: u64 = 32;
/// Maximum of free stripes of a group.
const FREE_STRIPES_MAX: u64 = 64;
/// Stripes of a group for which it has free stripes: the map of larger groups is too much to keep in memory.
const STRIPES: RangeInclusive<u64> = 32..=4096;
/// Minimum cell size for free stripes. In smaller cells there are so few that each flush covers little: with 512 KiB on
/// each drive `raid6` is half as fast again as through the journal, with 128 KiB it would be half as fast.
const CELL_BYTES_MIN: u64 = 16 << 20;

/// Why code, layout and sizes do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A chunk is not a power of two of at least one block.
    #[error("chunk of {chunk_bytes} bytes: it must be a power of two of at least 4096")]
    Chunk {
        /// The requested size.
        chunk_bytes: u64,
    },
    /// A cell does not hold a power of two of chunks.
    #[error(
        "cell of {cell_bytes} bytes with chunks of {chunk_bytes}: it must be a power of two of chunks"
    )]
    Cell {
        /// The requested size.
        cell_bytes: u64,
        /// The chunk size it must be a multiple of.
        chunk_bytes: u64,
    },
    /// The code's rows need more chunks than a cell has.
    #[error("a stripe of `{code}` takes {code_rows} chunks of a cell, which has only {chunks}")]
    CellTooSmall {
        /// Which code.
        code: String,
        /// Rows of its stripe.
        code_rows: u16,
        /// Chunks in a cell.
        chunks: u64,
    },
    /// Stripes of this code have no second form.
    #[error(
        "`{code}` has no form with copies: elastic stripes are one row of two or more data units and one or two parities"
    )]
    NotElastic {
        /// Which code.
        code: String,
    },
    /// Not even one group fits onto the drives.
    #[error("drives of {rows} cells hold no whole group of this layout")]
    NoGroup {
        /// Cells per drive.
        rows: u64,
    },
}

impl Hint for GeometryError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Chunk { .. } => Some("64K".into()),
            Self::Cell { .. } => None,
            Self::CellTooSmall { .. } => {
                Some("use smaller chunks (-o chunk=) or larger cells (-o cell=)".into())
            }
            Self::NotElastic { .. } => Some("use `raid5` or `raid6`".into()),
            Self::NoGroup { .. } => Some("use larger drives or smaller cells (-o cell=)".into()),
        }
    }
}

/// A request in the address space of one group's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRequest {
    /// Which group.
    pub group: GroupId,
    /// The request; its offset is in bytes of the group's data.
    pub request: Request,
    /// Where the request's bytes begin in its buffer (a router cuts requests at group ends).
    pub buffer_offset: u64,
    /// The volume whose share of log, memory and drives the request uses.
    pub volume: VolumeId,
}

/// The part of a request that lies in one element: `low..high` in bytes of the element, and where
/// in the request's buffer its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Slot of the element in the code (row × columns + column).
    pub slot: usize,
    /// First byte in the element.
    pub low: u64,
    /// One past the last byte in the element.
    pub high: u64,
    /// First byte in the request's buffer.
    pub buffer_offset: u64,
}

/// With how many drives the first drive shares groups, and this drive.
fn drives_in_rebuild(layout: &dyn Layout, rows: u64) -> u64 {
    let first = layout.cell(0, 0).seat;
    let mut seats = BTreeSet::new();
    for group in 0..layout.groups(rows).min(GROUPS_LOOKED_AT) {
        let cells = (0..layout.columns()).map(|column| layout.cell(group, column).seat);
        let cells: Vec<Seat> = cells.collect();
        if cells.contains(&first) {
            seats.extend(cells);
        }
    }
    seats.len() as u64
}

impl Geometry {
    /// Checks that code, layout and sizes go together.
    ///
    /// # Errors
    /// [`GeometryError`] names what does not fit.
    pub fn new(
        code: Arc<Code>,
        layout: Arc<dyn Layout>,
        chunk_bytes: u64,
        cell_bytes: u64,
        rows: u64,
        data_offset: u64,
        lanes: u16,
    ) -> Result<Self, GeometryError> {
        if !chunk_bytes.is_power_of_two() || chunk_bytes < BLOCK_BYTES {
            return Err(GeometryError::Chunk { chunk_bytes });
        }
        if !cell_bytes.is_power_of_two() || cell_bytes < chunk_bytes {
            return Err(GeometryError::Cell {
                cell_bytes,
                chunk_bytes,
            });
        }
        let chunks = cell_bytes / chunk_bytes;
        let slots = chunks / u64::from(code.rows());
        let stripes_per_group = layout.stripes_per_group(slots);
        if stripes_per_group == 0 {
            return Err(GeometryError::CellTooSmall {
                code: code.name().to_owned(),
                code_rows: code.rows(),
                chunks,
            });
        }
        if layout.groups(rows) == 0 {
            return Err(GeometryError::NoGroup { rows });
        }
        assert!(lanes > 0, "a pool has at least one lane");
        let drives_in_rebuild = drives_in_rebuild(&*layout, rows);
        Ok(Self {
            drives_in_rebuild,
            code,
            copies: None,
            layout,
            chunk_bytes,
            plane_bytes: cell_bytes,
            rows,
            data_offset,
            lanes,
            stripes_per_group,
            regions: None,
        })
    }

    /// The same for an elastic pool: each cell has a further plane of as many bytes for each copy that a stripe may be
    /// kept as, and stripes have two forms.
    ///
    /// # Errors
    /// [`GeometryError::NotElastic`] for codes whose stripes have no second form.
    pub fn with_copies(mut self) -> Result<Self, GeometryError> {
        let code = &self.code;
        let refused = || GeometryError::NotElastic {
            code: code.name().to_owned(),
        };
        let data = code.data().len();
        // The code of copies has its data in the same slots.
        let one_row = code.rows() == 1 && code.data_slots().eq(0..data);
        let fits = self.layout.columns() == code.columns();
        if !one_row || !fits || data < 2 || !(1..=2).contains(&code.tolerance()) {
            return Err(refused());
        }
        let width = u16::try_from(data).map_err(|_| refused())?;
        let copies = erasure::copies(width, code.tolerance()).map_err(|_| refused())?;
        self.copies = Some(Arc::new(copies));
        Ok(self)
    }

    /// The same with journal and metadata.
    #[must_use]
    pub const fn with_regions(mut self, regions: Regions) -> Self {
        self.regions = Some(regions);
        self
    }

    /// Drives that take part in the rebuild of a drive: those that share groups with the drive, and the drive itself.
    #[must_use]
    pub const fn drives_in_rebuild(&self) -> u64 {
        self.drives_in_rebuild
    }

    /// Bytes of one cell that a step of a fill moves, unless the cell is smaller. A fill waits for the slowest of its
    /// drives after each step, and the fewer fills share a drive, the longer the drive has nothing to do meanwhile. With
    /// many drives memory bounds the number of fills, so their steps are half as long. In the simulator 60 drives of 16
    /// MB/s (8+2) are busy for 77 % of a rebuild with 4 MiB and 21 fills, for 92 % with 2 MiB and 96 fills.
    #[must_use]
    pub const fn fill_step_bytes(&self) -> u64 {
        match self.drives_in_rebuild >= MANY_DRIVES {
            true => FILL_STEP_BYTES / 2,
            false => FILL_STEP_BYTES,
        }
    }

    /// How many stripes of each group should be free in a new pool of this shape.
    #[must_use]
    pub fn free_stripes_wanted(&self) -> u64 {
        let all = self.stripes_per_group;
        match STRIPES.contains(&all) && self.plane_bytes >= CELL_BYTES_MIN {
            true => FREE_STRIPES_MAX.min(all / FREE_STRIPES_ONE_IN),
            false => 0,
        }
    }

    /// Stripes of each group that hold nothing.
    #[must_use]
    pub fn free_stripes(&self) -> u64 {
        self.regions.map_or(0, |regions| regions.free_stripes)
    }

    /// Stripes of a group's data, without the free ones.
    #[must_use]
    pub fn data_stripes(&self) -> u64 {
        self.stripes_per_group - self.free_stripes()
    }

    /// Entries of the map of a group; 0 in pools without free stripes, unless they are elastic.
    #[must_use]
    pub fn map_entries(&self) -> u64 {
        match self.has_maps() {
            true => self.data_stripes(),
            false => 0,
        }
    }

    /// Whether groups have maps: their data may move, or be kept in another form.
    #[must_use]
    pub fn has_maps(&self) -> bool {
        self.is_elastic() || self.free_stripes() > 0
    }

    /// Whether stripes may be kept as copies.
    #[must_use]
    pub const fn is_elastic(&self) -> bool {
        self.copies.is_some()
    }

    /// Planes of a cell: one, and one more for each copy of elastic stripes.
    #[must_use]
    pub fn planes(&self) -> u64 {
        match self.is_elastic() {
            true => u64::from(self.code.tolerance()) + 1,
            false => 1,
        }
    }

    /// The forms that stripes of this pool may have.
    #[must_use]
    pub fn forms(&self) -> &'static [Form] {
        match self.is_elastic() {
            true => &Form::ALL,
            false => &Form::ALL[..1],
        }
    }

    /// The code of stripes in this form.
    ///
    /// # Panics
    /// When the pool has no such stripes.
    #[must_use]
    pub fn code_of(&self, form: Form) -> &Code {
        match form {
            Form::Parity => &self.code,
            Form::Copies => self.copies.as_ref().expect("the pool is elastic"),
        }
    }

    /// The name of a map entry, which is that of a block behind the last one of a column's cell: every column has the
    /// whole map.
    ///
    /// # Panics
    /// When the cell has 2^32 blocks or more.
    #[must_use]
    pub fn map_name(&self, group: GroupId, column: Column, data: DataStripe) -> BlockName {
        let block = self.cell_bytes() / BLOCK_BYTES + data.0;
        BlockName {
            group,
            column,
            block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
        }
    }

    /// Whether a name is that of a map entry, and not of a block.
    #[must_use]
    pub fn is_of_map(&self, name: BlockName) -> bool {
        u64::from(name.block) >= self.cell_bytes() / BLOCK_BYTES
    }

    /// All blocks of some stripes: data, parity, and copies, whatever their form is.
    #[must_use]
    pub fn blocks_of_stripes(&self, group: GroupId, stripes: Range<StripeId>) -> Vec<BlockName> {
        let stripes = stripes.start..stripes.end.min(StripeId(self.stripes_per_group));
        let mut names = Vec::new();
        for stripe in StripeId::each(stripes) {
            let places = self.places_of_stripe(group, stripe);
            names.extend(places.flat_map(|place| self.blocks_at(group, place)));
        }
        names
    }

    /// Column and chunk of every place of a stripe: those of its elements in each form.
    pub fn places_of_stripe(
        &self,
        group: GroupId,
        stripe: StripeId,
    ) -> impl Iterator<Item = (Column, u64)> + '_ {
        { self.forms().iter() }.flat_map(move |&form| {
            let data = self.code.data().len();
            // Data is at the same place in both forms.
            let first = match form {
                Form::Parity => 0,
                Form::Copies => data,
            };
            (first..self.code_of(form).elements())
                .map(move |slot| self.place(group, stripe, form, slot))
        })
    }

    /// The blocks of a stripe that only this form keeps: its parity, or its copies.
    pub fn blocks_only_of(
        &self,
        group: GroupId,
        stripe: StripeId,
        form: Form,
    ) -> impl Iterator<Item = BlockName> + '_ {
        let slots = self.code_of(form).parity_slots();
        slots.flat_map(move |slot| self.blocks_at(group, self.place(group, stripe, form, slot)))
    }

    /// The blocks of a chunk.
    fn blocks_at(
        &self,
        group: GroupId,
        (column, chunk): (Column, u64),
    ) -> impl Iterator<Item = BlockName> + use<> {
        let per_chunk = self.chunk_bytes / BLOCK_BYTES;
        (chunk * per_chunk..(chunk + 1) * per_chunk).map(move |block| BlockName {
            group,
            column,
            block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
        })
    }

    /// Chunks of a plane.
    const fn chunks_per_plane(&self) -> u64 {
        self.plane_bytes / self.chunk_bytes
    }

    /// The stripe that a block is part of.
    ///
    /// # Panics
    /// When it is part of none.
    #[must_use]
    pub fn stripe_of(&self, name: BlockName) -> StripeId {
        let per_chunk = self.chunk_bytes / BLOCK_BYTES;
        let chunk = u64::from(name.block) / per_chunk;
        let place = (name.column, chunk);
        let is_in = |&stripe: &StripeId| {
            self.places_of_stripe(name.group, stripe)
                .any(|at| at == place)
        };
        // Most layouts have a stripe's elements at one height in all cells.
        let likely = chunk % self.chunks_per_plane() / u64::from(self.code.rows());
        let stripes = std::iter::once(likely).chain(0..self.stripes_per_group);
        let found = stripes.map(StripeId).find(is_in);
        found.expect("what was logged is part of a stripe")
    }

    /// The form that has a block, if its place shows it: parity and copies do, data does not.
    #[must_use]
    pub fn form_at(&self, name: BlockName) -> Option<Form> {
        if !self.is_elastic() {
            return Some(Form::Parity);
        }
        let chunk = u64::from(name.block) / (self.chunk_bytes / BLOCK_BYTES);
        if chunk >= self.chunks_per_plane() {
            return Some(Form::Copies);
        }
        let stripe = self.stripe_of(name);
        let mut parities = self.code.parity_slots();
        let place = (name.column, chunk);
        parities
            .any(|slot| self.place(name.group, stripe, Form::Parity, slot) == place)
            .then_some(Form::Parity)
    }

    /// Whether a block holds data of clients, and neither parity nor a copy nor a map entry.
    #[must_use]
    pub fn is_data(&self, name: BlockName) -> bool {
        if self.is_of_map(name) {
            return false;
        }
        if self.is_elastic() {
            return self.form_at(name).is_none();
        }
        let mut row = self.row_of(name, Form::Parity);
        row.any(|(slot, other)| other == name && self.code.is_data(slot))
    }

    /// The row of a block of a stripe in this form: the blocks that are at the same height in their chunks, by slot.
    pub fn row_of(
        &self,
        name: BlockName,
        form: Form,
    ) -> impl Iterator<Item = (usize, BlockName)> + '_ {
        let per_chunk = self.chunk_bytes / BLOCK_BYTES;
        let within = u64::from(name.block) % per_chunk;
        let stripe = self.stripe_of(name);
        (0..self.code_of(form).elements()).map(move |slot| {
            let (column, chunk) = self.place(name.group, stripe, form, slot);
            let block = u32::try_from(chunk * per_chunk + within);
            let block = block.expect("cells have fewer than 2^32 blocks");
            let name = BlockName {
                column,
                block,
                ..name
            };
            (slot, name)
        })
    }

    /// Where journal and metadata lie, if the pool has them.
    #[must_use]
    pub const fn regions(&self) -> Option<&Regions> {
        self.regions.as_ref()
    }

    /// First byte of the cells on each drive.
    #[must_use]
    pub const fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Number of the cell's block that lies at byte `offset` of its drive.
    #[must_use]
    pub fn block_of(&self, offset: u64) -> u64 {
        (offset - self.data_offset) % self.cell_bytes() / BLOCK_BYTES
    }

    /// First byte on the drive of a block of a cell.
    #[must_use]
    pub fn block_offset(&self, cell: Cell, block: u64) -> u64 {
        self.data_offset + cell.row * self.cell_bytes() + block * BLOCK_BYTES
    }

    /// Pages that describe a cell.
    #[must_use]
    pub fn pages_per_cell(&self) -> u64 {
        pages_per_cell(self.cell_bytes(), self.map_entries())
    }

    /// The first copy of a lane's anchor: the first byte of its ring on each drive.
    ///
    /// # Panics
    /// When the pool has no journal.
    #[must_use]
    pub fn anchor_offset(&self, lane: u16) -> u64 {
        let regions = self.regions().expect("an anchor needs a journal");
        regions.journal_offset + u64::from(lane) * regions.ring_bytes
    }

    /// Copies of each page, on as many drives.
    #[must_use]
    pub fn page_copies(&self) -> u64 {
        let copies = self.regions.and_then(|regions| regions.page_copies);
        copies.map_or(2, u64::from)
    }

    /// Whether blocks that are written while their column has no cell keep their checksums.
    #[must_use]
    pub fn keeps_sums_of_absent(&self) -> bool {
        self.regions
            .is_some_and(|regions| regions.page_copies.is_some())
    }

    /// Bytes of all pages beside a cell.
    #[must_use]
    pub fn pages_beside_bytes(&self) -> u64 {
        self.page_copies() * self.pages_per_cell() * PAGE_BYTES
    }

    /// First byte on the drive of the pages beside a cell.
    #[must_use]
    pub fn pages_offset(&self, regions: &Regions, cell: Cell) -> u64 {
        regions.metadata_offset + cell.row * self.pages_beside_bytes()
    }

    /// First byte on the drive of page `index` of the column `distance` columns before the one that the cell
    /// holds.
    #[must_use]
    pub fn page_offset(&self, regions: &Regions, cell: Cell, index: u64, distance: u64) -> u64 {
        let place = match regions.page_copies {
            None => distance * self.pages_per_cell() + index,
            // The columns of a stripe in their order, so that pages that change together are one write.
            Some(copies) => (index + 1) * u64::from(copies) - 1 - distance,
        };
        self.pages_offset(regions, cell) + place * PAGE_BYTES
    }

    /// The pages beside a cell that holds `column`, in their order on the drive: column and number of each.
    #[must_use]
    pub fn pages_beside(&self, column: Column) -> Vec<(Column, u32)> {
        let (pages, copies) = (self.pages_per_cell(), self.page_copies());
        let columns = u64::from(self.layout.columns());
        let before = |distance: u64| {
            let before = (u64::from(column.0) + columns * copies - distance) % columns;
            Column(u16::try_from(before).expect("below the number of columns"))
        };
        let index = |index: u64| u32::try_from(index).expect("few pages");
        let interleaved = self
            .regions
            .is_some_and(|regions| regions.page_copies.is_some());
        (0..pages * copies)
            .map(|place| match interleaved {
                false => (before(place / pages), index(place % pages)),
                true => (before(copies - 1 - place % copies), index(place / copies)),
            })
            .collect()
    }

    /// The code. Of an elastic pool it is that of stripes with parity: decisions about whole groups go by this form,
    /// which survives no more than the other.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &dyn Layout {
        &*self.layout
    }

    /// Bytes of an element.
    #[must_use]
    pub const fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Bytes of a cell, all planes together.
    #[must_use]
    pub fn cell_bytes(&self) -> u64 {
        self.planes() * self.plane_bytes
    }

    /// Bytes of a plane: of the cell as it is without copies.
    #[must_use]
    pub const fn plane_bytes(&self) -> u64 {
        self.plane_bytes
    }

    /// Cells per drive.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Lanes of the pool; part of its format.
    #[must_use]
    pub const fn lanes(&self) -> u16 {
        self.lanes
    }

    /// Groups on all drives together.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.layout.groups(self.rows)
    }

    /// Whether each stripe has a part in every column of its group. In a far layout a group has more columns than a
    /// stripe, and a drive has several of them: the lost columns of a group do not show what its stripes have lost.
    #[must_use]
    pub fn stripes_use_all_columns(&self) -> bool {
        self.code().columns() == self.layout().columns()
    }

    /// The columns of a group, in ascending order.
    pub fn columns(&self) -> impl DoubleEndedIterator<Item = Column> + Clone + use<> {
        Column::each(Column(0)..Column(self.layout.columns()))
    }

    /// The column whose home is a cell.
    #[must_use]
    pub fn column_at(&self, cell: Cell) -> Option<(GroupId, Column)> {
        if cell.seat.0 >= self.layout.drives() {
            return None;
        }
        match self.layout.role(cell) {
            Role::Column { group, column } if group < self.groups() => {
                Some((GroupId(group), Column(column)))
            }
            Role::Column { .. } | Role::Spare { .. } | Role::Unused => None,
        }
    }

    /// The cell where the layout has a column: its home.
    #[must_use]
    pub fn home(&self, group: GroupId, column: Column) -> Cell {
        self.layout.cell(group.0, column.0)
    }

    /// Stripes in a group, the free ones too.
    #[must_use]
    pub const fn stripes_per_group(&self) -> u64 {
        self.stripes_per_group
    }

    /// Bytes of user data in a stripe.
    #[must_use]
    pub fn stripe_data_bytes(&self) -> u64 {
        self.code.data().len() as u64 * self.chunk_bytes
    }

    /// Bytes of user data in a group.
    #[must_use]
    pub fn group_data_bytes(&self) -> u64 {
        self.data_stripes() * self.stripe_data_bytes()
    }

    /// The lane that serves a group.
    #[must_use]
    pub fn lane_of(&self, group: GroupId) -> u16 {
        u16::try_from(group.0 % u64::from(self.lanes)).expect("a remainder of a u16")
    }

    /// Column of the group and chunk of that column's cell where an element of a stripe in this form lies. Data has the
    /// same slots and places in both forms.
    #[must_use]
    pub fn place(
        &self,
        group: GroupId,
        stripe: StripeId,
        form: Form,
        slot: usize,
    ) -> (Column, u64) {
        let number = group.0 * self.stripes_per_group + stripe.0;
        let narrow =
            |value: usize| u16::try_from(value).expect("stripes have fewer than 2^16 units");
        match form {
            Form::Parity => {
                let element = self.element(slot);
                let place = self.layout.place(number, stripe.0, element.column);
                let chunk = place.slot * u64::from(self.code.rows()) + u64::from(element.row);
                (Column(place.column), chunk)
            }
            Form::Copies => {
                let data = self.code.data().len();
                let (copy, unit) = (narrow(slot / data), narrow(slot % data));
                let planes = Planes::new(&*self.layout, self.code.columns(), self.code.tolerance());
                let place = match seeded::is(SeededFault::CopyBesideData) {
                    true => planes.copy_place(number, stripe.0, unit, 0),
                    false => planes.copy_place(number, stripe.0, unit, copy),
                };
                let before = u64::from(copy) * self.chunks_per_plane();
                (Column(place.column), before + place.slot)
            }
        }
    }

    /// Row and column of a slot of the code.
    #[must_use]
    pub fn element(&self, slot: usize) -> Element {
        let columns = usize::from(self.code.columns());
        let narrow = |value: usize| u16::try_from(value).expect("codes have fewer rows than 2^16");
        Element {
            row: narrow(slot / columns),
            column: narrow(slot % columns),
        }
    }

    /// First byte on the drive of chunk `chunk` of a cell.
    #[must_use]
    pub fn drive_offset(&self, cell: Cell, chunk: u64) -> u64 {
        self.data_offset + cell.row * self.cell_bytes() + chunk * self.chunk_bytes
    }

    /// Number of the block at byte `low` of a data element, in the group's data, of a stripe of that data; `None` for parity.
    #[must_use]
    pub fn data_block(&self, data: DataStripe, slot: usize, low: u64) -> Option<u64> {
        let index = self.code.data_slots().position(|other| other == slot)?;
        let at = data.0 * self.stripe_data_bytes() + index as u64 * self.chunk_bytes + low;
        Some(at / BLOCK_BYTES)
    }

    /// The stripes of the group's data that `request` touches, each with the segments of the request in it. In pools
    /// with free stripes the group's map gives the place of each stripe.
    pub fn stripes(&self, request: &GroupRequest) -> Vec<(DataStripe, Vec<Segment>)> {
        let mut stripes: Vec<(DataStripe, Vec<Segment>)> = Vec::new();
        let end = request.request.offset + request.request.length;
        let mut offset = request.request.offset;
        while offset < end {
            let stripe = DataStripe(offset / self.stripe_data_bytes());
            let in_stripe = offset % self.stripe_data_bytes();
            let element = in_stripe / self.chunk_bytes;
            let low = in_stripe % self.chunk_bytes;
            let high = self.chunk_bytes.min(low + (end - offset));
            let index = usize::try_from(element).expect("an index into the code's data");
            let segment = Segment {
                slot: self.code.index(self.code.data()[index]),
                low,
                high,
                buffer_offset: request.buffer_offset + (offset - request.request.offset),
            };
            match stripes.last_mut() {
                Some((last, segments)) if *last == stripe => segments.push(segment),
                _ => stripes.push((stripe, vec![segment])),
            }
            offset += high - low;
        }
        stripes
    }
}
