//! Scenarios of the machine: two drives, and lanes that are played by the tests.

use super::*;

const MIB: u64 = 1 << 20;
const SEATS: [Seat; 2] = [Seat(0), Seat(1)];
const SHAPE: Shape = Shape {
    reserve_bytes: 10 * MIB,
    drives: 2,
    spares: 0,
    used_spares: 0,
};

/// The machine, and the accounts of its lanes.
struct Lab {
    rooms: Rooms,
    lanes: Vec<RoomReport>,
    now: Instant,
    used: [u64; 2],
    shape: Shape,
}

impl Lab {
    /// Drives of 74 MiB, 10 of which are the reserve: the upper line is at 63 MiB.
    fn new(lanes: u16) -> Self {
        let mut lab = Self {
            rooms: Rooms::new(lanes),
            lanes: (0..lanes)
                .map(|lane| RoomReport {
                    lane,
                    seats: vec![SeatRoom::default(); 2],
                    ..RoomReport::default()
                })
                .collect(),
            now: Instant::ZERO,
            used: [0; 2],
            shape: SHAPE,
        };
        lab.sample_at(Instant::ZERO);
        lab
    }

    fn sample_at(&mut self, taken_at: Instant) {
        let samples = SEATS.map(|seat| {
            let usage = Usage {
                physical_bytes: 74 * MIB,
                used_bytes: self.used[seat.index()],
            };
            (seat, Some(usage), self.shape)
        });
        self.rooms.sampled(self.now, taken_at, samples);
    }

    fn later(&mut self) {
        self.now += Duration::from_millis(1);
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.rooms.poll()).collect()
    }

    /// Lanes answer the question of a round: they give back what is not used.
    fn report(&mut self, outputs: &[Output]) {
        let [Output::Ask { round, .. }] = outputs else {
            panic!("{outputs:?} asks for no reports");
        };
        for report in &mut self.lanes {
            report.round = *round;
            for account in &mut report.seats {
                account.limit = account.charged;
            }
            self.rooms.reported(self.now, report.clone());
        }
    }

    /// Carries out a round that has begun. Returns whether one of the grants was the last.
    fn round(&mut self) -> bool {
        let asked = self.outputs();
        self.report(&asked);
        assert_eq!(self.outputs(), [Output::Sample]);
        self.later();
        self.sample_at(self.now);
        let mut any = false;
        for output in self.outputs() {
            match output {
                Output::Grant { lane, limits, last } => {
                    any |= last;
                    let report = &mut self.lanes[usize::from(lane)];
                    for (account, limit) in report.seats.iter_mut().zip(limits) {
                        account.limit = limit.expect("the drive knows its use");
                    }
                }
                Output::Ask { .. } => panic!("a round follows at once"),
                Output::Sample => panic!("a sample follows at once"),
            }
        }
        self.rooms.check();
        any
    }

    fn unused(&self, lane: usize) -> u64 {
        self.lanes[lane].seats[0].unused()
    }

    /// A lane's write waits for so much on both drives.
    fn wait(&mut self, lane: usize, bytes: u64) {
        let report = &mut self.lanes[lane];
        report.needs = SEATS.map(|seat| (seat, bytes)).to_vec();
        report.since = self.now;
        self.rooms.wanted(self.now, false);
    }

    /// Something has become free: the next round begins, a little after the last one.
    fn freed(&mut self) {
        self.rooms.wanted(self.now, true);
        if let Some(due) = self.rooms.poll_timeout() {
            self.now = self.now.max(due);
            self.rooms.handle_timeout(self.now);
        }
    }

    /// A lane charges so much on both drives.
    fn charge(&mut self, lane: usize, bytes: u64) {
        for account in &mut self.lanes[lane].seats {
            account.charged += bytes;
            assert!(account.charged <= account.limit, "it was granted");
        }
    }

    /// What a lane has charged is in place, and takes so much on both drives.
    fn settle(&mut self, lane: usize, used: u64) {
        for account in &mut self.lanes[lane].seats {
            account.settled = account.charged;
        }
        self.used.iter_mut().for_each(|of| *of += used);
    }

    /// Limits of all lanes that are not settled, and what the drive uses.
    fn worst(&self) -> u64 {
        let lanes = self.lanes.iter().map(|report| &report.seats[0]);
        self.used[0]
            + lanes
                .map(|account| account.limit - account.settled)
                .sum::<u64>()
    }
}

#[test]
fn lanes_divide_what_is_left_up_to_the_upper_line() {
    let mut lab = Lab::new(4);
    lab.rooms.start();
    assert!(!lab.round());
    assert!((0..4).all(|lane| lab.unused(lane) == 63 * MIB / 4));
    assert_eq!(lab.worst(), 63 * MIB);
}

