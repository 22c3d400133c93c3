//! The pool's reports, for the log, the console and `pool events`.

use std::fmt;

use block::{BLOCK_BYTES, ByteSize, Seat};
use format::{Column, Generation, GroupId, StripeId};
use plan::action::IoKind;
use uuid::Uuid;

use super::{LostData, OutReason, Rejected};

/// A line for the log, the console and `pool events`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Report {
    /// A drive went out.
    #[error("seat {seat}: the drive is out: {reason} (since generation {since})")]
    DriveOut {
        /// Whose.
        seat: Seat,
        /// Why.
        reason: OutReason,
        /// Since which generation.
        since: Generation,
    },
    /// A drive is smaller than its label states.
    #[error(
        "seat {seat}: its label says {label_bytes} bytes, the drive has {drive_bytes}: the pool opens without it"
    )]
    DriveCut {
        /// Whose.
        seat: Seat,
        /// Size that the pool's labels give the drive.
        label_bytes: u64,
        /// Size that it was found with.
        drive_bytes: u64,
    },
    /// A working drive is being replaced.
    #[error(
        "seat {seat}: the drive is being replaced by that in seat {with}; it stays in use until that is complete"
    )]
    ReplacementBegins {
        /// Whose.
        seat: Seat,
        /// Where its successor is meanwhile.
        with: Seat,
        /// The successor's identity.
        drive: Uuid,
    },
    /// A successor has taken the place of the drive that it was to replace.
    #[error("seat {seat}: the drive has replaced the one before it, with all that was on it")]
    Replaced {
        /// Whose.
        seat: Seat,
        /// The new drive's identity.
        drive: Uuid,
    },
    /// A drive that was being replaced is out before its successor had everything.
    #[error(
        "seat {seat}: the drive before it is out ({reason}) and was being replaced; this one has {cells} cells, the others are rebuilt"
    )]
    ReplacedEarly {
        /// Whose.
        seat: Seat,
        /// The new drive's identity.
        drive: Uuid,
        /// Cells that the new drive has.
        cells: u64,
        /// Why the old one is out.
        reason: OutReason,
    },
    /// The successor of a drive is out.
    #[error(
        "seat {seat}: its successor in seat {with} is out; the drive keeps its place, and nothing is lost"
    )]
    ReplacementEnds {
        /// Whose.
        seat: Seat,
        /// Where its successor was.
        with: Seat,
    },
    /// A drive came in and is being filled.
    #[error("seat {seat}: the drive joined")]
    DriveIn {
        /// Whose.
        seat: Seat,
        /// Its identity.
        drive: Uuid,
    },
    /// Drives have joined the layout, and columns move to them.
    #[error("the pool grows by {}: {} with content move there", Count(*drives, "drive"), Count(*columns, "column"))]
    ExpandBegins {
        /// How many.
        drives: u64,
        /// Columns with content whose home is there.
        columns: u64,
    },
    /// A drive leaves: its columns move to other drives.
    #[error("drive {seat} is being removed: {} with content move to other drives", Count(*columns, "column"))]
    RemoveBegins {
        /// Its seat.
        seat: Seat,
        /// Columns with content that are there.
        columns: u64,
    },
    /// A drive does not leave after all.
    #[error("drive {seat} is not removed: its columns move back")]
    RemoveCalledOff {
        /// Its seat.
        seat: Seat,
    },
    /// A drive has left: its seat is vacant.
    #[error("drive {seat} is removed: the pool is whole without it")]
    DriveRemoved {
        /// Its seat.
        seat: Seat,
    },
    /// All columns are where they should be.
    #[error("the pool has grown: it has room for {} more", ByteSize(*bytes))]
    ExpandEnds {
        /// Groups that were added.
        groups: u64,
        /// Bytes of user data that they hold.
        bytes: u64,
    },
    /// A spare takes the place of a drive that is out.
    #[error("seat {seat}: the spare takes the place of the drive in seat {from}")]
    SpareTakesOver {
        /// The spare's seat, which is that of the layout from now on.
        seat: Seat,
        /// The seat of the drive that is out.
        from: Seat,
    },
    /// A drive that was away is back, and what it missed is copied to it.
    #[error("seat {seat}: the drive is back; it is brought up to date")]
    CatchingUp {
        /// Whose.
        seat: Seat,
    },
    /// A drive is back, but its content does not count.
    #[error("seat {seat}: the drive is back, and filled as a whole: {reason}")]
    FullRebuild {
        /// Whose.
        seat: Seat,
        /// Why.
        reason: Rejected,
    },
    /// Blocks of columns on returned drives cannot be recovered for now.
    #[error(
        "{} of {} may have changed while their drive was away, and cannot be reconstructed until more drives are back; the first in column {column} of group {group}. The rest of these columns counts again",
        Count(*blocks, "block"), Count(*columns, "column")
    )]
    BlocksUnrecovered {
        /// Which group, of the first.
        group: GroupId,
        /// Which column, of the first.
        column: Column,
        /// How many columns.
        columns: u64,
        /// How many blocks.
        blocks: u64,
    },
    /// A drive that was away is up to date.
    #[error(
        "seat {seat}: up to date again; {copied_bytes} bytes copied in {cells} cells of {cell_bytes}"
    )]
    CaughtUp {
        /// Whose.
        seat: Seat,
        /// Cells that were checked.
        cells: u64,
        /// Bytes of each.
        cell_bytes: u64,
        /// Bytes copied.
        copied_bytes: u64,
    },
    /// Every cell of a seat is current.
    #[error("seat {seat}: complete")]
    SeatComplete {
        /// Whose.
        seat: Seat,
    },
    /// A drive failed an operation, and stays because without it data would be lost.
    #[error(
        "seat {seat}: {kind:?} at byte {offset} failed ({fault}); the drive stays, for without it data would be lost"
    )]
    DriveKept {
        /// Whose.
        seat: Seat,
        /// The operation.
        kind: IoKind,
        /// Where.
        offset: u64,
        /// The error.
        fault: block::Fault,
    },
    /// A drive has refused a write because no space is left on it, and stays.
    #[error(
        "seat {seat}: no space is left on the drive, which stays in use; discard data (trim a file system, delete volumes) so that it takes writes again"
    )]
    DriveFull {
        /// Whose.
        seat: Seat,
    },
    /// Reads failed and were reconstructed from others.
    #[error(
        "seat {seat}: {} failed, the first at byte {offset} ({fault}); reconstructed from other drives where possible",
        Count(*times, "read")
    )]
    ReadFault {
        /// Whose.
        seat: Seat,
        /// Where, of the first.
        offset: u64,
        /// The error, of the first.
        fault: block::Fault,
        /// How many.
        times: u64,
    },
    /// A drive is slow.
    #[error(
        "seat {seat}: the drive is much slower than others; it is read only where nobody else can answer"
    )]
    DriveSuspect {
        /// Whose.
        seat: Seat,
    },
    /// A drive is trusted again.
    #[error("seat {seat}: the drive is trusted again")]
    DriveTrusted {
        /// Whose.
        seat: Seat,
    },
    /// A drive does not answer, and data would be lost without it; or too many drives do not answer.
    #[error(
        "seat {seat}: the drive does not answer; it stays, for without it data would be lost, or because most drives do not answer"
    )]
    DriveHangs {
        /// Whose.
        seat: Seat,
    },
    /// Half of the drives or more are slow at once.
    #[error(
        "{drives} drives are slow at once: the host, or what they hang on, is; no drive is blamed"
    )]
    HostStall {
        /// How many.
        drives: u64,
    },
    /// Cells are to be filled.
    #[error("rebuild of {cells} cells begins")]
    RebuildBegins {
        /// How many.
        cells: u64,
    },
    /// Nothing is left to fill.
    #[error("rebuild ends: {cells} cells filled")]
    RebuildEnds {
        /// How many were filled.
        cells: u64,
    },
    /// Cells could not be filled.
    #[error(
        "{} cannot be rebuilt: {fault}; the first is column {column} of group {group}",
        Count(*cells, "cell")
    )]
    CellLost {
        /// Which group, of the first.
        group: GroupId,
        /// Which column, of the first.
        column: Column,
        /// How many.
        cells: u64,
        /// Why, the first.
        fault: block::Fault,
    },
    /// Requests could not be served.
    #[error(
        "{} failed, for data that is lost or on drives that are out; the first in stripe {stripe} of group {group}",
        Count(*times, "request")
    )]
    StripeLost {
        /// Which group, of the first.
        group: GroupId,
        /// Which stripe, of the first.
        stripe: StripeId,
        /// How many.
        times: u64,
    },
    /// The pool was not closed cleanly; parity is computed again.
    #[error("the pool was not closed cleanly: computing parity of {groups} groups anew")]
    ResyncBegins {
        /// How many.
        groups: u64,
    },
    /// Parity agrees with data again.
    #[error("parity of all groups agrees with their data")]
    ResyncEnds,
    /// Batches were found in the journal.
    #[error("lane {lane}: {batches} batches found in the journal")]
    Replayed {
        /// Which lane.
        lane: u16,
        /// How many.
        batches: u64,
    },
    /// Blocks do not match what was written.
    #[error(
        "seat {seat}: {} {} bytes {offset} {} {} of the drive",
        Count(*blocks, "checksum error"),
        if *blocks * BLOCK_BYTES == end - offset { "at" } else { "between" },
        if *blocks * BLOCK_BYTES == end - offset { "to" } else { "and" },
        end - 1
    )]
    BlockBad {
        /// Whose drive.
        seat: Seat,
        /// How many blocks.
        blocks: u64,
        /// First byte of the first on the drive.
        offset: u64,
        /// Byte behind the last.
        end: u64,
    },
    /// Blocks were reconstructed and written again.
    #[error(
        "{} of {} reconstructed and written again; the first in stripe {stripe} of group {group}",
        Count(*blocks, "block"), Count(*stripes, "stripe")
    )]
    Repaired {
        /// Which group, of the first.
        group: GroupId,
        /// Which stripe, of the first.
        stripe: StripeId,
        /// How many stripes.
        stripes: u64,
        /// How many blocks.
        blocks: u64,
    },
    /// Checksums were lost.
    #[error(
        "{} of checksums damaged in all places, the first of group {group} column {column}; the blocks are reconstructed when they are read",
        Count(*pages, "page")
    )]
    PageLost {
        /// Which group, of the first.
        group: GroupId,
        /// Which of its columns.
        column: Column,
        /// How many.
        pages: u64,
    },
    /// Copies of checksum pages on a drive differ from the other copies. Reported at the first one, the second, the
    /// fourth and so on.
    #[error(
        "seat {seat}: {damaged} copies of checksum pages were damaged and {older} older than the others; written again"
    )]
    PagesMended {
        /// Whose drive.
        seat: Seat,
        /// Copies that failed their own check since the pool was opened.
        damaged: u64,
        /// Copies that were intact but older than another copy. After an unclean stop that is expected; otherwise the
        /// drive has lost writes or was set back.
        older: u64,
    },
    /// A drive's label is current, but its journal is not.
    #[error(
        "seat {seat}: the drive's journal is older than its label (anchor {anchor}, the others have {newest}): it was set back or has lost writes; scrub the pool and watch the drive"
    )]
    DriveOld {
        /// Whose drive.
        seat: Seat,
        /// The newest anchor that it has.
        anchor: u64,
        /// The newest of all drives.
        newest: u64,
    },
    /// An opening has put a drive in use again that the labels listed as out: data could not be read without it.
    #[error(
        "seat {seat}: the drive was out and is in again with its data, because data cannot be read without it"
    )]
    DriveTakenBack {
        /// Whose drive.
        seat: Seat,
    },
    /// A scrub begins.
    #[error("scrub of {groups} groups begins")]
    ScrubBegins {
        /// How many.
        groups: u64,
    },
    /// A scrub that began in an earlier opening of the pool continues.
    #[error("scrub goes on at group {group}")]
    ScrubResumed {
        /// Where.
        group: GroupId,
    },
    /// A scrub has ended.
    #[error(
        "scrub ends: {blocks} blocks read, {bad} bad, {mended} repaired; {lost} blocks of data are lost{}",
        NotChecked(*failed)
    )]
    ScrubEnds {
        /// Blocks read.
        blocks: u64,
        /// How many were wrong.
        bad: u64,
        /// How many were reconstructed and written again.
        mended: u64,
        /// How many blocks of data can neither be read nor reconstructed.
        lost: u64,
        /// How many groups could not be read as a whole.
        failed: u64,
    },
    /// Data can neither be read nor reconstructed.
    #[error("{0} lost: no drive that is there has that data, and it cannot be reconstructed")]
    DataLost(LostRun),
    /// Data that was lost is available again.
    #[error("{0} no longer lost: that data was written again, or found right")]
    DataRestored(LostRun),
    /// Drives that cannot be spared refuse writes or flushes.
    #[error(
        "drives that stay refuse writes or flushes ({fault}): requests end in errors, and are tried again every few seconds"
    )]
    WritesStall {
        /// The error of the drives.
        fault: block::Fault,
    },
    /// Drives that refused writes or flushes take them again.
    #[error("the drives take writes and flushes again")]
    WritesResume,
    /// Another opening of the pool is at work.
    #[error(
        "another host has taken the pool over (opening {by}): nothing more is written or acknowledged here"
    )]
    TakenOver {
        /// The other opening.
        by: Uuid,
    },
    /// Parity could not be computed again.
    #[error(
        "group {group}: parity cannot be checked while a drive is missing; blocks that were being written when the pool stopped may read back wrong"
    )]
    ResyncFailed {
        /// Which group.
        group: GroupId,
    },
}

