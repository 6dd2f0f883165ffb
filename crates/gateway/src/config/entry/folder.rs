//! Whether a path of an entry leads into the folder whose configuration is read, whichever folder that is.
//!
//! A relative path does, and so does one that a variable turns into a path below the folder. A path that
//! is written out in full names one folder, and whoever wrote it meant that one. Entry points: [`note`] for
//! a path that is entered or run, [`note_file`] for an argument.

use std::path::{Component, Path, PathBuf};

use super::fields::Fields;

/// Notes a path that leads into the folder.
pub(super) fn note(fields: &mut Fields<'_, '_>, field: &str, filled: &str) {
    let is_literal = !fields.told.written.contains_key(field);
    let path = Path::new(filled);
    let leads = path.is_relative() || (!is_literal && is_below(fields.fill.folder(), path));
    if leads && fields.told.leads_into_folder.is_none() {
        fields.told.leads_into_folder = Some(field.to_owned());
    }
}

/// Notes an argument that a variable turns into a file of the folder: it may well be run. The folder
/// itself is what servers of files are given to work on.
pub(super) fn note_file(fields: &mut Fields<'_, '_>, field: &str, filled: &str) {
    let is_path = fields.told.written.contains_key(field) && Path::new(filled).is_absolute();
    if is_path && Path::new(filled).is_file() {
        note(fields, field, filled);
    }
}

/// Tells whether a path lies in a folder, without asking the disk what its dots lead to.
fn is_below(folder: &Path, path: &Path) -> bool {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    let real = path.canonicalize();
    plain.starts_with(folder) || real.is_ok_and(|real| real.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_do_not_lead_astray() {
        let folder = Path::new("/srv/shop");
        for (path, below) in [
            ("/srv/shop", true),
            ("/srv/shop/x", true),
            ("/srv/other/../shop/x", true),
            ("/srv/shop/../other", false),
            ("/srv/shopping", false),
        ] {
            assert_eq!(is_below(folder, Path::new(path)), below, "{path}");
        }
    }
}
