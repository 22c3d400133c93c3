//! Counters of a drive's work.

/// Counters of one drive since it was created. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Reads done.
    pub reads: u64,
    /// Writes done, zeroing included.
    pub writes: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time during which the drive was at work (of an SSD: time in which at least one operation was in it).
    pub busy_ns: u64,
    /// Moves of the arm by at least one cylinder.
    pub seeks: u64,
    /// Time that these took, write settling included.
    pub seek_ns: u64,
    /// Waits for a sector to come round, one for each access to the medium.
    pub rotations: u64,
    /// Time that these took.
    pub rotation_ns: u64,
    /// Reads answered from the drive's cache.
    pub cache_hits: u64,
    /// Flash pages programmed, those moved by cleaning included.
    pub programs: u64,
    /// Flash pages moved by cleaning.
    pub moves: u64,
    /// Flash blocks erased.
    pub erases: u64,
}

impl Work {
    /// Reads and writes done.
    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.reads + self.writes
    }

    /// Counts an operation that is accepted.
    pub(super) const fn count(&mut self, operation: &super::Operation) {
        match operation.kind {
            super::IoKind::Read => {
                self.reads += 1;
                self.read_bytes += operation.length;
            }
            super::IoKind::Write | super::IoKind::WriteZeroes => {
                self.writes += 1;
                self.written_bytes += operation.length;
            }
            super::IoKind::Discard => {}
            super::IoKind::Flush => self.flushes += 1,
        }
    }
}
