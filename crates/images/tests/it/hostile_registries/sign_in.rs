//! Registries and token servers that want our credentials, or never have enough. faults H3 and H4

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use super::{Case, check};
use crate::scripted::{Handler, Request, Server, endless, head, reply, silence};

/// A registry that always asks for a token of this realm.
fn asks(name: &'static str, code: &'static str, says: &'static str, realm: &str) -> Case {
    let challenge = format!("Bearer realm=\"{realm}\",service=\"x\",scope=\"everything\"");
    Case::new(name, code, says, move |_, stream| {
        Some(reply(
            stream,
            401,
            &[("WWW-Authenticate", &challenge)],
            b"{}",
        ))
    })
}

/// The same, with a token server of its own that answers so.
fn tokens(
    name: &'static str,
    code: &'static str,
    says: &'static str,
    answer: impl Fn(&Request, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> (Case, Server) {
    let answer: Handler = Arc::new(answer);
    let server = Server::start(answer);
    let realm = format!("http://{}/token", server.address);
    (asks(name, code, says, &realm), server)
}

#[tokio::test(flavor = "multi_thread")]
async fn realms_that_lead_astray_see_nothing() {
    let refused = |name, says, realm| asks(name, "image.registry", says, realm).with_credentials();
    let inward = |name, realm| {
        asks(
            name,
            "image.address_refused",
            "the token server leads to",
            realm,
        )
    };
    check(vec![
        inward("inward", "https://10.0.0.1/token"),
        inward("metadata", "https://169.254.169.254/token"),
        inward("other loopback", "http://127.0.0.2:1/token"),
        inward("loopback by name", "http://localhost:1/token"),
        refused(
            "without encryption",
            "is not encrypted",
            "http://auth.example.com/token",
        ),
        refused(
            "of another domain",
            "credentials are not sent",
            "https://auth.example.com/token",
        ),
        refused(
            "of another loopback",
            "credentials are not sent",
            "http://localhost:1/token",
        ),
        refused(
            "with a password",
            "a name or a password",
            "https://a:b@auth.example.com/token",
        ),
        refused("no URL", "no token from", "token"),
        Case::new(
            "no challenge",
            "image.unauthorized",
            "answered 401",
            |_, stream| Some(reply(stream, 401, &[], b"")),
        ),
        Case::new(
            "in its own words",
            "image.unauthorized",
            "DENIED: go away",
            |_, stream| {
                Some(reply(
                    stream,
                    403,
                    &[],
                    br#"{"errors":[{"code":"DENIED","message":"go away"}]}"#,
                ))
            },
        ),
        Case::new(
            "an endless refusal",
            "image.unauthorized",
            "answered 403",
            |_, stream| Some(head(stream, 403, &[]).and_then(|()| endless(stream, &[b' '; 4096]))),
        ),
        Case::new(
            "a password that nobody gave",
            "image.unauthorized",
            "a user name and a password",
            |_, stream| {
                Some(reply(
                    stream,
                    401,
                    &[("WWW-Authenticate", "Basic realm=\"x\"")],
                    b"",
                ))
            },
        ),
        Case::new(
            "a password that is never right",
            "image.unauthorized",
            "answered 401",
            |_, stream| {
                Some(reply(
                    stream,
                    401,
                    &[("WWW-Authenticate", "Basic realm=\"x\"")],
                    b"",
                ))
            },
        )
        .with_credentials(),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_servers_that_give_none() {
    let token = |_: &Request, stream: &mut TcpStream| reply(stream, 200, &[], br#"{"token":"t"}"#);
    let cases = [
        tokens("never enough", "image.unauthorized", "answered 401", token),
        tokens(
            "endless token",
            "image.too_large",
            "the token",
            |_, stream| {
                head(stream, 200, &[])?;
                endless(stream, &[b'x'; 4096])
            },
        ),
        tokens("web page", "image.registry", "not the JSON", |_, stream| {
            reply(stream, 200, &[], b"<html>")
        }),
        tokens(
            "no token",
            "image.registry",
            "no usable token",
            |_, stream| reply(stream, 200, &[], b"{}"),
        ),
        tokens(
            "token with a line break",
            "image.registry",
            "cannot be sent",
            |_, stream| reply(stream, 200, &[], br#"{"token":"a\r\nX-Evil: 1"}"#),
        ),
        tokens(
            "refused",
            "image.unauthorized",
            "token server answered 401",
            |_, stream| reply(stream, 401, &[], b""),
        ),
        tokens(
            "redirected",
            "image.registry",
            "it answered 307",
            |_, stream| reply(stream, 307, &[("Location", "https://10.0.0.1/")], b""),
        ),
    ];
    for (case, server) in cases {
        case.with_credentials().check().await;
        assert_eq!(server.requests().len(), 1);
    }
    let (silent, _server) = tokens("silent", "image.unreachable", "too slow", |_, stream| {
        silence(stream)
    });
    silent.impatient().check().await;
}
