//! What the pool says to whoever watches it.

use block::Seat;
use uuid::Uuid;

use super::{Misfit, OutReason};
use crate::action::IoKind;

/// A line for the log, the console and `pool events`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Report {
    /// A drive went out.
    #[error("seat {seat}: drive is out ({why:?}) since generation {since}")]
    DriveOut {
        /// Whose.
        seat: Seat,
        /// Why.
        why: OutReason,
        /// Since which generation.
        since: u64,
    },
    /// A drive came in and is being filled.
    #[error("seat {seat}: drive {drive} takes part from now on")]
    DriveIn {
        /// Whose.
        seat: Seat,
        /// Its identity.
        drive: Uuid,
    },
    /// A drive that was away is back, and what it missed is copied to it.
    #[error("seat {seat}: the drive is back; it is brought up to date")]
    CatchingUp {
        /// Whose.
        seat: Seat,
    },
    /// A drive is back, but what it holds does not count.
    #[error("seat {seat}: the drive is back, and filled as a whole: {why}")]
    FilledAnew {
        /// Whose.
        seat: Seat,
        /// Why.
        why: Misfit,
    },
    /// Of a column on a drive that is back, some blocks are nowhere.
    #[error(
        "group {group} column {column}: {blocks} blocks changed while their drive was away, and cannot be reconstructed from the drives that are there; the rest of the column counts again"
    )]
    LeftOut {
        /// Which group.
        group: u64,
        /// Which column.
        column: u16,
        /// How many.
        blocks: u64,
    },
    /// A drive that was away is up to date.
    #[error(
        "seat {seat}: up to date again; {copied_bytes} bytes copied in {cells} cells of {cell_bytes}"
    )]
    CaughtUp {
        /// Whose.
        seat: Seat,
        /// Cells that were looked at.
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
        /// What was asked.
        kind: IoKind,
        /// Where.
        offset: u64,
        /// What it said.
        fault: block::Fault,
    },
    /// A read failed and was reconstructed from others.
    #[error(
        "seat {seat}: read at byte {offset} failed ({fault}); reconstructed from other drives where possible"
    )]
    ReadFault {
        /// Whose.
        seat: Seat,
        /// Where.
        offset: u64,
        /// What it said.
        fault: block::Fault,
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
    /// A drive does not answer, and data would be lost without it; or too many do not.
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
    LateTogether {
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
    /// A cell could not be filled.
    #[error("group {group} column {column} cannot be filled: {fault}")]
    CellLost {
        /// Which group.
        group: u64,
        /// Which column.
        column: u16,
        /// Why.
        fault: block::Fault,
    },
    /// A stripe could not be served.
    #[error("group {group} stripe {stripe}: more is lost than the code survives")]
    StripeLost {
        /// Which group.
        group: u64,
        /// Which stripe.
        stripe: u64,
    },
    /// The pool was not closed cleanly; parity is computed anew.
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
    /// A block was not what had been written there.
    #[error(
        "seat {seat}: the block at byte {offset} (group {group}, column {column}) is not what was written there"
    )]
    BlockBad {
        /// Whose drive.
        seat: Seat,
        /// First byte on the drive.
        offset: u64,
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
    },
    /// Blocks were reconstructed and written again.
    #[error("group {group} stripe {stripe}: {blocks} blocks reconstructed and written again")]
    Healed {
        /// Which group.
        group: u64,
        /// Which stripe.
        stripe: u64,
        /// How many.
        blocks: u64,
    },
    /// Checksums were lost.
    #[error(
        "group {group} column {column}: a page of checksums was damaged in all its places; its blocks are reconstructed when they are read"
    )]
    PageLost {
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
    },
    /// A scrub begins.
    #[error("scrub of {groups} groups begins")]
    ScrubBegins {
        /// How many.
        groups: u64,
    },
    /// A scrub that an earlier life of the pool began goes on.
    #[error("scrub goes on at group {group}")]
    ScrubGoesOn {
        /// Where.
        group: u64,
    },
    /// A scrub has ended.
    #[error("scrub ends: {blocks} blocks read, {bad} of them bad")]
    ScrubEnds {
        /// Blocks read.
        blocks: u64,
        /// How many were wrong.
        bad: u64,
    },
    /// Another opening of the pool is at work.
    #[error(
        "another host has taken the pool over (opening {by}): nothing more is written or acknowledged here"
    )]
    TakenOver {
        /// The other opening.
        by: Uuid,
    },
    /// Parity could not be computed anew.
    #[error(
        "group {group}: parity cannot be checked while a drive is missing; blocks that were being written when the pool stopped may read back wrong"
    )]
    ResyncFailed {
        /// Which group.
        group: u64,
    },
}
