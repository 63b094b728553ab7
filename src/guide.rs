//! How to use the crate well, one page for each question.

#[doc = include_str!("../guide/strategies.md")]
pub mod strategies {}

#[doc = include_str!("../guide/sizing.md")]
pub mod sizing {}

#[doc = include_str!("../guide/delivery.md")]
pub mod delivery {}

#[doc = include_str!("../guide/cancellation.md")]
pub mod cancellation {}

#[doc = include_str!("../guide/shutdown.md")]
pub mod shutdown {}

#[doc = include_str!("../guide/operating.md")]
pub mod operating {}

#[doc = include_str!("../guide/adapting.md")]
pub mod adapting {}

#[doc = include_str!("../guide/comparison.md")]
pub mod comparison {}

#[doc = include_str!("../guide/settings.md")]
pub mod settings {}

#[cfg(feature = "test-util")]
#[doc = include_str!("../guide/testing.md")]
pub mod testing {}
