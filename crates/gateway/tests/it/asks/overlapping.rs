//! Calls of clients with capabilities that overlap: on a process of each client's own, and on another
//! before anybody waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use gantry_testkit::{Era, Evilpeer, Kind, Served};
use serde_json::{Value, json};

use super::client::{Begun, Client, Generation, everything};
use super::strangers::other_key;
use super::text;
use crate::harness::{Gantry, LONG, entry};

/// A gateway before a server of the handshake era whose calls end when the test wants.
struct Rig {
    gantry: Gantry,
    folder: tempfile::TempDir,
    _served: Option<Served>,
}

impl Rig {
    /// Starts both, the server over HTTP if it has such a kind, with further members of its entry.
    fn start(kind: Option<Kind>, members: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let peer = Evilpeer::new().era(Era::Legacy);
        let peer = peer.journal(&folder.path().join("journal"));
        let served = kind.map(|kind| peer.serve(kind));
        let mut entry = match (&served, kind) {
            (Some(served), Some(Kind::Sse)) => json!({"url": served.url, "type": "sse"}),
            (Some(served), _) => json!({"url": served.url, "type": "http"}),
            (None, _) => entry(&peer),
        };
        for (key, value) in members.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let gantry = Gantry::builder().entry("s", entry).start();
        gantry.wait_state("s", "ready", LONG);
        Self {
            gantry,
            folder,
            _served: served,
        }
    }

    fn client(&self, generation: Generation) -> Client<'_> {
        Client::open(&self.gantry, &self.gantry.agent, generation, everything())
    }

    fn until(&self) -> PathBuf {
        self.folder.path().join("until")
    }

    fn journal(&self) -> Journal {
        Journal::read(&self.folder.path().join("journal")).unwrap()
    }

    /// Begins a call that goes on until all are let go.
    fn hold(&self, client: &Client<'_>, nonce: &str, total: usize) -> Begun {
        hold(client, &self.until(), nonce, total)
    }

    /// Waits until the server has these calls, all at once.
    fn arrived(&self, nonces: &[String]) {
        let have = || {
            let journal = self.journal();
            nonces.iter().all(|nonce| journal.executed(nonce) == 1)
        };
        assert!(eventually(LONG, have).is_some(), "{nonces:?} arrive");
        assert!(!self.until().exists(), "none of them has ended");
    }

    fn let_go(&self) {
        fs::write(self.until(), "").unwrap();
    }
}

fn hold(client: &Client<'_>, until: &Path, nonce: &str, total: usize) -> Begun {
    let arguments = json!({"ms": 0, "progress": total, "until": until, "nonce": nonce});
    let params = json!({
        "name": "s__slow", "arguments": arguments, "_meta": {"progressToken": "t"},
    });
    client.send("tools/call", params)
}

fn nonces(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what}-{n}")).collect()
}

/// Has one client call eight times at once, and returns after how many starts of processes.
fn eight_at_once(kind: Option<Kind>) -> usize {
    let rig = Rig::start(kind, &json!({}));
    let client = rig.client(Generation::Handshake);
    let nonces = nonces("call", 8);
    let begun = nonces.iter().enumerate();
    let begun: Vec<_> = begun
        .map(|(n, nonce)| rig.hold(&client, nonce, 100 + n))
        .collect();
    rig.arrived(&nonces);
    rig.let_go();
    for (n, begun) in begun.into_iter().enumerate() {
        let done = client.finish(begun);
        assert_eq!(text(&done.answer), "waited");
        // All name their progress alike; each hears of its own.
        let totals = done.words.iter().map(|word| &word["params"]["total"]);
        let totals: Vec<_> = totals.collect();
        assert!(!totals.is_empty(), "progress is heard");
        assert!(totals.iter().all(|total| **total == 100 + n), "{totals:?}");
    }
    rig.journal().starts()
}

