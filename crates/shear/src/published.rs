//! The paper's four steps as published (section 2.3), as the reference for comparisons.
//!
//! N requests at once, R times, for every stride, every boundary and every pair of chunks; x-means
//! for the pattern, k-means for boundaries and pairs; then reads against writes.

use stats::{k_means, x_means};

use crate::belief::{Family, Redundancy};
use crate::desk::Desk;
use crate::probe::{Kind, Probe, Request, Stop};
use crate::{Method, Options};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BLOCK: u64 = 4096;
/// Clusters of strides, at most: one for each number of drives that a stride may use.
const CLUSTERS_MAX: usize = 12;

struct Bench {
    desk: Desk,
    rng: ChaCha8Rng,
    size: u64,
    requests: usize,
    trials: u32,
}

impl Bench {
    /// Mean seconds of R bursts of `requests` each; `place` makes the offsets of one burst.
    async fn mean(
        &mut self,
        kind: Kind,
        mut place: impl FnMut(&mut ChaCha8Rng) -> Vec<u64>,
    ) -> Result<f64, Stop> {
        let mut sum = 0.0;
        for _ in 0..self.trials {
            let requests = place(&mut self.rng).into_iter().map(|offset| Request {
                offset,
                length: BLOCK,
                kind,
            });
            let requests = requests.collect();
            let sample = self.desk.ask(Probe { requests }).await?;
            #[expect(clippy::cast_precision_loss, reason = "a time")]
            let seconds = sample.makespan() as f64 / 1e9;
            sum += seconds;
        }
        Ok(sum / f64::from(self.trials))
    }

    /// Offsets in N segments of `stride` bytes, with the same residue in each.
    fn segments(
        rng: &mut ChaCha8Rng,
        size: u64,
        stride: u64,
        count: usize,
        residue: u64,
    ) -> Vec<u64> {
        let segments = size / stride;
        (0..count)
            .map(|_| rng.random_range(0..segments) * stride + residue)
            .collect()
    }

