//! Must show 4 of the upstreams: third parties on both ends. Before each kind of server of other makers,
//! over each kind of link, every client of other makers does everything.

use super::{Behind, Stage, Way, adk, inspector, python};

/// Has each client use one server through one gateway.
fn all_clients_before(behind: Behind) {
    let stage = Stage::before(behind);
    for client in python::CLIENTS {
        eprintln!("{behind:?}: {client:?}");
        python::tell(&stage, client, Way::Http);
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
