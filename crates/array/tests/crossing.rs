//! Events of a lane about a drive while the pool has already put another drive in its seat.

mod support;

use std::collections::VecDeque;

use array::pool::{Half, Pool, PoolAction, SeatState, Ticket, create};
use array::{Command, Event, IoId, IoKind};
use block::{Fault, Instant, Seat};
use uuid::Uuid;

use self::support::spec;

const NOW: Instant = Instant::ZERO;
const SEAT: Seat = Seat(1);

/// A pool whose writes end when the test says so, and whose lanes have nothing in flight.
struct Driven {
    pool: Pool,
    writes: VecDeque<IoId>,
    /// Commands that the first lane has been given.
    heard: Vec<Command>,
}

impl Driven {
    /// `raid5` of three drives, and a waiting spare.
    fn new() -> Self {
        let mut driven = Self {
            pool: create(&spec(3, 1), Ticket(0)).unwrap(),
            writes: VecDeque::new(),
            heard: Vec::new(),
        };
        driven.write_all();
        // Data with which a drive must be filled.
        let created = driven
            .pool
            .create_volume(NOW, "v", Uuid::from_u128(7), 1 << 20, Ticket(1));
        created.unwrap();
        driven.write_all();
        driven
    }

    fn poll(&mut self) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                PoolAction::WriteDurably { id, .. } => self.writes.push_back(id),
                PoolAction::Lane(lane, Command::Recover { .. }) => {
                    let (batches, outcome) = (0, Ok(()));
                    self.tell(&Event::Recovered {
                        lane,
                        batches,
                        outcome,
                    });
                }
                PoolAction::Lane(_, Command::Zero { group }) => {
                    let outcome = Ok(());
                    self.tell(&Event::Zeroed { group, outcome });
                }
                PoolAction::Lane(0, command) => self.heard.push(command),
                _ => {}
            }
        }
    }

    /// Ends one write.
    fn write_one(&mut self) {
        let id = self.writes.pop_front().expect("a write is under way");
        self.pool.handle_completion(NOW, id, Half::Flush, Ok(()));
        self.poll();
    }

    fn write_all(&mut self) {
        self.poll();
        while !self.writes.is_empty() {
            self.write_one();
        }
    }

    fn tell(&mut self, event: &Event) {
        self.pool.handle_event(NOW, event);
        self.poll();
    }

    /// A lane reports that the drive in the seat has failed a write.
    fn fails(&mut self) {
        self.tell(&Event::DriveFault {
            seat: SEAT,
            kind: IoKind::Write,
            offset: 0,
            fault: Fault::Medium,
            waiting: true,
        });
    }

    /// Lets the pool decide about the events that it has got.
    fn wait(&mut self) {
        if let Some(at) = self.pool.poll_timeout() {
            self.pool.handle_timeout(at);
            self.poll();
        }
    }

    fn state(&self) -> SeatState {
        self.pool.facts().seats[SEAT.index()].state
    }

    fn has_heard(&self, command: &Command) -> bool {
        self.heard.contains(command)
    }

    /// A spare has taken the seat of a drive that failed, and the lanes do not know of this yet.
    fn with_a_spare_on_its_way() -> Self {
        let mut driven = Self::new();
        driven.fails();
        while driven.state() != SeatState::Filling {
            driven.write_one();
        }
        assert!(driven.has_heard(&Command::SeatOut(SEAT)));
        assert!(!driven.has_heard(&Command::SeatIn(SEAT)));
        driven
    }
}

#[test]
fn a_spare_is_not_blamed_for_what_the_drive_before_it_did() {
    let mut driven = Driven::with_a_spare_on_its_way();
    driven.fails();
    assert_eq!(driven.state(), SeatState::Filling);
    driven.write_all();
    assert!(driven.has_heard(&Command::SeatIn(SEAT)));
    // From now on events of the seat are about the spare.
    driven.fails();
    assert!(matches!(driven.state(), SeatState::Out { .. }));
}

#[test]
fn a_spare_does_not_hang_because_the_drive_before_it_did() {
    let hangs = Event::Hangs {
        lane: 0,
        seat: SEAT,
    };
    let mut driven = Driven::with_a_spare_on_its_way();
    driven.tell(&hangs);
    driven.write_all();
    driven.wait();
    assert_eq!(driven.state(), SeatState::Filling);
    assert!(driven.has_heard(&Command::SeatIn(SEAT)));
    driven.tell(&hangs);
    driven.wait();
    assert!(matches!(driven.state(), SeatState::Out { .. }));
}
