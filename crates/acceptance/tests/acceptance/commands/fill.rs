//! `repair` takes blocks from block files elsewhere: each is proven by the header that the block index has.

use acceptance::{
    Case, Template, assert_same_tree, chain, scratch,
    sync::{assert_sound, honest},
    tree,
};
use engine::{Error, ErrorKind, Network, ScriptChecks, Warning};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{LazyLock, atomic::AtomicBool},
};
use sync::{PeerOptions, RepairOptions, RepairReport, repair};
use tempfile::TempDir;
use testkit::{
    datadir::Layout,
    fault::{FaultDisk, InjectedFault, Operations},
    peer::ScriptedPeer,
    rng::Rng,
};

/// A datadir of the same chain with files of another length, in another order, with another key.
fn other() -> Case {
    static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
        Template::laid_out(chain(), &Layout { file_size: 50 << 10, preallocate: true, ..Layout::new(11) })
    });
    at_tip(TEMPLATE.case())
}

fn at_tip(case: Case) -> Case {
    acceptance::run(&case.options()).unwrap();
    case
}

/// The block files of a datadir, by number.
fn files(case: &Case) -> Vec<PathBuf> {
    let names = (0..).map(|number| case.blocks(&format!("blk{number:05}.dat")));
    names.take_while(|path| path.exists()).collect()
}

/// Damages each second file from `first` on: one is removed, one loses its end, one gets wrong bytes, and so
/// on. Undo files go with them.
fn damage(case: &Case, first: usize) {
    for (round, path) in files(case).into_iter().skip(first).step_by(2).enumerate() {
        let bytes = fs::read(&path).unwrap();
        match round % 3 {
            0 => fs::remove_file(&path).unwrap(),
            1 => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
            _ => fs::write(
                &path,
                bytes
                    .iter()
                    .enumerate()
                    .map(|(at, byte)| byte ^ u8::from(at % 7_000 == 99))
                    .collect::<Vec<u8>>(),
            )
            .unwrap(),
        }
        let rev = path.with_file_name(path.file_name().unwrap().to_string_lossy().replace("blk", "rev"));
        fs::write(&rev, [7; 99]).unwrap();
    }
}

fn options(case: &Case, sources: &[&Path], peers: &[&ScriptedPeer]) -> RepairOptions {
    let connect = peers.iter().map(|peer| peer.target()).collect();
    let mut options = RepairOptions::new(case.root(), Network::Regtest, ScriptChecks::LeftOut);
    options.peers =
        PeerOptions { connect, use_dns_seeds: false, use_fixed_seeds: false, ..PeerOptions::default() };
    options.sources = sources.iter().map(|&source| source.to_owned()).collect();
    options
}

fn run(options: &RepairOptions) -> Result<RepairReport, Error> {
    repair(&FaultDisk::healthy(), options, &|_| {}, &AtomicBool::new(false))
}

#[test]
fn two_half_broken_datadirs_make_a_sound_one() {
    let (one, two) = (at_tip(Case::new()), other());
    damage(&one, 1);
    damage(&two, 2);
    let broken = tree(two.root());
    let lacking = run(&options(&one, &[two.root()], &[&honest()])).unwrap();
    assert!(lacking.taken > 5, "{} taken", lacking.taken);
    assert_same_tree(&broken, two.root(), "the other one is only read");
    assert_sound(one.root(), chain(), "one");
    // The other way round, nobody else is asked.
    let report = run(&options(&two, &[one.root()], &[])).unwrap();
    assert!(report.taken > 5 && report.download.is_none(), "{} taken", report.taken);
    assert_sound(two.root(), chain(), "two");
    assert!(run(&options(&two, &[one.root()], &[])).unwrap().taken == 0, "it is done");
}

/// Moves the block files to a folder of their own.
fn folder(case: &Case, rename: impl Fn(usize) -> String) -> TempDir {
    let dir = scratch();
    for (number, path) in files(case).iter().enumerate() {
        fs::copy(path, dir.path().join(rename(number))).unwrap();
    }
    dir
}

