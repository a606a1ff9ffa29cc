//! What the engine reports besides progress and errors: notes and warnings.

mod words;

#[cfg(feature = "serde")]
use crate::json::{BlkNames, DigestText, JsonSchema, Outcome, PathText, Serialize, WithText, texts, written};
use crate::{
    disk_need::DiskNeed, error::Error, follow::ConnectedAtTip, hex, lower_tip::LowerTip, remedy::Remedy,
    size::HumanMemory, source_report::SourceReport, wrong_hint::WrongHint,
};
use derive_more::Display;
use disk::replace::Recovery;
use std::path::PathBuf;
use wire::{BlockHash, FileNo, Height, Network};

/// Something that the user should know that is not an error.
#[derive(Clone, Debug, Display)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "code", rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Note {
    /// The assumed-valid block of Core's release is not among the headers.
    #[display(
        "block {hash}, which Bitcoin Core assumes to be valid by default, is not among the headers here; \
         the scripts of all blocks are checked"
    )]
    UnknownAssumedBlock {
        /// Its hash.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
        /// Whether Core's release names it, and not the caller.
        is_default: bool,
    },
    /// The scripts of all blocks are run, because Core's releases assume no block of this network to be
    /// valid.
    #[display(
        "the scripts of all {blocks} blocks are checked: by default, none of {network} is assumed to be \
         valid"
    )]
    AllScripts {
        /// Number of blocks.
        blocks: u32,
        /// The network.
        #[cfg_attr(feature = "serde", serde(rename = "chain"))]
        network: Network,
    },
    /// Scripts that the block index marks as checked are not run. Only if the caller believes that.
    #[display("{}", words::checked_scripts(*to))]
    CheckedScripts {
        /// Height up to which it does; `None` if it does not above what is assumed to be valid by default.
        #[cfg_attr(feature = "serde", serde(rename = "to_height"))]
        to: Option<Height>,
    },
    /// The UTXO set at a height below the last one has the hash that Core's source has.
    #[display("the UTXO set at height {height} has the hash that Bitcoin Core's source has")]
    PinnedHash {
        /// The height.
        height: Height,
    },
    /// How much disk space the run needs.
    #[display("{_0}")]
    DiskNeed(DiskNeed),
    /// The memory is not enough for all threads that were asked for.
    #[display(
        "using {threads} of {wanted} threads: {} of memory are not enough for more",
        HumanMemory(*memory)
    )]
    FewerThreads {
        /// Number of threads used.
        threads: usize,
        /// Number of threads asked for.
        #[cfg_attr(feature = "serde", serde(rename = "threads_wanted"))]
        wanted: usize,
        /// The memory budget, in bytes.
        #[cfg_attr(feature = "serde", serde(rename = "memory_bytes"))]
        memory: u64,
    },
    /// The job of an interrupted run continues.
    #[display(
        "resuming an interrupted run: {done} of {total} blocks are done ({} % of the bytes)",
        (u128::from(*bytes) * 100).checked_div(u128::from(*bytes_total)).unwrap_or_default()
    )]
    Resuming {
        /// Number of blocks that are done.
        #[cfg_attr(feature = "serde", serde(rename = "blocks_done"))]
        done: u32,
        /// Number of blocks of the job.
        #[cfg_attr(feature = "serde", serde(rename = "blocks_total"))]
        total: usize,
        /// Bytes of the blocks that are done.
        #[cfg_attr(feature = "serde", serde(rename = "bytes_done"))]
        bytes: u64,
        /// Bytes of all blocks of the job; an upper bound.
        bytes_total: u64,
    },
    /// Block files have changed since an interrupted run read them.
    #[display("{files} block files have changed since then; {blocks} blocks in them are read again")]
    FilesChanged {
        /// Number of these files.
        files: usize,
        /// Number of their blocks that were done, and are read again.
        blocks: usize,
    },
    /// An interrupted run has made undo data, but it cannot be continued.
    #[display(
        "starting over: the undo data that an interrupted run has made is in place or gone, or the block \
         index was used since then"
    )]
    MadeUndoGone,
    /// Parallel matching did not prove that the chain is valid; all blocks are checked again without undo
    /// data.
    #[display(
        "matching in parallel did not prove that the chain is valid; all blocks are checked again without \
         undo data, to find out what is wrong"
    )]
    CheckingWithoutUndo,
    /// The hints, or the files that they were used with, are wrong.
    #[display("{error}")]
    HintsFailed {
        /// What is wrong with them.
        error: Error,
    },
    /// Hints are being downloaded; sent at the start, and every few seconds.
    #[display("downloading the hints from {from}: {}", words::received(*received, *total))]
    DownloadingHints {
        /// Their URL.
        #[cfg_attr(feature = "serde", serde(rename = "url"))]
        from: String,
        /// Number of bytes that have come.
        #[cfg_attr(feature = "serde", serde(rename = "bytes"))]
        received: u64,
        /// Number of bytes in total, if it is known.
        #[cfg_attr(feature = "serde", serde(rename = "bytes_total"))]
        total: Option<u64>,
    },
    /// Hints were downloaded.
    #[display("downloaded the hints from {from}: {bytes} bytes, sha256 {}", hex(sha256))]
    HintsDownloaded {
        /// Their URL.
        #[cfg_attr(feature = "serde", serde(rename = "url"))]
        from: String,
        /// Number of bytes that have come.
        bytes: u64,
        /// The SHA-256 of these bytes, packed or not.
        #[cfg_attr(feature = "serde", serde(with = "DigestText"))]
        sha256: [u8; 32],
    },
    /// Hints that an earlier run has downloaded are used again.
    #[display("using the hints that an earlier run has downloaded from {from}: {}", copy.display())]
    ReusingHints {
        /// Their URL.
        #[cfg_attr(feature = "serde", serde(rename = "url"))]
        from: String,
        /// The file, unpacked.
        #[cfg_attr(feature = "serde", serde(rename = "file", with = "PathText"))]
        copy: PathBuf,
    },
    /// Chunks of a snapshot are being fetched; sent every few seconds.
    #[display("fetching the snapshot: {chunks} of {chunks_total} chunks are proven")]
    FetchingChunks {
        /// Number of chunks that are proven.
        chunks: u64,
        /// Number of all.
        chunks_total: u64,
    },
    /// No peer is connected.
    #[display("{}", words::no_peers(last.as_deref()))]
    NoPeers {
        /// Why the last connection ended or could not be opened; `None` if none was tried, because no
        /// address is known.
        #[cfg_attr(feature = "serde", serde(rename = "last_attempt"))]
        last: Option<String>,
    },
    /// No address of a peer was found in some network, so that addresses from the program's list are tried.
    #[display(
        "the seeds have given no addresses of some networks; trying {addresses} that listened when this \
         program was written"
    )]
    FixedSeeds {
        /// Their number.
        addresses: usize,
    },
    /// No peer has a chain with the network's minimum work.
    #[display(
        "the best chain of the peers ends at height {height} and has less work than the network's chain is \
         known to have; waiting for another peer"
    )]
    LowWork {
        /// Height of the best chain that was found.
        height: Height,
    },
    /// A peer has sent a header from the future.
    #[display(
        "a peer has sent a header that is more than two hours in the future; if the clock of this machine \
         is wrong, correct it"
    )]
    HeaderFromFuture,
    /// No peer has a block whose header is known; the download goes on with another branch.
    #[display("no peer has block {hash} (height {height}); the download continues without it")]
    Withheld {
        /// Hash of the block.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
        /// Its height.
        height: Height,
    },
    /// A peer is not asked for the coins that blocks spend any more; the undo data of its blocks is made.
    #[display("{peer} {reason}; it is not asked for any more, and the undo data of its blocks is made")]
    SpentCoinsRefused {
        /// Address or name of the peer, and port.
        peer: String,
        /// What it has done.
        reason: String,
    },
    /// A block, or a lower one, breaks a rule: the chain below is rebuilt, and then it is found out which.
    #[display(
        "the block at height {height}, or a lower one, breaks a rule; rebuilding the chainstate of the \
         blocks below it, to which the block is then connected"
    )]
    RebuildingBelow {
        /// Height of the block.
        height: Height,
    },
    /// Blocks were found in the block files that the block index did not place there: an interrupted download
    /// had stored them, or the files were copied back.
    #[display("{blocks} blocks were found in the block files, and are not downloaded again")]
    FoundBlocks {
        /// Their number.
        blocks: u32,
    },
    /// The chainstate is at the tip, and the run stays there.
    #[display(
        "at the tip, height {height}, {hash}: new blocks are connected when they come; the datadir is free \
         in between, so that bitcoind can be started, which ends this run"
    )]
    AtTip {
        /// Height of the tip.
        height: Height,
        /// Its hash.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
    },
    /// New blocks were connected at the tip.
    #[display("{}", words::connected(_0))]
    ConnectedAtTip(ConnectedAtTip),
    /// All blocks were read, to find those that are to be repaired.
    #[display("{}", words::found_damage([*blocks, *lost, *lost_files, *missing, *undo]))]
    FoundDamage {
        /// Number of damaged blocks.
        blocks: u32,
        /// Number of these in files that do not exist.
        #[cfg_attr(feature = "serde", serde(rename = "blocks_in_missing_files"))]
        lost: u32,
        /// Number of these files.
        #[cfg_attr(feature = "serde", serde(rename = "missing_files"))]
        lost_files: u32,
        /// Number of blocks that are in no file.
        #[cfg_attr(feature = "serde", serde(rename = "missing_blocks"))]
        missing: u32,
        /// Number of blocks whose undo data is damaged.
        undo: u32,
    },
    /// A file or folder was read from which blocks were to be taken.
    #[display("{_0}")]
    ReadSource(SourceReport),
    /// The blocks that the caller passed are stored.
    #[display("{}", words::stored_given(*blocks))]
    StoredGivenBlocks {
        /// Their number.
        blocks: u32,
    },
    /// The rebuild starts again without hints.
    #[display("{}; rebuilding without hints", words::first_wrong(first_wrong.as_ref()))]
    RebuildingWithoutHints {
        /// The first wrong hint; `None` if all are right, so that the undo files are wrong.
        first_wrong: Option<WrongHint>,
    },
}

