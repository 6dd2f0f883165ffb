//! What views list and find, under grants, scopes and collisions.

mod own;

use gantry_model::caller::KeyKind;
use gantry_model::grant::Grant;
use gantry_model::id::{KeyId, ProjectName, ServerId};
use gantry_model::jsonrpc::Raw;
use gantry_model::mcp::ListKind as WireList;
use gantry_model::naming::LONGEST_EXPOSED;
use gantry_model::pin::content_hash;
use gantry_model::spec::{ProcessLaunch, ServerSpec};
use gantry_model::status::ServerState;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::native::NativeOutput;
use crate::schema::Permits;
use crate::server::handshake::HandshakeInfo;
use crate::server::link::Counters;
use crate::server::logs::Logs;
use crate::server::retry_budget::RetryBudget;
use crate::server::status::ServerStatus;
use crate::server::waiting::WaitingCallers;
use crate::tool::{Item, Tool};

fn handle(name: &str, live: LinkState) -> Arc<ServerHandle> {
    let launch: ProcessLaunch = serde_json::from_value(json!({"command": "true"})).unwrap();
    let spec = Arc::new(ServerSpec::process(name.parse().unwrap(), launch));
    Arc::new(ServerHandle {
        id: ServerId::from_random(1),
        name: spec.name.clone(),
        spec,
        created_ms: 0,
        live: watch::channel(live).1,
        status: watch::channel(ServerStatus::new(ServerState::Idle)).1,
        wake: Arc::new(Notify::new()),
        commands: mpsc::channel(1).0,
        stop: CancellationToken::new(),
        stopped: CancellationToken::new(),
        catalog: Arc::new(ArcSwap::from_pointee(ServerCatalog::empty())),
        logs: Arc::new(Logs::new(Arc::default())),
        counters: Arc::new(Counters::default()),
        usage: Arc::new(|| None),
        usage_history: Arc::default(),
        known: Arc::default(),
        secrets_used: Arc::default(),
        waiting: WaitingCallers::new(1),
        retries: RetryBudget::default(),
        permits: Permits::default(),
        profiles: Arc::default(),
        credentials: None,
    })
}

fn tool(name: &str) -> Arc<Tool> {
    let definition = json!({"name": name, "inputSchema": {"type": "object"}}).to_string();
    Arc::new(Tool::admit(Raw::trusted(&definition), 1 << 16).unwrap())
}

fn item(kind: WireList, definition: &Value) -> Item {
    let definition = definition.to_string();
    let raw = Raw::trusted(&definition);
    Item::admit(kind, raw, content_hash(raw), 1 << 16).unwrap()
}

fn handshake() -> Option<Arc<HandshakeInfo>> {
    let text = json!({"version": "2025-06-18", "server_info": null, "instructions": null,
                      "capabilities": {"tools": {}, "resources": {}}});
    HandshakeInfo::from_json(&text.to_string()).map(Arc::new)
}

fn entry(name: &str, tools: &[&str]) -> CatalogEntry {
    let tools = tools.iter().map(|name| tool(name)).collect();
    let catalog = ServerCatalog {
        tools,
        handshake: handshake(),
        ..ServerCatalog::empty()
    };
    CatalogEntry::new(handle(name, LinkState::Starting), true, Arc::new(catalog))
}

fn caller(grants: &[(&str, &str, Option<&str>)]) -> Caller {
    let grant = |(server, item, alias): &(&str, &str, Option<&str>)| {
        Grant::new(server, item, *alias).unwrap()
    };
    Caller {
        project: ProjectName::local(),
        agent: "bot".parse().unwrap(),
        key: KeyId::from_random(1),
        kind: KeyKind::Agent,
        grants: Arc::new(GrantSet::new(grants.iter().map(grant).collect())),
        users: Default::default(),
        validity: Default::default(),
        token: None,
        authenticated_in: std::time::Duration::ZERO,
    }
}

fn everyone() -> Caller {
    caller(&[("*", "*", None)])
}