#[test]
fn a_sample_from_before_the_reports_frees_nothing_and_grants_nothing() {
    let mut lab = Lab::new(1);
    lab.rooms.start();
    lab.round();
    lab.charge(0, 60 * MIB);
    lab.wait(0, 10 * MIB);
    let asked = lab.outputs();
    let before = lab.now;
    lab.later();
    lab.settle(0, 60 * MIB);
    lab.report(&asked);
    assert_eq!(lab.outputs(), [Output::Sample]);
    // A periodic sample that was taken before the lane's writes were in place: the drive looks empty.
    let used = std::mem::take(&mut lab.used);
    lab.sample_at(before);
    assert!(lab.outputs().is_empty());
    lab.used = used;
    lab.sample_at(lab.now);
    assert_eq!(lab.outputs().len(), 1, "the grant of the one lane");
}

#[test]
fn what_is_charged_counts_at_ratio_one_until_a_sample_shows_what_it_takes() {
    let mut lab = Lab::new(1);
    lab.rooms.start();
    lab.round();
    lab.charge(0, 63 * MIB);
    lab.wait(0, MIB);
    assert!(!lab.round(), "the charge is not settled: it may take less");
    assert_eq!(lab.unused(0), 0);
    assert_eq!(lab.rooms.writes_wait(), Some(WritesWait::ForRoom(Seat(0))));
    lab.settle(0, 21 * MIB);
    lab.freed();
    assert!(!lab.round());
    assert_eq!(lab.unused(0), 42 * MIB);
    assert_eq!(lab.rooms.writes_wait(), None);
}

#[test]
fn what_one_lane_does_not_use_the_others_get_in_the_next_round() {
    let mut lab = Lab::new(8);
    lab.rooms.start();
    lab.round();
    lab.charge(3, 7 * MIB);
    lab.wait(3, 40 * MIB);
    assert!(!lab.round());
    assert!(lab.unused(3) >= 40 * MIB, "{}", lab.unused(3));
    assert!(lab.worst() <= 63 * MIB);
}

#[test]
fn writes_end_without_space_only_when_every_lane_has_settled() {
    let mut lab = Lab::new(2);
    lab.rooms.start();
    lab.round();
    lab.charge(0, 31 * MIB);
    lab.charge(1, 31 * MIB);
    lab.settle(0, 31 * MIB);
    lab.wait(0, 2 * MIB);
    assert!(!lab.round(), "lane 1 may take less than it has charged");
    lab.settle(1, 31 * MIB);
    lab.freed();
    assert!(lab.round());
    assert_eq!(lab.rooms.writes_wait(), Some(WritesWait::NoSpace(Seat(0))));
}

#[test]
fn writes_wait_while_drives_discard() {
    let mut lab = Lab::new(2);
    lab.rooms.start();
    lab.round();
    lab.charge(0, 31 * MIB);
    lab.settle(0, 63 * MIB);
    lab.lanes[1].frees = true;
    lab.wait(0, MIB);
    assert!(!lab.round());
    lab.lanes[1].frees = false;
    lab.used = [50 * MIB; 2];
    lab.freed();
    assert!(!lab.round());
    assert!(lab.unused(0) >= MIB);
    assert_eq!(lab.rooms.writes_wait(), None);
}

#[test]
fn writes_wait_while_a_policy_can_free_space() {
    let mut lab = Lab::new(1);
    lab.used = [63 * MIB; 2];
    lab.sample_at(lab.now);
    lab.rooms.start();
    lab.round();
    lab.rooms.set_frees(true);
    lab.wait(0, MIB);
    assert!(!lab.round());
    lab.rooms.set_frees(false);
    lab.freed();
    assert!(lab.round());
}

#[test]
fn a_lane_that_waits_longer_gets_room_first_and_all_that_it_needs() {
    let mut lab = Lab::new(3);
    lab.used = [56 * MIB; 2];
    lab.sample_at(lab.now);
    lab.rooms.start();
    lab.round();
    lab.wait(2, 5 * MIB);
    lab.later();
    lab.lanes[0].needs = SEATS.map(|seat| (seat, 5 * MIB)).to_vec();
    lab.lanes[0].since = lab.now;
    // Seven mebibytes are left: enough for one of the two.
    assert!(!lab.round(), "lane 2 may use less than it got");
    assert!(lab.unused(2) >= 5 * MIB && lab.unused(0) < 5 * MIB);
}

#[test]
fn a_write_that_one_drive_has_no_room_for_takes_none_from_others() {
    let mut lab = Lab::new(2);
    lab.used = [0, 62 * MIB];
    lab.sample_at(lab.now);
    lab.rooms.start();
    lab.round();
    lab.wait(0, 60 * MIB);
    lab.later();
    // Needs the first drive alone.
    lab.lanes[1].needs = vec![(Seat(0), 60 * MIB)];
    lab.lanes[1].since = lab.now;
    let last = lab.round();
    assert!(lab.lanes[1].seats[0].unused() >= 60 * MIB);
    assert!(!last || lab.lanes[0].seats[1].unused() < 60 * MIB);
}

