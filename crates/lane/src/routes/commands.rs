//! Handling of the pool's commands.

use block::{Fault, Instant};
use format::GroupId;
use format::seeded::{self, SeededFault};
use plan::action::{Command, Event};

use crate::Lane;
use crate::checkpoint::CheckpointWaiter;
use crate::jobs::Job;

/// Why a command is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The group belongs to another lane or does not exist.
    #[error("group {group} is not on lane {lane}")]
    NotHere {
        /// Which group.
        group: GroupId,
        /// This lane.
        lane: u16,
    },
}

impl Lane {
    /// Handles a command of the pool. An event answers it where [`Command`] requires one.
    ///
    /// # Errors
    /// [`CommandError`] when the command names a group of another lane; nothing has changed.
    pub fn handle_command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        self.cx.now = now;
        match command {
            Command::SeatOut(seat) => self.seats_out(&[seat]),
            Command::SeatsOut(seats) => self.seats_out(&seats),
            Command::SeatKept(seat) => self.decide(seat, false),
            Command::TryAgain => self.try_again(),
            Command::SeatIn(seat) => {
                self.ios.forget_pace(seat);
                self.out_in_journal.remove(&seat);
                self.cx.change_view(|view, _| view.seat_in(seat));
            }
            Command::Leave(seat) => self.drive_leaves(seat),
            Command::Suspect(seat) => self.ios.suspect(seat, true),
            Command::Trust(seat) => self.ios.suspect(seat, false),
            Command::Twin { seat, with } => self.begin_twin(seat, with),
            Command::Grow(geometry) => self.grow(geometry.0),
            Command::Succeed { seat, with, filled } => self.succeed(seat, with, filled.as_ref()),
            Command::SeatCurrent(seat) => {
                self.cx
                    .change_view(|view, geometry| view.seat_current(geometry, seat));
                self.forget_nowhere(None);
                self.want_anchor();
            }
            Command::Fill {
                group,
                column,
                target,
                avoid,
                holds,
            } => {
                self.check_here(group)?;
                // Writes to a drive also go to its successor.
                if !self.ios.twins().succeeds(target.seat) {
                    self.cx.change_view(|view, geometry| {
                        view.begin_fill(geometry, group, column, target);
                    });
                }
                let mut job = Job::fill(group, column, target, avoid, holds);
                if self.cx.view().is_out(target.seat) && !seeded::is(SeededFault::FillBeforeJoined)
                {
                    // Its writes would be skipped, and the cell would count as filled.
                    job.fail(Fault::Gone);
                } else if self.pages.lacks_beside(&self.cx, group, column) {
                    // The target may have the last copies of these pages.
                    job.fail(Fault::Lost);
                }
                self.begin_job(job);
            }
            Command::Settle {
                group,
                column,
                cell,
            } => {
                self.check_here(group)?;
                let before = self.cx.view().column(&self.cx.geometry, group, column);
                self.cx
                    .change_view(|view, _| view.settle(group, column, cell));
                if !before.writable() {
                    self.checkpoints.column_is_back(group, column);
                    // Copies of pages are in memory. This drive may have left later than the drives that they came
                    // from, with later copies.
                    let checkpoint = self.checkpoints.pages(self.log.anchor());
                    let (cx, ios) = (&mut self.cx, &mut self.ios);
                    self.pages.read_again(cx, ios, &checkpoint, group);
                }
                self.forget_nowhere(Some(group));
                if !self.preserved.is_empty() {
                    // A preserved block may have a place now.
                    self.checkpoints.want();
                }
                let settled = Event::Settled { group, column };
                self.cx.epochs.report_drained(settled);
            }
            Command::Abandon { group, column } => {
                self.check_here(group)?;
                self.jobs.abandon_fill(now, group, column);
            }
            Command::Yield {
                group,
                column,
                yields,
            } => {
                self.check_here(group)?;
                self.jobs.yield_fill(now, (group, column), yields);
                self.resume_jobs();
            }
            Command::Zero { group } => {
                self.check_here(group)?;
                if seeded::is(SeededFault::InitializedUnwritten)
                    && self.uninitialized.contains(group)
                {
                    let outcome = Ok(());
                    self.cx.events.push_back(Event::Zeroed { group, outcome });
                    return Ok(());
                }
                self.discards.forget(group..group.next());
                self.cx.change_view(|view, _| view.begin_life(group));
                self.begin_job(Job::zero(group));
            }
            Command::Uninitialized(runs) => self.leave_uninitialized(&runs),
            Command::Freed(runs) => {
                self.discards.groups_freed(&self.cx, &runs);
                self.begin_discard();
            }
            Command::Initialized { groups, outcome } => self.initialized(&groups, outcome),
            Command::Resync { group } => {
                self.check_here(group)?;
                self.begin_job(Job::resync(group));
            }
            Command::ReportClients(wanted) => {
                if self.jobs.report_clients(&mut self.cx, wanted) {
                    self.resume_jobs();
                }
            }
            Command::MakeWay(makes_way) => {
                if self.jobs.make_way(now, makes_way) {
                    self.resume_jobs();
                }
            }
            Command::Steer(steer) => {
                self.jobs.steer(now, steer);
                self.resume_jobs();
            }
            Command::MayMove { bytes } => {
                self.jobs.granted(now, bytes);
                self.resume_jobs();
            }
            Command::ReadPages { group, bytes } => {
                self.check_here(group)?;
                self.read_pages(group, bytes);
            }
            Command::CopiesAgree => self.balance.copies_agree(),
            Command::Recover {
                incarnation,
                fresh,
                gone,
                sources,
            } => self.begin_recovery(incarnation, fresh, (gone, sources)),
            Command::KnowLost(ranges) => self.losses.know(&ranges),
            Command::AskRoom { round, pressed } => self.report_room(round, pressed),
            Command::GrantRoom { limits, last } => self.room_granted(&limits, last),
            Command::Checkpoint => {
                if self.cx.geometry.regions().is_some() {
                    if self.ios.twins().any() {
                        // A successor may be the only drive left after the next stop. It needs an anchor that marks
                        // where the log begins.
                        self.want_anchor();
                    }
                    self.discards.pause();
                    self.checkpoints.await_next(CheckpointWaiter::Pool, []);
                } else {
                    self.cx
                        .events
                        .push_back(Event::Checkpointed { lane: self.cx.lane });
                }
            }
            Command::Convert {
                group,
                stripes,
                to,
                most,
            } => {
                self.check_here(group)?;
                self.begin_job(Job::convert(group, stripes, (to, most)));
            }
            Command::StopConverting { group } => self.jobs.stop_conversions(group),
            Command::Scrub { group } => {
                self.check_here(group)?;
                self.begin_scrub(group);
            }
            Command::AbandonScrub { group } => {
                self.check_here(group)?;
                for id in self.jobs.abandon_scrub(group) {
                    self.step_job(id);
                }
            }
        }
        self.advance();
        Ok(())
    }

    pub(crate) fn check_here(&self, group: GroupId) -> Result<(), CommandError> {
        match self.cx.has_group(group) {
            true => Ok(()),
            false => Err(CommandError::NotHere {
                group,
                lane: self.cx.lane,
            }),
        }
    }
}
