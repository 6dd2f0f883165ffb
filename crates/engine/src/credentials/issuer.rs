//! Which authorization server is used: its metadata come from its own address and name only
//! endpoints that a token may be sent to, and a configured client is used only with the
//! authorization server it is bound to (ADR 007). Decides; stores nothing. Entry points:
//! [`published`], [`check`] and [`judge`].

use gantry_model::diagnose::chain;
use gantry_model::spec::{AuthKind, RemoteAuth};
use reqwest::Url;
use rmcp::transport::auth::AuthorizationMetadata;
use serde::{Deserialize, Serialize};
use url::Host;

use super::error::{SignInError, short};
use super::http::Outbound;
use super::{Target, token_store};

/// The authorization server that the configured client is bound to, as far as known.
#[derive(Default)]
pub(super) enum Binding {
    /// Unknown: the stored binding was not read yet.
    #[default]
    Unread,
    /// Not bound yet.
    Free,
    /// Bound to this one.
    To(BoundIssuer),
}

impl Binding {
    /// Returns whether the binding equals this one.
    pub(super) fn is(&self, bound: &BoundIssuer) -> bool {
        matches!(self, Self::To(known) if known == bound)
    }
}

/// The first authorization server that the configured client was used with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BoundIssuer {
    /// The server's URL at that time.
    url: String,
    client_id: String,
    /// `None` if it was the server itself, without metadata.
    issuer: Option<String>,
}

impl BoundIssuer {
    /// Binds the configured client; `None` if no client is configured, or if the configuration
    /// names the issuer.
    pub(super) fn new(target: &Target, issuer: Option<&str>) -> Option<Self> {
        let client_id = target.auth.client_id.clone()?;
        target.auth.issuer.is_none().then(|| Self {
            url: target.url.to_string(),
            client_id,
            issuer: issuer.map(str::to_owned),
        })
    }

    /// Derives the binding from tokens that were stored by a release without bindings.
    pub(super) fn of_tokens(target: &Target, kept: &token_store::StoredTokens) -> Option<Self> {
        let bound = Self::new(target, kept.stored.issuer.as_deref())?;
        (kept.client.client_id == bound.client_id && kept.url == bound.url).then_some(bound)
    }

    fn is_of(&self, target: &Target) -> bool {
        self.url == target.url.as_str() && target.auth.client_id.as_ref() == Some(&self.client_id)
    }
}

/// Decides whether the configured client may be used with this authorization server.
pub(super) fn judge(
    target: &Target,
    bound: Option<&BoundIssuer>,
    issuer: Option<&str>,
) -> Result<(), SignInError> {
    let RemoteAuth { kind, .. } = target.auth;
    if target.auth.client_id.is_none() || target.auth.issuer.is_some() {
        return Ok(());
    }
    let server = target.server.clone();
    let name = |issuer: Option<&str>| issuer.map_or_else(|| "its own".to_owned(), short);
    match bound.filter(|bound| bound.is_of(target)) {
        Some(bound) if bound.issuer.as_deref() == issuer => Ok(()),
        Some(bound) => Err(SignInError::Moved {
            server,
            was: name(bound.issuer.as_deref()),
            now: name(issuer),
            way: match kind {
                AuthKind::ClientCredentials => "--remove",
                AuthKind::Auto | AuthKind::None => "--again",
            },
        }),
        // No person confirms where the secret goes, so it is sent only to the server's own host.
        None if kind == AuthKind::ClientCredentials && !is_near(&target.url, issuer) => {
            let issuer = name(issuer);
            Err(SignInError::Unnamed { server, issuer })
        }
        None => Ok(()),
    }
}

/// Returns whether an authorization server is at the server's own host, or one host is a subdomain
/// of the other. Names alone do not show which other hosts belong together.
fn is_near(server: &Url, issuer: Option<&str>) -> bool {
    let Some(issuer) = issuer else {
        return true;
    };
    let issuer = Url::parse(issuer).ok();
    let issuer = issuer.as_ref().and_then(Url::host);
    match (server.host(), issuer) {
        (Some(Host::Domain(server)), Some(Host::Domain(issuer))) => {
            let under = |name: &str, above: &str| {
                let rest = name.strip_suffix(above);
                above.contains('.') && rest.is_some_and(|rest| rest.ends_with('.'))
            };
            server == issuer || under(server, issuer) || under(issuer, server)
        }
        (Some(server), Some(issuer)) => server == issuer,
        _ => false,
    }
}

/// Returns whether two issuers are the same. Without a path, a trailing slash makes no difference.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    fn bare(issuer: &str) -> &str {
        let cut = issuer.strip_suffix('/').unwrap_or(issuer);
        let is_root = Url::parse(cut).is_ok_and(|url| url.path() == "/");
        if is_root { cut } else { issuer }
    }
    bare(one) == bare(other)
}

