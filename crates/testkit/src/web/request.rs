//! A request as it came: method, target, headers, body.

/// A whole request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Returns the first header of that name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a parameter of the query, as it stands there.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Returns a header's value with its base64 form undone.
    pub(crate) fn plain(&self, name: &str) -> Option<String> {
        let value = self.header(name)?;
        let coded = value
            .strip_prefix("=?base64?")
            .and_then(|rest| rest.strip_suffix("?="));
        match coded {
            None => Some(value.to_owned()),
            Some(coded) => String::from_utf8(decode(coded)?).ok(),
        }
    }
}

/// Undoes base64 with padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    text.len().is_multiple_of(4).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_undone() {
        assert_eq!(decode("ZWNobw=="), Some(b"echo".to_vec()));
        assert_eq!(decode("4oKs"), Some("€".as_bytes().to_vec()));
        assert_eq!(decode("ZWNobw"), None);
        assert_eq!(decode("Z!=="), None);
    }
}
