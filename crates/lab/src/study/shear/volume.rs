//! A simulated array measured from outside: a procedure sends bursts and receives times until it
//! ends.

use block::{Instant, Request, RequestKind};
use shear::{Belief, Kind, Method, Options, Probe, Sample, Shear};
use sim::load::Target;
use sim::model::preset;
use sim::plain::{PlainArray, PlainOptions};

use crate::study::{Context, Stopped};
use crate::trace::Trace;

/// The paper's array: a scheme on whole 9LZX drives. Only the drives take time.
pub(super) fn options(scheme: &str, chunk_bytes: u64) -> PlainOptions {
    PlainOptions {
        chunk_bytes,
        ..PlainOptions::new(scheme, preset("9lzx").expect("a preset"))
    }
}

/// The array of these options.
pub(super) fn array(options: &PlainOptions) -> PlainArray {
    PlainArray::new(options).expect("the schemes of these studies fit their drives")
}

/// Runs a burst: all requests start now, nothing else is in flight. Returns the nanoseconds of
/// each.
pub(super) fn burst(target: &mut impl Target, begin: Instant, requests: &[Request]) -> Vec<u64> {
    for (token, request) in (0..).zip(requests) {
        target.handle_request(begin, token, *request);
    }
    let mut times = vec![0; requests.len()];
    let mut open = requests.len();
    let mut now = begin;
    loop {
        while let Some((token, _)) = target.poll_done() {
            let index = usize::try_from(token).expect("an index of the burst");
            times[index] = now.0 - begin.0;
            open -= 1;
        }
        if open == 0 {
            return times;
        }
        now = target
            .poll_timeout()
            .expect("something is due while requests are open");
        target.handle_timeout(now);
    }
}

/// A block at each offset.
pub(super) fn blocks(kind: RequestKind, offsets: &[u64], length: u64) -> Vec<Request> {
    let request = |&offset| Request {
        kind,
        offset,
        length,
        fua: false,
    };
    offsets.iter().map(request).collect()
}

/// A target that answers a burst with times.
pub(super) trait Answer {
    /// Bytes of the volume.
    fn size_bytes(&self) -> u64;
    /// Nanoseconds of each request.
    fn answer(&mut self, probe: &Probe) -> Vec<u64>;
}

impl Answer for PlainArray {
    fn size_bytes(&self) -> u64 {
        self.capacity_bytes()
    }

    fn answer(&mut self, probe: &Probe) -> Vec<u64> {
        let requests: Vec<Request> = probe
            .requests
            .iter()
            .map(|request| Request {
                kind: match request.kind {
                    Kind::Read => RequestKind::Read,
                    Kind::Rewrite => RequestKind::Write,
                },
                offset: request.offset,
                length: request.length,
                fua: false,
            })
            .collect();
        let begin = self.now();
        burst(self, begin, &requests)
    }
}

/// The results of a procedure.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) belief: Belief,
    pub(super) curve: Vec<(u64, f64)>,
    pub(super) boundaries: Vec<(u64, f64)>,
    pub(super) pairs: Vec<(u32, u32, f64)>,
    pub(super) ios: u64,
    pub(super) trace: u64,
}

/// Steps of the published procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Pattern,
    Boundaries,
    Layout,
    Redundancy,
}

impl Step {
    /// The step with this name in a belief; the additional steps of our procedure count as the
    /// last.
    fn of(name: &str) -> Self {
        match name {
            "pattern" => Self::Pattern,
            "boundaries" => Self::Boundaries,
            "layout" => Self::Layout,
            _ => Self::Redundancy,
        }
    }
}

/// How a procedure is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) method: Method,
    pub(super) writes: bool,
    /// The last step of the published procedure; our procedure always runs to its end.
    pub(super) last: Step,
    pub(super) seed: u64,
}

impl Run {
    /// Our procedure, reads and writes.
    pub(super) const fn ours(seed: u64) -> Self {
        Self {
            method: Method::Ours,
            writes: true,
            last: Step::Redundancy,
            seed,
        }
    }

    /// The published procedure, reads only, up to a step.
    pub(super) const fn published(method: Method, last: Step, seed: u64) -> Self {
        Self {
            method,
            writes: false,
            last,
            seed,
        }
    }

    /// Runs it.
    pub(super) fn on(
        self,
        context: &Context<'_>,
        volume: &mut impl Answer,
    ) -> Result<Seen, Stopped> {
        let mut shear = Shear::new(Options {
            size_bytes: volume.size_bytes(),
            writes: self.writes,
            ios_max: u64::MAX,
            seed: self.seed,
            method: self.method,
        });
        let mut trace = Trace::default();
        let mut ios = 0;
        while let Some(probe) = shear.next_probe() {
            let ends = self.method != Method::Ours && Step::of(shear.belief().step) > self.last;
            if ends {
                break;
            }
            context.check()?;
            let sample = Sample {
                nanoseconds: volume.answer(&probe),
            };
            ios += probe.requests.len() as u64;
            trace.add(sample.makespan());
            context.passed(sample.makespan());
            shear.record(sample);
        }
        Ok(Seen {
            belief: shear.belief(),
            curve: shear.curve(),
            boundaries: shear.boundaries(),
            pairs: shear.pairs(),
            ios,
            trace: trace.0,
        })
    }
}