#[test]
fn rounds_follow_one_another_at_growing_intervals_while_writes_wait() {
    let mut lab = Lab::new(1);
    lab.rooms.start();
    lab.round();
    lab.charge(0, 63 * MIB);
    lab.wait(0, MIB);
    let mut waits = Vec::new();
    for _ in 0..7 {
        assert!(!lab.round());
        // A lane that is short does not begin a round before it is due.
        lab.rooms.wanted(lab.now, false);
        assert!(lab.outputs().is_empty());
        let due = lab.rooms.poll_timeout().expect("a round is due");
        waits.push(due.since(lab.now).as_millis());
        lab.now = due;
        lab.rooms.handle_timeout(due);
    }
    assert_eq!(waits, [20, 40, 80, 160, 320, 500, 500]);
}

#[test]
fn a_lane_that_asks_again_during_a_round_begins_no_other_while_one_is_due() {
    let mut lab = Lab::new(1);
    lab.rooms.start();
    lab.round();
    lab.charge(0, 63 * MIB);
    lab.wait(0, MIB);
    lab.rooms.wanted(lab.now, false);
    assert!(!lab.round(), "and no other round follows at once");
    let due = lab.rooms.poll_timeout().expect("a round is due");
    lab.now = due;
    lab.rooms.handle_timeout(due);
    lab.rooms.wanted(lab.now, true);
    let asked = lab.outputs();
    lab.report(&asked);
    lab.later();
    lab.sample_at(lab.now);
    let asks = |outputs: Vec<Output>| {
        let mut outputs = outputs.into_iter();
        outputs.any(|output| matches!(output, Output::Ask { .. }))
    };
    assert!(!asks(lab.outputs()), "lanes that free nothing have a pause");
    let due = lab.rooms.poll_timeout().expect("something is free");
    assert_eq!(due.since(lab.now), WAIT_FREED);
    lab.rooms.handle_timeout(due);
    assert!(asks(lab.outputs()));
}

#[test]
fn a_write_that_a_drive_has_refused_is_tried_again_while_something_can_be_freed() {
    let mut lab = Lab::new(2);
    lab.rooms.start();
    lab.round();
    lab.charge(1, MIB);
    lab.wait(0, MIB);
    lab.lanes[0].refused = true;
    assert!(!lab.round(), "lane 1 has not settled");
    lab.settle(1, MIB);
    lab.freed();
    assert!(lab.round());
}

#[test]
fn spare_space_is_physical_space_until_it_is_in_use() {
    let mut lab = Lab::new(1);
    lab.shape = Shape {
        drives: 8,
        spares: 2,
        ..SHAPE
    };
    lab.sample_at(lab.now);
    let room = |lab: &Lab| lab.rooms.drive(Seat(0)).expect("it knows its use");
    assert_eq!(room(&lab).upper_bytes, 48 * MIB - 48 * MIB / 64);
    lab.shape.used_spares = 2;
    lab.sample_at(lab.now);
    assert_eq!(room(&lab).upper_bytes, 64 * MIB - MIB);
}

#[test]
fn a_drive_is_below_between_or_above_its_lines() {
    let mut lab = Lab::new(1);
    let mut level = |used| {
        lab.used = [used * MIB; 2];
        lab.sample_at(lab.now);
        lab.rooms.drive(Seat(1)).expect("it knows its use").level()
    };
    let levels = [0, 58, 59, 62, 63, 70].map(&mut level);
    use RoomLevel::{Above, Below, Between};
    assert_eq!(levels, [Below, Below, Between, Between, Above, Above]);
}

#[test]
fn pools_whose_drives_do_not_know_their_use_do_nothing() {
    let mut rooms = Rooms::new(4);
    let samples = SEATS.map(|seat| (seat, None, SHAPE));
    rooms.sampled(Instant::ZERO, Instant::ZERO, samples);
    rooms.start();
    rooms.wanted(Instant::ZERO, false);
    rooms.handle_timeout(Instant(u64::MAX));
    assert_eq!((rooms.poll(), rooms.poll_timeout()), (None, None));
    assert!(!rooms.is_on());
}

#[test]
fn a_drive_that_does_not_know_its_use_has_no_limit_beside_one_that_does() {
    let mut lab = Lab::new(1);
    let usage = Usage {
        physical_bytes: 74 * MIB,
        used_bytes: 0,
    };
    let samples = [(Seat(0), Some(usage), SHAPE), (Seat(1), None, SHAPE)];
    lab.rooms.sampled(lab.now, lab.now, samples);
    lab.rooms.start();
    let asked = lab.outputs();
    lab.report(&asked);
    lab.outputs();
    lab.rooms.sampled(lab.now, lab.now, samples);
    let [Output::Grant { limits, .. }] = &lab.outputs()[..] else {
        panic!("one lane gets one grant");
    };
    assert_eq!(limits[..], [Some(63 * MIB), None]);
}
