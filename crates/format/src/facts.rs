//! The pool's facts: the payload of the label on every drive.

use std::collections::BTreeMap;
use std::fmt;

use block::Seat;
use layout::{Scheme, SchemeError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ids::{Generation, GroupId, Sequence, VolumeId};
use super::label::ELASTIC;
use crate::runs;

/// The pool's facts. Changing one makes a new generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFacts {
    /// Identity of the pool.
    pub uuid: Uuid,
    /// Its name, which need not be unique: `pool import` may find two pools of one name.
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
    /// Number of lanes; part of the format, because the journal of a group is in the ring of its lane.
    pub lanes: u16,
    /// Whether the pool was closed with nothing in flight. Otherwise parity is computed again.
    pub clean: bool,
    /// Whether the journal held nothing when the pool was closed: no drive that is away has a part of it that counts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub journal_empty: bool,
    /// Seats of the layout; 0 in labels from before this field existed.
    #[serde(default)]
    pub layout_drives: u16,
    /// One entry per seat of the layout, then one per waiting spare drive.
    pub seats: Vec<SeatFacts>,
    /// The volumes.
    pub volumes: Vec<VolumeFacts>,
    /// The pool has got more drives: when no column is away from its home, the layout's table gets as many groups as fit.
    #[serde(default, skip_serializing_if = "is_false")]
    pub grows: bool,
    /// Seats that the layout got when the pool grew, and the numbers of the drives that joined there, where they are not
    /// the seats' own: these drives stand in for no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<(u16, u16)>,
    /// The seat of a drive that leaves the pool: its columns move to other drives, and then the seat is vacant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<u16>,
    /// Groups of volumes that were never written, as runs: first and count, ascending and apart. Whatever their drives
    /// hold, they read as zeros. In pools with the feature `lazy-initialization`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uninitialized: Vec<(u64, u64)>,
    /// How often the pool is scrubbed, and the progress of the present scrub.
    #[serde(default, skip_serializing_if = "ScrubFacts::is_unplanned")]
    pub scrub: ScrubFacts,
    /// In elastic pools: the percentage of written stripes that should be copies; without it as many as there is space
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic_share: Option<u8>,
    /// What an administrator has set for fills and scrubs.
    #[serde(default, skip_serializing_if = "SteerFacts::is_standard")]
    pub steer: SteerFacts,
    /// Data that is lost.
    #[serde(default, skip_serializing_if = "LossFacts::is_none")]
    pub losses: LossFacts,
    /// By drive: blocks that did not match what was written, since the drive took its seat. Stored together with other
    /// changes, so that an unclean stop may lose the latest counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bad_blocks: BTreeMap<Uuid, u64>,
    /// A searched or generated table of the layout, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout_table: Option<String>,
    /// Names of the features beyond those of the first pools of format 1, one for each bit in the label's header: a
    /// program without one of the features can name it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// How fills and scrubs go on, until an administrator sets something else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerFacts {
    /// The name of their priority, if one was set. A name that this program does not know counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Bytes that they may move in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
    /// None of them goes on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
}

impl SteerFacts {
    fn is_standard(&self) -> bool {
        *self == Self::default()
    }
}

/// Data that can neither be read nor reconstructed, until it is written again or found intact.
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

/// Scrub state that is kept from one opening of the pool to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFacts {
    /// Days from the end of one scrub to the next; 0: only on command.
    #[serde(default)]
    pub every_days: u32,
    /// When the last scrub ended, or the plan was made: seconds since 1970 by the wall clock.
    #[serde(default)]
    pub counted_from: Option<u64>,
    /// A scrub is under way, and has finished all groups below this one.
    #[serde(default)]
    pub next_group: Option<GroupId>,
    /// Blocks that it has read.
    #[serde(default)]
    pub blocks: u64,
    /// How many of them were wrong.
    #[serde(default)]
    pub bad: u64,
    /// Groups that it could not read.
    #[serde(default)]
    pub failed: u64,
    /// Blocks that it has repaired.
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

/// The drive of a seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatFacts {
    /// Identity of the drive.
    pub drive: Uuid,
    /// Where it was found last; for display only, never trusted.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its enclosure or host, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its bay, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bay: Option<Bay>,
    /// Whether its cells count.
    pub state: SeatState,
    /// For a returned drive that is not complete yet, by lane: everything that was logged before this batch is durably
    /// in place in the drive's home cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<Sequence>>,
    /// For a waiting drive: the seat whose working drive it is to succeed. For a drive that is out: the seat that it
    /// had until it was replaced; the next opening forgets such a drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u16>,
    /// For a drive that is out because it was found smaller than the pool's regions: its size then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_bytes: Option<u64>,
    /// The number by which users know the drive, if it is not its seat's. When a spare takes another drive's seat, both
    /// drives keep their numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// For a drive that is out: the journal may have batches that count and that only this drive has. Lanes put them in
    /// place or log them again; from then on this is false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_journal: bool,
}

/// The bay of a drive: for display only. An administrator has named it, or the machine knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bay {
    /// The number of the bay in its enclosure.
    pub slot: u32,
    /// The enclosure, as the machine calls it. A bay without one was named by an administrator, and is in the
    /// enclosure that is the drive's failure domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
}

