//! Who changed what in a pool, and when: `history/UUID` in the state directory.
//!
//! ```text
//!  connection ── user (SO_PEERCRED) ──► request ──► route ──► answer ── success ──► a line in the pool's history
//!                                       command as the program takes it ──────────┘
//!  pool ── event: a warning, an error, the end of long work ───────────────────────► a line
//! ```
//!
//! Requests that read, that were refused, or that were dry runs leave no line. The pool is looked up before the
//! request for one that closes it, and after the request for one that opens it. The history of a pool that is
//! destroyed ends with that and stays, as its drives can still be looked at; a file has a bounded size.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use block::ByteSize;
use engine::status::{LoggedEvent, Severity};
use serde_json::Value;

use crate::Daemon;
use crate::api::{BODY_BYTES_MAX, HistoryLine};
use crate::event_files::LineFiles;

/// The histories of all pools.
pub(crate) type HistoryFiles = LineFiles<HistoryLine>;

/// Events that are no warnings, and belong to a pool's history all the same.
const MILESTONES: [&str; 4] = [
    "rebuild_begins",
    "rebuild_ends",
    "scrub_begins",
    "scrub_ends",
];

/// The user at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) u32);

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The line of an event; none if it is of no importance.
pub(crate) fn of_event(event: &LoggedEvent) -> Option<HistoryLine> {
    let important = event.severity != Severity::Info || MILESTONES.contains(&&*event.event);
    important.then(|| HistoryLine {
        at_milliseconds: milliseconds(event.at),
        uid: None,
        user: None,
        what: event.event.clone(),
        text: Some(event.text.clone()),
    })
}

/// Records a request that changed something.
pub(crate) async fn record(
    State(daemon): State<Arc<Daemon>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let uid = request.extensions().get::<Peer>().map(|peer| peer.0);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (parts, body) = request.into_parts();
    // The body has arrived: the connection has read it.
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    let document = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let change = change(&method, &path, &document);
    let request = Request::from_parts(parts, Body::from(bytes));
    let Some(change) = change else {
        return next.run(request).await;
    };
    let identity = |daemon: &Arc<Daemon>| {
        let (daemon, pool) = (Arc::clone(daemon), change.pool.clone());
        tokio::task::spawn_blocking(move || daemon.identity(&pool))
    };
    let before = identity(&daemon).await.ok().flatten();
    let response = next.run(request).await;
    if !response.status().is_success() {
        return response;
    }
    let pool = match before {
        Some(pool) => Some(pool),
        None => identity(&daemon).await.ok().flatten(),
    };
    if let Some(pool) = pool {
        let line = HistoryLine {
            at_milliseconds: milliseconds(SystemTime::now()),
            uid,
            user: uid.and_then(user_name),
            what: change.command,
            text: None,
        };
        daemon.keep_history(&pool, &line);
    }
    response
}

/// A request as a command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    /// The pool's name, or its identity.
    pool: String,
    /// As the program takes it, without `ravelin`.
    command: String,
}

