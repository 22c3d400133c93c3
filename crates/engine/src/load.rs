//! A load generator inside the process: measures what the engine costs, without a client's share.

mod content;
mod hot;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::mem::take;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use block::{
    BlockDevice, Completed, Fault, Hint, Memory, Outcome, Region, Request, RequestKind, SplitMix64,
    Submission,
};
use serde::{Deserialize, Serialize};

use self::content::Content;
use self::hot::Places;
pub use self::hot::{Hot, HotPart};

/// Which requests, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after another.
    Read,
    /// One after another.
    Write,
    /// Anywhere.
    RandRead,
    /// Anywhere.
    RandWrite,
    /// Anywhere, half of them writes, or what [`Load::read_percent`] leaves.
    RandRw,
}

impl Pattern {
    const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }
}

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Which requests.
    pub pattern: Pattern,
    /// Bytes of each.
    pub block_bytes: u32,
    /// Requests in flight per job.
    pub depth: u32,
    /// Number of jobs that run at once, independent of each other.
    pub jobs: u32,
    /// For how long.
    pub time: Duration,
    /// Each write is durable when it is answered.
    #[serde(default)]
    pub sync: bool,
    /// The share of reads in [`Pattern::RandRw`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<u8>,
    /// Writes write blocks that differ and that get so much smaller when they are compressed, below 100. None: zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressible_percent: Option<u8>,
    /// A part of the volume that requests at random places prefer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<Hot>,
    /// Bytes of all jobs together after which the load ends, if its time is not over before. None: the time alone ends
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Bytes per second of all jobs together: requests are sent at fixed times, whatever the answers, and their latency
    /// counts from the time at which they were due. `depth` then bounds nothing. None: each job sends a request when
    /// another one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<u64>,
}

impl Load {
    /// Whether the load writes at all.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self.pattern {
            Pattern::Read | Pattern::RandRead => false,
            Pattern::Write | Pattern::RandWrite => true,
            Pattern::RandRw => self.read_percent != Some(100),
        }
    }
}

/// The result of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// CPU time of the whole process per request, in microseconds; the generator's own is in it.
    pub cpu_us_per_io: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

/// Bytes in flight of a load with a rate, of all jobs: requests beyond wait, and their wait counts.
const OPEN_BYTES: usize = 256 << 20;

/// Why a load was not run, or not completed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A number that makes no sense.
    #[error("{what} must be at least 1 and the block at most the volume and 32M: nothing was run")]
    Shape {
        /// Which.
        what: &'static str,
    },
    /// The blocks of compressible content are 4 KiB.
    #[error(
        "compressible content is made in blocks of 4 KiB and gets at most 99 % smaller, but requests have {bytes} \
         bytes and {percent} % were asked for"
    )]
    Content {
        /// Of a request.
        bytes: u32,
        /// That were asked for.
        percent: u8,
    },
    /// A share of more than everything, or of a load that only reads or only writes.
    #[error(
        "{0} % reads need requests that are reads and writes at random places, and are at most 100 %"
    )]
    Mix(u8),
    /// Sequential requests prefer no part, and a part has room for a request and leaves room for one.
    #[error(
        "a preferred part needs requests at random places, room for one of {bytes} bytes in it, and for one beside it"
    )]
    Hot {
        /// Of a request.
        bytes: u32,
    },
    /// A request failed.
    #[error("a request failed ({0})")]
    Fault(Fault),
}

impl Hint for LoadError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Shape { .. } => Some("see `ravelin bench --help`".into()),
            Self::Content { .. } => Some("give --bs 4k, and --compressible 0 to 99".into()),
            Self::Mix(_) => Some("give --rw randrw with --read 0 to 100".into()),
            Self::Hot { .. } => Some(
                "give --rw randread, randwrite or randrw, and a part as in --hot 90/10%".into(),
            ),
            Self::Fault(_) => Some("see `ravelin pool status`".into()),
        }
    }
}

/// Latencies, counted in buckets of 1/16 of a power of two: 6 % apart at most.
struct Latencies {
    buckets: Vec<u64>,
    count: u64,
}

