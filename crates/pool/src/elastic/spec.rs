//! What an elastic pool asks of its drives, its code and its sizes.
//!
//! A cell of an elastic pool has p + 1 planes: plane 0 has data and parity as in any pool, plane c has copy c of the
//! data. A drive stores less than it exposes, because it compresses. So a drive of an elastic pool must
//!
//! - know how much of its physical space is used,
//! - expose at least (p + 1) · α_exp times its physical space: p + 1 planes, each of α_exp times the physical space,
//! - have the same ratio of both as the other drives: else the drive with the lowest ratio is full first, and what
//!   the others have free is of no use.
//!
//! Checked when the pool is created, and for each drive that joins it.

use std::borrow::Cow;

use block::{BLOCK_BYTES, ByteSize, Hint};
use format::{DESCRIPTOR_BYTES, Descriptor};
use layout::{Expansion, Scheme};
use plan::Geometry;

use crate::spec::{NewDrive, PoolSpec};

/// Ratios of exposed to physical space may differ by one part in this many: sizes are rounded.
const RATIO_PARTS: u128 = 100;

/// Stripes of a group at most: the map of larger groups is too much to keep in memory.
const STRIPES_MAX: u64 = 4096;

/// Bytes of the descriptors of one stripe's conversion at most: several units fit into one header.
const RECORD_BYTES_MAX: u64 = 4 << 10;

/// Planes of a cell, and the size of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElasticSpec {
    /// α_exp: bytes of a plane for each physical byte.
    pub expansion: Expansion,
    /// p + 1.
    pub planes: u16,
}

/// Why a pool cannot be elastic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElasticError {
    /// A drive does not report its physical space.
    #[error(
        "{path} does not know how much of its physical space is used, which an elastic pool needs to know"
    )]
    Unknown {
        /// Which drive.
        path: String,
        /// The scheme without elastic stripes; `None` for a drive that joins a pool.
        plain: Option<Box<Scheme>>,
    },
    /// A drive exposes too little.
    #[error(
        "{path} exposes {} and stores {} physically: {planes} planes of {expansion} times that are {}",
        ByteSize(*exposed_bytes), ByteSize(*physical_bytes), ByteSize(*needed_bytes).rounded()
    )]
    Exposed {
        /// Which drive.
        path: String,
        /// Its size.
        exposed_bytes: u64,
        /// Its physical space.
        physical_bytes: u64,
        /// Planes of a cell.
        planes: u16,
        /// α_exp.
        expansion: Expansion,
        /// The least size that works.
        needed_bytes: u64,
        /// The scheme with the largest α_exp that works, if one does and the pool is yet to be created.
        nearest: Option<Box<Scheme>>,
    },
    /// Drives differ.
    #[error(
        "{first} exposes {:.2} times its physical space and {second} {:.2} times: the one is full before the other",
        ratio(*first_bytes), ratio(*second_bytes)
    )]
    Unequal {
        /// A drive.
        first: String,
        /// What it exposes and what it stores.
        first_bytes: (u64, u64),
        /// Another drive.
        second: String,
        /// What that exposes and what it stores.
        second_bytes: (u64, u64),
    },
    /// No journal.
    #[error(
        "an elastic pool changes its stripes through the journal, which journal=intent gives up"
    )]
    Journal {
        /// The scheme without elastic stripes.
        plain: Box<Scheme>,
    },
    /// The map of a group would be too large.
    #[error(
        "cells of {} with chunks of {} make {stripes} stripes in each group, and a map of an elastic pool has {STRIPES_MAX} at most",
        ByteSize(*cell_bytes), ByteSize(*chunk_bytes)
    )]
    Stripes {
        /// Bytes of a cell.
        cell_bytes: u64,
        /// Bytes of a chunk.
        chunk_bytes: u64,
        /// Stripes of a group.
        stripes: u64,
        /// A chunk that works, if there is one.
        nearest_bytes: Option<u64>,
    },
    /// A stripe's conversion does not fit into a record.
    #[error(
        "a stripe has {elements} copies of {}, whose checksums take {record_bytes} bytes of a record that has {RECORD_BYTES_MAX}",
        ByteSize(*chunk_bytes)
    )]
    Record {
        /// Copies of a stripe.
        elements: u64,
        /// Bytes of a chunk.
        chunk_bytes: u64,
        /// Bytes that the record would need.
        record_bytes: u64,
        /// A chunk that works, if there is one.
        nearest_bytes: Option<u64>,
    },
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio((exposed, physical): (u64, u64)) -> f64 {
    exposed as f64 / physical as f64
}

