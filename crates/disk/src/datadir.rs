//! The paths in a Bitcoin Core datadir.
//!
//! ```text
//! <root>/                      main; the other networks: <root>/testnet3, testnet4, signet, regtest
//!   .lock                      held by the process that uses the datadir        (lock)
//!   blocks/blkNNNNN.dat        blocks in the order in which they arrived        (blk)
//!   blocks/revNNNNN.dat        the coins each of them spent                     (undo)
//!   blocks/xor.dat             the key that obfuscates both                     (xor)
//!   blocks/peregrine-undo/      undo data that Peregrine makes, until it is in place    (made_undo)
//!   blocks/.lock               like .lock, because blocks/ can be shared        (lock)
//!   blocks/index/              LevelDB: headers, positions, files               (index)
//!   chainstate/                LevelDB: the UTXO set                            (chainstate)
//!   chainstate_snapshot/       the same, from a snapshot, and the hash of its block in base_blockhash
//! ```
//! With `-blocksdir=DIR`, all files of `blocks` are in `DIR/blocks` (of other networks `DIR/testnet3/blocks`
//! and so on), but the index is here.
//!
//! Later releases keep a signet with its own challenge in `signet_` and the eight hex digits of its magic.

use crate::error::DiskError;
use crate::index::MAX_FILES;
use hex_conservative::DisplayHex as _;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _};
use wire::{FileNo, Network};

/// Directory of the block files, in the network's directory.
pub const BLOCKS: &str = "blocks";
/// Path of the block index, relative to the directory of the network.
pub const INDEX: &str = "blocks/index";
/// Path of the chainstate, relative to the directory of the network.
pub const CHAINSTATE: &str = "chainstate";
/// Path of the chainstate of a snapshot (Core `SNAPSHOT_CHAINSTATE_SUFFIX`).
pub const SNAPSHOT_CHAINSTATE: &str = "chainstate_snapshot";
/// File in it with the hash of the snapshot's block (Core `SNAPSHOT_BLOCKHASH_FILENAME`).
pub const SNAPSHOT_BASE: &str = "base_blockhash";

/// Directory of the database of a block filter index, in that of its files.
pub const FILTER_DATABASE: &str = "db";

/// The first file with block filters.
pub const FIRST_FILTERS: &str = "fltr00000.dat";

/// Whether a file with this name has block filters.
pub fn is_filter_file(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix("fltr")?.strip_suffix(".dat"));
    number.is_some_and(|number| number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Kind of a file of a pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FileKind {
    /// `blk`: blocks.
    Blk,
    /// `rev`: undo data.
    Rev,
}

impl FileKind {
    /// The name of a file of this kind: `blkNNNNN.dat` or `revNNNNN.dat`.
    pub fn file_name(self, file: FileNo) -> String {
        let prefix = if self == Self::Blk { "blk" } else { "rev" };
        format!("{prefix}{:05}.dat", file.0)
    }
}

/// Why a directory is not the datadir of a network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Absence {
    #[error("no such directory")]
    NoDirectory,
    /// It has no directory `blocks` for any network.
    #[error("it has no directory blocks")]
    NoBlocks,
    /// It has no directory `blocks` for any network, but a chainstate of this one.
    #[error("a chainstate, whose coins can be read, but no directory blocks")]
    OnlyChainstate,
    /// It has blocks of these networks only.
    #[error("it has only blocks of: {}", names(.0))]
    OtherNetworks(Vec<Network>),
}

fn names(networks: &[Network]) -> String {
    networks.iter().map(|network| network.name()).collect::<Vec<_>>().join(", ")
}

/// Where a datadir is, as bitcoind is told it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The datadir (Core `-datadir`).
    pub root: PathBuf,
    /// The directory that contains the directory of the block files instead (Core `-blocksdir`).
    pub blocksdir: Option<PathBuf>,
    pub network: Network,
    /// The bytes that start each record of a block file.
    pub magic: [u8; 4],
}

impl Location {
    /// The location of a network's datadir without further options.
    pub fn new(root: &Path, network: Network) -> Self {
        Self { root: root.to_owned(), blocksdir: None, network, magic: network.magic() }
    }

