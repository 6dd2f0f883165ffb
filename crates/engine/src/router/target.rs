//! The target of a request: its server, its tool, prompt or resource, and its grant class.

use std::borrow::Cow;
use std::sync::Arc;

use gantry_model::caller::{Caller, KeyKind};
use gantry_model::era::headers::name_of;
use gantry_model::grant::{AccessRequest, Decision, MethodClass, class_of};
use gantry_model::id::{ServerId, ServerName};
use gantry_model::jsonrpc::{Edit, Raw, RawBuf};
use gantry_model::mcp::Method;
use gantry_model::secret::Redactor;
use gantry_model::spec::OutputCheck;

use super::Router;
use crate::catalog::Resolution;
use crate::clock::unix_ms;
use crate::error::CallError;
use crate::guard;
use crate::native::Native;
use crate::pins::{PinKind, Pins};
use crate::request::{Lists, Request, Scope};
use crate::schema::Permits;
use crate::server::handle::ServerHandle;
use crate::tool::Tool;
use crate::transport::http::{MessageHead, TraceHeaders};

/// Where a call is run.
#[derive(Clone)]
pub(super) enum NameLocation {
    Server(Arc<ServerHandle>),
    Native(Arc<Native>),
}

/// Where the params contain the item's name, which must be replaced by the server's own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Renamed {
    Nowhere,
    /// In the member `name`.
    Name,
    /// In the member `uri`.
    Uri,
    /// In a `ref` to a prompt.
    PromptReference,
    /// In a `ref` to a resource, or to a resource template.
    ResourceReference,
}

/// The target of a request.
pub(super) struct Target<'a> {
    pub(super) place: NameLocation,
    pub(super) class: MethodClass,
    /// The tool, the prompt or the resource, by the server's own name.
    pub(super) item: Cow<'a, str>,
    tool: Option<Arc<Tool>>,
    renamed: Renamed,
    arguments: Option<Raw<'a>>,
    /// What a hook has put in the place of the arguments.
    replaced: Option<RawBuf>,
}

