//! Command × what is at the name: the table of `engine/src/assemble/permit.rs`, by the released program. Each cell is
//! asserted, and no drive changes that the cell does not name.

use std::time::{Duration, Instant};

use super::stage::{Answer, Stage};
use crate::support::bench::Ran;

/// What a cell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// The command writes to the drive.
    Take,
    /// The command writes to the drive with `--force` and a confirmation, and else is refused.
    Force,
    /// The command is refused.
    Refuse,
}

/// For commands that take a new drive.
const fn for_a_new_drive(answer: Answer) -> Cell {
    match answer {
        Answer::Empty => Cell::Take,
        Answer::Itself
        | Answer::WentOn
        | Answer::Member
        | Answer::Spare
        | Answer::Former
        | Answer::Elsewhere
        | Answer::OtherPool
        | Answer::Overlaid
        | Answer::Ext4
        | Answer::Partitions
        | Answer::Unmarked => Cell::Force,
        Answer::InUse
        | Answer::InUseElsewhere
        | Answer::Taken
        | Answer::Missing
        | Answer::Directory
        | Answer::Silent => Cell::Refuse,
    }
}

/// A part of the message that names what is there.
const fn told(answer: Answer) -> &'static str {
    match answer {
        Answer::Itself => "the drive of seat 1 of pool `tank`",
        Answer::WentOn => "in use elsewhere since",
        Answer::InUse => "it has seat 0 of pool `tank`",
        Answer::InUseElsewhere => "it has seat 0 of pool `open`",
        Answer::Member => "the drive of seat 2 of pool `tank`",
        Answer::Spare => "the drive of seat 5 of pool `tank`",
        Answer::Former => "lists it no more",
        Answer::Elsewhere => "the drive of seat 1 of pool `part`",
        Answer::OtherPool => "seat 0 of the Ravelin pool `shut`",
        Answer::Overlaid => "an XFS file system, written over seat 1",
        Answer::Ext4 => "an ext2 file system",
        Answer::Partitions => "a GPT partition table",
        Answer::Unmarked => "data of no known kind",
        Answer::Empty => "nothing",
        Answer::Taken => "in use by another Ravelin daemon",
        Answer::Missing => "no such file or device",
        Answer::Directory => "neither a regular file nor a block device",
        Answer::Silent => "does not answer",
    }
}

/// The exit code of a refusal: a directory is an error of usage.
const fn code(answer: Answer) -> i32 {
    match answer {
        Answer::Directory => 2,
        _ => 1,
    }
}

