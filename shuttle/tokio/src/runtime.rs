//! The runtime is wherever shuttle runs.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use crate::task::JoinHandle;

/// The runtime.
#[derive(Clone, Debug)]
pub struct Handle(());

/// The one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(());

/// Being inside the runtime.
#[derive(Debug)]
pub struct EnterGuard<'a>(PhantomData<&'a Handle>);

/// Never: there is always a runtime.
#[derive(Debug)]
pub struct TryCurrentError(());

impl fmt::Display for TryCurrentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no runtime")
    }
}

impl Error for TryCurrentError {}

impl Handle {
    /// The runtime, which is always there.
    ///
    /// # Errors
    ///
    /// None.
    pub fn try_current() -> Result<Self, TryCurrentError> {
        Ok(Self(()))
    }

    /// The one runtime.
    #[must_use]
    pub fn id(&self) -> Id {
        Id(())
    }

    /// Is inside already.
    pub fn enter(&self) -> EnterGuard<'_> {
        EnterGuard(PhantomData)
    }

    /// Spawns a task, which goes on when its handle is dropped.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        crate::spawn(future)
    }
}
