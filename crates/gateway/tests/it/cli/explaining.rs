//! `gantry config explain`: each value, and where it comes from.

use gantry_engine::StopPolicy;
use gantry_model::spec::options::named;
use gantry_model::spec::period;
use insta::assert_snapshot;

use super::configuring::{folder, run};
use super::settings;
use crate::config::Folder;

/// Runs `config explain` and leaves out most options that are at their default.
fn explained(folder: &Folder, words: &[&str]) -> String {
    const KEPT: [&str; 11] = [
        "cwd",
        "transport",
        "limits.cpu",
        "limits.memory",
        "limits.pids",
        "concurrency",
        "handshake_timeout",
        "when_unresponsive",
        "restart.backoff",
        "tools.include",
        "reconnect.steady",
    ];
    let is_kept = |line: &&str| {
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_gateways = line.contains("4180");
        is_gateways || !line.ends_with(" default") || KEPT.contains(&name) || named(name).is_none()
    };
    let told = run(folder, words);
    told.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
}

#[test]
fn config_explain() {
    let folder = folder();
    folder.write(
        "own.toml",
        "[gateway]\ndrain = \"5s\"\n[servers.a]\ncommand = \"npx\"\nargs = [\"--token\", \"hunter2\", \"${HOME}\"]\nenv = { A = \"hunter2\" }\n",
    );
    settings().bind(|| {
        assert_snapshot!(explained(&folder, &["config", "explain", "mine"]), @r#"
        mine
        KEY  VALUE  FROM
        shadow  needs_approval  `mine` at .mcp.json:1 is not approved and has no effect: the one at [home]/.kode.json:1 counts
        command  "uvx"  [home]/.kode.json:1
        args  ["mine"]  [home]/.kode.json:1
        odd  1  [home]/.kode.json:1
        cwd  a folder of its own  default in a folder that is not trusted; `gantry approve .` trusts it
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        transport  stdio  default
        concurrency  32  default
        handshake_timeout  1m  default
        when_unresponsive  reconnect  default
        restart.backoff  5s, 15s, 45s, 2m, 5m  default
        tools.include  all  default
        --- exit 0
        "#);
        assert_snapshot!(explained(&folder, &["config", "explain", "--config", "own.toml", "--expose", "bare"]), @r#"
        gateway
        KEY  VALUE  FROM
        listen  [version].1  default
        port  the last one, else 4180 or the next free  default
        insecure_bind  false  default
        hosts  none beside the loopback names  default
        origins  none  default
        startup  parallel  default
        on_start_failure  isolate  default
        audit  os  default
        expose  bare  flag --expose
        on_collision  refuse  default
        tool_name_length  64  default
        instructions  joined  default
        drain  "5s"  own.toml:2
        kill_after  30s  default
        connections_per_address  5120  default
        answer_memory  96M  default
        image_checks  6h  default
        mcp_registry  none  default
        store  `gantry.db` in the data folder  default
        issuers  none  default
        tls_listen  none  default
        tls_cert  none  default
        tls_key  none  default
        tls_client_ca  none  default
        master_key  `data.key` in the data folder  default
        otlp  none  default
        otlp_headers  none  default
        siem  none  default
        siem_headers  none  default
        siem_ca  the authorities that this machine trusts  default

        a
        KEY  VALUE  FROM
        command  "npx"  own.toml:4
        args  ["--token","…","${HOME}"]  own.toml:5, variable `HOME` (set)
        env.A  (not shown)  own.toml:6
        cwd  [home]/shop  default
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        transport  stdio  default
        concurrency  32  default
        handshake_timeout  1m  default
        when_unresponsive  reconnect  default
        restart.backoff  5s, 15s, 45s, 2m, 5m  default
        tools.include  all  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "nobody"]), @"
        --- stderr
        error: no server `nobody` in the files
        hint: `gantry config check` says what is wrong with a server that is left out
        --- exit 1
        ");
        folder.write("gantry.toml", "[servers");
        assert_snapshot!(explained(&folder, &["config", "explain", "theirs"]), @r#"
        theirs
        KEY  VALUE  FROM
        state  needs_approval  `.mcp.json` is not approved; look at it and run `gantry approve .mcp.json`
        command  "npx"  .mcp.json:1
        args  ["-y","theirs","a b"]  .mcp.json:1
        env.TOKEN  (not shown)  .mcp.json:1
        cwd  "sub"  .mcp.json:1
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        transport  stdio  default
        concurrency  32  default
        handshake_timeout  1m  default
        when_unresponsive  reconnect  default
        restart.backoff  5s, 15s, 45s, 2m, 5m  default
        tools.include  all  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "--config", "gantry.toml"]), @"
        --- stderr
        config.syntax

          × invalid TOML: unclosed table, expected `]`
          ╭─[gantry.toml:1:9]
         1 │ [servers
          ╰────
          help: write `key = value` lines under `[servers.NAME]` or `[gateway]`
        --- exit 2
        ");
    });
}

