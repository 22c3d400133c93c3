//! `ravelin advise DRIVE…`: schemes that these drives are good for, side by side.

use block::Hint;
use clap::Args;
use engine::assemble::{PoolPlan, estimate};
use engine::drive::DriveUri;
use layout::Scheme;
use layout::scheme::meant_by;
use serde_json::json;

use super::common::{Context, Failure, parsed, size, time};
use super::complete;
use super::pool::table;

/// Drives that are written out in a command; if there are more, the command has `DRIVE…`.
const NAMED_MAX: usize = 6;

/// Compare schemes for drives: capacity, failures survived, rebuild time, cost of small writes; with the command for
/// each. Nothing is written, and no daemon is needed.
#[derive(Debug, Args)]
pub(crate) struct AdviseArguments {
    /// The drives.
    #[arg(required = true, value_name = "DRIVE", value_parser = parsed::<DriveUri>, add = complete::drives())]
    drives: Vec<DriveUri>,
}

impl AdviseArguments {
    /// Prints the plans.
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let what = "there is no advice";
        let number = u16::try_from(self.drives.len()).unwrap_or(u16::MAX);
        if number < 2 {
            return Err(Failure::usage(
                what,
                "one drive has no redundancy, whatever the scheme",
                "name two drives or more",
            ));
        }
        let mut drives = Vec::new();
        for drive in &self.drives {
            let bytes = drive.spec.size_bytes().map_err(|error| {
                Failure::failed(what, format!("{drive}: {error}"), "check the drive's name")
            })?;
            drives.push((drive.to_string(), bytes));
        }
        let mut plans = Vec::new();
        for scheme in schemes(number) {
            let parsed: Scheme = scheme.parse().expect("schemes of ours are well written");
            let plan = estimate(&parsed, &drives).map_err(|error| {
                let hint = error.hint().unwrap_or_default();
                Failure::usage(what, format!("{scheme}: {error}"), hint)
            })?;
            plans.push((command(&scheme, &drives), scheme, plan));
        }
        let fields: Vec<_> = { plans.iter() }
            .map(|(command, scheme, plan)| {
                let mut fields = serde_json::to_value(plan).unwrap_or_default();
                fields["scheme"] = json!(scheme);
                fields["command"] = json!(command);
                fields
            })
            .collect();
        let fewer = plans
            .first()
            .and_then(|(.., plan)| with_fewer(&drives, plan));
        let mut document = json!({ "drives": number, "plans": fields });
        if let Some(fewer) = &fewer {
            document["fewer_drives"] = json!({
                "leave_out": fewer.unused,
                "drives": fewer.plan.drives,
                "scheme": fewer.scheme,
                "usable_bytes": fewer.plan.usable_bytes,
                "survives_drives": fewer.plan.survives_drives,
                "command": fewer.command,
            });
        }
        context.print("advise", &document, |out| {
            let mut lines = table(&[
                "SCHEME",
                "USABLE",
                "SURVIVES",
                "REBUILD",
                "SMALL WRITE",
                "SPARES",
                "UNUSED",
            ]);
            for (_, scheme, plan) in &plans {
                lines.add_row(row(scheme, plan));
            }
            writeln!(out, "{lines}\n")?;
            for (command, ..) in &plans {
                writeln!(out, "  {command}")?;
            }
            if let (Some(fewer), Some((_, scheme, plan))) = (&fewer, plans.first()) {
                writeln!(out, "\n{}", fewer.sentences(scheme, plan))?;
                writeln!(out, "\n  {}", fewer.command)?;
            }
            Ok(())
        })
    }
}

/// A plan for the larger ones of the drives, which has more room than the one for all.
struct Fewer {
    /// The drives that are not used.
    unused: Vec<String>,
    scheme: String,
    plan: PoolPlan,
    command: String,
}

/// Sizes at which a set of drives is cut in two. A search for a declustered layout takes a while.
const CUTS_MAX: usize = 4;