fn catalog(expose: Expose, on_collision: OnCollision, servers: Vec<CatalogEntry>) -> Catalog {
    let catalog = Catalog::new(
        expose,
        on_collision,
        LONGEST_EXPOSED,
        &CheckPermits::default(),
    );
    catalog.update(servers);
    catalog
}

fn qualified(servers: Vec<CatalogEntry>) -> Catalog {
    catalog(Expose::Qualified, OnCollision::Refuse, servers)
}

fn listed(view: &View) -> Vec<String> {
    let page: Value = serde_json::from_slice(&view.page(ListKind::Tools, None).unwrap()).unwrap();
    let names = page["tools"].as_array().unwrap().iter();
    names
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn told(resolution: Resolution) -> String {
    match resolution {
        Resolution::Bound { server, tool } => format!("bound {}:{}", server.name, tool.name),
        Resolution::Native(native) => format!("native {}", native.tool().name),
        Resolution::Named { server, item } => format!("named {}:{item}", server.name),
        Resolution::NotGranted { server, item } => format!("unbound {server}:{item}"),
        Resolution::Unknown => "unknown".to_owned(),
    }
}

#[test]
fn tools_are_listed_and_found_under_exposed_name_and_identity() {
    // rows 2.14, 2.15 and 4.6
    let catalog = qualified(vec![entry("b", &["echo", "add"]), entry("a", &["echo"])]);
    let view = catalog.view(&everyone(), &Scope::All);
    assert_eq!(listed(&view), ["b__echo", "b__add", "a__echo"]);
    for (name, found) in [
        ("a__echo", "bound a:echo"),
        ("b:echo", "bound b:echo"),
        ("echo", "unknown"),
        ("a__add", "unknown"),
        ("c__echo", "unknown"),
    ] {
        assert_eq!(told(view.resolve_tool(name)), found, "{name}");
    }
    let tools = view.tools();
    assert_eq!(
        (tools[2].name.as_str(), tools[2].identity().as_str()),
        ("a__echo", "a:echo")
    );
}

#[test]
fn grants_filter_what_is_listed_and_what_is_found() {
    // rows 2.16 and 3.2
    let catalog = qualified(vec![entry("a", &["read", "write"]), entry("b", &["read"])]);
    let caller = caller(&[("a", "read", None)]);
    let view = catalog.view(&caller, &Scope::All);
    assert_eq!(listed(&view), ["a__read"]);
    for (name, found) in [
        ("a__read", "bound a:read"),
        ("a__write", "unbound a:write"),
        ("a:write", "unbound a:write"),
        ("b__read", "unbound b:read"),
        ("b__nothing", "unbound b:nothing"),
        ("c__read", "unknown"),
    ] {
        assert_eq!(told(view.resolve_tool(name)), found, "{name}");
    }
    let only = catalog.view(&caller, &Scope::Server("b".parse().unwrap()));
    assert_eq!(listed(&only), Vec::<String>::new());
    assert_eq!(told(only.resolve_tool("read")), "unbound b:read");
    assert_eq!(told(only.resolve_tool("a__read")), "unbound b:a__read");
}

#[test]
fn an_alias_picks_among_equal_names() {
    // row 3.6
    let catalog = catalog(
        Expose::Bare,
        OnCollision::Refuse,
        vec![entry("a", &["search"]), entry("b", &["search"])],
    );
    let caller = caller(&[("a", "*", None), ("b", "search", Some("find"))]);
    let view = catalog.view(&caller, &Scope::All);
    assert_eq!(listed(&view), ["search", "find"]);
    assert_eq!(told(view.resolve_tool("find")), "bound b:search");
    assert_eq!(told(view.resolve_tool("search")), "bound a:search");
    assert_eq!(told(view.resolve_tool("b:search")), "bound b:search");
}

#[test]
fn a_name_that_two_tools_have_goes_by_the_switch() {
    // row 4.5, fault L4
    let servers = || vec![entry("a", &["x"]), entry("b", &["x", "y"])];
    let refuse = catalog(Expose::Bare, OnCollision::Refuse, servers());
    let view = refuse.view(&everyone(), &Scope::All);
    assert_eq!(listed(&view), ["x", "y"]);
    assert_eq!(told(view.resolve_tool("x")), "bound a:x");
    assert_eq!(told(view.resolve_tool("b:x")), "bound b:x");
    let warnings = refuse.warnings();
    assert_eq!(
        warnings,
        ["tool `b:x` is not exposed: `a:x` already has the name `x`"]
    );
    let last = catalog(Expose::Bare, OnCollision::LastWins, servers());
    let view = last.view(&everyone(), &Scope::All);
    assert_eq!(told(view.resolve_tool("x")), "bound b:x");
    assert_eq!(last.warnings().len(), 1);
}

#[test]
fn one_server_alone_keeps_its_own_names() {
    let catalog = qualified(vec![entry("a", &["odd name/é"]), entry("b", &["x"])]);
    let view = catalog.view(&everyone(), &Scope::Server("a".parse().unwrap()));
    assert_eq!(listed(&view), ["odd name/é"]);
    assert_eq!(told(view.resolve_tool("odd name/é")), "bound a:odd name/é");
    assert_eq!(told(view.resolve_tool("b:x")), "unknown");
    let all = catalog.view(&everyone(), &Scope::All);
    let exposed = &listed(&all)[0];
    assert!(exposed.starts_with("a__odd_name___"), "{exposed}");
    assert_eq!(told(all.resolve_tool(exposed)), "bound a:odd name/é");
}

#[test]
fn a_server_whose_lists_failed_is_hidden_and_still_found() {
    // row 2.6
    let mut failed = entry("a", &["x"]);
    Arc::make_mut(&mut failed.catalog).hidden = true;
    let catalog = qualified(vec![failed, entry("b", &["x"])]);
    let view = catalog.view(&everyone(), &Scope::All);
    assert_eq!(listed(&view), ["b__x"]);
    assert_eq!(told(view.resolve_tool("a__x")), "bound a:x");
}

#[test]
fn a_server_that_is_down_is_not_listed_and_still_found() {
    let mut down = entry("a", &["x"]);
    down.listed = false;
    let mut cold = entry("b", &[]);
    cold.catalog = Arc::new(ServerCatalog::empty());
    let catalog = qualified(vec![down, cold, entry("c", &["x"])]);
    let view = catalog.view(&everyone(), &Scope::All);
    assert_eq!(listed(&view), ["c__x"]);
    let page = view.page(ListKind::Tools, None).unwrap();
    let text = std::str::from_utf8(&page).unwrap();
    assert!(
        text.ends_with(r#""_meta":{"io.gantry/not-listed":["a","b"]}}"#),
        "{text}"
    );
    for (name, found) in [
        ("a__x", "bound a:x"),
        ("a__new", "named a:new"),
        ("b__any", "named b:any"),
        ("b:any", "named b:any"),
        ("c__any", "unknown"),
    ] {
        assert_eq!(told(view.resolve_tool(name)), found, "{name}");
    }
    let narrow = catalog.view(&caller(&[("b", "some", None)]), &Scope::All);
    assert_eq!(told(narrow.resolve_tool("b__any")), "unbound b:any");
    let cold = catalog.cold(&everyone(), &Scope::All);
    assert_eq!(
        cold.iter()
            .map(|handle| handle.name.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
    assert!(
        catalog
            .cold(&caller(&[("a", "*", None)]), &Scope::All)
            .is_empty()
    );
}

#[tokio::test]
async fn native_tools_stand_beside_the_others() {
    // rows 4.4 and 4.7
    let catalog = qualified(vec![entry("a", &["x"])]);
    let native = |name: &str| {
        let answer = |_| async { Ok(NativeOutput::text("yes")) };
        NativeTool::new(name, "Answers", json!({"type": "object"}), answer)
    };
    catalog.add_native(native("now")).unwrap();
    assert!(catalog.add_native(native("now")).is_err());
    let view = catalog.view(&everyone(), &Scope::All);
    assert_eq!(listed(&view), ["native__now", "a__x"]);
    assert_eq!(told(view.resolve_tool("native:now")), "native now");
    let other = catalog.view(&caller(&[("a", "*", None)]), &Scope::All);
    assert_eq!(
        told(other.resolve_tool("native__now")),
        "unbound native:now"
    );
}

#[test]
fn prompts_and_resources_find_their_server() {
    // rows 2.21 and 2.22
    let with = |name: &str, uri: &str, template: &str| {
        let mut entry = entry(name, &[]);
        let mut own = ServerCatalog::clone(&entry.catalog);
        own.prompts.push(item(
            WireList::Prompts,
            &json!({"name": "ask", "arguments": []}),
        ));
        own.resources
            .push(item(WireList::Resources, &json!({"uri": uri, "name": "r"})));
        let definition = json!({"uriTemplate": template, "name": "t"});
        own.templates
            .push(item(WireList::ResourceTemplates, &definition));
        entry.catalog = Arc::new(own);
        entry
    };
    let catalog = qualified(vec![
        with("a", "file:///shared", "file:///a/{name}"),
        with("b", "file:///shared", "file:///b/{name}"),
    ]);
    let view = catalog.view(&everyone(), &Scope::All);
    assert_eq!(
        view.page(ListKind::Prompts, None).unwrap(),
        r#"{"prompts":[{"name":"a__ask","arguments":[]},{"name":"b__ask","arguments":[]}]}"#
    );
    let resources = r#"{"resources":[{"uri":"file:///shared","name":"r"}]}"#;
    assert_eq!(view.page(ListKind::Resources, None).unwrap(), resources);
    let templates =
        String::from_utf8(view.page(ListKind::Templates, None).unwrap().to_vec()).unwrap();
    assert_eq!(templates.matches("uriTemplate").count(), 2);
    assert_eq!(told(view.resolve_prompt("b__ask")), "named b:ask");
    assert_eq!(told(view.resolve_prompt("ask")), "unknown");
    assert_eq!(
        told(view.resolve_resource("file:///shared")),
        "named a:file:///shared"
    );
    assert_eq!(
        told(view.resolve_resource("file:///b/x")),
        "named b:file:///b/x"
    );
    assert_eq!(
        told(view.resolve_resource("file:///b/{name}")),
        "named b:file:///b/{name}"
    );
    assert_eq!(told(view.resolve_resource("file:///c/x")), "unknown");
    assert!(catalog.warnings()[0].contains("`a` already offers it"));
    let reader = caller(&[("b", "resource:file:///b/public*", None)]);
    let view = catalog.view(&reader, &Scope::All);
    assert_eq!(
        told(view.resolve_resource("file:///b/public1")),
        "named b:file:///b/public1"
    );
    assert_eq!(
        told(view.resolve_resource("file:///b/secret")),
        "unbound b:file:///b/secret"
    );
    assert_eq!(
        told(view.resolve_resource("file:///shared")),
        "unbound a:file:///shared"
    );
    // A URI that leads elsewhere is judged, and sent, as where it leads.
    let astray = "file:///b/public/../secret";
    let refused = format!("unbound b:{astray}");
    assert_eq!(told(view.resolve_resource(astray)), refused);
    let hidden = "file:///b/public/%252e%252e/secret";
    assert_eq!(told(view.resolve_resource(hidden)), "unknown");
    assert_eq!(
        told(view.resolve_resource("file:///b/x/../public1")),
        "named b:file:///b/public1"
    );
    let only = catalog.view(&everyone(), &Scope::Server("a".parse().unwrap()));
    assert_eq!(
        told(only.resolve_resource("other://x")),
        "named a:other://x"
    );
}

#[test]
fn views_are_kept_until_something_changes() {
    // fault T3
    let servers = vec![entry("a", &["x"])];
    let catalog = qualified(servers.clone());
    let mut changes = catalog.changes();
    changes.mark_unchanged();
    let (first, again) = (
        catalog.view(&everyone(), &Scope::All),
        catalog.view(&everyone(), &Scope::All),
    );
    assert!(Arc::ptr_eq(&first, &again));
    let narrow = catalog.view(&caller(&[("b", "*", None)]), &Scope::All);
    assert!(!Arc::ptr_eq(&first, &narrow) && listed(&narrow).is_empty());
    catalog.update(servers.clone());
    assert!(!changes.has_changed().unwrap());
    assert!(Arc::ptr_eq(&first, &catalog.view(&everyone(), &Scope::All)));
    let mut changed = servers;
    changed[0].listed = false;
    catalog.update(changed);
    assert!(changes.has_changed().unwrap());
    assert!(listed(&catalog.view(&everyone(), &Scope::All)).is_empty());
}

#[test]
fn a_mark_changes_with_what_its_caller_sees_and_with_nothing_else() {
    // fault T8
    let before = vec![entry("a", &["x"]), entry("b", &["x"])];
    let catalog = qualified(before.clone());
    let narrow = caller(&[("a", "*", None)]);
    let marks = || {
        let everything = catalog.revisions(&everyone(), &Scope::All, ClientIdentity::Anyone);
        let narrow = catalog.revisions(&narrow, &Scope::All, ClientIdentity::Anyone);
        (everything, narrow)
    };
    let first = marks();
    // Another's lists.
    let mut grown = before.clone();
    grown[1].catalog = entry("b", &["x", "y"]).catalog;
    catalog.update(grown.clone());
    let second = marks();
    assert_ne!(second.0.tools, first.0.tools);
    assert_eq!(second.0.prompts, first.0.prompts);
    assert_eq!(second.0.resources, first.0.resources);
    assert_eq!(second.1, first.1);
    // Gone for a moment: who asked meanwhile must hear that it is back.
    let mut gone = grown.clone();
    gone[0].listed = false;
    catalog.update(gone);
    catalog.update(grown.clone());
    let third = marks();
    assert_ne!(third.1.tools, first.1.tools);
    // The same again is no change.
    let mut same = grown;
    same[0].catalog = entry("a", &["x"]).catalog;
    catalog.update(same.clone());
    assert_eq!(marks(), third);
    // One that came and went has been there; for who may not use it, it has not.
    let came: Vec<_> = same.iter().cloned().chain([entry("c", &["x"])]).collect();
    catalog.update(came);
    catalog.update(same.clone());
    let fourth = marks();
    assert_ne!(fourth.0.tools, third.0.tools);
    assert_eq!(fourth.1, third.1);
    // Of two that offer the same, the first has it.
    same.reverse();
    catalog.update(same);
    let fifth = marks();
    assert_ne!(fifth.0.tools, fourth.0.tools);
    // What an agent may use is its own, whatever it was before.
    let mut other = everyone();
    other.agent = "other".parse().unwrap();
    let before = catalog.revisions(&other, &Scope::All, ClientIdentity::Anyone);
    catalog.grants_changed(&other.agent);
    let now = catalog.revisions(&other, &Scope::All, ClientIdentity::Anyone);
    assert_ne!(now, before);
    assert_eq!(marks(), fifth);
}

#[test]
fn capabilities_are_what_the_servers_declare() {
    let catalog = qualified(vec![entry("a", &["x"])]);
    let all = catalog.view(&everyone(), &Scope::All).capabilities();
    assert!(all.tools && all.resources && !all.prompts && !all.completions && !all.logging);
    let none = catalog
        .view(&caller(&[("b", "*", None)]), &Scope::All)
        .capabilities();
    assert!(none.tools && !none.resources);
}

// row 3.2: whoever comes and goes does not cost those who stay their views.
#[test]
fn the_view_that_was_not_asked_for_the_longest_gives_way() {
    let catalog = qualified(vec![entry("a", &["echo"])]);
    let of = |number: usize| caller(&[("a", &format!("tool{number}"), None)]);
    let (busy, idle) = (of(0), of(1));
    let first = catalog.view(&busy, &Scope::All);
    let unused = catalog.view(&idle, &Scope::All);
    for number in 2..MOST_VIEWS + 10 {
        catalog.view(&of(number), &Scope::All);
        let again = catalog.view(&busy, &Scope::All);
        assert!(Arc::ptr_eq(&first, &again), "it is in use: {number}");
    }
    assert_eq!(catalog.state.load().views.load().len(), MOST_VIEWS);
    assert!(!Arc::ptr_eq(&unused, &catalog.view(&idle, &Scope::All)));
}
