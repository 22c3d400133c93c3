//! `ravelin drive identify`: whose drive it is, by its label; for udev, and for people. Needs no daemon.

use std::fmt::Write as _;
use std::io;

use engine::assemble::{Identified, MemberLabel, identify};
use engine::drive::DriveUri;
use serde_json::json;

use crate::commands::common::{Context, Failure, drive_state};

/// What lsblk and installers show as the drive's type, in the manner of `linux_raid_member`.
const TYPE: &str = "ravelin_member";

pub(super) fn run(context: &Context, drive: &str, udev: bool) -> Result<(), Failure> {
    let what = || format!("{drive} cannot be identified");
    let uri = DriveUri::typed(drive).map_err(|error| {
        let hint = block::Hint::hint(&error).unwrap_or_default().into_owned();
        Failure::usage(what(), error.to_string(), hint)
    })?;
    let path = uri.spec.path().ok_or_else(|| {
        let why = match uri.spec.volume() {
            Some(_) => "a volume is reached through the daemon only",
            None => "a drive in memory is in the daemon's memory only",
        };
        Failure::usage(what(), why, "`ravelin pool status` shows such drives")
    })?;
    let found = identify(path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => "run it as root",
            _ => "check the name",
        };
        Failure::failed(what(), error.to_string(), hint)
    })?;
    if udev {
        let lines = properties(&found);
        return Ok(io::Write::write_all(
            &mut io::stdout().lock(),
            lines.as_bytes(),
        )?);
    }
    let none = |why: String, hint: &str| Failure::failed(what(), why, hint);
    match &found {
        Identified::Member(label) => {
            let fields = json!({
                "path": path,
                "pool": label.pool,
                "uuid": label.pool_uuid.to_string(),
                "scheme": label.scheme,
                "seat": label.number,
                "drive": label.drive.to_string(),
                "state": label.state,
                "generation": label.generation,
            });
            context.print("drive identify", &fields, |out| {
                let MemberLabel {
                    pool,
                    pool_uuid,
                    scheme,
                    number,
                    drive: identity,
                    state,
                    generation,
                } = label;
                writeln!(
                    out,
                    "{drive} is the drive of seat {number} of pool `{pool}`"
                )?;
                writeln!(out, "  pool        {pool_uuid}, {scheme}")?;
                writeln!(out, "  drive       {identity}")?;
                let state = drive_state(state);
                writeln!(out, "  its label   {state}, generation {generation}")
            })
        }
        Identified::Unreadable(error) => {
            let hint = block::Hint::hint(error);
            let hint = hint
                .as_deref()
                .unwrap_or("`ravelin pool import` shows whether the pool has other drives");
            Err(none(error.to_string(), hint))
        }
        Identified::Overwritten(label) => Err(none(
            format!(
                "its label is overwritten; by the copy at its end it was the drive of seat {} of pool `{}`",
                label.number, label.pool
            ),
            "`ravelin pool import --repair-labels` writes labels anew by their copies",
        )),
        Identified::Retired(label) => Err(none(
            format!(
                "it was the drive of seat {} of pool `{}`, and was wiped or the pool destroyed",
                label.number, label.pool
            ),
            "`ravelin pool import --destroyed` brings a pool back, `ravelin drive restore-label` a drive",
        )),
        Identified::Other => Err(none(
            "there is no Ravelin label".to_owned(),
            "`wipefs DRIVE` shows what else a drive holds",
        )),
    }
}

/// Lines for udev's `IMPORT{program}`: the properties that udev's own `blkid` sets for a member of md, and two of ours.
/// Without a label there are none: the drive keeps what udev knows of it. A label that cannot be read still shows that
/// the drive is taken.
fn properties(found: &Identified) -> String {
    let mut lines = String::new();
    let mut set = |key: &str, value: &str| {
        writeln!(lines, "{key}={}", encoded(value)).expect("a string grows");
    };
    let has_none = matches!(found, Identified::Other);
    if has_none || matches!(found, Identified::Overwritten(_) | Identified::Retired(_)) {
        return String::new();
    }
    set("ID_FS_TYPE", TYPE);
    set("ID_FS_USAGE", "raid");
    if let Some(format) = found.format() {
        set("ID_FS_VERSION", &format.to_string());
    }
    if let Identified::Member(label) = found {
        set("ID_FS_LABEL", &label.pool);
        set("ID_FS_LABEL_ENC", &label.pool);
        set("ID_FS_UUID", &label.pool_uuid.to_string());
        set("ID_FS_UUID_ENC", &label.pool_uuid.to_string());
        set("ID_FS_UUID_SUB", &label.drive.to_string());
        set("ID_FS_UUID_SUB_ENC", &label.drive.to_string());
        set("RAVELIN_POOL", &label.pool);
        set("RAVELIN_SEAT", &label.number.to_string());
    }
    lines
}

/// As udev encodes names of devices: what is no letter, digit or one of a few marks is `\xNN`. A name of a pool has
/// no such characters; a forged label may have any, also the end of a line.
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for letter in value.chars() {
        if letter.is_ascii_alphanumeric() || "#+-.:=@_".contains(letter) {
            text.push(letter);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in letter.encode_utf8(&mut bytes).bytes() {
            write!(text, "\\x{byte:02x}").expect("a string grows");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_name_sets_no_property_of_its_own() {
        assert_eq!(encoded("tank-1.a_b"), "tank-1.a_b");
        assert_eq!(encoded("a\nID_FS_TYPE=ext4"), "a\\x0aID_FS_TYPE=ext4");
        assert_eq!(encoded("\"ü\\"), "\\x22\\xc3\\xbc\\x5c");
    }
}
