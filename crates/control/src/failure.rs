//! Maps the engine's errors to responses: a status, and what, why, and one thing to try.

use std::ops::Range;
use std::path::PathBuf;

use array::pool::{CreateError, OpenError, PoolError};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use block::{Hint, closest};
use engine::StartError;
use engine::assemble::AssembleError;
use engine::drive::OpenDriveError;

use crate::api::{ErrorBody, Kind, Problem, Span};

/// The failure kind that corresponds to an HTTP status, for programs that do not see the status.
fn kind(status: StatusCode) -> Kind {
    match status {
        StatusCode::NOT_FOUND => Kind::NotFound,
        StatusCode::CONFLICT => Kind::Conflict,
        status if status.is_client_error() => Kind::Usage,
        _ => Kind::Failed,
    }
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// HTTP's status.
    pub status: StatusCode,
    /// The body of the response.
    pub problem: Problem,
}

impl Failure {
    /// `why` and `hint` are parts of a sentence without its full stop.
    pub fn new(
        status: StatusCode,
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            status,
            problem: Problem {
                what: what.into(),
                why: why.into(),
                hint: hint.into(),
                kind: kind(status),
                span: None,
            },
        }
    }

    /// The request itself is wrong.
    pub fn request(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(StatusCode::BAD_REQUEST, what, why, hint)
    }

    /// An object that the request names does not exist.
    pub fn missing(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(StatusCode::NOT_FOUND, what, why, hint)
    }

    /// The current state does not permit the operation.
    pub fn conflict(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(StatusCode::CONFLICT, what, why, hint)
    }

    /// `why` and `hint` are taken from `error`.
    pub(crate) fn of(status: StatusCode, what: impl Into<String>, error: &impl Hint) -> Self {
        Self {
            status,
            problem: Problem::of(kind(status), what, error),
        }
    }

    /// One part of the request's scheme is wrong.
    pub(crate) fn scheme(what: &str, error: &impl Hint, scheme: &str, part: Range<usize>) -> Self {
        let mut failure = Self::of(StatusCode::BAD_REQUEST, what, error);
        failure.problem.span = Some(Box::new(Span::new(scheme, part)));
        failure
    }

    /// A pool could not be assembled. `scheme` is the scheme as the request spelled it.
    #[must_use]
    pub fn assemble(what: &str, error: &AssembleError, scheme: &str) -> Self {
        let status = match error {
            AssembleError::Drive(error) => return Self::drive(what, error),
            AssembleError::Create(error) => return Self::create(what, error, scheme),
            AssembleError::Open(error) => return Self::open(what, error),
            AssembleError::Start(StartError::Pool(error)) => return Self::pool(what, error),
            AssembleError::NoDomain { .. }
            | AssembleError::Twice { .. }
            | AssembleError::TakesNoVolumes { .. }
            | AssembleError::Circle { .. }
            | AssembleError::SlotTwice { .. } => StatusCode::BAD_REQUEST,
            AssembleError::NotFound { .. } => StatusCode::NOT_FOUND,
            AssembleError::Occupied { .. }
            | AssembleError::SameDevice { .. }
            | AssembleError::InUseHere { .. }
            | AssembleError::NoLabelLeft { .. }
            | AssembleError::Listed { .. }
            | AssembleError::NoAnswer { .. }
            | AssembleError::Label { .. }
            | AssembleError::Held { .. }
            | AssembleError::Ambiguous { .. } => StatusCode::CONFLICT,
            AssembleError::Io { .. } | AssembleError::Labels { .. } | AssembleError::Start(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::of(status, what, error)
    }

    /// A drive could not be opened.
    #[must_use]
    pub fn drive(what: &str, error: &OpenDriveError) -> Self {
        let status = match error {
            OpenDriveError::NotFound { .. } | OpenDriveError::NoVolume { .. } => {
                StatusCode::NOT_FOUND
            }
            OpenDriveError::Denied { .. }
            | OpenDriveError::Attached { .. }
            | OpenDriveError::InUse { .. }
            | OpenDriveError::Busy { .. } => StatusCode::CONFLICT,
            OpenDriveError::NotADrive { .. }
            | OpenDriveError::NotZram { .. }
            | OpenDriveError::NoBytes { .. }
            | OpenDriveError::TooSmall { .. }
            | OpenDriveError::NoUring { .. } => StatusCode::BAD_REQUEST,
            OpenDriveError::Io { .. } | OpenDriveError::Start { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::of(status, what, error)
    }

    fn create(what: &str, error: &CreateError, scheme: &str) -> Self {
        match error {
            CreateError::Layout { error, .. } => {
                Self::scheme(what, error, scheme, error.field().span_in(scheme))
            }
            _ => Self::of(StatusCode::BAD_REQUEST, what, error),
        }
    }

    fn open(what: &str, error: &OpenError) -> Self {
        let status = match error {
            OpenError::NoDrives => StatusCode::NOT_FOUND,
            OpenError::TooFewDrives { .. }
            | OpenError::Duplicate { .. }
            | OpenError::SplitBrain { .. }
            | OpenError::DataLost { .. }
            | OpenError::Waits { .. }
            | OpenError::Damaged { .. }
            | OpenError::Geometry(_)
            | OpenError::Scheme(_)
            | OpenError::Interleave { .. }
            | OpenError::FreeStripes { .. } => StatusCode::CONFLICT,
        };
        Self::of(status, what, error)
    }

    /// A command to a pool failed.
    #[must_use]
    pub fn pool(what: &str, error: &PoolError) -> Self {
        let status = match error {
            PoolError::NoSeat { .. } | PoolError::NoVolume { .. } => StatusCode::NOT_FOUND,
            PoolError::PoolName { .. }
            | PoolError::VolumeName { .. }
            | PoolError::NoSize
            | PoolError::RateTooLow { .. } => StatusCode::BAD_REQUEST,
            PoolError::Fault { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            PoolError::AlreadyOut { .. }
            | PoolError::Occupied { .. }
            | PoolError::BeingReplaced { .. }
            | PoolError::NotASpare { .. }
            | PoolError::NotCurrent { .. }
            | PoolError::StillBusy { .. }
            | PoolError::GoingOut { .. }
            | PoolError::WouldLose { .. }
            | PoolError::DriveTooSmall { .. }
            | PoolError::Drive { .. }
            | PoolError::Grow { .. }
            | PoolError::Leave { .. }
            | PoolError::TooManyVolumes { .. }
            | PoolError::VolumeExists { .. }
            | PoolError::VolumeGrows { .. }
            | PoolError::NoSpace { .. }
            | PoolError::JournalLost { .. }
            | PoolError::NoChecksums
            | PoolError::NotElastic
            | PoolError::NotPaused
            | PoolError::TakenOver
            | PoolError::Closing => StatusCode::CONFLICT,
        };
        Self::of(status, what, error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: self.problem,
        };
        (self.status, Json(body)).into_response()
    }
}

/// A hint with the name that was probably meant, if there is one.
pub(crate) fn or_closest(closest: Option<&str>, hint: &str) -> String {
    match closest {
        Some(name) => format!("there is `{name}`; {hint}"),
        None => hint.to_owned(),
    }
}

/// A volume does not exist; `names` are those of the pool.
pub(crate) fn no_volume<'a>(
    what: &str,
    name: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Failure {
    let error = PoolError::NoVolume {
        name: name.to_owned(),
    };
    let mut failure = Failure::pool(what, &error);
    failure.problem.hint = or_closest(closest(name, names), &failure.problem.hint);
    failure
}

/// Checks that the places in which to look for drives are there.
pub(crate) fn exist(places: &[PathBuf], what: &str) -> Result<(), Failure> {
    // A link to a drive that is gone is a place; a folder with a typing error is none.
    match places
        .iter()
        .find(|place| place.symlink_metadata().is_err())
    {
        None => Ok(()),
        Some(place) => Err(Failure::missing(
            what,
            format!("there is no {}", place.display()),
            "check the name after --dir",
        )),
    }
}

#[cfg(test)]
mod tests {
    use array::format::LabelError;
    use block::{Fault, Seat};
    use engine::drive::DriveUri;

    use super::*;

    #[test]
    fn names_with_colons_and_semicolons_arrive_whole() {
        let path = "/tmp/a; b: c";
        let drive = OpenDriveError::NotFound { path: path.into() };
        let failure = Failure::assemble("x", &drive.into(), "");
        let problem = failure.problem;
        assert_eq!(problem.why, "/tmp/a; b: c: there is no such file or device");
        assert_eq!(
            problem.hint,
            "check the name; `truncate -s 10G FILE` makes a file to try with"
        );
        // Errors without a hint: nothing is cut off from the text.
        let error = AssembleError::Io {
            drive: path.to_owned(),
            doing: "reading",
            fault: Fault::Medium,
        };
        let problem = Failure::assemble("x", &error, "").problem;
        assert_eq!(problem.why, "/tmp/a; b: c: reading failed: medium error");
        assert_eq!(problem.hint, "");
        let error = AssembleError::Twice {
            drive: path.to_owned(),
        };
        let problem = Failure::assemble("x", &error, "").problem;
        assert_eq!(problem.why, "/tmp/a; b: c is named twice");
        // Hints have colons and semicolons, too.
        let error = "nbd:x".parse::<DriveUri>().unwrap_err();
        let problem = Failure::of(StatusCode::BAD_REQUEST, "x", &error).problem;
        assert_eq!(problem.why, "`nbd:` drives are not supported yet");
        assert_eq!(
            problem.hint,
            "use a file, a block device, zram:, mem:, volume:, compress: or slow:"
        );
    }

    #[test]
    fn hints_are_parts_of_a_sentence() {
        let (name, drive) = (String::new, String::new);
        let seat = Seat(1);
        let assemble: Vec<AssembleError> = vec![
            AssembleError::Occupied {
                drive: drive(),
                what: name(),
            },
            AssembleError::NoDomain { drive: drive() },
            AssembleError::TakesNoVolumes { drive: drive() },
            AssembleError::Circle {
                drive: drive(),
                circle: vec![name()],
            },
            AssembleError::SlotTwice {
                domain: name(),
                slot: 3,
                first: drive(),
                second: drive(),
            },
            AssembleError::Held { name: name() },
            AssembleError::Labels { failed: drive() },
            AssembleError::Ambiguous {
                name: name(),
                count: 2,
                choices: "a or b".to_owned(),
            },
            AssembleError::Label {
                name: name(),
                path: "x".into(),
                error: LabelError::EarlyFormat,
            },
            AssembleError::Io {
                drive: drive(),
                doing: "writing",
                fault: Fault::Full,
            },
            StartError::Stopped.into(),
            CreateError::NoDrives.into(),
            CreateError::Name { name: name() }.into(),
            OpenError::NoDrives.into(),
            OpenError::FreeStripes { free_stripes: 1 }.into(),
            OpenDriveError::Busy {
                path: "x".into(),
                claims: Vec::new(),
            }
            .into(),
        ];
        let pool = [
            PoolError::NoSeat { seat, last: 3 },
            PoolError::GoingOut { seat },
            PoolError::Occupied { seat },
            PoolError::NoSize,
            PoolError::JournalLost { lane: 0 },
            PoolError::NoChecksums,
            PoolError::TakenOver,
            PoolError::Closing,
        ];
        let assemble = { assemble.iter() }.map(|error| Failure::assemble("x", error, ""));
        let pool = pool.iter().map(|error| Failure::pool("x", error));
        let schemes = ["", "raid9", "raid5:4k", "raid5:4c:5c", "new"]
            .map(|text| text.parse::<layout::Scheme>().unwrap_err())
            .map(|error| Failure::scheme("x", &error, "", error.span()));
        for failure in assemble.chain(pool).chain(schemes) {
            let Problem { why, hint, .. } = failure.problem;
            assert!(!hint.is_empty(), "{why}");
            assert!(!hint.starts_with("try ") && !hint.ends_with('.'), "{hint}");
            assert!(!why.contains(&hint), "{why}: {hint}");
        }
    }
}
