//! How much of their physical space the drives use, and the room that follows from it. The driver samples the use about
//! once a second, and when the pool requests it; drives that do not know it have no usage.

use block::{Instant, Seat, Usage};
use plan::action::Command;
use plan::room::RoomReport;

use super::context::Context;
use super::room::{DriveRoom, Output, Rooms, Shape, WritesWait};
use super::{Pool, PoolAction};

/// Copies of the labels at the end of each drive.
const LABEL_COPIES_BYTES: u64 = 1 << 20;

impl Shape {
    /// What a drive may hold in its cells. Spare space is physical space: what a rebuild puts there must find room. While
    /// drives are out and all their columns are rebuilt, so much less of it is kept.
    fn new(cx: &Context, all_rebuilt: bool) -> Self {
        let layout = cx.geometry.layout();
        let rebuilt = if all_rebuilt {
            cx.seats_gone().count()
        } else {
            0
        };
        Self {
            reserve_bytes: cx.facts.data_offset + LABEL_COPIES_BYTES,
            drives: u64::from(layout.drives()),
            spares: u64::from(layout.spare_drives()),
            used_spares: rebuilt as u64,
        }
    }
}

/// What lanes and the driver say, and what follows for them.
impl Rooms {
    /// The driver has sampled drives. `all_rebuilt`: nothing is left to fill.
    fn use_is(
        &mut self,
        cx: &mut Context,
        taken_at: Instant,
        samples: &[(Seat, Option<Usage>)],
        all_rebuilt: bool,
    ) {
        let shape = Shape::new(cx, all_rebuilt);
        let there = samples.iter().filter(|(seat, _)| cx.labels.has(*seat));
        let samples = there.map(|&(seat, usage)| (seat, usage, shape));
        self.sampled(cx.now, taken_at, samples);
        self.carry_out(cx);
    }

    /// Lanes begin without room on drives that know their use. Before they get their first request.
    pub(super) fn limit_lanes(&self, cx: &mut Context) {
        if self.is_on() {
            let (limits, last) = (self.first_limits(), false);
            cx.tell_lanes(&Command::GrantRoom { limits, last });
        }
    }

    /// The lanes are ready for requests.
    pub(super) fn lanes_are_ready(&mut self, cx: &mut Context) {
        self.start();
        self.carry_out(cx);
    }

    pub(super) fn lane_wants(&mut self, cx: &mut Context, freed: bool) {
        self.wanted(cx.now, freed);
        self.carry_out(cx);
    }

    pub(super) fn lane_reports(&mut self, cx: &mut Context, report: RoomReport) {
        self.reported(cx.now, report);
        self.carry_out(cx);
    }

    /// Begins the next round if it is due.
    pub(super) fn ask_when_due(&mut self, cx: &mut Context) {
        self.handle_timeout(cx.now);
        self.carry_out(cx);
    }

    fn carry_out(&mut self, cx: &mut Context) {
        while let Some(output) = self.poll() {
            match output {
                Output::Ask { round, pressed } => {
                    cx.tell_lanes(&Command::AskRoom { round, pressed });
                }
                Output::Sample => cx.act(PoolAction::SampleUsage),
                Output::Grant { lane, limits, last } => {
                    let command = Command::GrantRoom { limits, last };
                    cx.act(PoolAction::Lane(lane, command));
                }
            }
        }
    }
}

impl Pool {
    /// The driver has sampled the drives in these seats: the first of them at `taken_at`, on the pool's clock, or later.
    /// Drives that are not named do not know their use.
    pub fn handle_usage(
        &mut self,
        now: Instant,
        taken_at: Instant,
        samples: &[(Seat, Option<Usage>)],
    ) {
        self.cx.now = now;
        let all_rebuilt = self.fills.is_idle();
        self.rooms
            .use_is(&mut self.cx, taken_at, samples, all_rebuilt);
        self.elastic.sampled(&self.cx);
        if self.cx.geometry.is_elastic() {
            self.advance();
        }
    }

    /// The physical space of the drive in a seat, and its lines; `None` if the drive does not know its use.
    #[must_use]
    pub fn room(&self, seat: Seat) -> Option<DriveRoom> {
        self.rooms.drive(seat)
    }

    /// The physical space of all drives that know their use.
    pub fn rooms(&self) -> impl Iterator<Item = DriveRoom> {
        self.rooms.drives()
    }

    /// Why writes wait for room, or end without; `None` if they do neither.
    #[must_use]
    pub const fn writes_wait(&self) -> Option<WritesWait> {
        self.rooms.writes_wait()
    }

    /// A policy of the pool can free physical space, or cannot any more. While it can, writes that find no room wait.
    pub fn set_frees_space(&mut self, frees: bool) {
        self.rooms.set_frees(frees);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const USAGE: Option<Usage> = Some(Usage {
        physical_bytes: 20 << 20,
        used_bytes: 0,
    });

    fn rooms(cx: &mut Context, seats: &[u16], all_rebuilt: bool) -> Rooms {
        let samples: Vec<_> = seats.iter().map(|&seat| (Seat(seat), USAGE)).collect();
        let mut rooms = Rooms::new(cx.geometry.lanes());
        rooms.use_is(cx, cx.now, &samples, all_rebuilt);
        rooms
    }

    #[test]
    fn lanes_begin_without_room_on_drives_that_know_their_use_and_on_no_others() {
        let mut cx = fixture::elastic_context(1);
        rooms(&mut cx, &[], true).limit_lanes(&mut cx);
        assert!(fixture::commands(&mut cx).is_empty());
        rooms(&mut cx, &[0, 2], true).limit_lanes(&mut cx);
        let limits = vec![Some(0), None, Some(0)];
        let first = Command::GrantRoom {
            limits,
            last: false,
        };
        let lanes = (0..cx.geometry.lanes()).map(|lane| (lane, first.clone()));
        assert!(fixture::commands(&mut cx).into_iter().eq(lanes));
    }

    #[test]
    fn a_drive_without_label_has_no_room() {
        let mut cx = fixture::elastic_context(1);
        cx.labels.leave(Seat(1));
        let rooms = rooms(&mut cx, &[0, 1], true);
        assert!(rooms.drive(Seat(0)).is_some() && rooms.drive(Seat(1)).is_none());
    }

    #[test]
    fn spare_space_is_kept_free_until_columns_have_been_rebuilt_there() {
        let upper = |is_out, all_rebuilt| {
            let mut cx = fixture::context("draid2:4d:8c:1s", 8, 1);
            if is_out {
                fixture::is_out(&mut cx, Seat(7), crate::OutReason::Hung);
            }
            let room = rooms(&mut cx, &[0], all_rebuilt).drive(Seat(0));
            room.unwrap().upper_bytes
        };
        assert_eq!(upper(false, true), upper(true, false));
        assert!(upper(true, true) > upper(true, false));
    }

    #[test]
    fn a_round_of_room_asks_all_lanes_and_then_for_a_sample() {
        let mut cx = fixture::elastic_context(1);
        let mut rooms = rooms(&mut cx, &[0], true);
        rooms.lanes_are_ready(&mut cx);
        let asked = fixture::commands(&mut cx);
        assert_eq!(asked.len(), usize::from(cx.geometry.lanes()));
        for (lane, command) in asked {
            let Command::AskRoom { round, .. } = command else {
                panic!("{command:?}");
            };
            assert!(cx.actions.is_empty());
            let report = RoomReport {
                lane,
                round,
                ..RoomReport::default()
            };
            rooms.lane_reports(&mut cx, report);
        }
        assert_eq!(cx.actions, [PoolAction::SampleUsage]);
    }
}
