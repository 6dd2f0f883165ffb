//! Whiteouts: marks that hide files of lower layers in an overlay.
//!
//! Two forms hide one name: a character device 0:0, which every user may create since Linux 5.8,
//! or, where that is refused, an empty file with an attribute in a marked folder (Linux 6.7). The
//! attributes begin with `user.`, so one store works for mounts by root and in user namespaces.

use std::os::fd::BorrowedFd;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, XattrFlags, fgetxattr, fgetxattr_query, fsetxattr,
    makedev, mknodat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::layers::each_name;

/// On a folder: whether it hides its content in lower layers.
pub(crate) const ATTRIBUTE_OPAQUE: &str = "user.overlay.opaque";
/// On an empty file: it hides a name.
const ATTRIBUTE_WHITEOUT: &str = "user.overlay.whiteout";

/// How single names are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhiteoutForm {
    /// A character device 0:0.
    Device,
    /// An empty file with an attribute.
    Attribute,
}

/// The mark of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opacity {
    /// Lower layers show through.
    Transparent,
    /// Lower layers show through, but for files with [`ATTRIBUTE_WHITEOUT`].
    Whiteouts,
    /// Lower layers are hidden.
    Opaque,
}

/// Returns the mark of a folder.
pub(crate) fn opacity(folder: BorrowedFd<'_>) -> Result<Opacity, Errno> {
    let mut value = [0_u8; 2];
    match fgetxattr(folder, ATTRIBUTE_OPAQUE, &mut value) {
        Ok(length) => Ok(match &value[..length] {
            b"y" => Opacity::Opaque,
            b"x" => Opacity::Whiteouts,
            _ => Opacity::Transparent,
        }),
        Err(Errno::NODATA | Errno::RANGE) => Ok(Opacity::Transparent),
        Err(error) => Err(error),
    }
}

/// Returns whether a name in a folder is a whiteout, in either form.
pub(crate) fn is_whiteout(folder: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> Result<bool, Errno> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::CharacterDevice {
        return Ok(stat.st_rdev == makedev(0, 0));
    }
    let empty = kind == FileType::RegularFile && stat.st_size == 0;
    if !empty || opacity(folder)? != Opacity::Whiteouts {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty())?;
    match fgetxattr_query(&file, ATTRIBUTE_WHITEOUT) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Hides a name that the folder does not contain.
pub(super) fn hide(folder: BorrowedFd<'_>, name: &[u8], form: WhiteoutForm) -> Result<(), Errno> {
    let opacity = opacity(folder)?;
    // An opaque folder hides everything already, and a whiteout in it would be visible.
    if opacity == Opacity::Opaque {
        return Ok(());
    }
    if form == WhiteoutForm::Device {
        let mode = Mode::empty();
        return mknodat(folder, name, FileType::CharacterDevice, mode, makedev(0, 0));
    }
    if opacity == Opacity::Transparent {
        fsetxattr(folder, ATTRIBUTE_OPAQUE, b"x", XattrFlags::empty())?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    fsetxattr(&file, ATTRIBUTE_WHITEOUT, b"", XattrFlags::empty())
}

/// Hides the whole content of a folder in lower layers, instead of single names.
pub(super) fn hide_all(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    if opacity(folder)? == Opacity::Opaque {
        return Ok(());
    }
    each_name(folder, |name, kind| {
        if !matches!(kind, FileType::CharacterDevice | FileType::RegularFile) {
            return Ok(());
        }
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_whiteout(folder, name, &stat)? {
            unlinkat(folder, name, AtFlags::empty())?;
        }
        Ok(())
    })?;
    fsetxattr(folder, ATTRIBUTE_OPAQUE, b"y", XattrFlags::empty())
}
