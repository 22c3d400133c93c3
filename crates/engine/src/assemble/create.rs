//! Creates a pool of drives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use array::pool::{NewDrive, Pool, PoolSpec};
use block::Seat;
use layout::{Placed, Scheme};
use uuid::Uuid;

use super::drive::{Permitted, open_for, wipe};
use super::occupant::{ANSWER_WITHIN, Access, OpenPool, within};
use super::permit::{Command, Meant};
use super::probe::answers;
use super::stack::scheme_takes_volumes;
use super::{AssembleError, OPENED, PoolPlan, io_error};
use crate::drive::{
    Drive, DriveUri, Enclosures, FaultHandle, Identity, Place, identity, show_to_udev, sync,
};
use crate::run::{PoolHandle, RunOptions, StartError, lease};

/// Rows of a drive that are checked when drives are assigned to seats: placement repeats within these, or is as good
/// beyond them.
const ROWS_LOOKED_AT: u64 = 64;

/// A pool to be created.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its scheme.
    pub scheme: Scheme,
    /// `-o chunk=`.
    pub chunk_bytes: Option<u64>,
    /// `-o cell=`.
    pub cell_bytes: Option<u64>,
    /// Journal and checksums.
    pub journal: bool,
    /// Drives of the layout, in order of seats.
    pub drives: Vec<DriveUri>,
    /// Drives that wait as spares.
    pub spares: Vec<DriveUri>,
    /// Take drives that hold something.
    pub force: bool,
}

/// A pool that could be created: everything checked, nothing written.
pub struct Prepared {
    pool: Pool,
    drives: Vec<Drive>,
    holds: Vec<(String, String)>,
    plan: PoolPlan,
}

impl Prepared {
    /// The plan of the pool.
    #[must_use]
    pub const fn plan(&self) -> &PoolPlan {
        &self.plan
    }

    /// What is on the drives and will be lost: the drive's name as it was given, and what it holds.
    #[must_use]
    pub fn holds(&self) -> &[(String, String)] {
        &self.holds
    }

    /// Capacity and sizes, as text.
    #[must_use]
    pub fn arithmetic(&self) -> String {
        self.pool.arithmetic()
    }

    /// The controls of those drives that fail on request, by seat.
    #[must_use]
    pub fn faults(&self) -> Vec<Option<FaultHandle>> {
        self.drives
            .iter()
            .map(|drive| drive.faults.clone())
            .collect()
    }

    /// Bytes of user data that the pool will hold.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.pool.capacity_bytes()
    }
}

/// Opens and checks the drives of a new pool. Nothing is written.
///
/// # Errors
/// Why the pool cannot be created.
pub fn prepare(new: &NewPool) -> Result<Prepared, AssembleError> {
    prepare_beside(new, &[], &Enclosures::default(), Access::Write)
}

