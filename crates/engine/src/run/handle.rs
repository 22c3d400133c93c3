//! A running pool, seen from outside.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use array::Geometry;
use array::format::GroupId;
use array::pool::{OutReason, Pool, PoolError, Steering, Ticket};
use array::record::Record;
use block::{Hint, Seat};
use uuid::Uuid;

use super::lane::{self, LaneMessage, LaneSender};
use super::lease::{self, InUse, LeaseKeeper, Reservation};
use super::members::Member;
use super::pool::{Admin, Listener, PoolMessage, PoolThread, Volumes};
use super::usage::Sampler;
use super::volume::Volume;
use super::{Clock, Seats};
use crate::assemble::{ExpandPlan, RemovalPlan, new_drive, proof};
use crate::drive::Drive;
use crate::status::PoolStatus;
use crate::traffic::PoolTraffic;

/// How long a returning drive may take to end operations from before it left.
const STILL_BUSY_MAX: Duration = Duration::from_secs(5);

/// How to run a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Threads for the lanes, at most as many as there are lanes. By default half as many as there are cores, or as
    /// many as cores where the submitting threads do the drives' own work.
    pub threads: Option<u16>,
    /// Keep all inputs and outputs of the lanes, for [`PoolHandle::take_records`]. Takes memory without bound: for
    /// tests.
    pub record: bool,
}

/// Threads for the lanes of a pool on these drives.
fn threads_for(drives: &[Option<Drive>]) -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Lanes then do the drives' part as well, and no other thread works for them.
    let lanes_do_it_all = drives.iter().flatten().all(|drive| drive.works_in_caller);
    // Otherwise the other half is for threads that submit requests (a front end's, a client's) and for the kernel's
    // workers, which do the part of a loop device or a file system. With as many lane threads as cores, each finds
    // less to do at once, and they compete with all of these for the cores.
    let threads = if lanes_do_it_all {
        cores
    } else {
        cores.div_ceil(2)
    };
    u16::try_from(threads).unwrap_or(u16::MAX)
}

/// A running pool. Dropping it stops the pool as a crash would: use [`PoolHandle::close`].
pub struct PoolHandle {
    geometry: Arc<Geometry>,
    pool: Sender<PoolMessage>,
    lanes: Arc<[LaneSender]>,
    volumes: Arc<Volumes>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lease: LeaseKeeper,
    sampler: Sampler,
    reservation: Reservation,
    in_use: InUse,
    takes_volumes: bool,
}

impl PoolHandle {
    /// Starts a pool that has been created or opened with `ticket`, and waits until that is done.
    ///
    /// # Errors
    /// When creating or opening the pool failed, or no thread could be started.
    pub(crate) fn start(
        mut pool: Pool,
        drives: Vec<Option<Drive>>,
        ticket: Ticket,
        reservation: Reservation,
        options: RunOptions,
    ) -> Result<Self, StartError> {
        let geometry = Arc::clone(pool.geometry());
        let takes_volumes = crate::assemble::takes_volumes(&pool.facts().scheme);
        let clock = Clock::start();
        let threads = options.threads.unwrap_or_else(|| threads_for(&drives));
        let seats = Seats::new(drives, threads.clamp(1, geometry.lanes()));
        let (sender, receiver) = std::sync::mpsc::channel();
        // Before anything else: drives that count what they hold take no writes until then.
        let taken_at = clock.now();
        let samples = seats.iter();
        let samples: Vec<_> =
            { samples.map(|(seat, drive)| (seat, drive.device.usage())) }.collect();
        let knows = samples.iter().any(|(_, usage)| usage.is_some());
        pool.handle_usage(clock.now(), taken_at, &samples);
        let sampler = Sampler::start(&seats, knows, (clock, sender.clone()))?;
        let takes_part = |seat: Seat| pool.facts().seats[seat.index()].state.takes_part();
        let in_use: InUse = Arc::new(Mutex::new(lease::in_use(&seats, takes_part)));
        let lease = LeaseKeeper::start(reservation, Arc::clone(&in_use), sender.clone())?;
        let (lanes, mut threads) = lane::start(
            &geometry,
            threads,
            &Arc::new(seats.clone()),
            &sender,
            (clock, lease.lease()),
            options.record,
        )?;
        let lanes: Arc<[LaneSender]> = lanes.into();
        let volumes = Arc::new(RwLock::new(BTreeMap::new()));
        let (answer, opened) = std::sync::mpsc::channel();
        let thread = PoolThread::new(
            pool,
            (seats, sampler.clone()),
            Arc::clone(&lanes),
            Arc::clone(&volumes),
            (clock, &sender),
            (ticket, answer),
            (Arc::clone(lease.lease()), Arc::clone(&in_use)),
        );
        threads.push(
            std::thread::Builder::new()
                .name("pool".to_owned())
                .spawn(move || thread.run(&receiver))?,
        );
        let handle = Self {
            geometry,
            pool: sender,
            lanes,
            volumes,
            threads: Mutex::new(threads),
            lease,
            sampler,
            reservation,
            in_use,
            takes_volumes,
        };
        opened.recv().map_err(|_| StartError::Stopped)??;
        Ok(handle)
    }

