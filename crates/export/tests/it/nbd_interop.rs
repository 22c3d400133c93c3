//! The server as seen by widely used clients. Without a tool, its test is reported as skipped.

#![expect(clippy::print_stdout, reason = "a skipped test says so")]

use std::process::Command;
use std::sync::Arc;

use crate::support::{Fixture, MemoryDevice, Pace, Table, installed, limits, run};
use block::SplitMix64;
use export::nbd::Options;

const SHUFFLED: Pace = Pace::Shuffled {
    seed: 11,
    delay_us_max: 100,
};

fn fixture(size_bytes: u64) -> (Arc<MemoryDevice>, Fixture, String) {
    let device = MemoryDevice::new(limits(size_bytes), SHUFFLED);
    let options = Options {
        workers: 2,
        ..Options::default()
    };
    let fixture = Fixture::serve(Table::of(&[("tank/data", Arc::clone(&device))]), &options);
    let uri = fixture.uri("tank/data").to_string();
    (device, fixture, uri)
}

#[test]
fn nbdinfo_sees_size_flags_block_sizes_and_all_exports() {
    if !installed("nbdinfo") {
        return;
    }
    let (device, fixture, uri) = fixture(3 << 20);
    let text = run("nbdinfo", &[&uri]);
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 3145728",
        "base:allocation",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(line), "`{line}` is not in:\n{text}");
    }
    // A second export, and a listing that opens both.
    let other = MemoryDevice::new(limits(1 << 20), Pace::Fast);
    let table = Table::of(&[("tank/data", Arc::clone(&device)), ("tank/other", other)]);
    let two = Fixture::serve(table, &Options::default());
    let text = run("nbdinfo", &["--list", &two.uri("").to_string()]);
    assert!(
        text.contains("export=\"tank/data\"") && text.contains("export=\"tank/other\""),
        "{text}"
    );
    assert!(text.contains("export-size: 1048576"), "{text}");
    drop(fixture);
}

#[test]
fn nbdinfo_maps_data_and_holes() {
    if !installed("nbdinfo") {
        return;
    }
    let (_device, fixture, uri) = fixture(1 << 20);
    let mut client = export::nbd::Client::connect(&fixture.uri(""), None).unwrap();
    client.write(65536, &[1; 8192], true).unwrap();
    let text = run("nbdinfo", &["--map", &uri]);
    let fields: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        fields,
        [
            ["0", "65536", "3", "hole,zero"],
            ["65536", "8192", "0", "data"],
            ["73728", "974848", "3", "hole,zero"],
        ]
    );
}

#[test]
fn nbdcopy_copies_in_and_out_over_several_connections() {
    if !installed("nbdcopy") {
        return;
    }
    let (device, fixture, uri) = fixture(24 << 20);
    let mut bytes = SplitMix64::new(5).bytes(24 << 20);
    // A hole for nbdcopy's sparse detection.
    bytes[4 << 20..9 << 20].fill(0);
    let (source, target) = (fixture.dir.join("source"), fixture.dir.join("target"));
    std::fs::write(&source, &bytes).unwrap();
    device.fill(&vec![0xee; 24 << 20]);
    let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
    run(
        "nbdcopy",
        &["--flush", "--connections=4", "--requests=64", source, &uri],
    );
    assert!(device.bytes() == bytes);
    assert!(device.flushes() > 0 && !device.unflushed());
    run("nbdcopy", &["--connections=4", &uri, target]);
    assert!(std::fs::read(target).unwrap() == bytes);
    // One connection, synchronous, to a pipe.
    let output = Command::new("nbdcopy")
        .args(["--synchronous", &uri, "-"])
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout == bytes);
}

#[test]
fn qemu_img_converts_and_finds_equal() {
    if !installed("qemu-img") {
        return;
    }
    let (device, fixture, uri) = fixture(16 << 20);
    let mut bytes = SplitMix64::new(6).bytes(16 << 20);
    bytes[1 << 20..6 << 20].fill(0);
    let source = fixture.dir.join("source.raw");
    std::fs::write(&source, &bytes).unwrap();
    let source = source.to_str().unwrap();
    run(
        "qemu-img",
        &[
            "convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", source, &uri,
        ],
    );
    assert!(device.bytes() == bytes);
    let text = run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", source, &uri],
    );
    assert!(text.contains("Images are identical."), "{text}");
    let text = run("qemu-img", &["info", &uri]);
    assert!(text.contains("virtual size: 16 MiB"), "{text}");
    let mut other = bytes;
    other[9 << 20] ^= 1;
    device.fill(&other);
    let output = Command::new("qemu-img")
        .args(["compare", "-f", "raw", "-F", "raw", source, &uri])
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "a difference of one bit is found"
    );
}

#[test]
fn qemu_io_patterns_read_back_at_odd_offsets() {
    if !installed("qemu-io") {
        return;
    }
    let (device, _fixture, uri) = fixture(8 << 20);
    let commands = [
        "write -P 0x11 0 1M",
        "write -f -P 0x22 512 512",
        "write -z -u 65536 65536",
        "discard 131072 65536",
        "aio_write -P 0x33 2M 3M",
        "aio_flush",
        "flush",
        "read -P 0x11 0 512",
        "read -P 0x22 512 512",
        "read -P 0x00 65536 131072",
        "read -P 0x11 196608 4096",
        "read -P 0x33 2M 3M",
        "writev -P 0x44 6M 512 4096 1024",
        "read -P 0x44 6M 5632",
    ];
    let mut arguments = vec!["-f", "raw"];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(&uri);
    let text = run("qemu-io", &arguments);
    assert!(
        !text.contains("failed") && !text.contains("error"),
        "{text}"
    );
    assert!(device.flushes() > 0);
    assert_eq!(device.bytes()[600], 0x22);
}

#[test]
fn fio_verifies_random_mixed_sizes_on_four_connections() {
    if !installed("fio") {
        return;
    }
    let engines = Command::new("fio").arg("--enghelp").output().unwrap();
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        println!("skipped: fio has no nbd engine");
        return;
    }
    let (device, _fixture, uri) = fixture(32 << 20);
    let uri = format!("--uri={uri}");
    let text = run(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=512-1M",
            "--bs_unaligned",
            // Two overlapping writes in flight have no order, here as on any device.
            "--serialize_overlap=1",
            "--iodepth=32",
            "--numjobs=4",
            "--size=8M",
            "--offset_increment=8M",
            "--randrepeat=0",
            "--fsync=5",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--group_reporting",
        ],
    );
    assert!(text.contains("err= 0"), "{text}");
    assert!(device.flushes() > 0);
}
