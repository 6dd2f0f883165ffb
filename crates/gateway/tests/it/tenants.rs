//! The tenant matrix: every route and every MCP method, with every kind of caller, on what is its own
//! project's, another project's, and nobody's. What each gets stands in `tenants/matrix.txt`, made from
//! the lists of routes and of methods; a route without a row fails, and so does an answer that is another.
//!
//! One gateway serves all of it. What a caller may do is asked for with bodies that do nothing (an empty
//! object, an unknown name), so that nothing changes meanwhile.

mod things;
mod world;

use std::fs;
use std::path::Path;

use gantry_model::mcp::Method;
use serde_json::{Value, json};

use self::world::{CALLERS, Objects, World};
use crate::harness::on_postgresql;

const TABLE: &str = "tests/it/tenants/matrix.txt";

/// Nouns that are not below a project.
const OUTSIDE: [&str; 4] = ["projects", "session", "openapi.json", "docs"];

/// A request to a route: `GET` and `/api/v1/…`, with parameters in braces.
struct Route {
    method: String,
    path: String,
}

impl Route {
    /// Returns every route of the REST API, from its committed description.
    fn all() -> Vec<Self> {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let document: Value = serde_json::from_str(&fs::read_to_string(text).unwrap()).unwrap();
        let mut routes = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                routes.push(Self {
                    method: method.to_uppercase(),
                    path: path.clone(),
                });
            }
        }
        routes.sort_by(|one, other| (&one.path, &one.method).cmp(&(&other.path, &other.method)));
        routes
    }

    /// Returns what follows `/api/v1/` of a noun that every project has.
    fn below_a_project(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("/api/v1/")?;
        let noun = rest.split('/').next().unwrap_or_default();
        (!OUTSIDE.contains(&noun)).then_some(rest)
    }

    /// Returns whether it names something that other projects have, too.
    fn names_an_object(&self) -> bool {
        let rest = self.below_a_project();
        rest.is_some_and(|rest| rest.contains('{') && !rest.contains("{registry}"))
    }

    fn is_of_projects(&self) -> bool {
        self.path == "/api/v1/projects/{project}"
    }
}

/// Groups the callers that get the same, in the order of the list.
fn grouped(answers: &[(&'static str, String)]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (caller, answer) in answers {
        match groups.iter_mut().find(|(known, _)| known == answer) {
            Some((_, callers)) => callers.push(caller),
            None => groups.push((answer.clone(), vec![caller])),
        }
    }
    let groups = groups
        .into_iter()
        .map(|(answer, callers)| format!("    {answer}: {}\n", callers.join(", ")));
    groups.collect()
}

/// Asks one route about what is its caller's own, in its own project.
fn own(world: &World, route: &Route) -> String {
    let path = match route.is_of_projects() {
        true => route.path.replace("{project}", "local"),
        false => world.filled(&route.path, &route.method, Objects::Own),
    };
    let ask = |caller| world.ask(caller, &route.method, &path).shown();
    format!(
        "  own\n{}",
        grouped(&CALLERS.map(|caller| (caller, ask(caller))))
    )
}

/// Asks one route in its caller's own project about what another project has: it is as if nobody had it.
fn named_like_anothers(world: &World, route: &Route) -> String {
    let answers = CALLERS.map(|caller| {
        // Whose own it is sees it, and could change it.
        let is_at_home = ["other agent", "other admin"].contains(&caller);
        let others = match is_at_home && route.method != "GET" {
            true => Objects::Nobodys,
            false => Objects::Others,
        };
        let [others, nobodys] = [others, Objects::Nobodys].map(|objects| {
            let path = world.named(&route.path, objects);
            let answer = world.ask(caller, &route.method, &path);
            (answer.shown(), world.without_names(&answer.text(), objects))
        });
        if !is_at_home {
            assert_eq!(others, nobodys, "{caller}: {} {}", route.method, route.path);
        }
        (caller, others.0)
    });
    format!(
        "  of the same name as another project's\n{}",
        grouped(&answers)
    )
}

/// Asks one route in another project, and in one that is not there: but for the project's own callers and
/// who manages the installation, the answers are the same.
fn anothers(world: &World, route: &Route) -> String {
    let answers = CALLERS.map(|caller| {
        let is_at_home = ["installation", "other agent", "other admin"].contains(&caller);
        let [other, nobody] = ["other", "nobody"].map(|project| {
            let path = match route.below_a_project() {
                Some(rest) => {
                    let path = format!("/api/v1/projects/{project}/{rest}");
                    world.filled(&path, &route.method, Objects::Others)
                }
                // Who may delete it would.
                None if route.method == "DELETE" && caller == "installation" => {
                    route.path.replace("{project}", "nobody")
                }
                None => route.path.replace("{project}", project),
            };
            let answer = world.ask(caller, &route.method, &path);
            let named = format!("`{project}`");
            (answer.shown(), answer.text().replace(&named, "`PROJECT`"))
        });
        if !is_at_home {
            assert_eq!(other, nobody, "{caller}: {} {}", route.method, route.path);
        }
        (caller, other.0)
    });
    format!("  another project's\n{}", grouped(&answers))
}

/// Returns the parameters of a method that is about something of a server.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other methods need no params"
)]
fn params(method: Method, server: &str) -> Value {
    // Both servers have the same resources; what nobody has stands for another's.
    let uri = match server {
        "a" => "test://static-text".to_owned(),
        other => format!("{other}://nothing"),
    };
    match method {
        Method::ToolsCall => json!({"name": format!("{server}__echo"), "arguments": {"text": "x"}}),
        Method::PromptsGet => json!({"name": format!("{server}__simple")}),
        Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
            json!({"uri": uri})
        }
        Method::CompletionComplete => {
            let prompt = json!({"type": "ref/prompt", "name": format!("{server}__simple")});
            json!({"ref": prompt, "argument": {"name": "a", "value": ""}})
        }
        Method::LoggingSetLevel => json!({"level": "info"}),
        Method::SubscriptionsListen => json!({"notifications": {"toolsListChanged": true}}),
        Method::TasksGet | Method::TasksResult | Method::TasksUpdate | Method::TasksCancel => {
            json!({"taskId": "task_00000000000000000000000000000000"})
        }
        _ => json!({}),
    }
}

