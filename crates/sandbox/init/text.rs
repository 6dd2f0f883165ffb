//! A C string of bounded length built on the stack: the init has no allocator.

use core::ffi::CStr;

/// The longest path the kernel takes.
const CAPACITY: usize = 4096;

/// A zero-terminated string under construction.
pub(crate) struct Text {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl Text {
    /// Starts with some bytes.
    pub(crate) fn new(start: &[u8]) -> Self {
        let mut text = Self {
            bytes: [0; CAPACITY],
            length: 0,
        };
        text.push(start);
        text
    }

    /// Appends bytes, as many as there is room for.
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

    /// The string; empty if a zero crept in.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}
