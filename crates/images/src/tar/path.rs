//! The normalized path of an entry: relative, without `.`, `..` and empty parts.

use super::refusal::Refusal;

/// The longest path: below the kernel's 4,096, with room for a parent folder.
const LONGEST_PATH: usize = 4_000;
/// The longest name on Linux file systems.
const LONGEST_NAME: usize = 255;
/// The deepest path. Walking a tree keeps one folder open per level.
const DEEPEST: usize = 128;

/// The path of an entry below the root; empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPath {
    bytes: Vec<u8>,
    /// The offset of the last name.
    name: usize,
}

impl EntryPath {
    /// Parses a path of an archive; `what` names it in a refusal. A leading `/` means the root.
    pub(crate) fn parse(raw: &[u8], what: &'static str) -> Result<Self, Refusal> {
        if raw.is_empty() {
            return Err(Refusal::Empty { what });
        }
        if raw.len() > LONGEST_PATH {
            return Err(Refusal::TooLong {
                what,
                bytes: raw.len(),
                limit: LONGEST_PATH,
            });
        }
        if raw.contains(&0) {
            return Err(Refusal::Nul { what });
        }
        let mut path = Self {
            bytes: Vec::with_capacity(raw.len()),
            name: 0,
        };
        let mut depth = 0;
        for part in raw.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(Refusal::ParentFolder { what }),
                _ if part.len() > LONGEST_NAME => {
                    return Err(Refusal::TooLong {
                        what: "name",
                        bytes: part.len(),
                        limit: LONGEST_NAME,
                    });
                }
                _ => {
                    depth += 1;
                    path.push(part);
                }
            }
        }
        if depth > DEEPEST {
            return Err(Refusal::TooDeep { limit: DEEPEST });
        }
        Ok(path)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the last name; empty for the root.
    pub(crate) fn name(&self) -> &[u8] {
        &self.bytes[self.name..]
    }

    /// Returns the path of the parent folder; empty for the root.
    pub(crate) fn parent(&self) -> &[u8] {
        &self.bytes[..self.name.saturating_sub(1)]
    }

    fn push(&mut self, part: &[u8]) {
        if !self.bytes.is_empty() {
            self.bytes.push(b'/');
        }
        self.name = self.bytes.len();
        self.bytes.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normal_or_refused() {
        let parse = |raw: &str| EntryPath::parse(raw.as_bytes(), "path");
        let parts = |raw: &str| {
            let path = parse(raw).unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(path.parent()), text(path.name()))
        };
        assert_eq!(parts("a"), (String::new(), "a".into()));
        assert_eq!(parts("./a//b/./c/"), ("a/b".into(), "c".into()));
        assert_eq!(parts("/etc/passwd"), ("etc".into(), "passwd".into()));
        assert_eq!(parts("..a/b.."), ("..a".into(), "b..".into()));
        for root in [".", "/", "./", "//", "/./."] {
            assert!(parse(root).unwrap().is_root(), "{root}");
        }
        for refused in ["", "..", "a/..", "../a", "a/../b", "/..", "a\0b"] {
            assert!(parse(refused).is_err(), "{refused:?}");
        }
        assert!(parse(&"a".repeat(255)).is_ok());
        assert!(parse(&"a".repeat(256)).is_err());
        assert!(parse(&"a/".repeat(128)).is_ok());
        assert!(parse(&"a/".repeat(129)).is_err());
        assert!(parse(&"/".repeat(4_001)).is_err());
    }
}
