//! Lists in pages: rendered once, continued where the previous page ended.
//!
//! A cursor has the number of entries before it and a hash of the last one, so that a list that
//! changed meanwhile continues after that entry. Entry points: [`View::asked_page`],
//! [`View::page`].

use bytes::Bytes;
use gantry_model::mcp::ListKind as WireList;
use sha2::{Digest, Sha256};

use super::View;
use crate::catalog::ListKind;
use crate::catalog::render::{self, Row};
use crate::error::CallError;
use crate::request::Request;
use crate::tool::Item;

/// The maximum number of entries of a page. Clients that request only one page see no more.
const ENTRIES: usize = 1024;

/// The start of a page: the list, the number of entries before it, and the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    list: ListKind,
    before: usize,
    last: u32,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let list = match text.get(..1)? {
            "t" => ListKind::Tools,
            "p" => ListKind::Prompts,
            "r" => ListKind::Resources,
            "m" => ListKind::Templates,
            _ => return None,
        };
        let (before, last) = text[1..].split_once('.')?;
        let is_plain = before.bytes().all(|byte| byte.is_ascii_digit()) && last.len() == 8;
        let (before, last) = (before.parse().ok()?, u32::from_str_radix(last, 16).ok()?);
        (is_plain && before > 0).then_some(Self { list, before, last })
    }

    fn show(self) -> String {
        let letter = match self.list {
            ListKind::Tools => 't',
            ListKind::Prompts => 'p',
            ListKind::Resources => 'r',
            ListKind::Templates => 'm',
        };
        format!("{letter}{}.{:08x}", self.before, self.last)
    }
}

/// Returns the hash of a name in a cursor.
fn digest(name: &str) -> u32 {
    let digest = Sha256::digest(name.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

impl View {
    /// Returns the page that a request asks for.
    pub(crate) fn asked_page(
        &self,
        list: ListKind,
        request: &Request<'_>,
    ) -> Result<Bytes, CallError> {
        let page = match request.params.cursor.filter(|cursor| !cursor.is_null()) {
            None => self.page(list, None),
            Some(cursor) => cursor
                .string()
                .and_then(|cursor| self.page(list, Some(&cursor))),
        };
        page.ok_or_else(|| CallError::BadParams {
            method: request.method.to_owned(),
            why: "`cursor` is not one that this list gave out".to_owned(),
        })
    }

    /// Returns a page of a list in the format of the handshake era: the first, or the one at a
    /// cursor; `None` if the cursor is invalid.
    pub(crate) fn page(&self, list: ListKind, cursor: Option<&str>) -> Option<Bytes> {
        let first = match cursor {
            None => 0,
            Some(cursor) => self.place(list, Cursor::parse(cursor)?)?,
        };
        if first > 0 {
            return Some(self.render(list, first));
        }
        let cell = match list {
            ListKind::Tools => 0,
            ListKind::Prompts => 1,
            ListKind::Resources => 2,
            ListKind::Templates => 3,
        };
        let page = self.pages[cell].get_or_init(|| self.render(list, 0));
        Some(page.clone())
    }

    /// Returns the index of the first entry of a page.
    fn place(&self, list: ListKind, cursor: Cursor) -> Option<usize> {
        if cursor.list != list {
            return None;
        }
        let is_last = |index: usize| digest(self.name(list, index)) == cursor.last;
        let count = self.count(list);
        if cursor.before <= count && is_last(cursor.before - 1) {
            return Some(cursor.before);
        }
        let moved = (0..count).find(|&index| is_last(index));
        // It was removed: the entries after it have moved up.
        let behind = moved.map(|index| index + 1);
        behind.or_else(|| (cursor.before <= count).then(|| cursor.before - 1))
    }

    fn count(&self, list: ListKind) -> usize {
        match list {
            ListKind::Tools => self.listed_tools.len(),
            ListKind::Prompts => self.listed_prompts.len(),
            ListKind::Resources => self.listed_resources.len(),
            ListKind::Templates => self.listed_templates.len(),
        }
    }

    /// Returns the name that identifies an entry.
    fn name(&self, list: ListKind, index: usize) -> &str {
        match list {
            ListKind::Tools => &self.listed_tools[index].0,
            ListKind::Prompts | ListKind::Resources | ListKind::Templates => {
                let (item, name) = self.item(list, index);
                name.unwrap_or(&item.name)
            }
        }
    }

    /// Returns an entry of a list other than tools, and its exposed name.
    fn item(&self, list: ListKind, index: usize) -> (&Item, Option<&str>) {
        let listed = match list {
            ListKind::Prompts => &self.listed_prompts[index],
            ListKind::Resources => &self.listed_resources[index],
            ListKind::Tools | ListKind::Templates => &self.listed_templates[index],
        };
        let catalog = &self.snapshot.servers[listed.server].catalog;
        let items = match list {
            ListKind::Prompts => &catalog.prompts,
            ListKind::Resources => &catalog.resources,
            ListKind::Tools | ListKind::Templates => &catalog.templates,
        };
        (&items[listed.place], listed.name.as_deref())
    }

    fn row(&self, list: ListKind, index: usize) -> Row<'_> {
        if list != ListKind::Tools {
            let (item, name) = self.item(list, index);
            return Row {
                definition: &item.definition,
                name,
            };
        }
        let (name, found) = &self.listed_tools[index];
        let tool = found.tool();
        Row {
            definition: &tool.definition,
            name: Some(&**name).filter(|name| **name != *tool.name),
        }
    }

    fn render(&self, list: ListKind, first: usize) -> Bytes {
        let missing = self.servers().filter(|entry| !entry.is_current());
        let missing: Vec<&str> = missing.map(|entry| entry.handle.name.as_str()).collect();
        let end = self.count(list).min(first.saturating_add(ENTRIES));
        let next = (end < self.count(list)).then(|| {
            let last = digest(self.name(list, end - 1));
            let cursor = Cursor {
                list,
                before: end,
                last,
            };
            cursor.show()
        });
        let rows = (first..end).map(|index| self.row(list, index));
        let member = match list {
            ListKind::Tools => WireList::Tools,
            ListKind::Prompts => WireList::Prompts,
            ListKind::Resources => WireList::Resources,
            ListKind::Templates => WireList::ResourceTemplates,
        };
        render::page(member.member(), rows, &missing, next.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_lead_back_and_others_do_not() {
        let cursor = Cursor {
            list: ListKind::Tools,
            before: 1024,
            last: digest("a__b"),
        };
        assert_eq!(Cursor::parse(&cursor.show()), Some(cursor));
        for bad in [
            "",
            "t",
            "1024",
            "t1024",
            "x1.00000000",
            "t0.00000000",
            "t+1.00000000",
            "t1.0000000",
            "t1.0000000g",
            "t1.000000000",
            "é1.00000000",
            "t99999999999999999999999.00000000",
        ] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }
}
