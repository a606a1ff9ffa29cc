//! Random mutations of spends: of signature scripts and witnesses.

use bitcoin::{ScriptBuf, Transaction, Witness};
use testkit::rng::Rng;

/// Hash types of signatures, known and unknown ones.
const HASH_TYPES: [u8; 9] = [0, 1, 2, 3, 4, 0x41, 0x81, 0x82, 0x83];
/// Lengths of items at the limits of what is allowed.
const LENGTHS: [usize; 8] = [0, 1, 33, 63, 64, 65, 520, 521];

/// Changes one thing in the script of one input. The spend may stay valid.
pub(super) fn mutate(tx: &mut Transaction, rng: &mut Rng) {
    let [input, other] = [0; 2].map(|_| rng.below(tx.input.len() as u64) as usize);
    let sigs = tx.input.get(input).map_or_else(Vec::new, |input| input.script_sig.to_bytes());
    let witness = tx.input.get(input).map_or_else(Vec::new, |input| input.witness.to_vec());
    match rng.below(8) {
        0 => {
            let [from, to] = [input, other].map(|at| tx.input[at].witness.clone());
            (tx.input[input].witness, tx.input[other].witness) = (to, from);
        }
        1 => {
            let [from, to] = [input, other].map(|at| tx.input[at].script_sig.clone());
            (tx.input[input].script_sig, tx.input[other].script_sig) = (to, from);
        }
        _ if witness.is_empty() || !sigs.is_empty() && rng.chance(1, 3) => {
            tx.input[input].script_sig = ScriptBuf::from_bytes(mutated_script_sig(sigs, rng));
        }
        _ => tx.input[input].witness = Witness::from_slice(&mutated_witness(witness, rng)),
    }
}

/// Returns a signature script with one byte changed or inserted, or truncated.
fn mutated_script_sig(mut script: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let at = rng.below(script.len() as u64 + 1) as usize;
    match rng.below(6) {
        // The first push is the dummy item if the script is a CHECKMULTISIG.
        0 => script.first_mut().into_iter().for_each(|first| *first = 0x51),
        1 => script.truncate(at),
        2 => script.insert(0, [0, 0x51, 0x61][rng.below(3) as usize]),
        // In most scripts the first push is a signature, with its hash type at the end.
        3 => {
            let len = usize::from(script.first().copied().unwrap_or(0));
            let hash_type = HASH_TYPES[rng.below(HASH_TYPES.len() as u64) as usize];
            script.get_mut(len).into_iter().for_each(|byte| *byte = hash_type);
        }
        _ => script.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << rng.below(8)),
    }
    script
}

/// Returns a witness with one item changed, inserted or removed.
fn mutated_witness(mut items: Vec<Vec<u8>>, rng: &mut Rng) -> Vec<Vec<u8>> {
    let at = rng.below(items.len() as u64) as usize;
    match rng.below(11) {
        0 => drop(items.remove(at)),
        1 => items.insert(at, vec![7; LENGTHS[rng.below(LENGTHS.len() as u64) as usize]]),
        // An annex.
        2 => items.push(vec![0x50; 1 + rng.below(3) as usize]),
        3 => items.swap(at, 0),
        4 => items[at] = vec![1],
        5 => items[at].clear(),
        6 => {
            let _ = items[at].pop();
        }
        7 => items[at].push(HASH_TYPES[rng.below(HASH_TYPES.len() as u64) as usize]),
        8 => {
            let hash_type = HASH_TYPES[rng.below(HASH_TYPES.len() as u64) as usize];
            items[at].last_mut().into_iter().for_each(|last| *last = hash_type);
        }
        _ => {
            let byte = rng.below(items[at].len() as u64) as usize;
            items[at].get_mut(byte).into_iter().for_each(|byte| *byte ^= 1 << rng.below(8));
        }
    }
    items
}
