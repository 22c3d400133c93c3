//! What the machine knows of a drive: serial number, WWN, slot, the light of the slot, and what SMART says.
//!
//! | what | where |
//! | --- | --- |
//! | serial number | udev's records, else `device/serial`, else the drive's page 0x80 |
//! | WWN | udev's records, else `device/wwid`, else `wwid` |
//! | slot, light | `/sys/class/enclosure/ENCLOSURE/SLOT`, which leads to the drive; `locate` there is the light |
//! | temperature, verdict | `smartctl`, with a time limit |

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use engine::drive::{DriveUri, Enclosures};
use serde_json::Value;

/// How long `smartctl` may take. A drive that sleeps wakes up in about ten seconds; one that is dead never answers.
const SMART_TIMEOUT: Duration = Duration::from_secs(12);

/// The machine, or a copy of its `sys`, `dev` and `run`.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    enclosures: Enclosures,
}

/// What identifies a drive in a rack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) serial: Option<String>,
    pub(super) wwn: Option<String>,
    /// ENCLOSURE/SLOT.
    pub(super) slot: Option<String>,
}

/// What SMART says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Smart {
    pub(super) celsius: Option<i64>,
    /// The drive's own verdict.
    pub(super) passed: Option<bool>,
}

impl Machine {
    pub(super) fn new(root: Option<PathBuf>) -> Self {
        let enclosures = root.map_or_else(Enclosures::default, Enclosures::below);
        Self { enclosures }
    }

    /// The kernel's name of the disk that a drive is, or is a partition of; none if the drive is a file or in memory.
    pub(super) fn disk(&self, drive: &str) -> Option<String> {
        self.enclosures
            .disk(DriveUri::typed(drive).ok()?.spec.path()?)
    }

    pub(super) fn identity(&self, disk: &str) -> Identity {
        let sys = self.enclosures.at("sys/class/block").join(disk);
        let text = |name: &str| {
            let text = fs::read_to_string(sys.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let udev = text("dev").and_then(|number| {
            let records = self.enclosures.at("run/udev/data");
            fs::read_to_string(records.join(format!("b{number}"))).ok()
        });
        let property = |key: &str| {
            let lines = udev.as_deref()?.lines();
            let mut values = lines.filter_map(|line| line.strip_prefix("E:")?.strip_prefix(key));
            let value = values.next()?.strip_prefix('=')?;
            Some(value.to_owned()).filter(|value| !value.is_empty())
        };
        let slot = self.enclosures.slot(disk).map(|slot| {
            let name = |path: Option<&Path>| {
                let name = path.and_then(Path::file_name);
                name.unwrap_or_default().to_string_lossy().trim().to_owned()
            };
            format!("{}/{}", name(slot.parent()), name(Some(&slot)))
        });
        Identity {
            serial: property("ID_SERIAL_SHORT")
                .or_else(|| text("device/serial"))
                .or_else(|| page_80(&sys.join("device/vpd_pg80"))),
            wwn: property("ID_WWN")
                .or_else(|| text("device/wwid"))
                .or_else(|| text("wwid")),
            slot,
        }
    }

    /// The file that switches the light of a disk's slot.
    pub(super) fn light(&self, disk: &str) -> Option<PathBuf> {
        let file = self.enclosures.slot(disk)?.join("locate");
        file.exists().then_some(file)
    }
}

/// The serial number of a SCSI drive: four bytes of head, and text.
fn page_80(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    let text = String::from_utf8_lossy(bytes.get(4..)?);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether `smartctl` is installed.
pub(super) fn has_smart() -> bool {
    let version = Command::new("smartctl")
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok()
}

/// Asks the disks at once; an answer that does not come in time is empty.
pub(super) fn smart(disks: &[Option<String>]) -> Vec<Smart> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = disks
            .iter()
            .map(|disk| {
                let disk = disk.clone();
                scope.spawn(move || disk.and_then(|disk| ask(&disk)).unwrap_or_default())
            })
            .collect();
        let answers = asked.into_iter();
        answers
            .map(|thread| thread.join().unwrap_or_default())
            .collect()
    })
}

fn ask(disk: &str) -> Option<Smart> {
    let mut child = Command::new("smartctl")
        .args(["--json", "-H", "-A"])
        .arg(format!("/dev/{disk}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut output = child.stdout.take()?;
    let (to, read) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let done = output.read_to_string(&mut text);
        // The receiver may have timed out.
        to.send(done.map(|_| text)).unwrap_or_default();
    });
    let text = read.recv_timeout(SMART_TIMEOUT);
    // A program that waits for a dead drive cannot be killed at once, so nothing waits for its end.
    if text.is_err() {
        child.kill().ok();
        return None;
    }
    child.wait().ok();
    // The exit code has bits for what was found: the text counts.
    parsed(&text.ok()?.ok()?)
}

fn parsed(text: &str) -> Option<Smart> {
    let document: Value = serde_json::from_str(text).ok()?;
    Some(Smart {
        celsius: document["temperature"]["current"].as_i64(),
        passed: document["smart_status"]["passed"].as_bool(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_smartctl_prints_is_read() {
        let text = r#"{"smartctl":{"exit_status":8},"smart_status":{"passed":false},"temperature":{"current":41}}"#;
        let expected = Smart {
            celsius: Some(41),
            passed: Some(false),
        };
        assert_eq!(parsed(text), Some(expected));
        assert_eq!(parsed("{}"), Some(Smart::default()));
        assert_eq!(parsed("smartctl 7.3"), None);
    }
}