    /// Returns the networks that have a directory of block files there.
    pub fn networks(&self, disk: &dyn Disk) -> Result<Vec<Network>, DiskError> {
        self.networks_with(disk, Datadir::blocks_dir)
    }

    /// Like [`Location::networks`]; if there is none, the networks with a chainstate: what may be meant.
    pub fn likely_networks(&self, disk: &dyn Disk) -> Result<Vec<Network>, DiskError> {
        let found = self.networks(disk)?;
        if found.is_empty() { self.networks_with(disk, Datadir::chainstate_dir) } else { Ok(found) }
    }

    fn networks_with(
        &self,
        disk: &dyn Disk,
        dir: impl Fn(&Datadir) -> PathBuf,
    ) -> Result<Vec<Network>, DiskError> {
        let mut found = Vec::new();
        for network in Network::ALL {
            let magic = if network == self.network { self.magic } else { network.magic() };
            let location = Self { network, magic, ..self.clone() };
            if is_dir(disk, &dir(&Datadir::in_folder(&location, location.folder(disk).as_deref())))? {
                found.push(network);
            }
        }
        Ok(found)
    }

    /// The name of the folder of the network, which the main network does not have. What cannot be read is
    /// reported when it is opened.
    fn folder(&self, disk: &dyn Disk) -> Option<String> {
        let usual = self.network.subdirectory()?;
        let has = |name: &str| {
            let mut homes = [Some(&self.root), self.blocksdir.as_ref()].into_iter().flatten();
            homes.any(|home| is_dir(disk, &home.join(name)).unwrap_or_default())
        };
        if self.network == Network::Signet {
            let own = format!("{CUSTOM_SIGNET}{}", self.magic.as_hex());
            if has(&own) {
                return Some(own);
            }
            // Reading its blocks shows that a challenge is missing.
            if self.magic == self.network.magic() && !has(usual) {
                let names = disk.list(&self.root).unwrap_or_default();
                let custom = names.into_iter().find(|name| is_custom_signet(name));
                return custom.and_then(|name| name.into_string().ok()).or(Some(usual.to_owned()));
            }
        }
        Some(usual.to_owned())
    }

    /// The network whose own directory `root` is, by its name.
    pub fn network_of_name(root: &Path) -> Option<Network> {
        let name = root.file_name();
        let usual = Network::ALL.into_iter().find(|own| own.subdirectory().map(OsStr::new) == name);
        usual.or(name.is_some_and(is_custom_signet).then_some(Network::Signet))
    }
}

/// What the name of the folder of a signet with its own challenge begins with.
const CUSTOM_SIGNET: &str = "signet_";