/// Ranges of a volume, as one report names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRun {
    /// The volume's name.
    pub volume: String,
    /// First byte of the first range.
    pub offset_bytes: u64,
    /// Byte behind the last one.
    pub end_bytes: u64,
    /// Bytes of all ranges.
    pub bytes: u64,
    /// How many ranges.
    pub ranges: u64,
}

impl LostRun {
    /// One range.
    #[must_use]
    pub fn new(data: LostData) -> Self {
        Self {
            offset_bytes: data.offset_bytes,
            end_bytes: data.offset_bytes + data.length_bytes,
            bytes: data.length_bytes,
            ranges: 1,
            volume: data.volume,
        }
    }

    fn absorb(&mut self, next: &Self) -> bool {
        let same = self.volume == next.volume;
        if same {
            let adjacent =
                self.end_bytes == next.offset_bytes || next.end_bytes == self.offset_bytes;
            self.ranges += next.ranges - u64::from(adjacent);
            self.bytes += next.bytes;
            self.offset_bytes = self.offset_bytes.min(next.offset_bytes);
            self.end_bytes = self.end_bytes.max(next.end_bytes);
        }
        same
    }
}

impl fmt::Display for LostRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.offset_bytes, self.end_bytes - 1);
        write!(f, "volume {}: {} bytes ", self.volume, self.bytes)?;
        match self.ranges {
            1 => write!(f, "(bytes {first} to {last}) are"),
            ranges => write!(f, "in {ranges} ranges between bytes {first} and {last} are"),
        }
    }
}

