//! A database that this gateway cannot use: damaged, or made by a newer one. The start is refused, says which
//! file and what to do, and leaves the file as it is.

use std::fs;
use std::process::Command;

use super::echoes;
use crate::harness::{Gantry, LONG, on_postgresql};

/// Starts a gateway that ends at once, and returns its exit code and what it said.
fn refused(gantry: &Gantry) -> (Option<i32>, String) {
    let failed = gantry.cli(&["up", "--port", "0"]);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    (failed.status.code(), said)
}

// fault D4
#[test]
fn a_damaged_database_is_refused_by_name_and_left_as_it_is() {
    let mut gantry = Gantry::start(&["a"]);
    echoes(&gantry, 3);
    assert_eq!(gantry.stop(), Some(0));
    let file = gantry.data().join("gantry.db");
    let whole = fs::read(&file).unwrap();
    let cut = whole[..whole.len() / 2].to_vec();
    let mut flipped = whole.clone();
    flipped[0..8].copy_from_slice(b"XQLite f");
    for harmed in [cut, flipped, b"not a database, not at all".to_vec()] {
        fs::write(&file, &harmed).unwrap();
        let (code, said) = refused(&gantry);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("gantry.db") && said.contains("is damaged"),
            "{said}"
        );
        assert!(said.contains("hint: "), "{said}");
        assert_eq!(fs::read(&file).unwrap(), harmed, "left as it is");
    }
    // Restored, it goes on.
    fs::write(&file, &whole).unwrap();
    let gantry = gantry.again();
    gantry.wait_state("a", "ready", LONG);
    assert_eq!(gantry.audit_rows("server=a&status=ok").len(), 3);
}

/// Notes a migration that only a newer gateway knows, as the database's own programs do it.
fn made_newer(gantry: &Gantry) {
    let insert = "INSERT INTO kb._sqlx_migrations \
        (version, description, success, checksum, execution_time) \
        VALUES (999999, 'of a newer one', TRUE, 'x', 0)";
    let script = "import sqlite3, sys\n\
        store = sqlite3.connect(':memory:')\n\
        store.execute('ATTACH ? AS kb', (sys.argv[1],))\n\
        store.execute(sys.argv[2])\n\
        store.commit()";
    match gantry.database() {
        Some(database) => {
            database.sql(insert);
        }
        None => {
            let file = gantry.data().join("gantry.db");
            let made = Command::new("python3")
                .args(["-c", script, file.to_str().unwrap(), insert])
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
        }
    }
}

// fault D5
#[test]
fn a_database_of_a_newer_gateway_is_refused_with_both_numbers() {
    let mut gantry = Gantry::start(&["a"]);
    assert_eq!(gantry.stop(), Some(0));
    made_newer(&gantry);
    let (code, said) = refused(&gantry);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("999999"), "{said}");
    assert!(said.contains("newer"), "{said}");
    let left = gantry.asked("SELECT max(version) FROM kb._sqlx_migrations");
    assert_eq!(left, ["999999"]);
}

// fault D5
#[test]
fn a_database_of_a_newer_gateway_is_refused_with_both_numbers_on_postgresql() {
    on_postgresql(a_database_of_a_newer_gateway_is_refused_with_both_numbers);
}
