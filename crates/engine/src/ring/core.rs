//! One ring: its requests in the kernel, and its turn.
//!
//! Soundness: the kernel reads and writes memory, unseen by the compiler, from the moment an entry is submitted until
//! its completion is reaped. So each request in the kernel owns in `slots` a clone of its memory, the list of its
//! ranges if it has several, and a use of its file. Only the completion removes a request from `slots`. Dropping the
//! ring waits for all requests, and leaks those that do not end in time; leaking the ring leaks all of them.
//!
//! Fencing (`docs/design/fencing.md`): the ring asks for permission at each entry into the kernel, not when a write
//! is queued: once per entry if all requests are of one submitter ([`Ring::guard`]), else once per write. Writes
//! carry `RWF_NOWAIT`. Without the flag a write could wait in the kernel's own threads, and stopping the process
//! would stop it there in the middle. With the flag such a write returns, and goes to the drive's threads, which ask
//! for permission before each call.

#![expect(unsafe_code, reason = "submission entries carry raw addresses")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use block::{Completed, Fault, Memory, Permission, Region, Request, RequestKind};
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;

use super::in_kernel::{Answer, InKernel};
use super::probe::support;
use super::regions::Regions;
use super::target::{Submission, Use, announce, closed_count, retire};
use super::waker::Waker;
use crate::drive::{AGAIN_MAX, ASK_AGAIN, Ticket, check, gather};

/// The token of the waker's poll; slots are numbered from 0.
const WAKER: u64 = u64::MAX;
/// The token of cancellations; their own completions are ignored.
const CANCEL: u64 = u64::MAX - 1;
/// Files that one ring can have registered; further files are used by their descriptor.
const FILES_MAX: usize = 1024;
/// How long dropping a ring waits for the kernel: requests to a drive that hangs may never end.
const DROP_WAIT_MAX: Duration = Duration::from_secs(5);

/// One target may have `depth / SHARE` of a ring's requests in the kernel: a drive that hangs must not block all
/// others.
const SHARE: usize = 4;

/// The ring's state of one target.
struct Attachment {
    target: Use,
    registered: bool,
    in_kernel: usize,
    /// Flushes that arrived while one was in the kernel: the next one serves them all.
    flushes: Vec<Ticket>,
    flushing: bool,
    /// Requests that arrived while the target had its whole share in the kernel.
    waiting: VecDeque<Submission>,
    /// The kernel has been asked to cancel the target's requests.
    cancelled: bool,
}

/// One io_uring with all its requests. Used by one thread.
pub(super) struct Ring {
    uring: IoUring,
    depth: usize,
    slots: Vec<Option<InKernel>>,
    free: Vec<usize>,
    /// Slots whose entry must be submitted (again).
    to_submit: VecDeque<usize>,
    /// Submissions that arrived when all slots were taken.
    waiting: VecDeque<Submission>,
    attachments: Vec<Option<Attachment>>,
    /// Target id → attachment.
    attachment_of: Vec<Option<u32>>,
    /// A flush found no free slot.
    flush_starved: bool,
    /// A request that waited for its target's share found no free slot.
    share_starved: bool,
    closed_seen: u64,
    /// A closed target still has requests in the kernel.
    detaching: bool,
    registers_files: bool,
    /// Registered memory. Declared after `uring`, and so dropped after it.
    regions: Regions,
    /// Decides whether requests of this ring may begin.
    guard: Option<Arc<dyn Completed>>,
    /// The kernel has left entries in the submission queue.
    left_over: bool,
    /// A request may not begin yet.
    withheld: bool,
    waker: Arc<Waker>,
    waker_armed: bool,
    reaped: Vec<(u64, i32)>,
}

