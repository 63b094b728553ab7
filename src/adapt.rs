//! Adapters: what sits between the controller and code that speaks another language.

mod blocking;
#[cfg(feature = "sink")]
mod sink;
mod stream;

pub use self::blocking::BlockingSink;
#[cfg(feature = "sink")]
pub use self::sink::PushSink;
pub use self::stream::{BackpressureStreamExt, Forward, Forwarded};
