//! One case: damages a datadir, runs `peregrine` on it, and compares what a real node makes of it before and
//! after.

mod advice;
mod runs;

use crate::{
    damage::{KINDS, SITUATION},
    datadir_state::DatadirState,
    finding::{Comparison, MayAppend},
    indexes::{self, Answers},
    prelude::*,
    program::Program,
    steps::{Command, Step, common, plan},
};
use runs::{Runs, has};

pub struct Outcome {
    /// Everything that must not happen but did.
    pub findings: Vec<Finding>,
    /// The log of all steps and their output.
    pub log: String,
    /// Exit code of the last `reindex`.
    pub last: Option<i32>,
    /// Whether the node started on the damaged datadir before any run.
    pub started: bool,
    /// Whether the node hung there, so that nothing was run.
    pub node_hung: bool,
    /// The case's folder, for inspection.
    pub dir: PathBuf,
}

struct Case<'a> {
    context: &'a Context,
    number: u64,
    scene: Scene<'a>,
    dir: PathBuf,
    log: String,
    findings: Vec<Finding>,
    tree: Tree,
    files: BlockFiles,
    /// The files of the block index before all steps.
    index: BTreeMap<PathBuf, What>,
    state: DatadirState,
    before: Started,
    /// What the node answered then by way of its indexes.
    answers: Option<Answers>,
    runs: Runs,
}

pub fn run_case(context: &Context, bases: &[Base], number: u64) -> Res<Outcome> {
    let mut rng = Rng::new(context.seed, &format!("case {number}"));
    let mut at = rng.below(bases.iter().map(|base| base.weight).sum());
    let base = bases.iter().find(|base| {
        let here = at < base.weight;
        at = at.saturating_sub(base.weight);
        here
    });
    let base = base.ok_or("there are no bases")?;
    let dir = context.dir.join(format!("cases/{}-{number}", context.seed));
    clear(&dir)?;
    let live = dir.join("live");
    fs::create_dir_all(&live)?;
    copy_all(&base.dir.join("datadir"), &live.join("datadir"))?;
    let paths = Datadir::at(&live.join("datadir"), base.network);
    let root = rustix::process::getuid().is_root();
    let mut scene = Scene {
        live,
        paths,
        base,
        bases,
        rng,
        root,
        peregrine_user: None,
        node_user: None,
        foreign: Default::default(),
        mounts: Vec::new(),
        hints: None,
        fifo: false,
    };
    let mut log = format!("case {number} of seed {}, datadir {}\n", context.seed, base.name);
    add_user_files(&mut scene)?;
    damage(context, &mut scene, &mut log)?;
    scene.resolve_foreign();
    let (before, answers) = baseline(context, &scene, &dir)?;
    log += &format!("  bitcoind before: {before:?}\n");
    if before.hangs() {
        return Ok(Outcome { findings: Vec::new(), log, last: None, started: false, node_hung: true, dir });
    }
    let (tree, state) = (look(&scene.live)?, DatadirState::of(&scene));
    log += &format!("  chainstate {:?}, index connected to {:?}\n", state.best, state.connected);
    let mut case = Case {
        context,
        number,
        files: BlockFiles::of(&scene)?,
        index: index_files(&tree),
        scene,
        dir,
        log,
        findings: Vec::new(),
        tree,
        state,
        before,
        answers,
        runs: Runs::default(),
    };
    case.run()?;
    let Case { scene, findings, log, runs, before, dir, .. } = case;
    drop(scene);
    Ok(Outcome { findings, log, last: runs.last, started: before.is_yes(), node_hung: false, dir })
}

/// Removes the folder of a case.
pub fn clear(dir: &Path) -> Res<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            // Read-only folders cannot be removed if this process is not root.
            let _ = std::process::Command::new("chmod").args(["-R", "u+rwX"]).arg(dir).output();
            Ok(fs::remove_dir_all(dir)?)
        }
        _ => Ok(()),
    }
}

