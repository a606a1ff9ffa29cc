//! What the engine reports besides progress and errors: notes and warnings.

mod words;

use crate::{
    disk_need::DiskNeed,
    error::Error,
    follow::ConnectedAtTip,
    hex,
    json::{BlkNames, DigestText, Outcome, PathText, WithText, texts, written},
    lower_tip::LowerTip,
    remedy::Remedy,
    size::HumanMemory,
    source_report::SourceReport,
    wrong_hint::WrongHint,
};
use derive_more::Display;
use disk::replace::Recovery;
use std::path::PathBuf;
use wire::{BlockHash, FileNo, Height, Network};

reported! {
/// Something that the user should know that is not an error.
#[derive(Clone, Debug, Display)]
pub enum Note {
    /// The assumed-valid block of Core's release is not among the headers.
    UnknownAssumedBlock {
        /// Its hash.
        hash as "block_hash": BlockHash,
        /// Whether Core's release names it, and not the caller.
        is_default: bool,
    } => "block {hash}, which Bitcoin Core assumes to be valid by default, is not among the headers here; \
        the scripts of all blocks are checked";
    /// The scripts of all blocks are run, because Core's releases assume no block of this network to be
    /// valid.
    AllScripts {
        /// Number of blocks.
        blocks: u32,
        /// The network.
        network as "chain": Network,
    } => "the scripts of all {blocks} blocks are checked: by default, none of {network} is assumed to be \
        valid";
    /// Scripts that the block index marks as checked are not run. Sent only if the caller believes the marks.
    CheckedScripts {
        /// Height up to which all blocks are marked; `None` if not above the default assumed-valid block.
        to as "to_height": Option<Height>,
    } => "{}", words::checked_scripts(*to);
    /// The UTXO set at a height below the last one has the hash that Core's source has.
    PinnedHash {
        /// The height.
        height: Height,
    } => "the UTXO set at height {height} has the hash that Bitcoin Core's source has";
    /// How much disk space the run needs.
    DiskNeed(DiskNeed) => "{_0}";
    /// The memory is not enough for all threads that were asked for.
    FewerThreads {
        /// Number of threads used.
        threads: usize,
        /// Number of threads asked for.
        wanted as "threads_wanted": usize,
        /// The memory budget, in bytes.
        memory as "memory_bytes": u64,
    } => "using {threads} of {wanted} threads: {} of memory is not enough for more", HumanMemory(*memory);
    /// The job of an interrupted run continues.
    Resuming {
        /// Number of blocks that are done.
        done as "blocks_done": u32,
        /// Number of blocks of the job.
        total as "blocks_total": usize,
        /// Bytes of the blocks that are done.
        bytes as "bytes_done": u64,
        /// Bytes of all blocks of the job; an upper bound.
        bytes_total: u64,
    } => "resuming an interrupted run: {done} of {total} blocks are done ({} % of the bytes)",
        (u128::from(*bytes) * 100).checked_div(u128::from(*bytes_total)).unwrap_or_default();
    /// Block files have changed since an interrupted run read them.
    FilesChanged {
        /// Number of these files.
        files: usize,
        /// Number of their blocks that were done, and are read again.
        blocks: usize,
    } => "{files} block files have changed since then; {blocks} blocks in them are read again";
    /// The checkpoint of an interrupted run is discarded.
    CheckpointDiscarded {
        /// Why it cannot be resumed.
        error: Error,
    } => "starting over: {error}";
    /// An interrupted run has made undo data, but it cannot be continued.
    MadeUndoGone => "starting over: the undo data that an interrupted run has made is in place or gone, or \
        other undo data has come into use since then";
    /// Parallel matching did not prove that the chain is valid; all blocks are checked again without undo
    /// data.
    CheckingWithoutUndo => "matching in parallel did not prove that the chain is valid; all blocks are \
        checked again without undo data, to find out what is wrong";
    /// The hints, or the files that they were used with, are wrong.
    HintsFailed {
        /// What is wrong with them.
        error: Error,
    } => "{error}";
    /// Hints are being downloaded; sent at the start, and every few seconds.
    DownloadingHints {
        /// Their URL.
        from as "url": String,
        /// Number of bytes that have come.
        received as "bytes": u64,
        /// Number of bytes in total, if it is known.
        total as "bytes_total": Option<u64>,
    } => "downloading the hints from {from}: {}", words::received(*received, *total);
    /// Hints were downloaded.
    HintsDownloaded {
        /// Their URL.
        from as "url": String,
        /// Number of bytes that have come.
        bytes: u64,
        /// The SHA-256 of these bytes, packed or not.
        sha256 with "DigestText": [u8; 32],
    } => "downloaded the hints from {from}: {bytes} bytes, sha256 {}", hex(sha256);
    /// Hints that an earlier run has downloaded are used again.
    ReusingHints {
        /// Their URL.
        from as "url": String,
        /// The file, unpacked.
        copy as "file" with "PathText": PathBuf,
    } => "using the hints that an earlier run has downloaded from {from}: {}", copy.display();
    /// Chunks of a snapshot are being fetched; sent every few seconds.
    FetchingChunks {
        /// Number of chunks that are proven.
        chunks: u64,
        /// Number of all.
        chunks_total: u64,
    } => "fetching the snapshot: {chunks} of {chunks_total} chunks are proven";
    /// No peer is connected.
    NoPeers {
        /// Why the last connection ended or could not be opened; `None` if none was tried, because no
        /// address is known.
        last as "last_attempt": Option<String>,
    } => "{}", words::no_peers(last.as_deref());
    /// No address of a peer was found in some network, so that addresses from the program's list are tried.
    FixedSeeds {
        /// Their number.
        addresses: usize,
    } => "the seeds have given no addresses of some networks; trying {addresses} that accepted \
        connections when this program was written";
    /// No peer has a chain with the network's minimum work.
    LowWork {
        /// Height of the best chain that was found.
        height: Height,
    } => "the best chain of the peers ends at height {height} and has less work than the network's chain is \
        known to have; waiting for another peer";
    /// A peer has sent a header from the future.
    HeaderFromFuture => "a peer has sent a header that is more than two hours in the future; if the clock of \
        this machine is wrong, correct it";
    /// No peer has a block whose header is known; the download continues with another branch.
    Withheld {
        /// Hash of the block.
        hash as "block_hash": BlockHash,
        /// Its height.
        height: Height,
    } => "no peer has block {hash} (height {height}); the download continues without it";
    /// A peer is no longer asked for the coins that blocks spend; the undo data of its blocks is made.
    SpentCoinsRefused {
        /// Address or name of the peer, and port.
        peer: String,
        /// What it has done.
        reason: String,
    } => "{peer} {reason}; it is no longer asked for coins, and the undo data of its blocks is made";
    /// A block, or a lower one, breaks a rule: the chain below is rebuilt, and then it is found out which.
    RebuildingBelow {
        /// Height of the block.
        height: Height,
    } => "the block at height {height}, or a lower one, breaks a rule; rebuilding the chainstate of the \
        blocks below it, to which the block is then connected";
    /// Blocks were found in the block files that the block index did not place there: an interrupted download
    /// had stored them, or the files were copied back.
    FoundBlocks {
        /// Their number.
        blocks: u32,
    } => "{blocks} blocks were found in the block files, and are not downloaded again";
    /// The chainstate is at the tip, and the run stays there.
    AtTip {
        /// Height of the tip.
        height: Height,
        /// Its hash.
        hash as "block_hash": BlockHash,
    } => "at the tip, height {height}, {hash}: new blocks are connected when they come; the datadir is free \
        in between, so that bitcoind can be started, which ends this run";
    /// A block has come, and waits because another program reads the datadir.
    WaitingForReaders => "another program reads the datadir: new blocks are connected when it has ended";
    /// New blocks were connected at the tip.
    ConnectedAtTip(ConnectedAtTip) => "{}", words::connected(_0);
    /// All blocks were read, to find those that are to be repaired.
    FoundDamage {
        /// Number of damaged blocks.
        blocks: u32,
        /// Number of these in files that do not exist.
        lost as "blocks_in_missing_files": u32,
        /// Number of these files.
        lost_files as "missing_files": u32,
        /// Number of blocks that are in no file.
        missing as "missing_blocks": u32,
        /// Number of blocks whose undo data is damaged.
        undo: u32,
    } => "{}", words::found_damage([*blocks, *lost, *lost_files, *missing, *undo]);
    /// A file or folder was read from which blocks were to be taken.
    ReadSource(SourceReport) => "{_0}";
    /// The blocks that the caller passed are stored.
    StoredGivenBlocks {
        /// Their number.
        blocks: u32,
    } => "{}", words::stored_given(*blocks);
    /// The rebuild starts again without hints.
    RebuildingWithoutHints {
        /// The first wrong hint; `None` if all are right, so that the undo files are wrong.
        first_wrong: Option<WrongHint>,
    } => "{}; rebuilding without hints; after an interrupt, leave out the hints",
        words::first_wrong(first_wrong.as_ref());
}
}

