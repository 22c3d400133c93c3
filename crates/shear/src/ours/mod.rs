//! Sequential decisions: each step measures until its answer is sure; then the next step begins.
//!
//! | file | question | answer |
//! | --- | --- | --- |
//! | `bench` | how long does this burst take? | levels: means of logarithms of times |
//! | `order` | do drives answer in order? | how flash shows its drives |
//! | `ground` | how long do one read and many reads take? | depth of bursts, or why there is no answer |
//! | `pattern` | which strides keep to one drive? | pattern size |
//! | `chunk` | where does the drive change? | chunk size, first border |
//! | `copies` | how many drives serve one chunk? | copies |
//! | `drives` | which chunks share drives? | the map of a pattern |
//! | `class` | which layouts have this map? | the class of layouts |
//! | `writes` | what does a write cost? | redundancy |
//! | `buffers` | does a memory take writes? | how many writes are needed to see past it |
//! | `policy` | how is parity found? | what small writes cost |
//! | `parity` | is there a drive of parity alone? | layouts with such a drive, or without |
//! | `stripe` | which aligned writes cost least? | full stripe |
//!
//! Times are compared as logarithms: the ratio of two drives to one is 0.69 for any drive, and noise that grows with
//! the time is the same on all levels.

mod bench;
mod buffers;
mod chunk;
mod class;
mod copies;
mod drives;
mod ground;
mod order;
mod parity;
mod pattern;
mod policy;
mod stripe;
mod writes;

use crate::belief::{Belief, Family};
use crate::desk::Desk;
use crate::probe::Stop;
use crate::{Options, Redundancy};

use bench::Bench;
use copies::Stairs;

/// Probability that one decision of a sequential test is wrong. A run takes up to some hundreds of decisions, each
/// with a few bursts; together they stay within the 10⁻³ of a run.
const DECISION_ERROR: f64 = 1e-6;

/// Runs whose times do not fit together, before that is reported as the answer.
const ATTEMPTS: u32 = 3;

/// Why a step ended without its answer.
enum End {
    /// No more bursts.
    Stopped(Stop),
    /// The answer cannot be determined; the reason.
    CannotTell(String),
    /// Times did not fit together, as when the host is busy; the reason.
    Unsure(String),
}

