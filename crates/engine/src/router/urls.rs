//! A server of the handshake era that answers a call with the error that a person must go to a URL
//! first: a client of the stateless era, which has no such error, is asked, and the call is sent once
//! more. Entry points: [`url_required`] and [`Asker::visit`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gantry_model::era::error::URL_ELICITATION_REQUIRED;
use gantry_model::jsonrpc::{Edit, ErrorBody, Raw, RawBuf};
use gantry_model::mcp::Method;

use super::asks::{Asker, REQUESTS, clean};
use crate::error::CallError;
use crate::request::{AskedFor, Client};
use crate::server::handle::ServerHandle;
use crate::server::handshake::trusted;
use crate::server::link::Link;

/// How long a person who has said yes is waited for, before it is asked again.
const PATIENCE: Duration = Duration::from_secs(30);

/// One URL that a person must go to.
pub(super) struct Url {
    id: Option<Box<str>>,
    params: RawBuf,
}

/// Where the people of one call said that they go.
#[derive(Default)]
pub(super) struct Visits {
    accepted: Vec<Option<Box<str>>>,
}

/// Returns the URLs that an error says are needed first; nothing if it is another error.
pub(super) fn url_required(error: &Bytes, server: &ServerHandle) -> Option<Vec<Url>> {
    let body = ErrorBody::read(trusted(error))?;
    (body.code == URL_ELICITATION_REQUIRED).then_some(())?;
    let elicitations = body.data?.get("elicitations")?;
    let redactor = server.known.redactor();
    let urls = elicitations.items().take(REQUESTS).filter_map(|asked| {
        asked.get("url")?.string()?;
        let id = asked.get("elicitationId").and_then(Raw::string);
        let mut params = Edit::new(asked);
        params.set_buf("mode", RawBuf::string("url"));
        Some(Url {
            id: id.map(|id| id.as_ref().into()),
            params: clean(params.to_buf().as_raw(), &redactor),
        })
    });
    let urls: Vec<Url> = urls.collect();
    (!urls.is_empty()).then_some(urls)
}

impl Asker<'_> {
    /// Sends a person there. Who has just said yes is not asked again at once: the server may need a
    /// moment, or the person, and says when it is through.
    pub(super) async fn visit(
        &self,
        urls: Vec<Url>,
        visits: &mut Visits,
        (link, client): (&Arc<Link>, &Arc<Client>),
    ) -> Result<(), CallError> {
        let ids: Vec<Option<Box<str>>> = urls.iter().map(|url| url.id.clone()).collect();
        if std::mem::take(&mut visits.accepted) == ids {
            let ids: Vec<Box<str>> = ids.into_iter().flatten().collect();
            link.completed(&ids, client, PATIENCE).await;
            return Ok(());
        }
        let requests = urls.into_iter().enumerate().map(|(place, url)| AskedFor {
            key: format!("url-{}", place + 1).into(),
            method: Method::ElicitationCreate,
            params: Some(url.params),
        });
        for said in self.ask(requests.collect()).await? {
            let result = said.outcome.map_err(|error| self.declined(&error))?;
            let action = result.as_raw().get("action");
            if !action.is_some_and(|action| action.is_string("accept")) {
                return Err(CallError::Declined {
                    server: self.server.name.clone(),
                    message: "the person did not go to the URL".to_owned(),
                });
            }
        }
        visits.accepted = ids;
        Ok(())
    }
}
