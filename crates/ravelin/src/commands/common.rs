//! What the commands share: how they find the daemon, print, ask and fail.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use block::{ByteSize, Full, Hint};
use control::api::{Kind, Problem, Span};
use control::{Client, ClientError};
use engine::drive::{DriveUri, ParseDriveUriError};
use engine::status::SeatStatus;
use serde::Serialize;
use serde_json::{Value, json};

use super::code::CodeCommandError;
use super::journal;
use super::layout::LayoutError;

/// Options of every command.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// One JSON document instead of text.
    pub(crate) json: bool,
    /// `--socket` or `$RAVELIN_SOCKET`.
    pub(crate) socket: Option<PathBuf>,
}

impl Context {
    /// Where the daemon listens.
    pub(crate) fn socket(&self) -> PathBuf {
        if let Some(socket) = &self.socket {
            return socket.clone();
        }
        let user = rustix::process::geteuid();
        if user.is_root() {
            return PathBuf::from("/run/ravelin/ravelin.sock");
        }
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) if !directory.is_empty() => {
                PathBuf::from(directory).join("ravelin.sock")
            }
            _ => PathBuf::from(format!("/tmp/ravelin-{}.sock", user.as_raw())),
        }
    }

    /// A client of the daemon.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.socket())
    }

    /// Prints a value as a JSON document, or what `text` writes.
    pub(crate) fn print(
        &self,
        kind: &str,
        value: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = stdout();
        if self.json {
            let fields = serde_json::to_value(value).map_err(io::Error::from)?;
            writeln!(out.inner, "{}", document(kind, fields))?;
        } else {
            text(&mut out)?;
        }
        Ok(out.flush()?)
    }

    /// Asks the user for the pool's name before data is lost.
    pub(crate) fn confirm(&self, pool: &str, lost: &[String], yes: bool) -> Result<(), Failure> {
        self.confirm_by("pool", pool, lost, yes)
    }

    /// Asks the user for the name of what will be lost: a `kind`, named `pool`.
    pub(crate) fn confirm_by(
        &self,
        kind: &str,
        pool: &str,
        lost: &[String],
        yes: bool,
    ) -> Result<(), Failure> {
        if yes {
            return Ok(());
        }
        let mut err = io::stderr().lock();
        for line in lost {
            writeln!(err, "{line}")?;
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::usage(
                "nothing was changed",
                "this loses data, and there is no terminal to ask on",
                "give --yes if it is meant",
            ));
        }
        write!(err, "Type the {kind}'s name to go on: ")?;
        err.flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if answer.trim() == pool {
            return Ok(());
        }
        Err(Failure::Refused {
            problem: Box::new(Problem {
                what: "nothing was changed".to_owned(),
                why: format!("`{}` is not the {kind}'s name", answer.trim()),
                hint: format!("type `{pool}`, or give --yes"),
                kind: Kind::Failed,
                span: None,
            }),
            usage: false,
        })
    }
}

/// True if output there may have colours.
pub(crate) fn colours(to: &impl IsTerminal) -> bool {
    let plain = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    to.is_terminal() && !plain && std::env::var_os("NO_COLOR").is_none()
}

/// Standard output for text. Where the locale has only ASCII, our own signs are written with it; letters of names stay
/// as they are.
pub(crate) fn stdout() -> Text {
    let inner = io::stdout().lock();
    let ascii = ascii();
    Text { inner, ascii }
}

/// See [`stdout`].
pub(crate) struct Text {
    inner: io::StdoutLock<'static>,
    ascii: bool,
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) if self.ascii && !text.is_ascii() => {
                self.inner.write_all(in_ascii(text).as_bytes())?;
                Ok(bytes.len())
            }
            _ => self.inner.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// True if the locale is named and has no UTF-8. Without a name, as in a service, texts are what they always are.
