//! Messages to systemd's journal: each line begins with its priority, as sd-daemon(3) describes, and has no time of its
//! own, because the journal has one.

use std::fmt::{self, Write};
use std::os::fd::AsFd;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The priority of errors.
pub(crate) const ERROR: u8 = 3;

/// Whether stderr goes straight to the journal. systemd sets `JOURNAL_STREAM` for a service, and all its children have
/// it: only the device and inode show that stderr was not redirected since (systemd.exec(5)).
pub(crate) fn has_stderr() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Ok(stat) = rustix::fs::fstat(std::io::stderr().as_fd()) else {
        return false;
    };
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// A text with its priority before each of its lines: each line is an entry of its own.
pub(crate) fn lines(priority: u8, text: &str) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        // A String takes all that is written.
        let _ = writeln!(lines, "<{priority}>{line}");
    }
    lines
}

/// Formats events of the log for the journal.
pub(crate) struct Priorities;

impl<S, N> FormatEvent<S, N> for Priorities
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writer.write_str(&lines(priority(*event.metadata().level()), &text))
    }
}

const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_priority() {
        assert_eq!(lines(4, "one\n  two"), "<4>one\n<4>  two\n");
    }
}
