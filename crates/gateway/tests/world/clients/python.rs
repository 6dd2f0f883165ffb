//! The Python SDK in both generations, and `fastmcp`.

use super::story::{Client, tell};
use super::{Stage, Way};

pub(super) const FIRST: Client = Client::python("mcp-1", "mcp1", "legacy");
const SECOND: Client = Client::python("mcp-2", "mcp2", "auto");
const SECOND_WITH_HANDSHAKE: Client = Client::python("mcp-2", "mcp2", "legacy");
const FASTMCP: Client = Client::python("fastmcp", "fast", "auto");
const FASTMCP_WITH_HANDSHAKE: Client = Client::python("fastmcp", "fast", "legacy");

/// All of them.
pub(super) const CLIENTS: [Client; 5] = [
    FIRST,
    SECOND,
    SECOND_WITH_HANDSHAKE,
    FASTMCP,
    FASTMCP_WITH_HANDSHAKE,
];

#[test]
fn the_first_generation_over_http() {
    tell(&Stage::set(), FIRST, Way::Http);
}

#[test]
fn the_first_generation_over_stdio() {
    tell(&Stage::set(), FIRST, Way::Stdio);
}

#[test]
fn the_first_generation_over_sse() {
    tell(&Stage::set(), FIRST, Way::Sse);
}

#[test]
fn the_second_generation_as_it_comes_over_http() {
    tell(&Stage::set(), SECOND, Way::Http);
}

#[test]
fn the_second_generation_as_it_comes_over_stdio() {
    tell(&Stage::set(), SECOND, Way::Stdio);
}

#[test]
fn the_second_generation_with_a_handshake_over_http() {
    tell(&Stage::set(), SECOND_WITH_HANDSHAKE, Way::Http);
}

#[test]
fn the_second_generation_with_a_handshake_over_stdio() {
    tell(&Stage::set(), SECOND_WITH_HANDSHAKE, Way::Stdio);
}

#[test]
fn fastmcp_as_it_comes_over_http() {
    tell(&Stage::set(), FASTMCP, Way::Http);
}

#[test]
fn fastmcp_as_it_comes_over_stdio() {
    tell(&Stage::set(), FASTMCP, Way::Stdio);
}

#[test]
fn fastmcp_with_a_handshake_over_http() {
    tell(&Stage::set(), FASTMCP_WITH_HANDSHAKE, Way::Http);
}

#[test]
fn fastmcp_with_a_handshake_over_stdio() {
    tell(&Stage::set(), FASTMCP_WITH_HANDSHAKE, Way::Stdio);
}
