//! What one run is: a sink, a load, and the settings of the writer between them.

use crate::sink::Spec;

/// Items that may wait in the buffer; what is in flight is not among them.
pub(crate) const BUFFER: u64 = 50_000;

#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) sink: Spec,
    pub(crate) load: Load,
    /// Target of the latency of a flush, in seconds.
    pub(crate) target: f64,
    /// The most flushes at once.
    pub(crate) slots: usize,
    /// The most items of a flush.
    pub(crate) max_batch: usize,
    /// How long it goes on, in seconds.
    pub(crate) end: f64,
    /// Figures are taken from here, in seconds, until `measure.1`.
    pub(crate) measure: (f64, f64),
    /// After so many seconds a flush is given up.
    pub(crate) timeout: Option<f64>,
    /// The longest wait before a batch is sent again, in seconds.
    pub(crate) retry_cap: Option<f64>,
    /// How long nothing at all happens after the end, in seconds.
    pub(crate) rest: f64,
}

/// Items a second, over time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    Steady(f64),
    /// Nothing more from the time on.
    Until(f64, f64),
    /// So much of each period at the high rate, the rest at the low one.
    Bursts {
        period: f64,
        high_for: f64,
        high: f64,
        low: f64,
    },
}

impl Load {
    pub(crate) fn rate(self, at: f64) -> f64 {
        match self {
            Self::Steady(rate) => rate,
            Self::Until(rate, end) => {
                if at < end {
                    rate
                } else {
                    0.0
                }
            }
            Self::Bursts { period, high_for, high, low } => {
                if at % period < high_for {
                    high
                } else {
                    low
                }
            }
        }
    }
}

impl Course {
    /// Up to 64 flushes of 5000 items, a target of 100 ms; figures from `measure`, which ends with the course.
    pub(crate) const fn new(sink: Spec, rate: f64, measure: (f64, f64)) -> Self {
        Self {
            sink,
            load: Load::Steady(rate),
            target: 0.1,
            slots: 64,
            max_batch: 5000,
            end: measure.1,
            measure,
            timeout: None,
            retry_cap: None,
            rest: 0.0,
        }
    }
}
