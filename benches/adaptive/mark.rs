//! A figure and what it has to be.

use std::fmt;

/// A figure that is judged, or only shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    name: &'static str,
    value: f64,
    limit: Limit,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
    /// It is only shown.
    None,
}

/// How a figure is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unit {
    /// A share, shown in per cent.
    Percent,
    /// In targets of the latency.
    Targets,
    Seconds,
    /// Seconds, shown in milliseconds.
    Millis,
    /// A whole number of things.
    Count,
    PerSecond,
    PerMinute,
    Ratio,
    Nanos,
}

impl Mark {
    pub(crate) const fn at_least(name: &'static str, value: f64, least: f64, unit: Unit) -> Self {
        Self { name, value, limit: Limit::AtLeast(least), unit }
    }

    pub(crate) const fn at_most(name: &'static str, value: f64, most: f64, unit: Unit) -> Self {
        Self { name, value, limit: Limit::AtMost(most), unit }
    }

    pub(crate) const fn shown(name: &'static str, value: f64, unit: Unit) -> Self {
        Self { name, value, limit: Limit::None, unit }
    }

    /// A figure that could not be had meets nothing.
    pub(crate) fn is_met(&self) -> bool {
        match self.limit {
            Limit::AtLeast(least) => self.value >= least,
            Limit::AtMost(most) => self.value <= most,
            Limit::None => true,
        }
    }

    /// The worse one of two seeds.
    fn worse(self, other: Self) -> Self {
        let is_kept = self.value.is_nan()
            || match self.limit {
                Limit::AtLeast(_) => self.value <= other.value,
                Limit::AtMost(_) | Limit::None => self.value >= other.value,
            };
        if is_kept { self } else { other }
    }

    /// With its bound.
    pub(crate) fn judged(&self) -> String {
        let miss = if self.is_met() { "" } else { " MISSED" };
        match self.limit {
            Limit::AtLeast(least) => format!("{self} (>= {}){miss}", self.unit.show(least)),
            Limit::AtMost(most) => format!("{self} (<= {}){miss}", self.unit.show(most)),
            Limit::None => self.to_string(),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.unit.show(self.value))
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return if value.is_nan() { "none" } else { "never" }.into();
        }
        match self {
            Self::Percent => format!("{:.1} %", 100.0 * value),
            Self::Targets => format!("{value:.2} T"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Millis => format!("{:.0} ms", 1000.0 * value),
            Self::Count => format!("{value:.0}"),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::PerMinute => format!("{value:.0}/min"),
            Self::Ratio => format!("{value:.2}"),
            Self::Nanos => format!("{value:.0} ns"),
        }
    }
}

/// The worst of each mark over several seeds.
pub(crate) fn worst(seeds: impl IntoIterator<Item = Vec<Mark>>) -> Vec<Mark> {
    let pairs = |a: Vec<Mark>, b: Vec<Mark>| a.into_iter().zip(b).map(|(a, b)| a.worse(b)).collect();
    seeds.into_iter().reduce(pairs).unwrap_or_default()
}
