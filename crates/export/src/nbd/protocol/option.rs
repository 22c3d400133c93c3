//! Options of the handshake and their answers.

use super::{Fields, IHAVEOPT, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, info, opt};

/// Bytes before an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes before the data of an answer to an option.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;

/// What precedes an option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option; see [`opt`].
    pub code: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Reads a header, `None` if it does not begin with [`IHAVEOPT`].
    #[must_use]
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u64()? != IHAVEOPT {
            return None;
        }
        Some(Self {
            code: fields.u32()?,
            length: fields.u32()?,
        })
    }
}

/// What precedes the data of an answer to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that is answered.
    pub code: u32,
    /// Which answer; see [`super::rep`].
    pub kind: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionReplyHeader {
    /// Reads a header, `None` if it does not begin with [`OPTION_REPLY_MAGIC`].
    #[must_use]
    pub fn parse(bytes: &[u8; OPTION_REPLY_HEADER_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u64()? != OPTION_REPLY_MAGIC {
            return None;
        }
        Some(Self {
            code: fields.u32()?,
            kind: fields.u32()?,
            length: fields.u32()?,
        })
    }
}

/// Why an option cannot be served. The client gets an error and may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionProblem {
    /// Lengths do not add up, or a string is not UTF-8.
    Malformed,
    /// A string is longer than [`STRING_BYTES_MAX`].
    TooBig,
    /// Not an option of this server.
    Unsupported,
}

/// An option, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionRequest<'a> {
    /// Choose an export without an answer.
    ExportName(&'a str),
    /// End the session.
    Abort,
    /// List exports.
    List,
    /// Begin TLS.
    StartTls,
    /// Query an export.
    Info(InfoRequest<'a>),
    /// Choose an export.
    Go(InfoRequest<'a>),
    /// Ask for structured replies.
    StructuredReply,
    /// List metadata contexts.
    ListMetaContext(MetaRequest<'a>),
    /// Choose metadata contexts.
    SetMetaContext(MetaRequest<'a>),
}

/// Data of `INFO` and `GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export; empty for the default one.
    pub name: &'a str,
    /// The information that the client requests; see [`info`].
    pub wanted: Vec<u16>,
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// The export.
    pub name: &'a str,
    /// Contexts or patterns.
    pub queries: Vec<&'a str>,
}

impl<'a> OptionRequest<'a> {
    /// Parses the `data` of option `code`.
    ///
    /// # Errors
    /// The problem to report to the client; the connection can continue.
    pub fn parse(code: u32, data: &'a [u8]) -> Result<Self, OptionProblem> {
        let plain = |request: Self| {
            // Known options without data are refused when they carry some (section "Option types").
            if data.is_empty() {
                Ok(request)
            } else {
                Err(OptionProblem::Malformed)
            }
        };
        match code {
            opt::EXPORT_NAME if data.len() > STRING_BYTES_MAX => Err(OptionProblem::TooBig),
            opt::EXPORT_NAME => std::str::from_utf8(data)
                .map(Self::ExportName)
                .map_err(|_| OptionProblem::Malformed),
            opt::ABORT => Ok(Self::Abort),
            opt::LIST => plain(Self::List),
            opt::STARTTLS => plain(Self::StartTls),
            opt::STRUCTURED_REPLY => plain(Self::StructuredReply),
            opt::INFO => InfoRequest::parse(data).map(Self::Info),
            opt::GO => InfoRequest::parse(data).map(Self::Go),
            opt::LIST_META_CONTEXT => MetaRequest::parse(data).map(Self::ListMetaContext),
            opt::SET_META_CONTEXT => MetaRequest::parse(data).map(Self::SetMetaContext),
            _ => Err(OptionProblem::Unsupported),
        }
    }
}

impl<'a> InfoRequest<'a> {
    fn parse(data: &'a [u8]) -> Result<Self, OptionProblem> {
        let fields = || -> Option<Self> {
            let mut fields = Fields(data);
            let name = fields.string()?;
            let count = fields.u16()?;
            let wanted = (0..count).map(|_| fields.u16()).collect::<Option<_>>()?;
            fields.is_empty().then_some(Self { name, wanted })
        };
        fields().ok_or(OptionProblem::Malformed)
    }

    /// Appends the data in wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_string(out, self.name);
        out.extend(
            u16::try_from(self.wanted.len())
                .unwrap_or(u16::MAX)
                .to_be_bytes(),
        );
        for wanted in self.wanted.iter().take(usize::from(u16::MAX)) {
            out.extend(wanted.to_be_bytes());
        }
    }
}

impl<'a> MetaRequest<'a> {
    fn parse(data: &'a [u8]) -> Result<Self, OptionProblem> {
        let fields = || -> Option<Self> {
            let mut fields = Fields(data);
            let name = fields.string()?;
            let count = fields.u32()?;
            // Each query has at least its length field, so a huge count fails at the end of the data, without an
            // allocation for it.
            let mut queries = Vec::new();
            for _ in 0..count {
                queries.push(fields.string()?);
            }
            fields.is_empty().then_some(Self { name, queries })
        };
        fields().ok_or(OptionProblem::Malformed)
    }

    /// Appends the data in wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_string(out, self.name);
        out.extend(
            u32::try_from(self.queries.len())
                .unwrap_or(u32::MAX)
                .to_be_bytes(),
        );
        for query in &self.queries {
            put_string(out, query);
        }
    }
}

/// A string with its length in front, cut at [`STRING_BYTES_MAX`].
fn put_string(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(STRING_BYTES_MAX)];
    out.extend(len32(bytes));
    out.extend(bytes);
}

