//! Undo data that a rebuild makes, on its way to the `rev` files and the block index.

use crate::stages::make_undo::{PlacedUndo, UndoSink};
use api::{
    error::{Error, ErrorKind},
    remedy::Remedy,
    report::UndoReport,
};
use chain::blocks::{chain::Chain, files::Files};
use disk::{
    DiskError,
    datadir::{Datadir, FileKind},
    index::{BlockStatus, FileInfo, IndexEntry},
    made_undo::{MadeUndo, MadeUndoFile, UsedBefore, clear_made_undo},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use vfs::During as _;
use wire::{ByteOffset, FileNo, Height};

/// The undo data that a job makes. It waits beside the `rev` files until the rebuild is proven.
pub struct UndoFiles<'d> {
    files: &'d Files<'d>,
    result: &'d Datadir,
    /// For each pair of files, the bytes of the `rev` file in use.
    used: Vec<u32>,
    /// Called when it is certain that the block index must record undo data.
    prepare_index: &'d (dyn Fn() -> Result<(), Error> + Sync),
    state: Mutex<State<'d>>,
}

#[derive(Default)]
struct State<'d> {
    /// `None` before the first record.
    made: Option<Arc<MadeUndo<'d>>>,
    /// Positions of the undo data that was made, by block, in order of height.
    positions: Vec<(Height, u32)>,
}

/// What was made, and what the block index must record about it.
pub struct NewUndo<'d> {
    made: Arc<MadeUndo<'d>>,
    positions: Vec<(Height, u32)>,
    /// For each pair of files, the bytes of the `rev` file that were in use before.
    used: Vec<u32>,
}

impl<'d> UndoFiles<'d> {
    /// No undo data yet. `infos` are the block index's entries for the files; `result` is the datadir that
    /// gets the undo data.
    ///
    /// `keeps_all`: whether all bytes of the `rev` files stay, not only those in use by `infos`. After a
    /// scan, these are the ones that it recognized, but an old block index may refer to more.
    ///
    /// `prepare_index` is called before the first undo data is written, and finds what will be in the way of
    /// a new block index: damage to undo data can show hours before the end.
    pub fn new(
        files: &'d Files<'d>,
        result: &'d Datadir,
        infos: &[FileInfo],
        keeps_all: bool,
        prepare_index: &'d (dyn Fn() -> Result<(), Error> + Sync),
    ) -> Result<Self, Error> {
        let before = UsedBefore::read(files.disk, files.datadir)?;
        let used = (0..).map(FileNo).zip(infos).map(|(number, info)| {
            let in_use = if keeps_all { u32::MAX } else { info.undo_size };
            let len = files.len(FileKind::Rev, number)?.min(before.limit(number));
            Ok(u32::try_from(len).unwrap_or(u32::MAX).min(in_use))
        });
        let used = used.collect::<Result<_, Error>>()?;
        Ok(Self { files, result, used, prepare_index, state: Mutex::default() })
    }

