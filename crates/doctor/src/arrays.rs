//! Arrays that run without drives, and arrays whose failures would go unnoticed.

use crate::report::Finding;
use crate::stack::{Device, Kind, Md, Stack};
use crate::tree::Tree;

/// Whether an administrator is notified of md's failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// A monitor runs and has a recipient.
    Watched,
    /// A monitor runs, but neither an address nor a program is set.
    Mute,
    /// No monitor runs.
    Unwatched,
    /// The tree has no processes.
    Unknown,
}

/// Searches the processes for `mdadm --monitor`, and checks whether it has a recipient.
pub(crate) fn watch(tree: &Tree) -> Watch {
    let processes: Vec<String> = tree
        .names("proc")
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    if processes.is_empty() {
        return Watch::Unknown;
    }
    let monitor = processes.iter().find_map(|process| {
        let line = tree.text(&format!("proc/{process}/cmdline"))?;
        let words: Vec<String> = line.split('\0').map(str::to_owned).collect();
        let program = words.first()?.rsplit('/').next()?;
        let watches = words
            .iter()
            .any(|word| matches!(word.as_str(), "--monitor" | "--follow" | "-F"));
        (program == "mdadm" && watches).then_some(words)
    });
    let Some(words) = monitor else {
        return Watch::Unwatched;
    };
    let told = |word: &String| {
        [
            "--mail",
            "-m",
            "--program",
            "--alert",
            "-p",
            "--syslog",
            "-y",
        ]
        .iter()
        .any(|option| word.split('=').next() == Some(*option))
    };
    let configured = ["etc/mdadm/mdadm.conf", "etc/mdadm.conf"]
        .iter()
        .filter_map(|path| tree.text(path))
        .any(|text| {
            text.lines().any(|line| {
                let word = line.split_whitespace().next().unwrap_or("");
                word.eq_ignore_ascii_case("MAILADDR") || word.eq_ignore_ascii_case("PROGRAM")
            })
        });
    match configured || words.iter().any(told) {
        true => Watch::Watched,
        false => Watch::Mute,
    }
}

/// Findings about the device at `index`, if it is an md array.
pub(crate) fn findings(stack: &Stack, index: usize, watch: Watch) -> Vec<Finding> {
    let device = &stack.devices[index];
    let Kind::Md(md) = &device.kind else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if matches!(md.state.as_str(), "inactive" | "clear") {
        findings.push(Finding::new(
            device,
            "inactive",
            format!("the array is {}: it serves nothing", md.state),
            format!(
                "mdadm --stop {0}; mdadm --assemble --scan; cat /proc/mdstat",
                device.path
            ),
        ));
        return findings;
    }
    if md.degraded > 0 {
        findings.push(degraded(device, md));
    }
    let unwatched = match watch {
        Watch::Watched | Watch::Unknown => None,
        Watch::Unwatched => Some((
            "no `mdadm --monitor` runs: a drive that fails will not be noticed",
            "systemctl enable --now mdmonitor",
        )),
        Watch::Mute => Some((
            "`mdadm --monitor` runs, but neither MAILADDR nor PROGRAM is set: a drive that fails will not be reported",
            "echo MAILADDR root >> /etc/mdadm/mdadm.conf; systemctl restart mdmonitor",
        )),
    };
    if let Some((what, command)) = unwatched.filter(|_| md.is_redundant()) {
        findings.push(Finding::new(device, "unwatched", what, command));
    }
    findings
}

fn degraded(device: &Device, md: &Md) -> Finding {
    let slots: Vec<String> = md.empty_slots.iter().map(u64::to_string).collect();
    let survives = match md.level.as_str() {
        "raid6" => 2_u64.saturating_sub(md.degraded),
        "raid1" => md.drives.saturating_sub(md.degraded + 1),
        _ => 0,
    };
    let next = match survives {
        0 => "the next loss may lose data".to_owned(),
        left => format!("it survives {left} more"),
    };
    let rebuilding = md.action == "recover";
    let what = format!(
        "{} runs without {} of {} drives (slot {}){}; {next}",
        md.level,
        md.degraded,
        md.drives,
        slots.join(", "),
        if rebuilding {
            ", and is being rebuilt"
        } else {
            ""
        },
    );
    let command = match (rebuilding, md.faulty.first()) {
        (true, _) => "cat /proc/mdstat".to_owned(),
        (false, Some(faulty)) => format!(
            "mdadm {0} --remove /dev/{faulty}; mdadm {0} --add DRIVE",
            device.path
        ),
        (false, None) => format!("mdadm {} --add DRIVE", device.path),
    };
    Finding::new(device, "degraded", what, command)
}
