//! Declustered RAID in ZFS against RAIDZ: throughput, recovery, and the parameters of both.
//!
//! The drives are models (`sim::model`), the arrays store no bytes: `sim::plain` models the placement, the code and the
//! order of the rebuild of a dRAID or a RAIDZ; `sim::StudyVolume` is our whole pool.

mod fig1;
mod fig2;
mod islands;
mod sweep;

pub(crate) use fig1::Fig1;
pub(crate) use fig2::Fig2;
pub(crate) use sweep::Sweep;

use block::Seat;
use sim::model::{ModelOptions, Order, Preset, QueueOptions, preset};
use sim::plain::rebuild::{CellOrder, ReadColumns, RebuildOptions};
use sim::plain::{PlainArray, PlainOptions};
use stats::{mean, to_f64};

use super::runs::{finish, range, requests, seconds};
use super::{Context, Stopped};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// dRAID's cell is a row of 16 MiB of a drive (OpenZFS, `vdev_draid.c`).
const CELL_BYTES: u64 = 16 * MIB;
/// Records of ZFS are 128 KiB by default.
const RECORD_BYTES: u64 = 128 * KIB;

/// A 7,200 rpm disk. ZFS keeps a queue for each drive in the order of addresses, so the queue is C-LOOK over all
/// waiting operations.
fn zfs_disk() -> Preset {
    let mut drive = disk();
    if let ModelOptions::Disk(options) = &mut drive.options {
        options.queue = QueueOptions {
            order: Order::CLook,
            depth: usize::MAX,
        };
    }
    drive
}

/// The same disk with its own queue.
fn disk() -> Preset {
    preset("nearline").expect("a preset")
}

/// An array with the parameters of ZFS, on the first `drive_bytes` of each drive.
fn array(scheme: &str, drive: Preset, drive_bytes: u64, cell_bytes: u64) -> PlainArray {
    let options = PlainOptions {
        drive_bytes: Some(drive_bytes),
        cell_bytes: Some(cell_bytes),
        chunk_bytes: RECORD_BYTES.min(cell_bytes),
        ..PlainOptions::new(scheme, drive)
    };
    PlainArray::new(&options).expect("the schemes of these studies fit their drives")
}

/// Bytes that a sequential rebuild of OpenZFS has in flight for each drive of the vdev, from the first dRAID until 2023
/// (`zfs_rebuild_vdev_limit`, which openzfs/zfs#14428 raised to 64 MiB).
const REBUILD_VDEV_LIMIT: u64 = 32 * MIB;
/// Bytes of a data column in one of its steps (`zfs_rebuild_max_segment`).
const REBUILD_SEGMENT: u64 = MIB;

/// Steps that a rebuild of OpenZFS has in flight.
fn zfs_window(drives: u16, data: u16) -> usize {
    let bytes = REBUILD_VDEV_LIMIT * u64::from(drives);
    usize::try_from(bytes / (REBUILD_SEGMENT * u64::from(data))).expect("a few hundred")
}

/// dRAID's rebuild: in order of address, all survivors read.
fn zfs_rebuild(window: usize) -> RebuildOptions {
    RebuildOptions {
        order: CellOrder::Lba { window },
        step_bytes: REBUILD_SEGMENT,
        read: ReadColumns::All,
        bytes_per_second_max: 0,
    }
}

/// Fails a seat and rebuilds it by `options`, onto spare cells or, with `fresh`, onto that drive. Returns the seconds.
fn rebuild(
    context: &Context<'_>,
    array: &mut PlainArray,
    seat: Seat,
    fresh: Option<&Preset>,
    options: RebuildOptions,
) -> Result<f64, Stopped> {
    let began = array.now();
    array.fail(began, seat);
    if let Some(drive) = fresh {
        array.replace(began, seat, drive.build());
    }
    array.begin_rebuild(began, options);
    finish(context, array, |array| {
        array
            .rebuild()
            .and_then(sim::plain::rebuild::Rebuild::ended)
    })
    .map(|ended| seconds(began, ended))
}

/// Greatest ÷ mean of the work of all drives but the failed one.
fn imbalance(array: &PlainArray, failed: Seat, of: impl Fn(sim::model::Work) -> u64) -> f64 {
    let others = (0..array.seats()).map(Seat).filter(|&seat| seat != failed);
    let did: Vec<f64> = others.map(|seat| to_f64(of(array.work(seat)))).collect();
    range(&did).1 / mean(&did)
}
