//! Processes the lines of a server: responses go to their calls, notifications are processed within
//! a budget, requests are answered or refused, and anything else is noise.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::meta::{self, SUBSCRIPTION_ID};
use gantry_model::jsonrpc::{
    self, Edit, INVALID_REQUEST, METHOD_NOT_FOUND, Message, Notification, OneLine, Outcome,
    PARSE_ERROR, Raw, RawKind, Request, RequestId, Unaddressed, WireError, salvage_id,
    salvage_id_from_tail, salvage_unaddressed,
};
use gantry_model::mcp::{Method, asking_method};
use tokio::time::Instant;

use super::{LISTING_LINES, Link};
use crate::request::CallEvent;
use crate::server::logs::{LogStream, quote};
use crate::server::pending::{Answer, Failure};
use crate::server::server_requests::{CallerChannel, shown_to_client};
use crate::server::topics::LONGEST_URI;
use crate::transport::http::Replies;
use crate::transport::stdio::{Inbox, Overflow, Overlong};

/// The bytes of noise per second after which a server is stopped.
const NOISE_BYTES_PER_SECOND: usize = 1 << 20;
/// Notifications that are processed per second; the rest is dropped and not counted. List changes
/// are always processed: they only set a flag.
const HEARD_PER_SECOND: u32 = 2_000;
/// The most unsolicited messages in each [`SLOT`]; beyond that, reading pauses until the end of the
/// slot, so that a flood slows down only its own server. fault S14
const UNASKED_PER_SLOT: u32 = 1_000;
const SLOT: Duration = Duration::from_millis(50);
/// The longest progress or log message that is forwarded to a client: several may be queued for a
/// slow one.
pub(super) const LONGEST_MESSAGE: usize = 64 << 10;
/// Requests of the server that are answered per second; the rest is counted as refused, and
/// dropped.
const ANSWERED_PER_SECOND: u32 = 20;
/// Additional requests per second that are forwarded to the client.
const ASKED_PER_SECOND: u32 = 200;

/// The used part of a server's allowance in the current second.
pub(super) struct Budget {
    since: Instant,
    noise_bytes: usize,
    heard: u32,
    answered: u32,
    asked: u32,
    slot: Instant,
    unasked: u32,
}

impl Budget {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            since: now,
            noise_bytes: 0,
            heard: 0,
            answered: 0,
            asked: 0,
            slot: now,
            unasked: 0,
        }
    }

    /// Returns how long to wait before reading from the server again.
    fn rest(&self) -> Option<Duration> {
        let left = SLOT.checked_sub(self.slot.elapsed())?;
        (self.unasked > UNASKED_PER_SLOT && !left.is_zero()).then_some(left)
    }

    /// Starts a new second and a new slot if the last one is over, and counts an unsolicited
    /// message.
    fn renew(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.slot) >= SLOT {
            (self.slot, self.unasked) = (now, 0);
        }
        self.unasked += 1;
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.noise_bytes) = (now, 0);
            (self.heard, self.answered, self.asked) = (0, 0, 0);
        }
    }
}

impl Inbox for Arc<Link> {
    fn line(&self, line: Bytes) {
        self.read(&line, None);
    }

    fn overlong(&self, part: Overlong<'_>) -> Overflow {
        let limit = self.limits.line_bytes;
        let (id, is_json, allowed) = match part {
            Overlong::Begins { bytes, allowed } => {
                let is_json = bytes.trim_ascii_start().starts_with(b"{");
                (salvage_id(bytes), is_json, allowed)
            }
            Overlong::Ends(bytes) => (salvage_id_from_tail(bytes), true, usize::MAX),
        };
        if !is_json {
            self.report_trouble(format!(
                "wrote a line over {} MiB that is not a message",
                limit >> 20
            ));
            return Overflow::End;
        }
        match id.and_then(|id| id.matches_u64()) {
            Some(id) if self.is_listing(id) && allowed == limit => {
                return Overflow::Keep(LISTING_LINES * limit);
            }
            Some(id) if self.pending.contains(id) => {
                let most = if self.is_listing(id) {
                    LISTING_LINES
                } else {
                    1
                } * limit;
                self.finish(id, Answer::Failed(Failure::TooLarge(most)));
            }
            Some(_) | None => {}
        }
        Overflow::Skip
    }

