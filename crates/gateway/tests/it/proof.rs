//! The long proofs: nothing outlives the gateway, no call is lost or counted twice, no answer
//! reaches the wrong call. Each says its figures on stderr. They need root, as the build machine has.

mod audit;
mod client;
mod disk;
mod ids;
mod kill;
mod writes;

/// Returns a text that no other test's processes carry.
fn own_marker(what: &str) -> String {
    format!("{what}-{}-proof", std::process::id())
}

/// A small generator of numbers that are random enough to choose by; a proof says its seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}
