//! The memory functions that the compiler calls by name; there is no libc to provide them.
//!
//! The crate is `no_builtins`, so that these loops are not compiled into calls of themselves.

/// # Safety
/// As in C: `length` bytes at both places, not overlapping.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    for index in 0..length {
        // SAFETY: `index` is below the length the caller vouches for.
        unsafe { to.add(index).write(from.add(index).read()) };
    }
    to
}

/// # Safety
/// As in C: `length` bytes at both places.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    for step in 0..length {
        let index = if (to as usize) < from as usize {
            step
        } else {
            length - 1 - step
        };
        // SAFETY: `index` is below the length the caller vouches for.
        unsafe { to.add(index).write(from.add(index).read()) };
    }
    to
}

/// # Safety
/// As in C: `length` bytes to fill.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
    for index in 0..length {
        // SAFETY: `index` is below the length the caller vouches for.
        unsafe { to.add(index).write(value as u8) };
    }
    to
}

/// # Safety
/// As in C: `length` bytes at both places.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    for index in 0..length {
        // SAFETY: `index` is below the length the caller vouches for.
        let (a, b) = unsafe { (left.add(index).read(), right.add(index).read()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// # Safety
/// As in C: `length` bytes at both places.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, length) }
}

/// # Safety
/// As in C: a zero-terminated string.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller vouches for a terminating zero.
    while unsafe { text.add(length).read() } != 0 {
        length += 1;
    }
    length
}

/// Referenced by the precompiled core library; never called, since a panic ends the process.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
