//! Chains that branch.

use std::sync::{Arc, LazyLock};
use testkit::{peer::ServedChain, rng::Rng};
use wire::{BlockHash, Header};

/// Goes on with a chain up to a length. The blocks are headers alone.
fn mine(mut headers: Vec<Header>, len: usize, salt: u32) -> Arc<ServedChain> {
    let mut prev = headers.last().map(Header::hash).unwrap_or_default();
    while headers.len() < len {
        let header = Header { prev, nonce: salt, ..Header::default() };
        prev = header.hash();
        headers.push(header);
    }
    Arc::new(ServedChain::new(headers.iter().map(|header| header.to_bytes().to_vec()).collect()))
}

/// The chains that there are; the best one is first.
pub struct Branches {
    chains: Vec<Arc<ServedChain>>,
    /// A block of a branch that is longer than the best chain, and that breaks a rule.
    pub invalid: Option<BlockHash>,
}

impl Branches {
    /// One chain with this number of blocks above the genesis block.
    pub fn one(blocks: usize) -> Self {
        Self { chains: vec![mine(Vec::new(), blocks + 1, 0)], invalid: None }
    }

    pub fn some(rng: &mut Rng) -> Self {
        // The longest chain of any simulation.
        static TRUNK: LazyLock<Arc<ServedChain>> = LazyLock::new(|| mine(Vec::new(), 4_600, 0));
        let len = match rng.below(100) {
            0 => 2_000 + rng.below(2_600),
            1..20 => 2 + rng.below(10),
            _ => 20 + rng.below(150),
        } as usize;
        let best = &TRUNK.headers[..len];
        let mut chains = vec![mine(best.to_vec(), len, 0)];
        for salt in 1..=rng.below(4) as u32 {
            let fork = 1 + rng.below(len as u64 - 1) as usize;
            let branch_len = fork + rng.below((len - fork) as u64) as usize;
            chains.push(mine(best[..fork].to_vec(), branch_len.max(1), salt));
        }
        let mut invalid = None;
        if rng.chance(1, 5) {
            let fork = 1 + rng.below(len as u64 - 1) as usize;
            let longer = mine(best[..fork].to_vec(), len + 1 + rng.below(5) as usize, 99);
            // What remains of it is shorter than the best chain.
            let at = fork + rng.below((len - fork) as u64) as usize;
            invalid = Some(longer.hashes[at]);
            chains.push(longer);
        }
        Self { chains, invalid }
    }

    pub fn best(&self) -> &Arc<ServedChain> {
        &self.chains[0]
    }

    pub fn any(&self, rng: &mut Rng) -> &Arc<ServedChain> {
        &self.chains[rng.below(self.chains.len() as u64) as usize]
    }

    /// Number of blocks of all chains together.
    pub fn len(&self) -> usize {
        self.chains.iter().map(|chain| chain.headers.len()).sum()
    }

    pub fn is_invalid(&self, hash: &BlockHash) -> bool {
        self.invalid == Some(*hash)
    }

    pub fn have_invalid_in(&self, chain: &ServedChain) -> bool {
        self.invalid.is_some_and(|hash| chain.find(&hash).is_some())
    }
}
