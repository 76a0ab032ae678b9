//! The [`Cdr`] trait of types that encode and decode themselves.

use super::{CdrError, Decoder, Encoder, Octets, PathRecorder as _, PathStep};

/// Maximum memory in bytes that the decoder reserves for the elements of a sequence before it reads
/// the first element. If one element is larger, the decoder reserves memory for one element.
const RESERVED_AT_ONCE: usize = 64 << 10;

/// A type with an encoding in CDR.
///
/// `String` and `char` have the form of IDL's narrow types; [`Encoder`] and [`Decoder`] have
/// methods for wide text.
pub trait Cdr: Sized {
    /// Minimum encoded size in bytes, without padding; for a struct the sum of its members' minimum
    /// sizes.
    const MIN_SIZE: usize;

    /// Writes the value.
    ///
    /// # Errors
    /// [`CdrError`] if the value has no CDR form.
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError>;

    /// Reads a value.
    ///
    /// # Errors
    /// [`CdrError`] if the bytes are not a value of this type.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError>;

    #[doc(hidden)]
    fn encode_all(values: &[Self], e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let mut rest = values.iter();
        rest.try_for_each(|value| value.encode(e)).inspect_err(|_| {
            e.record_step(PathStep::Element(values.len() - rest.len() - 1));
        })
    }

    /// Reads `len` elements, after the caller has checked this count.
    #[doc(hidden)]
    fn decode_many(len: usize, d: &mut Decoder<'_>) -> Result<Vec<Self>, CdrError> {
        d.charge_elements::<Self>(len)?;
        d.read_nested(|d| {
            // Memory is reserved as elements arrive, because a peer may announce elements that
            // never arrive.
            let mut values = Vec::new();
            for _ in 0..len {
                if values.len() == values.capacity() {
                    let step = values.len().max(RESERVED_AT_ONCE / size_of::<Self>().max(1)).max(1);
                    values
                        .try_reserve_exact(step.min(len - values.len()))
                        .map_err(|_| CdrError::MemoryBudgetExceeded)?;
                }
                values.push(Self::decode(d).inspect_err(|_| d.record_step(PathStep::Element(values.len())))?);
            }
            Ok(values)
        })
    }

    #[doc(hidden)]
    fn decode_array<const N: usize>(d: &mut Decoder<'_>) -> Result<[Self; N], CdrError> {
        let mut failure = Ok(());
        let values: [Option<Self>; N] = std::array::from_fn(|index| {
            failure.ok()?;
            let value = Self::decode(d);
            value.inspect_err(|_| d.record_step(PathStep::Element(index))).map_err(|error| failure = Err(error)).ok()
        });
        failure?;
        Ok(values.map(|value| match value {
            Some(value) => value,
            None => unreachable!("a missing element has set `failure`"),
        }))
    }
}

macro_rules! primitives {
    ($($number:ty: $write:ident $read:ident,)*) => {$(
        impl Cdr for $number {
            const MIN_SIZE: usize = size_of::<$number>();

            #[inline]
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
                e.$write(*self);
                Ok(())
            }

            #[inline]
            fn decode(d: &mut Decoder<'_>) -> Result<$number, CdrError> {
                d.$read()
            }

            #[inline]
            fn encode_all(values: &[$number], e: &mut Encoder<'_>) -> Result<(), CdrError> {
                e.write_slice(values);
                Ok(())
            }

            #[inline]
            fn decode_many(len: usize, d: &mut Decoder<'_>) -> Result<Vec<$number>, CdrError> {
                d.read_vec(len)
            }

            #[inline]
            fn decode_array<const N: usize>(d: &mut Decoder<'_>) -> Result<[$number; N], CdrError> {
                d.read_number_array()
            }
        }
    )*};
}

primitives! {
    u8: write_u8 read_u8,
    i8: write_i8 read_i8,
    u16: write_u16 read_u16,
    i16: write_i16 read_i16,
    u32: write_u32 read_u32,
    i32: write_i32 read_i32,
    u64: write_u64 read_u64,
    i64: write_i64 read_i64,
    f32: write_f32 read_f32,
    f64: write_f64 read_f64,
}

