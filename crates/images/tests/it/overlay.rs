//! What an overlay of stored layers shows, mounted as root and by a plain user in a user namespace: the
//! same as the flat root, and nothing of what was deleted.

use std::path::Path;
use std::process::Command;

use gantry_images::{AtPath, Limits, RootLayers};
use tokio_util::sync::CancellationToken;

use crate::arena::{Arena, as_nobody};
use crate::saved::save;
use crate::tarball::{file, folder, hard_link, layer, symlink};

/// Mounts the layers in a mount namespace of their own and returns what there is to see.
fn mounted(arena: &Arena, root: &RootLayers, namespaces: &str) -> String {
    let point = arena.path("work-mount");
    std::fs::create_dir_all(&point).unwrap();
    let script = format!(
        "cd {} && mount -t overlay overlay -o userxattr,lowerdir={} {} && cd {} && {LIST}",
        root.base.display(),
        root.lower.join(":"),
        point.display(),
        point.display(),
    );
    run(Command::new("unshare").args([namespaces, "sh", "-c", &script]))
}

/// Names, types and contents of everything below the working folder.
const LIST: &str = r"find . -mindepth 1 \( -type f -printf '%P: ' -exec cat {} \; -printf '\n' \) \
    -o -printf '%P %y %l\n' | LC_ALL=C sort";

fn listed(folder: &Path) -> String {
    run(Command::new("sh").arg("-c").arg(LIST).current_dir(folder))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn layers() -> Vec<Vec<u8>> {
    vec![
        layer(&[
            file("a/one", "1"),
            file("a/two", "2"),
            file("b/lower", "x"),
            file("c/lower", "x"),
            file("d/sub/lower", "x"),
            file("e", "a file"),
            symlink("f", "a/one"),
            folder("g"),
            file("kept", "kept"),
            hard_link("also", "kept"),
        ]),
        layer(&[
            file("a/.wh.one", ""),
            file("b/.wh..wh..opq", ""),
            file("b/upper", "y"),
            file(".wh.c", ""),
            file(".wh.d", ""),
            folder("d"),
            file("d/upper", "y"),
            file(".wh.e", ""),
            file("e/inner", "y"),
            file(".wh.f", ""),
            file("g", "a file"),
        ]),
        layer(&[
            file("a/three", "3"),
            file("c/again", "z"),
            file(".wh.nothing", ""),
        ]),
    ]
}

const SEEN: &str = "\
a d 
a/three: 3
a/two: 2
also: kept
b d 
b/upper: y
c d 
c/again: z
d d 
d/upper: y
e d 
e/inner: y
g: a file
kept: kept
";

fn check(namespaces: &str) {
    let arena = Arena::new(Limits::default());
    let image = arena
        .import(&save("overlay:1", &layers()))
        .unwrap()
        .remove(0);
    let root = arena.store.root(&image).unwrap();
    assert_eq!(root.lower.len(), 3);
    assert_eq!(mounted(&arena, &root, namespaces), SEEN);
    assert_eq!(listed(&arena.flat(&root, "flat")), SEEN);

    // A part of it is copied as the whole shows it.
    let whole = arena.flat(&root, "flat");
    for name in ["a", "b", "c", "d", "e", "g", "nowhere"] {
        let copied = arena.path(&format!("copied-{name}"));
        std::fs::create_dir(&copied).unwrap();
        let stop = CancellationToken::new();
        let path = Path::new("/").join(name);
        root.copy_folder(&path, &copied, None, 1 << 20, &stop)
            .unwrap();
        let part = whole.join(name);
        let (seen, at) = match (part.is_dir(), part.exists()) {
            (true, _) => (listed(&part), AtPath::Folder),
            (false, true) => (String::new(), AtPath::File(path.clone())),
            (false, false) => (String::new(), AtPath::Nothing),
        };
        assert_eq!(listed(&copied), seen, "{name}");
        assert_eq!(root.at_path(&path).unwrap(), at, "{name}");
    }
    for (path, at) in [
        ("/g/inner", AtPath::File("/g".into())),
        ("/e/nothing", AtPath::Nothing),
        ("/f/inner", AtPath::Nothing),
    ] {
        assert_eq!(root.at_path(Path::new(path)).unwrap(), at, "{path}");
    }

    // An opaque root hides every layer below, which overlay itself does not ask.
    let mut more = layers();
    more.push(layer(&[file(".wh..wh..opq", ""), file("only", "this")]));
    more.push(layer(&[file("and", "that")]));
    let image = arena.import(&save("overlay:2", &more)).unwrap().remove(0);
    let root = arena.store.root(&image).unwrap();
    let seen = "and: that\nonly: this\n";
    assert_eq!(mounted(&arena, &root, namespaces), seen);
    assert_eq!(listed(&arena.flat(&root, "opaque")), seen);

    // More than a hundred layers, some of them twice, fit into one mount.
    let mut many = layers();
    many.extend((0..110).map(|at| layer(&[file(format!("n/{at}"), "n")])));
    many.extend(many.clone().drain(3..8));
    let image = arena.import(&save("overlay:3", &many)).unwrap().remove(0);
    assert_eq!(image.layers.len(), 118);
    let root = arena.store.root(&image).unwrap();
    assert_eq!(root.lower.len(), 113);
    let shown = mounted(&arena, &root, namespaces);
    assert_eq!(shown, listed(&arena.flat(&root, "many")));
    assert!(
        shown.contains("n/109: n\n") && shown.ends_with("\n"),
        "{shown}"
    );
}

#[test]
fn deleted_files_stay_hidden_in_a_mount_by_root() {
    check("-m");
}

#[test]
fn deleted_files_stay_hidden_in_a_user_namespace() {
    as_nobody(|| check("-Urm"));
}

#[test]
fn root_may_mount_in_a_user_namespace_too() {
    check("-Urm");
}
