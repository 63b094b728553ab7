//! How values are distributed, in fixed memory: exact in number and in sum.

use std::time::Duration;

/// Values in classes of half an octave: as many as there were, with their exact sum; a class is told as so many times its
/// mean, so a single value, and equal ones, come out as they went in, and others within a factor of 1.5.
///
/// So values can be gathered under the head lock, as many as there are between two publications.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    /// `(number, sum)` of each class; made at the first value, or by [`reserve`](Self::reserve).
    classes: Option<Box<[(u64, u64); CLASSES]>>,
}

/// Two for each power of two of a `u64`.
const CLASSES: usize = 128;

impl Spread {
    /// Makes its memory, so that no later value does.
    pub(crate) fn reserve(&mut self) {
        self.classes.get_or_insert_with(|| Box::new([(0, 0); CLASSES]));
    }

    pub(crate) fn add(&mut self, value: u64) {
        let classes = self.classes.get_or_insert_with(|| Box::new([(0, 0); CLASSES]));
        let (number, sum) = &mut classes[class(value)];
        *number += 1;
        *sum = sum.saturating_add(value);
    }

    /// Adds a span of time, in nanoseconds.
    pub(crate) fn add_time(&mut self, span: Duration) {
        self.add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Forgets all values and keeps the memory.
    pub(crate) fn clear(&mut self) {
        if let Some(classes) = &mut self.classes {
            classes.fill((0, 0));
        }
    }

    /// Each class that has values: their mean, and how many they are.
    pub(crate) fn means(&self) -> impl Iterator<Item = (f64, usize)> + '_ {
        let classes = self.classes.iter().flat_map(|classes| classes.iter());
        classes.filter(|(number, _)| *number > 0).map(|(number, sum)| (*sum as f64 / *number as f64, *number as usize))
    }
}

/// 0 for 0; the highest bit of the value and the one below it tell the class.
fn class(value: u64) -> usize {
    let Some(octave) = value.checked_ilog2() else { return 0 };
    let half = if octave == 0 { 0 } else { value >> (octave - 1) & 1 };
    (2 * octave as usize + half as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_sum_are_exact_and_each_value_within_its_class() {
        let mut spread = Spread::default();
        let mut values: Vec<u64> = (0..1000).map(|i| i * i).collect();
        values.extend([u64::MAX / 4; 2]);
        values.iter().for_each(|value| spread.add(*value));
        let (number, sum) = spread.means().fold((0, 0.0), |(n, s), (mean, k)| (n + k, s + mean * k as f64));
        assert_eq!(number, 1002);
        let exact: u64 = values.iter().sum();
        assert!((sum / exact as f64 - 1.0).abs() < 1e-9);
        for value in values.into_iter().filter(|value| *value > 1) {
            let near = |mean: f64| (1.0 / 1.51..1.51).contains(&(mean / value as f64));
            assert!(spread.means().any(|(mean, _)| near(mean)), "{value}");
        }
        spread.clear();
        assert_eq!(spread.means().count(), 0);
    }

    #[test]
    fn equal_values_come_out_as_they_went_in() {
        for value in [0, 1, 2, 3, 500, 1 << 40] {
            let mut spread = Spread::default();
            (0..7).for_each(|_| spread.add(value));
            assert_eq!(spread.means().collect::<Vec<_>>(), [(value as f64, 7)]);
        }
        assert!(class(u64::MAX) < CLASSES);
        assert!((1..u64::from(u16::MAX)).all(|value| class(value) <= class(value + 1)));
    }
}
