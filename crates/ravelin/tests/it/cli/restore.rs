//! A daemon that starts again restores its state: pools are open, volumes are served.

use serde_json::{Value, json};

use super::{MIB, connect};
use crate::support::bench::Bench;

/// The daemon does not wait for missing drives.
const NOW: [&str; 2] = ["--wait-drives", "0"];

fn addresses(bench: &Bench) -> Vec<(String, String)> {
    let list = bench.json(&["volume", "list"]);
    let volumes = list["volumes"].as_array().unwrap();
    let each = volumes.iter().flat_map(|volume| {
        let exports = volume["exports"].as_array().unwrap();
        let name = format!("{}/{}", volume["pool"], volume["name"]).replace('"', "");
        exports.iter().map(move |export| {
            let address = export["address"].as_str().unwrap();
            (name.clone(), address.to_owned())
        })
    });
    each.collect()
}

fn uri<'a>(exports: &'a Value, address: &str) -> &'a str {
    let all = exports["exports"].as_array().unwrap();
    let found = all.iter().find(|export| export["address"] == address);
    found.unwrap()["uri"].as_str().unwrap()
}

/// Two pools; one of them has two volumes at three addresses.
fn two_pools(bench: &Bench) -> [Vec<String>; 2] {
    let drives = [
        bench.drives("a", 4, 96 * MIB),
        bench.drives("b", 3, 96 * MIB),
    ];
    assert_eq!(bench.create("tank", "raid6", &drives[0], &[]).code, 0);
    assert_eq!(bench.create("pond", "raid5", &drives[1], &[]).code, 0);
    for volume in ["tank/one", "tank/two", "pond/one"] {
        bench.ok(&["volume", "create", volume, "--size", "8M"]);
    }
    bench.ok(&["volume", "attach", "tank/one", "--nbd", "unix:one"]);
    bench.ok(&["volume", "attach", "tank/one", "--nbd", "tcp:127.0.0.1:0"]);
    bench.ok(&["volume", "attach", "tank/two", "--nbd", "unix:two"]);
    bench.ok(&["volume", "attach", "pond/one", "--nbd", "unix:three"]);
    drives
}

#[test]
fn pools_and_exports_come_back_after_a_stop_and_after_a_kill() {
    let mut bench = Bench::new("back");
    two_pools(&bench);
    let before = addresses(&bench);
    assert_eq!(before.len(), 4);
    let pattern = vec![0xA5_u8; 1 << 20];
    let (_, address) = before.iter().find(|(name, _)| name == "tank/one").unwrap();
    let status = bench.json(&["pool", "status", "tank"]);
    let mut client = connect(uri(&status, address));
    client.write(MIB, &pattern, false).unwrap();
    client.flush().unwrap();
    client.disconnect().unwrap();
    for stop in ["term", "kill", "term"] {
        if stop == "kill" {
            bench.kill();
        } else {
            assert_eq!(bench.terminate(), Some(0));
            for socket in ["socket", "one", "two", "three"] {
                assert!(!bench.path(socket).exists(), "{socket} stays");
            }
        }
        bench.start();
        assert_eq!(addresses(&bench), before, "after {stop}");
        let status = bench.json(&["pool", "status", "tank"]);
        for (name, address) in &before {
            if name == "tank/one" {
                let mut client = connect(uri(&status, address));
                assert!(client.read(MIB, pattern.len()).unwrap() == pattern);
                client.disconnect().unwrap();
            }
        }
        // Scripts may repeat their whole setup after a start.
        bench.ok(&["pool", "import", "--dir", ".", "tank"]);
        bench.ok(&["volume", "attach", "tank/two", "--nbd", "unix:two"]);
        assert_eq!(addresses(&bench), before, "and nothing twice");
    }
}

