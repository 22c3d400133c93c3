//! Tables on terminals that are narrow, or do not know their width.

use super::MIB;
use crate::support::bench::Bench;
use crate::support::tools::installed;

/// As many characters as a name below /dev/disk/by-id may have.
const NAME: &str = "scsi-0QEMU_QEMU_HARDDISK_serial-000000";

/// The lines that a command prints on a terminal with so many columns.
fn on_terminal(bench: &Bench, columns: u16, command: &str) -> Vec<String> {
    let line = format!("script -qec 'stty cols {columns} && {command}' /dev/null </dev/null");
    let ran = bench.shell(&line);
    assert_eq!(ran.code, 0, "{command}: {}", ran.stdout);
    let lines = ran.stdout.lines().map(|line| line.trim_end().to_owned());
    lines.collect()
}

fn pool(test: &str) -> Bench {
    let bench = Bench::new(test);
    let drives = bench.drives(NAME, 5, 40 * MIB);
    let made = bench.create("tank", "raid5", &drives[..4], &["spare", &drives[4]]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    bench.ok(&["drive", "fail", "tank", "1"]);
    bench.ok(&["pool", "wait", "tank"]);
    bench
}

/// Regression: a serial console, or a tool's terminal, has the width 0, and columns were a letter wide there.
#[test]
fn a_terminal_without_a_width_gets_whole_rows() {
    if !installed("script") {
        return;
    }
    let bench = pool("width-0");
    for command in [
        "ravelin pool status tank",
        "ravelin pool list",
        "ravelin volume list",
        "ravelin status",
        "ravelin lab list",
    ] {
        let piped = bench.shell(command).stdout;
        let shown = on_terminal(&bench, 0, &format!("TERM=dumb NO_COLOR=1 {command}"));
        let piped: Vec<&str> = piped.lines().map(str::trim_end).collect();
        assert_eq!(shown, piped, "{command}");
    }
}

/// Regression: at 80 columns drives' names were cut inside of words, and a row took up to nine lines.
#[test]
fn at_80_columns_names_are_whole_and_a_row_is_two_lines_at_most() {
    if !installed("script") {
        return;
    }
    let bench = pool("width-80");
    let shown = on_terminal(&bench, 80, "ravelin pool status tank");
    let text = shown.join("\n");
    let table: Vec<&String> = { shown.iter() }
        .skip_while(|line| !line.starts_with(" SEAT"))
        .take_while(|line| !line.is_empty())
        .collect();
    assert!(table.len() <= 2 * 6, "{text}");
    // The folder of the test may be long; a name as such fits.
    for drive in 0..5 {
        let name = bench.path(&format!("{NAME}{drive}"));
        let name = name.to_str().unwrap();
        let lines = table.iter().filter(|line| line.contains(name));
        assert_eq!(lines.count(), 1, "{name} in\n{text}");
    }
    for line in &table {
        assert!(line.chars().count() <= 80 || line.contains(NAME), "{text}");
    }
    let out = table.iter().filter(|line| line.contains(" out")).count();
    assert_eq!(out, 1, "{text}");

    for (command, rows) in [
        ("ravelin pool list", 1),
        ("ravelin volume list", 1),
        ("ravelin pool iostat tank", 5 + 1 + 20),
    ] {
        let shown = on_terminal(&bench, 80, command);
        assert!(shown.len() <= 2 * (rows + 4), "{command}: {shown:#?}");
    }
}
