//! The system calls that drop privileges: capabilities, limits, users, seccomp, Landlock.

use super::{Result, call, nr};

/// Sets the three capability sets of this process.
pub(crate) fn set_capabilities(effective: u64, permitted: u64) -> Result<usize> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let data = [
        effective as u32,
        permitted as u32,
        0,
        (effective >> 32) as u32,
        (permitted >> 32) as u32,
        0,
    ];
    call(
        nr::CAPSET,
        &[header.as_ptr() as usize, data.as_ptr() as usize],
    )
}

pub(crate) fn set_limit(resource: u32, limit: u64) -> Result<usize> {
    let both = [limit, limit];
    call(
        nr::PRLIMIT64,
        &[0, resource as usize, both.as_ptr() as usize, 0],
    )
}

/// Drops the supplementary groups.
pub(crate) fn drop_groups() -> Result<usize> {
    call(nr::SETGROUPS, &[0, 0])
}

/// Enters the namespace of an open descriptor.
pub(crate) fn enter_namespace(fd: i32) -> Result<usize> {
    call(nr::SETNS, &[fd as usize, 0])
}

/// Drops the supplementary groups, then changes group and user permanently.
pub(crate) fn become_user(uid: u32, gid: u32) -> Result<usize> {
    let (uid, gid) = (uid as usize, gid as usize);
    drop_groups()?;
    call(nr::SETRESGID, &[gid, gid, gid])?;
    call(nr::SETRESUID, &[uid, uid, uid])
}

/// Installs one seccomp filter of 8-byte instructions.
pub(crate) fn install_filter(instructions: &[u8]) -> Result<usize> {
    const SECCOMP_SET_MODE_FILTER: usize = 1;
    let program = [
        (instructions.len() / 8) as u64,
        instructions.as_ptr() as u64,
    ];
    call(
        nr::SECCOMP,
        &[SECCOMP_SET_MODE_FILTER, 0, program.as_ptr() as usize],
    )
}

/// Returns the Landlock ABI of the kernel.
pub(crate) fn landlock_abi() -> Result<usize> {
    call(nr::LANDLOCK_CREATE_RULESET, &[0, 0, 1])
}

pub(crate) fn landlock_create(attributes: &[u64; 3], length: usize) -> Result<i32> {
    call(
        nr::LANDLOCK_CREATE_RULESET,
        &[attributes.as_ptr() as usize, length, 0],
    )
    .map(|fd| fd as i32)
}

/// Allows `access` below an open path.
pub(crate) fn landlock_allow(ruleset: i32, access: u64, beneath: i32) -> Result<usize> {
    const LANDLOCK_RULE_PATH_BENEATH: usize = 1;
    // struct landlock_path_beneath_attr is packed: u64 access, i32 descriptor.
    let mut attribute = [0u8; 12];
    attribute[..8].copy_from_slice(&access.to_ne_bytes());
    attribute[8..].copy_from_slice(&beneath.to_ne_bytes());
    let at = attribute.as_ptr() as usize;
    call(
        nr::LANDLOCK_ADD_RULE,
        &[ruleset as usize, LANDLOCK_RULE_PATH_BENEATH, at, 0],
    )
}

pub(crate) fn landlock_restrict(ruleset: i32) -> Result<usize> {
    call(nr::LANDLOCK_RESTRICT_SELF, &[ruleset as usize, 0])
}
