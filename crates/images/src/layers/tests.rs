//! Several users of one store at once, and processes that are killed at any moment.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gantry_testkit::proof;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;

use crate::tarball::{archive, file, folder, hard_link, layer, symlink};

impl LayerStore {
    /// Adds a layer without an image's budget.
    fn add(
        &self,
        diff_id: &Digest,
        tar: &mut dyn Read,
        stop: &CancellationToken,
    ) -> Result<HeldLayer, LayerError> {
        self.add_to(&Budget::new(u64::MAX), (diff_id, Present::Use), tar, stop)
    }
}

fn open(path: &Path) -> LayerStore {
    LayerStore::open(path, Owners::Keep, &Limits::default()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    entries.map(name).collect()
}

/// Returns a layer with all kinds of entries, and the offsets where entries end.
fn sample() -> (Vec<u8>, Vec<usize>) {
    let mut parts: Vec<Vec<u8>> = vec![
        folder("a").mtime(5).bytes(),
        file("a/b", "x".repeat(3_000)).bytes(),
        file("implied/c", "y").bytes(),
        symlink("link", "a/b").bytes(),
        file(".wh.gone", "").bytes(),
        file("a/.wh..wh..opq", "").bytes(),
        hard_link("again", "a/b").bytes(),
    ];
    parts.extend((0..20).map(|at| file(format!("many/{at}"), vec![b'z'; 700]).bytes()));
    let mut ends = vec![0];
    for part in &parts {
        let start = *ends.last().unwrap();
        // Also in the middle of an entry.
        ends.extend([start + part.len() / 2, start + part.len()]);
    }
    let bytes = archive(&parts);
    ends.push(bytes.len());
    (bytes, ends)
}

/// Fails unless the store has no unfinished work and the layer, if present, is complete.
fn assert_whole(path: &Path, diff_id: &Digest) {
    let store = open(path);
    assert_eq!(names(&path.join("tmp")), [""; 0]);
    for name in names(&path.join("layers")) {
        assert_eq!(name, short_name(diff_id));
        let layer = store.find(diff_id).unwrap().unwrap();
        let files = path.join("layers").join(name).join(FILES);
        assert_eq!(fs::read(files.join("a/b")).unwrap().len(), 3_000);
        assert_eq!(names(&files.join("many")).len(), 20);
        assert_eq!(names(&files).len(), 6);
        assert_eq!(layer.bytes, 3_001 + 20 * 700);
    }
}

/// The process that is killed: unpacks its standard input into the store named in its environment.
/// Does nothing when run as a normal test.
#[test]
fn unpacks_for_the_killer() {
    #[expect(
        clippy::disallowed_methods,
        reason = "set for the child of the test below only"
    )]
    let Ok(path) = std::env::var("GANTRY_TEST_LAYER_STORE") else {
        return;
    };
    let store = open(Path::new(&path));
    let (bytes, _) = sample();
    let stop = CancellationToken::new();
    println!("opened");
    store
        .add(&Digest::of(&bytes), &mut io::stdin(), &stop)
        .unwrap();
    println!("done");
}

fn spawn(store: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "layers::tests::unpacks_for_the_killer",
            "--nocapture",
        ])
        .env("GANTRY_TEST_LAYER_STORE", store)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until the child prints a line that contains a word.
fn wait_for(child: &mut Child, word: &str) -> bool {
    let mut text = Vec::new();
    let mut byte = [0];
    let stdout = child.stdout.as_mut().unwrap();
    while stdout.read(&mut byte).unwrap() > 0 {
        text.push(byte[0]);
        if text.ends_with(word.as_bytes()) {
            return true;
        }
    }
    false
}

