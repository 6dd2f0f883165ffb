//! `initialize` of the handshake era and `server/discover` of the stateless era.
//!
//! Tools are always declared with `listChanged`; other capabilities if some server that the caller
//! may use has them. Instructions of servers are passed on: of one server unchanged, of several
//! joined, unless disabled. Entry points: `Endpoint::initialize` and `Endpoint::discover`.

use axum::response::{IntoResponse, Response};
use gantry_engine::{Capabilities, ClientIdentity, Scope};
use gantry_model::era::{ProtocolVersion, negotiate, shape};
use gantry_model::jsonrpc::{self, Edit, Raw, RawBuf, Request};
use gantry_model::mcp::{ClientCapabilities, Method};

use super::answer::{Answer, TTL_MS};
use super::{AuthorizedRequest, Endpoint, SESSION_HEADER, unknown_server};
use crate::http::error::Problem;

/// Whether clients of `/mcp` get the instructions of all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Instructions {
    /// Those of all servers that the caller may use, each under its server's name.
    #[default]
    Joined,
    /// No instructions.
    None,
}

impl Endpoint {
    /// Negotiates a version and opens a session.
    pub(super) fn initialize(
        &self,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
    ) -> Result<Response, Problem> {
        let version = request
            .params
            .and_then(|params| params.get("protocolVersion")?.string());
        let version = version.ok_or_else(|| {
            Problem::new("request.params")
                .with_detail("`protocolVersion` must be a text")
                .with_rpc(jsonrpc::INVALID_PARAMS, "`protocolVersion` must be a text")
        })?;
        let version = negotiate(&version);
        let capabilities = request.params.and_then(|params| params.get("capabilities"));
        let capabilities =
            capabilities.map_or(ClientCapabilities::NOTHING, ClientCapabilities::read);
        let instructions = self.instructions(authorized)?;
        let offered = self.offered(authorized);
        let engine = self.engine();
        // A new client starts with the current lists.
        let lists = engine.list_revisions(
            &authorized.caller,
            &authorized.scope,
            ClientIdentity::Anyone,
        );
        let mut result = Edit::new(Raw::EMPTY_OBJECT);
        result
            .set_buf("protocolVersion", RawBuf::string(version.as_str()))
            .set("capabilities", offered.as_raw())
            .set("serverInfo", self.identity.info());
        if let Some(instructions) = &instructions {
            result.set("instructions", instructions.as_raw());
        }
        let session = self.sessions.open(
            &authorized.caller,
            authorized.scope.clone(),
            (version, capabilities),
        )?;
        // Changes before its first stream are reported on that stream.
        session.log.leave(lists);
        let mut response = Answer::result(request.id, &result).into_response();
        let name = session.id.header();
        response.headers_mut().insert(SESSION_HEADER, name);
        Ok(response)
    }

    /// Answers `server/discover`.
    pub(super) fn discover(
        &self,
        authorized: &AuthorizedRequest,
        request: &Request<'_>,
    ) -> Result<Answer, Problem> {
        let versions = ProtocolVersion::STATELESS.map(ProtocolVersion::as_str);
        let versions = RawBuf::serialize(&versions).expect("texts are always JSON");
        let instructions = self.instructions(authorized)?;
        let offered = self.offered(authorized);
        let mut result = Edit::new(Raw::EMPTY_OBJECT);
        result
            .set("supportedVersions", versions.as_raw())
            .set("capabilities", offered.as_raw())
            .set_buf("ttlMs", RawBuf::integer(TTL_MS));
        if let Some(instructions) = &instructions {
            result.set("instructions", instructions.as_raw());
        }
        let result = result.to_buf();
        let kind = shape::ResultKind::of(Method::ServerDiscover);
        let info = Some(self.identity.info());
        Ok(Answer::result(
            request.id,
            &shape::to_modern(result.as_raw(), kind, info),
        ))
    }

    /// Returns the instructions of the servers behind the endpoint.
    fn instructions(&self, authorized: &AuthorizedRequest) -> Result<Option<RawBuf>, Problem> {
        let Scope::Server(name) = &authorized.scope else {
            let joined = match self.instructions {
                Instructions::Joined => self.engine().instructions(&authorized.caller),
                Instructions::None => None,
            };
            return Ok(joined.as_deref().map(RawBuf::string));
        };
        let view = self.server_of(&authorized.caller, name);
        let view = view.ok_or_else(|| unknown_server(name.as_str()))?;
        Ok(view.status.instructions.as_deref().map(RawBuf::string))
    }

    fn offered(&self, authorized: &AuthorizedRequest) -> RawBuf {
        offered(
            &self
                .engine()
                .capabilities(&authorized.caller, &authorized.scope),
        )
    }
}

fn offered(has: &Capabilities) -> RawBuf {
    let changing = Raw::trusted(r#"{"listChanged":true}"#);
    let mut offered = Edit::new(Raw::EMPTY_OBJECT);
    offered.set("tools", changing);
    if has.prompts {
        offered.set("prompts", changing);
    }
    if has.resources && has.subscriptions {
        let watched = Raw::trusted(r#"{"listChanged":true,"subscribe":true}"#);
        offered.set("resources", watched);
    } else if has.resources {
        offered.set("resources", changing);
    }
    if has.completions {
        offered.set("completions", Raw::EMPTY_OBJECT);
    }
    if has.logging {
        offered.set("logging", Raw::EMPTY_OBJECT);
    }
    offered.to_buf()
}
