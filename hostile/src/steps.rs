//! What is done to a damaged datadir, one thing after the other.

use crate::{Context, program::Disturbance, scene::Scene};
use std::path::{Path, PathBuf};

/// One thing that is done.
pub enum Step {
    /// A run of `peregrine`.
    Run {
        /// Its words.
        words: Vec<String>,
        /// How it is disturbed.
        disturbance: Disturbance,
        /// It is a `reindex` in place.
        reindex: bool,
        /// It uses hints.
        hints: bool,
        /// It keeps what it replaces.
        keep_old: bool,
    },
    /// `bitcoind` is started and stopped, or killed.
    Node {
        /// Stopped.
        stopped: bool,
    },
    /// A `reindex` while `bitcoind` runs.
    Held {
        /// Its words.
        words: Vec<String>,
    },
}

/// A `reindex` in place with some options.
#[derive(Clone)]
struct Reindex {
    words: Vec<String>,
    hints: bool,
    keep_old: bool,
}

impl Reindex {
    fn step(&self, disturbance: Disturbance) -> Step {
        let Self { words, hints, keep_old } = self.clone();
        Step::Run { words, disturbance, reindex: true, hints, keep_old }
    }

    /// The same command with `--scan`, or without.
    fn toggled(&self) -> Self {
        let mut other = self.clone();
        let len = other.words.len();
        other.words.retain(|word| word != "--scan");
        if other.words.len() == len {
            other.words.push("--scan".to_owned());
        }
        other
    }
}

fn common(scene: &Scene<'_>, verb: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = verb.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["--chain".to_owned(), scene.base.network.name().to_owned(), "--datadir".to_owned()]);
    words.push(scene.datadir().display().to_string());
    words
}

fn reindex(context: &Context, scene: &mut Scene<'_>) -> Reindex {
    let mut words = common(scene, &["reindex", "--progress", "log"]);
    let mut say = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    if scene.rng.chance(1, 2) {
        say(&["--scan"]);
    }
    if scene.rng.chance(1, 5) {
        say(&["--memory", "128M"]);
    }
    if scene.rng.chance(1, 3) {
        say(&["--checkpoint-every", "0"]);
    }
    if scene.rng.chance(1, 2) {
        say(&["--json"]);
    }
    if scene.rng.chance(1, 10) {
        say(&["--restart"]);
    }
    let threads = (1 + scene.rng.below(3)).to_string();
    say(&["--threads", &threads]);
    let keep_old = scene.rng.chance(1, 6) && context.has_keep_old;
    if keep_old {
        say(&["--keep-old"]);
    }
    let file = hints_file(scene);
    if let Some(file) = &file {
        say(&["--hints", &file.display().to_string()]);
        if scene.rng.chance(1, 3) {
            say(&["--without-undo"]);
        }
        if scene.rng.chance(1, 3) {
            say(&["--on-hint-failure", "join"]);
        }
    }
    Reindex { words, hints: file.is_some(), keep_old }
}

/// Hints: right ones, those of another chain, or what is no hint file.
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

/// Another command of ours.
fn other(scene: &mut Scene<'_>, dir: &Path) -> Step {
    let out = dir.join(format!("out-{}", scene.rng.below(1_000_000)));
    let (verb, output): (&[&str], bool) = match scene.rng.below(5) {
        0 => (&["verify", "--progress", "none"], false),
        1 => (&["utxo", "stats"], false),
        2 => (&["snapshot", "make", "--progress", "none"], true),
        3 => (&["hints", "make", "--progress", "none"], true),
        _ => (&["reindex", "--progress", "none"], true),
    };
    let mut words = common(scene, verb);
    if output {
        words.extend(["--output".to_owned(), out.display().to_string()]);
    }
    if verb[0] != "utxo" && scene.rng.chance(1, 3) {
        words.push("--scan".to_owned());
    }
    Step::Run { words, disturbance: Disturbance::None, reindex: false, hints: false, keep_old: false }
}

/// What is done in a case, in order.
pub fn plan(context: &Context, scene: &mut Scene<'_>, dir: &Path) -> Vec<Step> {
    let main = reindex(context, scene);
    let mut steps = Vec::new();
    if scene.rng.chance(1, 25) && !scene.fifo {
        steps.push(Step::Held { words: main.words.clone() });
    }
    let traced = context.has_strace;
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
                steps.push(match scene.rng.below(8) {
                    0 => Step::Node { stopped: true },
                    1 => Step::Node { stopped: false },
                    2 => main.toggled().step(Disturbance::None),
                    3 => main.toggled().step(Disturbance::random(&mut scene.rng, traced)),
                    4 => disturbed(scene),
                    _ => other(scene, dir),
                });
            }
            steps.push(main.step(Disturbance::None));
        }
        _ => steps.push(disturbed(scene)),
    }
    steps
}
