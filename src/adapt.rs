//! Adapters: what sits between the controller and code that speaks another language.

mod blocking;

pub use self::blocking::BlockingSink;
