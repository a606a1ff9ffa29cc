//! Compares the merge's own heap with std's, once.
#![allow(clippy::all, missing_docs, clippy::unwrap_used)]
use coins::{Entry, FullCoin, Merge, merge::EntrySource};
use std::{
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
    convert::Infallible,
    time::Instant,
};
use wire::{Coin, OutPoint, Txid, coin::chainstate_key_order};

struct SplitMix(u64);
impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}
#[derive(Clone, Copy)]
struct Row {
    outpoint: OutPoint,
    spend: bool,
    code: u32,
    len: u8,
}
struct Source<'a> {
    rows: std::slice::Iter<'a, Row>,
    bytes: [u8; 48],
}
impl EntrySource for Source<'_> {
    type Payload = FullCoin;
    type Error = Infallible;
    #[inline]
    fn advance(&mut self) -> Result<Option<Entry<'_>>, Infallible> {
        let Some(row) = self.rows.next() else { return Ok(None) };
        Ok(Some(Entry {
            spend: row.spend,
            outpoint: row.outpoint,
            coin: Coin { code: row.code, out: &self.bytes[..row.len as usize] },
        }))
    }
}

#[derive(Debug, Default)]
struct Head {
    spend: bool,
    outpoint: OutPoint,
    code: u32,
    out: Vec<u8>,
}
impl Head {
    fn set(&mut self, entry: &Entry<'_>) {
        (self.spend, self.outpoint, self.code) = (entry.spend, entry.outpoint, entry.coin.code);
        self.out.clear();
        self.out.extend_from_slice(entry.coin.out);
    }
    fn entry(&self) -> Entry<'_> {
        Entry { spend: self.spend, outpoint: self.outpoint, coin: Coin { code: self.code, out: &self.out } }
    }
}
fn prefix(outpoint: &OutPoint) -> u64 {
    outpoint.txid.0.first_chunk().map_or(0, |&b| u64::from_be_bytes(b))
}

