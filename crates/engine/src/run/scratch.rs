//! The scratch memory of a thread's lanes: buffers that one operation releases are reused by the next.
//!
//! A page-aligned allocation of a few blocks is the slow path of every allocator, and zeroes new memory. A lane does
//! not need zeros: it writes before it reads. Buffers are cut from regions, so that the thread's ring can have them
//! registered: the kernel then pins them once, and not for each operation.

use std::time::Duration;

use array::ScratchId;
use block::{Instant, Memory, PAGE_BYTES, Region};

use super::hash::NameMap;

/// Longer buffers are not kept: they are rare, and filling them costs more than allocating them.
const KEPT_PAGES_MAX: usize = 256;
/// Pages of a region, or one buffer if that is longer: some tens of buffers are registered at once, and a size that
/// is hardly used takes 256 KiB.
const REGION_PAGES: usize = 64;
/// Bytes of unused buffers, at most. A checkpoint releases in a burst the buffers that batches of the log have taken,
/// up to all that batches may have, and the next batches take them again.
const KEPT_BYTES_MAX: usize = 256 << 20;
/// Bytes of unused buffers that are kept for ever. More than these are freed once nothing has needed them for
/// `TRIM_EVERY`.
const RESERVE_BYTES: usize = 8 << 20;
/// How long unused buffers beyond the reserve are kept.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Buffers of one lane, by name.
pub(super) type Named = NameMap<ScratchId, Memory>;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// By length in pages.
    by_pages: Vec<Vec<Memory>>,
    bytes: usize,
    /// The fewest unused bytes since the last trim.
    bytes_least: usize,
    trim_at: Option<Instant>,
    /// Regions that have been cut and not yet returned by [`Spare::take_regions`].
    regions: Vec<Region>,
}

/// Rounds up to one of a few sizes, at most an eighth more: batches of the log come in all lengths, and the buffer of
/// one batch should serve another of about that length.
fn rounded(pages: usize) -> usize {
    let step = (pages.next_power_of_two() / 16).max(1);
    pages.next_multiple_of(step)
}

/// Whether buffers of `pages` pages are cut from regions and kept for reuse.
const fn is_kept(pages: usize) -> bool {
    0 < pages && pages <= KEPT_PAGES_MAX
}

impl Spare {
    /// A buffer of at least `bytes` bytes, with any content.
    pub(super) fn take(&mut self, bytes: usize) -> Memory {
        let pages = rounded(bytes.div_ceil(PAGE_BYTES));
        let length = pages * PAGE_BYTES;
        if !is_kept(pages) {
            return Memory::zeroed(length);
        }
        let pages = self.fitting(pages);
        if self.kept(pages).is_empty() {
            let (region, cut) = Region::cut((REGION_PAGES / pages).max(1), length);
            // The unused buffers have lengths that are not asked for: the new region takes the place of some.
            if self.bytes > RESERVE_BYTES {
                self.let_go(region.len());
            }
            self.by_pages[pages] = cut;
            self.bytes += region.len();
            self.regions.push(region);
        }
        let memory = self.by_pages[pages].pop().expect("a region has a buffer");
        self.bytes -= memory.len();
        self.bytes_least = self.bytes_least.min(self.bytes);
        memory
    }

    /// The shortest length, from `pages` to half as much again, of which a buffer is unused; `pages` if there is
    /// none. Batches of the log come in all lengths, and a new region costs more than the excess of a longer buffer.
    fn fitting(&self, pages: usize) -> usize {
        let mut longer = pages..=(pages + pages / 2).min(KEPT_PAGES_MAX);
        let waits = |&length: &usize| {
            self.by_pages
                .get(length)
                .is_some_and(|kept| !kept.is_empty())
        };
        longer.find(waits).unwrap_or(pages)
    }

    /// Keeps a buffer for reuse if it is worth it and nothing else has a reference to it.
    pub(super) fn give(&mut self, mut memory: Memory) {
        let pages = memory.len() / PAGE_BYTES;
        let wanted = is_kept(pages)
            && self.bytes + memory.len() <= KEPT_BYTES_MAX
            // A drive that has not released a request yet may still write into it.
            && memory.unique_mut().is_some();
        if wanted {
            self.bytes += memory.len();
            self.kept(pages).push(memory);
        }
    }

    fn kept(&mut self, pages: usize) -> &mut Vec<Memory> {
        if self.by_pages.len() <= pages {
            self.by_pages.resize_with(pages + 1, Vec::new);
        }
        &mut self.by_pages[pages]
    }

    /// The regions from which buffers have been cut since the last call.
    pub(super) fn take_regions(&mut self) -> Vec<Region> {
        std::mem::take(&mut self.regions)
    }

    /// Frees what nothing has needed for a while, except for a reserve; returns when to call it again, if there may
    /// be more to free then.
    pub(super) fn trim(&mut self, now: Instant) -> Option<Instant> {
        if self.bytes <= RESERVE_BYTES {
            self.trim_at = None;
            return None;
        }
        match self.trim_at {
            Some(at) if now < at => return Some(at),
            Some(_) => self.let_go(self.bytes_least.saturating_sub(RESERVE_BYTES)),
            None => {}
        }
        self.bytes_least = self.bytes;
        self.trim_at = Some(now + TRIM_EVERY);
        self.trim_at
    }

