//! The client's side of the handshake.

use std::io;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::super::protocol::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, IHAVEOPT,
    InfoRequest, MetaRequest, NBDMAGIC, OPTION_REPLY_HEADER_BYTES, OptionReplyHeader,
    REQUEST_BYTES_MAX, encode_option, info, opt, rep,
};
use super::super::tls::ClientTls;
use super::conversation::{Conversation, be16, be32, be64};
use super::{ClientError, ExportInfo};

const fn protocol(what: &'static str) -> ClientError {
    ClientError::Protocol { what }
}

impl Conversation {
    /// Reads the greeting and replies with the client's flags.
    pub(super) fn greet(&mut self) -> Result<(), ClientError> {
        let greeting = self.take(18)?;
        let (magic, second) = (be64(greeting), be64(&greeting[8..]));
        let flags = be16(&greeting[16..]);
        if magic != NBDMAGIC || second != IHAVEOPT || flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(protocol("the greeting"));
        }
        let flags = u32::from(flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
        self.queue(&flags.to_be_bytes());
        Ok(())
    }

    /// Sends an option and returns its answers up to the final one.
    fn negotiate(&mut self, code: u32, data: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
        let mut bytes = Vec::new();
        encode_option(&mut bytes, code, data);
        self.queue(&bytes);
        let mut answers = Vec::new();
        loop {
            let header = self
                .take(OPTION_REPLY_HEADER_BYTES)?
                .first_chunk()
                .and_then(OptionReplyHeader::parse)
                .filter(|header| header.code == code)
                .ok_or(protocol("the answer to an option"))?;
            let data = self.take(header.length as usize)?.to_vec();
            let last = header.kind == rep::ACK || header.kind & rep::FLAG_ERROR != 0;
            answers.push((header.kind, data));
            if last {
                return Ok(answers);
            }
            if answers.len() > 1 << 20 {
                return Err(protocol("an endless answer"));
            }
        }
    }

    /// As `negotiate`, with an error answer turned into an error.
    fn settle(
        &mut self,
        what: &'static str,
        code: u32,
        data: &[u8],
    ) -> Result<Vec<(u32, Vec<u8>)>, ClientError> {
        let answers = self.negotiate(code, data)?;
        match answers.last() {
            Some((rep::ERR_TLS_REQD, _)) => Err(ClientError::TlsRequired),
            Some((kind, message)) if kind & rep::FLAG_ERROR != 0 => Err(ClientError::Refused {
                what,
                message: String::from_utf8_lossy(message).into_owned(),
            }),
            _ => Ok(answers),
        }
    }

    /// Negotiates STARTTLS, then switches the connection to TLS.
    pub(super) fn start_tls(&mut self, tls: &ClientTls, host: &str) -> Result<(), ClientError> {
        self.settle("TLS", opt::STARTTLS, &[])?;
        if !self.input_is_empty() {
            return Err(protocol("plain text behind the answer to STARTTLS"));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(tls.config(), name).map_err(io::Error::other)?;
        self.transport.begin_tls(session.into());
        Ok(())
    }

    /// Names of all exports.
    pub(super) fn list(&mut self) -> Result<Vec<String>, ClientError> {
        let answers = self.settle("to list exports", opt::LIST, &[])?;
        let mut names = Vec::new();
        for (kind, data) in answers {
            if kind != rep::SERVER {
                continue;
            }
            let length = be32(&data) as usize;
            let name = data
                .get(4..4 + length)
                .ok_or(protocol("an export's name"))?;
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    /// Chooses the export `name`, with structured replies and block status if the server supports them.
    pub(super) fn go(&mut self, name: &str) -> Result<ExportInfo, ClientError> {
        let structured = match self.settle("structured replies", opt::STRUCTURED_REPLY, &[]) {
            Ok(_) => true,
            Err(ClientError::Refused { .. }) => false,
            Err(error) => return Err(error),
        };
        let allocation = structured && self.choose_allocation(name)?;
        let mut data = Vec::new();
        InfoRequest {
            name,
            wanted: vec![info::NAME, info::BLOCK_SIZE],
        }
        .encode(&mut data);
        let answers = self.negotiate(opt::GO, &data)?;
        match answers.last() {
            Some((rep::ACK, _)) => {}
            Some((rep::ERR_UNKNOWN, _)) => {
                return Err(ClientError::NoSuchExport {
                    name: name.to_owned(),
                });
            }
            Some((rep::ERR_TLS_REQD, _)) => return Err(ClientError::TlsRequired),
            other => {
                let message = other.map(|(_, data)| String::from_utf8_lossy(data).into_owned());
                return Err(ClientError::Refused {
                    what: "the export",
                    message: message.unwrap_or_default(),
                });
            }
        }
        describe(name, allocation, &answers)
    }

    fn choose_allocation(&mut self, name: &str) -> Result<bool, ClientError> {
        let mut data = Vec::new();
        MetaRequest {
            name,
            queries: vec![BASE_ALLOCATION],
        }
        .encode(&mut data);
        let answers = self.negotiate(opt::SET_META_CONTEXT, &data)?;
        // The server chooses the context's number. Replies are parsed only for `BASE_ALLOCATION_ID`, so with any
        // other number block status is not used.
        Ok(answers
            .iter()
            .any(|(kind, data)| *kind == rep::META_CONTEXT && be32(data) == BASE_ALLOCATION_ID))
    }

    /// Ends the negotiation with `ABORT`. The answer does not matter.
    pub(super) fn abort(&mut self) {
        let _ = self.negotiate(opt::ABORT, &[]);
    }
}

/// Assembles the export's description from the answers to `GO`.
fn describe(
    name: &str,
    allocation: bool,
    answers: &[(u32, Vec<u8>)],
) -> Result<ExportInfo, ClientError> {
    let mut export = None;
    let mut block_sizes = (1, 4096, REQUEST_BYTES_MAX);
    let mut full_name = name.to_owned();
    for (kind, data) in answers {
        if *kind != rep::INFO {
            continue;
        }
        match (be16(data), data.len()) {
            (info::EXPORT, 12) => export = Some((be64(&data[2..]), be16(&data[10..]))),
            (info::BLOCK_SIZE, 14) => {
                block_sizes = (be32(&data[2..]), be32(&data[6..]), be32(&data[10..]));
            }
            (info::NAME, 2..) => full_name = String::from_utf8_lossy(&data[2..]).into_owned(),
            _ => {}
        }
    }
    let (size_bytes, flags) = export.ok_or(protocol("no size in the answer to GO"))?;
    Ok(ExportInfo {
        name: full_name,
        size_bytes,
        flags,
        block_sizes,
        allocation,
    })
}
