//! A schedule: client requests and faults, as a value that is generated from a seed.
//!
//! A schedule stays within what the geometry promises to survive, so any loss is a bug. It prints as a few lines of
//! text and is parsed from them. A failing schedule is shrunk ([`shrink`]) until a test can hold it.

mod check;
mod make;
mod run;
mod shrink;
mod text;

use block::Seat;

use crate::drive::{DriveFault, Regions, Trigger};
use crate::world::CutSpec;

pub(crate) use run::{Checked, Moment, Run, options};
pub use run::{Runner, Verdict, Violation};
pub use shrink::shrink;
pub use text::ParseScheduleError;

/// The volume of all schedules.
pub(crate) const VOLUME: &str = "v";

/// A pool for schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name in schedules.
    pub name: &'static str,
    /// Scheme string.
    pub scheme: &'static str,
    /// Drives of the layout.
    pub drives: u16,
    /// Spare drives.
    pub spares: u16,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Bytes of the volume: whole groups.
    pub volume_bytes: u64,
    /// Drive failures that the pool survives.
    pub tolerance: usize,
    /// Lanes.
    pub lanes: u16,
    /// Blocks of a lane's ring on each drive; 0 for as many as fit.
    pub ring_blocks: u64,
    /// True if a group is made blank at its first write; false if the creation of the volume does that.
    pub lazy: bool,
    /// True if groups have free stripes for overwrites.
    pub free_stripes: bool,
    /// Blocks of physical space of each drive, beside those of labels, ring and pages, if the drives compress; otherwise 0.
    pub physical_blocks: u64,
}

/// Bytes of a chunk in all schedules: the smallest size, so that requests cross many chunks.
pub(crate) const CHUNK_BYTES: u64 = 4096;
/// Bytes of a drive in all schedules: regions of 5 MiB, a reserve of 8 MiB, and some rows.
pub(crate) const DRIVE_BYTES: u64 = 14 << 20;
/// The same in elastic pools: two planes or three of whole mebibytes.
pub(crate) const ELASTIC_DRIVE_BYTES: u64 = 18 << 20;

/// Pools whose volumes are zeroed when they are created.
const EAGER: [Setting; 15] = [
    Setting::new(("raid10", "raid10:3r", 6, 0), (8, 3 * 4), 2),
    Setting::new(("raid5", "raid5", 6, 1), (8, 3 * 10), 1),
    Setting::new(("raid6", "raid6", 6, 0), (16, 2 * 16), 2),
    Setting::new(("dcode", "raid6:dcode", 7, 0), (32, 35), 2),
    Setting::new(("rdp", "raid6:rdp", 6, 0), (16, 2 * 16), 2),
    Setting::new(("pddl2", "pddl2:3d:6c:1s", 6, 0), (8, 2 * 6), 2),
    // Rings that wrap around and are full now and then; several lanes.
    Setting::new(("raid6-ring", "raid6", 6, 0), (8, 2 * 8), 2).divided(1, 34),
    Setting::new(("raid5-lanes", "raid5", 6, 0), (8, 2 * 10), 1).divided(2, 0),
    Setting::new(("pddl2-lanes", "pddl2:3d:6c:1s", 6, 0), (8, 3 * 6), 2).divided(2, 80),
    Setting::new(("raid10-spare", "raid10:2r", 6, 2), (8, 2 * 6), 1).divided(1, 130),
    Setting::new(("raid1-small", "raid1:3r", 3, 0), (8, 2 * 2), 2),
    Setting::new(("raid5-small", "raid5", 3, 0), (8, 2 * 4), 1),
    Setting::new(("raid6-small", "raid6", 4, 0), (8, 2 * 4), 2),
    Setting::new(("dcode-small", "raid6:dcode", 5, 0), (32, 15), 2),
    Setting::new(("pddl2-small", "pddl2:2d:5c:1s", 5, 0), (8, 2 * 4), 2),
];