    /// Frees about `bytes` bytes, each time of the length with the most unused bytes.
    fn let_go(&mut self, bytes: usize) {
        let end = self.bytes.saturating_sub(bytes);
        while self.bytes > end {
            let waiting = self.by_pages.iter_mut().enumerate();
            let Some((pages, kept)) = waiting.max_by_key(|(pages, kept)| pages * kept.len()) else {
                return;
            };
            // Those of one region together: a region is freed with its last buffer.
            kept.sort_unstable_by_key(|memory| memory.as_ptr());
            let length = pages * PAGE_BYTES;
            let count = (self.bytes - end).div_ceil(length).min(kept.len());
            kept.truncate(kept.len() - count);
            self.bytes -= count * length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_only_when_nothing_holds_it() {
        let mut spare = Spare::default();
        let first = spare.take(PAGE_BYTES + 1);
        assert_eq!(first.len(), 2 * PAGE_BYTES);
        let (address, held) = (first.as_ptr(), first.slice(0..1));
        spare.give(first);
        let second = spare.take(2 * PAGE_BYTES);
        assert_ne!(second.as_ptr(), address, "a slice of the first one lives");
        drop(held);
        let address = second.as_ptr();
        spare.give(second);
        assert_ne!(spare.take(PAGE_BYTES).as_ptr(), address, "another length");
        assert_eq!(spare.take(2 * PAGE_BYTES).as_ptr(), address);
    }

    #[test]
    fn a_buffer_that_is_a_little_longer_does_as_well() {
        let mut spare = Spare::default();
        let four = spare.take(4 * PAGE_BYTES);
        let address = four.as_ptr();
        // No other buffer of the region is unused.
        let others: Vec<Memory> = (1..REGION_PAGES / 4)
            .map(|_| spare.take(4 * PAGE_BYTES))
            .collect();
        spare.give(four);
        assert_ne!(
            spare.take(2 * PAGE_BYTES).as_ptr(),
            address,
            "twice is too long"
        );
        assert_eq!(spare.take(3 * PAGE_BYTES).as_ptr(), address);
        drop(others);
    }

    #[test]
    fn buffers_lie_in_regions_that_are_named_once() {
        let mut spare = Spare::default();
        let lengths = [1, 1, 3, 70, KEPT_PAGES_MAX].map(|pages| pages * PAGE_BYTES);
        let buffers = lengths.map(|length| spare.take(length));
        let regions = spare.take_regions();
        assert_eq!(regions.len(), 4, "one for each length");
        for buffer in &buffers {
            let (start, end) = (
                buffer.as_ptr() as usize,
                buffer.as_ptr() as usize + buffer.len(),
            );
            let holds = |region: &Region| {
                let first = region.as_ptr() as usize;
                first <= start && end <= first + region.len()
            };
            assert_eq!(regions.iter().filter(|region| holds(region)).count(), 1);
        }
        buffers.into_iter().for_each(|buffer| spare.give(buffer));
        spare.take(PAGE_BYTES);
        assert!(spare.take_regions().is_empty(), "nothing new was cut");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut spare = Spare::default();
        let all: Vec<Memory> = (0..300).map(|_| spare.take(1 << 20)).collect();
        all.into_iter().for_each(|memory| spare.give(memory));
        spare.give(Memory::zeroed((KEPT_PAGES_MAX + 1) * PAGE_BYTES));
        spare.give(Memory::empty());
        assert_eq!(spare.bytes, KEPT_BYTES_MAX);
    }

    #[test]
    fn a_new_region_takes_the_place_of_others() {
        let mut spare = Spare::default();
        let small: Vec<Memory> = (0..24 << 8).map(|_| spare.take(PAGE_BYTES)).collect();
        let regions = spare.take_regions();
        small.into_iter().for_each(|memory| spare.give(memory));
        let long: Vec<Memory> = (0..8).map(|_| spare.take(1 << 20)).collect();
        assert_eq!(spare.bytes, 16 << 20, "8 of 24 MiB are longer now");
        let left = regions.iter().filter(|region| region.is_used()).count();
        assert_eq!(left * REGION_PAGES * PAGE_BYTES, 16 << 20);
        drop(long);
        let _more: Vec<Memory> = (0..24).map(|_| spare.take(1 << 20)).collect();
        assert_eq!(spare.bytes, RESERVE_BYTES, "which stays");
    }

    #[test]
    fn what_nothing_needs_goes_but_for_a_reserve() {
        let mut spare = Spare::default();
        let mut now = Instant::ZERO;
        assert_eq!(spare.trim(now), None, "there is nothing");
        let all: Vec<Memory> = (0..24 << 8).map(|_| spare.take(PAGE_BYTES)).collect();
        let regions = spare.take_regions();
        // A checkpoint releases buffers in an order of its own.
        let (odd, even): (Vec<_>, Vec<_>) = (0..).zip(all).partition(|(index, _)| index % 2 == 1);
        for (_, memory) in odd.into_iter().chain(even) {
            spare.give(memory);
        }
        assert_eq!(spare.bytes, 24 << 20);
        now = spare.trim(now).expect("there is more than the reserve");
        assert_eq!(spare.bytes, 24 << 20, "it may be needed soon");
        let busy: Vec<Memory> = (0..4 << 8).map(|_| spare.take(PAGE_BYTES)).collect();
        busy.into_iter().for_each(|memory| spare.give(memory));
        now = spare.trim(now).expect("as before");
        assert_eq!(
            spare.bytes,
            12 << 20,
            "20 MiB were never needed, 8 of them stay"
        );
        assert_eq!(spare.trim(now), Some(now + TRIM_EVERY), "not before time");
        spare.trim(now + TRIM_EVERY);
        assert_eq!(spare.bytes, RESERVE_BYTES);
        assert_eq!(spare.trim(now + 2 * TRIM_EVERY), None);
        let used = regions.iter().filter(|region| region.is_used()).count();
        assert_eq!(
            used,
            RESERVE_BYTES / (REGION_PAGES * PAGE_BYTES),
            "whole regions went"
        );
    }
}
