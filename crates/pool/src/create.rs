//! A new pool: from a scheme, options and drives to facts and geometry.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::{ByteSize, Hint, Seat};
use format::{
    CellShape, DERIVED_PARITY, DIRECT_WRITES, DriveMap, DriveMapError, ELASTIC, FREE_STRIPES,
    Generation, INTERLEAVED_VOLUMES, LABEL_SLOT_BYTES, LAZY_INITIALIZATION, PAGE_COPIES,
    pages_per_cell,
};
use layout::Scheme;
use plan::{Geometry, GeometryError, Regions};
use uuid::Uuid;

use super::elastic::ElasticError;
use super::space::interleave_for;
use super::spec::{NewDrive, PoolSpec};
use super::volumes::is_name;
use super::{
    LossFacts, OnDurable, Pool, PoolFacts, RegionFacts, ScrubFacts, SeatFacts, SeatState,
    SteerFacts, Ticket,
};

/// Bytes of a chunk unless `-o chunk=` sets another size. A guess between md's 512 KiB, which makes
/// small writes cheap to place and full stripes rare, and the 4 KiB that would do for the codes.
pub(super) const CHUNK_BYTES_DEFAULT: u64 = 64 << 10;

/// Room in a label for a layout's table, in hexadecimal; the rest of the slot is for seats and volumes.
pub(super) const TABLE_ROOM: usize = LABEL_SLOT_BYTES / 4 * 3;

/// Whether a pool's table is certain to fit there: it has six bytes for every piece of every drive, and nine more.
fn table_fits(drives: u16, rows: u64) -> bool {
    let pieces = rows.saturating_mul(drives.into());
    let bytes = pieces.saturating_mul(2 * 6).saturating_add(2 * 9);
    bytes <= TABLE_ROOM as u64
}

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The name is not allowed.
    #[error("`{name}` is not a pool name")]
    Name {
        /// Which.
        name: String,
    },
    /// No drives at all.
    #[error("no drives were given")]
    NoDrives,
    /// A drive is too small.
    #[error("{path}: {error}")]
    Drive {
        /// Which.
        path: String,
        /// Why.
        error: DriveMapError,
    },
    /// The scheme gives no layout on these drives.
    #[error("scheme `{scheme}`: {error}")]
    Layout {
        /// As given.
        scheme: Box<Scheme>,
        /// Why.
        error: layout::GeometryError,
    },
    /// The code does not exist at this width.
    #[error("scheme `{scheme}`: {error}")]
    Code {
        /// As given.
        scheme: Box<Scheme>,
        /// Why.
        error: erasure::CodeError,
    },
    /// Sizes do not fit one another.
    #[error("{0}")]
    Geometry(#[from] GeometryError),
    /// The layout's table does not fit into a label.
    #[error("the layout's table takes {bytes} bytes and a label has room for {room}")]
    TableTooLarge {
        /// Its size.
        bytes: usize,
        /// The room in a label.
        room: usize,
    },
    /// The pool cannot be elastic.
    #[error("scheme `{scheme}`: {error}")]
    Elastic {
        /// As given.
        scheme: Box<Scheme>,
        /// Why.
        error: ElasticError,
    },
    /// The stored layout table cannot be read.
    #[error("the label's layout table is not hexadecimal")]
    Table,
}

impl Hint for CreateError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Name { .. } => Some(
                "use letters, digits, `-`, `_` and `.`, at most 64, beginning with a letter or digit"
                    .into(),
            ),
            Self::NoDrives => Some("name them after the scheme".into()),
            Self::Drive { error, .. } => error.hint(),
            Self::Layout { error, .. } => error.hint(),
            Self::Code { error, .. } => error.hint(),
            Self::Geometry(error) => error.hint(),
            Self::TableTooLarge { .. } => {
                Some("use larger pieces (-o piece=), or a layout without a table".into())
            }
            Self::Elastic { error, .. } => error.hint(),
            Self::Table => None,
        }
    }
}

