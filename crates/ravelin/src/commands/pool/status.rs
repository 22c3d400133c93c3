//! `ravelin pool status`: a pool's state, what is wrong, and what to do about it.

use std::io::{self, Write};

use array::pool::OutReason;
use clap::ValueEnum;
use control::Client;
use control::api::{Export, FailedRestore, Pools, Status};
use engine::status::{Health, PoolStatus, RebuildStatus, SeatStatus};
use serde_json::{Value, json};

use super::map::Map;
use super::{ask, events, table, write_failed_restores};
use crate::commands::common::{
    Context, Ended, Exit, Failure, colours, count, seat_state, size, time,
};
use crate::commands::table::{Cell, Table, terminal_width};

/// Cells of a bar.
const BAR: usize = 24;

/// What the exit code of `--check` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Check {
    /// The redundancy of the data. The same as without a value.
    Redundancy,
    /// Exit with 1 also if a drive is out or does not answer, or if spares took the place of others and none is left.
    Strict,
}

impl Check {
    fn code(self, pool: &PoolStatus) -> u8 {
        match (code(pool.health), self) {
            (0, Self::Strict) if needs_a_drive(pool) => 1,
            (code, _) => code,
        }
    }
}

/// True if the next failure finds less than this one did: a drive is to be replaced, or a spare to be added.
fn needs_a_drive(pool: &PoolStatus) -> bool {
    let absent = |seat: &SeatStatus| seat.state == "out" || seat.fails || seat.hangs;
    no_spare_left(pool) || pool.seats.iter().any(absent)
}

/// True if spares have been used, and none is ready. A pool that never had a spare lacks none.
fn no_spare_left(pool: &PoolStatus) -> bool {
    spares_ready(pool) == 0 && pool.seats.iter().any(|seat| seat.takes_place_of.is_some())
}

/// Shows one pool or all. With `check` the exit code is that of the pool that is worst.
pub(super) fn run(
    context: &Context,
    client: &Client,
    name: Option<String>,
    check: Option<Check>,
    map: bool,
) -> Result<Ended, Failure> {
    let (shown, failed_restores) = match show(context, client, name, (check.is_some(), map)) {
        // A pool whose state cannot be read does not count as healthy.
        Err(failure) if check.is_some() => {
            // The exit code counts, also if nothing can be printed.
            let _ = writeln!(io::stderr(), "ravelin: {}", failure.message());
            let _ = context.print("error", &json!({ "error": failure.problem() }), |_| Ok(()));
            return Ok(Ended(4));
        }
        shown => shown?,
    };
    let Some(check) = check else {
        return Ok(Ended(0));
    };
    if { failed_restores.iter() }.any(|missing| missing.volume.is_none()) {
        return Ok(Ended(4));
    }
    // If no pool is open, something that should be monitored is missing.
    let worst = shown.iter().map(|pool| check.code(pool)).max();
    Ok(Ended(worst.unwrap_or(4)))
}

const fn code(health: Health) -> u8 {
    match health {
        Health::Healthy => 0,
        Health::Degraded | Health::Critical => 1,
        Health::Damaged | Health::Unusable => 2,
    }
}

/// Health as people read it.
pub(super) const fn word(health: Health) -> &'static str {
    match health {
        Health::Healthy => "HEALTHY",
        Health::Degraded => "DEGRADED",
        Health::Critical => "CRITICAL",
        Health::Damaged => "DAMAGED",
        Health::Unusable => "UNUSABLE",
    }
}

