//! What every drive of a pool knows: the payload of its label.

use std::collections::BTreeMap;
use std::fmt;

use block::Seat;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{VolumeId, runs};

/// The pool's facts. Changing one makes a new generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// Identity of the pool.
    pub uuid: Uuid,
    /// Its name; `pool import` may meet two of the same name.
    pub name: String,
    /// Its scheme string, complete.
    pub scheme: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Cells per drive.
    pub rows: u64,
    /// Byte of row 0 on every drive.
    pub data_offset: u64,
    /// Byte of the cell table on every drive.
    pub cell_table_offset: u64,
    /// Journal and metadata; without them writes go in place at once (`-o journal=off`).
    #[serde(rename = "store", default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<RegionFacts>,
    /// Lanes; part of the format, for a group's journal lies in its lane.
    pub lanes: u16,
    /// Whether the pool was closed with nothing in flight. Otherwise parity is computed anew.
    pub clean: bool,
    /// Seats of the layout; 0 in labels from before it was written down.
    #[serde(default)]
    pub layout_drives: u16,
    /// One entry per seat of the layout, then one per waiting spare drive.
    pub seats: Vec<SeatFacts>,
    /// The volumes.
    pub volumes: Vec<VolumeFacts>,
    /// Groups of volumes that were never written, as runs: first and count, ascending and apart. Whatever their drives
    /// hold, they read as zeros. In pools with the feature `lazy-initialization`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uninitialized: Vec<(u64, u64)>,
    /// How often the pool is scrubbed, and how far that is.
    #[serde(default, skip_serializing_if = "ScrubFacts::is_unplanned")]
    pub scrub: ScrubFacts,
    /// Data that is lost.
    #[serde(default, skip_serializing_if = "LossFacts::is_none")]
    pub losses: LossFacts,
    /// By drive: blocks that were not what had been written there, since it took its seat. Written down with other
    /// changes, so that a stop that is not clean may forget the latest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bad_blocks: BTreeMap<Uuid, u64>,
    /// A searched or generated table of the layout, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout_table: Option<String>,
    /// Names of the features beyond those of the first pools of format 1, one for each bit in the label's
    /// header: a program that does not know one can say which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// Data that can neither be read nor reconstructed, until it is written again or found right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossFacts {
    /// Group, first block in the group's data, number of blocks. Bounded.
    #[serde(default)]
    pub ranges: Vec<(u64, u64, u64)>,
    /// Blocks that have no room in `ranges`.
    #[serde(default)]
    pub unlisted_blocks: u64,
}

impl LossFacts {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What is remembered of scrubs from one life of the pool to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFacts {
    /// Days from the end of one to the next; 0: only when told to.
    #[serde(default)]
    pub every_days: u32,
    /// When the last one ended, or the plan was made: seconds since 1970 by the wall clock.
    #[serde(default)]
    pub counted_from: Option<u64>,
    /// One is under way, and has done all groups below this one.
    #[serde(default)]
    pub next_group: Option<u64>,
    /// Blocks that it has read.
    #[serde(default)]
    pub blocks: u64,
    /// How many of them were wrong.
    #[serde(default)]
    pub bad: u64,
    /// Groups that it could not read.
    #[serde(default)]
    pub failed: u64,
    /// Blocks that it has mended.
    #[serde(default)]
    pub mended: u64,
    /// Blocks of data that it has found to be lost.
    #[serde(default)]
    pub lost: u64,
}

impl ScrubFacts {
    fn is_unplanned(&self) -> bool {
        *self == Self::default()
    }
}

/// Where journal and metadata lie on every drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionFacts {
    /// Byte of lane 0's ring.
    pub journal_offset: u64,
    /// Bytes of a lane's ring.
    pub ring_bytes: u64,
    /// Byte of the metadata pages.
    pub metadata_offset: u64,
    /// Copies of each page, in pools with the feature `page-copies`; the others have two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_copies: Option<u16>,
    /// Stripes of each group that hold nothing, in pools with the feature `free-stripes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_stripes: Option<u64>,
}

/// Who sits in a seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatFacts {
    /// Identity of the drive.
    pub drive: Uuid,
    /// Where it was found last; a hint for people, never trusted.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its enclosure or host, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether its cells count.
    pub state: SeatState,
    /// Of a drive that was away and is not complete yet, by lane: everything that was logged
    /// before this batch is in its place in the drive's home cells, durably.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<u64>>,
    /// Of a waiting drive: the seat whose working drive it is to succeed. Of one that is out: the seat that it
    /// had until it was replaced; nothing is remembered of it at the next opening.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u16>,
    /// Of a drive that is out because it was found smaller than the pool's regions: its size then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_bytes: Option<u64>,
    /// The number by which people know the drive, where that is not its seat's: a spare that takes another drive's
    /// seat keeps its number, and so does the other drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
}

