//! Pages of the four lists a server offers.
//!
//! Only reads pages: the catalog decides how many pages and items to accept, and what to do with an
//! invalid item.

use std::borrow::Cow;

use super::{Method, ShapeError};
use crate::jsonrpc::{Edit, Items, Raw, RawBuf};

/// One of the four lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Resource templates.
    ResourceTemplates,
}

impl ListKind {
    /// All four.
    pub const ALL: [Self; 4] = [
        Self::Tools,
        Self::Prompts,
        Self::Resources,
        Self::ResourceTemplates,
    ];

    /// Returns the method that lists them.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::ResourceTemplates => Method::ResourceTemplatesList,
        }
    }

    /// Returns the notification that the list has changed.
    pub fn changed(self) -> Method {
        match self {
            Self::Tools => Method::ToolsListChanged,
            Self::Prompts => Method::PromptsListChanged,
            Self::Resources | Self::ResourceTemplates => Method::ResourcesListChanged,
        }
    }

    /// Returns the member of the result that holds the items.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }

    /// Returns the member that identifies an item.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    /// Returns the server capability for the list.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::ResourceTemplates => "resources",
        }
    }

    /// Returns the identifier of an item.
    pub fn identity<'a>(self, item: Raw<'a>) -> Result<Cow<'a, str>, ShapeError> {
        if !item.is_object() {
            return Err(ShapeError::NotAnObject);
        }
        let member = self.key();
        let value = item.get(member).ok_or(ShapeError::Missing { member })?;
        super::text(member, value)
    }
}

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    items: Raw<'a>,
    /// The cursor of the next page, if there is one.
    pub next_cursor: Option<Cow<'a, str>>,
}

impl<'a> Page<'a> {
    /// Reads the result of a list method.
    pub fn read(kind: ListKind, result: Raw<'a>) -> Result<Self, ShapeError> {
        if !result.is_object() {
            return Err(ShapeError::NotAnObject);
        }
        let (mut items, mut next_cursor) = (None, None);
        for member in result.members() {
            if member.is(kind.member()) {
                items = Some(member.value);
            } else if member.is("nextCursor") && !member.value.is_null() {
                next_cursor = Some(super::text("nextCursor", member.value)?);
            }
        }
        let items = items.ok_or(ShapeError::Missing {
            member: kind.member(),
        })?;
        if !items.text().starts_with('[') {
            return Err(ShapeError::Wrong {
                member: kind.member(),
                expected: "an array",
            });
        }
        Ok(Self { items, next_cursor })
    }

    /// Returns the items in the server's order.
    pub fn items(&self) -> Items<'a> {
        self.items.items()
    }
}

/// Returns the params that request the page at `cursor`.
pub fn next_cursor_params(cursor: &str) -> RawBuf {
    let mut edit = Edit::new(Raw::EMPTY_OBJECT);
    edit.set_buf("cursor", RawBuf::string(cursor));
    edit.to_buf()
}
