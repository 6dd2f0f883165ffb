//! System call numbers of x86-64 that a filter refuses or inspects.

#[path = "allowed_x86_64.rs"]
mod allowed;

pub(crate) use allowed::ALLOWED;

/// Calls that change the machine, its kernel or its mounts: refused to all trees.
pub(crate) const MACHINE: [i64; 40] = [
    163, // acct
    248, // add_key
    159, // adjtimex
    321, // bpf
    305, // clock_adjtime
    227, // clock_settime
    176, // delete_module
    313, // finit_module
    431, // fsconfig
    432, // fsmount
    430, // fsopen
    433, // fspick
    175, // init_module
    173, // ioperm
    172, // iopl
    320, // kexec_file_load
    246, // kexec_load
    250, // keyctl
    212, // lookup_dcookie
    165, // mount
    442, // mount_setattr
    429, // move_mount
    180, // nfsservctl
    304, // open_by_handle_at
    428, // open_tree
    298, // perf_event_open
    155, // pivot_root
    179, // quotactl
    443, // quotactl_fd
    169, // reboot
    249, // request_key
    171, // setdomainname
    170, // sethostname
    164, // settimeofday
    168, // swapoff
    167, // swapon
    103, // syslog
    166, // umount2
    323, // userfaultfd
    153, // vhangup
];

/// Calls that access other processes and namespaces: refused to hosted trees.
pub(crate) const OTHERS: [i64; 9] = [
    161, // chroot
    312, // kcmp
    303, // name_to_handle_at
    438, // pidfd_getfd
    440, // process_madvise
    310, // process_vm_readv
    311, // process_vm_writev
    101, // ptrace
    308, // setns
];

/// Reported as not implemented: programs then use older calls.
pub(crate) const ABSENT: [i64; 3] = [
    425, // io_uring_setup
    426, // io_uring_enter
    427, // io_uring_register
];

pub(crate) const CLONE: i64 = 56;
pub(crate) const CLONE3: i64 = 435;
pub(crate) const IOCTL: i64 = 16;
pub(crate) const PERSONALITY: i64 = 135;
pub(crate) const SOCKET: i64 = 41;
pub(crate) const SOCKETPAIR: i64 = 53;
pub(crate) const UNSHARE: i64 = 272;
