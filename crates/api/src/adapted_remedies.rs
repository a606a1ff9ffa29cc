//! Remedies that a run cannot use become others.

use crate::{error::Error, remedy::Remedy};

impl Error {
    /// Replaces options of a rebuild by a rebuild in the remedies, for a command that works only in place.
    pub fn in_place_only(self) -> Self {
        self.map_remedies(|remedy| match remedy {
            Remedy::OtherOutput => None,
            Remedy::RebuildIndex => Some(Remedy::ReindexByScan),
            // A rebuild makes undo data, and leaves nothing for this command to do.
            Remedy::MakeUndo => Some(Remedy::RebuildChainstate),
            other => Some(other),
        })
    }

    /// Replaces what needs the block index in the remedies, for a run that has scanned the block files.
    #[must_use]
    pub fn of_scan(self) -> Self {
        self.map_remedies(|remedy| match remedy {
            Remedy::RebuildIndex | Remedy::GiveBlock => None,
            Remedy::MakeUndo | Remedy::RebuildChainstate => Some(Remedy::ReindexByScan),
            Remedy::EndBelowDamage => Some(Remedy::EndBelowDamageByScan),
            other => Some(other),
        })
    }

    /// Replaces what needs deleted blocks in the remedies, for a pruned node.
    #[must_use]
    pub fn of_pruned(self) -> Self {
        self.map_remedies(|remedy| match remedy {
            Remedy::Repair | Remedy::GiveBlock | Remedy::EndBelowDamage => Some(Remedy::Unprune),
            Remedy::MakeUndo | Remedy::MakeIndex(_) => Some(Remedy::Unprune),
            Remedy::RebuildChainstate | Remedy::RebuildIndex => Some(Remedy::Unprune),
            other => Some(other),
        })
    }

    fn map_remedies(mut self, map: impl Fn(Remedy) -> Option<Remedy>) -> Self {
        let remedies = std::mem::take(&mut self.remedies);
        self.with_remedies(remedies.into_iter().filter_map(map))
    }
}
