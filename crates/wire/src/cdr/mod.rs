//! Common Data Representation: IDL values as bytes (CORBA 3.0.3 section 15.3).
//!
//! Every primitive is aligned to its size, but to 8 bytes at most, counted from an origin: the
//! first byte of the GIOP header, or the byte-order octet of an encapsulation. The sender announces
//! its byte order, and a receiver with another byte order swaps.
//!
//! | type | octets | alignment | form |
//! |---|---|---|---|
//! | octet, char, boolean | 1 | 1 | |
//! | short, unsigned short | 2 | 2 | two's complement |
//! | long, unsigned long, enum, float | 4 | 4 | an enum is the position of its member, from 0 |
//! | long long, unsigned long long, double | 8 | 8 | |
//! | long double | 16 | 8 | IEEE quad |
//! | wchar | | | see [`codeset`](crate::codeset) |
//! | fixed\<d,s\> | d / 2 + 1 | 1 | packed decimal, last half-octet C (not negative) or D |
//! | string | 4 + n | 4 | unsigned long n, octets, NUL; n counts the NUL |
//! | wstring | | 4 | see [`codeset`](crate::codeset) |
//! | sequence | 4 + ... | 4 | unsigned long count, elements; no padding after a count of 0 |
//! | array, struct, exception | | | elements or members in order, nothing else |
//! | union | | | discriminator, then the selected member if any |
//! | valuetype | | 4 | first occurrence: tag, repository ids, state (possibly in chunks); later ones: an indirection |
//! | encapsulation | 4 + n | 4 | unsigned long n, byte-order octet, values aligned from that octet |
//!
//! Padding is written as 0 and ignored when read.

mod bulk;
mod decoder;
mod encoder;
mod error;
mod fixed;
mod meter;
mod octets;
mod primitive;
mod result_memory;
mod scratch;
mod tagged;
mod text;
mod value;
mod value_path;
mod valuetype;

pub use bulk::{BulkCdr, BulkLayout, BulkReader, BulkWriter};
pub use decoder::Decoder;
pub use encoder::{Encoder, TruncationPoint};
pub use error::CdrError;
pub use meter::{MemoryAccount, MemoryMeter, MemoryRefusal};
#[cfg(feature = "charged-octets")]
pub use octets::ChargedOctets;
pub use octets::Octets;
pub use primitive::{Primitive, numbers_in, numbers_in_mut};
pub use result_memory::{MessageTail, ResultMemory, TailSource};
pub use scratch::Scratch;
pub use tagged::{TaggedIter, TaggedList};
pub use value::Cdr;
pub use value_path::{PathRecorder, PathStep, ValuePath};
pub(crate) use valuetype::ValueTypes;
pub use valuetype::{
    CustomValueConverter, RepositoryIds, UnfinishedValue, ValueHead, ValueReadState, ValueStart, ValueTypeLookup,
};

pub(crate) use error::truncated;
pub(crate) use tagged::write_tagged;

/// Size in bytes from which the encoder borrows or takes over slices instead of copying them, and
/// the decoder shares the memory of owned octets.
pub const BORROW_THRESHOLD: usize = 16 * 1024;

/// Maximum number of segments (borrowed or owned slices) of an encoder; further octets are copied.
pub const MAX_ENCODER_SEGMENTS: usize = 8;

/// Maximum number of slices of an encoder: its segments and the parts of the buffer around them.
pub const MAX_ENCODER_SLICES: usize = 2 * MAX_ENCODER_SEGMENTS + 1;

/// The byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Most significant byte first; 0 in a byte-order octet.
    Big,
    /// Least significant byte first; 1 in a byte-order octet.
    Little,
}

impl Endian {
    /// The byte order of this machine.
    pub const NATIVE: Endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };

    /// Returns the byte order that a byte-order octet or the flags of a GIOP header announce.
    #[inline]
    #[must_use]
    pub const fn from_flag(octet: u8) -> Endian {
        if octet & 1 == 0 { Endian::Big } else { Endian::Little }
    }

    /// Returns the byte-order octet.
    #[inline]
    #[must_use]
    pub const fn to_flag(self) -> u8 {
        match self {
            Endian::Big => 0,
            Endian::Little => 1,
        }
    }

    #[inline]
    pub(crate) const fn needs_swap(self) -> bool {
        !matches!((self, Endian::NATIVE), (Endian::Big, Endian::Big) | (Endian::Little, Endian::Little))
    }
}