/// The same where pools are open here. Without access to write, the result only says what [`create`] would do.
///
/// # Errors
/// Why the pool cannot be created.
pub fn prepare_beside(
    new: &NewPool,
    open: &[OpenPool],
    enclosures: &Enclosures,
    access: Access,
) -> Result<Prepared, AssembleError> {
    let uris = || new.drives.iter().chain(&new.spares);
    let absolute: Vec<DriveUri> = uris().map(DriveUri::absolute).collect();
    if !scheme_takes_volumes(&new.scheme)
        && let Some(volume) = absolute.iter().find(|uri| uri.spec.volume().is_some())
    {
        return Err(AssembleError::TakesNoVolumes {
            drive: volume.to_string(),
        });
    }
    let paths: Vec<Option<PathBuf>> = { absolute.iter() }
        .map(|uri| uri.spec.path().map(Path::to_owned))
        .collect();
    let identities: Vec<Option<Identity>> = { paths.iter().cloned() }
        .map(|path| {
            let path = path?;
            let asked = move || answers(&path).then(|| identity(&path)).flatten();
            within(2 * ANSWER_WITHIN, asked).flatten()
        })
        .collect();
    let places: Vec<Option<Place>> = absolute.iter().map(|uri| uri.spec.place()).collect();
    for (index, uri) in absolute.iter().enumerate() {
        let same = |other: usize| {
            let named = places[other].is_some() && places[other] == places[index];
            named || identities[other].is_some() && identities[other] == identities[index]
        };
        if (0..index).any(same) {
            return Err(AssembleError::Twice {
                drive: uri.to_string(),
            });
        }
    }
    one_slot_each(&absolute)?;
    let placed = by_domain(new)?;
    let seated: Vec<&DriveUri> = match &placed {
        Some((placed, _)) => placed.order.iter().map(|&at| &new.drives[at]).collect(),
        None => new.drives.iter().collect(),
    };
    let mut drives = Vec::new();
    let mut holds = Vec::new();
    let uris: Vec<&DriveUri> = seated.into_iter().chain(&new.spares).collect();
    for opened in open_all(&uris, open, new.force, access) {
        let Permitted {
            mut drive,
            holds: what,
        } = opened?;
        enclosures.place(&mut drive);
        holds.extend(what.map(|what| (drive.uri.to_string(), what)));
        drives.push(drive);
    }
    let scheme = placed
        .as_ref()
        .map_or(&new.scheme, |(placed, _)| &placed.scheme);
    let spec = PoolSpec {
        name: new.name.clone(),
        uuid: Uuid::new_v4(),
        scheme: scheme.clone(),
        chunk_bytes: new.chunk_bytes,
        cell_bytes: new.cell_bytes,
        journal: new.journal,
        lazy: true,
        interleave: true,
        free_stripes: None,
        drives: drives[..new.drives.len()].iter().map(new_drive).collect(),
        spares: drives[new.drives.len()..].iter().map(new_drive).collect(),
    };
    let pool = array::pool::create(&spec, OPENED)?;
    let mut plan = PoolPlan::new(&pool, &spec);
    if let Some((placed, domains)) = placed {
        plan.survives_domains = Some(placed.survived);
        plan.domains = domains;
        if placed.is_dealt() {
            let seats = spec.drives.iter();
            plan.order = seats.map(|drive| drive.path.clone()).collect();
        }
    }
    Ok(Prepared {
        pool,
        drives,
        holds,
        plan,
    })
}

/// Opens all drives at once: a shelf of sixty is not looked at one by one.
fn open_all(
    uris: &[&DriveUri],
    open: &[OpenPool],
    force: bool,
    access: Access,
) -> Vec<Result<Permitted, AssembleError>> {
    let look = |uri| open_for(Command::Create, uri, open, Meant::default(), force, access);
    std::thread::scope(|scope| {
        let looks: Vec<_> = { uris.iter() }
            .map(|uri| scope.spawn(move || look(uri)))
            .collect();
        { looks.into_iter() }
            .map(|look| look.join().expect("a look does not panic"))
            .collect()
    })
}

/// Refuses a slot that is named for two drives.
fn one_slot_each(uris: &[DriveUri]) -> Result<(), AssembleError> {
    let bay = |uri: &DriveUri| Some((uri.domain.clone()?, uri.slot?));
    let mut taken = BTreeMap::new();
    for uri in uris {
        let Some((domain, slot)) = bay(uri) else {
            continue;
        };
        if let Some(first) = taken.insert((domain.clone(), slot), uri) {
            return Err(AssembleError::SlotTwice {
                domain,
                slot,
                first: first.to_string(),
                second: uri.to_string(),
            });
        }
    }
    Ok(())
}

/// If drives are named with their failure domains: seats by domain, and the domains' names.
fn by_domain(new: &NewPool) -> Result<Option<(Placed, Vec<String>)>, AssembleError> {
    let said = || new.drives.iter().map(|uri| uri.domain.as_ref());
    if said().all(|domain| domain.is_none()) {
        return Ok(None);
    }
    let mut names: Vec<String> = Vec::new();
    let mut domains = Vec::new();
    for (uri, domain) in new.drives.iter().zip(said()) {
        let domain = domain.ok_or_else(|| AssembleError::NoDomain {
            drive: uri.to_string(),
        })?;
        let known = names.iter().position(|name| name == domain);
        let number = known.unwrap_or_else(|| {
            names.push(domain.clone());
            names.len() - 1
        });
        domains.push(u16::try_from(number).unwrap_or(u16::MAX));
    }
    // Where there is no layout, creating the pool fails and reports the arithmetic.
    let placed = layout::place(&new.scheme, &domains, ROWS_LOOKED_AT).ok();
    Ok(placed.map(|placed| (placed, names)))
}

