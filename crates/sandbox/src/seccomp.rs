//! The seccomp filters: which system calls are refused.
//!
//! With [`Syscalls::DenyList`] everything else is allowed, so that node, python, git and browsers
//! run unchanged. With [`Syscalls::AllowList`] everything else is refused (`allow.rs`), much as in
//! a container.
//!
//! Only builds the programs; the init installs them. The filter kills 32-bit programs.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::command::{Profile, Syscalls};

mod allow;
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

/// `CLONE_NEWTIME` applies to `unshare` only: `clone` uses these bits for a signal.
const NEW_TIME: u64 = 0x80;

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const NETLINK_ROUTE: u64 = 0;
/// Raw, reliable datagram, sequential packet, congestion control, packet: all but stream and
/// datagram.
const OTHER_SOCKETS: [u64; 5] = [3, 4, 5, 6, 10];
/// The default, ICMP, TCP, UDP, ICMPv6, UDP-Lite, MPTCP. Any other protocol would make the kernel
/// load its module.
const PROTOCOLS: [u64; 7] = [0, 1, 6, 17, 58, 136, 262];
/// The type of a socket without its flags.
const SOCK_TYPE_MASK: u64 = 0xf;

/// The allowed arguments of `personality`: plain Linux, old 32-bit address spaces, and the query.
const PERSONALITIES: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// On x86-64 the x32 calls are the same with this bit set; they must not bypass the filter.
#[cfg(target_arch = "x86_64")]
const ALIASES: [i64; 2] = [0, 0x4000_0000];
#[cfg(target_arch = "aarch64")]
const ALIASES: [i64; 1] = [0];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;
/// `AUDIT_ARCH_*`, as in the data of a filter.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE_ID: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE_ID: u32 = 0xc000_00b7;

/// The kinds of sockets that a tree may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// All that the profile allows.
    Profile,
    /// Only local ones: replaces a missing network namespace.
    LocalOnly,
}

/// Filters in installation order, and their effect.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) programs: Vec<Vec<u8>>,
    /// How many calls are refused, always or with some arguments.
    pub(crate) refused: usize,
    /// With an allow list: how many calls are allowed.
    pub(crate) allowed: Option<usize>,
}

/// The rules for one errno: a call without rules is always refused.
#[derive(Default)]
struct Refusals(BTreeMap<i64, Vec<SeccompRule>>);

/// Builds the filters of a profile.
pub(crate) fn filters(
    profile: Profile,
    syscalls: Syscalls,
    sockets: Sockets,
) -> Result<Filters, BackendError> {
    let listed = syscalls == Syscalls::AllowList;
    let strict = listed || profile == Profile::Hosted;
    let mut forbidden = Refusals::default();
    let mut absent = Refusals::default();
    let mut families = Refusals::default();
    numbers::MACHINE
        .iter()
        .for_each(|call| forbidden.always(*call));
    numbers::ABSENT.iter().for_each(|call| absent.always(*call));
    // These requests insert input into a terminal.
    for request in [TIOCSTI, TIOCLINUX] {
        forbidden.when(
            numbers::IOCTL,
            vec![argument(1, SeccompCmpOp::Eq, request)?],
        )?;
    }
    let mut allowed_families = vec![AF_UNIX, AF_NETLINK];
    if strict {
        numbers::OTHERS
            .iter()
            .for_each(|call| forbidden.always(*call));
        numbers::SHARED.iter().for_each(|call| absent.always(*call));
        // A filter cannot follow the pointer to its arguments.
        absent.always(numbers::CLONE3);
        for flag in NEW_NAMESPACES {
            for call in [numbers::CLONE, numbers::UNSHARE] {
                let any = argument(0, SeccompCmpOp::MaskedEq(flag), flag)?;
                forbidden.when(call, vec![any])?;
            }
        }
        let time = argument(0, SeccompCmpOp::MaskedEq(NEW_TIME), NEW_TIME)?;
        forbidden.when(numbers::UNSHARE, vec![time])?;
    }
    if listed {
        forbidden.always(numbers::UNSHARE);
        forbid_sockets(&mut forbidden)?;
        let unusual = PERSONALITIES.map(|value| argument(0, SeccompCmpOp::Ne, value));
        let unusual = unusual.into_iter().collect::<Result<_, _>>()?;
        forbidden.when(numbers::PERSONALITY, unusual)?;
    }
    if sockets == Sockets::Profile {
        allowed_families.extend([AF_INET, AF_INET6]);
    }
    if strict || sockets == Sockets::LocalOnly {
        let other = allowed_families
            .into_iter()
            .map(|family| argument(0, SeccompCmpOp::Ne, family))
            .collect::<Result<_, _>>()?;
        families.when(numbers::SOCKET, other)?;
    }
    let mut filters = Filters::default();
    if listed {
        // If two filters refuse a call, the later one determines the errno; this one is the least
        // specific.
        filters.programs.push(allow::program());
        filters.allowed = Some(numbers::allowed().count());
    }
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

/// Refuses raw sockets, rare protocols and all of netlink except the part that lists addresses and
/// routes.
fn forbid_sockets(forbidden: &mut Refusals) -> Result<(), BackendError> {
    for family in [AF_INET, AF_INET6] {
        let mut other = vec![argument(0, SeccompCmpOp::Eq, family)?];
        for protocol in PROTOCOLS {
            other.push(argument(2, SeccompCmpOp::Ne, protocol)?);
        }
        forbidden.when(numbers::SOCKET, other)?;
        for kind in OTHER_SOCKETS {
            let family = argument(0, SeccompCmpOp::Eq, family)?;
            let kind = argument(1, SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK), kind)?;
            forbidden.when(numbers::SOCKET, vec![family, kind])?;
        }
    }
    let netlink = argument(0, SeccompCmpOp::Eq, AF_NETLINK)?;
    let other = argument(2, SeccompCmpOp::Ne, NETLINK_ROUTE)?;
    forbidden.when(numbers::SOCKET, vec![netlink, other])?;
    let foreign = argument(0, SeccompCmpOp::Ne, AF_UNIX)?;
    forbidden.when(numbers::SOCKETPAIR, vec![foreign])
}

impl Refusals {
    fn always(&mut self, call: u32) {
        for alias in ALIASES {
            self.0.insert(i64::from(call) | alias, Vec::new());
        }
    }

    /// Refuses a call when all conditions hold, in addition to earlier rules.
    fn when(&mut self, call: u32, conditions: Vec<SeccompCondition>) -> Result<(), BackendError> {
        let rule = SeccompRule::new(conditions)?;
        for alias in ALIASES {
            let calls = self.0.entry(i64::from(call) | alias);
            calls.or_default().push(rule.clone());
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
            for syscalls in [Syscalls::DenyList, Syscalls::AllowList] {
                for sockets in [Sockets::Profile, Sockets::LocalOnly] {
                    let filters = filters(profile, syscalls, sockets).unwrap();
                    assert!(filters.refused > 30);
                    assert_eq!(filters.allowed.is_some(), syscalls == Syscalls::AllowList);
                    for program in filters.programs {
                        assert!(program.len() % 8 == 0 && program.len() / 8 < 4096);
                    }
                }
            }
        }
    }
}
