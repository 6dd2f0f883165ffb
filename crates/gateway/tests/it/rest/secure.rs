//! The listener with TLS: its certificate is renewed while it runs, client certificates are asked for,
//! and nothing is served there without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::Folder;
use crate::harness::{Gantry, LONG, PROGRAM, held_port};
use gantry_testkit::Evilpeer;
use gantry_testkit::wait::eventually;

/// A folder with an authority, and certificates that it signed.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Self { folder };
        made.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem \
             -days 30 -subj /CN=authority",
        );
        for name in ["one", "two", "client"] {
            made.openssl(&format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out \
                 {name}.csr -subj /CN={name} -addext subjectAltName=IP:127.0.0.1"
            ));
            made.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem \
                 -days 30 -copy_extensions copy"
            ));
        }
        made
    }

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace());
        let output = command.current_dir(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "openssl {words}: {output:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a certificate and its key where the gateway reads them, the key first.
    fn install(&self, name: &str) {
        for (from, to) in [
            (format!("{name}.key"), "live.key"),
            (format!("{name}.pem"), "live.pem"),
        ] {
            let new = self.path("new");
            fs::copy(self.path(&from), &new).unwrap();
            fs::rename(&new, self.path(to)).unwrap();
        }
    }
}

/// Asks with curl; returns the status, or nothing if there was no answer, and whom the server said it is.
fn ask(url: &str, authority: &Path, more: &[&str]) -> (Option<String>, String) {
    let output = Command::new("curl")
        .args([
            "-sv",
            "--max-time",
            "10",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ])
        .arg("--cacert")
        .arg(authority)
        .args(more)
        .arg(url)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success().then_some(status), said)
}

#[test]
fn a_second_listener_speaks_tls_and_renews_its_certificate() {
    let made = Certificates::new();
    made.install("one");
    let at = held_port();
    let [cert, key] = ["live.pem", "live.key"].map(|name| made.path(name));
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .flags(&["--tls-listen", &at.to_string()])
        .flags(&["--tls-cert", cert.to_str().unwrap()])
        .flags(&["--tls-key", key.to_str().unwrap()])
        .start();
    gantry.wait_state("a", "ready", LONG);
    let url = format!("https://{at}/api/v1/mcp/servers");
    let bearer = format!("Authorization: Bearer {}", gantry.admin);
    let authority = made.path("ca.pem");
    let (status, said) = ask(&url, &authority, &["-H", &bearer]);
    assert_eq!(status.as_deref(), Some("200"), "{said}");
    assert!(said.contains("CN=one"), "{said}");
    assert!(
        gantry.stdout().contains(&format!("https://{at}/mcp")),
        "{}",
        gantry.stdout()
    );
    // The same checks as without TLS: no key, another host.
    assert_eq!(ask(&url, &authority, &[]).0.as_deref(), Some("401"));
    let foreign = ask(
        &url,
        &authority,
        &["-H", "Host: evil.example", "-H", &bearer],
    );
    assert_eq!(foreign.0.as_deref(), Some("403"), "{}", foreign.1);
    // Nothing is served there in plain text, and this machine's own listener needs no TLS.
    let (plain, said) = ask(&format!("http://{at}/healthz"), &authority, &[]);
    assert_eq!(plain, None, "{said}");
    assert_eq!(gantry.rest("GET", "/api/v1/mcp/servers", None).status, 200);

    // A new certificate is used without a restart; one that is broken is not.
    made.install("two");
    let renewed = eventually(LONG, || {
        ask(&url, &authority, &["-H", &bearer]).1.contains("CN=two")
    });
    assert!(renewed.is_some(), "{}", gantry.stderr());
    fs::write(made.path("live.pem"), "-----BEGIN nonsense").unwrap();
    let kept = eventually(LONG, || {
        gantry.stderr().contains("the last one stays in use")
    });
    assert!(kept.is_some(), "{}", gantry.stderr());
    assert!(ask(&url, &authority, &["-H", &bearer]).1.contains("CN=two"));
}

#[test]
fn clients_without_a_certificate_of_the_authority_are_refused() {
    let made = Certificates::new();
    let at = held_port();
    let [cert, key, ca] = ["one.pem", "one.key", "ca.pem"].map(|name| made.path(name));
    let gantry = Gantry::builder()
        .server("a", &Evilpeer::new())
        .flags(&["--tls-listen", &at.to_string()])
        .flags(&["--tls-cert", cert.to_str().unwrap()])
        .flags(&["--tls-key", key.to_str().unwrap()])
        .flags(&["--tls-client-ca", ca.to_str().unwrap()])
        .start();
    let url = format!("https://{at}/api/v1/mcp/servers");
    let bearer = format!("Authorization: Bearer {}", gantry.admin);
    let (status, said) = ask(&url, &ca, &["-H", &bearer]);
    assert_eq!(status, None, "{said}");
    let [mine, mine_key] = ["client.pem", "client.key"].map(|name| made.path(name));
    let shown = [
        "--cert",
        mine.to_str().unwrap(),
        "--key",
        mine_key.to_str().unwrap(),
    ];
    let with_key = [shown.as_slice(), &["-H", &bearer]].concat();
    assert_eq!(ask(&url, &ca, &with_key).0.as_deref(), Some("200"));
    // A certificate does not replace the key.
    assert_eq!(ask(&url, &ca, &shown).0.as_deref(), Some("401"));
}