/// Whether a seat's cells count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeatState {
    /// Every home cell is current.
    Current,
    /// The drive takes part, but only the cells that its cell table names are current.
    Filling,
    /// The drive has missed writes since this generation: nothing on it counts.
    Out {
        /// First generation that it has missed.
        since: u64,
        /// Why, for people.
        #[serde(rename = "why")]
        reason: OutReason,
    },
    /// A spare drive that waits for a seat.
    Waiting,
}

/// Why a drive is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutReason {
    /// It returned errors.
    #[serde(rename = "faulted")]
    IoErrors,
    /// An administrator failed it.
    #[serde(rename = "failed")]
    FailedByAdministrator,
    /// An administrator took it offline for a while.
    Offline,
    /// It was not there when the pool was opened.
    Missing,
    /// It was there with facts too old to be trusted.
    Stale,
    /// It did not answer within the deadline.
    Hung,
    /// It answered, but much more slowly than others.
    Slow,
}

impl fmt::Display for OutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoErrors => "returned errors",
            Self::FailedByAdministrator => "failed by command",
            Self::Offline => "taken offline",
            Self::Missing => "missing",
            Self::Stale => "missed writes",
            Self::Hung => "did not answer",
            Self::Slow => "much too slow",
        })
    }
}

impl SeatFacts {
    /// Whether the drive is to succeed a working one.
    #[must_use]
    pub fn is_successor(&self) -> bool {
        self.state == SeatState::Waiting && self.replaces.is_some()
    }

    /// Whether nothing is left of it but its number: it was a spare, and was removed.
    #[must_use]
    pub fn is_removed(&self, seat: Seat) -> bool {
        matches!(self.state, SeatState::Out { .. }) && self.replaces == Some(seat.0)
    }

    /// Whether the drive waits for a seat, whichever becomes free.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.state == SeatState::Waiting && self.replaces.is_none()
    }

    /// Why a drive that was found too small is out, in words.
    #[must_use]
    pub fn short_of(&self) -> Option<String> {
        let (label, drive) = (self.size_bytes, self.found_bytes?);
        let out = matches!(self.state, SeatState::Out { .. });
        out.then(|| format!("its label says {label} bytes, the drive has {drive}"))
    }
}

impl SeatState {
    /// Whether the drive is written to.
    #[must_use]
    pub const fn takes_part(self) -> bool {
        matches!(self, Self::Current | Self::Filling)
    }
}

/// A volume: a run of bytes made of groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Its name within the pool.
    pub name: String,
    /// Identity.
    pub uuid: Uuid,
    /// Bytes that clients see.
    pub size_bytes: u64,
    /// Its groups in order: first and count.
    pub extents: Vec<(u64, u64)>,
    /// How its bytes go round over its groups; without it they fill one group after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleave: Option<Interleave>,
}

impl VolumeFacts {
    /// The volume, as lanes know it.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        let first = self.extents.first();
        first.map_or(VolumeId::NONE, |&(group, _)| VolumeId(group))
    }
}

/// How a volume's bytes go round over groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interleave {
    /// Neighbouring groups of an extent that have turns; fewer at the extent's end.
    pub groups: u64,
    /// Bytes of a turn: whole stripes, and a group is whole turns.
    pub unit_bytes: u64,
}

impl PoolFacts {
    /// Whether the pool uses a feature.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }

    /// The seats and their facts.
    pub fn seats(&self) -> impl Iterator<Item = (Seat, &SeatFacts)> {
        self.seats
            .iter()
            .zip(0..)
            .map(|(facts, seat)| (Seat(seat), facts))
    }

    /// The number by which people know the drive in a seat.
    #[must_use]
    pub fn number(&self, seat: Seat) -> u16 {
        let facts = self.seats.get(seat.index());
        facts.and_then(|facts| facts.number).unwrap_or(seat.0)
    }

    /// The seat of the drive that people know by this number.
    #[must_use]
    pub fn seat_numbered(&self, number: u16) -> Option<Seat> {
        let mut seats = self.seats().map(|(seat, _)| seat);
        seats.find(|&seat| self.number(seat) == number)
    }

    /// Gives the drives in two seats these numbers.
    pub(super) fn set_numbers(&mut self, seats: [Seat; 2], numbers: [u16; 2]) {
        for (seat, number) in seats.into_iter().zip(numbers) {
            self.seats[seat.index()].number = (number != seat.0).then_some(number);
        }
    }

    /// The number of a drive that is new in the seat behind the last one: the seat's, or the first that is free.
    pub(super) fn new_number(&self, seat: Seat) -> Option<u16> {
        let free = |number: &u16| self.seat_numbered(*number).is_none();
        if free(&seat.0) {
            return None;
        }
        (0..seat.0).find(free)
    }

    /// All groups of volumes that have content, in volume order.
    pub fn allocated_groups(&self) -> impl Iterator<Item = u64> + '_ {
        self.volumes
            .iter()
            .flat_map(|volume| &volume.extents)
            .flat_map(|&(first, count)| runs::without(first..first + count, &self.uninitialized))
            .flatten()
    }
}