/// Adds files of the user at random places.
fn add_user_files(scene: &mut Scene<'_>) -> Res<()> {
    let (net, blocks) = (scene.net(), scene.blocks());
    let places = [
        net.join("wallets/mine/wallet.dat"),
        net.join("notes.txt"),
        net.join("chainstate.bak/CURRENT"),
        net.join("peregrine.conf"),
        net.join("chainstate.peregrine.txt"),
        net.join("chainstate_snapshot/base_blockhash"),
        blocks.join("blk-notes.txt"),
        blocks.join("index.bak/000003.log"),
        scene.datadir().join("bitcoin.conf.bak"),
    ];
    for path in places {
        // An incomplete chainstate of a snapshot would keep the node from starting.
        if scene.rng.chance(1, 6) && !path.ends_with("base_blockhash") {
            scene.put_foreign(&path)?;
        }
    }
    Ok(())
}

fn damage(context: &Context, scene: &mut Scene<'_>, log: &mut String) -> Res<()> {
    let count = if scene.rng.chance(1, 16) { 0 } else { 1 + scene.rng.below(3) };
    for number in 0..count {
        let at = scene.below(KINDS.len());
        // One kind, but a long list.
        let any = if scene.rng.chance(1, 3) { SITUATION } else { KINDS[at] };
        let only = context.only.as_deref().filter(|_| number == 0);
        let kind = only.and_then(|name| KINDS.iter().find(|kind| kind.name == name)).copied().unwrap_or(any);
        // A damage may be impossible after an earlier one.
        match (kind.act)(scene) {
            Ok(Some(detail)) => *log += &format!("  damage {}: {detail}\n", kind.name),
            Ok(None) => *log += &format!("  damage {}: nothing to damage\n", kind.name),
            Err(error) => *log += &format!("  damage {}: not possible: {error}\n", kind.name),
        }
    }
    Ok(())
}

/// Starts a node on a copy of the damaged datadir. Returns what it answers by way of its indexes, too.
fn baseline(context: &Context, scene: &Scene<'_>, dir: &Path) -> Res<(Started, Option<Answers>)> {
    let copy = dir.join("copy");
    copy_all(&scene.live, &copy)?;
    let mut node = Node::spawn(start(context, scene, &copy.join("datadir")))?;
    let started = node.wait();
    let answers = if started.is_yes() { indexes::ask(&node, scene.base)? } else { None };
    drop(node);
    clear(&copy)?;
    Ok((started, answers))
}

fn index_files(tree: &Tree) -> BTreeMap<PathBuf, What> {
    let in_index = tree.iter().filter(|(name, _)| name.iter().any(|part| part == "index"));
    in_index.map(|(name, seen)| (name.clone(), seen.what.clone())).collect()
}

/// Number of commands after which `doctor` must have nothing more to advise.
const MOST_ADVICE: usize = 4;

/// Patience with a node that may wait for a FIFO.
const FIFO_PATIENCE: Duration = Duration::from_secs(30);

fn start<'a>(context: &'a Context, scene: &Scene<'a>, datadir: &'a Path) -> Start<'a> {
    let may_wait = scene.fifo && scene.hints.is_none();
    Start {
        program: &context.bitcoind,
        datadir,
        network: scene.base.network,
        flags: &scene.base.flags,
        user: scene.node_user,
        serves: None,
        patience: if may_wait { context.patience.min(FIFO_PATIENCE) } else { context.patience },
    }
}

/// Returns whether a `reindex` in place with these arguments may make undo data.
fn may_make_undo(args: &[String]) -> bool {
    (!has(args, "--hints") || has(args, "--without-undo"))
        && !args.windows(2).any(|two| two == ["--undo", "trust"])
}