/// How severe a report is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing to do.
    #[default]
    Info,
    /// Redundancy is reduced, or a drive is not in order.
    Warning,
    /// Data cannot be read, or the pool cannot be used.
    Error,
}

impl Report {
    /// How severe it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::DataLost(_)
            | Self::StripeLost { .. }
            | Self::CellLost { .. }
            | Self::BlocksUnrecovered { .. }
            | Self::DriveKept { .. }
            | Self::ResyncFailed { .. }
            | Self::TakenOver { .. } => Severity::Error,
            Self::ScrubEnds { lost, failed, .. } if *lost > 0 || *failed > 0 => Severity::Error,
            Self::DriveOut { .. }
            | Self::FullRebuild { .. }
            | Self::ReadFault { .. }
            | Self::DriveSuspect { .. }
            | Self::DriveHangs { .. }
            | Self::DriveFull { .. }
            | Self::HostStall { .. }
            | Self::BlockBad { .. }
            | Self::PageLost { .. }
            | Self::ResyncBegins { .. } => Severity::Warning,
            _ => Severity::Info,
        }
    }

    /// The seats that it names; the first is the one that it is about.
    fn seats_mut(&mut self) -> [Option<&mut Seat>; 2] {
        match self {
            Self::ReplacementBegins { seat, with, .. } | Self::ReplacementEnds { seat, with } => {
                [Some(seat), Some(with)]
            }
            Self::SpareTakesOver { seat, from } => [Some(seat), Some(from)],
            Self::DriveOut { seat, .. }
            | Self::DriveCut { seat, .. }
            | Self::DriveIn { seat, .. }
            | Self::Replaced { seat, .. }
            | Self::ReplacedEarly { seat, .. }
            | Self::SeatComplete { seat }
            | Self::CatchingUp { seat }
            | Self::FullRebuild { seat, .. }
            | Self::CaughtUp { seat, .. }
            | Self::DriveKept { seat, .. }
            | Self::DriveSuspect { seat }
            | Self::DriveTrusted { seat }
            | Self::DriveHangs { seat }
            | Self::DriveFull { seat }
            | Self::BlockBad { seat, .. }
            | Self::PagesMended { seat, .. }
            | Self::DriveOld { seat, .. }
            | Self::DriveTakenBack { seat }
            | Self::ReadFault { seat, .. } => [Some(seat), None],
            _ => [None, None],
        }
    }

    /// The seat that it is about.
    #[must_use]
    pub fn seat(&self) -> Option<Seat> {
        let mut copy = self.clone();
        let [seat, _] = copy.seats_mut();
        seat.copied()
    }

    /// The same with other numbers for seats: those by which users know the drives.
    #[must_use]
    pub fn renumbered(mut self, number: impl Fn(Seat) -> Seat) -> Self {
        for seat in self.seats_mut().into_iter().flatten() {
            *seat = number(*seat);
        }
        self
    }

    /// Whether reports of this kind may come by the thousand and can be merged.
    #[must_use]
    pub const fn comes_in_floods(&self) -> bool {
        matches!(
            self,
            Self::BlockBad { .. }
                | Self::Repaired { .. }
                | Self::ReadFault { .. }
                | Self::StripeLost { .. }
                | Self::CellLost { .. }
                | Self::BlocksUnrecovered { .. }
                | Self::PageLost { .. }
                | Self::DataLost(_)
                | Self::DataRestored(_)
        )
    }

    /// Merges `next` into this report, if both are about the same thing; returns whether they were.
    pub fn absorb(&mut self, next: &Self) -> bool {
        match (self, next) {
            (
                Self::BlockBad {
                    seat,
                    blocks,
                    offset,
                    end,
                },
                Self::BlockBad {
                    seat: other,
                    blocks: more,
                    offset: from,
                    end: to,
                },
            ) if seat == other => {
                *blocks += more;
                *offset = (*offset).min(*from);
                *end = (*end).max(*to);
                true
            }
            (
                Self::Repaired {
                    stripes, blocks, ..
                },
                Self::Repaired {
                    stripes: more,
                    blocks: more_blocks,
                    ..
                },
            ) => {
                *stripes += more;
                *blocks += more_blocks;
                true
            }
            (
                Self::ReadFault { seat, times, .. },
                Self::ReadFault {
                    seat: other,
                    times: more,
                    ..
                },
            ) if seat == other => {
                *times += more;
                true
            }
            (Self::StripeLost { times, .. }, Self::StripeLost { times: more, .. }) => {
                *times += more;
                true
            }
            (Self::CellLost { cells, .. }, Self::CellLost { cells: more, .. }) => {
                *cells += more;
                true
            }
            (
                Self::BlocksUnrecovered {
                    columns, blocks, ..
                },
                Self::BlocksUnrecovered {
                    columns: more,
                    blocks: more_blocks,
                    ..
                },
            ) => {
                *columns += more;
                *blocks += more_blocks;
                true
            }
            (Self::PageLost { pages, .. }, Self::PageLost { pages: more, .. }) => {
                *pages += more;
                true
            }
            (Self::DataLost(run), Self::DataLost(next))
            | (Self::DataRestored(run), Self::DataRestored(next)) => run.absorb(next),
            _ => false,
        }
    }
}

/// Groups that a scrub could not check as a whole.
struct NotChecked(u64);

impl fmt::Display for NotChecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            groups => write!(
                f,
                "; {} could not be checked as a whole",
                Count(groups, "group")
            ),
        }
    }
}

/// `1 block`, `2 blocks`.
struct Count(u64, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        let plural = if *count == 1 { "" } else { "s" };
        write!(f, "{count} {what}{plural}")
    }
}
