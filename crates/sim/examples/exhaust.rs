//! Runs an enumeration and prints its result: `exhaust cuts|reported|silent|phases ONE_IN [AGAIN_ONE_IN [WORKLOAD]]`.
//!
//! One case in `ONE_IN` is run; of the cuts within the recoveries of these cases, one in `AGAIN_ONE_IN`. `WORKLOAD` is
//! the beginning of a name.

use sim::enumerate::{Share, Tally, cuts, phases, reported, silent, workloads};
use sim::schedule::Runner;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let one_in = args[2].parse().expect("a number");
    let again_one_in = args
        .get(3)
        .map_or(1, |word| word.parse().expect("a number"));
    let only = args.get(4).map_or("", String::as_str);
    let share = Share {
        again_one_in,
        ..Share::one_in(one_in)
    };
    sim::quiet_panics();
    let mut runner = Runner::new();
    let mut all = Tally::default();
    for workload in workloads() {
        if !workload.name.starts_with(only) {
            continue;
        }
        let tally = match args[1].as_str() {
            "cuts" => cuts(&mut runner, &workload, share),
            "reported" => reported(&mut runner, &workload, share),
            "phases" => phases(&mut runner, &workload, share),
            _ => silent(&mut runner, &workload, share),
        };
        eprintln!("{}: {tally}", workload.name);
        for line in tally.violations.iter().take(12) {
            eprintln!("    {line}");
        }
        all.add(tally);
    }
    eprintln!("{all}");
}
