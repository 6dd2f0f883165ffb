//! Reaches endpoints that a remote server names, such as its authorization server: with the same
//! client and address rules as the server itself, but without its headers. Reads nothing before it
//! is used. fault H4

use std::sync::Arc;

use gantry_model::spec::RemoteLaunch;
use reqwest::{Client, Request, Response};
use tokio::sync::OnceCell;
use url::Url;

use super::address::{AddressPolicy, NotPublic};
use super::{Clients, SetupError, policy};

/// The route to endpoints that a remote server names.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    clients: Arc<Clients>,
    launch: Arc<RemoteLaunch>,
    url: Url,
    /// Created on demand: reading a certificate file may hang.
    made: Arc<OnceCell<Client>>,
    policy: AddressPolicy,
}

/// Why an endpoint was not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RouteError {
    /// Its address is neither public nor configured.
    #[error(transparent)]
    Address(#[from] NotPublic),
    /// The client cannot be created.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The request failed.
    #[error(transparent)]
    Failed(#[from] reqwest::Error),
}

impl RouteError {
    /// Returns the refused address, if that is the cause; for a name it is a nested source.
    pub(crate) fn refused(&self) -> Option<&NotPublic> {
        let error = match self {
            Self::Address(refused) => return Some(refused),
            Self::Setup(_) => return None,
            Self::Failed(error) => error as &(dyn std::error::Error + 'static),
        };
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.find_map(|cause| cause.downcast_ref())
    }
}

impl Route {
    /// Prepares the route of a server.
    pub(crate) fn new(clients: &Arc<Clients>, launch: &RemoteLaunch) -> Result<Self, SetupError> {
        let unusable = |error: url::ParseError| SetupError {
            origin: launch.shown_url(),
            why: error.to_string(),
        };
        let url = Url::parse(&launch.url).map_err(unusable)?;
        Ok(Self {
            clients: Arc::clone(clients),
            launch: Arc::new(launch.clone()),
            made: Arc::default(),
            policy: policy(&url, launch)?,
            url,
        })
    }

    /// Sends a request if its address is allowed; follows no redirects.
    pub(crate) async fn execute(&self, request: Request) -> Result<Response, RouteError> {
        self.policy.judge(request.url())?;
        Ok(self.client().await?.execute(request).await?)
    }

    /// Returns the client, for requests whose addresses need no check.
    pub(crate) async fn client(&self) -> Result<&Client, SetupError> {
        let making = async || {
            let (client, _) = self.clients.client(&self.url, &self.launch).await?;
            Ok(client)
        };
        self.made.get_or_try_init(making).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_cannot_send_us_to_addresses_that_nobody_named() {
        // fault H4
        let clients = Arc::default();
        let route = |url: &str| Route::new(&clients, &RemoteLaunch::new(url)).unwrap();
        let ask = |to: &str| Request::new(reqwest::Method::GET, Url::parse(to).unwrap());
        let public = route("https://example.com/mcp");
        for to in [
            "http://127.0.0.1:9/token",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]:9/",
            "http://0x7f.1:9/",
            "http://10.0.0.1/",
        ] {
            let refused = public.execute(ask(to)).await.unwrap_err();
            assert!(matches!(refused, RouteError::Address(_)), "{to}: {refused}");
            assert!(refused.refused().is_some(), "{to}");
        }
        // A name is judged by where it leads.
        let named = public.execute(ask("http://localhost:9/")).await;
        let named = named.unwrap_err();
        let refused = named.refused();
        assert!(
            refused.is_some_and(|refused| refused.host == "localhost"),
            "{named}"
        );
        let own = route("http://127.0.0.1:9/mcp");
        let failed = own.execute(ask("http://127.0.0.1:9/token")).await;
        let failed = failed.unwrap_err();
        assert!(matches!(failed, RouteError::Failed(_)), "nobody listens");
        assert!(failed.refused().is_none(), "{failed}");
        let other = own.execute(ask("http://169.254.169.254/")).await;
        assert!(matches!(other, Err(RouteError::Address(_))));
    }

    #[tokio::test]
    async fn a_file_of_certificates_is_read_when_the_route_is_used() {
        let temp = tempfile::tempdir().unwrap();
        let mut launch = RemoteLaunch::new("http://127.0.0.1:9/mcp");
        launch.ca_file = Some(temp.path().join("ca.pem"));
        let route = Route::new(&Arc::default(), &launch).unwrap();
        let ask = || Request::new(reqwest::Method::GET, route.url.clone());
        let early = route.execute(ask()).await.unwrap_err();
        assert!(matches!(early, RouteError::Setup(_)), "{early}");
        assert!(early.to_string().contains("`ca_file`"), "{early}");
    }
}
