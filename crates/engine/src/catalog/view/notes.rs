//! Additional information of a view: the instructions of servers, and resources that are hidden
//! because another server offers the same.

use super::{Collision, View};
use crate::server::handshake::HandshakeInfo;

/// The maximum number of bytes of one server's instructions.
const OF_ONE: usize = 4 << 10;
/// The maximum number of bytes of all servers' instructions.
const OF_ALL: usize = 32 << 10;

impl View {
    /// Returns the instructions of the caller's listed servers, each under its server's name; long
    /// ones are truncated with a note.
    pub(crate) fn instructions(&self) -> Option<String> {
        let mut joined = String::new();
        let mut left_out = 0_usize;
        for entry in self.servers().filter(|entry| entry.listed) {
            let handshake = entry.catalog.handshake.as_deref();
            let text = handshake.and_then(HandshakeInfo::shown_instructions);
            let Some(text) = text
                .as_deref()
                .map(str::trim)
                .filter(|text| !text.is_empty())
            else {
                continue;
            };
            let part = part(entry.handle.name.as_str(), text);
            if joined.len() + part.len() > OF_ALL {
                left_out += 1;
                continue;
            }
            if !joined.is_empty() {
                joined.push_str("\n\n");
            }
            joined.push_str(&part);
        }
        if left_out > 0 {
            joined.push_str(&format!(
                "\n\n(The instructions of {left_out} more servers are too long to be shown here.)"
            ));
        }
        (!joined.is_empty()).then_some(joined)
    }

    /// Returns the resources that are hidden by another server's.
    pub(in crate::catalog) fn collisions(&self) -> &[Collision] {
        &self.collisions
    }
}

/// Returns one server's instructions under its name.
fn part(server: &str, text: &str) -> String {
    match text.len() <= OF_ONE {
        true => format!("## {server}\n\n{text}"),
        false => {
            let kept = &text[..text.floor_char_boundary(OF_ONE)];
            format!("## {server}\n\n{kept}… (cut)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(part("a", "x"), "## a\n\nx");
        let long = part("a", &"ä".repeat(OF_ONE));
        assert!(
            long.ends_with("ä… (cut)") && long.len() < OF_ONE + 32,
            "{}",
            long.len()
        );
    }
}
