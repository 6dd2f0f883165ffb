//! Being told of changes of a resource: resolved, judged and recorded like any other request.
//!
//! The server is told once for all who listen, by `server::topics`; here it is only waited for.

use std::sync::Arc;

use gantry_model::caller::Caller;
use gantry_model::id::ServerName;
use gantry_model::mcp::Method;
use gantry_store::CallStatus;
use tokio::time::{Instant, timeout};

use super::answer;
use super::limit::Limit;
use super::record::{failed, intent};
use super::target::{Place, Target};
use super::{Router, admitted, until_key_ends};
use crate::audit::{Outcome, RowCode};
use crate::catalog::Resolution;
use crate::clock::unix_ms;
use crate::error::{CallError, CallFailure};
use crate::request::{Request, Scope, Speaker};
use crate::server::handle::ServerHandle;
use crate::server::profiles::Party;
use crate::server::topics::{Full, Hearer, Standing, Subscription, Topics};

impl Router {
    /// Begins to tell a caller of changes of the resource that the params name.
    pub(crate) async fn subscribe(
        &self,
        caller: &Caller,
        request: Request<'_>,
        hearer: Hearer,
    ) -> Result<Subscription, CallFailure> {
        let begun = Instant::now();
        let id = self.ids.next(unix_ms());
        if let Scope::Server(name) = &request.scope
            && name.as_str() != ServerName::NATIVE
            && self.supervisor.find(name.as_str()).is_none()
        {
            let error = CallError::UnknownServer {
                name: name.to_string(),
            };
            let refused = self.refuse((id, caller), &request, None, begun, error);
            return Err(refused.await);
        }
        // A subscription is found as what is read is found, and has a grant class of its own.
        let target = match self.target(caller, &request, Some(Method::ResourcesRead)) {
            Ok(target) => target,
            Err(error) => {
                let refused = self.refuse((id, caller), &request, None, begun, error);
                return Err(refused.await);
            }
        };
        if let Err(error) = admitted(caller, &target).await {
            let refused = self.refuse((id, caller), &request, Some(&target), begun, error);
            return Err(refused.await);
        }
        if let Err(error) = self.has_room(caller, &target) {
            let refused = self.refuse((id, caller), &request, Some(&target), begun, error);
            return Err(refused.await);
        }
        let key = caller.key.to_string();
        let redactor = target.redactor();
        let intent = intent(id, caller, &key, &request, Some(&target), None, &redactor);
        let ticket = self.audit.intent(&intent).await;
        let mut ticket = ticket.map_err(|error| CallFailure {
            call: None,
            error: CallError::Audit(error),
        })?;
        ticket.on_drop(CallStatus::Cancelled, RowCode::Cancelled);
        ticket.made_with(&caller.validity);
        let counted = self.figures.begin(begun);
        let joining = self.join((caller, &request), &target, hearer, begun);
        let joined = until_key_ends(caller, joining).await;
        let redactor = target.redactor();
        let joined = joined.map_err(|error| answer::hide(error, &redactor));
        let (status, code, error) = match &joined {
            Ok(_) => (CallStatus::Ok, None, None),
            Err(error) => failed(error),
        };
        let outcome = Outcome {
            status,
            code: code.as_deref(),
            error: error.as_deref(),
            output: None,
            duration: counted.end(status),
            redactor: &redactor,
        };
        ticket.outcome(&outcome).await;
        joined.map_err(|error| CallFailure {
            call: Some(id),
            error,
        })
    }

    /// Known before the record, so that a flood is counted and not recorded one by one.
    fn has_room(&self, caller: &Caller, target: &Target<'_>) -> Result<(), CallError> {
        match &target.place {
            Place::Server(server) => {
                let topics = self.topics.of(&server.name);
                let room = topics.has_room(&caller.agent, &target.item);
                room.map_err(|full| too_many(server, caller, full))
            }
            Place::Native(_) => Ok(()),
        }
    }

    async fn join(
        &self,
        (caller, request): (&Caller, &Request<'_>),
        target: &Target<'_>,
        hearer: Hearer,
        begun: Instant,
    ) -> Result<Subscription, CallError> {
        let limit = Limit::of(begun, request.timeout);
        let server: &ServerHandle = match &target.place {
            Place::Server(server) => server,
            Place::Native(_) => {
                return Err(CallError::UnknownItem {
                    kind: "resource",
                    name: target.item.to_string(),
                });
            }
        };
        self.link(caller, server, limit).await?;
        let shared = self.topics.of(&server.name);
        // The process of a client that has its own may have what the common one has not.
        let client = Party::of(caller, request.speaker).filter(|one| server.profiles.has(one));
        let own = client.map(|client| server.profiles.topics(&client));
        let is_listed = {
            let common = server.catalog.load();
            let mut listed = common.resources.iter();
            listed.any(|resource| *resource.name == *target.item)
        };
        let join = |topics: Arc<Topics>| {
            let joined = topics.join(&caller.agent, &target.item, Arc::clone(&hearer));
            joined.map_err(|full| too_many(server, caller, full))
        };
        let mut joined = match own {
            Some(own) if is_listed => join(shared)?.beside(join(own)?),
            Some(own) => join(own)?,
            None => join(shared)?,
        };
        let patience = limit.within(server.spec.calls.timeout);
        match timeout(patience, joined.settled()).await {
            Ok(Standing::Kept) => Ok(joined),
            Ok(Standing::Refused(code, message)) => Err(CallError::Rpc {
                server: server.name.clone(),
                code,
                message: message.to_string(),
                data: None,
            }),
            Ok(Standing::Wanted) | Err(_) => Err(self.timed_out(server, patience)),
        }
    }

    /// Tells the processes of a client that its roots have changed.
    pub(crate) fn roots_changed(&self, caller: &Caller, who: Speaker) {
        let Some(client) = Party::of(caller, who) else {
            return;
        };
        for server in self.supervisor.all() {
            server
                .profiles
                .tell(&client, "notifications/roots/list_changed");
        }
    }

    /// Tells whether a client may read a resource now.
    pub(crate) fn may_read(&self, caller: &Caller, scope: &Scope, who: Speaker, uri: &str) -> bool {
        let view = self.catalog.view_for(caller, scope, who);
        let named_by = self.links.server_of((&caller.agent, who.session()), uri);
        let found = view.resolve_linked(named_by.as_ref(), uri);
        matches!(found, Resolution::Named { .. })
    }
}

fn too_many(server: &ServerHandle, caller: &Caller, full: Full) -> CallError {
    let (agent, name) = (&caller.agent, &server.name);
    let of_server = format!("subscriptions to resources of server `{name}`");
    let what = match full {
        Full::Agent(limit) => format!("agent `{agent}` has {limit} {of_server} already"),
        Full::Bytes(limit) => {
            format!("the URIs of all {of_server} of agent `{agent}` may take {limit} bytes")
        }
        Full::Server(limit) => format!("all agents together have {limit} {of_server} already"),
    };
    CallError::TooManySubscriptions { what }
}