/// Shows one pool or all. Returns them, and the pools that could not be restored. If the exit code is the answer, it
/// does not matter whether the text is read.
fn show(
    context: &Context,
    client: &Client,
    name: Option<String>,
    (check, map): (bool, bool),
) -> Result<(Vec<PoolStatus>, Vec<FailedRestore>), Failure> {
    if let Some(name) = name {
        let status = ask(client, &name)?;
        let printed = context.print("pool status", &fields(&status), |out| {
            write(out, &status, map)
        });
        read(printed, check)?;
        return Ok((vec![status.pool], Vec::new()));
    }
    let Pools {
        pools,
        failed_restores,
    } = client.get("pools")?;
    let mut all = Vec::new();
    for pool in pools {
        all.push(ask(client, &pool.name)?);
    }
    let each: Vec<Value> = all.iter().map(fields).collect();
    let mut document = json!({ "pools": each });
    if !failed_restores.is_empty() {
        document["failed_restores"] = json!(failed_restores);
    }
    let printed = context.print("pool status", &document, |out| {
        write_failed_restores(out, &failed_restores)?;
        if all.is_empty() {
            writeln!(out, "no pools are open")?;
        }
        for (index, status) in all.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            write(out, status, map)?;
        }
        Ok(())
    });
    read(printed, check)?;
    let pools = all.into_iter().map(|status| status.pool).collect();
    Ok((pools, failed_restores))
}

fn read(printed: Result<(), Failure>, check: bool) -> Result<(), Failure> {
    match printed {
        Err(failure) if check && failure.is_unread() => Ok(()),
        printed => printed,
    }
}

/// A pool for JSON.
pub(super) fn fields(status: &Status) -> Value {
    let mut fields = serde_json::to_value(status).expect("a status has only plain fields");
    let lines: Vec<Value> = status.pool.events.iter().map(events::fields).collect();
    fields["events"] = json!(lines);
    let advice = advice(&status.pool);
    fields["problem"] = json!(advice.as_ref().map(|(wrong, _)| wrong));
    fields["action"] = json!(advice.as_ref().map(|(_, action)| action));
    fields
}

fn write(out: &mut dyn Write, status: &Status, map: bool) -> io::Result<()> {
    let pool = &status.pool;
    let colour = colours(&io::stdout());
    let state = match (colour, pool.health) {
        (false, health) => word(health).to_owned(),
        (true, Health::Healthy) => format!("\x1b[32m{}\x1b[0m", word(pool.health)),
        (true, Health::Degraded) => format!("\x1b[33m{}\x1b[0m", word(pool.health)),
        (true, Health::Critical | Health::Damaged | Health::Unusable) => {
            format!("\x1b[31m{}\x1b[0m", word(pool.health))
        }
    };
    writeln!(out, "   pool: {}", pool.name)?;
    writeln!(out, "  state: {state}")?;
    if let Some((wrong, action)) = advice(pool) {
        writeln!(out, " status: {wrong}")?;
        writeln!(out, " action: {action}")?;
    }
    writeln!(
        out,
        " scheme: {}, {} of {} free, chunks of {}, cells of {}",
        pool.scheme,
        size(pool.free_bytes),
        size(pool.capacity_bytes),
        size(pool.chunk_bytes),
        size(pool.cell_bytes)
    )?;
    writeln!(out, "protect: {}", protection(pool))?;
    let raw_bytes: u64 = pool.seats.iter().map(|seat| seat.size_bytes).sum();
    if pool.wasted_bytes > raw_bytes / 20 {
        writeln!(
            out,
            " unused: {} of {}: every drive counts as the smallest one",
            size(pool.wasted_bytes),
            size(raw_bytes)
        )?;
    }
    if let Some(rebuild) = &pool.rebuild {
        let what = rebuild.word();
        writeln!(out, "{what:>7}: {}", rebuild_line(pool, rebuild))?;
    }
    super::elastic::write(out, pool)?;
    super::rebuild::write_steering(out, pool)?;
    super::scrub::write(out, pool)?;
    super::lost::write(out, status)?;
    if !pool.journal {
        writeln!(
            out,
            "journal: none, and no checksums: a stop that is not clean computes all parity anew"
        )?;
    }
    if pool.resync_groups > 0 {
        writeln!(
            out,
            " resync: the parity of {} is computed anew after a stop that was not clean",
            count(
                usize::try_from(pool.resync_groups).unwrap_or(usize::MAX),
                "a group",
                "groups"
            )
        )?;
    }
    if let Some(wait) = &pool.writes_wait {
        writeln!(out, " writes: {wait}")?;
    }
    match map {
        true => {
            let map = Map::new(&pool.name, &pool.seats, terminal_width(), colour);
            writeln!(out, "\n{map}")?;
        }
        false => writeln!(out, "\n{}", drives(&pool.seats))?,
    }
    if !pool.volumes.is_empty() {
        writeln!(out, "\n{}", volumes(status))?;
    }
    Ok(())
}

