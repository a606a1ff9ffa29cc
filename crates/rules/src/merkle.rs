//! The merkle tree of txids and of wtxids.
//!
//! An odd level repeats its last node, so that two different lists can have one root (CVE-2012-2459). The
//! lists with such a twin are found as Core finds them: two equal nodes side by side, at any level, before a
//! last node is repeated.

use digest::sha256::sha256d_pairs;

/// A root, and whether the list has a twin with the same root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MerkleRoot {
    /// The root; zeros for an empty list.
    pub root: [u8; 32],
    /// Whether neighbours are equal somewhere in the tree.
    pub mutated: bool,
}

/// Hashes a tree (Core `ComputeMerkleRoot`). The leaves are taken as scratch space.
#[must_use]
pub fn merkle_root(mut level: Vec<[u8; 32]>) -> MerkleRoot {
    let mut mutated = false;
    let mut next = Vec::with_capacity(level.len().div_ceil(2));
    while level.len() > 1 {
        mutated |= level.as_chunks::<2>().0.iter().any(|[left, right]| left == right);
        if let (1, Some(&last)) = (level.len() % 2, level.last()) {
            level.push(last);
        }
        next.clear();
        sha256d_pairs(&level, &mut next);
        std::mem::swap(&mut level, &mut next);
    }
    MerkleRoot { root: level.first().copied().unwrap_or_default(), mutated }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::sha256::sha256d;

    fn leaf(number: u8) -> [u8; 32] {
        [number; 32]
    }

    fn node(left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
        sha256d(&[left, right].concat())
    }

    #[test]
    fn small_trees_by_hand() {
        let [a, b, c] = [1, 2, 3].map(leaf);
        let root = |leaves: &[[u8; 32]]| merkle_root(leaves.to_vec());
        assert_eq!(root(&[]), MerkleRoot { root: [0; 32], mutated: false });
        assert_eq!(root(&[a]), MerkleRoot { root: a, mutated: false });
        assert_eq!(root(&[a, b]), MerkleRoot { root: node(a, b), mutated: false });
        let three = node(node(a, b), node(c, c));
        assert_eq!(root(&[a, b, c]), MerkleRoot { root: three, mutated: false });
        assert_eq!(root(&[a, b, c, c]), MerkleRoot { root: three, mutated: true });
    }

    #[test]
    fn twins_are_found_at_each_level() {
        let leaves: Vec<_> = (1..=6).map(leaf).collect();
        let honest = merkle_root(leaves.clone());
        assert!(!honest.mutated);
        let twin = merkle_root([&leaves[..], &leaves[4..]].concat());
        assert_eq!(twin, MerkleRoot { mutated: true, ..honest });
        // Equal leaves that are no neighbours of one pair are no twin.
        assert!(!merkle_root([1, 2, 2, 1].map(leaf).to_vec()).mutated);
    }
}
