//! Builds a view: which items are granted, under which names, and which lost their names to others.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use gantry_model::grant::{AccessRequest, GrantSet, MethodClass, ReadOnlyHint};
use gantry_model::id::ServerName;
use gantry_model::naming::{self, Expose, Form, Names, Outcome, Rules, ToolId};

use super::{Collision, Found, Listed, NotGranted, Pattern, View, is_in};
use crate::catalog::template::Template;
use crate::catalog::{CatalogEntry, Snapshot};
use crate::request::Scope;
use crate::tool::Item;

/// The most hidden resources that are reported.
const MOST_COLLISIONS: usize = 1_024;

/// A tool or a prompt without a name yet.
struct Unnamed<T> {
    id: ToolId,
    thing: T,
    listed: bool,
    /// What a tool says of itself.
    hint: ReadOnlyHint,
}

/// The named tools or prompts of a view.
struct NamedItems<T> {
    by_name: HashMap<Box<str>, T>,
    others: HashMap<Box<str>, NotGranted>,
    listed: Vec<(Arc<str>, T)>,
    /// All granted ones, in order, and whether each is listed now.
    own: Vec<(ToolId, bool)>,
}

impl View {
    /// Builds the view of these grants.
    pub(in crate::catalog) fn build(
        rules: Rules,
        snapshot: Arc<Snapshot>,
        grants: Arc<GrantSet>,
        scope: Scope,
    ) -> Self {
        let mut builder = Builder {
            rules,
            grants: &grants,
            scope: &scope,
            warnings: Vec::new(),
            nameless: Vec::new(),
            collisions: Vec::new(),
        };
        let tools = builder.name(MethodClass::Tool, tools(&snapshot));
        let prompts = builder.name(MethodClass::Prompt, prompts(&snapshot));
        let listed_prompts = prompts
            .listed
            .into_iter()
            .map(|(name, (server, place, own))| {
                let name = Some(name).filter(|name| **name != *own);
                Listed {
                    server,
                    place,
                    name,
                }
            });
        let listed_prompts = listed_prompts.collect();
        let resources = builder.resources(&snapshot);
        let (patterns, listed_templates) = builder.templates(&snapshot);
        let (mut warnings, nameless) = (builder.warnings, builder.nameless);
        let collisions = builder.collisions;
        warnings.extend(collisions.iter().map(Collision::to_string));
        Self {
            tools: tools.by_name,
            other_tools: tools.others,
            listed_tools: tools.listed,
            own_tools: tools.own,
            shaped_names: Default::default(),
            rules,
            prompts: prompts
                .by_name
                .into_iter()
                .map(|(name, (server, _, own))| (name, (server, own)))
                .collect(),
            other_prompts: prompts.others,
            listed_prompts,
            resources: resources.own,
            other_resources: resources.others,
            listed_resources: resources.listed,
            patterns,
            listed_templates,
            warnings,
            nameless,
            collisions,
            pages: Default::default(),
            snapshot,
            grants,
            scope,
        }
    }
}

struct Builder<'a> {
    rules: Rules,
    grants: &'a GrantSet,
    scope: &'a Scope,
    warnings: Vec<String>,
    nameless: Vec<(ToolId, String)>,
    collisions: Vec<Collision>,
}

#[derive(Default)]
struct Resources {
    own: HashMap<Arc<str>, usize>,
    others: HashMap<Arc<str>, usize>,
    listed: Vec<Listed>,
}

