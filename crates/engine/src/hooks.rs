//! Content hooks: sends a request or a result to a project's commands and HTTP endpoints, one after
//! the other, each with its own deadline. Their input and output are defined in `model::hook`.
//!
//! A command runs in its own process tree, in the profile `local`, and ends with its response or
//! its deadline; an endpoint is subject to the address rules of remote servers. A failing hook ends
//! the call, unless its definition lets calls pass. Entry point: [`HookRunner::ask`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use gantry_model::hook::{
    Hook, HookInput, HookPoint, HookTarget, HookVerdict, Hooks, LONGEST_ANSWER, OnHookFailure,
};
use gantry_model::id::{ProjectName, ServerName};
use gantry_model::jsonrpc::RawBuf;
use gantry_model::spec::RemoteLaunch;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use url::Url;

use crate::driver::{Drivers, Instance, Io, Labels, StartRequest, Stdin, Streams};
use crate::error::CallError;
use crate::http_client::Clients;

/// How many hooks of a project run concurrently; more wait within their deadlines.
const AT_ONCE: usize = 32;
/// How many of them for one agent, so that calls that linger in hooks leave room for other agents'.
const AT_ONCE_OF_AGENT: usize = 16;
/// How much of a failing command's stderr is reported.
const LONGEST_STDERR: u64 = 300;

/// The hooks of a project, and what is needed to run them.
pub(crate) struct HookRunner {
    project: ProjectName,
    now: ArcSwap<Hooks>,
    drivers: Drivers,
    clients: Arc<Clients>,
    generations: Arc<AtomicU64>,
    permits: Semaphore,
    /// The permits of agents that wait for hooks now.
    agents: Mutex<HashMap<Box<str>, Weak<Semaphore>>>,
}

impl HookRunner {
    pub(crate) fn new(
        project: ProjectName,
        hooks: Hooks,
        drivers: Drivers,
        clients: Arc<Clients>,
        generations: Arc<AtomicU64>,
    ) -> Self {
        Self {
            project,
            now: ArcSwap::from_pointee(hooks),
            drivers,
            clients,
            generations,
            permits: Semaphore::new(AT_ONCE),
            agents: Mutex::default(),
        }
    }

    /// Replaces the project's hooks.
    pub(crate) fn follow(&self, hooks: &Hooks) {
        if **self.now.load() != *hooks {
            self.now.store(Arc::new(hooks.clone()));
        }
    }

    /// Returns whether there are none, as in most projects.
    pub(crate) fn is_empty(&self) -> bool {
        self.now.load().is_empty()
    }

    /// Returns whether no result of this item passes unseen: a hook sees it and fails closed.
    pub(crate) fn must_see_result(&self, server: &str, item: &str) -> bool {
        self.now.load().iter().any(|(_, hook)| {
            hook.on_failure == OnHookFailure::Refuse && hook.sees(HookPoint::Result, server, item)
        })
    }

    /// Runs all hooks that match a call, in the order of their names. Each gets the arguments or
    /// the result as the previous hook left them. Returns the replacement, if any.
    pub(crate) async fn ask(&self, call: &HookInput<'_>) -> Result<Option<RawBuf>, CallError> {
        let hooks = self.now.load_full();
        let mut replaced: Option<RawBuf> = None;
        for (name, hook) in hooks.iter() {
            if !hook.sees(call.point, call.server, call.item) {
                continue;
            }
            let mut input = HookInput {
                hook: name,
                ..*call
            };
            let current = replaced.as_ref().map(RawBuf::as_raw);
            match call.point {
                HookPoint::Request => input.arguments = current.or(call.arguments),
                HookPoint::Result => input.result = current.or(call.result),
            }
            match self.one(hook, &input).await {
                Ok(HookVerdict::Allow) => {}
                Ok(HookVerdict::Refuse { reason }) => {
                    return Err(CallError::HookRefused {
                        hook: name.to_owned(),
                        point: call.point,
                        reason,
                    });
                }
                Ok(HookVerdict::Replace(new)) => replaced = Some(new),
                Err(why) if hook.on_failure == OnHookFailure::Pass => {
                    warn!(project = %self.project, hook = name, why, "a hook failed, the call continues");
                }
                Err(why) => {
                    warn!(project = %self.project, hook = name, why, "a hook failed");
                    return Err(CallError::HookFailed {
                        hook: name.to_owned(),
                        point: call.point,
                        why,
                    });
                }
            }
        }
        Ok(replaced)
    }