/// Something that the operator must know; it is also in the report.
#[derive(Clone, Debug, Display)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "code", rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Warning {
    /// An earlier run was interrupted while it replaced the databases.
    #[display("an earlier run was interrupted while it replaced the databases{}", words::outcome(*outcome))]
    Recovered {
        /// What has become of that.
        #[cfg_attr(feature = "serde", serde(with = "Outcome"))]
        outcome: Recovery,
    },
    /// The new databases are in place, but not all of the old ones could be removed.
    #[display("the new databases are in place, but the next run must clean up: {error}")]
    CleanUpPending {
        /// Why.
        error: Error,
    },
    /// Temporary files could not be removed.
    #[display("temporary files could not be removed: {error}")]
    WorkFilesRemain {
        /// Why.
        error: Error,
    },
    /// The assumed-valid block that the caller chose is not among the headers.
    #[display(
        "block {hash}, which was to be assumed valid, is not among the headers here; the scripts of all \
         blocks are checked"
    )]
    UnknownAssumedBlock {
        /// Its hash.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
        /// Whether Core's release names it, and not the caller.
        is_default: bool,
    },
    /// Not all of the undo data that bitcoind checks when it starts is on disk.
    #[display(
        "bitcoind checks the undo data of the last {blocks} blocks when it starts, and not all of it is on \
         disk; start bitcoind with -checklevel=1 until it has connected as many new blocks; it cannot \
         disconnect these blocks"
    )]
    LacksLastUndo {
        /// Number of blocks whose undo data it checks.
        blocks: usize,
    },
    /// A stored block that was never connected is invalid; the rebuild continues without it.
    #[display(
        "block {hash}{} is stored, but was never connected, as far as the files show: it breaks a rule \
         ({}); continuing without this block",
        error.height.map_or(String::new(), |height| format!(" at height {height}")),
                error.explanation(Remedy::to_string)
    )]
    InvalidBlock {
        /// Its hash.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
        /// The rule that it breaks.
        error: Error,
    },
    /// A peer has sent coins as those that a block spends, and the chain has created others. They are not in
    /// the result.
    #[display(
        "{peer} has sent false spent coins, first those of block {hash} (height {height}); they are not in \
         the result, for which the undo data was made; do not ask this peer again"
    )]
    FalseSpentCoins {
        /// Height of the block, the lowest one.
        height: Height,
        /// Its hash.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
        /// Address or name of the peer, and port.
        peer: String,
    },
    /// The result is lower than what it replaces, as the caller has accepted.
    #[display("{_0}")]
    LowerTip(LowerTip),
    /// Blocks above the last one have no undo data.
    #[display(
        "{blocks} stored blocks above height {tip} {}; bitcoind connects them when it starts",
        words::why_unconnected(*may_be_lost)
    )]
    Unconnected {
        /// Number of these blocks.
        blocks: u32,
        /// Height of the last block.
        #[cfg_attr(feature = "serde", serde(rename = "height"))]
        tip: Height,
        /// Whether they may have been connected, and their undo data lost.
        may_be_lost: bool,
    },
    /// Blocks or undo data are damaged; the rebuild ends below the lowest such block.
    #[display("{}", words::damage(*blocks, *undo, first))]
    Damage {
        /// Number of damaged blocks.
        blocks: u32,
        /// Number of blocks whose undo data is damaged.
        undo: u32,
        /// What is wrong with the lowest damaged blocks.
        #[cfg_attr(feature = "serde", serde(rename = "errors"))]
        first: Vec<Error>,
    },
    /// The block index is of no use, because of this error; a scan of the block files makes a new one.
    #[display(
        "the block index is of no use ({error}); a scan of the block files makes a new one, without the \
         marks of invalidateblock"
    )]
    IndexUnusable {
        /// Why.
        error: Error,
    },
    /// Neither the block files nor the peers have the chainstate's best block, so that it was set aside.
    #[display(
        "neither the block files nor the peers have the chainstate's best block {best}: it is set aside as \
         {}, and a new one is built",
        kept.display()
    )]
    ChainstateSetAside {
        /// Hash of that block.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        best: BlockHash,
        /// Where it is now.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        kept: PathBuf,
    },
    /// The old block index places blocks outside the chain in `blk` files that do not exist. The new one has
    /// only their headers.
    #[display("{}", words::missing_files(files))]
    MissingBlockFiles {
        /// Numbers of the files.
        #[cfg_attr(feature = "serde", serde(with = "BlkNames"))]
        files: Vec<FileNo>,
    },
    /// Blocks of another chain are left out ([`disk::departed`]).
    #[display(
        "{blocks} blocks are left out, which were {}: they are no blocks of Bitcoin's chain",
        disk::departed::WRITTEN_BY
    )]
    LeftOutDeparted {
        /// Their number.
        blocks: u32,
    },
    /// The old block index marks a block as invalid that was found valid.
    #[display(
        "the old block index marks block {hash} (height {height}) as invalid, because of invalidateblock \
         or an earlier failure; it was found valid, and the mark is dropped; repeat invalidateblock if it \
         was intended"
    )]
    MarkDropped {
        /// Height of the block.
        height: Height,
        /// Its hash.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
    },
    /// The block index marks a block as invalid, and stored blocks above it have more work than the chain.
    #[display(
        "the block index marks block {hash} (height {height}) as invalid, because of invalidateblock or an \
         earlier failure; like bitcoind, this rebuild leaves out that block and those above it, up to \
         height {tip}; if it is valid, run bitcoin-cli reconsiderblock {hash}"
    )]
    MarkedInvalid {
        /// Height of the block.
        height: Height,
        /// Its hash.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        hash: BlockHash,
        /// Height of the last of the stored blocks above it.
        #[cfg_attr(feature = "serde", serde(rename = "tip_height"))]
        tip: Height,
    },
    /// The last block is ahead of the clock, so that bitcoind does not start.
    #[display(
        "the last block is {hours} hours ahead of this machine's clock, and bitcoind does not start with a \
         block from the future: correct the clock"
    )]
    FromFuture {
        /// How far, in hours.
        hours: u64,
    },
    /// Blocks lie beyond the bytes that the block index records as used.
    #[display(
        "{blocks} blocks lie beyond the bytes that the block index records as used, from byte {used} of {} \
         on, as a crashed bitcoind leaves them; bitcoind downloads them again and overwrites them",
        file.display()
    )]
    BlocksBeyondIndex {
        /// Number of these blocks.
        blocks: u32,
        /// The first block file that contains some.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        file: PathBuf,
        /// Number of bytes of that file that the index records as used.
        #[cfg_attr(feature = "serde", serde(rename = "used_bytes"))]
        used: u64,
    },
    /// A block file from which blocks were to be taken cannot be read; those before the place were taken.
    #[display("{error}; blocks behind this place were not taken from the file")]
    SourceUnreadable {
        /// Why.
        error: Error,
    },
    /// The block index cannot be read, so that heights or times of blocks are missing in the result.
    #[display(
        "heights or times of blocks are missing in the result, because the block index cannot be read: {}",
        error.fact_text()
    )]
    IndexUnread {
        /// Why.
        error: Error,
    },
    /// The file system cannot sync a directory: after a power cut, names of files there may be missing.
    #[display(
        "the file system of {} cannot sync directories, as some network file systems cannot; a power cut \
         in the next minutes may take back names of files; bitcoind runs at the same risk there",
        dir.display()
    )]
    DirectoryNotSynced {
        /// The first such directory.
        #[cfg_attr(feature = "serde", serde(rename = "directory", with = "PathText"))]
        dir: PathBuf,
    },
    /// An index of the datadir could not stay right, and was set aside.
    #[display(
        "the index {name} is set aside, because it would become wrong, or could not be used: it is {} now; \
         bitcoind builds it again when it is started with it, and then that directory can be removed",
        kept.display()
    )]
    IndexSetAside {
        /// The name of its folder.
        #[cfg_attr(feature = "serde", serde(rename = "index"))]
        name: String,
        /// Where it is now.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        kept: PathBuf,
    },
    /// Indexes of the datadir are left unchanged, and stay right.
    #[display(
        "the indexes in {} ({}) are left unchanged, and what they have stays right: no block in them \
         gets another place; bitcoind continues each from its own best block",
        dir.display(),
                names.join(", ")
    )]
    IndexesUnchanged {
        /// Their directory.
        #[cfg_attr(feature = "serde", serde(rename = "directory", with = "PathText"))]
        dir: PathBuf,
        /// Their names.
        #[cfg_attr(feature = "serde", serde(rename = "indexes"))]
        names: Vec<String>,
    },
    /// The chainstate of a snapshot is left unchanged.
    #[display(
        "the snapshot's chainstate in {} is left unchanged: bitcoind continues with both chainstates until \
         the rebuilt one is at block {base}, compares them there, and then keeps only the snapshot's",
        dir.display()
    )]
    SnapshotUnchanged {
        /// The chainstate's directory.
        #[cfg_attr(feature = "serde", serde(rename = "directory", with = "PathText"))]
        dir: PathBuf,
        /// Hash of the snapshot's base block.
        #[cfg_attr(feature = "serde", serde(rename = "base_block_hash"))]
        base: BlockHash,
    },
}

#[cfg(feature = "serde")]
written! {
    /// Warnings, each with its text.
    Notes: Vec<Warning> => Vec<WithText<Warning>>, |notes| notes.iter().cloned().map(WithText::new).collect();
    /// Only their texts.
    NoteTexts: Vec<Warning> => Vec<String>, |notes| texts(notes.iter());
}
