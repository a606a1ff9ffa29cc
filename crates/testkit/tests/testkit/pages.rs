//! Pages are true in what can be checked: what they link to exists, and so do the files, the modules and the
//! targets of cargo that they and the comments of manifests name.

use crate::workspace::{name, packages, project, root, sources, texts};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Options of cargo that name a target, and the kind of the target.
const TARGET_OPTIONS: [(&str, &str); 4] =
    [("--test", "test"), ("--example", "example"), ("--bin", "bin"), ("--bench", "bench")];

/// Keywords before the name of what they declare.
const DECLARATIONS: [&str; 7] = ["fn", "mod", "struct", "enum", "trait", "type", "const"];

fn pages() -> Vec<(PathBuf, String)> {
    let pages = texts(|path| path.extension().is_some_and(|extension| extension == "md"));
    assert!(pages.len() > 40, "the pages were not found");
    pages
}

/// Returns what a page has in backticks: each block between fences by lines, each span joined to one line.
fn code_of(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, part) in page.split("```").enumerate() {
        if number % 2 == 1 {
            found.extend(part.lines().map(str::to_owned));
        } else {
            found.extend(part.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")));
        }
    }
    found
}

/// Returns the code in pages and the comments in manifests, each with the file that contains it.
fn named_code() -> Vec<(PathBuf, String)> {
    let in_pages = pages()
        .into_iter()
        .flat_map(|(path, text)| code_of(&text).into_iter().map(move |code| (path.clone(), code)));
    let manifests = texts(|path| path.ends_with("Cargo.toml"));
    let in_manifests = manifests.into_iter().flat_map(|(path, text)| {
        let comments: Vec<_> = text.lines().filter_map(|line| line.trim().strip_prefix('#')).collect();
        comments.iter().map(|comment| (path.clone(), comment.replace('`', " "))).collect::<Vec<_>>()
    });
    in_pages.chain(in_manifests).collect()
}

/// Fails if `wrong` returns anything for any code, and lists all of it.
fn assert_nothing_missing(what: &str, missing: impl Fn(&Path, &str) -> Vec<String>) {
    let mut found = String::new();
    for (path, code) in named_code() {
        for name in missing(&path, &code) {
            found += &format!("\n{}: {name}", path.display());
        }
    }
    assert!(found.is_empty(), "{what} that do not exist:{found}");
}

/// Returns the path that a link on a page leads to; `None` if that is nowhere, or outside of the project.
fn resolve(page: &Path, target: &str) -> Option<PathBuf> {
    let found = fs::canonicalize(root().join(page.parent()?).join(target)).ok()?;
    Some(found.strip_prefix(fs::canonicalize(root()).ok()?).ok()?.to_owned())
}

/// Returns the anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let (project, pages) = (project(), pages());
    let anchors: BTreeMap<&Path, _> =
        pages.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    let mut dead = String::new();
    for (page, text) in &pages {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if target.is_empty() { Some(page.clone()) } else { resolve(page, target) };
            let has_anchor = |anchors: &BTreeSet<String>| anchor.is_empty() || anchors.contains(anchor);
            let is_there =
                |path: &PathBuf| project.contains(path) && anchors.get(path.as_path()).is_none_or(has_anchor);
            if !path.as_ref().is_some_and(is_there) {
                dead += &format!("\n{}: {link}", page.display());
            }
        }
    }
    assert!(dead.is_empty(), "dead links:{dead}");
}

/// Replaces `{a,b}` in a path by each of the alternatives.
fn alternatives(path: &str) -> Vec<String> {
    let braces = path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (inside, after))) = braces else { return vec![path.to_owned()] };
    inside.split(',').map(|inside| format!("{before}{inside}{after}")).collect()
}

