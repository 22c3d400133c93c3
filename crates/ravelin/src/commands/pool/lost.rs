//! Data that is lost, as `pool status` shows it.

use std::cmp::Reverse;
use std::io::{self, Write};

use array::pool::OutReason;
use control::api::Status;
use engine::status::{LostRange, PoolStatus, SeatStatus};

use super::status::reason;
use crate::commands::common::size;

/// Ranges that are shown, at most; the JSON has all of them.
const SHOWN: usize = 8;

/// What is wrong, and what to do. `out` are the drives that are out: a drive that returns may have the lost data, and a
/// drive that does not return is replaced before any other.
pub(super) fn advice(pool: &PoolStatus, out: &[&SeatStatus]) -> (String, String) {
    let name = &pool.name;
    let mut wrong = format!(
        "unrecoverable: {} of data lost; reads there return errors, all other data can be read",
        size(pool.lost.bytes)
    );
    for seat in out {
        wrong = format!(
            "{wrong}; the drive in seat {} is out ({})",
            seat.seat,
            reason(seat)
        );
    }
    let scrub = format!("`ravelin pool scrub {name} --wait`");
    let write = format!("write the lost ranges again, from a backup, and check with {scrub}");
    let back = |seat: &&&SeatStatus| {
        let reason = seat.reason;
        matches!(
            reason,
            Some(OutReason::Offline | OutReason::Missing | OutReason::Hung | OutReason::IoErrors)
        )
    };
    let then = then(pool, out);
    let action = match out.iter().find(back) {
        Some(seat) => format!(
            "bring the drive in seat {} back (`ravelin drive online {name} {}`) and run {scrub}: it may have that data; failing that, {write}{then}",
            seat.seat, seat.seat
        ),
        None => format!("{write}{then}"),
    };
    (wrong, action)
}

/// What to do after the data is restored: replace the drives that are out; if none is, the drive that returns wrong
/// data.
fn then(pool: &PoolStatus, out: &[&SeatStatus]) -> String {
    let name = &pool.name;
    if let Some(seat) = out.first().map(|seat| seat.seat) {
        return format!(
            "; then replace the drive in seat {seat} (`ravelin drive replace {name} {seat} NEW`)"
        );
    }
    let mut bad: Vec<&SeatStatus> = pool.seats.iter().collect();
    bad.retain(|seat| seat.bad_blocks > 0);
    bad.sort_by_key(|seat| Reverse(seat.bad_blocks));
    let Some(first) = bad.first().map(|seat| seat.seat) else {
        return String::new();
    };
    let seats: Vec<String> = bad.iter().map(|seat| seat.seat.to_string()).collect();
    let which = match seats.len() {
        1 => format!("the drive in seat {first}, and replace it if it gets"),
        _ => format!(
            "the drives in seats {}, and replace those that get",
            seats.join(", ")
        ),
    };
    format!(
        "; then check the cables of {which} more checksum errors (`ravelin drive replace {name} {first} NEW`)"
    )
}

/// The lost ranges, and the volumes that they belong to.
pub(super) fn write(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    let lost = &status.pool.lost;
    if lost.bytes == 0 {
        return Ok(());
    }
    writeln!(out, "   lost: {}", size(lost.bytes))?;
    for range in lost.ranges.iter().take(SHOWN) {
        let LostRange {
            volume,
            offset_bytes,
            length_bytes,
        } = range;
        let last = offset_bytes + length_bytes - 1;
        writeln!(
            out,
            "         {volume}: bytes {offset_bytes} to {last} ({})",
            size(*length_bytes)
        )?;
    }
    let more = lost.ranges.len().saturating_sub(SHOWN);
    if more > 0 {
        writeln!(out, "         and {more} more ranges (`--json` lists them)")?;
    }
    if lost.unlisted_bytes > 0 {
        writeln!(
            out,
            "         and {} beyond the {} ranges that are kept",
            size(lost.unlisted_bytes),
            lost.ranges.len()
        )?;
    }
    for (volume, first) in firsts(&lost.ranges) {
        let exports = status.exports.iter().filter(|one| one.volume == volume);
        let device = exports
            .filter_map(|export| export.device.as_ref())
            .next()
            .map_or_else(|| "DEVICE".to_owned(), |path| path.display().to_string());
        writeln!(
            out,
            "         files on {volume}: `debugfs -R 'icheck {}' {device}` (ext4, blocks of 4 KiB) names the inode that has byte {first}, and `ncheck INODE` its file: restore it, then run `fsck`",
            first / 4096
        )?;
    }
    Ok(())
}

/// The volumes, each with the first byte that it has lost.
fn firsts(ranges: &[LostRange]) -> Vec<(&str, u64)> {
    let mut firsts: Vec<(&str, u64)> = Vec::new();
    for range in ranges {
        if firsts
            .last()
            .is_none_or(|(volume, _)| *volume != range.volume)
        {
            firsts.push((&range.volume, range.offset_bytes));
        }
    }
    firsts
}
