//! Copying a whole export, with many requests in flight.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use super::client::{Client, ClientError, Operation};

/// How to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Bytes per request.
    pub request_bytes: u32,
    /// Requests in flight.
    pub depth: usize,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            request_bytes: 1 << 20,
            depth: 16,
        }
    }
}

impl CopyOptions {
    /// Bytes per request within this server's limits, at least one of its blocks.
    fn request_bytes_for(&self, client: &Client) -> usize {
        let (min, _, max) = client.info().block_sizes;
        (self.request_bytes.min(max) & !(min.max(1) - 1)).max(min.max(1)) as usize
    }
}

/// Writes all data of `reader` to the export, from its beginning, then flushes. Calls `progress` with the number of
/// bytes acknowledged so far. Returns the number of bytes copied. A last piece that is shorter than the export's
/// block is padded with zeros.
///
/// # Errors
/// If the reader fails or has more bytes than the export (`ENOSPC` from the server), or if a write fails.
pub fn copy_in(
    reader: &mut dyn Read,
    client: &mut Client,
    options: CopyOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ClientError> {
    let request_bytes = options.request_bytes_for(client);
    let block = client.info().block_sizes.0.max(1) as usize;
    let mut spare = Vec::new();
    // Length of the reader's bytes in each request in flight.
    let mut lengths = BTreeMap::new();
    let (mut offset, mut done) = (0, 0);
    let mut ended = false;
    loop {
        while !ended && client.in_flight() < options.depth.max(1) {
            let mut buffer: Vec<u8> = spare.pop().unwrap_or_default();
            buffer.resize(request_bytes, 0);
            let length = read_full(reader, &mut buffer)?;
            ended = length < request_bytes;
            if length == 0 {
                break;
            }
            let padded = length.next_multiple_of(block);
            buffer[length..padded].fill(0);
            buffer.truncate(padded);
            let fua = false;
            let cookie = client.submit(Operation::Write {
                offset,
                buffer,
                fua,
            })?;
            lengths.insert(cookie, length as u64);
            offset += length as u64;
        }
        let Some(reply) = client.wait()? else {
            break;
        };
        let reply = reply.ok()?;
        done += lengths.remove(&reply.cookie).unwrap_or(0);
        spare.push(reply.buffer);
        progress(done);
    }
    client.flush()?;
    Ok(done)
}

/// Writes the export's first `length` bytes to `writer`, in order. Calls `progress` with the number of bytes written
/// so far.
///
/// # Errors
/// If a read fails, for example because `length` is greater than the export's size, or if the writer fails.
pub fn copy_out(
    client: &mut Client,
    length: u64,
    writer: &mut dyn Write,
    options: CopyOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ClientError> {
    let request_bytes = options.request_bytes_for(client);
    let block = u64::from(client.info().block_sizes.0.max(1));
    let mut spare: Vec<Vec<u8>> = Vec::new();
    // Requests in flight, and pieces that arrived out of order, by cookie: cookies grow with offsets. With each piece
    // the number of its bytes to write.
    let mut pieces: BTreeMap<u64, (usize, Option<Vec<u8>>)> = BTreeMap::new();
    let (mut offset, mut done) = (0, 0);
    loop {
        // Pieces that arrived out of order count, too, so that memory stays bounded.
        while offset < length && pieces.len() < options.depth.max(1) {
            let wanted = usize::try_from(length - offset)
                .unwrap_or(usize::MAX)
                .min(request_bytes);
            let padded = (wanted as u64).next_multiple_of(block);
            let mut buffer = spare.pop().unwrap_or_default();
            buffer.resize(usize::try_from(padded).unwrap_or(wanted), 0);
            let cookie = client.submit(Operation::Read { offset, buffer })?;
            pieces.insert(cookie, (wanted, None));
            offset += wanted as u64;
        }
        let Some(reply) = client.wait()? else {
            break;
        };
        let reply = reply.ok()?;
        if let Some(piece) = pieces.get_mut(&reply.cookie) {
            piece.1 = Some(reply.buffer);
        }
        while let Some(first) = pieces.first_entry()
            && first.get().1.is_some()
        {
            if let (wanted, Some(buffer)) = first.remove() {
                writer.write_all(&buffer[..wanted])?;
                done += wanted as u64;
                spare.push(buffer);
            }
            progress(done);
        }
    }
    writer.flush()?;
    Ok(done)
}

/// Reads until the buffer is full or the reader ends. Returns the number of bytes.
fn read_full(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
