//! The contestants, each used as its users use it.

mod array_queue;
mod async_channel;
mod broadcast;
mod chunks_timeout;
mod concurrent_queue;
mod crossfire;
mod emit_batcher;
mod flume;
mod futures_batch;
mod interval;
mod kanal;
mod lingering;
mod mutex;
mod notify;
mod ours;
mod rtrb;
mod thingbuf;
mod tokio;

pub(crate) use self::array_queue::ArrayQueue;
pub(crate) use self::async_channel::{AsyncChannel, Forced};
pub(crate) use self::broadcast::Broadcast;
pub(crate) use self::chunks_timeout::ChunksTimeout;
pub(crate) use self::concurrent_queue::ConcurrentQueue;
pub(crate) use self::crossfire::Crossfire;
pub(crate) use self::emit_batcher::{EmitBatcher, EmitTruncating};
pub(crate) use self::flume::Flume;
pub(crate) use self::futures_batch::FuturesBatch;
pub(crate) use self::interval::Interval;
pub(crate) use self::kanal::Kanal;
pub(crate) use self::lingering::Lingering;
pub(crate) use self::mutex::MutexDeque;
pub(crate) use self::notify::MutexNotify;
pub(crate) use self::ours::{Evictor, Ours, OursEager, OursEvicting, undriven, undriven_weighed};
pub(crate) use self::rtrb::Rtrb;
pub(crate) use self::thingbuf::Thingbuf;
pub(crate) use self::tokio::Tokio;