impl From<Stop> for End {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// The whole procedure. Its result is the belief on the desk.
pub(crate) async fn run(options: Options, desk: Desk) {
    let mut bench = Bench::new(&options, desk.clone());
    desk.believe(|belief| belief.confidence = 1.0);
    let mut end = steps(&mut bench, options.writes).await;
    for _ in 1..ATTEMPTS {
        // The disturbance may be over, and other places may work better.
        if !matches!(end, Err(End::Unsure(_))) {
            break;
        }
        bench.forget_places();
        desk.believe(forget);
        end = steps(&mut bench, options.writes).await;
    }
    let reason = match end {
        Ok(()) => None,
        Err(End::Stopped(stop)) => Some(stop.to_string()),
        Err(End::CannotTell(why) | End::Unsure(why)) => Some(why),
    };
    desk.believe(|belief| {
        belief.step = "done";
        belief.reasons.extend(reason);
        if belief.family == Family::Unknown {
            // A pattern that no layout has confirmed may be only part of the truth: report it as a reason, not as an
            // answer.
            let (pattern, chunk) = (belief.pattern_bytes.take(), belief.chunk_bytes.take());
            if let Some(pattern) = pattern {
                let chunk = chunk.map_or(String::new(), |chunk| format!(" and chunks of {chunk}"));
                belief.reasons.push(format!(
                    "seen and not confirmed: a pattern of {pattern} bytes{chunk}"
                ));
            }
            (belief.drives, belief.copies) = (None, None);
            (belief.offset_bytes, belief.confidence) = (0, 0.0);
        }
    });
}

async fn steps(bench: &mut Bench, writes: bool) -> Result<(), End> {
    let desk = bench.desk.clone();
    desk.believe(|belief| belief.step = "ground");
    let ground = ground::measure(bench).await?;
    let stairs = copies::stairs(bench).await?;
    if let Some(Stairs::Copies(drives @ 2..)) = stairs
        && copies::unstriped(bench).await?
    {
        desk.believe(|belief| tell_mirror(belief, drives));
        return Ok(());
    }
    desk.believe(|belief| belief.step = "pattern");
    // An array may choose the copy for a read without regard to other reads: many reads are spread evenly even so.
    let depth_min = match stairs {
        Some(Stairs::Copies(copies @ 2..)) => 16 * usize::from(copies),
        _ => 0,
    };
    let mut pattern = pattern::find(bench, depth_min).await?;
    desk.believe(|belief| {
        belief.pattern_bytes = Some(pattern.bytes);
        belief.step = "copies";
    });
    pattern.copies = copies::count(bench, &ground, stairs, &pattern).await?;
    if pattern.copies != Some(1) && bench.in_order.is_none() {
        pattern::with_copies(bench, &mut pattern).await?;
    }
    desk.believe(|belief| {
        belief.copies = pattern.copies;
        belief.step = "chunk";
    });
    let chunks = chunk::find(bench, &pattern).await?;
    desk.believe(|belief| {
        belief.chunk_bytes = Some(chunks.bytes);
        belief.offset_bytes = chunks.phase;
        belief.step = "drives";
    });
    let mut map = drives::map(bench, &pattern, &chunks).await?;
    while let Some(period) = map.period() {
        // Requests of a long stride may be at other angles than those of its parts; then the parts seem to be on other
        // drives.
        pattern = match period {
            1 => return Err(pattern::repeats(&pattern)),
            _ => pattern::shorter(bench, &pattern, period as u64 * chunks.bytes).await?,
        };
        desk.believe(|belief| belief.pattern_bytes = Some(pattern.bytes));
        map = drives::map(bench, &pattern, &chunks).await?;
    }
    desk.believe(|belief| belief.step = "layout");
    let class = class::of(&map);
    let found = match class {
        Ok(found) => found,
        Err(why) => {
            desk.believe(|belief| {
                belief.family = Family::Unknown;
                belief.drives = u16::try_from(map.classes())
                    .ok()
                    .filter(|_| map.wild.is_empty());
            });
            return Err(End::Unsure(why));
        }
    };
    let halves = class::halves(&map, &chunks, pattern.copies);
    if halves.is_some() && chunks.phase != 0 && !writes {
        return Err(writes::two_readings(&chunks));
    }
    found.tell(&desk, &chunks);
    if !writes && !found.open_widths().is_empty() {
        desk.believe(|belief| {
            belief.reasons.push(format!(
                "stripes may have {:?} data chunks: --writes says which",
                found.open_widths()
            ));
        });
    }
    drives::odd(bench, &pattern, &chunks, &map, &found).await?;
    if writes {
        desk.believe(|belief| belief.step = "writes");
        writes::decide(bench, &pattern, chunks, found, halves).await?;
        if desk.belief().redundancy == Redundancy::None {
            desk.believe(|belief| {
                belief.reasons.push(
                    "mirrors whose second copies are never read look the same: their writes load the drives that are seen like those of striping"
                        .to_owned(),
                );
            });
        }
    } else if found
        .redundancies()
        .iter()
        .any(|&one| one != Redundancy::Mirror)
    {
        desk.believe(|belief| {
            belief.reasons.push(
                "reads alone show neither parity nor copies that are never read: --writes does"
                    .to_owned(),
            );
        });
    }
    Ok(())
}

/// Clears the belief, except for its confidence.
fn forget(belief: &mut Belief) {
    *belief = Belief {
        confidence: belief.confidence,
        ..Belief::default()
    };
}

/// Reports a mirror: every block is on the same drives, and each drive can serve any block. Whole copies, no stripes.
fn tell_mirror(belief: &mut Belief, drives: u16) {
    belief.family = Family::Classic;
    belief.redundancy = Redundancy::Mirror;
    (belief.drives, belief.copies) = (Some(drives), Some(drives));
    belief.layout = vec![match drives {
        2 => "raid1".to_owned(),
        _ => format!("raid1:{drives}r"),
    }];
}