/// How many more drives may fail, and how many spares are ready.
fn protection(pool: &PoolStatus) -> String {
    let may_fail = match (pool.health, pool.survives_drives) {
        (Health::Unusable, _) => return unusable(pool),
        (_, 0) => "no drive may fail".to_owned(),
        (_, 1) => "any one drive may fail".to_owned(),
        (_, count) => format!("any {count} drives may fail"),
    };
    match spares_ready(pool) {
        0 if no_spare_left(pool) => format!("{may_fail}; no spare is left"),
        0 => may_fail,
        ready => format!(
            "{may_fail}; {}",
            count(ready, "a spare is ready", "spares are ready")
        ),
    }
}

fn spares_ready(pool: &PoolStatus) -> usize {
    waiting(pool).count()
}

fn waiting(pool: &PoolStatus) -> impl Iterator<Item = &SeatStatus> {
    let seats = pool.seats.iter();
    seats.filter(|seat| seat.state == "waiting")
}

/// The same for a pool of which some data cannot be read.
fn unusable(pool: &PoolStatus) -> String {
    if pool.taken_over.is_some() {
        return "not known here: another host has the pool".to_owned();
    }
    let out = pool.seats.iter().filter(|seat| seat.state == "out").count();
    match out {
        0 => "no drive may fail, and some data cannot be read as it is".to_owned(),
        _ => format!(
            "no other drive may fail: {} out, more than the pool survives",
            count(out, "a drive is", "drives are")
        ),
    }
}