impl Bay {
    /// A bay that an administrator has named.
    #[must_use]
    pub const fn named(slot: u32) -> Self {
        Self {
            slot,
            enclosure: None,
        }
    }

    /// Whether an administrator has named it.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        self.enclosure.is_none()
    }

    /// The bay of a drive that is found again, where the machine knows `found` for it: what an administrator has named
    /// stays, what the machine knew before does not.
    #[must_use]
    pub fn of_found(own: Option<Self>, found: Option<Self>) -> Option<Self> {
        own.filter(Self::is_named).or(found)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Whether a seat's cells count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeatState {
    /// Every home cell is current.
    Current,
    /// The drive is in use, but only the cells that its cell table names are current.
    Filling,
    /// The drive has missed writes since this generation: nothing on it counts.
    Out {
        /// First generation that it has missed.
        since: Generation,
        /// Why, for display.
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
    /// It was present, with facts too old to be trusted.
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
    /// Whether the drive is to succeed a working drive.
    #[must_use]
    pub fn is_successor(&self) -> bool {
        self.state == SeatState::Waiting && self.replaces.is_some()
    }

    /// Whether the entry only keeps a number in use: its drive was removed. Within the layout the seat is vacant.
    #[must_use]
    pub fn is_removed(&self, seat: Seat) -> bool {
        matches!(self.state, SeatState::Out { .. }) && self.replaces == Some(seat.0)
    }

    /// Whether the drive waits for any seat that becomes free.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.state == SeatState::Waiting && self.replaces.is_none()
    }

    /// Whether an administrator has failed the drive: what only this drive has is given up.
    #[must_use]
    pub const fn is_given_up(&self) -> bool {
        matches!(
            self.state,
            SeatState::Out {
                reason: OutReason::FailedByAdministrator,
                ..
            }
        )
    }

    /// The reason in words, for a drive that is out because it was found too small.
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
    /// How its bytes are interleaved over its groups; without it they fill one group after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleave: Option<Interleave>,
}

impl VolumeFacts {
    /// The identity of the volume in lanes.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        let first = self.extents.first();
        first.map_or(VolumeId::NONE, |&(group, _)| VolumeId(group))
    }
}

/// How a volume's bytes are interleaved over groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interleave {
    /// Neighbouring groups of an extent that take turns; fewer at the extent's end.
    pub groups: u64,
    /// Bytes of a turn: whole stripes. A group is a whole number of turns.
    pub unit_bytes: u64,
}

impl PoolFacts {
    /// Bytes of each drive that the pool uses, from the start; behind them the last 8 MiB are reserved.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.data_offset + self.rows * self.cell_bytes
    }

    /// Whether the pool uses a feature.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }

    /// The scheme. Without the feature `elastic` a label that says elastic has a plain level: earlier versions made one
    /// of such a scheme, and kept the name.
    ///
    /// # Errors
    /// When the label's scheme cannot be parsed.
    pub fn parsed_scheme(&self) -> Result<Scheme, SchemeError> {
        let scheme: Scheme = self.scheme.parse()?;
        Ok(match self.has(ELASTIC) {
            true => scheme,
            false => scheme.plain(),
        })
    }

    /// The seats and their facts.
    pub fn seats(&self) -> impl Iterator<Item = (Seat, &SeatFacts)> {
        self.seats
            .iter()
            .zip(0..)
            .map(|(facts, seat)| (Seat(seat), facts))
    }

    /// The number by which users know the drive in a seat.
    #[must_use]
    pub fn number(&self, seat: Seat) -> u16 {
        let facts = self.seats.get(seat.index());
        facts.and_then(|facts| facts.number).unwrap_or(seat.0)
    }

    /// The number of the drive that first had a seat: its own, or that of the drive that joined there when the pool grew.
    #[must_use]
    pub fn first_number(&self, seat: Seat) -> u16 {
        let mut joined = self.joined.iter();
        joined
            .find(|&&(at, _)| at == seat.0)
            .map_or(seat.0, |&(_, number)| number)
    }

    /// The seat of the drive that users know by this number.
    #[must_use]
    pub fn seat_numbered(&self, number: u16) -> Option<Seat> {
        let mut seats = self.seats().map(|(seat, _)| seat);
        seats.find(|&seat| self.number(seat) == number)
    }

    /// Gives the drives in two seats these numbers.
    ///
    /// # Panics
    /// When there is no such seat.
    pub fn set_numbers(&mut self, seats: [Seat; 2], numbers: [u16; 2]) {
        for (seat, number) in seats.into_iter().zip(numbers) {
            self.seats[seat.index()].number = (number != seat.0).then_some(number);
        }
    }

    /// The number of a new drive in the seat behind the last one: `None` for the seat's own, or else the first free
    /// number.
    #[must_use]
    pub fn new_number(&self, seat: Seat) -> Option<u16> {
        let free = |number: &u16| self.seat_numbered(*number).is_none();
        if free(&seat.0) {
            return None;
        }
        (0..seat.0).find(free)
    }

    /// All groups of volumes that have content, in volume order.
    pub fn allocated_groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.volumes
            .iter()
            .flat_map(|volume| &volume.extents)
            .flat_map(|&(first, count)| runs::without(first..first + count, &self.uninitialized))
            .flatten()
            .map(GroupId)
    }
}
