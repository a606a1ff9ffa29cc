//! Every SHA-256 kernel computes the digests of FIPS 180-4, whatever the length, the alignment and the other
//! messages of the batch.

use bitcoin_hashes::{sha256 as reference, sha256d as reference_double};
use hex_conservative::DisplayHex as _;
use peregrine_sha256d::kernel::{ENVIRONMENT_VARIABLE, Kernel};
use peregrine_sha256d::{
    Message, Sha256, sha256, sha256d, sha256d_many, sha256d_many_with, sha256d_pairs, sha256d_pairs_with,
};

/// A small random number generator (xorshift64*). Tests print its seed, so that a failure can be reproduced.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Returns bytes with period 251, so that swapped blocks differ.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

fn expected(messages: &[Message<'_>]) -> Vec<[u8; 32]> {
    messages.iter().map(|message| reference_double::Hash::hash(&message.0.concat()).to_byte_array()).collect()
}

fn assert_digests(kernel: Kernel, messages: &[Message<'_>], what: &str) {
    let kept = [7; 32];
    let mut got = vec![kept];
    sha256d_many_with(kernel, messages, &mut got);
    assert_eq!(got[0], kept, "{}: digests are appended", kernel.name());
    for (i, (got, wanted)) in got[1..].iter().zip(expected(messages)).enumerate() {
        let lengths = messages[i].0.map(<[u8]>::len);
        assert_eq!(*got, wanted, "{}, {what}: message {i} with parts of {lengths:?} bytes", kernel.name());
    }
    assert_eq!(got.len(), messages.len() + 1, "{}, {what}: one digest per message", kernel.name());
}

/// Runs the tests that every kernel must pass.
fn kernel_suite(kernel: Kernel) {
    streams(kernel);
    each_length(kernel);
    odd_alignments(kernel);
    mixed_batches(kernel);
    pairs(kernel);
}

/// Returns lengths at the boundaries of blocks, padding and the longest lane messages, each plus and minus
/// one.
fn boundary_lengths() -> Vec<usize> {
    let mut lengths: Vec<usize> = (0..300).collect();
    for near in [448, 512, 1024, 4096, 16_384 - 9, 16_384, 65_536] {
        lengths.extend([near - 1, near, near + 1]);
    }
    lengths
}

fn streams(kernel: Kernel) {
    for length in boundary_lengths() {
        let data = pattern(length);
        for cut in [0, 1, 55, 64, 65, length] {
            let (head, tail) = data.split_at(cut.min(length));
            let mut hasher = Sha256::with_kernel(kernel);
            hasher.update(head);
            let mut midstate = hasher.clone();
            hasher.update(b"other data");
            midstate.update(tail);
            let wanted = reference::Hash::hash(&data).to_byte_array();
            assert_eq!(midstate.clone().finalize(), wanted, "{}: {length} bytes cut at {cut}", kernel.name());
            let wanted = reference_double::Hash::hash(&data).to_byte_array();
            let found = midstate.finalize_double();
            assert_eq!(found, wanted, "{}: {length} bytes twice, cut at {cut}", kernel.name());
        }
    }
}

fn each_length(kernel: Kernel) {
    let data = pattern(70_000);
    let lengths = boundary_lengths();
    let messages: Vec<_> = lengths.iter().map(|&length| Message::from(&data[..length])).collect();
    assert_digests(kernel, &messages, "all lengths in one batch");
    for (message, &length) in messages.iter().zip(&lengths) {
        assert_digests(kernel, &[*message; 17], &format!("17 of {length} bytes"));
    }
}

fn odd_alignments(kernel: Kernel) {
    let data = pattern(2_000);
    for offset in 0..65 {
        let messages: Vec<_> = (0..20).map(|i| Message::from(&data[offset..offset + 40 + 61 * i])).collect();
        assert_digests(kernel, &messages, &format!("from byte {offset}"));
    }
}

fn mixed_batches(kernel: Kernel) {
    let seed = 0x5eed_0001;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let data = pattern(40_000);
    for round in 0..400 {
        let count = 1 + round % 40;
        let messages: Vec<_> = (0..count)
            .map(|_| {
                let mut parts = [&data[..0]; 3];
                for part in &mut parts {
                    let longest = [1, 5, 65, 300, 300, 2_000, 20_000][random.below(7)];
                    let length = random.below(longest);
                    let start = random.below(data.len() - length);
                    *part = &data[start..start + length];
                }
                Message(parts)
            })
            .collect();
        assert_digests(kernel, &messages, &format!("round {round} of {count} messages"));
    }
}

fn pairs(kernel: Kernel) {
    let mut random = Random(0x5eed_0002);
    for count in 0..70 {
        let nodes: Vec<[u8; 32]> =
            (0..2 * count).map(|_| std::array::from_fn(|_| random.next() as u8)).collect();
        let mut got = vec![[9; 32]];
        sha256d_pairs_with(kernel, &nodes, &mut got);
        let wanted =
            nodes.chunks(2).map(|pair| reference_double::Hash::hash(pair.as_flattened()).to_byte_array());
        let wanted: Vec<_> = std::iter::once([9; 32]).chain(wanted).collect();
        assert_eq!(got, wanted, "{}: {count} pairs", kernel.name());
    }
}

/// All kernels give the same results, so that only this shows that a machine is used as it can be.
#[test]
fn the_fastest_kernel_of_the_machine_is_used_unless_the_environment_names_another() {
    #[cfg(target_arch = "x86_64")]
    let fastest = if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
        "avx512"
    } else if is_x86_feature_detected!("sha") {
        "shani"
    } else if is_x86_feature_detected!("avx2") {
        "avx2"
    } else {
        "portable"
    };
    #[cfg(target_arch = "aarch64")]
    let fastest = if std::arch::is_aarch64_feature_detected!("sha2") { "armsha" } else { "neon" };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let fastest = "portable";
    let named = std::env::var(ENVIRONMENT_VARIABLE);
    assert_eq!(Kernel::active().name(), named.as_deref().unwrap_or(fastest));
}

#[test]
fn portable_passes_the_suite() {
    kernel_suite(Kernel::PORTABLE);
}

#[test]
fn every_other_kernel_passes_the_suite() {
    let kernels = Kernel::available();
    assert_eq!(kernels[0], Kernel::PORTABLE);
    for kernel in &kernels[1..] {
        println!("kernel {}", kernel.name());
        assert_eq!(Kernel::named(kernel.name()), Some(*kernel));
        kernel_suite(*kernel);
    }
    if kernels.len() == 1 {
        testdata::skip("this machine has only the portable kernel");
    }
    assert_eq!(Kernel::named("no such kernel"), None);
}

/// The examples of FIPS 180-4 (NIST, "SHA256.pdf").
#[test]
fn equals_the_nist_vectors() {
    let million = vec![b'a'; 1_000_000];
    let vectors: [(&[u8], &str); 5] = [
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (
            b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn\
              hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
        ),
        (&million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ];
    for (data, wanted) in vectors {
        for kernel in Kernel::available() {
            let mut hasher = Sha256::with_kernel(kernel);
            hasher.update(data);
            let found = hasher.finalize().to_lower_hex_string();
            assert_eq!(found, wanted, "{}: {} bytes", kernel.name(), data.len());
        }
        assert_eq!(sha256(data).to_lower_hex_string(), wanted);
        assert_eq!(sha256d(data), sha256(&sha256(data)));
    }
}

/// Calls the functions without a kernel argument as the program does: txids, then one level of a merkle tree.
#[test]
fn active_kernel_hashes_in_batches() {
    let data = pattern(500);
    let messages: Vec<_> = (0..100).map(|i| Message([&data[..4], &data[4..100 + i], &data[..4]])).collect();
    let mut txids = Vec::new();
    sha256d_many(&messages, &mut txids);
    assert_eq!(txids, expected(&messages));
    let mut parents = Vec::new();
    sha256d_pairs(&txids, &mut parents);
    assert_eq!(parents.len(), 50);
    assert_eq!(parents[49], sha256d(txids[98..].as_flattened()));
    assert_eq!((messages[0].len(), messages[0].is_empty()), (104, false));
    assert!(Message([&[]; 3]).is_empty());
}

#[test]
#[should_panic(expected = "3 nodes cannot be paired")]
fn rejects_an_odd_number_of_nodes() {
    sha256d_pairs(&[[0; 32]; 3], &mut Vec::new());
}
