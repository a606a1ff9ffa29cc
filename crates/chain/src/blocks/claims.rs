//! What peers say blocks spend: undo data that waits for a rebuild behind the download.
//!
//! It waits in files that have no names, so that nothing is left of them when the process ends, however it
//! ends. Each file is given up when the blocks of all its undo data are settled.
//!
//! These are claims. The rebuild proves them. Undo data that it had to make instead is compared with the
//! claims, to find the peer that has sent false ones.

use crate::threads::lock;
use api::error::Error;
use disk::scratch_file::{Piece, ScratchFile};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use vfs::{Disk, During as _, remove_if_there};
use wire::Height;

/// Name of a file while it is being created.
const FILE_NAME: &str = "peregrine-spent-coins";
/// Number of bytes after which another file begins.
const FILE_BYTES: u64 = 64 << 20;

pub struct PeerClaims {
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where the undo data of blocks is, by height; `None` if there is none.
    places: Vec<Option<Place>>,
    files: BTreeMap<u32, ClaimFile>,
    /// The peers, by the number in a place.
    peers: Vec<String>,
    /// Bytes of undo data that was read since blocks were last settled.
    read_bytes: u64,
    /// Whether no more is taken, because the chain is checked without undo data.
    is_closed: bool,
    /// The lowest block whose undo data differs from what a peer claimed.
    first_false: Option<Height>,
}

#[derive(Clone, Copy)]
struct Place {
    file: u32,
    peer: u32,
    piece: Piece,
}

struct ClaimFile {
    scratch: Arc<ScratchFile>,
    bytes: u64,
    highest: Height,
}

impl PeerClaims {
    /// Memory in bytes for each block of the chain.
    pub const BYTES_PER_BLOCK: u64 = size_of::<Option<Place>>() as u64;

    /// No claims yet, for a chain of `blocks`; their files will be in `dir`.
    pub fn new(dir: PathBuf, blocks: usize) -> Self {
        Self { dir, state: Mutex::new(State { places: vec![None; blocks], ..State::default() }) }
    }

    /// Removes a file left in `dir` by a process that was killed just as it created the file.
    pub fn remove_left(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        remove_if_there(disk, &dir.join(FILE_NAME))?;
        Ok(())
    }

    /// Whether claims are of use.
    pub fn are_wanted(&self) -> bool {
        !lock(&self.state).is_closed
    }

    pub fn has_any(&self) -> bool {
        !lock(&self.state).peers.is_empty()
    }

    /// Adds the undo data of a block that `peer` claims. Heights above the chain are ignored.
    pub fn add(&self, disk: &dyn Disk, height: Height, undo: &[u8], peer: &str) -> Result<(), Error> {
        let state = &mut *lock(&self.state);
        if state.is_closed || state.places.len() <= height.0 as usize {
            return Ok(());
        }
        let is_full = state.files.last_key_value().is_none_or(|(_, file)| file.bytes >= FILE_BYTES);
        if is_full {
            let path = self.dir.join(FILE_NAME);
            let scratch = Arc::new(ScratchFile::create(disk, &path)?);
            disk.remove_file(&path).during("remove", &path)?;
            let number = state.files.last_key_value().map_or(0, |(last, _)| last + 1);
            state.files.insert(number, ClaimFile { scratch, bytes: 0, highest: height });
        }
        let Some(mut last) = state.files.last_entry() else { return Ok(()) };
        let (number, file) = (*last.key(), last.get_mut());
        let piece = file.scratch.append(undo)?;
        file.bytes += undo.len() as u64;
        file.highest = file.highest.max(height);
        let known = state.peers.iter().position(|known| known == peer);
        let peer = known.unwrap_or_else(|| {
            state.peers.push(peer.to_owned());
            state.peers.len() - 1
        });
        if let Some(place) = state.places.get_mut(height.0 as usize) {
            *place = Some(Place { file: number, peer: peer as u32, piece });
        }
        Ok(())
    }

    /// Reads the undo data of a block; `None` if there is none.
    pub fn read(&self, height: Height) -> Result<Option<Vec<u8>>, Error> {
        let (scratch, piece) = {
            let state = &mut *lock(&self.state);
            let Some(Place { file, piece, .. }) = state.place(height) else { return Ok(None) };
            let Some(file) = state.files.get(&file) else { return Ok(None) };
            state.read_bytes += piece.len() as u64;
            (Arc::clone(&file.scratch), piece)
        };
        let mut undo = Vec::with_capacity(piece.len());
        scratch.read(&piece, &mut undo)?;
        Ok(Some(undo))
    }

    /// Bytes of undo data that was read since [`PeerClaims::settle`].
    pub fn read_bytes(&self) -> u64 {
        lock(&self.state).read_bytes
    }

    /// Records that the undo data of all blocks below `first` was taken from here, or made.
    pub fn settle(&self, first: Height) {
        let state = &mut *lock(&self.state);
        state.read_bytes = 0;
        let last = state.files.last_key_value().map(|(&last, _)| last);
        state.files.retain(|&number, file| file.highest >= first || Some(number) == last);
    }

    /// Takes no more claims: the chain is checked without undo data.
    pub fn close(&self) {
        let state = &mut *lock(&self.state);
        state.is_closed = true;
        state.files.clear();
    }

    /// Compares undo data that was made with what a peer has claimed of its block.
    pub fn compare(&self, height: Height, made: &[u8]) {
        let state = &mut *lock(&self.state);
        if state.place(height).is_some_and(|place| !place.piece.has(made)) {
            state.first_false = Some(state.first_false.map_or(height, |first| first.min(height)));
        }
    }

    /// Returns the lowest block whose undo data differs from what a peer claimed, and the peer.
    pub fn first_false(&self) -> Option<(Height, String)> {
        let state = &*lock(&self.state);
        let height = state.first_false?;
        Some((height, state.peers.get(state.place(height)?.peer as usize)?.clone()))
    }
}

impl State {
    fn place(&self, height: Height) -> Option<Place> {
        self.places.get(height.0 as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    #[test]
    fn claims_come_back_until_they_are_settled_and_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let claims = PeerClaims::new(dir.path().to_owned(), 10);
        assert!(claims.are_wanted() && !claims.has_any());
        let large = vec![7; FILE_BYTES as usize];
        for (height, undo, peer) in [(3, &large[..], "a"), (1, &[1, 2], "b"), (9, &[3], "a"), (10, &[4], "c")]
        {
            claims.add(&RealDisk, Height(height), undo, peer).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let read = |height| claims.read(Height(height)).unwrap();
        assert_eq!([read(1), read(9), read(2), read(10)], [Some(vec![1, 2]), Some(vec![3]), None, None]);
        assert_eq!(read(3).map(|undo| undo.len()), Some(large.len()));
        assert_eq!(claims.read_bytes(), 3 + FILE_BYTES);
        claims.settle(Height(4));
        assert_eq!(read(3), None, "the last file stays");
        assert_eq!(read(1), Some(vec![1, 2]), "the last file stays");
        assert_eq!(claims.read_bytes(), 2, "the last file stays");
        assert_eq!(claims.first_false(), None);
        claims.compare(Height(9), &[3]);
        claims.compare(Height(2), &[3]);
        assert_eq!(claims.first_false(), None);
        claims.compare(Height(9), &[4]);
        claims.compare(Height(1), &[1, 2, 3]);
        assert_eq!(claims.first_false(), Some((Height(1), "b".to_owned())));
        claims.close();
        claims.add(&RealDisk, Height(5), &[5], "a").unwrap();
        assert!(!claims.are_wanted() && claims.has_any() && read(5).is_none() && read(9).is_none());
    }
}
