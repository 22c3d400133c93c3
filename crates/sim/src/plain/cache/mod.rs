//! The array's memory.
//!
//! | policy | reads | writes |
//! | --- | --- | --- |
//! | off | from the drives | to the drives |
//! | read | from memory what was read lately | to the drives; memory forgets the range |
//! | write-back | from memory what was read or written lately | answered when they are in memory |
//!
//! With write-back the memory survives a loss of power, so a flush has nothing to do. When more than a given share of
//! the memory waits to be written, runs of neighbouring blocks are written to the drives, upwards through the volume
//! (as C-LOOK), at most a stripe at a time, so that gathered blocks become a full stripe. When all of the memory waits
//! to be written, writes wait.

mod lines;

use self::lines::Lines;

/// Bytes of a line.
const LINE_BYTES: u64 = 4096;

/// Options of an array's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheOptions {
    /// No memory.
    #[default]
    Off,
    /// For reads.
    Read {
        /// Its size.
        bytes: u64,
    },
    /// For reads and writes.
    WriteBack {
        /// Its size.
        bytes: u64,
        /// Percentage of the memory that may wait to be written before writing begins.
        destage_percent: u64,
    },
}

/// The state of the memory.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    lines: Option<Lines>,
    writes: bool,
    /// Number of lines that may wait to be written before writing begins.
    dirty_max: usize,
    run_lines: u64,
    destages: usize,
    destages_max: usize,
}

fn lines_of(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / LINE_BYTES..(offset + length).div_ceil(LINE_BYTES)
}

impl Cache {
    /// `stripe_bytes` is the most that is written to the drives at a time, `destages_max` how many of such runs at the
    /// same time.
    pub(super) fn new(options: CacheOptions, stripe_bytes: u64, destages_max: usize) -> Self {
        let (bytes, writes, percent) = match options {
            CacheOptions::Off => (0, false, 0),
            CacheOptions::Read { bytes } => (bytes, false, 0),
            CacheOptions::WriteBack {
                bytes,
                destage_percent,
            } => (bytes, true, destage_percent.min(100)),
        };
        let room = usize::try_from(bytes / LINE_BYTES).expect("fits into memory");
        Self {
            lines: (room > 0).then(|| Lines::new(room)),
            writes: writes && room > 0,
            dirty_max: room * usize::try_from(percent).expect("at most 100") / 100,
            run_lines: (stripe_bytes / LINE_BYTES).max(1),
            destages: 0,
            destages_max,
        }
    }

    /// True if writes are answered from memory.
    pub(super) const fn holds_writes(&self) -> bool {
        self.writes
    }

    /// True if all of a range is in memory.
    pub(super) fn read(&mut self, offset: u64, length: u64) -> bool {
        let Some(lines) = &mut self.lines else {
            return false;
        };
        lines_of(offset, length).all(|line| lines.touch(line))
    }

    /// A range has been read.
    pub(super) fn filled(&mut self, offset: u64, length: u64) {
        if let Some(lines) = &mut self.lines {
            lines_of(offset, length).for_each(|line| lines.insert(line));
        }
    }

    /// A range is written to the drives directly: removes it from memory.
    pub(super) fn forget(&mut self, offset: u64, length: u64) {
        if let Some(lines) = &mut self.lines {
            lines_of(offset, length).for_each(|line| lines.remove(line));
        }
    }

    /// Takes a write into memory; false if there is no room now. A write longer than the memory is accepted as a whole
    /// when no other data waits to be written.
    pub(super) fn write(&mut self, offset: u64, length: u64) -> bool {
        let Some(lines) = &mut self.lines else {
            return false;
        };
        let range = lines_of(offset, length);
        let fresh = range.clone().filter(|&line| !lines.is_dirty(line)).count();
        if lines.dirty() > 0 && lines.dirty() + fresh > lines.room() {
            return false;
        }
        range.for_each(|line| lines.write(line));
        true
    }

    /// The next range to write to the drives, if too much waits to be written, or if a write waits for room
    /// (`pressed`).
    pub(super) fn destage(&mut self, pressed: bool) -> Option<(u64, u64)> {
        if !self.writes || self.destages >= self.destages_max {
            return None;
        }
        let lines = self.lines.as_mut()?;
        if lines.waiting() <= self.dirty_max && !pressed {
            return None;
        }
        let (first, count) = lines.take_run(self.run_lines)?;
        self.destages += 1;
        Some((first * LINE_BYTES, count * LINE_BYTES))
    }

    /// A range that [`Cache::destage`] returned has been written. Called for each stripe of it.
    pub(super) fn destaged(&mut self, offset: u64, length: u64) {
        if let Some(lines) = &mut self.lines
            && lines.end_run(lines_of(offset, length).start)
        {
            self.destages -= 1;
            lines_of(offset, length).for_each(|line| lines.written(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_there_until_newer_lines_push_it_out() {
        let mut cache = Cache::new(CacheOptions::Read { bytes: 16 << 12 }, 65536, 16);
        assert!(!cache.read(0, 8192));
        cache.filled(0, 8192);
        assert!(cache.read(4096, 4096));
        cache.filled(1 << 20, 14 << 12);
        assert!(cache.read(0, 8192), "16 lines fit");
        cache.filled(2 << 20, 15 << 12);
        assert!(!cache.read(1 << 20, 4096), "the older ones are gone");
        cache.forget(2 << 20, 4096);
        assert!(!cache.read(2 << 20, 4096));
        assert!(!cache.holds_writes());
    }

    #[test]
    fn writes_gather_to_runs_of_a_stripe_and_a_full_memory_takes_no_more() {
        let options = CacheOptions::WriteBack {
            bytes: 16 << 12,
            destage_percent: 50,
        };
        let mut cache = Cache::new(options, 4 << 12, 16);
        for line in [5, 0, 1, 3, 2, 9, 8, 7] {
            assert!(cache.write(line << 12, 4096));
        }
        assert_eq!(cache.destage(false), None, "half may wait");
        assert!(cache.write(4 << 12, 4096));
        assert_eq!(
            cache.destage(false),
            Some((0, 4 << 12)),
            "the lowest, a stripe of it"
        );
        assert_eq!(cache.destage(false), None, "five wait");
        assert!(cache.write(20 << 12, 7 << 12));
        assert!(!cache.write(40 << 12, 4096), "all 16 lines are taken");
        assert!(cache.write(0, 4096), "but for lines that are there");
        cache.destaged(0, 4 << 12);
        assert!(
            cache.write(40 << 12, 3 << 12),
            "line 0 is dirty again, three are free"
        );
        assert!(!cache.write(50 << 12, 4096));
        assert_eq!(
            cache.destage(true),
            Some((4 << 12, 2 << 12)),
            "for whoever waits"
        );
    }
}
