//! Credentials for image registries: kept sealed, shown to nobody, used for pulls and starts.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gantry_testkit::registry::{RegistryAccess, USER};
use serde_json::json;

use super::{Pulled, SECOND};

/// Returns whether any file below a folder has these bytes.
fn holds(folder: &Path, bytes: &[u8]) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| match entry.file_type() {
        // What images hold is the registry's.
        Ok(kind) if kind.is_dir() && entry.file_name() == "images" => false,
        Ok(kind) if kind.is_dir() => holds(&entry.path(), bytes),
        Ok(kind) if kind.is_file() => {
            let content = fs::read(entry.path()).unwrap_or_default();
            content.windows(bytes.len()).any(|part| part == bytes)
        }
        Ok(_) | Err(_) => false,
    })
}

// row 1.1, faults C4, K4 and K6
#[test]
fn a_closed_registry_is_pulled_from_with_the_credentials_of_a_login() {
    let mut rig = Pulled::new(RegistryAccess::Closed);
    let registry = rig.registry.address().to_string();
    let pull = json!({"image": rig.image});
    let refused = rig.gantry.rest("POST", "/api/v1/images", Some(&pull));
    assert_eq!(
        (refused.status, refused.json()["code"].clone()),
        (403, json!("image.unauthorized"))
    );
    rig.register("peer", "namespaces");
    let failed = rig.gantry.wait_state("peer", "failed", 30 * SECOND);
    assert!(
        failed["reason"]
            .as_str()
            .unwrap()
            .contains("refuses access"),
        "{failed:#}"
    );

    // Over the command line, the password on stdin.
    let (user, password) = USER;
    let arguments = [
        "images",
        "login",
        &registry,
        "--username",
        user,
        "--password-stdin",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_gantry"))
        .arg("--data")
        .arg(rig.gantry.data())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains(&registry) && !said.contains(password),
        "{said}"
    );

    let pulled = rig.gantry.rest("POST", "/api/v1/images", Some(&pull));
    assert_eq!(pulled.status, 200, "{}", pulled.text());
    rig.gantry.rest(
        "DELETE",
        &format!("/api/v1/images?image={}", rig.image),
        None,
    );
    let restart = "/api/v1/mcp/servers/peer/restart";
    assert_eq!(rig.gantry.rest("POST", restart, None).status, 200);
    rig.gantry.wait_state("peer", "ready", 60 * SECOND);

    // Shown without the secret, and in no file, log or act.
    let logins = rig.gantry.rest("GET", "/api/v1/images/logins", None);
    let listed = &logins.json()["items"][0];
    assert_eq!(
        (&listed["registry"], &listed["username"]),
        (&json!(registry), &json!(user))
    );
    let acts = rig.gantry.rest("GET", "/api/v1/acts", None).text();
    assert!(acts.contains("image.login"), "{acts}");
    let output = rig.gantry.cli(&["images", "logins"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains(user));
    for text in [
        logins.text(),
        acts,
        rig.gantry.stderr(),
        rig.gantry.stdout(),
    ] {
        assert!(!text.contains(password), "{text}");
    }
    assert!(!holds(&rig.gantry.data(), password.as_bytes()));

    // It outlives the gateway; a wrong one says that it was shown.
    rig.gantry.stop();
    rig.gantry = rig.gantry.again();
    let path = format!("/api/v1/images/logins/{registry}");
    assert_eq!(
        rig.gantry
            .rest("POST", "/api/v1/images", Some(&pull))
            .status,
        200
    );
    let wrong = json!({"username": user, "password": "wrong"});
    assert_eq!(rig.gantry.rest("PUT", &path, Some(&wrong)).status, 200);
    let refused = rig.gantry.rest("POST", "/api/v1/images", Some(&pull));
    assert_eq!(refused.json()["code"], "image.unauthorized");
    for body in [
        json!({}),
        json!({"username": user}),
        json!({"username": user, "password": password, "token": "t"}),
        json!({"username": user, "password": ""}),
        json!({"username": "a:b", "password": "c"}),
    ] {
        assert_eq!(
            rig.gantry.rest("PUT", &path, Some(&body)).status,
            422,
            "{body}"
        );
    }
    let output = rig.gantry.cli(&["images", "logout", &registry]);
    assert!(output.status.success());
    let none = rig.gantry.rest("DELETE", &path, None);
    assert_eq!(
        (none.status, none.json()["code"].clone()),
        (404, json!("image.login_unknown"))
    );
    let refused = rig.gantry.rest("POST", "/api/v1/images", Some(&pull));
    assert_eq!(refused.json()["code"], "image.unauthorized");
}
