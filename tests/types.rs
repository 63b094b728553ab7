//! What the types are: handles that cross threads, futures that can be spawned, errors that are errors.

use std::cell::Cell;
use std::error::Error;

use backpressure::{
    AuditError, BackpressureController, Batch, BatchId, Batches, BuildError, Drain, DrainReport, DriveError, Flush,
    FlushError, Flusher, Forward, Loss, Permit, Permits, Push, PushAll, PushAllError, PushError, Reserve, ReserveError,
    ReserveMany, Retry, Snapshot, StateWatch, Strategy, WeakController, Weights, WouldDeadlock,
};

/// `Send`, and not `Sync`: all that an item has to be.
type Item = Cell<u8>;

fn is_send<T: Send>() {}
fn is_shared<T: Send + Sync>() {}
fn is_error<T: Error + Send + Sync + 'static>() {}

#[test]
fn handles_cross_threads_for_every_item_that_can_be_sent() {
    is_shared::<BackpressureController<Item>>();
    is_shared::<WeakController<Item>>();
    is_shared::<StateWatch>();
    is_shared::<Snapshot>();
    is_shared::<Weights>();
    is_shared::<Retry>();
    is_shared::<BatchId>();
    is_shared::<FlushError>();
    is_send::<Flusher>();
    is_send::<Batch<Item>>();
    is_send::<Batches<Item>>();
    is_send::<Loss<Item>>();
    is_send::<Permit<Item>>();
    is_send::<Permits<Item>>();
    is_send::<DrainReport<Item>>();
    is_send::<Strategy<Item>>();
}

#[test]
fn futures_can_be_spawned() {
    is_send::<Push<'static, Item>>();
    is_send::<PushAll<'static, Item, std::vec::IntoIter<Item>>>();
    is_send::<Reserve<'static, Item>>();
    is_send::<ReserveMany<'static, Item>>();
    is_send::<Flush<'static, Item>>();
    is_send::<Drain<'static, Item>>();
    is_send::<Forward<futures::stream::Iter<std::vec::IntoIter<Item>>>>();
}

#[test]
fn errors_are_errors() {
    is_error::<PushError<u8>>();
    is_error::<PushAllError<std::vec::IntoIter<u8>>>();
    is_error::<ReserveError>();
    is_error::<WouldDeadlock>();
    is_error::<BuildError>();
    is_error::<DriveError>();
    is_error::<AuditError>();
}

#[test]
fn a_refusal_needs_no_debug_of_its_item_and_gives_it_back() {
    struct Opaque(u8);
    let error = PushError::Full(Opaque(7));
    assert_eq!(format!("{error:?}: {error}"), "PushError(Full): the buffer is full");
    assert_eq!(error.into_inner().0, 7);
}
