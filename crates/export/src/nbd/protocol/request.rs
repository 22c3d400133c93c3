//! Requests of the transmission phase.

use super::{Fields, REQUEST_MAGIC};

/// Bytes of a request without a write's payload.
pub const REQUEST_BYTES: usize = 28;

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send the range's bytes.
    Read,
    /// Store the payload that follows.
    Write,
    /// Finish what is in flight, then close.
    Disconnect,
    /// Make all that was acknowledged durable.
    Flush,
    /// The range is no longer needed.
    Trim,
    /// The range will soon be read.
    Cache,
    /// Make the range read as zeros.
    WriteZeroes,
    /// Report which parts of the range are allocated.
    BlockStatus,
}

impl Command {
    /// The command with number `number`, if there is one.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            _ => return None,
        })
    }

    /// The command's number.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::Cache => 5,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
        }
    }
}

/// A request as it stands on the wire; nothing but the magic number is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// See [`super::command_flag`].
    pub flags: u16,
    /// See [`Command::from_number`].
    pub command: u16,
    /// The client's identifier of the request, repeated in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Reads a request, `None` if it does not begin with [`REQUEST_MAGIC`].
    #[must_use]
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// The request in wire form.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Bytes that follow the header: a write's payload.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        if self.command == Command::Write.number() {
            self.length
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_wire() {
        let request = RequestHeader {
            flags: 0x1234,
            command: Command::Trim.number(),
            cookie: 0x0102_0304_0506_0708,
            offset: u64::MAX - 5,
            length: 77,
        };
        assert_eq!(RequestHeader::parse(&request.encode()), Some(request));
        let mut bytes = request.encode();
        bytes[3] ^= 1;
        assert_eq!(RequestHeader::parse(&bytes), None);
    }

    #[test]
    fn command_numbers_go_both_ways() {
        for number in 0..=u16::MAX {
            if let Some(command) = Command::from_number(number) {
                assert_eq!(command.number(), number);
            }
        }
        assert_eq!(
            Command::from_number(8),
            None,
            "resize was never standardised"
        );
    }
}
