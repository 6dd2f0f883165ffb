//! Every generation of clients before every kind of server, one table of what works and what is
//! declined; `docs/compatibility.md` shows it. Each cell is tried while a second client of other
//! capabilities has a call on the same server.

mod beside;
mod client;
mod own_lists;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use gantry_testkit::fixture::Asks;
use gantry_testkit::journal::Journal;
use gantry_testkit::wait::eventually;
use gantry_testkit::{Era, Evilpeer, Kind, Served, fixture};
use serde_json::{Value, json};

use self::client::{Client, SAID};
use crate::harness::{Gantry, LONG, entry};

/// What is listened to.
const WATCHED: &str = "test://static-text";

/// What clients call their progress.
const TOKEN: &str = "t";

/// A generation of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// HTTP+SSE.
    First,
    March,
    June,
    November,
    /// No sessions.
    Stateless,
}

impl Generation {
    const ALL: [Self; 5] = [
        Self::First,
        Self::March,
        Self::June,
        Self::November,
        Self::Stateless,
    ];

    fn version(self) -> &'static str {
        match self {
            Self::First => "2024-11-05",
            Self::March => "2025-03-26",
            Self::June => "2025-06-18",
            Self::November => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }

    fn has_version_header(self) -> bool {
        !matches!(self, Self::First | Self::March)
    }

