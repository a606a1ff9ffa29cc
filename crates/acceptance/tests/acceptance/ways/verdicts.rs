//! Every way has the same verdict: Core's, at the right block, for each row of the table of mutations; and
//! falsified undo data is damage where undo data is trusted, or has no effect.

use acceptance::prelude::*;
use acceptance::{
    lies::{OF_OWN_COIN, falsified},
    ways::{Found, verdict},
};
use testkit::mutation::{CheckLevel, MUTATED, MutatedChain, Mutation};

/// Reject strings that depend on the coins of earlier blocks, which no range has.
const OF_COINS: &[&str] = &["bad-txns-inputs-missingorspent", "bad-txns-BIP30"];

const FOUR_RANGES: Means = Means::Ranges { ranges: 4, shards: None };

/// Core's reject string, as far as this kind of error may have one.
fn reject_string(error: &Error) -> Option<&str> {
    let core = error.core.as_deref()?;
    // Core does not store a header without proof of work: on disk, it is damage.
    let is_damage = core == "high-hash" || MUTATED.contains(&core);
    let kind = if is_damage { ErrorKind::Damaged } else { ErrorKind::Consensus };
    (error.kind == kind).then_some(core)
}

/// What is wrong with the verdict of a way about a mutation, if anything is.
fn flaw(
    mutation: &Mutation,
    mutated: &MutatedChain,
    way: Way,
    done: &Result<Found, Error>,
) -> Option<String> {
    match (done, mutation.core) {
        (Ok(found), None) => {
            let model = mutated.chain.model.stats();
            let is_same = found.stats.hash_serialized_3 == model.hash_serialized_3;
            (!is_same || found.stats.best_block != mutated.block.hash).then(|| "other coins".to_owned())
        }
        // A block in the index was in time when it arrived; Core does not check its time again either.
        (Ok(_), Some("time-too-new")) if !way.scan => None,
        // No undo data matches such a block, so the scan takes it for never connected.
        (Ok(_), Some(_)) if way.scan && mutation.name == "no-transactions" => None,
        (Ok(found), Some(_)) => Some(format!("accepted up to {:?}", found.stats.height)),
        (Err(error), Some(core))
            if way.is_of_ranges() && OF_COINS.contains(&core) && error.core.is_none() =>
        {
            (error.kind != ErrorKind::Damaged).then(|| error.to_string())
        }
        (Err(error), core) => {
            let place = (error.height.map(|height| height.0), error.block_hash);
            let is_there = place == (Some(mutated.block.height), Some(mutated.block.hash));
            (core.is_none() || reject_string(error) != core || !is_there).then(|| error.to_string())
        }
    }
}

