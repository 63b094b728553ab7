//! How to use the crate well, one page for each question.

#[cfg(feature = "test-util")]
#[doc = include_str!("../guide/testing.md")]
pub mod testing {}
