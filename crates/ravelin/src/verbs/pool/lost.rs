//! Data that is lost, as `pool status` shows it.

use std::io::{self, Write};

use control::api::Status;
use engine::status::{LostRange, PoolStatus};

use crate::verbs::common::size;

/// Ranges that are shown; the rest is in the JSON.
const SHOWN: usize = 8;

/// What is wrong, and what to do. `out` names drives that are out.
pub(super) fn advice(pool: &PoolStatus, out: &str) -> (String, String) {
    let name = &pool.name;
    let mut wrong = format!(
        "{} of data are lost: reads there return errors; all other data can be read",
        size(pool.lost.bytes)
    );
    if !out.is_empty() {
        wrong = format!("{wrong}; drives are out: {out}");
    }
    let worst = pool.seats.iter().max_by_key(|seat| seat.bad_blocks);
    let replace = worst
        .filter(|seat| seat.bad_blocks > 0)
        .map_or_else(String::new, |seat| {
            format!(
                "; then replace the drive in seat {} (`ravelin drive replace {name} {} NEW`)",
                seat.seat, seat.seat
            )
        });
    let action = format!(
        "write the lost ranges again, from a backup, and check with `ravelin pool scrub {name} --wait`{replace}"
    );
    (wrong, action)
}

/// The lost ranges, and what holds them.
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
            "         files on {volume}: `debugfs -R 'icheck {}' {device}` (ext4, blocks of 4 KiB) names the inode at byte {first}; restore the file, then `fsck`",
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
