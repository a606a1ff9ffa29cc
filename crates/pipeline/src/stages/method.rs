//! The methods of matching spends with coins.

use api::options::UndoPolicy;
use coins::{SipKey, aggregate::Aggregate, hinted::OutPointSet};
use hints::HintReader;
use wire::Height;

/// How effects are applied.
#[expect(clippy::large_enum_variant, reason = "a job has one")]
pub enum Method {
    /// Each spend is matched with its coin.
    Join,
    /// Hints name the unspent coins; an aggregate proves the rest.
    Hints(HintMatching),
    /// Each spend is matched with its coin. Where undo data is missing, damaged or not to be used, the coin
    /// is delivered to its spender, and so undo data is made.
    Routed { uses_undo: bool },
}

/// How the undo data of a block is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndoUse {
    /// It is neither used nor made.
    NotNeeded,
    /// Its claims are used. Damage to it is an error.
    Required,
    /// Its claims are used if it is sound; otherwise it is made.
    IfSound,
    Made,
}

pub struct HintMatching {
    /// The hints; `None`: all outputs are hinted spent.
    pub hints: Option<HintReader>,
    pub aggregate: Aggregate,
    /// Height of the last block for which the hints are used.
    pub height: Height,
    /// Whether undo data is used up to that height, and so all rules of spends are checked.
    pub with_undo: bool,
    /// SHA-256 of the hint file.
    pub digest: [u8; 32],
    /// How the undo data of the blocks above is used.
    pub above: UndoUse,
    /// Coins that blocks above spend, and that the hints call spent because they cover these blocks too.
    pub spent_above: OutPointSet,
}

impl HintMatching {
    /// Matching with undo data and no hints: all outputs up to `height` are hinted spent.
    pub fn all_spent(aggregate: Aggregate, height: Height) -> Self {
        let spent_above = OutPointSet::new(SipKey(0, 0), Vec::new());
        let (digest, above) = ([0; 32], UndoUse::Required);
        Self { hints: None, aggregate, height, with_undo: true, digest, above, spent_above }
    }
}

impl Method {
    /// The method without hints.
    pub const fn of(undo: UndoPolicy) -> Self {
        match undo {
            UndoPolicy::Auto => Self::Routed { uses_undo: true },
            UndoPolicy::Trust => Self::Join,
            UndoPolicy::Make => Self::Routed { uses_undo: false },
        }
    }

    /// Whether undo data is made where it is missing.
    pub fn makes_undo(&self) -> bool {
        matches!(self.undo_use(Height(u32::MAX)), UndoUse::IfSound | UndoUse::Made)
    }

    /// Returns how many outputs hints call unspent, and the last block for which they are used; `None` if
    /// there are none.
    pub fn hinted_coins(&self) -> Option<(u64, Height)> {
        let Self::Hints(HintMatching { hints: Some(hints), height, .. }) = self else { return None };
        Some((hints.info().hints, *height))
    }

    /// Returns the first block whose undo data is used or made.
    pub const fn needs_undo_from(&self) -> Height {
        match self {
            Self::Hints(matching) if !matching.with_undo => Height(matching.height.0 + 1),
            _ => Height(0),
        }
    }

    /// Returns the first block whose undo data may be used.
    pub fn undo_from(&self) -> Height {
        match self.undo_use(Height(u32::MAX)) {
            UndoUse::Made => Height(u32::MAX),
            _ => self.needs_undo_from(),
        }
    }

    /// Returns how the undo data of the block at `height` is used.
    pub fn undo_use(&self, height: Height) -> UndoUse {
        match self {
            Self::Routed { uses_undo: true } => UndoUse::IfSound,
            Self::Routed { uses_undo: false } => UndoUse::Made,
            Self::Join => UndoUse::Required,
            Self::Hints(_) if height < self.needs_undo_from() => UndoUse::NotNeeded,
            Self::Hints(matching) if height > matching.height => matching.above,
            Self::Hints(_) => UndoUse::Required,
        }
    }

    /// Identifies the method: jobs with equal bytes apply effects alike.
    pub fn identity(&self) -> Vec<u8> {
        match self {
            Self::Join => vec![0],
            Self::Hints(matching) => {
                let kind = matching.aggregate.kind() as u8;
                [
                    &[1, kind, matching.with_undo.into(), matching.above as u8],
                    &matching.height.0.to_le_bytes()[..],
                    &matching.digest,
                ]
                .concat()
            }
            Self::Routed { uses_undo } => vec![3, (*uses_undo).into()],
        }
    }
}