/// What is wrong, and what to do.
pub(super) fn advice(pool: &PoolStatus) -> Option<(String, String)> {
    let name = &pool.name;
    if let Some(by) = &pool.taken_over {
        let opening = &by.opening;
        let wrong = format!(
            "another host has taken the pool over (opening {opening}): nothing is written or acknowledged here any more"
        );
        let action = format!(
            "see which host has it, and `ravelin pool export {name}` here, which lets go of it without writing"
        );
        return Some((wrong, action));
    }
    let rebuilding = pool.rebuild.as_ref().filter(|rebuild| rebuild.running);
    let paused = pool.steering.paused && rebuilding.is_some();
    let out: Vec<&SeatStatus> = pool
        .seats
        .iter()
        .filter(|seat| seat.state == "out")
        .collect();
    let which = out
        .iter()
        .map(|seat| format!("seat {} ({})", seat.seat, reason(seat)))
        .collect::<Vec<_>>()
        .join(", ");
    let silent: Vec<String> = { pool.seats.iter() }
        .filter(|seat| seat.fails || seat.hangs)
        .map(|seat| format!("seat {} ({})", seat.seat, seat.path))
        .collect();
    if pool.health == Health::Unusable && !silent.is_empty() {
        let wrong = format!(
            "data cannot be read, for drives return only errors or do not answer: {}",
            silent.join(", ")
        );
        let action = format!(
            "bring the drives back: see to their power and cables; then `ravelin pool export --force {name}` and `ravelin pool import {name}`, which finds them under any name"
        );
        return Some((wrong, action));
    }
    if pool.health == Health::Unusable {
        let lost = match out.is_empty() {
            true => "some data cannot be read".to_owned(),
            false => format!("some data cannot be read without the drives that are out: {which}"),
        };
        let seat = out
            .first()
            .map_or_else(|| "SEAT".to_owned(), |seat| seat.seat.to_string());
        let action = format!(
            "bring the drives back (`ravelin drive online {name} {seat}`); failing that, save what can be read"
        );
        return Some((lost, action));
    }
    if pool.health == Health::Damaged {
        return Some(super::lost::advice(pool, &out));
    }
    if paused {
        let waits = super::rebuild::left_waiting(pool);
        let waits = waits.map_or_else(String::new, |waits| format!("; {waits}"));
        let what = pool.rebuild.as_ref().map(RebuildStatus::word);
        let why = match (out.is_empty(), what) {
            (true, Some("expand")) => "redundancy is complete; the expansion".to_owned(),
            (true, Some("remove")) => "redundancy is complete; the removal".to_owned(),
            (true, _) => "redundancy is not complete; the rebuild".to_owned(),
            (false, _) => format!("out: {which}; the rebuild"),
        };
        let wrong = format!("{why} is paused by command{waits}");
        let action = format!("`ravelin pool rebuild {name} --resume`");
        return Some((wrong, action));
    }
    if let (Health::Healthy, Some(first)) = (pool.health, out.first()) {
        let next = match (spares_ready(pool), pool.spare_drives_left) {
            (0, 0) => "no spare left for the next failure".to_owned(),
            (0, left) => format!(
                "spare space is left for {}",
                count(usize::from(left), "one more drive", "more drives")
            ),
            _ => "a spare is ready for the next failure".to_owned(),
        };
        let wrong = format!(
            "{next}: {which}; what was on it is rebuilt onto spare space, redundancy is complete"
        );
        let action = format!("`ravelin drive replace {name} {} NEW`", first.seat);
        return Some((wrong, action));
    }
    if let Some(first) = out.first() {
        let drives = if out.len() == 1 {
            "a drive is"
        } else {
            "drives are"
        };
        let last = match pool.health {
            Health::Critical => {
                format!(
                    "; {} no redundancy: another failure loses data",
                    super::rebuild::groups_have(pool)
                )
            }
            _ => String::new(),
        };
        let wrong = format!("{drives} out: {which}; all data can be read{last}");
        let replace = format!("`ravelin drive replace {name} {} NEW`", first.seat);
        let action = match (rebuilding.is_some(), first.reason) {
            (false, _) if pool.spares_in_seconds.is_some() => {
                let seconds = pool.spares_in_seconds.unwrap_or(0);
                let mut spares = waiting(pool);
                let spare = match (spares.next(), spares.next()) {
                    (Some(only), None) => format!("spare {}", only.seat),
                    _ => "a spare".to_owned(),
                };
                format!(
                    "none needed: {spare} takes over in {seconds} s, unless the drive is brought back (`ravelin drive online {name} {0}`) or expected back (`ravelin drive offline {name} {0}`)",
                    first.seat
                )
            }
            (true, _) => {
                format!("let the rebuild end (`ravelin pool wait {name}`), then {replace}")
            }
            (false, Some(OutReason::Offline | OutReason::Missing | OutReason::Stale)) => {
                format!(
                    "bring it back (`ravelin drive online {name} {}`), or {replace}",
                    first.seat
                )
            }
            (false, _) => format!("replace it: {replace}"),
        };
        return Some((wrong, action));
    }
    let replaced = pool.seats.iter().find_map(|seat| {
        let with = seat.replaced_by?;
        Some((seat, pool.seats.iter().find(|new| new.seat == with)?))
    });
    if let (Health::Healthy, Some((old, new))) = (pool.health, replaced) {
        let wrong = format!(
            "seat {} ({}) is being replaced by {}; the old drive stays in use until that is complete",
            old.seat, old.path, new.path
        );
        let action = format!(
            "none needed (`ravelin pool wait {name}`); `ravelin drive fail {name} {}` gives it up",
            new.seat
        );
        return Some((wrong, action));
    }
    let leaving = pool.seats.iter().find(|seat| seat.leaves);
    if let (Health::Healthy, Some(seat)) = (pool.health, leaving) {
        let call_off = format!("`ravelin drive online {name} {}` calls it off", seat.seat);
        let drive = format!("seat {} ({})", seat.seat, seat.path);
        return Some(if seat.lacks_room {
            let wrong = format!(
                "{drive} is to be removed, and the other drives have no room for what it has; redundancy is complete"
            );
            let add = format!("add drives (`ravelin pool expand {name} DRIVE` after that)");
            (wrong, format!("delete a volume; or {call_off}, {add}"))
        } else {
            let wrong = format!("{drive} is being removed; redundancy is complete meanwhile");
            let wait = format!("none needed (`ravelin pool wait {name} --for remove`)");
            (wrong, format!("{wait}; {call_off}"))
        });
    }
    if let (Health::Healthy, true) = (pool.health, pool.expanding) {
        let wrong = "the pool is being expanded; redundancy is complete meanwhile".to_owned();
        let action = format!("none needed (`ravelin pool wait {name} --for expand`)");
        return Some((wrong, action));
    }
    if matches!(pool.health, Health::Degraded | Health::Critical) {
        let wrong = match pool.health {
            Health::Critical => format!(
                "{} no redundancy: another failure loses data; all data can be read",
                super::rebuild::groups_have(pool)
            ),
            _ => "redundancy is not complete; all data can be read".to_owned(),
        };
        let action = match rebuilding {
            Some(_) => format!("none needed: it is being rebuilt (`ravelin pool wait {name}`)"),
            None if pool.rebuild.is_some_and(|rebuild| rebuild.tries_again) => format!(
                "none needed: what could not be rebuilt is tried again within seconds (`ravelin pool wait {name}`)"
            ),
            None if pool
                .rebuild
                .as_ref()
                .is_some_and(|rebuild| rebuild.cells_lost > 0) =>
            {
                format!("bring back a drive that is missing, then `ravelin pool scrub {name}`")
            }
            None => format!("add a drive (`ravelin drive add {name} DRIVE`)"),
        };
        return Some((wrong, action));
    }
    rotten(name, &pool.seats)
}

