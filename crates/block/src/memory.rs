//! Page-aligned memory that I/O in flight may touch.
//!
//! A request's bytes are read and written piecewise by several drives at once, by the kernel, and by parity
//! computations, all on disjoint ranges. Rust's references cannot express "disjoint ranges of one buffer, handed to
//! other threads, back when the counter is zero". This module is therefore one of the few that may be `unsafe`: it
//! hands out raw ranges under the rule below, and safe references where the owner is provably the only one.
//!
//! **Rule.** The code that splits a `Memory` (the array's plan) never has two operations in flight that touch the same
//! byte if one of them writes that byte.

#![expect(unsafe_code, reason = "shared mutable I/O buffers; see the rule above")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Alignment of every allocation: what O_DIRECT needs, and the unit of the page cache.
pub const PAGE_BYTES: usize = 4096;

/// An allocation, a part of a region's allocation, or several memories in a row.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
    origin: Origin,
}

/// Where the bytes of [`Pages`] are.
enum Origin {
    /// In an allocation of its own.
    Own,
    /// In a region's allocation.
    Region {
        /// Keeps the region's allocation alive.
        _pages: Arc<Pages>,
        /// One reference per buffer of the region: [`Region::is_used`] counts them.
        _lives: Arc<()>,
    },
    /// In these memories, one after the other. `start` is dangling.
    Joined(Box<[Memory]>),
}

// SAFETY: `Pages` is a plain allocation; the module's rule governs which code may touch which byte, and when.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        if matches!(self.origin, Origin::Own) {
            // SAFETY: `start` came from `alloc_zeroed` with this very layout and is freed once.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

impl Pages {
    fn zeroed(len: usize) -> Self {
        let layout = Layout::from_size_align(len, PAGE_BYTES)
            .expect("a buffer is smaller than the address space")
            .pad_to_align();
        assert!(layout.size() > 0, "no bytes need no allocation");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Self {
            start,
            layout,
            origin: Origin::Own,
        }
    }
}

/// One allocation from which a front end's buffers are cut, so that the code that does I/O can register all of them
/// with the kernel at once. The allocation exists as long as a handle to the region or a buffer of it does; a clone is
/// the same region.
#[derive(Clone)]
pub struct Region {
    pages: Arc<Pages>,
    buffers: Weak<()>,
}

impl Region {
    /// `count` buffers of `len` bytes each, rounded up to pages and zero, in one region.
    ///
    /// # Panics
    /// When there are no bytes, or more than the address space has.
    #[must_use]
    pub fn cut(count: usize, len: usize) -> (Self, Vec<Memory>) {
        let step = len.next_multiple_of(PAGE_BYTES);
        let bytes = step.checked_mul(count).expect("a region fits into memory");
        let pages = Arc::new(Pages::zeroed(bytes));
        let lives = Arc::new(());
        let buffers = (0..count)
            .map(|index| {
                // SAFETY: `index · step` is less than the region's size.
                let start = unsafe { pages.start.add(index * step) };
                let layout = Layout::from_size_align(step, PAGE_BYTES);
                let part = Pages {
                    start,
                    layout: layout.expect("it is a part of a valid one"),
                    origin: Origin::Region {
                        _pages: Arc::clone(&pages),
                        _lives: Arc::clone(&lives),
                    },
                };
                Memory {
                    pages: Some(Arc::new(part)),
                    offset: 0,
                    len,
                }
            })
            .collect();
        let region = Self {
            pages,
            buffers: Arc::downgrade(&lives),
        };
        (region, buffers)
    }

    /// The first byte's address. Valid while a handle to the region or a buffer of it exists.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.pages.start.as_ptr()
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.layout.size()
    }

    /// True if there are no bytes. Always false: a region is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if a buffer of the region still exists.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.buffers.strong_count() > 0
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len())
    }
}

/// A range of shared, page-aligned memory. Cloning shares the bytes.
#[derive(Clone)]
pub struct Memory {
    pages: Option<Arc<Pages>>,
    offset: usize,
    len: usize,
}

