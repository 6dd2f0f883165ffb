//! Files that a server's entry names beside its sign-in.

use super::*;

#[test]
fn a_file_of_certificates_is_a_plain_file() {
    let peer = AuthServer::start(AuthOptions::default());
    let gantry = Gantry::start(&[]);
    let pipe = gantry.data().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let files = ["/dev/zero", pipe.to_str().unwrap()];
    for (name, file) in ["endless", "waiting"].into_iter().zip(files) {
        let body = json!({"name": name, "url": peer.mcp_url(), "start": "eager", "ca_file": file});
        let made = gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
        assert_eq!(made.status, 201, "{}", made.text());
        let status = gantry.wait_state(name, "failed", LONG);
        let reason = status["reason"].as_str().unwrap();
        let told = "`ca_file` cannot be read: it is not a regular file";
        assert!(reason.contains(told), "{reason}");
    }
    // Others were not held up by it.
    let body = json!({"name": "safe", "url": peer.mcp_url(), "start": "eager"});
    gantry.rest("POST", "/api/v1/mcp/servers", Some(&body));
    gantry.wait_state("safe", "needs_sign_in", LONG);
}
