//! The lease on a pool, and how it is renewed: `docs/design/fencing.md`.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use array::format::{Generation, HEARTBEAT_OFFSET, HOLDER_OFFSET, Holder, PAGE_BYTES, usurper};
use block::{BlockDevice, Completed, Memory, Outcome, Permission, Request, RequestKind};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use uuid::Uuid;

use super::Seats;
use super::pool::PoolMessage;
use crate::drive::Drive;
use crate::ring;

/// How long the lease lasts after a renewal. A guess: long enough that a busy
/// machine never waits for a renewal, short enough that a takeover does not take minutes.
const PERIOD: Duration = Duration::from_secs(10);
/// A renewal that no drive has answered is tried again after this.
const AGAIN: Duration = Duration::from_millis(200);

/// Time that also passes while the machine sleeps.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// The identity of this boot; a random one, equal to no other, where the kernel does not report it.
fn boot() -> Uuid {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_else(Uuid::new_v4)
}

/// Until when this process may work on the pool.
#[derive(Debug)]
pub(crate) struct Lease {
    until_nanos: AtomicU64,
    lost: AtomicBool,
    /// Sends requests for an immediate renewal.
    wanted: Mutex<Sender<Wanted>>,
    /// When `permission` may request the next renewal.
    wanted_again_nanos: AtomicU64,
    changed: Condvar,
}

enum Wanted {
    Renewal,
    Stop,
}

