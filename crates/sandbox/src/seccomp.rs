//! The seccomp filters: which system calls are refused. Everything else is allowed, so that node,
//! python, git and browsers run as they are.
//!
//! Only builds the programs; the init installs them. A 32-bit program is ended by the filter.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::command::Profile;

#[cfg(target_arch = "aarch64")]
#[path = "seccomp/aarch64.rs"]
mod numbers;
#[cfg(target_arch = "x86_64")]
#[path = "seccomp/x86_64.rs"]
mod numbers;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
const EAFNOSUPPORT: u32 = 97;

const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
/// `CLONE_NEW*`: mount, cgroup, UTS, IPC, user, PID, network.
const NEW_NAMESPACES: [u64; 7] = [
    0x0002_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;

/// On x86-64 the x32 calls are the same with this bit set: they must not be a way around.
#[cfg(target_arch = "x86_64")]
const ALIASES: [i64; 2] = [0, 0x4000_0000];
#[cfg(target_arch = "aarch64")]
const ALIASES: [i64; 1] = [0];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// Which kinds of socket a tree may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// All that the profile allows.
    Profile,
    /// Only local ones: stands in for a network namespace where there is none.
    LocalOnly,
}

/// Filters in the order they are installed, and how many calls they refuse.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) programs: Vec<Vec<u8>>,
    pub(crate) refused: usize,
}

/// The rules for one answer: a call without rules is always refused.
#[derive(Default)]
struct Refusals(BTreeMap<i64, Vec<SeccompRule>>);

/// Builds the filters of a profile.
pub(crate) fn filters(profile: Profile, sockets: Sockets) -> Result<Filters, BackendError> {
    let mut forbidden = Refusals::default();
    let mut absent = Refusals::default();
    let mut families = Refusals::default();
    numbers::MACHINE
        .iter()
        .for_each(|call| forbidden.always(*call));
    numbers::ABSENT.iter().for_each(|call| absent.always(*call));
    // Typing into someone's terminal.
    for request in [TIOCSTI, TIOCLINUX] {
        forbidden.when(
            numbers::IOCTL,
            vec![argument(1, SeccompCmpOp::Eq, request)?],
        )?;
    }
    let mut allowed_families = vec![AF_UNIX, AF_NETLINK];
    if profile == Profile::Hosted {
        numbers::OTHERS
            .iter()
            .for_each(|call| forbidden.always(*call));
        // Its arguments are behind a pointer that a filter cannot follow.
        absent.always(numbers::CLONE3);
        for flag in NEW_NAMESPACES {
            for call in [numbers::CLONE, numbers::UNSHARE] {
                let any = argument(0, SeccompCmpOp::MaskedEq(flag), flag)?;
                forbidden.when(call, vec![any])?;
            }
        }
    }
    if sockets == Sockets::Profile {
        allowed_families.extend([AF_INET, AF_INET6]);
    }
    if profile == Profile::Hosted || sockets == Sockets::LocalOnly {
        let other = allowed_families
            .into_iter()
            .map(|family| argument(0, SeccompCmpOp::Ne, family))
            .collect::<Result<_, _>>()?;
        families.when(numbers::SOCKET, other)?;
    }
    let mut filters = Filters::default();
    for (refusals, errno) in [
        (forbidden, EPERM),
        (absent, ENOSYS),
        (families, EAFNOSUPPORT),
    ] {
        if !refusals.0.is_empty() {
            filters.refused += refusals.0.len() / ALIASES.len();
            filters.programs.push(refusals.program(errno)?);
        }
    }
    Ok(filters)
}

impl Refusals {
    fn always(&mut self, call: i64) {
        for alias in ALIASES {
            self.0.insert(call | alias, Vec::new());
        }
    }

    /// Refuses a call when all conditions hold, in addition to what was said before.
    fn when(&mut self, call: i64, conditions: Vec<SeccompCondition>) -> Result<(), BackendError> {
        let rule = SeccompRule::new(conditions)?;
        for alias in ALIASES {
            self.0.entry(call | alias).or_default().push(rule.clone());
        }
        Ok(())
    }

    fn program(self, errno: u32) -> Result<Vec<u8>, BackendError> {
        let refuse = SeccompAction::Errno(errno);
        let filter = SeccompFilter::new(self.0, SeccompAction::Allow, refuse, ARCHITECTURE)?;
        let program = BpfProgram::try_from(filter)?;
        let mut bytes = Vec::with_capacity(program.len() * 8);
        for instruction in program {
            bytes.extend_from_slice(&instruction.code.to_ne_bytes());
            bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
            bytes.extend_from_slice(&instruction.k.to_ne_bytes());
        }
        Ok(bytes)
    }
}

fn argument(
    index: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_fits_the_kernel() {
        for profile in [Profile::Local, Profile::Hosted] {
            for sockets in [Sockets::Profile, Sockets::LocalOnly] {
                let filters = filters(profile, sockets).unwrap();
                assert!(filters.refused > 30);
                for program in filters.programs {
                    assert!(program.len() % 8 == 0 && program.len() / 8 < 4096);
                }
            }
        }
    }
}
