//! The beginning of a world: on fresh drives, or on drives that hold a pool.

use std::collections::BTreeMap;

use array::format;
use array::format::{CellShape, DriveMap};
use array::pool::{FoundDrive, NewDrive, OpenError, PoolError, PoolSpec, Ticket};
use block::{BLOCK_BYTES, Fault};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{World, WorldOptions, random_uuid};
use crate::drive::Drive;

impl World {
    /// Creates a pool on fresh drives.
    ///
    /// # Panics
    /// When the options do not make a pool: tests state what must work.
    #[must_use]
    pub fn create(options: &WorldOptions) -> Self {
        Self::create_with(options, false)
    }

    /// The same for clients whose sectors are one repeated byte each, which is faster.
    ///
    /// # Panics
    /// As [`World::create`].
    pub(crate) fn create_symbolic(options: &WorldOptions) -> Self {
        Self::create_with(options, true)
    }

    fn create_with(options: &WorldOptions, symbolic: bool) -> Self {
        let map = drive_map(options);
        let drives = (0..options.drives + options.spares)
            .map(|_| {
                let drive = Drive::new(options.drive_bytes, options.pace).with_map(map);
                drive.with_physical(physical_bytes(options))
            })
            .collect();
        let mut world = Self::begin_create(options, drives, symbolic);
        world
            .await_ticket(Ticket(0))
            .expect("a new pool is written");
        world
    }

    /// Begins to create a pool on drives that have been wiped ([`wipe`]). Nothing has been written yet on return.
    ///
    /// # Panics
    /// As [`World::create`].
    pub(crate) fn begin_create(options: &WorldOptions, drives: Vec<Drive>, symbolic: bool) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        let scheme: layout::Scheme = options.scheme.parse().expect("a scheme");
        // Drives of elastic pools compress; here all that they expose is physical space.
        let planes = scheme.elastic.then(|| u64::from(scheme.parity) + 1);
        let new_drive = |uuid, index: u16| NewDrive {
            physical_bytes: { planes.map(|planes| options.drive_bytes / planes) }
                .or_else(|| physical_bytes(options)),
            ..NewDrive::new(uuid, format!("sim:{index}"), options.drive_bytes)
        };
        let total = options.drives + options.spares;
        let mut all: Vec<NewDrive> = (0..total)
            .map(|index| new_drive(random_uuid(&mut rng), index))
            .collect();
        let spares = all.split_off(usize::from(options.drives));
        let spec = PoolSpec {
            name: "sim".to_owned(),
            uuid: random_uuid(&mut rng),
            scheme,
            chunk_bytes: Some(options.chunk_bytes),
            cell_bytes: Some(options.cell_bytes),
            journal: true,
            lazy: options.lazy,
            interleave: options.interleave,
            free_stripes: Some(if options.free_stripes { 2 } else { 0 }),
            drives: all,
            spares,
        };
        let pool =
            array::pool::create_with_regions(&spec, options.regions, Ticket(0)).expect("a pool");
        let seats = (0..usize::from(total)).map(Some).collect();
        Self::around(pool, drives, seats, rng, symbolic)
    }

    /// Opens the pool that is on `drives`. `degraded`: also if data is missing; drives that are not there are given up.
    ///
    /// # Errors
    /// As [`array::pool::open`].
    pub fn open(mut drives: Vec<Drive>, degraded: bool, seed: u64) -> Result<Self, OpenError> {
        let mut world = Self::begin_open(&mut drives, degraded, seed, false)?;
        world.finish_open();
        Ok(world)
    }

    /// Opens the pool that is on `drives`, or returns the drives and the reason why the pool does not open.
    ///
    /// # Errors
    /// As [`array::pool::open`], and if drives fail during the opening.
    ///
    /// # Panics
    /// When the opening does not end.
    pub fn try_open(mut drives: Vec<Drive>, seed: u64) -> Result<Self, (Vec<Drive>, String)> {
        let mut world = match Self::begin_open(&mut drives, false, seed, false) {
            Ok(world) => world,
            Err(error) => return Err((drives, error.to_string())),
        };
        match world.await_ticket(Ticket(0)) {
            Ok(()) => Ok(world),
            Err(error) => Err((world.kill(), error.to_string())),
        }
    }

    /// Begins to open the pool that is on `drives`, and cuts the power after so many events. Returns the drives as they
    /// are then.
    #[must_use]
    pub fn cut_opening(
        mut drives: Vec<Drive>,
        seed: u64,
        events: u32,
        cut: super::CutSpec,
    ) -> Vec<Drive> {
        let Ok(mut world) = Self::begin_open(&mut drives, false, seed, false) else {
            return drives;
        };
        for _ in 0..events {
            if !world.step() {
                break;
            }
        }
        world.cut(cut)
    }

    /// Runs until the pool is open.
    ///
    /// # Panics
    /// When the pool does not open.
    pub(crate) fn finish_open(&mut self) {
        self.await_ticket(Ticket(0))
            .expect("an opened pool is written");
    }

    /// The outcome of the opening that [`World::begin_open`] began, if it has ended.
    pub(crate) fn opened(&self) -> Option<Result<(), PoolError>> {
        self.outcome(Ticket(0))
    }

    /// Begins to open the pool on `drives`. On return the labels to trust have been chosen, and nothing has been
    /// written. The drives are taken only on success.
    pub(crate) fn begin_open(
        drives: &mut Vec<Drive>,
        degraded: bool,
        seed: u64,
        symbolic: bool,
    ) -> Result<Self, OpenError> {
        let mut found = Vec::new();
        let mut places = Vec::new();
        let mut labels = format::LabelReader::default();
        for (index, drive) in drives.iter_mut().enumerate() {
            let slots = format::LABEL_OFFSETS
                .map(|offset| drive.read_used(offset, format::LABEL_SLOT_BYTES as u64));
            let [Ok(first), Ok(second)] = slots else {
                continue;
            };
            if let Ok((label_slot, label)) = labels.newest([&first, &second]) {
                found.push(FoundDrive {
                    path: format!("sim:{index}"),
                    label,
                    label_slot,
                    size_bytes: drive.size_bytes(),
                    fault: None,
                    bay: None,
                });
                places.push(index);
            }
        }
        let mut opening = array::pool::open(&found, degraded)?;
        if degraded {
            let away = opening.away();
            opening = opening.giving_up(away);
        }
        let seated = opening.seated().clone();
        // Checked here too, independently of the pool's own logic.
        let newest = found.iter().map(|drive| drive.label.generation).max();
        for &at in seated.values() {
            let generation = found[at].label.generation;
            assert!(
                Some(generation.next()) >= newest,
                "a drive of generation {generation} takes part, and the newest is {newest:?}"
            );
        }
        let facts = opening.facts().clone();
        let mut tables = BTreeMap::new();
        let mut slots = BTreeMap::new();
        let mut in_seats = vec![None; facts.seats.len()];
        for (seat, at) in seated.into_iter().chain(opening.candidates()) {
            let drive = &mut drives[places[at]];
            let mut pages = Vec::new();
            for first_row in (0..facts.rows).step_by(252) {
                let both = facts.cell_table_offset + format::CellPage::empty(first_row).offset();
                if drive
                    .read_used(both, 2 * 4096)
                    .is_ok_and(|used| used.is_empty())
                {
                    // Never written, as on nearly every drive.
                    pages.push(format::CellPage::empty(first_row));
                    continue;
                }
                let mut empty = format::CellPage::empty(first_row);
                let copies = [0, 1].map(|sequence| {
                    empty.sequence = sequence;
                    let mut bytes = vec![0; 4096];
                    drive
                        .read(facts.cell_table_offset + empty.offset(), &mut bytes)
                        .map_or_else(|_| vec![0; 4096], |()| bytes)
                });
                pages.push(format::CellPage::newest(
                    [&copies[0], &copies[1]],
                    found[at].label.drive,
                    first_row,
                ));
            }
            tables.insert(seat, pages);
            slots.insert(seat, found[at].label_slot);
            in_seats[seat.index()] = Some(places[at]);
        }
        // Drives that are out keep their seat, so that they can be brought back.
        for (seat, facts) in facts.seats() {
            let at = found
                .iter()
                .position(|found| found.label.drive == facts.drive);
            let place = &mut in_seats[seat.index()];
            *place = place.or(at.map(|at| places[at]));
        }
        let pool = opening.finish(tables, &slots, Ticket(0))?;
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let drives = std::mem::take(drives);
        Ok(Self::around(pool, drives, in_seats, rng, symbolic))
    }
}

