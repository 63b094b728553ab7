//! Conservation (I1 to I10): random operations on a controller, and an oracle that must agree after every step.

mod model;

use model::{Case, LATER, LATER_KINDS, SET_CAPACITY, SLOTS, WEIGHED, run, verdict};
use proptest::prelude::*;

/// 20 s in a debug build on an idle machine; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 4_000 };
    ProptestConfig { cases, max_shrink_iters: 100_000, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_item_has_one_fate_and_every_figure_says_which(
        config in any::<[u8; 8]>(),
        ops in prop::collection::vec(any::<[u8; 3]>(), 0..80),
    ) {
        check(config, ops)?;
    }

    #[test]
    fn so_it_is_while_the_capacity_changes(
        config in any::<[u8; 8]>(),
        ops in prop::collection::vec((any::<[u8; 3]>(), prop::bool::weighted(0.15)), 0..80),
    ) {
        let ops = ops.into_iter().map(|([kind, a, b], resizes)| [if resizes { SET_CAPACITY } else { kind }, a, b]);
        check(config, ops.collect())?;
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn so_it_is_by_samples_and_decisions_with_tracked_items_and_other_settings(
        mut config in any::<[u8; 8]>(),
        strategy in LATER_KINDS,
        ops in prop::collection::vec((any::<[u8; 3]>(), prop::bool::weighted(0.25)), 0..80),
    ) {
        config[3] = strategy;
        let ops = ops.into_iter().map(|([kind, a, b], is_later)| [if is_later { LATER } else { kind }, a, b]);
        check(config, ops.collect())?;
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn so_it_is_with_several_calls_at_once_that_end_in_any_order(
        mut config in any::<[u8; 8]>(),
        batch in SLOTS,
        ops in prop::collection::vec((any::<[u8; 3]>(), prop::bool::weighted(0.1)), 0..80),
    ) {
        config[1] = batch;
        let ops = ops.into_iter().map(|([kind, a, b], is_later)| [if is_later { LATER } else { kind }, a, b]);
        check(config, ops.collect())?;
    }

    #[test]
    fn so_it_is_by_weight_whatever_the_strategy(
        mut config in any::<[u8; 8]>(),
        strategy in prop::option::weighted(0.3, LATER_KINDS),
        bounds in WEIGHED,
        ops in prop::collection::vec((any::<[u8; 3]>(), prop::bool::weighted(0.1)), 0..80),
    ) {
        config[3] = strategy.unwrap_or(config[3]);
        config[5] = bounds;
        let ops = ops.into_iter().map(|([kind, a, b], is_later)| [if is_later { LATER } else { kind }, a, b]);
        check(config, ops.collect())?;
    }
}

fn check(config: [u8; 8], ops: Vec<[u8; 3]>) -> Result<(), TestCaseError> {
    let mut bytes = config.to_vec();
    bytes.extend(ops.into_iter().flatten());
    let case = Case::decode(&bytes);
    let outcome = verdict(|| run(&case));
    prop_assert!(outcome.is_ok(), "{}\n{bytes:?}\n{case:?}", outcome.unwrap_err());
    Ok(())
}