impl Latencies {
    fn new() -> Self {
        Self {
            buckets: vec![0; 64 * 16],
            count: 0,
        }
    }

    fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos())
            .unwrap_or(u64::MAX)
            .max(16);
        let power = nanos.ilog2();
        let sixteenth = (nanos >> (power - 4)) & 15;
        let index = u64::from(power) * 16 + sixteenth;
        self.buckets[usize::try_from(index).unwrap_or(0)] += 1;
        self.count += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
    }

    /// The latency below which `per_mille` of a thousand lie, in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn quantile_us(&self, per_mille: u64) -> f64 {
        let wanted = (self.count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, &count) in (0_u64..).zip(&self.buckets) {
            seen += count;
            if seen >= wanted {
                let (power, sixteenth) = (index / 16, index % 16);
                return ((16 + sixteenth) << power) as f64 / 16.0 / 1000.0;
            }
        }
        0.0
    }
}

/// The memory, or other memory of the same length if a drive may still write into it. With new content, if some is
/// given.
fn free(memory: &mut Memory, content: Option<&mut Content>) -> Memory {
    if memory.unique_mut().is_none() {
        *memory = Memory::zeroed(memory.len());
    }
    if let (Some(content), Some(bytes)) = (content, memory.unique_mut()) {
        content.fill(bytes);
    }
    memory.clone()
}

/// The number of requests after which a job ends.
fn requests_of(load: Load, index: u64) -> u64 {
    let Some(bytes) = load.total_bytes else {
        return u64::MAX;
    };
    let (requests, jobs) = (
        bytes.div_ceil(load.block_bytes.into()),
        u64::from(load.jobs),
    );
    requests / jobs + u64::from(index < requests % jobs)
}

/// The state of a job.
struct State {
    /// With a rate: when the requests were due that have not been sent.
    due: VecDeque<Instant>,
    /// With a rate: no more requests become due.
    over: bool,
    /// With a rate: requests that were due and never sent.
    unsent: u64,
    memories: Vec<Memory>,
    begun: Vec<Instant>,
    /// Places of requests that have ended and are to be submitted again.
    idle: Vec<u64>,
    in_flight: usize,
    /// The number of requests that may still be sent.
    left: u64,
    next: u64,
    random: SplitMix64,
    content: Option<Content>,
    latencies: Latencies,
    fault: Option<Fault>,
    /// A thread is submitting, and will submit what becomes idle meanwhile.
    submitting: bool,
}

/// Keeps `depth` requests in flight against one device. The thread that reports completions submits the next
/// requests, so that on a thread that runs lanes no other thread is woken for them.
struct Job {
    me: Weak<Self>,
    device: Arc<dyn BlockDevice>,
    load: Load,
    blocks: u64,
    places: Places,
    until: Instant,
    state: Mutex<State>,
    ended: Sender<()>,
}

