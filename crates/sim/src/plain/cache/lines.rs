//! Lines in memory, least recently used first, and which of them wait to be written.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
struct Line {
    used: u64,
    dirty: bool,
    /// In flight to the drives.
    leaving: bool,
}

/// A bounded set of lines. Dirty and leaving lines are not evicted.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    room: usize,
    lines: BTreeMap<u64, Line>,
    /// Clean lines by the time of their last use.
    clean: BTreeMap<u64, u64>,
    /// Lines with `dirty` set.
    waiting: BTreeSet<u64>,
    /// Runs in flight to the drives, by their first line.
    runs: BTreeSet<u64>,
    /// Number of lines that are dirty or leaving.
    dirty: usize,
    clock: u64,
    /// Where the next run begins.
    hand: u64,
}

impl Lines {
    pub(super) fn new(room: usize) -> Self {
        Self {
            room,
            lines: BTreeMap::new(),
            clean: BTreeMap::new(),
            waiting: BTreeSet::new(),
            runs: BTreeSet::new(),
            dirty: 0,
            clock: 0,
            hand: 0,
        }
    }

    pub(super) const fn room(&self) -> usize {
        self.room
    }

    /// Number of lines that cannot be evicted.
    pub(super) const fn dirty(&self) -> usize {
        self.dirty
    }

    /// Number of lines that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_dirty(&self, line: u64) -> bool {
        self.lines
            .get(&line)
            .is_some_and(|line| line.dirty || line.leaving)
    }

    /// True if the line is here; then the line counts as used.
    pub(super) fn touch(&mut self, line: u64) -> bool {
        let Some(entry) = self.lines.get_mut(&line) else {
            return false;
        };
        self.clock += 1;
        if !entry.dirty && !entry.leaving {
            self.clean.remove(&entry.used);
            self.clean.insert(self.clock, line);
        }
        entry.used = self.clock;
        true
    }

    /// The line has been read.
    pub(super) fn insert(&mut self, line: u64) {
        if self.touch(line) {
            return;
        }
        self.make_room();
        if self.lines.len() >= self.room {
            return;
        }
        self.clock += 1;
        self.clean.insert(self.clock, line);
        let entry = Line {
            used: self.clock,
            dirty: false,
            leaving: false,
        };
        self.lines.insert(line, entry);
    }

    fn make_room(&mut self) {
        while self.lines.len() >= self.room
            && let Some((_, line)) = self.clean.pop_first()
        {
            self.lines.remove(&line);
        }
    }

    pub(super) fn remove(&mut self, line: u64) {
        if !self.is_dirty(line)
            && let Some(entry) = self.lines.remove(&line)
        {
            self.clean.remove(&entry.used);
        }
    }

    /// The line has been written by a client.
    pub(super) fn write(&mut self, line: u64) {
        if !self.is_dirty(line) {
            self.dirty += 1;
        }
        match self.lines.get_mut(&line) {
            Some(entry) => {
                if !entry.dirty && !entry.leaving {
                    self.clean.remove(&entry.used);
                }
                entry.dirty = true;
            }
            None => {
                self.make_room();
                let entry = Line {
                    used: 0,
                    dirty: true,
                    leaving: false,
                };
                self.lines.insert(line, entry);
            }
        }
        self.waiting.insert(line);
    }

    /// Takes the next run of neighbouring lines that wait, upwards, inside one aligned range of `most` lines. A line
    /// that is still leaving and was written again waits for a later run.
    pub(super) fn take_run(&mut self, most: u64) -> Option<(u64, u64)> {
        let free = |line: &&u64| !self.lines[*line].leaving;
        let above = self.waiting.range(self.hand..).find(free);
        let first = *above.or_else(|| self.waiting.iter().find(free))?;
        let end = (first / most + 1) * most;
        let mut last = first;
        while last < end && self.waiting.contains(&last) && !self.lines[&last].leaving {
            last += 1;
        }
        for line in first..last {
            self.waiting.remove(&line);
            let entry = self.lines.get_mut(&line).expect("it waits");
            entry.dirty = false;
            entry.leaving = true;
        }
        self.hand = last;
        self.runs.insert(first);
        Some((first, last - first))
    }

    /// Ends the run that begins there; false if there was none.
    pub(super) fn end_run(&mut self, first: u64) -> bool {
        self.runs.remove(&first)
    }

    /// A line of a run has been written to the drives.
    pub(super) fn written(&mut self, line: u64) {
        let Some(entry) = self.lines.get_mut(&line) else {
            return;
        };
        entry.leaving = false;
        if !entry.dirty {
            self.dirty -= 1;
            self.clock += 1;
            entry.used = self.clock;
            self.clean.insert(self.clock, line);
        }
    }
}
