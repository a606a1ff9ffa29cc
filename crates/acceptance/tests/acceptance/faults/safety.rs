//! What each command does with what can be in a datadir: runs every cell of the table in `docs/safety.md`,
//! and compares the table with the results. `UPDATE_DOCS=1` rewrites it.

use acceptance::prelude::*;
use acceptance::{link_away, write_file as write};

const COMMANDS: [&str; 12] = [
    "doctor",
    "recover",
    "reindex",
    "reindex --undo trust",
    "reindex --scan",
    "reindex --keep-old",
    "reindex --output",
    "update",
    "verify",
    "hints make",
    "snapshot make",
    "utxo stats",
];

/// Rows whose files belong to Peregrine: commands that write remove them, or put them in place.
const LEFTOVERS: &str = "databases that an interrupted run was building";

const INTERRUPTED: &str = "databases of which an interrupted run has replaced some";

/// Creates something in a datadir; the second argument is a directory outside of it.
type Prepare = Box<dyn Fn(&Case, &Path)>;

/// A row of the table: something that a datadir can contain.
struct Row {
    what: &'static str,
    prepare: Prepare,
    /// How the process or the machine differs from the default.
    disk: fn(&Case, FaultDisk) -> FaultDisk,
}

fn row(what: &'static str, prepare: impl Fn(&Case, &Path) + 'static) -> Row {
    Row { what, prepare: Box::new(prepare), disk: |_, disk| disk }
}

/// A row that is a situation of [`damage`].
fn of(what: &'static str, situation: &'static str) -> Row {
    row(what, move |case, elsewhere| damage::cause(situation, case, elsewhere))
}

fn stats(case: &Case, disk: &FaultDisk) -> Result<UtxoStatsReport, Error> {
    let chainstate = ChainOptions::reading(case.root(), Network::Regtest);
    engine::utxo::stats(disk, &chainstate, false, unwatched())
}

fn rows() -> Vec<Row> {
    vec![
        row("a chainstate a few blocks behind the block files", |_, _| {}),
        row("a chainstate at the tip", |case, _| drop(run(&case.options()).unwrap())),
        of("no chainstate", "chainstate: absent"),
        of("a chainstate that does not open", "chainstate: CURRENT"),
        of("an empty chainstate directory", "chainstate: empty folder"),
        of("a chainstate, but no undo files", "rev: all missing"),
        row("a chainstate whose best block is not in the block index", |case, _| {
            case.edit_index(|index| index.entries.retain(|entry| entry.height.0 <= 120));
        }),
        row("a file where the chainstate should be", |case, _| {
            fs::remove_dir_all(case.net("chainstate")).unwrap();
            write(case.net("chainstate"), "mine");
        }),
        row("foreign files in the chainstate directory", |case, _| {
            write(case.net("chainstate/notes.txt"), "mine");
        }),
        row("`chainstate` is a symbolic link", |case, elsewhere| {
            link_away(&case.net("chainstate"), &elsewhere.join("ssd"));
        }),
        of("`chainstate` is a dangling symbolic link", "chainstate: a link to nothing"),
        row("`blocks` is a symbolic link", |case, elsewhere| {
            link_away(&case.net("blocks"), &elsewhere.join("hdd"));
        }),
        Row {
            disk: |case, disk| disk.with_mount(&case.net("chainstate")),
            ..row("a file system mounted at `chainstate`", |_, _| {})
        },
        Row {
            disk: |case, disk| {
                use std::os::unix::fs::MetadataExt as _;
                disk.with_user(fs::metadata(case.net("chainstate")).unwrap().uid() + 4711)
            },
            ..row("a chainstate that belongs to another user", |_, _| {})
        },
        row("a block index that does not open", |case, _| {
            write(case.blocks("index/CURRENT"), "MANIFEST-999999\n");
        }),
        of("no block index", "index: absent"),
        of("a block index of an interrupted `bitcoind -reindex`", "index: a -reindex was interrupted"),
        of("a block index that marks the last block as invalid", "index: the last block is marked invalid"),
        row(LEFTOVERS, |case, _| {
            for folder in [case.net("chainstate.peregrine"), case.blocks("index.peregrine")] {
                write(folder.join("000007.ldb"), "half a table");
                write(folder.join("peregrine.mark"), "PGRN-NEW");
            }
        }),
        of(INTERRUPTED, "a replacement of both databases was interrupted"),
        row("a foreign directory with the name of a database under construction", |case, _| {
            write(case.net("chainstate.peregrine/notes.txt"), "mine");
        }),
        row("foreign files in a directory `peregrine-work`", |case, _| {
            write(case.net("peregrine-work/notes.txt"), "mine");
        }),
        row("a file named `peregrine-work`", |case, _| write(case.net("peregrine-work"), "mine")),
        row("a directory `chainstate.old`", |case, _| write(case.net("chainstate.old/CURRENT"), "mine")),
        row("a foreign file with the name of the journal", |case, _| {
            write(case.net("peregrine-commit"), "mine, a diary");
        }),
    ]
}

