//! What the flush loop goes by, and what it has decided of late.

use std::fmt;
use std::time::Duration;

use crate::pace::Decision;

/// What the flush loop goes by at present, and its last decisions with their reasons.
///
/// Displays as a few lines, the latest decision first.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The most items of a batch at present.
    pub batch_limit: u64,
    /// The most items of a batch that is ever tried: `max_batch`, as the strategy and the capacity leave it.
    pub max_batch: u64,
    /// The most calls of the sink at once at present.
    pub concurrency_limit: u64,
    /// The most calls at once that are ever tried: what it was built with.
    pub max_concurrency: u64,
    /// Calls of the sink that are under way; in pull mode batches that are out.
    pub calls: u64,
    /// For how long the first of them has been; `None` if there is none.
    pub longest_call: Option<Duration>,
    /// Items that are buffered.
    pub buffered: u64,
    /// Items of batches that wait to be sent again.
    pub retry_waiting: u64,
    /// For so long the sink is left alone: it has asked for that. `Duration::MAX` is for ever.
    pub pause: Option<Duration>,
    /// It was paused by [`pause`](crate::BackpressureController::pause).
    pub is_paused: bool,
    /// The most calls of the sink a second; `None` as long as it has not throttled, and if nothing adapts.
    pub rate: Option<f64>,
    /// How long a call takes, on average; `None` if nothing adapts, or nothing was measured.
    pub latency: Option<Duration>,
    /// Items that the sink takes a second; `None` as for the latency.
    pub drain_rate: Option<f64>,
    /// No batch is small enough for the target latency: a call alone takes too long.
    pub is_target_unreachable: bool,
    /// Calls fail, and one at a time asks whether the sink is back.
    pub is_down: bool,
    /// How many decisions there were since the build.
    pub count: u64,
    /// The last of them, the latest first, at most 32. What was decided several times in a row is one.
    pub decisions: Vec<PastDecision>,
}

/// A decision of the flush loop, how long ago it was, and how often in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PastDecision {
    /// How long ago; the last time, if it was decided several times in a row.
    pub age: Duration,
    /// What was decided.
    pub decision: Decision,
    /// How often it was decided in a row, with nothing else in between. At least 1.
    pub times: u64,
    /// How long ago it was decided first.
    pub first_age: Duration,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch_limit, max_batch, calls, concurrency_limit, max_concurrency, .. } = self;
        write!(f, "batches of up to {batch_limit} items (at most {max_batch})")?;
        write!(f, ", {calls} calls under way of {concurrency_limit} (at most {max_concurrency})")?;
        if let Some(longest) = self.longest_call {
            write!(f, ", for {:.1} s", longest.as_secs_f64())?;
        }
        write!(f, "; {} items buffered, {} wait to be sent again", self.buffered, self.retry_waiting)?;
        if let Some(latency) = self.latency {
            write!(f, "; a call takes {:.1} ms", latency.as_secs_f64() * 1e3)?;
        }
        if let Some(rate) = self.drain_rate {
            write!(f, "; the sink takes {rate:.0} items/s")?;
        }
        if let Some(rate) = self.rate {
            write!(f, "; at most {rate:.1} calls/s, since it has throttled")?;
        }
        match self.pause {
            Some(Duration::MAX) => f.write_str("; the sink has asked to be left alone for good")?,
            Some(pause) => write!(f, "; the sink has asked to be left alone for another {:.1} s", pause.as_secs_f64())?,
            None => {}
        }
        for (holds, text) in [
            (self.is_paused, "; paused"),
            (self.is_target_unreachable, "; the target latency cannot be met by any batch"),
            (self.is_down, "; the sink is down, one call at a time asks for it"),
        ] {
            f.write_str(if holds { text } else { "" })?;
        }
        self.decisions.iter().try_for_each(|past| write!(f, "\n{past}"))
    }
}

impl fmt::Display for PastDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { age, decision, times, first_age } = self;
        write!(f, "{:>8.1} s ago: {:<17} batch {}", age.as_secs_f64(), decision.reason, decision.batch)?;
        write!(f, ", calls {}", decision.slots)?;
        if let Some(rate) = decision.rate {
            write!(f, ", {rate:.1} calls/s")?;
        }
        if *times > 1 {
            write!(f, "; {times} times, first {:.1} s ago", first_age.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::DecisionReason;
    use crate::time::Tick;

    fn explanation() -> Explanation {
        Explanation {
            batch_limit: 50,
            max_batch: 500,
            concurrency_limit: 2,
            max_concurrency: 8,
            calls: 1,
            longest_call: None,
            buffered: 1234,
            retry_waiting: 0,
            pause: None,
            is_paused: false,
            rate: None,
            latency: None,
            drain_rate: None,
            is_target_unreachable: false,
            is_down: false,
            count: 0,
            decisions: Vec::new(),
        }
    }

    #[test]
    fn what_nobody_has_set_or_measured_is_left_out() {
        assert_eq!(
            explanation().to_string(),
            "batches of up to 50 items (at most 500), 1 calls under way of 2 (at most 8); 1234 items buffered, 0 wait to be \
             sent again"
        );
    }

    #[test]
    fn an_operator_reads_where_it_stands_and_why() {
        let decision =
            Decision { at: Tick::default(), reason: DecisionReason::Throttled, batch: 50, slots: 2, rate: Some(8.5) };
        let age = Duration::from_secs(3);
        let once = PastDecision { age, decision, times: 1, first_age: age };
        let told = Explanation {
            pause: Some(Duration::from_millis(2500)),
            rate: Some(8.5),
            latency: Some(Duration::from_micros(12_340)),
            longest_call: Some(Duration::from_millis(8_300)),
            is_down: true,
            decisions: vec![once, PastDecision { times: 17, first_age: Duration::from_secs(90), ..once }],
            ..explanation()
        };
        let text = told.to_string();
        assert!(text.contains(", 1 calls under way of 2 (at most 8), for 8.3 s; "), "{text}");
        assert!(text.contains("; a call takes 12.3 ms; at most 8.5 calls/s"), "{text}");
        assert!(text.contains("left alone for another 2.5 s; the sink is down"), "{text}");
        let line = "\n     3.0 s ago: throttled         batch 50, calls 2, 8.5 calls/s";
        assert!(text.ends_with(&format!("{line}{line}; 17 times, first 90.0 s ago")), "{text}");
    }
}