impl Hint for ElasticError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Unknown { path, plain } => {
                let is_zram = path.contains("zram");
                match (is_zram, plain) {
                    (true, None) => "give the device a mem_limit before its disksize".into(),
                    (true, Some(plain)) => {
                        format!("give the device a mem_limit before its disksize, or use `{plain}`").into()
                    }
                    (false, None) => {
                        format!("`compress:{path}?physical=SIZE`, or a zram device with a mem_limit").into()
                    }
                    (false, Some(plain)) => {
                        format!("`compress:{path}?physical=SIZE`, a zram device with a mem_limit, or `{plain}`").into()
                    }
                }
            }
            Self::Exposed {
                needed_bytes,
                nearest,
                ..
            } => {
                let needed = ByteSize(needed_bytes.next_multiple_of(1 << 20));
                let more = format!("let each drive expose {needed} or more (`exposed=` of compress:, disksize of zram)");
                match nearest {
                    Some(scheme) => format!("`{scheme}`, or {more}").into(),
                    None => more.into(),
                }
            }
            Self::Unequal { .. } => {
                "let all drives expose the same multiple (`exposed=` of compress:, disksize of zram)".into()
            }
            Self::Journal { plain } => {
                format!("leave out -o journal=intent -o checksum=off, or use `{plain}`").into()
            }
            Self::Stripes { nearest_bytes: Some(bytes), .. } => {
                format!("-o chunk={}K, or smaller cells (-o cell=)", bytes >> 10).into()
            }
            Self::Stripes { .. } => {
                "smaller cells (-o cell=), or narrower stripes (the scheme's field `d`)".into()
            }
            Self::Record { nearest_bytes: Some(bytes), .. } => {
                format!("-o chunk={}K", bytes >> 10).into()
            }
            Self::Record { .. } => "narrower stripes (the scheme's field `d`)".into(),
        })
    }
}

impl PoolSpec {
    /// The planes of an elastic pool; `None` if the scheme is not elastic. Without an expansion in the scheme it is
    /// the largest for which all drives expose enough.
    ///
    /// # Errors
    /// Why the pool cannot be elastic.
    pub fn elastic(&self) -> Result<Option<ElasticSpec>, ElasticError> {
        if !self.scheme.elastic {
            return Ok(None);
        }
        let plain = || Box::new(self.scheme.clone().plain());
        if !self.journal {
            return Err(ElasticError::Journal { plain: plain() });
        }
        let mut drives = Vec::new();
        for drive in self.drives.iter().chain(&self.spares) {
            match drive.physical_bytes.filter(|&bytes| bytes > 0) {
                Some(physical) => drives.push((drive, physical)),
                None => {
                    return Err(ElasticError::Unknown {
                        path: drive.path.clone(),
                        plain: Some(plain()),
                    });
                }
            }
        }
        let Some(&first) = drives.first() else {
            return Ok(None);
        };
        let planes = self.scheme.parity + 1;
        let largest = |&(drive, physical): &(&NewDrive, u64)| {
            thousandths(drive.size_bytes, physical) / u128::from(planes)
        };
        // The drive with the lowest ratio decides what works.
        let tightest = { drives.iter().min_by_key(|drive| largest(drive)) }.unwrap_or(&first);
        let works = u32::try_from(largest(tightest)).unwrap_or(u32::MAX);
        let works = Expansion::from_thousandths(works.min(Expansion::MAX.thousandths()));
        let least = Expansion::MIN;
        let expansion = self.scheme.expansion.or(works).unwrap_or(least);
        if works.is_none_or(|works| works < expansion) {
            let &(drive, physical_bytes) = tightest;
            let spec = ElasticSpec { expansion, planes };
            let nearest = works.map(|works| {
                let mut scheme = self.scheme.clone();
                scheme.expansion = Some(works);
                Box::new(scheme)
            });
            return Err(ElasticError::Exposed {
                path: drive.path.clone(),
                exposed_bytes: drive.size_bytes,
                physical_bytes,
                planes,
                expansion,
                needed_bytes: spec.exposed_bytes(physical_bytes),
                nearest,
            });
        }
        for &(drive, physical) in &drives {
            check_ratio(first, (drive, physical))?;
        }
        Ok(Some(ElasticSpec { expansion, planes }))
    }

    /// The same pool with the expansion in its scheme.
    pub(crate) fn expanded(&self, elastic: ElasticSpec) -> Self {
        let mut spec = self.clone();
        spec.scheme.expansion = Some(elastic.expansion);
        spec
    }

    /// Bytes of a drive that the pool uses: all of it, or as much as the planes of an elastic pool need.
    pub(crate) fn used_bytes(&self, drive: &NewDrive) -> u64 {
        let planes = self.elastic().ok().flatten().zip(drive.physical_bytes);
        let needed = planes.map(|(elastic, physical)| elastic.exposed_bytes(physical));
        needed.map_or(drive.size_bytes, |needed| needed.min(drive.size_bytes))
    }
}

