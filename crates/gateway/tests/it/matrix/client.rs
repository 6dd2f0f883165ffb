//! A client of any generation, as a table of features needs one: it asks, hears what is said before
//! the answer, answers what it is asked itself, and listens to changes.

use std::cell::Cell;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Generation;
use crate::harness::{Connection, Gantry, LONG};

const META: &str = "io.modelcontextprotocol";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// What a client says to a form, and what it samples.
pub(super) const SAID: &str = "as the person said";

/// A client and its ways to the gateway.
pub(super) struct Client<'a> {
    gantry: &'a Gantry,
    pub(super) generation: Generation,
    capabilities: Value,
    /// Its session, or where it posts.
    place: String,
    /// The stream on which it hears what belongs to no request; of HTTP+SSE everything.
    stream: Option<Stream>,
    next: u64,
    /// The resource that it listens to.
    watched: Option<String>,
    /// It was told that the list of tools changed.
    heard_change: Cell<bool>,
    /// What it does before it answers a question.
    thinking: Box<dyn Fn() + Send + 'a>,
}

/// What came of a request: what was said and asked before the answer, and the answer.
pub(super) struct Heard {
    pub(super) words: Vec<Value>,
    /// The methods of what it was asked.
    pub(super) asked: Vec<String>,
    pub(super) answer: Value,
}

impl<'a> Client<'a> {
    /// Connects a client that can do what its generation can.
    pub(super) fn able(gantry: &'a Gantry, generation: Generation) -> Self {
        let capabilities = match generation.elicits() {
            true => json!({"sampling": {}, "elicitation": {}}),
            false => json!({"sampling": {}}),
        };
        Self::connect(gantry, generation, capabilities)
    }

    /// Connects a client.
    pub(super) fn connect(gantry: &'a Gantry, generation: Generation, can: Value) -> Self {
        let mut client = Self {
            gantry,
            generation,
            capabilities: can,
            place: String::new(),
            stream: None,
            next: 0,
            watched: None,
            heard_change: Cell::new(false),
            thinking: Box::new(|| ()),
        };
        if generation == Generation::Stateless {
            return client;
        }
        if generation == Generation::First {
            let mut stream = Stream::of(client.bare("GET", "/sse"));
            let (kind, endpoint) = stream.event().expect("a stream begins");
            assert_eq!(kind, "endpoint");
            (client.place, client.stream) = (endpoint, Some(stream));
        }
        let info = json!({"name": "matrix", "version": "1"});
        let params = json!({
            "protocolVersion": generation.version(),
            "capabilities": client.capabilities,
            "clientInfo": info,
        });
        let hello = client.ask("initialize", params).answer;
        assert_eq!(
            hello["result"]["protocolVersion"],
            generation.version(),
            "{hello:#}"
        );
        client.tell("notifications/initialized", &json!({}));
        client
    }

    /// Has the client do this before it answers a question.
    pub(super) fn thinks(mut self, thinking: impl Fn() + Send + 'a) -> Self {
        self.thinking = Box::new(thinking);
        self
    }