/// The regions of the drives of a pool with these options.
fn drive_map(options: &WorldOptions) -> DriveMap {
    let map = |page_copies, planes| {
        let shape = CellShape {
            page_copies,
            map_entries: 0,
            planes,
        };
        DriveMap::with_shape(options.drive_bytes, Some(options.cell_bytes), shape).expect("a map")
    };
    let first = map(2, 1);
    if options.regions.is_some_and(|regions| regions.first_format) {
        return first;
    }
    let scheme: layout::Scheme = options.scheme.parse().expect("a scheme");
    let elastic = scheme.elastic;
    let shape = layout::Geometry::new(&scheme, Some(options.drives), first.rows);
    let survivors = shape.expect("a layout").code.parity + 1;
    map(survivors.max(2), if elastic { survivors } else { 1 })
}

/// The physical space of a drive that compresses: that of labels, ring and pages, the copies of labels at the end, and as
/// much again of what a journal holds.
fn physical_bytes(options: &WorldOptions) -> Option<u64> {
    let blocks = options.physical_blocks?;
    Some(drive_map(options).data_offset + (1 << 20) + blocks * BLOCK_BYTES)
}

/// Zeroes everything before the rows of a drive, where an earlier pool may have left its data. Run this before a pool
/// is created.
///
/// # Errors
/// The drive's error.
pub(crate) fn wipe(drive: &mut Drive) -> Result<(), Fault> {
    let map = *drive.map().expect("drives of pools know their regions");
    drive.zero(0, map.cell_table_offset)?;
    let tables = map.data_offset - map.cell_table_offset;
    drive.zero(map.cell_table_offset, tables)?;
    drive.flush()
}
