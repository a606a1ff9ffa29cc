//! Follows what `doctor` advises to its end.

use super::{Case, MOST_ADVICE, clear, first_line, has, start};
use crate::{
    prelude::*,
    steps::{Command, common},
};

impl Case<'_> {
    /// Runs what `doctor` advises, as it is printed, until that is `bitcoind` or nothing. If a command is
    /// refused, the first command that its error names is next.
    pub(super) fn follow_advice(&mut self) -> Res<()> {
        let mut doctor = common(&self.scene, &["doctor", "--json"]);
        for _ in 0..MOST_ADVICE {
            let ran = self.program().run(&doctor, &Disturbance::None)?;
            // What it finds is in its report, not in an error message.
            if !matches!(ran.code, Some(4 | 5)) {
                self.check_end(&ran, &Disturbance::None, false, false);
            }
            let Ok(found) = serde_json::from_str::<Value>(&ran.stdout) else {
                self.find("no-advice", first_line(&ran.stderr));
                return Ok(());
            };
            let advice = found["next"].as_str().unwrap_or_default();
            self.log += &format!("  doctor advises: {advice}\n");
            if let Some(line) = advice.split("  #").next().and_then(|it| it.strip_prefix("bitcoind ")) {
                let Some(refusal) = self.start_as_advised(line)? else { return Ok(()) };
                // Damage to coins that only a look at all of them finds.
                if has(&doctor, "--deep") {
                    self.find("advised-but-refuses", refusal);
                    return Ok(());
                }
                doctor.push("--deep".to_owned());
                continue;
            }
            // That deletes blocks, as the user of a pruned node wants.
            if advice.contains("--prune=") {
                return Ok(());
            }
            // A command with a remark needs what only the user knows.
            let Some(words) = advice.strip_prefix("peregrine ").filter(|_| !advice.contains('#')) else {
                return Ok(());
            };
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            if words.first().is_some_and(|command| command == "doctor") {
                doctor = [words, vec!["--json".to_owned()]].concat();
                continue;
            }
            let Some(ran) = self.follow(words.clone())? else { return Ok(()) };
            // Only the user can do what such an error asks for, such as to change permissions.
            if ran.code == Some(5) {
                return Ok(());
            }
            let mut helps = ran.stderr.lines().filter_map(|line| line.strip_prefix("help: "));
            let next = helps.find_map(|help| {
                let owned = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                let (_, command) = help.split_once(": peregrine ").unwrap_or_default();
                match help.starts_with("pass --reconsider ") {
                    true => Some([&words[..], &owned("--reconsider")].concat()),
                    false => (!command.is_empty()).then(|| owned(command)),
                }
            });
            if let Some(next) = next.filter(|_| ran.code != Some(0)) {
                let ran = self.follow(next)?;
                if ran.is_none_or(|ran| ran.code == Some(5)) {
                    return Ok(());
                }
            }
        }
        self.find("advice-loops", format!("doctor still advises something after {MOST_ADVICE} commands"));
        Ok(())
    }

    /// Starts the node on a copy with the options that `doctor` prints, and returns how it refuses, if it
    /// does. Indexes that a user asks for on the command line are not known to `doctor`.
    fn start_as_advised(&mut self, line: &str) -> Res<Option<String>> {
        let copy = self.dir.join("advised");
        copy_all(&self.scene.live, &copy)?;
        let line = &line.replace(&*self.scene.live.to_string_lossy(), &copy.to_string_lossy());
        let is_more = |word: &&str| !["-datadir=", "-chain="].iter().any(|option| word.starts_with(option));
        let own = self.scene.base.flags.iter().filter(|flag| !flag.contains("index"));
        let flags: Vec<_> = own.cloned().chain(line.split(' ').filter(is_more).map(str::to_owned)).collect();
        let datadir = copy.join("datadir");
        let mut node = Node::spawn(Start { flags: &flags, ..start(self.context, &self.scene, &datadir) })?;
        let started = node.wait();
        drop(node);
        clear(&copy)?;
        self.log += &format!("  bitcoind {}: {started:?}\n", flags.join(" "));
        Ok((!started.is_yes()).then(|| format!("bitcoind {line}: {started:?}")))
    }

    /// Runs a command that was advised, with what a user adds to it. Returns `None` if it needs a peer and
    /// there is none.
    fn follow(&mut self, mut words: Vec<String>) -> Res<Option<Ran>> {
        let command = words.first().map(String::as_str).unwrap_or_default();
        let (downloads, rebuilds) = (["repair", "sync"].contains(&command), command == "reindex");
        if downloads {
            let served = self.scene.base.ask_server(self.context, "getblockcount", json!([]))?;
            let Some((_, address)) = served else { return Ok(None) };
            words.extend(["--connect".to_owned(), address]);
        }
        // The way on that a refused run names.
        if !self.scene.base.flags.is_empty() && (downloads || rebuilds) {
            words.push("--set-aside-indexes".to_owned());
        }
        self.step(&words, &Disturbance::None, Command::Download).map(Some)
    }
}
