//! Answers drivers' questions without I/O: which parts of a group hold nothing, and where its data is.

use std::collections::BTreeSet;
use std::ops::Range;

use block::Extent;
use format::{DataStripe, Form, GroupId, PageName, StripeId};

use crate::Lane;
use crate::extents::Extents;
use crate::maps::MapEntries;

impl Lane {
    /// The parts of these bytes of a group's data that hold nothing, as far as is known without I/O.
    #[must_use]
    pub fn extents(&self, group: GroupId, bytes: Range<u64>) -> Vec<Extent> {
        let length = bytes.end - bytes.start;
        let hole = self.uninitialized.contains(group);
        if hole || !self.knows_blocks(group) {
            return vec![Extent { length, hole }];
        }
        self.known_extents().of(group, bytes)
    }

    /// True if reading the pages of these bytes would make the answer of [`extents`](Self::extents) more precise.
    #[must_use]
    pub fn lacks_pages(&self, group: GroupId, bytes: Range<u64>) -> bool {
        !self.pages_lacking(group, bytes).is_empty()
    }

    /// True while pages of the group are being read.
    #[must_use]
    pub fn reads_pages(&self, group: GroupId) -> bool {
        self.pages.reads_group(group)
    }

    /// The stripe of a group's data that a stripe holds, as far as is known without I/O; `None` also if it holds none.
    #[must_use]
    pub fn data_of_stripe(&self, group: GroupId, stripe: StripeId) -> Option<DataStripe> {
        self.known_extents().map_of(group).data_held_by(stripe)
    }

    /// The form of a stripe, as far as is known without I/O.
    #[must_use]
    pub fn form_of_stripe(&self, group: GroupId, stripe: StripeId) -> Option<Form> {
        self.known_extents().map_of(group).form(stripe)
    }

    /// For [`Command::ReadPages`](plan::Command::ReadPages).
    pub(crate) fn read_pages(&mut self, group: GroupId, bytes: Range<u64>) {
        let names = self.pages_lacking(group, bytes);
        self.load_pages(names);
    }

    fn pages_lacking(&self, group: GroupId, bytes: Range<u64>) -> BTreeSet<PageName> {
        if self.uninitialized.contains(group) || !self.knows_blocks(group) {
            return BTreeSet::new();
        }
        self.known_extents().pages_lacking(group, bytes)
    }

    /// True if pages and overlay describe the group's blocks. They do not in a pool without them, nor before recovery
    /// has found everything that is logged.
    fn knows_blocks(&self, group: GroupId) -> bool {
        let journaled = self.cx.geometry.regions().is_some() && !self.cx.trusted;
        journaled && self.recovery.is_none() && self.check_here(group).is_ok()
    }

    const fn known_extents(&self) -> Extents<'_> {
        Extents {
            cx: &self.cx,
            entries: MapEntries {
                overlay: &self.overlay,
                pages: &self.pages,
                sequence: self.log.next_sequence(),
            },
            maps: &self.maps,
        }
    }
}
