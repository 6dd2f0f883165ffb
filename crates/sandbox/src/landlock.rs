//! The Landlock rules of a hosted tree: which paths it may read, execute and write.
//!
//! Only computes; the init opens the paths and applies the rules.

use std::path::{Path, PathBuf};

use crate::command::SYSTEM;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// All accesses of the first ABI.
const ALL_OF_ABI_1: u64 = (1 << 13) - 1;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;

/// Abstract sockets and signals to processes outside, since ABI 6.
const SCOPES: u64 = 0b11;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
const DEVICE: u64 = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV;

const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// The handled accesses (files, network, scopes) and the allowed ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruleset {
    pub(crate) handled: [u64; 3],
    pub(crate) rules: Vec<(u64, PathBuf)>,
}

/// Returns the rules for a kernel's ABI; empty without Landlock.
pub(crate) fn ruleset(abi: i32, readable: &[&Path], writable: &[&Path]) -> Ruleset {
    if abi < 1 {
        return Ruleset::default();
    }
    let mut files = ALL_OF_ABI_1;
    for (since, access) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)] {
        if abi >= since {
            files |= access;
        }
    }
    let scopes = if abi >= 6 { SCOPES } else { 0 };
    let write = files & !(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV);
    let mut rules = Vec::new();
    let system = SYSTEM.iter().map(Path::new);
    rules.extend(
        system
            .chain(readable.iter().copied())
            .map(|path| (READ, path.to_owned())),
    );
    rules.extend(
        DEVICES
            .iter()
            .map(|path| (DEVICE & files, PathBuf::from(path))),
    );
    rules.extend(writable.iter().map(|path| (write, path.to_path_buf())));
    Ruleset {
        handled: [files, 0, scopes],
        rules,
    }
}

/// Returns the rules for a separate root: all of it is readable, the listed paths are writable.
pub(crate) fn own_root(abi: i32, writable: &[PathBuf]) -> Ruleset {
    let writable: Vec<&Path> = writable.iter().map(PathBuf::as_path).collect();
    let mut ruleset = ruleset(abi, &[], &writable);
    ruleset.rules.retain(|(access, _)| *access != READ);
    if abi >= 1 {
        let terminals = DEVICE & ruleset.handled[0];
        ruleset.rules.push((READ, PathBuf::from("/")));
        ruleset
            .rules
            .push((READ | terminals, PathBuf::from("/dev/pts")));
    }
    ruleset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_names_what_the_abi_does_not_know() {
        assert_eq!(ruleset(0, &[], &[]), Ruleset::default());
        for abi in 1..=9 {
            let ruleset = ruleset(abi, &[Path::new("/work")], &[Path::new("/data")]);
            assert!(
                ruleset
                    .rules
                    .iter()
                    .all(|(access, _)| access & !ruleset.handled[0] == 0)
            );
            assert_eq!(ruleset.handled[0] & TRUNCATE != 0, abi >= 3);
            assert_eq!(ruleset.handled[2] != 0, abi >= 6);
        }
    }

    #[test]
    fn only_the_listed_paths_and_devices_are_writable() {
        let ruleset = ruleset(6, &[Path::new("/work")], &[Path::new("/data")]);
        let writable: Vec<_> = ruleset
            .rules
            .iter()
            .filter(|(access, path)| access & WRITE_FILE != 0 && !path.starts_with("/dev"))
            .map(|(_, path)| path.as_path())
            .collect();
        assert_eq!(writable, [Path::new("/data")]);
    }
}
