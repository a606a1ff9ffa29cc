//! Which options a command has: messages name only those of the command that prints them, and commands that
//! exist.

use crate::progress::Style;
use clap::{ArgMatches, Command};

/// Returns the name of the command that a command line names, whether it asks for a report as JSON, and how
/// it shows progress.
pub fn chosen(mut matches: &ArgMatches) -> (String, bool, Option<Style>) {
    let mut words = Vec::new();
    while let Some((word, inner)) = matches.subcommand() {
        words.push(word);
        matches = inner;
    }
    let json = matches.try_get_one("json").ok().flatten().copied();
    let progress = matches.try_get_one("progress").ok().flatten().copied();
    (words.join(" "), json.unwrap_or_default(), progress)
}

/// Returns the long options of a command of the program `root`, without dashes; `None` if there is no command
/// with this name.
pub fn options_of(root: &Command, name: &str) -> Option<Vec<String>> {
    let words = name.split(' ').filter(|word| !word.is_empty());
    let command = words.into_iter().try_fold(root, |command, word| command.find_subcommand(word))?;
    Some(command.get_arguments().filter_map(|argument| Some(argument.get_long()?.to_owned())).collect())
}

/// Returns the names of all commands that do something.
#[cfg(test)]
pub fn command_names(root: &Command) -> Vec<String> {
    let (mut found, mut pending) = (Vec::new(), vec![(String::new(), root.clone())]);
    while let Some((name, command)) = pending.pop() {
        let inner: Vec<_> = command.get_subcommands().cloned().collect();
        if inner.is_empty() {
            found.push(name.trim().to_owned());
        }
        pending.extend(inner.into_iter().map(|inner| (format!("{name} {}", inner.get_name()), inner)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::command_names;
    use crate::args::Args;
    use clap::CommandFactory as _;
    use engine::{Note, Remedy, Warning};
    use peregrine::remedy::remedy_text_for;
    use std::{collections::BTreeSet, fs, path::Path};

    fn options_of(name: &str) -> Option<Vec<String>> {
        super::options_of(&Args::command(), name)
    }

    /// Returns the options that a text names, each with the command that it names before it; without one, it
    /// is the command `own`. Fails if there is no such command. What follows
    /// `sudo` is the command line of this process.
    fn named_options(own: &str, text: &str) -> Vec<(String, String)> {
        let plain = |word: &str| {
            word.trim_matches(|c: char| !(c.is_ascii_alphanumeric() || ['-', '_'].contains(&c))).to_owned()
        };
        let text = text.split("sudo ").next().unwrap_or_default();
        let words: Vec<String> = text.split([' ', '=', '/']).map(plain).collect();
        let (mut found, mut command, mut at) = (Vec::new(), own.to_owned(), 0);
        while let Some(word) = words.get(at) {
            at += 1;
            if word == "peregrine" && !words.get(at).is_some_and(|next| next.starts_with('-')) {
                let known = |len: usize| words.get(at..at + len).map(|words| words.join(" "));
                let exists = |name: &String| options_of(name).is_some();
                let named = [2, 1].into_iter().filter_map(known).find(exists);
                command = named.unwrap_or_else(|| panic!("no such command: {text}"));
            } else if let Some(option) = word.strip_prefix("--") {
                found.push((command.clone(), option.to_owned()));
            }
        }
        found
    }

    fn assert_exist(own: &str, text: &str) {
        for (command, option) in named_options(own, text) {
            let exists = options_of(&command).is_some_and(|options| options.contains(&option));
            let is_common = ["help", "version"].contains(&&*option);
            assert!(exists || is_common, "{own}: `{command}` has no --{option}: {text}");
        }
    }

    #[test]
    fn every_option_that_a_remedy_names_exists_for_the_command_that_it_names() {
        let mut named = BTreeSet::new();
        for own in command_names(&Args::command()) {
            let options = options_of(&own).unwrap();
            for remedy in Remedy::examples() {
                let text = remedy_text_for(&remedy, |name| options.iter().any(|option| option == name));
                assert_exist(&own, &text);
                named.extend(named_options(&own, &text));
            }
        }
        assert!(named.contains(&("reindex".to_owned(), "scan".to_owned())), "{named:?}");
        let scan = remedy_text_for(&Remedy::RebuildIndex, |_| false);
        assert_eq!(scan, "rebuild both databases with: peregrine reindex --scan");
        // The library's own words name no options.
        assert!(Remedy::examples().all(|remedy| !remedy.to_string().contains("--")));
    }

    #[test]
    fn notes_and_warnings_name_only_options_that_exist() {
        let text = Note::AllScripts { blocks: 7, network: engine::Network::Regtest }.to_string();
        assert!(!text.contains("--"), "{text}");
        let (file, used) = ("blk".into(), 7);
        let text = Warning::BlocksBeyondIndex { blocks: 1, file, used }.to_string();
        assert!(!text.contains("--"), "{text}");
    }

    /// The lines of commands in the documentation: in code, and beginning with the program's name.
    fn documented(page: &str) -> Vec<String> {
        let (mut found, mut is_block) = (Vec::new(), false);
        for line in page.lines() {
            if line.starts_with("```") {
                is_block = !is_block;
            } else if is_block {
                found.push(line.split('#').next().unwrap_or_default().to_owned());
            } else {
                found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        found.retain(|line| {
            !line.contains("COMMAND")
                && line.starts_with("peregrine ")
                && !line.contains(['|', '<', '*', '.'])
        });
        found
    }

    #[test]
    fn every_command_in_the_documentation_exists_with_its_options() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
        let mut count = 0;
        for page in pages.chain([root.join("README.md")]) {
            for line in documented(&fs::read_to_string(&page).unwrap()) {
                if cfg!(feature = "export") || !line.contains(" export ") {
                    assert_exist("", &line);
                    count += 1;
                }
            }
        }
        assert!(count > 50, "{count}");
    }

    /// What a frightened operator reads must be what `doctor` advises.
    #[test]
    fn what_the_questions_of_operators_advise_is_what_doctor_advises() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let [faq, doctor] = ["faq.md", "doctor.md"].map(|page| fs::read_to_string(root.join(page)).unwrap());
        let advised = doctor.split("## What is advised").nth(1).unwrap().split("\n## ").next().unwrap();
        for line in documented(&faq).into_iter().filter(|line| line != "peregrine doctor") {
            let is_repair =
                !["peregrine verify", "peregrine sync"].iter().any(|other| line.starts_with(other));
            assert!(!is_repair || advised.contains(&line), "doctor does not advise `{line}`");
        }
        let damaged = faq.split("A single block is damaged").nth(1).unwrap();
        let answer = damaged.split("\n\n").next().unwrap();
        assert!(answer.contains("peregrine repair") && !answer.contains("bitcoind"), "{answer}");
    }
}
