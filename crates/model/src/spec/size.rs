//! Sizes as people write them: `512M`, `512MB`, `512MiB`, `1G`, or a number of bytes.

/// Parses a size in bytes, all units powers of 1024; `None` if it is invalid.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Shows a size in the largest unit that divides it.
pub fn show(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_their_usual_forms() {
        let cases = [
            ("512M", 512 << 20),
            ("1GiB", 1 << 30),
            ("1Gi", 1 << 30),
            ("1 kb", 1024),
            ("7", 7),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        assert_eq!(show(512 << 20), "512 MiB");
        assert_eq!(
            (show(7), show(1 << 46)),
            ("7 bytes".into(), "64 TiB".into())
        );
        for bad in ["", "M", "1.5G", "-1", "99999999999T", "1e309G"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
