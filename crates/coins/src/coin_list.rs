//! Many coins in one buffer, in order: what a block creates or spends.

use wire::Coin;

/// Coins one after the other, without an allocation for each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CoinList {
    /// The code of each coin, and the end of its output in `outs`.
    coins: Vec<(u32, usize)>,
    outs: Vec<u8>,
}

impl CoinList {
    /// Creates an empty list with room for `count` coins of common scripts.
    pub fn with_capacity(count: usize) -> Self {
        const COMMON_OUT_LEN: usize = 26;
        Self { coins: Vec::with_capacity(count), outs: Vec::with_capacity(count * COMMON_OUT_LEN) }
    }

    #[inline]
    pub fn push(&mut self, coin: Coin<'_>) {
        self.outs.extend_from_slice(coin.out);
        self.coins.push((coin.code, self.outs.len()));
    }

    pub const fn len(&self) -> usize {
        self.coins.len()
    }

    pub const fn memory_bytes(&self) -> usize {
        self.coins.capacity() * size_of::<(u32, usize)>() + self.outs.capacity()
    }

    pub const fn is_empty(&self) -> bool {
        self.coins.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Coin<'_>> + Clone {
        let mut start = 0;
        self.coins.iter().map(move |&(code, end)| {
            let out = &self.outs[start..end];
            start = end;
            Coin { code, out }
        })
    }
}

impl<'c> FromIterator<Coin<'c>> for CoinList {
    fn from_iter<I: IntoIterator<Item = Coin<'c>>>(coins: I) -> Self {
        let mut list = Self::default();
        coins.into_iter().for_each(|coin| list.push(coin));
        list
    }
}
