//! The plan of a pool before it exists: what it survives, how long a rebuild takes, and where the bytes go.

use array::pool::{CreateError, ElasticSpec, NewDrive, Pool, PoolError, PoolSpec};
use block::Seat;
use layout::Scheme;
use layout::elastic::{Elastic, Ratios};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::OPENED;

/// The assumed rate of a drive in a rebuild, in bytes per second: a large disk's mean over its surface.
pub const DRIVE_BYTES_PER_SECOND: u64 = 150_000_000;

/// A pool as it would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolPlan {
    /// Its scheme.
    pub scheme: String,
    /// Drives of the layout.
    pub drives: u16,
    /// Drives that wait as spares.
    pub spare_drives: u16,
    /// Spare space inside the layout, in drives.
    pub spares: u16,
    /// Drives that may fail at once, whichever they are.
    pub survives_drives: u16,
    /// Copies of each block, where a layout keeps copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u16>,
    /// Failure domains, if drives are in any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// Of those, how many may fail at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survives_domains: Option<u16>,
    /// The drives by seat, where their order differs from the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// Bytes of the layout's drives.
    pub raw_bytes: u64,
    /// Of those: bytes of user data.
    pub usable_bytes: u64,
    /// Bytes of parity and further copies.
    pub parity_bytes: u64,
    /// Bytes of spare space.
    pub spare_bytes: u64,
    /// Bytes of labels, journal, checksums, free stripes, and what is kept free for the pool's growth.
    pub metadata_bytes: u64,
    /// Bytes that nothing uses, because every drive counts as the smallest one.
    pub wasted_bytes: u64,
    /// The smallest drive.
    pub smallest: String,
    /// Its size.
    pub smallest_bytes: u64,
    /// How long the rebuild of a full drive takes at `rebuild_bytes_per_second`; none where nothing can be rebuilt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_seconds: Option<u64>,
    /// What limits the speed of the rebuild.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_bound: Option<String>,
    /// The assumed rate of each drive.
    pub rebuild_bytes_per_second: u64,
    /// Drive operations of a small write, without those of the journal.
    pub small_write_operations: u16,
    /// Of an elastic pool, whose other sizes are those of its data and parity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<ElasticPlan>,
}

/// What an expansion of a pool does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpandPlan {
    /// The pool's scheme afterwards.
    pub scheme: String,
    /// Drives of the layout before.
    pub drives_before: u16,
    /// Drives of the layout afterwards.
    pub drives: u16,
    /// Pieces with content that move to the new drives.
    pub pieces: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// How long the move takes, if each drive moves `drive_bytes_per_second` and clients ask nothing.
    pub seconds: u64,
    /// What limits its speed.
    pub bound: String,
    /// The assumed rate of each drive.
    pub drive_bytes_per_second: u64,
    /// Bytes of user data that the pool has room for, before.
    pub capacity_bytes_before: u64,
    /// Bytes of user data that the pool has room for, afterwards.
    pub capacity_bytes: u64,
}

/// How long pieces take to move.
struct MoveTime {
    seconds: u64,
    /// It is the rate that is set, and not a drive, that bounds it.
    by_rate: bool,
}

impl MoveTime {
    /// Of so many bytes, of which the busiest drive has `of_a_drive`.
    fn new(pool: &Pool, bytes: u64, of_a_drive: u64) -> Self {
        let by_drive = of_a_drive.div_ceil(DRIVE_BYTES_PER_SECOND);
        let rate = pool.facts().steer.rate_bytes;
        let by_rate = rate.map_or(0, |rate| bytes.div_ceil(rate.max(1)));
        Self {
            seconds: by_drive.max(by_rate),
            by_rate: by_rate > by_drive,
        }
    }
}

/// What the removal of a drive does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalPlan {
    /// Pieces with content that move to other drives.
    pub pieces: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// How long the move takes, if each drive moves `drive_bytes_per_second` and clients ask nothing.
    pub seconds: u64,
    /// What limits its speed.
    pub bound: String,
    /// The assumed rate of each drive.
    pub drive_bytes_per_second: u64,
    /// Drives that can fail, one after the other, and be rebuilt in free pieces: before.
    pub spare_drives_before: u16,
    /// The same afterwards.
    pub spare_drives: u16,
    /// Bytes of user data that the pool has room for, before.
    #[serde(default)]
    pub capacity_bytes_before: u64,
    /// Bytes of user data that the pool has room for, afterwards.
    #[serde(default)]
    pub capacity_bytes: u64,
}

impl RemovalPlan {
    /// What the removal of the drive of a seat would do.
    pub(crate) fn new(pool: &Pool, seat: Seat) -> Result<Self, PoolError> {
        let plan = pool.plan_removal(seat);
        let plan = plan.map_err(|error| PoolError::Leave { error })?;
        let time = MoveTime::new(pool, plan.moved_bytes, plan.moved_bytes);
        let bound = match time.by_rate {
            true => "the rate that is set",
            false => "reading the drive",
        };
        Ok(Self {
            pieces: plan.columns,
            moved_bytes: plan.moved_bytes,
            seconds: time.seconds,
            bound: bound.to_owned(),
            drive_bytes_per_second: DRIVE_BYTES_PER_SECOND,
            spare_drives_before: plan.spare_drives.0,
            spare_drives: plan.spare_drives.1,
            capacity_bytes_before: plan.capacity_bytes.0,
            capacity_bytes: plan.capacity_bytes.1,
        })
    }
}

