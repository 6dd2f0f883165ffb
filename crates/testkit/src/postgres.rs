//! A PostgreSQL server for tests, and a separate database for each test.
//!
//! All tests of this user on this machine share one cluster, in any process: the first test that
//! needs it creates it in the system's temporary folder, and it stops some seconds after its last
//! use. It syncs nothing to disk. Connections need no password, over a Unix socket and over
//! loopback. Entry point: [`PgDatabase::new`].

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::wait::eventually;

/// The timeout for creating and starting a cluster, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Runs the server until it was unused for ten seconds. Signals to the process that started it do
/// not reach it, and it only stops while it holds the lock that users take to start or join it.
const KEEPER: &str = r#"
cd "$1" || exit 1
trap '' HUP INT TERM
run=$2; bin=$3; port=$4
$run "$bin/postgres" -D "$1/data" -p "$port" -k "$1" -c listen_addresses=127.0.0.1 \
    -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=300 \
    -c shared_buffers=32MB -c autovacuum_naptime=5s -c log_min_messages=fatal &
server=$!
idle=0
while kill -0 "$server" 2>/dev/null; do
    sleep 2
    if flock -n -x "$1/users" true; then idle=$((idle + 1)); else idle=0; fi
    [ "$idle" -ge 5 ] || continue
    exec 9>"$1/lock"
    flock 9
    if flock -n -x "$1/users" true; then
        rm -f "$1/ready"
        kill -INT "$server"
        wait "$server"
        rm -rf "$1/data"
        exit 0
    fi
    idle=0
    exec 9>&-
done
"#;

/// The database of one test, dropped with this value.
#[derive(Debug)]
pub struct PgDatabase {
    name: String,
}

struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    /// Held as long as this process lives.
    _use: File,
}

impl PgDatabase {
    /// Creates an empty database; starts the server if necessary.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}_{number}", std::process::id());
        // A database of that name belongs to a killed process.
        run_sql(
            "postgres",
            &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        );
        run_sql("postgres", &format!("CREATE DATABASE {name}"));
        Self { name }
    }

    /// Returns its address, over the loopback.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// Returns its address at another port: that of a proxy.
    pub fn url_at(&self, port: u16) -> String {
        format!(
            "postgres://gantry@127.0.0.1:{port}/{}?sslmode=disable",
            self.name
        )
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        cluster().port
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Flushes the server to disk and returns the files of this database and of the shared
    /// write-ahead log. Readable by root and the server's user.
    pub fn files(&self) -> Vec<PathBuf> {
        self.sql("CHECKPOINT");
        let own = "SELECT oid FROM pg_database WHERE datname = current_database()";
        let data = cluster().folder.join("data");
        let folders = [data.join("base").join(self.sql(own)), data.join("pg_wal")];
        let entries = folders.iter().flat_map(|folder| {
            let entries = fs::read_dir(folder).expect("the server's files can be listed");
            entries.filter_map(|entry| Some(entry.ok()?.path()))
        });
        entries.filter(|path| path.is_file()).collect()
    }

    /// Returns all of it as `pg_dump` writes it.
    pub fn dump(&self) -> Vec<u8> {
        let cluster = cluster();
        let made = Command::new(cluster.programs.join("pg_dump"))
            .args(["-U", "gantry", "-h"])
            .arg(&cluster.folder)
            .args(["-p", &cluster.port.to_string(), "-d", &self.name])
            .output();
        let made = made.expect("pg_dump is installed: `.ci/needs` brings it");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "pg_dump: {said}");
        made.stdout
    }

    /// Runs statements as the server's administrator and returns their rows, one per line.
    pub fn sql(&self, statements: &str) -> String {
        run_sql(&self.name, statements)
    }
}

impl Default for PgDatabase {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PgDatabase {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // If this fails, it is removed with the cluster.
        psql("postgres", &drop).output().ok();
    }
}

fn run_sql(database: &str, statements: &str) -> String {
    let output = psql(database, statements).output();
    let output = output.expect("psql is installed: `.ci/needs` brings it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(
        output.status.success(),
        "{statements}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn psql(database: &str, statements: &str) -> Command {
    let cluster = cluster();
    let mut command = Command::new(cluster.programs.join("psql"));
    command
        .args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "gantry",
        ])
        .arg("-h")
        .arg(&cluster.folder)
        .args(["-p", &cluster.port.to_string(), "-d", database])
        .args(["-c", statements])
        .stdin(Stdio::null());
    command
}

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::join)
}