/// Advice about drives that returned wrong blocks, all of which were repaired. The worst comes first.
fn rotten(name: &str, seats: &[SeatStatus]) -> Option<(String, String)> {
    let mut bad: Vec<&SeatStatus> = { seats.iter() }
        .filter(|seat| seat.bad_blocks > 0)
        .collect();
    bad.sort_by_key(|seat| std::cmp::Reverse(seat.bad_blocks));
    let seat = bad.first()?.seat;
    let blocks = |seat: &SeatStatus| match seat.bad_blocks {
        1 => "a block".to_owned(),
        blocks => format!("{blocks} blocks"),
    };
    Some(match bad.as_slice() {
        [only] => (
            format!(
                "the drive in seat {seat} ({}) returned {} with a checksum mismatch; all data can be read",
                only.path,
                blocks(only)
            ),
            format!(
                "check its cables; replace it if there are more: `ravelin drive replace {name} {seat} NEW`"
            ),
        ),
        several => {
            let named: Vec<String> = { several.iter() }
                .map(|seat| format!("seat {} ({}): {}", seat.seat, seat.path, blocks(seat)))
                .collect();
            (
                format!(
                    "drives returned blocks with a checksum mismatch; all data can be read: {}",
                    named.join(", ")
                ),
                format!(
                    "check their cables and what they share; replace those that have more: `ravelin drive replace {name} {seat} NEW`"
                ),
            )
        }
    })
}

/// Why a drive is out, as far as is known.
pub(super) fn reason(seat: &SeatStatus) -> String {
    let known = || {
        seat.reason
            .map_or_else(String::new, |reason| reason.to_string())
    };
    seat.detail.clone().unwrap_or_else(known)
}

/// `[#########...............] 37.5 %`
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bar for display"
)]
pub(super) fn bar(share: f64) -> String {
    let filled = ((share * BAR as f64) as usize).min(BAR);
    format!(
        "[{}{}] {:.1} %",
        "#".repeat(filled),
        ".".repeat(BAR - filled),
        share * 100.0
    )
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bar and a rate for display"
)]
pub(super) fn rebuild_line(pool: &PoolStatus, rebuild: &RebuildStatus) -> String {
    // While it runs, the rate of late; afterwards the mean.
    let work = super::rebuild::fills(pool).filter(|_| rebuild.running);
    let rate = work.map_or(rebuild.bytes_per_second, |work| work.bytes_per_second);
    let rate = size(rate as u64);
    let lost = match rebuild.cells_lost {
        0 => String::new(),
        lost => format!("; {lost} cells are lost"),
    };
    // Cells were not copied if a returned drive still had them, or if they read as zeros.
    let copied = if rebuild.copied_bytes < rebuild.done_bytes {
        format!(" ({} copied)", size(rebuild.copied_bytes))
    } else {
        String::new()
    };
    if !rebuild.running {
        let done = size(rebuild.done_bytes);
        return format!(
            "{done}{copied} in {}, {rate}/s{lost}",
            time(rebuild.seconds)
        );
    }
    let share = rebuild.done_bytes as f64 / rebuild.total_bytes.max(1) as f64;
    if pool.steering.paused {
        let (done, total) = (size(rebuild.done_bytes), size(rebuild.total_bytes));
        let percent = share * 100.0;
        return format!("paused at {percent:.1} %, {done} of {total}{copied}{lost}");
    }
    let eta = rebuild.eta_seconds.map_or_else(
        || "rate not known yet".to_owned(),
        |left| format!("{rate}/s, ETA {}", time(left)),
    );
    format!(
        "{}, {} of {}{copied}, {eta}{lost}",
        bar(share),
        size(rebuild.done_bytes),
        size(rebuild.total_bytes)
    )
}

