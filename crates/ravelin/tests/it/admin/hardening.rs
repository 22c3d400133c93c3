//! The daemon under bad conditions: slow clients, too many clients, paths that belong to other programs.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::MIB;
use crate::support::bench::{Bench, bytes};

/// Much longer than the daemon waits for a client, so that a busy host does not fail the test.
const LONG: Duration = Duration::from_secs(60);

/// Whether the daemon closes the connection while `send` is called repeatedly.
fn is_closed(
    mut stream: UnixStream,
    send: impl Fn(&mut UnixStream) -> std::io::Result<()>,
) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let deadline = Instant::now() + LONG;
    while Instant::now() < deadline {
        if send(&mut stream).is_err() {
            return true;
        }
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return true,
            Ok(_) => {}
        }
    }
    false
}

/// Regression: a client that sent nothing, or a byte from time to time, kept its connection for ever.
#[test]
fn slow_clients_of_the_control_socket_are_closed_and_others_get_their_turn() {
    let bench = Bench::new("slow");
    let connect = || UnixStream::connect(bench.path("socket")).unwrap();
    let head = "POST /v1/pools HTTP/1.1\r\nHost: ravelin\r\nContent-Length: 1000\r\n\r\n";
    let clients = || {
        let mut with_body = connect();
        with_body.write_all(head.as_bytes()).unwrap();
        (connect(), connect(), with_body)
    };
    let (silent, in_head, in_body) = clients();
    assert!(is_closed(silent, |_| Ok(())));
    assert!(is_closed(in_head, |stream| stream.write_all(b"G")));
    assert!(is_closed(in_body, |stream| stream.write_all(b" ")));
    // Many slow clients at once: another client waits until the daemon closes the slow ones, and no longer.
    let crowd: Vec<_> = (0..100).map(|_| clients()).collect();
    bench.ok(&["pool", "list"]);
    drop(crowd);
}

/// Regression: clients of volumes took every file descriptor, and the control socket could not accept any more.
#[test]
fn clients_of_volumes_leave_descriptors_for_the_control_socket() {
    let bench = Bench::new("descriptors");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    for socket in ["unix:n0", "unix:n1", "unix:n2"] {
        bench.ok(&["volume", "attach", "tank/v", "--nbd", socket]);
    }
    let limit = Rlimit {
        current: Some(160),
        maximum: Some(160),
    };
    let pid = Pid::from_raw(i32::try_from(bench.pid()).unwrap());
    prlimit(pid, Resource::Nofile, limit).unwrap();
    // Each server would take 128.
    let mut flood = Vec::new();
    for round in 0..300 {
        let client = UnixStream::connect(bench.path(&format!("n{}", round % 3))).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        flood.push(client);
    }
    // A client that the server turns away reads the end of its connection, a client that is served reads the greeting.
    let served = |client: &mut UnixStream| client.read_exact(&mut [0; 18]).is_ok();
    let served: Vec<bool> = flood.iter_mut().map(served).collect();
    // The servers accept clients in any order, so one server may find no descriptor left for any of its clients.
    assert!(
        served.contains(&true) && served.contains(&false),
        "{served:?}"
    );
    let status = bench.json(&["status"]);
    assert_eq!(status["kind"], "status");
    bench.ok(&["drive", "fail", "tank", "1"]);
    bench.ok(&["drive", "online", "tank", "1"]);
    drop(flood);
}

/// Regression: the daemon mounted over an empty file of another program, and removed a socket that another program had
/// left.
#[test]
fn volumes_are_served_at_new_paths_and_what_is_at_others_stays() {
    let mut bench = Bench::new("paths");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    std::fs::write(bench.path("empty"), "").unwrap();
    std::fs::write(bench.path("full"), "precious").unwrap();
    std::fs::create_dir(bench.path("dir")).unwrap();
    drop(UnixListener::bind(bench.path("left")).unwrap());
    let nbd = |at: &str| bench.run(&["volume", "attach", "tank/v", "--nbd", at]);
    for name in ["empty", "full", "dir"] {
        nbd(&format!("unix:{name}")).refused(1, &["exists and is not a socket"]);
    }
    nbd("unix:left").refused(1, &["another program has left behind"]);
    if std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok()
    {
        let fuse = |at: &str| bench.run(&["volume", "attach", "tank/v", "--fuse", at]);
        for name in ["empty", "full"] {
            fuse(name).refused(1, &["exists already and is not Ravelin's"]);
        }
        fuse("left").refused(1, &["is not a regular file"]);
    } else {
        eprintln!("skipped: files, for there is no /dev/fuse");
    }
    assert_eq!(bytes(&bench.path("empty")), b"");
    assert_eq!(bytes(&bench.path("full")), b"precious");
    assert!(bench.path("left").exists() && bench.path("dir").is_dir());

    // A socket that a killed daemon left behind belongs to the daemon, which uses the path again.
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:ours"]);
    bench.kill();
    assert!(bench.path("ours").exists());
    bench.start();
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["exports"].as_array().unwrap().len(), 1, "{status}");
}
