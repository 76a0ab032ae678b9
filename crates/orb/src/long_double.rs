//! `long double` of IDL: IEEE 754 binary128, for which Rust has no type.

use corelane_wire::{Cdr, CdrError, Decoder, Encoder};

/// A `long double` of IDL: 16 bytes of IEEE 754 binary128, most significant byte first. Arithmetic
/// needs a conversion to `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LongDouble(pub [u8; 16]);

const MORE_FRACTION: u32 = 112 - 52;
const MORE_BIAS: u128 = 16_383 - 1_023;

impl LongDouble {
    /// Makes a number from its bits. The sign is the highest bit (IEEE 754, 3.4).
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        LongDouble(bits.to_be_bytes())
    }

    /// Returns the bits of the number. The sign is the highest bit.
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Converts an `f64` to a `LongDouble`, without loss.
    #[must_use]
    pub const fn from_f64(value: f64) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 63) as u128;
        let exponent = (bits >> 52 & 0x7ff) as u128;
        let fraction = bits & ((1 << 52) - 1);
        let magnitude = match (exponent, fraction) {
            (0, 0) => 0,
            // A subnormal binary64 number becomes a normal binary128 number.
            (0, _) => {
                let shift = fraction.leading_zeros() - 11;
                let fraction = (fraction << shift & ((1 << 52) - 1)) as u128;
                (MORE_BIAS + 1 - shift as u128) << 112 | fraction << MORE_FRACTION
            }
            (0x7ff, _) => 0x7fff << 112 | (fraction as u128) << MORE_FRACTION,
            _ => (exponent + MORE_BIAS) << 112 | (fraction as u128) << MORE_FRACTION,
        };
        LongDouble((sign << 127 | magnitude).to_be_bytes())
    }

    /// Converts the number to an `f64`, rounding towards zero. A value that is too large becomes
    /// infinite. A value that is too small for a normal `f64` becomes zero.
    #[must_use]
    pub const fn to_f64(self) -> f64 {
        let bits = u128::from_be_bytes(self.0);
        let sign = ((bits >> 127) as u64) << 63;
        let exponent = bits >> 112 & 0x7fff;
        let fraction = (bits >> MORE_FRACTION) as u64 & ((1 << 52) - 1);
        let lost = bits & ((1 << MORE_FRACTION) - 1) != 0;
        let magnitude = if exponent == 0x7fff {
            // A NaN without a fraction bit would be infinity.
            0x7ff << 52 | fraction | if lost && fraction == 0 { 1 } else { 0 }
        } else if exponent <= MORE_BIAS {
            0
        } else if exponent >= MORE_BIAS + 0x7ff {
            0x7ff << 52
        } else {
            ((exponent - MORE_BIAS) as u64) << 52 | fraction
        };
        f64::from_bits(sign | magnitude)
    }
}

impl From<f64> for LongDouble {
    fn from(value: f64) -> Self {
        Self::from_f64(value)
    }
}

impl From<LongDouble> for f64 {
    fn from(value: LongDouble) -> Self {
        value.to_f64()
    }
}

impl Cdr for LongDouble {
    const MIN_SIZE: usize = 16;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_long_double(self.0);
        Ok(())
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
        d.read_long_double().map(LongDouble)
    }
}

#[cfg(test)]
mod tests {
    use super::LongDouble;

    #[test]
    fn every_kind_of_f64_survives_conversion_to_long_double() {
        for value in [0.0, -0.0, 1.0, -2.5, 1e10, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(LongDouble::from_f64(value).to_f64().to_bits(), value.to_bits(), "{value}");
        }
        assert!(LongDouble::from_f64(f64::NAN).to_f64().is_nan());
    }

    #[test]
    fn long_double_has_the_bits_of_binary128() {
        let one = LongDouble::from_f64(1.0).0;
        assert_eq!((one[0], one[1], one[2]), (0x3f, 0xff, 0));
        // The smallest subnormal f64 is 2^-1074.
        let smallest = LongDouble::from_f64(f64::from_bits(1)).0;
        assert_eq!((smallest[0], smallest[1], smallest[2]), (0x3b, 0xcd, 0));
    }
}