fn is_custom_signet(name: &OsStr) -> bool {
    let magic = name.to_str().and_then(|name| name.strip_prefix(CUSTOM_SIGNET));
    magic.is_some_and(|magic| magic.len() == 8 && magic.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The paths of one network in a datadir.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datadir {
    network: Network,
    magic: [u8; 4],
    net_dir: PathBuf,
    blocks_dir: PathBuf,
}

impl Datadir {
    /// Finds the network of a location, whose `root` may also be the network's own directory, if it has the
    /// name that Core gives it.
    ///
    /// # Errors
    /// [`DiskError::NoDatadir`] if the network has no blocks there; the message names the networks that have.
    /// [`DiskError::File`] for I/O errors.
    pub fn open(disk: &dyn Disk, location: &Location) -> Result<Self, DiskError> {
        let Location { root, blocksdir, network, .. } = location;
        let flaw = match Self::find(disk, location)? {
            Ok(found) => return found.with_blocks(disk),
            Err(Absence::NoDirectory) => {
                "no such directory; give the directory that bitcoind uses as -datadir".to_owned()
            }
            Err(Absence::NoBlocks) => {
                "not a Bitcoin Core datadir: it has no directory `blocks` for any chain; give the \
                 directory that bitcoind uses as -datadir"
                    .to_owned()
            }
            Err(Absence::OnlyChainstate) => {
                "it has a chainstate, but no directory `blocks`, which this command needs".to_owned()
            }
            Err(Absence::OtherNetworks(others)) => format!(
                "it has no blocks of the chain {network}; name the chain that it has blocks of: {}",
                others.iter().map(|other| other.name()).collect::<Vec<_>>().join(", ")
            ),
        };
        Err(DiskError::NoDatadir { path: blocksdir.as_ref().unwrap_or(root).clone(), flaw })
    }

    /// Like [`Datadir::open`], but a directory `blocks` without block files suffices, and an absent datadir
    /// is not an error.
    pub fn find(disk: &dyn Disk, location: &Location) -> Result<Result<Self, Absence>, DiskError> {
        let Location { root, blocksdir, .. } = location;
        for dir in [Some(root), blocksdir.as_ref()].into_iter().flatten() {
            if !is_dir(disk, dir)? {
                return Ok(Err(Absence::NoDirectory));
            }
        }
        let found = Self::of(disk, location)?;
        if is_dir(disk, &found.blocks_dir)? {
            return Ok(Ok(found));
        }
        let own = Location::network_of_name(root).filter(|_| blocksdir.is_none());
        // `blocks` directly in a network's own directory belongs to that network, not to main.
        let owner = |other: Network| own.filter(|_| other == Network::Main).unwrap_or(other);
        let others: Vec<Network> = location.networks(disk)?.into_iter().map(owner).collect();
        Ok(Err(match others.is_empty() {
            true if is_dir(disk, &found.chainstate_dir())? => Absence::OnlyChainstate,
            true => Absence::NoBlocks,
            false => Absence::OtherNetworks(others),
        }))
    }

    /// Returns `self` if it has block files.
    fn with_blocks(self, disk: &dyn Disk) -> Result<Self, DiskError> {
        if !self.blk_files(disk)?.is_empty() {
            return Ok(self);
        }
        let flaw = "there are no block files (blkNNNNN.dat); if bitcoind runs with -blocksdir=DIR, give that \
                    directory here too; if the files are lost, move this directory away, and download all \
                    blocks";
        Err(DiskError::NoDatadir { path: self.blocks_dir, flaw: flaw.to_owned() })
    }

    /// Returns the paths of a datadir at `root`, whether it exists or not.
    pub fn at(root: &Path, network: Network) -> Self {
        Self::new(&Location::new(root, network))
    }

    /// Returns the paths of a datadir that is to be created at `location`.
    pub fn new(location: &Location) -> Self {
        Self::in_folder(location, location.network.subdirectory())
    }

    /// Returns the paths of a datadir at `location`, whose `root` may also be the network's own directory,
    /// whether it exists or not.
    pub fn of(disk: &dyn Disk, location: &Location) -> Result<Self, DiskError> {
        let root = &location.root;
        let found = Self::in_folder(location, location.folder(disk).as_deref());
        let own = Self { net_dir: root.clone(), blocks_dir: root.join(BLOCKS), ..found };
        let is_named = Location::network_of_name(root) == Some(location.network);
        if !is_named || location.blocksdir.is_some() {
            return Ok(found);
        }
        let exists = |datadir: &Self| -> Result<bool, DiskError> {
            Ok(is_dir(disk, &datadir.blocks_dir)? || is_dir(disk, &datadir.chainstate_dir())?)
        };
        Ok(if !exists(&found)? && exists(&own)? { own } else { found })
    }

    fn in_folder(location: &Location, folder: Option<&str>) -> Self {
        let Location { root, blocksdir, network, magic } = location;
        let below = |dir: &Path| folder.map_or(dir.to_owned(), |name| dir.join(name));
        let blocks_dir = below(blocksdir.as_ref().unwrap_or(root)).join(BLOCKS);
        Self { network: *network, magic: *magic, net_dir: below(root), blocks_dir }
    }

    pub const fn network(&self) -> Network {
        self.network
    }

    /// The bytes that start each record of a block file.
    pub const fn magic(&self) -> [u8; 4] {
        self.magic
    }

    /// The directory of the network.
    pub fn net_dir(&self) -> &Path {
        &self.net_dir
    }

    /// `blocks`, where the block files are.
    pub fn blocks_dir(&self) -> PathBuf {
        self.blocks_dir.clone()
    }

    /// `blocks/index`.
    pub fn index_dir(&self) -> PathBuf {
        self.net_dir.join(INDEX)
    }

    /// `chainstate`.
    pub fn chainstate_dir(&self) -> PathBuf {
        self.net_dir.join(CHAINSTATE)
    }

    /// `chainstate_snapshot`.
    pub fn snapshot_dir(&self) -> PathBuf {
        self.net_dir.join(SNAPSHOT_CHAINSTATE)
    }

    /// `blocks/blkNNNNN.dat`.
    pub fn blk_path(&self, file: FileNo) -> PathBuf {
        self.block_file_path(FileKind::Blk, file)
    }

    /// `blocks/revNNNNN.dat`.
    pub fn rev_path(&self, file: FileNo) -> PathBuf {
        self.block_file_path(FileKind::Rev, file)
    }

    /// The `blk` or `rev` file of a pair.
    pub fn block_file_path(&self, kind: FileKind, file: FileNo) -> PathBuf {
        self.blocks_dir().join(kind.file_name(file))
    }

    /// Returns the numbers of the existing `blk` files, ascending; pruned datadirs have gaps.
    ///
    /// # Errors
    /// [`DiskError::File`] if the directory cannot be listed.
    pub fn blk_files(&self, disk: &dyn Disk) -> Result<Vec<FileNo>, DiskError> {
        self.block_files(disk, FileKind::Blk)
    }

    /// Returns the numbers of the existing `blk` or `rev` files, ascending.
    ///
    /// # Errors
    /// [`DiskError::File`] if the directory cannot be listed.
    pub fn block_files(&self, disk: &dyn Disk, kind: FileKind) -> Result<Vec<FileNo>, DiskError> {
        let dir = self.blocks_dir();
        let names = disk.list(&dir).during("list", &dir)?;
        let mut files: Vec<FileNo> = names.iter().filter_map(|name| file_no(kind, name)).collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Returns the first directory that is in the place of a block or undo file, if there is any.
    ///
    /// # Errors
    /// [`DiskError::File`] if a directory cannot be listed or a file cannot be looked at.
    pub fn directory_as_block_file(&self, disk: &dyn Disk) -> Result<Option<PathBuf>, DiskError> {
        for kind in [FileKind::Blk, FileKind::Rev] {
            for file in self.block_files(disk, kind)? {
                let path = self.block_file_path(kind, file);
                if is_dir(disk, &path)? {
                    return Ok(Some(path));
                }
            }
        }
        Ok(None)
    }
}

/// Returns the number in the name of a file of that kind, if it is spelt exactly as Core writes it, and is
/// that of a possible file.
pub fn file_no(kind: FileKind, name: &OsStr) -> Option<FileNo> {
    let name = name.to_str()?;
    let digits = name.get(3..)?.strip_suffix(".dat")?;
    let number = FileNo(digits.parse().ok()?);
    (name == kind.file_name(number) && number.0 < MAX_FILES).then_some(number)
}

pub(crate) fn is_dir(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    let found = disk.metadata(path).during("look at", path)?;
    Ok(found.is_some_and(|found| found.is_dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    /// Creates a directory of blocks with an empty block file.
    fn add_blocks(blocks_dir: &Path) {
        RealDisk.create_dir_all(blocks_dir).unwrap();
        RealDisk.create(&blocks_dir.join("blk00000.dat")).unwrap();
    }

    fn open_at(location: &Location) -> Result<Datadir, String> {
        Datadir::open(&RealDisk, location).map_err(|error| error.to_string())
    }

    #[test]
    fn the_error_for_a_missing_chain_names_the_chains_that_exist() {
        let root = tempfile::tempdir().unwrap();
        let open = |network| open_at(&Location::new(root.path(), network));
        assert!(open(Network::Main).unwrap_err().contains("not a Bitcoin Core datadir"));
        for folder in ["signet/blocks", "regtest/blocks"] {
            add_blocks(&root.path().join(folder));
        }
        assert!(open(Network::Main).unwrap_err().contains("has blocks of: signet, regtest"));
        let signet = open(Network::Signet).unwrap();
        assert_eq!(signet.net_dir(), root.path().join("signet"));
        assert!(signet.rev_path(FileNo(123_456)).ends_with("signet/blocks/rev123456.dat"));
        let missing = open_at(&Location::new(&root.path().join("x"), Network::Main)).unwrap_err();
        assert!(missing.contains("no such directory"), "{missing}");
    }

    /// Once, `--datadir ~/.bitcoin/regtest --chain regtest` failed with the advice to choose the chain main.
    #[test]
    fn accepts_the_networks_own_directory_by_its_name() {
        let (root, own) = testkit::fresh_path("regtest");
        add_blocks(&own.join("blocks"));
        let open = |dir: &Path, network| {
            open_at(&Location::new(dir, network)).map(|datadir| datadir.net_dir().to_owned())
        };
        assert_eq!(open(&own, Network::Regtest).as_ref(), Ok(&own));
        assert_eq!(open(root.path(), Network::Regtest).as_ref(), Ok(&own));
        let error = open(&own, Network::Signet).unwrap_err();
        assert!(
            error.contains("no blocks of the chain signet; name the chain that it has blocks of: regtest"),
            "{error}"
        );
        let signet = root.path().join("signet_54d26fbd");
        add_blocks(&signet.join("blocks"));
        let custom = |dir: &Path, magic| {
            let location = Location { magic, ..Location::new(dir, Network::Signet) };
            open_at(&location).map(|datadir| datadir.net_dir().to_owned()).unwrap()
        };
        let magic = [0x54, 0xd2, 0x6f, 0xbd];
        let default = Network::Signet.magic();
        // Without its challenge, it is found if there is no other.
        assert_eq!(custom(root.path(), magic), signet);
        assert_eq!(custom(root.path(), default), signet);
        assert_eq!([custom(&signet, magic), custom(&signet, default)], [signet.clone(), signet.clone()]);
        let other = root.path().join("signet");
        add_blocks(&other.join("blocks"));
        assert_eq!([custom(root.path(), magic), custom(root.path(), default)], [signet, other.clone()]);
        // A datadir that happens to have that name.
        add_blocks(&own.join("regtest/blocks"));
        assert_eq!(open(&own, Network::Regtest).unwrap(), own.join("regtest"));
    }

    #[test]
    fn the_error_for_missing_block_files_explains_blocksdir() {
        let root = tempfile::tempdir().unwrap();
        RealDisk.create_dir_all(&root.path().join("signet/blocks/index")).unwrap();
        let here = Location::new(root.path(), Network::Signet);
        let error = open_at(&here).unwrap_err();
        assert!(error.contains("-blocksdir=DIR, give that directory here too"), "{error}");
        let elsewhere = root.path().join("disk");
        let there = Location { blocksdir: Some(elsewhere.clone()), ..here };
        assert!(open_at(&there).unwrap_err().contains("disk: no such directory"));
        let blocks = elsewhere.join("signet/blocks");
        add_blocks(&blocks);
        let found = open_at(&there).unwrap();
        assert_eq!(found.blocks_dir(), blocks);
        assert_eq!(found.index_dir(), root.path().join("signet/blocks/index"));
        let of_main = open_at(&Location { network: Network::Main, ..there });
        assert!(of_main.unwrap_err().contains("has blocks of: signet"));
    }

    #[test]
    fn lists_only_block_files_in_numeric_order() {
        let root = tempfile::tempdir().unwrap();
        let datadir = Datadir::at(root.path(), Network::Main);
        RealDisk.create_dir_all(&datadir.blocks_dir()).unwrap();
        for name in [
            "blk00010.dat",
            "blk00002.dat",
            "blk100000.dat",
            "blk2.dat",
            "blk00002.dat.bak",
            "rev00003.dat",
            "blk4000000000.dat",
        ] {
            RealDisk.create(&datadir.blocks_dir().join(name)).unwrap();
        }
        let files = datadir.blk_files(&RealDisk).unwrap();
        assert_eq!(files, [FileNo(2), FileNo(10), FileNo(100_000)]);
    }
}
