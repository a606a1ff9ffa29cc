//! Enums whose variants have names.

/// The error for a name that no variant of an enum has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown {what} `{name}`; use {}", or(.known))]
pub struct UnknownName {
    /// What has such names.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

/// Returns the names as a sentence has them, with "or" before the last.
fn or(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Defines an enum without fields, each variant with the name by which users and reports know it. With a
/// noun after the enum's name (`enum Format: "format"`), names can be parsed, and errors use the noun.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $type:ident: $what:literal {
        $($(#[$of_variant:meta])* $variant:ident = $name:literal,)+
    }) => {
        $crate::named! { $(#[$meta])* $vis enum $type { $($(#[$of_variant])* $variant = $name,)+ } }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, $crate::UnknownName> {
                let unknown = || $crate::UnknownName {
                    what: $what,
                    name: name.to_owned(),
                    known: Self::ALL.map(Self::name).to_vec(),
                };
                Self::named(name).ok_or_else(unknown)
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis enum $type:ident {
        $($(#[$of_variant:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        $vis enum $type {
            $($(#[$of_variant])* $variant,)+
        }

        impl $type {
            /// All variants, in order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the variant's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the variant with a name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
