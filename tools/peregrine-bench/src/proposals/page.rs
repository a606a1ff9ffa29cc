//! The report as a page in the style of [`crate::plot`].

use super::{
    proposal::Statement,
    report::{ProposalSummary, Report, clock, ratio, share},
};
use crate::plot::{
    page::{Bar, GENERATOR, document, rows},
    tables::table,
    text::{duration, times},
};
use maud::{Markup, html};

const OVER: &str = "Proposals for a faster initial block download";

/// Returns the whole page.
pub fn page(report: &Report) -> String {
    let big = format!("{} proposals, with and without", report.proposals.len());
    document(
        OVER,
        html! {
            header {
                p { (OVER) }
                h1 { (big) }
                p { "Each was measured on the same chain, in turns with what it replaces." }
            }
            @for proposal in &report.proposals { (section(proposal)) }
            section {
                h2 { "This measurement" }
                dl {
                    @for (name, fact) in report.about.facts() {
                        dt { (name) }
                        dd { @for word in fact.split(' ') { span { (word) } " " } }
                    }
                }
            }
            details {
                summary { "The numbers as a table" }
                section { (numbers(report)) }
            }
            footer { p { "Drawn by " (GENERATOR) " " (env!("CARGO_PKG_VERSION")) "." } }
        },
    )
}

fn section(proposal: &ProposalSummary) -> Markup {
    let bars = proposal.variants.iter().enumerate().map(|(style, variant)| Bar {
        style,
        name: variant.name.to_owned(),
        about: format!(
            "{}{}{}",
            variant.speed,
            variant.ratio.map_or(String::new(), |all| format!(", {}", ratio(all))),
            variant.share_percent.map_or(String::new(), share)
        ),
        seconds: variant.seconds.median,
    });
    html! {
        section {
            h2 { (proposal.title) " " span class="faint" { "(" (clock(proposal.clock)) ")" } }
            (rows(&bars.collect::<Vec<_>>()))
            @if !proposal.statements.is_empty() {
                h3 { "What its documents said" }
                dl {
                    @for Statement { what, before, after, unit, machine, source } in proposal.statements {
                        dt { (what) }
                        dd { (before) " to " (after) " " (unit) ", " (machine) " (" (source) ")" }
                    }
                }
            }
            p class="faint" { (proposal.differs) }
        }
    }
}

fn numbers(report: &Report) -> Markup {
    let heads = ["proposal", "variant", "median", "middle half", "speed", "times as fast", "95 % interval"];
    let heads = heads.into_iter().chain(["documents: times as fast"]).map(str::to_owned).collect();
    let rows = report.proposals.iter().flat_map(|proposal| {
        let said: Vec<_> = proposal.statements.iter().map(|statement| times(statement.ratio())).collect();
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
                said.join("; "),
            ]
        })
    });
    table("All numbers", heads, rows)
}