impl Lease {
    /// Whether operations and answers may go out now; waits for a renewal where that is not known. False when the
    /// pool has been taken over.
    pub(crate) fn may_go_on(&self) -> bool {
        let good = || {
            let now = u64::try_from(now().as_nanos()).unwrap_or(u64::MAX);
            now < self.until_nanos.load(Ordering::Acquire)
        };
        if self.is_lost() {
            return false;
        }
        if good() {
            return true;
        }
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.is_lost() {
                return false;
            }
            if good() {
                return true;
            }
            // The renewing thread has ended: it has lost the lease or has been stopped.
            if wanted.send(Wanted::Renewal).is_err() {
                return false;
            }
            wanted = self
                .changed
                .wait_timeout(wanted, AGAIN)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Whether an operation may begin now, without waiting: drives ask before each entry into the kernel. Requests a
    /// renewal where that is not known, at most once per `AGAIN`.
    pub(crate) fn permission(&self) -> Permission {
        if self.is_lost() {
            return Permission::Revoked;
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = now();
        if nanos(now) < self.until_nanos.load(Ordering::Acquire) {
            return Permission::Granted;
        }
        if nanos(now) >= self.wanted_again_nanos.load(Ordering::Relaxed) {
            let again = nanos(now + AGAIN);
            self.wanted_again_nanos.store(again, Ordering::Relaxed);
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            // The renewing thread has ended: it has lost the lease or has been stopped.
            if wanted.send(Wanted::Renewal).is_err() {
                return Permission::Revoked;
            }
        }
        Permission::Pending
    }

    /// Whether another opening has taken the pool over.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn extend(&self, until: Duration) {
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until_nanos.store(nanos, Ordering::Release);
        self.changed.notify_all();
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

/// The drives in use, shared with the thread that renews the lease.
pub(crate) type InUse = Arc<Mutex<Vec<Drive>>>;

/// The drives in those seats for which `takes_part` is true.
pub(crate) fn in_use(seats: &Seats, takes_part: impl Fn(block::Seat) -> bool) -> Vec<Drive> {
    seats
        .iter()
        .filter(|&(seat, _)| takes_part(seat))
        .map(|(_, drive)| drive.clone())
        .collect()
}

/// A reservation of a pool, on all of its drives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation(Holder);

/// Another host is at work on the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldElsewhere;

/// A new opening of a pool. It gives the pool's facts this generation.
fn opening(pool: Uuid, generation: Generation) -> Holder {
    Holder {
        pool,
        opening: Uuid::new_v4(),
        boot: boot(),
        heartbeat: 1,
        period_ms: u64::try_from(PERIOD.as_millis()).unwrap_or(u64::MAX),
        number: Some(generation),
    }
}

/// Reserves a pool that is to be opened on these drives. `generation` is the one that this opening makes.
pub(crate) fn reserve(
    pool: Uuid,
    generation: Generation,
    drives: &[Drive],
) -> Result<Reservation, HeldElsewhere> {
    let own = opening(pool, generation);
    let mut heartbeats = read_all(pool, drives, HEARTBEAT_OFFSET);
    let alive = heartbeats
        .iter()
        .flatten()
        .flatten()
        .filter(|heartbeat| heartbeat.may_be_alive(own.boot) || is_at_work_here(heartbeat));
    if let Some(period_ms) = alive.map(|heartbeat| heartbeat.period_ms).max() {
        let wait = Duration::from_millis(period_ms.saturating_mul(2)).min(6 * PERIOD);
        tracing::info!(
            ?wait,
            "the pool was not closed: waiting for a sign of its holder"
        );
        std::thread::sleep(wait);
        let later = read_all(pool, drives, HEARTBEAT_OFFSET);
        if later != heartbeats {
            return Err(HeldElsewhere);
        }
        heartbeats = later;
    }
    write_all(drives, HOLDER_OFFSET, &own);
    if read_all(pool, drives, HEARTBEAT_OFFSET) != heartbeats {
        return Err(HeldElsewhere);
    }
    Ok(Reservation(own))
}

/// Takes the name by which other processes of this host see that an opening is at work: the drives' locks do not show
/// that where a drive has two names, as without multipath. The name is free again when the process has ended.
fn take_name(opening: Uuid) -> rustix::io::Result<OwnedFd> {
    let name = format!("ravelin-opening-{opening}");
    let name = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    rustix::net::bind(&socket, &name)?;
    Ok(socket)
}

/// Whether the opening that wrote this heartbeat is at work in a process of this host.
fn is_at_work_here(heartbeat: &Holder) -> bool {
    let taken = |error: Errno| error == Errno::ADDRINUSE;
    heartbeat.heartbeat > 0 && take_name(heartbeat.opening).is_err_and(taken)
}

/// A reservation of a new pool, whose drives are known to no other host.
pub(crate) fn reserve_new(pool: Uuid, generation: Generation) -> Reservation {
    Reservation(opening(pool, generation))
}

/// The thread that renews the lease.
pub(crate) struct LeaseKeeper {
    lease: Arc<Lease>,
    requests: Sender<Wanted>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The name of the opening, while it is at work.
    _name: Option<OwnedFd>,
}

impl LeaseKeeper {
    /// Begins to renew the lease; returns after the first renewal.
    pub(crate) fn start(
        reservation: Reservation,
        drives: InUse,
        pool: Sender<PoolMessage>,
    ) -> std::io::Result<Self> {
        let (requests, requested) = channel();
        let name = take_name(reservation.0.opening).ok();
        let lease = Arc::new(Lease {
            until_nanos: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            wanted: Mutex::new(requests.clone()),
            wanted_again_nanos: AtomicU64::new(0),
            changed: Condvar::new(),
        });
        let renewer = Renewer {
            own: reservation.0,
            drives,
            reserved: Vec::new(),
            lease: Arc::clone(&lease),
            pool,
        };
        let thread = std::thread::Builder::new()
            .name("holder".to_owned())
            .spawn(move || renewer.run(&requested))?;
        Ok(Self {
            lease,
            requests,
            thread: Mutex::new(Some(thread)),
            _name: name,
        })
    }

    pub(crate) const fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Ends the renewals.
    pub(crate) fn stop(&self) {
        self.requests.send(Wanted::Stop).unwrap_or_default();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the holder's thread had panicked");
        }
    }

    /// Records on the drives that the pool has been closed.
    pub(crate) fn release(reservation: Reservation, drives: &[Drive]) {
        let closed = Holder {
            heartbeat: 0,
            ..reservation.0
        };
        write_all(drives, HEARTBEAT_OFFSET, &closed);
    }
}

struct Renewer {
    own: Holder,
    drives: InUse,
    /// Drives that have our reservation. A drive that was added since does not have it. A drive that has left is
    /// dropped at once (hence the weak references).
    reserved: Vec<Weak<dyn BlockDevice>>,
    lease: Arc<Lease>,
    pool: Sender<PoolMessage>,
}

impl Renewer {
    fn run(mut self, requested: &Receiver<Wanted>) {
        loop {
            let begun = now();
            let renewed = self.renew();
            match renewed {
                Renewal::Usurped(by) => {
                    self.lease.lose();
                    // The pool's thread may have ended.
                    self.pool.send(PoolMessage::TakenOver(by)).ok();
                    return;
                }
                Renewal::Ours => self.lease.extend(begun + PERIOD),
                Renewal::Unanswered => {}
            }
            let wait = match renewed {
                Renewal::Ours => (PERIOD / 2).saturating_sub(now().saturating_sub(begun)),
                _ => AGAIN,
            };
            match requested.recv_timeout(wait) {
                Ok(Wanted::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Wanted::Renewal) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn renew(&mut self) -> Renewal {
        let drives = self
            .drives
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let known = |drive: &&Drive| {
            let own = Arc::downgrade(&drive.device);
            self.reserved.iter().any(|device| device.ptr_eq(&own))
        };
        let (old, new): (Vec<&Drive>, Vec<&Drive>) = drives.iter().partition(known);
        let new: Vec<Drive> = new.into_iter().cloned().collect();
        if !new.is_empty() && !old.is_empty() || self.reserved.is_empty() {
            write_all(&new, HOLDER_OFFSET, &self.own);
        }
        self.reserved = drives
            .iter()
            .map(|drive| Arc::downgrade(&drive.device))
            .collect();
        self.own.heartbeat += 1;
        write_all(&drives, HEARTBEAT_OFFSET, &self.own);
        let seen = read_all(self.own.pool, &drives, HOLDER_OFFSET);
        // A drive that answers with an error counts as an answer, and shows no other holder.
        if seen.iter().all(Option::is_none) {
            return Renewal::Unanswered;
        }
        let reservations: Vec<Holder> = seen.into_iter().flatten().flatten().collect();
        usurper(&self.own, &reservations).map_or(Renewal::Ours, |by| Renewal::Usurped(by.opening))
    }
}

#[derive(Clone, Copy)]
enum Renewal {
    Ours,
    Unanswered,
    Usurped(Uuid),
}

/// Collects the answers of several drives.
struct Answers(Mutex<Sender<(u64, Outcome)>>);

impl Completed for Answers {
    fn completed(&self, token: u64, outcome: Outcome) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The receiver does not wait for late answers.
        sender.send((token, outcome)).unwrap_or_default();
    }
}

/// Asks all drives at once, and waits for their answers for a quarter of a period.
fn ask(
    drives: &[Drive],
    kind: RequestKind,
    offset: u64,
    memories: &[Memory],
) -> Vec<Option<Outcome>> {
    let (to, answers) = channel();
    let to: Arc<dyn Completed> = Arc::new(Answers(Mutex::new(to)));
    for ((token, drive), memory) in (0..).zip(drives).zip(memories) {
        let request = Request {
            kind,
            offset,
            length: PAGE_BYTES,
            fua: false,
        };
        ring::elsewhere(|| drive.device.submit(request, memory.clone(), token, &to));
    }
    drop(to);
    let mut ends = vec![None; drives.len()];
    let limit = Instant::now() + PERIOD / 4;
    for _ in drives {
        let left = limit.saturating_duration_since(Instant::now());
        let Ok((token, outcome)) = answers.recv_timeout(left) else {
            break;
        };
        let index = usize::try_from(token).expect("an index");
        ends[index] = Some(outcome);
    }
    ends
}

fn write_all(drives: &[Drive], offset: u64, holder: &Holder) {
    let memories: Vec<Memory> = drives
        .iter()
        .map(|_| Memory::from_bytes(&holder.encode()))
        .collect();
    ask(drives, RequestKind::Write, offset, &memories);
}

/// The holders on the drives: `None` if a drive does not answer, `Some(None)` if it fails or has no such block.
fn read_all(pool: Uuid, drives: &[Drive], offset: u64) -> Vec<Option<Option<Holder>>> {
    let length = usize::try_from(PAGE_BYTES).expect("a page is small");
    let memories: Vec<Memory> = drives.iter().map(|_| Memory::zeroed(length)).collect();
    let ends = ask(drives, RequestKind::Read, offset, &memories);
    memories
        .into_iter()
        .zip(ends)
        .map(|(mut memory, end)| {
            // A drive that has not answered may still write to this memory.
            let good = end?.is_ok();
            let bytes = memory.unique().filter(|_| good);
            Some(bytes.and_then(|bytes| Holder::parse(pool, bytes)))
        })
        .collect()
}
