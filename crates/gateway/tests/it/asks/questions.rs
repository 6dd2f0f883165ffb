//! Questions that may be for any of several calls of a client: they go to its session, and to nobody
//! else's.

use std::fs;
use std::path::PathBuf;

use gantry_testkit::Era;
use gantry_testkit::fixture::{self, Asks};
use serde_json::{Value, json};

use super::client::{Begun, Client, Generation, Waiting, answer, everything};
use super::{BOTH, started, text};
use crate::harness::{Gantry, LONG};

const ASKS_TWICE: &str = "old__test_input_required_result_multi_round";
const SAID: &str = "Multi-round complete for Alice who likes blue";
const HELD: &str = "Reconnection test completed successfully";

fn open(gantry: &Gantry) -> Client<'_> {
    Client::open(gantry, &gantry.agent, Generation::Handshake, everything())
}

/// A client with two calls: one that asks, and another on whose stream its question came.
struct Asked<'a> {
    client: Client<'a>,
    asking: Begun,
    question: Waiting,
    until: PathBuf,
    _folder: tempfile::TempDir,
}

impl<'a> Asked<'a> {
    fn of(gantry: &'a Gantry) -> Self {
        let client = open(gantry);
        let folder = tempfile::tempdir().unwrap();
        let until = folder.path().join("until");
        // The first question can only be for the only call.
        let first = client.begin(ASKS_TWICE, json!({})).asked_first();
        let other = client.begin("old__test_reconnection", json!({"until": until}));
        gantry.wait_status("old", LONG, |status| status["queue"]["in_flight"] == 2);
        let asking = client.answered(first, |method| json!({"result": answer(method)}));
        // Nobody can say whose the second is: it comes with the newest call.
        let question = other.asked_first();
        assert_eq!(question.methods(), ["elicitation/create"]);
        Self {
            client,
            asking,
            question,
            until,
            _folder: folder,
        }
    }

    fn answered(client: &Client<'_>, id: &Value) {
        let result = answer("elicitation/create");
        let response = json!({"jsonrpc": "2.0", "id": id, "result": result});
        assert_eq!(client.respond(&response), 202);
    }
}

// fault T4
#[test]
fn a_question_stays_asked_when_the_call_ends_that_it_came_with() {
    let gantry = started(&json!({}));
    let stranger = open(&gantry);
    let asked = Asked::of(&gantry);
    let id = asked.question.requests[0].0.clone();
    fs::write(&asked.until, "").unwrap();
    assert_eq!(text(&asked.question.begun.done()), HELD);
    // Nobody else can answer it.
    Asked::answered(&stranger, &id);
    Asked::answered(&asked.client, &id);
    assert_eq!(text(&asked.asking.done()), SAID);
}

#[test]
fn a_question_is_asked_again_when_its_stream_is_lost() {
    let gantry = started(&json!({}));
    let asked = Asked::of(&gantry);
    drop(asked.question);
    let again = asked.asking.asked_first();
    assert_eq!(again.methods(), ["elicitation/create"]);
    assert_eq!(text(&asked.client.go_on(again).answer), SAID);
}

// A session that ends answers nothing more, and the server hears that.
#[test]
fn a_question_to_a_session_ends_with_it() {
    let gantry = started(&json!({}));
    let asked = Asked::of(&gantry);
    assert_eq!(asked.client.leave(), 204);
    let told = asked.asking.done();
    assert!(text(&told).contains("cannot be asked any more"), "{told:#}");
    fs::write(&asked.until, "").unwrap();
    assert_eq!(text(&asked.question.begun.done()), HELD);
}

// fault T4: as many questions as calls at once, in two sessions; each answers its own
#[test]
fn sessions_are_asked_each_for_its_own_calls() {
    let gantry = started(&json!({}));
    let clients = [open(&gantry), open(&gantry)];
    std::thread::scope(|scope| {
        let ends = clients.each_ref().map(|client| {
            [(); 4].map(|()| {
                let begun = client.begin("old__test_sampling", json!({"prompt": "?"}));
                scope.spawn(|| client.finish(begun))
            })
        });
        for ends in ends {
            let done = ends.map(|done| done.join().unwrap());
            let asked: usize = done.iter().map(|done| done.asked.len()).sum();
            assert_eq!(asked, 4, "each call asks once, on whichever stream");
            for done in done {
                assert_eq!(text(&done.answer), "LLM response: Paris");
            }
        }
    });
}

// Many servers ask for roots as soon as they are greeted: the client of the first call is asked.
#[test]
fn what_is_asked_at_the_start_the_first_client_answers() {
    let argv = fixture::asking(Era::Legacy, Asks::AtStart);
    let entry = json!({"command": argv[0], "args": argv[1..]});
    let gantry = Gantry::builder().entry("old", entry).start();
    gantry.wait_state("old", "ready", LONG);
    for generation in BOTH {
        let client = Client::open(&gantry, &gantry.agent, generation, everything());
        let done = client.call("old__first_roots", json!({}));
        assert_eq!(done.asked, ["roots/list"], "{:#}", done.answer);
        assert!(
            text(&done.answer).contains("file:///x"),
            "{:#}",
            done.answer
        );
    }
}