impl Job {
    /// `index` is the job's number: it decides where the job begins, and its random numbers.
    fn new(
        device: &Arc<dyn BlockDevice>,
        load: Load,
        (places, blocks, index): (Places, u64, u64),
        until: Instant,
        ended: Sender<()>,
    ) -> Arc<Self> {
        let depth = usize::try_from(load.depth).unwrap_or(1);
        let length = usize::try_from(load.block_bytes).unwrap_or(0);
        let (region, memories) = Region::cut(depth, length);
        device.lend(&region);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            device: Arc::clone(device),
            load,
            blocks,
            places,
            until,
            state: Mutex::new(State {
                due: VecDeque::new(),
                over: false,
                unsent: 0,
                memories,
                begun: vec![Instant::now(); depth],
                idle: (0..depth as u64).collect(),
                in_flight: 0,
                left: requests_of(load, index),
                // Sequential jobs share the device evenly.
                next: blocks / u64::from(load.jobs) * index,
                random: SplitMix64::new(index),
                content: load
                    .compressible_percent
                    .map(|percent| Content::new(percent, index)),
                latencies: Latencies::new(),
                fault: None,
                submitting: false,
            }),
            ended,
        })
    }

    /// Even after a panic of another thread the state counts what is in flight.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits what is idle, unless another thread is just doing so; reports when all requests have ended.
    fn go_on<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.submitting {
            return;
        }
        let Some(me) = self.me.upgrade() else {
            return;
        };
        let to: Arc<dyn Completed> = me;
        state.submitting = true;
        let mut batch = Vec::new();
        let mut now = Instant::now();
        loop {
            let next = self.next(&mut state, now);
            if next.is_empty() {
                break;
            }
            for (token, begun) in next {
                let slot = usize::try_from(token).unwrap_or(0);
                state.begun[slot] = begun;
                state.in_flight += 1;
                let request = self.request(&mut state);
                let state = &mut *state;
                let content =
                    { state.content.as_mut() }.filter(|_| request.kind == RequestKind::Write);
                batch.push(Submission {
                    request,
                    memory: free(&mut state.memories[slot], content),
                    token,
                });
            }
            // Other threads may report completions meanwhile; they leave them in `idle`.
            drop(state);
            self.device.submit_all(&mut batch, &to);
            state = self.lock();
            now = Instant::now();
        }
        state.submitting = false;
        let open = self.load.rate_bytes.is_some() && !state.over;
        if state.in_flight == 0 && !open {
            // No more requests are submitted: the time is over, or a request failed.
            self.ended.send(()).unwrap_or_default();
        }
    }

    /// The places of the requests to submit now, and from when each of them counts.
    fn next(&self, state: &mut State, now: Instant) -> Vec<(u64, Instant)> {
        if state.fault.is_some() {
            return Vec::new();
        }
        if self.load.rate_bytes.is_none() {
            if now >= self.until {
                return Vec::new();
            }
            let most = usize::try_from(state.left).unwrap_or(usize::MAX);
            let next = state.idle.len().min(most);
            let idle = state.idle.split_off(state.idle.len() - next);
            state.left -= next as u64;
            return idle.into_iter().map(|token| (token, now)).collect();
        }
        let length = usize::try_from(self.load.block_bytes).unwrap_or(1);
        let most = (OPEN_BYTES / usize::try_from(self.load.jobs).unwrap_or(1) / length).max(1);
        let mut next = Vec::new();
        while !state.due.is_empty() {
            let token = match state.idle.pop() {
                Some(token) => token,
                None if state.memories.len() < most => {
                    state.memories.push(Memory::zeroed(length));
                    state.begun.push(now);
                    state.memories.len() as u64 - 1
                }
                None => break,
            };
            let due = state.due.pop_front().unwrap_or(now);
            next.push((token, due));
        }
        next
    }

    /// More requests are due, or, with `over`, no more will be: what could not be sent has waited until now.
    fn fall_due(&self, due: Vec<Instant>, over: bool) -> bool {
        let mut state = self.lock();
        state.due.extend(due);
        if over {
            state.over = true;
            let now = Instant::now();
            for due in take(&mut state.due) {
                state.unsent += 1;
                state.latencies.add(now.saturating_duration_since(due));
            }
        }
        let failed = state.fault.is_some();
        self.go_on(state);
        !failed
    }

    fn request(&self, state: &mut State) -> Request {
        let length = u64::from(self.load.block_bytes);
        let pattern = self.load.pattern;
        let write = match (pattern, self.load.read_percent) {
            (Pattern::Read | Pattern::RandRead, _) => false,
            (Pattern::Write | Pattern::RandWrite, _) => true,
            (Pattern::RandRw, None) => state.random.draw() & 1 == 1,
            (Pattern::RandRw, Some(reads)) => state.random.below(100) >= u64::from(reads),
        };
        let block = if pattern.is_random() {
            self.places.draw(&mut state.random)
        } else {
            state.next += 1;
            (state.next - 1) % self.blocks
        };
        Request {
            kind: if write {
                RequestKind::Write
            } else {
                RequestKind::Read
            },
            offset: block * length,
            length,
            fua: write && self.load.sync,
        }
    }
}

