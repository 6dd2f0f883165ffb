//! Writes tar archives byte by byte, right and wrong. Also part of the crate's own tests.

/// One entry, described as it stands in its header.
#[derive(Clone)]
pub(crate) struct Item {
    path: Vec<u8>,
    kind: u8,
    link: Vec<u8>,
    content: Vec<u8>,
    mode: u32,
    owner: u32,
    mtime: u64,
    /// In the place of what is right.
    raw_size: Option<[u8; 12]>,
    raw_mtime: Option<[u8; 12]>,
    raw_uid: Option<[u8; 8]>,
    gnu: bool,
}

pub(crate) fn item(kind: u8, path: impl AsRef<[u8]>) -> Item {
    Item {
        path: path.as_ref().to_vec(),
        kind,
        link: Vec::new(),
        content: Vec::new(),
        mode: 0o644,
        owner: 0,
        mtime: 1_700_000_000,
        raw_size: None,
        raw_mtime: None,
        raw_uid: None,
        gnu: false,
    }
}

pub(crate) fn file(path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Item {
    let mut file = item(b'0', path);
    file.content = content.as_ref().to_vec();
    file
}

pub(crate) fn folder(path: impl AsRef<[u8]>) -> Item {
    item(b'5', path).mode(0o755)
}

pub(crate) fn symlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Item {
    item(b'2', path).link(target)
}

pub(crate) fn hard_link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Item {
    item(b'1', path).link(target)
}

impl Item {
    pub(crate) fn link(mut self, target: impl AsRef<[u8]>) -> Self {
        self.link = target.as_ref().to_vec();
        self
    }

    pub(crate) fn content(mut self, content: impl AsRef<[u8]>) -> Self {
        self.content = content.as_ref().to_vec();
        self
    }

    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn owner(mut self, owner: u32) -> Self {
        self.owner = owner;
        self
    }

    pub(crate) fn mtime(mut self, mtime: u64) -> Self {
        self.mtime = mtime;
        self
    }

    pub(crate) fn gnu(mut self) -> Self {
        self.gnu = true;
        self
    }

    /// Says another size than the content has.
    pub(crate) fn size(self, bytes: u64) -> Self {
        self.raw_size(octal(bytes))
    }

    pub(crate) fn raw_size(mut self, field: [u8; 12]) -> Self {
        self.raw_size = Some(field);
        self
    }

    pub(crate) fn raw_mtime(mut self, field: [u8; 12]) -> Self {
        self.raw_mtime = Some(field);
        self
    }

    pub(crate) fn raw_uid(mut self, field: [u8; 8]) -> Self {
        self.raw_uid = Some(field);
        self
    }

    /// Returns the header block alone.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut block = vec![0; 512];
        let mut put = |at: usize, field: &[u8], most: usize| {
            let length = field.len().min(most);
            block[at..at + length].copy_from_slice(&field[..length]);
        };
        put(0, &self.path, 100);
        put(100, format!("{:07o}", self.mode).as_bytes(), 8);
        let owner = format!("{:07o}", self.owner);
        put(108, owner.as_bytes(), 8);
        put(116, owner.as_bytes(), 8);
        let size = self.raw_size.unwrap_or(octal(self.content.len() as u64));
        put(124, &size, 12);
        put(136, &self.raw_mtime.unwrap_or(octal(self.mtime)), 12);
        put(156, &[self.kind], 1);
        put(157, &self.link, 100);
        put(
            257,
            if self.gnu {
                b"ustar  \0"
            } else {
                b"ustar\x0000"
            },
            8,
        );
        if let Some(uid) = &self.raw_uid {
            put(108, uid, 8);
        }
        seal(&mut block);
        block
    }

    /// Returns the header and the padded content.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.extend_from_slice(&self.content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// Writes the checksum of a header block.
pub(crate) fn seal(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub(crate) fn octal(number: u64) -> [u8; 12] {
    let mut field = [0; 12];
    field[..11].copy_from_slice(format!("{number:011o}").as_bytes());
    field
}

/// Returns a number of twelve bytes in binary; its first byte carries the mark.
pub(crate) fn binary(first: u8, number: i64) -> [u8; 12] {
    let mut field = [if number < 0 { 0xff } else { 0 }; 12];
    field[4..].copy_from_slice(&number.to_be_bytes());
    field[0] = first;
    field
}

/// Returns a PAX header, of one entry (`x`) or of all that follow (`g`).
pub(crate) fn pax_of(kind: u8, records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        content.extend_from_slice(format!("{length} {key}=").as_bytes());
        content.extend_from_slice(value);
        content.push(b'\n');
    }
    item(kind, "pax").content(content).bytes()
}

pub(crate) fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    pax_of(b'x', records)
}

/// Returns a GNU header with a long name (`L`) or a long target (`K`).
pub(crate) fn long(kind: u8, name: impl AsRef<[u8]>) -> Vec<u8> {
    let content = [name.as_ref(), b"\0"].concat();
    item(kind, "././@LongLink").gnu().content(content).bytes()
}

/// Joins entries and ends the archive.
pub(crate) fn archive<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part.as_ref());
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// Returns an archive of well-formed items.
pub(crate) fn layer(items: &[Item]) -> Vec<u8> {
    archive(&items.iter().map(Item::bytes).collect::<Vec<_>>())
}