impl Builder<'_> {
    fn shows<T>(&self, class: MethodClass, thing: &Unnamed<T>) -> bool {
        let ToolId { server, tool } = &thing.id;
        let asked = AccessRequest::listing(class, server, Some(tool)).with_hint(thing.hint);
        self.grants.decide(&asked).verdict.is_open()
    }

    /// Names the granted items; others are kept separately, to be refused by name.
    fn name<T: Clone>(
        &mut self,
        class: MethodClass,
        things: impl Iterator<Item = Unnamed<T>>,
    ) -> NamedItems<T> {
        let things = things.filter(|thing| is_in(self.scope, &thing.id.server));
        let (own, others): (Vec<_>, Vec<_>) = things.partition(|thing| self.shows(class, thing));
        let names = self.exposed(class, own.iter().map(|thing| &thing.id));
        let mut named = NamedItems {
            by_name: HashMap::new(),
            others: HashMap::new(),
            listed: Vec::new(),
            own: own
                .iter()
                .map(|thing| (thing.id.clone(), thing.listed))
                .collect(),
        };
        let mut unshortened = Vec::new();
        for (thing, name) in own.into_iter().zip(names) {
            named
                .by_name
                .insert(thing.id.to_string().into(), thing.thing.clone());
            if let Some(name) = name {
                named
                    .by_name
                    .insert(name.as_ref().into(), thing.thing.clone());
                let long = self.unshortened(class, &thing.id);
                unshortened.extend(long.map(|long| (long, thing.thing.clone())));
                if thing.listed {
                    named.listed.push((name, thing.thing));
                }
            }
        }
        // An item that has such a name as its own keeps it.
        for (long, thing) in unshortened {
            named.by_name.entry(long.into()).or_insert(thing);
        }
        for other in others {
            let unshortened = self.unshortened(class, &other.id);
            let ToolId { server, tool } = other.id;
            let exposed = match (self.scope, self.rules.expose) {
                (Scope::Server(_), _) => self.own_name(class, &tool).to_string(),
                (Scope::All, Expose::Qualified) => naming::encode(self.form(class), &server, &tool),
                (Scope::All, Expose::Bare) => naming::encode_bare(self.form(class), &tool),
            };
            let names = [format!("{server}:{tool}"), exposed];
            for name in names.into_iter().chain(unshortened) {
                let other = NotGranted {
                    server: server.clone(),
                    item: Arc::clone(&tool),
                };
                named.others.entry(name.into()).or_insert(other);
            }
        }
        named
    }

    /// Returns the form of names: only those of tools reach models, which limit their length.
    fn form(&self, class: MethodClass) -> Form {
        if class == MethodClass::Tool {
            self.rules.form
        } else {
            Form::of(self.rules.form.target)
        }
    }

    /// Returns the name of an item at its server's own endpoint: the server's name, unless it is a
    /// tool's and too long.
    fn own_name(&self, class: MethodClass, name: &Arc<str>) -> Arc<str> {
        if class != MethodClass::Tool || name.len() <= self.form(class).limit() {
            Arc::clone(name)
        } else {
            naming::encode_bare(self.form(class), name).into()
        }
    }

    /// Returns the long form of a shortened name, which is accepted as well.
    fn unshortened(&self, class: MethodClass, id: &ToolId) -> Option<String> {
        let form = self.form(class);
        match (self.scope, self.rules.expose) {
            (Scope::All, Expose::Qualified) => naming::unshortened(form, &id.server, &id.tool),
            (Scope::Server(_), _) | (Scope::All, Expose::Bare) => {
                (id.tool.len() > form.limit()).then(|| id.tool.to_string())
            }
        }
    }

    /// Returns the exposed name of each; `None` for one that lost it.
    fn exposed<'i>(
        &mut self,
        class: MethodClass,
        ids: impl Iterator<Item = &'i ToolId> + Clone,
    ) -> Vec<Option<Arc<str>>> {
        // A single server uses its own names, which cannot collide; a shortened one may.
        if matches!(self.scope, Scope::Server(_)) {
            let mut taken: HashSet<Arc<str>> = ids.clone().map(|id| Arc::clone(&id.tool)).collect();
            let named = ids.map(|id| {
                let name = self.own_name(class, &id.tool);
                let is_free = name == id.tool || taken.insert(Arc::clone(&name));
                is_free.then_some(name)
            });
            return named.collect();
        }
        let alias = |id: &ToolId| {
            let alias = self.grants.alias_of(&id.server, &id.tool);
            alias.filter(|_| class == MethodClass::Tool).map(Arc::from)
        };
        let wanted = ids.clone().map(|id| (id.clone(), alias(id)));
        let rules = Rules {
            form: self.form(class),
            ..self.rules
        };
        let names = Names::build_aliased(rules, wanted);
        self.warnings
            .extend(names.warnings().iter().map(ToString::to_string));
        if class == MethodClass::Tool {
            let lost = names.warnings().iter();
            let lost = lost.filter(|lost| lost.outcome != Outcome::Repeated);
            self.nameless.extend(lost.map(|lost| {
                let (winner, name) = (lost.winner.to_string(), &lost.name);
                let why = format!("`{}` has the name `{name}`", winner.escape_debug());
                (lost.loser.clone(), why)
            }));
        }
        ids.map(|id| names.exposed(id).map(Arc::from)).collect()
    }

    /// Keeps URIs unchanged; the first server in order provides each.
    fn resources(&mut self, snapshot: &Snapshot) -> Resources {
        let mut resources = Resources::default();
        for (server, entry) in self.servers(snapshot) {
            for (place, item) in entry.catalog.resources.iter().enumerate() {
                let (class, owner) = (MethodClass::Resource, &entry.handle.name);
                if !self.grants.shows(class, owner, Some(&item.name)) {
                    resources
                        .others
                        .entry(Arc::clone(&item.name))
                        .or_insert(server);
                } else if let Some(&first) = resources.own.get(&item.name) {
                    self.lost(snapshot, server, first, item);
                } else {
                    resources.own.insert(Arc::clone(&item.name), server);
                    if entry.listed {
                        resources.listed.push(Listed {
                            server,
                            place,
                            name: None,
                        });
                    }
                }
            }
        }
        resources
    }

    fn templates(&mut self, snapshot: &Snapshot) -> (Vec<Pattern>, Vec<Listed>) {
        let mut patterns: Vec<Pattern> = Vec::new();
        let mut listed = Vec::new();
        let mut known: HashMap<Arc<str>, usize> = HashMap::new();
        for (server, entry) in self.servers(snapshot) {
            for (place, item) in entry.catalog.templates.iter().enumerate() {
                if let Some(template) = Template::parse(&item.name) {
                    patterns.push(Pattern {
                        text: Arc::clone(&item.name),
                        template,
                        server,
                    });
                }
                // Whether an expansion is granted is decided when it is requested.
                let beginning = item.name.split('{').next().unwrap_or_default();
                if !self.grants.may_read_below(&entry.handle.name, beginning) {
                    continue;
                }
                if let Some(&first) = known.get(&item.name) {
                    self.lost(snapshot, server, first, item);
                } else {
                    known.insert(Arc::clone(&item.name), server);
                    if entry.listed {
                        listed.push(Listed {
                            server,
                            place,
                            name: None,
                        });
                    }
                }
            }
        }
        (patterns, listed)
    }

    fn servers<'s>(
        &self,
        snapshot: &'s Snapshot,
    ) -> impl Iterator<Item = (usize, &'s CatalogEntry)> + use<'s> {
        let scope = self.scope.clone();
        let servers = snapshot.servers.iter().enumerate();
        servers.filter(move |(_, entry)| is_in(&scope, &entry.handle.name))
    }

    fn lost(&mut self, snapshot: &Snapshot, loser: usize, winner: usize, item: &Item) {
        let name = |server: usize| snapshot.servers[server].handle.name.clone();
        // A server may list a URI twice without a collision.
        if loser != winner && self.collisions.len() < MOST_COLLISIONS {
            self.collisions.push(Collision {
                uri: item.name.escape_debug().to_string(),
                server: name(loser),
                listed: name(winner),
            });
        }
    }
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            uri,
            server,
            listed,
        } = self;
        write!(
            f,
            "resource `{uri}` of `{server}` is not exposed: `{listed}` already offers it; \
             read it at `/mcp/servers/{server}`"
        )
    }
}

