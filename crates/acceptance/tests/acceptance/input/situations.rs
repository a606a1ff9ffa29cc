//! What becomes of a datadir in each situation: what `doctor` says of it, what each command does or why it
//! refuses, and to which commands the advice leads until all is sound. `situations.txt` has the text of each
//! cell; `UPDATE_DOCS=1` rewrites it.
//!
//! Whatever the cell, a command that is refused changes nothing, one that succeeds leaves the coins of its
//! height and, where it writes one, a true block index, and what it has left out can be downloaded.

use acceptance::{prelude::*, shell::Done};
use testkit::pages::assert_named_table;

const COMMANDS: [&str; 14] = [
    "doctor",
    "reindex",
    "reindex --undo trust",
    "reindex --scan",
    "reindex --scan --undo trust",
    "reindex --accept-lower-tip",
    "reindex --scan --undo trust --accept-lower-tip",
    "reindex --until-damage",
    "reindex --scan --until-damage",
    "undo make",
    "update",
    "verify --against-chainstate",
    "repair",
    "sync",
];

/// Most commands to which advice leads.
const MOST_COMMANDS: usize = 4;

/// A datadir in a situation.
fn place(name: &str) -> (Case, Shell) {
    let case = Case::at_tip();
    let shell = Shell::of(&case);
    damage::cause(name, &case, shell.outside.path());
    (case, shell)
}

/// Text without the paths of this run.
fn plain(text: &str, case: &Case, shell: &Shell) -> String {
    let text = text.replace(&*case.root().to_string_lossy(), "DIR");
    text.replace(&*shell.outside.path().to_string_lossy(), "OUTSIDE")
}

/// Kind, place and reason of an error, and what helps.
fn refusal(error: &Error) -> String {
    let file = error.file.as_ref().map_or(String::new(), |file| format!(" {}", file.display()));
    let offset = error.offset.map_or(String::new(), |at| format!(" at {at:?}"));
    let height = error.height.map_or(String::new(), |height| format!(", height {height}"));
    // The key of a chainstate is random, and so is a checksum of its bytes.
    let is_random = file.contains("chainstate/") && error.detail.contains("block checksum is");
    let detail = if is_random { "a checksum differs" } else { &error.detail };
    format!("{:?}{file}{offset}{height}: {detail}; {:?}", error.kind, error.remedies)
}

/// What a diagnosis says, of those parts of a datadir that are not as in a sound one.
fn diagnosis(found: &Diagnosis) -> String {
    static SOUND: LazyLock<Vec<String>> = LazyLock::new(|| parts(&Shell::of(&Case::at_tip()).diagnosis()));
    let mut text = format!("{:?}, sound: {}", found.advice, found.is_sound());
    parts(found).iter().filter(|part| !SOUND.contains(part)).for_each(|part| text += &format!("\n  {part}"));
    text
}

fn parts(found: &Diagnosis) -> Vec<String> {
    let state = match &found.found {
        Ok(state) => state,
        Err(absence) => return vec![format!("{absence:?}")],
    };
    vec![
        format!("index: {}", state.index),
        format!("blocks: {}", state.blocks),
        format!("undo: {}", state.undo),
        format!("coins: {}", state.chainstate),
    ]
}

fn rebuild(report: &ReindexReport) -> String {
    let ReindexReport { height, lost_blocks, unconnected, damaged_blocks, notes, .. } = report;
    let counts = [(lost_blocks, "lost"), (unconnected, "unconnected"), (damaged_blocks, "damaged")];
    let counts =
        counts.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!(", {count} {what}"));
    let notes = notes.iter().map(|note| format!("; {note}"));
    format!("height {height}{}", counts.chain(notes).collect::<String>())
}