/// Two drives expose the same multiple of what they store.
fn check_ratio(first: (&NewDrive, u64), second: (&NewDrive, u64)) -> Result<(), ElasticError> {
    let [one, other] = [
        u128::from(second.0.size_bytes) * u128::from(first.1),
        u128::from(first.0.size_bytes) * u128::from(second.1),
    ];
    match one.abs_diff(other) * RATIO_PARTS > one.max(other) {
        true => Err(ElasticError::Unequal {
            first: first.0.path.clone(),
            first_bytes: (first.0.size_bytes, first.1),
            second: second.0.path.clone(),
            second_bytes: (second.0.size_bytes, second.1),
        }),
        false => Ok(()),
    }
}

/// Thousandths of `bytes / of`, rounded down.
fn thousandths(bytes: u64, of: u64) -> u128 {
    u128::from(bytes) * 1000 / u128::from(of)
}

impl ElasticSpec {
    /// α_exp times the physical space of a drive: all of plane 0.
    #[must_use]
    pub fn plane_bytes(&self, drive: &NewDrive) -> u64 {
        let physical = drive.physical_bytes.unwrap_or(drive.size_bytes);
        let bytes = u128::from(physical) * u128::from(self.expansion.thousandths()) / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// What a drive of this much physical space must expose at least.
    #[must_use]
    pub fn exposed_bytes(&self, physical_bytes: u64) -> u64 {
        let all = u128::from(physical_bytes) * u128::from(self.planes);
        let bytes = (all * u128::from(self.expansion.thousandths())).div_ceil(1000);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Checks a drive that joins a pool. `other`: a drive of the pool, if there is one that knows its use.
    ///
    /// # Errors
    /// Why the pool cannot use it.
    pub(crate) fn admits(
        &self,
        drive: &NewDrive,
        other: Option<&NewDrive>,
    ) -> Result<(), ElasticError> {
        let Some(physical) = drive.physical_bytes.filter(|&bytes| bytes > 0) else {
            return Err(ElasticError::Unknown {
                path: drive.path.clone(),
                plain: None,
            });
        };
        let needed_bytes = self.exposed_bytes(physical);
        if drive.size_bytes < needed_bytes {
            return Err(ElasticError::Exposed {
                path: drive.path.clone(),
                exposed_bytes: drive.size_bytes,
                physical_bytes: physical,
                planes: self.planes,
                expansion: self.expansion,
                needed_bytes,
                nearest: None,
            });
        }
        match other.and_then(|other| Some((other, other.physical_bytes?))) {
            Some(other) => check_ratio(other, (drive, physical)),
            None => Ok(()),
        }
    }

    /// Checks the sizes that only the geometry has.
    ///
    /// # Errors
    /// Why stripes of the geometry cannot change their form.
    pub fn check(&self, geometry: &Geometry) -> Result<(), ElasticError> {
        let (cell_bytes, chunk_bytes) = (geometry.plane_bytes(), geometry.chunk_bytes());
        let stripes = geometry.stripes_per_group();
        let parity = u64::from(self.planes - 1);
        let data = u64::from(geometry.code().columns()) - parity;
        let elements = data * parity;
        let fits = |chunk: &u64| record_bytes(elements, *chunk) <= RECORD_BYTES_MAX;
        if stripes > STRIPES_MAX {
            let times = stripes.div_ceil(STRIPES_MAX).next_power_of_two();
            return Err(ElasticError::Stripes {
                cell_bytes,
                chunk_bytes,
                stripes,
                nearest_bytes: Some(chunk_bytes * times).filter(fits),
            });
        }
        if !fits(&chunk_bytes) {
            // Smaller chunks make more stripes.
            let least = (cell_bytes / STRIPES_MAX).max(BLOCK_BYTES);
            let smaller = (0..).map(|times| chunk_bytes >> times);
            let mut smaller = smaller.take_while(|&chunk| chunk >= least);
            return Err(ElasticError::Record {
                elements,
                chunk_bytes,
                record_bytes: record_bytes(elements, chunk_bytes),
                nearest_bytes: smaller.find(fits),
            });
        }
        Ok(())
    }
}

/// Bytes of a conversion's record: the checksums of all copies, one descriptor for the part that is given up, one for
/// the map's entry.
fn record_bytes(elements: u64, chunk_bytes: u64) -> u64 {
    let blocks = usize::try_from(chunk_bytes / BLOCK_BYTES).unwrap_or(usize::MAX / 8);
    elements * Descriptor::bytes_of_direct(blocks) as u64 + 2 * DESCRIPTOR_BYTES as u64
}