#[test]
fn each_mutation_gets_cores_verdict_in_every_way() {
    let base = base_chain(5);
    let (truth, below) = (Truth::of(&base), base.tip().height);
    let (mut wrong, mut valid, mut invalid, mut named_by_ranges) = (String::new(), 0, 0, 0);
    for (number, mutation) in mutations().enumerate() {
        // No scripts are run here: the oracle tests these.
        if mutation.level == CheckLevel::Script && mutation.core.is_some() {
            continue;
        }
        let mutated = mutation.apply(&base);
        let dir = datadir_of(&mutated.chain);
        let mut source = Source::new(options(dir.path()), mutated.chain.tip().height);
        // Headers on top of one that is mutated might have no proof of work.
        let is_buried = mutation.level != CheckLevel::Header;
        if is_buried {
            bury(&dir.path().join("regtest/blocks/index"));
        }
        source.hint(&truth, HintFormat::Peregrine, below, is_buried.then(|| truth.hash(below)));
        let mut first = None;
        // What the number of ranges changes, chains without mutations show. Of the violations that a block
        // alone shows, each goes a fifth of the ways.
        let stride = if mutation.level == CheckLevel::Spend { 1 } else { 5 };
        let is_taken = |way: &Way| !way.is_of_ranges() || way.means == FOUR_RANGES;
        let ways = source.ways().filter(is_taken).skip(number % stride).step_by(stride);
        source.take(ways, |way, done| {
            if let Some(flaw) = flaw(mutation, &mutated, way, &done) {
                wrong += &format!("\n{}, {way:?}: {flaw}, Core says {:?}", mutation.name, mutation.core);
            }
            let Err(error) = done else { return };
            if way.is_of_ranges() {
                named_by_ranges += u32::from(error.kind == ErrorKind::Consensus);
            } else if !way.scan {
                let text = verdict(&error, dir.path());
                let first = first.get_or_insert_with(|| text.clone());
                if *first != text {
                    wrong += &format!("\n{}, {way:?}: {text}, but {first}", mutation.name);
                }
            }
        });
        *(if mutation.core.is_none() { &mut valid } else { &mut invalid }) += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    let counts = format!("{valid} valid, {invalid} invalid, ranges named {named_by_ranges}");
    assert!(valid >= 15 && invalid >= 40 && named_by_ranges >= 10, "{counts}");
}

fn txid(block: &GeneratedBlock, tx: usize) -> wire::Txid {
    let mut arena = wire::BlockArena::default();
    let view = arena.parse(&block.bytes).unwrap();
    let digest::sha256::Message(parts) = view.tx(tx).unwrap().txid_message();
    wire::Txid(digest::sha256::sha256d(&parts.concat()))
}

/// Where undo data is made or not read, a false claim has no effect; where it is trusted, it is damage of the
/// file, of which ranges and hints may say less. The sum covers whole coins; a join after it names the block.
#[test]
fn falsified_undo_data_is_damage_or_has_no_effect_in_every_way() {
    let (model, mut by_sum) = (chain().model.stats(), 0);
    let place_of = |error: &Error| (error.height, error.block_hash, error.txid);
    for (name, falsified, at, tx) in falsified(chain()) {
        let (dir, block) = (scratch(), &falsified.blocks[at]);
        let mut source = Source::of(dir.path(), &falsified, &layout());
        let place = (Some(Height(block.height)), Some(block.hash), Some(txid(block, tx + 1)));
        for undo in [UndoPolicy::Auto, UndoPolicy::Trust] {
            source.options.chain.undo = undo;
            let mut first = None;
            // Ranges trust undo data with any policy: with the default one, too.
            let ways = source.ways().filter(|way| undo == UndoPolicy::Auto || !way.is_of_ranges());
            source.take(ways, |way, done| {
                let what = format!("{name}, {undo:?}, {way:?}");
                let error = match done {
                    Ok(found) => {
                        let trusts = undo == UndoPolicy::Trust || !way.makes_undo();
                        assert!(!(trusts && way.reads_undo()), "{what}: the claim was not noticed");
                        return assert_eq!(found.stats.hash_serialized_3, model.hash_serialized_3, "{what}");
                    }
                    Err(error) => error,
                };
                let is_of_claim = |error: &Error| {
                    let file = error.file.as_ref().map(|file| file.to_string_lossy());
                    place_of(error) == place
                        && file.is_some_and(|file| file.contains("rev000"))
                        && error.core.is_none()
                };
                match way.means {
                    Means::Join | Means::Cache | Means::Sequential => {
                        assert_eq!((error.kind, undo), (ErrorKind::Damaged, UndoPolicy::Trust), "{what}");
                        assert!(is_of_claim(&error), "{what}: {error}");
                        let help = if way.scan { "from the block files" } else { "make the undo data" };
                        assert_mentions(&error, &["restore the file", help]);
                        let text = verdict(&error, dir.path());
                        assert!(way.scan || *first.get_or_insert_with(|| text.clone()) == text, "{what}");
                    }
                    Means::Hints { .. } => {
                        let is_sum = error.kind == ErrorKind::Hints && error.core.is_none();
                        by_sum += u32::from(is_sum);
                        let is_damage = error.kind == ErrorKind::Damaged && is_of_claim(&error);
                        assert!(is_sum || is_damage, "{what}: {error}");
                        if undo == UndoPolicy::Trust || way.is_interrupted {
                            return;
                        }
                        let output = scratch();
                        let in_place = with_join_fallback(&way.options(&source));
                        let joining = elsewhere(in_place, output.path());
                        let error = run(&joining).map(|report| report.height).unwrap_err();
                        assert_eq!(error.kind, ErrorKind::Damaged, "{what}, with the join: {error}");
                        assert!(is_of_claim(&error), "{what}, with the join: {error}");
                    }
                    Means::Ranges { .. } => {
                        let is_relative = error.kind == ErrorKind::Consensus
                            && error.detail.contains("if the coins in its undo data are the right ones");
                        let is_of_own = place_of(&error) == place && error.kind == ErrorKind::Damaged;
                        let is_fit = is_relative || error.kind == ErrorKind::Damaged;
                        assert!(if name == OF_OWN_COIN { is_of_own } else { is_fit }, "{what}: {error}");
                    }
                }
            });
        }
    }
    // Claims on coins of the same block are compared at once; rules detect some false amounts of the others.
    assert!(by_sum > 20, "only the sum found {by_sum}");
}
