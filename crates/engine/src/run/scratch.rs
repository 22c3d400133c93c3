//! The scratch memory of a thread's lanes: buffers that one operation gives back serve the next.
//!
//! A page-aligned allocation of a few blocks is the slow path of every allocator, and a new one is
//! zeroed; its content does not matter to a lane, which writes before it reads.

use array::ScratchId;
use block::{Memory, PAGE_BYTES};

use super::hash::NameMap;

/// Longer buffers are not kept: they are rare, and filling them costs more than getting them.
const KEPT_PAGES_MAX: usize = 256;
/// Bytes that wait for use, at most: what one checkpoint gives back at once.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Buffers of one lane, by name.
pub(super) type Named = NameMap<ScratchId, Memory>;

/// Buffers in nobody's use.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// By length in pages.
    by_pages: Vec<Vec<Memory>>,
    bytes: usize,
}

/// Up to a few sizes, at most an eighth more: batches of the log come in all lengths, and one of this
/// length should serve the next of about that.
fn rounded(pages: usize) -> usize {
    let step = (pages.next_power_of_two() / 16).max(1);
    pages.next_multiple_of(step)
}

impl Spare {
    /// At least `bytes` bytes, whatever is in them.
    pub(super) fn take(&mut self, bytes: usize) -> Memory {
        let pages = rounded(bytes.div_ceil(PAGE_BYTES));
        let kept = self.by_pages.get_mut(pages).and_then(Vec::pop);
        match kept {
            Some(memory) => {
                self.bytes -= memory.len();
                memory
            }
            None => Memory::zeroed(pages * PAGE_BYTES),
        }
    }

    /// Keeps a buffer for later if it is worth it and nothing else holds it.
    pub(super) fn give(&mut self, mut memory: Memory) {
        let pages = memory.len() / PAGE_BYTES;
        let wanted = (1..=KEPT_PAGES_MAX).contains(&pages)
            && self.bytes + memory.len() <= KEPT_BYTES_MAX
            // A drive that is slow to let go of a request would still write into it.
            && memory.unique_mut().is_some();
        if !wanted {
            return;
        }
        if self.by_pages.len() <= pages {
            self.by_pages.resize_with(pages + 1, Vec::new);
        }
        self.bytes += memory.len();
        self.by_pages[pages].push(memory);
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
    fn what_is_kept_is_bounded() {
        let mut spare = Spare::default();
        let all: Vec<Memory> = (0..100).map(|_| spare.take(1 << 20)).collect();
        all.into_iter().for_each(|memory| spare.give(memory));
        spare.give(Memory::zeroed((KEPT_PAGES_MAX + 1) * PAGE_BYTES));
        spare.give(Memory::empty());
        assert_eq!(spare.bytes, KEPT_BYTES_MAX);
    }
}