/// Writes the labels of a prepared pool and starts it.
///
/// # Errors
/// When a drive does not take its label; then no drive keeps one.
pub fn create(prepared: Prepared, options: RunOptions) -> Result<PoolHandle, AssembleError> {
    let Prepared { pool, drives, .. } = prepared;
    one_device_each(&drives)?;
    let facts = pool.facts();
    let tables = facts.cell_table_offset
        ..pool.geometry().drive_offset(
            layout::Cell {
                seat: Seat(0),
                row: 0,
            },
            0,
        );
    for drive in &drives {
        wipe(drive, tables.clone())?;
    }
    let seats = drives.iter().cloned().map(Some).collect();
    let reservation = lease::reserve_new(pool.facts().uuid, pool.generation());
    let handle = PoolHandle::start(pool, seats, OPENED, reservation, options)?;
    let status = handle.status().map_err(StartError::Pool)?;
    let failed: Vec<String> = status
        .seats
        .iter()
        .filter(|seat| seat.state == "out")
        .map(|seat| seat.path.clone())
        .collect();
    if failed.is_empty() {
        drives.iter().for_each(show_to_udev);
        return Ok(handle);
    }
    drop(handle);
    for drive in &drives {
        // A drive that cannot be written cannot be wiped either.
        wipe(drive, tables.clone()).unwrap_or_default();
    }
    Err(AssembleError::Labels {
        failed: failed.join(", "),
    })
}

/// Where a word is written to find one device under two names: a page of the end that no region uses.
fn word_offset(drive: &Drive) -> u64 {
    (drive.size_bytes / WORD_BYTES * WORD_BYTES).saturating_sub(2 * WORD_BYTES)
}

/// Bytes of the page with the word.
const WORD_BYTES: u64 = 4096;

/// Writes a word of its own to each device, then reads all of them: where a device has the word of another one, both
/// names lead to one device. The pages are as before afterwards. A file has one identity under all its names.
fn one_device_each(drives: &[Drive]) -> Result<(), AssembleError> {
    let device = |drive: &&Drive| matches!(drive.identity, Some(Identity::Device(_)));
    let drives: Vec<&Drive> = drives.iter().filter(device).collect();
    let length = usize::try_from(WORD_BYTES).unwrap_or(usize::MAX);
    let read = |drive: &Drive| {
        let page = sync::read(&*drive.device, word_offset(drive), length);
        page.map_err(|fault| io_error(drive, "reading", fault))
    };
    let write = |drive: &Drive, page: &[u8]| {
        let written = sync::write(&*drive.device, word_offset(drive), page);
        written.map_err(|fault| io_error(drive, "writing", fault))
    };
    let before = { drives.iter() }
        .map(|drive| read(drive))
        .collect::<Result<Vec<_>, _>>()?;
    let words: Vec<Uuid> = drives.iter().map(|_| Uuid::new_v4()).collect();
    for (drive, word) in drives.iter().zip(&words) {
        let mut page = vec![0; length];
        page[..16].copy_from_slice(word.as_bytes());
        write(drive, &page)?;
    }
    let same = |(drive, own): (&&Drive, &Uuid)| -> Option<Result<(), AssembleError>> {
        let page = match read(drive) {
            Ok(page) => page,
            Err(error) => return Some(Err(error)),
        };
        let is_there = |word: &Uuid| word != own && page.starts_with(word.as_bytes());
        let other = words.iter().position(is_there)?;
        Some(Err(AssembleError::SameDevice {
            first: drive.uri.to_string(),
            second: drives[other].uri.to_string(),
        }))
    };
    let found = drives.iter().zip(&words).find_map(same);
    for (drive, page) in drives.iter().zip(&before) {
        write(drive, page)?;
    }
    found.unwrap_or(Ok(()))
}

/// A drive with a new identity, for the pool that it joins.
pub(crate) fn new_drive(drive: &Drive) -> NewDrive {
    NewDrive {
        uuid: Uuid::new_v4(),
        path: drive.uri.to_string(),
        size_bytes: drive.size_bytes,
        domain: drive.uri.domain.clone(),
        bay: drive.bay.clone(),
        physical_bytes: drive.device.usage().map(|usage| usage.physical_bytes),
    }
}
