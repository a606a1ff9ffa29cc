//! The merkle trees of txids and of wtxids.
//!
//! An odd level repeats its last node, so two different lists can have the same root (CVE-2012-2459). Such
//! lists are detected as in Core: two nodes of a pair are equal, at any level, before a last node is
//! repeated.

use crate::sha256::sha256d_pairs;

/// A root, and whether another list of leaves has the same root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MerkleRoot {
    /// The root; zeros for an empty list.
    pub root: [u8; 32],
    /// Whether the two nodes of a pair are equal somewhere in the tree.
    pub mutated: bool,
}

/// Computes a merkle root (Core `ComputeMerkleRoot`), using the leaves as scratch space.
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
    use crate::sha256::sha256d;

    fn leaf(number: u8) -> [u8; 32] {
        [number; 32]
    }

    fn node(left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
        sha256d(&[left, right].concat())
    }

    #[test]
    fn computes_the_roots_of_small_trees() {
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
    fn detects_repeated_nodes_above_the_leaves() {
        let leaves: Vec<_> = (1..=6).map(leaf).collect();
        let honest = merkle_root(leaves.clone());
        assert!(!honest.mutated);
        let twin = merkle_root([&leaves[..], &leaves[4..]].concat());
        assert_eq!(twin, MerkleRoot { mutated: true, ..honest });
        // Equal leaves in different pairs do not give the same root as another list.
        assert!(!merkle_root([1, 2, 2, 1].map(leaf).to_vec()).mutated);
    }
}
