//! A small blocking client: one connection per request, closed after the answer.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use block::Hint;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{ErrorBody, Problem};

/// Longest answer that is read, in bytes. The longest answer known is the status of a pool of 65,536 seats with its
/// thousand events; it stays below this.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// A client of the daemon at a socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Why there is no answer, or an error instead of one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens at the socket.
    #[error("no daemon answers at {}", socket.display())]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
    },
    /// The socket exists, but this user has no access to it, or the connection broke off.
    #[error("the daemon at {} cannot be talked to: {source}", socket.display())]
    Io {
        /// The socket.
        socket: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The answer is not one of this API.
    #[error("what answers at {} does not speak this API: {why}", socket.display())]
    Garbled {
        /// The socket.
        socket: PathBuf,
        /// What was wrong.
        why: String,
    },
    /// The daemon refused the request.
    #[error("{problem}")]
    Refused {
        /// HTTP's status.
        status: u16,
        /// The reason.
        problem: Box<Problem>,
    },
}

impl Hint for ClientError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::NoDaemon { .. } => Some("start one with `ravelin daemon`".into()),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Some(
                "add yourself to the group ravelin (`usermod -aG ravelin USER`, then log in again), or use root".into(),
            ),
            Self::Io { .. } => Some("look into its log".into()),
            Self::Garbled { .. } => Some("is it a Ravelin daemon of this version?".into()),
            Self::Refused { problem, .. } => problem.hint(),
        }
    }
}

impl Client {
    /// A client of the daemon at `socket`.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a GET request without a body. `path` comes after `/v1/`; see [`path`] for names in it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call("GET", path, &[])
    }

    /// Sends `body` with an HTTP method.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.garbled(error.to_string()))?;
        self.call(method, path, &body)
    }

    fn garbled(&self, why: impl Into<String>) -> ClientError {
        ClientError::Garbled {
            socket: self.socket.clone(),
            why: why.into(),
        }
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<T, ClientError> {
        let io = |source: io::Error| ClientError::Io {
            socket: self.socket.clone(),
            source,
        };
        let mut stream =
            UnixStream::connect(&self.socket).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::NotADirectory => ClientError::NoDaemon {
                    socket: self.socket.clone(),
                },
                _ => io(source),
            })?;
        let head = format!(
            "{method} /v1/{path} HTTP/1.1\r\nHost: ravelin\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        let sent = stream.write_all(&request);
        let mut bytes = Vec::new();
        let received = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        if bytes.is_empty() {
            // A daemon that refuses a request may answer before it has read the whole request. The send then fails,
            // but the answer counts.
            sent.map_err(io)?;
            received.map_err(io)?;
            return Err(io(io::ErrorKind::UnexpectedEof.into()));
        }
        let answer = Response::parse(&bytes).map_err(|why| self.garbled(why))?;
        if (200..300).contains(&answer.status) {
            return serde_json::from_slice(answer.body)
                .map_err(|error| self.garbled(error.to_string()));
        }
        let body: ErrorBody = serde_json::from_slice(answer.body)
            .map_err(|error| self.garbled(format!("status {}: {error}", answer.status)))?;
        Err(ClientError::Refused {
            status: answer.status,
            problem: Box::new(body.error),
        })
    }
}

/// A parsed response.
#[derive(Debug, PartialEq, Eq)]
struct Response<'a> {
    status: u16,
    body: &'a [u8],
}

impl<'a> Response<'a> {
    /// Parses a response. `Content-Length` is required: without it, a response that broke off would look complete.
    fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .ok_or("its head does not end")?;
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "its head is not text")?;
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 "))
            .and_then(|line| line.get(..3))
            .and_then(|digits| digits.parse().ok())
            .ok_or("it does not begin with a status")?;
        let length: usize = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse().ok())
            .ok_or("it does not say its length")?;
        let body = &bytes[end + 4..];
        if body.len() != length {
            return Err("it broke off");
        }
        Ok(Self { status, body })
    }
}

/// Builds a path from its parts, each of which may have any characters.
#[must_use]
pub fn path(parts: &[&str]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| encode(part)).collect();
    parts.join("/")
}

fn encode(part: &str) -> String {
    use std::fmt::Write as _;
    // `.` and `..` would be path steps.
    let dots = part.bytes().all(|byte| byte == b'.');
    part.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && !dots) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("writing to a string succeeds");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a user outside of the group was to look into the daemon's log.
    #[test]
    fn a_user_without_access_is_to_join_the_group() {
        let error = |kind: io::ErrorKind| ClientError::Io {
            socket: "/run/ravelin/ravelin.sock".into(),
            source: kind.into(),
        };
        let hint = |kind| error(kind).hint().unwrap().into_owned();
        let denied = hint(io::ErrorKind::PermissionDenied);
        assert!(
            denied.contains("add yourself to the group ravelin"),
            "{denied}"
        );
        assert_eq!(hint(io::ErrorKind::BrokenPipe), "look into its log");
    }

    #[test]
    fn an_answer_that_broke_off_is_not_taken() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        let parsed = Response::parse(whole).unwrap();
        assert_eq!((parsed.status, parsed.body), (200, b"{}".as_slice()));
        for cut in 0..whole.len() {
            assert!(Response::parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn names_in_paths_cannot_be_taken_for_paths() {
        assert_eq!(path(&["pools", "a/b?c", ".."]), "pools/a%2Fb%3Fc/%2E%2E");
        assert_eq!(path(&["pools", "tank-1_x.y"]), "pools/tank-1_x.y");
    }
}
