//! `docs/crates.svg` is drawn from what cargo reports about the workspace: this test writes it
//! (`UPDATE_DOCS=1`) and fails when it is stale.

use crate::workspace;

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};
use workspace::{name, packages};

/// Width and height of a box, and the space between boxes, in pixels.
const BOX: (usize, usize) = (150, 46);
const GAP: (usize, usize) = (22, 44);
const MARGIN: usize = 16;

/// The crates of the workspace and the ones that each imports, except in tests.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let imported = |package: &Value| {
        let all = package["dependencies"].as_array().expect("a list").iter();
        let ours = all.filter(|dependency| !dependency["path"].is_null() && dependency["kind"] != "dev");
        ours.map(|dependency| name(dependency).to_owned()).collect()
    };
    packages().iter().map(|package| (name(package).to_owned(), imported(package))).collect()
}

/// Whether `from` imports `to` by way of another crate.
fn is_implied(imports: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    fn reaches(imports: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
        imports[from].iter().any(|next| next == to || reaches(imports, next, to))
    }
    imports[from].iter().any(|next| next != to && reaches(imports, next, to))
}

/// The length of the longest chain of imports below a crate.
fn floor(imports: &BTreeMap<String, BTreeSet<String>>, name: &str) -> usize {
    imports[name].iter().map(|below| floor(imports, below) + 1).max().unwrap_or(0)
}

fn picture() -> String {
    let imports = imports();
    let mut floors: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for name in imports.keys() {
        floors.entry(floor(&imports, name)).or_default().push(name);
    }
    let widest = floors.values().map(Vec::len).max().unwrap_or(0);
    let width = 2 * MARGIN + widest * (BOX.0 + GAP.0) - GAP.0;
    let height = 2 * MARGIN + floors.len() * (BOX.1 + GAP.1) - GAP.1;
    let mut places = BTreeMap::new();
    for (row, names) in floors.values().rev().enumerate() {
        let free = width - names.len() * (BOX.0 + GAP.0) + GAP.0;
        for (column, name) in names.iter().enumerate() {
            places.insert(*name, (free / 2 + column * (BOX.0 + GAP.0), MARGIN + row * (BOX.1 + GAP.1)));
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"14\" text-anchor=\"middle\">\n\
         <title>The crates of Peregrine; imports go down only</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (from, below) in &imports {
        for to in below.iter().filter(|to| !is_implied(&imports, from, to)) {
            let ((x1, y1), (x2, y2)) = (places[from.as_str()], places[to.as_str()]);
            let (x1, x2, y1) = (x1 + BOX.0 / 2, x2 + BOX.0 / 2, y1 + BOX.1);
            let _ = writeln!(
                svg,
                "<path d=\"M{x1} {y1}C{x1} {} {x2} {} {x2} {y2}\" fill=\"none\" stroke=\"#8a94a6\"/>",
                y1 + GAP.1 / 2,
                y2 - GAP.1 / 2
            );
        }
    }
    for (name, (x, y)) in &places {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#eef3fb\" \
             stroke=\"#33507a\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"#1b2b44\">{name}</text>",
            BOX.0,
            BOX.1,
            x + BOX.0 / 2,
            y + BOX.1 / 2 + 5
        );
    }
    svg + "</svg>\n"
}

#[test]
fn the_picture_of_the_crates_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/crates.svg");
    let drawn = picture();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &drawn).expect("docs can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == drawn,
        "docs/crates.svg is stale: UPDATE_DOCS=1 cargo test -p testkit --test testkit picture"
    );
}