/// Every drive counts as the smallest one, so small ones can cost more space than they have. Which to leave out, if
/// that gives more room than `all` and survives as many failures.
fn with_fewer(drives: &[(String, u64)], all: &PoolPlan) -> Option<Fewer> {
    if !all.wastes_much() {
        return None;
    }
    let mut sizes: Vec<u64> = drives.iter().map(|(_, bytes)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut best: Option<Fewer> = None;
    for least in sizes.into_iter().skip(1).take(CUTS_MAX) {
        let (used, unused): (Vec<_>, Vec<_>) = drives
            .iter()
            .cloned()
            .partition(|(_, bytes)| *bytes >= least);
        let number = u16::try_from(used.len()).unwrap_or(u16::MAX);
        for scheme in schemes(number) {
            let parsed = scheme.parse().expect("schemes of ours are well written");
            let Ok(plan) = estimate(&parsed, &used) else {
                continue;
            };
            let most = { best.as_ref() }.map_or(all.usable_bytes, |best| best.plan.usable_bytes);
            if plan.usable_bytes > most && plan.survives_drives >= all.survives_drives {
                best = Some(Fewer {
                    unused: unused.iter().map(|(name, _)| name.clone()).collect(),
                    command: command(&scheme, &used),
                    scheme,
                    plan,
                });
            }
        }
    }
    best
}

impl Fewer {
    /// What to do, and the arithmetic; `scheme` and `all` are the best plan for all drives.
    fn sentences(&self, scheme: &str, all: &PoolPlan) -> String {
        let names = match self.unused.len() {
            ..=NAMED_MAX => format!(" ({})", self.unused.join(", ")),
            _ => String::new(),
        };
        let which = match self.unused.len() {
            1 => "the smallest one".to_owned(),
            number => format!("the {number} smallest ones"),
        };
        format!(
            "Leave {which} out{names}. Every drive counts as the smallest one:\n  all {}: {} × {}, `{scheme}` has {} usable\n  without: {} × {}, `{}` has {} usable",
            all.drives,
            all.drives,
            size(all.smallest_bytes),
            size(all.usable_bytes),
            self.plan.drives,
            size(self.plan.smallest_bytes),
            self.scheme,
            size(self.plan.usable_bytes),
        )
    }
}

fn row(scheme: &str, plan: &PoolPlan) -> Vec<String> {
    #[expect(clippy::cast_precision_loss, reason = "a share for display")]
    let share = plan.usable_bytes as f64 / plan.raw_bytes.max(1) as f64 * 100.0;
    #[expect(clippy::cast_precision_loss, reason = "a time for display")]
    let rebuild = plan.rebuild_seconds.map(|seconds| time(seconds as f64));
    vec![
        scheme.to_owned(),
        format!("{} ({share:.0} %)", size(plan.usable_bytes)),
        super::plan::survives(plan),
        rebuild.unwrap_or_else(|| "none".to_owned()),
        format!("{} operations", plan.small_write_operations),
        match plan.spares {
            0 => "-".to_owned(),
            spares => spares.to_string(),
        },
        size(plan.wasted_bytes),
    ]
}

/// Three schemes for this number of drives, the recommended one first.
fn schemes(drives: u16) -> Vec<String> {
    let said = |schemes: &[&str]| schemes.iter().map(|&scheme| scheme.to_owned()).collect();
    match drives {
        0..=2 => said(&["raid1", "raid0"]),
        3 => said(&["raid5", "raid1", "raid10"]),
        4..=5 => said(&["raid6", "raid10", "raid5"]),
        6..=11 => vec![
            "raid6".to_owned(),
            format!("pddl2:{}d:1s", drives - 3),
            "raid10".to_owned(),
        ],
        // Wide groups are slow to rebuild: a declustered scheme comes first, then striped groups.
        _ => {
            let spares = drives.div_ceil(20);
            let declustered = match drives {
                ..=40 => format!("pddl2:8d:{spares}s"),
                _ => format!("ddp:8d:{spares}s"),
            };
            let striped = match drives.is_multiple_of(10) {
                true => "raid6:8d".to_owned(),
                false => meant_by("raid60", Some(drives)).unwrap_or_else(|| "raid6".to_owned()),
            };
            vec![declustered, striped, "raid10".to_owned()]
        }
    }
}

fn command(scheme: &str, drives: &[(String, u64)]) -> String {
    let drives = match drives.len() {
        ..=NAMED_MAX => {
            let names: Vec<&str> = drives.iter().map(|(name, _)| &**name).collect();
            names.join(" ")
        }
        _ => "DRIVE…".to_owned(),
    };
    format!("ravelin pool create NAME {scheme} {drives}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_that_is_advised_works_on_as_many_drives() {
        for count in (2..=48).chain([60, 84]) {
            let drives: Vec<(String, u64)> = { 0..count }
                .map(|drive| (format!("d{drive}"), 4 << 30))
                .collect();
            for scheme in schemes(count) {
                // The search for bases takes long on many drives; it has its own tests.
                if scheme.starts_with("pddl") && count > 14 {
                    scheme.parse::<Scheme>().unwrap();
                    continue;
                }
                let plan = estimate(&scheme.parse().unwrap(), &drives);
                assert!(plan.is_ok(), "{scheme} on {count}: {plan:?}");
            }
        }
    }
}
