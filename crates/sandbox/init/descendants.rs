//! Finds the descendants of this process on hosts without a PID namespace.
//!
//! Works because this process is a subreaper: an orphaned descendant becomes its child. Signals go
//! through pidfds, so a reused process id is never hit.

use core::ffi::CStr;

use crate::sys;
use crate::text::Text;

/// A longer chain of parents is a loop caused by reused process ids.
const MAX_DEPTH: usize = 512;

/// Kills the children of this process that the kernel lists, and returns how many there are.
///
/// The orphans of a killed child become children of this process, so repeated calls kill the whole
/// tree, at a fraction of the cost of a scan of all processes. Only this process reaps its
/// children, so their ids are not reused. Returns zero if the kernel keeps no such list.
pub(crate) fn kill_children() -> usize {
    let own = sys::process_id() as u32;
    let mut path = Text::new(b"/proc/");
    path.push_number(own);
    path.push(b"/task/");
    path.push_number(own);
    path.push(b"/children");
    let Ok(fd) = sys::open(path.as_c_str(), sys::O_RDONLY | sys::O_CLOEXEC, 0) else {
        return 0;
    };
    let mut buffer = [0u8; 2048];
    let outcome = sys::read(fd, &mut buffer);
    sys::close(fd);
    let text = outcome.ok().and_then(|length| buffer.get(..length));
    // A number cut off by the buffer is read in a later round: each number ends with a space.
    let whole = text.and_then(|text| text.get(..text.iter().rposition(|byte| *byte == b' ')?));
    let mut killed = 0;
    for pid in whole.unwrap_or_default().split(|byte| *byte == b' ') {
        if let Some(pid) = number(pid) {
            sys::kill(pid, sys::SIGKILL);
            killed += 1;
        }
    }
    killed
}

/// Sends a signal to every descendant.
pub(crate) fn signal_all(signal: i32) {
    let own = sys::process_id();
    for_each_process(|pid| signal_if_descendant(pid, own, signal));
}

/// Reads a process id that a program wrote to a file.
pub(crate) fn written_id(path: &CStr) -> Option<i32> {
    let fd = sys::open(path, sys::O_RDONLY | sys::O_CLOEXEC, 0).ok()?;
    let mut digits = [0; 16];
    let outcome = sys::read(fd, &mut digits);
    sys::close(fd);
    number(digits.get(..outcome.ok()?)?.trim_ascii())
}

fn for_each_process(mut look: impl FnMut(i32)) {
    let Ok(proc) = sys::open(
        c"/proc",
        sys::O_RDONLY | sys::O_DIRECTORY | sys::O_CLOEXEC,
        0,
    ) else {
        return;
    };
    let mut buffer = [0u8; 2048];
    while let Ok(length @ 1..) = sys::directory_entries(proc, &mut buffer) {
        let mut rest = &buffer[..length];
        // struct linux_dirent64: u64 inode, i64 offset, u16 record length, u8 type, name.
        while rest.len() > 19 {
            let record = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
            let name = CStr::from_bytes_until_nul(&rest[19..]).map_or(&b""[..], CStr::to_bytes);
            if let Some(pid) = number(name) {
                look(pid);
            }
            rest = rest.get(record.max(1)..).unwrap_or(&[]);
        }
    }
    sys::close(proc);
}

fn signal_if_descendant(pid: i32, own: i32, signal: i32) {
    let Ok(pidfd) = sys::pidfd_open(pid) else {
        return;
    };
    let mut ancestor = pid;
    for _ in 0..MAX_DEPTH {
        match parent(ancestor) {
            Some(parent) if parent == own => {
                sys::pidfd_signal(pidfd, signal);
                break;
            }
            Some(parent) if parent > 1 => ancestor = parent,
            _ => break,
        }
    }
    sys::close(pidfd);
}

/// Returns the parent of a process, from the fourth field of its `stat`.
fn parent(pid: i32) -> Option<i32> {
    let mut buffer = [0; 256];
    let length = read_file(pid, b"/stat", &mut buffer)?;
    let text = buffer.get(..length)?;
    // The second field is a name in parentheses that may contain any character.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let field = text.get(after_name..)?.split(|byte| *byte == b' ').nth(1)?;
    number(field)
}

/// Reads the beginning of a file of a process in `/proc`.
fn read_file(pid: i32, name: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let mut path = Text::new(b"/proc/");
    path.push_number(pid as u32);
    path.push(name);
    let fd = sys::open(path.as_c_str(), sys::O_RDONLY | sys::O_CLOEXEC, 0).ok()?;
    let outcome = sys::read(fd, buffer);
    sys::close(fd);
    outcome.ok()
}

fn number(digits: &[u8]) -> Option<i32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0i32, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| i32::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}
