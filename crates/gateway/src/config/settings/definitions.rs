//! The keys of `[gateway]`, each defined once: the reader, the JSON Schema and the reference derive from it.

use std::time::Duration;

use gantry_model::naming::EXPOSED_LENGTHS;
use gantry_model::spec::options::Kind as Form;

use crate::http::CONNECTIONS;

/// A key of `[gateway]`.
pub struct Setting {
    /// Its name; the flag of `gantry up` has dashes instead of underscores.
    pub name: &'static str,
    /// The form of its value.
    pub kind: Form,
    /// Its default, in Markdown.
    pub default: &'static str,
    /// Its description, in Markdown.
    pub doc: &'static str,
}

const fn setting(
    name: &'static str,
    kind: Form,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        kind,
        default,
        doc,
    }
}

/// The keys of `[gateway]`, each defined once.
pub static SETTINGS: &[Setting] = &[
    setting(
        "listen",
        Form::Text,
        "`127.0.0.1`, the last port, else 4180 or the next free",
        "`ADDRESS:PORT`; other than loopback only with `insecure_bind = true`.",
    ),
    setting(
        "insecure_bind",
        Form::Flag,
        "`false`",
        "`true`: an address that others can reach, without TLS.",
    ),
    setting(
        "hosts",
        Form::Texts,
        "none",
        "Further names by which clients reach the gateway.",
    ),
    setting(
        "origins",
        Form::Texts,
        "none",
        "The origins of web pages that may use the MCP endpoint, such as `[\"https://app.example.com\", \
         \"http://localhost:5173\"]`: scheme, host and port, no patterns; see [below](#web-pages).",
    ),
    setting(
        "instructions",
        Form::Choice(&["joined", "none"]),
        "`joined`",
        "`joined`: clients of `/mcp` get the instructions of the servers they may use, each \
         under its server's name, up to 4 KiB of one and 32 KiB of all; `none`: they are not. At \
         `/mcp/servers/{name}` a server's own are passed on unchanged.",
    ),
    setting(
        "startup",
        Form::Choice(&["parallel", "sequential"]),
        "`parallel`",
        "Whether servers start in parallel or one after the other.",
    ),
    setting(
        "on_start_failure",
        Form::Choice(&["isolate", "abort"]),
        "`isolate`",
        "On start failure of a server: continue without it, or abort.",
    ),
    setting(
        "audit",
        Form::Choice(&["os", "disk", "relaxed", "database"]),
        "`os`",
        "Audit durability: a call's record is handed to the system, synced to disk, written soon, or in the \
         database before the call is sent (and then refused while the database is away). See \
         [docs/audit.md](audit.md#durability).",
    ),
    setting(
        "expose",
        Form::Choice(&["qualified", "bare"]),
        "`qualified`",
        "Exposed tool names: `server__tool`, or the tool's own name.",
    ),
    setting(
        "on_collision",
        Form::Choice(&["refuse", "last_wins"]),
        "`refuse`",
        "Two tools with the same bare name: refuse the second, or the last wins.",
    ),
    setting(
        "tool_name_length",
        Form::Whole(
            *EXPOSED_LENGTHS.start() as u64,
            *EXPOSED_LENGTHS.end() as u64,
        ),
        "`64`",
        "How many characters the name of a tool may have. A longer one is cut and ends in `_` and eight \
         hex digits of its identity, always the same; a call by that name, by the full name or by \
         `server:tool` reaches the tool, and `gantry tools` shows both. Several clients and models' \
         APIs take 64 characters, and some count a prefix of their own (`mcp__gantry__`): set less for \
         those.",
    ),
    setting(
        "drain",
        Form::Period(Duration::ZERO),
        "`10s`",
        "Grace period for calls in flight when the gateway stops.",
    ),
    setting(
        "kill_after",
        Form::Period(Duration::ZERO),
        "`30s`",
        "Grace period before servers are killed, from the signal.",
    ),
    setting(
        "connections_per_address",
        Form::Whole(1, CONNECTIONS as u64),
        "`5120`",
        "How many connections one address (IPv6: one /64) may hold; the next one is answered 503. There \
         are 10,240 in all. The last eighth is for addresses with fewer than 64. When all are taken, an \
         idle connection of the address with the most is closed for a new one. With 10240 nothing is \
         reserved. Behind a proxy, and on loopback, all clients share one address.",
    ),
    setting(
        "answer_memory",
        Form::Size(4 << 20, 1 << 46),
        "`96M`",
        "How much memory answers may take together, from the moment a server has given them until their \
         clients have read them. An agent may hold as much as it leaves free for all others: one alone \
         half of it, two a third each. What does not fit is answered `call.undelivered`; answers up to \
         16 KiB always fit. One answer can be 8 MiB long.",
    ),
    setting(
        "image_checks",
        Form::Period(Duration::ZERO),
        "`6h`",
        "How often registries are asked whether the images of servers changed under their tags, which \
         fetches nothing; `0s`: never.",
    ),
    setting(
        "mcp_registry",
        Form::Text,
        "none",
        "The URL of the MCP registry that `gantry search` and `gantry add --from NAME` ask; `--registry` and \
         `GANTRY_MCP_REGISTRY` take precedence.",
    ),
    setting(
        "store",
        Form::Text,
        "`gantry.db` in the data folder",
        "Where the state is kept: a SQLite file, or a `postgres://` URL. Several gateways can \
         share it: those of one machine a file, others a database.",
    ),
    setting(
        "issuers",
        Form::Text,
        "none",
        "A JSON file of authorization servers whose tokens are accepted on `/mcp` beside keys. See \
         [docs/tokens.md](tokens.md).",
    ),
    setting(
        "tls_listen",
        Form::Text,
        "none",
        "`ADDRESS:PORT` of a second listener, with TLS, for other machines; `listen` stays for this one. \
         Needs `tls_cert` and `tls_key`. See [docs/tls.md](tls.md).",
    ),
    setting(
        "tls_cert",
        Form::Text,
        "none",
        "The certificate of that listener and of its authorities, in PEM form. Read again when it changes.",
    ),
    setting(
        "tls_key",
        Form::Text,
        "none",
        "The private key of the certificate, in PEM form; refused if every user can read it.",
    ),
    setting(
        "tls_client_ca",
        Form::Text,
        "none",
        "Authorities of client certificates, in PEM form: clients of that listener must have one of theirs, \
         besides their key.",
    ),
    setting(
        "master_key",
        Form::Text,
        "`data.key` in the data folder",
        "Where the key comes from that secrets are encrypted with: `file:PATH`, `env:NAME` or \
         `command:PROGRAM ARGUMENTS` (no shell), such as one of a key manager. It is 32 bytes, as they are, \
         in hexadecimal digits or in base64; see [secrets](secrets.md#the-master-key).",
    ),
    setting(
        "otlp",
        Form::Text,
        "none",
        "The URL of an OTLP endpoint over HTTP, such as `http://localhost:4318`: each call is exported to it as a \
         span. The variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like) do the same. See \
         [docs/tracing.md](tracing.md).",
    ),
    setting(
        "otlp_headers",
        Form::Text,
        "none",
        "Where the headers for that endpoint come from, such as its credentials: `file:PATH` with a line \
         `Name: value` for each, or `env:NAME` with `name=value,name=value`.",
    ),
    setting(
        "siem",
        Form::Text,
        "none",
        "Where calls and administrative acts are pushed to: `syslog+udp://HOST:514`, `syslog+tcp://HOST:601`, \
         `syslog+tls://HOST:6514`, or the URL of an OTLP endpoint, such as `https://collector:4318`. \
         `GANTRY_SIEM` takes precedence. See [docs/siem.md](siem.md).",
    ),
    setting(
        "siem_headers",
        Form::Text,
        "none",
        "Where the headers for an OTLP endpoint of `siem` come from, as for `otlp_headers`.",
    ),
    setting(
        "siem_ca",
        Form::Text,
        "the authorities that this machine trusts",
        "A PEM file with the certificate authorities that the receiver of `siem` must have its certificate of.",
    ),
];

/// Returns the names of the keys of `[gateway]`.
pub fn keys() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name).collect()
}
