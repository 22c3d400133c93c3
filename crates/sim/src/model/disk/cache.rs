//! A disk's memory: segments of data that was read, and writes that are not on the medium yet.

use std::collections::BTreeMap;

/// A disk's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// Segments of the read cache, each for one stream; 0 is no read cache.
    pub segments: usize,
    /// Sectors of a segment.
    pub segment_sectors: u64,
    /// Sectors that an idle disk reads on after a read; 0 is no read-ahead. At most a segment less one sector.
    pub read_ahead_sectors: u64,
    /// Sectors of writes that are acknowledged before they are on the medium; 0 is write-through.
    pub write_sectors: u64,
}

/// Sectors `start..end` that are in memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// The read cache: the least recently used segment is replaced.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    options: DiskCacheOptions,
    segments: Vec<Segment>,
    clock: u64,
}

impl Segments {
    pub(super) fn new(options: DiskCacheOptions) -> Self {
        Self {
            options,
            segments: Vec::with_capacity(options.segments),
            clock: 0,
        }
    }

    /// True if all of `start..end` is in one segment; the segment then counts as used.
    pub(super) fn holds(&mut self, start: u64, end: u64) -> bool {
        let mut segments = self.segments.iter_mut();
        let Some(segment) = segments.find(|segment| segment.start <= start && end <= segment.end)
        else {
            return false;
        };
        self.clock += 1;
        segment.used = self.clock;
        true
    }

    /// Sectors `start..end` have been read. They extend the segment that ends where they begin, or take the place of
    /// the least recently used one.
    pub(super) fn fill(&mut self, start: u64, end: u64) {
        if self.options.segments == 0 || start >= end {
            return;
        }
        self.clock += 1;
        let used = self.clock;
        let longest = self.options.segment_sectors.max(1);
        let touches = |segment: &&mut Segment| segment.start <= start && start <= segment.end;
        if let Some(segment) = self.segments.iter_mut().find(touches) {
            segment.end = segment.end.max(end);
            segment.start = segment.start.max(segment.end.saturating_sub(longest));
            segment.used = used;
            return;
        }
        let segment = Segment {
            start: start.max(end.saturating_sub(longest)),
            end,
            used,
        };
        if self.segments.len() < self.options.segments {
            self.segments.push(segment);
        } else if let Some(oldest) = self.segments.iter_mut().min_by_key(|segment| segment.used) {
            *oldest = segment;
        }
    }

    /// Sectors `start..end` are written: segments that contain some of them are out of date.
    pub(super) fn invalidate(&mut self, start: u64, end: u64) {
        self.segments
            .retain(|segment| end <= segment.start || segment.end <= start);
    }
}

/// Writes that are acknowledged and not on the medium: sectors from, sectors to; neighbours are joined.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    ranges: BTreeMap<u64, u64>,
    sectors: u64,
}

impl Dirty {
    pub(super) const fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if all of `start..end` is here.
    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..=start).next_back();
        before.is_some_and(|(_, &last)| end <= last)
    }

    pub(super) fn insert(&mut self, mut start: u64, mut end: u64) {
        let touching: Vec<(u64, u64)> = self
            .ranges
            .range(..=end)
            .rev()
            .take_while(|&(_, &last)| last >= start)
            .map(|(&first, &last)| (first, last))
            .collect();
        for (first, last) in touching {
            self.ranges.remove(&first);
            self.sectors -= last - first;
            start = start.min(first);
            end = end.max(last);
        }
        self.ranges.insert(start, end);
        self.sectors += end - start;
    }

    /// Takes out the range to write next: the first one at or above `arm`, else the lowest; at most `most` sectors of
    /// it.
    pub(super) fn take(&mut self, arm: u64, most: u64) -> Option<(u64, u64)> {
        let above = self.ranges.range(arm..).next();
        let (&start, &end) = above.or_else(|| self.ranges.iter().next())?;
        self.ranges.remove(&start);
        let until = end.min(start + most.max(1));
        if until < end {
            self.ranges.insert(until, end);
        }
        self.sectors -= until - start;
        Some((start, until))
    }

    /// Adds everything from `other`.
    pub(super) fn absorb(&mut self, other: Self) {
        for (start, end) in other.ranges {
            self.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_slides_through_one_segment_and_leaves_the_others() {
        let mut cache = Segments::new(DiskCacheOptions {
            segments: 2,
            segment_sectors: 100,
            read_ahead_sectors: 0,
            write_sectors: 0,
        });
        cache.fill(1000, 1010);
        for start in (0..400).step_by(40) {
            cache.fill(start, start + 40);
        }
        assert!(cache.holds(1000, 1010), "one stream takes one segment");
        assert!(cache.holds(300, 400));
        assert!(!cache.holds(299, 301), "the stream has moved on");
        cache.invalidate(350, 351);
        assert!(!cache.holds(300, 310));
    }

    #[test]
    fn neighbouring_writes_become_one_and_are_taken_upwards() {
        let mut dirty = Dirty::default();
        for (start, end) in [(10, 20), (30, 40), (20, 30), (5, 12), (90, 95)] {
            dirty.insert(start, end);
        }
        assert_eq!(dirty.sectors(), 40);
        assert!(dirty.holds(5, 40));
        assert!(!dirty.holds(39, 41));
        assert_eq!(dirty.take(50, 100), Some((90, 95)));
        assert_eq!(dirty.take(95, 16), Some((5, 21)));
        assert_eq!(dirty.take(21, 100), Some((21, 40)));
        assert!(dirty.is_empty() && dirty.sectors() == 0);
    }
}
