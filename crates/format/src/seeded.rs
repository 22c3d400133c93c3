//! Seeded faults (mutations): wrong lines that show whether the simulator finds them: `docs/design/seeded-faults.md`.
//!
//! Builds with debug assertions take a wrong line in a thread that asks for its fault with `seed_fault`, and only tests
//! ask. In a release build [`is`] is a constant `false`, so the compiler removes the wrong lines.

macro_rules! seeded_faults {
    ($($(#[doc = $what:literal])+ $name:ident,)+) => {
        /// A fault that can be seeded (a mutation).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum SeededFault {
            $($(#[doc = $what])+ $name,)+
        }

        impl SeededFault {
            /// All of them, in the order of the list in `docs/design/seeded-faults.md`.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// What is wrong.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($what,)+),)+
                }
            }
        }

        /// The names, in every program with the wrong lines: `packaging/no-seeded-faults` searches a program for them.
        #[cfg(debug_assertions)]
        #[used]
        static NAMES: &str = concat!($(stringify!($name), "\n"),+);
    };
}

seeded_faults! {
    /// a write is acknowledged before its batch has completed
    AcknowledgeEarly,
    /// FUA does not flush
    FuaWithoutFlush,
    /// a flush leaves out one drive that has un-flushed writes
    FlushLeavesOut,
    /// a flush does not wait for flushes in flight
    FlushOvertakes,
    /// a flush does not wait for the verdict about a drive that has failed an earlier one
    FlushForgetsFailed,
    /// blocks are put in place before their record is flushed
    InstallEarly,
    /// the anchor moves before pages are flushed
    AnchorBeforePages,
    /// the anchor moves before installed blocks are flushed
    AnchorBeforeBlocks,
    /// recovery takes a batch of an earlier incarnation
    AnyIncarnation,
    /// recovery goes on past a torn batch
    PastTorn,
    /// recovery stops at a batch that has one bad column
    StopAtBadColumn,
    /// of two batches for one block the earlier one wins
    EarlierWins,
    /// the overlay forgets a block that changed during its checkpoint
    ForgetChanged,
    /// P and Q change places in read-modify-write
    SwapParities,
    /// read-modify-write adds the new data and does not take the old away
    AddOnly,
    /// reconstruct-write leaves out one column
    LeaveOutColumn,
    /// parity is computed from a block that was not verified
    UnverifiedParity,
    /// a failed checksum counts as correct on reads
    UnverifiedRead,
    /// a checksum is not bound to the place
    UnboundChecksum,
    /// of two copies of a page the older counts
    OlderPage,
    /// a repaired block is not written again
    RepairWithoutWrite,
    /// generation 0 is not set by a trim
    TrimWithoutEntry,
    /// locks cover the first stripe of a range only
    LockFirstOnly,
    /// a write does not go to the target of a fill
    SkipFillTarget,
    /// a fill is reported before its target is flushed
    FillEarly,
    /// lanes get `SeatOut` before labels are durable
    SeatOutEarly,
    /// labels are not flushed
    LabelsUnflushed,
    /// a label that lags by two counts as current
    LagByTwo,
    /// cells are filled before the lanes know of the drive
    FillBeforeJoined,
    /// the width of the layout is counted from the label's seats
    WidthFromSeats,
    /// the second failed column is not planned around
    OneFailureOnly,
    /// a batch has one parity column less than the code
    LessParity,
    /// a full ring overwrites its oldest batch
    RingOverwrites,
    /// sequence numbers begin anew after opening
    SequencesAnew,
    /// a partial block keeps the bytes of scratch memory
    PartialKeepsScratch,
    /// a batch that recovery has reconstructed is not written again on the drives
    SkipRestore,
    /// changes that come together are a generation each, and only the last is written
    SkipGenerations,
    /// a fill writes while older blocks are on their way to its target
    FillDuringInstall,
    /// a block that was logged as unknown stays unknown when a fill has put it in place
    FilledStaysUnknown,
    /// a scrub uses pages in memory without reading their copies
    ScrubKeepsPages,
    /// a group counts as blank before the labels know it
    InitializedEarly,
    /// groups that were never written are forgotten at an opening
    UninitializedForgotten,
    /// a group counts as blank although its pages were not written
    InitializedUnwritten,
    /// a group is made blank although the journal describes blocks of its earlier volume
    BlankUnderRecords,
    /// a group is made blank with a column in spare space though the column's home drive is complete
    BlankInSpareSpace,
    /// if a joined operation fails, only its first member gets the failure
    JoinedFailureToFirst,
    /// a whole stripe goes in place though blocks there count
    DirectOntoWritten,
    /// a whole stripe goes in place onto one that was trimmed, before the trim is flushed
    DirectOntoTrimmed,
    /// a flush does not cover what was written in place before its record
    DirectUnflushed,
    /// recovery accepts records of stripes in place without comparing the stripes
    DirectUncompared,
    /// the log does not end before a stripe in place that is torn and cannot be repaired
    DirectTornStays,
    /// a stripe in place that a power cut has torn is not repaired
    DirectTornUnrepaired,
    /// parity is left out of the journal though not all data of its row is beside it
    DerivedFromPart,
    /// recovery does not compute the parity that the journal leaves out
    DerivedNotComputed,
    /// a stripe that was vacated is written again before the record that says so is flushed
    VacatedNotFlushed,
    /// a stripe that was vacated is written again while reads planned before are in flight
    VacatedNotDrained,
    /// an operation that waited for its stripe's lock does not check whether its data has moved meanwhile
    MovedNotFollowed,
    /// a stripe that was moved still counts where it was
    MovedNotVacated,
    /// an opening forgets where stripes have moved
    MapNotRead,
    /// a write that waits for neighbours is answered without being written when a later one overlaps it
    CoalescedOverlap,
    /// an opening forgets that a volume is interleaved
    InterleaveForgotten,
    /// a discard of part of an interleaved volume takes whole units
    DiscardWholeUnits,
    /// what was trimmed is discarded on the drives before the trim is in place
    DiscardUnflushed,
    /// a discard on the drives does not wait for writes to the stripes
    DiscardUnlocked,
    /// what a deleted volume had is discarded while the journal describes stripes of it
    DiscardDescribed,
    /// the log goes on in a ring that drives are discarding
    DiscardRingWritten,
    /// an opening forgets which stripes are copies
    FormForgotten,
    /// an operation is planned with the form that its stripe had before it was locked
    FormNotFollowed,
    /// a copy lies on the drive of its data
    CopyBesideData,
    /// a stripe counts as converted before what its new form needs is in place
    FormBeforeContent,
    /// parity or copies are made of data whose checksum was not compared
    UnverifiedConversion,
    /// what only the form from before had stays written
    OldFormStays,
    /// a stripe is converted again before its last conversion is in place
    ConvertTooSoon,
    /// an opening does not use a drive that is there and that a label lists as out
    FoundNotAsked,
    /// an opening gives up drives that are away, although they are more than the code survives
    UndecidedDropped,
    /// the log ends where the drives that have the rest of it cannot be read
    LogCutShort,
    /// a drive that vanishes is put out although data cannot be read without it
    GoneForGood,
    /// a drive that is full is put out
    FullGoesOut,
    /// a write begins although there is no room for it
    WriteUngranted,
    /// writes end with "no space" although something can be freed
    GivenUpTooEarly,
    /// a growth changes the home of a column that has no entry
    HomeWithoutEntry,
    /// a growth's labels are written before its entries are durable
    LabelsBeforeEntries,
    /// a group gets a home in a cell that another column has
    HomeOnTakenCell,
    /// two columns of a group are put on one drive
    ColumnsShareDrive,
    /// a drive that joins gets the seat of a waiting spare, and the spare does not get the other one
    ExchangeWithoutSpare,
    /// a vacant seat counts as a lost drive when a batch's columns are counted
    VacantCountsAsLost,
    /// a cell that a column has left is used again before operations on it have ended
    LeftCellUsedEarly,
}

#[cfg(debug_assertions)]
mod cell {
    use std::cell::Cell;

    use super::SeededFault;

    thread_local! {
        static SEEDED: Cell<Option<SeededFault>> = const { Cell::new(None) };
    }

    /// Sets the fault of this thread's state machines, or none.
    pub fn seed_fault(fault: Option<SeededFault>) {
        SEEDED.set(fault);
    }

    /// Checked where the fault would be; public for the simulator, which takes the driver's part.
    #[must_use]
    #[inline]
    pub fn is(fault: SeededFault) -> bool {
        SEEDED.get() == Some(fault)
    }
}

#[cfg(debug_assertions)]
pub use cell::{is, seed_fault};

/// No fault is seeded.
#[cfg(not(debug_assertions))]
#[must_use]
#[inline(always)]
pub const fn is(_fault: SeededFault) -> bool {
    false
}
