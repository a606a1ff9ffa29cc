//! The steps of a case after the damage.

use crate::prelude::*;
use testkit::node::owned;

pub enum Step {
    /// A run of `peregrine`.
    Run {
        args: Vec<String>,
        disturbance: Disturbance,
        /// What it may change.
        command: Command,
    },
    /// Starts `bitcoind`, and stops or kills it.
    Node {
        /// Whether it is stopped, not killed.
        stopped: bool,
    },
    /// A `reindex` while `bitcoind` runs.
    BesideNode { args: Vec<String> },
    /// What `doctor` advises, until it advises to start `bitcoind`.
    Advice,
}

/// What a run of `peregrine` may change in the datadir.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// A `reindex` in place: replaces databases, and appends undo data.
    Reindex,
    /// An `update` or `undo make`: changes databases, and appends undo data, also before it fails.
    Update,
    /// A `reindex --block`: stores blocks, and then does what a `reindex` does.
    GivenBlocks,
    /// A `repair`, a `sync`, or what `doctor` advises: stores blocks and headers, also before it fails, makes
    /// undo data and replaces databases.
    Download,
    /// An `index make` or `index update`: changes indexes of the node, and nothing else.
    Indexes,
    /// A `recover`, or a `snapshot load`: nothing, unless it has something to do.
    Other,
    /// Nothing, also after a run that was killed.
    Read,
}

impl Command {
    /// Whether it rebuilds the chainstate, or fails.
    pub const fn rebuilds(self) -> bool {
        matches!(self, Self::Reindex | Self::GivenBlocks)
    }

    /// Whether it may have changed something before it fails.
    pub const fn changes_before_it_fails(self) -> bool {
        !matches!(self, Self::Reindex | Self::Other | Self::Read | Self::Indexes)
    }
}

/// A `reindex` in place with some options.
#[derive(Clone)]
struct Reindex(Vec<String>);

impl Reindex {
    fn step(&self, disturbance: Disturbance) -> Step {
        Step::Run { args: self.0.clone(), disturbance, command: Command::Reindex }
    }

    /// Returns the same command with another treatment of undo data.
    fn with_undo(&self, undo: &str) -> Self {
        let mut args = self.0.clone();
        if let Some(at) = args.iter().position(|word| word == "--undo") {
            args.drain(at..at + 2);
        }
        args.extend(owned(&["--undo", undo]));
        Self(args)
    }

    /// Returns the same command with `--scan` added or removed.
    fn toggled(&self) -> Self {
        let mut args = self.0.clone();
        args.retain(|word| word != "--scan");
        if args.len() == self.0.len() {
            args.push("--scan".to_owned());
        }
        Self(args)
    }
}

/// What `reindex` and other commands can do with undo data.
const UNDO: [&str; 3] = ["auto", "trust", "make"];

/// A command on the datadir.
pub fn common(scene: &Scene<'_>, verb: &[&str]) -> Vec<String> {
    let datadir = scene.datadir().display().to_string();
    owned(&[verb, &["--chain", scene.base.network.name(), "--datadir", &datadir]].concat())
}

/// Options of `reindex`: one in so many cases has them.
const OPTIONS: [(u64, &[&str]); 8] = [
    (5, &["--memory", "128M"]),
    (3, &["--checkpoint-every", "0"]),
    (2, &["--json"]),
    (10, &["--restart"]),
    (8, &["--until-damage"]),
    (2, &["--set-aside-indexes"]),
    (4, &["--reconsider"]),
    (6, &["--keep-old"]),
];

fn reindex(scene: &mut Scene<'_>) -> Reindex {
    let mut args = common(scene, &["reindex", "--progress", "lines"]);
    let mut add = |more: &[&str]| args.extend(owned(more));
    if scene.rng.chance(1, 2) {
        add(&["--scan"]);
    } else if scene.rng.chance(1, 3) {
        add(&["--assumevalid", "checked"]);
    }
    for (cases, words) in OPTIONS {
        if scene.rng.chance(1, cases) {
            add(words);
        }
    }
    if let Some(undo) = scene.pick(&UNDO).filter(|_| scene.rng.chance(1, 2)) {
        add(&["--undo", undo]);
    }
    add(&["--threads", &(1 + scene.rng.below(3)).to_string()]);
    if scene.base.flags.iter().any(|flag| flag.contains("index")) && scene.rng.chance(1, 4) {
        for kind in
            IndexKind::ALL.into_iter().filter(|kind| scene.base.has_index(&format!("-{}", kind.option())))
        {
            add(&["--index", kind.option()]);
        }
    }
    if let Some(file) = hints_file(scene) {
        add(&["--hints", &file.display().to_string()]);
        if scene.rng.chance(1, 3) {
            add(&["--without-undo"]);
        }
        if scene.rng.chance(1, 3) {
            add(&["--on-hint-failure", "join"]);
        }
    }
    Reindex(args)
}