fn len32(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Appends an option, client to server.
pub fn encode_option(out: &mut Vec<u8>, code: u32, data: &[u8]) {
    out.extend(IHAVEOPT.to_be_bytes());
    out.extend(code.to_be_bytes());
    out.extend(len32(data));
    out.extend(data);
}

/// Appends an answer of type `kind` to option `code`, server to client.
pub fn encode_option_reply(out: &mut Vec<u8>, code: u32, kind: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(code.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(len32(data));
    out.extend(data);
}

/// Data of an `INFO` answer: size in bytes and transmission flags.
#[must_use]
pub fn encode_info_export(size_bytes: u64, flags: u16) -> Vec<u8> {
    let mut data = info::EXPORT.to_be_bytes().to_vec();
    data.extend(size_bytes.to_be_bytes());
    data.extend(flags.to_be_bytes());
    data
}

/// Data of an `INFO` answer: block sizes in bytes.
#[must_use]
pub fn encode_info_block_size(min: u32, preferred: u32, max: u32) -> Vec<u8> {
    let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
    data.extend(min.to_be_bytes());
    data.extend(preferred.to_be_bytes());
    data.extend(max.to_be_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_parses_back() {
        let request = InfoRequest {
            name: "tank/ärger",
            wanted: vec![info::BLOCK_SIZE, info::NAME],
        };
        let mut data = Vec::new();
        request.encode(&mut data);
        assert_eq!(
            OptionRequest::parse(opt::GO, &data),
            Ok(OptionRequest::Go(request))
        );

        let request = MetaRequest {
            name: "",
            queries: vec!["base:allocation", "qemu:"],
        };
        let mut data = Vec::new();
        request.encode(&mut data);
        assert_eq!(
            OptionRequest::parse(opt::SET_META_CONTEXT, &data),
            Ok(OptionRequest::SetMetaContext(request))
        );
    }

    #[test]
    fn every_truncation_and_every_surplus_byte_is_malformed() {
        let mut data = Vec::new();
        MetaRequest {
            name: "tank/data",
            queries: vec!["base:allocation"],
        }
        .encode(&mut data);
        for cut in 0..data.len() {
            assert_eq!(
                OptionRequest::parse(opt::LIST_META_CONTEXT, &data[..cut]),
                Err(OptionProblem::Malformed),
                "{cut} bytes"
            );
        }
        data.push(0);
        assert_eq!(
            OptionRequest::parse(opt::LIST_META_CONTEXT, &data),
            Err(OptionProblem::Malformed)
        );
    }

    #[test]
    fn a_huge_query_count_is_refused_without_allocating_for_it() {
        let mut data = 0_u32.to_be_bytes().to_vec();
        data.extend(u32::MAX.to_be_bytes());
        assert_eq!(
            OptionRequest::parse(opt::SET_META_CONTEXT, &data),
            Err(OptionProblem::Malformed)
        );
    }
}