mod keyed {
    use super::*;
    /// Keys in the heap, heads beside it.
    #[derive(PartialEq, Eq)]
    pub struct Top {
        prefix: u64,
        outpoint: OutPoint,
        source: u32,
    }
    impl PartialOrd for Top {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Top {
        #[inline]
        fn cmp(&self, other: &Self) -> Ordering {
            other.prefix.cmp(&self.prefix).then_with(|| chainstate_key_order(&other.outpoint, &self.outpoint))
        }
    }
    pub struct StdMerge<S> {
        sources: Vec<S>,
        heads: Vec<Head>,
        heap: BinaryHeap<Top>,
        current: Head,
    }
    impl<S: EntrySource> StdMerge<S> {
        pub fn new(mut sources: Vec<S>) -> Result<Self, S::Error> {
            let mut heads: Vec<Head> = sources.iter().map(|_| Head::default()).collect();
            let mut heap = BinaryHeap::new();
            for (number, source) in sources.iter_mut().enumerate() {
                if let Some(entry) = source.advance()? {
                    heads[number].set(&entry);
                    heap.push(Top {
                        prefix: prefix(&entry.outpoint),
                        outpoint: entry.outpoint,
                        source: number as u32,
                    });
                }
            }
            Ok(Self { sources, heads, heap, current: Head::default() })
        }
        pub fn advance(&mut self) -> Result<Option<Entry<'_>>, S::Error> {
            loop {
                let Some(top) = self.heap.peek_mut() else { return Ok(None) };
                std::mem::swap(&mut self.current, &mut self.heads[top.source as usize]);
                refill(&mut self.sources, &mut self.heads, top)?;
                let mut is_unmatched = true;
                while let Some(top) = self.heap.peek_mut()
                    && top.outpoint == self.current.outpoint
                {
                    let next = &mut self.heads[top.source as usize];
                    if !is_unmatched {
                        std::mem::swap(&mut self.current, next);
                    } else if next.spend == self.current.spend
                        || next.entry().coin != self.current.entry().coin
                    {
                        panic!("mismatch")
                    }
                    is_unmatched = !is_unmatched;
                    refill(&mut self.sources, &mut self.heads, top)?;
                }
                if is_unmatched {
                    return Ok(Some(self.current.entry()));
                }
            }
        }
    }
    #[inline]
    fn refill<S: EntrySource>(
        sources: &mut [S],
        heads: &mut [Head],
        mut top: PeekMut<'_, Top>,
    ) -> Result<(), S::Error> {
        let source = top.source as usize;
        match sources[source].advance()? {
            Some(entry) => {
                heads[source].set(&entry);
                (top.prefix, top.outpoint) = (prefix(&entry.outpoint), entry.outpoint);
            }
            None => {
                PeekMut::pop(top);
            }
        }
        Ok(())
    }
}
mod whole {
    use super::*;
    /// Entries in the heap.
    pub struct Top {
        prefix: u64,
        source: u32,
        head: Head,
    }
    impl PartialEq for Top {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }
    impl Eq for Top {}
    impl PartialOrd for Top {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Top {
        #[inline]
        fn cmp(&self, other: &Self) -> Ordering {
            other
                .prefix
                .cmp(&self.prefix)
                .then_with(|| chainstate_key_order(&other.head.outpoint, &self.head.outpoint))
        }
    }
    pub struct StdMerge<S> {
        sources: Vec<S>,
        heap: BinaryHeap<Top>,
        current: Head,
    }
    impl<S: EntrySource> StdMerge<S> {
        pub fn new(mut sources: Vec<S>) -> Result<Self, S::Error> {
            let mut heap = BinaryHeap::new();
            for (number, source) in sources.iter_mut().enumerate() {
                if let Some(entry) = source.advance()? {
                    let mut head = Head::default();
                    head.set(&entry);
                    heap.push(Top { prefix: prefix(&entry.outpoint), head, source: number as u32 });
                }
            }
            Ok(Self { sources, heap, current: Head::default() })
        }
        pub fn advance(&mut self) -> Result<Option<Entry<'_>>, S::Error> {
            loop {
                let Some(mut top) = self.heap.peek_mut() else { return Ok(None) };
                std::mem::swap(&mut self.current, &mut top.head);
                refill(&mut self.sources, top)?;
                let mut is_unmatched = true;
                while let Some(top) = self.heap.peek()
                    && top.head.outpoint == self.current.outpoint
                {
                    let Some(mut top) = self.heap.peek_mut() else { break };
                    if !is_unmatched {
                        std::mem::swap(&mut self.current, &mut top.head);
                    } else if top.head.spend == self.current.spend
                        || top.head.entry().coin != self.current.entry().coin
                    {
                        panic!("mismatch")
                    }
                    is_unmatched = !is_unmatched;
                    refill(&mut self.sources, top)?;
                }
                if is_unmatched {
                    return Ok(Some(self.current.entry()));
                }
            }
        }
    }
    #[inline]
    fn refill<S: EntrySource>(sources: &mut [S], mut top: PeekMut<'_, Top>) -> Result<(), S::Error> {
        match sources[top.source as usize].advance()? {
            Some(entry) => {
                top.prefix = prefix(&entry.outpoint);
                top.head.set(&entry);
            }
            None => {
                PeekMut::pop(top);
            }
        }
        Ok(())
    }
}
fn thread_ns() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}
fn main() {
    let mut args = std::env::args().skip(1);
    let (which, k, total): (String, usize, usize) =
        (args.next().unwrap(), args.next().unwrap().parse().unwrap(), args.next().unwrap().parse().unwrap());
    let mut random = SplitMix(7);
    let mut sources: Vec<Vec<Row>> = vec![Vec::new(); k];
    let mut txid = [0; 32];
    for number in 0..total {
        if number % 3 == 0 {
            txid.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        }
        let outpoint = OutPoint { txid: Txid(txid), vout: (number % 3) as u32 };
        let row =
            Row { outpoint, spend: false, code: (number / 5000) as u32 * 2, len: [26, 28, 40][number % 3] };
        let pair = random.next() % 10;
        if pair < 7 {
            sources[random.next() as usize % k].push(row);
        }
        if pair >= 4 {
            sources[random.next() as usize % k].push(Row { spend: true, ..row });
        }
    }
    for rows in &mut sources {
        rows.sort_by(|a, b| chainstate_key_order(&a.outpoint, &b.outpoint));
    }
    let entries: usize = sources.iter().map(Vec::len).sum();
    let inputs =
        || sources.iter().map(|rows| Source { rows: rows.iter(), bytes: [7; 48] }).collect::<Vec<_>>();
    let (mut left, mut hash) = (0u64, 0u64);
    let mut each = |entry: Entry<'_>| {
        left += 1;
        hash = (hash ^ prefix(&entry.outpoint) ^ u64::from(entry.coin.code)).wrapping_mul(0x100_0000_01b3);
    };
    let (wall, start) = (Instant::now(), thread_ns());
    match which.as_str() {
        "own" => {
            let mut merge = Merge::new(inputs()).unwrap();
            while let Some(entry) = merge.advance().unwrap() {
                each(entry)
            }
        }
        "keyed" => {
            let mut merge = keyed::StdMerge::new(inputs()).unwrap();
            while let Some(entry) = merge.advance().unwrap() {
                each(entry)
            }
        }
        "whole" => {
            let mut merge = whole::StdMerge::new(inputs()).unwrap();
            while let Some(entry) = merge.advance().unwrap() {
                each(entry)
            }
        }
        _ => panic!(),
    }
    let took = thread_ns() - start;
    println!(
        "{which} k={k} entries={entries} left={left} hash={hash:016x} ns_per_entry={:.2} wall={:?}",
        took as f64 / entries as f64,
        wall.elapsed()
    );
}