impl Router {
    /// Resolves the target of a request in the caller's view.
    pub(super) fn target<'a>(
        &self,
        caller: &Caller,
        request: &Request<'a>,
        method: Option<Method>,
    ) -> Result<Target<'a>, CallError> {
        let params = &request.params;
        let member = |name: &'static str, value: Option<Raw<'a>>| {
            let text = value.and_then(Raw::string);
            text.ok_or_else(|| CallError::BadParams {
                method: request.method.to_owned(),
                why: format!("`{name}` is missing or no string"),
            })
        };
        let view = self
            .catalog
            .view_for(caller, &request.scope, request.identity);
        match method {
            Some(Method::ToolsCall) => {
                let name = member("name", params.name)?;
                let found = view.resolve_tool(&name);
                self.tool(caller, &request.scope, &name, found, params.arguments)
            }
            Some(Method::PromptsGet) => {
                let name = member("name", params.name)?;
                let found = view.resolve_prompt(&name);
                let mut target = self.item(caller, request, found, "prompt", &name)?;
                target.renamed = Renamed::Name;
                Ok(target)
            }
            // Until updates are passed on, a subscription would promise what does not come.
            Some(Method::ResourcesSubscribe | Method::ResourcesUnsubscribe) => {
                Err(unknown_method(request))
            }
            Some(Method::ResourcesRead) => {
                let uri = member("uri", params.uri)?;
                let client = (&caller.agent, request.identity.session());
                let named_by = self.links.server_of(client, &uri);
                let found = view.resolve_linked(named_by.as_ref(), &uri);
                let mut target = self.item(caller, request, found, "resource", &uri)?;
                if target.item != uri {
                    target.renamed = Renamed::Uri;
                }
                Ok(target)
            }
            Some(Method::CompletionComplete) => self.completion(caller, request),
            _ => self.direct(caller, request),
        }
    }

    /// Resolves a tool of a server that has become ready since; never without its schema.
    pub(super) fn learned<'a>(
        &self,
        caller: &Caller,
        request: &Request<'a>,
        method: Option<Method>,
    ) -> Result<Target<'a>, CallError> {
        let mut target = self.target(caller, request, method)?;
        if let Some(server) = target.guessed() {
            // A server is ready a moment before the catalog includes it.
            let offered = server.catalog.load();
            let tool = offered.tools.iter().find(|tool| *tool.name == *target.item);
            let asked = || request.params.name?.string();
            let tool = tool.cloned().ok_or_else(|| CallError::UnknownTool {
                name: asked().map_or_else(|| target.item.to_string(), Cow::into_owned),
            })?;
            target.tool = Some(tool);
        }
        Ok(target)
    }

    fn tool<'a>(
        &self,
        caller: &Caller,
        scope: &Scope,
        name: &str,
        found: Resolution,
        arguments: Option<Raw<'a>>,
    ) -> Result<Target<'a>, CallError> {
        match found {
            Resolution::Bound { server, tool } => Ok(Target {
                place: NameLocation::Server(server),
                class: MethodClass::Tool,
                item: Cow::Owned(tool.name.to_string()),
                tool: Some(tool),
                renamed: Renamed::Name,
                arguments,
                replaced: None,
            }),
            Resolution::Native(native) => Ok(Target {
                class: MethodClass::Tool,
                item: Cow::Owned(native.tool().name.to_string()),
                tool: Some(Arc::clone(native.tool())),
                place: NameLocation::Native(native),
                renamed: Renamed::Nowhere,
                arguments,
                replaced: None,
            }),
            Resolution::Named { server, item } => Ok(Target {
                place: NameLocation::Server(server),
                class: MethodClass::Tool,
                item: Cow::Owned(item),
                tool: None,
                renamed: Renamed::Name,
                arguments,
                replaced: None,
            }),
            Resolution::NotGranted { server, item } => {
                Err(not_granted(caller, MethodClass::Tool, server, item))
            }
            Resolution::Unknown => {
                let suspended = self.suspended_tool(caller, name);
                let unapproved = || self.unapproved(caller, scope, PinKind::Tool, name);
                let withheld = suspended.or_else(unapproved);
                Err(withheld.unwrap_or_else(|| CallError::UnknownTool {
                    name: name.to_owned(),
                }))
            }
        }
    }

    fn item<'a>(
        &self,
        caller: &Caller,
        request: &Request<'a>,
        found: Resolution,
        kind: &'static str,
        name: &str,
    ) -> Result<Target<'a>, CallError> {
        match found {
            Resolution::Named { server, item } => Ok(Target {
                place: NameLocation::Server(server),
                class: class_of(request.method),
                item: Cow::Owned(item),
                tool: None,
                renamed: Renamed::Nowhere,
                arguments: request.params.whole,
                replaced: None,
            }),
            Resolution::NotGranted { server, item } => {
                Err(not_granted(caller, class_of(request.method), server, item))
            }
            Resolution::Bound { .. } | Resolution::Native(_) | Resolution::Unknown => {
                let is_prompt = kind == "prompt";
                let unapproved = is_prompt
                    .then(|| self.unapproved(caller, &request.scope, PinKind::Prompt, name));
                Err(unapproved.flatten().unwrap_or(CallError::UnknownItem {
                    kind,
                    name: name.to_owned(),
                }))
            }
        }
    }

    /// Resolves a completion: its `ref` names the prompt or the template that it is for.
    fn completion<'a>(
        &self,
        caller: &Caller,
        request: &Request<'a>,
    ) -> Result<Target<'a>, CallError> {
        let view = self
            .catalog
            .view_for(caller, &request.scope, request.identity);
        let member = |name| request.params.reference?.get(name);
        let bad = |why: &str| CallError::BadParams {
            method: request.method.to_owned(),
            why: why.to_owned(),
        };
        let kind = member("type").and_then(Raw::string);
        let (name, uri) = (member("name"), member("uri"));
        match (
            kind.as_deref(),
            name.and_then(Raw::string),
            uri.and_then(Raw::string),
        ) {
            _ if name.is_some() && uri.is_some() => Err(bad("`ref` has both a `name` and a `uri`")),
            (Some("ref/prompt"), Some(name), _) => {
                let found = view.resolve_prompt(&name);
                let mut target = self.item(caller, request, found, "prompt", &name)?;
                target.renamed = Renamed::PromptReference;
                Ok(target)
            }
            (Some("ref/resource"), _, Some(uri)) => {
                let found = view.resolve_resource(&uri);
                let mut target = self.item(caller, request, found, "resource template", &uri)?;
                target.renamed = Renamed::ResourceReference;
                Ok(target)
            }
            _ => Err(bad(
                "`ref` must be a `ref/prompt` with a `name` or a `ref/resource` with a `uri`",
            )),
        }
    }

    /// Resolves any other method, for the one server in scope.
    fn direct<'a>(&self, caller: &Caller, request: &Request<'a>) -> Result<Target<'a>, CallError> {
        let unknown = || unknown_method(request);
        let Scope::Server(name) = &request.scope else {
            return Err(unknown());
        };
        if request.lists != Lists::FromServer || name.as_str() == ServerName::NATIVE {
            return Err(unknown());
        }
        let handle = self.supervisor.find(name.as_str());
        let handle = handle.ok_or_else(|| CallError::UnknownServer {
            name: name.to_string(),
        })?;
        let class = class_of(request.method);
        // A server has one client, the gateway: its tasks and its log level are shared by all
        // agents. An agent sets its level in its session or request, and tasks are not forwarded.
        let item = match (caller.kind, class) {
            (KeyKind::Admin(_), _) => Cow::Borrowed(""),
            (KeyKind::Agent, MethodClass::Lifecycle) if request.method == "ping" => {
                Cow::Borrowed("")
            }
            (KeyKind::Agent, _) => return Err(unknown()),
        };
        Ok(Target {
            place: NameLocation::Server(handle),
            class,
            item,
            tool: None,
            renamed: Renamed::Nowhere,
            arguments: request.params.whole,
            replaced: None,
        })
    }
}

