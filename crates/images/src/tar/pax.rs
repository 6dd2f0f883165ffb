//! PAX extension headers: records of `length key=value`, for one entry or for all that follow.
//!
//! Only keys that matter for an image are used. Keys that programs interpret differently are
//! refused.

use super::refusal::{Refusal, shown};

/// The prefix of extended attributes.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// The prefix of all forms of sparse files.
const SPARSE: &[u8] = b"GNU.sparse.";

/// The data of a PAX header for the next entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<i64>,
    pub(super) gid: Option<i64>,
    /// Seconds and nanoseconds.
    pub(super) mtime: Option<(i64, u32)>,
    /// Names and values, in their order.
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Pax {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut pax = Self::default();
        for record in Records(bytes) {
            let (key, value) = record?;
            match key {
                b"path" => once(&mut pax.path, text(value), "path")?,
                b"linkpath" => once(&mut pax.link, text(value), "linkpath")?,
                b"size" => once(&mut pax.size, decimal(value, "size")?, "size")?,
                b"uid" => once(&mut pax.uid, decimal(value, "uid")?, "uid")?,
                b"gid" => once(&mut pax.gid, decimal(value, "gid")?, "gid")?,
                b"mtime" => once(&mut pax.mtime, time(value)?, "mtime")?,
                _ if key.starts_with(SPARSE) => return Err(Refusal::Sparse),
                _ => {
                    if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                        pax.attributes.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
        }
        Ok(pax)
    }

    /// Accepts a global header only if it changes no entry: programs differ in how they apply it.
    pub(super) fn check_global(bytes: &[u8]) -> Result<(), Refusal> {
        for record in Records(bytes) {
            let (key, _) = record?;
            let changes = matches!(key, b"path" | b"linkpath" | b"size" | b"uid" | b"gid")
                || key.starts_with(SPARSE)
                || key.starts_with(ATTRIBUTE);
            if changes {
                return Err(Refusal::GlobalHeader { key: shown(key) });
            }
        }
        Ok(())
    }
}

/// Iterates over the records of a header.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.0 = b"";
        }
        Some(record)
    }
}

impl<'a> Records<'a> {
    fn record(&mut self) -> Result<(&'a [u8], &'a [u8]), Refusal> {
        let malformed = |reason| Refusal::Pax { reason };
        let space = self.0.iter().take(8).position(|&byte| byte == b' ');
        let space = space.ok_or(malformed("a record has no length"))?;
        let digits = &self.0[..space];
        let length: usize = plain_decimal(digits)
            .ok_or(malformed("the length of a record is not a number"))?
            .try_into()
            .map_err(|_| malformed("the length of a record is too large"))?;
        if length > self.0.len() || length < space + 2 {
            return Err(malformed("the length of a record does not fit"));
        }
        let (record, rest) = self.0.split_at(length);
        let Some((b'\n', content)) = record[space + 1..].split_last() else {
            return Err(malformed("a record has no end of line"));
        };
        let equals = content.iter().position(|&byte| byte == b'=');
        let equals = equals.ok_or(malformed("a record has no value"))?;
        if equals == 0 {
            return Err(malformed("a record has no key"));
        }
        self.0 = rest;
        Ok((&content[..equals], &content[equals + 1..]))
    }
}

/// Sets a value once; an empty value means that the tar header's own value applies.
fn once<T>(place: &mut Option<T>, value: Option<T>, field: &'static str) -> Result<(), Refusal> {
    match (&place, value) {
        (_, None) => Ok(()),
        (Some(_), Some(_)) => Err(Refusal::GivenTwice { field }),
        (None, value) => {
            *place = value;
            Ok(())
        }
    }
}

fn text(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

fn decimal<T: TryFrom<u64>>(value: &[u8], field: &'static str) -> Result<Option<T>, Refusal> {
    if value.is_empty() {
        return Ok(None);
    }
    plain_decimal(value)
        .and_then(|number| T::try_from(number).ok())
        .map(Some)
        .ok_or(Refusal::Number { field })
}

/// Parses digits only: no sign, no space.
fn plain_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses seconds with a fraction; may be before 1970.
fn time(value: &[u8]) -> Result<Option<(i64, u32)>, Refusal> {
    if value.is_empty() {
        return Ok(None);
    }
    let refused = Refusal::Number { field: "mtime" };
    let (negative, value) = match value.strip_prefix(b"-") {
        Some(value) => (true, value),
        None => (false, value),
    };
    let (seconds, fraction) = match value.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&value[..dot], &value[dot + 1..]),
        None => (value, &b""[..]),
    };
    let Some(seconds) = plain_decimal(seconds).and_then(|seconds| i64::try_from(seconds).ok())
    else {
        return Err(refused);
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(refused);
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0'));
    let nanoseconds = digits
        .take(9)
        .fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
    Ok(Some(match (negative, nanoseconds) {
        (false, _) => (seconds, nanoseconds),
        (true, 0) => (-seconds, 0),
        (true, _) => (-seconds - 1, 1_000_000_000 - nanoseconds),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &str) -> String {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        format!("{length} {key}={value}\n")
    }

    #[test]
    fn records_are_read_by_their_length() {
        let header = [
            record("path", "a\nb = c"),
            record("mtime", "1700000000.25"),
            record("comment", ""),
            record("SCHILY.xattr.user.a", "x"),
            record("uid", ""),
        ];
        let pax = Pax::parse(header.concat().as_bytes()).unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a\nb = c"[..]));
        assert_eq!(pax.mtime, Some((1_700_000_000, 250_000_000)));
        assert_eq!(pax.attributes, [(b"user.a".to_vec(), b"x".to_vec())]);
        assert_eq!(pax.uid, None);
    }

    #[test]
    fn malformed_records_are_refused() {
        let malformed = [
            "path=x\n",
            "9 path=x\n9",
            "0 a=b\n",
            "3 \n",
            "99 path=x\n",
            "8 pathx\n",
            "+9 path=x\n",
            "9 path=xx",
            "5 =x\n",
            "99999999999999999999999 a=b\n",
            "\0\0\0\0",
        ];
        for text in malformed {
            let refused = Pax::parse(text.as_bytes());
            assert!(
                matches!(refused, Err(Refusal::Pax { .. })),
                "{text:?} {refused:?}"
            );
        }
    }

    #[test]
    fn times_may_lie_before_1970_and_have_fractions() {
        assert_eq!(time(b"-1.5"), Ok(Some((-2, 500_000_000))));
        assert_eq!(time(b"-3"), Ok(Some((-3, 0))));
        assert_eq!(time(b"1.0000000019"), Ok(Some((1, 1))));
        for wrong in ["1e9", "--1", "1.-5", ".", "9223372036854775808"] {
            assert!(time(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
