//! The program's tests from outside, one program. Two others need processes of their own: `e2e` leaves block devices
//! dead for a while, which stops tools of other tests that look at all devices; `service` measures what an idle daemon
//! costs, so no other test may keep the processors busy meanwhile.

#![expect(clippy::print_stdout, reason = "tests say what they skip and found")]

mod admin;
mod cli;
mod crashes;
mod docs;
mod glitch;
mod guest;
mod help;
mod identity;
mod lab;
mod restarts;
mod shear;
mod sim_run;
mod support;
mod tidy;