#[test]
fn a_folder_of_block_files_does_too_with_or_without_its_key() {
    let source = other();
    let name = |number: usize| format!("blk{number:05}.dat");
    let without_key = folder(&source, name);
    let with_key = folder(&source, |number| format!("blk{:05}.dat", 90 - number));
    fs::copy(source.blocks("xor.dat"), with_key.path().join("xor.dat")).unwrap();
    for dir in [
        without_key.path(),
        with_key.path(),
        &source.blocks(""),
        &source.root().join("regtest"),
        source.root(),
    ] {
        let case = at_tip(Case::new());
        damage(&case, 1);
        let report =
            run(&options(&case, &[dir], &[])).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        assert!(report.taken > 5 && report.download.is_none(), "{}", dir.display());
        assert_sound(case.root(), chain(), &dir.display().to_string());
    }
}

#[test]
fn what_the_files_do_not_have_is_downloaded() {
    let (case, source, peer) = (at_tip(Case::new()), other(), honest());
    damage(&case, 0);
    damage(&source, 0);
    damage(&source, 1);
    let report = run(&options(&case, &[source.root()], &[&peer])).unwrap();
    let downloaded = report.download.unwrap().blocks;
    assert!(report.taken > 0 && downloaded > 0, "{} taken, {downloaded} downloaded", report.taken);
    let asked = peer.asked().len() as u32;
    assert!(asked < report.damaged + report.missing, "only the rest is asked for: {asked}");
    assert_sound(case.root(), chain(), "both");
}

#[test]
fn a_folder_without_block_files_is_refused() {
    let (case, empty) = (at_tip(Case::new()), scratch());
    damage(&case, 1);
    let before = tree(case.root());
    for dir in [empty.path(), &empty.path().join("nothing")] {
        let error = run(&options(&case, &[dir], &[])).unwrap_err();
        assert_eq!((error.kind, error.file.as_deref()), (ErrorKind::Usage, Some(dir)), "{error}");
    }
    assert_same_tree(&before, case.root(), "refused");
}

/// A sector of the source that cannot be read is a warning.
#[test]
fn what_cannot_be_read_is_passed_over() {
    let (case, source) = (at_tip(Case::new()), other());
    damage(&case, 1);
    let unreadable = &files(&source)[0];
    fs::remove_file(unreadable).unwrap();
    fs::create_dir(unreadable).unwrap();
    let report = run(&options(&case, &[source.root()], &[&honest()])).unwrap();
    assert!(
        report.notes.iter().any(|note| matches!(note, Warning::SourceUnreadable { .. })),
        "{:?}",
        report.notes
    );
    assert_sound(case.root(), chain(), "one unreadable file");
}

#[test]
fn wherever_the_power_fails_the_next_run_completes() {
    let source = other();
    let damaged = || {
        let case = at_tip(Case::new());
        damage(&case, 1);
        case
    };
    let operations = {
        let (case, disk) = (damaged(), FaultDisk::healthy());
        repair(&disk, &options(&case, &[source.root()], &[]), &|_| {}, &AtomicBool::new(false)).unwrap();
        disk.count()
    };
    for seed in 0..12 {
        let at = Rng::new(seed, "fill").below(operations);
        let what = format!("power cut at operation {at} of {operations}, seed {seed}");
        let (case, aside) = (damaged(), scratch());
        let disk = FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other)
            .with_names_at_risk(aside.path());
        let options = options(&case, &[source.root()], &[]);
        let done = repair(&disk, &options, &|_| {}, &AtomicBool::new(false));
        disk.cut_power(seed).unwrap();
        run(&options)
            .unwrap_or_else(|error| panic!("{what}, again: {error}, after {:?}", done.map(|it| it.height)));
        assert_sound(case.root(), chain(), &what);
    }
}
