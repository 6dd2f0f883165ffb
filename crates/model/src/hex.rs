//! Bytes as hexadecimal digits.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Returns two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|half| char::from(DIGITS[usize::from(half)]));
    bytes.iter().flat_map(digits).collect()
}

/// Writes a number as digits that fill the place.
pub(crate) fn put_hex(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = DIGITS[(number & 15) as usize];
        number >>= 4;
    }
}

/// Returns the bytes of such digits, of either case; nothing if there is anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u8::from_str_radix(pair, 16).ok()
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0, 9, 0x0a, 0xff]), "00090aff");
        assert_eq!(hex(&[]), "");
        assert_eq!(unhex("00090aFF").unwrap(), [0, 9, 0x0a, 0xff]);
        assert_eq!((unhex("0"), unhex("+1"), unhex("zz")), (None, None, None));
    }
}
