//! A world from the client's side.

use array::format::GroupId;
use array::router::Part;
use array::{GroupRequest, VolumeId};
use block::{Fault, Request, RequestKind};

use super::World;
use super::requests::part_of;
use crate::buffer::{Buffer, Contents, Sectors};
use crate::content::SECTOR;

/// A part of a client's bytes.
fn cut(buffer: &Buffer, at: u64, length: u64) -> Buffer {
    let at = usize::try_from(at).expect("fits into memory");
    let length = usize::try_from(length).expect("fits into memory");
    match buffer {
        Buffer::Bytes(bytes) => Buffer::Bytes(bytes[at..at + length].to_vec()),
        Buffer::Sectors(sectors) => {
            let range = at / SECTOR..(at + length) / SECTOR;
            Buffer::Sectors(Sectors::new(sectors.values()[range].to_vec()))
        }
        Buffer::Length(_) => Buffer::Length(length),
    }
}

impl World {
    /// Starts a request; its bytes (for a write) or length come with it.
    ///
    /// # Panics
    /// When there is no such volume or the request is outside.
    pub fn submit(&mut self, volume: &str, request: Request, bytes: &[u8]) -> u64 {
        self.submit_buffer(volume, request, Buffer::Bytes(bytes.to_vec()))
    }

    /// Starts a request on symbolic contents: one byte for each sector of a write.
    pub(crate) fn submit_sectors(
        &mut self,
        volume: &str,
        request: Request,
        values: Vec<u8>,
    ) -> u64 {
        self.submit_buffer(volume, request, Buffer::Sectors(Sectors::new(values)))
    }

    /// Starts a request of a client that has no oracle: without content, or, where drives store, with content that
    /// changes with each request and is never zeros.
    pub(crate) fn submit_any(&mut self, volume: &str, request: Request) -> u64 {
        let length = usize::try_from(request.length).expect("fits into memory");
        let buffer = match self.contents {
            Contents::Lengths => Buffer::Length(length),
            Contents::Bytes | Contents::Sectors => {
                let value = u8::try_from(self.requests.begun() % 255).expect("a remainder");
                Buffer::Sectors(Sectors::new(vec![value + 1; length / SECTOR]))
            }
        };
        self.submit_buffer(volume, request, buffer)
    }

    /// In a study: an answered request whose outcome has not been taken.
    pub(crate) fn take_answered(&mut self) -> Option<u64> {
        self.requests.take_answered()
    }

    /// The holes in a range of a volume, as the lanes report them without I/O.
    pub(crate) fn holes(&self, volume: &str, (offset, length): (u64, u64)) -> Vec<(u64, u64)> {
        let request = Request {
            kind: RequestKind::Read,
            offset,
            length,
            fua: false,
        };
        let mut holes = Vec::new();
        for part in self.volumes[volume].split(&request) {
            let GroupRequest {
                group,
                request,
                buffer_offset,
                volume: _,
            } = part.request;
            let lane = &self.lanes[usize::from(part.lane)];
            let mut at = offset + buffer_offset;
            for extent in lane.extents(group, request.offset..request.offset + request.length) {
                if extent.hole {
                    holes.push((at, extent.length));
                }
                at += extent.length;
            }
        }
        holes
    }

    fn submit_buffer(&mut self, volume: &str, request: Request, buffer: Buffer) -> u64 {
        let parts: Vec<Part> = if request.kind == RequestKind::Flush {
            self.flush_parts(request)
        } else {
            self.volumes[volume].split(&request)
        };
        let id = self.requests.begin(request.kind, parts.len());
        let mut whole = Some(buffer);
        let only = parts.len() == 1;
        for (index, mut part) in parts.into_iter().enumerate() {
            let lane_request = part_of(id, index);
            let length = part.request.request.length;
            let buffer = match request.kind {
                RequestKind::Write if only => whole.take().expect("there is one part"),
                RequestKind::Write => {
                    let whole = whole.as_ref().expect("taken by a lone part only");
                    cut(whole, part.request.buffer_offset, length)
                }
                RequestKind::Read => self.blank(length),
                RequestKind::Flush
                | RequestKind::Trim
                | RequestKind::Discard
                | RequestKind::WriteZeroes => self.blank(0),
            };
            part.request.buffer_offset = 0;
            let lane = usize::from(part.lane);
            self.scratch[lane].lend(lane_request, buffer);
            self.lanes[lane].handle_request(self.now, lane_request, part.request);
            self.poll_lane(part.lane);
        }
        id
    }

    /// The parts of a flush: it is a barrier in every lane.
    fn flush_parts(&self, request: Request) -> Vec<Part> {
        (0..self.pool.geometry().lanes())
            .map(|lane| Part {
                lane,
                request: GroupRequest {
                    group: GroupId(u64::from(lane)),
                    request,
                    buffer_offset: 0,
                    volume: VolumeId::NONE,
                },
            })
            .collect()
    }

    /// A buffer that has not been filled yet.
    fn blank(&self, length: u64) -> Buffer {
        let length = usize::try_from(length).expect("fits into memory");
        match self.contents {
            Contents::Sectors => Buffer::Sectors(Sectors::new(vec![0xee; length / SECTOR])),
            Contents::Bytes => Buffer::Bytes(vec![0xee; length]),
            Contents::Lengths => Buffer::Length(length),
        }
    }

    /// Number of requests answered.
    pub(crate) const fn answered(&self) -> u64 {
        self.requests.answered()
    }

    /// The outcome of a request, if it has ended; for a read, the data of its parts.
    pub(crate) fn ended_pieces(&mut self, id: u64) -> Option<Result<Vec<Buffer>, Fault>> {
        self.requests.take_ended(id)
    }

    /// The outcome of a request, if it has ended; for a read, its bytes.
    pub fn ended(&mut self, id: u64) -> Option<Result<Vec<u8>, Fault>> {
        let outcome = self.ended_pieces(id)?;
        Some(outcome.map(|pieces| {
            let total: usize = pieces.iter().map(Buffer::len).sum();
            let mut all = Vec::new();
            for piece in pieces {
                match piece {
                    // A lone piece is not copied.
                    Buffer::Bytes(bytes) if bytes.len() == total => all = bytes,
                    Buffer::Bytes(bytes) => {
                        all.reserve_exact(total - all.len());
                        all.extend_from_slice(&bytes);
                    }
                    Buffer::Sectors(_) | Buffer::Length(_) => {
                        unreachable!("a world without bytes has its own clients")
                    }
                }
            }
            all
        }))
    }

    /// Submits a request and runs until it has ended.
    ///
    /// # Errors
    /// The error that the client gets.
    ///
    /// # Panics
    /// When it never ends.
    pub fn request(
        &mut self,
        volume: &str,
        request: Request,
        bytes: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let id = self.submit(volume, request, bytes);
        loop {
            if let Some(end) = self.ended(id) {
                return end;
            }
            assert!(self.step(), "the request ends before everything is quiet");
        }
    }

    /// Writes.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn write(&mut self, volume: &str, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let request = Request {
            kind: RequestKind::Write,
            offset,
            length: bytes.len() as u64,
            fua: false,
        };
        self.request(volume, request, bytes).map(drop)
    }

    /// Reads.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn read(&mut self, volume: &str, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
        let request = Request {
            kind: RequestKind::Read,
            offset,
            length,
            fua: false,
        };
        self.request(volume, request, &[])
    }
}
