//! How values of reports are written as JSON. Each type here names one way, for `serde(with = "..")`; reports
//! derive the rest.

use crate::{hex, hex_reversed};
use coins::aggregate::AggregateKind;
use digest::kernel::Kernel;
use disk::{datadir::FileKind, replace::Recovery};
pub use schemars::JsonSchema;
pub use serde::Serialize;
use std::{fmt::Display, path::PathBuf, time::Duration};
use wire::FileNo;

/// Defines types that say how a value is written: `Name: type of the value => what is written, how`.
#[macro_export]
macro_rules! written {
    ($($(#[$doc:meta])* $name:ident: $value:ty => $json:ty, $write:expr;)*) => {$(
        $(#[$doc])*
        #[doc(hidden)]
        pub enum $name {}

        impl $name {
            pub fn serialize<S: serde::Serializer>(value: &$value, to: S) -> Result<S::Ok, S::Error> {
                let write: fn(&$value) -> $json = $write;
                serde::Serialize::serialize(&write(value), to)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$json as schemars::JsonSchema>::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$json as schemars::JsonSchema>::json_schema(generator)
            }
        }
    )*};
}

written! {
    Seconds: Duration => f64, Duration::as_secs_f64;
    Milliseconds: Duration => u64, |time| time.as_millis() as u64;
    /// A hash as Bitcoin Core prints it: bytes reversed.
    HashText: [u8; 32] => String, hex_reversed;
    OptionalHashText: Option<[u8; 32]> => Option<String>, |hash| hash.as_ref().map(hex_reversed);
    /// A digest as tools print that of a file.
    DigestText: [u8; 32] => String, hex;
    /// A path may have bytes that are no text; these are replaced.
    PathText: PathBuf => String, |path| path.display().to_string();
    OptionalPathText: Option<PathBuf> => Option<String>, |path| Some(path.as_ref()?.display().to_string());
    PathTexts: Vec<PathBuf> => Vec<String>, |paths| texts(paths.iter().map(|path| path.display()));
    RevName: FileNo => String, |file| FileKind::Rev.file_name(*file);
    RevNames: Vec<FileNo> => Vec<String>, |files| names(FileKind::Rev, files);
    BlkNames: Vec<FileNo> => Vec<String>, |files| names(FileKind::Blk, files);
    /// `true`, or `null` if the fact is not known: a run in which it is known to be false fails.
    TrueOrNull: bool => Option<bool>, |is| is.then_some(true);
    AggregateName: AggregateKind => &'static str, |kind| kind.name();
    KernelName: Kernel => &'static str, |kernel| kernel.name();
    /// Whether undo data is missing, or else damaged.
    FlawName: bool => &'static str, |is_missing| if *is_missing { "missing" } else { "damaged" };
    Outcome: Recovery => RecoveryCode, RecoveryCode::of;
    OptionalOutcome: Option<Recovery> => Option<RecoveryCode>, |it| it.as_ref().map(RecoveryCode::of);
}

/// Defines the fields that are written in the place of a value, `Name(value: type)`, each with how it is made
/// from the value.
#[macro_export]
macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident($value:ident: $of:ty) {$(
        $(#[$about:meta])* $field:ident: $type:ty = $made:expr,
    )*})*) => {$(
        $(#[$doc])*
        #[derive(serde::Serialize, schemars::JsonSchema)]
        #[schemars(inline)]
        #[doc(hidden)]
        pub struct $name {$($(#[$about])* pub $field: $type,)*}

        impl $name {
            pub fn serialize<S: serde::Serializer>(value: &$of, to: S) -> Result<S::Ok, S::Error> {
                let made: fn(&$of) -> Self = |$value| Self { $($field: $made,)* };
                serde::Serialize::serialize(&made(value), to)
            }
        }
    )*};
}

pub use crate::{fields, written};

pub fn texts<T: Display>(values: impl Iterator<Item = T>) -> Vec<String> {
    values.map(|value| value.to_string()).collect()
}

fn names(kind: FileKind, files: &[FileNo]) -> Vec<String> {
    files.iter().map(|file| kind.file_name(*file)).collect()
}

/// A code with its fields, and its text for people.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}WithText")]
pub struct WithText<T> {
    /// The code.
    #[serde(flatten)]
    pub code: T,
    /// For people; it may change at any time.
    pub text: String,
}

impl<T: Display> WithText<T> {
    /// Adds what the code says to people.
    pub fn new(code: T) -> Self {
        Self { text: code.to_string(), code }
    }
}

/// What [`disk::replace::Recovery`] names.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryCode {
    /// The replacement is finished.
    Finished,
    /// The old databases are back in place.
    Undone,
    /// The databases in use were kept, and the others removed.
    Abandoned,
}

impl RecoveryCode {
    const fn of(recovery: &Recovery) -> Self {
        match recovery {
            Recovery::Finished => Self::Finished,
            Recovery::Undone => Self::Undone,
            Recovery::Abandoned => Self::Abandoned,
        }
    }
}