/// Returns a hint file: correct hints, those of another chain, or a file that is not a hint file.
fn hints_file(scene: &mut Scene<'_>) -> Option<PathBuf> {
    if scene.hints.is_some() {
        return scene.hints.clone();
    }
    if !scene.rng.chance(1, 6) {
        return None;
    }
    let at = scene.below(scene.bases.len());
    let base = if scene.rng.chance(2, 3) { scene.base } else { &scene.bases[at] };
    let hints = base.dir.join("hints");
    let (from, to) = (hints.exists().then_some(hints), scene.live.join("some.hints"));
    let written = match from {
        Some(from) => std::fs::copy(from, &to).is_ok(),
        None => std::fs::write(&to, b"no hints at all").is_ok(),
    };
    written.then_some(to)
}

/// Returns a step with another command of `peregrine`.
fn other(scene: &mut Scene<'_>, dir: &Path) -> Step {
    let out = dir.join(format!("out-{}", scene.rng.below(1_000_000)));
    let (verb, output): (&[&str], bool) = match scene.rng.below(6) {
        0 => (&["verify", "--progress", "none"], false),
        1 => (&["utxo", "stats"], false),
        2 => (&["snapshot", "make", "--progress", "none"], true),
        3 => (&["hints", "make", "--progress", "none"], true),
        4 => (&["recover"], false),
        _ => (&["reindex", "--progress", "none"], true),
    };
    let mut args = common(scene, verb);
    if output {
        args.extend(["--output".to_owned(), out.display().to_string()]);
    }
    let reads_blocks = !["utxo", "recover"].contains(&verb[0]);
    if reads_blocks && scene.rng.chance(1, 3) {
        args.push("--scan".to_owned());
    }
    if let Some(undo) = scene.pick(&UNDO).filter(|_| reads_blocks && scene.rng.chance(1, 3)) {
        args.extend(owned(&["--undo", undo]));
    }
    let disturbance = Disturbance::None;
    let command = if verb[0] == "recover" { Command::Other } else { Command::Read };
    Step::Run { args, disturbance, command }
}

/// Returns a step with a command that changes the datadir and is no `reindex`. Those that need blocks take
/// them from the node that serves the base, if there is one.
fn change(context: &Context, scene: &mut Scene<'_>, dir: &Path, disturbance: Disturbance) -> Res<Step> {
    let tip = scene.base.ask_server(context, "getblockcount", json!([]))?;
    let blocks = tip.and_then(|(tip, _)| tip.as_u64()).map_or(1, |tip| tip + 1);
    let height = json!([scene.rng.below(blocks.min(150))]);
    let served = scene.base.ask_server(context, "getblockhash", height)?;
    let (verb, command): (&[&str], _) = match scene.rng.below(if served.is_some() { 14 } else { 6 }) {
        0..3 => (&["update"], Command::Update),
        3..5 => (&["undo", "make"], Command::Update),
        5 => (&["snapshot", "load"], Command::Other),
        6 => (&["reindex"], Command::GivenBlocks),
        7..11 => (&["repair"], Command::Download),
        _ => (&["sync"], Command::Download),
    };
    let mut args = common(scene, &[verb, &["--progress", "lines"]].concat());
    if verb != ["snapshot", "load"] {
        args.extend(owned(&["--threads", &(1 + scene.rng.below(3)).to_string()]));
    }
    if verb == ["sync"] && scene.base.has_index("-prune") {
        args.push("--unprune".to_owned());
    }
    if verb == ["repair"] && scene.rng.chance(1, 2) {
        // The files of the same chain, or of another.
        let at = scene.below(scene.bases.len());
        let other = if scene.rng.chance(2, 3) { scene.base } else { &scene.bases[at] };
        args.extend(["--from".to_owned(), other.dir.join("datadir").display().to_string()]);
    }
    if let Some((hash, address)) = served {
        match command {
            Command::Download => args.extend(["--connect".to_owned(), address]),
            Command::GivenBlocks => {
                for hash in damaged(context, scene)?.into_iter().chain(hash.as_str().map(str::to_owned)) {
                    // The server lacks blocks of other branches.
                    let answer = scene.base.ask_server(context, "getblock", json!([hash, 0]));
                    let Ok(Some((block, _))) = answer else { continue };
                    let path = dir.join(format!("block-{hash}"));
                    std::fs::write(&path, block.as_str().unwrap_or_default())?;
                    args.extend(["--block".to_owned(), path.display().to_string()]);
                }
            }
            _ => {}
        }
    }
    if (command == Command::Download || verb == ["update"]) && scene.rng.chance(1, 3) {
        args.push("--reconsider".to_owned());
    }
    if matches!(command, Command::Download | Command::GivenBlocks) && scene.rng.chance(1, 2) {
        args.push("--set-aside-indexes".to_owned());
    }
    if verb == ["snapshot", "load"] {
        // Without a snapshot, any file.
        let path = scene.base.dir.join("snapshot");
        args.push(if path.exists() { path } else { scene.base.dir.join("heights") }.display().to_string());
    }
    Ok(Step::Run { args, disturbance, command })
}