/// The command of a request; none if the request changes no pool.
fn change(method: &Method, path: &str, body: &Value) -> Option<Change> {
    let parts: Vec<String> = path
        .trim_matches('/')
        .split('/')
        .skip(1)
        .map(decoded)
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    let flag = |field: &str, option: &str| match body[field].as_bool() {
        Some(true) => format!(" {option}"),
        _ => String::new(),
    };
    let list = |field: &str| -> String {
        let words = body[field].as_array().into_iter().flatten();
        words
            .filter_map(Value::as_str)
            .map(|word| format!(" {word}"))
            .collect()
    };
    let size = || body["size_bytes"].as_u64().map_or(String::new(), exact);
    let dry = body["dry_run"].as_bool() == Some(true);
    let (pool, command) = match (method.as_str(), &*parts) {
        _ if dry => return None,
        ("POST", ["pools"]) => {
            let spares = match list("spares") {
                spares if spares.is_empty() => spares,
                spares => format!(" spare{spares}"),
            };
            let force = flag("force", "--force");
            let (name, scheme, drives) = (text("name"), text("scheme"), list("drives"));
            let command = format!("pool create {name} {scheme}{drives}{spares}{force}");
            (name, command)
        }
        ("POST", ["pools", "import"]) => {
            let name = text("name");
            let new = text("new_name");
            let degraded = flag("degraded", "--degraded");
            let repair = flag("repair_labels", "--repair-labels");
            let command = format!("pool import {name} {new}");
            let back = flag("destroyed", "--destroyed");
            let pool = if new.is_empty() { name } else { new };
            let command = command.trim_end();
            (pool, format!("{command}{degraded}{repair}{back}"))
        }
        ("DELETE", ["pools", pool]) => {
            let force = flag("force", "--force");
            ((*pool).to_owned(), format!("pool destroy {pool}{force}"))
        }
        ("POST", ["pools", pool, "export"]) => {
            let force = flag("force", "--force");
            ((*pool).to_owned(), format!("pool export {pool}{force}"))
        }
        ("POST", ["pools", pool, "expand"]) => {
            let (drives, force) = (list("drives"), flag("force", "--force"));
            (
                (*pool).to_owned(),
                format!("pool expand {pool}{drives}{force}"),
            )
        }
        ("POST", ["pools", pool, "scrub"]) => {
            let how = match (body["pause"].as_bool(), body["every_days"].as_u64()) {
                (_, Some(days)) => format!(" --every {days}"),
                (Some(true), _) => " --pause".to_owned(),
                (Some(false), _) => " --resume".to_owned(),
                (None, None) => String::new(),
            };
            ((*pool).to_owned(), format!("pool scrub {pool}{how}"))
        }
        ("POST", ["pools", pool, "elastic"]) => {
            let how = match body["percent"].as_u64() {
                Some(percent) => percent.to_string(),
                None => "auto".to_owned(),
            };
            ((*pool).to_owned(), format!("pool elastic {pool} {how}"))
        }
        ("POST", ["pools", pool, "rebuild"]) => {
            let priority = match body["priority"].as_str() {
                Some(word) => format!(" --priority {word}"),
                None => String::new(),
            };
            let rate = match body["rate_bytes"].as_u64() {
                Some(0) => " --rate off".to_owned(),
                Some(rate) => format!(" --rate {}", exact(rate)),
                None => String::new(),
            };
            let pause = match body["pause"].as_bool() {
                Some(true) => " --pause",
                Some(false) => " --resume",
                None => "",
            };
            let command = format!("pool rebuild {pool}{priority}{rate}{pause}");
            ((*pool).to_owned(), command)
        }
        ("POST", ["pools", pool, "drives", verb]) => {
            let (drive, new) = (text("drive"), text("new"));
            let command = format!("drive {verb} {pool} {drive} {new}");
            let (force, rebuild) = (flag("force", "--force"), flag("rebuild", "--rebuild"));
            let command = format!("{}{rebuild}{force}", command.trim_end());
            ((*pool).to_owned(), command)
        }
        ("POST", ["pools", pool, "volumes"]) => {
            let command = format!("volume create {pool}/{} --size {}", text("name"), size());
            ((*pool).to_owned(), command)
        }
        ("PATCH", ["pools", pool, "volumes", volume]) => {
            let force = flag("force", "--force");
            let command = format!("volume resize {pool}/{volume} --size {}{force}", size());
            ((*pool).to_owned(), command)
        }
        ("DELETE", ["pools", pool, "volumes", volume]) => {
            ((*pool).to_owned(), format!("volume delete {pool}/{volume}"))
        }
        ("POST", ["pools", pool, "volumes", volume, "rename"]) => {
            let command = format!("volume rename {pool}/{volume} {}", text("name"));
            ((*pool).to_owned(), command)
        }
        ("POST", ["pools", pool, "volumes", volume, "attach"]) => {
            let kinds = crate::exports::EXPORTS.iter();
            let at: String = kinds
                .map(|kind| (kind.name(), text(kind.name())))
                .filter(|(_, place)| !place.is_empty())
                .map(|(name, place)| format!(" --{name} {place}"))
                .collect();
            let made = flag("loop_device", "--loop");
            let only = flag("read_only", "--read-only");
            let blocks = body["block_size"].as_u64();
            let blocks = blocks.map_or(String::new(), |size| format!(" --block-size {size}"));
            let command = format!("volume attach {pool}/{volume}{at}{made}{only}{blocks}");
            ((*pool).to_owned(), command)
        }
        ("POST", ["pools", pool, "volumes", volume, "detach"]) => {
            let force = flag("force", "--force");
            let command = format!("volume detach {pool}/{volume}{force}");
            ((*pool).to_owned(), command)
        }
        ("POST", ["pools", pool, "volumes", volume, "bench"]) => {
            let pattern = text("pattern");
            if pattern.contains("read") {
                return None;
            }
            let command = format!("bench {pool}/{volume} --rw {pattern}");
            ((*pool).to_owned(), command)
        }
        _ => return None,
    };
    Some(Change { pool, command })
}

