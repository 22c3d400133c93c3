//! What is installed: the Debian package and the systemd unit.

use std::path::Path;
use std::process::Command;

use crate::support::bench::Bench;

/// Regression: the unit let the daemon and its hooks do everything that root may do.
#[test]
fn the_shipped_unit_exposes_little() {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/ravelin.service"
    );
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--threshold=40"])
        .arg(unit)
        .output();
    let Ok(judged) = judged else {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&judged.stdout);
    if !said.contains("Overall exposure") {
        eprintln!("skipped: this systemd-analyze judges no files");
        return;
    }
    assert!(judged.status.success(), "{said}");
    let text = std::fs::read_to_string(unit).unwrap();
    for line in [
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=CAP_SYS_ADMIN ",
        "ProtectSystem=",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

/// `make install` and `make deb` refuse a program with seeded faults. The program of the tests has debug assertions, and
/// so has the faults.
#[test]
fn a_program_with_seeded_faults_is_not_released() {
    let check = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/no-seeded-faults"
    );
    let judge = |program: &str| Command::new(check).arg(program).output().unwrap();
    let judged = judge(env!("CARGO_BIN_EXE_ravelin"));
    assert_eq!(
        judged.status.success(),
        !cfg!(debug_assertions),
        "{judged:?}"
    );
    assert!(judge("/bin/sh").status.success());
}

fn there_is(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: there is no {program}");
    }
    there
}

/// The package has the program, its pages, completions and unit, and the program runs from the unpacked tree. Debian's
/// own checker and systemd find no fault.
#[test]
fn the_package_unpacks_into_a_fresh_tree_and_runs_the_demo_from_there() {
    if !there_is("dpkg-deb") {
        return;
    }
    let bench = Bench::without_daemon("deb");
    let made = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/deb"))
        .arg(env!("CARGO_BIN_EXE_ravelin"))
        .arg(bench.path("out"))
        // To make a program with debug information small costs more than all else here.
        .envs([
            ("DPKG_DEB_COMPRESSOR_TYPE", "gzip"),
            ("DPKG_DEB_COMPRESSOR_LEVEL", "1"),
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let package = String::from_utf8(made.stdout).unwrap();
    let package = Path::new(package.trim());
    if there_is("lintian") {
        lintian_finds_nothing(package);
    }

    let tree = bench.path("tree");
    let unpacked = Command::new("dpkg")
        .arg("-x")
        .args([package, &tree])
        .status();
    assert!(unpacked.unwrap().success());
    for file in [
        "usr/bin/ravelin",
        "usr/lib/systemd/system/ravelin.service",
        "usr/share/man/man1/ravelin-pool-create.1.gz",
        "usr/share/bash-completion/completions/ravelin",
        "usr/share/zsh/vendor-completions/_ravelin",
        "usr/share/doc/ravelin/docs/coming-from.md",
        "usr/share/doc/ravelin/examples/mail",
        "etc/ravelin/hooks.d",
    ] {
        assert!(tree.join(file).exists(), "{file}");
    }
    links_lead_somewhere(&tree.join("usr/share/doc/ravelin"));
    if there_is("systemd-analyze") {
        unit_is_well_written(&bench, &tree);
    }
    let ran = Command::new(tree.join("usr/bin/ravelin"))
        .args(["demo", "--size", "64M", "--json", "--dir"])
        .arg(&bench.directory)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let shown: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(shown["verified"], true, "{shown}");
}

fn lintian_finds_nothing(package: &Path) {
    let judged = Command::new("lintian")
        .args(["--allow-root", "--fail-on", "error,warning"])
        .arg(package)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{said}");
}

/// The package's documents lead to files of the package.
fn links_lead_somewhere(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            links_lead_somewhere(&path);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).unwrap();
            for link in text.split("](").skip(1) {
                let link = link.split([')', '#', ' ']).next().unwrap();
                let leads = link.contains(':') || link.is_empty() || directory.join(link).exists();
                assert!(leads, "{}: {link}", path.display());
            }
        }
    }
}

/// `make uninstall` removes what `make install` has put there, whatever the prefix.
#[test]
fn nothing_is_left_after_uninstall() {
    if !there_is("make") {
        return;
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for prefix in ["/usr", "/usr/local"] {
        let bench = Bench::without_daemon("uninstall");
        let tree = bench.path("tree");
        let installed = Command::new(Path::new(root).join("packaging/install"))
            .arg(env!("CARGO_BIN_EXE_ravelin"))
            .args([&tree, Path::new(prefix)])
            .output()
            .unwrap();
        assert!(installed.status.success(), "{installed:?}");
        let removed = Command::new("make")
            .args(["-C", root, "uninstall", &format!("PREFIX={prefix}")])
            .arg(format!("DESTDIR={}", tree.display()))
            .output()
            .unwrap();
        assert!(removed.status.success(), "{removed:?}");
        assert_eq!(files_in(&tree), [""; 0], "{prefix}");
    }
}

fn files_in(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_in(&path)),
            false => files.push(path.display().to_string()),
        }
    }
    files
}

/// systemd accepts the unit as it is installed.
fn unit_is_well_written(bench: &Bench, tree: &Path) {
    let unit = tree.join("usr/lib/systemd/system/ravelin.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    // systemd checks that the program is at the path that the unit names.
    let program = tree.join("usr/bin/ravelin").display().to_string();
    let copy = bench.path("ravelin.service");
    std::fs::write(&copy, unit.replace("/usr/bin/ravelin", &program)).unwrap();
    let judged = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&copy)
        .output()
        .unwrap();
    assert!(judged.status.success(), "{judged:?}");
}