// kill -9 at each write point: after each entry and in the middle of it, then between the last byte
// and the end.
#[test]
fn a_killed_unpacker_leaves_no_part_of_a_layer() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let (bytes, ends) = sample();
    let diff_id = Digest::of(&bytes);
    let every = proof::count(1, 4);
    for end in ends.into_iter().step_by(every) {
        let mut child = spawn(&path);
        assert!(wait_for(&mut child, "opened"));
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes[..end]).unwrap();
        // When the pipe is empty the child has read everything, and waits for more.
        while rustix::io::ioctl_fionread(&stdin).unwrap() > 0 {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(names(&path.join("layers")), [""; 0], "killed at {end}");
        assert_whole(&path, &diff_id);
    }
    let mut complete = 0;
    let kills = proof::count(200, 20);
    for kill in 0..kills {
        let mut child = spawn(&path);
        assert!(wait_for(&mut child, "opened"));
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes).unwrap();
        drop(stdin);
        thread::sleep(Duration::from_micros(kill * 30_000 / kills));
        child.kill().unwrap();
        child.wait().unwrap();
        complete += names(&path.join("layers")).len();
        assert_whole(&path, &diff_id);
        open(&path)
            .sweep::<LayerError>(|| Ok(HashSet::new()))
            .unwrap();
        assert_eq!(names(&path.join("layers")), [""; 0]);
    }
    println!("{complete} of {kills} layers were complete");
    // A process that is not killed finishes, after all of these.
    let mut child = spawn(&path);
    assert!(wait_for(&mut child, "opened"));
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(wait_for(&mut child, "done"));
    child.wait().unwrap();
    assert_eq!(names(&path.join("layers")).len(), 1);
    assert_whole(&path, &diff_id);
}

/// A reader that returns bytes only when signalled.
struct Gate {
    open: mpsc::Receiver<()>,
    bytes: io::Cursor<Vec<u8>>,
}

impl Read for Gate {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Signalled, or the sender is gone.
        self.open.recv().unwrap_or_default();
        self.bytes.read(into)
    }
}

#[test]
fn two_who_want_one_layer_unpack_it_once() {
    let folder = TempDir::new().unwrap();
    // Like two processes, each with its own store.
    let stores = [open(folder.path()), open(folder.path())];
    let (bytes, _) = sample();
    let diff_id = Digest::of(&bytes);
    let stop = CancellationToken::new();
    let (gate, waiting) = mpsc::channel();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut tar = Gate {
                open: waiting,
                bytes: io::Cursor::new(bytes.clone()),
            };
            stores[0].add(&diff_id, &mut tar, &stop).unwrap().bytes
        });
        while names(&folder.path().join("tmp")).is_empty() {
            thread::yield_now();
        }
        let second = scope.spawn(|| {
            // Reading would fail: it gets the layer that the first has made.
            let mut none = io::Cursor::new(Vec::new());
            stores[1].add(&diff_id, &mut none, &stop).unwrap().bytes
        });
        // A third one opens the store, and removes nothing that is being made.
        drop(open(folder.path()));
        assert_eq!(names(&folder.path().join("tmp")).len(), 1);
        drop(gate);
        assert_eq!(first.join().unwrap(), second.join().unwrap());
    });
    assert_whole(folder.path(), &diff_id);
    assert_eq!(names(&folder.path().join("locks")), [""; 0]);
}

#[tokio::test]
async fn a_claim_waits_for_the_one_before_it() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let (bytes, _) = sample();
    let diff_id = Digest::of(&bytes);
    let stop = CancellationToken::new();
    let Claim::Vacant(vacant) = store.claim(&diff_id, Present::Use, &stop).await.unwrap() else {
        panic!("the layer is there");
    };
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let refused = store.claim(&diff_id, Present::Use, &cancelled).await;
    assert!(matches!(refused, Err(LayerError::Cancelled)));
    // After a failure the next task unpacks the layer.
    let failed = vacant.unpack(&mut &bytes[..1_000], &stop);
    assert!(matches!(failed, Err(LayerError::Refused { .. })));
    let Claim::Vacant(vacant) = store.claim(&diff_id, Present::Use, &stop).await.unwrap() else {
        panic!("the layer is there");
    };
    let other = store.clone();
    let (claim, held) = tokio::join!(other.claim(&diff_id, Present::Use, &stop), async {
        let stop = stop.clone();
        let work = move || vacant.unpack(&mut &bytes[..], &stop);
        tokio::task::spawn_blocking(work).await.unwrap()
    });
    assert!(matches!(claim, Ok(Claim::Present(_))));
    assert_eq!(held.unwrap().diff_id, diff_id);
}