/// A drive's state, and its relation to other drives.
fn state(seat: &SeatStatus) -> String {
    let mut state = match seat.reason {
        Some(_) => format!("out: {}", reason(seat)),
        None => seat_state(seat).to_owned(),
    };
    let mut add = |more: &str| {
        state.push_str(", ");
        state.push_str(more);
    };
    if let Some(spare) = seat.place_taken_by {
        add(&format!("spare {spare} took its place"));
    }
    if let Some(place) = seat.takes_place_of {
        add(&format!("spare in the place of {place}"));
    }
    if seat.reason.is_some() {
        return state;
    }
    if seat.hangs {
        add("does not answer");
    } else if seat.fails {
        add("returns only errors");
    } else if let Some(with) = seat.replaced_by {
        add(&format!("being replaced by seat {with}"));
    } else if let Some(old) = seat.replaces {
        add(&format!("replaces seat {old}"));
    } else if seat.slow {
        add("slow");
    }
    state
}

/// The same in few words, for narrow terminals; the lines above the table have the rest.
fn short_state(seat: &SeatStatus) -> String {
    let word = match seat {
        SeatStatus {
            reason: Some(_), ..
        } => "out",
        SeatStatus { hangs: true, .. } => "no answer",
        SeatStatus { fails: true, .. } => "only errors",
        SeatStatus { slow: true, .. } => "slow",
        _ => seat_state(seat),
    };
    word.to_owned()
}

/// The drive's name. Another drive may have the name of one that is not there.
fn name(seat: &SeatStatus) -> String {
    match seat.reason {
        Some(OutReason::Missing) => format!("was {}", seat.path),
        _ => seat.path.clone(),
    }
}

fn drives(seats: &[SeatStatus]) -> Table {
    // Most drives do not know how much of their physical space is used.
    let any_known = seats.iter().any(|seat| seat.physical_bytes.is_some());
    let used: &[&str] = if any_known { &["USED"] } else { &[] };
    let first = ["SEAT", "DRIVE", "STATE", "SIZE"];
    let rest = ["READ", "WRITTEN", "ERRORS", "CHECKSUM", "REBUILD"];
    let mut lines = table(&[&first, used, &rest].concat());
    for seat in seats {
        let state = Cell::with_short(state(seat), short_state(seat));
        let moved = seat.rebuild_read_bytes + seat.rebuild_write_bytes;
        let first = [
            seat.seat.to_string().into(),
            name(seat).into(),
            state,
            size(seat.size_bytes).into(),
        ];
        let used = any_known.then(|| used_space(seat.physical_bytes, seat.used_bytes));
        let rest = [
            size(seat.traffic.read_bytes),
            size(seat.traffic.write_bytes),
            seat.traffic.errors.to_string(),
            seat.bad_blocks.to_string(),
            if moved == 0 {
                "-".to_owned()
            } else {
                size(moved)
            },
        ];
        let rest = used.into_iter().chain(rest).map(Cell::from);
        lines.add_row(first.into_iter().chain(rest));
    }
    lines
}

/// How much of a drive's physical space is used.
pub(super) fn used_space(physical_bytes: Option<u64>, used_bytes: Option<u64>) -> String {
    match (physical_bytes, used_bytes) {
        (Some(physical), Some(used)) => format!("{} of {}", size(used), size(physical)),
        _ => "-".to_owned(),
    }
}

