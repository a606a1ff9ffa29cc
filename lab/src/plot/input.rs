//! What a page is made of: logs, and files of results. Each has a label.

use super::{log, series::Series};
use crate::{
    hyperfine::{PROPOSAL, Results, Timing},
    place::environment,
    text::cut,
};
use engine::{Error, ErrorKind, open_regular};
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Bytes of the longest file of results that is read.
const MOST_RESULTS: u64 = 16 << 20;
/// Number of results that fit one page.
const MOST_TIMINGS: usize = 50;
/// Characters of the longest label.
const MOST_LABEL: usize = 80;

/// Reads files, which the command line names as `FILE` or `LABEL=FILE`. Returns what they contain, logs
/// first, and the number of logs.
pub fn read(words: &[PathBuf]) -> Result<(Vec<Series>, usize), Error> {
    let named: Vec<_> = words.iter().map(|word| label_and_path(word)).collect();
    let unnamed = named.iter().filter(|(label, _)| label.is_none()).map(|(_, path)| path.clone());
    let mut names = names(&unnamed.collect::<Vec<_>>()).into_iter();
    let (mut logs, mut unlabelled, mut timings) = (Vec::new(), Vec::new(), Vec::new());
    for (label, path) in named {
        let is_labelled = label.is_some();
        let name = cut(&label.or_else(|| names.next()).unwrap_or_default(), MOST_LABEL);
        if let Some(results) = results(&path).map_err(|error| environment("read", &path, error))? {
            if results.results.iter().any(|timing| timing.parameters.contains_key(PROPOSAL)) {
                let detail = "results of `proposals`: each is a ratio of processor times to the step without \
                              the proposal, so one chart of them would mislead; `proposals` prints the \
                              ratios, and --json writes them";
                return Err(Error::new(ErrorKind::Usage, detail).in_file(&path, None));
            }
            timings.extend(results.results);
            continue;
        }
        unlabelled.extend((!is_labelled).then_some(logs.len()));
        logs.push(read_log(&path, name)?);
    }
    if timings.len() > MOST_TIMINGS {
        let detail = format!("{} results: at most {MOST_TIMINGS} fit one page", timings.len());
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    name_after_versions(&mut logs, &unlabelled);
    name_timings(&mut timings);
    let count = logs.len();
    logs.extend(timings.into_iter().map(|timing| Series {
        name: timing.command.clone(),
        timing: Some(timing),
        ..Series::default()
    }));
    Ok((logs, count))
}

/// Splits `LABEL=FILE`. A file that exists is taken for one even if its path has an equals sign.
fn label_and_path(word: &Path) -> (Option<String>, PathBuf) {
    match word.to_str().and_then(|text| text.split_once('=')) {
        Some((label, path)) if !label.is_empty() && !word.exists() => (Some(label.to_owned()), path.into()),
        _ => (None, word.to_owned()),
    }
}

/// Returns the shortest names that distinguish files: the name without its extension where it is the only
/// one, otherwise the last folders in which the paths differ.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let words = |path: &PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone()).with_extension("");
        path.iter().rev().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let all: Vec<_> = paths.iter().map(words).collect();
    let name = |(at, own): (usize, &Vec<String>)| {
        let stem = own.first().cloned().unwrap_or_default();
        let others =
            || all.iter().enumerate().filter(|(other, words)| *other != at && words.first() == own.first());
        if others().next().is_none() {
            return stem;
        }
        // Words that end all of the paths do not distinguish them.
        let shared =
            (0..own.len()).take_while(|n| others().all(|(_, words)| words.get(*n) == own.get(*n))).count();
        let rest = &own[shared..];
        let differs = |count: &usize| {
            others().all(|(_, words)| {
                !words.get(shared..).is_some_and(|words| words.starts_with(&rest[..*count]))
            })
        };
        match (1..=rest.len()).find(differs) {
            Some(count) => rest[..count].iter().rev().cloned().collect::<Vec<_>>().join("/"),
            None => format!("{stem} {}", at + 1),
        }
    };
    all.iter().enumerate().map(name).collect()
}