// row 1.7: calls of one client with capabilities overlap, in one process
#[test]
fn calls_of_one_client_overlap() {
    assert_eq!(
        eight_at_once(None),
        2,
        "the common process, and the client's"
    );
}

#[test]
fn calls_of_one_client_overlap_over_sse() {
    eight_at_once(Some(Kind::Sse));
}

#[test]
fn calls_of_one_client_overlap_over_streamable_http() {
    eight_at_once(Some(Kind::Streamable));
}

#[test]
fn calls_of_clients_without_sessions_overlap_in_processes_of_their_own() {
    let rig = Rig::start(None, &json!({}));
    let client = rig.client(Generation::Stateless);
    let nonces = nonces("call", 4);
    let begun = nonces.iter().map(|nonce| rig.hold(&client, nonce, 7));
    let begun: Vec<_> = begun.collect();
    rig.arrived(&nonces);
    assert_eq!(rig.journal().starts(), 5);
    rig.let_go();
    for begun in begun {
        assert_eq!(text(&client.finish(begun).answer), "waited");
    }
}

// A process that takes one call at a time is full with it; the next call gets another process, and
// who finds none hears what is full. One agent may use all of them. row 1.7
#[test]
fn one_agent_uses_every_process_that_is_free() {
    let rig = Rig::start(None, &json!({"concurrency": 1, "calls": {"timeout": "2s"}}));
    let client = rig.client(Generation::Handshake);
    let own = nonces("own", 4);
    let begun: Vec<_> = own
        .iter()
        .map(|nonce| rig.hold(&client, nonce, 7))
        .collect();
    rig.arrived(&own);
    assert_eq!(rig.journal().starts(), 5);
    let busy = client.call("s__echo", json!({"text": "x"})).answer;
    assert_eq!(busy["error"]["data"]["code"], "server.busy", "{busy:#}");
    let told = busy["error"]["message"].as_str().unwrap();
    assert!(told.contains("all 4 processes"), "{told}");
    assert!(!told.contains("calls wait already"), "{told}");
    let hint = busy["error"]["data"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("`concurrency`"), "{busy:#}");
    rig.let_go();
    for begun in begun {
        assert_eq!(text(&begun.done()), "waited");
    }
    let echoed = client.call("s__echo", json!({"text": "x"})).answer;
    assert_eq!(text(&echoed), "x");
}

// fault A5: who comes has its share at once, and who has more gives way
#[test]
fn an_agent_that_comes_gets_its_share_of_the_processes() {
    let rig = Rig::start(None, &json!({"concurrency": 1}));
    let client = rig.client(Generation::Handshake);
    let own = nonces("own", 4);
    let hold = |client: &Client<'_>, nonces: &[String]| -> Vec<Begun> {
        let begun = nonces.iter().map(|nonce| rig.hold(client, nonce, 7));
        begun.collect()
    };
    let mut begun = hold(&client, &own);
    rig.arrived(&own);
    // More of the same agent's calls wait, and wait longer.
    let more = nonces("more", 3);
    let mut later = hold(&client, &more);
    let key = other_key(&rig.gantry);
    let other = Client::open(&rig.gantry, &key, Generation::Handshake, everything());
    let theirs = nonces("theirs", 2);
    later.extend(hold(&other, &theirs));
    rig.arrived(&theirs);
    let began = |nonces: &[String]| {
        let journal = rig.journal();
        let began = |nonce: &&String| journal.executed(nonce) == 1;
        nonces.iter().filter(began).count()
    };
    // There are six now; until there are four again, nobody who has its share gets another.
    for nonce in &own[..2] {
        drop(begun.remove(0));
        let cancelled = || rig.journal().cancelled(nonce);
        assert!(eventually(LONG, cancelled).is_some(), "the server is told");
    }
    assert_eq!(began(&more), 0);
    drop(begun.remove(0));
    assert!(
        eventually(LONG, || began(&more) == 1).is_some(),
        "the next comes"
    );
    rig.let_go();
    for begun in begun.into_iter().chain(later) {
        assert_eq!(text(&begun.done()), "waited");
    }
}

