//! A client of either generation that answers what it is asked, or lets the test do so.

use serde_json::{Map, Value, json};

use crate::faults_client::Posted;
use crate::harness::{Connection, Gantry};

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    Handshake,
    Stateless,
}

/// Returns what a client declares that can everything.
pub(super) fn everything() -> Value {
    json!({"sampling": {}, "elicitation": {}, "roots": {}})
}

/// Returns a good answer to what a server asks.
pub(super) fn answer(method: &str) -> Value {
    match method {
        "sampling/createMessage" => json!({
            "role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"},
        }),
        "elicitation/create" => json!({"action": "accept", "content": {
            "name": "Alice", "response": "yes", "ok": true, "color": "blue", "context": "c",
        }}),
        "roots/list" => json!({"roots": [{"uri": "file:///x", "name": "x"}]}),
        other => panic!("no client can do `{other}`"),
    }
}

/// A client.
pub(super) struct Client<'a> {
    gantry: &'a Gantry,
    key: String,
    generation: Generation,
    can: Value,
    session: Option<String>,
}

/// A call that was sent; its answer, or what its server asks, comes on the connection.
pub(super) struct Begun {
    connection: Connection,
    method: String,
    params: Value,
    text: String,
    is_stream: Option<bool>,
    asked: Vec<String>,
    words: Vec<Value>,
}

/// A call whose client is asked something: methods by key or id.
pub(super) struct Waiting {
    pub(super) begun: Begun,
    pub(super) requests: Vec<(Value, String)>,
    /// The state to come back with, in the stateless era.
    pub(super) state: Option<String>,
    /// The text of the first question.
    pub(super) message: String,
}

/// A call that has ended.
pub(super) struct Done {
    pub(super) answer: Value,
    pub(super) asked: Vec<String>,
    /// What it was told before.
    pub(super) words: Vec<Value>,
}

/// What came next on a call.
enum Next {
    Asked(Waiting),
    Done(Done),
}

impl Waiting {
    /// Returns what is asked.
    pub(super) fn methods(&self) -> Vec<&str> {
        self.requests
            .iter()
            .map(|(_, method)| method.as_str())
            .collect()
    }
}

impl<'a> Client<'a> {
    /// Makes a client; one of the handshake era shakes hands.
    pub(super) fn open(gantry: &'a Gantry, key: &str, generation: Generation, can: Value) -> Self {
        let mut client = Self {
            gantry,
            key: key.to_owned(),
            generation,
            can,
            session: None,
        };
        if generation == Generation::Handshake {
            let info = json!({"name": "asked", "version": "1"});
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": client.can, "clientInfo": info});
            let hello = client.posted("initialize", params).send(gantry);
            client.session = hello.header("mcp-session-id").map(str::to_owned);
            assert!(client.session.is_some(), "{}", hello.text());
        }
        client
    }

    /// Describes a request.
    pub(super) fn posted(&self, method: &str, mut params: Value) -> Posted {
        let message =
            |params: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        match self.generation {
            Generation::Handshake => {
                let posted = Posted::new(&self.key, "/mcp", &message(&params));
                match &self.session {
                    Some(session) => posted
                        .header("Mcp-Session-Id", session)
                        .header("MCP-Protocol-Version", "2025-11-25"),
                    None => posted,
                }
            }
            Generation::Stateless => {
                params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
                params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.can.clone();
                let body = message(&params).to_string();
                Posted::stateless(&self.key, method, params).body(body)
            }
        }
    }

