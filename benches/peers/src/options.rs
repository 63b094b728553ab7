//! The command line.

use std::path::PathBuf;

use lexopt::{Arg, Error, Parser, ValueExt};

/// What is run, and what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) form: Form,
    /// At least 1.
    pub(crate) rounds: usize,
    /// Only rows whose names contain one of these; all if there is none.
    pub(crate) rows: Vec<String>,
    pub(crate) markdown: PathBuf,
    /// Whether a missed mark is a failure.
    pub(crate) is_judged: bool,
    /// Names the rows and runs none.
    pub(crate) is_list: bool,
}

/// How much work a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Full,
    /// A tenth of it: whether all of it runs, not how fast.
    Quick,
}

impl Form {
    pub(crate) fn items(self, items: u64) -> u64 {
        match self {
            Self::Full => items,
            Self::Quick => items / 10,
        }
    }

    pub(crate) fn millis(self, millis: u64) -> u64 {
        self.items(millis)
    }
}

pub(crate) const HELP: &str = "\
The crate beside its peers, row by row. Ends with status 1 if a mark is missed.

  --rounds N       rounds of each row (7, with --quick 3)
  --row NAME       only the rows whose names contain it; may be given several times
  --quick          a tenth of the work
  --no-verdict     a missed mark is shown and is no failure
  --markdown FILE  where the table goes, too (target/peers.md)
  --list           the names of the rows
  --help           this
";

const ROUNDS: usize = 7;
const QUICK_ROUNDS: usize = 3;

impl Options {
    /// `None` if only help was asked for.
    pub(crate) fn parse(mut parser: Parser) -> Result<Option<Self>, Error> {
        let mut form = Form::Full;
        let mut rounds = None;
        let mut rows = Vec::new();
        let mut markdown = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers.md"));
        let mut is_judged = true;
        let mut is_list = false;
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("rounds") => rounds = Some(parser.value()?.parse()?),
                Arg::Long("row") => rows.push(parser.value()?.string()?),
                Arg::Long("quick") => form = Form::Quick,
                Arg::Long("no-verdict") => is_judged = false,
                Arg::Long("markdown") => markdown = parser.value()?.into(),
                Arg::Long("list") => is_list = true,
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                _ => return Err(arg.unexpected()),
            }
        }
        let rounds = rounds.unwrap_or(if form == Form::Quick { QUICK_ROUNDS } else { ROUNDS });
        if rounds == 0 {
            return Err("--rounds must be at least 1".into());
        }
        Ok(Some(Self { form, rounds, rows, markdown, is_judged, is_list }))
    }

    /// Whether a row of this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|row| name.contains(row.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Option<Options>, Error> {
        Options::parse(Parser::from_args(args))
    }

    #[test]
    fn defaults_and_filters() {
        let options = parse(&[]).expect("valid").expect("not help");
        assert!(options.form == Form::Full && options.rounds == 7 && options.is_judged && options.wants("push, u64"));
        let options = parse(&["--quick", "--row", "drain", "--row=idle"]).expect("valid").expect("not help");
        assert!(options.rounds == 3 && options.wants("idle") && options.wants("drain, u64") && !options.wants("push"));
        assert!(parse(&["--help"]).expect("valid").is_none());
    }

    #[test]
    fn nonsense_is_an_error() {
        for args in [&["--rounds", "0"][..], &["--rounds", "many"], &["--fast"], &["push"]] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }
}
