//! Subscriptions to a resource: resolved, checked and recorded like any other request.
//!
//! `server::topics` subscribes once for all listeners; this module only waits for it.

use std::pin::pin;
use std::sync::Arc;

use gantry_model::caller::Caller;
use gantry_model::mcp::Method;
use tokio::time::{Instant, timeout};

use super::Router;
use super::limit::Limit;
use super::record::{Output, Record};
use super::target::{NameLocation, Target};
use crate::audit::Measured;
use crate::catalog::Resolution;
use crate::error::{CallError, CallFailure};
use crate::guard;
use crate::request::{ClientIdentity, Request, Scope};
use crate::server::handle::ServerHandle;
use crate::server::profiles::InstanceOwner;
use crate::server::topics::{
    Subscription, SubscriptionState, TooManyTopics, Topics, UpdateCallback,
};

impl Router {
    /// Starts notifying a caller of changes of the resource that the params name.
    pub(crate) async fn subscribe(
        &self,
        caller: &Caller,
        request: Request<'_>,
        callback: UpdateCallback,
    ) -> Result<Subscription, CallFailure> {
        let measured = Measured::begin(caller.authenticated_in);
        let mut record = Record::open(self, caller, None, &measured);
        if let Err(error) = self.has_server(&request.scope) {
            return Err(record.refuse(&request, None, error).await);
        }
        // A subscription is resolved like a read, but has its own grant class.
        let target = match self.target(caller, &request, Some(Method::ResourcesRead)) {
            Ok(target) => target,
            Err(error) => return Err(record.refuse(&request, None, error).await),
        };
        let decision = target.decide(caller);
        record.decided(decision);
        let admitted = self.admit(caller, &target, decision, &measured).await;
        let admitted = admitted.and_then(|permit| {
            guard::asks(caller, &decision, &target.server_name(), &target.item)?;
            self.has_room(caller, &target)?;
            Ok(permit)
        });
        // Counted as a call until the subscription has begun.
        let _permit = match admitted {
            Ok(permit) => permit,
            Err(error) => return Err(record.refuse(&request, Some(&target), error).await),
        };
        let joining = pin!(self.join((caller, &request), &target, callback, record.begun));
        let joined = record
            .carry_out(&request, &target, no_output, joining)
            .await;
        joined.map(|(_, subscription)| subscription)
    }

    /// Checked before recording, so that a flood is counted and not recorded one by one.
    fn has_room(&self, caller: &Caller, target: &Target<'_>) -> Result<(), CallError> {
        match &target.place {
            NameLocation::Server(server) => {
                let topics = self.topics.of(&server.name);
                let room = topics.has_room(&caller.agent, &target.item);
                room.map_err(|full| too_many(server, caller, full))
            }
            NameLocation::Native(_) => Ok(()),
        }
    }

    async fn join(
        &self,
        (caller, request): (&Caller, &Request<'_>),
        target: &Target<'_>,
        callback: UpdateCallback,
        begun: Instant,
    ) -> Result<Subscription, CallError> {
        let limit = Limit::of(begun, request.timeout);
        let server: &ServerHandle = match &target.place {
            NameLocation::Server(server) => server,
            NameLocation::Native(_) => {
                return Err(CallError::UnknownItem {
                    kind: "resource",
                    name: target.item.to_string(),
                });
            }
        };
        self.link(caller, server, limit).await?;
        let shared = self.topics.of(&server.name);
        // The own instance of a client may have resources that the shared one does not.
        let client =
            InstanceOwner::of(caller, request.identity).filter(|one| server.profiles.has(one));
        let own = client.map(|client| server.profiles.topics(&client));
        let is_listed = {
            let common = server.catalog.load();
            let mut listed = common.resources.iter();
            listed.any(|resource| *resource.name == *target.item)
        };
        let join = |topics: Arc<Topics>| {
            let joined = topics.join(&caller.agent, &target.item, Arc::clone(&callback));
            joined.map_err(|full| too_many(server, caller, full))
        };
        let mut joined = match own {
            Some(own) if is_listed => join(shared)?.beside(join(own)?),
            Some(own) => join(own)?,
            None => join(shared)?,
        };
        let patience = limit.within(server.spec.calls.timeout);
        match timeout(patience, joined.settled()).await {
            Ok(SubscriptionState::Kept) => Ok(joined),
            Ok(SubscriptionState::Refused(code, message)) => Err(CallError::Rpc {
                server: server.name.clone(),
                code,
                message: message.to_string(),
                data: None,
            }),
            Ok(SubscriptionState::Wanted) | Err(_) => Err(self.timed_out(server, patience)),
        }
    }

    /// Notifies the instances of a client that its roots have changed.
    pub(crate) fn roots_changed(&self, caller: &Caller, who: ClientIdentity) {
        let Some(client) = InstanceOwner::of(caller, who) else {
            return;
        };
        for server in self.supervisor.all() {
            server
                .profiles
                .notify(&client, "notifications/roots/list_changed");
        }
    }

    /// Returns whether a client may read a resource now.
    pub(crate) fn may_read(
        &self,
        caller: &Caller,
        scope: &Scope,
        who: ClientIdentity,
        uri: &str,
    ) -> bool {
        let view = self.catalog.view_for(caller, scope, who);
        let named_by = self.links.server_of((&caller.agent, who.session()), uri);
        let found = view.resolve_linked(named_by.as_ref(), uri);
        matches!(found, Resolution::Named { .. })
    }
}

fn no_output(_: &Subscription) -> Output<'_> {
    Output::default()
}

fn too_many(server: &ServerHandle, caller: &Caller, full: TooManyTopics) -> CallError {
    let (agent, name) = (&caller.agent, &server.name);
    let of_server = format!("subscriptions to resources of server `{name}`");
    let what = match full {
        TooManyTopics::Agent(limit) => format!("agent `{agent}` has {limit} {of_server} already"),
        TooManyTopics::Bytes(limit) => {
            format!("the URIs of all {of_server} of agent `{agent}` may take {limit} bytes")
        }
        TooManyTopics::Server(limit) => {
            format!("all agents together have {limit} {of_server} already")
        }
    };
    CallError::TooManySubscriptions { what }
}