/// Builds the geometry from code and layout. `table` is the table that the layout stored when the pool was made.
pub(super) fn geometry(
    scheme: &Scheme,
    drives: u16,
    sizes: Sizes,
    table: Option<&[u8]>,
) -> Result<(Geometry, Option<Vec<u8>>), CreateError> {
    let layout_error = |error| CreateError::Layout {
        scheme: Box::new(scheme.clone()),
        error,
    };
    let shape = match table {
        Some(table) => layout::Geometry::restore(scheme, Some(drives), sizes.rows, table),
        None => layout::Geometry::new(scheme, Some(drives), sizes.rows),
    }
    .map_err(layout_error)?;
    let code = erasure::by_columns(&shape.code.name, shape.code.columns).map_err(|error| {
        CreateError::Code {
            scheme: Box::new(scheme.clone()),
            error,
        }
    })?;
    let stored = shape.stored();
    let planes = match sizes.elastic {
        true => u64::from(code.tolerance()) + 1,
        false => 1,
    };
    let geometry = Geometry::new(
        Arc::new(code),
        Arc::clone(&shape.layout),
        sizes.chunk_bytes,
        sizes.cell_bytes / planes,
        sizes.rows,
        sizes.data_offset,
        sizes.lanes,
    )?;
    let geometry = match sizes.elastic {
        true => geometry.with_copies()?,
        false => geometry,
    };
    let geometry = match sizes.regions {
        Some(regions) => geometry.with_regions(regions),
        None => geometry,
    };
    Ok((geometry, stored))
}

/// The sizes that a geometry needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) chunk_bytes: u64,
    pub(super) cell_bytes: u64,
    pub(super) rows: u64,
    pub(super) data_offset: u64,
    pub(super) lanes: u16,
    /// Stripes may be kept as copies: each cell has more than one plane.
    pub(super) elastic: bool,
    pub(super) regions: Option<Regions>,
}

/// The regions, with the features that the pool `has`.
pub(super) fn regions(facts: RegionFacts, pool: Uuid, has: impl Fn(&str) -> bool) -> Regions {
    Regions {
        pool,
        journal_offset: facts.journal_offset,
        ring_bytes: facts.ring_bytes,
        metadata_offset: facts.metadata_offset,
        page_copies: facts.page_copies,
        direct_writes: has(DIRECT_WRITES),
        derived_parity: has(DERIVED_PARITY),
        free_stripes: { facts.free_stripes }
            .filter(|_| has(FREE_STRIPES))
            .unwrap_or(0),
    }
}

/// Checks a spec and makes the pool. Its first generation is written to all drives before
/// `ticket` is done; until then nothing on the drives has changed.
///
/// # Errors
/// [`CreateError`] names the part of the spec that does not work.
pub fn create(spec: &PoolSpec, ticket: Ticket) -> Result<Pool, CreateError> {
    create_with_regions(spec, None, ticket)
}

/// How the journal's region is divided, if not by the size of the drives. Tests use short rings that are soon full, and
/// several lanes on small drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionSizes {
    /// Lanes of the pool, if not by the drives' size.
    pub lanes: Option<u16>,
    /// Bytes of each lane's ring on a drive, if not as long as fits.
    pub ring_bytes: Option<u64>,
    /// The pool has no features, like the first pools of format 1.
    pub first_format: bool,
}

/// As [`create`], with the journal divided as `regions` specifies.
///
/// # Errors
/// As [`create`].
///
/// # Panics
/// When the rings do not fit into the journal's region.
pub fn create_with_regions(
    spec: &PoolSpec,
    regions: Option<RegionSizes>,
    ticket: Ticket,
) -> Result<Pool, CreateError> {
    if !is_name(&spec.name) {
        return Err(CreateError::Name {
            name: spec.name.clone(),
        });
    }
    let elastic_error = |error| CreateError::Elastic {
        scheme: Box::new(spec.scheme.clone()),
        error,
    };
    let Some(elastic) = spec.elastic().map_err(elastic_error)? else {
        return create_plain(spec, regions, ticket);
    };
    let mut spec = spec.expanded(elastic);
    let mut pool = create_plain(&spec, regions, ticket)?;
    if spec.chunk_bytes.is_none()
        && let Err(ElasticError::Stripes { nearest_bytes, .. }) = elastic.check(&pool.cx.geometry)
        && nearest_bytes.is_some()
    {
        // Large drives have large cells: their chunks are as large as their maps ask for.
        spec.chunk_bytes = nearest_bytes;
        pool = create_plain(&spec, regions, ticket)?;
    }
    elastic.check(&pool.cx.geometry).map_err(elastic_error)?;
    Ok(pool)
}

