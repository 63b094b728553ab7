//! What the producers make: requests, readings and logins, the same ones in every run.

use fastrand::Rng;

const SERVICES: [&str; 8] = ["checkout", "search", "billing", "ingest", "mailer", "gateway", "thermostat", "meter"];
const REGIONS: [&str; 4] = ["eu-west", "eu-north", "us-east", "ap-south"];

/// The first moment of 2025, in microseconds since 1970.
const EPOCH_MICROS: i64 = 1_735_689_600_000_000;

/// One event, as it goes into a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Unique over all producers: the producer in the upper half, its own count in the lower.
    pub(crate) id: u64,
    pub(crate) service: &'static str,
    pub(crate) kind: &'static str,
    /// Microseconds since 1970.
    pub(crate) at_micros: i64,
    pub(crate) value: f64,
    /// JSON of 60 to 100 bytes.
    pub(crate) payload: String,
}

/// The events of one producer, seeded by its number.
#[derive(Debug)]
pub(crate) struct Events {
    producer: u64,
    made: u64,
    share: u64,
    now_micros: i64,
    rng: Rng,
}

impl Events {
    /// The first `share` events of `producer`.
    pub(crate) fn of(producer: u64, share: u64) -> Self {
        let rng = Rng::with_seed(producer);
        Self { producer, made: 0, share, now_micros: EPOCH_MICROS, rng }
    }

    /// Kind, value and the part of the payload that differs by kind.
    fn details(&mut self) -> (&'static str, f64, String) {
        let rng = &mut self.rng;
        match rng.u8(..10) {
            0 => {
                let (user, ok) = (rng.u32(10_000..1_000_000), rng.u8(..20) != 0);
                ("login", f64::from(u8::from(ok)), format!(r#""user":{user},"ok":{ok}"#))
            }
            1..4 => {
                let celsius = f64::from(rng.i32(-150..350)) / 10.0;
                ("reading", celsius, format!(r#""battery":{},"unit":"C""#, rng.u8(10..100)))
            }
            _ => {
                let status = if rng.u8(..50) == 0 { 503 } else { 200 };
                let millis = f64::from(rng.u32(200..90_000)) / 1_000.0;
                ("request", millis, format!(r#""status":{status},"bytes":{}"#, rng.u32(100..65_536)))
            }
        }
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.made == self.share {
            return None;
        }
        let (kind, value, details) = self.details();
        let rng = &mut self.rng;
        let (region, trace) = (REGIONS[rng.usize(..REGIONS.len())], rng.u64(..));
        let event = Event {
            id: self.producer << 32 | self.made,
            service: SERVICES[rng.usize(..SERVICES.len())],
            kind,
            at_micros: self.now_micros,
            value,
            payload: format!(r#"{{"region":"{region}","trace":"{trace:016x}",{details}}}"#),
        };
        self.made += 1;
        self.now_micros += rng.i64(1..2_000);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_in_every_run() {
        assert!(Events::of(3, 1_000).eq(Events::of(3, 1_000)));
        assert!(Events::of(3, 1_000).ne(Events::of(4, 1_000)));
    }

    #[test]
    fn payloads_have_a_realistic_size() {
        for event in Events::of(0, 10_000) {
            assert!((60..=100).contains(&event.payload.len()), "{}", event.payload);
        }
    }
}
