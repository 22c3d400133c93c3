//! Buffers at page boundaries, as an array provides them.

/// Zeroed memory that starts at a page.
pub(crate) struct Pages {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

const PAGE: usize = 4096;

impl Pages {
    /// Filled with bytes that differ, so that no page is shared or unmapped.
    pub(crate) fn new(length: usize) -> Self {
        let mut bytes = vec![0u8; length + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        let mut state = 0x9e37_79b9u32;
        for byte in &mut bytes {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = state.to_be_bytes()[0];
        }
        Self {
            bytes,
            start,
            length,
        }
    }

    /// The strips by stripe, `strips` strips for each stripe.
    pub(crate) fn stripes(&mut self, strips: usize, strip_bytes: usize) -> Vec<Vec<&mut [u8]>> {
        let bytes = &mut self.bytes[self.start..self.start + self.length];
        let mut all: Vec<&mut [u8]> = bytes.chunks_exact_mut(strip_bytes).collect();
        let mut stripes = Vec::new();
        while all.len() >= strips {
            let rest = all.split_off(strips);
            stripes.push(std::mem::replace(&mut all, rest));
        }
        stripes
    }
}
