//! `gantry config explain`: each value, and where it comes from.

use gantry_engine::StopPolicy;
use gantry_model::spec::period;
use insta::assert_snapshot;

use super::configuring::{folder, run};
use super::settings;

#[test]
fn config_explain() {
    let folder = folder();
    folder.write(
        "own.toml",
        "[gateway]\ndrain = \"5s\"\n[servers.a]\ncommand = \"npx\"\nargs = [\"--token\", \"hunter2\", \"${HOME}\"]\nenv = { A = \"hunter2\" }\n",
    );
    settings().bind(|| {
        assert_snapshot!(run(&folder, &["config", "explain", "mine"]), @r#"
        mine
        KEY  VALUE  FROM
        shadow  needs_approval  `mine` at .mcp.json:1 is not approved and has no effect: the one at [home]/.kode.json:1 counts
        command  "uvx"  [home]/.kode.json:1
        args  ["mine"]  [home]/.kode.json:1
        odd  1  [home]/.kode.json:1
        type  stdio  default
        cwd  a folder of its own in the data folder  default in a folder that is not trusted; `gantry approve .` trusts it
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        allow_shell  false  default
        allow_env  none  default
        start  eager  default
        profile  local  default
        calls.concurrency  32  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  1m  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  reconnect  default
        life.stop_grace  10s  default
        life.restart.at_once  3  default
        life.restart.window  1m  default
        life.restart.ladder  5s, 15s, 45s, 2m, 5m  default
        life.restart.reset_after  10m  default
        tools.include  all  default
        tools.exclude  none  default
        tools.settings  none  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "--config", "own.toml", "--expose", "bare"]), @r#"
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
        store  `gantry.db` in the data folder  default

        a
        KEY  VALUE  FROM
        command  "npx"  own.toml:4
        args  ["--token","…","${HOME}"]  own.toml:5, variable `HOME` (set)
        env.A  (not shown)  own.toml:6
        type  stdio  default
        cwd  [home]/shop  default
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        allow_shell  false  default
        allow_env  none  default
        start  eager  default
        profile  local  default
        calls.concurrency  32  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  1m  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  reconnect  default
        life.stop_grace  10s  default
        life.restart.at_once  3  default
        life.restart.window  1m  default
        life.restart.ladder  5s, 15s, 45s, 2m, 5m  default
        life.restart.reset_after  10m  default
        tools.include  all  default
        tools.exclude  none  default
        tools.settings  none  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "nobody"]), @"
        --- stderr
        error: no server `nobody` in the files
        hint: `gantry config check` says what is wrong with a server that is left out
        --- exit 1
        ");
        folder.write("gantry.toml", "[servers");
        assert_snapshot!(run(&folder, &["config", "explain", "theirs"]), @r#"
        theirs
        KEY  VALUE  FROM
        state  needs_approval  `.mcp.json` is not approved; look at it and run `gantry approve .mcp.json`
        command  "npx"  .mcp.json:1
        args  ["-y","theirs","a b"]  .mcp.json:1
        env.TOKEN  (not shown)  .mcp.json:1
        cwd  "sub"  .mcp.json:1
        type  stdio  default
        limits.cpu  unlimited  default
        limits.memory  unlimited  default
        limits.pids  1024  default
        allow_shell  false  default
        allow_env  none  default
        start  eager  default
        profile  local  default
        calls.concurrency  32  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  1m  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  reconnect  default
        life.stop_grace  10s  default
        life.restart.at_once  3  default
        life.restart.window  1m  default
        life.restart.ladder  5s, 15s, 45s, 2m, 5m  default
        life.restart.reset_after  10m  default
        tools.include  all  default
        tools.exclude  none  default
        tools.settings  none  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "--config", "gantry.toml"]), @"
        --- stderr
        config.syntax

          × this is no TOML: unclosed table, expected `]`
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
        assert_snapshot!(run(&folder, &["config", "explain", "--config", "own.toml", "far"]), @r#"
        far
        KEY  VALUE  FROM
        url  "https://example.com/mcp?…"  own.toml:2
        reconnect.away  "5m"  own.toml:3
        proxy  "http://…@proxy.example:3128"  own.toml:4
        type  auto  default
        allow_private  false  default
        ca_file  none  default
        auth.kind  auto  default
        reconnect.first  1s  default
        reconnect.longest  1m  default
        reconnect.failures  3  default
        reconnect.steady  1m  default
        start  eager  default
        profile  remote  default
        calls.concurrency  32  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  10s  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  reconnect  default
        life.stop_grace  10s  default
        tools.include  all  default
        tools.exclude  none  default
        tools.settings  none  default
        --- exit 0
        "#);
        assert_snapshot!(run(&folder, &["config", "explain", "--config", "own.toml", "near"]), @r#"
        near
        KEY  VALUE  FROM
        command  "uvx"  own.toml:6
        profile  "hosted"  own.toml:7
        limits.memory_bytes  67108864  own.toml:8
        tools.include  ["read_*"]  own.toml:9
        tools.settings.read_all.timeout  "5s"  own.toml:9
        allow_env  ["PATH"]  own.toml:10
        life.restart.ladder  ["1s", "2s"]  own.toml:12
        type  stdio  default
        cwd  [home]/shop  default
        limits.cpu  0.5  default
        limits.pids  128  default
        allow_shell  false  default
        start  eager  default
        calls.concurrency  1  default
        calls.queue  256  default
        calls.timeout  30s  default
        calls.timeout_max  10m  default
        calls.late_grace  10s  default
        calls.ask_timeout  10m  default
        calls.pass_context  true  default
        life.handshake  1m  default
        life.probe  1500ms  default
        life.health_every  30s  default
        life.health_timeout  10s  default
        life.when_unresponsive  keep  default
        life.stop_grace  10s  default
        life.restart.at_once  3  default
        life.restart.window  1m  default
        life.restart.reset_after  10m  default
        tools.exclude  none  default
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
