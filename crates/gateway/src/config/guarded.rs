//! The paths on this machine that no hosted server may write to, with symbolic links resolved.
//!
//! The rule itself is in the model ([`gantry_model::spec::Guarded`]); this module collects the
//! paths. Entry points: [`paths`] and [`check`].

use std::path::{Path, PathBuf};

use gantry_model::spec::{Guarded, GuardedPath, Launch, ServerSpec, SpecError};

/// The maximum number of bytes read of the user list.
const LONGEST_LIST: u64 = 1 << 20;

/// Returns the guarded paths: the data folder, the configuration files, whether or not they exist,
/// and every home on this machine.
pub fn paths(
    data: &Path,
    files: impl IntoIterator<Item = PathBuf>,
    home: Option<&Path>,
) -> Guarded {
    let files = files
        .into_iter()
        .map(|file| (file, GuardedPath::ConfigurationFile));
    let homes = homes().into_iter().chain(home.map(Path::to_owned));
    let homes = homes.map(|home| (home, GuardedPath::Home));
    let all = [(data.to_owned(), GuardedPath::DataFolder)]
        .into_iter()
        .chain(files)
        .chain(homes);
    // Both the path and its link target: a server may be given either.
    let both = all.flat_map(|(path, what)| {
        let real = resolved(&path);
        let other = (real != path).then_some((real, what));
        [Some((path, what)), other].into_iter().flatten()
    });
    Guarded::new(both)
}

/// Checks a spec with its paths on this machine, following symbolic links.
pub fn check(guarded: &Guarded, spec: &ServerSpec) -> Result<(), SpecError> {
    spec.check_writable(guarded)?;
    let mut real = spec.clone();
    if let Launch::Process(process) = &mut real.launch
        && let Some(cwd) = &mut process.cwd
    {
        *cwd = resolved(cwd);
    }
    real.check_writable(guarded)
}

/// Resolves a path; a missing part is appended to the nearest existing folder.
fn resolved(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut there = path;
    loop {
        if let Ok(real) = there.canonicalize() {
            return rest
                .iter()
                .rev()
                .fold(real, |path: PathBuf, name| path.join(name));
        }
        match (there.parent(), there.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name.to_owned());
                there = parent;
            }
            _ => return path.to_owned(),
        }
    }
}

/// Returns the homes of users and of root, but not those of services, which their modes protect.
fn homes() -> Vec<PathBuf> {
    use std::io::Read as _;
    let mut users = String::new();
    let file = std::fs::File::open("/etc/passwd");
    let read = file.and_then(|file| file.take(LONGEST_LIST).read_to_string(&mut users));
    if read.is_err() {
        users.clear();
    }
    people(&users)
}

fn people(users: &str) -> Vec<PathBuf> {
    let homes = users.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, uid, _, _, home, _] = fields[..] else {
            return None;
        };
        let uid: u32 = uid.parse().ok()?;
        let is_person = uid == 0 || (1000..60_000).contains(&uid);
        (is_person && home.starts_with('/')).then(|| PathBuf::from(home))
    });
    homes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_those_of_people() {
        let users = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/usr/sbin:/bin/false\n\
                     ann:x:1000:1000:,,:/home/ann:/bin/sh\nnobody:x:65534:65534::/nonexistent:/x\nodd\n";
        assert_eq!(people(users), ["/root", "/home/ann"].map(PathBuf::from));
    }

    #[test]
    fn a_link_into_a_guarded_folder_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (data, link, free) = (place.join("data"), place.join("link"), place.join("free"));
        std::fs::create_dir(&data).unwrap();
        std::fs::create_dir(&free).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        let guarded = paths(&data, [place.join("sub/gantry.toml")], None);
        let told = |cwd: &Path| {
            let launch = serde_json::json!({"command": "x", "cwd": cwd});
            let launch = serde_json::from_value(launch).unwrap();
            let spec = ServerSpec::process("a".parse().unwrap(), launch);
            check(&guarded, &spec).map_err(|error| error.field())
        };
        assert_eq!(told(&free), Ok(()));
        assert_eq!(told(&free.join("not/there")), Ok(()));
        for refused in [
            &link,
            &link.join("below"),
            &data,
            &place,
            &place.join("sub"),
        ] {
            assert_eq!(told(refused), Err("cwd".into()), "{}", refused.display());
        }
    }
}
