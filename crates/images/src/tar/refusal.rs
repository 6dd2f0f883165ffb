//! Why an entry of an archive is refused, and how its path is shown.

/// The defect of an entry. If one entry is refused, the whole archive is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The header's checksum is wrong.
    #[error("its header has an invalid checksum: this is not a tar archive, or it is damaged")]
    Checksum,
    /// A number that is invalid or out of range.
    #[error("the number in its field `{field}` is invalid or out of range")]
    Number {
        /// The field of the header.
        field: &'static str,
    },
    /// The archive is shorter than its headers declare.
    #[error("the archive ends in the middle of it")]
    Truncated,
    /// A single zero block; two end an archive.
    #[error("a single zero block precedes it; two end an archive")]
    EndMarker,
    /// Two extension headers of one kind, or a name given in two ways.
    #[error("it is given `{field}` twice")]
    GivenTwice {
        /// The field that is given twice.
        field: &'static str,
    },
    /// An extension header without an entry after it.
    #[error("extension headers at the end of the archive, without an entry after them")]
    ExtensionAlone,
    /// An extension header over the limit.
    #[error("its extension header has {bytes} bytes; at most {limit} are read")]
    ExtensionTooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A malformed PAX header.
    #[error("its PAX header is malformed: {reason}")]
    Pax {
        /// The defect.
        reason: &'static str,
    },
    /// PAX header and tar header disagree on the size.
    #[error("its PAX header says {pax} bytes, its header {header}")]
    PaxSize {
        /// The size in the PAX header.
        pax: u64,
        /// The size in the tar header.
        header: u64,
    },
    /// A global header that would change entries.
    #[error("a global PAX header sets `{key}` for all entries")]
    GlobalHeader {
        /// The key of the record.
        key: String,
    },
    /// A sparse file, in any form.
    #[error("sparse files are not supported")]
    Sparse,
    /// A type that images do not use.
    #[error("entries of type `{kind}` are not supported")]
    Kind {
        /// The type byte, escaped.
        kind: String,
    },
    /// Content in an entry whose type has none.
    #[error("entries of this type have no content, but it says {bytes} bytes")]
    Content {
        /// The declared size.
        bytes: u64,
    },
    /// An empty path or link target.
    #[error("its {what} is empty")]
    Empty {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// A zero byte.
    #[error("its {what} contains a zero byte")]
    Nul {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// A `..` in a path.
    #[error("its {what} contains `..`")]
    ParentFolder {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// A path that is too long.
    #[error("its {what} has {bytes} bytes; at most {limit} are allowed")]
    TooLong {
        /// `path`, `name` or `link target`.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A path that is too deep.
    #[error("it lies more than {limit} folders deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The root is not a directory.
    #[error("the root must be a directory")]
    Root,
    /// A whiteout without a valid name.
    #[error("it is a whiteout of an empty or invalid name")]
    WhiteoutName,
    /// A whiteout that is not a file.
    #[error("whiteouts are files")]
    WhiteoutKind,
    /// An entry inside a whiteout.
    #[error("its path leads through a whiteout")]
    WhiteoutParent,
    /// A parent that is a symbolic link.
    #[error("its {what} leads through a symbolic link")]
    ThroughSymlink {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// A parent that is not a directory.
    #[error("its {what} leads through something that is not a directory")]
    NotADirectory {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// A hard link to a file that is not in this layer.
    #[error("it is a hard link to `{target}`, which is not in this layer")]
    LinkMissing {
        /// The target.
        target: String,
    },
    /// A hard link to a directory.
    #[error("it is a hard link to the directory `{target}`")]
    LinkToDirectory {
        /// The target.
        target: String,
    },
    /// More hard links to one file than the file system supports.
    #[error("too many hard links to `{target}`")]
    TooManyLinks {
        /// The target.
        target: String,
    },
    /// An entry that would replace a directory with content.
    #[error("it would replace a directory that is not empty")]
    ReplacesDirectory,
    /// An invalid owner id.
    #[error("{id} is not a valid owner")]
    Owner {
        /// The id.
        id: i64,
    },
    /// An attribute that the file system does not accept.
    #[error("its extended attribute `{name}` cannot be stored")]
    Attribute {
        /// The attribute's name.
        name: String,
    },
}

/// The longest path in a message, in characters.
const SHOWN_CHARACTERS: usize = 200;

/// Returns a path, a name or a type in printable, short form.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut characters = text.chars();
    let mut shown = String::new();
    for character in characters.by_ref().take(SHOWN_CHARACTERS) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}
