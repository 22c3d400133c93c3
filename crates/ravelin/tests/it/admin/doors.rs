//! Doors that were left open: a load over a volume in use, and a server that serves whoever reaches it.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use export::nbd::Client;

use super::MIB;
use super::tls::{authority, certificate};
use crate::support::bench::Bench;

fn made(test: &str) -> Bench {
    let bench = Bench::new(test);
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    bench
}

const WRITES: [&str; 8] = [
    "bench", "tank/v", "--rw", "write", "--time", "1", "--bs", "64k",
];

/// Regression: `bench --rw write --yes`, which the first steps taught, overwrote a volume with a mounted file system.
#[test]
fn a_load_that_writes_is_refused_while_others_use_the_volume() {
    let bench = made("loads");
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let uri = export["uri"].as_str().unwrap().parse().unwrap();
    let mut client = Client::connect(&uri, None).unwrap();
    client.write(0, &[7; 4096], true).unwrap();
    let yes = [&WRITES[..], &["--yes"]].concat();
    for words in [&WRITES[..], &yes] {
        bench
            .run(words)
            .refused(1, &["client is connected to volume `tank/v`", "--force"]);
    }
    assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
    // Reads hurt nobody.
    bench.ok(&["bench", "tank/v", "--rw", "read", "--time", "1"]);
    bench.ok(&[&yes[..], &["--force"]].concat());
    assert_eq!(client.read(0, 4096).unwrap(), [0; 4096]);
    client.disconnect().unwrap();
}

#[test]
fn a_load_that_writes_asks_for_the_name_of_a_volume_that_holds_data() {
    let bench = made("asks");
    bench.ok(&WRITES);
    bench.run(&WRITES).refused(
        2,
        &["This loses what `tank/v` holds", "no terminal to ask on"],
    );
    bench.ok(&[&WRITES[..], &["--yes"]].concat());
}

#[test]
fn a_load_that_writes_is_refused_while_a_program_has_the_device_open() {
    let bench = made("openers");
    let place = bench.path("file").display().to_string();
    let attach = [
        "volume", "attach", "tank/v", "--fuse", &place, "--loop", "--json",
    ];
    let served = bench.run(&attach);
    if served.code != 0 {
        eprintln!("skipped: it needs root, FUSE and loop devices");
        return;
    }
    let served: serde_json::Value = serde_json::from_str(&served.stdout).unwrap();
    let device = served["device"].as_str().unwrap();
    let open = std::fs::File::open(device).unwrap();
    bench
        .run(&[&WRITES[..], &["--yes"]].concat())
        .refused(1, &[device, "is open in pid", "--force"]);
    drop(open);
    bench.ok(&[&WRITES[..], &["--yes"]].concat());
    bench.ok(&["volume", "detach", "tank/v"]);
}

/// Regression: a server's certificate alone let a server on all addresses serve everybody without `--insecure`.
#[test]
fn tcp_that_others_reach_needs_to_know_its_clients() {
    let bench = made("strangers");
    let ours = authority();
    certificate(&bench.path("server"), "server", &ours, &ours);
    let attach = ["volume", "attach", "tank/v", "--nbd", "tcp:0.0.0.0:0"];
    let (cert, key) = ("server/server-cert.pem", "server/server-key.pem");
    let tls = [&attach[..], &["--tls-cert", cert, "--tls-key", key]].concat();
    bench.run(&tls).refused(
        2,
        &[
            "does not say who the client is",
            "--tls-client-ca",
            "--insecure",
        ],
    );
    let authority = ["--tls-client-ca", "server/ca-cert.pem"];
    bench.ok(&[&tls[..], &authority].concat());
    bench.ok(&["volume", "detach", "tank/v"]);
    bench.ok(&[&tls[..], &["--insecure"]].concat());
    bench
        .run(&[&tls[..], &authority, &["--insecure"]].concat())
        .refused(2, &["--insecure"]);
}

#[test]
fn clients_that_are_served_and_clients_that_are_not_leave_a_line_in_the_log() {
    let bench = made("lines");
    let has = |parts: &[&str]| {
        let deadline = Instant::now() + Duration::from_secs(10);
        let found = || {
            let log = bench.log();
            let mut lines = log.lines();
            lines.any(|line| parts.iter().all(|part| line.contains(part)))
        };
        while !found() {
            assert!(
                Instant::now() < deadline,
                "no {parts:?} in:\n{}",
                bench.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let attach = ["volume", "attach", "tank/v", "--nbd", "tcp:127.0.0.1:0"];
    let export = bench.json(&attach);
    let uri = export["uri"].as_str().unwrap().to_owned();
    let client = Client::connect(&uri.parse().unwrap(), None).unwrap();
    has(&["a client is served", "client=127.0.0.1:"]);
    client.disconnect().unwrap();
    let address = export["address"].as_str().unwrap().replace("tcp:", "");
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(&[0xff; 64]).unwrap();
    has(&["a client was not served", "client=127.0.0.1:"]);
    // One that may not have the volume.
    bench.ok(&["volume", "detach", "tank/v"]);
    let ours = authority();
    certificate(&bench.path("server"), "server", &ours, &ours);
    let (cert, key) = ("server/server-cert.pem", "server/server-key.pem");
    let export = bench.json(&[&attach[..], &["--tls-cert", cert, "--tls-key", key]].concat());
    let plain = export["uri"].as_str().unwrap().replace("nbds", "nbd");
    let before = bench.log().matches("a client was not served").count();
    assert!(Client::connect(&plain.parse().unwrap(), None).is_err());
    let deadline = Instant::now() + Duration::from_secs(10);
    while bench.log().matches("a client was not served").count() == before {
        assert!(Instant::now() < deadline, "{}", bench.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}
