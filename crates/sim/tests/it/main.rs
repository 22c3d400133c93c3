//! The crate's tests from outside, one program.

/// As the program: histories allocate much, and a fifth of their time went there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod backoff;
mod closed_forms;
mod direct;
mod discards;
mod drive_return;
mod drive_return_during_rebuild;
mod elastic;
mod failures;
mod format1;
mod full;
mod glitch;
mod glitch_moments;
mod groups_again;
mod growing;
mod hangs;
mod held_reads;
mod interleaved;
mod joined;
mod journal;
mod losses;
mod moves;
mod neighbours;
mod opening;
mod page_reads;
mod preserved;
mod recovering;
mod regressions;
mod removing;
mod replacing;
mod resizing;
mod schedules;
mod scrub;
#[cfg(debug_assertions)]
mod seeded;
mod setback;
mod steering;
mod study;
mod support;
mod takeover;
mod together;
