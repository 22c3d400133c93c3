//! A volume as a block device: requests are cut at group ends and go to their lanes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use array::format::GroupId;
use array::router::{Part, VolumeMap};
use array::{GroupRequest, VolumeId};
use block::{
    BlockDevice, Completed, Extent, ExtentsAnswer, Fault, Instant, Limits, Memory, Outcome, Region,
    Request, RequestKind, Submission,
};
use uuid::Uuid;

use super::Clock;
use super::compute::{Patch, assemble};
use super::extents::questions;
use super::lane::{Answer, LaneMessage, LaneSender, PartEnded};
use super::meter::{Counted, Meter};
use crate::traffic::Traffic;

/// The longest read or write that a volume takes: what NBD clients send at most.
const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Bytes that one question for extents covers at most: the client gets answers of this size, and a lane reads no more
/// pages at once than describe it.
const EXTENTS_BYTES_MAX: u64 = 1 << 30;
/// Groups that one question covers at most.
const EXTENTS_GROUPS_MAX: usize = 64;

/// A volume of a running pool.
pub struct Volume {
    name: String,
    uuid: Uuid,
    map: RwLock<Arc<VolumeMap>>,
    lanes: Arc<[LaneSender]>,
    closed: AtomicBool,
    meter: Arc<Meter>,
    clock: Clock,
    preferred_bytes: u32,
}

impl Volume {
    pub(crate) fn new(
        (name, uuid): (String, Uuid),
        map: VolumeMap,
        lanes: Arc<[LaneSender]>,
        clock: Clock,
        preferred_bytes: u32,
    ) -> Self {
        let threads = lanes.iter().map(|lane| lane.thread() + 1).max();
        Self {
            name,
            uuid,
            map: RwLock::new(Arc::new(map)),
            lanes,
            closed: AtomicBool::new(false),
            meter: Arc::new(Meter::new(threads.unwrap_or(1))),
            clock,
            preferred_bytes,
        }
    }

    /// Its name within the pool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its identity.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.meter.in_flight()
    }

    /// The clients' requests so far, and how long they took.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic::new(&self.meter.snapshot())
    }

    /// From now on every request ends with [`Fault::Shutdown`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Replaces the map: the volume has another size or other groups.
    pub(crate) fn remap(&self, map: VolumeMap) {
        *self.map.write().expect("no holder of the lock panics") = Arc::new(map);
    }

    fn map(&self) -> Arc<VolumeMap> {
        Arc::clone(&self.map.read().expect("no holder of the lock panics"))
    }

    /// The parts of a request. A request that cannot be served is one part that a lane refuses: it is then answered
    /// from another thread, like every other.
    fn parts(&self, request: &Request) -> Vec<Part> {
        let everywhere = |group: GroupId| {
            let lane = self.lanes.iter().map(LaneSender::lane);
            lane.map(move |lane| Part {
                lane,
                request: GroupRequest {
                    group,
                    request: *request,
                    buffer_offset: 0,
                    volume: VolumeId::NONE,
                },
            })
        };
        let map = self.map();
        match request.kind {
            RequestKind::Flush => everywhere(GroupId(0)).collect(),
            _ if !map.contains(request) => everywhere(GroupId(u64::MAX)).take(1).collect(),
            // Nothing to do but to answer.
            _ if request.length == 0 => everywhere(GroupId(u64::MAX))
                .take(1)
                .map(|mut part| {
                    part.request.request.kind = RequestKind::Flush;
                    part
                })
                .collect(),
            _ => map.split(request),
        }
    }
}

/// Outcomes as a byte, so that parts can join without a lock. The first fault stays.
fn code(outcome: Outcome) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(Fault::Medium) => 1,
        Err(Fault::Gone) => 2,
        Err(Fault::Full) => 3,
        Err(Fault::Invalid) => 4,
        Err(Fault::Shutdown) => 5,
        Err(Fault::Lost) => 6,
    }
}

fn outcome(code: u8) -> Outcome {
    match code {
        0 => Ok(()),
        1 => Err(Fault::Medium),
        2 => Err(Fault::Gone),
        3 => Err(Fault::Full),
        4 => Err(Fault::Invalid),
        5 => Err(Fault::Shutdown),
        _ => Err(Fault::Lost),
    }
}

/// A request whose parts are in progress. If a part is dropped unanswered (its lane has stopped), the request ends
/// with [`Fault::Shutdown`].
struct Join {
    parts: AtomicUsize,
    outcome: AtomicU8,
    /// The request's memory and the parts of it that are in bounce buffers, if any are.
    elsewhere: Mutex<Option<(Memory, Vec<Patch>)>>,
    token: u64,
    to: Arc<dyn Completed>,
    meter: Arc<Meter>,
    kind: RequestKind,
    bytes: u64,
    began: Instant,
}

