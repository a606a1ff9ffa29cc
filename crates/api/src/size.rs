//! Formats numbers of bytes for people.

use std::fmt;

/// Units, and how many bytes they are. One byte comes last.
type Units = [(u64, &'static str); 5];

const DECIMAL: Units =
    [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"), (1, "bytes")];
const BINARY: Units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")];

fn unit_of(bytes: u64, units: Units) -> (u64, &'static str) {
    units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "bytes"))
}

/// A number of bytes in a unit, without the unit's name.
struct InUnit(u64, u64);

impl fmt::Display for InUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes, unit) = *self;
        match (bytes / unit, (u128::from(bytes % unit) * 10 / u128::from(unit)) as u64) {
            (whole, tenths) if whole < 10 && tenths > 0 => write!(f, "{whole}.{tenths}"),
            (whole, _) => write!(f, "{whole}"),
        }
    }
}

/// A number of bytes of data in decimal units: `999 bytes`, `1.5 kB`, `20 MB`, `860 GB`. Only zero is
/// `0 bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HumanSize(pub u64);

impl fmt::Display for HumanSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = unit_of(self.0, DECIMAL);
        write!(f, "{} {name}", InUnit(self.0, unit))
    }
}

/// A number of bytes of memory in binary units: `128 MiB`, `1.5 GiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HumanMemory(pub u64);

impl fmt::Display for HumanMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = unit_of(self.0, BINARY);
        write!(f, "{} {name}", InUnit(self.0, unit))
    }
}

/// How much of some data is done, in decimal units: `217 of 632 GB`; in the alternate form `217/632 GB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HumanShare {
    /// Bytes that are done.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
}

impl fmt::Display for HumanShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = unit_of(self.total, DECIMAL);
        let of = if f.alternate() { "/" } else { " of " };
        write!(f, "{}{of}{} {name}", InUnit(self.done, unit), InUnit(self.total, unit))
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
        for (bytes, text) in [(128 << 20, "128 MiB"), (3 << 29, "1.5 GiB"), (1023, "1023 bytes")] {
            assert_eq!(HumanMemory(bytes).to_string(), text);
        }
        let share = HumanShare { done: 217_900_000, total: 1_632_000_000 };
        assert_eq!((share.to_string(), format!("{share:#}")), ("0.2 of 1.6 GB".into(), "0.2/1.6 GB".into()));
    }
}
