//! The methods of matching spends with coins.

use coins::aggregate::Aggregate;
use hints::{HintReader, Numbering};
use wire::Height;

/// How effects are applied.
#[expect(clippy::large_enum_variant, reason = "a job has one")]
pub enum Method {
    /// Each spend is matched with its coin.
    Join,
    /// Hints name the unspent coins; an aggregate proves the rest.
    Hints(HintMatching),
    /// Only the positions of the coins within their blocks are matched.
    /// The numbering decides which outputs are counted.
    Positions(Numbering),
}

/// Matching with hints.
pub struct HintMatching {
    /// The hints; `None`: all outputs are hinted spent.
    pub hints: Option<HintReader>,
    /// The aggregate.
    pub aggregate: Aggregate,
    /// Height of the last block that the hints cover.
    pub height: Height,
    /// Whether undo data is used up to that height, and so all rules of spends are checked.
    pub with_undo: bool,
    /// SHA-256 of the hint file.
    pub digest: [u8; 32],
}

impl Method {
    /// Returns the first block whose undo data may be needed.
    #[must_use]
    pub fn undo_from(&self) -> Height {
        match self {
            Self::Hints(matching) if !matching.with_undo => Height(matching.height.0 + 1),
            _ => Height(0),
        }
    }

    /// Identifies the method: jobs with equal bytes apply effects alike.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        match self {
            Self::Join => vec![0],
            Self::Hints(matching) => {
                let kind = matching.aggregate.kind() as u8;
                [
                    &[1, kind, matching.with_undo.into()],
                    &matching.height.0.to_le_bytes()[..],
                    &matching.digest,
                ]
                .concat()
            }
            Self::Positions(numbering) => vec![2, (*numbering == Numbering::AllOutputs).into()],
        }
    }
}