fn tools(snapshot: &Snapshot) -> impl Iterator<Item = Unnamed<Found>> {
    let natives = snapshot.natives.iter().map(|native| Unnamed {
        id: ToolId::new(ServerName::native(), Arc::clone(&native.tool().name)),
        thing: Found::Native(Arc::clone(native)),
        listed: true,
        hint: native.tool().hint(),
    });
    let servers = snapshot
        .servers
        .iter()
        .enumerate()
        .flat_map(|(server, entry)| {
            entry.catalog.tools.iter().map(move |tool| Unnamed {
                id: ToolId::new(entry.handle.name.clone(), Arc::clone(&tool.name)),
                thing: Found::Tool {
                    server,
                    tool: Arc::clone(tool),
                },
                listed: entry.listed,
                hint: tool.hint(),
            })
        });
    natives.chain(servers)
}

/// Returns each prompt's server, index in the server's own list, and own name.
fn prompts(snapshot: &Snapshot) -> impl Iterator<Item = Unnamed<(usize, usize, Arc<str>)>> {
    snapshot
        .servers
        .iter()
        .enumerate()
        .flat_map(|(server, entry)| {
            entry
                .catalog
                .prompts
                .iter()
                .enumerate()
                .map(move |(place, prompt)| Unnamed {
                    id: ToolId::new(entry.handle.name.clone(), Arc::clone(&prompt.name)),
                    thing: (server, place, Arc::clone(&prompt.name)),
                    listed: entry.listed,
                    hint: ReadOnlyHint::Writes,
                })
        })
}
