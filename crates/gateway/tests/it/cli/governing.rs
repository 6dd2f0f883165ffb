//! The verbs of administration: secrets, projects, products, suspensions, registrations; and the search
//! in a registry of MCP servers.

use gantry_testkit::Evilpeer;
use gantry_testkit::mcp_registry::{McpRegistryServer, RegistryMood};
use insta::assert_snapshot;

use super::{alone, run, settings};
use crate::harness::{Gantry, LONG};

#[test]
fn secrets_projects_and_products_are_listed() {
    let gantry = Gantry::builder().start();
    let mut settings = settings();
    settings.add_filter(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "[time]");
    settings.bind(|| {
        assert_snapshot!(run(&gantry, &["secret", "ls"]), @"
        none
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["secret", "rm", "nope"]), @"
        --- stderr
        error: no secret `nope`
          because: code `secret.unknown`
        hint: set it: `gantry secret set nope`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["project", "ls"]), @"
        PROJECT  STATE  SERVERS  MADE  DESCRIPTION
        local  loaded  0  [time]
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["project", "rm", "nope"]), @"
        --- stderr
        error: no project `nope`
          because: code `project.unknown`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["product", "ls"]), @"
        none
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["product", "uninstall", "nope"]), @"
        --- stderr
        error: no product `nope` is installed
          because: code `product.unknown`
        hint: `gantry product ls` lists them
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["registration", "ls"]), @"
        none
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["registration", "approve", "nope"]), @"
        --- stderr
        error: no registration `nope`
          because: code `registration.unknown`
        hint: `gantry registration ls` lists them
        --- exit 1
        ");
        let set = [
            "hook",
            "set",
            "check",
            "--on",
            "request",
            "--tool",
            "a:*",
            "--",
            "/bin/true",
            "-v",
        ];
        assert_snapshot!(run(&gantry, &set), @"
        hook check is asked on each request
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["approvals", "ls"]), @"
        none
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["approvals", "allow", "nope"]), @"
        --- stderr
        error: no call `nope` waits for an approver
          because: code `approval.unknown`
        hint: `gantry approvals ls` lists those that wait at this gateway
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["hook", "ls"]), @"
        HOOK  ON  ASKS  TOOLS  TIMEOUT  ON FAILURE
        check  request  /bin/true -v  a:*  2s  refuse
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["hook", "rm", "nope"]), @"
        --- stderr
        error: no hook `nope`
          because: code `hook.unknown`
        hint: `gantry hook ls` lists them
        --- exit 1
        ");
    });
}

#[test]
fn a_server_is_suspended_and_resumed() {
    let gantry = Gantry::builder().server("a", &Evilpeer::new()).start();
    gantry.wait_state("a", "ready", LONG);
    settings().bind(|| {
        assert_snapshot!(run(&gantry, &["suspend", "server", "a"]), @"
        suspended server a
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["resume", "server", "a"]), @"
        resumed server a
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["suspend", "server", "nope"]), @"
        --- stderr
        error: no server `nope`
          because: code `server.unknown`
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["resume", "planet", "a"]), @"
        --- stderr
        error: invalid value 'planet' for '<KIND>'
          [possible values: project, agent, server, tool, ls]

          tip: a similar value exists: 'agent'

        For more information, try '--help'.
        --- exit 2
        ");
    });
}

#[test]
fn a_registry_is_searched() {
    let known = serde_json::json!({"name": "com.example/files", "description": "Reads files",
        "version": "2.0.0", "packages": [{"registryType": "npm", "identifier": "files",
        "version": "2.0.0", "transport": {"type": "stdio"}}]});
    let registry = McpRegistryServer::start(RegistryMood::Honest, vec![known]);
    let url = registry.url();
    settings().bind(|| {
        assert_snapshot!(alone(&["search", "files", "--registry", &url]), @"
        SERVER  VERSION  RUNS FROM  WHAT IT IS
        com.example/files  [version]  npm  Reads files
        add one with `gantry add --from com.example/files`
        --- exit 0
        ");
        assert_snapshot!(alone(&["search", "files"]), @r#"
        --- stderr
        error: no MCP registry is configured
        hint: pass `--registry URL`, set `GANTRY_MCP_REGISTRY`, or write `mcp_registry = "URL"` under `[gateway]`
        --- exit 2
        "#);
    });
}

#[test]
fn grants_groups_and_policies_are_shown() {
    let gantry = Gantry::builder().start();
    let mut settings = settings();
    settings.add_filter(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "[time]");
    settings.add_filter(r"grant_[0-9a-f]{32}", "[grant]");
    settings.bind(|| {
        assert_snapshot!(run(&gantry, &["grant", "ls"]), @"
        GRANT  FOR  WHAT  MADE  LAST USED
        [grant]  default  *  [time]  never
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["grant", "rm", "grant_0"]), @"
        --- stderr
        error: no grant `grant_0`
          because: code `grant.unknown`
        hint: `gantry grant ls` lists them
        --- exit 1
        ");
        let alias = ["grant", "add", "files:read", "--as", "first"];
        assert_snapshot!(run(&gantry, &alias), @"
        files:read as first for default
        --- exit 0
        ");
        let another = ["grant", "add", "files:read", "--as", "second"];
        assert_snapshot!(run(&gantry, &another), @"
        files:read as second for default; `first` is no longer its alias
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &another), @"
        files:read as second for default
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["group", "ls"]), @"
        GROUP  SERVERS
        @files
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["group", "rm", "nope"]), @"
        --- stderr
        error: no group `nope`
          because: code `group.unknown`
        hint: `gantry group ls` lists them
        --- exit 1
        ");
        assert_snapshot!(run(&gantry, &["policy", "test"]), @"
        0 calls: 0 the same, 0 would differ, 0 undecided, 0 not judged
        --- exit 0
        ");
        assert_snapshot!(run(&gantry, &["policy", "test", "--deny", "nonsense"]), @"
        --- stderr
        error: `nonsense` is not a grant: `server:item` is expected
        hint: for example `files:read_*`, `deny files:delete_*` or `ask mail:send`
        --- exit 2
        ");
    });
}
