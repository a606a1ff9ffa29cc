//! The modules of each crate import each other without circles, and groups of modules import only groups
//! below.

use crate::workspace::sources;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use syn::{
    ItemMod, UseTree,
    visit::{self, Visit},
};

/// Groups of modules of a crate, each of which may import the ones that follow it.
const GROUPS: [(&str, [&str; 2]); 2] = [("pipeline", ["job", "stages"]), ("chain", ["plan", "blocks"])];

/// Collects the paths that begin with `crate`, except those in tests.
#[derive(Default)]
struct CratePaths(BTreeSet<String>);

impl CratePaths {
    fn add_tree(&mut self, prefix: &str, tree: &UseTree) {
        let join = |name: &syn::Ident| {
            if prefix.is_empty() { name.to_string() } else { format!("{prefix}::{name}") }
        };
        match tree {
            UseTree::Path(path) => self.add_tree(&join(&path.ident), &path.tree),
            UseTree::Name(name) => self.add(join(&name.ident)),
            UseTree::Rename(rename) => self.add(join(&rename.ident)),
            UseTree::Glob(_) => self.add(prefix.to_owned()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(prefix, tree)),
        }
    }

    fn add(&mut self, path: String) {
        if let Some(path) = path.strip_prefix("crate::") {
            self.0.insert(path.to_owned());
        }
    }
}

impl<'ast> Visit<'ast> for CratePaths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(names.join("::"));
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Crates whose modules have no circles.
const CRATES: [&str; 18] = [
    "cli", "python", "tables", "sync", "ranges", "indexes", "engine", "pipeline", "chain", "api", "export",
    "disk", "coins", "hints", "leveldb", "vfs", "wire", "digest",
];

/// Returns the modules of a crate, each with its text; modules of tests are left out.
fn modules(of: &str) -> BTreeMap<String, &'static str> {
    let src = Path::new("crates").join(of).join("src");
    let named = |(path, text): &'static (PathBuf, String)| {
        let path = path.strip_prefix(&src).ok()?.with_extension("");
        let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
        let is_module = !names.iter().any(|name| ["tests", "lib", "main"].contains(name));
        is_module.then(|| (names.join("::").trim_end_matches("::mod").to_owned(), &text[..]))
    };
    sources().iter().filter_map(named).collect()
}

/// Returns the module that defines what `path` names: the longest prefix that is a module.
fn module_of<T>(modules: &BTreeMap<String, T>, path: &str) -> Option<String> {
    let names: Vec<&str> = path.split("::").collect();
    (1..=names.len()).rev().map(|count| names[..count].join("::")).find(|name| modules.contains_key(name))
}

/// Returns each module of a crate with the ones that it imports.
fn imports(of: &str) -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules(of);
    let imported = |(module, text): (&String, &&str)| {
        let mut paths = CratePaths::default();
        paths.visit_file(&syn::parse_file(text).unwrap());
        let targets = paths.0.iter().filter_map(|path| module_of(&modules, path));
        (module.clone(), targets.filter(|target| target != module).collect())
    };
    modules.iter().map(imported).collect()
}

/// Returns the modules in circles of imports, and those between two circles.
fn circular(mut imports: BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    loop {
        let before = imports.len();
        let imported: BTreeSet<String> = imports.values().flatten().cloned().collect();
        imports.retain(|module, _| imported.contains(module));
        let known: BTreeSet<String> = imports.keys().cloned().collect();
        imports.values_mut().for_each(|targets| targets.retain(|target| known.contains(target)));
        imports.retain(|_, targets| !targets.is_empty());
        if imports.len() == before {
            return imports.into_keys().collect();
        }
    }
}

#[test]
fn modules_have_no_circles() {
    for name in CRATES {
        let imports = imports(name);
        assert!(imports.len() > 1, "the modules of {name} are found");
        let circular = circular(imports);
        assert!(circular.is_empty(), "circles in {name}: {circular:?}");
    }
    assert!(imports("pipeline")["job::matching"].contains("job"), "the imports are found");
    let to = |target: &str| BTreeSet::from([target.to_owned()]);
    let some = [("a", to("b")), ("b", to("c")), ("c", to("b")), ("d", to("e")), ("e", BTreeSet::new())];
    let found = circular(some.map(|(module, targets)| (module.to_owned(), targets)).into());
    assert!(found.into_iter().eq(["b", "c"]));
}

#[test]
fn groups_import_only_groups_below() {
    for (name, groups) in GROUPS {
        let group = |module: &str| groups.iter().position(|group| module.split("::").next() == Some(group));
        let modules = imports(name);
        for group in groups {
            assert!(modules.keys().any(|module| module.starts_with(group)), "{name} has {group}");
        }
        for (module, targets) in &modules {
            for target in targets {
                let goes_up = group(target).zip(group(module)).is_some_and(|(to, from)| to < from);
                assert!(!goes_up, "{module} must not import {target}");
            }
        }
    }
}

/// A command is from its options to its report.
#[test]
fn commands_import_no_commands() {
    let command = |module: &str| module.strip_prefix("commands::")?.split("::").next().map(str::to_owned);
    for (module, targets) in imports("engine") {
        let Some(own) = command(&module) else { continue };
        let other = targets.iter().find(|target| command(target).is_some_and(|other| other != own));
        assert!(other.is_none(), "{module} must not import {other:?}");
    }
}
