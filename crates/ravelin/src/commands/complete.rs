//! Candidates for completion in a shell: names of pools, volumes, drives, schemes, codes and studies.
//!
//! The script that `ravelin completions` prints calls this program again with what has been typed so far, and
//! [`VARIABLE`] set. Names of pools, volumes and drives come from the daemon. If no daemon answers within [`TIMEOUT`],
//! there are no candidates: a completion prints no errors.

use std::ffi::OsStr;
use std::sync::mpsc;
use std::time::Duration;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use control::Client;
use control::api::{Pools, Status, Volumes};
use control::client::path;

use super::common::{Context, seat_state};

/// Set by the shell's script when it asks for candidates.
pub(crate) const VARIABLE: &str = "RAVELIN_COMPLETE";

/// How long a shell waits for the daemon's answer.
const TIMEOUT: Duration = Duration::from_secs(2);

type Candidates = Vec<CompletionCandidate>;

/// Open pools.
pub(crate) fn pools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| ask(|client| named(&open_pools(client))))
}

/// Volumes of open pools, as `POOL/VOLUME`.
pub(crate) fn volumes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(|client| {
            let mut found = Vec::new();
            for pool in open_pools(client) {
                let all: Option<Volumes> = client.get(&path(&["pools", &pool, "volumes"])).ok();
                let volumes = all.into_iter().flat_map(|all| all.volumes);
                found.extend(volumes.map(|volume| format!("{pool}/{}", volume.name)));
            }
            named(&found)
        })
    })
}

/// Drives of the pool that has been typed; of all pools if none has.
pub(crate) fn members() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(|client| {
            let all = open_pools(client);
            let typed: Vec<String> = { all.iter() }
                .filter(|pool| std::env::args().any(|word| word == **pool))
                .cloned()
                .collect();
            let pools = if typed.is_empty() { all } else { typed };
            let mut found = Vec::new();
            for pool in pools {
                let status: Option<Status> = client.get(&path(&["pools", &pool, "status"])).ok();
                let seats = status.into_iter().flat_map(|status| status.pool.seats);
                for seat in seats {
                    let help = format!("seat {} of {pool}, {}", seat.seat, seat_state(&seat));
                    found.push(CompletionCandidate::new(seat.path).help(Some(help.into())));
                }
            }
            found
        })
    })
}

/// Block devices and files that could be drives.
pub(crate) fn drives() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        // Names of drives are usually absolute: with nothing typed, the first suggestion is `/dev/`.
        match typed.is_empty() {
            true => vec![CompletionCandidate::new("/dev/")],
            false => PathCompleter::any().filter(is_drive).complete(typed),
        }
    })
}

fn is_drive(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_block_device() || kind.is_file()
    })
}

/// Names of schemes.
pub(crate) fn schemes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        layout::scheme::names()
            .map(CompletionCandidate::new)
            .collect()
    })
}

/// Names of erasure codes.
pub(crate) fn codes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = erasure::NAMES.iter();
        names.map(|name| CompletionCandidate::new(*name)).collect()
    })
}

/// Names of studies.
#[cfg(feature = "studies")]
pub(crate) fn studies() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let studies = lab::STUDIES.iter().map(|study| study.about().id);
        let names = studies.chain(std::iter::once("all"));
        names.map(CompletionCandidate::new).collect()
    })
}

fn named(names: &[String]) -> Candidates {
    names.iter().map(CompletionCandidate::new).collect()
}

fn open_pools(client: &Client) -> Vec<String> {
    let all: Option<Pools> = client.get("pools").ok();
    let pools = all.into_iter().flat_map(|all| all.pools);
    pools.map(|pool| pool.name).collect()
}

/// The candidates from the daemon at the typed socket, or at the usual one; none if the daemon answers too late.
fn ask(question: impl FnOnce(&Client) -> Candidates + Send + 'static) -> Candidates {
    let socket = typed_socket(std::env::args());
    let socket = socket.or_else(|| std::env::var_os("RAVELIN_SOCKET").map(Into::into));
    let context = Context {
        json: false,
        socket,
    };
    let client = context.client();
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || answer.send(question(&client)));
    answered.recv_timeout(TIMEOUT).unwrap_or_default()
}

/// The value of `--socket` among the words.
fn typed_socket(words: impl Iterator<Item = String>) -> Option<std::path::PathBuf> {
    let mut words = words;
    while let Some(word) = words.next() {
        if word == "--socket" {
            return words.next().map(Into::into);
        }
        if let Some(socket) = word.strip_prefix("--socket=") {
            return Some(socket.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_the_one_that_is_typed() {
        let typed = |line: &str| typed_socket(line.split(' ').map(str::to_owned));
        assert_eq!(typed("ravelin status"), None);
        assert_eq!(typed("ravelin --socket /a status"), Some("/a".into()));
        assert_eq!(typed("ravelin status --socket=/a"), Some("/a".into()));
    }
}