    fn rest(&self) -> Option<Duration> {
        self.inbound.lock().rest()
    }
}

/// The same for a remote server, which may send a response on the call's own stream.
impl Replies for Arc<Link> {
    fn line(&self, line: Bytes) {
        self.read(&line, None);
    }

    fn line_of(&self, call: u64, line: Bytes) {
        self.read(&line, Some(call));
    }

    fn fail(&self, call: u64, failure: Failure) {
        if self.pending.contains(call) {
            self.finish(call, Answer::Failed(failure));
        }
    }

    fn waits(&self, call: u64) -> bool {
        self.pending.contains(call)
    }

    fn most_bytes(&self, call: u64) -> usize {
        match self.is_listing(call) {
            true => LISTING_LINES * self.limits.line_bytes,
            false => self.limits.line_bytes,
        }
    }

    fn rest(&self) -> Option<Duration> {
        Inbox::rest(self)
    }

    fn missed_news(&self) {
        self.lists.heard();
    }

    fn doubt(&self) {
        self.doubted.notify_one();
    }
}

impl Link {
    /// Processes one line; `on` is the call on whose own stream it came, if the transport has such
    /// streams.
    pub(super) fn read(&self, line: &Bytes, on: Option<u64>) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        self.breaker.heard();
        match jsonrpc::parse(line, &self.parse_limits()) {
            Ok(incoming) => match incoming.message {
                Message::Response(response) => {
                    let Some(id) = response.id.matches_u64() else {
                        return self.count_late();
                    };
                    let answer = match response.outcome {
                        Outcome::Result(raw) => Answer::Result(slice(line, raw).into()),
                        Outcome::Error(raw) => {
                            self.note_url_error(id, raw);
                            Answer::Error(slice(line, raw))
                        }
                    };
                    self.finish(id, answer);
                }
                Message::Notification(notification) => self.heard(&notification, on),
                Message::Request(request) => self.asked(&request, on),
            },
            Err(WireError::NullId) if let Some((call, answer)) = unaddressed(line, on) => {
                self.finish(call, answer);
            }
            Err(error @ WireError::NullId) => match self.meant_by(line, on) {
                Some(call) => self.finish(call, unidentified()),
                None => self.no_message(line, &error.to_string()),
            },
            Err(error) => self.no_message(line, &error.to_string()),
        }
    }

    /// Records a line that exceeds the limit without an end.
    pub(crate) fn endless(&self) {
        let limit = self.limits.line_bytes >> 20;
        self.report_trouble(format!("wrote a line over {limit} MiB without an end"));
    }
}

