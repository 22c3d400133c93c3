//! The entries of blocks: a block's entry is the newest one that is logged, or else that of its page.

use format::{BlockName, Entry};

use super::overlay::{Bytes, Overlay};
use super::pages::PageCache;

/// The entries of blocks, from journal and pages, at the time of one input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a PageCache,
}

impl Entries<'_> {
    /// The current entry of a block, wherever its bytes are. `None` if its page is not in memory.
    pub(super) fn present(self, name: BlockName) -> Option<Entry> {
        let logged = self.overlay.get(name).map(|logged| logged.entry);
        logged.or_else(|| self.pages.entry(name))
    }

    /// The entry of the bytes that lie on the drive.
    pub(super) fn in_place(self, name: BlockName) -> Option<Entry> {
        match self.overlay.get(name) {
            Some(logged) if logged.bytes == Bytes::InPlace => Some(logged.entry),
            _ => self.pages.entry(name),
        }
    }
}
