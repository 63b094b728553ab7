//! A file of sinks: one JSON object a line.

use std::path::Path;

use serde_json::Value;

use crate::course::{Course, Load};
use crate::sink::{Noise, Spec};

/// A sink to be measured, and what the best fixed setting makes of it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) number: u64,
    pub(crate) course: Course,
    /// Items a second of the best fixed setting of batch and slots, found by trying; `None` if the file does not say.
    pub(crate) best_fixed: Option<f64>,
}

pub(crate) fn read(path: &Path) -> Result<Vec<Listed>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let place = |error| format!("{}:{}: {error}", path.display(), index + 1);
            let value = serde_json::from_str(line).map_err(|error| place(error.to_string()))?;
            listed(&Object(value)).map_err(place)
        })
        .collect()
}

fn listed(sink: &Object) -> Result<Listed, String> {
    let course = Course {
        sink: Spec {
            servers: sink.optional("k")?.map(|servers| servers as usize),
            scaling: sink.pair("usl")?,
            noise: sink.noise()?,
            ..Spec::new(sink.number("a_s")?, sink.number("b_s")?)
        },
        load: Load::Steady(sink.number("offered_per_s")?),
        target: sink.number("target_s")?,
        slots: sink.number("max_concurrency")? as usize,
        max_batch: sink.number("max_batch")? as usize,
        end: sink.number("end_s")?,
        measure: (sink.number("measure_from_s")?, sink.number("end_s")?),
        timeout: None,
        retry_cap: None,
        rest: 0.0,
    };
    let best_fixed = sink.0.get("static_best").and_then(|best| best.get("items_per_s")).and_then(Value::as_f64);
    Ok(Listed { number: sink.number("n")? as u64, course, best_fixed })
}

struct Object(Value);

impl Object {
    fn number(&self, name: &str) -> Result<f64, String> {
        self.optional(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    /// `None` if it is missing or null.
    fn optional(&self, name: &str) -> Result<Option<f64>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| format!("{name} is no number")),
        }
    }

    fn pair(&self, name: &str) -> Result<Option<(f64, f64)>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let number = |index| value.get(index).and_then(Value::as_f64);
                number(0).zip(number(1)).map(Some).ok_or_else(|| format!("{name} is no pair of numbers"))
            }
        }
    }

    fn noise(&self) -> Result<Noise, String> {
        let width = self.optional("noise")?.unwrap_or(0.1);
        match self.0.get("noise_kind").and_then(Value::as_str) {
            Some("log") => Ok(Noise::LogNormal(width)),
            Some("uniform") | None => Ok(Noise::Uniform(width)),
            Some(kind) => Err(format!("noise_kind {kind} is not known")),
        }
    }
}