#[test]
fn layers_in_use_or_on_record_are_not_swept() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let stop = CancellationToken::new();
    let add = |name: &str| {
        let bytes = layer(&[file(name, "12345")]);
        let diff_id = Digest::of(&bytes);
        store.add(&diff_id, &mut &bytes[..], &stop).unwrap()
    };
    let (recorded, used, unused) = (add("recorded"), add("used"), add("unused"));
    let recorded = recorded.diff_id;
    drop(unused);
    // Another process sweeps.
    let sweeper = open(folder.path());
    let pruned = sweeper.sweep::<LayerError>(|| Ok(HashSet::from([recorded])));
    assert_eq!(
        pruned.unwrap(),
        Pruned {
            layers: 1,
            bytes: 5
        }
    );
    assert!(store.find(&recorded).unwrap().is_some());
    assert!(store.find(&used.diff_id).unwrap().is_some());
    // A layer that is recorded between the first and the second call of `marks` stays.
    let mut asked = 0;
    drop(used);
    let pruned = sweeper.sweep::<LayerError>(|| {
        asked += 1;
        Ok(if asked == 1 {
            HashSet::new()
        } else {
            HashSet::from([recorded])
        })
    });
    assert_eq!(pruned.unwrap().layers, 1);
    assert_eq!(
        names(&folder.path().join("layers")),
        [short_name(&recorded)]
    );
    // If the marks cannot be read, nothing is removed.
    let busy = LayerError::Busy {
        waited: Duration::ZERO,
    };
    let failed = sweeper.sweep(|| {
        Err(LayerError::Busy {
            waited: Duration::ZERO,
        })
    });
    assert_eq!(failed.unwrap_err().to_string(), busy.to_string());
    assert_eq!(names(&folder.path().join("layers")).len(), 1);
    assert_eq!(names(&folder.path().join("tmp")), [""; 0]);
}

#[test]
fn a_store_of_others_or_of_the_future_is_refused() {
    let folder = TempDir::new().unwrap();
    let (bytes, _) = sample();
    let diff_id = Digest::of(&bytes);
    let stop = CancellationToken::new();
    let store = open(folder.path());
    drop(store.add(&diff_id, &mut &bytes[..], &stop).unwrap());
    let single = LayerStore::open(folder.path(), Owners::Single, &Limits::default());
    assert!(matches!(
        single,
        Err(LayerError::OtherOwners { keeps: true })
    ));
    // A layer whose description is missing, newer, or of another layer is not used.
    let description = folder
        .path()
        .join("layers")
        .join(short_name(&diff_id))
        .join(DESCRIPTION);
    let text = fs::read_to_string(&description).unwrap();
    let other = Digest::of(b"other").hex();
    for damaged in [
        text.replace(&diff_id.hex(), &other),
        text.replace("\"version\":1", "\"version\":2"),
        String::new(),
    ] {
        fs::write(&description, damaged).unwrap();
        assert!(matches!(
            store.find(&diff_id),
            Err(LayerError::Damaged { .. })
        ));
    }
    fs::write(
        folder.path().join(FORMAT),
        "{\"version\":2,\"owners_kept\":true}",
    )
    .unwrap();
    let newer = LayerStore::open(folder.path(), Owners::Keep, &Limits::default());
    assert!(matches!(newer, Err(LayerError::Damaged { .. })));
}

#[test]
fn deep_and_locked_trees_are_removed() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let scratch = store.scratch().unwrap();
    let own = folder
        .path()
        .join("tmp")
        .join(&names(&folder.path().join("tmp"))[0]);
    for at in 0..3 {
        fs::create_dir_all(own.join(format!("moved-{at}/{}", "d/".repeat(300)))).unwrap();
    }
    fs::write(own.join("moved-1/d/file"), "x").unwrap();
    std::os::unix::fs::symlink("/", own.join("moved-1/link")).unwrap();
    drop(scratch);
    assert_eq!(names(&folder.path().join("tmp")), [""; 0]);
    assert!(Path::new("/etc").exists());
}

#[test]
fn a_layer_can_be_found_from_the_moment_it_is_there() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let stop = CancellationToken::new();
    for at in 0..10 {
        let bytes = layer(&[file(format!("{at}"), "x")]);
        let diff_id = Digest::of(&bytes);
        thread::scope(|scope| {
            let finder = scope.spawn(|| while store.find(&diff_id).unwrap().is_none() {});
            store.add(&diff_id, &mut &bytes[..], &stop).unwrap();
            finder.join().unwrap();
        });
    }
}