    /// Checks that records can be appended to the `rev` files of the blocks from `from` on whose undo data is
    /// known to be missing, so that the work is not in vain.
    pub fn check_access(&self, chain: &Chain, from: Height) -> Result<(), Error> {
        let disk = self.files.disk;
        for (number, heights) in chain.by_file() {
            let is_missing =
                |&height: &Height| height >= from.max(Height(1)) && chain.block(height).undo_pos.is_none();
            let path = self.files.path(FileKind::Rev, number);
            if heights.iter().any(is_missing) && disk.metadata(&path).during("look at", &path)?.is_some() {
                disk.open_for_writing(&path).during("open for writing", &path)?;
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State<'d>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to make undo data, or returns what was begun.
    fn made(&self, state: &mut State<'d>) -> Result<Arc<MadeUndo<'d>>, Error> {
        if let Some(made) = &state.made {
            return Ok(Arc::clone(made));
        }
        (self.prepare_index)()?;
        let Files { disk, datadir, obfuscation, .. } = *self.files;
        let made = MadeUndo::begin(disk, datadir, self.result, obfuscation, self.used.clone())?;
        Ok(Arc::clone(state.made.insert(Arc::new(made))))
    }

    /// Takes the undo data that was made; `None` if there is none.
    pub fn take(&self) -> Option<NewUndo<'d>> {
        let State { made, mut positions } = std::mem::take(&mut *self.state());
        positions.sort_unstable();
        made.map(|made| NewUndo { made, positions, used: self.used.clone() })
    }
}

impl UndoSink for UndoFiles<'_> {
    fn start_over(&self) -> Result<(), Error> {
        *self.state() = State::default();
        clear_made_undo(self.files.disk, self.result)?;
        Ok(())
    }

    fn resume(&self, chain: &Chain, made: &[(Height, u32)]) -> Result<bool, Error> {
        if made.is_empty() {
            self.start_over()?;
            return Ok(true);
        }
        let Files { disk, datadir, obfuscation, .. } = *self.files;
        let resumed = match MadeUndo::resume(disk, datadir, self.result, obfuscation) {
            Err(DiskError::DamagedWorkFile { .. }) => return Ok(false),
            resumed => Arc::new(resumed.map_err(starting_over_helps)?),
        };
        (self.prepare_index)()?;
        *self.state() = State { made: Some(Arc::clone(&resumed)), positions: Vec::new() };
        let (mut made, mut by_file) = (made.to_vec(), BTreeMap::<FileNo, Vec<_>>::new());
        made.sort_unstable();
        for (height, len) in made {
            let file = self.files.block(chain, height).file;
            let pos = self.reserve(height, file, len as usize)?;
            let prev = chain.block(Height(height.0 - 1)).hash;
            by_file.entry(file).or_default().push((pos, prev, len as usize));
        }
        let check = |(file, records): (FileNo, Vec<_>)| resumed.check(file, &records);
        by_file.into_iter().try_for_each(check).map_err(starting_over_helps)?;
        Ok(true)
    }

    fn forget(&self, chain: &Chain, files: &[FileNo]) -> Result<(), Error> {
        let mut state = self.state();
        state.positions.retain(|&(height, _)| !files.contains(&self.files.block(chain, height).file));
        let Some(made) = &state.made else { return Ok(()) };
        Ok(files.iter().try_for_each(|&file| made.forget(file))?)
    }

    fn reserve(&self, height: Height, file: FileNo, len: usize) -> Result<ByteOffset, Error> {
        let mut state = self.state();
        let pos = self.made(&mut state)?.reserve(file, len)?;
        state.positions.push((height, pos.0 as u32));
        Ok(pos)
    }

    fn write(&self, undo: &PlacedUndo<'_>, buffer: &mut Vec<u8>) -> Result<(), Error> {
        let made = self.made(&mut self.state())?;
        Ok(made.write(undo.file, undo.pos, undo.prev, undo.data, buffer)?)
    }

    fn sync(&self) -> Result<(), Error> {
        let made = self.state().made.clone();
        Ok(made.map_or(Ok(()), |made| made.sync())?)
    }
}

/// The error of a run that cannot be continued, but can start over and make the undo data again.
fn starting_over_helps(error: DiskError) -> Error {
    let error = Error::from(error);
    let helps = error.kind == ErrorKind::Damaged;
    error.with_remedies(helps.then_some(Remedy::StartOver))
}

impl NewUndo<'_> {
    pub fn report(&self) -> UndoReport {
        let (mended, made): (Vec<_>, Vec<_>) = self.made.made().into_iter().partition(|file| file.used > 0);
        let numbers = |files: Vec<MadeUndoFile>| files.into_iter().map(|file| file.number).collect();
        UndoReport { blocks: self.positions.len() as u32, made: numbers(made), mended: numbers(mended) }
    }

    /// Writes the undo data to the `rev` files, beyond the bytes in use.
    pub fn put_in_place(&self) -> Result<(), Error> {
        Ok(self.made.put_in_place()?)
    }

    /// Removes the files in which the undo data waited, after the block index was put in place.
    pub fn clean_up(&self) -> Result<(), Error> {
        Ok(self.made.clean_up()?)
    }

    /// Changes an entry of the block index: a block of the chain whose undo data was made is connected now.
    /// Any other one whose undo data is missing loses its position, at which other records may be now:
    /// bitcoind writes no undo data for a block that has one.
    pub fn change_entry(&self, chain: &Chain, entry: &mut IndexEntry) {
        let height = entry.height;
        let is_in_chain = chain.has(height, &entry.hash);
        let made = self.positions.binary_search_by_key(&height, |&(height, _)| height).ok();
        if let Some(&(_, pos)) = made.filter(|_| is_in_chain).and_then(|at| self.positions.get(at)) {
            entry.undo_pos = Some(ByteOffset(pos.into()));
            entry.status = entry.status.connected();
            return;
        }
        let used = |file: FileNo| self.used.get(file.0 as usize).map_or(0, |&used| u64::from(used));
        let is_beyond = entry.undo_pos.zip(entry.file).is_some_and(|(pos, file)| pos.0 >= used(file));
        if is_beyond || is_in_chain && chain.block(height).undo_pos.is_none() {
            entry.undo_pos = None;
            entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
        }
    }

    /// Changes the block index's entries for the files: what they have lost is no longer in use.
    pub fn change_files(&self, infos: &mut [FileInfo]) {
        for (info, &used) in infos.iter_mut().zip(&self.used) {
            info.undo_size = info.undo_size.min(used);
        }
        for made in self.made.made() {
            if let Some(info) = infos.get_mut(made.number.0 as usize) {
                info.undo_size = made.undo_size;
            }
        }
    }
}
