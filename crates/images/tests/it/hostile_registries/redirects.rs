//! Redirects that lead inward, around in circles, or away with our credentials. faults H3 and H4

use std::sync::Arc;

use super::{Case, check, is_layer, is_manifest};
use crate::puller::{Puller, tagged};
use crate::sample::{Sample, serve};
use crate::scripted::{Server, reply};

/// Redirects every manifest there.
fn redirected(
    name: &'static str,
    code: &'static str,
    says: &'static str,
    to: &'static str,
) -> Case {
    Case::new(name, code, says, move |request, stream| {
        is_manifest(request).then(|| reply(stream, 307, &[("Location", to)], b""))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_inward_are_not_followed() {
    let inward = |name, to| redirected(name, "image.address_refused", "a redirect leads to", to);
    let layer = Sample::long();
    let served = layer.clone();
    check(vec![
        inward("other loopback", "http://127.0.0.2:1/x"),
        inward("loopback by encryption", "https://127.0.0.2:1/x"),
        inward("loopback, version 6", "http://[::1]:1/x"),
        inward("loopback in disguise", "https://[::ffff:127.0.0.1]:1/x"),
        inward("loopback in octal", "https://0177.0.0.2:1/x"),
        inward("loopback as one number", "https://2130706434:1/x"),
        inward("loopback by name", "http://localhost:1/x"),
        inward(
            "metadata of clouds",
            "https://169.254.169.254/latest/meta-data",
        ),
        inward("private network", "https://10.0.0.1/x"),
        inward("this host", "https://0.0.0.0:1/x"),
        Case::new(
            "a layer in a private network",
            "image.address_refused",
            "a redirect leads to `10.1.2.3`",
            move |request, stream| {
                let to = [("Location", "https://10.1.2.3/x")];
                is_layer(request, &served).then(|| reply(stream, 302, &to, b""))
            },
        )
        .image(layer),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_that_end_nowhere_are_given_up() {
    let given_up = |name, says, to| redirected(name, "image.registry", says, to);
    check(vec![
        given_up(
            "around in a circle",
            "more than 5 redirects",
            "/v2/team/tool/manifests/1",
        ),
        given_up(
            "without encryption",
            "is not encrypted",
            "http://example.com/x",
        ),
        given_up("to a file", "is not encrypted", "file:///etc/passwd"),
        given_up(
            "with a password",
            "a name or a password",
            "https://ann:secret@example.com/x",
        ),
        given_up("to no URL", "names no target", "https://:::/"),
        Case::new(
            "without a place",
            "image.registry",
            "names no target",
            |request, stream| is_manifest(request).then(|| reply(stream, 302, &[], b"")),
        ),
    ])
    .await;
}

/// What an image's owner shows is shown to the registry, and to nobody it redirects to.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_stay_with_the_registry() {
    let image = Sample::small();
    let bytes = image.layers[0].bytes.clone();
    let elsewhere = Server::start(Arc::new(move |_, stream| reply(stream, 200, &[], &bytes)));
    let (to, served) = (
        format!("http://{}/blob?signature=s", elsewhere.address),
        image.clone(),
    );
    let registry = serve(
        &image,
        Arc::new(move |request, stream| {
            if request.header("authorization") != Some("Basic YW5uOmh1bnRlcjI=") {
                let challenge = [("WWW-Authenticate", "Basic realm=\"x\"")];
                return Some(reply(stream, 401, &challenge, b""));
            }
            is_layer(request, &served).then(|| reply(stream, 307, &[("Location", &to)], b""))
        }),
    );
    let mut puller = Puller::new();
    puller.credentials = Some(gantry_images::Credentials::Basic {
        user: "ann".to_owned(),
        password: "hunter2".to_owned(),
    });
    puller.pull(&tagged(registry.address)).await.unwrap();
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), None);
    let shown = registry
        .requests()
        .iter()
        .filter(|request| request.header("authorization").is_some())
        .count();
    assert_eq!(shown, 3, "manifest, configuration and layer");
}

/// Somebody else's 401 is nobody's business of the registry.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_redirected_to_may_not_ask_who_we_are() {
    let elsewhere = Server::start(Arc::new(|_, stream| {
        reply(
            stream,
            401,
            &[("WWW-Authenticate", "Basic realm=\"x\"")],
            b"",
        )
    }));
    let to: &'static str = format!("http://{}/x", elsewhere.address).leak();
    let case = redirected("401 elsewhere", "image.unauthorized", "refuses access", to);
    case.with_credentials().check().await;
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), None);
}