/// Makes the pool, with as many copies of pages as its code needs.
fn create_plain(
    spec: &PoolSpec,
    regions: Option<RegionSizes>,
    ticket: Ticket,
) -> Result<Pool, CreateError> {
    if !spec.journal || regions.is_some_and(|regions| regions.first_format) {
        return create_with(spec, regions, None, 0, ticket);
    }
    let expected = expected_page_copies(&spec.scheme);
    let pool = create_with(spec, regions, Some(expected), 0, ticket)?;
    let copies = page_copies(&pool.cx.geometry);
    let map_entries = pool.cx.geometry.map_entries();
    // The words of the scheme and the tolerance of its code may differ, and a map may need pages of its own.
    let pages_reserved = pages_per_cell(pool.cx.geometry.cell_bytes(), 0);
    match copies == expected && pool.cx.geometry.pages_per_cell() == pages_reserved {
        true => Ok(pool),
        false => create_with(spec, regions, Some(copies), map_entries, ticket),
    }
}

/// Copies of each metadata page: one more than the losses that the code survives, and at least two: in a pool without
/// redundancy one lost block should not lose a page.
fn page_copies(geometry: &Geometry) -> u16 {
    (geometry.code().tolerance() + 1).max(2)
}

/// The same by the scheme's words alone: the regions must be known before there is a layout.
fn expected_page_copies(scheme: &Scheme) -> u16 {
    let losses = match scheme.copies {
        Some(copies) => copies.saturating_sub(1),
        None => scheme.parity,
    };
    (losses + 1).max(2)
}

