//! The REST client of the verbs: JSON in and out, refusals as [`Failure`]s, lists page by page.
//!
//! Plain HTTP only, since a gateway without TLS is reached on loopback or through a tunnel. Entry
//! points: [`Client::new`], [`Client::get`] and its siblings.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use serde_json::Value;
use tokio::time::timeout;

use super::failure::{Exit, Failure};
use super::pool::{NO_ROOM, Pool, SendError};

/// The hint where the folder's agent key was used and another project was named.
const OTHER_PROJECT: &str = "this verb uses the key of this folder's agent, which is for its own project: \
                             name a key of an agent of the other one with `--key-file FILE`";
/// The hint where the gateway has another master key than its store, or none.
const MASTER_KEY: &str = "the master key is not that of the store; the log says which is needed: give it with \
                          `gantry up --master-key SOURCE`, or give up its values with \
                          `gantry secret rekey --lost`";
/// Longer than the longest call.
const ANSWER: Duration = Duration::from_secs(660);
const LONGEST_BODY: usize = 64 << 20;
/// Maximum number of pages fetched per list, of 1,000 items each.
const MOST_PAGES: usize = 100;

/// Runs a verb on its own small runtime. Not inlined: otherwise every verb's stack frame would have
/// room for all of them.
#[inline(never)]
pub(super) fn block_on<T>(verb: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| Failure::plain(Exit::Failed, "cannot start the runtime", &error))?;
    runtime.block_on(verb)
}

/// A gateway and the key to it.
#[derive(Clone)]
pub(super) struct Client {
    authority: String,
    pool: Arc<Pool>,
    /// The project to work in, if it is not that of the key.
    project: Option<String>,
    /// What to do if the gateway refuses the key.
    if_refused: Option<&'static str>,
}

impl Client {
    pub(super) fn new(url: &str, key: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::new(Exit::Usage, format!("`{url}` is not the URL of a gateway"))
                .hint("write for example `http://127.0.0.1:4180`")
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri
            .authority()
            .filter(|_| uri.scheme_str() == Some("http"))
            .ok_or_else(wrong)?;
        let address = match authority.port_u16() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:80"),
        };
        let pool = Pool::new(authority.as_str(), address, key).ok_or_else(|| {
            Failure::new(Exit::Failed, "the key file does not contain a key")
                .hint("name another with `--key-file FILE`")
        })?;
        Ok(Self {
            authority: authority.to_string(),
            pool: Arc::new(pool),
            project: None,
            if_refused: None,
        })
    }

    /// Sets the hint for a refused key.
    pub(super) fn if_refused(self, hint: &'static str) -> Self {
        Self {
            if_refused: Some(hint),
            ..self
        }
    }

    /// Selects the project to work in.
    pub(super) fn within(self, project: Option<&str>) -> Self {
        Self {
            project: project.map(str::to_owned),
            ..self
        }
    }

    /// Returns the path of a route, in the selected project.
    pub(super) fn path(&self, path: &str) -> String {
        const API: &str = "/api/v1/";
        let rest = path.strip_prefix(API);
        let rest =
            rest.filter(|rest| !rest.starts_with("projects") && !rest.starts_with("session"));
        match (&self.project, rest) {
            (Some(project), Some(rest)) => format!("{API}projects/{}/{rest}", segment(project)),
            _ => path.to_owned(),
        }
    }

    /// Returns the gateway's authority, as in `Host`.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the connections to the gateway.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Gets JSON from the REST API.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.send(self.request(Method::GET, path), Bytes::new())
            .await
    }

    /// Gets a whole list from the REST API, page by page.
    pub(super) async fn get_all(&self, path: &str) -> Result<Value, Failure> {
        let mut whole = self.get(path).await?;
        let mark = if path.contains('?') { '&' } else { '?' };
        for _ in 1..MOST_PAGES {
            let Some(cursor) = whole.get("next_cursor").and_then(Value::as_str) else {
                break;
            };
            let next = format!("{path}{mark}cursor={}", segment(cursor));
            let mut page = self.get(&next).await?;
            if let (Some(items), Some(Value::Array(more))) = (
                whole.get_mut("items").and_then(Value::as_array_mut),
                page.get_mut("items").map(Value::take),
            ) {
                items.extend(more);
            }
            match page.get_mut("next_cursor").map(Value::take) {
                Some(cursor) => whole["next_cursor"] = cursor,
                None => {
                    whole
                        .as_object_mut()
                        .and_then(|whole| whole.remove("next_cursor"));
                }
            }
        }
        Ok(whole)
    }

    /// Posts to the REST API.
    pub(super) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        self.post_with(path, body, &[]).await
    }

    /// Posts to the REST API with further headers.
    pub(super) async fn post_with(
        &self,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<Value, Failure> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = self.request(Method::POST, path);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        self.send(request, body).await
    }

    /// Patches a resource of the REST API.
    pub(super) async fn patch(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let request = self.request(Method::PATCH, path);
        self.send(request, Bytes::from(body.to_string())).await
    }

    /// Puts a resource of the REST API.
    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let request = self.request(Method::PUT, path);
        self.send(request, Bytes::from(body.to_string())).await
    }

    /// Deletes a resource of the REST API.
    pub(super) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.send(self.request(Method::DELETE, path), Bytes::new())
            .await
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(self.path(path))
            .header(ACCEPT, "application/json, application/problem+json")
            .header(CONTENT_TYPE, "application/json")
    }

    async fn send(&self, request: http::request::Builder, body: Bytes) -> Result<Value, Failure> {
        let request = request.body(Full::new(body));
        let request = request.expect("paths and headers of ours are valid");
        let exchanged = timeout(ANSWER, self.exchange(request)).await;
        let exchanged = exchanged.map_err(|_| {
            let message = format!("the gateway did not answer within {ANSWER:?}");
            Failure::new(Exit::Failed, message)
        })?;
        let (status, retry_after, body) = exchanged.map_err(|error| self.failed(error))?;
        if body.is_empty() && status == StatusCode::SERVICE_UNAVAILABLE {
            let wait =
                retry_after.map_or_else(|| "later".to_owned(), |wait| format!("in {wait} s"));
            return Err(Failure::new(Exit::Failed, NO_ROOM).hint(format!(
                "try again {wait}, or end clients that are not needed; one address may hold \
                     `connections_per_address` of `[gateway]`"
            )));
        }
        let answer: Value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).map_err(|_| {
                let message =
                    format!("the gateway answered {status} with something that is not JSON");
                Failure::new(Exit::Failed, message)
                    .hint("is it a gateway that answers there? name another with `--url URL`")
            })?
        };
        match (refusal(status, &answer), self.if_refused) {
            (Some(failure), Some(hint)) if status == StatusCode::UNAUTHORIZED => {
                Err(failure.hint(hint))
            }
            (Some(failure), Some(_)) if answer["code"] == "project.unknown" => {
                Err(failure.hint(OTHER_PROJECT))
            }
            (Some(failure), _) => Err(failure),
            (None, _) => Ok(answer),
        }
    }

    /// Returns status, `Retry-After` and body.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Option<u32>, Bytes), SendError> {
        let (response, used) = self.pool.send(request).await?;
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|wait| wait.to_str().ok()?.parse().ok());
        let body = match self.pool.read(response, used, LONGEST_BODY).await {
            Err(SendError::Unsent(why)) if why == NO_ROOM => Bytes::new(),
            body => body?,
        };
        Ok((status, retry_after, body))
    }

    /// Describes why there is no response.
    pub(super) fn failed(&self, error: SendError) -> Failure {
        match error {
            SendError::Unsent(why) => {
                let message = format!("no gateway answers at `{}`", self.authority);
                Failure::new(Exit::NoGateway, message).cause(why).hint(
                    "start it with `gantry up`, or name another with `--data DIR` or `--url URL`",
                )
            }
            SendError::Cut(why) => Failure::new(Exit::Failed, "the gateway did not answer")
                .cause(why)
                .hint("`gantry status` shows whether it is running, and its log what happened"),
        }
    }
}

