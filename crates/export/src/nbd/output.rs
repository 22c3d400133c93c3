//! Replies that wait to be sent. One gathered send takes many of them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use block::Memory;

use super::buffers::Buffers;
use super::transport::Transport;

/// Replies per send. Each one is up to two ranges, and the kernel takes 1024.
const PARTS_PER_SEND: usize = 256;
/// The longest header that is stored inline: that of a structured read.
const HEAD_BYTES: usize = 28;

enum Body {
    None,
    Bytes(Vec<u8>),
    /// A buffer without other references, and how many of its bytes to send.
    Memory(Memory, usize),
}

struct Part {
    head: [u8; HEAD_BYTES],
    head_len: usize,
    body: Body,
    charge: usize,
}

impl Part {
    fn body_len(&self) -> usize {
        match &self.body {
            Body::None => 0,
            Body::Bytes(bytes) => bytes.len(),
            Body::Memory(_, len) => *len,
        }
    }

    fn len(&self) -> usize {
        self.head_len + self.body_len()
    }

    /// Header and body without the first `skip` bytes.
    fn rest(&mut self, skip: usize) -> [&[u8]; 2] {
        let head_skip = skip.min(self.head_len);
        let body: &[u8] = match &mut self.body {
            Body::None => &[],
            Body::Bytes(bytes) => bytes,
            // Unique when it was pushed, and not shared since.
            Body::Memory(memory, len) => memory.unique().map_or(&[], |bytes| &bytes[..*len]),
        };
        let body_skip = (skip - head_skip).min(body.len());
        [&self.head[head_skip..self.head_len], &body[body_skip..]]
    }
}

/// The queue of one connection.
#[derive(Default)]
pub(super) struct Output {
    parts: VecDeque<Part>,
    /// Bytes of the first part that have been sent.
    sent: usize,
    /// Bytes of all parts, including sent ones of the first part.
    bytes: usize,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes to be sent.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes - self.sent
    }

    /// Adds a short header alone. `send` returns `charge` when the header has been sent; the same for the methods
    /// below.
    pub(super) fn push_head<const N: usize>(&mut self, header: [u8; N], charge: usize) {
        self.push(header, Body::None, charge);
    }

    /// Adds any number of bytes.
    pub(super) fn push_bytes(&mut self, bytes: Vec<u8>, charge: usize) {
        self.push([], Body::Bytes(bytes), charge);
    }

    /// Adds a header and the first `len` bytes of `memory`, which must be unique.
    pub(super) fn push_memory<const N: usize>(
        &mut self,
        header: [u8; N],
        memory: Memory,
        len: usize,
        charge: usize,
    ) {
        self.push(header, Body::Memory(memory, len), charge);
    }

    fn push<const N: usize>(&mut self, header: [u8; N], body: Body, charge: usize) {
        const { assert!(N <= HEAD_BYTES) };
        let mut head = [0; HEAD_BYTES];
        head[..N].copy_from_slice(&header);
        let part = Part {
            head,
            head_len: N,
            body,
            charge,
        };
        self.bytes += part.len();
        self.parts.push_back(part);
    }

    /// Sends until nothing is left or the socket takes no more. Returns the charges of the parts that were sent;
    /// their buffers go back to `buffers`.
    pub(super) fn send(
        &mut self,
        transport: &mut Transport,
        buffers: &mut Buffers,
    ) -> io::Result<usize> {
        let mut released = 0;
        while !self.parts.is_empty() {
            let mut skip = self.sent;
            let mut slices = Vec::with_capacity(2 * self.parts.len().min(PARTS_PER_SEND));
            let mut offered = 0;
            for part in self.parts.iter_mut().take(PARTS_PER_SEND) {
                for bytes in part.rest(std::mem::take(&mut skip)) {
                    if !bytes.is_empty() {
                        offered += bytes.len();
                        slices.push(IoSlice::new(bytes));
                    }
                }
            }
            let count = match transport.send(&slices) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(released),
                Err(error) => return Err(error),
            };
            released += self.advance(count, buffers);
            if count < offered {
                break;
            }
        }
        Ok(released)
    }

    /// Drops everything, for a connection that is gone.
    pub(super) fn clear(&mut self, buffers: &mut Buffers) {
        self.sent = 0;
        self.bytes = 0;
        for part in self.parts.drain(..) {
            if let Body::Memory(memory, _) = part.body {
                buffers.give(memory);
            }
        }
    }

    fn advance(&mut self, count: usize, buffers: &mut Buffers) -> usize {
        let mut released = 0;
        self.sent += count;
        while let Some(part) = self.parts.front() {
            let len = part.len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.bytes -= len;
            released += part.charge;
            if let Some(Part {
                body: Body::Memory(memory, _),
                ..
            }) = self.parts.pop_front()
            {
                buffers.give(memory);
            }
        }
        released
    }
}