/// Names logs without a label after the version that wrote them, such as `Bitcoin Core 31.99`, where no other
/// log would have that name.
fn name_after_versions(logs: &mut [Series], unlabelled: &[usize]) {
    let version = |series: &Series| {
        let program = series.about.program.as_deref()?.split(" (").next()?.replace(" v", " ");
        let (name, version) = program.rsplit_once(' ')?;
        let version = version.split('-').next().unwrap_or(version);
        Some(format!("{name} {}", version.strip_suffix(".0").unwrap_or(version)))
    };
    let versions: Vec<_> = unlabelled.iter().map(|at| version(&logs[*at])).collect();
    for (at, name) in unlabelled.iter().zip(&versions) {
        let count = versions.iter().filter(|version| *version == name).count();
        if let Some(name) = name.clone().filter(|_| count == 1) {
            logs[*at].name = name;
        }
    }
}

/// Gives each result a name of its own.
fn name_timings(timings: &mut [Timing]) {
    let commands: Vec<_> = timings.iter().map(|timing| timing.command.clone()).collect();
    for timing in timings {
        let is_alone = commands.iter().filter(|command| **command == timing.command).count() == 1;
        let parameters = timing.parameters.iter().map(|(name, value)| format!(" {name}={value}"));
        let parameters = if is_alone { String::new() } else { parameters.collect() };
        timing.command = cut(&(timing.command.clone() + &parameters), MOST_LABEL);
    }
}

/// Reads a file of results; `None` if it is another file.
fn results(path: &Path) -> io::Result<Option<Results>> {
    let file = open_regular(path)?;
    if file.metadata()?.len() > MOST_RESULTS {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MOST_RESULTS).read_to_end(&mut bytes)?;
    let found = serde_json::from_slice::<Results>(&bytes).ok();
    let is_time = |timing: &Timing| timing.seconds().is_finite() && timing.seconds() > 0.0;
    Ok(found.filter(|found| !found.results.is_empty() && found.results.iter().all(is_time)))
}

fn read_log(path: &Path, name: String) -> Result<Series, Error> {
    let series = log::read(path, name).map_err(|error| environment("read", path, error))?;
    if series.points.is_empty() {
        let detail = format!(
            "no progress in it ({} bad lines); it must be a log of reindex --log, a debug.log of Bitcoin \
             Core with time stamps and UpdateTip lines, or results of hyperfine's --export-json",
            series.bad_lines
        );
        return Err(Error::new(ErrorKind::Damaged, detail).in_file(path, None));
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_same_name_are_named_after_the_folders_that_differ() {
        let names = |paths: &[&str]| super::names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["a/ours.jsonl", "b/debug.log"]), ["ours", "debug"]);
        assert_eq!(names(&["a/debug.log", "b/debug.log", "c/ours.jsonl"]), ["a", "b", "ours"]);
        assert_eq!(names(&["a/regtest/debug.log", "b/regtest/debug.log"]), ["a", "b"]);
        assert_eq!(names(&["x/a/debug.log", "y/a/debug.log", "y/b/debug.log"]), ["x/a", "y/a", "b"]);
        assert_eq!(names(&["a/debug.log", "a/debug.log"]), ["debug 1", "debug 2"], "the same file");
        let here = names(&["debug.log", "a/debug.log"]);
        assert!(here[0] != here[1] && here[1] == "a", "{here:?}");
    }

    #[test]
    fn a_label_is_before_the_first_equals_sign() {
        let split = |text: &str| label_and_path(Path::new(text));
        assert_eq!(split("with hints=a=b.log"), (Some("with hints".into()), "a=b.log".into()));
        assert_eq!(split("a.log"), (None, "a.log".into()));
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("a=b.log");
        std::fs::write(&file, "").unwrap();
        assert_eq!(label_and_path(&file), (None, file));
    }

    #[test]
    fn results_of_the_same_name_are_named_with_their_parameters() {
        let timing = |commit: &str| Timing {
            command: "reindex".to_owned(),
            parameters: [("COMMIT".to_owned(), commit.to_owned())].into(),
            ..Timing::default()
        };
        let mut timings = [timing("a1"), timing("b2")];
        name_timings(&mut timings);
        assert_eq!(timings.map(|timing| timing.command), ["reindex COMMIT=a1", "reindex COMMIT=b2"]);
    }
}
