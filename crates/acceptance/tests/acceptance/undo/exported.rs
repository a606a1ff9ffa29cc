//! Files of spent coins: what they carry is the undo data on disk, byte for byte, of generated chains and of
//! datadirs that Core has written.

use acceptance::prelude::*;
use engine::undo::ExportedUndo;
use wire::SpentCoinsForm;

fn export(disk: &dyn Disk, options: &ChainOptions, from: u32, path: &Path) -> Result<ExportedUndo, Error> {
    engine::undo::export(disk, options, Height(from), path, unwatched())
}

/// Numbers of inputs of each transaction but the coinbase, by block.
type Inputs = BTreeMap<BlockHash, Vec<usize>>;

fn inputs_of(chain: &Chain) -> Inputs {
    let mut arena = wire::BlockArena::default();
    let mut of = |bytes: &[u8]| {
        let view = arena.parse(bytes).unwrap();
        view.txs().skip(1).map(|tx| tx.input_count()).collect()
    };
    chain.main().map(|block| (block.hash, of(&block.bytes))).collect()
}

/// Decodes a file with the numbers of inputs of its blocks, and returns the undo data of each.
fn decode(path: &Path, inputs: &dyn Fn(&BlockHash) -> Vec<usize>) -> Vec<(BlockHash, Vec<u8>)> {
    let (bytes, mut blocks) = (std::fs::read(path).unwrap(), Vec::new());
    let mut rest = &bytes[..];
    while let Some((len, after)) = rest.split_first_chunk() {
        let (message, after) = after.split_at(u32::from_le_bytes(*len) as usize);
        let hash = BlockHash(*message.first_chunk().unwrap());
        let undo = SpentCoinsForm::Draft.read_undo(message, &hash, inputs(&hash).into_iter());
        blocks.push((hash, undo.unwrap()));
        rest = after;
    }
    assert_eq!(rest, [] as [u8; 0]);
    blocks
}

#[test]
fn the_file_has_the_undo_data_of_each_block_whatever_the_number_of_threads() {
    let (case, out) = (Case::new(), TempDir::new().unwrap());
    let (before, inputs) = (tree(case.root()), inputs_of(chain()));
    let expected: Vec<(BlockHash, Vec<u8>)> =
        Expected::of(chain()).blocks.into_iter().map(|(_, hash, undo)| (hash, undo)).collect();
    // The blocks above are not connected.
    let all = ChainOptions::reading(case.root(), Network::Regtest);
    let tip = export(&RealDisk, &all, 1, &out.path().join("all")).unwrap().to.0;
    assert!(tip >= 130, "{tip}");
    for threads in THREADS {
        for (from, to) in [(0, None), (1, Some(tip)), (40, Some(130)), (tip, None)] {
            let what = format!("{threads} threads, {from} to {to:?}");
            let mut options = ChainOptions::reading(case.root(), Network::Regtest);
            options.threads = NonZeroUsize::new(threads).unwrap();
            options.stop_at_height = to.map(Height);
            let path = out.path().join(&what);
            let report = export(&RealDisk, &options, from, &path).unwrap();
            let (first, last) = (from.max(1) as usize, to.unwrap_or(tip) as usize);
            let blocks = decode(&path, &|hash| inputs[hash].clone());
            assert_eq!(blocks, expected[first - 1..last], "{what}");
            let undo_bytes: usize = blocks.iter().map(|(_, undo)| 8 + undo.len() + 32).sum();
            let len = std::fs::metadata(&path).unwrap().len();
            assert_eq!((report.bytes, report.undo_bytes), (len, undo_bytes as u64), "{what}");
            let coins: usize = blocks.iter().map(|(hash, _)| inputs[hash].iter().sum::<usize>()).sum();
            assert_eq!(report.coins, coins as u64, "{what}");
            assert_eq!((report.from.0 as usize, report.to.0 as usize), (first, last), "{what}");
            assert_eq!(report.hash, expected[last - 1].0, "{what}");
        }
    }
    assert_same_tree(&before, case.root(), "exports");
}

/// Numbers of inputs, from the shape of the undo data itself.
fn shape(undo: &[u8]) -> Vec<usize> {
    let mut arena = disk::undo::UndoArena::default();
    disk::undo::UndoView::parse(undo, &mut arena).unwrap().txs().map(|coins| coins.len()).collect()
}

