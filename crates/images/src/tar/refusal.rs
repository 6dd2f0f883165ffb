//! Why an entry of an archive is refused, and how its path is shown.

/// What is wrong with an entry. Nothing of the archive is kept when one of its entries is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The header's checksum does not fit.
    #[error("its header has an invalid checksum: this is not a tar archive, or it is damaged")]
    Checksum,
    /// A number that cannot be read, or does not fit.
    #[error("the number in its field `{field}` is invalid or out of range")]
    Number {
        /// Which field of the header.
        field: &'static str,
    },
    /// The archive is shorter than it says.
    #[error("the archive ends in the middle of it")]
    Truncated,
    /// One zero block where two end an archive.
    #[error("a single zero block precedes it; two end an archive")]
    EndMarker,
    /// Two extension headers of one kind, or two ways to give one name.
    #[error("it is given `{field}` twice")]
    GivenTwice {
        /// What is given twice.
        field: &'static str,
    },
    /// An extension header with nothing after it.
    #[error("extension headers stand at the end of the archive, with no entry after them")]
    ExtensionAlone,
    /// An extension header over the limit.
    #[error("its extension header has {bytes} bytes; at most {limit} are read")]
    ExtensionTooLarge {
        /// What it says.
        bytes: u64,
        /// What is read.
        limit: u64,
    },
    /// A PAX header that cannot be read.
    #[error("its PAX header is malformed: {reason}")]
    Pax {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// PAX and header differ on the size.
    #[error("its PAX header says {pax} bytes, its header {header}")]
    PaxSize {
        /// The size in the PAX header.
        pax: u64,
        /// The size in the header itself.
        header: u64,
    },
    /// A global header that would change entries.
    #[error("a global PAX header sets `{key}` for all entries")]
    GlobalHeader {
        /// The record.
        key: String,
    },
    /// Any form of a sparse file.
    #[error("sparse files are not supported")]
    Sparse,
    /// A type that images do not have.
    #[error("entries of type `{kind}` are not supported")]
    Kind {
        /// The type's byte, escaped.
        kind: String,
    },
    /// Content where none can be.
    #[error("entries of this type have no content, but it says {bytes} bytes")]
    Content {
        /// What it says.
        bytes: u64,
    },
    /// No path, or no target of a link.
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
    /// `..`.
    #[error("its {what} contains `..`")]
    ParentFolder {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// Longer than is allowed.
    #[error("its {what} has {bytes} bytes; at most {limit} are allowed")]
    TooLong {
        /// `path`, `name` or `link target`.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// More nested than is allowed.
    #[error("it lies more than {limit} folders deep")]
    TooDeep {
        /// How deep it may be.
        limit: usize,
    },
    /// The root as something else than a directory.
    #[error("only a directory can stand for the root")]
    Root,
    /// A whiteout without a valid name.
    #[error("it is a whiteout of nothing, or of a name that cannot be")]
    WhiteoutName,
    /// A whiteout that is not a file.
    #[error("whiteouts are files")]
    WhiteoutKind,
    /// Something inside a whiteout.
    #[error("its path leads through a whiteout")]
    WhiteoutParent,
    /// A parent that is a symbolic link.
    #[error("its {what} leads through a symbolic link")]
    ThroughSymlink {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// A parent that is no directory.
    #[error("its {what} leads through something that is not a directory")]
    NotADirectory {
        /// `path` or `link target`.
        what: &'static str,
    },
    /// A hard link to what this layer does not have.
    #[error("it is a hard link to `{target}`, which is not in this layer")]
    LinkMissing {
        /// Where it leads.
        target: String,
    },
    /// A hard link to a directory.
    #[error("it is a hard link to the directory `{target}`")]
    LinkToDirectory {
        /// Where it leads.
        target: String,
    },
    /// More hard links to one file than the file system takes.
    #[error("it is one hard link to `{target}` too many")]
    TooManyLinks {
        /// Where it leads.
        target: String,
    },
    /// Something else in the place of a directory with content.
    #[error("it would replace a directory that is not empty")]
    ReplacesDirectory,
    /// An owner that cannot be.
    #[error("{id} is not a valid owner")]
    Owner {
        /// The number.
        id: i64,
    },
    /// An attribute that the file system does not take.
    #[error("its extended attribute `{name}` cannot be stored")]
    Attribute {
        /// The attribute.
        name: String,
    },
}

/// The longest text of a path in a message.
const SHOWN_CHARACTERS: usize = 200;

/// Returns a path, a name or a type as it is shown to people: printable and short.
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
