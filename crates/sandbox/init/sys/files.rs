//! The system calls for building a root: opening below a directory, detached mounts, owners.

use core::ffi::CStr;

use super::{O_CLOEXEC, Result, call, nr};

const AT_EMPTY_PATH: usize = 0x1000;
const AT_SYMLINK_NOFOLLOW: usize = 0x100;
const AT_RECURSIVE: usize = 0x8000;

/// How a path below a directory is resolved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beneath {
    /// As if the directory were the root: links cannot leave it.
    InRoot,
    /// The same, and links are refused.
    NoLinks,
}

/// Mount attributes to set.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub(crate) set: u64,
    /// The user namespace that the mount's owners are mapped by.
    pub(crate) user_namespace: Option<i32>,
    /// Whether they apply to mounts below it, too.
    pub(crate) recursive: bool,
}

impl Attributes {
    pub(crate) const READ_ONLY: u64 = 1;
    pub(crate) const NO_SUID: u64 = 2;
    pub(crate) const NO_DEVICES: u64 = 4;
    pub(crate) const NO_EXECUTION: u64 = 8;
    const ID_MAP: u64 = 0x0010_0000;
}

/// The metadata of a file.
#[derive(Clone, Copy)]
pub(crate) struct Metadata {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u16,
}

impl Metadata {
    pub(crate) fn is_directory(self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    pub(crate) fn is_socket(self) -> bool {
        self.mode & 0o170_000 == 0o140_000
    }

    pub(crate) fn is_file(self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Opens a path below a directory, never outside it.
pub(crate) fn open_beneath(
    directory: i32,
    path: &CStr,
    flags: u32,
    mode: u32,
    beneath: Beneath,
) -> Result<i32> {
    const RESOLVE_NO_MAGICLINKS: u64 = 2;
    const RESOLVE_NO_SYMLINKS: u64 = 4;
    const RESOLVE_IN_ROOT: u64 = 16;
    let links = match beneath {
        Beneath::InRoot => RESOLVE_NO_MAGICLINKS,
        Beneath::NoLinks => RESOLVE_NO_SYMLINKS,
    };
    // struct open_how: flags, mode, resolve.
    let how = [
        u64::from(flags | O_CLOEXEC),
        u64::from(mode),
        RESOLVE_IN_ROOT | links,
    ];
    let (path, at) = (path.as_ptr() as usize, how.as_ptr() as usize);
    call(
        nr::OPENAT2,
        &[directory as usize, path, at, size_of_val(&how)],
    )
    .map(|fd| fd as i32)
}

pub(crate) fn make_directory_at(directory: i32, name: &CStr, mode: u32) -> Result<usize> {
    let name = name.as_ptr() as usize;
    call(nr::MKDIRAT, &[directory as usize, name, mode as usize])
}

pub(crate) fn make_link_at(directory: i32, name: &CStr, text: &CStr) -> Result<usize> {
    let (text, name) = (text.as_ptr() as usize, name.as_ptr() as usize);
    call(nr::SYMLINKAT, &[text, directory as usize, name])
}

/// Changes the owner of a directory entry, or with an empty name of the open file itself.
pub(crate) fn change_owner(directory: i32, name: &CStr, uid: u32, gid: u32) -> Result<usize> {
    let name = name.as_ptr() as usize;
    let flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
    call(
        nr::FCHOWNAT,
        &[directory as usize, name, uid as usize, gid as usize, flags],
    )
}

/// Sets the mode of a directory entry that is not a link.
pub(crate) fn change_mode(directory: i32, name: &CStr, mode: u32) -> Result<usize> {
    let name = name.as_ptr() as usize;
    call(nr::FCHMODAT, &[directory as usize, name, mode as usize])
}

/// Returns the metadata of an open descriptor.
pub(crate) fn metadata(fd: i32) -> Result<Metadata> {
    const STATX_TYPE_MODE_OWNER: usize = 0b1_1011;
    let mut statx = [0u64; 32];
    let (path, at) = (c"".as_ptr() as usize, statx.as_mut_ptr() as usize);
    call(
        nr::STATX,
        &[
            fd as usize,
            path,
            AT_EMPTY_PATH,
            STATX_TYPE_MODE_OWNER,
            at,
        ],
    )?;
    // struct statx: u32 uid at offset 20, u32 gid at 24, u16 mode at 28.
    Ok(Metadata {
        uid: (statx[2] >> 32) as u32,
        gid: statx[3] as u32,
        mode: (statx[3] >> 32) as u16,
    })
}

/// Clones the mount at an open path, with all mounts below it, as a detached mount.
pub(crate) fn clone_mount(directory: i32, path: &CStr) -> Result<i32> {
    const OPEN_TREE_CLONE: usize = 1;
    let flags = OPEN_TREE_CLONE | O_CLOEXEC as usize | AT_EMPTY_PATH | AT_RECURSIVE;
    let path = path.as_ptr() as usize;
    call(nr::OPEN_TREE, &[directory as usize, path, flags]).map(|fd| fd as i32)
}

/// Attaches a detached mount over an open path.
pub(crate) fn attach(mount: i32, target: i32) -> Result<usize> {
    const BOTH_EMPTY: usize = 0x44;
    let empty = c"".as_ptr() as usize;
    call(
        nr::MOVE_MOUNT,
        &[mount as usize, empty, target as usize, empty, BOTH_EMPTY],
    )
}

/// Sets attributes of a mount and makes it private.
pub(crate) fn set_attributes(mount: i32, attributes: Attributes) -> Result<usize> {
    const MS_PRIVATE: u64 = 1 << 18;
    let (id_map, namespace) = match attributes.user_namespace {
        Some(fd) => (Attributes::ID_MAP, fd as u64),
        None => (0, 0),
    };
    // struct mount_attr: flags to set, to clear, propagation, user namespace.
    let attribute = [attributes.set | id_map, 0, MS_PRIVATE, namespace];
    let below = if attributes.recursive { AT_RECURSIVE } else { 0 };
    let (path, at) = (c"".as_ptr() as usize, attribute.as_ptr() as usize);
    call(
        nr::MOUNT_SETATTR,
        &[
            mount as usize,
            path,
            AT_EMPTY_PATH | below,
            at,
            size_of_val(&attribute),
        ],
    )
}

/// Makes a mount the root and attaches the old root below it.
pub(crate) fn pivot_root(new: &CStr, old: &CStr) -> Result<usize> {
    call(
        nr::PIVOT_ROOT,
        &[new.as_ptr() as usize, old.as_ptr() as usize],
    )
}

/// Detaches a mount and all mounts below it; they are freed when no longer in use.
pub(crate) fn unmount(path: &CStr) -> Result<usize> {
    const MNT_DETACH: usize = 2;
    call(nr::UMOUNT2, &[path.as_ptr() as usize, MNT_DETACH])
}

pub(crate) fn change_directory_to(fd: i32) -> Result<usize> {
    call(nr::FCHDIR, &[fd as usize])
}

pub(crate) fn set_host_name(name: &[u8]) -> Result<usize> {
    call(nr::SETHOSTNAME, &[name.as_ptr() as usize, name.len()])
}
