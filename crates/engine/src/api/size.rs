//! Formats numbers of bytes for people.

use std::fmt;

/// A number of bytes in decimal units: `999 bytes`, `1.5 kB`, `20 MB`, `860 GB`. Only zero is `0 bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HumanSize(pub u64);

impl fmt::Display for HumanSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
        let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| self.0 >= *unit) else {
            return write!(f, "{} bytes", self.0);
        };
        match (self.0 / unit, self.0 % unit / (unit / 10)) {
            (whole, tenths) if whole < 10 && tenths > 0 => write!(f, "{whole}.{tenths} {name}"),
            (whole, _) => write!(f, "{whole} {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1 kB"),
            (1_999, "1.9 kB"),
            (20_480, "20 kB"),
            (999_999, "999 kB"),
            (1_050_000, "1 MB"),
            (9_950_000_000, "9.9 GB"),
            (860_000_000_000, "860 GB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(HumanSize(bytes).to_string(), text);
        }
    }
}
