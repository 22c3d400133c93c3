//! Every command's manual page has examples, and each of them works as printed.
//!
//! An example runs on a machine of its own: drives of 100 GiB, a daemon, and the state that [`before`] sets up.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Pid, Signal, kill_process};

use super::stage::Stage;
use crate::support::bench::Bench;

const DRIVE_BYTES: u64 = 100 << 30;
/// `/dev/sdb` to `/dev/sdm`.
const DRIVES: usize = 12;

const POOL: &str = "ravelin pool create tank raid6 /dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf";
const PIECES: &str =
    "ravelin pool create tank ddp:2d:1p /dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf";
const ELASTIC: &str = "ravelin pool create tank elastic5 'compress:/dev/sdb?physical=50G' 'compress:/dev/sdc?physical=50G' 'compress:/dev/sdd?physical=50G'";
const VOLUME: &str = "ravelin volume create tank/home --size 100G";

/// Commands that run before the examples of a page.
fn before(page: &str) -> &'static [&'static str] {
    match page {
        "status" | "pool-list" | "pool-status" | "pool-export" | "pool-scrub" | "pool-iostat"
        | "pool-wait" | "pool-rebuild" | "pool-history" | "drive-list" | "drive-locate"
        | "drive-fail" | "drive-offline" | "drive-replace" | "drive-add" => &[POOL],
        "pool-destroy" | "volume-list" | "volume-show" | "volume-resize" | "volume-rename"
        | "volume-delete" | "volume-attach" | "bench" => &[POOL, VOLUME],
        "pool-elastic" => &[ELASTIC],
        "pool-expand" => &[PIECES],
        "pool-events" => &[POOL, "ravelin drive offline tank 2"],
        "pool-import" => &[POOL, "ravelin pool export tank"],
        "drive-online" => &[POOL, "ravelin drive offline tank 2"],
        "drive-clear" => &[POOL, "ravelin drive fail tank 2"],
        "drive-remove" => &[POOL, "ravelin drive add tank /dev/sdh"],
        "drive-wipe" => &[
            "ravelin pool create old raid1 /dev/sdg /dev/sdh",
            "ravelin pool export old",
        ],
        "drive-restore-label" => &[
            "ravelin pool create old raid1 /dev/sdg /dev/sdh",
            "ravelin pool export old",
            "ravelin drive wipe /dev/sdh --yes",
        ],
        "drive-identify" => &["ravelin pool create tank raid1 /dev/sdg /dev/sdh"],
        "volume-create" => &[POOL],
        "volume-detach" => &[
            POOL,
            VOLUME,
            "ravelin volume attach tank/home --nbd unix:/run/home.sock",
        ],
        "volume-of-device" if Stage::has_loop_devices() => &[
            POOL,
            VOLUME,
            "ravelin volume attach tank/home --fuse /run/home.img --loop",
        ],
        _ => &[],
    }
}

/// How an example ends.
enum End<'a> {
    /// Without input, with one of these exit codes.
    Exits(&'a [i32]),
    /// After the name of the thing to be lost has been typed.
    Confirmed(&'a str),
    /// By a signal, once it has begun: it would run for ever.
    Stopped,
    /// It cannot run here.
    Skipped(&'static str),
}

fn end(page: &str, example: &str) -> End<'static> {
    let confirms = !example.contains("--yes");
    match page {
        "daemon" => End::Stopped,
        "pool-events" if example.contains("--follow") => End::Stopped,
        "pool-destroy" | "volume-delete" if confirms => End::Confirmed("tank"),
        "drive-wipe" if confirms => End::Confirmed("/dev/sdh"),
        // The drives of the test are files, which have no lights.
        "drive-locate" => End::Exits(&[1]),
        // 1 means that something was found on the host of the test.
        "doctor" => End::Exits(&[0, 1]),
        "volume-of-device" if !Stage::has_loop_devices() => {
            End::Skipped("it needs root, FUSE and loop devices")
        }
        _ if example.contains("--loop") && !Stage::has_loop_devices() => {
            End::Skipped("it needs root, FUSE and loop devices")
        }
        _ => End::Exits(&[0]),
    }
}

/// The pages, by name, and the examples of each.
fn examples() -> Vec<(String, Vec<String>)> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let bench = Bench::without_daemon(&format!("docs-pages-{number}"));
    bench.ok(&["man", "--dir", "man"]);
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(bench.path("man")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // A page with subcommands leads to their pages and has no examples.
        if text.contains("\n.SH SUBCOMMANDS\n") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let name = name.strip_prefix("ravelin-").unwrap().to_owned();
        let section = text.split_once(".SH \"EXAMPLES\"\n.nf\n");
        let (_, section) = section.unwrap_or_else(|| panic!("{name} has no examples"));
        let lines = { section.lines() }
            .take_while(|line| !line.starts_with('.'))
            .map(|line| line.replace("\\-", "-").replace("\\e", "\\"))
            .collect();
        pages.push((name, lines));
    }
    pages.sort();
    pages
}

/// Files that examples name.
fn put_files(directory: &Path) {
    let setups = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sim-run.in");
    for entry in std::fs::read_dir(setups).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), directory.join(entry.file_name())).unwrap();
    }
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    for (file, text) in [
        ("cert.pem", certificate.pem()),
        ("ca.pem", certificate.pem()),
        ("key.pem", key.serialize_pem()),
    ] {
        std::fs::write(directory.join(file), text).unwrap();
    }
}

