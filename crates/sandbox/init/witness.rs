//! Prints which kernel this program runs on. Run as a guest, it proves that a runtime is gVisor.

use crate::sys;

const STDOUT: i32 = 1;

/// Prints the kernel's version and log, and exits.
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
