//! How much of their physical space the drives use, and the room that follows from it. The driver samples the use about
//! once a second, and when the pool requests it; drives that do not know it have no usage.

use block::{Instant, Seat, Usage};
use plan::action::Command;
use plan::room::RoomReport;

use super::room::{DriveRoom, Output, Shape, WritesWait};
use super::{Pool, PoolAction};

/// Copies of the labels at the end of each drive.
const LABEL_COPIES_BYTES: u64 = 1 << 20;

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
        let shape = self.room_shape();
        let there = samples.iter();
        let there = there.filter(|(seat, _)| self.cx.labels.has(*seat));
        let samples: Vec<_> = there.map(|&(seat, usage)| (seat, usage, shape)).collect();
        self.rooms.sampled(now, taken_at, samples);
        self.poll_rooms();
        self.elastic_sampled();
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

    /// What a drive may hold in its cells. Spare space is physical space: what a rebuild puts there must find room. While
    /// drives are out and all their columns are rebuilt, so much less of it is kept.
    fn room_shape(&self) -> Shape {
        let layout = self.cx.geometry.layout();
        let rebuilt = match self.fills.is_idle() {
            true => self.cx.seats_gone().count(),
            false => 0,
        };
        Shape {
            reserve_bytes: self.cx.facts.data_offset + LABEL_COPIES_BYTES,
            drives: u64::from(layout.drives()),
            spares: u64::from(layout.spare_drives()),
            used_spares: rebuilt as u64,
        }
    }

    /// Lanes begin without room on drives that know their use. Before they get their first request.
    pub(super) fn limit_lanes(&mut self) {
        if self.rooms.is_on() {
            let (limits, last) = (self.rooms.first_limits(), false);
            self.cx.tell_lanes(&Command::GrantRoom { limits, last });
        }
    }

    /// The lanes are ready for requests.
    pub(super) fn start_rooms(&mut self) {
        self.rooms.start();
        self.poll_rooms();
    }

    pub(super) fn room_wanted(&mut self, freed: bool) {
        self.rooms.wanted(self.cx.now, freed);
        self.poll_rooms();
    }

    pub(super) fn room_reported(&mut self, report: RoomReport) {
        self.rooms.reported(self.cx.now, report);
        self.poll_rooms();
    }

    /// Begins the next round if it is due.
    pub(super) fn ask_for_room_when_due(&mut self) {
        self.rooms.handle_timeout(self.cx.now);
        self.poll_rooms();
    }

    fn poll_rooms(&mut self) {
        while let Some(output) = self.rooms.poll() {
            match output {
                Output::Ask { round, pressed } => {
                    self.cx.tell_lanes(&Command::AskRoom { round, pressed });
                }
                Output::Sample => self.cx.act(PoolAction::SampleUsage),
                Output::Grant { lane, limits, last } => {
                    let command = Command::GrantRoom { limits, last };
                    self.cx.act(PoolAction::Lane(lane, command));
                }
            }
        }
    }
}
