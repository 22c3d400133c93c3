//! A rotating disk.
//!
//! ```text
//!   time of an access  =  seek or switch  +  settling (writes)  +  rotation  +  transfer
//!
//!   seek        the arm moves to the cylinder: the seek curve
//!   switch      the next head, or the next cylinder in the course of a transfer
//!   rotation    until the first sector comes under the head; where that is follows from the time alone, for all
//!               platters turn at one speed from time 0 on
//!   transfer    the sectors pass; at the end of a track a switch, then again rotation, which the skew keeps short
//! ```
//!
//! One arm does one thing at a time, and operations wait in a queue ([`Order`](super::Order)). Around it is memory:
//!
//! - *Read-ahead.* An idle disk reads on behind the last read. How far it has come is computed from the time when the
//!   next operation arrives, so read-ahead costs no events.
//! - *Read cache.* A read of data that is in memory is answered without the arm, also while the arm is busy.
//! - *Write cache.* A write that fits is answered at once, and goes to the medium when no operation waits, or when the
//!   cache is full. A flush is answered when everything before it is on the medium.
//!
//! The command overhead passes before the arm moves, and is hidden if an operation waited longer than that.
//! (Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994.)

mod cache;
mod geometry;
mod seek;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use block::Instant;

pub use self::cache::DiskCacheOptions;
use self::cache::{Dirty, Segments};
pub use self::geometry::{DiskGeometry, SECTOR_BYTES, Track, Zone};
pub use self::seek::SeekCurve;
use self::seek::SeekTable;
use super::order::{QueueOptions, Waiting};
use super::server::transfer_ns;
use super::{IoKind, Model, Operation, Work};

/// A head that is late by up to half a sector is in time. Published switch times are rounded to a tenth of a
/// millisecond and skews are whole sectors, so the two need not agree to the nanosecond: on the 9LZX the switch takes
/// 0.8 ms, and the skew of 36 sectors that is to cover it 0.794. No disk is built to lose a turn at the end of every
/// track.
const LATE_SECTORS_PER_TWO: u64 = 1;

/// Maximum number of sectors that one visit to the medium writes from the write cache, about a track, so that a read
/// that has arrived meanwhile does not wait for the whole cache.
const DESTAGE_SECTORS: u64 = 512;

/// The parameters of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Time of a turn.
    pub revolution_ns: u64,
    /// Heads, which are the tracks of a cylinder.
    pub heads: u32,
    /// Cylinders and their sectors, from the outside.
    pub zones: Vec<Zone>,
    /// Time of a move of the arm.
    pub seek: SeekCurve,
    /// Time to switch from a track to another one of the cylinder.
    pub head_switch_ns: u64,
    /// Time to switch from a cylinder's last track to the next one's first.
    pub cylinder_switch_ns: u64,
    /// Additional settling time of a write after a move.
    pub write_settle_ns: u64,
    /// Time per command before the arm moves.
    pub overhead_ns: u64,
    /// Rate of the interface; 0 stands for no limit.
    pub interface_bytes_per_second: u64,
    /// Its memory.
    pub cache: DiskCacheOptions,
    /// Its queue.
    pub queue: QueueOptions,
}

impl DiskOptions {
    /// Size of the disk.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        let per_head = self.zones.iter().map(|zone| {
            u64::from(zone.cylinders) * u64::from(zone.sectors_per_track) * SECTOR_BYTES
        });
        per_head.sum::<u64>() * u64::from(self.heads)
    }

    /// Cylinders in all.
    #[must_use]
    pub fn cylinders(&self) -> u32 {
        self.zones.iter().map(|zone| zone.cylinders).sum()
    }

    /// Nanoseconds that the sectors of a zone take when they are read one after the other: its tracks' turns and skews.
    #[must_use]
    pub fn zone_pass_ns(&self, zone: &Zone) -> u64 {
        let turn = |sectors: u32| {
            u64::from(sectors) * self.revolution_ns / u64::from(zone.sectors_per_track)
        };
        let cylinder = u64::from(self.heads) * self.revolution_ns
            + u64::from(self.heads - 1) * turn(zone.track_skew)
            + turn(zone.cylinder_skew);
        cylinder * u64::from(zone.cylinders)
    }
}