impl Ring {
    /// A ring for `depth` requests in the kernel at once, owned by the calling thread.
    pub(super) fn new(depth: u32) -> io::Result<Self> {
        let level = support()
            .as_ref()
            .map_err(|reason| io::Error::other(reason.clone()))?;
        let depth = depth.clamp(1, 4096).next_power_of_two();
        // One entry more than requests, for the waker; the completion queue is twice as long, so
        // it cannot overflow.
        let uring = level.builder().build(depth + 1)?;
        let files = u32::try_from(FILES_MAX).unwrap_or(0);
        let registers_files = uring.submitter().register_files_sparse(files).is_ok();
        let waker = Arc::new(Waker::new()?);
        announce(&waker);
        let depth = depth as usize;
        Ok(Self {
            uring,
            depth,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            to_submit: VecDeque::with_capacity(depth),
            waiting: VecDeque::new(),
            attachments: Vec::new(),
            attachment_of: Vec::new(),
            flush_starved: false,
            share_starved: false,
            closed_seen: closed_count(),
            detaching: false,
            registers_files,
            regions: Regions::default(),
            guard: None,
            left_over: false,
            withheld: false,
            waker,
            waker_armed: false,
            reaped: Vec::with_capacity(2 * depth),
        })
    }

    pub(super) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// See [`super::LocalRing::guard`].
    pub(super) fn guard(&mut self, guard: Arc<dyn Completed>) {
        self.guard = Some(guard);
    }

    /// See [`super::LocalRing::register`].
    pub(super) fn register_region(&mut self, region: &Region) -> io::Result<()> {
        self.regions.register(&self.uring, region)
    }

    /// Takes a submission; the next turn hands it to the kernel. Answers an invalid or empty request at once.
    pub(super) fn push(&mut self, submission: Submission) {
        if self.free.is_empty() || !self.waiting.is_empty() {
            self.waiting.push_back(submission);
        } else {
            self.start(submission);
        }
    }

    /// Gives a submission a slot. There must be a free one.
    fn start(&mut self, submission: Submission) {
        let Submission {
            target,
            request,
            memory,
            ticket,
        } = submission;
        let handle = target.handle();
        let refused = if target.is_closed() {
            Some(Err(Fault::Shutdown))
        } else {
            let checked = check(&handle.limits(), &request, &memory);
            match checked.and_then(|()| match request.kind {
                RequestKind::Flush => handle.flushable(),
                _ => Ok(()),
            }) {
                Ok(()) if request.kind != RequestKind::Flush && request.length == 0 => Some(Ok(())),
                Ok(()) => None,
                Err(fault) => Some(Err(fault)),
            }
        };
        if let Some(outcome) = refused {
            drop(memory);
            return ticket.complete(outcome);
        }
        let attachment = self.attach(&target);
        let share = (self.depth / SHARE).max(1);
        if request.kind != RequestKind::Flush
            && let Some(attachment) = &mut self.attachments[attachment]
            && attachment.in_kernel >= share
        {
            attachment.waiting.push_back(Submission {
                target,
                request,
                memory,
                ticket,
            });
            return;
        }
        if request.kind == RequestKind::Flush {
            if let Some(attachment) = &mut self.attachments[attachment] {
                attachment.flushes.push(ticket);
            }
            return self.start_flush(attachment);
        }
        let (memory, bounced) = if target.handle().takes(&memory) {
            (memory, None)
        } else if request.kind == RequestKind::Write {
            (gather(&memory), None)
        } else {
            (Memory::zeroed(memory.len()), Some(memory))
        };
        self.occupy(InKernel {
            target,
            attachment,
            request,
            memory,
            bounced,
            ranges: Vec::new(),
            done: 0,
            again: 0,
            answer: Answer::One(ticket),
        });
    }

    /// Begins one flush for all waiting flushes, unless one is in the kernel or no slot is free.
    fn start_flush(&mut self, index: usize) {
        let Some(attachment) = &mut self.attachments[index] else {
            return;
        };
        if attachment.flushing || attachment.flushes.is_empty() {
            return;
        }
        if self.free.is_empty() {
            self.flush_starved = true;
            return;
        }
        attachment.flushing = true;
        let flush = InKernel {
            target: attachment.target.another(),
            attachment: index,
            request: Request {
                kind: RequestKind::Flush,
                offset: 0,
                length: 0,
                fua: false,
            },
            memory: Memory::empty(),
            bounced: None,
            ranges: Vec::new(),
            done: 0,
            again: 0,
            answer: Answer::Flushes(std::mem::take(&mut attachment.flushes)),
        };
        self.occupy(flush);
    }

