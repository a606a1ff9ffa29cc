//! Mutations of the header.

use super::{CheckLevel, Mutation};
use CheckLevel::Header;

pub(super) static ROWS: &[Mutation] = &[
    Header.accepts("plain", |builder| {
        let tx = builder.simple();
        builder.draft(vec![tx])
    }),
    Header.rejects("high-hash", "high-hash", |builder| builder.edited(|draft| draft.has_work = false)),
    Header
        .rejects("bits-of-another-target", "bad-diffbits", |builder| builder.edited(|draft| draft.bits -= 1)),
    Header.rejects("time-at-the-median", "time-too-old", |builder| {
        builder.edited(|draft| draft.time = builder.median_time())
    }),
    Header.accepts("time-after-the-median", |builder| {
        builder.edited(|draft| draft.time = builder.median_time() + 1)
    }),
    Header.rejects("time-in-2106", "time-too-new", |builder| builder.edited(|draft| draft.time = u32::MAX)),
    Header
        .rejects("version-1", "bad-version(0x00000001)", |builder| builder.edited(|draft| draft.version = 1)),
    Header
        .rejects("version-2", "bad-version(0x00000002)", |builder| builder.edited(|draft| draft.version = 2)),
    Header
        .rejects("version-3", "bad-version(0x00000003)", |builder| builder.edited(|draft| draft.version = 3)),
    Header.rejects("version-negative", "bad-version(0x80000004)", |builder| {
        builder.edited(|draft| draft.version = i32::MIN + 4)
    }),
    Header.accepts("version-4", |builder| builder.edited(|draft| draft.version = 4)),
];