fn create_with(
    spec: &PoolSpec,
    regions: Option<RegionSizes>,
    page_copies: Option<u16>,
    map_entries: u64,
    ticket: Ticket,
) -> Result<Pool, CreateError> {
    let drives = u16::try_from(spec.drives.len()).unwrap_or(u16::MAX);
    let all = || spec.drives.iter().chain(&spec.spares);
    let smallest = all()
        .min_by_key(|drive| spec.used_bytes(drive))
        .ok_or(CreateError::NoDrives)?;
    let elastic = spec.scheme.elastic && page_copies.is_some();
    let planes = match elastic {
        true => spec.scheme.parity + 1,
        false => 1,
    };
    let shape = CellShape {
        page_copies: page_copies.unwrap_or(2),
        map_entries,
        planes,
    };
    // The journal is as long as physical space allows: what the drives expose beyond that is for data that compresses.
    let physical = all().map(|drive| drive.physical_bytes.unwrap_or(u64::MAX));
    let journal_of = physical.fold(spec.used_bytes(smallest), u64::min);
    let divide = |plane_bytes| {
        let sizes = (spec.used_bytes(smallest), journal_of);
        let map = DriveMap::with_journal_of(sizes, plane_bytes, shape);
        map.map_err(|error| CreateError::Drive {
            path: smallest.path.clone(),
            error,
        })
    };
    let mut map = divide(spec.cell_bytes)?;
    if spec.cell_bytes.is_none() && spec.scheme.family.is_pool() {
        // A pool's table names every piece, and it has to fit into a label: on many or large drives pieces are
        // larger.
        while !table_fits(drives, map.rows)
            && let Ok(larger) = divide(Some(2 * map.cell_bytes / u64::from(planes)))
        {
            map = larger;
        }
    }
    let chunk_bytes = spec
        .chunk_bytes
        .unwrap_or(CHUNK_BYTES_DEFAULT.min(map.cell_bytes / u64::from(planes)));
    let lanes = regions
        .and_then(|regions| regions.lanes)
        .unwrap_or_else(|| DriveMap::default_lanes(journal_of));
    let ring_bytes = regions
        .and_then(|regions| regions.ring_bytes)
        .unwrap_or_else(|| map.ring_bytes(lanes));
    assert!(
        ring_bytes <= map.ring_bytes(lanes),
        "the rings fit into their region"
    );
    let mut regions = spec.journal.then_some(RegionFacts {
        journal_offset: map.journal_offset,
        ring_bytes,
        metadata_offset: map.metadata_offset,
        page_copies,
        free_stripes: None,
    });
    let sizes = Sizes {
        chunk_bytes,
        cell_bytes: map.cell_bytes,
        rows: map.rows,
        data_offset: map.data_offset,
        lanes,
        elastic,
        regions: regions.map(|facts| self::regions(facts, spec.uuid, |_| page_copies.is_some())),
    };
    let (mut geometry, table) = geometry(&spec.scheme, drives, sizes, None)?;
    if let (Some(facts), Some(regions)) = (&mut regions, sizes.regions)
        && page_copies.is_some()
    {
        let suggested = || geometry.free_stripes_wanted();
        let free_stripes = spec.free_stripes.unwrap_or_else(suggested);
        let free_stripes = free_stripes.min(geometry.stripes_per_group() - 1);
        facts.free_stripes = (free_stripes > 0).then_some(free_stripes);
        geometry = geometry.with_regions(Regions {
            free_stripes,
            ..regions
        });
    }
    let room = TABLE_ROOM;
    let bytes = table.as_ref().map_or(0, |table| 2 * table.len());
    if bytes > room {
        return Err(CreateError::TableTooLarge { bytes, room });
    }
    let seat = |drive: &NewDrive, state| SeatFacts {
        drive: drive.uuid,
        path: drive.path.clone(),
        size_bytes: drive.size_bytes,
        domain: drive.domain.clone(),
        bay: drive.bay.clone(),
        state,
        holds: None,
        replaces: None,
        found_bytes: None,
        number: None,
        in_journal: false,
    };
    let facts = PoolFacts {
        uuid: spec.uuid,
        name: spec.name.clone(),
        scheme: spec.scheme.to_string(),
        chunk_bytes,
        cell_bytes: map.cell_bytes,
        rows: map.rows,
        data_offset: map.data_offset,
        cell_table_offset: map.cell_table_offset,
        regions,
        lanes: sizes.lanes,
        clean: false,
        journal_empty: false,
        layout_drives: drives,
        seats: spec
            .drives
            .iter()
            .map(|drive| seat(drive, SeatState::Current))
            .chain(
                spec.spares
                    .iter()
                    .map(|drive| seat(drive, SeatState::Waiting)),
            )
            .collect(),
        volumes: Vec::new(),
        grows: false,
        joined: Vec::new(),
        leaves: None,
        uninitialized: Vec::new(),
        scrub: ScrubFacts::default(),
        elastic_share: None,
        steer: SteerFacts::default(),
        losses: LossFacts::default(),
        bad_blocks: BTreeMap::new(),
        layout_table: table.map(|table| to_hex(&table)),
        features: [
            (PAGE_COPIES, page_copies.is_some()),
            (LAZY_INITIALIZATION, spec.lazy && regions.is_some()),
            (DIRECT_WRITES, regions.is_some() && page_copies.is_some()),
            (
                INTERLEAVED_VOLUMES,
                { spec.interleave && spec.scheme.family.is_declustered() }
                    && interleave_for(&geometry).is_some(),
            ),
            (DERIVED_PARITY, regions.is_some() && page_copies.is_some()),
            (
                FREE_STRIPES,
                regions.is_some_and(|regions| regions.free_stripes.is_some()),
            ),
            (ELASTIC, elastic),
        ]
        .into_iter()
        .filter(|&(_, used)| used)
        .map(|(name, _)| name.to_owned())
        .collect(),
    };
    let mut pool = Pool::assemble(geometry, facts, Generation(0));
    pool.cx.commit(vec![OnDurable::Recover {
        fresh: true,
        then: vec![OnDurable::CopiesAgree, OnDurable::Done(ticket, Ok(()))],
    }]);
    Ok(pool)
}

impl Pool {
    /// Bytes of user data that the pool has room for in all.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.cx.geometry.groups() * self.cx.geometry.group_data_bytes()
    }

    /// Raw bytes of the drives of the layout, for reports.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        let seats: BTreeSet<Seat> = self.cx.layout_seats().collect();
        self.cx
            .facts
            .seats()
            .filter(|(seat, _)| seats.contains(seat))
            .map(|(_, facts)| facts.size_bytes)
            .sum()
    }

    /// The capacity arithmetic in words, for `pool create -n`.
    #[must_use]
    pub fn arithmetic(&self) -> String {
        let geometry = &self.cx.geometry;
        format!(
            "{} drives × {} rows of {} hold {} groups; a group has {} columns and {} of user data: {} usable of {} raw",
            geometry.layout().drives(),
            geometry.rows(),
            ByteSize(geometry.cell_bytes()),
            geometry.groups(),
            geometry.layout().columns(),
            ByteSize(geometry.group_data_bytes()),
            // As in all other sums of the plan.
            ByteSize(self.capacity_bytes()).rounded(),
            ByteSize(self.raw_bytes()).rounded(),
        )
    }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
        text
    })
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
