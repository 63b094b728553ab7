//! SplitMix64 (Steele, Lea and Flood, 2014): numbers that look random, made from numbers that do not.

/// The step between the inputs of successive numbers.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64 bits in which each input bit flips each output bit with about even chance. It steps first, so that 0
/// is not a fixed point.
pub(crate) const fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
