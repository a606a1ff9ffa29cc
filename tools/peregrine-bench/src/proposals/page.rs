//! The report as a page.

use super::{
    proposal::Statement,
    report::{ProposalSummary, Report, clock, ratio, share},
};
use crate::{
    page::{Bar, bars, document, facts, table},
    text::{duration, times},
};
use maud::{Markup, html};

const OVER: &str = "Proposals for a faster initial block download";

/// Returns the whole page.
pub fn page(report: &Report) -> String {
    let big = format!("{} proposals, with and without", report.proposals.len());
    let main = html! {
        p { "Each was measured on the same chain, in turns with what it replaces." }
        @for proposal in &report.proposals { (section(proposal)) }
        section {
            h2 { "This measurement" }
            (facts(report.about.facts()))
        }
        details {
            summary { "The numbers as a table" }
            section { (numbers(report)) }
        }
    };
    document(OVER, &big, main, html! {})
}

fn section(proposal: &ProposalSummary) -> Markup {
    let all = proposal.variants.iter().enumerate().map(|(style, variant)| Bar {
        style,
        name: variant.name.to_owned(),
        about: format!(
            "{}{}{}",
            variant.speed,
            variant.ratio.map_or(String::new(), |all| format!(", {}", ratio(all))),
            variant.share_percent.map_or(String::new(), share)
        ),
        seconds: variant.seconds.median,
        runs: Vec::new(),
    });
    html! {
        section {
            h2 { (proposal.title) " " small { "(" (clock(proposal.clock)) ")" } }
            (bars(&all.collect::<Vec<_>>()))
            @if !proposal.statements.is_empty() {
                h3 { "What its documents said" }
                (facts(proposal.statements.iter().map(statement)))
            }
            p class="faint" { (proposal.differs) }
        }
    }
}

/// Returns what a document said, and its numbers.
fn statement(said: &Statement) -> (&'static str, String) {
    let Statement { what, before, after, unit, machine, source } = said;
    let faster = times(said.ratio());
    (what, format!("{before} to {after} {unit}, {faster} times as fast, {machine} ({source})"))
}

fn numbers(report: &Report) -> Markup {
    let heads = ["proposal", "variant", "median", "middle half", "speed", "times as fast", "95 % interval"];
    let heads = heads.map(str::to_owned);
    let rows = report.proposals.iter().flat_map(|proposal| {
        proposal.variants.iter().map(move |variant| {
            let seconds = &variant.seconds;
            vec![
                proposal.name.to_owned(),
                variant.name.to_owned(),
                duration(seconds.median),
                format!("{} to {}", duration(seconds.lower_quartile), duration(seconds.upper_quartile)),
                variant.speed.clone(),
                variant.ratio.map_or(String::new(), |ratio| times(ratio.ratio)),
                variant
                    .ratio
                    .map_or(String::new(), |all| format!("{} to {}", times(all.low), times(all.high))),
            ]
        })
    });
    table("All numbers", &heads, rows)
}
