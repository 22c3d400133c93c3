//! Map versions: a layout is replaced by a later one, segment by segment.
//!
//! Expansion and spare resizing change where groups are. Groups keep their numbers. They are gathered in *segments*,
//! and each segment records its map version and its first row. The rows of one segment are kept free. The segment next
//! to the free rows moves there first, which frees its own rows for the next segment, and so on:
//!
//! ```text
//!   rows     0        R                2R               3R
//!            [ free   | segment 0 (v0)    | segment 1 (v0)    |        the new map needs fewer rows
//!            [ b0 (v1)|    free        | segment 1 (v0)    |        for as many groups: it has more
//!            [ b0 (v1)| b1 (v1) |        free           |        drives
//! ```
//!
//! A step copies a segment from its rows to rows that are not in use; only then the segment's entry
//! changes. A crash before that leaves the old entry, and the copy is repeated. Afterwards the free
//! rows are at the other end, and the next replacement goes in the other direction.
//!
//! Every map consists of *steps* ([`Layout::step`]): segments take whole steps, and each continues
//! at the step where the previous segment ended, so that all shifts and bases of a pattern are
//! used.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use block::{Hint, Seat};

use crate::{Cell, Layout, Place, Role};

/// Where a run of groups lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSegment {
    /// Its first group.
    pub first_group: u64,
    /// How many groups.
    pub groups: u64,
    /// Index of the map.
    pub version: u16,
    /// Its first row.
    pub base_row: u64,
    /// Which step of the map the first row is.
    pub base_step: u64,
}

/// One segment's move: copy from `from` to `to`, then [`Versioned::commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which segment.
    pub segment: usize,
    /// The current entry.
    pub from: MapSegment,
    /// The entry after the move.
    pub to: MapSegment,
}

/// Why a map cannot replace another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// The previous replacement has not ended.
    #[error("a replacement is under way: one map is replaced at a time")]
    UnderWay,
    /// The number of columns of a group would change.
    #[error("groups have {old} columns and the new map's have {new}: a version keeps them")]
    Columns {
        /// As it is.
        old: u16,
        /// As it would be.
        new: u16,
    },
    /// The rotation of stripes inside a group would change, but groups are moved cell by cell.
    #[error("the new map turns stripes differently inside a group, and cells move as they are")]
    Rotation,
    /// The new map needs more rows than are free.
    #[error("{groups} groups take {needed} rows under the new map and there are {rows}")]
    Rows {
        /// Groups there are.
        groups: u64,
        /// Rows they would take, the free segment included.
        needed: u64,
        /// Rows there are.
        rows: u64,
    },
}

impl Hint for ReplaceError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::UnderWay => "let it end first".into(),
            Self::Columns { .. } => "copy into a new pool instead".into(),
            Self::Rotation => "choose a map of the same family".into(),
            Self::Rows { .. } => "free some groups or add drives".into(),
        })
    }
}

/// A layout with its map versions, and the replacement that is under way, if any.
#[derive(Clone, Debug)]
pub struct Versioned {
    maps: Vec<Arc<dyn Layout>>,
    /// In the order of groups, and of rows.
    segments: Vec<MapSegment>,
    rows: u64,
    segment_groups: u64,
    /// True if the next replacement moves segments towards row 0, first segment first.
    free_below: bool,
}

impl Versioned {
    /// Segments of about `segment_groups` groups on drives of `rows` cells, with one segment's rows free at
    /// the top.
    #[must_use]
    pub fn new(map: Arc<dyn Layout>, rows: u64, segment_groups: u64) -> Self {
        let (_, step_groups) = map.step();
        let mut versioned = Self {
            maps: vec![map],
            segments: Vec::new(),
            rows,
            segment_groups: segment_groups.max(1).next_multiple_of(step_groups),
            free_below: false,
        };
        versioned.grow();
        versioned
    }

    /// The segments, in the order of their groups.
    #[must_use]
    pub fn segments(&self) -> &[MapSegment] {
        &self.segments
    }

    /// The map of new groups.
    #[must_use]
    pub fn latest(&self) -> &Arc<dyn Layout> {
        self.maps.last().expect("there is at least one map")
    }

    /// Rows that `segment` takes.
    #[must_use]
    pub fn segment_rows(&self, segment: &MapSegment) -> Range<u64> {
        segment.base_row..segment.base_row + self.rows_for(segment.version, segment.groups)
    }

    fn rows_for(&self, version: u16, groups: u64) -> u64 {
        let (rows, in_step) = self.maps[usize::from(version)].step();
        groups.div_ceil(in_step) * rows
    }

    fn latest_version(&self) -> u16 {
        u16::try_from(self.maps.len() - 1).expect("few versions")
    }