/// The pools of schedules, in this order: those that seeds choose from, of six drives and more; small ones for
/// enumerations; lazy variants of these, whose groups are made blank at their first write; those that seeds choose from
/// with groups of eight stripes or more, some of them free; small ones with free stripes; a
/// small one with a spare; elastic ones, with free stripes and without, those that seeds choose from and small ones; on
/// drives that compress; pools of pieces, which grow.
pub const SETTINGS: [Setting; 58] = [
    EAGER[0],
    EAGER[1],
    EAGER[2],
    EAGER[3],
    EAGER[4],
    EAGER[5],
    EAGER[6],
    EAGER[7],
    EAGER[8],
    EAGER[9],
    EAGER[10],
    EAGER[11],
    EAGER[12],
    EAGER[13],
    EAGER[14],
    EAGER[0].lazy("raid10-lazy").halves(4),
    EAGER[1].lazy("raid5-lazy").halves(4),
    EAGER[2].lazy("raid6-lazy").halves(4),
    EAGER[3].lazy("dcode-lazy").halves(4),
    EAGER[4].lazy("rdp-lazy").halves(4),
    EAGER[5].lazy("pddl2-lazy").halves(4),
    EAGER[6].lazy("raid6-ring-lazy").halves(4),
    EAGER[7].lazy("raid5-lanes-lazy").halves(4),
    EAGER[8].lazy("pddl2-lanes-lazy").halves(4),
    EAGER[9].lazy("raid10-spare-lazy").halves(4),
    EAGER[11].lazy("raid5-small-lazy").halves(1),
    EAGER[12].lazy("raid6-small-lazy").halves(1),
    EAGER[14].lazy("pddl2-small-lazy").halves(1),
    EAGER[0].lazy("raid10-free").cells(32, 2 * 14),
    EAGER[1].lazy("raid5-free").cells(32, 2 * 6 * 5),
    EAGER[2].lazy("raid6-free").cells(32, 2 * 6 * 4),
    EAGER[3].lazy("dcode-free").cells(256, 7 * 35),
    EAGER[4].lazy("rdp-free").cells(128, 6 * 16),
    EAGER[5].lazy("pddl2-free").cells(32, 2 * 6 * 3),
    EAGER[6].lazy("raid6-ring-free").cells(32, 2 * 6 * 4),
    EAGER[7].lazy("raid5-lanes-free").cells(32, 4 * 6 * 5),
    EAGER[8].lazy("pddl2-lanes-free").cells(32, 4 * 6 * 3),
    EAGER[9].lazy("raid10-spare-free").cells(32, 2 * 22),
    EAGER[11].named("raid5-small-free").cells(32, 6 * 2),
    EAGER[12].named("raid6-small-free").cells(32, 6 * 2),
    EAGER[14].named("pddl2-small-free").cells(32, 6 * 2),
    Setting::new(("raid5-small-spare", "raid5", 3, 1), (8, 2 * 4), 1),
    ELASTIC[0].lazy("elastic5"),
    ELASTIC[1].lazy("elastic6"),
    ELASTIC[2].lazy("pddl2-elastic"),
    ELASTIC[0].lazy("elastic5-free").cells(32, 2 * 6 * 5),
    ELASTIC[1].lazy("elastic6-free").cells(32, 2 * 6 * 4),
    ELASTIC[2].lazy("pddl2-elastic-free").cells(32, 2 * 6 * 3),
    Setting::new(("elastic5-small", "elastic5", 3, 0), (8, 2 * 4), 1),
    Setting::new(("elastic6-small", "elastic6", 4, 0), (8, 2 * 4), 2),
    Setting::new(("elastic5-small-free", "elastic5", 3, 0), (8, 2), 1).cells(32, 6 * 2),
    EAGER[1].named("raid5-full").divided(1, 40).full(36),
    EAGER[2].named("raid6-full").divided(1, 40).full(28),
    EAGER[5].named("pddl2-full").divided(1, 80).full(60),
    EAGER[7].named("raid5-lanes-full").divided(2, 40).full(48),
    Setting::new(("ddp1", "ddp:2d:1p", 6, 0), (8, 4 * 6), 1).lazy("ddp1"),
    Setting::new(("ddp2", "ddp:2d:2p", 6, 1), (8, 4 * 6), 2).divided(2, 80),
    Setting::new(("crush2", "crush2:2d", 6, 0), (8, 4 * 6), 2).divided(1, 80),
];

/// Those of [`SETTINGS`] that are pools of pieces.
pub(crate) const PIECES: std::ops::Range<usize> = 55..58;

/// Elastic pools that seeds choose from.
const ELASTIC: [Setting; 3] = [
    Setting::new(("elastic5", "elastic5", 6, 1), (8, 3 * 10), 1),
    Setting::new(("elastic6", "elastic6", 6, 0), (16, 2 * 16), 2),
    Setting::new(
        ("pddl2-elastic", "pddl2:3d:6c:1s:elastic", 6, 0),
        (8, 2 * 6),
        2,
    ),
];

