//! Bytes as lower-case hexadecimal digits.

/// Returns two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|half| char::from(DIGITS[usize::from(half)]));
    bytes.iter().flat_map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0, 9, 0x0a, 0xff]), "00090aff");
        assert_eq!(hex(&[]), "");
    }
}
