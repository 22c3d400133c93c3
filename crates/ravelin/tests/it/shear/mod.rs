//! `ravelin shear` in real time (`make shear`): volumes whose layout is known, on drives that take 2 ms a request.
//!
//! | module | what |
//! | --- | --- |
//! | `ours` | Ravelin's own volumes, by NBD and as loop devices; by reads and by writes |
//! | `safety` | no byte changes, also when the run is killed while it writes; opened read-only without `--writes` |
//! | `btrfs` | a file on btrfs over four drives |
//! | `md` | Linux md in an emulated guest, on null_blk drives |
//! | `answer` | the verdict on an answer: right, cannot tell, or wrong |
//! | `volume` | a filled volume and its exports |
//!
//! A wrong answer fails its test at once. After "cannot tell", which a busy host can cause, the test runs again with
//! other random choices, three times in all. The tests are ignored by default, because the times are the host's. Drives
//! sleep: four tests at once do not disturb each other on two processors. Missing tools are reported as skipped.

mod answer;
mod btrfs;
mod md;
mod ours;
mod safety;
mod volume;
