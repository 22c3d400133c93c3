//! Sizes of volumes: parts of what is free, what is allocated, and file systems that fit the scheme.

use export::nbd::Client;

use super::MIB;
use crate::support::bench::Bench;

const GIB: u64 = 1 << 30;

fn volume(bench: &Bench, name: &str) -> serde_json::Value {
    let listed = bench.json(&["volume", "list"]);
    let volumes = listed["volumes"].as_array().unwrap().iter();
    let mut found = volumes.filter(|volume| volume["name"] == name);
    found.next().unwrap().clone()
}

fn free(bench: &Bench) -> u64 {
    let listed = bench.json(&["pool", "list"]);
    listed["pools"][0]["free_bytes"].as_u64().unwrap()
}

#[test]
fn a_size_can_be_a_part_of_what_is_free() {
    let bench = Bench::new("sizes");
    let drives = bench.drives("d", 5, GIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    let all = free(&bench);
    bench.ok(&["volume", "create", "tank/half", "--size", "50%"]);
    let half = volume(&bench, "half")["size_bytes"].as_u64().unwrap();
    assert_eq!(half, all / 2 / 4096 * 4096);
    bench.ok(&["volume", "create", "tank/rest", "--size", "max"]);
    assert_eq!(free(&bench), 0);
    let none = bench.run(&["volume", "create", "tank/none", "--size", "10%"]);
    none.refused(1, &["nothing is free in pool `tank`", "volume list"]);
    bench.ok(&["volume", "delete", "tank/half", "--yes"]);
    let rest = volume(&bench, "rest")["size_bytes"].as_u64().unwrap();
    bench.ok(&["volume", "resize", "tank/rest", "--size", "+50%"]);
    let more = volume(&bench, "rest")["size_bytes"].as_u64().unwrap();
    assert!(more > rest && more < all, "{rest} {more} {all}");
    bench.ok(&["volume", "resize", "tank/rest", "--size", "max"]);
    assert_eq!(volume(&bench, "rest")["size_bytes"].as_u64(), Some(all));
    assert_eq!(free(&bench), 0);
    // A part of what is free says nothing about a size that is there: nothing is cut off.
    let part = bench.run(&["volume", "resize", "tank/rest", "--size", "50%", "--yes"]);
    part.refused(2, &["`50%` is a part of what is free", "+50%"]);
    let part = bench.run(&["volume", "create", "tank/x", "--size", "120%"]);
    part.refused(2, &["`120%`", "1% to 100%"]);
}

#[test]
fn what_is_written_is_allocated_until_it_is_trimmed() {
    let bench = Bench::new("allocated");
    let drives = bench.drives("d", 5, GIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "1G"]);
    assert_eq!(volume(&bench, "v")["allocated_bytes"], 0);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:v.sock"]);
    let mut client =
        Client::connect(&export["uri"].as_str().unwrap().parse().unwrap(), None).unwrap();
    client.write(300 * MIB, &[7; 1 << 20], false).unwrap();
    client.write(4096, &[7; 4096], false).unwrap();
    client.flush().unwrap();
    let allocated = volume(&bench, "v")["allocated_bytes"].as_u64().unwrap();
    assert!(
        (MIB + 4096..64 * MIB).contains(&allocated),
        "{allocated} bytes"
    );
    let table = bench.ok(&["volume", "list"]);
    assert!(table.contains("ALLOCATED"), "{table}");
    let shown = bench.json(&["volume", "show", "tank/v"]);
    assert_eq!(shown["allocated_bytes"], allocated);
    client.trim(0, 1 << 30).unwrap();
    client.flush().unwrap();
    assert_eq!(volume(&bench, "v")["allocated_bytes"], 0);
    client.disconnect().unwrap();
}

#[test]
fn a_volume_shows_what_it_is_and_the_file_systems_that_fit_its_scheme() {
    let bench = Bench::new("show");
    let drives = bench.drives("d", 5, GIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "100M"]);
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:v.sock"]);
    let shown = bench.json(&["volume", "show", "tank/v"]);
    let number = |name: &str| shown[name].as_u64().unwrap();
    let (chunk, stripe) = (number("chunk_bytes"), number("stripe_bytes"));
    assert_eq!(stripe, 3 * chunk);
    assert!(number("reserved_bytes") >= 100 * MIB);
    assert_eq!(shown["scheme"], "raid6");
    let lines = [
        format!(
            "mkfs.ext4 -b 4096 -E stride={},stripe_width={} DEVICE",
            chunk / 4096,
            stripe / 4096
        ),
        format!("mkfs.xfs -s size=4096 -d su={}k,sw=3 DEVICE", chunk / 1024),
    ];
    assert_eq!(shown["mkfs"], serde_json::json!(lines));
    let text = bench.ok(&["volume", "show", "tank/v"]);
    for part in [
        "raid6",
        "v.sock",
        "requests of any size",
        &lines[0],
        &lines[1],
        &format!("min_io_size={chunk},opt_io_size={stripe}\n"),
    ] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    let listed = bench.ok(&["volume", "list", "--mkfs"]);
    assert!(listed.contains(&lines[1]), "{listed}");
    assert!(!bench.ok(&["volume", "list"]).contains("mkfs"));
    bench
        .run(&["volume", "show", "tank/w"])
        .refused(1, &["no volume `w`"]);
    // A mirror has no stripes.
    let drives = bench.drives("m", 2, 100 * MIB);
    assert_eq!(bench.create("pair", "raid1", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "pair/v", "--size", "max"]);
    let shown = bench.json(&["volume", "show", "pair/v"]);
    assert_eq!(shown["mkfs"][0], "mkfs.ext4 -b 4096 DEVICE");
    assert!(!shown["qemu"].to_string().contains("opt_io_size"));
}
