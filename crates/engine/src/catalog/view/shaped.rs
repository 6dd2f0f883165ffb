//! The view in the formats of models' APIs: the same tools in the same order, each under a name that
//! the API accepts, and the mapping back from that name.

use gantry_model::jsonrpc::{Edit, RawBuf};
use gantry_model::naming::{Expose, Form, Names, Rules, Target, ToolId};
use gantry_model::shape::{self, Shape};

use super::View;
use crate::request::Scope;
use crate::schema;

impl View {
    /// Returns the listed tools, or those of one server, for a request's `tools`. row 4.3
    pub(crate) fn tools_in(&self, shape: Shape, only: Option<&str>) -> RawBuf {
        let names = self.names(shape.target());
        let is_asked = |id: &ToolId| only.is_none_or(|server| id.server.as_str() == server);
        let listed = self
            .own_tools
            .iter()
            .filter(|(id, listed)| *listed && is_asked(id));
        let definitions: Vec<_> = listed
            .filter_map(|(id, _)| {
                let name = names.exposed(id)?;
                let tool = self.tools.get(id.to_string().as_str())?.tool();
                let definition = tool.definition.as_raw();
                let mut shown = Edit::new(definition);
                if let Some(schema) = schema::without_headers(definition.get("inputSchema")) {
                    shown.set_buf("inputSchema", schema);
                }
                Some((name, shown.to_buf()))
            })
            .collect();
        let tools = definitions
            .iter()
            .map(|(name, definition)| (*name, definition.as_raw()));
        shape::tools(shape, tools).expect("what is in the catalog was read before")
    }

    /// Returns the identity of the tool with this name in a model's format. row 4.6
    pub(crate) fn meant(&self, shape: Shape, name: &str) -> Option<String> {
        let names = self.names(shape.target());
        names.resolve(name).map(ToString::to_string)
    }

    /// Returns the names for a target.
    fn names(&self, target: Target) -> &Names {
        let cell = match target {
            Target::Mcp => 0,
            Target::Claude => 1,
            Target::OpenAi => 2,
            Target::Gemini => 3,
        };
        let names = || {
            let is_one = matches!(self.scope, Scope::Server(_));
            let expose = if is_one {
                Expose::Bare
            } else {
                self.rules.expose
            };
            let rules = Rules {
                form: if target == Target::Mcp {
                    self.rules.form
                } else {
                    Form::of(target)
                },
                expose,
                ..self.rules
            };
            let tools = self.own_tools.iter().map(|(id, _)| {
                let alias = self.grants.alias_of(&id.server, &id.tool);
                (id.clone(), alias.filter(|_| !is_one).map(Into::into))
            });
            Names::build_aliased(rules, tools)
        };
        self.shaped_names[cell].get_or_init(names)
    }
}