/// Says why what exists is not the caller's.
fn not_granted(caller: &Caller, class: MethodClass, server: ServerName, item: String) -> CallError {
    let listing = AccessRequest::listing(class, &server, Some(&item));
    let decision = caller.grants.decide(&listing);
    decision.note_use(unix_ms());
    let refused = guard::permit(caller, &decision, &server, &item);
    refused.err().unwrap_or_else(|| CallError::NotGranted {
        agent: caller.agent.to_string(),
        server,
        item,
    })
}

impl Target<'_> {
    /// Returns the arguments that are sent.
    pub(super) fn arguments(&self) -> Option<Raw<'_>> {
        match &self.replaced {
            Some(replaced) => Some(replaced.as_raw()),
            None => self.arguments,
        }
    }

    /// Decides by the caller's grants.
    pub(super) fn decide<'c>(&self, caller: &'c Caller) -> Decision<'c> {
        let mut arguments = self.arguments();
        if self.class == MethodClass::Prompt {
            arguments = arguments.and_then(|params| params.get("arguments"));
        }
        let (server, tool) = (self.server_name(), self.tool.as_deref());
        guard::decide(caller, self.class, &server, &self.item, tool, arguments)
    }

    pub(super) fn tool(&self) -> Option<&Arc<Tool>> {
        self.tool.as_ref()
    }

    /// Returns the permits for expensive checks.
    pub(super) fn permits(&self) -> &Permits {
        match &self.place {
            NameLocation::Server(server) => &server.permits,
            NameLocation::Native(native) => native.permits(),
        }
    }

    /// Returns what happens to a result that does not fit the tool's output schema.
    pub(super) fn output_check(&self) -> OutputCheck {
        match &self.place {
            NameLocation::Server(server) => {
                let settings = server.spec.tools.settings.get(self.item.as_ref());
                let own = settings.and_then(|settings| settings.output_check);
                own.unwrap_or(server.spec.calls.output_check)
            }
            NameLocation::Native(_) => OutputCheck::Strict,
        }
    }

    /// Refuses what is held back until somebody approves it.
    pub(super) fn check_approved(&self, pins: &Pins) -> Result<(), CallError> {
        let NameLocation::Server(server) = &self.place else {
            return Ok(());
        };
        let Some(kind) = self.pinned_kind() else {
            return Ok(());
        };
        // What is not known yet has no version to judge; it is judged once its server is up.
        let version = self.tool.as_ref().map_or(u32::MAX, |tool| tool.version);
        pins.check((server.id, &server.name), kind, &self.item, version)
    }

    /// The same by what the server lists now, once it is up: it may have been started since, and
    /// what it does not list could not be judged.
    pub(super) fn check_listed(&self, pins: &Pins, server: &ServerHandle) -> Result<(), CallError> {
        if pins.is_open() || server.ready().is_none() {
            return Ok(());
        }
        let Some(kind) = self.pinned_kind() else {
            return Ok(());
        };
        let unlisted = match kind {
            PinKind::Tool | PinKind::Prompt => 0,
            // What is completed may be a resource, which is not judged.
            PinKind::Template => u32::MAX,
        };
        let version = server.catalog.load().version_of(kind, &self.item);
        let version = version.unwrap_or(unlisted);
        pins.check((server.id, &server.name), kind, &self.item, version)
    }

    /// Returns what is used, if its versions are approved.
    fn pinned_kind(&self) -> Option<PinKind> {
        if self.item.is_empty() {
            return None;
        }
        match (self.class, self.renamed) {
            (MethodClass::Tool, _) => Some(PinKind::Tool),
            (MethodClass::Prompt, _) | (_, Renamed::PromptReference) => Some(PinKind::Prompt),
            (_, Renamed::ResourceReference) => Some(PinKind::Template),
            _ => None,
        }
    }

    /// Tells whether what nobody sees is taken out of its results.
    pub(super) fn cleans_results(&self) -> bool {
        match &self.place {
            NameLocation::Server(server) => server.spec.calls.clean_results,
            NameLocation::Native(_) => false,
        }
    }

    /// Returns the longest result that is passed on.
    pub(super) fn longest_result(&self) -> Option<usize> {
        match &self.place {
            NameLocation::Server(server) => {
                server.spec.calls.result_bytes.map(|most| most as usize)
            }
            NameLocation::Native(_) => None,
        }
    }

    pub(super) fn server_name(&self) -> ServerName {
        match &self.place {
            NameLocation::Server(server) => server.name.clone(),
            NameLocation::Native(_) => ServerName::native(),
        }
    }

    pub(super) fn server_str(&self) -> &str {
        match &self.place {
            NameLocation::Server(server) => server.name.as_str(),
            NameLocation::Native(_) => ServerName::NATIVE,
        }
    }

    pub(super) fn server_id(&self) -> Option<ServerId> {
        match &self.place {
            NameLocation::Server(server) => Some(server.id),
            NameLocation::Native(_) => None,
        }
    }

    pub(super) fn redactor(&self) -> Arc<Redactor> {
        match &self.place {
            NameLocation::Server(server) => server.known.shared(),
            NameLocation::Native(_) => Arc::clone(Redactor::own_keys()),
        }
    }

    pub(super) fn schema_version(&self) -> Option<&str> {
        self.tool.as_ref().map(|tool| tool.schema_version())
    }

    /// Returns the same with other arguments.
    pub(super) fn with_arguments(&self, arguments: RawBuf) -> Self {
        Self {
            place: self.place.clone(),
            class: self.class,
            item: self.item.clone(),
            tool: self.tool.clone(),
            renamed: self.renamed,
            arguments: self.arguments,
            replaced: Some(arguments),
        }
    }

    /// Puts the server's own name for the item back into the params, and arguments that replace those of
    /// the request.
    pub(super) fn rename<'p>(&'p self, params: &mut Edit<'p>) {
        if let Some(arguments) = &self.replaced {
            params.set("arguments", arguments.as_raw());
        }
        match self.renamed {
            Renamed::Nowhere => {}
            Renamed::Name => {
                params.set_buf("name", RawBuf::string(&self.item));
            }
            Renamed::Uri => {
                params.set_buf("uri", RawBuf::string(&self.item));
            }
            // Rebuilt from what was checked, so that nothing else reaches the server.
            Renamed::PromptReference => {
                params.set_buf("ref", reference("ref/prompt", "name", &self.item));
            }
            Renamed::ResourceReference => {
                params.set_buf("ref", reference("ref/resource", "uri", &self.item));
            }
        }
    }

    /// Returns the HTTP head of the request.
    pub(super) fn head(
        &self,
        request: &Request<'_>,
        trace: Option<TraceHeaders>,
    ) -> Box<MessageHead> {
        let name = name_of(Method::parse(request.method), &request.params);
        let name = name.map(|own| match self.renamed {
            Renamed::Name | Renamed::Uri => Box::from(self.item.as_ref()),
            Renamed::Nowhere | Renamed::PromptReference | Renamed::ResourceReference => {
                Box::from(own.as_ref())
            }
        });
        let params = self
            .tool
            .as_ref()
            .map_or_else(Vec::new, |tool| tool.mirrored(self.arguments()));
        Box::new(MessageHead {
            method: request.method.into(),
            name,
            params,
            trace,
        })
    }

    /// Returns the server of an unknown tool, which must be resolved again before the call.
    pub(super) fn guessed(&self) -> Option<&Arc<ServerHandle>> {
        let is_tool = self.class == MethodClass::Tool && !self.item.is_empty();
        match &self.place {
            NameLocation::Server(server) if is_tool && self.tool.is_none() => Some(server),
            NameLocation::Server(_) | NameLocation::Native(_) => None,
        }
    }
}

/// Returns the reference of a completion.
fn reference(kind: &str, member: &'static str, item: &str) -> RawBuf {
    let mut reference = Edit::new(Raw::EMPTY_OBJECT);
    reference.set_buf("type", RawBuf::string(kind));
    reference.set_buf(member, RawBuf::string(item));
    reference.to_buf()
}

fn unknown_method(request: &Request<'_>) -> CallError {
    CallError::UnknownMethod {
        method: request.method.to_owned(),
    }
}
