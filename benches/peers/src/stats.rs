//! The few statistics that a table needs.

/// The median; the upper one of two.
///
/// # Panics
///
/// If there is no value.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value that a share of them, in `0.0 ..= 1.0`, does not exceed; reorders the values. 0 if there is none.
pub(crate) fn quantile(values: &mut [u64], share: f64) -> u64 {
    let Some(last) = values.len().checked_sub(1) else { return 0 };
    let index = (last as f64 * share).round() as usize;
    *values.select_nth_unstable(index).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_one() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([2.0, 1.0]), 2.0);
    }

    #[test]
    fn quantiles_of_a_hundred() {
        let mut values: Vec<u64> = (0..=100).rev().collect();
        assert_eq!(quantile(&mut values, 0.5), 50);
        assert_eq!(quantile(&mut values, 0.99), 99);
        assert_eq!(quantile(&mut values, 1.0), 100);
        assert_eq!(quantile(&mut [], 0.5), 0);
    }
}
