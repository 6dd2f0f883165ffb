//! Tells on standard output which kernel this program finds itself on: run as a guest, it proves what a
//! runtime is.

use crate::sys;

const STDOUT: i32 = 1;

/// Writes the kernel's version and what it logged, and ends.
pub(crate) fn testify() -> ! {
    let mut buffer = [0; 4096];
    if let Ok(fd) = sys::open(c"/proc/version", sys::O_RDONLY | sys::O_CLOEXEC, 0)
        && let Ok(length) = sys::read(fd, &mut buffer)
    {
        let _ = sys::write(STDOUT, &buffer[..length]);
    }
    if let Ok(length) = sys::kernel_log(&mut buffer) {
        let _ = sys::write(STDOUT, &buffer[..length]);
    }
    sys::exit(0)
}
