//! The one checksum that is used on drives.

/// CRC-32C (Castagnoli) of `bytes`, as in iSCSI: the initial value is all ones, the result is inverted.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4.
    #[test]
    fn the_vectors_of_the_rfc_hold() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (bytes, sum) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), sum, "{bytes:x?}");
        }
    }

    /// Long inputs use other instructions than short inputs.
    #[test]
    fn every_length_is_what_bit_by_bit_gives() {
        let bytes: Vec<u8> = (0_u32..5000)
            .map(|i| ((i * i) >> 3).to_le_bytes()[0])
            .collect();
        let mut sum = u32::MAX;
        for (length, &byte) in bytes.iter().enumerate() {
            assert_eq!(crc32c(&bytes[..length]), !sum, "{length} bytes");
            sum ^= u32::from(byte);
            for _ in 0..8 {
                sum = (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg());
            }
        }
    }
}
