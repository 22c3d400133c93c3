//! Tools, directories, waiting.

use std::path::Path;
use std::process::Command;
use std::sync::RwLock;

/// Whether a program is installed; otherwise reports its test as skipped.
pub(crate) fn installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|place| place.join(tool).exists());
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}

/// Whether all programs are installed; names each missing one.
pub(crate) fn all_installed(tools: &[&str]) -> bool {
    let missing = tools.iter().filter(|tool| !installed(tool)).count();
    missing == 0
}

/// Whether the test may use loop devices and mounts, and the devices exist.
pub(crate) fn can_mount(devices: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: loop devices and mounts need root");
        return false;
    }
    if let Some(device) = devices.iter().find(|device| !Path::new(device).exists()) {
        println!("skipped: there is no {device}");
        return false;
    }
    true
}

/// The output of a program that must succeed.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    text.trim().to_owned()
}

/// Locked for writing by a test that leaves devices dead for a while, and for reading by tests
/// whose tools look at all devices and mounts: mkfs.btrfs gives up at the first device that does
/// not answer.
pub(crate) static DEAD_DEVICES: RwLock<()> = RwLock::new(());

/// Factor for run times: ten in the long form.
pub(crate) fn times_as_long() -> u32 {
    if std::env::var_os("RAVELIN_LONG").is_some() {
        10
    } else {
        1
    }
}
