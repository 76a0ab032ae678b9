//! Packed decimals: `fixed<d,s>` (CORBA 3.0.3 section 15.3.2.8).
//!
//! ```text
//! fixed<5,2> 123.45   12 34 5C        fixed<4,1> -12.3   00 12 3D   (an even d has a leading 0)
//! ```

use super::{CdrError, Decoder, Encoder};

const MAX_DIGITS: u16 = crate::decimal::MAX_DIGITS as u16;

impl Encoder<'_> {
    /// Writes a `fixed<digits, s>`; `unscaled` is the value times ten to the power of s.
    ///
    /// # Errors
    /// [`CdrError::MalformedFixed`] if the value has more digits than the type, or if the type has
    /// no digits or more than 31.
    pub fn write_fixed(&mut self, digits: u16, unscaled: i128) -> Result<(), CdrError> {
        if digits == 0 || digits > MAX_DIGITS {
            return Err(CdrError::MalformedFixed);
        }
        let mut octets = [0u8; 16];
        let len = usize::from(digits / 2 + 1);
        let mut rest = unscaled.unsigned_abs();
        let mut half = if unscaled < 0 { 0x0d } else { 0x0c };
        let mut digits_left = digits;
        let mut next = || {
            if digits_left == 0 {
                return 0;
            }
            digits_left -= 1;
            let digit = u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
            digit
        };
        for octet in octets[..len].iter_mut().rev() {
            *octet = next() << 4 | half;
            half = next();
        }
        if rest != 0 {
            return Err(CdrError::MalformedFixed);
        }
        self.write_bytes(&octets[..len]);
        Ok(())
    }
}

impl Decoder<'_> {
    /// Reads a `fixed<digits, s>` and returns the value times ten to the power of s. In the sign
    /// half-octet, C and F mean not negative, and D means negative.
    ///
    /// # Errors
    /// [`CdrError::MalformedFixed`] if a half-octet is not a digit or a sign, if there are more
    /// digits than the type has, or if the type has no digits or more than 31.
    /// [`CdrError::Truncated`].
    pub fn read_fixed(&mut self, digits: u16) -> Result<i128, CdrError> {
        if digits == 0 || digits > MAX_DIGITS {
            return Err(CdrError::MalformedFixed);
        }
        let octets = self.read_bytes(usize::from(digits / 2 + 1))?;
        let mut value = 0i128;
        for (index, octet) in octets.iter().enumerate() {
            let (high, low) = (octet >> 4, octet & 0x0f);
            if high > 9 || (index == 0 && digits.is_multiple_of(2) && high != 0) {
                return Err(CdrError::MalformedFixed);
            }
            value = value * 10 + i128::from(high);
            match (index + 1 == octets.len(), low) {
                (true, 0x0c | 0x0f) => return Ok(value),
                (true, 0x0d) => return Ok(-value),
                (false, 0..=9) => value = value * 10 + i128::from(low),
                _ => return Err(CdrError::MalformedFixed),
            }
        }
        Err(CdrError::MalformedFixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endian;

    fn written(digits: u16, unscaled: i128) -> Result<Vec<u8>, CdrError> {
        let mut e = Encoder::new();
        e.write_fixed(digits, unscaled)?;
        Ok(e.into_reusable_buffer())
    }

    #[test]
    fn examples_of_the_specification_are_encoded_and_decoded() {
        assert_eq!(written(5, 12345).unwrap(), [0x12, 0x34, 0x5c]);
        assert_eq!(written(4, -123).unwrap(), [0x00, 0x12, 0x3d]);
        assert_eq!(written(5, 100).unwrap(), [0x00, 0x10, 0x0c]);
        assert_eq!(written(1, 7).unwrap(), [0x7c]);
    }

    #[test]
    fn fixed_values_round_trip_and_malformed_ones_are_refused() {
        for (digits, value) in [(31, 10i128.pow(31) - 1), (31, 1 - 10i128.pow(31)), (30, 10i128.pow(30) - 1), (2, 0)] {
            let octets = written(digits, value).unwrap();
            assert_eq!(Decoder::new(&octets, Endian::Big).read_fixed(digits), Ok(value));
        }
        assert_eq!(written(2, 100), Err(CdrError::MalformedFixed));
        assert_eq!(written(32, 1), Err(CdrError::MalformedFixed));
        assert_eq!(written(0, 0), Err(CdrError::MalformedFixed));
        for bad in [[0x1au8, 0x2c], [0x01, 0x23], [0xa1, 0x2c], [0x11, 0x2c]] {
            assert_eq!(Decoder::new(&bad, Endian::Big).read_fixed(2), Err(CdrError::MalformedFixed), "{bad:x?}");
        }
    }
}
