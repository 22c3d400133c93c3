//! The correct value of every byte of a volume, from the client's side alone.

/// The bytes that a client has written. Requests are issued one after another, so every read has one correct answer.
#[derive(Clone, Debug)]
pub struct Oracle {
    bytes: Vec<u8>,
}

impl Oracle {
    /// A fresh volume: zeros.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self {
            bytes: vec![0; usize::try_from(size_bytes).expect("fits into memory")],
        }
    }

    /// A write was acknowledged.
    pub fn wrote(&mut self, offset: u64, bytes: &[u8]) {
        let low = usize::try_from(offset).expect("fits into memory");
        self.bytes[low..low + bytes.len()].copy_from_slice(bytes);
    }

    /// What a read must return.
    #[must_use]
    pub fn expected(&self, offset: u64, length: u64) -> &[u8] {
        let low = usize::try_from(offset).expect("fits into memory");
        &self.bytes[low..low + usize::try_from(length).expect("fits into memory")]
    }

    /// Panics with the first differing block unless `read` is right.
    pub fn check(&self, offset: u64, read: &[u8], when: &str) {
        let expected = self.expected(offset, read.len() as u64);
        // Nearly all reads are right, and slices compare faster than bytes one by one.
        if expected != read {
            let differ = |(a, b): (&u8, &u8)| a != b;
            let at = expected.iter().zip(read).position(differ);
            let at = at.expect("the slices differ and are of one length");
            panic!(
                "{when}: byte {} is {:#04x} and must be {:#04x}",
                offset + at as u64,
                read[at],
                expected[at]
            );
        }
    }
}
