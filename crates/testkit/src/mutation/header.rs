//! Rows about the header.

use super::{Mutation, Stage};
use Stage::Header;

pub(super) static ROWS: &[Mutation] = &[
    Mutation::accepts("plain", Header, |bench| {
        let tx = bench.simple();
        bench.draft(vec![tx])
    }),
    Mutation::rejects("high-hash", "high-hash", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.has_work = false;
        draft
    }),
    Mutation::rejects("bits-of-another-target", "bad-diffbits", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.bits -= 1;
        draft
    }),
    Mutation::rejects("time-at-the-median", "time-too-old", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.time = bench.median_time_past(bench.height() - 1);
        draft
    }),
    Mutation::accepts("time-after-the-median", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.time = bench.median_time_past(bench.height() - 1) + 1;
        draft
    }),
    Mutation::rejects("time-in-2106", "time-too-new", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.time = u32::MAX;
        draft
    }),
    Mutation::rejects("version-1", "bad-version(0x00000001)", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.version = 1;
        draft
    }),
    Mutation::rejects("version-3", "bad-version(0x00000003)", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.version = 3;
        draft
    }),
    Mutation::rejects("version-negative", "bad-version(0x80000004)", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.version = i32::MIN + 4;
        draft
    }),
    Mutation::accepts("version-4", Header, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.version = 4;
        draft
    }),
];
