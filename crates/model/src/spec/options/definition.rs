//! The definition of an option, and what is derived from it: its value in a spec, its default, the
//! document of all options.

use serde_json::{Map, Value as Json};

use super::{Field, Kind, options};
use crate::spec::{ImageLaunch, Launch, RemoteLaunch, ServerSpec, Start, size};

/// One option of a server.
pub struct ServerOption {
    /// Its name, in files and over REST; dots separate tables.
    pub name: &'static str,
    /// The type and range of its value.
    pub kind: Kind,
    /// Its description, in Markdown.
    pub doc: &'static str,
    /// Names that other clients use; accepted silently.
    pub spellings: &'static [&'static str],
    /// Former names; accepted with a warning.
    pub old_names: &'static [&'static str],
    /// What applies without a value, if that is worth mentioning.
    pub absent: Option<&'static str>,
    field: for<'s> fn(&'s mut ServerSpec) -> Option<Field<'s>>,
}

/// Which servers an option applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drivers {
    /// All of them.
    All,
    /// Those that are started here from a command.
    Process,
    /// Those that are images.
    Image,
    /// Commands and images that are started here.
    Here,
    /// Remote servers.
    Remote,
}

/// Begins the definition of an option.
pub(in crate::spec) const fn option(
    name: &'static str,
    kind: Kind,
    doc: &'static str,
    field: for<'s> fn(&'s mut ServerSpec) -> Option<Field<'s>>,
) -> ServerOption {
    ServerOption {
        name,
        kind,
        doc,
        spellings: &[],
        old_names: &[],
        absent: None,
        field,
    }
}

impl ServerOption {
    pub(in crate::spec) const fn spellings(mut self, spellings: &'static [&'static str]) -> Self {
        self.spellings = spellings;
        self
    }

    pub(in crate::spec) const fn old_names(mut self, old_names: &'static [&'static str]) -> Self {
        self.old_names = old_names;
        self
    }

    pub(in crate::spec) const fn absent(mut self, absent: &'static str) -> Self {
        self.absent = Some(absent);
        self
    }

    /// Returns every accepted name: the name itself, then spellings, then old names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let others = self.spellings.iter().chain(self.old_names).copied();
        std::iter::once(self.name).chain(others)
    }

    /// Returns the value in a spec, `null` if there is none; `None` if the option does not apply.
    pub fn get(&self, spec: &mut ServerSpec) -> Option<Json> {
        (self.field)(spec).map(|field| field.get())
    }

    /// Sets a value in a spec to which the option applies.
    pub fn set(&self, spec: &mut ServerSpec, value: Json) -> Result<(), serde_json::Error> {
        match (self.field)(spec) {
            Some(field) => field.set(value),
            None => Ok(()),
        }
    }

    /// Returns which servers it applies to.
    pub fn drivers(&self) -> Drivers {
        let [process, _, remote, image] = samples().map(|mut spec| self.get(&mut spec).is_some());
        match (process, image, remote) {
            (true, false, false) => Drivers::Process,
            (false, true, false) => Drivers::Image,
            (true, true, false) => Drivers::Here,
            (false, false, true) => Drivers::Remote,
            (_, _, true) | (false, false, false) => Drivers::All,
        }
    }

    /// Formats a value in one line; `None` if it is not worth showing.
    pub fn shown(&self, value: &Json) -> Option<String> {
        let text = |value: &Json| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        match value {
            Json::Null => self.absent.map(str::to_owned),
            Json::Array(list) if list.is_empty() => self.absent.map(str::to_owned),
            Json::Object(table) if table.is_empty() => self.absent.map(str::to_owned),
            Json::Array(list) => Some(list.iter().map(text).collect::<Vec<_>>().join(", ")),
            Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
                Some(match (self.kind, value.as_u64()) {
                    (Kind::Size(..), Some(bytes)) => size::show(bytes),
                    _ => text(value),
                })
            }
        }
    }

    /// Returns the default in Markdown.
    pub fn default_shown(&self) -> String {
        let values = samples().map(|mut spec| {
            let value = self.get(&mut spec)?;
            let word = self.shown(&value).filter(|shown| !shown.is_empty())?;
            let is_word =
                matches!(value, Json::Null) || word.contains(' ') || self.absent == Some(&word);
            Some(if is_word { word } else { format!("`{word}`") })
        });
        let [local, hosted, far, image] = values;
        // Defaults of hosted servers also apply to images.
        let image = image.filter(|image| Some(image) != hosted.as_ref());
        let kinds = [
            ("", local),
            ("hosted", hosted),
            ("remote", far),
            ("image", image),
        ];
        let mut shown = String::new();
        let mut first = None;
        for (name, value) in kinds {
            let Some(value) = value else { continue };
            match &first {
                None => {
                    shown.clone_from(&value);
                    first = Some(value);
                }
                Some(first) if *first != value && value != format!("`{name}`") => {
                    shown.push_str(&format!("; {name}: {value}"));
                }
                Some(_) => {}
            }
        }
        match shown.is_empty() {
            true => "–".to_owned(),
            false => shown,
        }
    }
}

/// Returns a local, a hosted and a remote server and an image with all defaults.
pub(super) fn samples() -> [ServerSpec; 4] {
    let process = |profile: &str| {
        let launch = serde_json::json!({"command": "", "profile": profile});
        let launch = serde_json::from_value(launch).expect("a command is a launch");
        Launch::Process(launch)
    };
    let launches = [
        process("local"),
        process("hosted"),
        Launch::Remote(RemoteLaunch::new("")),
        Launch::Image(ImageLaunch::new("")),
    ];
    launches.map(|launch| {
        let name = "sample".parse().expect("a name");
        let mut spec = ServerSpec::new(name, launch);
        spec.start = Start::Eager;
        spec.shown()
    })
}

/// Returns the option with any of its names.
pub fn named(name: &str) -> Option<&'static ServerOption> {
    options().find(|option| option.names().any(|known| known == name))
}

/// Returns every option with a value in a spec, as a document in the form of files and REST.
/// Includes secrets.
pub fn document(spec: &ServerSpec) -> Map<String, Json> {
    let mut copy = spec.clone();
    let mut document = Map::new();
    for option in options() {
        if let Some(value) = option.get(&mut copy).filter(|value| !value.is_null()) {
            put(&mut document, option.name, value);
        }
    }
    document
}

/// Sets a value at a dotted path of a document.
pub fn put(document: &mut Map<String, Json>, path: &str, value: Json) {
    match path.split_once('.') {
        None => {
            document.insert(path.to_owned(), value);
        }
        Some((table, rest)) => {
            let below = document.entry(table).or_insert_with(|| Map::new().into());
            if !below.is_object() {
                *below = Map::new().into();
            }
            if let Some(below) = below.as_object_mut() {
                put(below, rest, value);
            }
        }
    }
}