    /// Sends a request, answers what it leads to, and returns all that was heard.
    pub(super) fn ask(&mut self, method: &str, params: Value) -> Heard {
        self.next += 1;
        let id = self.next;
        let (mut words, mut asked) = (Vec::new(), Vec::new());
        let mut stream = self.send(id, method, &params);
        loop {
            let message = self.message(&mut stream);
            let is_request = !message["id"].is_null() && !message["method"].is_null();
            if is_request {
                asked.push(method_of(&message));
                let result = self.said(&message);
                self.post(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
            } else if message["method"].is_null() {
                assert_eq!(message["id"], id, "{message:#}");
                if message["result"]["resultType"] == "input_required" {
                    let mut heard = self.again(method, params, &message["result"]);
                    heard.words.splice(0..0, words);
                    return heard;
                }
                return Heard {
                    words,
                    asked,
                    answer: message,
                };
            } else {
                let token = &params["_meta"]["progressToken"];
                let is_progress = message["method"] == "notifications/progress";
                let is_own = is_progress && message["params"]["progressToken"] == *token;
                assert!(is_own || self.is_told(&message), "not its own: {message:#}");
                words.push(message);
            }
        }
    }

    /// Sends a request again with what it needed.
    fn again(&mut self, method: &str, mut params: Value, needed: &Value) -> Heard {
        let requests = needed["inputRequests"].as_object().expect("requests");
        let asked: Vec<String> = requests.values().map(method_of).collect();
        let answers = requests.iter();
        let answers = answers.map(|(key, request)| (key.clone(), self.said(request)));
        params["inputResponses"] = Value::Object(answers.collect());
        params["requestState"] = needed["requestState"].clone();
        let mut heard = self.ask(method, params);
        heard.asked.splice(0..0, asked);
        heard
    }

    /// Returns what the client says to a request of a server's.
    fn said(&self, request: &Value) -> Value {
        (self.thinking)();
        match request["method"].as_str().unwrap_or_default() {
            "sampling/createMessage" => {
                let content = json!({"type": "text", "text": SAID});
                json!({"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"})
            }
            "roots/list" => json!({"roots": [{"uri": "file:///root", "name": "root"}]}),
            _ => json!({"action": "accept", "content": {"response": SAID}}),
        }
    }

    /// Calls a tool.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Heard {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Makes calls, all at once, and returns their answers after `begun`; nothing is asked meanwhile.
    pub(super) fn together(&mut self, calls: &[Value], begun: impl FnOnce()) -> Vec<Value> {
        let sent = calls.iter().map(|params| {
            self.next += 1;
            (self.next, self.send(self.next, "tools/call", params))
        });
        let mut sent: Vec<_> = sent.collect();
        begun();
        let mut answers = Vec::new();
        for (id, stream) in &mut sent {
            // On a stream of its own each call has its answer; on a common one they come as they end.
            let is_common = stream.is_none();
            loop {
                let message = self.message(stream);
                if message["method"].is_null() {
                    assert!(is_common || message["id"] == *id, "{message:#}");
                    answers.push(message);
                    break;
                }
                assert!(self.is_told(&message), "not its own: {message:#}");
            }
        }
        answers
    }

    /// Calls a tool and takes the call back as soon as `begun`.
    pub(super) fn cancel(&mut self, tool: &str, arguments: Value, begun: impl Fn()) {
        self.next += 1;
        let params = json!({"name": tool, "arguments": arguments});
        let stream = self.send(self.next, "tools/call", &params);
        begun();
        match self.generation {
            // Who goes away takes its call back.
            Generation::Stateless => drop(stream),
            Generation::First | Generation::March | Generation::June | Generation::November => {
                let params = json!({"requestId": self.next, "reason": "enough"});
                self.tell("notifications/cancelled", &params);
            }
        }
    }

    /// Begins to listen to changed lists and to a resource.
    pub(super) fn listen(&mut self, uri: &str) {
        self.watched = Some(uri.to_owned());
        match self.generation {
            Generation::Stateless => {
                let wish = json!({"toolsListChanged": true, "resourceSubscriptions": [uri]});
                self.next += 1;
                let params = json!({"notifications": wish});
                let mut stream = self.send(self.next, "subscriptions/listen", &params);
                let first = self.message(&mut stream);
                assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
                assert_eq!(first["params"]["notifications"], wish, "{first:#}");
                self.stream = stream;
            }
            Generation::First => self.subscribe(uri),
            Generation::March | Generation::June | Generation::November => {
                let stream = Stream::of(self.bare("GET", "/mcp"));
                self.subscribe(uri);
                self.stream = Some(stream);
            }
        }
    }

    /// Says whether a message tells of a change of which this client is told: of a list everybody who
    /// has a stream is, of a resource who listens to it.
    fn is_told(&self, message: &Value) -> bool {
        if message["method"] == TOOLS_CHANGED {
            self.heard_change.set(true);
        }
        match message["method"].as_str().unwrap_or_default() {
            "notifications/resources/updated" => {
                self.watched.is_some()
                    && message["params"]["uri"].as_str() == self.watched.as_deref()
            }
            method => method.ends_with("/list_changed"),
        }
    }

    fn subscribe(&mut self, uri: &str) {
        let answer = self.ask("resources/subscribe", json!({"uri": uri})).answer;
        assert_eq!(answer["result"], json!({}), "{answer:#}");
    }

    /// Waits until it has heard that the list of tools changed, if it has not already.
    pub(super) fn has_heard_of_changes(&mut self) {
        if !self.heard_change.get() {
            self.hears(TOOLS_CHANGED);
        }
    }

    /// Waits for news of this kind on what it listens to.
    pub(super) fn hears(&mut self, method: &str) -> Value {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < LONG, "nothing is heard of {method}");
            let stream = self.stream.as_mut().expect("it listens");
            let message = stream.message().expect("the stream goes on");
            assert!(self.is_told(&message), "not its own: {message:#}");
            if message["method"] == method {
                return message;
            }
        }
    }

    fn tell(&self, method: &str, params: &Value) {
        self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Posts what is not answered.
    fn post(&self, message: &Value) {
        let taken = self.write(message, &[]).answer().expect("it is taken");
        assert_eq!(taken.status, 202, "{}", taken.text());
    }

    /// Sends a request; what it is answered with comes on the returned stream, or on the client's own.
    fn send(&mut self, id: u64, method: &str, params: &Value) -> Option<Stream> {
        let mut params = params.clone();
        let mut headers = Vec::new();
        if self.generation == Generation::Stateless {
            let version = self.generation.version();
            params["_meta"][format!("{META}/protocolVersion")] = json!(version);
            params["_meta"][format!("{META}/clientCapabilities")] = self.capabilities.clone();
            headers.push(("Mcp-Method", method.to_owned()));
            let name = params["name"].as_str().or(params["uri"].as_str());
            headers.extend(name.map(|name| ("Mcp-Name", name.to_owned())));
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut connection = self.write(&message, &headers);
        if self.generation == Generation::First {
            let taken = connection.answer().expect("it is taken");
            assert_eq!(taken.status, 202, "{}", taken.text());
            return None;
        }
        Some(Stream::late(connection))
    }

    fn message(&mut self, stream: &mut Option<Stream>) -> Value {
        let stream = stream.as_mut().or(self.stream.as_mut());
        let stream = stream.expect("there is a stream");
        let message = stream.message().expect("an answer");
        if let Some(session) = stream.session.take() {
            self.place = session;
        }
        message
    }

    fn bare(&self, method: &str, path: &str) -> Connection {
        let mut connection = self.gantry.connect();
        let headers = self.headers();
        let mut headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        headers.push(("Accept", "text/event-stream"));
        connection.write(method, path, &headers, b"").unwrap();
        connection
    }

    fn write(&self, message: &Value, more: &[(&str, String)]) -> Connection {
        let path = match self.generation {
            Generation::First => self.place.as_str(),
            Generation::March | Generation::June | Generation::November | Generation::Stateless => {
                "/mcp"
            }
        };
        let own = self.headers();
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let more = more.iter().map(|(name, value)| (*name, value.as_str()));
        let mut headers: Vec<_> = own.chain(more).collect();
        headers.push(("Content-Type", "application/json"));
        headers.push(("Accept", "application/json, text/event-stream"));
        let mut connection = self.gantry.connect();
        let body = message.to_string();
        connection
            .write("POST", path, &headers, body.as_bytes())
            .unwrap();
        connection
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![("Authorization", format!("Bearer {}", self.gantry.agent))];
        if self.generation.has_version_header() {
            headers.push(("MCP-Protocol-Version", self.generation.version().to_owned()));
        }
        let in_session = !matches!(self.generation, Generation::First | Generation::Stateless);
        if in_session && !self.place.is_empty() {
            headers.push(("Mcp-Session-Id", self.place.clone()));
        }
        headers
    }
}

fn method_of(message: &Value) -> String {
    message["method"].as_str().unwrap_or_default().to_owned()
}

/// Messages as they come: an answer in one piece, or events.
struct Stream {
    connection: Connection,
    begun: bool,
    is_stream: bool,
    text: String,
    /// The session that the head names.
    session: Option<String>,
}

impl Stream {
    /// Reads the head at once.
    fn of(connection: Connection) -> Self {
        let mut stream = Self::late(connection);
        stream.begin();
        assert!(stream.is_stream, "{}", stream.text);
        stream
    }

    /// Reads the head when the first message is wanted.
    fn late(mut connection: Connection) -> Self {
        let patience = Some(Duration::from_secs(30));
        connection.socket().set_read_timeout(patience).unwrap();
        Self {
            connection,
            begun: false,
            is_stream: false,
            text: String::new(),
            session: None,
        }
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let head = self.connection.head().expect("the gateway answers");
        let kind = head.header("content-type").unwrap_or_default();
        self.is_stream = kind.starts_with("text/event-stream");
        self.session = head.header("mcp-session-id").map(str::to_owned);
        if !self.is_stream {
            let body = self.connection.body_of(&head).expect("a whole answer");
            self.text = String::from_utf8(body).unwrap();
        }
    }

    fn message(&mut self) -> Option<Value> {
        self.begin();
        let text = match self.is_stream {
            true => self.event()?.1,
            false => std::mem::take(&mut self.text),
        };
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// Returns the next event: its kind and its data.
    fn event(&mut self) -> Option<(String, String)> {
        self.begin();
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let found = field("event: ").zip(field("data: "));
                let found = found.map(|(kind, data)| (kind.to_owned(), data.to_owned()));
                self.text = rest.to_owned();
                match found {
                    Some(found) => return Some(found),
                    None => continue,
                }
            }
            let chunk = self.connection.chunk().ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}