fn ascii() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"];
    let mut set = variables.into_iter().filter_map(std::env::var_os);
    let locale = set.find(|locale| !locale.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

/// A text of ours for this locale.
pub(crate) fn local(text: &str) -> Cow<'_, str> {
    match ascii() {
        true => in_ascii(text).into(),
        false => text.into(),
    }
}

fn in_ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for sign in text.chars() {
        let substitute = match sign {
            '×' => "x",
            '÷' => "/",
            '…' => "...",
            '–' | '−' | '─' => "-",
            '·' | '░' => ".",
            'µ' => "u",
            '±' => "+-",
            '∞' => "inf",
            '█' | '▉' | '▊' | '▋' | '▌' | '▍' | '▎' | '▏' => "#",
            '▒' | '▓' => ":",
            '│' => "|",
            '└' => "+",
            other => {
                plain.push(other);
                continue;
            }
        };
        plain.push_str(substitute);
    }
    plain
}

/// A JSON document of a kind.
pub(crate) fn document(kind: &str, fields: Value) -> Value {
    let mut document = json!({ "ravelin": env!("CARGO_PKG_VERSION"), "kind": kind });
    if let (Value::Object(all), Value::Object(fields)) = (&mut document, fields) {
        all.extend(fields);
    }
    document
}

/// Prints one JSON document. Its kind is the command as typed: `layout show`.
pub(crate) fn print_document(kind: &str, fields: Value) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", document(kind, fields))
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What, why and what to try.
    #[error("{problem}")]
    Refused {
        /// These three.
        problem: Box<Problem>,
        /// True if the command itself is wrong, whatever the state of the pools.
        usage: bool,
    },
    /// The request to the daemon failed.
    #[error("{0}")]
    Client(ClientError),
    /// The daemon cannot serve.
    #[error("{0}")]
    Serve(#[from] control::server::ServeError),
    /// The terminal or pipe is gone.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// What to try where output cannot be written.
pub(crate) const CHECK_OUTPUT: &str = "check where the output goes";

fn told(problem: &Problem) -> String {
    let mut text = problem.to_string();
    if let Some(span) = &problem.span {
        let pointed = pointed(&span.text, &(span.start..span.end));
        text = format!("{text}\n\n  {pointed}\n");
    }
    if !problem.hint.is_empty() {
        text = format!("{text}\n  try: {}", problem.hint);
    }
    text
}

/// The text with a line of carets below the part that `span` covers.
pub(crate) fn pointed(text: &str, span: &Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or("").chars().count();
    let width = text.get(span.clone()).unwrap_or("").chars().count().max(1);
    format!("{text}\n  {}{}", " ".repeat(before), "^".repeat(width))
}

impl Failure {
    /// The user's input is wrong.
    pub(crate) fn usage(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::refused(Kind::Usage, [what.into(), why.into(), hint.into()])
    }

    /// The command failed.
    pub(crate) fn failed(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::refused(Kind::Failed, [what.into(), why.into(), hint.into()])
    }

    fn refused(kind: Kind, [what, why, hint]: [String; 3]) -> Self {
        let usage = kind == Kind::Usage;
        let span = None;
        let problem = Problem {
            what,
            why,
            hint,
            kind,
            span,
        };
        Self::Refused {
            problem: Box::new(problem),
            usage,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            // Status 400 means that the request itself is wrong, whatever the state of the pools.
            ClientError::Refused { status, problem } => Self::Refused {
                problem,
                usage: status == 400,
            },
            error => Self::Client(error),
        }
    }
}

/// An error with an exit code.
pub(crate) trait Exit: Hint {
    /// 1 for failures, 2 for wrong usage.
    fn exit_code(&self) -> u8;

    /// What, why and what to try, for JSON.
    fn problem(&self) -> Problem {
        plain(self)
    }

    /// The same for people.
    fn message(&self) -> String {
        Full(self).to_string()
    }

    /// True if the only error is that the reader of the output is gone.
    fn is_unread(&self) -> bool {
        false
    }
}

impl Hint for Failure {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Refused { problem, .. } => problem.hint(),
            Self::Client(error) => error.hint(),
            Self::Serve(error) => error.hint(),
            Self::Output(_) => Some(CHECK_OUTPUT.into()),
        }
    }
}

