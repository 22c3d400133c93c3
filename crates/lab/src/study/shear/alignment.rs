//! Figure 20: files written in whole stripes.
//!
//! ```text
//! default   files end to end, requests of 128 KiB      |d d d p|d d p d|  parts of stripes: old data is read first
//! aligned   files from a stripe's begin, whole stripes |D D D P|D D P D|  nothing is read
//! ```

use block::{Instant, Request, RequestKind};
use rand::{Rng, RngExt as _};
use sim::load::Target;
use stats::to_f64;

use super::KIB;
use super::volume::{array, options};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::SHEAR;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Fig20;

static ABOUT: About = About {
    id: "shear-fig20",
    paper: &SHEAR,
    title: "Figure 20: stripe-aligned writes",
    question: "How much faster are files written to RAID-5 on four drives when a file system that knows the stripe writes \
        whole stripes? The paper: by over a factor of two for larger files.",
};

const BLOCK: u64 = 4 * KIB;
const CHUNK_BYTES: u64 = 64 * KIB;
const STRIPE_BYTES: u64 = 3 * CHUNK_BYTES;
/// The longest request of Linux 2.4: 255 sectors, which is one block less than this.
const REQUEST_BYTES: u64 = 128 * KIB;
/// Requests in flight.
const WINDOW: usize = 16;
/// "The workload consists of creating 100 files" (figure 20).
const FILES: u32 = 100;
/// Mean sizes in halves of a stripe.
const HALVES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The paper's factor is expected from this size on, in halves of a stripe.
const LARGE: u64 = 8;

/// Requests that write the files, "uniformly distributed between 0.5 × mean and 1.5 × mean".
fn requests(mean: u64, aligned: bool, random: &mut impl Rng) -> Vec<Request> {
    let unit = if aligned { STRIPE_BYTES } else { REQUEST_BYTES };
    let mut requests = Vec::new();
    let mut begin = 0_u64;
    for _ in 0..FILES {
        let blocks = random.random_range(mean / 2 / BLOCK..=3 * mean / 2 / BLOCK);
        let end = begin + blocks.max(1) * BLOCK;
        let mut offset = begin;
        while offset < end {
            let length = unit.min(end - offset);
            requests.push(Request {
                kind: RequestKind::Write,
                offset,
                length,
                fua: false,
            });
            offset += length;
        }
        begin = match aligned {
            true => end.next_multiple_of(STRIPE_BYTES),
            false => end,
        };
    }
    requests
}

/// Writes the files with `WINDOW` requests in flight; returns bytes per second.
fn rate(target: &mut impl Target, requests: &[Request]) -> f64 {
    let mut now = Instant::ZERO;
    let (mut begun, mut open) = (0, 0);
    loop {
        while open < WINDOW
            && let Some(request) = requests.get(begun)
        {
            target.handle_request(now, begun as u64, *request);
            begun += 1;
            open += 1;
        }
        while target.poll_done().is_some() {
            open -= 1;
        }
        let all = begun == requests.len();
        if open == 0 && all {
            break;
        }
        if open == WINDOW || all {
            now = target
                .poll_timeout()
                .expect("something is due while requests are open");
            target.handle_timeout(now);
        }
    }
    let bytes: u64 = requests.iter().map(|request| request.length).sum();
    to_f64(bytes) / (to_f64(now.0) / 1e9)
}

impl Study for Fig20 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let rates = context.map(&HALVES, |&halves| {
            let mean = halves * STRIPE_BYTES / 2;
            Ok([false, true].map(|aligned| {
                // The same files for both.
                let mut random = context.random(&format!("files.{halves}"));
                let requests = requests(mean, aligned, &mut random);
                rate(&mut array(&options("raid5:la:4c", CHUNK_BYTES)), &requests)
            }))
        })?;
        let mut trace = Trace::default();
        let mut rows = Vec::new();
        for (&halves, [default, aligned]) in HALVES.iter().zip(&rates) {
            trace.add(default.to_bits());
            trace.add(aligned.to_bits());
            let size = to_f64(halves) / 2.0;
            let row = Row::alone(
                format!("fig20.{}k", halves * STRIPE_BYTES / 2 / KIB),
                format!("Files of {size} stripes: rate of whole stripes ÷ of default writes"),
                aligned / default,
                Unit::Ratio,
                "the text has a number for larger files only",
            );
            let row = row.remark(format!(
                "{:.1} and {:.1} MB/s",
                aligned / 1e6,
                default / 1e6
            ));
            rows.push(match halves >= LARGE {
                true => row.against(2.0, Rule::AtLeast, "less than twice as fast"),
                false => row,
            });
        }
        let mut chart = Chart::new(
            "rate",
            "100 files on RAID-5, four drives",
            Mark::Lines,
            Axis::log("mean size, stripes"),
            Axis::linear("MB/s"),
        );
        for (at, name) in ["default", "whole stripes"].into_iter().enumerate() {
            let points = HALVES.iter().zip(&rates);
            chart.series.push(Series {
                name: name.to_owned(),
                ours: points
                    .map(|(&halves, rates)| Point::new(to_f64(halves) / 2.0, rates[at] / 1e6))
                    .collect(),
                paper: Vec::new(),
            });
        }
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "RAID-5 (LA) on four IBM 9LZX, no cache, chunks of 64 KiB, which the paper does not name; {FILES} files, \
                 {WINDOW} requests in flight. Default: files end to end in requests of at most 128 KiB. Whole stripes: \
                 each file begins at a stripe, requests of a stripe; the end of a file is a part of one. Files alone \
                 are written: no metadata."
            ),
            trace: trace.0,
            rows,
            charts: vec![chart],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn both_ways_write_the_same_files() {
        let all = |aligned| requests(4 * STRIPE_BYTES, aligned, &mut ChaCha8Rng::seed_from_u64(1));
        let bytes = |requests: &[Request]| -> u64 { requests.iter().map(|one| one.length).sum() };
        let (default, aligned) = (all(false), all(true));
        assert_eq!(bytes(&default), bytes(&aligned));
        assert!(
            default
                .windows(2)
                .all(|pair| pair[0].offset + pair[0].length == pair[1].offset)
        );
        assert!(
            aligned
                .iter()
                .all(|one| one.offset.is_multiple_of(STRIPE_BYTES))
        );
    }
}
