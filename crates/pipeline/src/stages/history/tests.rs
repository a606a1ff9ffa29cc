//! Buckets that are larger than the memory, and inputs that spend nothing.

use super::*;
use vfs::RealDisk;

/// Counts entries, and checks their order.
#[derive(Default)]
struct Counted {
    last: Option<(Height, u32)>,
    scripts: Vec<(u64, Sats)>,
}

impl HistorySink for Counted {
    fn entry(&mut self, entry: &HistoryEntry) -> Result<(), Error> {
        assert!(self.last < Some((entry.height, entry.index)));
        self.last = Some((entry.height, entry.index));
        Ok(())
    }

    fn script(&mut self, script: &ScriptHistory) -> Result<(), Error> {
        self.scripts.push((script.rows, script.balance));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

fn movement(height: u32, number: u32, amount: i64, coin_id: u64) -> Movement<'static> {
    Movement {
        script_hash: [3; 32],
        height,
        tx_index: 1,
        number,
        txid: Txid([9; 32]),
        amount: Sats(amount),
        coin_id,
        script: &[],
    }
}

/// Movements of one script, which take several pieces of the file, and are cut where these end.
#[test]
fn a_bucket_that_exceeds_the_memory_is_merged() {
    const COINS: u32 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let (script, mut bytes) = ([0x51; 25], Vec::new());
    for number in 0..COINS {
        // In a scattered order; all but ten coins are spent in a later block.
        let number = (u64::from(number) * 77_773 % u64::from(COINS)) as u32;
        let input = movement(number / 100 + 1_000, number, number.into(), number.into());
        let output = Movement { height: number / 100, number: number | OUTPUT, script: &script, ..input };
        output.write(&mut bytes);
        if number >= 10 {
            input.write(&mut bytes);
        }
    }
    let work = WorkDir::new(&RealDisk, dir.path().join("work"));
    let mut found = Vec::new();
    for (memory_limit, bucket_limit) in [(usize::MAX, 1), (1, usize::MAX), (1, 1), (1, 9 << 20)] {
        let buckets = HistoryBuckets::new(&work, 1, 0..=15, 3_000, memory_limit, SipKey(1, 2));
        buckets.parts.add(0, &bytes).unwrap();
        assert_eq!(work.exists().unwrap(), memory_limit == 1 || !found.is_empty());
        let mut sink = Counted::default();
        let totals = buckets.take(0, bucket_limit, &mut sink, &|_| Ok(())).unwrap();
        assert_eq!((totals.rows, totals.scripts, totals.unspent.coins), (u64::from(2 * COINS - 10), 1, 10));
        assert_eq!(sink.scripts, [(u64::from(2 * COINS - 10), Sats(45))]);
        found.push((totals.unspent.amount, totals.unspent.muhash.finalize()));
        buckets.parts.remove_file().unwrap();
    }
    assert!(found.iter().all(|it| it == &found[0]));
    work.remove().unwrap();
}

#[test]
fn an_input_needs_an_earlier_output_with_its_amount() {
    let dir = tempfile::tempdir().unwrap();
    let work = WorkDir::new(&RealDisk, dir.path().join("work"));
    let output = movement(5, OUTPUT, 70, 1);
    for (others, is_sound) in [
        (vec![movement(6, 0, 70, 1)], true),
        (vec![movement(4, 0, 70, 1)], false),
        (vec![movement(6, 0, 70, 2)], false),
        (vec![movement(6, 0, 71, 1)], false),
        (vec![movement(6, 0, 70, 1), movement(7, 0, 70, 1)], false),
        (vec![movement(6, OUTPUT, 70, 1)], false),
        (vec![movement(6, OUTPUT, i64::MAX, 2)], false),
        // Another coin with the same random number: nothing is wrong with the undo data.
        (vec![movement(6, OUTPUT | 1, 70, 1)], false),
    ] {
        let buckets = HistoryBuckets::new(&work, 1, 0..=15, 10, 1 << 20, SipKey(1, 2));
        let mut bytes = Vec::new();
        others.iter().chain([&output]).for_each(|movement| movement.write(&mut bytes));
        buckets.parts.add(0, &bytes).unwrap();
        let taken = buckets.take(0, 1 << 20, &mut Counted::default(), &|_| Ok(()));
        assert_eq!(taken.is_ok(), is_sound, "{}", others[0].height);
        if others[0].number == OUTPUT | 1 {
            assert_eq!(taken.unwrap_err().kind, ErrorKind::Internal);
        } else if let Err(error) = taken {
            assert_eq!(error.height, others.last().map(|last| Height(last.height)), "{error}");
            assert!(error.to_string().contains(&"03".repeat(32)), "{error}");
        }
    }
}
