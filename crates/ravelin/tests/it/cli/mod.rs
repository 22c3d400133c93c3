//! The binary and its daemon, from outside: the whole use of a pool, a killed daemon, and errors of
//! users.

mod errors;
mod fencing;
mod holder;
mod hooks;
mod members;
mod refusal;
mod restore;
mod stories;
mod transcripts;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::bench::{Bench, bytes};
use export::nbd::Client;

const MIB: u64 = 1 << 20;

fn connect(uri: &str) -> Client {
    let mut client = Client::connect(&uri.parse().unwrap(), None).unwrap();
    client.set_timeout(Some(Duration::from_secs(30)));
    client
}

#[test]
fn a_pools_life_from_create_to_destroy() {
    let mut bench = Bench::new("life");
    let drives = bench.drives("d", 7, 96 * MIB);
    let more = ["spare", "d6"];
    let plan = bench.create("tank", "pddl1:3d:1s", &drives[..6], &["spare", "d6", "-n"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(plan.stdout.contains("6 drives ×"), "{}", plan.stdout);
    assert!(
        bytes(&bench.path("d0")).iter().all(|&byte| byte == 0),
        "-n writes nothing"
    );
    assert_eq!(
        bench.json(&["pool", "list"])["pools"],
        serde_json::json!([])
    );
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 4);

    let made = bench.create("tank", "pddl1:3d:1s", &drives[..6], &more);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let pools = bench.json(&["pool", "list"]);
    assert_eq!(pools["pools"][0]["name"], "tank");
    assert_eq!(pools["pools"][0]["drives"], 7);

    let volume = bench.json(&["volume", "create", "tank/data", "--size", "32M"]);
    assert_eq!(volume["size_bytes"], 32 * MIB);
    let export = bench.json(&["volume", "attach", "tank/data", "--nbd", "unix:nbd"]);
    let mut client = connect(export["uri"].as_str().unwrap());
    let pattern: Vec<u8> = (0..3 * MIB).map(|at| (at % 251) as u8).collect();
    client.write(MIB, &pattern, false).unwrap();
    client.flush().unwrap();

    // While a client is connected, commands that would cut it off are refused without `--force`.
    bench
        .run(&["pool", "export", "tank"])
        .refused(1, &["1 client is connected", "tank/data", "--force"]);

    assert_eq!(bench.run(&["pool", "status", "tank", "--check"]).code, 0);
    bench.ok(&["drive", "fail", "tank", "d2"]);
    let code = bench.run(&["pool", "status", "tank", "--check"]).code;
    let status = bench.json(&["pool", "status", "tank"]);
    let rebuilt = status["rebuild"]["running"] == false;
    assert!(code == 1 || code == 0 && rebuilt, "{code}: {status}");
    let rest = bench.json(&["pool", "wait", "tank", "--for", "rebuild"]);
    assert_eq!(rest["rebuild"]["running"], false);
    assert!(rest["rebuild"]["cells_total"].as_u64().unwrap() > 0);
    assert_eq!(client.read(MIB, pattern.len()).unwrap(), pattern);

    bench.drives("new", 1, 96 * MIB);
    bench.json(&["drive", "replace", "tank", "2", "new0"]);
    bench.ok(&["pool", "wait", "tank"]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "healthy", "{status}");
    assert_eq!(status["exports"][0]["clients"], 1);
    let text = bench.ok(&["pool", "status", "tank"]);
    for part in ["pool: tank", "state: HEALTHY", "new0", "data", "rebuild: "] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert_eq!(client.read(MIB, pattern.len()).unwrap(), pattern);

    bench.json(&["drive", "offline", "tank", "0"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(bench.json(&["drive", "online", "tank", "d0"])["seat"], 0);
    bench.ok(&["pool", "wait", "tank"]);
    let text = bench.ok(&["pool", "events", "tank"]);
    assert!(text.contains("rebuild ends"), "{text}");
    assert_eq!(
        bench.json(&["pool", "iostat", "tank"])["drives"][0]["seat"],
        0
    );

    client.disconnect().unwrap();
    bench.json(&["volume", "detach", "tank/data"]);
    assert!(!bench.path("nbd").exists());
    assert_eq!(
        bench.json(&["volume", "resize", "tank/data", "--size", "48M"])["size_bytes"],
        48 * MIB
    );
    bench
        .run(&["volume", "resize", "tank/data", "--size", "1M"])
        .refused(2, &["1 MiB and 48 MiB", "--yes"]);

    // The end of the daemon closes the pool; the next start restores it.
    assert_eq!(bench.terminate(), Some(0));
    assert!(!bench.path("socket").exists());
    bench.start();
    assert_eq!(bench.json(&["pool", "list"])["pools"][0]["name"], "tank");
    bench.ok(&["pool", "export", "tank"]);
    let seen = bench.json(&["pool", "import", "--dir", "."]);
    assert_eq!(seen["pools"][0]["name"], "tank");
    bench.json(&["pool", "import", "--dir", ".", "tank"]);
    let export = bench.json(&["volume", "attach", "tank/data", "--nbd", "tcp:127.0.0.1:0"]);
    let mut client = connect(export["uri"].as_str().unwrap());
    assert_eq!(client.read(MIB, pattern.len()).unwrap(), pattern);
    client.disconnect().unwrap();

    bench
        .run(&["pool", "destroy", "tank"])
        .refused(2, &["This loses pool `tank`", "tank/data  48 MiB", "--yes"]);
    bench.ok(&["pool", "status", "tank"]);
    bench
        .run(&["volume", "delete", "tank/data", "--yes"])
        .refused(1, &["it is attached to tcp:127.0.0.1"]);
    bench.ok(&["volume", "detach", "tank/data"]);
    bench.ok(&["volume", "delete", "tank/data", "--yes"]);
    bench.json(&["pool", "destroy", "tank", "--yes"]);
    bench
        .run(&["pool", "import", "--dir", "d0", "--dir", "d1", "tank"])
        .refused(1, &["no pool `tank` was found"]);
    let again = bench.create("tank", "raid6", &drives[3..], &[]);
    assert_eq!(again.code, 0, "no label is left: {}", again.stderr);
}

#[test]
fn the_kind_of_a_document_is_the_verb_as_it_is_typed() {
    let bench = Bench::without_daemon("kinds");
    for line in [
        "code list",
        "code show dcode:7",
        "code verify rdp:5",
        "layout show raid5:5c --rows 3",
        "layout map draid1:3d:9c:1s",
        "layout locate raid5:5c 3 1",
        "layout balance pddl1:3d:13c:1s --failures 1",
        "layout crush --devices 9 --rule indep:3 --x 0..3",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        // `json` compares `kind` with the first two words.
        bench.json(&words);
    }
}

#[test]
fn what_was_flushed_survives_a_daemon_that_is_killed_while_it_writes() {
    let mut bench = Bench::new("kill");
    let drives = bench.drives("d", 5, 96 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let uri = export["uri"].as_str().unwrap().to_owned();
    let old: Vec<u8> = (0..8 * MIB).map(|at| (at / 4096 % 253) as u8).collect();
    let mut client = connect(&uri);
    client.write(0, &old, false).unwrap();
    client.flush().unwrap();

    // From here on a thread overwrites the second half of `old` repeatedly with another pattern.
    let new = vec![0xEE_u8; 64 << 10];
    let writing = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut offset = 4 * MIB;
            while client.write(offset, &new, false).is_ok() {
                writing.store(true, Ordering::Release);
                offset = 4 * MIB + (offset + new.len() as u64) % (4 * MIB);
            }
        });
        while !writing.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(30));
        bench.kill();
    });

    assert!(
        bench.path("socket").exists(),
        "a killed daemon leaves its socket, which is replaced"
    );
    bench.start();
    bench.json(&["pool", "import", "--dir", ".", "tank"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let mut client = connect(export["uri"].as_str().unwrap());
    let found = client.read(0, old.len()).unwrap();
    let half = old.len() / 2;
    assert!(found[..half] == old[..half], "flushed and left alone");
    for (index, (found, old)) in found[half..]
        .chunks(4096)
        .zip(old[half..].chunks(4096))
        .enumerate()
    {
        assert!(
            found == old || found == &new[..4096],
            "block {index} is neither old nor new"
        );
    }
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
}