fn repair(report: &RepairReport) -> String {
    let RepairReport { damaged, missing, lost, lost_files, damaged_undo, taken, .. } = report;
    let downloaded = report.download.as_ref().map_or(0, |download| download.blocks);
    let rebuilt = report.rebuild.as_ref().map_or("stays".to_owned(), rebuild);
    let undo = report.undo.as_ref().map_or(0, |report| report.undo.blocks);
    let first: Vec<String> = report.first.iter().map(refusal).collect();
    format!(
        "{damaged} damaged, {lost} of them in {lost_files} files, {missing} missing, undo data of \
         {damaged_undo}; {taken} taken, {downloaded} downloaded, undo data of {undo} made; the chainstate: \
         {rebuilt}; {first:?}"
    )
}

fn sync(report: &SyncReport, shell: &Shell) -> String {
    let rebuilt = report.rebuild.as_ref().map_or("stays".to_owned(), rebuild);
    let asked = shell.peer.asked().len();
    let SyncReport { download, height, notes, .. } = report;
    let notes = notes.iter().map(|note| format!("; {note}"));
    format!(
        "{} found, {} downloaded of {asked} asked, height {height}; the chainstate: {rebuilt}{}",
        download.found,
        download.blocks,
        notes.collect::<String>()
    )
}

/// The hashes of the blocks that an index which can be read marks as invalid.
fn marked(case: &Case) -> Vec<BlockHash> {
    let index = read_block_index(&RealDisk, &case.blocks("index")).ok().filter(|index| !index.reindexing);
    let entries = index.into_iter().flat_map(|index| index.entries);
    entries.filter(|entry| entry.status.is_failed()).map(|entry| entry.hash).collect()
}

/// What comes of a datadir when the last blocks are connected, as bitcoind does when it starts. At the last
/// block, all must be sound.
fn connected(case: &Case, shell: &Shell, what: &str) -> String {
    match shell.run("update") {
        Err(error) => format!("an update refuses it: {}", refusal(&error)),
        Ok(done) => {
            let height = done.height.unwrap();
            let is_pruned = case.index().pruned;
            let found = shell.run("doctor --deep").unwrap().diagnosis.unwrap();
            if height.0 == TIP && found.is_sound() && !is_pruned {
                assert_sound(case.root(), chain(), what);
            }
            format!("then {:?} at height {height}", found.advice)
        }
    }
}

/// Runs a command, and returns what it did, or why it refused.
fn cell(name: &str, command: &str) -> String {
    let ((case, shell), what) = (place(name), format!("{name}, {command}"));
    let (before, left, marks) = (tree(case.root()), leftovers(case.root()), marked(&case));
    let text = match shell.run(command) {
        Err(error) => {
            // What was downloaded before stays.
            let asked = if command == "sync" { shell.peer.asked().len() } else { 0 };
            if asked == 0 {
                assert_same_tree(&before, case.root(), &format!("{what}: {error}"));
                refusal(&error)
            } else {
                format!("{asked} asked; {}", refusal(&error))
            }
        }
        Ok(Done { diagnosis: Some(found), .. }) => {
            assert_same_tree(&before, case.root(), &what);
            diagnosis(&found)
        }
        Ok(done) => {
            if command.contains("--scan") {
                assert_index_is_true(case.root(), &what);
            }
            assert!(leftovers(case.root()).iter().all(|path| left.contains(path)), "{what}");
            if ["update", "repair", "sync"].contains(&command) {
                let now = marked(&case);
                assert!(marks.iter().all(|mark| now.contains(mark)), "{what}: a mark is gone");
            }
            match (done.rebuild, done.repair, done.sync) {
                (Some(report), ..) => {
                    let found = stats(case.root(), Network::Regtest).unwrap();
                    assert_eq!(found.height, Some(report.height), "{what}");
                    let model = &stats_by_height(chain())[report.height.0 as usize];
                    let is_of_chain = chain().main().any(|block| block.hash == found.best_block);
                    assert!(!is_of_chain || found.hash_serialized_3 == model.hash_serialized_3, "{what}");
                    if report.damaged_blocks > 0 {
                        assert_index_is_true(case.root(), &what);
                        // What was damaged can be downloaded.
                        shell.run("sync").unwrap();
                        shell.run("reindex").unwrap();
                        assert_sound(case.root(), chain(), &what);
                    }
                    rebuild(&report)
                }
                (_, Some(report), _) => {
                    for note in &report.notes {
                        if let Warning::ChainstateSetAside { kept, .. } = note {
                            let (old, kept) =
                                (below(&before, &case.net("chainstate")), below(&tree(case.root()), kept));
                            assert!(!old.is_empty() && old == kept, "{what}: other files were kept");
                        }
                    }
                    let after = connected(&case, &shell, &what);
                    format!("{}; {after}", repair(&report))
                }
                (.., Some(report)) => {
                    let after = connected(&case, &shell, &what);
                    if after.contains("MakeUndo") {
                        shell.run("undo make").unwrap();
                        assert_sound(case.root(), chain(), &what);
                    }
                    format!("{}; {after}", sync(&report, &shell))
                }
                _ => done.height.map_or("done".to_owned(), |height| format!("height {height}")),
            }
        }
    };
    plain(&text, &case, &shell)
}