/// A size that reads back exactly.
fn exact(bytes: u64) -> String {
    let text = ByteSize(bytes).to_string().replace(' ', "");
    match text.parse() {
        Ok(ByteSize(same)) if same == bytes => text,
        _ => bytes.to_string(),
    }
}

/// A part of a path without its escapes.
fn decoded(part: &str) -> String {
    let bytes = part.as_bytes();
    let (mut plain, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| part.get(at + 1..at + 3))
            .flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The name of a user of this machine.
fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_read_as_the_commands_that_send_them() {
        let command = |method: &Method, path: &str, body: &Value| {
            change(method, path, body).map(|change| (change.pool, change.command))
        };
        let expect = |pool: &str, text: &str| Some((pool.to_owned(), text.to_owned()));
        let create = json!({ "name": "tank", "scheme": "raid5", "drives": ["/dev/sda", "/dev/sdb"], "spares": ["/dev/sdc"] });
        assert_eq!(
            command(&Method::POST, "/v1/pools", &create),
            expect(
                "tank",
                "pool create tank raid5 /dev/sda /dev/sdb spare /dev/sdc"
            )
        );
        let volume = json!({ "name": "home", "size_bytes": 1_u64 << 30 });
        assert_eq!(
            command(&Method::POST, "/v1/pools/tank/volumes", &volume),
            expect("tank", "volume create tank/home --size 1GiB")
        );
        let attach = json!({ "nbd": "unix:/run/s", "read_only": true });
        assert_eq!(
            command(&Method::POST, "/v1/pools/t%61nk/volumes/v/attach", &attach),
            expect("tank", "volume attach tank/v --nbd unix:/run/s --read-only")
        );
        let replace = json!({ "drive": "2", "new": "/dev/sdh", "force": true });
        assert_eq!(
            command(&Method::POST, "/v1/pools/tank/drives/replace", &replace),
            expect("tank", "drive replace tank 2 /dev/sdh --force")
        );
        let dry = json!({ "drive": "2", "new": "/dev/sdh", "dry_run": true });
        assert_eq!(
            command(&Method::POST, "/v1/pools/tank/drives/replace", &dry),
            None
        );
        assert_eq!(command(&Method::POST, "/v1/pools/scan", &json!({})), None);
        let import = json!({ "name": "tank", "new_name": "old" });
        assert_eq!(
            command(&Method::POST, "/v1/pools/import", &import),
            expect("old", "pool import tank old")
        );
        assert_eq!(
            command(&Method::DELETE, "/v1/pools/tank", &Value::Null),
            expect("tank", "pool destroy tank")
        );
    }
}
