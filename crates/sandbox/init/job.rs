//! The job from the gateway: one flat, read-only mapping that is parsed in place.
//!
//! Nothing is copied, so the environment (which may hold secrets) leaves the resident process when
//! the [`Mapping`] is released. The order of the fields is that of `src/job.rs`.

use core::ffi::CStr;

use crate::protocol::JOB_VERSION;
use crate::sys;

/// The index of the first descriptor after the three pipes and the job itself.
pub(crate) const FIRST_EXTRA_FD: usize = 4;

/// The bytes of a job.
pub(crate) struct Mapping {
    at: *const u8,
    length: usize,
}

/// What to run, and how.
pub(crate) struct Job<'a> {
    pub(crate) flags: u32,
    /// `CLONE_NEW*` bits.
    pub(crate) unshare: u32,
    /// The text for `/proc/self/uid_map`; empty without a user namespace.
    pub(crate) uid_map: &'a CStr,
    pub(crate) gid_map: &'a CStr,
    pub(crate) private_dirs: Cursor<'a>,
    /// The text for the maps of a user namespace that only the server enters; empty without one.
    pub(crate) range_map: &'a CStr,
    /// The first id of that namespace, or the only one; zero in a user namespace around the whole
    /// tree.
    pub(crate) first_id: u32,
    pub(crate) host_name: &'a CStr,
    pub(crate) steps: Cursor<'a>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) kept_capabilities: u64,
    pub(crate) limits: Cursor<'a>,
    pub(crate) landlock_handled: [u64; 3],
    pub(crate) landlock_rules: Cursor<'a>,
    pub(crate) filters: Cursor<'a>,
    pub(crate) cwd: &'a CStr,
    pub(crate) candidates: Cursor<'a>,
    pub(crate) arguments: Cursor<'a>,
    pub(crate) environment: Cursor<'a>,
}

/// One step of building a root: see `STEP_*`.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) mode: u32,
    pub(crate) target: &'a CStr,
    pub(crate) source: &'a CStr,
    pub(crate) content: &'a [u8],
}

/// A reader over a counted list inside the job.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    /// How many items the list holds.
    pub(crate) count: u32,
}

impl Mapping {
    /// Maps the job's file.
    pub(crate) fn new(fd: i32) -> sys::Result<Self> {
        let length = sys::file_size(fd)?;
        Ok(Self {
            at: sys::map_file(fd, length)?,
            length,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes, read-only, sealed against change, and lives as long
        // as `self`.
        unsafe { core::slice::from_raw_parts(self.at, self.length) }
    }

    /// Unmaps the memory.
    pub(crate) fn release(self) {
        // SAFETY: `self` is consumed, so nothing borrows from it any more.
        unsafe { sys::unmap(self.at, self.length) }
    }
}

impl<'a> Job<'a> {
    /// Parses a job; `None` if its format is wrong.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor {
            rest: bytes,
            count: 0,
        };
        if cursor.u32()? != JOB_VERSION {
            return None;
        }
        Some(Self {
            flags: cursor.u32()?,
            unshare: cursor.u32()?,
            uid_map: cursor.text()?,
            gid_map: cursor.text()?,
            private_dirs: cursor.list(|item| {
                item.u32()?;
                item.text()?;
                item.text()?;
                item.kept().map(drop)
            })?,
            range_map: cursor.text()?,
            first_id: cursor.u32()?,
            host_name: cursor.text()?,
            steps: cursor.list(|item| item.step().map(drop))?,
            uid: cursor.u32()?,
            gid: cursor.u32()?,
            kept_capabilities: cursor.u64()?,
            limits: cursor.list(|item| item.limit().map(drop))?,
            landlock_handled: [cursor.u64()?, cursor.u64()?, cursor.u64()?],
            landlock_rules: cursor.list(|item| item.rule().map(drop))?,
            filters: cursor.list(|item| item.blob().map(drop))?,
            cwd: cursor.text()?,
            candidates: cursor.texts()?,
            arguments: cursor.texts()?,
            environment: cursor.texts()?,
        })
    }
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Reads length-prefixed bytes.
    pub(crate) fn blob(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    /// Reads a string with its terminating zero.
    pub(crate) fn text(&mut self) -> Option<&'a CStr> {
        CStr::from_bytes_with_nul(self.blob()?).ok()
    }

    /// Reads the list of paths that stay visible below a private directory.
    pub(crate) fn kept(&mut self) -> Option<Self> {
        self.list(|item| item.kept_path().map(drop))
    }

    /// Reads one of them: whether it is writable, and its path.
    pub(crate) fn kept_path(&mut self) -> Option<(bool, &'a CStr)> {
        Some((self.u32()? != 0, self.text()?))
    }

    /// Reads a step of building a root.
    pub(crate) fn step(&mut self) -> Option<Step<'a>> {
        Some(Step {
            kind: self.u32()?,
            flags: self.u32()?,
            mode: self.u32()?,
            target: self.text()?,
            source: self.text()?,
            content: self.blob()?,
        })
    }

    /// Reads a resource limit: the resource and its value.
    pub(crate) fn limit(&mut self) -> Option<(u32, u64)> {
        Some((self.u32()?, self.u64()?))
    }

    /// Reads a Landlock rule: the access and the path.
    pub(crate) fn rule(&mut self) -> Option<(u64, &'a CStr)> {
        Some((self.u64()?, self.text()?))
    }

    pub(crate) fn texts(&mut self) -> Option<Self> {
        self.list(|item| item.text().map(drop))
    }

    /// Skips a list and returns a cursor at its first item.
    fn list(&mut self, mut step: impl FnMut(&mut Self) -> Option<()>) -> Option<Self> {
        let count = self.u32()?;
        let start = Self {
            rest: self.rest,
            count,
        };
        for _ in 0..count {
            step(self)?;
        }
        Some(start)
    }
}
