//! A filter that allows only listed system calls. All others are reported as not implemented, so
//! that programs written for newer kernels fall back instead of failing.
//!
//! Uses ranges of numbers: a chain of single comparisons would be ten times as long, and the kernel
//! evaluates it for each system call when the filter is installed.

use super::{ARCHITECTURE_ID, ENOSYS, numbers};

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_NOT_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

const KILL_PROCESS: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

/// Builds the filter for the usual system calls.
pub(super) fn program() -> Vec<u8> {
    let mut program = Vec::new();
    let mut put = |code: u16, if_true: u8, if_false: u8, value: u32| {
        program.extend_from_slice(&code.to_ne_bytes());
        program.extend_from_slice(&[if_true, if_false]);
        program.extend_from_slice(&value.to_ne_bytes());
    };
    put(LOAD, 0, 0, ARCHITECTURE);
    put(JUMP_IF_EQUAL, 1, 0, ARCHITECTURE_ID);
    put(RETURN, 0, 0, KILL_PROCESS);
    put(LOAD, 0, 0, NUMBER);
    let mut allowed: Vec<u32> = numbers::allowed().collect();
    allowed.sort_unstable();
    for (first, last) in ranges(&allowed) {
        // Ranges ascend: between this one and the previous one nothing is allowed.
        put(JUMP_IF_NOT_LESS, 1, 0, first);
        put(RETURN, 0, 0, ERRNO | ENOSYS);
        put(JUMP_IF_GREATER, 1, 0, last);
        put(RETURN, 0, 0, ALLOW);
    }
    put(RETURN, 0, 0, ERRNO | ENOSYS);
    program
}

/// Merges consecutive numbers, which ascend, into ranges.
fn ranges(numbers: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), [(0, 2), (5, 5), (7, 8)]);
    }

    #[test]
    fn nothing_that_is_refused_to_hosted_trees_is_let_pass() {
        let refused = [
            numbers::MACHINE,
            numbers::OTHERS,
            numbers::ABSENT,
            numbers::SHARED,
        ]
        .concat();
        let passing: Vec<_> = refused
            .iter()
            .chain([&numbers::CLONE3, &numbers::UNSHARE])
            .filter(|call| numbers::allowed().any(|allowed| allowed == **call))
            .collect();
        assert_eq!(passing, Vec::<&u32>::new());
    }
}
