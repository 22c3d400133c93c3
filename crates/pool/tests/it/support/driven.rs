//! A pool whose drives and lanes are this test: writes of labels end when the test says so.

use std::collections::VecDeque;

use block::Instant;
use format::GroupId;
use plan::{Command, Event, IoId};
use pool::{Half, Pool, PoolAction, PoolSpec, Ticket, create};
use uuid::Uuid;

const NOW: Instant = Instant::ZERO;

pub(crate) struct Driven {
    pub(crate) pool: Pool,
    /// Writes of labels that have not ended.
    pub(crate) writes: VecDeque<IoId>,
    /// Groups that lanes are making blank.
    pub(crate) zeroing: Vec<GroupId>,
    /// Other commands that the first lane has been given.
    pub(crate) commands: Vec<Command>,
}

impl Driven {
    /// A pool with one volume of `groups` groups. Its labels are written.
    pub(crate) fn new(spec: &PoolSpec, groups: u64) -> Self {
        let mut driven = Self {
            pool: create(spec, Ticket(0)).unwrap(),
            writes: VecDeque::new(),
            zeroing: Vec::new(),
            commands: Vec::new(),
        };
        driven.write_all();
        let bytes = groups * driven.pool.geometry().group_data_bytes();
        let created = driven
            .pool
            .create_volume(NOW, "v", Uuid::from_u128(7), bytes, Ticket(1));
        created.unwrap();
        driven.write_all();
        driven
    }

    /// Does what the pool has asked for, except what ends when the test says so.
    pub(crate) fn poll(&mut self) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                PoolAction::WriteDurably { id, .. } => self.writes.push_back(id),
                PoolAction::Lane(lane, Command::Recover { .. }) => {
                    let (batches, outcome) = (0, Ok(()));
                    self.pass(&Event::Recovered {
                        lane,
                        batches,
                        outcome,
                    });
                }
                PoolAction::Lane(_, Command::Zero { group }) => self.zeroing.push(group),
                PoolAction::Lane(0, command) => self.commands.push(command),
                _ => {}
            }
        }
    }

    /// An event of a lane.
    pub(crate) fn pass(&mut self, event: &Event) {
        self.pool.handle_event(NOW, event);
        self.poll();
    }

    /// Ends one write.
    pub(crate) fn write_one(&mut self) {
        let id = self.writes.pop_front().expect("a write is under way");
        self.pool.handle_completion(NOW, id, Half::Flush, Ok(()));
        self.poll();
    }

    pub(crate) fn write_all(&mut self) {
        self.poll();
        while !self.writes.is_empty() {
            self.write_one();
        }
    }

    /// A lane has made a group blank.
    pub(crate) fn zeroed(&mut self, group: GroupId) {
        self.zeroing.retain(|&other| other != group);
        let outcome = Ok(());
        self.pass(&Event::Zeroed { group, outcome });
    }
}
