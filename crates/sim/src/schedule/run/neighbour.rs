//! A second volume in the same pool, which is created and deleted while the clients of the first one continue.
//!
//! Its content is not checked, except that it reads as zeros when it is new. It is there for the effects of its
//! creation, writes and deletion on the journal that both volumes share, and on space that one volume gets after the
//! other.

use block::{Request, RequestKind, mix};

use super::{BOUND, Checked, Run, Violation, sector};
use crate::buffer::Buffer;

/// Its name in the pool.
const NAME: &str = "neighbour";

/// Its size in groups.
const GROUPS: u64 = 2;

impl Run {
    /// Creates the volume and begins to write all of it; if it exists, deletes it.
    pub(super) fn neighbour(&mut self) -> Checked {
        match self.has_neighbour() {
            true => self.neighbour_goes(),
            false => self.neighbour_comes(),
        }
    }

    fn has_neighbour(&mut self) -> bool {
        let facts = self.world().pool().facts();
        facts.volumes.iter().any(|volume| volume.name == NAME)
    }

    fn neighbour_comes(&mut self) -> Checked {
        let bytes = GROUPS * self.world().pool().geometry().group_data_bytes();
        let Ok(ticket) = self.world().begin_create_volume(NAME, bytes) else {
            // There is no room.
            return Ok(());
        };
        if self.command_ends(ticket)?.is_err() {
            return Ok(());
        }
        self.neighbour_is_new(bytes)?;
        let value = mix(self.seed ^ self.steps).to_le_bytes()[0];
        let request = whole(RequestKind::Write, bytes);
        let id = self
            .world()
            .submit_sectors(NAME, request, vec![value; sector(bytes)]);
        self.neighbours.push(id);
        self.reap()
    }

    /// The new volume must read as zeros, whatever volume had its space before.
    fn neighbour_is_new(&mut self, bytes: u64) -> Checked {
        let request = whole(RequestKind::Read, bytes);
        let id = self.world().submit_sectors(NAME, request, Vec::new());
        let limit = self.world().now() + BOUND;
        let outcome = loop {
            if let Some(outcome) = self.world().ended_pieces(id) {
                break outcome;
            }
            self.go_on(limit, "a read of a new volume")?;
        };
        let pieces = outcome
            .map_err(|fault| Violation::new("I3", format!("a new volume reads as {fault:?}")))?;
        let zeros = pieces.iter().all(|piece| match piece {
            Buffer::Sectors(sectors) => {
                let values = sectors.values();
                sectors.first_odd().is_none() && values.iter().all(|&value| value == 0)
            }
            Buffer::Bytes(_) | Buffer::Length(_) => false,
        });
        match zeros {
            true => Ok(()),
            false => Err(Violation::new("I1", "a new volume does not read as zeros")),
        }
    }

    /// Deletes the volume, if it exists.
    pub(super) fn neighbour_goes(&mut self) -> Checked {
        if !self.has_neighbour() {
            return Ok(());
        }
        let limit = self.world().now() + BOUND;
        while let Some(&id) = self.neighbours.first() {
            match self.world().ended_pieces(id) {
                Some(_) => {
                    self.neighbours.remove(0);
                }
                None => self.go_on(limit, "a write to another volume")?,
            }
        }
        let Ok(ticket) = self.world().begin_delete_volume(NAME) else {
            return Ok(());
        };
        // The outcome is ignored: a failed write of labels also shows at the clients.
        self.command_ends(ticket).map(|_| ())
    }
}

const fn whole(kind: RequestKind, length: u64) -> Request {
    Request {
        kind,
        offset: 0,
        length,
        fua: false,
    }
}