    /// The same with two residues in turn. If an array sends each read to the copy whose drive has least to do, the
    /// array can balance the burst only if both residues are in the burst together.
    fn both(
        rng: &mut ChaCha8Rng,
        size: u64,
        stride: u64,
        count: usize,
        residues: (u64, u64),
    ) -> Vec<u64> {
        let first = Self::segments(rng, size, stride, count, residues.0);
        let second = Self::segments(rng, size, stride, count, residues.1);
        let pairs = first.into_iter().zip(second);
        pairs.flat_map(|(first, second)| [first, second]).collect()
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(crate) async fn run(options: Options, desk: Desk) {
    let end = steps(&options, &desk).await;
    desk.believe(|belief| {
        belief.step = "done";
        if let Err(stop) = end {
            belief.reasons.push(stop.to_string());
        }
    });
}

async fn steps(options: &Options, desk: &Desk) -> Result<(), Stop> {
    let Method::Published {
        requests,
        trials,
        step_bytes,
        pattern_bytes_max,
    } = options.method
    else {
        return Ok(());
    };
    let mut bench = Bench {
        desk: desk.clone(),
        rng: ChaCha8Rng::seed_from_u64(options.seed),
        size: options.size_bytes / BLOCK * BLOCK,
        requests: requests as usize,
        trials,
    };
    let (size, count) = (bench.size, bench.requests);
    desk.believe(|belief| belief.step = "pattern");
    let mut strides: Vec<(u64, f64)> = Vec::new();
    for stride in (1..=pattern_bytes_max / step_bytes).map(|step| step * step_bytes) {
        let time = bench
            .mean(Kind::Read, |rng| {
                let residue = rng.random_range(0..stride / BLOCK) * BLOCK;
                Bench::segments(rng, size, stride, count, residue)
            })
            .await?;
        desk.plot(stride, time);
        strides.push((stride, time));
    }
    let times: Vec<f64> = strides.iter().map(|&(_, time)| time).collect();
    let longest = times.iter().copied().fold(0.0, f64::max);
    let clusters = x_means(&times, CLUSTERS_MAX, (longest * 0.01).max(1e-9));
    let slow = clusters.len() - 1;
    let pattern = strides
        .iter()
        .filter(|&&(_, time)| clusters.of(time) == slow)
        .fold(0, |pattern, &(stride, _)| gcd(pattern, stride));
    desk.believe(|belief| {
        belief.pattern_bytes = Some(pattern);
        belief.step = "boundaries";
    });

    let mut boundaries: Vec<(u64, f64)> = Vec::new();
    for at in (0..pattern / step_bytes).map(|step| step * step_bytes) {
        let before = (at + pattern - BLOCK) % pattern;
        let time = bench
            .mean(Kind::Read, |rng| {
                Bench::both(rng, size, pattern, count, (at, before))
            })
            .await?;
        desk.boundary(at, time);
        boundaries.push((at, time));
    }
    let times: Vec<f64> = boundaries.iter().map(|&(_, time)| time).collect();
    let clusters = k_means(&times, 2);
    let borders: Vec<u64> = boundaries
        .iter()
        .filter(|&&(_, time)| clusters.of(time) == 0)
        .map(|&(at, _)| at)
        .collect();
    let chunk = borders
        .windows(2)
        .fold(pattern, |chunk, pair| gcd(chunk, pair[1] - pair[0]));
    desk.believe(|belief| {
        belief.chunk_bytes = Some(chunk);
        belief.step = "layout";
    });

    let chunks = pattern / chunk.max(1);
    let mut pairs: Vec<(u64, u64, f64)> = Vec::new();
    for a in 0..chunks {
        for b in a..chunks {
            let time = bench
                .mean(Kind::Read, |rng| {
                    Bench::both(rng, size, pattern, count, (a * chunk, b * chunk))
                })
                .await?;
            pairs.push((a, b, time));
        }
    }
    let times: Vec<f64> = pairs.iter().map(|&(_, _, time)| time).collect();
    let clusters = k_means(&times, 2);
    let slowest = times.iter().copied().fold(0.0, f64::max);
    // Union of the pairs in the slow cluster: chunks of one drive.
    let mut drive: Vec<u64> = (0..chunks).collect();
    for &(a, b, time) in &pairs {
        let number = |chunk| u32::try_from(chunk).unwrap_or(u32::MAX);
        desk.pair(number(a), number(b), time / slowest);
        if a != b && clusters.of(time) == clusters.len() - 1 {
            let place = |chunk: u64| usize::try_from(chunk).unwrap_or(usize::MAX);
            let (from, to) = (drive[place(b)], drive[place(a)]);
            for name in &mut drive {
                if *name == from {
                    *name = to;
                }
            }
        }
    }
    drive.sort_unstable();
    drive.dedup();
    desk.believe(|belief| {
        belief.drives = u16::try_from(drive.len()).ok();
        belief.family = Family::Unknown;
        belief.step = "redundancy";
    });
    if !options.writes {
        return Ok(());
    }
    let anywhere = |rng: &mut ChaCha8Rng, count: usize| -> Vec<u64> {
        (0..count)
            .map(|_| rng.random_range(0..size / BLOCK) * BLOCK)
            .collect()
    };
    // N doubles until writes are no longer much faster than reads.
    let mut count = count;
    loop {
        let reads = bench.mean(Kind::Read, |rng| anywhere(rng, count)).await?;
        let writes = bench
            .mean(Kind::Rewrite, |rng| anywhere(rng, count))
            .await?;
        if writes > 0.8 * reads || count > 1 << 16 {
            let ratio = writes / reads;
            desk.believe(|belief| {
                belief.write_ratio = Some(ratio);
                belief.redundancy = match ratio {
                    ratio if ratio < 1.4 => Redundancy::None,
                    ratio if ratio < 2.8 => Redundancy::Mirror,
                    ratio if ratio < 4.9 => Redundancy::Parity,
                    _ => Redundancy::DoubleParity,
                };
            });
            return Ok(());
        }
        count *= 2;
    }
}