/// Escapes a text for use in a path or a query.
pub(super) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Reads an `application/problem+json`.
pub(super) fn refusal(status: StatusCode, problem: &Value) -> Option<Failure> {
    if status.is_success() {
        return None;
    }
    let text = |name: &str| problem.get(name).and_then(Value::as_str);
    let message = text("detail").or_else(|| text("title"));
    let message = message.map_or_else(|| format!("the gateway answered {status}"), str::to_owned);
    let mut failure = Failure::new(Exit::Failed, message.as_str());
    for issue in problem
        .get("issues")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let part = |name| issue.get(name).and_then(Value::as_str).unwrap_or_default();
        // Most messages say what is wrong already.
        if !message.contains(part("message")) {
            failure = failure.cause(format!("`{}`: {}", part("path"), part("message")));
        }
    }
    if let Some(code) = text("code") {
        failure = failure.cause(format!("code `{code}`"));
    }
    let hint = match text("code") {
        // The gateway names the method of a client.
        Some("tool.unknown") if text("hint").is_some_and(|hint| hint.contains("tools/list")) => {
            Some("`gantry tools` lists what there is")
        }
        Some("auth.agent_key") => Some("name the file of an admin key with `--key-file`"),
        Some("secret.key_missing" | "secret.key_wrong") => Some(MASTER_KEY),
        _ => text("hint"),
    };
    match hint {
        Some(hint) => Some(failure.hint(hint)),
        None => Some(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_urls() {
        assert_eq!(segment("a.b-c_d"), "a.b-c_d");
        assert_eq!(segment("../x?y&z é"), "..%2Fx%3Fy%26z%20%C3%A9");
    }

    #[test]
    fn only_plain_urls_of_gateways_are_taken() {
        for right in ["http://127.0.0.1:1/", "http://[::1]"] {
            assert!(Client::new(right, "k").is_ok(), "{right}");
        }
        for wrong in ["https://x", "x", "", "file:///x"] {
            assert!(Client::new(wrong, "k").is_err(), "{wrong}");
        }
    }
}