impl Join {
    fn answer(&self) -> Answer {
        self.meter.end();
        let mut elsewhere = self
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let elsewhere = elsewhere.take();
        Answer {
            to: Arc::clone(&self.to),
            token: self.token,
            outcome: outcome(self.outcome.load(Ordering::Acquire)),
            counted: Counted {
                meter: Arc::clone(&self.meter),
                kind: self.kind,
                bytes: self.bytes,
                began: self.began,
            },
            elsewhere: elsewhere.map(|(memory, patches)| assemble(&memory, patches)),
        }
    }
}

impl PartEnded for Join {
    fn part_is_elsewhere(&self, memory: &Memory, patches: Vec<Patch>) {
        let mut elsewhere = self
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (_, all) = elsewhere.get_or_insert_with(|| (memory.clone(), Vec::new()));
        all.extend(patches);
    }

    fn part_ended(&self, outcome: Outcome) -> Option<Answer> {
        if outcome.is_err() {
            let first = self.outcome.compare_exchange(
                0,
                code(outcome),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            // Another part's fault was first.
            first.ok();
        }
        (self.parts.fetch_sub(1, Ordering::AcqRel) == 1).then(|| self.answer())
    }
}

impl Drop for Join {
    fn drop(&mut self) {
        if self.parts.load(Ordering::Acquire) > 0 {
            self.outcome
                .store(code(Err(Fault::Shutdown)), Ordering::Release);
            self.answer().give();
        }
    }
}

impl BlockDevice for Volume {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: self.map().size_bytes(),
            block_bytes_min: 1,
            block_bytes_preferred: self.preferred_bytes.max(4096),
            request_bytes_max: REQUEST_BYTES_MAX,
            trims: true,
        }
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let submission = Submission {
            request,
            memory,
            token,
        };
        // Usually there is one part, and nothing to put into a batch.
        let now = self.clock.now();
        self.begin(submission, (to, now), &mut LaneSender::send);
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        let mut messages: BTreeMap<u16, Vec<LaneMessage>> = BTreeMap::new();
        let now = self.clock.now();
        for submission in batch.drain(..) {
            self.begin(submission, (to, now), &mut |lane: &LaneSender, message| {
                messages.entry(lane.thread()).or_default().push(message);
            });
        }
        for (thread, mut messages) in messages {
            let mut lanes = self.lanes.iter();
            let lane = lanes.find(|lane| lane.thread() == thread);
            let message = match messages.len() {
                1 => messages.remove(0),
                _ => LaneMessage::Batch(messages),
            };
            lane.expect("messages come from lanes").send(message);
        }
    }

    fn lend(&self, region: &Region) {
        let threads: BTreeMap<u16, &LaneSender> = self
            .lanes
            .iter()
            .map(|lane| (lane.thread(), lane))
            .collect();
        for lane in threads.into_values() {
            lane.send(LaneMessage::Lend(region.clone()));
        }
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let (sender, answers) = std::sync::mpsc::channel();
        let answer = ExtentsAnswer::new(move |extents| {
            // The receiver waits below.
            sender.send(extents).ok();
        });
        self.find_extents(offset, length, answer);
        answers.recv().unwrap_or_default()
    }

    fn find_extents(&self, offset: u64, length: u64, answer: ExtentsAnswer) {
        let request = Request {
            kind: RequestKind::Read,
            offset,
            length: length.min(EXTENTS_BYTES_MAX),
            fua: false,
        };
        let map = self.map();
        if length == 0 || self.closed.load(Ordering::SeqCst) || !map.contains(&request) {
            return answer.give(vec![Extent {
                length,
                hole: false,
            }]);
        }
        let mut parts = map.split(&request);
        parts.truncate(EXTENTS_GROUPS_MAX);
        for question in questions(&parts, answer) {
            self.lanes[usize::from(question.lane)].send(LaneMessage::Question(question));
        }
    }
}

impl Volume {
    /// Cuts a request into messages to lanes.
    fn begin(
        &self,
        submission: Submission,
        (to, now): (&Arc<dyn Completed>, Instant),
        send: &mut dyn FnMut(&LaneSender, LaneMessage),
    ) {
        let Submission {
            mut request,
            memory,
            token,
        } = submission;
        if self.closed.load(Ordering::SeqCst) {
            // A request outside of the volume: the lane refuses it, from its thread.
            request.offset = u64::MAX;
        }
        let parts = self.parts(&request);
        self.meter.begin();
        let join: Arc<dyn PartEnded> = Arc::new(Join {
            parts: AtomicUsize::new(parts.len()),
            outcome: AtomicU8::new(0),
            elsewhere: Mutex::default(),
            token,
            to: Arc::clone(to),
            meter: Arc::clone(&self.meter),
            kind: request.kind,
            bytes: request.length,
            began: now,
        });
        let mut memory = Some(memory);
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            // The last part takes the memory along: when the request is completed, no reference to the memory may be
            // left here.
            let memory = match parts.peek() {
                Some(_) => memory.clone(),
                None => memory.take(),
            };
            send(
                &self.lanes[usize::from(part.lane)],
                LaneMessage::Request {
                    lane: part.lane,
                    request: part.request,
                    memory: memory.unwrap_or_default(),
                    to: Arc::clone(&join),
                },
            );
        }
    }
}
