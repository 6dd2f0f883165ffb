//! Credentials in client files, and helpers that fail.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tokio::time::Instant;

use super::*;

struct Home(tempfile::TempDir);

impl Home {
    fn new(file: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("config.json"), file).unwrap();
        Self(temp)
    }

    fn helper(self, name: &str, script: &str) -> Self {
        let path = self.0.path().join(format!("docker-credential-{name}"));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    async fn find(&self, registry: &str) -> Result<Option<Credentials>, CredentialsError> {
        let helpers = Helpers::Folder(self.0.path().to_owned());
        from_file(registry, &self.0.path().join("config.json"), &helpers).await
    }
}

fn basic(user: &str, password: &str) -> Option<Credentials> {
    Some(Credentials::Basic {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

#[tokio::test]
async fn a_registry_is_found_under_all_its_spellings() {
    let home = Home::new(
        r#"{"auths":{"https://index.docker.io/v1/":{"auth":"YTpiOmM="},"ghcr.io":{"identitytoken":"t"},
        "https://quay.io/v1/":{"username":"u","password":"p"},"empty.io":{}},"other":[1]}"#,
    );
    assert_eq!(home.find("docker.io").await, Ok(basic("a", "b:c")));
    assert_eq!(
        home.find("ghcr.io").await,
        Ok(Some(Credentials::Token("t".to_owned())))
    );
    assert_eq!(home.find("quay.io").await, Ok(basic("u", "p")));
    assert_eq!(home.find("empty.io").await, Ok(None));
    assert_eq!(home.find("localhost:5000").await, Ok(None));
    let absent = from_client_file("ghcr.io", home.0.path()).await;
    assert_eq!(absent, Ok(None));
}

#[tokio::test]
async fn damaged_files_are_named_and_not_quoted() {
    for file in [
        "{\"auths\":{\"a.io\":\"hunter2\"}}",
        "hunter2",
        "",
        r#"{"auths":{"a.io":{"auth":"hunter2!"}}}"#,
    ] {
        let error = Home::new(file).find("a.io").await.unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("config.json") && !told.contains("hunter2"),
            "{told}"
        );
    }
    let long = Home::new(&" ".repeat(FILE_BYTES as usize + 1));
    assert!(
        long.find("a.io")
            .await
            .unwrap_err()
            .why
            .contains("too large")
    );
}

#[tokio::test]
async fn helpers_are_asked_before_the_file() {
    let file =
        r#"{"auths":{"a.io":{"auth":"YTpi"}},"credHelpers":{"b.io":"own"},"credsStore":"all"}"#;
    let own = r#"read key; echo "{\"Username\":\"$key\",\"Secret\":\"$1\"}""#;
    let all = r#"echo '{"Username":"<token>","Secret":"s"}'"#;
    let home = Home::new(file).helper("own", own).helper("all", all);
    assert_eq!(home.find("b.io").await, Ok(basic("b.io", "get")));
    assert_eq!(
        home.find("a.io").await,
        Ok(Some(Credentials::Token("s".to_owned())))
    );
    let none = Home::new(file).helper(
        "all",
        "echo credentials not found in native keychain; exit 1",
    );
    assert_eq!(none.find("a.io").await, Ok(None));
}

#[tokio::test]
async fn a_helper_that_does_not_help_is_named() {
    let file = r#"{"credsStore":"x"}"#;
    let cases = [
        ("exit 3", "it failed"),
        ("echo nothing", "not the JSON"),
        ("cat /dev/zero", "is too long"),
    ];
    for (script, why) in cases {
        let home = Home::new(file).helper("x", script);
        let began = Instant::now();
        let error = home.find("a.io").await.unwrap_err();
        assert!(error.why.contains(why), "{script}: {error}");
        assert_eq!(error.place, "docker-credential-x");
        assert!(began.elapsed() < HELPER_DEADLINE, "{script}");
    }
    let missing = Home::new(file).find("a.io").await.unwrap_err();
    assert_eq!(missing.place, "docker-credential-x");
    for name in ["../x", "a b", "a/../../bin/sh"] {
        let home = Home::new(&format!(r#"{{"credsStore":"{name}"}}"#));
        let error = home.find("a.io").await.unwrap_err();
        assert!(error.why.contains("not the name"), "{error}");
    }
}

#[tokio::test]
async fn a_helper_that_hangs_is_ended_with_its_children() {
    let home = Home::new(r#"{"credsStore":"x"}"#);
    let marker = home.0.path().join("pid");
    let script = format!("sleep 300 & echo $! > {}; wait", marker.display());
    let home = home.helper("x", &script);
    let path = home.0.path().join("docker-credential-x");
    // A timeout drops the same future; waiting for it would take ten seconds.
    let mut asked = Box::pin(run_helper(&path, "a.io"));
    let said = || fs::read_to_string(&marker).unwrap_or_default();
    while !said().ends_with('\n') {
        let pause = tokio::time::timeout(Duration::from_millis(10), &mut asked).await;
        assert!(pause.is_err(), "the helper ended");
    }
    let child = said().trim().to_owned();
    assert!(lives(&child));
    drop(asked);
    let ended = async {
        while lives(&child) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    assert!(ended.is_ok(), "the helper's child lives on");
}

/// Returns whether a process runs, as opposed to waiting to be reaped.
fn lives(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}
