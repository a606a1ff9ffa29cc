//! The commands `peregrine hints make`, `info`, `convert` and `check`.

use crate::{
    args::{CheckHintsArgs, ConvertHintsArgs, HintsCommand, HintsFileArgs, MakeHintsArgs},
    limits, paths,
    progress::{Progress, Style},
};
use engine::{CheckHintsOptions, HintCheck, HintInfo, RealDisk, hex_reversed};
use peregrine::{
    exit::Exit,
    output::{Done, json},
    stop::interrupt,
};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct InfoJson {
    file: String,
    format: &'static str,
    chain: Option<&'static str>,
    height: u32,
    hash: Option<String>,
    hints: u64,
    outputs: Option<u64>,
    bytes: u64,
    bits_per_output: Option<f64>,
    sha256: Option<String>,
    first_record_is_genesis: Option<bool>,
}

#[derive(Serialize)]
struct CheckJson {
    info: InfoJson,
    wrong_blocks: u64,
    first_wrong: Option<String>,
}

/// Runs a command. Returns whether its output is JSON, and its result.
pub fn run(command: &HintsCommand) -> (bool, Done) {
    match command {
        HintsCommand::Make(args) => (args.make.check.datadir.json, make(args)),
        HintsCommand::Info(args) => (args.json, info(args)),
        HintsCommand::Convert(args) => (args.file.json, convert(args)),
        HintsCommand::Check(args) => (args.check.datadir.json, check(args)),
    }
}

fn make(args: &MakeHintsArgs) -> Done {
    let (source, MakeHintsArgs { make: args, format, .. }) = (args.source(), args);
    let options = args.options();
    paths::check_output(&args.check, &args.output)?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.run.progress);
    let made = match source {
        None => engine::make_hints(&RealDisk, &options, &args.output, *format, &progress, &interrupt),
        Some(source) => {
            let result = (args.output.as_path(), *format);
            engine::make_hints_from_coins(&RealDisk, &options, &source, result, &progress, &interrupt)
        }
    };
    progress.close();
    Ok((info_text(&args.output, &made?, args.check.datadir.json), Exit::Done))
}

fn info(args: &HintsFileArgs) -> Done {
    let info = engine::hints_info(&RealDisk, &args.file, args.from)?;
    Ok((info_text(&args.file, &info, args.json), Exit::Done))
}

fn convert(args: &ConvertHintsArgs) -> Done {
    let interrupt = interrupt(args.file.json)?;
    let progress = Progress::new(Style::Auto);
    let datadir = args.datadir.as_ref().map(|datadir| (datadir.as_path(), args.chain));
    let from = (args.file.file.as_path(), args.file.from);
    let to = (args.output.as_path(), args.format);
    let done = engine::convert_hints(&RealDisk, from, to, datadir, &progress, &interrupt);
    progress.close();
    Ok((info_text(&args.output, &done?, args.file.json), Exit::Done))
}

fn check(args: &CheckHintsArgs) -> Done {
    let options = CheckHintsOptions { chain: args.check.options(), scan: args.check.scan };
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.run.progress);
    let check = engine::check_hints(&RealDisk, &options, &args.file, args.from, &progress, &interrupt);
    progress.close();
    let HintCheck { info, wrong_blocks, first } = check?;
    let exit = if wrong_blocks > 0 { Exit::Hints } else { Exit::Done };
    if args.check.datadir.json {
        let first_wrong = first.map(|wrong| wrong.to_string());
        return Ok((
            json(&CheckJson { info: info_json(&args.file, &info), wrong_blocks, first_wrong }),
            exit,
        ));
    }
    let verdict = match first {
        None => "all hints are correct".to_owned(),
        Some(first) => format!("hints of {wrong_blocks} blocks are wrong; the first: {first}"),
    };
    Ok((format!("{}\nchecked   {verdict}", info_text(&args.file, &info, false)), exit))
}

fn info_json(file: &Path, info: &HintInfo) -> InfoJson {
    let bits = |outputs: u64| info.bytes as f64 * 8.0 / outputs.max(1) as f64;
    InfoJson {
        file: file.display().to_string(),
        format: info.format.name(),
        chain: info.network.map(engine::Network::name),
        height: info.height.0,
        hash: info.block_hash.map(|hash| hash.to_string()),
        hints: info.hints,
        outputs: info.outputs,
        bytes: info.bytes,
        bits_per_output: info.outputs.map(bits),
        sha256: info.checksum.map(|mut sha256| {
            // The first byte comes first, as tools print the hash of a file.
            sha256.reverse();
            hex_reversed(&sha256)
        }),
        first_record_is_genesis: info.first_record_is_genesis,
    }
}

fn info_text(file: &Path, info: &HintInfo, as_json: bool) -> String {
    let info = info_json(file, info);
    if as_json {
        return json(&info);
    }
    let unknown = || "unknown".to_owned();
    let outputs = match (info.outputs, info.bits_per_output) {
        (Some(outputs), Some(bits)) => format!("of {outputs} outputs, {bits:.3} bits per output"),
        _ => "of an unknown number of outputs".to_owned(),
    };
    format!(
        "hints     {}\n\
         format    {}\n\
         chain     {}\n\
         block     {} ({})\n\
         unspent   {} {outputs}\n\
         size      {} bytes\n\
         sha256    {}",
        info.file,
        info.format,
        info.chain.map_or_else(unknown, str::to_owned),
        info.height,
        info.hash.unwrap_or_else(unknown),
        info.hints,
        info.bytes,
        info.sha256.unwrap_or_else(unknown),
    )
}