/// A path may begin at the root, in `crates`, or at any folder below, as `plan/tree.rs` does. Whatever ends
/// in `.rs` is one, and what begins with a folder of the project or a crate's name; `NAME.rs` is a
/// placeholder.
#[test]
fn files_that_are_named_exist() {
    let project: Vec<String> =
        project().iter().map(|path| format!("/{}", path.to_str().expect("names are ASCII"))).collect();
    let folders: BTreeSet<String> = ["", "crates"]
        .iter()
        .flat_map(|dir| fs::read_dir(root().join(dir)).unwrap())
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_dir() && entry.file_name() != "target")
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let is_path = |word: &str| {
        let begins_here = word.split_once('/').is_some_and(|(first, _)| folders.contains(first));
        let stem = Path::new(word).file_stem().unwrap_or_default().to_str().unwrap();
        let is_placeholder = stem.chars().all(|c| c.is_ascii_uppercase());
        (word.ends_with(".rs") || begins_here) && !is_placeholder
    };
    let exists = |word: &str| match format!("/{word}").split_once('*') {
        Some((before, after)) => project.iter().any(|path| path.contains(before) && path.ends_with(after)),
        None => project.iter().any(|path| path.ends_with(&format!("/{word}"))),
    };
    assert_nothing_missing("files", |_, code| {
        let words = code.split(|c: char| c.is_whitespace() || "|()[]\"';:".contains(c));
        let words = words.map(|word| word.trim_end_matches(['.', ',', '/']));
        words.flat_map(alternatives).filter(|word| is_path(word) && !exists(word)).collect()
    });
    assert_eq!(alternatives("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
    assert!(is_path("plan/tree.rs") && !is_path("NAME.rs"));
    assert!(exists("plan/tree.rs") && !exists("plan/tre.rs"));
}

/// Returns the packages and targets that a command of cargo names and that do not exist.
fn missing_targets(packages: &[Value], command: &str) -> Vec<String> {
    let words: Vec<&str> =
        command.split_whitespace().take_while(|word| !["--", "&&", "|", ";"].contains(word)).collect();
    let after = |option: &str| {
        let names = words.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1].to_owned());
        names.filter(|name| !name.chars().all(|c| c.is_ascii_uppercase())).collect::<Vec<_>>()
    };
    let named = after("-p");
    let is_named = |package: &&Value| named.is_empty() || named.iter().any(|name| package["name"] == **name);
    let chosen: Vec<&Value> = packages.iter().filter(is_named).collect();
    let has_target = |kind: &str, name: &str| {
        let targets = chosen.iter().flat_map(|package| package["targets"].as_array().unwrap());
        targets.into_iter().any(|target| target["name"] == name && target["kind"][0] == kind)
    };
    let is_missing = |name: &&String| !packages.iter().any(|package| package["name"] == ***name);
    let mut missing: Vec<String> = named.iter().filter(is_missing).cloned().collect();
    for (option, kind) in TARGET_OPTIONS {
        let names = after(option).into_iter().filter(|name| !has_target(kind, name));
        missing.extend(names.map(|name| format!("{option} {name}")));
    }
    missing
}

#[test]
fn targets_of_cargo_that_are_named_exist() {
    let packages = packages();
    assert_nothing_missing("targets of cargo", |_, code| {
        code.split("cargo ").skip(1).flat_map(|command| missing_targets(&packages, command)).collect()
    });
    let missing = |command: &str| missing_targets(&packages, command);
    assert!(missing("test -p testkit --test testkit -- --test x").is_empty());
    assert_eq!(missing("test -p testkit -p x --test y"), ["x", "--test y"]);
}

#[test]
fn targets_of_make_that_are_named_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let rules = makefile.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let targets: Vec<&str> =
        rules.filter_map(|rule| rule.split_once(':')).flat_map(|(names, _)| names.split(' ')).collect();
    assert_nothing_missing("targets of make", |_, code| {
        let target = code.strip_prefix("make ").and_then(|words| words.split(' ').next());
        target.filter(|target| !targets.contains(target)).map(str::to_owned).into_iter().collect()
    });
    assert!(targets.contains(&"test"), "{targets:?}");
}

/// The first name after a crate's name may be in any of its modules. What changed between versions has names
/// that are gone.
#[test]
fn items_of_crates_that_are_named_exist() {
    let mut items: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let source = manifest.parent().unwrap().join("src");
        let source = source.strip_prefix(root().canonicalize().unwrap()).unwrap();
        let items = items.entry(name(&package).to_owned()).or_default();
        for (path, text) in sources().iter().filter(|(path, _)| path.starts_with(source)) {
            let modules = path.with_extension("");
            items.extend(modules.iter().map(|module| module.to_str().unwrap().to_owned()));
            let words: Vec<&str> = text
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| !word.is_empty())
                .collect();
            let declared = words.windows(2).filter(|pair| DECLARATIONS.contains(&pair[0]));
            items.extend(declared.map(|pair| pair[1].to_owned()));
        }
    }
    assert_nothing_missing("items", |path, code| {
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let paths = words.filter_map(|word| word.trim_end_matches(':').split_once("::"));
        let is_missing = |(name, rest): &(&str, &str)| {
            items.get(*name).is_some_and(|items| !rest.split("::").all(|item| items.contains(item)))
        };
        let paths = paths.filter(|_| !path.ends_with("CHANGELOG.md")).filter(is_missing);
        paths.map(|(name, rest)| format!("{name}::{rest}")).collect()
    });
}
