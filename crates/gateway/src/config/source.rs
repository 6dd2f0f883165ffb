//! Which files are read, in which order, and which are trusted.
//!
//! From lowest to highest precedence: `~/.kode.json`, `./.mcprc`, `./.kode.json`, `./.mcp.json`,
//! this folder's section of `~/.kode.json`, `./gantry.toml`. A later entry replaces an earlier one
//! of the same name as a whole. Files given by flags replace all of them. Entry points:
//! [`discover`], [`named`].

use std::path::{Path, PathBuf};

use super::entry::Owner;
use super::file::Root;

/// One file, and where its servers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file, as shown.
    pub path: PathBuf,
    /// Where its servers are.
    pub root: Root,
    /// Whether it is trusted.
    pub trust: Trust,
    /// Whether it must exist.
    pub required: bool,
}

/// Whether a file is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// By the user: it is in their home, or they named it.
    Person,
    /// Not yet: it came with the folder, and anyone may have written it.
    Nobody,
}

impl Source {
    /// Returns whether it was found in the user's home, and that is not this folder.
    pub fn is_of_home(&self, folder: &Path) -> bool {
        let is_elsewhere = self.path.is_absolute() && self.path.parent() != Some(folder);
        self.trust == Trust::Person && !self.required && is_elsewhere
    }

    /// Returns the file's owner, which decides how unknown keys are treated.
    pub fn owner(&self) -> Owner {
        match self.root {
            Root::Own => Owner::Gantry,
            Root::Servers | Root::MaybeServers | Root::Whole | Root::Project(_) => Owner::Client,
        }
    }
}

/// Returns the files of a folder and a home, lowest precedence first.
pub fn discover(folder: &Path, home: Option<&Path>) -> Vec<Source> {
    let is_home = home.is_some_and(|home| home == folder);
    // In the home folder, its files are the user's own.
    let trust = if is_home {
        Trust::Person
    } else {
        Trust::Nobody
    };
    let here = |name: &str, root| Source {
        path: PathBuf::from(name),
        root,
        trust,
        required: false,
    };
    let at_home = |root| {
        home.map(|home| Source {
            path: home.join(".kode.json"),
            root,
            trust: Trust::Person,
            required: false,
        })
    };
    let mut sources = Vec::new();
    sources.extend(at_home(Root::MaybeServers));
    sources.push(here(".mcprc", Root::Whole));
    if !is_home {
        sources.push(here(".kode.json", Root::MaybeServers));
    }
    sources.push(here(".mcp.json", Root::Servers));
    sources.extend(at_home(Root::Project(folder.to_owned())));
    sources.push(here("gantry.toml", Root::Own));
    sources
}

/// Returns the files named by the user, lowest precedence first.
pub fn named(paths: &[PathBuf]) -> Vec<Source> {
    let sources = paths.iter().map(|path| Source {
        path: path.clone(),
        root: Root::of(path),
        trust: Trust::Person,
        required: true,
    });
    sources.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // rows 2.17 and 2.18
    #[test]
    fn the_projects_files_are_stronger_than_the_homes_and_vouched_for_by_nobody() {
        let sources = discover(Path::new("/srv/shop"), Some(Path::new("/home/a")));
        let shown: Vec<(String, Trust)> = sources
            .iter()
            .map(|source| (source.path.display().to_string(), source.trust))
            .collect();
        let expected = [
            ("/home/a/.kode.json", Trust::Person),
            (".mcprc", Trust::Nobody),
            (".kode.json", Trust::Nobody),
            (".mcp.json", Trust::Nobody),
            ("/home/a/.kode.json", Trust::Person),
            ("gantry.toml", Trust::Nobody),
        ];
        let expected = expected.map(|(path, trust)| (path.to_owned(), trust));
        assert_eq!(shown, expected);
    }

    #[test]
    fn in_the_home_itself_every_file_is_the_persons_own() {
        let sources = discover(Path::new("/home/a"), Some(Path::new("/home/a")));
        assert!(sources.iter().all(|source| source.trust == Trust::Person));
        let kode = sources
            .iter()
            .filter(|source| source.root == Root::MaybeServers);
        assert_eq!(kode.count(), 1, "no file is read twice for the same");
    }
}