impl Cdr for bool {
    const MIN_SIZE: usize = 1;

    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_bool(*self);
        Ok(())
    }

    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<bool, CdrError> {
        d.read_bool()
    }

    fn encode_all(values: &[bool], e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_bools(values);
        Ok(())
    }

    fn decode_many(len: usize, d: &mut Decoder<'_>) -> Result<Vec<bool>, CdrError> {
        let octets = d.read_bytes(len)?;
        d.charge(len)?;
        Ok(octets.iter().map(|octet| *octet != 0).collect())
    }
}

impl Cdr for String {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_str(self)
    }

    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<String, CdrError> {
        d.read_string()
    }
}

impl Cdr for Octets {
    const MIN_SIZE: usize = 4;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        if self.len() < super::BORROW_THRESHOLD {
            e.write_octet_sequence_copied(self)
        } else {
            e.write_octet_sequence_owned(self.clone())
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Octets, CdrError> {
        d.read_octet_sequence_owned()
    }
}

impl<T: Cdr> Cdr for Vec<T> {
    const MIN_SIZE: usize = 4;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_len(self.len())?;
        T::encode_all(self, e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Vec<T>, CdrError> {
        let len = d.read_len(T::MIN_SIZE)?;
        T::decode_many(len, d)
    }
}

impl<T: Cdr, const N: usize> Cdr for [T; N] {
    const MIN_SIZE: usize = N * T::MIN_SIZE;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        T::encode_all(self, e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<[T; N], CdrError> {
        T::decode_array(d)
    }
}

impl<T: Cdr, const N: usize> Cdr for Box<[T; N]> {
    const MIN_SIZE: usize = N * T::MIN_SIZE;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        T::encode_all(self.as_slice(), e)
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Box<[T; N]>, CdrError> {
        if d.remaining_len() < Self::MIN_SIZE {
            return Err(CdrError::Truncated);
        }
        let values = T::decode_many(N, d)?.into_boxed_slice();
        values.try_into().map_err(|_| CdrError::Truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endian;

    fn round_trip<T: Cdr + PartialEq + std::fmt::Debug>(value: T) {
        for endian in [Endian::Big, Endian::Little] {
            let mut e = Encoder::new();
            e.set_endian(endian);
            e.write_u8(0xff);
            value.encode(&mut e).unwrap();
            assert!(e.len() > T::MIN_SIZE);
            let octets = e.to_vec();
            let mut d = Decoder::new(&octets, endian).at_position(1);
            assert_eq!(T::decode(&mut d).unwrap(), value);
            assert_eq!(d.remaining_len(), 0);
            for len in 1..octets.len() {
                assert!(T::decode(&mut Decoder::new(&octets[..len], endian).at_position(1)).is_err());
            }
        }
    }

    #[test]
    fn every_implementation_round_trips() {
        round_trip(-5i16);
        round_trip(true);
        round_trip(1.5f64);
        round_trip("text".to_owned());
        round_trip(vec![1i64, -2]);
        round_trip(vec![true, false]);
        round_trip(vec!["a".to_owned(), String::new()]);
        round_trip([1u16, 2, 3]);
        round_trip(["a".to_owned(), "b".to_owned()]);
        round_trip(Box::new([[1u32, 2], [3, 4]]));
        round_trip(Octets::from(vec![1, 2, 3]));
    }

    #[test]
    fn a_count_far_beyond_the_message_allocates_nothing() {
        let octets = [0xff; 64];
        assert_eq!(Vec::<String>::decode(&mut Decoder::new(&octets, Endian::Big)), Err(CdrError::CountExceedsInput));
        assert_eq!(Box::<[u64; 1 << 24]>::decode(&mut Decoder::new(&octets, Endian::Big)), Err(CdrError::Truncated));
    }

    #[test]
    fn recursive_types_stop_at_the_nesting_limit() {
        #[derive(Debug)]
        struct Node(#[expect(dead_code, reason = "read by Debug")] Vec<Node>);
        impl Cdr for Node {
            const MIN_SIZE: usize = 4;
            fn encode(&self, _: &mut Encoder<'_>) -> Result<(), CdrError> {
                Ok(())
            }
            fn decode(d: &mut Decoder<'_>) -> Result<Node, CdrError> {
                Vec::decode(d).map(Node)
            }
        }
        let octets = [0, 0, 0, 1].repeat(1 << 16);
        assert_eq!(Node::decode(&mut Decoder::new(&octets, Endian::Big)).unwrap_err(), CdrError::NestingTooDeep);
    }
}
