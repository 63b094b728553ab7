//! What is pushed.

use std::hint::black_box;

/// An item, made from its number.
pub(crate) trait Payload: Clone + Default + Send + Sync + Unpin + 'static {
    const NAME: &'static str;

    /// Items 0 to `items - 1`. One that costs an allocation is made before the first is asked for.
    fn supply(items: u64) -> impl Iterator<Item = Self> + Send;

    /// A part of it, so that a consumer has looked at the item.
    fn part(&self) -> u64;
}

/// What a consumer does with a batch, where it does nothing else: it looks at each item.
pub(crate) fn look<T: Payload>(batch: &[T]) {
    black_box(batch.iter().map(T::part).fold(0, u64::wrapping_add));
}

impl Payload for u64 {
    const NAME: &'static str = "u64";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        0..items
    }

    fn part(&self) -> u64 {
        *self
    }
}

/// 64 bytes: a small event.
pub(crate) type Bytes64 = [u64; 8];

impl Payload for Bytes64 {
    const NAME: &'static str = "64 B";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        (0..items).map(|i| [i; 8])
    }

    fn part(&self) -> u64 {
        self[0]
    }
}

/// 128 bytes: a larger one.
pub(crate) type Bytes128 = [u64; 16];

impl Payload for Bytes128 {
    const NAME: &'static str = "128 B";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        (0..items).map(|i| [i; 16])
    }

    fn part(&self) -> u64 {
        self[0]
    }
}

impl Payload for String {
    const NAME: &'static str = "String";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        let items: Vec<_> = (0..items).map(|i| format!("event {i}")).collect();
        items.into_iter()
    }

    fn part(&self) -> u64 {
        self.len() as u64
    }
}
