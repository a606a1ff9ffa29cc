//! Mutations of the header.

use super::{CheckLevel, Mutation};
use CheckLevel::Header;

pub(super) static ROWS: &[Mutation] = &[
    Mutation::accepts("plain", Header, |builder| {
        let tx = builder.simple();
        builder.draft(vec![tx])
    }),
    Mutation::rejects("high-hash", "high-hash", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.has_work = false;
        draft
    }),
    Mutation::rejects("bits-of-another-target", "bad-diffbits", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.bits -= 1;
        draft
    }),
    Mutation::rejects("time-at-the-median", "time-too-old", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.time = builder.median_time_past(builder.height() - 1);
        draft
    }),
    Mutation::accepts("time-after-the-median", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.time = builder.median_time_past(builder.height() - 1) + 1;
        draft
    }),
    Mutation::rejects("time-in-2106", "time-too-new", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.time = u32::MAX;
        draft
    }),
    Mutation::rejects("version-1", "bad-version(0x00000001)", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.version = 1;
        draft
    }),
    Mutation::rejects("version-2", "bad-version(0x00000002)", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.version = 2;
        draft
    }),
    Mutation::rejects("version-3", "bad-version(0x00000003)", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.version = 3;
        draft
    }),
    Mutation::rejects("version-negative", "bad-version(0x80000004)", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.version = i32::MIN + 4;
        draft
    }),
    Mutation::accepts("version-4", Header, |builder| {
        let mut draft = builder.draft(vec![]);
        draft.version = 4;
        draft
    }),
];