/// Follows the advice of deep diagnoses. Returns the last diagnosis, and the commands before it.
fn healed(name: &str) -> String {
    let (case, shell) = place(name);
    let mut text = String::new();
    for _ in 0..=MOST_COMMANDS {
        let before = tree(case.root());
        let done = shell.run("doctor --deep").unwrap();
        assert_same_tree(&before, case.root(), name);
        let found = done.diagnosis.as_ref().unwrap();
        let command = match &found.advice {
            Advice::Reindex => "reindex",
            Advice::ReindexByScan => "reindex --scan",
            Advice::MakeUndo => "undo make",
            Advice::Update => "update",
            Advice::Repair => "repair",
            Advice::FinishReplacement => "recover",
            Advice::Reconsider { block: Some(_), rebuilds: false } => "update --reconsider",
            advice => {
                if *advice == Advice::StartBitcoind {
                    assert!(found.is_sound(), "{name}: {found:?}");
                    text += &format!("{}, ", connected(&case, &shell, name));
                }
                return plain(&format!("{text}{advice:?}"), &case, &shell);
            }
        };
        let deep = found.found.as_ref().unwrap().deep.as_ref().unwrap();
        let first = deep.first.first().map_or(String::new(), |error| format!(": {}", refusal(error)));
        let undo: u32 = deep.undo.iter().map(|file| file.damaged + file.missing).sum();
        text += &format!("{command} ({} blocks, {undo} undo{first}), ", deep.damaged);
        shell.run(command).unwrap_or_else(|error| panic!("{name}: {text}: {error}"));
    }
    panic!("{name}: no end: {text}");
}

/// What all commands do in a situation. Those that do the same are in one line.
fn situation(name: &str) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for command in COMMANDS {
        let text = cell(name, command);
        match lines.iter_mut().find(|(other, _)| *other == text) {
            Some((_, commands)) => commands.push(command),
            None => lines.push((text, vec![command])),
        }
    }
    let lines = lines.iter().map(|(text, commands)| format!("{}: {text}\n", commands.join(", ")));
    format!("\n# {name}\n{}by advice: {}\n", lines.collect::<String>(), healed(name))
}

#[test]
fn each_command_does_in_each_situation_what_the_file_says() {
    let (names, texts) = (damage::all().collect::<Vec<_>>(), Mutex::new(BTreeMap::new()));
    each_operation(1, |number| {
        let Some(name) = names.get(number as usize) else { return true };
        let text = situation(name);
        texts.lock().unwrap().insert(number, text);
        false
    });
    let text: String = texts.into_inner().unwrap().into_values().collect();
    assert_named_table("crates/acceptance/tests/acceptance/input/situations.txt", "situations", &text);
}
