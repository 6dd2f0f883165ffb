//! The name of a volume on disk: its path inside a server, as one file name. Pure.

use std::path::{Path, PathBuf};

/// The longest file name, in bytes.
const LONGEST: usize = 255;

/// Returns the name of a volume on disk, unique for every path: all characters but letters, digits,
/// `.`, `_` and `-` in hexadecimal.
pub fn volume_name(path: &Path) -> String {
    let text = path.as_os_str().as_encoded_bytes();
    let text = text.strip_prefix(b"/").unwrap_or(text);
    let mut name = String::new();
    for (index, byte) in text.iter().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if is_plain || *byte == b'.' && index > 0 {
            name.push(char::from(*byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

/// Returns the path of a volume from its name.
pub fn volume_path(name: &str) -> Option<PathBuf> {
    let mut bytes = vec![b'/'];
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

/// Returns whether the name of a volume fits a file system.
pub fn volume_fits(path: &Path) -> bool {
    volume_name(path).len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_name_and_back() {
        for path in ["/data", "/var/lib/x", "/a b/.c", "/ä%", "/.hidden", "/a..b"] {
            let name = volume_name(Path::new(path));
            assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
            assert_eq!(volume_path(&name).unwrap(), Path::new(path));
        }
    }
}
