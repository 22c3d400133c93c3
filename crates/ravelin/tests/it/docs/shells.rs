//! Completion of names in bash and zsh: the test presses keys on a terminal, and notes the commands that then run.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::stage::Stage;
use super::terminal::Terminal;
use crate::support::bench::with_ravelin;

/// The keys, with `<` for the tabulator, and the arguments with which the shell then runs `ravelin`.
const TYPED: [(&str, &str); 12] = [
    ("ravelin po<sta<ta<", "pool status tank"),
    ("ravelin pool wait at<", "pool wait attic"),
    ("ravelin pool create new dd<", "pool create new ddp"),
    ("ravelin volume detach tank/h<", "volume detach tank/home"),
    ("ravelin volume resize at<", "volume resize attic/mail"),
    (
        "ravelin drive fail tank DIR/dev/sdd<",
        "drive fail tank DIR/dev/sdd",
    ),
    // Only the pool's drives are suggested: its second drive ends in `sdc`.
    (
        "ravelin drive offline attic DIR/dev/s<e<",
        "drive offline attic DIR/dev/sde",
    ),
    (
        "ravelin drive add tank DIR/dev/sdh<",
        "drive add tank DIR/dev/sdh",
    ),
    ("ravelin layout show dr<3<", "layout show draid3"),
    ("ravelin code show dc<", "code show dcode"),
    ("ravelin lab run dcode-fe<", "lab run dcode-features"),
    ("ravelin pool import --deg<", "pool import --degraded"),
];

/// A shell without user settings, with the prompt `ready> `, and its `ravelin`.
fn shell(stage: &Stage, shell: &str) -> Terminal {
    let ours = stage.bench.path("bin");
    std::fs::create_dir_all(&ours).unwrap();
    // For completion this script runs `ravelin`; otherwise it notes its arguments.
    let noting = format!(
        "#!/bin/sh\n[ -z \"$RAVELIN_COMPLETE\" ] || exec {} \"$@\"\necho \"$*\" >>\"$NOTED\"\n",
        env!("CARGO_BIN_EXE_ravelin")
    );
    let program = ours.join("ravelin");
    std::fs::write(&program, noting).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = stage.bench.ok(&["completions", shell]);
    std::fs::write(stage.bench.path("completion"), script).unwrap();
    let mut path = ours.into_os_string();
    path.push(":");
    path.push(with_ravelin());

    let mut terminal = Command::new("script");
    let start = match shell {
        "bash" => "bash --norc --noprofile -i",
        _ => "zsh -f -i",
    };
    terminal
        .args(["-qec", start, "/dev/null"])
        .current_dir(&stage.bench.directory)
        .env("PATH", path)
        .env("NOTED", stage.bench.path("noted"))
        .env("RAVELIN_SOCKET", stage.bench.path("socket"))
        .env("LC_ALL", "C.UTF-8");
    let mut terminal = Terminal::new(terminal);
    let prepare = match shell {
        "bash" => "source ./completion; bind 'set bell-style none'",
        _ => "autoload -U compinit; compinit -u -D; source ./completion",
    };
    // The prompt is typed in two parts, because the terminal also shows the typed text.
    terminal.types(&format!("{prepare}; PS1='rea''dy> '\n"));
    terminal.wait_for("ready> ");
    terminal
}

/// The line that appears in a file.
#[track_caller]
fn once_written(file: &Path) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = std::fs::read_to_string(file).unwrap();
        if text.ends_with('\n') {
            return text;
        }
        assert!(Instant::now() < until, "nothing ran");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn names_are_completed(name: &str) {
    if Command::new(name).args(["-c", "true"]).output().is_err() {
        eprintln!("skipped: there is no {name}");
        return;
    }
    let stage = Stage::new(&format!("complete-{name}"), 12, 1 << 30);
    stage.ok("ravelin pool create tank raid5 /dev/sdb /dev/sdc /dev/sdd");
    stage.ok("ravelin pool create attic raid1 /dev/sde /dev/sdf");
    stage.ok("ravelin volume create tank/home --size 4M");
    stage.ok("ravelin volume create attic/mail --size 4M");
    let directory = stage.bench.directory.display().to_string();
    let noted = stage.bench.path("noted");
    let mut terminal = shell(&stage, name);
    for (typed, meant) in TYPED {
        std::fs::write(&noted, "").unwrap();
        let keys = typed.replace("DIR", &directory).replace('<', "\t");
        terminal.types(&format!("{keys}\n"));
        let ran = once_written(&noted);
        let ran = ran.trim().replace(&directory, "DIR");
        assert_eq!(ran, meant, "{name}: {typed}");
    }
    terminal.types("exit\n");
    terminal.end();
}

#[test]
fn names_are_completed_in_bash() {
    names_are_completed("bash");
}

#[test]
fn names_are_completed_in_zsh() {
    names_are_completed("zsh");
}

/// Without a daemon, completion suggests nothing and prints nothing.
#[test]
fn without_a_daemon_completion_is_silent() {
    let bench = crate::support::bench::Bench::without_daemon("docs-no-daemon");
    let asked = Command::new(env!("CARGO_BIN_EXE_ravelin"))
        .args(["--", "ravelin", "pool", "status", ""])
        .env("RAVELIN_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "3")
        .env("RAVELIN_SOCKET", bench.path("socket"))
        .output()
        .unwrap();
    assert!(
        asked.status.success() && asked.stderr.is_empty(),
        "{asked:?}"
    );
    let text = String::from_utf8(asked.stdout).unwrap();
    assert!(
        text.split('\n')
            .all(|word| word.is_empty() || word.starts_with('-')),
        "{text}"
    );
}
