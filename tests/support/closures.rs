//! Sinks that are closures, for items of any type.

use std::pin::Pin;

use backpressure::{Batch, FlushError};

use super::{Gate, Log};

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<(), FlushError>> + Send>>;

/// A sink that takes all at once.
pub(crate) fn ok<T: Clone + Send + 'static>(
    log: &Log<T>,
) -> impl FnMut(Batch<T>) -> std::future::Ready<Result<(), FlushError>> + Send + use<T> {
    let log = log.clone();
    move |batch: Batch<T>| {
        log.add(&batch);
        std::future::ready(Ok(()))
    }
}

/// A sink that waits at the gate, then takes all.
pub(crate) fn gated<T: Clone + Send + Sync + 'static>(
    gate: &Gate,
    log: &Log<T>,
) -> impl FnMut(Batch<T>) -> Answer + Send + use<T> {
    let (gate, log) = (gate.clone(), log.clone());
    move |batch: Batch<T>| {
        let (gate, log) = (gate.clone(), log.clone());
        Box::pin(async move {
            gate.pass().await;
            log.add(&batch);
            Ok(())
        })
    }
}

/// A sink that fails so often, then takes all; it logs only what it took.
pub(crate) fn failing<T: Clone + Send + 'static>(
    mut times: usize,
    log: &Log<T>,
) -> impl FnMut(Batch<T>) -> std::future::Ready<Result<(), FlushError>> + Send + use<T> {
    let log = log.clone();
    move |batch: Batch<T>| {
        if times > 0 {
            times -= 1;
            return std::future::ready(Err(FlushError::retry("down")));
        }
        log.add(&batch);
        std::future::ready(Ok(()))
    }
}

/// A sink that never answers, and keeps its batch.
pub(crate) async fn hung<T: Send>(batch: Batch<T>) -> Result<(), FlushError> {
    std::future::pending::<()>().await;
    drop(batch);
    Ok(())
}
