//! A pool of buffers for requests.
//!
//! Allocating a buffer zeroes it, which for a large one costs as much as a copy; so buffers are reused. Their sizes
//! are powers of two. A device gets a slice of the right length and this side keeps the whole buffer. After the
//! completion, when the device has no reference any more, the whole buffer is unique again.

use block::{BlockDevice, Memory, PAGE_BYTES, Region};

use super::protocol::REQUEST_BYTES_MAX;

/// Classes of 4 KiB, 8 KiB, … 32 MiB.
const CLASSES: usize = (REQUEST_BYTES_MAX as usize / PAGE_BYTES).ilog2() as usize + 1;
/// Limit for free buffers per worker. Sixteen requests of 1 MiB, as many as `nbdcopy` has in flight on four
/// connections, fit with room to spare.
const KEPT_BYTES_MAX: usize = 24 << 20;

/// Number of small buffers that are allocated at the start: as many as a deep queue has requests. They are in one
/// region, which devices can register with the kernel.
const STOCK: usize = 128;

pub(crate) struct Buffers {
    free: [Vec<Memory>; CLASSES],
    kept_bytes: usize,
    stock: Option<Region>,
}

/// The class whose buffers have at least `len` bytes.
fn class_of(len: usize) -> usize {
    len.div_ceil(PAGE_BYTES).next_power_of_two().ilog2() as usize
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            free: std::array::from_fn(|_| Vec::new()),
            kept_bytes: 0,
            stock: None,
        }
    }

    /// A pool that has buffers of one page from the start.
    pub(crate) fn stocked() -> Self {
        let (region, stock) = Region::cut(STOCK, PAGE_BYTES);
        let mut buffers = Self::new();
        buffers.kept_bytes = region.len();
        buffers.free[0] = stock;
        buffers.stock = Some(region);
        buffers
    }

    /// Registers the region of most small requests with a device.
    pub(crate) fn lend_to(&self, device: &dyn BlockDevice) {
        if let Some(region) = &self.stock {
            device.lend(region);
        }
    }

    /// A buffer of at least `len` bytes, 1 ≤ `len` ≤ 32 MiB. Its contents are arbitrary.
    pub(crate) fn take(&mut self, len: usize) -> Memory {
        let class = class_of(len);
        if let Some(memory) = self.free[class].pop() {
            self.kept_bytes -= memory.len();
            return memory;
        }
        Memory::zeroed(PAGE_BYTES << class)
    }

    /// Takes a buffer back. Drops it instead if there are other references, if the pool is full, or if the size is
    /// none of the pool's: a device may return data in memory of its own.
    pub(crate) fn give(&mut self, mut memory: Memory) {
        let len = memory.len();
        let ours = len > 0 && len == PAGE_BYTES << class_of(len);
        if !ours || self.kept_bytes + len > KEPT_BYTES_MAX || memory.unique().is_none() {
            return;
        }
        self.kept_bytes += len;
        self.free[class_of(len)].push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_unless_it_is_shared() {
        let mut buffers = Buffers::new();
        let memory = buffers.take(5000);
        assert_eq!(memory.len(), 8192);
        let address = memory.as_ptr();
        let part = memory.slice(0..10);
        buffers.give(memory);
        assert_eq!(buffers.kept_bytes, 0, "a slice is alive");
        drop(part);
        let memory = buffers.take(8192);
        let again = memory.as_ptr();
        buffers.give(memory);
        assert_eq!(buffers.kept_bytes, 8192);
        assert_eq!(buffers.take(4097).as_ptr(), again);
        let _ = address;
    }

    #[test]
    fn a_buffer_that_is_not_of_a_class_is_not_kept() {
        let mut buffers = Buffers::new();
        buffers.give(Memory::zeroed(80_000));
        assert_eq!(buffers.kept_bytes, 0);
        assert_eq!(buffers.take(80_001).len(), 128 << 10);
    }

    #[test]
    fn a_stock_is_used_first_and_comes_back() {
        let mut buffers = Buffers::stocked();
        let start = buffers.stock.as_ref().unwrap().as_ptr() as usize;
        let inside = |memory: &Memory| {
            (start..start + STOCK * PAGE_BYTES).contains(&(memory.as_ptr() as usize))
        };
        let taken: Vec<Memory> = (0..=STOCK).map(|_| buffers.take(512)).collect();
        assert_eq!(taken.iter().filter(|memory| inside(memory)).count(), STOCK);
        assert_eq!(buffers.kept_bytes, 0);
        taken.into_iter().for_each(|memory| buffers.give(memory));
        assert_eq!(buffers.kept_bytes, (STOCK + 1) * PAGE_BYTES);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut buffers = Buffers::new();
        let many: Vec<_> = (0..8).map(|_| buffers.take(8 << 20)).collect();
        for memory in many {
            buffers.give(memory);
        }
        assert!(buffers.kept_bytes <= KEPT_BYTES_MAX);
        assert_eq!(buffers.take(REQUEST_BYTES_MAX as usize).len(), 32 << 20);
    }
}
