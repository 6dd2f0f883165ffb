//! System call numbers of arm64 that a filter refuses or inspects.

#[path = "allowed_aarch64.rs"]
mod allowed;

pub(crate) use allowed::ALLOWED;

/// Calls that change the machine, its kernel or its mounts: refused to all trees.
pub(crate) const MACHINE: [i64; 38] = [
    89,  // acct
    217, // add_key
    171, // adjtimex
    280, // bpf
    266, // clock_adjtime
    112, // clock_settime
    106, // delete_module
    273, // finit_module
    431, // fsconfig
    432, // fsmount
    430, // fsopen
    433, // fspick
    105, // init_module
    294, // kexec_file_load
    104, // kexec_load
    219, // keyctl
    18,  // lookup_dcookie
    40,  // mount
    442, // mount_setattr
    429, // move_mount
    42,  // nfsservctl
    265, // open_by_handle_at
    428, // open_tree
    241, // perf_event_open
    41,  // pivot_root
    60,  // quotactl
    443, // quotactl_fd
    142, // reboot
    218, // request_key
    162, // setdomainname
    161, // sethostname
    170, // settimeofday
    225, // swapoff
    224, // swapon
    116, // syslog
    39,  // umount2
    282, // userfaultfd
    58,  // vhangup
];

/// Calls that access other processes and namespaces: refused to hosted trees.
pub(crate) const OTHERS: [i64; 9] = [
    51,  // chroot
    272, // kcmp
    264, // name_to_handle_at
    438, // pidfd_getfd
    440, // process_madvise
    270, // process_vm_readv
    271, // process_vm_writev
    117, // ptrace
    268, // setns
];

/// Reported as not implemented: programs then use older calls.
pub(crate) const ABSENT: [i64; 3] = [
    425, // io_uring_setup
    426, // io_uring_enter
    427, // io_uring_register
];

pub(crate) const CLONE: i64 = 220;
pub(crate) const CLONE3: i64 = 435;
pub(crate) const IOCTL: i64 = 29;
pub(crate) const PERSONALITY: i64 = 92;
pub(crate) const SOCKET: i64 = 198;
pub(crate) const SOCKETPAIR: i64 = 199;
pub(crate) const UNSHARE: i64 = 97;
