//! Attacks from inside, judged by their effect outside: more than a hundred probes in every kind of sandbox.
//! `plain_user` runs them again as a gateway of an ordinary user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gantry_sandbox::{Command, GVisor, Limits, MountKind, Network, RootBase, Runtime};
use gantry_testkit::probes::{self, Kernel, Seen, World};
use tempfile::TempDir;

use crate::harness::{is_root, output, sandbox};
use crate::own_root::{own, script_in};

/// Where no sandbox covers anything by itself.
const OUTSIDE: &str = "/var/tmp";

/// A world to attack, and a folder with the program.
fn world() -> (TempDir, TempDir, World) {
    let built = tempfile::tempdir_in(OUTSIDE).unwrap();
    fs::set_permissions(built.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = probes::build(built.path());
    let folder = tempfile::tempdir_in(OUTSIDE).unwrap();
    let world = World::new(folder.path(), &program);
    (built, folder, world)
}

/// Runs all probes as a command; returns what they said.
async fn attack(mut command: Command, program: &str, arguments: Vec<String>) -> Vec<Seen> {
    command.program = program.to_owned();
    command.args = arguments;
    command.limits.pids = Some(64);
    let (out, err, exit) = output(&sandbox(), &command).await.unwrap();
    probes::read(&out).unwrap_or_else(|| panic!("{exit:?}\n{out}\n{err}"))
}

/// Prints the table and expects no effect.
#[expect(
    clippy::print_stdout,
    reason = "the table of docs/isolation.md is made from it"
)]
fn judge(name: &str, world: &mut World, seen: Vec<Seen>, kernel: Kernel) {
    let harm = world.judge(&seen, kernel);
    is_documented(name, &seen);
    println!("{}", probes::table(&[(name, seen)]));
    assert!(harm.is_empty(), "{name}:\n{}", harm.join("\n"));
}

/// Asserts that the page says of every probe what it said just now, if it was made with such a kernel.
fn is_documented(column: &str, seen: &[Seen]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/isolation.md");
    let page = fs::read_to_string(page).unwrap();
    let said_of = |program: &str, flag: &str| {
        let output = std::process::Command::new(program).arg(flag).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let made_with = |word: &str| {
        let (_, after) = page
            .split_once(word)
            .expect("the page says what it was made with");
        let version: &str = after.split([',', ' ']).next().unwrap();
        version.trim_end_matches(['.', '\n']).to_owned()
    };
    let kernel = format!("{}.", made_with("Kernel "));
    let gvisor = made_with("runsc release ");
    let is_same = said_of("uname", "-r").is_ok_and(|now| now.starts_with(&kernel))
        && (column != "gVisor"
            || said_of("runsc", "--version").is_ok_and(|now| now.contains(&gvisor)));
    if !is_same || !is_root() {
        return;
    }
    let mut place = None;
    let mut wrong = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells[0] == "probe" {
            place = cells.iter().position(|cell| *cell == column);
        }
        let probe = cells[0].trim_matches('`');
        let Some(said) = seen.iter().find(|seen| seen.name == probe) else {
            continue;
        };
        let now = said.said.trim_start_matches("refused: ");
        let written = place.and_then(|place| cells.get(place).copied());
        if written != Some(now) {
            wrong.push(format!(
                "`{probe}`: {written:?} is written, it said {now:?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/isolation.md, {column}:\n{}",
        wrong.join("\n")
    );
}

/// Without a network of any kind; in full also with the one that the gateway reaches into.
fn networks() -> Vec<Network> {
    gantry_testkit::proof::count(vec![Network::None, Network::Inside], vec![Network::Inside])
}

/// A hosted command: a root of the host's programs, with the probes as its own folder.
fn process(built: &Path) -> Command {
    let mut root = own(RootBase::HostParts);
    root.mounts.push(gantry_sandbox::Mount {
        target: PathBuf::from("/work"),
        kind: MountKind::Bind(built.to_owned()),
        read_only: true,
    });
    script_in(root, "")
}

/// An image with nothing but the probes in it.
fn image(built: &Path) -> Command {
    fs::create_dir_all(built.join("image/tmp")).unwrap();
    fs::rename(built.join("probes"), built.join("image/probes")).unwrap();
    script_in(
        own(RootBase::Layers {
            base: built.canonicalize().unwrap(),
            lower: vec!["image".to_owned()],
        }),
        "",
    )
}

#[tokio::test]
async fn from_a_sandboxed_process() {
    // faults C10, P3 and P7
    for network in networks() {
        let (built, _folder, mut world) = world();
        let mut command = process(built.path());
        command.network = network;
        let seen = attack(command, "/work/probes", world.arguments()).await;
        assert!(seen.len() > 100, "{}", seen.len());
        judge("sandboxed process", &mut world, seen, Kernel::Hosts);
    }
}

#[tokio::test]
async fn from_an_image_in_namespaces_of_its_own() {
    // fault C10
    let (built, _folder, mut world) = world();
    let seen = attack(image(built.path()), "/probes", world.arguments()).await;
    judge("own namespaces", &mut world, seen, Kernel::Hosts);
}

#[tokio::test]
async fn from_an_image_in_gvisor() {
    // fault C10
    let runsc = PathBuf::from("/usr/bin/runsc");
    if !runsc.exists() {
        return;
    }
    for network in networks() {
        let (built, _folder, mut world) = world();
        let command = image(built.path());
        let command = Command {
            runtime: Runtime::GVisor(GVisor {
                program: runsc.clone(),
            }),
            limits: Limits {
                cpu: None,
                ..command.limits
            },
            network,
            ..command
        };
        let seen = attack(command, "/probes", world.arguments()).await;
        judge("gVisor", &mut world, seen, Kernel::Own);
    }
}

#[tokio::test]
async fn without_a_sandbox_the_judge_sees_effects() {
    // A judge that cannot condemn proves nothing.
    let (built, _folder, mut world) = world();
    let harmless = [
        "host_loopback",
        "host_udp",
        "gateway_port",
        "local_socket",
        "abstract_socket",
        "read_secret",
        "write_file",
        "create_file",
        "mode_of_file",
        "times_of_file",
        "attribute_of_file",
        "shared_memory",
        "named_shared_memory",
        "priority_of_foreign",
        "limits_of_foreign",
        "environment_of_foreign",
        "signal_foreign",
    ];
    let ran = std::process::Command::new(built.path().join("probes"))
        .args(world.arguments())
        .args(harmless)
        .output()
        .unwrap();
    let seen = probes::read(&String::from_utf8(ran.stdout).unwrap()).unwrap();
    assert_eq!(seen.len(), harmless.len());
    let harm = world.judge(&seen, Kernel::Own);
    for effect in [
        "a port of the host was reached",
        "the gateway's port was reached",
        "a datagram socket was reached",
        "a local socket was reached",
        "an abstract socket was reached",
        "read_secret read a secret",
        "open/file was",
        "open was",
        "shared_memory read a secret",
        "named_shared_memory read a secret",
        "environment_of_foreign read a secret",
        "the other process lives was `true`",
    ] {
        assert!(
            harm.iter().any(|harm| harm.contains(effect)),
            "{effect}: {harm:#?}"
        );
    }
    assert!(
        is_root() || harm.iter().any(|harm| harm.contains("priority")),
        "{harm:#?}"
    );
}