/// Asks a method about something of each owner, without a session and, as an agent, in one.
fn asked(world: &World, method: Method) -> String {
    let mut rows = format!("MCP {method}\n");
    for (owner, server) in [("own", "a"), ("another project's", "b"), ("nobody's", "zz")] {
        let params = params(method, server);
        let answers = CALLERS.map(|caller| (caller, world.method(caller, method, &params)));
        rows.push_str(&format!("  {owner}\n{}", grouped(&answers)));
        let in_sessions = ["agent", "other agent"]
            .map(|caller| (caller, world.method_in_session(caller, method, &params)));
        rows.push_str(&format!(
            "  {owner}, in a session\n{}",
            grouped(&in_sessions)
        ));
    }
    rows
}

// rows 3.2, faults T1, T2, T8, U3, U4, U7
#[test]
fn every_route_and_method_answers_each_caller_as_the_table_says() {
    let world = World::start();
    let mut table = String::from(
        "# What each kind of caller gets, by route and owner. Generated: compare with\n\
         # `target/tenant-matrix.txt` after `tenants::` has failed, and copy it if it is right.\n",
    );
    for route in Route::all() {
        table.push_str(&format!("{} {}\n", route.method, route.path));
        table.push_str(&own(&world, &route));
        if route.names_an_object() {
            table.push_str(&named_like_anothers(&world, &route));
        }
        if route.below_a_project().is_some() || route.is_of_projects() {
            table.push_str(&anothers(&world, &route));
        }
    }
    for method in Method::ALL {
        if !method.as_str().starts_with("notifications/") {
            table.push_str(&asked(&world, method));
        }
    }
    world.assert_untouched();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let committed = fs::read_to_string(&file).unwrap_or_default();
    if committed != table {
        let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tenant-matrix.txt");
        fs::write(&made, &table).unwrap();
        let mut lines = table.lines().zip(committed.lines());
        let first = lines.find(|(now, then)| now != then);
        panic!("the matrix is another: {first:?}; compare {TABLE} with target/tenant-matrix.txt");
    }
}

// rows 3.2, faults T1, T2, T8, U3, U4, U7
#[test]
fn every_route_and_method_answers_each_caller_as_the_table_says_on_postgresql() {
    on_postgresql(every_route_and_method_answers_each_caller_as_the_table_says);
}