impl Cluster {
    /// Joins the running cluster, or creates and starts one.
    fn join() -> Self {
        let programs = programs();
        let uid = rustix::process::getuid().as_raw();
        let folder = std::env::temp_dir().join(format!("gantry-postgres-{uid}"));
        fs::create_dir_all(&folder).expect("the folder of the cluster can be made");
        let lock = open(&folder.join("lock"));
        lock.lock().expect("the cluster can be locked");
        let users = open(&folder.join("users"));
        users.lock_shared().expect("the cluster can be used");
        let ready = folder.join("ready");
        let known = fs::read_to_string(&ready).ok();
        let known = known.and_then(|port| port.trim().parse().ok());
        let port = match known.filter(|port| answers(&programs, &folder, *port)) {
            Some(port) => port,
            None => {
                let port = start(&programs, &folder);
                fs::write(&ready, port.to_string()).expect("the port can be noted");
                port
            }
        };
        Self {
            folder,
            programs,
            port,
            _use: users,
        }
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false);
    file.open(path)
        .expect("a file of the cluster can be opened")
}

/// Finds the newest PostgreSQL of Debian, or the one of the usual folders.
fn programs() -> PathBuf {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders = installed.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let mut folders: Vec<PathBuf> = folders.filter(|bin| bin.join("initdb").exists()).collect();
    folders.sort();
    let usual = ["/usr/local/bin", "/usr/local/pgsql/bin", "/usr/bin"].map(PathBuf::from);
    let on_path = usual.into_iter().find(|bin| bin.join("initdb").exists());
    folders
        .pop()
        .or(on_path)
        .expect("PostgreSQL is installed: `.ci/needs` brings it")
}

/// Returns the command prefix to run a program as the server's user: the server refuses to run as
/// root.
fn as_owner() -> &'static [&'static str] {
    if rustix::process::getuid().is_root() {
        &[
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
        ]
    } else {
        &["env"]
    }
}

fn owned(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(as_owner()[0]);
    command
        .args(&as_owner()[1..])
        .arg(program)
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

fn answers(programs: &Path, folder: &Path, port: u16) -> bool {
    let mut ask = Command::new(programs.join("pg_isready"));
    ask.arg("-q")
        .arg("-h")
        .arg(folder)
        .args(["-p", &port.to_string()]);
    ask.status().is_ok_and(|status| status.success())
}

fn start(programs: &Path, folder: &Path) -> u16 {
    let data = folder.join("data");
    fs::remove_dir_all(&data).ok();
    fs::create_dir(&data).expect("the folder of the data can be made");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("it is ours");
    if rustix::process::getuid().is_root() {
        let ids = fs::metadata("/var/lib/postgresql").expect("the user postgres has a home");
        use std::os::unix::fs::MetadataExt;
        let (user, group) = (Some(ids.uid()), Some(ids.gid()));
        chown(&data, user, group).expect("root may give it away");
        chown(folder, user, group).expect("root may give it away");
    }
    // A collation that differs from byte order, as on most servers.
    let made = owned(&programs.join("initdb"), folder)
        .args(["-U", "gantry", "--auth=trust", "--no-sync", "-E", "UTF8"])
        .args([
            "--locale=C.UTF-8",
            "--locale-provider=icu",
            "--icu-locale=en-US",
        ])
        .arg("-D")
        .arg(&data)
        .output();
    let made = made.expect("initdb runs");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "initdb: {said}");
    let port = free_port();
    let log = File::create(folder.join("log")).expect("the log can be made");
    let mut keeper = Command::new("sh");
    keeper
        .args(["-c", KEEPER, "keeper"])
        .arg(folder)
        .arg(as_owner().join(" "))
        .arg(programs)
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor can be copied"))
        .stderr(log)
        // Signals to the test that started it must not end it.
        .process_group(0);
    drop(keeper.spawn().expect("a shell can be started"));
    let up = eventually(START, || answers(programs, folder, port));
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(up.is_some(), "PostgreSQL does not start: {log}");
    port
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}
