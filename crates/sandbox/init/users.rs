//! Looks up a user in the files of a root, in the forms of image configurations: `name`, `uid`,
//! `name:group`, `uid:gid`.
//!
//! The files come from the image: they are untrusted, and no link leads out of the root.

use core::ffi::CStr;

use crate::sys;
use crate::text::Text;

/// The most bytes read of a user file.
const MAX_BYTES: usize = 1 << 20;

/// A resolved user.
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// `HOME=…`
    pub(crate) home: Text,
}

/// Finds a user below an open root.
pub(crate) fn find(root: i32, text: &[u8]) -> sys::Result<User> {
    let mut parts = text.splitn(2, |byte| *byte == b':');
    let (name, group) = (parts.next().unwrap_or_default(), parts.next());
    let number = decimal(name);
    let mut found = User {
        uid: number.unwrap_or(0),
        gid: 0,
        home: Text::new(b"HOME=/"),
    };
    let mut known = number.is_some();
    for_each_line(root, c"/etc/passwd", |line| {
        let mut fields = line.split(|byte| *byte == b':');
        let own_name = fields.next();
        let (uid, gid) = (fields.nth(1).and_then(decimal), fields.next().and_then(decimal));
        let home = fields.nth(1).unwrap_or_default();
        let (Some(uid), Some(gid)) = (uid, gid) else {
            return false;
        };
        let is_meant = match number {
            Some(number) => number == uid,
            None => own_name == Some(name),
        };
        if is_meant {
            found.uid = uid;
            found.gid = gid;
            if home.starts_with(b"/") {
                found.home = Text::new(b"HOME=");
                found.home.push(home);
            }
            known = true;
        }
        is_meant
    });
    if !known {
        return Err(sys::ENOENT);
    }
    if let Some(group) = group {
        let mut gid = decimal(group);
        if gid.is_none() {
            for_each_line(root, c"/etc/group", |line| {
                let mut fields = line.split(|byte| *byte == b':');
                if fields.next() == Some(group) {
                    gid = fields.nth(1).and_then(decimal);
                }
                gid.is_some()
            });
        }
        found.gid = gid.ok_or(sys::ENOENT)?;
    }
    Ok(found)
}

/// Reads a file of the root line by line until `is_taken` returns true; a missing file has no
/// lines.
fn for_each_line(root: i32, path: &CStr, mut is_taken: impl FnMut(&[u8]) -> bool) {
    let flags = sys::O_RDONLY | sys::O_NONBLOCK;
    let Ok(fd) = sys::open_beneath(root, path, flags, 0, sys::Beneath::InRoot) else {
        return;
    };
    if sys::metadata(fd).is_ok_and(sys::Metadata::is_file)
        && let Ok(memory) = sys::map_memory(MAX_BYTES)
    {
        // SAFETY: the new mapping has that many bytes, and there is no other reference to it.
        let buffer = unsafe { core::slice::from_raw_parts_mut(memory, MAX_BYTES) };
        let mut length = 0;
        while let Ok(more @ 1..) = sys::read(fd, &mut buffer[length..]) {
            length += more;
        }
        for line in buffer[..length].split(|byte| *byte == b'\n') {
            if is_taken(line) {
                break;
            }
        }
        // SAFETY: `buffer` is no longer used.
        unsafe { sys::unmap(memory, MAX_BYTES) };
    }
    sys::close(fd);
}

/// Parses an id.
fn decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}