/// Runs an example; the error says what failed.
fn run(page: &str, number: usize, example: &str) -> Result<(), String> {
    let stage = Stage::new(&format!("{page}-{number}"), DRIVES, DRIVE_BYTES);
    put_files(&stage.bench.directory);
    for line in before(page) {
        stage.ok(line);
    }
    match end(page, example) {
        End::Skipped(why) => eprintln!("skipped: {example}: {why}"),
        End::Exits(codes) => {
            let ran = stage.run(example);
            if !codes.contains(&ran.code) {
                return Err(format!("exit {}: {}", ran.code, ran.stdout));
            }
        }
        End::Confirmed(name) => {
            let mut terminal = stage.on_terminal(example);
            terminal.wait_for("to go on: ");
            terminal.types(&format!(
                "{}\n",
                stage.translated(&format!(" {name}")).trim()
            ));
            let (code, text) = terminal.end();
            if code != 0 {
                return Err(format!("exit {code}: {text}"));
            }
        }
        End::Stopped => stopped(&stage, page, example)?,
    }
    // The daemon still works.
    stage.ok("ravelin pool list");
    Ok(())
}

/// Starts an example, checks that it works, and ends it.
fn stopped(stage: &Stage, page: &str, example: &str) -> Result<(), String> {
    let own = example.replace("ravelin daemon", "ravelin --socket /run/own.sock daemon");
    let mut child = stage.begin(&own);
    let mut line = String::new();
    if page == "daemon" {
        let asked = "until ravelin --socket /run/own.sock pool list; do sleep 0.05; done";
        stage.ok(&format!("timeout 60 sh -c \"{asked}\""));
    } else {
        let printed = child.stdout.take().unwrap();
        BufReader::new(printed).read_line(&mut line).unwrap();
    }
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    match (page == "daemon", status.success()) {
        (true, false) => Err(format!("it ended with {status}")),
        (false, _) if line.is_empty() => Err("it prints nothing".to_owned()),
        _ => Ok(()),
    }
}

/// Runs the examples of the pages that `chosen` selects; returns the number of examples.
#[track_caller]
fn examples_work(chosen: impl Fn(&str) -> bool) -> usize {
    let (mut seen, mut wrong) = (0, String::new());
    for (page, examples) in examples().iter().filter(|(page, _)| chosen(page)) {
        assert!(!examples.is_empty(), "{page} has no examples");
        for (number, example) in examples.iter().enumerate() {
            seen += 1;
            if let Err(why) = run(page, number, example) {
                writeln!(wrong, "{example}: {why}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    seen
}

fn is_of_pools(page: &str) -> bool {
    ["pool-", "drive-", "volume-"]
        .iter()
        .any(|verb| page.starts_with(verb))
}

#[test]
fn examples_of_pools_drives_and_volumes_work() {
    assert!(examples_work(is_of_pools) > 35);
}

#[test]
fn examples_of_other_commands_work() {
    assert!(examples_work(|page| !is_of_pools(page)) > 25);
}

/// The sections that a reader of manual pages looks for, and pages that there are.
#[test]
fn every_page_says_how_it_ends_and_what_else_to_read() {
    let bench = Bench::without_daemon("docs-sections");
    bench.ok(&["man", "--dir", "man"]);
    let pages = std::fs::read_dir(bench.path("man")).unwrap();
    let mut seen = 0;
    for page in pages.map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&page).unwrap();
        for section in ["EXIT STATUS", "ENVIRONMENT", "SEE ALSO"] {
            let heading = format!(".SH \"{section}\"\n");
            assert!(text.contains(&heading), "{}: {section}", page.display());
        }
        let (_, also) = text.split_once(".SH \"SEE ALSO\"\n").unwrap();
        let names: Vec<String> = { also.split("\\fB").skip(1) }
            .map(|name| name.split("\\fR").next().unwrap().replace("\\-", "-"))
            .collect();
        assert!(!names.is_empty(), "{}", page.display());
        for name in names {
            seen += 1;
            let other = bench.path(&format!("man/{name}.1"));
            assert!(
                other.exists() && other != page,
                "{}: {name}",
                page.display()
            );
        }
    }
    assert!(seen > 200, "{seen}");
    let page = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    for name in ["man/ravelin.1", "man/ravelin-daemon.1"] {
        assert!(page(name).contains("/var/lib/ravelin"), "{name}");
    }
    assert!(page("man/ravelin-pool-status.1").contains("With \\-\\-check"));
}

/// `help drives` and the page about drives have the same kinds of drives.
#[test]
fn the_names_of_drives_are_those_of_their_page() {
    let bench = Bench::without_daemon("docs-drives");
    let help = bench.ok(&["help", "drives"]);
    let page = include_str!("../../../../../docs/drives.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let kinds: Vec<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`'))
        .filter_map(|name| name.split_once(':').map(|(kind, _)| kind))
        .collect();
    assert!(kinds.len() > 5, "{kinds:?}");
    for kind in &kinds {
        assert!(help.contains(&format!("{kind}:")), "{kind}:\n{help}");
    }
    assert!(bench.ok(&["help"]).contains("ravelin help drives"));
}

/// Line breaks of examples survive in the printed page.
#[test]
fn a_page_shows_its_examples_on_lines_of_their_own() {
    let bench = Bench::without_daemon("docs-roff");
    bench.ok(&["man", "--dir", "man"]);
    let shown = Command::new("man")
        .args(["-l", "man/ravelin-pool-create.1"])
        .current_dir(&bench.directory)
        .env("MANWIDTH", "120")
        .env("LC_ALL", "C.UTF-8")
        .output();
    let Ok(shown) = shown else {
        eprintln!("skipped: there is no man");
        return;
    };
    let text = String::from_utf8(shown.stdout).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for line in [
        "SCHEMES",
        "EXAMPLES",
        "ravelin pool create tank raid5 /dev/sdb /dev/sdc /dev/sdd spare /dev/sde",
    ] {
        assert!(lines.contains(&line), "no line `{line}` in:\n{text}");
    }
}