impl Case<'_> {
    fn find(&mut self, class: &'static str, detail: impl Into<String>) {
        let finding = Finding::new(class, detail);
        self.log += &format!("  FINDING {}: {}\n", finding.class, finding.detail);
        self.findings.push(finding);
    }

    fn find_all(&mut self, found: Vec<Finding>) {
        // One finding of each class is enough for one step.
        let mut seen = HashSet::new();
        for finding in found {
            if seen.insert(finding.class) {
                self.find(finding.class, finding.detail);
            }
        }
    }

    fn run(&mut self) -> Res<()> {
        let steps = plan(self.context, &mut self.scene, &self.dir)?;
        // Planning may have added a hint file.
        self.look()?;
        for step in steps {
            match step {
                Step::Run { args, disturbance, command } => drop(self.step(&args, &disturbance, command)?),
                Step::Node { stopped } => self.node_between(stopped)?,
                Step::BesideNode { args } => self.beside_node(&args)?,
                Step::Advice => self.follow_advice()?,
            }
        }
        self.after()
    }

    /// Captures what the next step is compared with.
    fn look(&mut self) -> Res<()> {
        self.tree = look(&self.scene.live)?;
        self.files = BlockFiles::of(&self.scene)?;
        Ok(())
    }

    fn program(&self) -> Program<'_> {
        self.context.program(self.scene.peregrine_user)
    }

    /// Returns what the run printed and how it ended.
    fn step(&mut self, args: &[String], disturbance: &Disturbance, command: Command) -> Res<Ran> {
        self.runs.keep_old |= has(args, "--keep-old");
        let reindex = command.rebuilds();
        let ran = self.program().run(args, disturbance)?;
        self.log += &ran.description();
        self.check_end(&ran, disturbance, reindex, has(args, "--hints"));
        let after = look(&self.scene.live)?;
        let compared = Comparison {
            live: &self.scene.live,
            before: &self.tree,
            after: &after,
            foreign: &self.scene.foreign,
            files: (&self.files, has(args, "--scan") && !self.runs.dirty_without_scan),
            may_append: match command {
                Command::Reindex if may_make_undo(args) => MayAppend::Undo,
                Command::Update => MayAppend::Undo,
                Command::GivenBlocks | Command::Download => MayAppend::Blocks,
                Command::Reindex | Command::Other | Command::Read | Command::Indexes => MayAppend::Nothing,
            },
            sets_aside: ["--set-aside-indexes", "--index"].iter().any(|flag| has(args, flag)),
        };
        let mut found = compared.never();
        let done = reindex && ran.code == Some(0);
        let killed = disturbance.may_kill() && ran.code != Some(0);
        let is_dirty = self.runs.dirty && command != Command::Read;
        // Only the making of indexes was interrupted; or what an earlier run had begun was finished.
        let is_replaced =
            ["the chainstate is in place, but not all indexes", "; the replacement is finished now"]
                .iter()
                .any(|words| ran.stderr.contains(words));
        if !(done || killed || is_dirty || is_replaced || command.changes_before_it_fails()) {
            found.extend(compared.refused());
        }
        if done && !self.runs.keep_old {
            let datadir = self.scene.net().strip_prefix(&self.scene.live)?.to_owned();
            let output = [&ran.stdout[..], &ran.stderr].concat();
            found.extend(compared.done(&datadir, &output));
        }
        if args.first().is_some_and(|verb| verb == "index") {
            found.retain(|finding| !finding.detail.contains("indexes/"));
        }
        self.find_all(found);
        self.runs.have_changed |= after != self.tree;
        self.look()?;
        self.runs.add(args, ran.code, reindex, killed);
        if command == Command::Indexes && has(args, "make") && ran.code == Some(0) {
            self.runs.has_made_indexes = true;
            self.check_made_indexes(args)?;
        }
        self.runs.has_set_aside |= ran.stderr.contains(" is set aside, because ");
        self.runs.has_set_chainstate_aside |= ran.stderr.contains(": the chainstate is set aside as ");
        if !matches!(command, Command::Other | Command::Read) {
            self.check_height(args, done);
        }
        Ok(ran)
    }

    /// Checks that indexes that were just made are as the blocks have them.
    fn check_made_indexes(&mut self, args: &[String]) -> Res<()> {
        let check: Vec<String> =
            args.iter().map(|word| if word == "make" { "check".to_owned() } else { word.clone() }).collect();
        let ran = self.program().run(&check, &Disturbance::None)?;
        if ran.code != Some(0) {
            self.log += &ran.description();
            let line = ran.stdout.lines().find(|line| line.starts_with("  "));
            self.find("made-but-unsound", line.unwrap_or_default());
        }
        self.look()
    }

    /// Checks the exit code and the error message.
    fn check_end(&mut self, ran: &Ran, disturbance: &Disturbance, reindex: bool, hints: bool) {
        let was_signalled = matches!(disturbance, Disturbance::Call(..)) || ran.signalled;
        // A process that was still loading cannot print a message.
        let is_loading = ran.stderr.is_empty() && ran.signalled
            || ran.code == Some(127) && matches!(disturbance, Disturbance::Failure(..));
        match (ran.code, ran.signal) {
            _ if ran.hung => self.find("hang", "the run did not end in time"),
            (None, Some(9)) if was_signalled => {}
            _ if is_loading => {}
            (None, signal) => self.find("signal-death", format!("signal {signal:?}")),
            (Some(101 | 134), _) => self.find("panic", first_line(&ran.stderr)),
            (Some(1), _) => self.find("exit-1", first_line(&ran.stderr)),
            (Some(130), _) if ran.signalled => {}
            (Some(137), _) if was_signalled => {}
            (Some(3), _) if reindex => self.find("exit-3", first_line(&ran.stderr)),
            (Some(6), _) if !hints => self.find("exit-6", first_line(&ran.stderr)),
            (Some(0 | 2..=6), _) => {}
            (Some(code), _) => self.find("exit-unknown", format!("exit {code}")),
        }
        // A download that leaves out what the datadir marks as invalid, or that ends below what peers claim,
        // says so in its report.
        let is_report = ran.code == Some(3) && ran.stdout.contains("left out ")
            || ran.code == Some(5) && ran.stdout.contains("\nincomplete ")
            || ran.code == Some(4) && ran.stdout.contains("`index make` makes them anew");
        let is_silent = is_loading || is_report || disturbance.may_silence();
        if !is_silent && ran.code.is_some_and(|code| code != 0 && code != 137) {
            let error = ran.stderr.lines().find(|line| line.starts_with("error"));
            if error.is_none_or(|line| line.len() < 25) {
                self.find("no-words", format!("exit {:?}, stderr {:?}", ran.code, ran.stderr.trim()));
            }
        }
    }

    /// Checks that no height is lower than before.
    fn check_height(&mut self, args: &[String], done: bool) {
        if self.runs.may_be_lower {
            return;
        }
        let now = DatadirState::of(&self.scene);
        let is = now.best.as_ref().and_then(|best| best.height);
        let was = self.state.best.as_ref().and_then(|best| best.height);
        if let Some(was) = was {
            match is {
                Some(is) if is >= was => {}
                _ => self.find("lower-chainstate", format!("height {was} before, {is:?} after")),
            }
        }
        if !done {
            return;
        }
        if let (Some(connected), Some(is)) = (self.state.connected, is) {
            let is_lower = is < connected && was.is_none_or(|was| is < was);
            self.runs.lower_than = is_lower.then_some((connected, is));
        }
        if let Some(best) = self.state.best.clone()
            && !has(args, "--scan")
            && !self.state.known.is_empty()
            && !self.state.known.contains_key(&best.hash)
            && !now.known.contains_key(&best.hash)
            && now.best != Some(best.clone())
            && !self.runs.has_set_chainstate_aside
        {
            let detail =
                format!("the index does not know the old best block {}, which is replaced", best.hash);
            self.find("unknown-best-replaced", detail);
        }
    }

    /// Starts the node on the datadir, and waits for it.
    fn start_node(&mut self, when: &str) -> Res<(Node, Started)> {
        let datadir = self.scene.datadir();
        let mut node = Node::spawn(start(self.context, &self.scene, &datadir))?;
        let started = node.wait();
        self.log += &format!("  bitcoind {when}: {started:?}\n");
        Ok((node, started))
    }

    /// Starts the node between two runs, as a user may.
    fn node_between(&mut self, stopped: bool) -> Res<()> {
        let (node, started) = self.start_node("between")?;
        self.compare(&started);
        if stopped && started.is_yes() {
            node.stop()?;
        } else {
            drop(node);
        }
        self.begin_anew()
    }

    /// Takes the datadir as the node has left it for what later runs are compared with: it may have damaged
    /// or repaired something.
    fn begin_anew(&mut self) -> Res<()> {
        (self.before, self.answers) = baseline(self.context, &self.scene, &self.dir)?;
        self.log += &format!("  bitcoind on what that has left: {:?}\n", self.before);
        self.look()?;
        self.index = index_files(&self.tree);
        self.state = DatadirState::of(&self.scene);
        self.runs.done = false;
        self.runs.have_changed = false;
        Ok(())
    }

    /// Runs `reindex` while a node runs on the datadir.
    fn beside_node(&mut self, args: &[String]) -> Res<()> {
        let (node, started) = self.start_node("beside")?;
        self.look()?;
        if started.is_yes() {
            let ran = self.program().run(args, &Disturbance::None)?;
            self.log += &ran.description();
            if ran.code == Some(0) || ran.code == Some(1) || ran.code.is_none() {
                self.find("ran-beside-node", format!("exit {:?}", ran.code));
            }
            let after = look(&self.scene.live)?;
            let compared = Comparison {
                live: &self.scene.live,
                before: &self.tree,
                after: &after,
                foreign: &self.scene.foreign,
                files: (&self.files, false),
                may_append: MayAppend::Nothing,
                sets_aside: false,
            };
            let mut found = [compared.never(), compared.refused()].concat();
            // The node goes on with its indexes.
            found.retain(|finding| !finding.detail.contains("indexes/"));
            self.find_all(found);
            node.stop()?;
        } else {
            drop(node);
        }
        self.begin_anew()
    }

    /// Checks that the node starts if it did before, with no lower height.
    fn compare(&mut self, now: &Started) {
        if let Started::No(error) = now
            && self.log.contains("node-index-")
            && !self.runs.has_made_indexes
            && INDEX_ERRORS.iter().any(|words| error.contains(words))
        {
            return;
        }
        match (self.before.clone(), now) {
            // Whether a node with indexes survives missing undo data depends on which thread is first.
            (Started::Yes { .. }, Started::No(_)) if !self.runs.have_changed => {}
            // The node reads all blocks when it makes an index again, also damaged ones of which it had no
            // need before.
            (Started::Yes { .. }, Started::No(error))
                if self.runs.has_set_aside && error.contains("Failed to read block") => {}
            (Started::Yes { .. }, Started::No(error)) => {
                self.find("no-start-anymore", format!("bitcoind does not start any more: {error}"));
            }
            (Started::Yes { loaded, tip }, Started::Yes { loaded: loaded_now, tip: tip_now })
                if !self.runs.may_be_lower =>
            {
                if *tip_now < tip {
                    self.find("lower-tip", format!("bitcoind came to {tip}, now to {tip_now}"));
                }
                if *loaded_now < loaded {
                    self.find("lower-loaded", format!("bitcoind loaded {loaded}, now {loaded_now}"));
                }
            }
            // The program has named the setting, and bitcoind finds no damage.
            (Started::No(_), Started::No(error))
                if NAMED_SETTINGS.iter().any(|words| self.log.contains(words))
                    && !error.contains("restart with -reindex") => {}
            // Only `doctor` names it.
            (Started::No(was), Started::No(error))
                if OTHER_FILES.iter().any(|words| was.contains(words) && error.contains(words)) => {}
            (Started::No(was), Started::No(error))
                if self.runs.done && !self.is_index_locked(&was, error) && !is_other_index(&was, error) =>
            {
                self.find("done-but-no-start", format!("bitcoind does not start: {error}"));
            }
            _ => {}
        }
    }

    /// Returns whether the node may not open the block index, before or now, and no run has touched it.
    fn is_index_locked(&self, was: &str, is: &str) -> bool {
        let of_index = |words: &str| {
            words.to_lowercase().contains("permission denied") && words.contains("blocks/index/")
        };
        of_index(was) && of_index(is) && self.index == index_files(&self.tree)
    }

    /// Starts the node after all steps, and compares.
    fn after(&mut self) -> Res<()> {
        let stats = if self.runs.done { self.stats()? } else { None };
        let (mut node, started) = self.start_node("after")?;
        self.compare(&started);
        // If only undo data was lost, the node connects the blocks itself. If it came no higher before, the
        // index marks a block as failed that it had connected.
        let tip_of =
            |started: &Started| if let Started::Yes { tip, .. } = started { Some(*tip) } else { None };
        let (was, reached) = (tip_of(&self.before), tip_of(&started).unwrap_or(0));
        let is_lower = |connected: u32| reached < connected && was.is_none_or(|was| reached < was);
        if let Some((connected, is)) = self.runs.lower_than.filter(|(connected, _)| is_lower(*connected)) {
            let detail = format!("the old index had connected {connected}, the new chainstate is at {is}");
            self.find("lower-index", detail);
        }
        if started.is_yes() {
            self.check_indexes(&node)?;
        }
        if let (Some(stats), Started::Yes { tip, .. }) = (stats, &started) {
            if u64::from(*tip) < stats["height"].as_u64().unwrap_or(0) {
                let detail = format!("bitcoind is at {tip}, the new chainstate at {}", stats["height"]);
                self.find("done-but-lower", detail);
            }
            if self.runs.has_undo {
                self.check_undo(&mut node, *tip)?;
            }
            self.compare_coins(&node, &stats, *tip)?;
        }
        Ok(())
    }

    /// Checks that the node denies nothing by way of its indexes that it did not deny before.
    fn check_indexes(&mut self, node: &Node) -> Res<()> {
        let now = indexes::ask(node, self.scene.base)?;
        let denied = now.as_ref().and_then(|now| indexes::denied(self.answers.as_ref(), now));
        // Nothing records where blocks were that a crash has lost from the block index (docs/safety.md).
        let has_unknown_moves = self.scene.base.name == "indexed-killed"
            && ["blk-swap", "blk-far-number"].iter().any(|damage| self.log.contains(damage));
        // A node that opens an index without CURRENT keeps what its log had, and misses the rest. A flipped
        // transaction has another txid until the run has repaired its block.
        let may_deny = self.answers.is_none()
            && (self.log.contains("damage node-index-")
                || !self.runs.done && self.log.contains("a transaction flipped"));
        let is_known = |what: &&str| may_deny || has_unknown_moves && what.contains("spender");
        if let Some(what) = denied.filter(|what| !is_known(what)) {
            let what = what.to_owned();
            self.find("index-denies", what);
        }
        Ok(())
    }

    /// Checks that the node can use the undo data of all its blocks; in a tenth of the cases also that it can
    /// disconnect blocks with it.
    fn check_undo(&mut self, node: &mut Node, tip: u32) -> Res<()> {
        let is_sound = node.call("verifychain", json!([3, 0]))?.as_bool().unwrap_or(false);
        if let Some(error) = node.log_line("Verification error") {
            self.find("bad-undo", error);
        } else if !is_sound {
            let reason = node.log_line("erification").unwrap_or_default();
            self.log += &format!("  bitcoind has not verified all blocks: {reason}\n");
        }
        let mut rng = Rng::new(self.context.seed, &format!("disconnect {}", self.number));
        // A node does not disconnect a snapshot's block.
        let is_from_snapshot = self.scene.base.name.starts_with("snapshot");
        if rng.chance(1, 10) && tip > 10 && !is_from_snapshot {
            self.disconnect(node, tip)?;
        }
        Ok(())
    }

    /// Lets the node disconnect ten blocks and connect them again.
    fn disconnect(&mut self, node: &Node, tip: u32) -> Res<()> {
        let lowest = tip - 10;
        let tips = node.call("getchaintips", json!([]))?;
        let branches = tips.as_array().into_iter().flatten().filter(|branch| branch["status"] != "active");
        let mut heights = branches.filter_map(|branch| branch["height"].as_u64());
        // The node would try to connect a branch, whose blocks may be damaged.
        if heights.any(|height| height > lowest.into()) {
            return Ok(());
        }
        let hash = node.call("getblockhash", json!([lowest + 1]))?;
        let best = node.call("getbestblockhash", json!([]))?;
        for method in ["invalidateblock", "reconsiderblock"] {
            if let Err(error) = node.call(method, json!([hash])) {
                self.find("no-disconnect", format!("{method}: {error}"));
                return Ok(());
            }
        }
        let now = node.call("getbestblockhash", json!([]))?;
        self.log += "  bitcoind has disconnected ten blocks and connected them again\n";
        if now != best {
            self.find("no-disconnect", format!("bitcoind was at {best}, and is at {now}"));
        }
        Ok(())
    }

    fn stats(&mut self) -> Res<Option<Value>> {
        let run = |verb: &[&str]| self.program().run(&common(&self.scene, verb), &Disturbance::None);
        // A later run may have been killed while it replaced databases.
        run(&["recover", "--json"])?;
        let ran = run(&["utxo", "stats", "--json"])?;
        if ran.code == Some(0) {
            return Ok(Some(serde_json::from_str(&ran.stdout)?));
        }
        self.log += &ran.description();
        self.find("done-but-no-stats", first_line(&ran.stderr));
        Ok(None)
    }

    /// Checks that the coins are those of the node at the same block.
    fn compare_coins(&mut self, node: &Node, stats: &Value, tip: u32) -> Res<()> {
        let height = stats["height"].as_u64().unwrap_or(0) as u32;
        if height < tip {
            // The node has connected more blocks: let it go back, if it can.
            let Ok(hash) = node.call("getblockhash", json!([height + 1])) else { return Ok(()) };
            if node.call("invalidateblock", json!([hash])).is_err() {
                return Ok(());
            }
        }
        let Ok(core) = node.call("gettxoutsetinfo", json!([])) else { return Ok(()) };
        if core["bestblock"] != stats["block_hash"] {
            self.log += &format!("  not compared: bitcoind is at {}\n", core["bestblock"]);
            return Ok(());
        }
        for (field, name) in [("hash_serialized_3", "hash_serialized_3"), ("txouts", "coins")] {
            if core[field] != stats[name] {
                let detail = format!("{name}: {} by bitcoind, {} by peregrine", core[field], stats[name]);
                self.find("coins-differ", detail);
            }
        }
        Ok(())
    }
}

/// What a report says of a setting that keeps the node from starting.
const NAMED_SETTINGS: [&str; 2] = ["bitcoind does not start", "bitcoind stops at this height"];

/// What a node says that does not start because of a file that rebuilds do not read.
const OTHER_FILES: [&str; 3] = [
    "Settings file could not be read",
    // `settings.json` is a folder.
    "basic_filebuf::underflow error reading the file: Is a directory",
    "Invalid or corrupt peers.dat",
];

/// What a node says that cannot go on because of a damaged index.
const INDEX_ERRORS: [&str; 4] = ["index", "LevelDB", "filter", "leveldb"];

/// Returns whether the node refused to start because of an index such as `txindex`, and refuses for the same
/// reason now: a run leaves these as they are, and advises to remove one that is ahead of the block index.
fn is_other_index(was: &str, is: &str) -> bool {
    was == is && is.contains("best block of ") && is.contains("not found")
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("error") || line.contains("panicked"));
    line.or_else(|| text.lines().next()).unwrap_or_default().to_owned()
}
