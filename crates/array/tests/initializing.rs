//! Groups that are first written all over a new volume.

mod support;

use std::collections::VecDeque;

use array::pool::{Half, Pool, PoolAction, PoolSpec, Ticket, create};
use array::{Command, Event, IoId};
use block::Instant;
use uuid::Uuid;

use self::support::spec;

const NOW: Instant = Instant::ZERO;
const DRIVES: usize = 3;

/// A pool with a volume that was never written. Its labels are written, and its lanes make groups blank, when the test
/// says so.
struct Driven {
    pool: Pool,
    labels: VecDeque<IoId>,
    /// Groups that lanes are making blank.
    zeroing: Vec<u64>,
    /// Groups whose writes have gone on.
    initialized: Vec<u64>,
}

impl Driven {
    fn new() -> Self {
        let spec = PoolSpec {
            lazy: true,
            ..spec(3, 0)
        };
        let mut driven = Self {
            pool: create(&spec, Ticket(0)).unwrap(),
            labels: VecDeque::new(),
            zeroing: Vec::new(),
            initialized: Vec::new(),
        };
        driven.write_labels();
        let bytes = 100 * driven.pool.geometry().group_data_bytes();
        let created = driven
            .pool
            .create_volume(NOW, "v", Uuid::from_u128(7), bytes, Ticket(1));
        created.unwrap();
        driven.write_labels();
        driven
    }

    fn poll(&mut self) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                PoolAction::WriteDurably { id, .. } => self.labels.push_back(id),
                PoolAction::Lane(lane, Command::Recover { .. }) => {
                    let (batches, outcome) = (0, Ok(()));
                    self.tell(&Event::Recovered {
                        lane,
                        batches,
                        outcome,
                    });
                }
                PoolAction::Lane(_, Command::Zero { group }) => self.zeroing.push(group),
                PoolAction::Lane(0, Command::Initialized { groups, outcome }) => {
                    assert_eq!(outcome, Ok(()));
                    self.initialized.extend(groups);
                }
                _ => {}
            }
        }
    }

    fn tell(&mut self, event: &Event) {
        self.pool.handle_event(NOW, event);
        self.poll();
    }

    fn write_labels(&mut self) {
        self.poll();
        while let Some(id) = self.labels.pop_front() {
            self.pool.handle_completion(NOW, id, Half::Flush, Ok(()));
            self.poll();
        }
    }

    fn wants(&mut self, group: u64) {
        self.tell(&Event::WantsInitialized { group });
    }

    fn zeroed(&mut self, group: u64) {
        self.zeroing.retain(|&other| other != group);
        self.tell(&Event::Zeroed {
            group,
            outcome: Ok(()),
        });
    }
}

#[test]
fn groups_that_are_made_blank_together_get_one_label() {
    let mut driven = Driven::new();
    for group in [60, 20, 40] {
        driven.wants(group);
    }
    assert_eq!(driven.zeroing, [60, 20, 40]);
    driven.zeroed(20);
    driven.zeroed(60);
    assert!(driven.labels.is_empty(), "group 40 is not blank yet");
    driven.zeroed(40);
    assert_eq!(driven.labels.len(), DRIVES, "one label for each drive");
    driven.write_labels();
    driven.initialized.sort_unstable();
    assert_eq!(driven.initialized, [20, 40, 60]);
}

#[test]
fn groups_that_come_later_do_not_hold_up_those_that_are_blank() {
    let mut driven = Driven::new();
    driven.wants(60);
    driven.wants(20);
    driven.zeroed(20);
    driven.wants(40);
    driven.wants(20);
    assert_eq!(driven.zeroing, [60], "20 is blank, 40 waits for its label");
    driven.zeroed(60);
    assert_eq!(driven.labels.len(), DRIVES);
    assert!(driven.zeroing.is_empty(), "labels are being written");
    driven.write_labels();
    assert_eq!(driven.initialized, [20, 60]);
    assert_eq!(driven.zeroing, [40]);
    driven.zeroed(40);
    driven.write_labels();
    assert_eq!(driven.initialized, [20, 60, 40]);
}