// fault P4
#[test]
fn config_explain_shows_how_stopping_is_bounded_by_default() {
    let told = run(&folder(), &["config", "explain"]);
    let words = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        words.map(str::to_owned).collect()
    };
    let stop = StopPolicy::default();
    for (key, time) in [("drain", stop.drain), ("kill_after", stop.kill_after)] {
        let row = told
            .lines()
            .map(words)
            .find(|row| row.first().is_some_and(|first| first == key));
        let wanted = [key, &period::show(time), "default"].map(str::to_owned);
        assert_eq!(row, Some(wanted.to_vec()), "{told}");
    }
}

#[test]
fn config_explain_knows_what_depends_on_the_kind_of_server() {
    let folder = folder();
    folder.write(
        "own.toml",
        "[servers.far]\nurl = \"https://example.com/mcp?key=hunter2\"\nreconnect = { away = \"5m\" }\n\
         proxy = \"http://me:hunter2@proxy.example:3128\"\n\
         [servers.near]\ncommand = \"uvx\"\nprofile = \"hosted\"\nlimits = { memory_bytes = 67108864 }\n\
         tools = { include = [\"read_*\"], settings = { read_all = { timeout = \"5s\" } } }\n\
         allow_env = [\"PATH\"]\n[servers.near.life.restart]\nladder = [\"1s\", \"2s\"]\n",
    );
    settings().bind(|| {
        assert_snapshot!(explained(&folder, &["config", "explain", "--config", "own.toml", "far"]), @r#"
        far
        KEY  VALUE  FROM
        url  "https://example.com/mcp?…"  own.toml:2
        reconnect.away  "5m"  own.toml:3
        proxy  "http://…@proxy.example:3128"  own.toml:4
        transport  auto  default
        reconnect.steady  1m  default
        concurrency  32  default
        handshake_timeout  10s  default
        when_unresponsive  reconnect  default
        tools.include  all  default
        --- exit 0
        "#);
        assert_snapshot!(explained(&folder, &["config", "explain", "--config", "own.toml", "near"]), @r#"
        near
        KEY  VALUE  FROM
        command  "uvx"  own.toml:6
        profile  "hosted"  own.toml:7
        limits.memory_bytes  67108864  own.toml:8
        tools.include  ["read_*"]  own.toml:9
        tools.settings.read_all.timeout  "5s"  own.toml:9
        allow_env  ["PATH"]  own.toml:10
        life.restart.ladder  ["1s", "2s"]  own.toml:12
        cwd  a folder of its own  default
        limits.cpu  0.5  default
        limits.pids  128  default
        transport  stdio  default
        concurrency  1  default
        handshake_timeout  1m  default
        when_unresponsive  keep  default
        --- exit 0
        "#);
    });
}

#[test]
fn config_explain_takes_the_flags_by_which_the_gateway_is_reached() {
    let folder = folder();
    folder.write(
        "own.toml",
        "[gateway]\nlisten = \"127.0.0.1:5000\"\nhosts = [\"one.example\"]\n",
    );
    let gateway = |flags: &[&str]| {
        let told = run(
            &folder,
            &[&["config", "explain", "--config", "own.toml"], flags].concat(),
        );
        let rows: Vec<&str> = told.lines().skip(2).take(4).collect();
        rows.join("\n")
    };
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r" {2,}", "  ");
    settings.bind(|| {
        assert_snapshot!(gateway(&[]), @r#"
        listen  "127.0.0.1:5000"  own.toml:2
        port  5000  own.toml:2
        insecure_bind  false  default
        hosts  ["one.example"]  own.toml:3
        "#);
        assert_snapshot!(gateway(&["--port", "6000", "--host", "two.example"]), @r#"
        listen  "127.0.0.1:5000"  own.toml:2
        port  6000  flag --port
        insecure_bind  false  default
        hosts  two.example, one.example  flag --host, own.toml:3
        "#);
        assert_snapshot!(gateway(&["--insecure-bind", "0.0.0.0"]), @r#"
        listen  0.0.0.0  flag --insecure-bind
        port  5000  own.toml:2
        insecure_bind  true  flag --insecure-bind
        hosts  ["one.example"]  own.toml:3
        "#);
    });
}