#[test]
fn the_undo_data_of_core_goes_through_the_form_unchanged() {
    for (name, network) in
        [("main", Network::Main), ("testnet3", Network::Test), ("regtest-siblings", Network::Regtest)]
    {
        let (Some(dir), Some(line)) = (unpack_core_datadir(name), known_tip(name)) else { return };
        let tip: BlockHash = line["hash"].as_str().unwrap().parse().unwrap();
        let expected = Expected::of_datadir(dir.path(), network, tip, [0; 32]).blocks;
        let shapes: Inputs = expected.iter().map(|(_, hash, undo)| (*hash, shape(undo))).collect();
        let out = TempDir::new().unwrap();
        let path = out.path().join("coins");
        let mut options = ChainOptions::reading(dir.path(), network);
        options.stop_at_height = line["height"].as_u64().map(|height| Height(height as u32));
        let report = export(&RealDisk, &options, 1, &path).unwrap();
        assert_eq!((report.hash, report.to), (tip, options.stop_at_height.unwrap()), "{name}");
        let blocks = decode(&path, &|hash| shapes[hash].clone());
        let expected: Vec<_> = expected.into_iter().map(|(_, hash, undo)| (hash, undo)).collect();
        assert_eq!(blocks, expected, "{name}");
    }
}

/// Nothing has the name of the output, and nothing is left beside it.
fn assert_nothing(out: &TempDir, what: &str) {
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0, "{what}");
}

#[test]
fn what_is_damaged_or_missing_is_named_and_nothing_is_written() {
    let out = TempDir::new().unwrap();
    let path = &out.path().join("coins");
    let options = |case: &Case| ChainOptions::reading(case.root(), Network::Regtest);
    let case = Case::new();
    case.spoil_undo(|entry| entry.height == Height(90));
    let error = export(&RealDisk, &options(&case), 1, path).unwrap_err();
    assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(90))), "{error}");
    assert_offers(&error, &[Remedy::MakeUndo]);
    assert_nothing(&out, "damaged undo data");
    let below = ChainOptions { stop_at_height: Some(Height(89)), ..options(&case) };
    assert_eq!(export(&RealDisk, &below, 1, path).unwrap().to, Height(89));
    let again = export(&RealDisk, &below, 1, path).unwrap_err();
    assert_eq!(again.kind, ErrorKind::Usage, "the file exists: {again}");
    std::fs::remove_file(path).unwrap();

    let case = Case::new();
    case.flip_block(50, 100);
    let error = export(&RealDisk, &options(&case), 1, path).unwrap_err();
    assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(50))), "{error}");
    assert_nothing(&out, "a damaged block");
    let done = export(&RealDisk, &options(&case), 9_999, path);
    assert_fails(done, ErrorKind::Usage, &["there are no blocks from 9999"]);
    assert_nothing(&out, "no blocks");
}

#[test]
fn an_interrupt_or_a_failing_disk_leaves_no_file() {
    let (case, out) = (Case::new(), TempDir::new().unwrap());
    let path = &out.path().join("coins");
    let mut options = ChainOptions::reading(case.root(), Network::Regtest);
    options.threads = NonZeroUsize::new(3).unwrap();
    let stopped = engine::undo::export(&RealDisk, &options, Height(1), path, quiet(&AtomicBool::new(true)))
        .unwrap_err();
    assert_eq!(stopped.kind, ErrorKind::Interrupted);
    assert_nothing(&out, "interrupted");
    let mut failures = 0;
    for at in 0.. {
        let disk =
            FaultDisk::fail_at(at, InjectedFault::Once, Operations::Changes, io::ErrorKind::StorageFull);
        let done = export(&disk, &options, 1, path);
        if !disk.has_failed() {
            assert!(done.is_ok() && path.exists());
            break;
        }
        failures += 1;
        // Only the sync of the folder comes after the last rename.
        if let Err(error) = &done {
            assert_eq!(error.kind, ErrorKind::Environment, "operation {at}: {error}");
        }
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
        assert_nothing(&out, &format!("operation {at}"));
    }
    assert!(failures >= 5, "{failures}");
}