// The ninth session has a process as the first has.
#[test]
fn as_many_sessions_of_one_agent_as_there_may_be_processes_overlap() {
    let rig = Rig::start(None, &json!({"concurrency": 16}));
    let clients: Vec<_> = (0..9).map(|_| rig.client(Generation::Handshake)).collect();
    let nonces = nonces("call", 9);
    let begun = clients.iter().zip(&nonces);
    let begun: Vec<_> = begun
        .map(|(client, nonce)| rig.hold(client, nonce, 7))
        .collect();
    rig.arrived(&nonces);
    rig.let_go();
    for begun in begun {
        assert_eq!(text(&begun.done()), "waited");
    }
}

// fault A4: who leaves one of several calls takes that one back
#[test]
fn one_of_several_calls_is_taken_back_alone() {
    let rig = Rig::start(None, &json!({}));
    let client = rig.client(Generation::Handshake);
    let nonces = nonces("call", 3);
    let begun = nonces.iter().map(|nonce| rig.hold(&client, nonce, 7));
    let mut begun: Vec<_> = begun.collect();
    rig.arrived(&nonces);
    drop(begun.remove(1));
    let cancelled = || rig.journal().cancelled(&nonces[1]);
    assert!(eventually(LONG, cancelled).is_some(), "the server is told");
    rig.let_go();
    for begun in begun {
        assert_eq!(text(&begun.done()), "waited");
    }
    let journal = rig.journal();
    assert!(!journal.cancelled(&nonces[0]) && !journal.cancelled(&nonces[2]));
    assert_eq!(journal.starts(), 2);
}

// fault P1: each of several calls hears how their process ended
#[test]
fn all_calls_of_a_process_that_ends_are_told() {
    let rig = Rig::start(None, &json!({}));
    let client = rig.client(Generation::Handshake);
    let plain = Client::open(
        &rig.gantry,
        &rig.gantry.agent,
        Generation::Handshake,
        json!({}),
    );
    let nonces = nonces("call", 3);
    let mut begun: Vec<_> = nonces
        .iter()
        .map(|nonce| rig.hold(&client, nonce, 7))
        .collect();
    let beside = "beside".to_owned();
    let unharmed = rig.hold(&plain, &beside, 7);
    rig.arrived(&nonces);
    rig.arrived(&[beside]);
    begun.push(client.begin("s__crash", json!({"code": 3})));
    for begun in begun {
        let ended = begun.done();
        assert_eq!(ended["error"]["data"]["code"], "server.exited", "{ended:#}");
    }
    // The process that all share had no part in it, and the client gets another.
    let echoed = client.call("s__echo", json!({"text": "x"})).answer;
    assert_eq!(text(&echoed), "x");
    rig.let_go();
    assert_eq!(text(&unharmed.done()), "waited");
    let rows = rig.gantry.audit_rows("server=s&code=server.exited");
    assert_eq!(rows.len(), 4, "{rows:#?}");
}

// fault T4: the calls of two clients overlap, each in its own process
#[test]
fn sessions_have_processes_of_their_own() {
    let rig = Rig::start(None, &json!({}));
    let clients = [(); 3].map(|()| rig.client(Generation::Handshake));
    let nonces = nonces("call", 3);
    let begun = clients.iter().zip(&nonces);
    let begun: Vec<_> = begun
        .map(|(client, nonce)| rig.hold(client, nonce, 7))
        .collect();
    rig.arrived(&nonces);
    assert_eq!(rig.journal().starts(), 4);
    rig.let_go();
    for begun in begun {
        assert_eq!(text(&begun.done()), "waited");
    }
    let queue = |status: &Value| status["queue"]["in_flight"] == 0;
    rig.gantry.wait_status("s", Duration::from_secs(10), queue);
}
