//! A planned pool in words: what it survives, how long a rebuild takes, and where the bytes go.

use std::io::{self, Write};

use engine::assemble::{ElasticPlan, PoolPlan};

use super::common::{count, size, time};

/// Failure domains that are listed by name; if there are more, only their number is shown.
const DOMAINS_MAX: usize = 8;

/// The failures that the pool survives.
pub(crate) fn survives(plan: &PoolPlan) -> String {
    let drives = match plan.survives_drives {
        0 => "no drive".to_owned(),
        1 => "any one drive".to_owned(),
        count if count + 1 == plan.drives => format!("all drives but one ({count})"),
        count => format!("any {count} drives"),
    };
    let Some(domains) = plan.survives_domains else {
        return drives;
    };
    let names = match plan.domains.len() <= DOMAINS_MAX {
        true => format!(" ({})", plan.domains.join(", ")),
        false => String::new(),
    };
    let count = plan.domains.len();
    match domains {
        0 => format!("{drives}; none of {count} domains as a whole{names}"),
        1 => format!("{drives}; any one of {count} domains{names}"),
        some => format!("{drives}; any {some} of {count} domains{names}"),
    }
}

/// How long the rebuild of a full drive takes.
#[expect(clippy::cast_precision_loss, reason = "a time for display")]
pub(crate) fn rebuild(plan: &PoolPlan) -> String {
    match (plan.rebuild_seconds, &plan.rebuild_bound) {
        (Some(seconds), Some(bound)) => format!(
            "about {} for a full drive, bound by {bound} at {} MB/s",
            time(seconds as f64),
            plan.rebuild_bytes_per_second / 1_000_000
        ),
        _ => "none: what a drive held is lost with it".to_owned(),
    }
}

/// What fits on drives that compress.
fn write_elastic(out: &mut dyn Write, elastic: &ElasticPlan) -> io::Result<()> {
    writeln!(
        out,
        "  elastic:  drives expose {} and store {}, {} of that metadata and free stripes; if what they store shrinks on average by",
        size(elastic.exposed_bytes),
        size(elastic.physical_bytes),
        size(elastic.reserve_bytes)
    )?;
    let mut capacities = elastic.capacities.clone();
    // An expansion of 1 is no ratio of its own.
    capacities.dedup_by_key(|at| at.ratio);
    for at in capacities {
        let ratio = format!("{:.2}", at.ratio);
        let ratio = ratio.trim_end_matches('0').trim_end_matches('.');
        let copies = match at.coverage {
            ..0.005 => "as parity".to_owned(),
            0.995.. => "all as copies".to_owned(),
            share => format!("{:.0} % as copies", 100.0 * share),
        };
        let fits = size(at.capacity_bytes);
        writeln!(
            out,
            "            {ratio:>4} to 1, {fits} of data fit, {copies}"
        )?;
    }
    Ok(())
}

/// The lines of a plan.
pub(crate) fn write(out: &mut dyn Write, plan: &PoolPlan) -> io::Result<()> {
    if let Some(copies) = plan.copies {
        writeln!(out, "  copies:   {copies} of each block")?;
    }
    writeln!(out, "  survives: {}", survives(plan))?;
    writeln!(out, "  rebuild:  {}", rebuild(plan))?;
    let spares = match (plan.spares, plan.spare_drives) {
        (0, 0) => "none".to_owned(),
        (inside, 0) => format!("space of {inside} in the layout"),
        (0, drives) => count(drives.into(), "a drive", "drives"),
        (inside, drives) => format!(
            "space of {inside} in the layout, {}",
            count(drives.into(), "a drive", "drives")
        ),
    };
    writeln!(out, "  spares:   {spares}")?;
    writeln!(
        out,
        "  space:    {} usable, {} parity and copies, {} spare, {} metadata and reserve, {} unused",
        size(plan.usable_bytes),
        size(plan.parity_bytes),
        size(plan.spare_bytes),
        size(plan.metadata_bytes),
        size(plan.wasted_bytes)
    )?;
    if let Some(elastic) = &plan.elastic {
        write_elastic(out, elastic)?;
    }
    if !plan.order.is_empty() {
        writeln!(
            out,
            "  seats:    dealt to the domains in turn: {}",
            plan.order.join(" ")
        )?;
    }
    if plan.wastes_much() {
        writeln!(
            out,
            "  warning:  {} of {} are not used: every drive counts as the smallest, {} ({})",
            size(plan.wasted_bytes),
            size(plan.raw_bytes),
            plan.smallest,
            size(plan.smallest_bytes)
        )?;
    }
    Ok(())
}
