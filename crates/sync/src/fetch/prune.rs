//! Deletes block files while a download runs, and looks for space.

use super::Fetch;
use crate::pruning::{delete_files, emptied};
use api::{error::Error, remedy::Remedy, size::HumanSize, subject::Subject};
use chain::stored_blocks::write_index;
use vfs::During as _;
use wire::{Height, Network};

impl Fetch<'_> {
    /// With pruning, counts the blocks that were given out and have not come.
    pub(super) fn count_blocks_to_come(&mut self) {
        let to_come = (0..self.given.next.0).filter(|&height| !self.stored.has(Height(height))).count();
        self.given.pruning.iter_mut().for_each(|pruning| pruning.set_to_come(to_come as u32));
    }

    /// Checks that the blocks below `settled`, which the rebuild does not check again, are stored or were
    /// pruned: undo data that was made for them belongs to the files in which they were.
    fn check_completed(&self, settled: Height) -> Result<(), Error> {
        let is_lost = |&height: &Height| !self.stored.has(height);
        let Some(lost) = (1..settled.0).map(Height).find(is_lost) else { return Ok(()) };
        let error =
            Error::damaged("an interrupted run has checked this block, but the block files lack it now");
        let hash = self.chain.hash(lost).unwrap_or_default();
        Err(error.at_block(lost, hash).with_remedies([Remedy::StartOver]))
    }

    /// Checks that the blocks fit on the disk. Only mainnet's sizes are known before they come.
    pub(super) fn check_space(&self) -> Result<(), Error> {
        let (disk, dir, (_, missing)) =
            (self.files.disk, self.files.datadir.blocks_dir(), self.given.missing);
        let need = self.options.prune_bytes.map_or(missing, |bytes| bytes.min(missing));
        let free = disk.free_space(&dir).during("measure the free space of", &dir)?;
        if self.options.chain.params.network != Network::Main || need <= free {
            return Ok(());
        }
        let detail = format!(
            "the blocks that are missing take about {}, and {} are free here",
            HumanSize(need),
            HumanSize(free)
        );
        Err(Error::environment(detail).in_file(dir, None).about(Subject::DiskSpace))
    }

    /// With pruning, deletes the files that are not needed any more.
    pub(super) fn prune(&mut self) -> Result<(), Error> {
        let Some(pruning) = &mut self.given.pruning else { return Ok(()) };
        let settled = self.given.feed.as_ref().and_then(|feed| feed.blocks.take_settled());
        let Some(settled) = settled else { return Ok(()) };
        self.given.announced = None;
        if pruning.settle(settled) {
            self.stored.forget_pruned(settled);
            self.check_completed(settled)?;
            self.given.missing = self.missing_blocks();
            self.check_space()?;
            return delete_files(self.files, emptied(&self.writing.writer.infos()));
        }
        let (target, kept_blocks) = (self.target(), self.options.chain.hooks.undo_blocks);
        let Some(pruning) = &mut self.given.pruning else { return Ok(()) };
        let before = self.writing.writer.infos();
        let files = pruning.deletable(&before, Height(target.0.saturating_sub(kept_blocks)));
        if files.is_empty() {
            return Ok(());
        }
        pruning.deleted(&files, &before);
        self.report.pruned += self.stored.prune(&files);
        if !self.stored.is_stored(Height(0)) {
            self.append_genesis()?;
            self.report.pruned -= 1;
        }
        self.writing.writer.forget(&files);
        let infos = self.flush()?;
        write_index(self.files, &self.chain, &self.stored, &infos, self.sink)?;
        (self.index.unsaved, self.index.is_behind) = (0, false);
        if let Some(feed) = &self.given.feed {
            feed.blocks.add_deleted(&files);
        }
        delete_files(self.files, files.into_iter())
    }
}
