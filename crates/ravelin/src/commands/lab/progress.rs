//! Progress of studies, on stderr: a bar each on a terminal, else a line every ten seconds.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use lab::{Monitor, Progress, State};

use crate::commands::common::time;

/// How often bars move.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often a line is printed where there are no bars.
const LINE: Duration = Duration::from_secs(10);

/// Runs `work` and shows the progress of the studies meanwhile.
pub(super) fn watch<R>(monitor: &Monitor, work: impl FnOnce() -> R) -> R {
    let (ended, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut show = Show::new();
            while end.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                show.update(monitor);
            }
            show.end();
        });
        let result = work();
        drop(ended);
        result
    })
}

struct Show {
    bars: Option<MultiProgress>,
    running: BTreeMap<&'static str, (Instant, Option<ProgressBar>)>,
    last_line: Instant,
}

impl Show {
    fn new() -> Self {
        Self {
            bars: io::stderr().is_terminal().then(MultiProgress::new),
            running: BTreeMap::new(),
            last_line: Instant::now(),
        }
    }

    fn update(&mut self, monitor: &Monitor) {
        let line = self.last_line.elapsed() >= LINE;
        for (study, progress) in monitor.studies() {
            if progress.state() != State::Running {
                if let Some((_, Some(bar))) = self.running.remove(study) {
                    bar.finish_and_clear();
                }
                continue;
            }
            let bars = &self.bars;
            let (began, bar) = self
                .running
                .entry(study)
                .or_insert_with(|| (Instant::now(), bars.as_ref().map(|bars| bar(bars, study))));
            let (done, planned) = progress.steps();
            let text = state(progress, began.elapsed());
            if let Some(bar) = bar {
                bar.set_length(planned);
                bar.set_position(done);
                bar.set_message(text);
            } else if line {
                // If stderr is closed, the line is lost.
                let _ = writeln!(io::stderr(), "{study}: {done} of {planned}, {text}");
            }
        }
        if line {
            self.last_line = Instant::now();
        }
    }

    fn end(&self) {
        for (_, bar) in self.running.values() {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        }
    }
}

fn bar(bars: &MultiProgress, study: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:16} [{wide_bar}] {pos}/{len}  {msg}")
        .expect("the template is right")
        .progress_chars("##.");
    bars.add(ProgressBar::new(0).with_style(style).with_prefix(study))
}

/// Virtual time and its rate if a study simulates, and the expected end.
fn state(progress: &Progress, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let mut parts = Vec::new();
    #[expect(clippy::cast_precision_loss, reason = "times for people")]
    let virtual_seconds = progress.virtual_nanoseconds() as f64 / 1e9;
    if virtual_seconds > 0.0 {
        parts.push(format!("{} simulated", time(virtual_seconds)));
        parts.push(format!("{:.0} times real time", virtual_seconds / seconds));
    }
    let (done, planned) = progress.steps();
    if done > 0 && planned > done {
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let left = seconds * (planned - done) as f64 / done as f64;
        parts.push(format!("{} to go", time(left)));
    } else {
        parts.push(format!("{} so far", time(seconds)));
    }
    parts.join(", ")
}
