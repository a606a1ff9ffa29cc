//! What the runs of a case have done so far.

#[derive(Default)]
pub(super) struct Runs {
    /// Whether a run was allowed to end lower.
    pub(super) may_be_lower: bool,
    /// Whether a run has changed anything since the node was last started on a copy.
    pub(super) have_changed: bool,
    /// Whether a run was killed, so that the next run may have to finish or undo a commit.
    pub(super) dirty: bool,
    /// Whether a killed run was one without `--scan`. The run that finishes its commit may write over what
    /// lies behind the files' used sizes, even if it has `--scan` itself.
    pub(super) dirty_without_scan: bool,
    /// Whether the last step was a `reindex` that succeeded.
    pub(super) done: bool,
    /// Whether that run has read or made undo data for all blocks.
    pub(super) has_undo: bool,
    pub(super) keep_old: bool,
    /// Whether a run has made the indexes of the node anew.
    pub(super) has_made_indexes: bool,
    /// Whether a run has set an index aside.
    pub(super) has_set_aside: bool,
    /// Whether a repair has set the chainstate aside, because its best block is nowhere, and said so.
    pub(super) has_set_chainstate_aside: bool,
    /// Height of the highest block that was connected in the old index, and the lower height after the last
    /// run, if it is lower.
    pub(super) lower_than: Option<(u32, u32)>,
    /// Exit code of the last `reindex`.
    pub(super) last: Option<i32>,
}

impl Runs {
    /// Notes how a run with these arguments has ended.
    pub(super) fn add(&mut self, args: &[String], code: Option<i32>, rebuilds: bool, killed: bool) {
        let done = rebuilds && code == Some(0);
        self.dirty |= killed;
        self.dirty_without_scan |= killed && !has(args, "--scan");
        // A run that was killed may have put the lower chainstate in place.
        self.may_be_lower |= (done || killed) && has(args, "--until-damage");
        if rebuilds {
            self.last = code;
            self.done = done;
            self.has_undo = !has(args, "--without-undo");
            self.dirty &= !done;
            self.dirty_without_scan &= !done;
        }
    }
}

pub(super) fn has(args: &[String], flag: &str) -> bool {
    args.iter().any(|arg| arg == flag)
}