#[test]
fn what_was_put_away_stays_away() {
    let mut bench = Bench::new("away");
    let drives = two_pools(&bench);
    bench.ok(&["volume", "detach", "tank/one"]);
    bench.ok(&["pool", "export", "pond"]);
    bench.kill();
    bench.start();
    let left = addresses(&bench);
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].0, "tank/two");
    assert!(!bench.path("one").exists());

    // After a manual import the pool is remembered again, but not its exports.
    bench.ok(&["pool", "import", "--dir", ".", "pond"]);
    bench.ok(&["pool", "destroy", "tank", "--yes", "--force"]);
    bench.kill();
    bench.start();
    assert_eq!(addresses(&bench), []);
    let pools = bench.json(&["pool", "list"]);
    assert_eq!(pools["pools"].as_array().unwrap().len(), 1);
    assert_eq!(pools["pools"][0]["name"], "pond");
    assert_eq!(pools.get("failed_restores"), None);
    assert_eq!(bench.create("tank", "raid6", &drives[0], &[]).code, 0);
}

#[test]
fn a_pool_that_cannot_be_opened_is_named_and_stops_nothing() {
    let mut bench = Bench::new("cannot");
    let drives = two_pools(&bench);
    let before = addresses(&bench);
    assert_eq!(bench.terminate(), Some(0));
    std::fs::create_dir(bench.path("elsewhere")).unwrap();
    let carry = |bench: &Bench, back: bool| {
        for drive in &drives[0] {
            let ends = [bench.path(drive), bench.path("elsewhere").join(drive)];
            std::fs::rename(&ends[usize::from(back)], &ends[usize::from(!back)]).unwrap();
        }
    };
    carry(&bench, false);
    bench.start_with(&NOW);
    let list = bench.json(&["pool", "list"]);
    assert_eq!(list["pools"][0]["name"], "pond");
    assert_eq!(list["failed_restores"][0]["pool"], "tank");
    let text = bench.ok(&["pool", "status"]);
    for part in ["`tank` was not opened again", "a0", "pool import", "pond"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 4);

    // The pool is still remembered at the next start; after a manual import its exports are restored.
    assert_eq!(bench.terminate(), Some(0));
    bench.start_with(&NOW);
    bench.ok(&["pool", "import", "--dir", "elsewhere", "tank"]);
    assert_eq!(addresses(&bench), before);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
    assert_eq!(bench.json(&["pool", "list"]).get("failed_restores"), None);

    // The next start looks for the pool at its new place.
    bench.kill();
    bench.start_with(&NOW);
    assert_eq!(addresses(&bench), before);

    // `pool export` forgets the missing pool.
    assert_eq!(bench.terminate(), Some(0));
    carry(&bench, true);
    for drive in &drives[0] {
        std::fs::rename(bench.path(drive), bench.path(&format!("gone-{drive}"))).unwrap();
    }
    bench.start_with(&NOW);
    bench.ok(&["pool", "export", "tank"]);
    assert_eq!(bench.json(&["pool", "list"]).get("failed_restores"), None);
    assert_eq!(bench.terminate(), Some(0));
    bench.start_with(&NOW);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
}

#[test]
fn an_export_whose_place_is_taken_is_named_and_the_others_come_back() {
    let mut bench = Bench::new("taken");
    two_pools(&bench);
    assert_eq!(bench.terminate(), Some(0));
    std::fs::write(bench.path("two"), b"precious").unwrap();
    bench.start();
    assert_eq!(addresses(&bench).len(), 3);
    let list = bench.json(&["pool", "list"]);
    let missing = &list["failed_restores"][0];
    assert_eq!(missing["volume"], "two");
    assert!(
        missing["problem"]["why"]
            .as_str()
            .unwrap()
            .contains("not a socket"),
        "{missing}"
    );
    assert_eq!(
        bench.run(&["pool", "status", "--check"]).code,
        0,
        "pools are well"
    );
    assert_eq!(std::fs::read(bench.path("two")).unwrap(), b"precious");
    bench.ok(&["volume", "attach", "tank/two", "--nbd", "unix:other"]);
    assert_eq!(bench.json(&["pool", "list"]).get("failed_restores"), None);
}

#[test]
fn a_missing_drive_is_waited_for_before_a_pool_is_opened_without_it() {
    let mut bench = Bench::new("late");
    two_pools(&bench);
    bench.kill();
    std::fs::rename(bench.path("a2"), bench.path("late")).unwrap();
    std::thread::scope(|scope| {
        let [late, there] = ["late", "a2"].map(|name| bench.path(name));
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(1));
            std::fs::rename(late, there).unwrap();
        });
        bench.start();
    });
    let status = bench.json(&["pool", "status", "tank"]);
    let states: Vec<&Value> = { status["seats"].as_array().unwrap().iter() }
        .map(|seat| &seat["state"])
        .collect();
    assert_eq!(states, [&json!("current"); 4]);
}

