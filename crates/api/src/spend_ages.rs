//! How old coins are when they are spent.

use std::ops::AddAssign;
use wire::{Coin, Height};

/// Numbers of spends by the age of the coin in blocks. The first number is of coins of the same block, and
/// number n of ages from 2^(n-1) to 2^n - 1.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct SpendAges(Vec<u64>);

impl SpendAges {
    pub fn add(&mut self, height: Height, spent: &[Coin<'_>]) {
        let mut counts = [0; u32::BITS as usize + 1];
        for coin in spent {
            let age = height.0.saturating_sub(coin.height().0);
            if let Some(count) = counts.get_mut((u32::BITS - age.leading_zeros()) as usize) {
                *count += 1;
            }
        }
        *self += Self(counts.to_vec());
    }

    /// Returns the numbers, without zeros at the end.
    pub fn counts(&self) -> &[u64] {
        let end = self.0.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        self.0.get(..end).unwrap_or_default()
    }
}

impl AddAssign for SpendAges {
    fn add_assign(&mut self, other: Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_by_powers_of_two() {
        let coin = |height| Coin { code: Coin::code_of(Height(height), false), out: &[] };
        let mut ages = SpendAges::default();
        ages.add(Height(100), &[100, 99, 98, 97, 96, 0].map(coin));
        assert_eq!(ages.counts(), [1, 1, 2, 1, 0, 0, 0, 1]);
        let mut twice = ages.clone();
        twice += ages;
        assert_eq!(twice.counts(), [2, 2, 4, 2, 0, 0, 0, 2]);
    }
}
