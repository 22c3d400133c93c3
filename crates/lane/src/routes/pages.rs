//! Routes for pages and maps: operations that wait for them continue when they are in memory.

use std::collections::BTreeSet;

use block::Fault;
use format::{GroupId, PageName};
use plan::action::Computed;

use crate::Lane;
use crate::ids::OpId;
use crate::maps::MapEntries;
use crate::op::{Owner, Phase, Task};
use crate::pages::{Loaded, PageCache};

impl Lane {
    /// Loads pages for an operation, which is planned again when they are in memory.
    pub(crate) fn fetch_pages(&mut self, id: OpId, names: BTreeSet<PageName>) {
        let op = &mut self.ops[id];
        op.phase = Phase::Fetching;
        // A job, or a stream, will soon need the pages behind these.
        let streams = op.service.bulk && matches!(op.task, Task::Write(_));
        let ahead = match matches!(op.owner, Owner::Job(_)) || streams {
            true => PageCache::ahead(&self.cx, &names),
            false => Vec::new(),
        };
        self.load_pages(names.iter().copied().chain(ahead));
        if !self.pages.wait(id, names) {
            self.ops.run(id);
        }
    }

    /// Begins to load pages, except those that are in memory or being read.
    pub(crate) fn load_pages(&mut self, names: impl IntoIterator<Item = PageName>) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let nowhere = self.pages.load(cx, ios, self.log.anchor(), names);
        self.pages_nowhere(nowhere);
    }

    pub(crate) fn pages_nowhere(&mut self, names: Vec<PageName>) {
        for name in names {
            let checkpoint = self.checkpoints.pages(self.log.anchor());
            let ready = { &mut self.pages }.without_copies(&self.cx, &checkpoint, name);
            self.page_here(ready);
        }
    }

    /// The copies of a page are in memory.
    pub(crate) fn page_computed(&mut self, name: PageName, computed: &Computed) {
        let checkpoint = self.checkpoints.pages(self.log.anchor());
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        match { &mut self.pages }.computed(cx, ios, &checkpoint, name, computed) {
            Loaded::Again(nowhere) => self.pages_nowhere(nowhere),
            Loaded::Here { ready, readable } => {
                self.page_here(ready);
                if readable {
                    self.pages.report_unknown(&mut self.cx, name);
                }
            }
            Loaded::Alike => {}
            Loaded::Differ => self.checkpoints.want(),
            Loaded::Unread { waited, fault } => self.page_unread(name, waited, fault),
        }
        self.begin_compared_scrub(name.group);
    }

    /// Drives that stay have failed to read a page: what needs it fails, and reads it again when it is tried again.
    fn page_unread(&mut self, name: PageName, waited: Vec<OpId>, fault: Fault) {
        for id in waited {
            self.fails_by_drives(id);
        }
        if let Some(running) = self.checkpoints.if_running() {
            let next = running.page_unread(&mut self.overlay, name, fault);
            self.checkpoint_goes_on(next);
        }
    }

    /// A page is in memory; these operations have waited for it.
    pub(crate) fn page_here(&mut self, ready: Vec<OpId>) {
        self.ops.run_all(ready);
        self.checkpoint_page_here();
    }

    /// Brings the map of a group into memory. Fails with the pages that must be read first.
    pub(crate) fn load_map(&mut self, group: GroupId) -> Result<(), BTreeSet<PageName>> {
        let entries = MapEntries {
            overlay: &self.overlay,
            pages: &self.pages,
            sequence: self.log.next_sequence(),
        };
        for (name, entry) in self.maps.load(&self.cx, entries, group)? {
            self.pages.set(name, entry);
        }
        Ok(())
    }

    /// Columns can be read again: of one group, or of any group.
    pub(crate) fn forget_nowhere(&mut self, group: Option<GroupId>) {
        if self.pages.has_nowhere() {
            let checkpoint = self.checkpoints.pages(self.log.anchor());
            self.pages.forget_nowhere(&checkpoint, group);
            self.maps.drop_unknown();
        }
    }
}
