//! Shows what an edit would change in a file, as a unified diff.

use std::path::Path;

use similar::TextDiff;

use super::screen::Screen;

/// Returns the unified diff of two texts; empty if they are equal.
pub(super) fn unified(path: &Path, before: &str, after: &str) -> String {
    let difference = TextDiff::from_lines(before, after);
    let name = path.display().to_string();
    let mut unified = difference.unified_diff();
    unified.context_radius(3).header(&name, &name);
    unified.to_string()
}

/// Colours a diff.
pub(super) fn painted(difference: &str, screen: &Screen) -> String {
    let lines = difference.lines().map(|line| {
        let line = Screen::safe(line);
        match line.chars().next() {
            Some('+') => screen.good(&line),
            Some('-') => screen.bad(&line),
            Some('@') => screen.faint(&line),
            _ => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_shown_with_its_surroundings() {
        let before = "a\nb\nc\nd\ne\nf\n";
        let after = "a\nb\nc\nd\nx\ne\nf\n";
        let shown = unified(Path::new("f"), before, after);
        assert_eq!(
            shown,
            "--- f\n+++ f\n@@ -2,5 +2,6 @@\n b\n c\n d\n+x\n e\n f\n"
        );
        assert_eq!(unified(Path::new("f"), before, before), "");
    }
}