/// Returns the numbers of a progress notification, without its texts.
fn numbers(params: Raw<'_>) -> Edit<'_> {
    let mut edit = Edit::new(Raw::EMPTY_OBJECT);
    for name in ["progress", "total"] {
        let number = params
            .get(name)
            .filter(|value| value.kind() == RawKind::Number);
        if let Some(number) = number {
            edit.set(name, number);
        }
    }
    edit
}

fn slice(line: &Bytes, raw: Raw<'_>) -> Bytes {
    line.slice_ref(raw.text().as_bytes())
}

/// Returns the meaning of a response without an id on a call's own stream: it belongs to that call.
/// An error is passed on; a result without an id is invalid. fault S7
fn unaddressed(line: &Bytes, on: Option<u64>) -> Option<(u64, Answer)> {
    let call = on?;
    let answer = match salvage_unaddressed(line)? {
        Unaddressed::Result => unidentified(),
        Unaddressed::Error(_) => {
            let text = std::str::from_utf8(line).ok()?;
            Answer::Error(slice(line, Raw::trusted(text).get("error")?))
        }
    };
    Some((call, answer))
}

/// Returns the failure of a call whose response has no id.
fn unidentified() -> Answer {
    Answer::Failed(Failure::Protocol(WireError::NullId.to_string()))
}

/// Returns an object without a leading byte order mark or the bracket of a batch, so that its id
/// can still be read.
fn bare(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    line.strip_prefix(b"[").unwrap_or(line)
}

impl Link {
    /// Counts a notification that is too long to be forwarded.
    pub(super) fn count_dropped(&self) {
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn count_late(&self) {
        self.counters.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the call that an error without an id on a shared link belongs to. JSON-RPC sends
    /// such an error when an id could not be read; it is attributed only if exactly one call is
    /// outstanding. A result without an id belongs to no call. fault S7
    fn meant_by(&self, line: &[u8], on: Option<u64>) -> Option<u64> {
        let is_unread = matches!(
            salvage_unaddressed(line),
            Some(Unaddressed::Error(PARSE_ERROR | INVALID_REQUEST))
        );
        let is_clear = on.is_none() && is_unread;
        is_clear.then(|| self.pending.sole_outstanding())?
    }

    /// Handles a line that is not a message: a malformed response to a call, or noise.
    fn no_message(&self, line: &[u8], why: &str) {
        let trimmed = line.trim_ascii();
        if let Some(id) = salvage_id(bare(trimmed)).and_then(|id| id.matches_u64())
            && self.pending.contains(id)
        {
            return self.finish(id, Answer::Failed(Failure::Protocol(why.to_owned())));
        }
        self.counters.noise.fetch_add(1, Ordering::Relaxed);
        if !trimmed.is_empty() {
            self.logs.stray(line);
        }
        let mut budget = self.inbound.lock();
        budget.renew();
        budget.noise_bytes += line.len() + 1;
        if budget.noise_bytes > NOISE_BYTES_PER_SECOND {
            budget.noise_bytes = 0;
            drop(budget);
            self.report_trouble("wrote over 1 MiB a second to stdout that is not a message".into());
        }
    }

    fn has_budget(&self, take: impl FnOnce(&mut Budget) -> bool) -> bool {
        let mut budget = self.inbound.lock();
        budget.renew();
        take(&mut budget)
    }

    fn heard(&self, notification: &Notification<'_>, on: Option<u64>) {
        let within = self.has_budget(|budget| {
            budget.heard += 1;
            budget.heard <= HEARD_PER_SECOND
        });
        match notification.method.as_ref() {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => {
                self.lists.heard();
            }
            "notifications/progress" if within => self.progressed(notification.params),
            "notifications/resources/updated" if within => self.updated(notification.params),
            "notifications/elicitation/complete" if within => {
                self.elicitation_completed(notification.params)
            }
            "notifications/subscriptions/acknowledged" if within => {
                self.noted(notification.params, on);
            }
            "notifications/message" if within => {
                if let Some(params) = notification.params {
                    self.logs.line(LogStream::Message, params.text().as_bytes());
                    self.logged(params, on);
                }
            }
            _ => {}
        }
    }

    /// Handles the acknowledgement of a subscription.
    fn noted(&self, params: Option<Raw<'_>>, on: Option<u64>) {
        let named = params.and_then(|params| params.get("_meta")?.get(SUBSCRIPTION_ID));
        let named = named.and_then(RequestId::read);
        if let Some(id) = named.and_then(|id| id.matches_u64()).or(on) {
            self.acknowledged.send_if_modified(|newest| {
                let is_newer = id > *newest;
                *newest = id.max(*newest);
                is_newer
            });
        }
    }

    fn updated(&self, params: Option<Raw<'_>>) {
        let uri = params
            .and_then(|params| params.get("uri"))
            .and_then(Raw::string);
        if let (Some(uri), Some(topics)) = (uri, self.topics.get()) {
            match uri.len() <= LONGEST_URI {
                true => topics.updated(&uri),
                false => self.count_dropped(),
            }
        }
    }

    fn progressed(&self, params: Option<Raw<'_>>) {
        let Some(params) = params else { return };
        let token = params.get("progressToken").and_then(RequestId::read);
        let Some(id) = token.and_then(|token| token.matches_u64()) else {
            return;
        };
        let Some(CallerChannel { client, .. }) = self.pending.progressed(id) else {
            return;
        };
        let Some(token) = &client.progress_token else {
            return;
        };
        if params.text().len() > LONGEST_MESSAGE {
            return self.count_dropped();
        }
        let mut edit = match client.withholds_texts {
            true => numbers(params),
            false => Edit::new(params),
        };
        edit.set("progressToken", Raw::trusted(token));
        let mut out = Vec::with_capacity(params.text().len() + token.len());
        edit.write_into(&mut out);
        if let Ok(text) = String::from_utf8(out) {
            let text = self.for_client(&text);
            // A slow caller may miss progress, but never the response.
            drop(
                client
                    .events
                    .try_send(CallEvent::Progress(text.into_boxed_str())),
            );
        }
    }

    /// Returns what a server says beside a result as its client may read it.
    pub(super) fn for_client(&self, params: &str) -> String {
        let said = Raw::trusted(params);
        let mut own = Edit::new(said);
        if let Some(meta) = said.get("_meta") {
            meta::remove_ours(&mut own, meta);
        }
        let redactor = self.logs.redactor();
        match own.is_empty() {
            true => shown_to_client(params, &redactor, self.limits.cleans),
            false => shown_to_client(own.to_buf().text(), &redactor, self.limits.cleans),
        }
    }

    /// Returns the call that a request of the server repeats: one in flight with the same id and
    /// method. Both sides count their ids, so the id alone proves nothing; and a request from the
    /// server to its client is never an echo. fault S20
    fn echoed(&self, request: &Request<'_>) -> Option<u64> {
        let id = request.id.matches_u64()?;
        let method = Method::parse(&request.method)?;
        let is_asked = method == Method::Ping || asking_method(&request.method).is_some();
        (!is_asked && self.pending.is_of_method(id, method)).then_some(id)
    }

    /// Handles a request of the server; `on` is the call on whose stream it came, if the transport
    /// has such streams. A ping is answered; a request that belongs to one call whose client
    /// supports it is forwarded; the rest is refused.
    pub(crate) fn asked(&self, request: &Request<'_>, on: Option<u64>) {
        if let Some(id) = self.echoed(request) {
            let method = quote(request.method.as_bytes(), 40);
            let what = format!("echoes what it is sent (`{method}`), so it is not an MCP server");
            self.finish(id, Answer::Failed(Failure::Protocol(what.clone())));
            return self.report_trouble(what);
        }
        let is_ping = request.method == "ping";
        let why = match is_ping {
            true => None,
            false => match self.ask_within_budget(request, on) {
                Ok(()) => return,
                Err(why) => Some(why),
            },
        };
        let within = self.has_budget(|budget| {
            budget.answered += 1;
            budget.answered <= ANSWERED_PER_SECOND
        });
        if !within || !is_ping {
            self.counters
                .refused_requests
                .fetch_add(1, Ordering::Relaxed);
        }
        let line = match why {
            _ if !within => return,
            None => OneLine::result(request.id, Raw::EMPTY_OBJECT.into()),
            Some(why) => OneLine::error(Some(request.id), METHOD_NOT_FOUND, why, None),
        };
        self.send_loosely(line);
    }

    /// Forwards a request, unless there were too many recently.
    fn ask_within_budget(
        &self,
        request: &Request<'_>,
        on: Option<u64>,
    ) -> Result<(), &'static str> {
        // If no capabilities were declared, the request is refused within that budget.
        let within = !self.limits.asks
            || self.has_budget(|budget| {
                budget.asked += 1;
                budget.asked <= ASKED_PER_SECOND
            });
        match within {
            true => self.route_request(request, on),
            false => Err("the client is asked too often"),
        }
    }
}