impl Memory {
    /// No bytes, no allocation.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            pages: None,
            offset: 0,
            len: 0,
        }
    }

    /// `len` bytes of zeros at an address that is a multiple of [`PAGE_BYTES`].
    ///
    /// # Panics
    /// When `len` rounded up to a page exceeds the address space.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self::empty();
        }
        Self {
            pages: Some(Arc::new(Pages::zeroed(len))),
            offset: 0,
            len,
        }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut memory = Self::zeroed(bytes.len());
        if let Some(unique) = memory.unique_mut() {
            unique.copy_from_slice(bytes);
        }
        memory
    }

    /// The bytes of several memories, one after the other, as one memory. The result has no single address: drives use
    /// its [`parts`](Self::parts).
    #[must_use]
    pub fn joined(mut parts: Vec<Self>) -> Self {
        parts.retain(|part| !part.is_empty());
        if parts.len() < 2 {
            return parts.pop().unwrap_or_default();
        }
        assert!(
            parts.iter().all(|part| !part.is_joined()),
            "joined memory is joined once"
        );
        let len = parts.iter().map(Self::len).sum();
        let pages = Pages {
            start: NonNull::dangling(),
            layout: Layout::new::<()>(),
            origin: Origin::Joined(parts.into()),
        };
        Self {
            pages: Some(Arc::new(pages)),
            offset: 0,
            len,
        }
    }

    /// The contiguous ranges that these bytes consist of, in order. Only memory that [`joined`](Self::joined) made has
    /// more than one.
    #[must_use]
    pub fn parts(&self) -> &[Self] {
        match self.pages.as_deref().map(|pages| &pages.origin) {
            Some(Origin::Joined(parts)) => parts,
            _ => std::slice::from_ref(self),
        }
    }

    fn is_joined(&self) -> bool {
        let origin = self.pages.as_deref().map(|pages| &pages.origin);
        matches!(origin, Some(Origin::Joined(_)))
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The sub-range `range` of this range, sharing its bytes.
    ///
    /// # Panics
    /// When `range` does not lie inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        self.assert_holds(&range);
        if self.is_joined() {
            return self.slice_of_joined(range);
        }
        Self {
            pages: self.pages.clone(),
            offset: self.offset + range.start,
            len: range.end - range.start,
        }
    }

    fn assert_holds(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "slice {range:?} of {} bytes",
            self.len
        );
    }

    fn slice_of_joined(&self, range: Range<usize>) -> Self {
        let mut start = 0;
        let cut = self.parts().iter().map(|part| {
            let end = start + part.len;
            let (low, high) = (range.start.clamp(start, end), range.end.clamp(start, end));
            let cut = part.slice(low - start..high - start);
            start = end;
            cut
        });
        Self::joined(cut.collect())
    }

    /// The first byte's address, for the kernel. Valid while a clone of this range exists.
    ///
    /// # Panics
    /// When the memory is [`joined`](Self::joined): only its parts have addresses.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.pages
            .as_ref()
            .map_or(NonNull::dangling().as_ptr(), |pages| {
                let joined = matches!(pages.origin, Origin::Joined(_));
                assert!(!joined, "joined memory has no one address");
                // SAFETY: `offset` lies inside the allocation: `zeroed` and `slice` keep it so.
                unsafe { pages.start.as_ptr().add(self.offset) }
            })
    }

    /// The bytes, for reading.
    ///
    /// # Safety
    /// Nothing writes this range while the reference exists (the module's rule).
    ///
    /// # Panics
    /// As [`as_ptr`](Self::as_ptr).
    #[must_use]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the range is inside the allocation, initialised (zeroed at birth), and by the
        // caller's promise not written meanwhile.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    ///
    /// # Safety
    /// Nothing else reads or writes this range while the reference exists (the module's rule).
    ///
    /// # Panics
    /// As [`as_ptr`](Self::as_ptr).
    #[must_use]
    #[expect(clippy::mut_from_ref, reason = "exclusivity is the caller's promise")]
    pub unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and by the caller's promise not touched meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }

    /// The bytes of a sub-range, for reading: as [`slice`](Self::slice) and [`bytes`](Self::bytes), without another
    /// handle.
    ///
    /// # Safety
    /// As [`bytes`](Self::bytes).
    ///
    /// # Panics
    /// As [`as_ptr`](Self::as_ptr), and when `range` does not lie inside.
    #[must_use]
    pub unsafe fn bytes_at(&self, range: Range<usize>) -> &[u8] {
        self.assert_holds(&range);
        // SAFETY: the range lies inside of this one; else as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.as_ptr().add(range.start), range.len()) }
    }

    /// The bytes of a sub-range, for writing: as [`slice`](Self::slice) and [`bytes_mut`](Self::bytes_mut), without
    /// another handle.
    ///
    /// # Safety
    /// As [`bytes_mut`](Self::bytes_mut).
    ///
    /// # Panics
    /// As [`as_ptr`](Self::as_ptr), and when `range` does not lie inside.
    #[must_use]
    #[expect(clippy::mut_from_ref, reason = "exclusivity is the caller's promise")]
    pub unsafe fn bytes_mut_at(&self, range: Range<usize>) -> &mut [u8] {
        self.assert_holds(&range);
        // SAFETY: the range lies inside of this one; else as in `bytes_mut`.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().add(range.start), range.len()) }
    }

    /// The bytes if no other clone of the allocation exists, so that nothing can touch them.
    #[must_use]
    pub fn unique(&mut self) -> Option<&[u8]> {
        self.unique_mut().map(|bytes| &*bytes)
    }

    /// The bytes for writing if no other clone of the allocation exists.
    #[must_use]
    pub fn unique_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_joined() {
            return None;
        }
        if let Some(pages) = &mut self.pages {
            Arc::get_mut(pages)?;
        }
        // SAFETY: this is the only handle to the allocation and it is borrowed mutably.
        Some(unsafe { self.bytes_mut() })
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_bytes_and_uniqueness_is_noticed() {
        let mut memory = Memory::from_bytes(b"0123456789");
        let part = memory.slice(2..5);
        assert!(memory.unique().is_none(), "a slice is alive");
        // SAFETY: nothing else touches the range in this test.
        assert_eq!(unsafe { part.bytes() }, b"234");
        drop(part);
        assert_eq!(memory.unique().unwrap(), b"0123456789");
        assert_eq!(memory.as_ptr() as usize % PAGE_BYTES, 0);
    }

    #[test]
    fn buffers_of_a_region_are_unique_one_by_one_and_keep_it() {
        let (region, mut buffers) = Region::cut(3, 5000);
        assert_eq!(region.len(), 3 * 8192);
        let second = buffers.remove(1);
        for (index, buffer) in [0, 2].into_iter().zip(&mut buffers) {
            let start = region.as_ptr() as usize + index * 8192;
            assert_eq!((buffer.as_ptr() as usize, buffer.len()), (start, 5000));
            buffer.unique_mut().expect("it has no clone").fill(7);
        }
        drop(buffers);
        assert!(region.is_used(), "one is left");
        let clone = region.clone();
        drop(region);
        let mut second = second;
        assert!(second.unique().unwrap().iter().all(|&byte| byte == 0));
        drop(second);
        assert!(!clone.is_used());
    }

    #[test]
    fn joined_memory_is_its_parts_in_order_and_is_cut_like_any_other() {
        let whole = Memory::from_bytes(b"0123456789");
        let other = Memory::from_bytes(b"ab");
        let joined = Memory::joined(vec![
            whole.slice(6..9),
            Memory::empty(),
            other,
            whole.slice(0..2),
        ]);
        let text = |memory: &Memory| -> Vec<u8> {
            let parts = memory.parts().iter();
            // SAFETY: nothing else touches the bytes in this test.
            parts
                .flat_map(|part| unsafe { part.bytes() }.to_vec())
                .collect()
        };
        assert_eq!((joined.len(), text(&joined)), (7, b"678ab01".to_vec()));
        for start in 0..=7 {
            for end in start..=7 {
                let cut = joined.slice(start..end);
                assert_eq!(text(&cut), b"678ab01"[start..end]);
                // A range within one part is plain memory again.
                let alone = cut.parts().len() == 1 && !cut.is_joined();
                assert_eq!(alone, cut.parts().len() < 2, "{start}..{end}");
            }
        }
        assert_eq!(joined.slice(1..6).slice(1..4).parts().len(), 2);
        let mut joined = joined;
        assert!(joined.unique().is_none(), "its parts may be anybody's");
        assert_eq!(Memory::joined(vec![whole]).parts().len(), 1);
    }

    #[test]
    #[should_panic(expected = "no one address")]
    fn joined_memory_has_no_address() {
        let one = Memory::zeroed(10);
        let _ = Memory::joined(vec![one.clone(), one]).as_ptr();
    }

    #[test]
    fn empty_memory_needs_no_allocation() {
        let mut memory = Memory::empty();
        assert_eq!(memory.unique_mut().unwrap().len(), 0);
        assert_eq!(Memory::zeroed(0).len(), 0);
    }

    #[test]
    #[should_panic(expected = "slice")]
    fn a_slice_past_the_end_panics() {
        let _ = Memory::zeroed(10).slice(5..11);
    }
}