/// The files that must never change: block and undo files, and all that are not Peregrine's.
fn untouchable(case: &Case, elsewhere: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = tree(case.root());
    all.extend(tree(elsewhere));
    let bytes = all.into_iter().filter_map(|(path, bytes)| Some((path, bytes?)));
    let is_foreign = |path: &Path, bytes: &[u8]| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".dat") || bytes.starts_with(b"mine")
    };
    // By name: links can lead to a file by several paths, and foreign files move with their directory.
    bytes
        .filter(|(path, bytes)| is_foreign(path, bytes))
        .map(|(path, bytes)| (path.file_name().unwrap().to_string_lossy().into_owned(), bytes))
        .collect()
}

fn cell(row: &Row, command: &str) -> String {
    let what = format!("{}, {command}", row.what);
    let (case, elsewhere) = (Case::new(), scratch());
    (row.prepare)(&case, elsewhere.path());
    let height = |case: &Case| stats(case, &FaultDisk::healthy()).ok().and_then(|stats| stats.height);
    let links = |case: &Case| ["chainstate", "blocks"].map(|name| fs::read_link(case.net(name)).ok());
    let (before, others) = (tree(case.root()), untouchable(&case, elsewhere.path()));
    let (old_height, old_links) = (height(&case), links(&case));
    let mut shell = Shell::of(&case);
    shell.disk = (row.disk)(&case, FaultDisk::healthy());
    let done = shell.run(if command == "doctor" { "doctor --deep" } else { command });
    let is_same = tree(case.root()) == before;
    let mut now = untouchable(&case, elsewhere.path());
    // Undo files that were missing are made.
    now.retain(|name, _| others.contains_key(name) || !name.starts_with("rev"));
    assert!(now == others, "{what}: foreign files have changed");
    assert_eq!(links(&case), old_links, "{what}: links have changed");
    assert!(height(&case) >= old_height, "{what}: the chainstate is lower");
    match done.map(|done| done.height) {
        Ok(Some(new)) if !command.contains("--output") => {
            assert_eq!(height(&case), Some(new), "{what}");
            let rev_files =
                |tree: &Tree| tree.keys().filter(|path| path.to_string_lossy().contains("/rev")).count();
            let is_made = rev_files(&tree(case.root())) > rev_files(&before);
            let new_index = command.contains("--scan") || is_made;
            let what = match command {
                "update" if is_same => "reads",
                "update" => "connects",
                _ if new_index => "rebuilds both",
                _ => "rebuilds",
            };
            if is_made { format!("{what}, undo files") } else { what.to_owned() }
        }
        Ok(_) => {
            let recovers = command == "recover" && [LEFTOVERS, INTERRUPTED].contains(&row.what);
            assert_eq!(is_same, !recovers, "{what}: what only reads changes nothing");
            match row.what {
                _ if is_same => "reads",
                LEFTOVERS => "removes them",
                _ => "replaces all",
            }
            .to_owned()
        }
        Err(error) => {
            assert!(is_same, "{what}: failed, but changed something: {error}");
            refuses(&error, &what)
        }
    }
}

#[test]
fn each_command_does_what_the_table_says() {
    let rows = rows();
    let names: Vec<&str> = rows.iter().map(|row| row.what).collect();
    assert_table("docs/safety.md", "table", "in the datadir", &names, &COMMANDS, |row, column| {
        cell(&rows[row], COMMANDS[column])
    });
}
