//! Converts `$NAME`, as Gemini CLI writes variables, to `${NAME}` and back.

/// Writes every `$NAME` as `${NAME}`.
pub(super) fn braced(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('$') {
        let (before, after) = rest.split_at(start);
        done.push_str(before);
        match name(&after[1..]) {
            "" => {
                done.push('$');
                rest = &after[1..];
            }
            name => {
                done.push_str(&format!("${{{name}}}"));
                rest = &after[1 + name.len()..];
            }
        }
    }
    done + rest
}

/// Converts every `${NAME}` to `$NAME` where the next character cannot extend the name.
pub(super) fn dollared(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = rest.split_at(start);
        done.push_str(before);
        let name = name(&after[2..]);
        let behind = after[2 + name.len()..].strip_prefix('}');
        match behind.filter(|behind| !name.is_empty() && !behind.starts_with(is_letter)) {
            Some(behind) => {
                done.push_str(&format!("${name}"));
                rest = behind;
            }
            None => {
                done.push_str("${");
                rest = &after[2..];
            }
        }
    }
    done + rest
}

/// Returns the variable name at the start of a text, if any.
fn name(text: &str) -> &str {
    let end = text.find(|letter| !is_letter(letter)).unwrap_or(text.len());
    let name = &text[..end];
    if name.starts_with(|letter: char| letter.is_ascii_digit()) {
        ""
    } else {
        name
    }
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_change_their_spelling_and_nothing_else_does() {
        for (dollar, brace) in [
            ("$TOKEN", "${TOKEN}"),
            ("Bearer $A-$B_1", "Bearer ${A}-${B_1}"),
            ("$", "$"),
            ("costs $5", "costs $5"),
            ("a$$B", "a$${B}"),
        ] {
            assert_eq!(braced(dollar), brace);
            assert_eq!(dollared(brace), dollar);
        }
        assert_eq!(braced("${A}x"), "${A}x");
        assert_eq!(dollared("${A}x"), "${A}x");
        assert_eq!(dollared("${A:-b}"), "${A:-b}");
    }
}
