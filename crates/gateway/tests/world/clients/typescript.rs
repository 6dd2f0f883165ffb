//! The TypeScript SDK in both generations.

use super::story::{Client, tell};
use super::{Stage, Way};

pub(crate) const FIRST: Client = Client::typescript("first");
const SECOND: Client = Client::typescript("auto");
const SECOND_WITH_HANDSHAKE: Client = Client::typescript("legacy");

/// All of them.
pub(super) const CLIENTS: [Client; 3] = [FIRST, SECOND, SECOND_WITH_HANDSHAKE];

#[test]
fn the_first_generation_in_each_way() {
    let stage = Stage::set();
    for way in [Way::Http, Way::Sse, Way::Stdio] {
        tell(&stage, FIRST, way);
    }
}

#[test]
fn the_second_generation_with_a_handshake_in_each_way() {
    let stage = Stage::set();
    for way in [Way::Http, Way::Sse, Way::Stdio] {
        tell(&stage, SECOND_WITH_HANDSHAKE, way);
    }
}

#[test]
fn the_second_generation_without_a_handshake_in_each_way() {
    let stage = Stage::set();
    for way in [Way::Http, Way::Stdio] {
        tell(&stage, SECOND, way);
    }
}
