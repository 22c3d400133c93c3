//! Volumes as block devices: the file that the daemon chooses, logical blocks of 4 KiB, sizes that clients prefer.

use std::path::Path;

use export::nbd::Client;

use super::MIB;
use crate::support::bench::Bench;

fn with_volume(test: &str) -> Bench {
    let bench = Bench::new(test);
    let drives = bench.drives("d", 5, 200 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "64M"]);
    bench
}

/// A volume's loop device, attached with these options. None where that is not possible.
fn attached(bench: &Bench, options: &[&str]) -> Option<String> {
    let words = ["volume", "attach", "tank/v", "--loop", "--json"];
    let served = bench.run(&[&words[..], options].concat());
    if served.code != 0 {
        assert!(
            served.stderr.contains("loop device") || served.stderr.contains("/dev/fuse"),
            "{}",
            served.stderr
        );
        eprintln!("skipped: it needs root, FUSE and loop devices");
        return None;
    }
    let served: serde_json::Value = serde_json::from_str(&served.stdout).unwrap();
    Some(served["device"].as_str().unwrap().to_owned())
}

fn queue(device: &str, setting: &str) -> String {
    let name = Path::new(device).file_name().unwrap().to_str().unwrap();
    let file = format!("/sys/block/{name}/queue/{setting}");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

#[test]
fn a_loop_device_needs_no_file_of_the_users() {
    let mut bench = with_volume("own-file");
    if attached(&bench, &[]).is_none() {
        return;
    }
    let export = |bench: &Bench| {
        let shown = bench.json(&["volume", "show", "tank/v"]);
        let exports = shown["exports"].as_array().unwrap().clone();
        assert_eq!(exports.len(), 1, "{exports:?}");
        exports[0].clone()
    };
    let file = bench.path("socket.volumes/tank/v");
    let at = export(&bench);
    assert_eq!(at["uri"], file.to_str().unwrap());
    assert!(file.exists());
    // The same request after a restart finds what the restart has attached; also after a crash.
    bench.terminate();
    assert!(!bench.path("socket.volumes").exists());
    bench.start();
    assert_eq!(export(&bench)["uri"], at["uri"]);
    bench.kill();
    bench.start();
    assert_eq!(export(&bench)["uri"], at["uri"]);
    assert!(attached(&bench, &[]).is_some());
    bench.ok(&["volume", "detach", "tank/v"]);
    assert!(!bench.path("socket.volumes").exists());
}

#[test]
fn a_way_to_attach_is_needed_and_one_is_enough() {
    let bench = with_volume("ways");
    let attach = |options: &[&str]| bench.run(&[&["volume", "attach", "tank/v"], options].concat());
    attach(&[]).refused(2, &["--nbd", "--fuse", "--loop"]);
    attach(&["--nbd", "unix:s", "--loop"]).refused(2, &["--loop"]);
    attach(&["--nbd", "unix:s", "--fuse", "f"]).refused(2, &["--fuse"]);
    attach(&["--fuse", "f", "--block-size", "4096"]).refused(2, &["--block-size", "--loop"]);
    attach(&["--nbd", "unix:s", "--block-size", "1000"]).refused(2, &["512 or 4096"]);
}

#[test]
fn a_loop_device_has_logical_blocks_of_4_kib_where_asked() {
    let bench = with_volume("loop-blocks");
    let Some(device) = attached(&bench, &["--block-size", "4096"]) else {
        return;
    };
    assert_eq!(queue(&device, "logical_block_size"), "4096");
    let shown = bench.json(&["volume", "show", "tank/v"]);
    assert_eq!(shown["exports"][0]["block_bytes"], 4096);
    let lines = shown["mkfs"].to_string();
    assert!(lines.contains(&format!(" {device}")), "{lines}");
    bench.ok(&["volume", "detach", "tank/v"]);
    let device = attached(&bench, &[]).unwrap();
    assert_eq!(queue(&device, "logical_block_size"), "512");
    let shown = bench.json(&["volume", "show", "tank/v"]);
    assert_eq!(shown["exports"][0]["block_bytes"], 512);
    bench.ok(&["volume", "detach", "tank/v"]);
}

#[test]
fn nbd_clients_learn_the_blocks_and_the_full_stripe() {
    let bench = with_volume("nbd-blocks");
    let attach = |options: &[&str]| {
        let words = ["volume", "attach", "tank/v", "--nbd", "unix:v.sock"];
        bench.json(&[&words[..], options].concat())
    };
    let connect = |export: &serde_json::Value| {
        Client::connect(&export["uri"].as_str().unwrap().parse().unwrap(), None).unwrap()
    };
    let stripe = bench.json(&["volume", "show", "tank/v"])["stripe_bytes"].clone();
    let export = attach(&["--block-size", "4096"]);
    let mut client = connect(&export);
    let (minimum, preferred, _) = client.info().block_sizes;
    assert_eq!(minimum, 4096);
    // Four chunks: a power of two.
    assert_eq!(serde_json::json!(preferred), stripe);
    assert!(client.write(512, &[1; 512], false).is_err());
    client.write(4096, &[1; 4096], false).unwrap();
    client.disconnect().unwrap();
    bench.ok(&["volume", "detach", "tank/v"]);
    let mut client = connect(&attach(&[]));
    assert_eq!(client.info().block_sizes.0, 1);
    client.write(512, &[1; 512], false).unwrap();
    client.disconnect().unwrap();
}
