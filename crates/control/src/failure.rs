//! From the engine's errors to answers: a status, and what, why, and one thing to try.

use array::pool::{CreateError, OpenError, PoolError};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::StartError;
use engine::assemble::AssembleError;
use engine::drive::OpenDriveError;

use crate::api::{ErrorBody, Kind, Problem, Span};

/// What HTTP's status says to programs that do not see it.
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
    /// What is told.
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
        let hint = hint.into();
        // Messages say "; try X", and X alone is the hint.
        let hint = hint
            .strip_prefix("try ")
            .map_or(hint.clone(), str::to_owned);
        Self {
            status,
            problem: Problem {
                what: what.into(),
                why: why.into(),
                hint,
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

    /// What the request names is not there.
    pub fn missing(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(StatusCode::NOT_FOUND, what, why, hint)
    }

    /// The state of things forbids it.
    pub fn conflict(
        what: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(StatusCode::CONFLICT, what, why, hint)
    }

    /// An engine's message says why and, behind its last `mark`, what to try.
    pub(crate) fn split(status: StatusCode, what: &str, message: &str, mark: &str) -> Self {
        let (why, hint) = message.rsplit_once(mark).unwrap_or((message, ""));
        Self::new(status, what, why, hint)
    }

    /// A pool could not be put together; `scheme` is what the request called it.
    #[must_use]
    pub fn assemble(what: &str, error: &AssembleError, scheme: &str) -> Self {
        let text = error.to_string();
        match error {
            AssembleError::Drive(error) => Self::drive(what, error),
            AssembleError::Occupied { drive, what: holds } => Self::conflict(
                what,
                format!("{drive} holds {holds}"),
                "name another drive, or give --force to destroy what is on it",
            ),
            AssembleError::NoDomain { .. } | AssembleError::Twice { .. } => {
                Self::split(StatusCode::BAD_REQUEST, what, &text, ": ")
            }
            AssembleError::Create(error) => Self::create(what, error, scheme),
            AssembleError::Open(error) => Self::open(what, error),
            AssembleError::Io { .. } | AssembleError::Labels { .. } => {
                Self::split(StatusCode::INTERNAL_SERVER_ERROR, what, &text, "; ")
            }
            AssembleError::Start(StartError::Pool(error)) => Self::pool(what, error),
            AssembleError::Start(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                what,
                text,
                "look into the daemon's log",
            ),
            AssembleError::NotFound { .. } => Self::split(StatusCode::NOT_FOUND, what, &text, ": "),
            AssembleError::Label { .. } => Self::split(StatusCode::CONFLICT, what, &text, "; "),
            AssembleError::Held { .. } => Self::split(StatusCode::CONFLICT, what, &text, ": "),
            AssembleError::Ambiguous { .. } => Self::split(StatusCode::CONFLICT, what, &text, ": "),
        }
    }

    /// A drive could not be opened.
    #[must_use]
    pub fn drive(what: &str, error: &OpenDriveError) -> Self {
        let status = match error {
            OpenDriveError::NotFound { .. } => StatusCode::NOT_FOUND,
            OpenDriveError::Denied { .. }
            | OpenDriveError::InUse { .. }
            | OpenDriveError::Busy { .. } => StatusCode::CONFLICT,
            OpenDriveError::NotADrive { .. }
            | OpenDriveError::NotZram { .. }
            | OpenDriveError::NoBytes { .. }
            | OpenDriveError::NoUring { .. } => StatusCode::BAD_REQUEST,
            OpenDriveError::Io { .. } | OpenDriveError::Start { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::split(status, what, &error.to_string(), "; ")
    }

    fn create(what: &str, error: &CreateError, scheme: &str) -> Self {
        let bad = StatusCode::BAD_REQUEST;
        match error {
            CreateError::Name { name } => Self::request(
                what,
                format!("`{name}` is not a pool name"),
                "use letters, digits, `-`, `_` and `.`, at most 64, beginning with a letter or digit",
            ),
            CreateError::NoDrives => {
                Self::request(what, "no drives were given", "name them after the scheme")
            }
            CreateError::Layout { error, .. } => {
                let mut failure = Self::split(bad, what, &error.to_string(), "; try ");
                if failure.problem.hint.is_empty() {
                    failure = Self::split(bad, what, &error.to_string(), "; ");
                }
                let span = error.field().span_in(scheme);
                failure.problem.span = Some(Box::new(Span {
                    text: scheme.to_owned(),
                    start: span.start,
                    end: span.end,
                }));
                failure
            }
            CreateError::Drive { .. } => Self::split(bad, what, &error.to_string(), "; "),
            CreateError::Code { .. }
            | CreateError::Elastic { .. }
            | CreateError::Geometry(_)
            | CreateError::Table
            | CreateError::TableTooLarge { .. } => Self::split(bad, what, &error.to_string(), "; "),
        }
    }

    fn open(what: &str, error: &OpenError) -> Self {
        let text = error.to_string();
        match error {
            OpenError::NoDrives => {
                Self::missing(what, text, "name the directories of its drives with --dir")
            }
            OpenError::TooFewDrives { .. } => Self::split(StatusCode::CONFLICT, what, &text, "; "),
            OpenError::Duplicate { .. }
            | OpenError::SplitBrain { .. }
            | OpenError::DataLost { .. } => Self::split(StatusCode::CONFLICT, what, &text, ": "),
            OpenError::Geometry(_)
            | OpenError::Scheme(_)
            | OpenError::Interleave { .. }
            | OpenError::FreeStripes { .. } => Self::conflict(
                what,
                text,
                "a newer version of Ravelin may have made it: use that one",
            ),
        }
    }

    /// A command to a pool failed.
    #[must_use]
    pub fn pool(what: &str, error: &PoolError) -> Self {
        let text = error.to_string();
        let conflict = StatusCode::CONFLICT;
        match error {
            PoolError::NoSeat { .. } => Self::split(StatusCode::NOT_FOUND, what, &text, ": "),
            PoolError::AlreadyOut { .. } => Self::conflict(
                what,
                text,
                "`ravelin pool status` shows which drives are in",
            ),
            PoolError::NoVolume { .. } => Self::split(StatusCode::NOT_FOUND, what, &text, "; "),
            PoolError::Occupied { .. }
            | PoolError::BeingReplaced { .. }
            | PoolError::NotASpare { .. }
            | PoolError::NotCurrent { .. }
            | PoolError::StillBusy { .. }
            | PoolError::GoingOut { .. }
            | PoolError::WouldLose { .. }
            | PoolError::DriveTooSmall { .. }
            | PoolError::TooManyVolumes { .. }
            | PoolError::VolumeExists { .. } => Self::split(conflict, what, &text, ": "),
            PoolError::VolumeName { .. } | PoolError::NoSize => {
                Self::split(StatusCode::BAD_REQUEST, what, &text, ": ")
            }
            PoolError::NoSpace { .. } => Self::conflict(
                what,
                text,
                "make it smaller, or delete a volume that is no longer needed",
            ),
            PoolError::Fault { .. } => {
                Self::split(StatusCode::INTERNAL_SERVER_ERROR, what, &text, ": ")
            }
            PoolError::JournalLost { .. } => Self::conflict(
                what,
                text,
                "see `ravelin pool status`, and what the kernel says of the drives",
            ),
            PoolError::NoChecksums => Self::conflict(
                what,
                text,
                "a new pool has them unless it is told otherwise",
            ),
            PoolError::TakenOver => Self::conflict(
                what,
                text,
                "see which host has it, and export the pool here (`ravelin pool export`)",
            ),
            PoolError::Closing => Self::conflict(what, text, "import it again first"),
        }
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