impl ExpandPlan {
    /// What an expansion of `pool` by these drives and the waiting spares in these seats would do.
    pub(crate) fn new(
        pool: &Pool,
        drives: &[NewDrive],
        waiting: &[Seat],
    ) -> Result<Self, PoolError> {
        let refused = |error| PoolError::Grow { error };
        pool.check_expand(drives, waiting).map_err(refused)?;
        let joining = drives.len() + waiting.len();
        let growth = pool.plan_growth(joining).map_err(refused)?;
        let of_a_drive = growth.moved_bytes / (joining as u64).max(1);
        let time = MoveTime::new(pool, growth.moved_bytes, of_a_drive);
        let bound = match (time.by_rate, joining) {
            (true, _) => "the rate that is set",
            (false, 1) => "writing the new drive",
            (false, _) => "writing the new drives",
        };
        Ok(Self {
            scheme: growth.scheme,
            drives_before: growth.drives.0,
            drives: growth.drives.1,
            pieces: growth.columns,
            moved_bytes: growth.moved_bytes,
            seconds: time.seconds,
            bound: bound.to_owned(),
            drive_bytes_per_second: DRIVE_BYTES_PER_SECOND,
            capacity_bytes_before: growth.capacity_bytes.0,
            capacity_bytes: growth.capacity_bytes.1,
        })
    }
}

/// What drives that compress have room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ElasticPlan {
    /// Address space for data and parity, for each physical byte.
    pub expansion: f64,
    /// What the layout's drives expose, including the room for copies.
    pub exposed_bytes: u64,
    /// What they store.
    pub physical_bytes: u64,
    /// Of that: labels, journal, checksums, and free stripes.
    pub reserve_bytes: u64,
    /// The capacity at three ratios: 1, the expansion, and the ratio from which on everything is copies.
    pub capacities: Vec<ElasticCapacity>,
}

/// The capacity if all that drives store compresses by one ratio on average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ElasticCapacity {
    /// The length before through the length after.
    pub ratio: f64,
    /// Bytes of user data that fit.
    pub capacity_bytes: u64,
    /// The share of so many bytes that can be copies.
    pub coverage: f64,
}

impl PoolPlan {
    /// The plan of a pool made by this specification.
    #[must_use]
    pub fn new(pool: &Pool, spec: &PoolSpec) -> Self {
        let geometry = pool.geometry();
        let (layout, code) = (geometry.layout(), geometry.code());
        let drives = layout.drives();
        let spares = layout.spare_drives();
        // A pool that exists has a right specification.
        let elastic = spec.elastic().ok().flatten();
        let size_bytes = |drive: &NewDrive| {
            elastic.map_or(drive.size_bytes, |elastic| elastic.plane_bytes(drive))
        };
        let raw_bytes: u64 = spec.drives.iter().map(size_bytes).sum();
        let all = || spec.drives.iter().chain(&spec.spares);
        let smallest = all().min_by_key(|drive| size_bytes(drive));
        let smallest_bytes = smallest.map_or(0, size_bytes);
        let drive_data_bytes = geometry.rows() * geometry.plane_bytes();
        let data_bytes = u64::from(drives) * drive_data_bytes;
        let usable_bytes = pool.capacity_bytes();
        let coded_bytes = geometry.groups() * u64::from(layout.columns()) * geometry.plane_bytes();
        // Free stripes hold neither data nor parity.
        let held_bytes = u128::from(coded_bytes) * u128::from(geometry.data_stripes())
            / u128::from(geometry.stripes_per_group());
        let held_bytes = u64::try_from(held_bytes).unwrap_or(coded_bytes);
        let rest_bytes = data_bytes.saturating_sub(coded_bytes);
        let pool_spare_bytes = u64::from(spares) * drive_data_bytes;
        let spare_bytes = pool_spare_bytes.min(rest_bytes);
        let wasted_bytes = raw_bytes.saturating_sub(u64::from(drives) * smallest_bytes);
        let survives_drives = code.tolerance();
        let data_columns = code.columns().saturating_sub(survives_drives);
        let (rebuild_seconds, rebuild_bound) = match survives_drives {
            0 => (None, None),
            _ => {
                let declustered = spec.scheme.family.is_declustered();
                let spread = declustered && spares > 0;
                let moved = match spread {
                    // Every remaining drive reads and writes its part.
                    true => {
                        drive_data_bytes * (u64::from(data_columns) + 1)
                            / u64::from(drives.saturating_sub(1).max(1))
                    }
                    false => drive_data_bytes,
                };
                let bound = match spread {
                    true => "reading and writing all drives",
                    false => "writing one drive",
                };
                let seconds = moved.div_ceil(DRIVE_BYTES_PER_SECOND);
                (Some(seconds), Some(bound.to_owned()))
            }
        };
        Self {
            scheme: pool.facts().scheme.clone(),
            drives,
            spare_drives: u16::try_from(spec.spares.len()).unwrap_or(u16::MAX),
            spares,
            survives_drives,
            copies: { spec.scheme.family.is_mirror() }.then_some(survives_drives + 1),
            domains: Vec::new(),
            survives_domains: None,
            order: Vec::new(),
            raw_bytes,
            usable_bytes,
            parity_bytes: held_bytes.saturating_sub(usable_bytes),
            spare_bytes,
            metadata_bytes: (raw_bytes - wasted_bytes).saturating_sub(held_bytes + spare_bytes),
            wasted_bytes,
            smallest: smallest.map_or_else(String::new, |drive| drive.path.clone()),
            smallest_bytes,
            rebuild_seconds,
            rebuild_bound,
            rebuild_bytes_per_second: DRIVE_BYTES_PER_SECOND,
            small_write_operations: small_write(&spec.scheme, data_columns, survives_drives),
            elastic: elastic.map(|elastic| elastic_plan(pool, spec, elastic)),
        }
    }

