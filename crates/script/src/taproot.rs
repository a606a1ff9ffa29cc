//! Verifies taproot commitments (BIP-0341).

use bitcoin_hashes::sha256;
use secp256k1::{Parity, Scalar, XOnlyPublicKey};

/// The leaf version of scripts that are run.
pub(crate) const TAPSCRIPT: u8 = 0xc0;

/// The length of a control block before its path and of one path node, in bytes, and the maximum number of
/// path nodes.
const CONTROL: (usize, usize, usize) = (33, 32, 128);

/// The error that the output does not commit to the leaf.
pub(crate) struct Mismatch;

/// Returns the SHA-256 of the concatenated parts.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    sha256::Hash::hash(&parts.concat()).to_byte_array()
}

/// Returns the version of the leaf that a control block proves to be in an output's tree; `None` if the size
/// is not that of a control block.
pub(crate) fn leaf_version(program: &[u8], script: &[u8], control: &[u8]) -> Option<Result<u8, Mismatch>> {
    let (base, step, most) = CONTROL;
    let (head, path) = control.split_at_checked(base)?;
    if !path.len().is_multiple_of(step) || path.len() / step > most {
        return None;
    }
    let (first, internal) = head.split_first()?;
    let version = first & !1;
    Some(
        if commits(program, internal, first & 1, root(version, script, path)).is_some_and(|commits| commits) {
            Ok(version)
        } else {
            Err(Mismatch)
        },
    )
}

fn root(version: u8, script: &[u8], path: &[u8]) -> [u8; 32] {
    let mut size = Vec::new();
    wire::read::write_compact_size(&mut size, script.len() as u64);
    let leaf = tagged("TapLeaf", &[&[version], &size, script]);
    path.chunks_exact(CONTROL.1).fold(leaf, |node, sibling| {
        let (first, second) =
            if node.as_slice() < sibling { (&node[..], sibling) } else { (sibling, &node[..]) };
        tagged("TapBranch", &[first, second])
    })
}

/// Returns whether the output key is the internal key tweaked by the root; `None` if one of them is not a
/// valid key.
fn commits(output: &[u8], internal: &[u8], parity: u8, root: [u8; 32]) -> Option<bool> {
    let tweak = Scalar::from_be_bytes(tagged("TapTweak", &[internal, &root])).ok()?;
    let key = |bytes: &[u8]| XOnlyPublicKey::from_byte_array(bytes.try_into().ok()?).ok();
    let parity = Parity::from_u8(parity).ok()?;
    Some(key(internal)?.tweak_add_check(&key(output)?, parity, tweak))
}

/// Returns a tagged hash (BIP-0340).
fn tagged(tag: &str, parts: &[&[u8]]) -> [u8; 32] {
    let tag = sha256(&[tag.as_bytes()]);
    sha256(&[&[&tag[..], &tag], parts].concat())
}