fn volumes(status: &Status) -> Table {
    let mut lines = table(&["VOLUME", "SIZE", "ATTACHED"]);
    for volume in &status.pool.volumes {
        let exports = status
            .exports
            .iter()
            .filter(|export| export.volume == volume.name);
        let address = |export: &Export| match &export.device {
            Some(device) => format!("{} ({})", device.display(), export.address),
            None => export.address.clone(),
        };
        let addresses: Vec<String> = exports.map(address).collect();
        lines.add_row(vec![
            volume.name.clone(),
            size(volume.size_bytes),
            if addresses.is_empty() {
                "-".to_owned()
            } else {
                addresses.join(", ")
            },
        ]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use engine::status::DriveTraffic;

    use super::*;

    /// Regression: of two drives that returned wrong blocks, only the worse one was named.
    #[test]
    fn all_drives_that_returned_wrong_blocks_are_named() {
        let seat = |seat: u16, bad_blocks: u64| SeatStatus {
            joins: false,
            leaves: false,
            lacks_room: false,
            seat,
            takes_place_of: None,
            place_taken_by: None,
            path: format!("/dev/sd{seat}"),
            drive: String::new(),
            size_bytes: 1 << 30,
            physical_bytes: None,
            used_bytes: None,
            lower_bytes: None,
            upper_bytes: None,
            domain: None,
            slot: None,
            enclosure: None,
            state: "current".to_owned(),
            replaces: None,
            replaced_by: None,
            reason: None,
            detail: None,
            slow: false,
            hangs: false,
            fails: false,
            traffic: DriveTraffic::default(),
            bad_blocks,
            rebuild_read_bytes: 0,
            rebuild_write_bytes: 0,
        };
        let (wrong, action) = rotten("tank", &[seat(0, 0), seat(1, 1), seat(2, 7)]).unwrap();
        assert!(
            wrong.ends_with("seat 2 (/dev/sd2): 7 blocks, seat 1 (/dev/sd1): a block"),
            "{wrong}"
        );
        assert!(action.contains("drive replace tank 2 NEW"), "{action}");
        let (wrong, _) = rotten("tank", &[seat(0, 0), seat(1, 1)]).unwrap();
        assert!(
            wrong.contains("seat 1 (/dev/sd1) returned a block"),
            "{wrong}"
        );
        assert_eq!(rotten("tank", &[seat(0, 0)]), None);
    }

    #[test]
    fn a_rebuild_shows_how_far_how_fast_and_how_long() {
        let mut rebuild = RebuildStatus {
            expands: false,
            removes: false,
            running: true,
            cells_done: 3,
            cells_total: 8,
            cells_lost: 0,
            tries_again: false,
            done_bytes: 3 << 20,
            total_bytes: 8 << 20,
            copied_bytes: 3 << 20,
            seconds: 3.0,
            bytes_per_second: f64::from(1 << 20),
            eta_seconds: Some(5.0),
        };
        let mut pool: PoolStatus = serde_json::from_value(json!({
            "name": "tank", "uuid": "", "scheme": "raid6", "generation": 1, "health": "degraded",
            "capacity_bytes": 0, "free_bytes": 0, "chunk_bytes": 0, "cell_bytes": 0, "features": [],
            "seats": [], "volumes": [], "journal": true, "resync_groups": 0, "events": [],
        }))
        .unwrap();
        assert_eq!(
            rebuild_line(&pool, &rebuild),
            "[#########...............] 37.5 %, 3 MiB of 8 MiB, 1 MiB/s, ETA 5.0 s"
        );
        pool.steering.paused = true;
        assert_eq!(
            rebuild_line(&pool, &rebuild),
            "paused at 37.5 %, 3 MiB of 8 MiB"
        );
        rebuild.running = false;
        rebuild.cells_lost = 5;
        assert_eq!(
            rebuild_line(&pool, &rebuild),
            "3 MiB in 3.0 s, 1 MiB/s; 5 cells are lost"
        );
        rebuild.copied_bytes = 20 << 10;
        rebuild.cells_lost = 0;
        assert_eq!(
            rebuild_line(&pool, &rebuild),
            "3 MiB (20 KiB copied) in 3.0 s, 1 MiB/s"
        );
    }
}