/// The first elastic one of [`SETTINGS`].
const FIRST_ELASTIC: usize = FIRST_FREE + 14;

/// The settings of drives that compress, each with the one that it is a variant of.
const FULL: [(usize, usize); 4] = [(1, 51), (2, 52), (5, 53), (7, 54)];

/// The first of [`SETTINGS`] with free stripes.
const FIRST_FREE: usize = EAGER.len() + 13;

/// Seeds choose from so many of [`SETTINGS`], the first ones.
pub(crate) const SEEDED: usize = 10;

impl Setting {
    const fn new(
        (name, scheme, drives, spares): (&'static str, &'static str, u16, u16),
        (cell_kib, volume_chunks): (u64, u64),
        tolerance: usize,
    ) -> Self {
        Self {
            name,
            scheme,
            drives,
            spares,
            cell_bytes: cell_kib << 10,
            volume_bytes: volume_chunks * CHUNK_BYTES,
            tolerance,
            lanes: 1,
            ring_blocks: 0,
            lazy: false,
            free_stripes: false,
            physical_blocks: 0,
        }
    }

    const fn divided(self, lanes: u16, ring_blocks: u64) -> Self {
        Self {
            lanes,
            ring_blocks,
            ..self
        }
    }

    const fn lazy(self, name: &'static str) -> Self {
        Self {
            name,
            lazy: true,
            ..self
        }
    }

    /// With cells of `cell_kib` KiB: of eight stripes, two of which are free. The volume has `volume_chunks` chunks.
    const fn cells(self, cell_kib: u64, volume_chunks: u64) -> Self {
        Self {
            cell_bytes: cell_kib << 10,
            volume_bytes: volume_chunks * CHUNK_BYTES,
            free_stripes: true,
            ..self
        }
    }

    /// The same under another name.
    const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Sets the size of the volume to `halves` halves of the present size.
    const fn halves(self, halves: u64) -> Self {
        Self {
            volume_bytes: self.volume_bytes / 2 * halves,
            ..self
        }
    }

    /// The lazy variant of a setting: groups are made blank at their first write. For settings that seeds choose from.
    pub(crate) const fn lazy_twin(setting: usize) -> usize {
        assert!(setting < SEEDED, "one that seeds choose from");
        EAGER.len() + setting
    }

    /// The variant of a setting with free stripes.
    pub(crate) const fn free_twin(setting: usize) -> usize {
        assert!(setting < SEEDED, "one that seeds choose from");
        FIRST_FREE + setting
    }

    /// The elastic variant of a setting, if there is one.
    pub(crate) fn elastic_twin(setting: usize, free: bool) -> Option<usize> {
        let plain = ["raid5", "raid6", "pddl2"];
        let index = plain.iter().position(|&name| name == EAGER[setting].name)?;
        Some(FIRST_ELASTIC + index + if free { ELASTIC.len() } else { 0 })
    }

    /// True if stripes of its pool may be kept as copies.
    pub(crate) fn is_elastic(&self) -> bool {
        self.scheme.contains("elastic")
    }

    /// On drives that compress, with so many blocks of physical space beside those of labels, ring and pages: too few for
    /// all that clients write.
    const fn full(self, blocks: u64) -> Self {
        Self {
            physical_blocks: blocks,
            ..self
        }
    }

    /// The variant of a setting on drives that compress, if there is one.
    pub(crate) fn full_twin(setting: usize) -> Option<usize> {
        let twin = FULL.iter().find(|(of, _)| *of == setting);
        twin.map(|&(_, twin)| twin)
    }

    /// The index of a setting by name.
    pub(crate) fn by_name(name: &str) -> Option<usize> {
        SETTINGS.iter().position(|setting| setting.name == name)
    }
}

