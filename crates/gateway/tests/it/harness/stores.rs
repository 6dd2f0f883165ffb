//! Where the gateways of a test keep their rows: in a file each, or in a PostgreSQL database each; and
//! what is found there, asked of the database itself.

use std::cell::Cell;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use gantry_testkit::postgres::PgDatabase;

use super::Gantry;

/// Prints the rows of a query, as `psql` does.
const ASK_SQLITE: &str = "import sqlite3, sys
store = sqlite3.connect(':memory:', uri=True)
store.execute('ATTACH ? AS kb', ('file:' + sys.argv[1] + '?mode=ro',))
for row in store.execute(sys.argv[2]):
    print('|'.join('' if part is None else str(part) for part in row))";

/// Copies a database, as `.backup` of `sqlite3` does.
const BACK_UP: &str = "import sqlite3, sys
sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))";

thread_local! {
    static IS_ON_POSTGRESQL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test whose gateways have PostgreSQL databases in the place of their files.
pub(crate) fn on_postgresql(test: impl FnOnce()) {
    IS_ON_POSTGRESQL.set(true);
    test();
    IS_ON_POSTGRESQL.set(false);
}

/// Makes the database of a new gateway, if this test is one on PostgreSQL.
pub(crate) fn own_database() -> Option<Arc<PgDatabase>> {
    let is_wanted = IS_ON_POSTGRESQL.get();
    is_wanted.then(|| Arc::new(PgDatabase::new()))
}

impl Gantry {
    /// Returns its database, if its rows are not in a file.
    pub(crate) fn database(&self) -> Option<&PgDatabase> {
        self.builder.database()
    }

    /// Asks the database itself and returns a text a row, its members joined by `|`.
    pub(crate) fn asked(&self, query: &str) -> Vec<String> {
        let answer = match self.database() {
            Some(database) => database.sql(query),
            None => {
                let file = self.data().join("gantry.db");
                let asked = Command::new("python3")
                    .args(["-c", ASK_SQLITE, file.to_str().unwrap(), query])
                    .output()
                    .unwrap();
                assert!(asked.status.success(), "{query}: {asked:?}");
                String::from_utf8(asked.stdout).unwrap()
            }
        };
        answer.lines().map(str::to_owned).collect()
    }

    /// Returns everything that its database has on disk, each file with its path. Of PostgreSQL the
    /// write-ahead log of all databases is among it.
    pub(crate) fn at_rest(&self) -> Vec<(String, Vec<u8>)> {
        let files = match self.database() {
            Some(database) => database.files(),
            None => self.database_files(),
        };
        let read = files.into_iter().map(|path| {
            let place = path.display().to_string();
            (place, fs::read(path).unwrap_or_default())
        });
        read.collect()
    }

    /// Returns a backup of its database, made as the documents say.
    pub(crate) fn backup(&self) -> Vec<u8> {
        if let Some(database) = self.database() {
            return database.dump();
        }
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy.db");
        let paths = [self.data().join("gantry.db"), copy.clone()];
        let made = Command::new("python3")
            .args(["-c", BACK_UP])
            .args(paths)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        fs::read(copy).unwrap()
    }

    /// Fails if a text is anywhere in what its database has on disk.
    pub(crate) fn assert_not_at_rest(&self, text: &str) {
        for (place, bytes) in self.at_rest() {
            let mut parts = bytes.windows(text.len());
            assert!(!parts.any(|part| part == text.as_bytes()), "{place}");
        }
    }
}
