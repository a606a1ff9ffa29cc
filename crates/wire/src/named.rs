//! Enums whose variants have names.

/// Lists the variants of an enum without fields, and gives each the name by which users and reports know it.
#[macro_export]
macro_rules! named {
    ($type:ident { $($variant:ident = $name:literal,)+ }) => {
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
