//! Takes system calls away from this process and all it starts, as a stricter host would.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

const EPERM: u32 = 1;
const RLIMIT_NOFILE: u64 = 7;

/// What an owner is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Nothing,
    /// `seccomp`: no filters.
    Seccomp,
    /// `landlock_create_ruleset`, once the ABI has been asked for.
    Landlock,
    /// `mount`.
    Mount,
    /// `unshare` of everything.
    Unshare,
    /// `ioctl(SIOCSIFFLAGS)`: the loopback stays down.
    Loopback,
    /// Setting the limit of descriptors.
    DescriptorLimit,
}

const ALL: [Denied; 7] = [
    Denied::Nothing,
    Denied::Seccomp,
    Denied::Landlock,
    Denied::Mount,
    Denied::Unshare,
    Denied::Loopback,
    Denied::DescriptorLimit,
];

#[cfg(target_arch = "x86_64")]
const NUMBERS: [i64; 6] = [317, 444, 165, 272, 16, 302];
#[cfg(target_arch = "aarch64")]
const NUMBERS: [i64; 6] = [277, 444, 40, 97, 29, 261];

/// Takes away what the name of a [`Denied`] says.
pub(crate) fn apply(name: &str) {
    let denied = ALL.into_iter().find(|denied| format!("{denied:?}") == name);
    let denied = denied.unwrap();
    let condition = |index, operator, value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value).unwrap()
    };
    let when = |conditions| vec![SeccompRule::new(conditions).unwrap()];
    let (number, rules) = match denied {
        Denied::Nothing => return,
        Denied::Seccomp => (NUMBERS[0], vec![]),
        Denied::Landlock => (NUMBERS[1], when(vec![condition(0, SeccompCmpOp::Ne, 0)])),
        Denied::Mount => (NUMBERS[2], vec![]),
        Denied::Unshare => (NUMBERS[3], vec![]),
        Denied::Loopback => (
            NUMBERS[4],
            when(vec![condition(1, SeccompCmpOp::Eq, 0x8914)]),
        ),
        // With a pointer to a new limit, not to read the old one.
        Denied::DescriptorLimit => {
            let which = condition(1, SeccompCmpOp::Eq, RLIMIT_NOFILE);
            (
                NUMBERS[5],
                when(vec![which, condition(2, SeccompCmpOp::Ne, 0)]),
            )
        }
    };
    let filter = SeccompFilter::new(
        BTreeMap::from([(number, rules)]),
        SeccompAction::Allow,
        SeccompAction::Errno(EPERM),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
}