    /// Adds segments in the free rows but keeps one segment's rows free; returns how many groups
    /// were added. Adds none while a replacement is under way.
    pub fn grow(&mut self) -> u64 {
        if self.next_step().is_some() {
            return 0;
        }
        let version = self.latest_version();
        let height = self.rows_for(version, self.segment_groups);
        let (step_rows, _) = self.latest().step();
        let mut added = 0;
        loop {
            let last = self.segments.last();
            let base_row = match last {
                Some(segment) => self.segment_rows(segment).end,
                None => 0,
            };
            let free_below = self.segments.first().map_or(0, |segment| segment.base_row);
            let keep = if free_below >= height { 0 } else { height };
            if base_row + height + keep > self.rows {
                return added;
            }
            let first_group = last.map_or(0, |segment| segment.first_group + segment.groups);
            let base_step = last.map_or(0, |segment| {
                segment.base_step + (self.segment_rows(segment).end - segment.base_row) / step_rows
            });
            self.segments.push(MapSegment {
                first_group,
                groups: self.segment_groups,
                version,
                base_row,
                base_step,
            });
            added += self.segment_groups;
        }
    }

    /// Starts the replacement by `map`: every segment moves to this version, step by step.
    ///
    /// # Errors
    /// When a replacement is under way, when columns or the rotation inside groups differ, or when
    /// there are too few rows.
    pub fn replace(&mut self, map: Arc<dyn Layout>) -> Result<(), ReplaceError> {
        if self.next_step().is_some() {
            return Err(ReplaceError::UnderWay);
        }
        let (old, new) = (self.columns(), map.columns());
        if old != new {
            return Err(ReplaceError::Columns { old, new });
        }
        if !self.turns_alike(map.as_ref()) {
            return Err(ReplaceError::Rotation);
        }
        self.maps.push(map);
        self.free_below = self
            .segments
            .first()
            .is_some_and(|segment| segment.base_row > 0);
        // Dry run: every step must find its rows free.
        let mut trial = self.clone();
        while let Some(step) = trial.next_step() {
            let target = trial.segment_rows(&step.to);
            let collides = trial.segments.iter().any(|segment| {
                let rows = trial.segment_rows(segment);
                rows.start < target.end && target.start < rows.end
            });
            if collides || target.end > self.rows {
                let version = self.latest_version();
                let height: u64 = self
                    .segments
                    .iter()
                    .map(|segment| self.rows_for(version, segment.groups))
                    .sum();
                let error = ReplaceError::Rows {
                    groups: self.segments.iter().map(|segment| segment.groups).sum(),
                    needed: height + self.rows_for(version, self.segment_groups),
                    rows: self.rows,
                };
                self.maps.pop();
                return Err(error);
            }
            trial.commit(&step);
        }
        Ok(())
    }

    /// Whether `map` places stripes inside a group as the maps so far do.
    fn turns_alike(&self, map: &dyn Layout) -> bool {
        let now = self.latest();
        let slots = now.rotation_slots();
        let stripes = now.stripes_per_group(slots);
        map.rotation_slots() == slots
            && map.stripes_per_group(slots) == stripes
            && (0..stripes).all(|s| {
                (0..self.columns()).all(|unit| map.place(s, s, unit) == now.place(s, s, unit))
            })
    }

    /// The next segment to move, `None` when all segments are under the latest map.
    #[must_use]
    pub fn next_step(&self) -> Option<Step> {
        let version = self.latest_version();
        let waits = |segment: &MapSegment| segment.version != version;
        let (step_rows, _) = self.latest().step();
        let (index, base_row, base_step) = if self.free_below {
            let index = self.segments.iter().position(waits)?;
            match index.checked_sub(1).map(|before| &self.segments[before]) {
                Some(before) => {
                    let rows = self.segment_rows(before);
                    let steps = (rows.end - rows.start) / step_rows;
                    (index, rows.end, before.base_step + steps)
                }
                None => (index, 0, 0),
            }
        } else {
            let index = self.segments.iter().rposition(waits)?;
            let height = self.rows_for(version, self.segments[index].groups);
            // Steps continue from segment to segment as if all segments had been moved.
            let before: u64 = self.segments[..index]
                .iter()
                .map(|segment| self.rows_for(version, segment.groups))
                .sum();
            let end = self
                .segments
                .get(index + 1)
                .map_or(self.rows, |after| after.base_row);
            (index, end.saturating_sub(height), before / step_rows)
        };
        let from = self.segments[index];
        let to = MapSegment {
            version,
            base_row,
            base_step,
            ..from
        };
        Some(Step {
            segment: index,
            from,
            to,
        })
    }

