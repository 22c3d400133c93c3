//! An NBD export, over its own connection.

use std::time::Instant;

use block::Hint;
use export::nbd::{Client, Operation, Uri};
use shear::{Kind, Probe, Sample};

use super::super::common::Failure;
use super::target::{Target, refused};

/// An export.
pub(super) struct NbdTarget {
    client: Client,
    size_bytes: u64,
}

impl NbdTarget {
    pub(super) fn open(text: &str, writes: bool) -> Result<Self, Failure> {
        let uri: Uri = text.parse().map_err(|error: export::nbd::UriError| {
            refused(text, error.to_string(), &error.hint().unwrap_or_default())
        })?;
        let client = Client::connect(&uri, None).map_err(|error| {
            let hint = error.hint();
            let hint = hint.as_deref();
            let hint = hint.unwrap_or("check the server and the export's name");
            refused(text, error.to_string(), hint)
        })?;
        let info = client.info();
        if writes && info.flags & export::nbd::protocol::export_flag::READ_ONLY != 0 {
            return Err(refused(
                text,
                "the export is read-only",
                "measure it without --writes",
            ));
        }
        Ok(Self {
            size_bytes: info.size_bytes,
            client,
        })
    }
}

impl Target for NbdTarget {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn burst(&mut self, probe: &Probe) -> Result<Sample, String> {
        let mut operations = Vec::with_capacity(probe.requests.len());
        for request in &probe.requests {
            let length = usize::try_from(request.length).map_err(|error| error.to_string())?;
            operations.push(match request.kind {
                Kind::Read => Operation::Read {
                    offset: request.offset,
                    buffer: vec![0; length],
                },
                Kind::Rewrite => Operation::Write {
                    offset: request.offset,
                    buffer: self
                        .client
                        .read(request.offset, length)
                        .map_err(|error| error.to_string())?,
                    fua: false,
                },
            });
        }
        let start = Instant::now();
        let mut cookies = Vec::with_capacity(operations.len());
        for operation in operations {
            cookies.push(
                self.client
                    .submit(operation)
                    .map_err(|error| error.to_string())?,
            );
        }
        self.client.send().map_err(|error| error.to_string())?;
        let mut nanoseconds = vec![0; cookies.len()];
        for _ in 0..cookies.len() {
            let reply = self.client.wait().map_err(|error| error.to_string())?;
            let reply = reply.ok_or("the server lost a request")?;
            let reply = reply.ok().map_err(|error| error.to_string())?;
            let at = cookies.iter().position(|&cookie| cookie == reply.cookie);
            let at = at.ok_or("the server answered what was not asked")?;
            nanoseconds[at] = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(Sample { nanoseconds })
    }
}