reported! {
/// Something that the operator must know; it is also in the report.
#[derive(Clone, Debug, Display)]
pub enum Warning {
    /// An earlier run was interrupted while it replaced the databases.
    Recovered {
        /// What has become of that.
        outcome with "Outcome": Recovery,
    } => "an earlier run was interrupted while it replaced the databases{}", words::outcome(*outcome);
    /// The new databases are in place, but not all of the old ones could be removed.
    CleanUpPending {
        /// Why.
        error: Error,
    } => "the new databases are in place, but the next run must clean up: {error}";
    /// Temporary files could not be removed.
    WorkFilesRemain {
        /// Why.
        error: Error,
    } => "temporary files could not be removed: {error}";
    /// The assumed-valid block that the caller chose is not among the headers.
    UnknownAssumedBlock {
        /// Its hash.
        hash as "block_hash": BlockHash,
        /// Whether Core's release names it, and not the caller.
        is_default: bool,
    } => "block {hash}, which was to be assumed valid, is not among the headers here; the scripts of all \
        blocks are checked";
    /// Not all of the undo data that bitcoind checks when it starts is on disk.
    LacksLastUndo {
        /// Number of blocks whose undo data it checks.
        blocks: usize,
    } => "bitcoind checks the undo data of the last {blocks} blocks when it starts, and not all of it is on \
        disk; unless it is made, start bitcoind with -checklevel=1 until it has connected as many new \
        blocks; it cannot disconnect these blocks";
    /// A stored block that was never connected is invalid; the rebuild continues without it.
    InvalidBlock {
        /// Its hash.
        hash as "block_hash": BlockHash,
        /// The rule that it breaks.
        error: Error,
    } => "block {hash}{} is stored, but was never connected, as far as the files show: it breaks a rule \
        ({}); continuing without this block",
        error.height.map_or(String::new(), |height| format!(" at height {height}")),
        error.explanation(Remedy::to_string);
    /// A peer has sent coins as those that a block spends, and the chain has created others. They are not in
    /// the result.
    FalseSpentCoins {
        /// Height of the block, the lowest one.
        height: Height,
        /// Its hash.
        hash as "block_hash": BlockHash,
        /// Address or name of the peer, and port.
        peer: String,
    } => "{peer} has sent false spent coins, first those of block {hash} (height {height}); they are not in \
        the result: its undo data was made without them; do not ask this peer again";
    /// The result is lower than what it replaces, as the caller has accepted.
    LowerTip(LowerTip) => "{_0}";
    /// Stored blocks above the last one are not connected.
    Unconnected {
        /// Number of these blocks.
        blocks: u32,
        /// Height of the last block.
        tip as "height": Height,
        /// Whether they may have been connected, and their undo data lost.
        may_be_lost: bool,
    } => "{blocks} stored blocks above height {tip} {}; bitcoind connects them when it starts",
        words::why_unconnected(*may_be_lost);
    /// Blocks or undo data are damaged; the rebuild ends below the lowest such block.
    Damage {
        /// Number of damaged blocks.
        blocks: u32,
        /// Number of blocks whose undo data is damaged.
        undo: u32,
        /// What is wrong with the lowest damaged blocks.
        first as "errors": Vec<Error>,
    } => "{}", words::damage(*blocks, *undo, first);
    /// The block index is unusable, because of this error; a scan of the block files makes a new one.
    IndexUnusable {
        /// Why.
        error: Error,
    } => "the block index is unusable ({error}); a scan of the block files makes a new one, without the \
        marks of invalidateblock";
    /// Neither the block files nor the peers have the chainstate's best block, so that it was set aside.
    ChainstateSetAside {
        /// Hash of that block.
        best as "block_hash": BlockHash,
        /// Where it is now.
        kept with "PathText": PathBuf,
    } => "neither the block files nor the peers have the chainstate's best block {best}: the chainstate is \
        set aside as {}, and a new one is built", kept.display();
    /// The old block index places blocks outside the chain in `blk` files that do not exist. The new one has
    /// only their headers.
    MissingBlockFiles {
        /// Numbers of the files.
        files with "BlkNames": Vec<FileNo>,
    } => "{}", words::missing_files(files);
    /// Blocks of another chain are left out ([`disk::departed`]).
    LeftOutDeparted {
        /// Their number.
        blocks: u32,
    } => "{blocks} blocks are left out: they were {}, and are not on Bitcoin's chain",
        disk::departed::WRITTEN_BY;
    /// The old block index marks a block as invalid that was found valid.
    MarkDropped {
        /// Height of the block.
        height: Height,
        /// Its hash.
        hash as "block_hash": BlockHash,
    } => "the old block index marks block {hash} (height {height}) as invalid, because of invalidateblock or \
        an earlier failure; it was found valid, and the mark is dropped; repeat invalidateblock if it was \
        intended";
    /// The block index marks a block as invalid, and stored blocks above it have more work than the chain.
    MarkedInvalid {
        /// Height of the block.
        height: Height,
        /// Its hash.
        hash as "block_hash": BlockHash,
        /// Height of the last of the stored blocks above it.
        tip as "tip_height": Height,
    } => "the block index marks block {hash} (height {height}) as invalid, because of invalidateblock or an \
        earlier failure; like bitcoind, Peregrine leaves out that block and those above it, up to height \
        {tip}; if it is valid, run bitcoin-cli reconsiderblock {hash}";
    /// The last block is ahead of the clock, so that bitcoind does not start.
    FromFuture {
        /// How far, in hours.
        hours: u64,
    } => "the last block is {hours} hours ahead of this machine's clock, and bitcoind does not start with a \
        block from the future: correct the clock";
    /// Blocks lie beyond the bytes that the block index records as used.
    BlocksBeyondIndex {
        /// Number of these blocks.
        blocks: u32,
        /// The first block file that contains some.
        file with "PathText": PathBuf,
        /// Number of bytes of that file that the index records as used.
        used as "used_bytes": u64,
    } => "{blocks} blocks lie beyond the bytes that the block index records as used, from byte {used} of {} \
        on, as a crashed bitcoind leaves them; bitcoind downloads them again and overwrites them",
        file.display();
    /// A block file from which blocks were to be taken cannot be read; those before the place were taken.
    SourceUnreadable {
        /// Why.
        error: Error,
    } => "{error}; blocks after this place were not taken from the file";
    /// The block index cannot be read, so that heights or times of blocks are missing in the result.
    IndexUnread {
        /// Why.
        error: Error,
    } => "heights or times of blocks are missing in the result, because the block index cannot be read: {}",
        error.fact_text();
    /// The file system cannot sync a directory: after a power cut, names of files there may be missing.
    DirectoryNotSynced {
        /// The first such directory.
        dir as "directory" with "PathText": PathBuf,
    } => "the file system of {} cannot sync directories, like some network file systems; a power failure in \
        the next minutes may undo changes of file names; bitcoind runs the same risk there", dir.display();
    /// An index of the datadir could not stay right, and was set aside.
    IndexSetAside {
        /// The name of its folder.
        name as "index": String,
        /// Where it is now.
        kept with "PathText": PathBuf,
    } => "the index {name} is set aside, because it would become wrong, or could not be used: it is now {}; \
        bitcoind builds it anew if its option is set, and then that directory can be removed",
        kept.display();
    /// Indexes of the datadir are left unchanged, and stay right.
    IndexesUnchanged {
        /// Their directory.
        dir as "directory" with "PathText": PathBuf,
        /// Their names.
        names as "indexes": Vec<String>,
    } => "the indexes in {} ({}) are left unchanged, and stay right: none of their stored blocks gets \
        another place; bitcoind continues each from its own best block", dir.display(), names.join(", ");
    /// The chainstate of a snapshot is left unchanged.
    SnapshotUnchanged {
        /// The chainstate's directory.
        dir as "directory" with "PathText": PathBuf,
        /// Hash of the snapshot's base block.
        base as "base_block_hash": BlockHash,
    } => "the snapshot's chainstate in {} is left unchanged: bitcoind continues with both chainstates until \
        the rebuilt one is at block {base}, compares them there, and then keeps only the snapshot's",
        dir.display();
}
}

written! {
    /// Warnings, each with its text.
    Notes: Vec<Warning> => Vec<WithText<Warning>>, |notes| notes.iter().cloned().map(WithText::new).collect();
    /// Only their texts.
    NoteTexts: Vec<Warning> => Vec<String>, |notes| texts(notes.iter());
}