// fault G5
#[test]
fn authorities_that_a_folder_names_are_in_force_only_as_approved() {
    let made = Certificates::new();
    made.install("one");
    for words in [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout others.key -out \
         others.pem -days 30 -subj /CN=others",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout other.key -out other.csr \
         -subj /CN=other -addext subjectAltName=IP:127.0.0.1",
        "x509 -req -in other.csr -CA others.pem -CAkey others.key -CAcreateserial -out other.pem \
         -days 30 -copy_extensions copy",
    ] {
        made.openssl(words);
    }
    let mut folder = Folder::new();
    let at = held_port();
    let [cert, key] = ["live.pem", "live.key"].map(|name| made.path(name));
    folder.write(
        "gantry.toml",
        &format!(
            "[gateway]\ntls_listen = \"{at}\"\ntls_cert = {cert:?}\ntls_key = {key:?}\n\
             tls_client_ca = \"clients.pem\"\n"
        ),
    );
    let [ours, theirs] = ["ca.pem", "others.pem"].map(|name| made.path(name));
    let (ours_text, theirs_text) = (
        fs::read_to_string(&ours).unwrap(),
        fs::read_to_string(&theirs).unwrap(),
    );
    let up = |folder: &Folder, flags: &[&str]| {
        let output = folder.run(&[&["up", "--port", "0", "--trust"], flags].concat());
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Neither a missing file nor one that is too long to be approved is ever trusted.
    for text in [None, Some(ours_text.clone() + &"#\n".repeat(2 << 20))] {
        if let Some(text) = text {
            folder.write("clients.pem", &text);
        }
        let said = up(&folder, &[]);
        assert!(said.contains("clients.pem` cannot be used"), "{said}");
    }

    folder.write("clients.pem", &ours_text);
    folder.up(&["--trust", "--no-example"]);
    let url = format!("https://{at}/healthz");
    let status = |client: &str| {
        let [cert, key] = ["pem", "key"].map(|kind| made.path(&format!("{client}.{kind}")));
        let shown = [
            "--cert",
            cert.to_str().unwrap(),
            "--key",
            key.to_str().unwrap(),
        ];
        ask(&url, &ours, &shown).0
    };
    assert_eq!(status("client").as_deref(), Some("200"));
    assert_eq!(status("other"), None);
    folder.write("clients.pem", &(ours_text + &theirs_text));
    // All files of the listener are read again.
    made.install("two");
    let renewed = eventually(LONG, || {
        let client = ["client.pem", "client.key"].map(|name| made.path(name));
        let [cert, key] = client.each_ref().map(|path| path.to_str().unwrap());
        let said = ask(&url, &ours, &["--cert", cert, "--key", key]).1;
        said.contains("CN=two")
    });
    assert!(renewed.is_some());
    assert_eq!(status("other"), None);
    let told = |what: &str| {
        let health = folder.rest("GET", "/api/v1/health", None).1;
        health["warnings"].to_string().contains(what)
    };
    assert!(eventually(LONG, || told("[gateway] (changed)")).is_some());
    // Approved, it is used from the next start on.
    folder.told(&["approve", "--yes"]);
    assert!(eventually(LONG, || told("takes effect at the next start")).is_some());
    assert_eq!(status("other"), None);
    folder.down();
    folder.up(&["--no-example"]);
    assert_eq!(status("client").as_deref(), Some("200"));
    assert_eq!(status("other").as_deref(), Some("200"));
    folder.down();

    // A file that a flag names is the person's own.
    fs::remove_file(folder.home().join("shop/clients.pem")).unwrap();
    folder.up(&[
        "--trust",
        "--no-example",
        "--tls-client-ca",
        ours.to_str().unwrap(),
    ]);
    assert_eq!(status("client").as_deref(), Some("200"));
    assert_eq!(status("other"), None);
}

// fault F5
#[test]
fn files_that_cannot_be_used_fail_the_start_and_say_which() {
    use std::os::unix::fs::PermissionsExt as _;
    let made = Certificates::new();
    let home = tempfile::tempdir().unwrap();
    let up = |words: &[&str]| {
        let output = Command::new(PROGRAM)
            .args(["up", "--port", "0", "--tls-listen", "127.0.0.1:0", "--data"])
            .arg(home.path().join("data"))
            .args(words)
            .current_dir(made.folder.path())
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = up(&["--tls-cert", "one.pem"]);
    assert!(
        said.contains("needs an address, a certificate and a key"),
        "{said}"
    );
    let said = up(&["--tls-cert", "one.pem", "--tls-key", "two.key"]);
    assert!(
        said.contains("one.pem") && said.contains("cannot be used with its key"),
        "{said}"
    );
    let said = up(&["--tls-cert", "absent.pem", "--tls-key", "one.key"]);
    assert!(
        said.contains("cannot read the certificate in `absent.pem`"),
        "{said}"
    );
    fs::set_permissions(made.path("one.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let said = up(&["--tls-cert", "one.pem", "--tls-key", "one.key"]);
    assert!(
        said.contains("every user of this machine") && said.contains("chmod 600"),
        "{said}"
    );
}
