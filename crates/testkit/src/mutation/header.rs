//! Mutations of the header.

use super::{CheckLevel, Mutation};
use CheckLevel::Header;

pub(super) static ROWS: &[Mutation] = &[
    Header.accepts("plain", |builder| {
        let tx = builder.simple();
        builder.draft(vec![tx])
    }),
    Header.rejects("high-hash", "high-hash", |it| it.edited(|draft| draft.has_work = false)),
    Header.rejects("bits-of-another-target", "bad-diffbits", |it| it.edited(|draft| draft.bits -= 1)),
    Header
        .rejects("time-at-the-median", "time-too-old", |it| it.edited(|draft| draft.time = it.median_time())),
    Header.accepts("time-after-the-median", |it| it.edited(|draft| draft.time = it.median_time() + 1)),
    Header.rejects("time-in-2106", "time-too-new", |it| it.edited(|draft| draft.time = u32::MAX)),
    Header.rejects("version-1", "bad-version(0x00000001)", |it| it.edited(|draft| draft.version = 1)),
    Header.rejects("version-2", "bad-version(0x00000002)", |it| it.edited(|draft| draft.version = 2)),
    Header.rejects("version-3", "bad-version(0x00000003)", |it| it.edited(|draft| draft.version = 3)),
    Header.rejects("version-negative", "bad-version(0x80000004)", |it| {
        it.edited(|draft| draft.version = i32::MIN + 4)
    }),
    Header.accepts("version-4", |it| it.edited(|draft| draft.version = 4)),
];