    /// Whether so much is wasted that users should be warned.
    #[must_use]
    pub const fn wastes_much(&self) -> bool {
        self.wasted_bytes > self.raw_bytes / 20
    }
}

/// The capacities of an elastic pool. The physical space of spare cells stays free: a rebuild fills it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate"
)]
fn elastic_plan(pool: &Pool, spec: &PoolSpec, elastic: ElasticSpec) -> ElasticPlan {
    let geometry = pool.geometry();
    let (layout, parity) = (geometry.layout(), elastic.planes - 1);
    let formula = Elastic {
        data: geometry.code().columns() - parity,
        parity,
        expansion: elastic.expansion,
    };
    let drives = layout.drives();
    let spares = layout.spare_drives();
    let physical = |drive: &NewDrive| drive.physical_bytes.unwrap_or(0);
    let facts = pool.facts();
    let metadata_bytes = facts.data_offset;
    let least_bytes = { spec.drives.iter().chain(&spec.spares) }
        .map(physical)
        .min()
        .unwrap_or(0);
    // A vacated stripe is not discarded, so free stripes take as much as others.
    let free_bytes = u128::from(least_bytes.saturating_sub(metadata_bytes))
        * u128::from(geometry.free_stripes())
        / u128::from(geometry.stripes_per_group());
    let reserve_bytes = metadata_bytes + u64::try_from(free_bytes).unwrap_or(0);
    let net_bytes = u64::from(drives.saturating_sub(spares))
        .saturating_mul(least_bytes.saturating_sub(reserve_bytes)) as f64;
    let usable_bytes = pool.capacity_bytes() as f64;
    let full = f64::from(elastic.planes) * usable_bytes / net_bytes.max(1.0);
    let capacity = |ratio: f64| {
        let ratios = Ratios::equal(ratio);
        let fits_bytes = net_bytes / formula.parity_form_bytes(ratios);
        let capacity_bytes = usable_bytes.min(fits_bytes);
        ElasticCapacity {
            ratio: (ratio * 1000.0).round() / 1000.0,
            capacity_bytes: capacity_bytes as u64,
            coverage: formula.coverage_of(net_bytes, capacity_bytes, ratios),
        }
    };
    ElasticPlan {
        expansion: elastic.expansion.ratio(),
        exposed_bytes: spec.drives.iter().map(|drive| drive.size_bytes).sum(),
        physical_bytes: spec.drives.iter().map(physical).sum(),
        reserve_bytes: u64::from(drives) * reserve_bytes,
        capacities: [1.0, elastic.expansion.ratio(), full]
            .map(capacity)
            .to_vec(),
    }
}

/// The plan of a pool of this scheme on drives of these names and sizes. The drives themselves are not read.
///
/// # Errors
/// As [`array::pool::create`].
pub fn estimate(scheme: &Scheme, drives: &[(String, u64)]) -> Result<PoolPlan, CreateError> {
    let drive =
        |(path, size_bytes): &(String, u64)| NewDrive::new(Uuid::nil(), path.clone(), *size_bytes);
    let count = u16::try_from(drives.len()).unwrap_or(u16::MAX);
    let spec = PoolSpec {
        name: "plan".to_owned(),
        uuid: Uuid::nil(),
        scheme: scheme.clone().for_new_pool(count),
        chunk_bytes: None,
        cell_bytes: None,
        journal: true,
        lazy: true,
        interleave: true,
        free_stripes: None,
        drives: drives.iter().map(drive).collect(),
        spares: Vec::new(),
    };
    let pool = array::pool::create(&spec, OPENED)?;
    Ok(PoolPlan::new(&pool, &spec))
}

/// Drive operations of a small write: the old block and parities are read and written, or the rest of the stripe is
/// read, whichever is less; copies are only written.
fn small_write(scheme: &Scheme, data: u16, parity: u16) -> u16 {
    let written = 1 + parity;
    if scheme.family.is_mirror() || parity == 0 {
        return written;
    }
    (2 * written).min(data.saturating_sub(1) + written)
}
