//! Defines what is reported, as structs and as enums.

/// Defines types that become JSON. There, a field has the same name, or the one after `as`; it is written as
/// `serde` does it, or as the type after `with` does, which `written!` or `fields!` has defined. Other
/// `serde` attributes are in brackets. A variant of an enum is followed by its text; or the enum names a
/// second one for its code, with the same variants without contents.
#[macro_export]
macro_rules! reported {
    ($(
        $(#[$meta:meta])*
        pub struct $struct:ident {$(
            $(#[$doc:meta])*
            pub $field:ident $(as $name:literal)? $(with $writer:literal)? $([$serde:meta])?: $type:ty,
        )*}
    )+) => {$(
        #[derive(serde::Serialize, schemars::JsonSchema)]
        $(#[$meta])*
        pub struct $struct {$(
            $(#[$doc])*
            #[serde($($serde,)? $(rename = $name,)? $(with = $writer)?)]
            pub $field: $type,
        )*}
    )+};
    ($(#[$meta:meta])* pub enum $enum:ident {$(
        $(#[$about:meta])*
        $kind:ident $(($inner:ty))? $({$(
            $(#[$doc:meta])* $field:ident $(as $name:literal)? $(with $writer:literal)?: $type:ty,
        )*})? => $text:literal $(, $value:expr)*;
    )*}) => {
        #[derive(serde::Serialize, schemars::JsonSchema)]
        #[serde(tag = "code", rename_all = "kebab-case")]
        $(#[$meta])*
        #[non_exhaustive]
        pub enum $enum {$(
            $(#[$about])*
            #[display($text $(, $value)*)]
            $kind $(($inner))? $({$(
                $(#[$doc])*
                #[serde($(rename = $name,)? $(with = $writer)?)]
                $field: $type,
            )*})?,
        )*}
    };
    ($(#[$meta:meta])* pub enum $enum:ident as $code:ident {$(
        $(#[doc = $about:literal])* $(#[display $text:tt])? $(#[default $($default:tt)?])?
        $kind:ident $(($inner:ty))? $({$($(#[doc = $doc:literal])* $field:ident: $type:ty,)*})?,
    )*}) => {
        $(#[$meta])*
        pub enum $enum {$(
            $(#[doc = $about])*
            $(#[display $text])?
            $(#[default $($default)?])?
            $kind $(($inner))? $({$($(#[doc = $doc])* $field: $type,)*})?,
        )*}

        #[derive(serde::Serialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        #[doc(hidden)]
        pub enum $code {$($(#[doc = $about])* $kind,)*}

        impl $enum {
            const fn code(&self) -> $code {
                match self {$(Self::$kind { .. } => $code::$kind,)*}
            }
        }
    };
}