/// Runs a command for every answer: without `--force` first, then with it where the table says so. `line` is the command
/// for a drive, and the number of the attempt.
fn new_drive(test: &str, line: impl Fn(&Stage, &str, usize) -> Vec<String>) {
    let stage = Stage::new(test);
    // The missing drives are expected back: a spare that is added waits.
    for seat in ["1", "2"] {
        stage.bench.ok(&["drive", "offline", "tank", seat]);
    }
    let run = |number: usize, more: &[&str]| -> Ran {
        let line = line(&stage, "names/x", number);
        let mut words: Vec<&str> = line.iter().map(String::as_str).collect();
        words.extend(more);
        stage.bench.run(&words)
    };
    let before = stage.checksums();
    for answer in stage.answers().filter(|&answer| answer != Answer::Empty) {
        stage.turn("names/x", &stage.target(answer));
        run(0, &[]).refused(code(answer), &[told(answer)]);
        if for_a_new_drive(answer) == Cell::Refuse {
            run(0, &["--force", "--yes"]).refused(code(answer), &[told(answer)]);
        }
        assert_eq!(stage.checksums(), before, "{answer:?}");
    }
    // The drive that is named, and no other. Those before it are drives of pools by now.
    let mut others = before;
    let takes = |&answer: &Answer| for_a_new_drive(answer) != Cell::Refuse;
    for (number, answer) in (1..).zip(stage.answers().filter(takes)) {
        stage.turn("names/x", &stage.target(answer));
        let more: &[&str] = match for_a_new_drive(answer) {
            Cell::Take => &[],
            Cell::Force | Cell::Refuse => &["--force", "--yes"],
        };
        let ran = run(number, more);
        assert_eq!(ran.code, 0, "{answer:?}: {}", ran.stderr);
        stage.bench.ok(&["pool", "wait", "tank"]);
        let name = stage.still(answer);
        let mut after = stage.checksums();
        after.retain(|name, _| others.contains_key(name));
        assert_ne!(others.remove(name), after.remove(name), "{answer:?}");
        assert_eq!(others, after, "{answer:?}");
    }
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn create_takes_empty_drives_and_others_only_by_force() {
    new_drive("t-create", |stage, name, number| {
        let (pool, other) = (format!("new{number}"), format!("other{number}"));
        let other = stage.drive(&other);
        words(&["pool", "create", &pool, "raid1", name, &other])
    });
}

#[test]
fn add_takes_empty_drives_and_others_only_by_force() {
    new_drive("t-add", |_, name, _| words(&["drive", "add", "tank", name]));
}

#[test]
fn replace_takes_empty_drives_and_others_only_by_force() {
    new_drive("t-replace", |_, name, _| {
        words(&["drive", "replace", "tank", "3", name])
    });
}

#[test]
fn wipe_asks_and_leaves_drives_of_open_pools_alone() {
    let stage = Stage::new("t-wipe");
    let before = stage.checksums();
    for answer in stage.answers() {
        stage.turn("names/x", &stage.target(answer));
        let asked = stage.bench.run(&["drive", "wipe", "names/x"]);
        if is_wiped(answer) {
            asked.refused(2, &["This loses what", told(answer), "--yes"]);
        } else {
            asked.refused(code(answer), &[told(answer)]);
            stage
                .bench
                .run(&["drive", "wipe", "names/x", "--yes"])
                .refused(code(answer), &[told(answer)]);
        }
        assert_eq!(stage.checksums(), before, "{answer:?}");
    }
    let mut before = before;
    for answer in stage.answers().filter(|&answer| is_wiped(answer)) {
        stage.turn("names/x", &stage.target(answer));
        stage.bench.ok(&["drive", "wipe", "names/x", "--yes"]);
        let mut after = stage.checksums();
        let name = stage.still(answer);
        after.retain(|name, _| before.contains_key(name));
        // An empty drive gets the mark of a drive that was given up.
        assert_ne!(before.remove(name), after.remove(name), "{answer:?}");
        assert_eq!(before, after, "{answer:?}");
    }
}

const fn is_wiped(answer: Answer) -> bool {
    matches!(
        answer,
        Answer::Former
            | Answer::OtherPool
            | Answer::Overlaid
            | Answer::Ext4
            | Answer::Partitions
            | Answer::Unmarked
            | Answer::Empty
    )
}

#[test]
fn online_takes_the_drive_that_left_the_seat_and_no_other() {
    let stage = Stage::new("t-online");
    let before = stage.checksums();
    let online = ["drive", "online", "tank", "1"];
    for answer in stage.answers().filter(|&answer| answer != Answer::Itself) {
        stage.turn("names/l1", &stage.target(answer));
        let part = match answer {
            // The message says what is there in other words.
            Answer::InUse | Answer::InUseElsewhere => "which is open here",
            answer => told(answer),
        };
        let ran = stage.bench.run(&online);
        assert_eq!(ran.code, 1, "{answer:?}: {}", ran.stdout);
        ran.refused(1, &[part]);
        assert_eq!(stage.checksums(), before, "{answer:?}");
    }
    stage.turn("names/l1", &stage.target(Answer::Itself));
    assert_eq!(stage.bench.json(&online)["seat"], 1);
    // A drive that was used elsewhere comes back by force.
    stage.bench.ok(&["pool", "wait", "tank"]);
}

#[test]
fn online_overwrites_the_seats_own_drive_that_changed_only_by_force() {
    for (test, answer) in [
        ("went-on", Answer::WentOn),
        ("former", Answer::Former),
        ("overlaid", Answer::Overlaid),
    ] {
        let stage = Stage::new(&format!("t-forced-{test}"));
        stage.turn("names/l1", &stage.target(answer));
        let online = ["drive", "online", "tank", "1", "--force"];
        let before = stage.checksums();
        stage
            .bench
            .run(&online)
            .refused(2, &["This loses what", told(answer), "--yes"]);
        assert_eq!(stage.checksums(), before);
        let done = stage.bench.json(&[&online[..], &["--yes"]].concat());
        assert_eq!(done["seat"], 1);
        let mut after = stage.checksums();
        let name = stage.still(answer);
        after.insert(name, before[name]);
        assert_eq!(after, before, "{answer:?}");
    }
}

/// The drive of seat 3 fails its writes, and is out for that.
#[test]
fn clear_takes_the_drive_that_left_the_seat_and_no_other() {
    let stage = Stage::new("t-clear");
    let bench = &stage.bench;
    bench.ok(&["pool", "destroy", "open", "--yes"]);
    let mut drives: Vec<String> = (0..3)
        .map(|index| stage.drive(&format!("c{index}")))
        .collect();
    drives[1] = "faulty:names/c1?fail=eio&nth=30&times=3&on=write".to_owned();
    assert_eq!(bench.create("open", "raid5", &drives, &[]).code, 0);
    let out = || bench.json(&["pool", "status", "open"])["seats"][1]["state"] == "out";
    let mut round = 0;
    while !out() {
        let volume = format!("open/v{round}");
        bench.ok(&["volume", "create", &volume, "--size", "1M"]);
        round += 1;
        assert!(round < 100, "the drive goes out");
    }
    stage.turn("names/o0", &stage.real("c0"));
    let before = stage.checksums();
    for answer in stage.answers() {
        let target = match answer {
            Answer::InUseElsewhere => stage.real("c0"),
            answer => stage.target(answer),
        };
        stage.turn("names/c1", &target);
        let ran = bench.run(&["drive", "clear", "open", "1"]);
        assert_eq!(ran.code, 1, "{answer:?}: {}", ran.stdout);
        assert_eq!(stage.checksums(), before, "{answer:?}");
    }
    stage.turn("names/c1", &stage.real("c1"));
    let back = bench.json(&["drive", "clear", "open", "1"]);
    assert_ne!(back["state"], "out");
}

#[test]
fn remove_wipes_the_spare_and_leaves_what_has_its_name_now() {
    let stage = Stage::new("t-remove");
    let bench = &stage.bench;
    let before = stage.checksums();
    // The missing drives are expected back: a spare that is added waits.
    for seat in ["1", "2"] {
        bench.run(&["drive", "offline", "tank", seat]);
    }
    for answer in stage.answers() {
        let spare = stage.drive("x");
        bench.ok(&["drive", "add", "tank", &spare]);
        stage.turn("names/x", &stage.target(answer));
        let status = bench.json(&["pool", "status", "tank"]);
        let seat = status["seats"].as_array().unwrap().last().unwrap()["seat"].to_string();
        let gone = bench.json(&["drive", "remove", "tank", &seat]);
        assert_eq!(gone["state"], "removed", "{answer:?}");
        assert_eq!(stage.checksums(), before, "{answer:?}");
        let kept = !matches!(answer, Answer::Missing | Answer::Directory);
        assert_eq!(gone["kept"].is_string(), kept, "{answer:?}: {gone}");
    }
    // The spare itself.
    let spare = stage.drive("y");
    bench.ok(&["drive", "add", "tank", &spare]);
    let gone = bench.json(&["drive", "remove", "tank", &spare]);
    assert_eq!(gone["kept"], serde_json::Value::Null);
    let found = bench.json(&["pool", "import", "--dir", &spare]);
    assert_eq!(found["pools"], serde_json::json!([]));
}

#[test]
fn a_spare_that_takes_over_is_the_spare_whatever_has_its_name() {
    let stage = Stage::new("t-fail");
    let bench = &stage.bench;
    let drives: Vec<String> = (0..4)
        .map(|index| stage.drive(&format!("f{index}")))
        .collect();
    let made = bench.create("fails", "raid5", &drives[..3], &["spare", &drives[3]]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let before = stage.checksums();
    let (mut working, mut spare) = ("0", "3");
    for answer in stage.answers() {
        let name = format!("names/f{spare}");
        stage.turn(&name, &stage.target(answer));
        bench.ok(&["drive", "fail", "fails", working]);
        bench.ok(&["pool", "wait", "fails"]);
        assert_eq!(stage.checksums(), before, "{answer:?}");
        let status = bench.json(&["pool", "status", "fails"]);
        assert_eq!(status["health"], "healthy", "{answer:?}: {status}");
        stage.turn(&name, &stage.real(&format!("f{spare}")));
        bench.ok(&["drive", "online", "fails", working]);
        (working, spare) = (spare, working);
    }
}

#[test]
fn an_import_uses_the_pools_own_drives_and_no_other() {
    let stage = Stage::new("t-import");
    let bench = &stage.bench;
    bench.ok(&["pool", "export", "tank"]);
    let mut before = stage.checksums();
    for degraded in [false, true] {
        for answer in stage.answers() {
            // The drive itself and its copies may come in: they are the pool's.
            let ours = matches!(
                answer,
                Answer::Itself | Answer::WentOn | Answer::Member | Answer::Overlaid | Answer::Spare
            );
            if ours {
                continue;
            }
            stage.turn("names/l1", &stage.target(answer));
            let import = ["pool", "import", "--dir", "names", "tank", "--degraded"];
            let words = if degraded { &import[..] } else { &import[..5] };
            let ran = bench.run(words);
            if answer != Answer::Taken {
                assert_eq!(ran.code, 0, "{answer:?}: {}", ran.stderr);
                let status = bench.json(&["pool", "status", "tank"]);
                assert_eq!(status["seats"][1]["state"], "out", "{answer:?}");
                bench.ok(&["pool", "export", "tank"]);
            }
            assert_eq!(stage.checksums(), before, "{answer:?}");
        }
    }
    // Drives of the pool have their own seats whatever their names, and none of them that is out is written to.
    for (answer, seat, state) in [
        (Answer::Member, 2, "out"),
        (Answer::Spare, 5, "out"),
        (Answer::Overlaid, 1, "out"),
    ] {
        stage.turn("names/l1", &stage.target(answer));
        bench.ok(&["pool", "import", "--dir", "names", "tank"]);
        let status = bench.json(&["pool", "status", "tank"]);
        assert_eq!(status["seats"][seat]["state"], state, "{answer:?}");
        assert_eq!(status["seats"][1]["state"], "out", "{answer:?}");
        bench.ok(&["pool", "export", "tank"]);
        let after = stage.checksums();
        let name = stage.still(answer);
        // But for the reservation of the opening, which is written to all drives of the pool that are there.
        before.insert(name, after[name]);
        assert_eq!(after, before, "{answer:?}");
    }
    // A drive that went on elsewhere is one of another history: the pool opens without it, or not at all.
    stage.turn("names/l1", &stage.target(Answer::WentOn));
    let ran = bench.run(&["pool", "import", "--dir", "names", "tank"]);
    if ran.code == 0 {
        let status = bench.json(&["pool", "status", "tank"]);
        assert_eq!(status["seats"][1]["state"], "out");
        bench.ok(&["pool", "export", "tank"]);
    }
    // An opening leaves its reservation on every drive of the pool that it finds, and nothing else.
    let mut after = stage.checksums();
    after.insert("went-on", before["went-on"]);
    assert_eq!(after, before);
    stage.turn("names/l1", &stage.target(Answer::Itself));
    bench.ok(&["pool", "import", "--dir", "names", "tank"]);
}

#[test]
fn destroy_removes_the_pools_own_labels_and_no_other() {
    let stage = Stage::new("t-destroy");
    let bench = &stage.bench;
    let before = stage.checksums();
    for answer in stage.answers() {
        let drives = [stage.drive("g0"), stage.drive("g1")];
        assert_eq!(bench.create("gone", "raid1", &drives, &[]).code, 0);
        stage.turn("names/g1", &stage.target(answer));
        let ran = bench.run(&["pool", "destroy", "gone", "--yes"]);
        let complains = matches!(answer, Answer::Taken | Answer::Silent);
        assert_eq!(ran.code, i32::from(complains), "{answer:?}: {}", ran.stderr);
        assert_eq!(stage.checksums(), before, "{answer:?}");
        let found = bench.json(&["pool", "import", "--dir", "names/g0"]);
        assert_eq!(found["pools"], serde_json::json!([]), "{answer:?}");
    }
}

/// Regression: a drive that answered nothing when the daemon started kept its pool closed, READY was never sent, and
/// SIGTERM did not end the daemon.
#[test]
fn a_start_with_a_drive_that_does_not_answer_opens_its_pool_and_can_be_ended() {
    let mut stage = Stage::new("t-start");
    if stage.answers().all(|answer| answer != Answer::Silent) {
        return;
    }
    let drives: Vec<String> = (0..3)
        .map(|index| stage.drive(&format!("h{index}")))
        .collect();
    assert_eq!(stage.bench.create("hung", "raid5", &drives, &[]).code, 0);
    stage.bench.kill();
    stage.turn("names/h1", &stage.target(Answer::Silent));
    let began = Instant::now();
    stage.bench.start_and_ask(&["--wait-drives", "1"]);
    // Answers are given before all pools are open.
    assert!(began.elapsed() < Duration::from_secs(15));
    while stage.bench.run(&["pool", "status", "hung"]).code != 0 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{}",
            stage.bench.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = stage.bench.json(&["pool", "status", "hung"]);
    assert_eq!(
        (&status["health"], &status["seats"][1]["state"]),
        (&"degraded".into(), &"out".into())
    );
    let began = Instant::now();
    assert_eq!(stage.bench.terminate(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10));
}