/// An operation that waits for the arm.
#[derive(Clone, Copy, Debug)]
struct Queued {
    operation: Operation,
    start: u64,
    end: u64,
    /// When its command has been decoded.
    ready: u64,
    cylinder: u32,
}

/// What the arm is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    /// Nothing, or reading ahead.
    Idle,
    /// An operation until then.
    Serving { until: u64, token: u64 },
    /// Writing from the cache until then.
    Destaging { until: u64, range: (u64, u64) },
}

/// Reading on behind the last read.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// First sector that had not been read at time `at`.
    from: u64,
    at: u64,
    /// The sector at which read-ahead ends.
    limit: u64,
}

/// A rotating disk.
#[derive(Clone, Debug)]
pub struct Disk {
    geometry: DiskGeometry,
    seek: SeekTable,
    options: DiskOptions,
    /// The track that the head is on.
    track: Track,
    /// The sector after the last one that was accessed.
    next_sector: u64,
    arm: Arm,
    ahead: Option<Ahead>,
    waiting: VecDeque<Queued>,
    segments: Segments,
    dirty: Dirty,
    /// Writes that flushes wait for, and the tokens of these flushes.
    flushing: Dirty,
    flushes: Vec<u64>,
    /// Answers that need no arm, by time.
    answers: BinaryHeap<Reverse<(u64, u64, u64)>>,
    answered: u64,
    done: VecDeque<u64>,
    work: Work,
}

impl Disk {
    /// A disk at rest.
    #[must_use]
    pub fn new(options: DiskOptions) -> Self {
        let geometry = DiskGeometry::new(options.heads, options.revolution_ns, &options.zones);
        Self {
            seek: SeekTable::new(&options.seek, geometry.cylinders()),
            track: geometry.locate(0).0,
            geometry,
            next_sector: 0,
            arm: Arm::Idle,
            ahead: None,
            waiting: VecDeque::new(),
            segments: Segments::new(options.cache),
            dirty: Dirty::default(),
            flushing: Dirty::default(),
            flushes: Vec::new(),
            answers: BinaryHeap::new(),
            answered: 0,
            done: VecDeque::new(),
            work: Work::default(),
            options,
        }
    }

    /// Its shape.
    #[must_use]
    pub const fn geometry(&self) -> &DiskGeometry {
        &self.geometry
    }

    // --- mechanics ---------------------------------------------------------------------------

    /// Time to bring a head from where it is onto `to`.
    fn move_ns(&self, to: &Track) -> u64 {
        let distance = self.track.cylinder.abs_diff(to.cylinder);
        let switches = self.track.head != to.head;
        match (distance, switches) {
            (0, false) => 0,
            (0, true) => self.options.head_switch_ns,
            (1, true) => self.options.cylinder_switch_ns,
            (_, true) => self.seek.ns(distance).max(self.options.head_switch_ns),
            (_, false) => self.seek.ns(distance),
        }
    }

    /// Nanoseconds from `at` until a sector of a track comes round. Negative, by at most half a sector, if the sector
    /// has just begun to pass.
    fn rotation_ns(&self, at: u64, track: &Track, sector: u32) -> i64 {
        let turn = self.geometry.revolution_ns();
        let now = at % turn;
        let angle = self.geometry.angle_ns(track, sector);
        let wait = if angle >= now {
            angle - now
        } else {
            turn + angle - now
        };
        let late = turn - wait;
        if late * 2 * u64::from(track.sectors) <= LATE_SECTORS_PER_TWO * turn {
            -late.cast_signed()
        } else {
            wait.cast_signed()
        }
    }

    /// Accesses sectors `start..end` from `at` on. Returns the time at which that is done.
    fn access(&mut self, at: u64, (start, end): (u64, u64), write: bool) -> u64 {
        let (mut track, mut sector) = self.geometry.locate(start);
        let moving = self.move_ns(&track);
        let mut time = at + moving;
        if write && moving > 0 {
            time += self.options.write_settle_ns;
        }
        if track.cylinder != self.track.cylinder {
            self.work.seeks += 1;
            self.work.seek_ns += time - at;
        }
        let wait = self.rotation_ns(time, &track, sector);
        self.work.rotations += 1;
        self.work.rotation_ns += wait.max(0).cast_unsigned();
        time = time.saturating_add_signed(wait);
        let mut left = end - start;
        loop {
            let here = u64::from(track.sectors - sector).min(left);
            let count = u32::try_from(here).expect("at most a track");
            time += self.geometry.run_ns(&track, count);
            left -= here;
            if left == 0 {
                break;
            }
            (track, time) = self.next_track(&track, end - left, time);
            sector = 0;
        }
        self.track = track;
        self.next_sector = end;
        time
    }

