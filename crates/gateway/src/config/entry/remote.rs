//! An entry with a URL: a server that is somewhere else.
//!
//! Reads every spelling that clients have for it. Nothing is connected to here; what a name leads to
//! is judged when the connection is made. Entry points: [`is_remote`] and [`read`].

use gantry_model::spec::{
    AuthKind, ReconnectSpec, RemoteAuth, RemoteLaunch, TransportWish, check_url,
};

use super::fields::Fields;
use super::{Entry, Fill, folder};
use crate::config::mistake::Kind;

/// The members that name a URL.
pub(in crate::config) const URLS: [&str; 3] = ["url", "httpUrl", "serverUrl"];
/// The keys of `reconnect`.
pub(in crate::config) const RECONNECT: [&str; 5] =
    ["first", "longest", "failures", "away", "steady"];

/// The keys of `auth`; the last two are one client's own spelling.
pub(in crate::config) const AUTH: [&str; 8] = [
    "kind",
    "client_id",
    "client_secret",
    "issuer",
    "client_metadata_url",
    "scopes",
    "CLIENT_ID",
    "CLIENT_SECRET",
];

/// What stands for a URL whose variables nobody has allowed to be filled.
const UNFILLED: &str = "https://needs-approval.invalid/";

/// Tells whether an entry is that of a remote server.
pub(super) fn is_remote(fields: &Fields<'_, '_>, kind: Option<&str>) -> bool {
    URLS.into_iter().any(|key| fields.has(key)) || kind.is_some_and(|kind| kind != "stdio")
}

/// Reads where a remote server is and how it is reached.
pub(super) fn read(
    fields: &mut Fields<'_, '_>,
    entry: &Entry,
    kind: Option<&str>,
) -> Option<RemoteLaunch> {
    let Some(key) = URLS.into_iter().find(|key| fields.has(key)) else {
        let kind = kind.unwrap_or_default();
        let mistake = fields.told.mistake(&entry.name_span, Kind::Value);
        fields.told.push(
            mistake
                .say("`url` is missing")
                .label(format!("a server of type `{kind}`"))
                .help("write `\"url\": \"https://…\"`, and `\"headers\": {…}` if it needs some"),
        );
        return None;
    };
    let url = fields.text(key);
    let headers = fields.pairs("headers");
    let proxy = fields.text("proxy");
    let ca_file = fields.text("ca_file");
    if let Some(file) = &ca_file {
        folder::note(fields, "ca_file", file);
    }
    let allow_private = fields.flag("allow_private").unwrap_or_default();
    let auth = auth(fields);
    let reconnect = reconnect(fields);
    let node = fields.node(key)?;
    if fields.has("command") {
        let mistake = fields.told.mistake(&node.span, Kind::Value);
        fields.told.push(
            mistake
                .say(format!("`command` and `{key}` exclude each other"))
                .label("a remote server has no command")
                .help("keep one of them"),
        );
        return None;
    }
    let mut url = url?;
    if let Err(error) = check_url(&url) {
        let unfilled = matches!(fields.fill, Fill::AsWritten { .. }) && url.contains("${");
        if !unfilled {
            let mistake = fields.told.mistake(&node.span, Kind::Refused);
            fields.told.push(
                mistake
                    .say(format!("`{key}` cannot be used: {error}"))
                    .label("this")
                    .help(error.hint()),
            );
            return None;
        }
        url = UNFILLED.to_owned();
    }
    let transport = match (kind.and_then(TransportWish::parse), key) {
        (Some(wish), _) => wish,
        (None, "httpUrl") => TransportWish::StreamableHttp,
        (None, _) => TransportWish::Auto,
    };
    let folder = fields.fill.folder();
    Some(RemoteLaunch {
        transport,
        headers: headers?,
        proxy,
        allow_private,
        ca_file: ca_file.map(|file| folder.join(file)),
        auth,
        reconnect,
        written: super::written(fields.told),
        ..RemoteLaunch::new(url)
    })
}

fn auth(fields: &mut Fields<'_, '_>) -> RemoteAuth {
    let Some(mut auth) = fields.below("auth", &AUTH) else {
        return RemoteAuth::default();
    };
    let kinds = [
        ("auto", AuthKind::Auto),
        ("none", AuthKind::None),
        ("client_credentials", AuthKind::ClientCredentials),
    ];
    RemoteAuth {
        kind: auth.choice("kind", &kinds).unwrap_or_default(),
        client_id: auth.text("client_id").or_else(|| auth.text("CLIENT_ID")),
        client_secret: auth
            .text("client_secret")
            .or_else(|| auth.text("CLIENT_SECRET")),
        issuer: auth.text("issuer"),
        client_metadata_url: auth.text("client_metadata_url"),
        scopes: auth.texts("scopes").unwrap_or_default(),
    }
}

fn reconnect(fields: &mut Fields<'_, '_>) -> ReconnectSpec {
    let mut spec = ReconnectSpec::default();
    let Some(mut reconnect) = fields.below("reconnect", &RECONNECT) else {
        return spec;
    };
    spec.first = reconnect.period("first").unwrap_or(spec.first);
    spec.longest = reconnect.period("longest").unwrap_or(spec.longest);
    spec.away = reconnect.period("away").unwrap_or(spec.away);
    spec.steady = reconnect.period("steady").unwrap_or(spec.steady);
    if let Some(failures) = reconnect.whole("failures", 1..=100) {
        spec.failures = u32::try_from(failures).unwrap_or(spec.failures);
    }
    spec
}
