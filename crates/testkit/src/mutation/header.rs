//! Mutations of the header.

use super::{CheckLevel, Mutation};
use CheckLevel::Header;

pub(super) static ROWS: &[Mutation] = &[
    Mutation::accepts("plain", Header, |builder| {
        let tx = builder.simple();
        builder.draft(vec![tx])
    }),
    Mutation::rejects("high-hash", "high-hash", Header, |builder| {
        builder.edited(|draft| draft.has_work = false)
    }),
    Mutation::rejects("bits-of-another-target", "bad-diffbits", Header, |builder| {
        builder.edited(|draft| draft.bits -= 1)
    }),
    Mutation::rejects("time-at-the-median", "time-too-old", Header, |builder| {
        builder.edited(|draft| draft.time = builder.median_time())
    }),
    Mutation::accepts("time-after-the-median", Header, |builder| {
        builder.edited(|draft| draft.time = builder.median_time() + 1)
    }),
    Mutation::rejects("time-in-2106", "time-too-new", Header, |builder| {
        builder.edited(|draft| draft.time = u32::MAX)
    }),
    Mutation::rejects("version-1", "bad-version(0x00000001)", Header, |builder| {
        builder.edited(|draft| draft.version = 1)
    }),
    Mutation::rejects("version-2", "bad-version(0x00000002)", Header, |builder| {
        builder.edited(|draft| draft.version = 2)
    }),
    Mutation::rejects("version-3", "bad-version(0x00000003)", Header, |builder| {
        builder.edited(|draft| draft.version = 3)
    }),
    Mutation::rejects("version-negative", "bad-version(0x80000004)", Header, |builder| {
        builder.edited(|draft| draft.version = i32::MIN + 4)
    }),
    Mutation::accepts("version-4", Header, |builder| builder.edited(|draft| draft.version = 4)),
];