    /// Within a transfer: from the end of a track at `time` to the beginning of the next one, whose first sector is
    /// `first`.
    fn next_track(&self, track: &Track, first: u64, time: u64) -> (Track, u64) {
        let (next, _) = self.geometry.locate(first);
        let switch = if next.cylinder == track.cylinder {
            self.options.head_switch_ns
        } else {
            self.options.cylinder_switch_ns
        };
        let time = time + switch;
        let wait = self.rotation_ns(time, &next, 0);
        (next, time.saturating_add_signed(wait))
    }

    /// The sector that read-ahead has reached at `now`, at most its limit.
    fn reached(&self, ahead: &Ahead, now: u64) -> u64 {
        let mut sector = ahead.from;
        let mut time = ahead.at;
        while sector < ahead.limit && time < now {
            let (track, at) = self.geometry.locate(sector);
            if at == 0 && sector > 0 {
                let (before, _) = self.geometry.locate(sector - 1);
                time = self.next_track(&before, sector, time).1;
                if time >= now {
                    break;
                }
            }
            let left = u64::from(track.sectors - at).min(ahead.limit - sector);
            let count = u32::try_from(left).expect("at most a track");
            let pass = self.geometry.run_ns(&track, count);
            if time + pass > now {
                sector += self.geometry.sectors_in(&track, now - time);
                break;
            }
            time += pass;
            sector += left;
        }
        sector.min(ahead.limit)
    }

    /// When read-ahead reaches sector `end`, which it has not reached yet.
    fn streamed_at(&self, ahead: &Ahead, end: u64) -> u64 {
        let (mut track, mut at) = self.geometry.locate(ahead.from);
        let mut time = ahead.at;
        let mut left = end - ahead.from;
        if at == 0 && ahead.from > 0 {
            let (before, _) = self.geometry.locate(ahead.from - 1);
            (track, time) = self.next_track(&before, ahead.from, time);
        }
        loop {
            let here = u64::from(track.sectors - at).min(left);
            let count = u32::try_from(here).expect("at most a track");
            time += self.geometry.run_ns(&track, count);
            left -= here;
            if left == 0 {
                return time;
            }
            (track, time) = self.next_track(&track, end - left, time);
            at = 0;
        }
    }

    /// Stops read-ahead at `now`: the sectors that it has read are in memory, and the head is at the last of them.
    fn stop_ahead(&mut self, now: u64) {
        if let Some(ahead) = self.ahead.take() {
            let reached = self.reached(&ahead, now);
            self.segments.fill(ahead.from, reached);
            self.next_sector = reached;
            let last = reached.max(1) - 1;
            self.track = self.geometry.locate(last).0;
        }
    }

    fn begin_ahead(&mut self, from: u64, at: u64) {
        let cache = &self.options.cache;
        if cache.segments == 0 || cache.read_ahead_sectors == 0 {
            return;
        }
        let most = cache.read_ahead_sectors.min(cache.segment_sectors - 1);
        let limit = (from + most).min(self.geometry.sectors());
        if limit > from {
            self.ahead = Some(Ahead { from, at, limit });
        }
    }

    // --- queue -------------------------------------------------------------------------------

    fn interface_ns(&self, sectors: u64) -> u64 {
        transfer_ns(
            sectors * SECTOR_BYTES,
            self.options.interface_bytes_per_second,
        )
    }

    fn answer(&mut self, at: u64, token: u64) {
        self.answered += 1;
        self.answers.push(Reverse((at, self.answered, token)));
    }

