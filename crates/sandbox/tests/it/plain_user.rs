//! The tests of roots and runtimes once more, as a gateway of an ordinary user: this test binary run again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Runs the tests of a module as user 65534; the test that calls it must not be among them.
fn again(module: &str) {
    if !crate::harness::is_root() {
        return;
    }
    // Other users may not be able to reach the build directory.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = directory.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let output = Command::new("setpriv")
        .args(user)
        .arg(&binary)
        .args([module, "--test-threads=2"])
        .current_dir("/tmp")
        .output()
        .unwrap();
    let (out, err) = (output.stdout, output.stderr);
    let told = String::from_utf8_lossy(&out) + String::from_utf8_lossy(&err);
    assert!(output.status.success(), "{told}");
    assert!(!told.contains("running 0 tests"), "{told}");
}

#[test]
fn has_roots_of_its_own() {
    again("own_root::");
}

#[test]
fn has_gvisor() {
    again("gvisor::");
}

#[test]
fn is_not_harmed_from_inside() {
    again("attack::");
}

#[test]
fn is_reached_inside() {
    again("inside::an_image");
}

#[test]
fn runs_ordinary_programs_under_the_allow_list() {
    again("syscalls::");
}
