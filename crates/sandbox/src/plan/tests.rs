//! Plans of the profiles on hosts with different features.

use super::*;

fn command(program: &str, path: Option<&str>) -> Command {
    Command {
        name: "server".to_owned(),
        program: program.to_owned(),
        env: path
            .map(|path| ("PATH".to_owned(), path.to_owned()))
            .into_iter()
            .collect(),
        profile: Profile::Local,
        network: Network::Full,
        ..Command::default()
    }
}

#[test]
fn searches_the_path_of_the_command_only() {
    let paths = |program, path| candidates(&command(program, path));
    assert_eq!(paths("a/b", Some("/x")), [Path::new("a/b")]);
    // An empty entry would mean the working directory: it is not searched.
    assert_eq!(
        paths("b", Some("/x::/y")),
        [Path::new("/x/b"), Path::new("/y/b")]
    );
    assert_eq!(paths("b", None).len(), 3);
    assert!(paths("", Some("/x")).is_empty());
}

#[test]
fn tells_failed_steps_apart() {
    // fault P1
    let command = command("tool", Some("/x:/y"));
    let shown = |stage, value, data| {
        failure(
            &command,
            Record {
                kind: 0,
                stage,
                value,
                data,
            },
        )
        .to_string()
    };
    assert_eq!(
        shown(STAGE_EXEC, 2, 0),
        "program `tool` not found (searched `/x:/y`)"
    );
    assert_eq!(
        shown(STAGE_EXEC, 13, 1),
        "program `/y/tool` cannot be executed"
    );
    assert_eq!(
        shown(STAGE_INTERPRETER, 2, 0),
        "the interpreter of program `/x/tool` does not exist"
    );
    assert_eq!(
        shown(STAGE_CWD, 2, 0),
        "working directory `/` does not exist"
    );
    assert_eq!(
        shown(STAGE_CWD, 13, 0),
        "working directory `/` cannot be entered"
    );
    assert_eq!(shown(STAGE_USER, 1, 0), "cannot become the tree's own user");
}

#[test]
fn a_server_keeps_its_user() {
    assert_eq!(
        FIRST_UID + hash("brave_search") % UIDS,
        FIRST_UID + hash("brave_search") % UIDS
    );
    assert_ne!(hash("a"), hash("b"));
    assert!((FIRST_UID..FIRST_UID + UIDS).contains(&(FIRST_UID + hash("x") % UIDS)));
}

#[test]
fn what_is_needed_stays_visible_below_a_private_directory() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let shown = |readable: &[&Path], writable: &[PathBuf]| {
        let private = private_dirs(readable, writable);
        private
            .into_iter()
            .find(|private| private.target == Path::new("/tmp"))
            .map(|tmp| tmp.kept)
    };
    let kept = |path: &Path, writable| Kept {
        path: path.to_owned(),
        writable,
    };
    let outer = directory.path();
    assert_eq!(
        shown(&[&inner, outer, Path::new("/usr")], &[]),
        Some(vec![kept(outer, false)])
    );
    // Read-only around writable: both, the outer one first.
    let both = vec![kept(outer, false), kept(&inner, true)];
    assert_eq!(shown(&[outer], std::slice::from_ref(&inner)), Some(both));
    assert_eq!(
        shown(&[&inner], &[outer.to_owned()]),
        Some(vec![kept(outer, true)])
    );
    // A directory that is itself needed is not covered.
    assert_eq!(shown(&[Path::new("/tmp")], &[]), None);
}