    /// Answers a read that needs no arm, or returns false. `ready` is when its command has been decoded.
    fn hit(&mut self, now: u64, ready: u64, (start, end): (u64, u64), token: u64) -> bool {
        if let Some(ahead) = self.ahead
            && (ahead.from..=ahead.limit).contains(&end)
        {
            let reached = self.reached(&ahead, now);
            if end <= reached {
                self.segments.fill(ahead.from, reached);
            }
        }
        let writing = match self.arm {
            Arm::Destaging { range, .. } => range.0 <= start && end <= range.1,
            Arm::Idle | Arm::Serving { .. } => false,
        };
        let held = writing
            || self.segments.holds(start, end)
            || self.dirty.holds(start, end)
            || self.flushing.holds(start, end);
        if held {
            self.work.cache_hits += 1;
            self.answer(ready + self.interface_ns(end - start), token);
        }
        held
    }

    /// The arm is free at `now`: starts the next operation, or writes from the cache.
    fn dispatch(&mut self, now: u64) {
        if self.arm != Arm::Idle {
            return;
        }
        while !self.waiting.is_empty() && !self.must_destage() {
            let index = self.options.queue.pick(&View { disk: self, now });
            let queued = self.waiting.remove(index).expect("the pick is one of them");
            if self.serve(now, queued) {
                return;
            }
        }
        if self.dirty.is_empty() && self.flushing.is_empty() {
            return;
        }
        self.stop_ahead(now);
        let from = if self.flushing.is_empty() {
            &mut self.dirty
        } else {
            &mut self.flushing
        };
        let range = from.take(self.next_sector, DESTAGE_SECTORS);
        let range = range.expect("one of the two has something");
        let until = self.access(now, range, true);
        self.work.busy_ns += until - now;
        self.arm = Arm::Destaging { until, range };
    }

    /// True if operations wait for room in the write cache, or if flushes wait for writes.
    fn must_destage(&self) -> bool {
        if !self.flushing.is_empty() {
            return true;
        }
        let room = self.options.cache.write_sectors;
        let oldest = self.waiting.front();
        room > 0
            && !self.dirty.is_empty()
            && oldest.is_some_and(|queued| {
                queued.operation.kind != IoKind::Read
                    && self.dirty.sectors() + (queued.end - queued.start) > room
            })
    }

    /// Begins an operation; false if it needed no arm after all.
    fn serve(&mut self, now: u64, queued: Queued) -> bool {
        let range = (queued.start, queued.end);
        let begin = now.max(queued.ready);
        let token = queued.operation.token;
        let until = if queued.operation.kind == IoKind::Read {
            if self.hit(now, begin, range, token) {
                return false;
            }
            self.read(begin, range)
        } else if self.caches_write(now, &queued) {
            return false;
        } else {
            self.stop_ahead(begin);
            self.segments.invalidate(queued.start, queued.end);
            self.access(begin, range, true)
        };
        self.work.busy_ns += until - now;
        self.arm = Arm::Serving { until, token };
        true
    }

    fn read(&mut self, begin: u64, (start, end): (u64, u64)) -> u64 {
        if let Some(ahead) = self.ahead {
            let reached = self.reached(&ahead, begin);
            let streams = start <= reached && ahead.from <= start && end <= ahead.limit;
            if streams && end > reached {
                // The head is there already: go on until the last sector has passed.
                let until = self.streamed_at(&ahead, end).max(begin);
                self.segments.fill(ahead.from, end);
                self.ahead = None;
                self.track = self.geometry.locate(end - 1).0;
                self.next_sector = end;
                return until;
            }
        }
        self.stop_ahead(begin);
        let until = self.access(begin, (start, end), false);
        self.segments.fill(start, end);
        until
    }

    /// Puts a write into the cache and answers it, if there is room.
    fn caches_write(&mut self, now: u64, queued: &Queued) -> bool {
        let sectors = queued.end - queued.start;
        let room = self.options.cache.write_sectors;
        if sectors > room || self.dirty.sectors() + sectors > room {
            return false;
        }
        self.segments.invalidate(queued.start, queued.end);
        self.dirty.insert(queued.start, queued.end);
        let at = now.max(queued.ready) + self.interface_ns(sectors);
        self.answer(at, queued.operation.token);
        true
    }

    fn flush(&mut self, now: u64, token: u64) {
        let dirty = std::mem::take(&mut self.dirty);
        self.flushing.absorb(dirty);
        self.flushes.push(token);
        self.end_flushes(now);
    }