    /// The pool's shape when it was started: sizes stay, and a pool that grows gets more drives and groups.
    #[must_use]
    pub const fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }

    /// Whether volumes of other pools can be drives of this one.
    #[must_use]
    pub const fn takes_volumes(&self) -> bool {
        self.takes_volumes
    }

    /// A volume by name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        let volumes = self.volumes.read().expect("no holder of the lock panics");
        volumes.get(name).cloned()
    }

    /// All volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        let volumes = self.volumes.read().expect("no holder of the lock panics");
        volumes.values().cloned().collect()
    }

    /// The names of all volumes.
    #[must_use]
    pub fn volume_names(&self) -> Vec<String> {
        let volumes = self.volumes.read().expect("no holder of the lock panics");
        volumes.keys().cloned().collect()
    }

    fn admin(&self, command: Admin) -> Result<(), PoolError> {
        let (answer, outcome) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::Admin(Box::new(command), answer))
            .map_err(|_| PoolError::Closing)?;
        outcome.recv().unwrap_or(Err(PoolError::Closing))
    }

    /// Creates a volume; its bytes are zeros.
    ///
    /// # Errors
    /// As [`Pool::create_volume`].
    pub fn create_volume(&self, name: &str, size_bytes: u64) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.admin(Admin::CreateVolume { name, size_bytes })
    }

    /// Gives a volume another size.
    ///
    /// # Errors
    /// As [`Pool::resize_volume`].
    pub fn resize_volume(&self, name: &str, size_bytes: u64) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.admin(Admin::ResizeVolume { name, size_bytes })
    }

    /// Deletes a volume.
    ///
    /// # Errors
    /// As [`Pool::delete_volume`].
    pub fn delete_volume(&self, name: &str) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.admin(Admin::DeleteVolume { name })
    }

    /// Gives the pool another name.
    ///
    /// # Errors
    /// As [`Pool::rename`].
    pub fn rename(&self, name: &str) -> Result<(), PoolError> {
        let name = name.to_owned();
        self.admin(Admin::Rename { name })
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// As [`Pool::rename_volume`].
    pub fn rename_volume(&self, name: &str, new: &str) -> Result<(), PoolError> {
        let (name, new) = (name.to_owned(), new.to_owned());
        self.admin(Admin::RenameVolume { name, new })
    }

    /// Removes a spare from the pool.
    ///
    /// # Errors
    /// As [`Pool::remove_spare`].
    pub fn remove_spare(&self, seat: Seat) -> Result<(), PoolError> {
        self.admin(Admin::RemoveSpare { seat })
    }

    /// Removes a drive of the layout: its columns move to others, and then it is free.
    ///
    /// # Errors
    /// As [`Pool::remove_drive`].
    pub fn remove_drive(&self, seat: Seat) -> Result<(), PoolError> {
        self.admin(Admin::RemoveDrive { seat })
    }

    /// Calls the removal of a drive off.
    ///
    /// # Errors
    /// As [`Pool::keep_drive`].
    pub fn keep_drive(&self, seat: Seat) -> Result<(), PoolError> {
        self.admin(Admin::KeepDrive { seat })
    }

    /// What the removal of a drive of the layout would do.
    ///
    /// # Errors
    /// As [`Pool::plan_removal`].
    pub fn plan_removal(&self, seat: Seat) -> Result<RemovalPlan, PoolError> {
        let (to, planned) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::PlanRemoval(seat, to))
            .map_err(|_| PoolError::Closing)?;
        planned.recv().unwrap_or(Err(PoolError::Closing))
    }

    /// Forgets the errors counted against a drive.
    ///
    /// # Errors
    /// As [`Pool::clear_drive`].
    pub fn clear_drive(&self, seat: Seat) -> Result<(), PoolError> {
        self.admin(Admin::ClearDrive { seat })
    }

    /// Takes a drive out.
    ///
    /// # Errors
    /// As [`Pool::fail_drive`].
    pub fn fail_drive(&self, seat: Seat, reason: OutReason, force: bool) -> Result<(), PoolError> {
        self.admin(Admin::FailDrive {
            seat,
            reason,
            force,
        })
    }

    /// Puts a drive into a seat whose drive is out, or (`None`) returns that drive.
    ///
    /// # Errors
    /// As [`Pool::insert_drive`].
    pub fn insert_drive(&self, seat: Seat, drive: Option<Drive>) -> Result<(), PoolError> {
        match drive {
            Some(drive) => Self::insist(|| {
                let drive = drive.clone();
                self.admin(Admin::InsertDrive { seat, drive })
            }),
            None => self.return_drive(seat, None),
        }
    }

    /// Tries again while the drive that leaves the seat is still busy or still going out.
    fn insist(mut attempt: impl FnMut() -> Result<(), PoolError>) -> Result<(), PoolError> {
        let began = std::time::Instant::now();
        loop {
            let outcome = attempt();
            let again = matches!(
                outcome,
                Err(PoolError::StillBusy { .. } | PoolError::GoingOut { .. })
            );
            if !again || began.elapsed() > STILL_BUSY_MAX {
                return outcome;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the drive that left a seat: the one that is still attached there, or `drive`, as it was found again.
    /// Data on it that is still valid is not copied again.
    ///
    /// # Errors
    /// As [`Pool::return_drive`].
    pub fn return_drive(&self, seat: Seat, drive: Option<Drive>) -> Result<(), PoolError> {
        let drive = match drive {
            Some(drive) => drive,
            None => self.drive(seat)?,
        };
        Self::insist(|| {
            // Here and not on the pool's thread: reading from a drive that has just returned may take a while.
            let proof = proof(&drive).map(Box::new);
            self.admin(Admin::ReturnDrive {
                seat,
                drive: drive.clone(),
                proof,
            })
        })
    }

    /// The pool's identity, and the drives that it lists with the identities by which one is told from another.
    ///
    /// # Errors
    /// [`PoolError::Closing`] when the pool has stopped.
    pub fn members(&self) -> Result<(Uuid, Vec<Member>), PoolError> {
        let (to, members) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::Members(to))
            .map_err(|_| PoolError::Closing)?;
        members.recv().map_err(|_| PoolError::Closing)
    }

    /// The drive that is attached to a seat.
    ///
    /// # Errors
    /// [`PoolError::NoSeat`] if none is.
    pub fn drive(&self, seat: Seat) -> Result<Drive, PoolError> {
        let (to, drive) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::Drive(seat, to))
            .map_err(|_| PoolError::Closing)?;
        drive.recv().unwrap_or(Err(PoolError::Closing))
    }

    /// Adds a drive that waits for a seat.
    ///
    /// # Errors
    /// As [`Pool::add_spare`].
    pub fn add_spare(&self, drive: Drive) -> Result<(), PoolError> {
        self.admin(Admin::AddSpare { drive })
    }

    /// Takes fresh drives and waiting spares, by their numbers, into the layout of a pool of pieces. Ends when the drives
    /// have their seats; the copy needs no further command.
    ///
    /// # Errors
    /// As [`Pool::expand`].
    pub fn expand(&self, drives: Vec<Drive>, waiting: Vec<Seat>) -> Result<(), PoolError> {
        self.admin(Admin::Expand { drives, waiting })
    }

    /// What an expansion would do.
    ///
    /// # Errors
    /// As [`Pool::check_expand`].
    pub fn plan_expand(
        &self,
        drives: &[Drive],
        waiting: Vec<Seat>,
    ) -> Result<ExpandPlan, PoolError> {
        let drives = drives.iter().map(new_drive).collect();
        let (to, planned) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::PlanExpand(drives, waiting, to))
            .map_err(|_| PoolError::Closing)?;
        planned.recv().unwrap_or(Err(PoolError::Closing))
    }

    /// Waiting spares take the seats of missing drives after this time, unless these come back.
    pub fn use_spares_after(&self, wait: Duration) {
        // A pool that has stopped uses no spares.
        self.pool.send(PoolMessage::UseSpares(wait)).ok();
    }

    /// Replaces a working drive, which stays in use until the new one is complete.
    ///
    /// # Errors
    /// As [`Pool::replace_drive`].
    pub fn replace_drive(&self, seat: Seat, drive: Drive) -> Result<(), PoolError> {
        self.admin(Admin::ReplaceDrive { seat, drive })
    }

    /// Pauses the rebuild, or resumes it.
    ///
    /// # Errors
    /// [`PoolError::Closing`] when the pool has stopped.
    pub fn pause_rebuild(&self, paused: bool) -> Result<(), PoolError> {
        self.admin(Admin::PauseRebuild { paused })
    }

    /// Sets the priority, the rate or the pause of rebuild and scrub, for good.
    ///
    /// # Errors
    /// As [`Pool::steer`].
    pub fn steer(&self, change: Steering) -> Result<(), PoolError> {
        self.admin(Admin::Steer(change))
    }

    /// Begins a scrub; with `wait`, returns when it has ended.
    ///
    /// # Errors
    /// As [`Pool::scrub`].
    pub fn scrub(&self, wait: bool) -> Result<(), PoolError> {
        let (answer, outcome) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::Admin(Box::new(Admin::Scrub), answer))
            .map_err(|_| PoolError::Closing)?;
        if wait {
            return outcome.recv().unwrap_or(Err(PoolError::Closing));
        }
        // A pool that cannot be scrubbed answers at once; else the answer comes when the scrub has ended.
        match outcome.recv_timeout(Duration::from_millis(50)) {
            Ok(outcome) => outcome,
            Err(_) => Ok(()),
        }
    }

    /// Plans a scrub every `every_days` days; 0: none.
    ///
    /// # Errors
    /// As [`Pool::plan_scrub`].
    pub fn plan_scrub(&self, every_days: u32) -> Result<(), PoolError> {
        self.admin(Admin::PlanScrub { every_days })
    }

    /// Sets the percentage of stripes of an elastic pool that should be copies; `None`: as many as there is space for.
    ///
    /// # Errors
    /// As [`Pool::set_elastic_share`].
    pub fn set_elastic_share(&self, share: Option<u8>) -> Result<(), PoolError> {
        self.admin(Admin::ElasticShare { share })
    }

    /// Pauses the scrub, or resumes it.
    ///
    /// # Errors
    /// [`PoolError::Closing`] when the pool has stopped.
    pub fn pause_scrub(&self, paused: bool) -> Result<(), PoolError> {
        self.admin(Admin::PauseScrub { paused })
    }

    /// The state of the pool.
    ///
    /// # Errors
    /// [`PoolError::Closing`] when it has stopped.
    pub fn status(&self) -> Result<PoolStatus, PoolError> {
        let (to, status) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::Status(to))
            .map_err(|_| PoolError::Closing)?;
        status.recv().map_err(|_| PoolError::Closing)
    }

    /// The traffic of drives and volumes.
    ///
    /// # Errors
    /// [`PoolError::Closing`] when the pool has stopped.
    pub fn traffic(&self) -> Result<PoolTraffic, PoolError> {
        let (to, traffic) = std::sync::mpsc::channel();
        self.pool
            .send(PoolMessage::Traffic(to))
            .map_err(|_| PoolError::Closing)?;
        traffic.recv().map_err(|_| PoolError::Closing)
    }

    /// Numbers the pool's events as those that follow the one with number `last`. Call it once, before
    /// [`listen`](Self::listen).
    pub fn number_events_after(&self, last: u64) {
        // A pool that has stopped has no more events.
        self.pool.send(PoolMessage::NumberAfter(last)).ok();
    }

    /// Waits until nothing is being filled or resynced; false if that took longer than `timeout`.
    #[must_use]
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let (to, quiet) = std::sync::mpsc::channel();
        self.pool.send(PoolMessage::WaitIdle(to)).is_ok() && quiet.recv_timeout(timeout).is_ok()
    }

    /// Calls `listener` with everything that the pool logs, from its opening on.
    pub fn listen(&self, listener: Listener) {
        // A pool that has stopped has no more events.
        self.pool.send(PoolMessage::Listen(listener)).ok();
    }

    /// The inputs and outputs of a lane since the last call (see [`RunOptions::record`]).
    #[must_use]
    pub fn take_records(&self, lane: u16) -> Vec<Record> {
        let (to, records) = std::sync::mpsc::channel();
        let Some(sender) = self.lanes.get(usize::from(lane)) else {
            return Vec::new();
        };
        sender.send(LaneMessage::Records { lane, to });
        records.recv().unwrap_or_default()
    }

    /// Closes the pool: refuses new requests, waits for those in flight, flushes everything, and marks the labels as
    /// clean.
    ///
    /// # Errors
    /// When a drive fails meanwhile; the pool is stopped all the same.
    pub fn close(self) -> Result<(), PoolError> {
        let volumes = self.volumes();
        for volume in &volumes {
            volume.close();
        }
        while volumes.iter().any(|volume| volume.in_flight() > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let outcome = self.flush().and_then(|()| self.admin(Admin::Close));
        self.stop();
        if outcome.is_ok() {
            let drives = self.in_use.lock().expect("no holder of the lock panics");
            LeaseKeeper::release(self.reservation, &drives);
        }
        outcome
    }

    /// Flushes every lane.
    fn flush(&self) -> Result<(), PoolError> {
        use array::{GroupRequest, VolumeId};
        use block::{Memory, Outcome, Request, RequestKind};

        struct Ended(Mutex<Sender<Outcome>>);
        impl lane::PartEnded for Ended {
            fn part_ended(&self, outcome: Outcome) -> Option<lane::Answer> {
                let sender = self.0.lock().expect("no holder of the lock panics");
                sender.send(outcome).unwrap_or_default();
                None
            }
        }
        let (to, ended) = std::sync::mpsc::channel();
        let to: Arc<dyn lane::PartEnded> = Arc::new(Ended(Mutex::new(to)));
        for lane in &*self.lanes {
            let request = Request {
                kind: RequestKind::Flush,
                offset: 0,
                length: 0,
                fua: false,
            };
            lane.send(LaneMessage::Request {
                lane: lane.lane(),
                request: GroupRequest {
                    group: GroupId(0),
                    request,
                    buffer_offset: 0,
                    volume: VolumeId::NONE,
                },
                memory: Memory::empty(),
                to: Arc::clone(&to),
            });
        }
        drop(to);
        while let Ok(outcome) = ended.recv() {
            outcome.map_err(|fault| PoolError::Fault { fault })?;
        }
        Ok(())
    }

    fn stop(&self) {
        for lane in &*self.lanes {
            lane.send(LaneMessage::Stop);
        }
        self.pool.send(PoolMessage::Stop).unwrap_or_default();
        let mut threads = self.threads.lock().expect("no holder of the lock panics");
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the pool had panicked");
            }
        }
        self.lease.stop();
        self.sampler.stop();
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why a pool does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No thread.
    #[error("no thread could be started: {0}")]
    Thread(#[from] std::io::Error),
    /// Creating or opening it failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
    /// It stopped before it was open.
    #[error("the pool stopped before it was open")]
    Stopped,
}

impl Hint for StartError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Pool(error) => error.hint(),
            Self::Thread(_) | Self::Stopped => Some("look into the daemon's log".into()),
        }
    }
}
