//! A C string of bounded length built on the stack: the init has no allocator.

use core::ffi::CStr;

/// The longest path that the kernel accepts.
const CAPACITY: usize = 4096;

/// A zero-terminated string under construction.
pub(crate) struct Text {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl Text {
    /// Creates a string from bytes.
    pub(crate) fn new(start: &[u8]) -> Self {
        let mut text = Self {
            bytes: [0; CAPACITY],
            length: 0,
        };
        text.push(start);
        text
    }

    /// Appends bytes, as far as they fit.
    pub(crate) fn push(&mut self, more: &[u8]) {
        for byte in more {
            if self.length < CAPACITY - 1 {
                self.bytes[self.length] = *byte;
                self.length += 1;
            }
        }
    }

    /// Appends a number in decimal.
    pub(crate) fn push_number(&mut self, number: u32) {
        let mut digits = [0u8; 10];
        let mut first = digits.len();
        let mut rest = number;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[first..]);
    }

    /// Returns the string; empty if it contains a zero byte.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}
