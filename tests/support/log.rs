//! What a sink was given, and what a loss hook was told.

use std::sync::{Arc, Mutex};

use backpressure::{Loss, LossReason};

/// What a sink was given, call by call.
#[derive(Debug)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<Vec<T>>>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Log<T> {
    pub(crate) fn add(&self, items: &[T]) {
        self.0.lock().unwrap().push(items.to_vec());
    }

    pub(crate) fn calls(&self) -> Vec<Vec<T>> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn items(&self) -> Vec<T> {
        self.0.lock().unwrap().concat()
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(Vec::len).collect()
    }
}

/// The item, the reason, and what the error says.
pub(crate) type Line<T> = (Option<T>, LossReason, Option<String>);

/// What a loss hook was told, one line for each item.
#[derive(Debug)]
pub(crate) struct Losses<T>(Arc<Mutex<Vec<Line<T>>>>);

impl<T> Default for Losses<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + 'static> Losses<T> {
    pub(crate) fn hook(&self) -> impl Fn(Loss<T>) + Send + Sync + use<T> {
        let lines = Arc::clone(&self.0);
        move |loss| {
            lines.lock().unwrap().push((loss.item, loss.reason, loss.error.map(|error| error.to_string())));
        }
    }

    pub(crate) fn lines(&self) -> Vec<Line<T>> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn items(&self) -> Vec<T> {
        self.0.lock().unwrap().iter().filter_map(|(item, ..)| item.clone()).collect()
    }
}