#[test]
fn a_state_directory_has_one_daemon() {
    let bench = Bench::new("state");
    bench
        .run(&["daemon", "--socket", "other", "--state", "socket.state"])
        .refused(1, &["socket.state is in use by another daemon", "--state"]);
    assert!(!bench.path("other").exists());
    bench.ok(&["pool", "list"]);
}

/// Regression: one pool without its drives delayed the whole host: the socket answered only when the last pool had been
/// given up.
#[test]
fn a_pool_without_its_drives_keeps_neither_others_nor_requests_waiting() {
    let mut bench = Bench::new("absent");
    let [_, pond] = two_pools(&bench);
    let before = addresses(&bench);
    bench.terminate();
    for drive in &pond {
        std::fs::rename(bench.path(drive), bench.path(&format!("{drive}-away"))).unwrap();
    }
    bench.start_and_ask(&["--wait-drives", "600"]);
    // `tank` is there with all its exports, `pond` is reported as waiting for drives.
    let (there, coming): (Vec<_>, Vec<_>) =
        { before.iter().cloned() }.partition(|(volume, _)| volume.starts_with("tank/"));
    assert_eq!(addresses(&bench), there);
    let listed = bench.json(&["pool", "list"]);
    let missing = &listed["failed_restores"][0];
    assert_eq!(
        (&missing["pool"], &missing["restoring"]),
        (&json!("pond"), &json!(true)),
        "{listed}"
    );
    assert!(bench.ok(&["pool", "list"]).contains("waited for"));
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 4);
    let status = bench.json(&["pool", "status", "tank"]);
    let mut client = connect(uri(&status, &there[0].1));
    client.write(0, &[7; 4096], true).unwrap();
    client.disconnect().unwrap();
    // The end of the daemon does not wait for the drives either, and the pool stays remembered.
    assert_eq!(bench.terminate(), Some(0));
    bench.start_and_ask(&["--wait-drives", "600"]);
    for drive in &pond {
        std::fs::rename(bench.path(&format!("{drive}-away")), bench.path(drive)).unwrap();
    }
    bench.wait_until_it_answers();
    let listed = bench.json(&["pool", "list"]);
    assert_eq!(listed["failed_restores"], Value::Null, "{listed}");
    let mut all = addresses(&bench);
    all.sort();
    let mut wanted = [there, coming].concat();
    wanted.sort();
    assert_eq!(all, wanted);
}

/// A shelf that is switched on after the host: its pool opens without a command.
#[test]
fn a_pool_whose_drives_come_late_opens_when_all_are_there() {
    let mut bench = Bench::new("late");
    two_pools(&bench);
    let before = addresses(&bench);
    bench.kill();
    std::fs::create_dir(bench.path("away")).unwrap();
    for name in ["b0", "b2"] {
        std::fs::rename(bench.path(name), bench.path("away").join(name)).unwrap();
    }
    bench.start_with(&NOW);
    let listed = bench.json(&["pool", "list"]);
    assert_eq!(listed["pools"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["failed_restores"][0]["pool"], "pond", "{listed}");
    // One of two is not enough, and the pool is not opened without the other one.
    let back = |name: &str| {
        std::fs::rename(bench.path("away").join(name), bench.path(name)).unwrap();
    };
    back("b0");
    std::thread::sleep(std::time::Duration::from_secs(7));
    let listed = bench.json(&["pool", "list"]);
    assert_eq!(listed["pools"].as_array().unwrap().len(), 1, "{listed}");
    back("b2");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while bench.json(&["pool", "list"])["pools"]
        .as_array()
        .unwrap()
        .len()
        < 2
    {
        assert!(std::time::Instant::now() < until, "{}", bench.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while addresses(&bench) != before {
        assert!(std::time::Instant::now() < until, "{:?}", addresses(&bench));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
}