impl Exit for Failure {
    fn is_unread(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { usage: true, .. } => 2,
            Self::Refused { .. } | Self::Client(_) | Self::Serve(_) | Self::Output(_) => 1,
        }
    }

    fn problem(&self) -> Problem {
        let (kind, what) = match self {
            Self::Refused { problem, .. } => return (**problem).clone(),
            Self::Client(ClientError::NoDaemon { .. }) => (Kind::NoDaemon, "the command failed"),
            Self::Serve(_) => (Kind::Failed, "the daemon did not start"),
            Self::Client(_) | Self::Output(_) => (Kind::Failed, "the command failed"),
        };
        Problem::of(kind, what, self)
    }

    fn message(&self) -> String {
        match self {
            Self::Refused { problem, .. } => told(problem),
            Self::Client(_) | Self::Serve(_) | Self::Output(_) => Full(self).to_string(),
        }
    }
}

impl Exit for LayoutError {
    fn is_unread(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    fn exit_code(&self) -> u8 {
        self.exit_code()
    }

    fn problem(&self) -> Problem {
        let what = "the layout cannot be shown";
        match self.place() {
            Some((text, part)) => bad_scheme(what, text, self, part),
            None => plain(self),
        }
    }

    fn message(&self) -> String {
        let line = Full(self).to_string();
        match self.place() {
            Some((text, part)) => format!("{line}\n\n  {}", pointed(text, &part)),
            None => line,
        }
    }
}

/// The problem of an error without further information.
fn plain(error: &(impl Exit + ?Sized)) -> Problem {
    let kind = match error.exit_code() {
        2 => Kind::Usage,
        _ => Kind::Failed,
    };
    Problem::of(kind, "the command failed", error)
}

/// The problem of a scheme error; `text` is the user's input.
pub(crate) fn bad_scheme(what: &str, text: &str, error: &impl Hint, part: Range<usize>) -> Problem {
    Problem {
        span: Some(Box::new(Span::new(text, part))),
        ..Problem::of(Kind::Usage, what, error)
    }
}

impl Exit for CodeCommandError {
    fn is_unread(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    fn exit_code(&self) -> u8 {
        self.exit_code()
    }
}

/// Parses an argument. The parser's hint belongs to the message.
pub(crate) fn parsed<T>(text: &str) -> Result<T, Full<T::Err>>
where
    T: FromStr,
    T::Err: Hint,
{
    text.parse().map_err(Full)
}

/// Prints the error of a command, if there is one, and returns the exit code.
pub(crate) fn end<E: Exit>(context: &Context, outcome: Result<impl Into<Ended>, E>) -> ExitCode {
    let error = match outcome {
        Ok(ended) => return ended.into().0.into(),
        Err(error) => error,
    };
    if error.is_unread() {
        // As with `| head`: the reader has closed the pipe.
        return ExitCode::SUCCESS;
    }
    let mut message = format!("ravelin: {}\n", local(&error.message()));
    if journal::has_stderr() {
        message = journal::lines(journal::ERROR, &message);
    }
    // If stderr is closed, the message is lost.
    let _ = io::stderr().write_all(message.as_bytes());
    if context.json {
        let fields = json!({ "error": error.problem() });
        let _ = writeln!(io::stdout(), "{}", document("error", fields));
    }
    error.exit_code().into()
}

/// The exit code of a command that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended(pub(crate) u8);

impl From<()> for Ended {
    fn from((): ()) -> Self {
        Self(0)
    }
}

/// `POOL/VOLUME` on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeName {
    pub(crate) pool: String,
    pub(crate) volume: String,
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((pool, volume)) if !pool.is_empty() && !volume.is_empty() => Ok(Self {
                pool: pool.to_owned(),
                volume: volume.to_owned(),
            }),
            _ => Err("write POOL/VOLUME, such as tank/data".to_owned()),
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

/// A drive's absolute name: the daemon runs in another directory.
pub(crate) fn absolute(drive: &str) -> String {
    // A name that cannot be parsed is passed on unchanged: the daemon reports what is wrong with it.
    match DriveUri::typed(drive) {
        Ok(uri) => uri.absolute().to_string(),
        Err(ParseDriveUriError::Ambiguous { .. }) => {
            let path = std::path::absolute(drive).map(|path| path.display().to_string());
            path.unwrap_or_else(|_| drive.to_owned())
        }
        Err(_) => drive.to_owned(),
    }
}

/// The state of a seat's drive, in an administrator's words.
pub(crate) fn seat_state(seat: &SeatStatus) -> &str {
    match (seat.joins, seat.leaves) {
        (true, _) => "joining",
        (_, true) if seat.state != "out" => "leaving",
        _ => drive_state(&seat.state),
    }
}

/// A drive's state, in an administrator's words.
pub(crate) fn drive_state(state: &str) -> &str {
    match state {
        "current" => "online",
        "filling" => "rebuilding",
        "waiting" => "spare",
        other => other,
    }
}

/// What moves between drives when some join or leave, and how long that takes.
pub(crate) struct Moves<'a> {
    pub(crate) pieces: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: u64,
    pub(crate) bound: &'a str,
    pub(crate) drive_bytes_per_second: u64,
    pub(crate) capacity_bytes_before: u64,
    pub(crate) capacity_bytes: u64,
}

impl Moves<'_> {
    /// Three lines; two if nothing moves.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let pieces = usize::try_from(self.pieces).unwrap_or(usize::MAX);
        let pieces = count(pieces, "a piece", "pieces");
        writeln!(out, "  moves:    {} in {pieces}", size(self.bytes))?;
        if self.pieces > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a time for display")]
            let (time, bound) = (time(self.seconds as f64), self.bound);
            let rate = self.drive_bytes_per_second / 1_000_000;
            writeln!(
                out,
                "  takes:    about {time}, bound by {bound} ({rate} MB/s for each drive)"
            )?;
        }
        let [before, after] = [self.capacity_bytes_before, self.capacity_bytes].map(size);
        writeln!(out, "  capacity: {after} afterwards, {before} before")
    }
}

