//! The plan before a pool is created: failures survived, domains, rebuild time, and the use of space.

use super::MIB;
use crate::support::bench::Bench;

fn by_domain(drives: &[String], domains: &[&str]) -> Vec<String> {
    let named = drives.iter().zip(domains);
    named
        .map(|(drive, domain)| format!("{drive}@{domain}"))
        .collect()
}

/// Regression: `raid10` on two drives of enclosure A and two of B put both copies of every block into one enclosure.
#[test]
fn copies_are_put_into_different_domains() {
    let bench = Bench::new("domains");
    let drives = bench.drives("d", 4, 40 * MIB);
    let named = by_domain(&drives, &["a", "a", "b", "b"]);
    let made = bench.create("tank", "raid10", &named, &["--json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(made["plan"]["survives_domains"], 1);
    assert_eq!(made["plan"]["domains"], serde_json::json!(["a", "b"]));
    let status = bench.json(&["pool", "status", "tank"]);
    let seats = status["seats"].as_array().unwrap();
    let domains: Vec<&str> = { seats.iter() }
        .map(|seat| seat["domain"].as_str().unwrap())
        .collect();
    assert_eq!(domains, ["a", "b", "a", "b"]);

    // Both drives of one enclosure fail, and all data can be read.
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    let mut client = export::nbd::Client::connect(&uri.parse().unwrap(), None).unwrap();
    let pattern: Vec<u8> = (1..=239).cycle().take(8 << 20).collect();
    client.write(0, &pattern, false).unwrap();
    client.flush().unwrap();
    bench.ok(&["drive", "fail", "tank", "d0"]);
    bench.ok(&["drive", "fail", "tank", "d1"]);
    assert_eq!(client.read(0, pattern.len()).unwrap(), pattern);
    client.disconnect().unwrap();
}

#[test]
fn a_plan_says_how_many_domains_may_fail_and_where_drives_sit() {
    let bench = Bench::new("plan-domains");
    let drives = bench.drives("d", 12, 40 * MIB);
    let plan = |scheme: &str, domains: &[&str]| {
        let named = by_domain(&drives[..domains.len()], domains);
        let ran = bench.create("tank", scheme, &named, &["-n"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let text = plan("raid10", &["a", "a", "b", "b"]);
    assert!(
        text.contains("any one drive; any one of 2 domains (a, b)"),
        "{text}"
    );
    assert!(text.contains("dealt to the domains in turn"), "{text}");
    let text = plan("raid6", &["a", "a", "a", "b", "b", "b"]);
    assert!(
        text.contains("any 2 drives; none of 2 domains as a whole (a, b)"),
        "{text}"
    );
    assert!(!text.contains("dealt"), "{text}");
    let six = ["a", "a", "b", "b", "c", "c", "d", "d", "e", "e", "f", "f"];
    let text = plan("raid6:4d", &six);
    assert!(text.contains("any 2 of 6 domains"), "{text}");
    let mut some = by_domain(&drives[..3], &["a", "b", "c"]);
    some.push(drives[3].clone());
    bench
        .create("tank", "raid10", &some, &["-n"])
        .refused(2, &["d3 has no failure domain and others have"]);
}

/// Regression: one drive of 64 MiB among larger ones wasted nearly all of their space without a message.
#[test]
fn what_larger_drives_waste_is_said() {
    let bench = Bench::new("waste");
    let mut drives = bench.drives("d", 3, 1 << 30);
    drives.extend(bench.drives("small", 1, 64 * MIB));
    let plan = bench.create("tank", "raid5", &drives, &["-n"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    let text = plan.stdout;
    for part in [
        "survives: any one drive",
        "rebuild:  about",
        "bound by writing one drive at 150 MB/s",
        "warning:  2.81 GiB of 3.06 GiB are not used",
        "small0 (64 MiB)",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let plan = bench.create("tank", "raid5", &drives[..3], &["-n", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    let plan = &plan["plan"];
    assert_eq!(plan["wasted_bytes"], 0);
    let bytes = |name: &str| plan[name].as_u64().unwrap();
    let parts = ["usable", "parity", "spare", "metadata", "wasted"];
    let sum: u64 = parts
        .iter()
        .map(|part| bytes(&format!("{part}_bytes")))
        .sum();
    assert_eq!(sum, bytes("raw_bytes"), "{plan}");
    assert_eq!(plan["small_write_operations"], 3);
}

#[test]
fn advice_compares_schemes_and_its_commands_work() {
    let bench = Bench::new("advise");
    let drives = bench.drives("d", 24, 64 * MIB);
    for count in [3, 4, 6, 12, 24] {
        let names: Vec<&str> = drives[..count].iter().map(String::as_str).collect();
        let advice = bench.run(&[&["advise"], &names[..], &["--json"]].concat());
        assert_eq!(advice.code, 0, "{}", advice.stderr);
        let advice: serde_json::Value = serde_json::from_str(&advice.stdout).unwrap();
        let plans = advice["plans"].as_array().unwrap();
        assert_eq!(plans.len(), 3, "{count}");
        for plan in plans {
            let scheme = plan["scheme"].as_str().unwrap();
            assert!(plan["survives_drives"].as_u64().unwrap() > 0, "{scheme}");
            let made = bench.create("tank", scheme, &drives[..count], &["-n", "--json"]);
            assert_eq!(made.code, 0, "{scheme}: {}", made.stderr);
            let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
            assert_eq!(made["capacity_bytes"], plan["usable_bytes"], "{scheme}");
        }
    }
    let text = bench.ok(&["advise", "d0", "d1", "d2", "d3"]);
    for part in ["SCHEME", "raid6", "raid10", "raid5", "any 2 drives"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert!(
        text.contains("ravelin pool create NAME raid6 d0 d1 d2 d3"),
        "{text}"
    );
    bench.run(&["advise", "d0"]).refused(2, &["no redundancy"]);
    bench.run(&["advise", "d0", "d99"]).refused(1, &["d99"]);
}

/// Regression: documents recommended `ddp` for drives of different sizes. Every drive counts as the smallest one there,
/// too, and without the small drives the pool is larger.
#[test]
fn advice_names_small_drives_without_which_there_is_more_room() {
    let bench = Bench::new("small-ones");
    let mut drives = bench.drives("d", 4, 1 << 30);
    drives.extend(bench.drives("small", 2, 128 * MIB));
    let names: Vec<&str> = drives.iter().map(String::as_str).collect();
    let advise = |names: &[&str], more: &[&str]| {
        let ran = bench.run(&[&["advise"], names, more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let text = advise(&names, &[]);
    for part in [
        "Leave the 2 smallest ones out (small0, small1).",
        "all 6: 6 × 128 MiB, `raid6` has ",
        "without: 4 × 1 GiB, `raid6` has ",
        "ravelin pool create NAME raid6 d0 d1 d2 d3\n",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let advice: serde_json::Value = serde_json::from_str(&advise(&names, &["--json"])).unwrap();
    let fewer = &advice["fewer_drives"];
    assert_eq!(fewer["leave_out"], serde_json::json!(["small0", "small1"]));
    let usable = |plan: &serde_json::Value| plan["usable_bytes"].as_u64().unwrap();
    assert!(usable(fewer) > 3 * usable(&advice["plans"][0]), "{advice}");
    // What is promised is what the pool gets.
    let made = bench.create("tank", "raid6", &drives[..4], &["-n", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(made["capacity_bytes"], fewer["usable_bytes"]);

    // Four of one size have nothing to leave out, and one of 900 MiB is worth more than it costs.
    bench.drives("nearly", 1, 900 * MIB);
    for names in [
        &["d0", "d1", "d2", "d3"][..],
        &["d0", "d1", "d2", "nearly0"],
    ] {
        let text = advise(names, &[]);
        assert!(!text.contains("Leave"), "{text}");
    }
    let page = include_str!("../../../../../docs/choosing.md");
    assert!(!page.contains("or drives of different sizes"));
}

#[test]
fn status_says_how_many_drives_may_fail_now() {
    let bench = Bench::new("protect");
    let mut drives = bench.drives("d", 6, 40 * MIB);
    drives.extend(bench.drives("large", 1, 80 * MIB));
    let made = bench.create("tank", "raid6", &drives[..5], &["spare", "d5"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(
        text.contains("protect: any 2 drives may fail; a spare is ready"),
        "{text}"
    );
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    bench.ok(&["drive", "offline", "tank", "1"]);
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(
        text.contains("protect: any one drive may fail; a spare"),
        "{text}"
    );
    bench.ok(&["drive", "offline", "tank", "2"]);
    assert_eq!(
        bench.json(&["pool", "status", "tank"])["survives_drives"],
        0
    );
    bench.ok(&["drive", "online", "tank", "1"]);
    bench.ok(&["drive", "online", "tank", "2"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(
        bench.json(&["pool", "status", "tank"])["survives_drives"],
        2
    );
    bench.ok(&["drive", "replace", "tank", "0", "large0"]);
    bench.ok(&["pool", "wait", "tank"]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["wasted_bytes"], 40 * MIB);
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains(" unused: 40 MiB of 280 MiB"), "{text}");
}
