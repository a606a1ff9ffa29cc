//! What the files of a datadir say of its chain, without a node.

use crate::prelude::*;
use disk::chainstate::ChainstateReader;

/// A chainstate's best block, and its height if it is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Best {
    pub hash: String,
    pub height: Option<u32>,
}

/// The state of a datadir as read without a node.
#[derive(Default, Debug)]
pub struct DatadirState {
    /// The chainstate's best block; `None` if the chainstate cannot be opened.
    pub best: Option<Best>,
    /// Height of the highest connected block in the index; `None` if the index cannot be opened.
    pub connected: Option<u32>,
    /// All blocks in the index, with their heights.
    pub known: HashMap<String, u32>,
}

impl DatadirState {
    pub fn of(scene: &Scene<'_>) -> Self {
        let mut state = Self::default();
        if scene.fifo {
            return state;
        }
        if let Ok(chainstate) = ChainstateReader::open(&RealDisk, &scene.paths.chainstate_dir()) {
            let hash = chainstate.best_block().to_string();
            state.best = Some(Best { height: scene.base.heights.get(&hash).copied(), hash });
        }
        state.read_index(scene);
        state
    }

    /// Reads the block index, if it can be opened.
    fn read_index(&mut self, scene: &Scene<'_>) {
        let Ok(index) = read_block_index(&RealDisk, &scene.paths.index_dir()) else { return };
        let heights = &scene.base.heights;
        let mut by_height: Vec<_> = index.entries.iter().collect();
        by_height.sort_by_key(|entry| entry.height);
        // A node leaves out what builds on a block that is marked as failed, whatever it had connected. It
        // refuses an index that lacks the block below another one, as its log alone can be.
        let mut usable = HashSet::new();
        let connected = by_height.into_iter().filter(|entry| {
            let is_linked = entry.height.0 == 0 || usable.contains(&entry.header.prev);
            if is_linked && !entry.status.is_failed() {
                usable.insert(entry.hash);
            }
            entry.status.validity() >= BlockStatus::VALID_SCRIPTS
                && entry.status.has_data()
                && usable.contains(&entry.hash)
                // Rows that were damaged have wrong heights.
                && heights.get(&entry.hash.to_string()) == Some(&entry.height.0)
        });
        self.connected = connected.map(|entry| entry.height.0).max();
        self.known = index.entries.iter().map(|entry| (entry.hash.to_string(), entry.height.0)).collect();
        if let Some(best) = &mut self.best {
            // A sibling that a damage added is not in the base.
            best.height = best.height.or_else(|| self.known.get(&best.hash).copied());
        }
    }
}
