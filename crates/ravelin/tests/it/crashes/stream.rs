//! A client that streams: requests of a megabyte, eight in flight, in a loop over its part of the volume. Some requests
//! trim a piece instead, so that writes go both to empty pieces and over data.
//!
//! The kill of a daemon loses nothing of what the kernel has for the drives' files. So all *acknowledged* changes must
//! be there, flushed or not: each block of a piece holds the piece's last acknowledged change, or a later one that has
//! begun.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use export::nbd::{Client, ClientError, Operation};

use crate::support::writer;

const BLOCK: usize = 4096;
const PIECE: usize = 1 << 20;
/// Where the range of this client begins: behind the other clients' ranges.
const BEGIN: u64 = 8 << 20;
const PIECES: usize = 24;
const DEPTH: usize = 8;
/// Requests from one flush to the next.
const FLUSH_EVERY: u64 = 7;

/// State of a piece: its changes are numbered from 1.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    acknowledged: u64,
    begun: u64,
}

impl Piece {
    /// The changes that the piece may hold, 0 for none.
    const fn allowed(self) -> RangeInclusive<u64> {
        self.acknowledged..=self.begun
    }
}

const fn is_trim(change: u64) -> bool {
    change % 5 == 4
}

/// Content of a change: each word holds its place and the change's number.
fn word(piece: usize, block: usize, change: u64, index: usize) -> u64 {
    change << 40 | (piece as u64) << 32 | (block as u64) << 16 | index as u64
}

fn bytes_of(piece: usize, change: u64) -> Vec<u8> {
    let blocks = (0..PIECE / BLOCK).flat_map(|block| {
        (0..BLOCK / 8).map(move |index| word(piece, block, change, index).to_le_bytes())
    });
    blocks.flatten().collect()
}

/// The state of this part of the volume, shared by all successive clients.
#[derive(Clone, Default)]
pub(crate) struct Stream {
    pieces: Arc<Mutex<Vec<Piece>>>,
    /// The number of the next client's first request.
    next: Arc<Mutex<u64>>,
    /// A request that ended in an error while the connection was up.
    refused: Arc<Mutex<Option<String>>>,
}

fn look<T, R>(at: &Mutex<T>, with: impl FnOnce(&mut T) -> R) -> R {
    with(&mut at.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Stream {
    pub(crate) fn new() -> Self {
        let stream = Self::default();
        look(&stream.pieces, |pieces| {
            pieces.resize(PIECES, Piece::default());
        });
        stream
    }

    /// Streams until the connection fails; connects within this time.
    pub(crate) fn start(&self, uri: &str, within: Duration) -> JoinHandle<()> {
        let (stream, mut client) = (self.clone(), writer::connect(uri, within));
        std::thread::spawn(move || {
            let end = stream.run(&mut client);
            if let Err(ClientError::Remote { errno }) = end {
                look(&stream.refused, |refused| {
                    *refused = Some(format!("a request of the stream ended with {errno}"));
                });
            }
        })
    }

    /// Changes that have been acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        look(&self.pieces, |pieces| {
            pieces.iter().map(|piece| piece.acknowledged).sum()
        })
    }

    fn run(&self, client: &mut Client) -> Result<(), ClientError> {
        // Piece and change of each request in flight; flushes have none.
        let mut under_way: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        loop {
            let number = look(&self.next, |next| std::mem::replace(next, *next + 1));
            let piece = usize::try_from(number).unwrap() % PIECES;
            while client.in_flight() >= DEPTH || under_way.values().any(|&(at, _)| at == piece) {
                let reply = client.wait()?.expect("some are in flight").ok()?;
                if let Some((at, change)) = under_way.remove(&reply.cookie) {
                    look(&self.pieces, |pieces| pieces[at].acknowledged = change);
                }
            }
            let change = look(&self.pieces, |pieces| {
                pieces[piece].begun += 1;
                pieces[piece].begun
            });
            let offset = BEGIN + (piece * PIECE) as u64;
            let cookie = client.submit(match is_trim(change) {
                true => Operation::Trim {
                    offset,
                    length: u32::try_from(PIECE).unwrap(),
                    fua: false,
                },
                false => Operation::Write {
                    offset,
                    buffer: bytes_of(piece, change),
                    fua: false,
                },
            })?;
            under_way.insert(cookie, (piece, change));
            if number % FLUSH_EVERY == 0 {
                client.submit(Operation::Flush)?;
            }
            client.send()?;
        }
    }

    /// Every block holds an allowed change.
    #[track_caller]
    pub(crate) fn verify(&self, client: &mut Client) {
        assert_eq!(look(&self.refused, |refused| refused.take()), None);
        for index in 0..PIECES {
            let offset = BEGIN + (index * PIECE) as u64;
            let bytes = client.read(offset, PIECE).unwrap();
            let piece = look(&self.pieces, |pieces| pieces[index]);
            let mut allowed = piece.allowed();
            let may_be_zero = piece.acknowledged == 0 || allowed.any(is_trim);
            for (block, bytes) in bytes.chunks(BLOCK).enumerate() {
                let name = || format!("block {block} of piece {index}, {piece:?}");
                let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                if bytes.iter().all(|&byte| byte == 0) {
                    assert!(may_be_zero, "{} is zero", name());
                    continue;
                }
                let change = first >> 40;
                assert!(
                    piece.allowed().contains(&change) && !is_trim(change),
                    "{} holds change {change}",
                    name()
                );
                let words = (0..BLOCK / 8).map(|at| word(index, block, change, at));
                let expected: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                assert!(bytes == expected, "{} holds something else", name());
            }
        }
    }
}

#[test]
fn a_change_is_in_each_word_of_each_block() {
    let bytes = bytes_of(3, 7);
    assert_eq!(bytes.len(), PIECE);
    let at = |index: usize| u64::from_le_bytes(bytes[8 * index..][..8].try_into().unwrap());
    assert_eq!(at(0), 7 << 40 | 3 << 32);
    assert_eq!(at(512 + 5), 7 << 40 | 3 << 32 | 1 << 16 | 5);
}