/// Gets the metadata that an authorization server publishes at its own address; metadata from
/// elsewhere are not trusted (RFC 8414, section 3.3).
pub(super) async fn published(
    outbound: &Outbound,
    issuer: &str,
) -> Result<AuthorizationMetadata, String> {
    let url = Url::parse(issuer).map_err(|_| format!("`{}` is no URL", short(issuer)))?;
    let mut last = None;
    for place in well_known(&url) {
        let answer = outbound.get(&place).await;
        let answer = answer.map_err(|error| short(&chain(error.as_ref())))?;
        if !answer.status().is_success() {
            last = Some(format!("it answered {}", answer.status().as_u16()));
            continue;
        }
        let Ok(found) = serde_json::from_slice::<AuthorizationMetadata>(answer.body()) else {
            last = Some("its response is not valid metadata".to_owned());
            continue;
        };
        if found
            .issuer
            .as_deref()
            .is_some_and(|own| is_same(own, issuer))
        {
            return Ok(found);
        }
        last = Some("its metadata there name another issuer".to_owned());
    }
    let why = last.unwrap_or_default();
    Err(format!(
        "`{}` does not publish its metadata at its own address: {why}",
        short(issuer)
    ))
}

/// Returns the well-known URLs of an authorization server's metadata, in the order of the protocol.
fn well_known(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_matches('/');
    let (oauth, openid) = ("oauth-authorization-server", "openid-configuration");
    let places = match path {
        "" => vec![
            format!("/.well-known/{oauth}"),
            format!("/.well-known/{openid}"),
        ],
        path => vec![
            format!("/.well-known/{oauth}/{path}"),
            format!("/.well-known/{openid}/{path}"),
            format!("/{path}/.well-known/{openid}"),
            format!("/.well-known/{oauth}"),
        ],
    };
    let at = |place: String| {
        let mut url = issuer.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.set_path(&place);
        url
    };
    places.into_iter().map(at).collect()
}

/// Checks that a secret may be sent to every endpoint in the metadata: `https`, or this machine.
pub(super) fn check(metadata: &AuthorizationMetadata) -> Result<(), String> {
    let revocation = metadata.additional_fields.get("revocation_endpoint");
    let revocation = revocation.and_then(|endpoint| endpoint.as_str());
    let places = [
        ("name", metadata.issuer.as_deref()),
        (
            "sign-in page",
            Some(metadata.authorization_endpoint.as_str()),
        ),
        ("token endpoint", Some(metadata.token_endpoint.as_str())),
        (
            "registration endpoint",
            metadata.registration_endpoint.as_deref(),
        ),
        ("revocation endpoint", revocation),
    ];
    for (what, place) in places {
        if place.is_some_and(|place| !is_private(place)) {
            return Err(format!(
                "its {what} is neither an `https` URL nor on this machine"
            ));
        }
    }
    Ok(())
}

/// Returns whether traffic to this URL is encrypted or stays on this machine.
fn is_private(place: &str) -> bool {
    let Ok(url) = Url::parse(place) else {
        return false;
    };
    let is_here = match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let is_plain = url.username().is_empty() && url.password().is_none();
    is_plain && (url.scheme() == "https" || url.scheme() == "http" && is_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_goes_unasked_only_to_who_is_near() {
        let server = Url::parse("https://mcp.example.com/mcp").unwrap();
        for (issuer, near) in [
            ("https://mcp.example.com", true),
            ("https://mcp.example.com/tenant", true),
            ("https://login.mcp.example.com", true),
            ("https://example.com", true),
            ("https://login.example.com", false),
            ("https://evilmcp.example.com", false),
            ("https://mcp.example.com.evil.net", false),
            ("https://com", false),
            ("nothing", false),
        ] {
            assert_eq!(is_near(&server, Some(issuer)), near, "{issuer}");
        }
        assert!(is_near(&server, None), "the server itself");
        let local = Url::parse("http://127.0.0.1:1/mcp").unwrap();
        assert!(is_near(&local, Some("http://127.0.0.1:2")));
        assert!(!is_near(&local, Some("http://127.0.0.2:2")));
    }

    #[test]
    fn only_a_bare_host_may_end_in_a_slash() {
        assert!(is_same("https://a", "https://a/"));
        assert!(!is_same("https://a/b", "https://a/b/"));
        assert!(!is_same("https://a", "https://b"));
    }

    #[test]
    fn metadata_stand_in_few_places() {
        let places = |issuer: &str| -> Vec<String> {
            let found = well_known(&Url::parse(issuer).unwrap());
            found.iter().map(|url| url.path().to_owned()).collect()
        };
        assert_eq!(
            places("https://a/?x"),
            [
                "/.well-known/oauth-authorization-server",
                "/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            places("https://a/t/"),
            [
                "/.well-known/oauth-authorization-server/t",
                "/.well-known/openid-configuration/t",
                "/t/.well-known/openid-configuration",
                "/.well-known/oauth-authorization-server"
            ]
        );
    }

    #[test]
    fn nothing_is_sent_that_others_can_read() {
        for (place, private) in [
            ("https://a/token", true),
            ("http://127.0.0.1:9/token", true),
            ("http://[::1]/token", true),
            ("http://localhost./token", true),
            ("http://a/token", false),
            ("http://10.0.0.1/token", false),
            ("https://me:pw@a/token", false),
            ("ftp://127.0.0.1/token", false),
            ("/token", false),
        ] {
            assert_eq!(is_private(place), private, "{place}");
        }
    }
}
