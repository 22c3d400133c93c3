//! Carries out the actions of the pool: writes of labels and tables, commands to lanes, drives that change seats.

use array::IoKind;
use array::pool::{Half, OutReason, PoolAction, Report};
use array::router::VolumeMap;
use array::seeded::{self, SeededFault};
use block::{Fault, Outcome, Seat};

use super::queue::WorldEvent;
use super::{HAND_OVER, World, code_of, seat_at};
use crate::drive::Admitted;

impl World {
    pub(super) fn poll_pool(&mut self) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                PoolAction::WriteDurably {
                    id,
                    seat,
                    offset,
                    bytes,
                } => {
                    let drive = self.seats[seat.index()];
                    let what = (IoKind::Write, offset, bytes.len() as u64);
                    let (admitted, at) = self.admit(drive, what);
                    let event = WorldEvent::PoolWrite {
                        id,
                        drive,
                        offset,
                        bytes,
                        admitted,
                    };
                    self.push_io((drive, what), (admitted, at), event);
                }
                // Commands to a lane stay in order: all have the same delay, and the queue breaks ties by order of
                // insertion.
                PoolAction::Lane(lane, command) => {
                    self.push(self.now + HAND_OVER, WorldEvent::ToLane(lane, command));
                }
                PoolAction::Swap(a, b) => {
                    self.seats.swap(a.index(), b.index());
                    for lane in 0..self.pool.geometry().lanes() {
                        self.push(self.now + HAND_OVER, WorldEvent::Swap(lane, a, b));
                    }
                }
                PoolAction::Succeed(seat, with, commands) => {
                    self.seats[seat.index()] = self.seats[with.index()].take();
                    for (lane, command) in (0..).zip(commands) {
                        let event = WorldEvent::Succeed(lane, seat, with, command);
                        self.push(self.now + HAND_OVER, event);
                    }
                }
                PoolAction::Vacate(seat) | PoolAction::Release(seat) => {
                    seat_at(&mut self.seats, seat, None);
                }
                PoolAction::VolumesChanged => {
                    let geometry = self.pool.geometry();
                    self.volumes = self
                        .pool
                        .facts()
                        .volumes
                        .iter()
                        .map(|volume| (volume.name.clone(), VolumeMap::new(geometry, volume)))
                        .collect();
                }
                PoolAction::Done(ticket, outcome) => {
                    self.tickets.insert(ticket, Some(outcome));
                }
                PoolAction::Report(report) => {
                    self.check_out(&report);
                    self.reports.push(report);
                }
                PoolAction::SampleUsage => self.push(self.now + HAND_OVER, WorldEvent::Sample),
            }
        }
        if let Some(timeout) = self.pool.poll_timeout() {
            let at = timeout.max(self.now);
            if self.pool_armed.is_none_or(|armed| at < armed) {
                self.pool_armed = Some(at);
                self.pool_timers += 1;
                self.push(at, WorldEvent::PoolTimer);
            }
        }
        if cfg!(debug_assertions) {
            // A study's pool has thousands of columns that move, and as many polls.
            self.pool_checks += 1;
            let all = self.timing.is_none() || self.pool_checks.is_multiple_of(16);
            self.pool.check(all);
        }
    }

    /// A drive that is full has not failed: it stays.
    fn check_out(&mut self, report: &Report) {
        let Report::DriveOut { seat, reason, .. } = report else {
            return;
        };
        let layout = self.pool.geometry().layout().drives();
        let Some(drive) = self.drive_in(*seat).filter(|_| seat.0 < layout) else {
            return;
        };
        // A drive that is to join and takes no label does not join.
        let took_part = std::mem::take(&mut drive.takes_part);
        assert!(
            *reason != OutReason::IoErrors || !took_part || !drive.has_only_been_full(),
            "drive {seat} goes out, and has only been full"
        );
    }

    /// The drives are sampled.
    pub(super) fn sample(&mut self) {
        let samples: Vec<_> = (0..self.seats.len())
            .map(|seat| Seat(u16::try_from(seat).expect("few seats")))
            .filter_map(|seat| Some((seat, self.drive_at(seat)?.usage())))
            .collect();
        self.pool.handle_usage(self.now, self.now, &samples);
    }

    /// Puts the bytes of a `WriteDurably` into the drive's cache, then submits the flush.
    pub(super) fn pool_write(
        &mut self,
        id: array::IoId,
        (drive, admitted): (Option<usize>, Option<Admitted>),
        offset: u64,
        bytes: &[u8],
    ) {
        let (Some(drive), Some(admitted)) = (drive, admitted) else {
            self.pool_ended(id, Half::Write, Err(Fault::Gone));
            return;
        };
        self.ios += 1;
        self.boundaries += 1;
        self.pool_boundaries += 1;
        self.write_sequence += 1;
        let range = (offset, bytes.len() as u64);
        let blocks = bytes
            .chunks(crate::content::BLOCK)
            .map(crate::content::Block::from_bytes);
        let written =
            self.drives[drive].write_blocks(range, admitted.effect, self.write_sequence, blocks);
        if written.is_err() {
            self.pool_ended(id, Half::Write, written);
            return;
        }
        if seeded::is(SeededFault::LabelsUnflushed) {
            self.pool_ended(id, Half::Flush, Ok(()));
            return;
        }
        let what = (IoKind::Flush, 0, 0);
        let (admitted, at) = self.admit(Some(drive), what);
        let flush = WorldEvent::PoolFlush {
            id,
            drive,
            admitted: admitted.expect("there is a drive"),
        };
        self.push_io((Some(drive), what), (admitted, at), flush);
    }

    pub(super) fn pool_ended(&mut self, id: array::IoId, last: Half, outcome: Outcome) {
        self.ios += 1;
        self.boundaries += 1;
        self.pool_boundaries += 1;
        self.note(id.0 << 8 | code_of(outcome));
        self.pool.handle_completion(self.now, id, last, outcome);
        self.poll_pool();
    }
}
