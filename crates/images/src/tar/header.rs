//! Parses one header block of a tar archive.
//!
//! Supports the formats that occur in images: v7, ustar, star, GNU and PAX.

use super::refusal::Refusal;

/// The block size of tar.
pub(crate) const BLOCK: usize = 512;

/// A header block with a valid checksum.
pub(crate) struct Header<'a>(&'a [u8; BLOCK]);

impl<'a> Header<'a> {
    /// Verifies the checksum; some old programs computed it with signed bytes.
    pub(crate) fn parse(block: &'a [u8; BLOCK]) -> Result<Self, Refusal> {
        let recorded = number(&block[148..156], "checksum").map_err(|_| Refusal::Checksum)?;
        let field = |at: usize| (148..156).contains(&at);
        let (mut unsigned, mut signed) = (0_i64, 0_i64);
        for (at, &byte) in block.iter().enumerate() {
            let byte = if field(at) { b' ' } else { byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        if recorded != unsigned && recorded != signed {
            return Err(Refusal::Checksum);
        }
        Ok(Self(block))
    }

    /// Returns the type byte.
    pub(crate) fn kind(&self) -> u8 {
        self.0[156]
    }

    /// Returns the name, including the prefix in formats that have one.
    pub(crate) fn path(&self) -> Vec<u8> {
        let name = text(&self.0[..100]);
        let prefix = text(self.prefix());
        if prefix.is_empty() {
            return name.to_vec();
        }
        [prefix, b"/", name].concat()
    }

    /// Returns the target of a link.
    pub(crate) fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    pub(crate) fn size(&self) -> Result<u64, Refusal> {
        let size = number(&self.0[124..136], "size")?;
        u64::try_from(size).map_err(|_| Refusal::Number { field: "size" })
    }

    /// Returns the permission bits; some programs write the file type into the bits above.
    pub(crate) fn mode(&self) -> Result<u32, Refusal> {
        Ok((number(&self.0[100..108], "mode")? & 0o7777) as u32)
    }

    pub(crate) fn uid(&self) -> Result<i64, Refusal> {
        number(&self.0[108..116], "uid")
    }

    pub(crate) fn gid(&self) -> Result<i64, Refusal> {
        number(&self.0[116..124], "gid")
    }

    pub(crate) fn mtime(&self) -> Result<i64, Refusal> {
        number(&self.0[136..148], "mtime")
    }

    fn prefix(&self) -> &[u8] {
        // GNU uses this field differently, and v7 does not have it.
        match (&self.0[257..263], &self.0[508..512]) {
            (b"ustar\0", b"tar\0") => &self.0[345..476],
            (b"ustar\0", _) => &self.0[345..500],
            _ => b"",
        }
    }
}

/// Returns a field up to its first zero byte.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// Parses an octal number, or a binary one if the first bit is set.
fn number(bytes: &[u8], field: &'static str) -> Result<i64, Refusal> {
    let refused = || Refusal::Number { field };
    if let Some((&first, rest)) = bytes.split_first()
        && first & 0x80 != 0
    {
        // Two's complement without the first bit. Twelve bytes cannot overflow this.
        let start = i128::from(first & 0x7f) - if first & 0x40 == 0 { 0 } else { 0x80 };
        let value = rest
            .iter()
            .fold(start, |value, &byte| (value << 8) | i128::from(byte));
        return i64::try_from(value).map_err(|_| refused());
    }
    let padding = |byte: &u8| matches!(byte, b' ' | 0);
    let from = bytes.iter().position(|byte| !padding(byte));
    let digits = text(&bytes[from.unwrap_or(bytes.len())..]).trim_ascii_end();
    digits.iter().try_fold(0_i64, |value, &digit| match digit {
        b'0'..=b'7' => Ok((value << 3) | i64::from(digit - b'0')),
        _ => Err(refused()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<i64> {
        number(bytes, "size").ok()
    }

    #[test]
    fn numbers_are_octal_or_binary_and_never_overflow() {
        assert_eq!(read(b"00000001750\0"), Some(0o1750));
        assert_eq!(read(b"    1750 \0  "), Some(0o1750));
        assert_eq!(read(b"777777777777"), Some(0o777_777_777_777));
        assert_eq!(read(b"\0\0\0\0\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(read(b"-0000000001\0"), None);
        assert_eq!(read(b"0000000008\0\0"), None);
        assert_eq!(read(b"0x10\0\0\0\0\0\0\0\0"), None);
        assert_eq!(read(b"17 50\0\0\0\0\0\0\0"), None);

        let binary = |first: u8, value: i64| {
            let mut field = [if value < 0 { 0xff } else { 0 }; 12];
            field[4..].copy_from_slice(&value.to_be_bytes());
            field[0] = first;
            read(&field)
        };
        assert_eq!(binary(0x80, 1 << 40), Some(1 << 40));
        assert_eq!(binary(0x80, i64::MAX), Some(i64::MAX));
        assert_eq!(binary(0xff, -1), Some(-1));
        assert_eq!(binary(0xff, i64::MIN), Some(i64::MIN));
        assert_eq!(binary(0x81, 1), None, "over 64 bits");
        assert_eq!(binary(0xbf, 1), None, "the largest number of twelve bytes");
        assert_eq!(
            binary(0xc0, -1),
            None,
            "the smallest number of twelve bytes"
        );
    }
}