impl Completed for Job {
    fn completed(&self, token: u64, outcome: Outcome) {
        self.completed_all(&[(token, outcome)]);
    }

    fn completed_all(&self, outcomes: &[(u64, Outcome)]) {
        let now = Instant::now();
        let mut state = self.lock();
        for &(token, outcome) in outcomes {
            state.in_flight -= 1;
            match outcome {
                Ok(()) => {
                    let begun = state.begun[usize::try_from(token).unwrap_or(0)];
                    state.latencies.add(now.saturating_duration_since(begun));
                    state.idle.push(token);
                }
                Err(fault) => state.fault = Some(fault),
            }
        }
        self.go_on(state);
    }

    fn completed_elsewhere(&self, token: u64, _bytes: Memory) {
        self.completed(token, Ok(()));
    }
}

/// Runs a load against a device. Writes write zeros, or compressible content, over whatever is there.
///
/// # Errors
/// [`LoadError`] when a number makes no sense or a request fails.
#[expect(clippy::cast_precision_loss, reason = "rates for people")]
pub fn run(device: &Arc<dyn BlockDevice>, load: Load) -> Result<LoadReport, LoadError> {
    let limits = device.limits();
    let blocks = limits
        .size_bytes
        .checked_div(u64::from(load.block_bytes))
        .unwrap_or(0);
    for (what, good) in [
        (
            "block",
            blocks > 0 && load.block_bytes <= limits.request_bytes_max,
        ),
        ("depth", load.depth > 0),
        ("jobs", load.jobs > 0),
        ("rate", load.rate_bytes != Some(0)),
    ] {
        if !good {
            return Err(LoadError::Shape { what });
        }
    }
    if let Some(percent) = load.compressible_percent
        && (percent > 99 || !load.block_bytes.is_multiple_of(4096))
    {
        let bytes = load.block_bytes;
        return Err(LoadError::Content { bytes, percent });
    }
    if let Some(percent) = load.read_percent
        && (percent > 100 || load.pattern != Pattern::RandRw)
    {
        return Err(LoadError::Mix(percent));
    }
    let bytes = load.block_bytes;
    let places = Places::new(blocks, u64::from(bytes), load.hot);
    let places = places.filter(|_| load.hot.is_none() || load.pattern.is_random());
    let places = places.ok_or(LoadError::Hot { bytes })?;
    let (cpu, began) = (cpu_time(), Instant::now());
    let until = began + load.time;
    let (sender, ended) = mpsc::channel();
    let jobs: Vec<Arc<Job>> = (0..u64::from(load.jobs))
        .map(|index| Job::new(device, load, (places, blocks, index), until, sender.clone()))
        .collect();
    match load.rate_bytes {
        Some(rate) => send_at(rate, &jobs, load, (began, until)),
        None => jobs.iter().for_each(|job| job.go_on(job.lock())),
    }
    for _ in &jobs {
        ended.recv().expect("this function has a sender");
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_time().saturating_sub(cpu);
    let mut all = Latencies::new();
    let mut unsent = 0;
    for job in &jobs {
        let state = job.lock();
        if let Some(fault) = state.fault {
            return Err(LoadError::Fault(fault));
        }
        all.merge(&state.latencies);
        unsent += state.unsent;
    }
    let count = (all.count - unsent) as f64;
    Ok(LoadReport {
        iops: count / seconds,
        bytes_per_second: count * f64::from(load.block_bytes) / seconds,
        cpu_us_per_io: cpu.as_secs_f64() * 1e6 / count.max(1.0),
        p50_us: all.quantile_us(500),
        p99_us: all.quantile_us(990),
        p999_us: all.quantile_us(999),
    })
}

/// Sends requests at fixed times, to one job after the other.
fn send_at(rate: u64, jobs: &[Arc<Job>], load: Load, (began, until): (Instant, Instant)) {
    let nanos = |number: u64| {
        let bytes = u128::from(number) * u128::from(load.block_bytes);
        let nanos = bytes * 1_000_000_000 / u128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    };
    let mut number = 0;
    let mut well = true;
    while well {
        let now = Instant::now();
        let mut due: Vec<Vec<Instant>> = vec![Vec::new(); jobs.len()];
        let mut at = began + nanos(number);
        while at <= now && at < until {
            let job = usize::try_from(number).unwrap_or(0) % jobs.len();
            due[job].push(at);
            number += 1;
            at = began + nanos(number);
        }
        for (job, due) in jobs.iter().zip(due) {
            if !due.is_empty() {
                well &= job.fall_due(due, false);
            }
        }
        if at >= until {
            break;
        }
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
    }
    for job in jobs {
        job.fall_due(Vec::new(), true);
    }
}

/// CPU time of this process so far, from its own clock.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use block::Limits;

    use super::*;
    use crate::drive::sync;
    use crate::drive::tests::support::open_sized;

    const BLOCKS: u64 = 1000;

    /// A drive in memory that remembers its requests.
    struct Recorder {
        drive: Arc<dyn BlockDevice>,
        requests: Mutex<Vec<Request>>,
    }

    impl BlockDevice for Recorder {
        fn limits(&self) -> Limits {
            self.drive.limits()
        }

        fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
            self.requests.lock().unwrap().push(request);
            self.drive.submit(request, memory, token, to);
        }
    }

    fn in_memory() -> Arc<dyn BlockDevice> {
        open_sized(&format!("mem:{}", BLOCKS * 4096), 0).device
    }

    /// The requests of a load, and the device after it.
    fn after(load: Load) -> (Vec<Request>, Arc<Recorder>) {
        let recorder = Arc::new(Recorder {
            drive: in_memory(),
            requests: Mutex::default(),
        });
        let device: Arc<dyn BlockDevice> = recorder.clone();
        run(&device, load).unwrap();
        let requests = take(&mut *recorder.requests.lock().unwrap());
        (requests, recorder)
    }

    const WRITES: Load = Load {
        pattern: Pattern::Write,
        block_bytes: 8192,
        depth: 4,
        jobs: 2,
        time: Duration::from_millis(100),
        sync: false,
        read_percent: None,
        compressible_percent: None,
        hot: None,
        total_bytes: None,
        rate_bytes: None,
    };

    #[test]
    fn compressible_content_differs_in_all_blocks_and_other_content_is_zeros() {
        for percent in [None, Some(0), Some(50), Some(99)] {
            let (requests, device) = after(Load {
                compressible_percent: percent,
                ..WRITES
            });
            let places: HashSet<u64> = requests.iter().map(|request| request.offset).collect();
            let blocks: Vec<Vec<u8>> = { places.into_iter() }
                .map(|offset| sync::read(&*device, offset, 8192).unwrap())
                .flat_map(|bytes| bytes.chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>())
                .collect();
            let zeros = blocks.iter().filter(|block| **block == [0; 4096]).count();
            let different = blocks.iter().collect::<HashSet<_>>().len();
            let expected = match percent {
                None => (blocks.len(), 1),
                Some(_) => (0, blocks.len()),
            };
            assert_eq!((zeros, different), expected, "{percent:?}");
        }
    }

    #[test]
    fn a_load_ends_after_its_bytes_and_each_job_sends_its_share() {
        // Seven requests, of which the last is not needed in full.
        let (requests, _) = after(Load {
            total_bytes: Some(6 * 8192 + 1),
            time: Duration::from_secs(3600),
            ..WRITES
        });
        let mut places: Vec<u64> = requests
            .iter()
            .map(|request| request.offset / 8192)
            .collect();
        places.sort_unstable();
        let half = BLOCKS / 2 / 2;
        assert_eq!(places, [0, 1, 2, 3, half, half + 1, half + 2]);
    }

    #[test]
    fn reads_get_their_share_and_leave_the_content_alone() {
        let (requests, device) = after(Load {
            pattern: Pattern::RandRw,
            block_bytes: 4096,
            read_percent: Some(70),
            compressible_percent: Some(50),
            hot: Some(Hot {
                requests_percent: 80,
                part: HotPart::Percent(20),
            }),
            ..WRITES
        });
        let share = |like: fn(&Request) -> bool| {
            let count = requests.iter().filter(|request| like(request)).count();
            count * 1000 / requests.len()
        };
        // Ten thousand requests are within 2.5 % with a certainty of five deviations.
        assert!(requests.len() > 10_000, "{}", requests.len());
        let reads = share(|request| request.kind == RequestKind::Read);
        assert!((675..725).contains(&reads), "{reads}");
        let hot = share(|request| request.offset < BLOCKS / 5 * 4096);
        assert!((775..825).contains(&hot), "{hot}");
        let mut seen = HashSet::new();
        for request in requests
            .iter()
            .filter(|request| request.kind == RequestKind::Write)
        {
            let block = sync::read(&*device, request.offset, 4096).unwrap();
            seen.insert((request.offset, block));
        }
        let blocks: HashSet<_> = seen.iter().map(|(_, block)| block).collect();
        assert_eq!(blocks.len(), seen.len());
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        let device = in_memory();
        let hot = Some(Hot {
            requests_percent: 90,
            part: HotPart::Percent(10),
        });
        let refused = |load: Load| run(&device, load).unwrap_err().to_string();
        assert!(refused(Load { hot, ..WRITES }).contains("at random places"));
        for (block_bytes, compressible_percent) in [(6144, Some(50)), (4096, Some(100))] {
            let refused = refused(Load {
                block_bytes,
                compressible_percent,
                ..WRITES
            });
            assert!(refused.contains("blocks of 4 KiB"), "{refused}");
        }
        for (pattern, percent) in [(Pattern::RandRw, 101), (Pattern::RandRead, 50)] {
            let refused = refused(Load {
                pattern,
                read_percent: Some(percent),
                ..WRITES
            });
            assert!(refused.contains("reads and writes"), "{refused}");
        }
    }

    #[test]
    fn quantiles_lie_within_a_sixteenth() {
        let mut latencies = Latencies::new();
        for micros in 1..=1000 {
            latencies.add(Duration::from_micros(micros));
        }
        for (per_mille, expected) in [(500, 500.0), (990, 990.0), (999, 999.0)] {
            let got = latencies.quantile_us(per_mille);
            assert!((got / expected - 1.0).abs() < 0.07, "{per_mille}: {got}");
        }
    }

    /// A load of 64 KiB that is sent at fixed times.
    fn at_rate(rate: u64, time: Duration) -> Load {
        Load {
            pattern: Pattern::Read,
            block_bytes: 64 << 10,
            depth: 1,
            jobs: 2,
            time,
            sync: false,
            read_percent: None,
            compressible_percent: None,
            hot: None,
            total_bytes: None,
            rate_bytes: Some(rate),
        }
    }

    #[test]
    fn a_rate_sends_at_fixed_times_whatever_the_answers_and_counts_from_when_requests_were_due() {
        let time = Duration::from_millis(500);
        // Sixteen requests are due, however late a busy machine sends them.
        let (requests, _) = after(at_rate(2 << 20, time));
        assert_eq!(requests.len(), 16);
        // The drive manages half of them in the time: one after the other they would not wait for each other.
        let slow = || open_sized("slow:mem:4M?bandwidth=1M", 0).device;
        let open = run(&slow(), at_rate(2 << 20, time)).unwrap();
        let closed = Load {
            rate_bytes: None,
            jobs: 1,
            ..at_rate(1, time)
        };
        let closed = run(&slow(), closed).unwrap();
        assert!(open.p99_us > 400_000.0, "{open:?}");
        assert!(open.p50_us > 2.0 * closed.p50_us, "{open:?} {closed:?}");
        let none = Load {
            rate_bytes: Some(0),
            ..at_rate(1, time)
        };
        assert!(run(&slow(), none).is_err());
    }
}
