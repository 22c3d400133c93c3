//! Hooks: programs that the daemon runs for events.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{MIB, connect};
use crate::support::bench::Bench;

fn hook(bench: &Bench, name: &str, script: &str) {
    let directory = bench.path("hooks");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    let at = bench.directory.display();
    std::fs::write(&path, format!("#!/bin/sh\ncd {at}\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits until a file has a line with these words; returns all lines so far.
fn lines_with(bench: &Bench, file: &str, words: &str) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(bench.path(file)).unwrap_or_default();
        if text.contains(words) {
            return text.lines().map(str::to_owned).collect();
        }
        assert!(Instant::now() < deadline, "no `{words}` in:\n{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn hooks_are_told_of_a_drive_that_fails_and_of_the_rebuild() {
    let mut bench = Bench::without_daemon("hooks");
    hook(&bench, "10-json", "cat >> json");
    hook(
        &bench,
        "20-environment",
        "echo \"$RAVELIN_EVENT $RAVELIN_POOL ${RAVELIN_SEAT:-none} $RAVELIN_SOCKET $RAVELIN_SEVERITY\" >> environment",
    );
    hook(&bench, "30-fails", "exit 3");
    bench.start_with(&["--hooks", bench.path("hooks").to_str().unwrap()]);
    let drives = bench.drives("d", 6, 96 * MIB);
    assert_eq!(bench.create("tank", "pddl1:3d:1s", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "32M"]);
    // A rebuild skips blocks that were never written.
    super::stories::write_all(&bench, 8192, 1);
    bench.ok(&["drive", "fail", "tank", "d2"]);
    bench.ok(&["pool", "wait", "tank"]);
    lines_with(&bench, "environment", "rebuild_ends");
    assert_eq!(bench.terminate(), Some(0));

    let lines = lines_with(&bench, "environment", "pool_closed");
    let words: Vec<&str> = lines.iter().filter_map(|l| l.split(' ').next()).collect();
    let wanted = [
        "pool_open",
        "drive_out",
        "rebuild_begins",
        "rebuild_ends",
        "pool_closed",
    ];
    let mut rest = words.iter();
    for word in wanted {
        assert!(rest.any(|found| *found == word), "no {word} in {words:?}");
    }
    let socket = bench.path("socket");
    for (event, severity) in [
        ("drive_out tank 2", "warning"),
        ("rebuild_begins tank none", "info"),
        ("pool_closed tank none", "info"),
    ] {
        let line = format!("{event} {} {severity}", socket.display());
        assert!(lines.contains(&line), "{lines:?}");
    }

    let json = std::fs::read_to_string(bench.path("json")).unwrap();
    let events: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), words.len(), "one line each");
    let out = events.iter().find(|e| e["event"] == "drive_out").unwrap();
    assert_eq!(out["kind"], "event");
    assert_eq!(out["pool"], "tank");
    assert_eq!(out["seat"], 2);
    assert_eq!(out["dropped"], 0);
    assert_eq!(out["severity"], "warning");
    let opened = events.iter().find(|e| e["event"] == "pool_open").unwrap();
    assert_eq!(opened["severity"], "info");
    assert!(out["text"].as_str().unwrap().contains("drive is out"));
    assert!(bench.log().contains("30-fails: exit status: 3"));
}

#[test]
fn a_hook_that_hangs_delays_neither_the_pool_nor_the_end_of_the_daemon() {
    let mut bench = Bench::without_daemon("hangs");
    // The hook's child process hangs too.
    hook(
        &bench,
        "hangs",
        "echo $RAVELIN_EVENT >> begun; sleep 600 & sleep 600",
    );
    let hooks = bench.path("hooks");
    bench.start_with(&["--hooks", hooks.to_str().unwrap(), "--hook-seconds", "1"]);
    let drives = bench.drives("d", 6, 96 * MIB);
    let since = Instant::now();
    assert_eq!(bench.create("tank", "pddl1:3d:1s", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    lines_with(&bench, "begun", "pool_open");
    bench.ok(&["drive", "fail", "tank", "d2"]);
    let mut client = connect(export["uri"].as_str().unwrap());
    client.write(0, &[1; 4096], true).unwrap();
    client.disconnect().unwrap();
    bench.ok(&["pool", "wait", "tank"]);
    // Each hanging hook is killed, and the next one runs.
    lines_with(&bench, "begun", "drive_out");
    assert!(bench.log().contains("hangs: killed, it took too long"));
    assert_eq!(bench.terminate(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(20));
}

/// The hook that is shipped, with a program instead of `sendmail` that keeps the mails.
#[test]
fn the_shipped_hook_mails_what_is_wrong_once_and_that_it_has_ended() {
    let mut bench = Bench::without_daemon("mail");
    let sendmail = bench.path("sendmail");
    let keeps = format!(
        "#!/bin/sh\n(echo \"to $*\"; cat) >> {}/mails\n",
        bench.directory.display()
    );
    std::fs::write(&sendmail, keeps).unwrap();
    std::fs::set_permissions(&sendmail, std::fs::Permissions::from_mode(0o755)).unwrap();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/examples/mail");
    let script = std::fs::read_to_string(shipped).unwrap();
    let name = "\nsendmail=sendmail\n";
    assert!(script.contains(name), "where the program is named");
    let script = script.replace(name, &format!("\nsendmail={}\n", sendmail.display()));
    hook(&bench, "mail", "");
    std::fs::write(bench.path("hooks/mail"), script).unwrap();
    bench.start_with(&["--hooks", bench.path("hooks").to_str().unwrap()]);
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let mailed = |subject: &str| {
        let mails = std::fs::read_to_string(bench.path("mails")).unwrap_or_default();
        let is_of = |line: &&str| line.starts_with("Subject: ") && line.ends_with(subject);
        mails.lines().filter(is_of).count()
    };
    let (out, complete) = (
        "pool tank: drive_out (warning)",
        "pool tank: seat_complete (info)",
    );
    for round in 1..=2 {
        bench.ok(&["drive", "offline", "tank", "1"]);
        bench.ok(&["drive", "online", "tank", "1"]);
        let until = Instant::now() + Duration::from_secs(30);
        while mailed(complete) < round {
            assert!(Instant::now() < until, "{}", bench.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(
            mailed(out),
            1,
            "the second time within minutes is not mailed"
        );
    }
    assert_eq!(mailed("pool tank: pool_open (info)"), 0);
    let mails = std::fs::read_to_string(bench.path("mails")).unwrap();
    for words in ["to -t\n", "To: root\n", "the drive is out: taken offline"] {
        assert!(mails.contains(words), "{mails}");
    }
    assert!(!bench.log().contains("mail: "), "{}", bench.log());
}

/// Regression: columns that a returned drive still had were recorded, and "rebuild ends" was reported of a rebuild that
/// had never begun.
#[test]
fn a_rebuild_that_ends_has_begun() {
    let bench = Bench::new("begun");
    let drives = bench.drives("d", 4, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    super::stories::write_all(&bench, 4096, 1);
    bench.ok(&["drive", "offline", "tank", "0"]);
    bench.ok(&["drive", "offline", "tank", "1", "--force"]);
    for seat in ["1", "0"] {
        bench.ok(&["drive", "online", "tank", seat]);
    }
    bench.ok(&["pool", "wait", "tank"]);
    let events = bench.json(&["pool", "events", "tank"]);
    let words = events["events"].as_array().unwrap().iter();
    let words: Vec<&str> = words.filter_map(|event| event["event"].as_str()).collect();
    let mut begun = 0;
    for word in &words {
        match *word {
            "rebuild_begins" => begun += 1,
            "rebuild_ends" => {
                assert_eq!(begun, 1, "{words:?}");
                begun = 0;
            }
            _ => {}
        }
    }
    assert!(words.contains(&"rebuild_ends"), "{words:?}");
    assert_eq!(begun, 0, "{words:?}");
}