    fn occupy(&mut self, request: InKernel) {
        if let Some(attachment) = &mut self.attachments[request.attachment] {
            attachment.in_kernel += 1;
        }
        let slot = self.free.pop().expect("the caller saw a free slot");
        self.slots[slot] = Some(request);
        self.to_submit.push_back(slot);
    }

    /// The attachment of `target`, made and registered if it is new.
    fn attach(&mut self, target: &Use) -> usize {
        let id = target.id();
        if let Some(&Some(index)) = self.attachment_of.get(id) {
            return index as usize;
        }
        let index = self
            .attachments
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.attachments.push(None);
                self.attachments.len() - 1
            });
        let fd = target.handle().as_fd().as_raw_fd();
        let registered = self.registers_files && index < FILES_MAX && self.register(index, fd);
        self.attachments[index] = Some(Attachment {
            target: target.another(),
            registered,
            in_kernel: 0,
            flushes: Vec::new(),
            flushing: false,
            waiting: VecDeque::new(),
            cancelled: false,
        });
        if self.attachment_of.len() <= id {
            self.attachment_of.resize(id + 1, None);
        }
        self.attachment_of[id] = u32::try_from(index).ok();
        index
    }

    fn register(&self, index: usize, fd: RawFd) -> bool {
        let Ok(offset) = u32::try_from(index) else {
            return false;
        };
        self.uring
            .submitter()
            .register_files_update(offset, &[fd])
            .is_ok()
    }

    /// Drops closed targets that have no requests in the kernel.
    fn detach_closed(&mut self) {
        let count = closed_count();
        if count == self.closed_seen && !self.detaching {
            return;
        }
        self.closed_seen = count;
        self.detaching = false;
        for index in 0..self.attachments.len() {
            let Some(attachment) = &mut self.attachments[index] else {
                continue;
            };
            if !attachment.target.is_closed() {
                continue;
            }
            for ticket in attachment.flushes.drain(..) {
                ticket.complete(Err(Fault::Shutdown));
            }
            for submission in attachment.waiting.drain(..) {
                submission.refuse();
            }
            if attachment.in_kernel > 0 {
                // The completions of its requests end the wait, and the next turn checks again.
                self.detaching = true;
                if !std::mem::replace(&mut attachment.cancelled, true) {
                    self.cancel(Some(index));
                }
                continue;
            }
            let (id, registered) = (attachment.target.id(), attachment.registered);
            if registered {
                self.register(index, -1);
            }
            self.attachment_of[id] = None;
            self.attachments[index] = None;
        }
    }

    /// Asks the kernel to cancel the requests of an attachment, or all. The kernel cancels requests that have not
    /// begun, and not those that a drive has.
    fn cancel(&mut self, attachment: Option<usize>) {
        for (slot, request) in (0_u64..).zip(&self.slots) {
            let Some(request) = request else { continue };
            if attachment.is_some_and(|index| index != request.attachment) {
                continue;
            }
            let entry = opcode::AsyncCancel::new(slot).build().user_data(CANCEL);
            // SAFETY: a cancellation touches no memory.
            if unsafe { self.uring.submission().push(&entry) }.is_err() {
                // The queue is full. Requests that are not cancelled are waited for.
                break;
            }
        }
    }

    /// See [`super::LocalRing::turn`].
    pub(super) fn turn(
        &mut self,
        wait: Option<Duration>,
        pending: impl FnOnce() -> bool,
    ) -> io::Result<usize> {
        self.detach_closed();
        let may_wait = wait != Some(Duration::ZERO) && self.uring.completion().is_empty();
        if may_wait {
            let nothing_to_await = self.free.len() == self.depth;
            if nothing_to_await {
                self.regions.forget_unused(&self.uring);
            }
            self.waker.fall_asleep(nothing_to_await);
            let entered = if pending() || closed_count() != self.closed_seen {
                self.enter(Some(Duration::ZERO))
            } else if nothing_to_await {
                match wait {
                    Some(wait) => thread::park_timeout(wait),
                    None => thread::park(),
                }
                Ok(())
            } else {
                self.arm_waker();
                self.enter(wait)
            };
            self.waker.awake();
            entered?;
        } else {
            self.enter(Some(Duration::ZERO))?;
        }
        let answered = self.reap();
        if std::mem::take(&mut self.flush_starved) {
            for index in 0..self.attachments.len() {
                self.start_flush(index);
            }
        }
        if std::mem::take(&mut self.share_starved) {
            self.start_shares();
        }
        while !self.free.is_empty() {
            match self.waiting.pop_front() {
                Some(submission) => self.start(submission),
                None => break,
            }
        }
        Ok(answered)
    }

    /// See [`super::LocalRing::submit`].
    pub(super) fn submit(&mut self) -> io::Result<()> {
        if self.to_submit.is_empty() && self.uring.submission().is_empty() {
            return Ok(());
        }
        self.enter(Some(Duration::ZERO))
    }

    /// Starts requests that wait for their target's share, as far as slots are free.
    fn start_shares(&mut self) {
        let share = (self.depth / SHARE).max(1);
        for index in 0..self.attachments.len() {
            while let Some(attachment) = &mut self.attachments[index]
                && attachment.in_kernel < share
                && !attachment.waiting.is_empty()
            {
                if self.free.is_empty() {
                    self.share_starved = true;
                    return;
                }
                let next = attachment.waiting.pop_front();
                self.start(next.expect("just seen"));
            }
        }
    }

    /// Whether requests of a guarded ring may begin.
    fn permission(&self) -> Permission {
        let guard = self.guard.as_ref();
        guard.map_or(Permission::Granted, |guard| guard.permission())
    }

    /// Puts entries into the submission queue as far as there is room and they may begin.
    fn fill(&mut self) {
        let waiting = self.to_submit.len();
        for _ in 0..waiting {
            let Some(slot) = self.to_submit.pop_front() else {
                return;
            };
            if self.guard.is_none()
                && let Some(request) = &self.slots[slot]
                && request.permission() != Permission::Granted
            {
                self.withheld = true;
                self.to_submit.push_back(slot);
                continue;
            }
            let Some(entry) = self.entry(slot) else {
                continue;
            };
            // SAFETY: the slot keeps the entry's memory and file alive until it is reaped (the
            // module's rule).
            let pushed = unsafe { self.uring.submission().push(&entry) };
            if pushed.is_err() {
                self.to_submit.push_front(slot);
                return;
            }
        }
    }

    /// The entry for the rest of a slot's request.
    fn entry(&mut self, slot: usize) -> Option<squeue::Entry> {
        let request = self.slots[slot].as_mut()?;
        let attachment = self.attachments[request.attachment].as_ref()?;
        let fixed = attachment
            .registered
            .then(|| u32::try_from(request.attachment).ok())
            .flatten();
        let fd = Fd(request.target.handle().as_fd().as_raw_fd());
        // Both kinds of file are used in the same way, but have no common type.
        macro_rules! on_file {
            ($op:ident($($argument:expr),*) $(.$set:ident($value:expr))*) => {
                match fixed {
                    Some(index) => opcode::$op::new(Fixed(index), $($argument),*)$(.$set($value))*.build(),
                    None => opcode::$op::new(fd, $($argument),*)$(.$set($value))*.build(),
                }
            };
        }
        let entry = match request.request.kind {
            RequestKind::Read | RequestKind::Write => {
                let at = request.request.offset + request.done as u64;
                let write = request.request.kind == RequestKind::Write;
                let durable = write && request.request.fua;
                let mut flags = if durable { libc::RWF_DSYNC } else { 0 };
                if request.target.backlog().is_some() {
                    flags |= libc::RWF_NOWAIT;
                }
                if request.memory.parts().len() > 1 {
                    let count = request.list_ranges();
                    let ranges = request.ranges.as_ptr();
                    let entry = match write {
                        false => on_file!(Readv(ranges, count).offset(at)),
                        true => on_file!(Writev(ranges, count).offset(at).rw_flags(flags)),
                    };
                    return Some(entry.user_data(slot as u64));
                }
                let rest = request.memory.len() - request.done;
                let length = u32::try_from(rest).ok()?;
                // Inside the memory, as `done` is less than its length.
                let buffer = request.memory.as_ptr().wrapping_add(request.done);
                let index = self.regions.index_of(buffer as usize, rest);
                match (write, index) {
                    (false, None) => on_file!(Read(buffer, length).offset(at)),
                    (false, Some(index)) => on_file!(ReadFixed(buffer, length, index).offset(at)),
                    (true, None) => on_file!(Write(buffer, length).offset(at).rw_flags(flags)),
                    (true, Some(index)) => {
                        on_file!(WriteFixed(buffer, length, index).offset(at).rw_flags(flags))
                    }
                }
            }
            RequestKind::Flush
            | RequestKind::Trim
            | RequestKind::Discard
            | RequestKind::WriteZeroes => {
                on_file!(Fsync().flags(FsyncFlags::DATASYNC))
            }
        };
        Some(entry.user_data(slot as u64))
    }

    fn arm_waker(&mut self) {
        if self.waker_armed {
            return;
        }
        let fd = Fd(self.waker.fd());
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(fd, events).build().user_data(WAKER);
        // SAFETY: a poll touches no memory, and `waker` outlives the ring.
        self.waker_armed = unsafe { self.uring.submission().push(&entry) }.is_ok();
    }

    /// Submits the entries of the submission queue, and waits for at most `wait`.
    fn enter(&mut self, wait: Option<Duration>) -> io::Result<()> {
        self.withheld = false;
        let asks = !self.to_submit.is_empty() || self.left_over;
        if !asks || self.permission() == Permission::Granted {
            self.fill();
        } else {
            self.withheld = true;
            if self.left_over {
                // The next entry into the kernel would submit the entries that are left over.
                thread::sleep(wait.unwrap_or(ASK_AGAIN).min(ASK_AGAIN));
                return Ok(());
            }
        }
        let wait = if self.withheld {
            Some(wait.unwrap_or(ASK_AGAIN).min(ASK_AGAIN))
        } else {
            wait
        };
        let entered = self.enter_kernel(wait);
        self.left_over = !self.uring.submission().is_empty();
        entered
    }

    fn enter_kernel(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let (idle, taskrun) = {
            let submission = self.uring.submission();
            (submission.is_empty(), submission.taskrun())
        };
        let submitter = self.uring.submitter();
        let entered = match wait {
            Some(Duration::ZERO) if idle && !taskrun => return Ok(()),
            Some(Duration::ZERO) => submitter.submit_and_wait(0),
            Some(wait) => {
                let timeout = Timespec::from(wait);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
            None => submitter.submit_and_wait(1),
        };
        match entered {
            Ok(_) => Ok(()),
            // The time is up, or a signal arrived; in the next arm, completions must be reaped first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                thread::yield_now();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Answers the requests that have ended; returns their number.
    fn reap(&mut self) -> usize {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(
            self.uring
                .completion()
                .map(|entry| (entry.user_data(), entry.result())),
        );
        let mut answered = 0;
        for (token, result) in reaped.drain(..) {
            if token == WAKER {
                self.waker_armed = false;
                self.waker.take();
            } else if token == CANCEL {
            } else if let Ok(slot) = usize::try_from(token) {
                answered += usize::from(self.ended(slot, result));
            }
        }
        self.reaped = reaped;
        answered
    }

    /// The kernel is done with a slot's entry; returns whether its request has been answered.
    fn ended(&mut self, slot: usize, result: i32) -> bool {
        let Some(request) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
            return false;
        };
        let handle = request.target.handle();
        let end = request.request.offset + request.request.length;
        let flush = request.request.kind == RequestKind::Flush;
        let mut hands_over = false;
        let outcome = match usize::try_from(result) {
            Ok(_) if flush => handle.flushed(Ok(())),
            // The end of the file or device: it has shrunk since the drive was opened.
            Ok(0) => Err(Fault::Gone),
            Ok(count) => {
                request.done += count;
                request.again = 0;
                if request.done < request.memory.len() {
                    self.to_submit.push_back(slot);
                    return false;
                }
                Ok(())
            }
            Err(_) => {
                let errno = Errno::from_raw_os_error(result.saturating_neg());
                let write = request.request.kind == RequestKind::Write;
                let would_wait = matches!(errno, Errno::AGAIN | Errno::OPNOTSUPP);
                hands_over = write && would_wait && request.target.backlog().is_some();
                if hands_over && errno == Errno::OPNOTSUPP {
                    handle.refuses_nowait();
                }
                let passing = !hands_over && matches!(errno, Errno::INTR | Errno::AGAIN);
                if passing && !flush && request.again < AGAIN_MAX {
                    request.again += 1;
                    self.to_submit.push_back(slot);
                    return false;
                }
                match errno {
                    // Cancelled because the drive or the ring is being closed.
                    Errno::CANCELED => Err(Fault::Shutdown),
                    errno if flush => handle.flushed(Err(errno)),
                    errno => Err(handle.fault(errno, end, write)),
                }
            }
        };
        let Some(request) = self.slots[slot].take() else {
            return false;
        };
        self.free.push(slot);
        let index = request.attachment;
        if let Some(attachment) = &mut self.attachments[index] {
            attachment.in_kernel -= 1;
            attachment.flushing &= !flush;
        }
        if hands_over {
            request.hand_over();
        } else {
            request.end(outcome);
        }
        if flush {
            self.start_flush(index);
        }
        if let Some(attachment) = &mut self.attachments[index]
            && let Some(next) = attachment.waiting.pop_front()
        {
            // The slot that has just become free is for this request, unless the flush took it.
            if self.free.is_empty() {
                attachment.waiting.push_front(next);
                self.share_starved = true;
            } else {
                self.start(next);
            }
        }
        !hands_over
    }
}

impl Drop for Ring {
    /// Waits for the kernel: it may still write to memory that the slots keep alive.
    fn drop(&mut self) {
        self.waiting.drain(..).for_each(Submission::refuse);
        for attachment in self.attachments.iter_mut().flatten() {
            attachment.waiting.drain(..).for_each(Submission::refuse);
        }
        let began = Instant::now();
        let revoked = self.permission() == Permission::Revoked;
        let mut cancelled = false;
        loop {
            // Requests that the kernel does not have, or has returned half done, end here: dropping a ticket answers
            // that the drive is shutting down.
            for slot in std::mem::take(&mut self.to_submit) {
                self.slots[slot] = None;
                self.free.push(slot);
            }
            for attachment in self.attachments.iter_mut().flatten() {
                attachment.flushes.clear();
            }
            if self.free.len() == self.depth {
                break;
            }
            let waited = began.elapsed();
            if waited >= DROP_WAIT_MAX {
                // A drive hangs, or the kernel no longer reports completions: never free memory that the kernel may
                // use.
                for request in std::mem::take(&mut self.slots).into_iter().flatten() {
                    request.forget();
                }
                break;
            }
            let cancels = revoked || waited >= DROP_WAIT_MAX / 2;
            if cancels && !std::mem::replace(&mut cancelled, true) {
                self.cancel(None);
            }
            if self.enter(Some(Duration::from_millis(100))).is_err() {
                thread::sleep(Duration::from_millis(10));
            }
            self.reap();
        }
        // Closing the ring would unregister the files, too, but some time later, and release their locks only then.
        let _ = self.uring.submitter().unregister_files();
        self.attachments.clear();
        retire();
    }
}
