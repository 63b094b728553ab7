//! What is pushed.

/// An item, made from its number.
pub(crate) trait Payload: Clone + Default + Send + Sync + Unpin + 'static {
    const NAME: &'static str;

    /// Items 0 to `items - 1`. One that costs an allocation is made before the first is asked for.
    fn supply(items: u64) -> impl Iterator<Item = Self> + Send;
}

impl Payload for u64 {
    const NAME: &'static str = "u64";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        0..items
    }
}

/// 64 bytes: a small event.
pub(crate) type Bytes64 = [u64; 8];

impl Payload for Bytes64 {
    const NAME: &'static str = "64 B";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        (0..items).map(|i| [i; 8])
    }
}

/// 128 bytes: a larger one.
pub(crate) type Bytes128 = [u64; 16];

impl Payload for Bytes128 {
    const NAME: &'static str = "128 B";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        (0..items).map(|i| [i; 16])
    }
}

impl Payload for String {
    const NAME: &'static str = "String";

    fn supply(items: u64) -> impl Iterator<Item = Self> + Send {
        let items: Vec<_> = (0..items).map(|i| format!("event {i}")).collect();
        items.into_iter()
    }
}
