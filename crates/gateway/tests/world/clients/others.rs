//! Must show 4 of the upstreams: third parties on both ends. Before each kind of server of other makers,
//! over each kind of link, every client of other makers does everything.

use super::{Behind, Stage, Way, adk, inspector, python, story, typescript};
use crate::made::{Kit, Over};

/// Has each client use one server through one gateway.
fn all_clients_before(behind: Behind) {
    let stage = Stage::before(behind);
    for client in python::CLIENTS.into_iter().chain(typescript::CLIENTS) {
        eprintln!("{behind:?}: {client:?}");
        story::tell(&stage, client, Way::Http);
    }
    for era in inspector::ERAS {
        eprintln!("{behind:?}: the Inspector, {era}");
        inspector::everything(&stage, era, Way::Http);
    }
    for way in [Way::Http, Way::Sse] {
        eprintln!("{behind:?}: an agent over {way:?}");
        adk::agent_uses(&stage, way);
    }
}

#[test]
fn a_python_server_over_streamable_http() {
    all_clients_before(Behind::PythonHttp);
}

#[test]
fn a_python_server_over_sse() {
    all_clients_before(Behind::PythonSse);
}

#[test]
fn the_reference_server_over_streamable_http() {
    all_clients_before(Behind::EverythingHttp);
}

#[test]
fn the_reference_server_over_sse() {
    all_clients_before(Behind::EverythingSse);
}

/// Has the clients of the TypeScript SDK, and one of another maker, use a server of that SDK.
fn typescript_before(kit: Kit, over: Over) {
    let stage = Stage::before(Behind::Made(kit, over));
    for client in typescript::CLIENTS.into_iter().chain([python::FIRST]) {
        eprintln!("{kit:?}, {over:?}: {client:?}");
        story::tell(&stage, client, Way::Http);
    }
}

#[test]
fn a_typescript_server_of_the_first_generation() {
    typescript_before(Kit::TypeScriptFirst, Over::Stdio);
    typescript_before(Kit::TypeScriptFirst, Over::Http);
}

#[test]
fn a_typescript_server_of_the_second_generation() {
    typescript_before(Kit::TypeScriptSecond, Over::Stdio);
    typescript_before(Kit::TypeScriptSecond, Over::Http);
}