    /// Calls a tool to its end.
    pub(super) fn call(&self, tool: &str, arguments: Value) -> Done {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Makes a request and answers what is asked meanwhile.
    pub(super) fn request(&self, method: &str, params: Value) -> Done {
        self.finish(self.send(method, params))
    }

    /// Begins to call a tool.
    pub(super) fn begin(&self, tool: &str, arguments: Value) -> Begun {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    pub(super) fn send(&self, method: &str, params: Value) -> Begun {
        Begun {
            connection: self.posted(method, params.clone()).open(self.gantry),
            method: method.to_owned(),
            params,
            text: String::new(),
            is_stream: None,
            asked: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Answers what is asked, and goes on to the end.
    pub(super) fn go_on(&self, waiting: Waiting) -> Done {
        self.go_on_with(waiting, |method| json!({"result": answer(method)}))
    }

    /// Answers with members of a response (`result` or `error`), and goes on to the end.
    pub(super) fn go_on_with(&self, waiting: Waiting, answer: impl Fn(&str) -> Value) -> Done {
        self.finish(self.answered(waiting, answer))
    }

    /// Sends the answers.
    pub(super) fn answered(&self, waiting: Waiting, answer: impl Fn(&str) -> Value) -> Begun {
        let Waiting {
            mut begun,
            requests,
            state,
            ..
        } = waiting;
        begun
            .asked
            .extend(requests.iter().map(|(_, method)| method.clone()));
        match self.generation {
            Generation::Handshake => {
                for (id, method) in requests {
                    let mut response = answer(&method);
                    response["jsonrpc"] = json!("2.0");
                    response["id"] = id;
                    assert_eq!(self.respond(&response), 202);
                }
                begun
            }
            Generation::Stateless => {
                let responses = requests.iter().map(|(key, method)| {
                    (
                        key.as_str().unwrap().to_owned(),
                        answer(method)["result"].clone(),
                    )
                });
                let responses: Map<String, Value> = responses.collect();
                begun.params["inputResponses"] = json!(responses);
                begun.params["requestState"] = json!(state);
                let asked = std::mem::take(&mut begun.asked);
                Begun {
                    asked,
                    ..self.send(&begun.method, begun.params)
                }
            }
        }
    }

    /// Posts a response in the client's session.
    pub(super) fn respond(&self, response: &Value) -> u16 {
        let session = self.session.as_deref().unwrap();
        let posted = Posted::in_session(&self.key, session, response);
        posted.send(self.gantry).status
    }

    /// Ends the client's session.
    pub(super) fn leave(&self) -> u16 {
        let session = self.session.as_deref().unwrap();
        let bearer = format!("Bearer {}", self.key);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Mcp-Session-Id", session),
        ];
        let mut connection = self.gantry.connect();
        let left = connection.request("DELETE", "/mcp", &headers, b"");
        left.unwrap().status
    }

    /// Answers what is asked, to the end.
    pub(super) fn finish(&self, mut begun: Begun) -> Done {
        loop {
            match begun.next() {
                Next::Done(done) => return done,
                Next::Asked(waiting) => {
                    begun = self.answered(waiting, |method| json!({"result": answer(method)}));
                }
            }
        }
    }
}

impl Begun {
    /// Waits until the client is asked.
    pub(super) fn asked_first(self) -> Waiting {
        match self.next() {
            Next::Asked(waiting) => waiting,
            Next::Done(done) => panic!("nothing was asked: {:#}", done.answer),
        }
    }

    /// Waits for the end, which must come without a further question.
    pub(super) fn done(self) -> Value {
        match self.next() {
            Next::Done(done) => done.answer,
            Next::Asked(waiting) => panic!("asked for {:?}", waiting.methods()),
        }
    }

    fn next(mut self) -> Next {
        loop {
            let message = self.message();
            if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
                let requests = vec![(id.clone(), method.to_owned())];
                return Next::Asked(Waiting {
                    begun: self,
                    requests,
                    state: None,
                    message: text_of(&message["params"]),
                });
            }
            if message.get("method").is_some() {
                self.words.push(message);
                continue;
            }
            let result = &message["result"];
            if result["resultType"] != "input_required" {
                return Next::Done(Done {
                    answer: message,
                    asked: self.asked,
                    words: self.words,
                });
            }
            let requests = result["inputRequests"].as_object().unwrap();
            let first = requests
                .values()
                .next()
                .map(|first| text_of(&first["params"]));
            let requests = requests.iter();
            let requests = requests
                .map(|(key, request)| (json!(key), request["method"].as_str().unwrap().to_owned()));
            let (requests, state) = (requests.collect(), result["requestState"].as_str());
            let state = state.map(str::to_owned);
            return Next::Asked(Waiting {
                begun: self,
                requests,
                state,
                message: first.unwrap_or_default(),
            });
        }
    }

    /// Reads the next message: the whole answer, or the next event of a stream.
    fn message(&mut self) -> Value {
        let is_stream = match self.is_stream {
            Some(is_stream) => is_stream,
            None => {
                let head = self.connection.head().unwrap();
                let kind = head.header("content-type").unwrap_or_default();
                let is_stream = kind.starts_with("text/event-stream");
                if !is_stream {
                    let body = self.connection.body_of(&head).unwrap();
                    return serde_json::from_slice(&body).unwrap();
                }
                self.is_stream = Some(is_stream);
                is_stream
            }
        };
        assert!(is_stream);
        // What was looked through already is not looked through again: events may be long.
        let mut seen = 0;
        loop {
            if let Some(end) = self.text[seen..].find("\n\n").map(|end| seen + end) {
                let data = self.text[..end].strip_prefix("event: message\ndata: ");
                let message = data.map(|data| serde_json::from_str(data).unwrap());
                self.text.drain(..end + 2);
                seen = 0;
                match message {
                    Some(message) => return message,
                    None => continue,
                }
            }
            seen = self.text.trim_end_matches('\n').len();
            let chunk = self
                .connection
                .chunk()
                .unwrap()
                .expect("the stream goes on");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

fn text_of(params: &Value) -> String {
    params["message"].as_str().unwrap_or_default().to_owned()
}