    /// Elicitation came with the third version.
    fn elicits(self) -> bool {
        self.has_version_header()
    }
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upstream {
    OldStdio,
    NewStdio,
    OldHttp,
    NewHttp,
    Sse,
    DualStdio,
    DualHttp,
}

impl Upstream {
    const ALL: [(Self, &'static str); 7] = [
        (Self::OldStdio, "stdio, handshake era"),
        (Self::NewStdio, "stdio, stateless era"),
        (Self::OldHttp, "streamable HTTP, handshake era"),
        (Self::NewHttp, "streamable HTTP, stateless era"),
        (Self::Sse, "HTTP+SSE"),
        (Self::DualStdio, "stdio, both eras"),
        (Self::DualHttp, "streamable HTTP, both eras"),
    ];

    fn era(self) -> Era {
        match self {
            Self::OldStdio | Self::OldHttp | Self::Sse => Era::Legacy,
            Self::NewStdio | Self::NewHttp => Era::Modern,
            Self::DualStdio | Self::DualHttp => Era::Dual,
        }
    }

    fn kind(self) -> Option<Kind> {
        match self {
            Self::OldStdio | Self::NewStdio | Self::DualStdio => None,
            Self::OldHttp | Self::NewHttp | Self::DualHttp => Some(Kind::Streamable),
            Self::Sse => Some(Kind::Sse),
        }
    }

    /// A server of both eras asks as its SDK lets it: in that of the handshake alone.
    fn asks(self) -> Asks {
        match self.era() {
            Era::Legacy | Era::Modern => Asks::Everywhere,
            Era::Dual => Asks::Handshake,
        }
    }

    /// Returns whether it can ask clients of a generation at all.
    fn asks_any(self, client: Generation) -> bool {
        self.asks() == Asks::Everywhere || client != Generation::Stateless
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feature {
    List,
    Call,
    Parallel,
    Progress,
    Cancel,
    Error,
    Resource,
    Prompt,
    Elicitation,
    Sampling,
    ListChange,
    Subscription,
}

impl Feature {
    const ALL: [(Self, &'static str); 12] = [
        (Self::List, "list"),
        (Self::Call, "call"),
        (Self::Parallel, "parallel calls, with capabilities"),
        (Self::Progress, "progress"),
        (Self::Cancel, "cancel"),
        (Self::Error, "error"),
        (Self::Resource, "resource read"),
        (Self::Prompt, "prompt"),
        (Self::Elicitation, "elicitation"),
        (Self::Sampling, "sampling"),
        (Self::ListChange, "list change"),
        (Self::Subscription, "subscription"),
    ];
}

/// What a cell promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Works,
    /// The tool fails, and says that its client cannot do what it needs.
    ToolDeclines,
    /// The call is refused with this code.
    Declines(i64),
}

/// The table: what is promised to a client of this generation before such a server.
fn promised(client: Generation, upstream: Upstream, feature: Feature) -> Cell {
    match (feature, client.elicits(), upstream.era()) {
        // Its SDK has no way to ask in the stateless era, with a gateway or without.
        (Feature::Elicitation | Feature::Sampling, ..) if !upstream.asks_any(client) => {
            Cell::ToolDeclines
        }
        // The client's version has no elicitation, so that the server may not ask for it: one of the
        // handshake era is refused, one of the stateless era that asks all the same has failed.
        (Feature::Elicitation, false, Era::Legacy | Era::Dual) => Cell::ToolDeclines,
        (Feature::Elicitation, false, Era::Modern) => Cell::Declines(-31502),
        _ => Cell::Works,
    }
}

/// Two gateways before servers of one kind: one that does and tells, one that asks.
struct Rig {
    upstream: Upstream,
    doing: Gantry,
    asking: Gantry,
    folder: tempfile::TempDir,
    _served: Vec<Served>,
}

impl Rig {
    fn start(upstream: Upstream) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let peer = Evilpeer::new().era(upstream.era());
        let peer = peer.journal(&folder.path().join("journal"));
        let mut served = Vec::new();
        let (doing, asking) = match upstream.kind() {
            None => {
                let argv = fixture::asking(upstream.era(), upstream.asks());
                (entry(&peer), json!({"command": argv[0], "args": argv[1..]}))
            }
            Some(kind) => {
                let transport = match kind {
                    Kind::Streamable => "http",
                    Kind::Sse => "sse",
                };
                let mut place = |server: Served| {
                    let entry = json!({"url": server.url, "type": transport});
                    served.push(server);
                    entry
                };
                (
                    place(peer.serve(kind)),
                    place(fixture::serve_asking(upstream.era(), kind, upstream.asks())),
                )
            }
        };
        let start = |entry: Value| {
            let gantry = Gantry::builder().entry("s", entry).start();
            gantry.wait_state("s", "ready", LONG);
            gantry
        };
        Self {
            upstream,
            doing: start(doing),
            asking: start(asking),
            folder,
            _served: served,
        }
    }

    fn journal(&self) -> Journal {
        Journal::read(&self.folder.path().join("journal")).unwrap()
    }

    /// Tries one cell beside a second client and says what came of it.
    fn try_beside(&self, generation: Generation, feature: Feature, name: &str) -> Cell {
        let trying = || self.try_out(generation, feature);
        match feature {
            Feature::Elicitation | Feature::Sampling if self.upstream.asks_any(generation) => {
                self.beside_a_question(generation, trying)
            }
            Feature::Elicitation | Feature::Sampling => trying(),
            Feature::List
            | Feature::Call
            | Feature::Parallel
            | Feature::Progress
            | Feature::Cancel
            | Feature::Error
            | Feature::Resource
            | Feature::Prompt
            | Feature::ListChange
            | Feature::Subscription => self.beside_a_slow_call(generation, name, trying),
        }
    }

    /// Tries one cell and says what came of it.
    fn try_out(&self, generation: Generation, feature: Feature) -> Cell {
        let able = || Client::able(&self.doing, generation);
        match feature {
            Feature::List => {
                let answer = able().ask("tools/list", json!({})).answer;
                let tools = answer["result"]["tools"].as_array().unwrap();
                assert!(tools.iter().any(|tool| tool["name"] == "s__echo"));
                Cell::Works
            }
            Feature::Call => {
                let answer = able().call("s__echo", json!({"text": "hi"})).answer;
                works(&answer, "hi")
            }
            Feature::Parallel => self.parallel(generation),
            Feature::Progress => {
                let arguments = json!({"ms": 90, "progress": 2});
                let params = json!({
                    "name": "s__slow", "arguments": arguments, "_meta": {"progressToken": TOKEN},
                });
                let heard = able().ask("tools/call", params);
                let steps = heard.words.iter().map(|word| &word["params"]);
                let steps = steps.filter(|step| step["progressToken"] == TOKEN);
                let steps: Vec<_> = steps
                    .map(|step| (&step["progress"], &step["total"]))
                    .collect();
                let wanted = [(&json!(1), &json!(2)), (&json!(2), &json!(2))];
                assert_eq!(steps, wanted, "{:#?}", heard.words);
                works(&heard.answer, "slept 90 ms")
            }
            Feature::Cancel => {
                let nonce = format!("cancel-{}", generation.version());
                let arguments = json!({"ms": 60_000, "nonce": nonce});
                let mut client = able();
                client.cancel("s__slow", arguments, || {
                    let begun = || self.journal().executed(&nonce) == 1;
                    assert!(eventually(LONG, begun).is_some(), "the call arrives");
                });
                let told = || self.journal().cancelled(&nonce);
                assert!(
                    eventually(Duration::from_secs(10), told).is_some(),
                    "the server is told"
                );
                Cell::Works
            }
            Feature::Error => {
                let arguments = json!({"code": 4711, "message": "as asked"});
                let answer = able().call("s__rpc_error", arguments).answer;
                assert_eq!(answer["error"]["code"], 4711, "{answer:#}");
                assert!(
                    answer["error"]["message"]
                        .as_str()
                        .unwrap()
                        .contains("as asked")
                );
                Cell::Works
            }
            Feature::Resource => {
                let answer = able().ask("resources/read", json!({"uri": WATCHED}));
                let contents = &answer.answer["result"]["contents"][0];
                assert_eq!(contents["text"], "the static text", "{contents:#}");
                Cell::Works
            }
            Feature::Prompt => {
                let params = json!({"name": "s__with_arguments", "arguments": {"a": "hello"}});
                let answer = able().ask("prompts/get", params).answer;
                let message = &answer["result"]["messages"][0];
                assert_eq!(message["content"]["text"], "Say hello.", "{answer:#}");
                Cell::Works
            }
            Feature::Elicitation => self.asked(
                generation,
                "s__test_elicitation",
                "message",
                "elicitation/create",
            ),
            Feature::Sampling => self.asked(
                generation,
                "s__test_sampling",
                "prompt",
                "sampling/createMessage",
            ),
            Feature::ListChange => {
                let mut client = able();
                client.listen(WATCHED);
                works(
                    &self.unable(generation).call("s__grow", json!({})).answer,
                    "grown_",
                );
                client.hears("notifications/tools/list_changed");
                self.own_list(generation);
                Cell::Works
            }
            Feature::Subscription => {
                let mut client = able();
                client.listen(WATCHED);
                let touch = json!({"uri": WATCHED});
                works(
                    &self.unable(generation).call("s__touch", touch).answer,
                    "touched",
                );
                let told = client.hears("notifications/resources/updated");
                assert_eq!(told["params"]["uri"], WATCHED);
                Cell::Works
            }
        }
    }

    /// Has one client with capabilities call several times; the server has all calls at once.
    fn parallel(&self, generation: Generation) -> Cell {
        let folder = tempfile::tempdir().unwrap();
        let until = folder.path().join("until");
        let nonces = [1, 2, 3].map(|n| format!("parallel-{}-{n}", generation.version()));
        let calls = nonces.each_ref().map(|nonce| {
            let arguments = json!({"ms": 0, "until": until, "nonce": nonce});
            json!({"name": "s__slow", "arguments": arguments})
        });
        let answers = Client::able(&self.doing, generation).together(&calls, || {
            let begun = || {
                let journal = self.journal();
                nonces.iter().all(|nonce| journal.executed(nonce) == 1)
            };
            assert!(eventually(LONG, begun).is_some(), "all calls arrive");
            fs::write(&until, "").unwrap();
        });
        for answer in answers {
            works(&answer, "waited");
        }
        Cell::Works
    }

    /// Connects a client that can do nothing, whose calls go to the process that all share: what
    /// changes in another of the server's processes is not known there.
    fn unable(&self, generation: Generation) -> Client<'_> {
        Client::connect(&self.doing, generation, json!({}))
    }

    /// Calls a tool that asks its client something: by a client that cannot answer, and by one that
    /// can if its generation knows the question at all.
    fn asked(&self, generation: Generation, tool: &str, argument: &str, question: &str) -> Cell {
        let mut unable = Client::connect(&self.asking, generation, json!({}));
        let refused = unable.call(tool, json!({argument: "?"}));
        let found = works_or(&refused.answer, SAID);
        assert_ne!(found, Cell::Works, "{:#}", refused.answer);
        assert!(refused.asked.is_empty(), "{:?}", refused.asked);
        let heard = Client::able(&self.asking, generation).call(tool, json!({argument: "?"}));
        let found = works_or(&heard.answer, SAID);
        match found {
            Cell::Works => assert_eq!(heard.asked, [question]),
            Cell::ToolDeclines | Cell::Declines(_) => {
                assert!(heard.asked.is_empty(), "{:?}", heard.asked)
            }
        }
        found
    }

    fn check(&self) {
        let mut wrong = String::new();
        for generation in Generation::ALL {
            for (feature, name) in Feature::ALL {
                let found = self.try_beside(generation, feature, name);
                let promised = promised(generation, self.upstream, feature);
                if found != promised {
                    let version = generation.version();
                    writeln!(wrong, "{version} {name}: {found:?}, promised {promised:?}").unwrap();
                }
            }
        }
        assert_eq!(wrong, "", "{:?}", self.upstream);
    }
}

/// Asserts that an answer has this text.
fn works(answer: &Value, text: &str) -> Cell {
    let found = works_or(answer, text);
    assert_eq!(found, Cell::Works, "{answer:#}");
    found
}

/// Says what an answer is: one with this text, or which refusal.
fn works_or(answer: &Value, text: &str) -> Cell {
    let said = answer["result"]["content"][0]["text"].as_str();
    match answer["error"]["code"].as_i64() {
        Some(code) => Cell::Declines(code),
        None if answer["result"]["isError"] == true => Cell::ToolDeclines,
        None => {
            assert!(said.is_some_and(|said| said.contains(text)), "{answer:#}");
            Cell::Works
        }
    }
}

#[test]
fn clients_of_all_generations_before_old_stdio() {
    Rig::start(Upstream::OldStdio).check();
}

#[test]
fn clients_of_all_generations_before_new_stdio() {
    Rig::start(Upstream::NewStdio).check();
}

#[test]
fn clients_of_all_generations_before_old_streamable_http() {
    Rig::start(Upstream::OldHttp).check();
}

#[test]
fn clients_of_all_generations_before_new_streamable_http() {
    Rig::start(Upstream::NewHttp).check();
}

#[test]
fn clients_of_all_generations_before_sse() {
    Rig::start(Upstream::Sse).check();
}

#[test]
fn clients_of_all_generations_before_stdio_of_both_eras() {
    Rig::start(Upstream::DualStdio).check();
}

#[test]
fn clients_of_all_generations_before_streamable_http_of_both_eras() {
    Rig::start(Upstream::DualHttp).check();
}

/// Returns the table as the docs show it.
fn rendered() -> String {
    let versions = Generation::ALL.map(Generation::version).join(" | ");
    let mut text = String::new();
    for (upstream, name) in Upstream::ALL {
        write!(
            text,
            "\n| before {name} | {versions} |\n|---|---|---|---|---|---|\n"
        )
        .unwrap();
        for (feature, name) in Feature::ALL {
            let cells = Generation::ALL.map(|client| match promised(client, upstream, feature) {
                Cell::Works => "yes".to_owned(),
                Cell::ToolDeclines => "the tool says no".to_owned(),
                Cell::Declines(code) => format!("error {code}"),
            });
            writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
        }
    }
    text
}

#[test]
fn the_docs_show_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let text = fs::read_to_string(file).unwrap();
    let shown = text.split("<!-- matrix -->").nth(1);
    let shown = shown.expect("the table stands between two marks").trim();
    assert_eq!(
        shown,
        rendered().trim(),
        "write the table anew:\n{}",
        rendered()
    );
}