/// One event of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client reads.
    Read {
        /// First byte; a multiple of 512.
        offset: u64,
        /// Bytes; a multiple of 512.
        length: u64,
    },
    /// A client writes.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Durable before it is acknowledged.
        fua: bool,
    },
    /// A client writes zeros, or trims.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// True if the space is freed.
        trim: bool,
    },
    /// A client flushes.
    Flush,
    /// The world handles so many of its events before the next event of the schedule.
    Steps(u32),
    /// Plans a fault.
    Fault {
        /// On the drive that sits here.
        seat: Seat,
        /// When.
        trigger: Trigger,
        /// What.
        fault: DriveFault,
    },
    /// Waits until all requests have ended, then flushes everything.
    Drain,
    /// Waits until all work has ended.
    Settle,
    /// The daemon is killed and started again; drives keep their caches.
    Kill,
    /// The power is cut and comes back.
    Cut(CutSpec),
    /// The pool is closed and opened again.
    Reopen,
    /// A scrub of all volumes begins.
    Scrub,
    /// An administrator sets the percentage of stripes that should be copies; `None`: as many as there is space for.
    Elastic(Option<u8>),
    /// An administrator steers fills and scrubs.
    Steer {
        /// Which of [`array::priority::PRIORITIES`].
        priority: u8,
        /// Megabytes per second; 0: no bound.
        megabytes: u16,
        /// Whether they pause. Before all work is waited for, they go on.
        paused: bool,
    },
    /// Creates a second volume and begins to write it; or, if there is one, deletes it once its writes have ended.
    Neighbour,
    /// An administrator fails a drive.
    Fail(Seat),
    /// A fresh drive is put into a seat whose drive is out; its rebuild begins.
    Insert(Seat),
    /// A drive that had a fault is replaced, and rebuilt.
    Replace(Seat),
    /// A drive is plugged in again and catches up. With `lost` it had lost power, and the seed decides which of its
    /// un-flushed writes survived.
    Return {
        /// The drive's seat.
        seat: Seat,
        /// Seed that decides what the drive's cache has lost.
        lost: Option<u64>,
    },
    /// More drives than the code survives leave, all at once or one after the other, and come back as they were.
    Blink {
        /// Their seats.
        seats: Seats,
        /// How they leave.
        leave: Leave,
        /// The world handles so many of its events meanwhile.
        steps: u32,
        /// How they come back.
        back: Back,
    },
    /// A drive that is out is in another place by now: in that of another seat whose drive is out, and the other way
    /// round, or in a new one, with an empty drive where it was.
    Moves(Seat),
    /// At the next opening of the pool, the drives have other names: this seed decides which.
    Names(u64),
    /// The pool begins to take another name, with this number in it.
    Rename(u32),
    /// So many fresh drives begin to join the layout, if it may grow now.
    Expand(u8),
    /// The drive begins to leave the pool, if it may now; or one that leaves stays, if that is this drive.
    Remove(Seat),
    /// A fresh drive begins to take the place of a working one, if it may now.
    Succeed(Seat),
    /// At the next opening of the pool, the drive has the content that it has now.
    Stale(Seat),
    /// At the next opening of the pool, some regions of the drive have the content that they have now.
    SetBack {
        /// The drive's seat.
        seat: Seat,
        /// Which of its regions.
        regions: Regions,
    },
}

/// A set of seats; schedules have no more than 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seats(u32);

impl Seats {
    pub(crate) fn of(seats: impl IntoIterator<Item = Seat>) -> Self {
        let bits = seats.into_iter().map(|seat| 1 << seat.0);
        Self(bits.fold(0, |all, bit: u32| all | bit))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Seat> {
        (0..32).filter(move |bit| self.0 & 1 << bit != 0).map(Seat)
    }
}

/// How drives leave for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// They are gone.
    Gone,
    /// All their operations are errors.
    Fails,
}

/// How drives come back that were gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// Into the pool that is open.
    Open,
    /// The daemon is killed, and started when they are there.
    Killed,
    /// The power is cut, and comes back with them.
    Cut(CutSpec),
}

impl Event {
    /// True for a request of a client.
    #[must_use]
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::Write { .. } | Self::Zero { .. } | Self::Flush
        )
    }
}

/// One history of a simulated pool: its events, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Seed of all latencies.
    pub seed: u64,
    /// Index into [`SETTINGS`].
    pub setting: usize,
    /// Requests in flight at most.
    pub depth: usize,
    /// What happens.
    pub events: Vec<Event>,
}

/// The kinds of faults in schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Power cuts with requests in flight and torn writes; errors that drives report.
    Reported,
    /// Cuts with nothing in flight and nothing un-flushed: a pool without a journal survives these.
    Orderly,
    /// Also damage that drives do not report: rot, lost, stray and torn writes, wrong reads.
    Silent,
}