    /// Records that a step's copy is complete and durable.
    ///
    /// # Panics
    /// When the step is not the next one.
    pub fn commit(&mut self, step: &Step) {
        assert_eq!(
            Some(step),
            self.next_step().as_ref(),
            "steps are taken in order"
        );
        self.segments[step.segment] = step.to;
    }

    /// Where a column would lie under a segment's entry, whether or not it is the current one.
    #[must_use]
    pub fn cell_in(&self, segment: &MapSegment, group: u64, column: u16) -> Cell {
        let map = &self.maps[usize::from(segment.version)];
        let (step_rows, step_groups) = map.step();
        let local = segment.base_step * step_groups + (group - segment.first_group);
        let cell = map.cell(local, column);
        Cell {
            seat: cell.seat,
            row: cell.row - segment.base_step * step_rows + segment.base_row,
        }
    }

    fn segment_of_group(&self, group: u64) -> &MapSegment {
        let after = self
            .segments
            .partition_point(|segment| segment.first_group <= group);
        &self.segments[after - 1]
    }

    fn segment_of_row(&self, row: u64) -> Option<&MapSegment> {
        let after = self
            .segments
            .partition_point(|segment| segment.base_row <= row);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        self.segment_rows(segment).contains(&row).then_some(segment)
    }

    /// The map of a segment and two rows (.0, .1): pool row = map row − .0 + .1.
    fn map_of(&self, segment: &MapSegment) -> (&Arc<dyn Layout>, u64, u64) {
        let map = &self.maps[usize::from(segment.version)];
        (map, segment.base_step * map.step().0, segment.base_row)
    }
}

impl Layout for Versioned {
    fn drives(&self) -> u16 {
        self.maps.iter().map(|map| map.drives()).max().unwrap_or(0)
    }

    fn columns(&self) -> u16 {
        self.maps[0].columns()
    }

    /// The minimum over all segments: every row has at least that many.
    fn spares(&self) -> u16 {
        let versions = self.segments.iter().map(|segment| segment.version);
        let spares = versions.map(|version| self.maps[usize::from(version)].spares());
        spares.min().unwrap_or_else(|| self.latest().spares())
    }

    fn groups(&self, rows: u64) -> u64 {
        let fits = |segment: &&MapSegment| self.segment_rows(segment).end <= rows;
        self.segments
            .iter()
            .take_while(fits)
            .map(|segment| segment.groups)
            .sum()
    }

    fn cell(&self, group: u64, column: u16) -> Cell {
        self.cell_in(self.segment_of_group(group), group, column)
    }

    fn role(&self, cell: Cell) -> Role {
        let Some(segment) = self.segment_of_row(cell.row) else {
            return Role::Unused;
        };
        let (map, map_row, base_row) = self.map_of(segment);
        if cell.seat.0 >= map.drives() {
            return Role::Unused;
        }
        let local = Cell {
            seat: cell.seat,
            row: cell.row - base_row + map_row,
        };
        match map.role(local) {
            Role::Column { group, column } => {
                let group = group - segment.base_step * map.step().1;
                if group < segment.groups {
                    Role::Column {
                        group: group + segment.first_group,
                        column,
                    }
                } else {
                    Role::Unused
                }
            }
            other => other,
        }
    }

    fn spare(&self, row: u64, index: u16) -> Seat {
        match self.segment_of_row(row) {
            Some(segment) => {
                let (map, map_row, base_row) = self.map_of(segment);
                map.spare(row - base_row + map_row, index)
            }
            None => self.latest().spare(row, index),
        }
    }

    fn pattern_rows(&self) -> u64 {
        self.rows
    }

    fn rotation_slots(&self) -> u64 {
        self.latest().rotation_slots()
    }

    fn stripes_per_group(&self, slots: u64) -> u64 {
        self.latest().stripes_per_group(slots)
    }

    fn place(&self, stripe: u64, index: u64, unit: u16) -> Place {
        self.latest().place(stripe, index, unit)
    }

    fn unplace(&self, first: u64, place: Place) -> Option<(u64, u16)> {
        self.latest().unplace(first, place)
    }

    fn spare_for(
        &self,
        group: u64,
        column: u16,
        out: &dyn Fn(Seat) -> bool,
        used: &dyn Fn(Cell) -> bool,
    ) -> Option<Cell> {
        let segment = self.segment_of_group(group);
        let (map, map_row, base_row) = self.map_of(segment);
        let pool_cell = |cell: Cell| Cell {
            seat: cell.seat,
            row: cell.row - map_row + base_row,
        };
        let local = segment.base_step * map.step().1 + (group - segment.first_group);
        map.spare_for(local, column, out, &|cell| used(pool_cell(cell)))
            .map(pool_cell)
    }
}
