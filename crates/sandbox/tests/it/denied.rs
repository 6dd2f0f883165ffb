//! Takes system calls away from this process and all it starts, as a stricter host would.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

const EPERM: u32 = 1;
const RLIMIT_NOFILE: u64 = 7;
const CLONE_NEWCGROUP: u64 = 0x0200_0000;
const CLONE_NEWIPC: u64 = 0x0800_0000;
const CLONE_NEWNET: u64 = 0x4000_0000;
const PR_CAPBSET_DROP: u64 = 24;
const PR_SET_NO_NEW_PRIVS: u64 = 38;

/// What an owner is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Nothing,
    /// `seccomp`: no filters.
    Seccomp,
    /// `landlock_create_ruleset`, once the ABI has been asked for.
    Landlock,
    /// `landlock_restrict_self`: there are rules, and they do not hold.
    LandlockHolds,
    /// `mount`.
    Mount,
    /// `mount_setattr`: nothing becomes read-only, no layer shows other owners.
    MountAttributes,
    /// `pivot_root`.
    PivotRoot,
    /// `unshare` of everything.
    Unshare,
    /// `unshare` of semaphores and message queues, alone or among others.
    IpcNamespace,
    /// `unshare` of the network, alone or among others.
    NetworkNamespace,
    /// `unshare` of cgroups.
    CgroupNamespace,
    /// Writing a single byte, as to `tasks` of a cgroup.
    CgroupJoin,
    /// `setns`: nobody enters the user namespace.
    EnterNamespace,
    /// `setgroups`.
    Groups,
    /// `setresuid`.
    User,
    /// `capset`.
    Capabilities,
    /// `prctl(PR_CAPBSET_DROP)`.
    BoundingSet,
    /// `prctl(PR_SET_NO_NEW_PRIVS)`.
    NoNewPrivileges,
    /// `sethostname`.
    HostName,
    /// `ioctl(SIOCSIFFLAGS)`: the loopback stays down.
    Loopback,
    /// Setting the limit of descriptors.
    DescriptorLimit,
}

/// Each with the number of its system call, on x86-64 and on aarch64.
const ALL: [(Denied, i64, i64); 20] = [
    (Denied::Seccomp, 317, 277),
    (Denied::Landlock, 444, 444),
    (Denied::LandlockHolds, 446, 446),
    (Denied::Mount, 165, 40),
    (Denied::MountAttributes, 442, 442),
    (Denied::PivotRoot, 155, 41),
    (Denied::Unshare, 272, 97),
    (Denied::IpcNamespace, 272, 97),
    (Denied::NetworkNamespace, 272, 97),
    (Denied::CgroupNamespace, 272, 97),
    (Denied::CgroupJoin, 1, 64),
    (Denied::EnterNamespace, 308, 268),
    (Denied::Groups, 116, 159),
    (Denied::User, 117, 147),
    (Denied::Capabilities, 126, 91),
    (Denied::BoundingSet, 157, 167),
    (Denied::NoNewPrivileges, 157, 167),
    (Denied::HostName, 170, 161),
    (Denied::Loopback, 16, 29),
    (Denied::DescriptorLimit, 302, 261),
];

/// Takes away what the name of a [`Denied`] says, from all threads.
pub(crate) fn apply(name: &str) {
    if name == "Nothing" {
        return;
    }
    let known = ALL
        .iter()
        .find(|(denied, ..)| format!("{denied:?}") == name);
    let (denied, on_x86_64, on_aarch64) = *known.unwrap();
    let number = match cfg!(target_arch = "aarch64") {
        true => on_aarch64,
        false => on_x86_64,
    };
    let condition = |index, operator, value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value).unwrap()
    };
    let is = |index, value| vec![condition(index, SeccompCmpOp::Eq, value)];
    let not = |index, value| vec![condition(index, SeccompCmpOp::Ne, value)];
    let with = |flag| vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)];
    let conditions = match denied {
        Denied::Landlock => not(0, 0),
        Denied::IpcNamespace => with(CLONE_NEWIPC),
        Denied::NetworkNamespace => with(CLONE_NEWNET),
        Denied::CgroupNamespace => is(0, CLONE_NEWCGROUP),
        // The init has no descriptor of its job below that number.
        Denied::CgroupJoin => [vec![condition(0, SeccompCmpOp::Ge, 16)], is(2, 1)].concat(),
        Denied::BoundingSet => is(0, PR_CAPBSET_DROP),
        Denied::NoNewPrivileges => is(0, PR_SET_NO_NEW_PRIVS),
        Denied::Loopback => is(1, 0x8914),
        // With a pointer to a new limit, not to read the old one.
        Denied::DescriptorLimit => [is(1, RLIMIT_NOFILE), not(2, 0)].concat(),
        Denied::Nothing
        | Denied::Seccomp
        | Denied::LandlockHolds
        | Denied::Mount
        | Denied::MountAttributes
        | Denied::PivotRoot
        | Denied::Unshare
        | Denied::EnterNamespace
        | Denied::Groups
        | Denied::User
        | Denied::Capabilities
        | Denied::HostName => Vec::new(),
    };
    let rules = match conditions.is_empty() {
        true => Vec::new(),
        false => vec![SeccompRule::new(conditions).unwrap()],
    };
    let filter = SeccompFilter::new(
        BTreeMap::from([(number, rules)]),
        SeccompAction::Allow,
        SeccompAction::Errno(EPERM),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}
