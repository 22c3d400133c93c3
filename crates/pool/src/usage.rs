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
