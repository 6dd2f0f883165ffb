//! The targets of the probes: listeners, files, a process and its resources, all without access
//! restrictions, so that only the sandbox can refuse. Snapshots show changes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Kernel, Seen};
use crate::wait::eventually;

/// How long a process that was killed may take to end.
const DYING: Duration = Duration::from_millis(300);

/// Settings of the host that no server may change.
const SETTINGS: [&str; 8] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/user/max_user_namespaces",
    "/proc/self/mountinfo",
];

/// The targets of the probes.
#[derive(Debug)]
pub struct World {
    folder: PathBuf,
    canary: String,
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    gateway: TcpListener,
    udp: UdpSocket,
    local: UnixListener,
    abstract_: UnixListener,
    abstract_name: String,
    /// A free port, and the thread that checks whether it is taken.
    free: u16,
    taken: Arc<AtomicBool>,
    looking: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
    shared: PathBuf,
    victim: Child,
    memory: String,
    before: BTreeMap<String, String>,
}

impl World {
    /// Creates it in an empty folder of its own, preferably one that sandboxes do not cover anyway.
    pub fn new(folder: &Path, program: &Path) -> Self {
        let unique = std::process::id();
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.subsec_nanos());
        let canary = format!("canary-{unique}-{nanos}");
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        };
        open(folder, 0o755);
        for (name, mode) in [("data", 0o755), ("open", 0o777), ("neighbour", 0o777)] {
            fs::create_dir(folder.join(name)).expect("the folder is empty");
            open(&folder.join(name), mode);
        }
        for name in ["data/secret", "neighbour/state", "open/file"] {
            fs::write(folder.join(name), &canary).expect("it is ours");
            open(&folder.join(name), 0o666);
        }
        let socket = folder.join("open/socket");
        let local = UnixListener::bind(&socket).expect("a free path");
        open(&socket, 0o666);
        let abstract_name = format!("gantry-probes-{unique}-{nanos}");
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("a short name");
        let tcp = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
        let free = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            listener.local_addr().map_or(0, |address| address.port())
        };
        let shared = Path::new("/dev/shm").join(&abstract_name);
        fs::write(&shared, &canary).expect("shared memory is open to all");
        open(&shared, 0o666);
        let mut victim = Command::new(program)
            .args(["hold", &format!("key={}", Self::key(unique, nanos))])
            .arg(format!("queue=/{abstract_name}"))
            .arg(format!("canary={canary}"))
            .env_clear()
            .env("SECRET", &canary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut ready = String::new();
        let said = victim.stdout.as_mut().expect("it is a pipe");
        BufReader::new(said)
            .read_line(&mut ready)
            .expect("it speaks");
        let memory = ready.trim().strip_prefix("ready ").expect("it is ready");
        let memory = memory.to_owned();
        let mut world = Self {
            folder: folder.to_owned(),
            canary,
            tcp6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok(),
            gateway: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"),
            udp: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port"),
            abstract_: UnixListener::bind_addr(&address).expect("a free name"),
            tcp,
            local,
            abstract_name,
            free,
            taken: Arc::default(),
            looking: Arc::new(AtomicBool::new(true)),
            looker: None,
            shared,
            victim,
            memory,
            before: BTreeMap::new(),
        };
        world.set_nonblocking();
        world.before = world.snapshot();
        world.looker = Some(world.look());
        world
    }

    /// A key that no other test has.
    fn key(unique: u32, nanos: u32) -> u32 {
        (unique ^ nanos) | 1
    }

    /// Returns the program's arguments: the locations of all targets.
    pub fn arguments(&self) -> Vec<String> {
        let port = |listener: &TcpListener| listener.local_addr().map_or(0, |at| at.port());
        let udp = self.udp.local_addr().map_or(0, |at| at.port());
        let at = |name: &str| self.folder.join(name).display().to_string();
        let key = self.abstract_name.rsplit('-').next();
        let nanos = key.and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        let shared = self.shared.file_name().unwrap_or_default();
        let mut all = vec![
            format!("port={}", port(&self.tcp)),
            format!("gateway={}", port(&self.gateway)),
            format!("free={}", self.free),
            format!("udp={udp}"),
            format!("socket={}", at("open/socket")),
            format!("abstract={}", self.abstract_name),
            format!("secret={}", at("data/secret")),
            format!("neighbour={}", at("neighbour/state")),
            format!("file={}", at("open/file")),
            format!("folder={}", at("open")),
            format!("data={}", at("data")),
            format!("pid={}", self.victim.id()),
            format!("memory={}", self.memory),
            format!("key={}", Self::key(std::process::id(), nanos)),
            format!("queue=/{}", self.abstract_name),
            format!("shared={}", shared.display()),
        ];
        if let Some(listener) = &self.tcp6 {
            all.push(format!("port6={}", port(listener)));
        }
        all.extend(outer_address().map(|address| format!("address={address}")));
        all
    }

    /// Returns the folder that must not change.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Describes every effect that the probes had outside; empty if there was none.
    pub fn judge(&mut self, seen: &[Seen], kernel: Kernel) -> Vec<String> {
        self.looking.store(false, Ordering::Release);
        if let Some(looker) = self.looker.take() {
            looker.join().expect("it only looks");
        }
        let mut harm = self.reached();
        // A process that was just killed may not have ended yet on a busy machine.
        let victim = &mut self.victim;
        eventually(DYING, || !matches!(victim.try_wait(), Ok(None)));
        let after = self.snapshot();
        for (what, before) in &self.before {
            let after = after.get(what).map_or("gone", String::as_str);
            if after != before {
                harm.push(format!("{what} was `{before}` and is `{after}`"));
            }
        }
        for probe in seen {
            if probe.said.contains(&self.canary) {
                harm.push(format!("{} read a secret: {}", probe.name, probe.said));
            } else if probe.is_breach(kernel) {
                harm.push(format!("{} worked: {}", probe.name, probe.said));
            }
        }
        harm
    }

    fn set_nonblocking(&self) {
        let listeners = [Some(&self.tcp), Some(&self.gateway), self.tcp6.as_ref()];
        for listener in listeners.into_iter().flatten() {
            listener.set_nonblocking(true).expect("it is ours");
        }
        for listener in [&self.local, &self.abstract_] {
            listener.set_nonblocking(true).expect("it is ours");
        }
        self.udp.set_nonblocking(true).expect("it is ours");
    }

    /// Checks repeatedly whether the free port has a listener.
    fn look(&self) -> JoinHandle<()> {
        let (free, taken, looking) = (
            self.free,
            Arc::clone(&self.taken),
            Arc::clone(&self.looking),
        );
        std::thread::spawn(move || {
            while looking.load(Ordering::Acquire) {
                if TcpStream::connect((Ipv4Addr::LOCALHOST, free)).is_ok() {
                    taken.store(true, Ordering::Release);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    }

    /// Which of the listeners were reached.
    fn reached(&self) -> Vec<String> {
        let mut byte = [0; 64];
        let reached = [
            ("a port of the host", self.tcp.accept().is_ok()),
            ("the gateway's port", self.gateway.accept().is_ok()),
            (
                "a port of the host (IPv6)",
                self.tcp6.as_ref().is_some_and(|tcp| tcp.accept().is_ok()),
            ),
            ("a datagram socket", self.udp.recv_from(&mut byte).is_ok()),
            ("a local socket", self.local.accept().is_ok()),
            ("an abstract socket", self.abstract_.accept().is_ok()),
        ];
        let taken = [(
            "a free port of the host",
            self.taken.load(Ordering::Acquire),
        )];
        let hit = reached.into_iter().chain(taken).filter(|(_, hit)| *hit);
        hit.map(|(what, _)| format!("{what} was reached")).collect()
    }

    /// The state that must not change.
    fn snapshot(&mut self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for name in [
            "",
            "data",
            "data/secret",
            "neighbour",
            "neighbour/state",
            "open",
            "open/file",
            "open/socket",
        ] {
            let path = self.folder.join(name);
            all.insert(path.display().to_string(), look_at(&path));
        }
        all.insert("shared memory".to_owned(), look_at(&self.shared));
        for path in SETTINGS {
            let text = fs::read_to_string(path).unwrap_or_default();
            // Only the number of our mounts: other tests mount, too.
            let text = match path.ends_with("mountinfo") {
                true => text.matches("/tmp/mount ").count().to_string(),
                false => text,
            };
            all.insert(path.to_owned(), text);
        }
        let alive = matches!(self.victim.try_wait(), Ok(None));
        all.insert("the other process lives".to_owned(), alive.to_string());
        let of_victim = |file: &str| {
            let path = format!("/proc/{}/{file}", self.victim.id());
            fs::read_to_string(path).unwrap_or_default()
        };
        let stat = of_victim("stat");
        let nice = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(16));
        all.insert(
            "its priority".to_owned(),
            nice.unwrap_or_default().to_owned(),
        );
        let limits = of_victim("limits");
        let files = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        all.insert(
            "its limits".to_owned(),
            files.unwrap_or_default().to_owned(),
        );
        let status = of_victim("status");
        let tracer = status.lines().find(|line| line.starts_with("TracerPid"));
        all.insert(
            "its tracer".to_owned(),
            tracer.unwrap_or_default().to_owned(),
        );
        all
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.looking.store(false, Ordering::Release);
        drop(self.victim.stdin.take());
        // It removes what it holds, unless a probe has ended it.
        let mut rest = String::new();
        if let Some(said) = &mut self.victim.stdout {
            said.read_to_string(&mut rest).ok();
        }
        self.victim.wait().ok();
        fs::remove_file(&self.shared).ok();
    }
}

/// The host's own address, if it has one beside the loopback. Nothing is sent to find out.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Describes a file or folder: type, owner, times and content.
fn look_at(path: &Path) -> String {
    let Ok(data) = fs::symlink_metadata(path) else {
        return "gone".to_owned();
    };
    let content = if data.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        format!("{names:?}")
    } else {
        fs::read_to_string(path).unwrap_or_default()
    };
    let mut attributes = [0u8; 256];
    let attributes = rustix::fs::llistxattr(path, &mut attributes[..]).unwrap_or(0);
    format!(
        "{:o} {}:{} {} links {}.{} {attributes} {content}",
        data.mode(),
        data.uid(),
        data.gid(),
        data.nlink(),
        data.mtime(),
        data.mtime_nsec(),
    )
}
