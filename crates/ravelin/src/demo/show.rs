//! What the demo prints. With `--json` all of this goes to stderr.

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::bench::Bench;
use super::{DATA, DECLUSTERED, DRIVES, DemoError, Document, RAID6, Rebuild, TICK};
use crate::commands::common::{colours, local, stdout};

/// Where the demo's lines go.
pub(super) struct Show {
    json: bool,
    colour: bool,
}

impl Show {
    pub(super) fn new(json: bool) -> Self {
        let colour = if json {
            colours(&io::stderr())
        } else {
            colours(&io::stdout())
        };
        Self { json, colour }
    }

    fn line(&self, text: &str) {
        // A closed pipe does not stop the demo.
        if self.json {
            writeln!(io::stderr(), "{text}").unwrap_or_default();
        } else {
            writeln!(stdout(), "{text}").unwrap_or_default();
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(super) fn title(&self, text: &str) {
        self.line("");
        self.line(&self.paint("1", text));
    }

    pub(super) fn step(&self, text: &str) {
        self.line(&format!("  {text}"));
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for display")]
    pub(super) fn timed(&self, text: &str, bytes: u64, seconds: f64) {
        let rate = bytes as f64 / seconds / 1e6;
        self.step(&format!("{text}: {seconds:.1} s, {rate:.0} MB/s"));
    }

    pub(super) fn verified(&self, when: &str, bytes: u64, seconds: f64, right: bool) {
        let verdict = if right {
            self.paint("32", "every byte is right")
        } else {
            self.paint("1;31", "BYTES ARE WRONG")
        };
        self.timed(&format!("{when}: {verdict}"), bytes, seconds);
    }

    /// Shows the rebuild until it ends; a bar for each drive. Returns its seconds.
    pub(super) fn rebuild(&self, bench: &Bench) -> Result<f64, DemoError> {
        let bars = MultiProgress::new();
        if !io::stderr().is_terminal() {
            bars.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = |template: &str| {
            ProgressStyle::with_template(template)
                .expect("a template of ours")
                .progress_chars(&local("█▉▊▋▌▍▎▏ "))
        };
        let total = bars.add(ProgressBar::new(0));
        total.set_style(style(
            "  rebuild   {bar:40} {percent:>3}%  {bytes}/{total_bytes}  {msg}",
        ));
        let drives: Vec<ProgressBar> = (0..DRIVES)
            .map(|drive| {
                let bar = bars.add(ProgressBar::new(0));
                bar.set_style(style("  drive {prefix:>2}  {bar:40.cyan}  {msg}"));
                bar.set_prefix(drive.to_string());
                bar
            })
            .collect();
        loop {
            let status = bench.status()?;
            if let Some(rebuild) = status.rebuild {
                total.set_length(rebuild.total_bytes);
                total.set_position(rebuild.done_bytes);
                total.set_message(format!(
                    "{:.0} MB/s  {}",
                    rebuild.bytes_per_second / 1e6,
                    rebuild
                        .eta_seconds
                        .map_or(String::new(), |eta| format!("{eta:.0} s left"))
                ));
                for (bar, seat) in drives.iter().zip(&status.seats) {
                    bar.set_length(rebuild.total_bytes);
                    bar.set_position(seat.rebuild_read_bytes + seat.rebuild_write_bytes);
                    bar.set_message(format!(
                        "{:>4} MiB read  {:>4} MiB written",
                        seat.rebuild_read_bytes >> 20,
                        seat.rebuild_write_bytes >> 20
                    ));
                }
                if !rebuild.running {
                    bars.clear().unwrap_or_default();
                    self.rebuilt(&status, rebuild.seconds);
                    return Ok(rebuild.seconds);
                }
            }
            std::thread::sleep(TICK);
        }
    }

    /// Shows how many bytes each drive moved, after the rebuild.
    fn rebuilt(&self, status: &engine::status::PoolStatus, seconds: f64) {
        let moved =
            |seat: &engine::status::SeatStatus| seat.rebuild_read_bytes + seat.rebuild_write_bytes;
        let scale = status
            .rebuild
            .map_or(1, |rebuild| rebuild.total_bytes.max(1));
        for seat in &status.seats {
            let width = usize::try_from(moved(seat) * 40 / scale)
                .unwrap_or(40)
                .min(40);
            let bar = format!("{}{}", "█".repeat(width), "·".repeat(40 - width));
            let what = if seat.state == "out" {
                "pulled".to_owned()
            } else {
                format!(
                    "{:>4} MiB read  {:>4} MiB written",
                    seat.rebuild_read_bytes >> 20,
                    seat.rebuild_write_bytes >> 20
                )
            };
            self.line(&format!("    drive {:>2} {bar} {what}", seat.seat));
        }
        let taking_part = status.seats.iter().filter(|seat| moved(seat) > 0).count();
        self.step(&self.paint(
            "1",
            &format!("rebuilt in {seconds:.1} s, {taking_part} drives taking part"),
        ));
    }

    pub(super) fn summary(&self, rebuild: &Rebuild, verified: bool) {
        self.title("Side by side");
        let longest = rebuild.raid6_seconds.max(rebuild.declustered_seconds);
        for (scheme, seconds) in [
            (DECLUSTERED, rebuild.declustered_seconds),
            (RAID6, rebuild.raid6_seconds),
        ] {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a bar of at most 40 characters"
            )]
            let width = (seconds / longest * 40.0).round() as usize;
            self.step(&format!(
                "{scheme:<18} {:<40} {seconds:.1} s",
                "█".repeat(width)
            ));
        }
        self.step(&format!(
            "{:.2} times as fast; {:.2} is the bound for {DRIVES} drives when {DATA} columns are read for each that is written",
            rebuild.ratio, rebuild.bound
        ));
        let verdict = if verified {
            self.paint("32", "verified")
        } else {
            self.paint("1;31", "NOT verified")
        };
        self.step(&format!("every byte {verdict} at every step, on both"));
    }

    pub(super) fn real_drives(&self) {
        self.title("On real drives");
        for line in [
            "ravelin daemon &",
            "ravelin pool create tank pddl2:4d:13c:1s /dev/sd[b-n]",
            "ravelin volume create tank/data --size 10T",
            "ravelin volume attach tank/data --nbd unix:/run/ravelin/data.sock",
            "nbd-client -unix /run/ravelin/data.sock -N tank/data /dev/nbd0",
            "mkfs.ext4 /dev/nbd0 && mount /dev/nbd0 /mnt",
            "ravelin pool status tank",
        ] {
            self.step(line);
        }
        self.line("");
    }

    pub(super) fn document(&self, document: &Document) {
        debug_assert!(self.json, "only asked for with --json");
        let text = serde_json::to_string_pretty(document).expect("plain numbers and strings");
        writeln!(io::stdout(), "{text}").unwrap_or_default();
    }
}
