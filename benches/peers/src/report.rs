//! The tables, which are Markdown and read well on a terminal.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use crate::harness::{Bar, Limit, Measure, OURS, Outcome, Score};
use crate::stats::median;

/// A bar of a row, and how our figure stands to it.
#[derive(Debug)]
pub(crate) struct Verdict {
    row: String,
    unit: &'static str,
    bar: Bar,
    ours: f64,
    /// What is compared with the bar: a ratio, or the figure itself.
    value: f64,
}

impl Verdict {
    /// A mark that is not met.
    pub(crate) fn is_missed_mark(&self) -> bool {
        self.bar.is_mark && !self.is_met()
    }

    fn is_met(&self) -> bool {
        let (Limit::Of(_, most) | Limit::Value(most)) = self.bar.limit;
        self.value <= most
    }

    fn word(&self) -> &'static str {
        match (self.is_met(), self.bar.is_mark) {
            (true, true) => "ok",
            (true, false) => "reached",
            (false, true) => "MISSED",
            (false, false) => "not reached",
        }
    }
}

/// How our figures of a contest stand to their bars.
pub(crate) fn judge(outcome: &Outcome) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (index, measure) in outcome.measures.iter().enumerate() {
        let Some(ours) = outcome.score(OURS) else { continue };
        for &bar in &measure.bars {
            let value = match bar.limit {
                Limit::Value(_) => median(ours.of(index)),
                Limit::Of(peer, _) => {
                    let peer = outcome.score(peer).expect("a bar names a contestant");
                    median_ratio(ours, peer, index, measure.resolution)
                }
            };
            let (row, ours) = (title(outcome, measure), median(ours.of(index)));
            verdicts.push(Verdict { row, unit: measure.unit, bar, ours, value });
        }
    }
    verdicts
}

/// All contestants of a contest, measure by measure.
pub(crate) fn block(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (index, measure) in outcome.measures.iter().enumerate() {
        let _ = writeln!(text, "\n### {}\n\n{}\n", title(outcome, measure), outcome.about);
        let mut table = Table::new(["contestant", measure.unit, "least", "ours / theirs", "mark", "ambition"]);
        let ours = outcome.score(OURS);
        for score in &outcome.scores {
            let ratio = ours
                .filter(|_| score.name != OURS && Some(score.name) != outcome.baseline)
                .map_or(String::new(), |ours| number(median_ratio(ours, score, index, measure.resolution)));
            let least = score.of(index).fold(f64::INFINITY, f64::min);
            let bar = |is_mark| bar_beside(measure, score.name, is_mark);
            table.row([
                score.name.to_owned(),
                number(median(score.of(index))),
                number(least),
                ratio,
                bar(true),
                bar(false),
            ]);
        }
        let _ = write!(text, "{table}");
    }
    text
}

/// Marks first, then ambitions.
pub(crate) fn summary(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for (heading, is_mark) in [("Marks", true), ("Ambitions", false)] {
        let _ = writeln!(text, "\n## {heading}\n");
        let mut table = Table::new(["row", "ours", "measured", "at most", "of", ""]);
        for verdict in verdicts.iter().filter(|verdict| verdict.bar.is_mark == is_mark) {
            let (most, of) = match verdict.bar.limit {
                Limit::Of(peer, most) => (number(most), peer),
                Limit::Value(most) => (number(most), ""),
            };
            let ours = format!("{} {}", number(verdict.ours), verdict.unit);
            table.row([
                verdict.row.clone(),
                ours,
                number(verdict.value),
                most,
                of.to_owned(),
                verdict.word().to_owned(),
            ]);
        }
        let _ = write!(text, "{table}");
    }
    text
}

/// What somebody lost in rows in which nothing may be lost.
pub(crate) fn faults(losses: &BTreeMap<&str, u64>) -> String {
    let mut text = String::new();
    for (name, items) in losses {
        let _ = writeln!(text, "\n{name} has lost {items} items on the way to the sink, without a word.");
    }
    text
}

impl Outcome {
    fn score(&self, name: &str) -> Option<&Score> {
        self.scores.iter().find(|score| score.name == name)
    }
}

fn title(outcome: &Outcome, measure: &Measure) -> String {
    if measure.name.is_empty() { outcome.name.clone() } else { format!("{}: {}", outcome.name, measure.name) }
}

/// Of the ratios within a round.
fn median_ratio(ours: &Score, theirs: &Score, measure: usize, resolution: f64) -> f64 {
    let ratios = ours.of(measure).zip(theirs.of(measure)).map(|(ours, theirs)| {
        let (ours, theirs) = (ours.max(resolution), theirs.max(resolution));
        if ours == theirs { 1.0 } else { ours / theirs }
    });
    median(ratios)
}

/// The bar of a measure that goes by this contestant, or for ourselves the absolute one.
fn bar_beside(measure: &Measure, name: &str, is_mark: bool) -> String {
    let mut bars = measure.bars.iter().filter(|bar| bar.is_mark == is_mark);
    let most = bars.find_map(|bar| match bar.limit {
        Limit::Of(peer, most) if peer == name => Some(most),
        Limit::Value(most) if name == OURS => Some(most),
        _ => None,
    });
    most.map_or(String::new(), |most| format!("<= {}", number(most)))
}

/// With as many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.1 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A Markdown table with even columns: words to the left, figures to the right.
struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }
}

impl<const N: usize> Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        for (index, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                let is_figure = cell.starts_with(|first: char| first.is_ascii_digit() || first == '-');
                match is_figure && column > 0 {
                    true => write!(f, "| {cell:>width$} ")?,
                    false => write!(f, "| {cell:<width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if index == 0 {
                for width in widths {
                    write!(f, "|{:-<1$}", "", width + 2)?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Contest;

    fn outcome(ours: f64, limit: Limit) -> Outcome {
        let mut factor = 0.0;
        let contest = Contest::new("row", "ns", "a test").mark(limit);
        let contest = contest.enter(OURS, move || {
            // A round's noise is in both.
            factor += 1.0;
            ours * factor
        });
        let mut noise = 0.0;
        contest
            .enter("peer", move || {
                noise += 1.0;
                10.0 * noise
            })
            .run(3)
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let verdicts = judge(&outcome(4.0, Limit::Of("peer", 0.4)));
        assert!(verdicts.len() == 1 && verdicts[0].value == 0.4 && !verdicts[0].is_missed_mark());
        assert!(judge(&outcome(4.1, Limit::Of("peer", 0.4)))[0].is_missed_mark());
    }

    #[test]
    fn absolute_bars_go_by_the_median() {
        assert!(!judge(&outcome(4.0, Limit::Value(8.0)))[0].is_missed_mark());
        assert!(judge(&outcome(4.0, Limit::Value(7.9)))[0].is_missed_mark());
    }

    #[test]
    fn the_cost_of_the_harness_is_taken_off() {
        let contest = Contest::new("row", "ms", "a test").baseline("nothing", || vec![3.0]);
        let outcome = contest.enter(OURS, || 10.0).run(2);
        let figures: Vec<f64> = outcome.score(OURS).expect("entered").of(0).collect();
        assert_eq!(figures, [7.0, 7.0]);
    }

    #[test]
    fn tables_are_markdown() {
        let text = block(&outcome(4.0, Limit::Of("peer", 0.4)));
        assert!(text.contains("\n| contestant   | ns   | least |"), "{text}");
        assert!(text.contains("\n| peer         | 20.0 |  10.0 |          0.40 | <= 0.40 |          |"), "{text}");
    }
}
