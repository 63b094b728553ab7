//! SplitMix64: a run is told by its seed.

/// A stream of numbers that look random.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Streams of one seed differ by their number.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ stream);
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0 .. 1`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of the standard normal distribution (Box and Muller, 1958).
    pub(crate) fn gauss(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}
