//! A slip loses no data: neither the end of a mounted volume, nor a pool by a malformed request.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::MIB;
use crate::support::bench::Bench;

/// Sends a request without our client; returns the answer's status and body.
fn ask(bench: &Bench, request: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(bench.path("socket")).unwrap();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.parse().unwrap())
}

/// Regression: `volume resize --yes` cut off the end of a volume that was attached and mounted.
#[test]
fn a_volume_that_is_attached_does_not_shrink() {
    let bench = Bench::new("shrink");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let shrink = ["volume", "resize", "tank/v", "--size", "4M", "--yes"];
    bench.run(&shrink).refused(
        1,
        &[
            "while it is attached to unix:",
            "volume detach tank/v",
            "--force",
        ],
    );
    let size = |bench: &Bench| bench.json(&["volume", "list"])["volumes"][0]["size_bytes"].clone();
    assert_eq!(size(&bench), 16 * MIB);
    // Growth is always allowed; `--force` allows to shrink an attached volume.
    bench.ok(&["volume", "resize", "tank/v", "--size", "18M"]);
    bench.ok(&[&shrink[..], &["--force"]].concat());
    assert_eq!(size(&bench), 4 * MIB);
    bench.ok(&["volume", "detach", "tank/v"]);
    bench.ok(&["volume", "resize", "tank/v", "--size", "2M", "--yes"]);
    assert_eq!(size(&bench), 2 * MIB);
}

#[test]
fn a_size_can_be_a_change_and_is_rounded_up_with_a_word() {
    let bench = Bench::new("sizes");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let made = bench.run(&["volume", "create", "tank/v", "--size", "1000001"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(
        made.stderr
            .contains("1000001 bytes are rounded up to 1003520"),
        "{}",
        made.stderr
    );
    let resize = |change: &str| {
        let line = ["volume", "resize", "tank/v", "--size", change, "--yes"];
        bench.json(&line)["size_bytes"].as_u64().unwrap()
    };
    assert_eq!(resize("4M"), 4 * MIB);
    assert_eq!(resize("+3M"), 7 * MIB);
    assert_eq!(resize("-2M"), 5 * MIB);
    let all = ["volume", "resize", "tank/v", "--size", "-5M", "--yes"];
    bench.run(&all).refused(2, &["5 MiB less that is nothing"]);
    assert_eq!(resize("+4K"), 5 * MIB + 4096);
}

/// Regression: 1,500 requests of a fuzzer destroyed a pool, because one of them was a DELETE with the pool's path.
#[test]
fn a_request_that_loses_data_must_name_the_pool_in_its_body() {
    let bench = Bench::new("named");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let shrink = |pool: Value| json!({"size_bytes": MIB, "shrink": true, "pool": pool}).to_string();
    for (request, body) in [
        ("DELETE /v1/pools/tank", String::new()),
        ("DELETE /v1/pools/tank", "{\"force\":true}".to_owned()),
        ("DELETE /v1/pools/tank", "{\"pool\":\"tnak\"}".to_owned()),
        ("DELETE /v1/pools/tank/volumes/v", String::new()),
        (
            "DELETE /v1/pools/tank/volumes/v",
            "{\"pool\":\"v\"}".to_owned(),
        ),
        ("PATCH /v1/pools/tank/volumes/v", shrink(Value::Null)),
        ("PATCH /v1/pools/tank/volumes/v", shrink("other".into())),
    ] {
        let (status, answer) = ask(&bench, request, &body);
        assert_eq!(status, 400, "{request} {body}: {answer}");
        let hint = answer["error"]["try"].as_str().unwrap();
        assert!(hint.contains("\"pool\": \"tank\""), "{request}: {hint}");
    }
    let volumes = bench.json(&["volume", "list"]);
    assert_eq!(volumes["volumes"][0]["size_bytes"], 4 * MIB);
    let named = "{\"pool\":\"tank\"}";
    assert_eq!(ask(&bench, "DELETE /v1/pools/tank/volumes/w", named).0, 404);
    assert_eq!(ask(&bench, "DELETE /v1/pools/tank/volumes/v", named).0, 200);
    assert_eq!(ask(&bench, "DELETE /v1/pools/tank", named).0, 200);
    assert_eq!(bench.json(&["pool", "list"])["pools"], json!([]));
}