    /// Runs one hook; the error describes why that failed.
    async fn one(&self, hook: &Hook, input: &HookInput<'_>) -> Result<HookVerdict, String> {
        let text = input.to_json();
        let asking = async {
            let stopping = |_| "the gateway is stopping".to_owned();
            let of_agent = self.permits_of(input.agent);
            let _of_agent = of_agent.acquire().await.map_err(stopping)?;
            let _permit = self.permits.acquire().await.map_err(stopping)?;
            match hook.target() {
                HookTarget::Command(..) => self.run(hook, text).await,
                HookTarget::Url(url) => self.post(url, text).await,
            }
        };
        let late = |_| {
            let within = gantry_model::spec::period::show(hook.timeout);
            format!("no answer within {within}")
        };
        let answer = timeout(hook.timeout, Box::pin(asking))
            .await
            .map_err(late)??;
        HookVerdict::read(input.point, &answer)
    }

    /// Returns the permits of an agent.
    fn permits_of(&self, agent: &str) -> Arc<Semaphore> {
        let mut agents = self.agents.lock();
        if let Some(known) = agents.get(agent).and_then(Weak::upgrade) {
            return known;
        }
        agents.retain(|_, known| known.strong_count() > 0);
        let permits = Arc::new(Semaphore::new(AT_ONCE_OF_AGENT));
        agents.insert(agent.into(), Arc::downgrade(&permits));
        permits
    }

    /// Runs the command with the input on its stdin, and reads its decision from stdout. Dropping
    /// the future ends it.
    async fn run(&self, hook: &Hook, text: String) -> Result<Vec<u8>, String> {
        let spec = hook.as_server();
        let server: ServerName = spec.name.clone();
        let labels = Labels {
            project: self.project.clone(),
            server,
            generation: self.generations.fetch_add(1, Ordering::Relaxed) + 1,
        };
        let request = StartRequest {
            spec: &spec,
            labels,
            progress: &|_doing| {},
            stop: &CancellationToken::new(),
        };
        let started = self.drivers.of(&spec.launch).start(request).await;
        let instance = started.map_err(|error| format!("it cannot be started: {error}"))?;
        let Instance {
            io, mut control, ..
        } = instance;
        let Io::Streams(Streams {
            stdin,
            stdout,
            stderr,
        }) = io
        else {
            return Err("it has no streams".to_owned());
        };
        let writing = async {
            // A command that does not read its input may still respond.
            let sent = match stdin {
                Stdin::Pipe(mut pipe) => pipe.write_all(text.as_bytes()).await,
                Stdin::Stream(mut stream) => stream.write_all(text.as_bytes()).await,
            };
            drop(sent);
        };
        let reading = async {
            let mut answer = Vec::new();
            let most = LONGEST_ANSWER as u64 + 1;
            let read = stdout.take(most).read_to_end(&mut answer).await;
            read.map(|_| answer).map_err(|error| error.to_string())
        };
        let complaining = async {
            let mut said = Vec::new();
            if let Some(mut stderr) = stderr {
                drop(
                    (&mut stderr)
                        .take(LONGEST_STDERR)
                        .read_to_end(&mut said)
                        .await,
                );
                drop(tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await);
            }
            String::from_utf8_lossy(&said).into_owned()
        };
        let ((), answer, said) = tokio::join!(writing, reading, complaining);
        let answer = answer?;
        if answer.len() > LONGEST_ANSWER {
            return Err(format!("its answer is over {} MiB", LONGEST_ANSWER >> 20));
        }
        let ended = control.exited().await;
        match ended.code {
            Some(0) => Ok(answer),
            _ => Err(format!("{ended}: {}", said.trim().escape_debug())),
        }
    }

    /// Posts the input to the endpoint, which responds with its decision.
    async fn post(&self, url: &str, text: String) -> Result<Vec<u8>, String> {
        let parsed = Url::parse(url).map_err(|error| error.to_string())?;
        let launch = RemoteLaunch::new(url);
        let made = self.clients.client(&parsed, &launch).await;
        let (client, policy) = made.map_err(|error| error.to_string())?;
        policy.judge(&parsed).map_err(|error| error.to_string())?;
        let request = client
            .post(parsed)
            .header(CONTENT_TYPE, "application/json")
            .body(text);
        let failed = |error: reqwest::Error| {
            let error = error.without_url();
            gantry_model::diagnose::chain(&error)
        };
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        // Another status, such as 202, is no decision.
        if !matches!(status, StatusCode::OK | StatusCode::NO_CONTENT) {
            return Err(format!("it answered with status {}", status.as_u16()));
        }
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if answer.len() + chunk.len() > LONGEST_ANSWER {
                return Err(format!("its answer is over {} MiB", LONGEST_ANSWER >> 20));
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer)
    }
}
