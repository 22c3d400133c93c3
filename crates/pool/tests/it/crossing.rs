//! Events of a lane about a drive while the pool has already put another drive in its seat.

use block::{Fault, Seat};
use plan::{Command, Event, IoKind};
use pool::SeatState;

use crate::support::driven::Driven;
use crate::support::spec;

const SEAT: Seat = Seat(1);

/// A lane reports that the drive in the seat has failed a write.
fn fails(driven: &mut Driven) {
    driven.pass(&Event::DriveFault {
        seat: SEAT,
        kind: IoKind::Write,
        offset: 0,
        fault: Fault::Medium,
        waiting: true,
    });
}

/// Lets the pool decide about the events that it has got.
fn wait(driven: &mut Driven) {
    if let Some(at) = driven.pool.poll_timeout() {
        driven.pool.handle_timeout(at);
        driven.poll();
    }
}

fn state(driven: &Driven) -> SeatState {
    driven.pool.facts().seats[SEAT.index()].state
}

fn was_given(driven: &Driven, command: &Command) -> bool {
    driven.commands.contains(command)
}

/// `raid5` of three drives and a spare, which has taken the seat of a drive that failed; the lanes do not know of this
/// yet.
fn with_a_spare_on_its_way() -> Driven {
    // A volume, so that the spare has to be filled.
    let mut driven = Driven::new(&spec(3, 1), 1);
    while let Some(&group) = driven.zeroing.first() {
        driven.zeroed(group);
        driven.write_all();
    }
    fails(&mut driven);
    driven.write_all();
    assert!(was_given(&driven, &Command::SeatOut(SEAT)));
    assert!(matches!(state(&driven), SeatState::Out { .. }));
    // A spare waits for this.
    for lane in 0..driven.pool.geometry().lanes() {
        driven.pass(&Event::JournalLeft { lane, seat: SEAT });
    }
    while state(&driven) != SeatState::Filling {
        driven.write_one();
    }
    assert!(!was_given(&driven, &Command::SeatIn(SEAT)));
    driven
}

#[test]
fn a_spare_is_not_blamed_for_what_the_drive_before_it_did() {
    let mut driven = with_a_spare_on_its_way();
    fails(&mut driven);
    assert_eq!(state(&driven), SeatState::Filling);
    driven.write_all();
    assert!(was_given(&driven, &Command::SeatIn(SEAT)));
    // From now on events of the seat are about the spare.
    fails(&mut driven);
    assert!(matches!(state(&driven), SeatState::Out { .. }));
}

#[test]
fn a_spare_does_not_hang_because_the_drive_before_it_did() {
    let hangs = Event::Hangs {
        lane: 0,
        seat: SEAT,
    };
    let mut driven = with_a_spare_on_its_way();
    driven.pass(&hangs);
    driven.write_all();
    wait(&mut driven);
    assert_eq!(state(&driven), SeatState::Filling);
    assert!(was_given(&driven, &Command::SeatIn(SEAT)));
    driven.pass(&hangs);
    wait(&mut driven);
    assert!(matches!(state(&driven), SeatState::Out { .. }));
}