/// Returns a step that makes, checks or continues indexes of the node.
fn indexes(scene: &mut Scene<'_>, disturbance: Disturbance) -> Step {
    let (verb, command) = match scene.rng.below(6) {
        0..3 => ("make", Command::Indexes),
        3..5 => ("update", Command::Indexes),
        _ => ("check", Command::Read),
    };
    let mut args = common(scene, &["index", verb, "--progress", "lines"]);
    if scene.rng.chance(1, 2) {
        args.extend(owned(&["--memory", "128M"]));
    }
    Step::Run { args, disturbance, command }
}

/// The hashes of the base's blocks that `doctor` names as damaged.
fn damaged(context: &Context, scene: &Scene<'_>) -> Res<Vec<String>> {
    let args = common(scene, &["doctor", "--deep", "--json"]);
    let ran = context.program(scene.peregrine_user).run(&args, &Disturbance::None)?;
    let words = ran.stdout.split(|letter: char| !letter.is_ascii_hexdigit());
    Ok(words.filter(|word| scene.base.heights.contains_key(*word)).map(str::to_owned).collect())
}

/// Chooses the steps of a case.
pub fn plan(context: &Context, scene: &mut Scene<'_>, dir: &Path) -> Res<Vec<Step>> {
    let main = reindex(scene);
    let mut steps = Vec::new();
    if scene.rng.chance(1, 25) && !scene.fifo {
        steps.push(Step::BesideNode { args: main.0.clone() });
    }
    let traced = context.has_strace;
    let sometimes = |scene: &mut Scene<'_>, (cases, of): (u64, u64)| match scene.rng.chance(cases, of) {
        true => Disturbance::random(&mut scene.rng, traced),
        false => Disturbance::None,
    };
    if scene.rng.chance(1, 10) && !scene.fifo {
        return Ok(vec![Step::Advice]);
    }
    let has_indexes = scene.base.flags.iter().any(|flag| flag.contains("index"));
    if has_indexes && scene.rng.chance(1, 4) && !scene.fifo {
        let disturbance = sometimes(scene, (1, 3));
        let is_disturbed = !matches!(disturbance, Disturbance::None);
        steps.push(indexes(scene, disturbance));
        if is_disturbed {
            steps.push(indexes(scene, Disturbance::None));
        }
        if scene.rng.chance(1, 2) {
            return Ok(steps);
        }
    }
    if scene.rng.chance(2, 5) && !scene.fifo {
        let disturbance = sometimes(scene, (1, 2));
        steps.push(change(context, scene, dir, disturbance)?);
        if scene.rng.chance(1, 2) {
            return Ok(steps);
        }
    }
    let disturbed = |scene: &mut Scene<'_>| main.step(Disturbance::random(&mut scene.rng, traced));
    match scene.rng.below(20) {
        0..8 => steps.push(main.step(Disturbance::None)),
        8..13 => {
            steps.push(disturbed(scene));
            steps.push(main.step(Disturbance::None));
        }
        13..18 => {
            steps.push(disturbed(scene));
            for _ in 0..1 + scene.rng.below(2) {
                let undo = UNDO[scene.below(UNDO.len())];
                steps.push(match scene.rng.below(10) {
                    0 => Step::Node { stopped: true },
                    1 => Step::Node { stopped: false },
                    2 => main.toggled().step(Disturbance::None),
                    3 => main.toggled().step(Disturbance::random(&mut scene.rng, traced)),
                    4 => disturbed(scene),
                    5 => main.with_undo(undo).step(Disturbance::None),
                    6 => main.with_undo(undo).step(Disturbance::random(&mut scene.rng, traced)),
                    _ => other(scene, dir),
                });
            }
            steps.push(main.step(Disturbance::None));
        }
        _ => steps.push(disturbed(scene)),
    }
    Ok(steps)
}