    fn end_flushes(&mut self, now: u64) {
        // The write that is in progress at this moment is covered too.
        let writing = matches!(self.arm, Arm::Destaging { .. });
        if self.flushing.is_empty() && !writing {
            for token in std::mem::take(&mut self.flushes) {
                self.answer(now, token);
            }
        }
    }
}

/// The queue as a discipline sees it.
struct View<'a> {
    disk: &'a Disk,
    now: u64,
}

impl Waiting for View<'_> {
    fn len(&self) -> usize {
        self.disk.waiting.len()
    }

    fn distance(&self, index: usize) -> u64 {
        let cylinder = self.disk.waiting[index].cylinder;
        self.disk.track.cylinder.abs_diff(cylinder).into()
    }

    fn sectors(&self, index: usize) -> (u64, u64) {
        (self.disk.waiting[index].start, self.disk.next_sector)
    }

    fn positioning_ns(&self, index: usize) -> u64 {
        let queued = &self.disk.waiting[index];
        let (track, sector) = self.disk.geometry.locate(queued.start);
        let mut moving = self.disk.move_ns(&track);
        if moving > 0 && queued.operation.kind != IoKind::Read {
            moving += self.disk.options.write_settle_ns;
        }
        let arrives = self.now.max(queued.ready) + moving;
        let wait = self.disk.rotation_ns(arrives, &track, sector).max(0);
        arrives + wait.cast_unsigned() - self.now
    }
}

impl Model for Disk {
    fn handle_operation(&mut self, now: Instant, operation: Operation) {
        let now = now.0;
        self.work.count(&operation);
        match operation.kind {
            IoKind::Flush => {
                self.flush(now, operation.token);
                self.dispatch(now);
                return;
            }
            // A disk has no space to free.
            IoKind::Discard => {
                self.done.push_back(operation.token);
                return;
            }
            IoKind::Read | IoKind::Write | IoKind::WriteZeroes => {}
        }
        let start = operation.offset / SECTOR_BYTES;
        let end = (operation.offset + operation.length).div_ceil(SECTOR_BYTES);
        let end = end.max(start + 1);
        let queued = Queued {
            operation,
            start,
            end,
            ready: now + self.options.overhead_ns,
            cylinder: self.geometry.locate(start).0.cylinder,
        };
        let answered = match operation.kind {
            IoKind::Read => self.hit(now, queued.ready, (start, end), operation.token),
            // A write behind others that wait for room waits too.
            IoKind::Write | IoKind::WriteZeroes => {
                self.waiting.is_empty() && self.caches_write(now, &queued)
            }
            IoKind::Flush | IoKind::Discard => unreachable!("they are done above"),
        };
        if !answered {
            self.waiting.push_back(queued);
        }
        self.dispatch(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let now = now.0;
        match self.arm {
            Arm::Serving { until, token } if until <= now => {
                self.arm = Arm::Idle;
                self.done.push_back(token);
                let streams = self.waiting.is_empty()
                    && self
                        .segments
                        .holds(self.next_sector.saturating_sub(1), self.next_sector);
                if streams && self.dirty.is_empty() {
                    self.begin_ahead(self.next_sector, until);
                }
                self.dispatch(now);
            }
            Arm::Destaging { until, .. } if until <= now => {
                self.arm = Arm::Idle;
                self.end_flushes(now);
                self.dispatch(now);
            }
            Arm::Idle | Arm::Serving { .. } | Arm::Destaging { .. } => {}
        }
        while let Some(&Reverse((at, _, token))) = self.answers.peek()
            && at <= now
        {
            self.answers.pop();
            self.done.push_back(token);
        }
    }

    fn poll_done(&mut self) -> Option<u64> {
        self.done.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let arm = match self.arm {
            Arm::Idle => None,
            Arm::Serving { until, .. } | Arm::Destaging { until, .. } => Some(until),
        };
        let answer = self.answers.peek().map(|&Reverse((at, ..))| at);
        let due = match (arm, answer) {
            (Some(arm), Some(answer)) => Some(arm.min(answer)),
            (arm, answer) => arm.or(answer),
        };
        due.map(Instant)
    }

    fn queued(&self) -> usize {
        let serving = usize::from(matches!(self.arm, Arm::Serving { .. }));
        self.waiting.len() + serving + self.answers.len() + self.flushes.len()
    }

    fn work(&self) -> Work {
        self.work
    }

    fn boxed(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