/// `a drive`, `3 drives`.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    match number {
        1 => one.to_owned(),
        _ => format!("{number} {many}"),
    }
}

/// Bytes for people. Exact sizes print exactly; others to three digits of the largest unit that fits.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

/// Seconds for people: `0.3 s`, `18 s`, `3 min 20 s`, `2 h 5 min`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "durations for display"
)]
pub(crate) fn time(seconds: f64) -> String {
    if (0.0..9.95).contains(&seconds) {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// `2026-08-01 12:34:56Z`. Days to dates by the era of 400 years that begins in March
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
pub(crate) fn utc(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_print_as_the_calendar_has_them() {
        // From `date -u -d @N`.
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_735_689_599, "2024-12-31 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn sizes_print_exactly_or_to_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (4096, "4 KiB"),
            (1 << 30, "1 GiB"),
            ((3 << 30) + (1 << 29), "3.50 GiB"),
            ((1 << 30) - 1, "1024.0 MiB"),
            ((100 << 20) | 1, "100.0 MiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_volume_needs_its_pool() {
        for text in ["", "tank", "tank/", "/data"] {
            assert!(text.parse::<VolumeName>().is_err(), "{text}");
        }
        let name: VolumeName = "tank/data".parse().unwrap();
        assert_eq!((&*name.pool, &*name.volume), ("tank", "data"));
    }
}
