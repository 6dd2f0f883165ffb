//! The allow list of system calls: ordinary programs run under it, and what is not on it is refused.

use gantry_sandbox::{Command, Syscalls};

use crate::harness::{hosted, output, sandbox};

/// A hosted script under the allow list, in an empty folder that it may write.
fn listed(text: &str, folder: &tempfile::TempDir) -> Command {
    let mut command = hosted(text);
    command.syscalls = Syscalls::AllowList;
    command.cwd = folder.path().to_owned();
    command.writable = vec![folder.path().to_owned()];
    command.limits.pids = Some(256);
    let home = folder.path().display().to_string();
    command.env.push(("HOME".to_owned(), home));
    command
}

#[tokio::test]
async fn ordinary_programs_run_under_the_allow_list() {
    // Those that are not installed here are left out.
    let sandbox = sandbox();
    for (program, text) in [
        ("sh", "x=$(echo a | tr a b); [ $x = b ] && echo fine"),
        (
            "python3",
            "/usr/bin/python3 -c '
import subprocess, threading, asyncio, socket, tempfile, mmap, multiprocessing, select, os
assert subprocess.check_output([\"echo\", \"x\"]) == b\"x\\n\"
t = threading.Thread(target=lambda: None); t.start(); t.join()
async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), \"127.0.0.1\", 0)
    host, port = server.sockets[0].getsockname()[:2]
    reader, writer = await asyncio.open_connection(host, port)
    assert await reader.read() == b\"\"
    p = await asyncio.create_subprocess_exec(\"true\"); await p.wait()
asyncio.run(main())
a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1) == b\"x\"
try: socket.getaddrinfo(\"localhost\", 80)
except socket.gaierror: pass
with tempfile.NamedTemporaryFile(dir=\".\") as f:
    f.write(b\"x\" * 4096); f.flush(); mmap.mmap(f.fileno(), 4096).close(); os.fchmod(f.fileno(), 0o600)
q = multiprocessing.Process(target=lambda: None); q.start(); q.join(); assert q.exitcode == 0
print(\"fine\")'",
        ),
        (
            "node",
            "node -e '
const {execSync} = require(\"child_process\"); const fs = require(\"fs\"); const net = require(\"net\");
const {Worker} = require(\"worker_threads\");
execSync(\"true\"); fs.writeFileSync(\"a\", \"x\"); fs.copyFileSync(\"a\", \"b\"); fs.watch(\".\").close();
new Worker(\"1\", {eval: true}).on(\"exit\", () => {
  const s = net.createServer(c => c.end()).listen(0, \"127.0.0.1\", () =>
    net.connect(s.address().port, \"127.0.0.1\").on(\"close\", () => { s.close(); console.log(\"fine\") }).resume());
});'",
        ),
        (
            "git",
            "git init -q . && echo x > x && git add x &&
             git -c user.name=a -c user.email=a@b commit -q -m x && git log --oneline | grep -q x &&
             git gc -q && echo fine",
        ),
        (
            "busybox",
            "busybox sh -c 'busybox find . | busybox sort | busybox head -n 1 >/dev/null && echo fine'",
        ),
        ("perl", "perl -e 'print `echo fine`'"),
        (
            "tar",
            "mkdir d && echo x > d/x && tar cf - d | (mkdir e && cd e && tar xf -) && cat e/d/x | grep -q x && echo fine",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("command -v {program} >/dev/null || {{ echo fine; exit; }}; {text}");
        let (out, err, exit) = output(&sandbox, &listed(&text, &folder)).await.unwrap();
        assert_eq!((out.trim(), exit.code), ("fine", Some(0)), "{program}: {err}");
    }
}

#[tokio::test]
async fn what_is_not_listed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Asked with arguments that no kernel takes: only a filter answers EPERM, ENOSYS or EAFNOSUPPORT.
    let text = r#"/usr/bin/python3 -c '
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *[ctypes.c_long(a) for a in arguments])
    return ctypes.get_errno()
x86 = platform.machine() == "x86_64"
for name, number, arguments, expected in [
    ("ptrace", 101 if x86 else 117, (99, 0, 0, 0), 1),
    ("bpf", 321 if x86 else 280, (99, 0, 0), 1),
    ("keyctl", 250 if x86 else 219, (99,), 1),
    ("userfaultfd", 323 if x86 else 282, (99,), 1),
    ("perf_event_open", 298 if x86 else 241, (0, 0, 0, 0, 0), 1),
    ("io_uring_setup", 425, (1, 0), 38),
    ("io_setup", 206 if x86 else 0, (1, 0), 38),
    ("clone3", 435, (0, 0), 38),
    ("unshare", 272 if x86 else 97, (0,), 1),
    ("setns", 308 if x86 else 268, (-1, 0), 1),
    ("clone with a user namespace", 56 if x86 else 220, (0x10000011, 0, 0, 0, 0), 1),
    ("mount_setattr", 442, (-1, 0, 0, 0, 0), 1),
    ("process_vm_readv", 310 if x86 else 270, (1, 0, 0, 0, 0, 0), 1),
    ("fanotify_init", 300 if x86 else 262, (0, 0), 38),
    ("a call of a later kernel", 999, (), 38),
    ("personality", 135 if x86 else 92, (0x40000,), 1),
    ("packet socket", 41 if x86 else 198, (17, 3, 0), 97),
    ("vsock", 41 if x86 else 198, (40, 1, 0), 97),
    ("raw socket", 41 if x86 else 198, (2, 3, 1), 1),
    ("raw socket with flags", 41 if x86 else 198, (10, 3 | 0o2004000, 58), 1),
    ("netlink audit", 41 if x86 else 198, (16, 3, 9), 1),
    ("netlink route", 41 if x86 else 198, (16, 3, 0), 0),
    ("tcp", 41 if x86 else 198, (2, 1 | 0o2000000, 0), 0),
    ("udp", 41 if x86 else 198, (10, 2, 0), 0),
    ("local", 41 if x86 else 198, (1, 5, 0), 0),
]:
    got = call(number, *arguments)
    if got != expected: print(name, "answers", got, "instead of", expected)
if x86 and call(0x40000000 | 39) != 38: print("x32 passes")
print("done")'"#;
    let (out, err, _) = output(&sandbox(), &listed(text, &folder)).await.unwrap();
    assert_eq!(out.trim(), "done", "{err}");
}

#[tokio::test]
async fn the_report_says_which_list() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = sandbox();
    let detail = async |command: &Command| {
        let spawned = sandbox.spawn(command).await.unwrap();
        assert!(spawned.report.enforced("syscalls"), "{:?}", spawned.report);
        spawned.report.promise("syscalls").unwrap().detail.clone()
    };
    let listed = detail(&listed("true", &folder)).await;
    assert!(listed.contains("allow list"), "{listed}");
    let hosted = detail(&hosted("true")).await;
    assert!(hosted.contains("refuses"), "{hosted}");
}
