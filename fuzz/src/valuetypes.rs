//! The fuzz target `valuetypes`, which decodes values (IDL `valuetype`) with code that the IDL
//! compiler generates from `idl/valuetypes.idl`.

use corelane::ValueFactories;
use corelane::mapping::read_value;
use corelane_wire::cdr::{Cdr, CdrError, Decoder, Encoder, Endian, ValueReadState};
use corelane_wire::limits::Limits;

use v::{B, C, D, E, N, S, T};

corelane::include_idl!("valuetypes");

static LIMITS: Limits = Limits {
    max_nesting: 24,
    max_valuetype_instances: 48,
    max_repository_ids: 4,
    max_repository_id_length: 24,
    ..Limits::DEFAULT
};

/// Decodes a structure with values of every kind, or four values of one type. Bits of the first
/// octet select between the two, the byte order and the registered types.
///
/// # Panics
///
/// If a value that was encoded and decoded again is encoded to different bytes.
pub fn valuetypes(input: &[u8]) {
    let Some((settings, octets)) = input.split_first() else { return };
    let factories = ValueFactories::new();
    let known: [fn(&ValueFactories); 6] = [
        ValueFactories::register::<D>,
        ValueFactories::register::<E>,
        ValueFactories::register::<C>,
        ValueFactories::register::<N>,
        ValueFactories::register::<B>,
        ValueFactories::register::<T>,
    ];
    for (bit, register) in known.iter().enumerate() {
        if settings >> (bit + 1) & 1 == 1 {
            register(&factories);
        }
    }
    let endian = Endian::from_flag(*settings);
    if settings >> 7 == 0 {
        check(octets, endian, &factories, S::decode, S::encode);
    } else {
        check(
            octets,
            endian,
            &factories,
            |d| (0..4).map(|_| read_value::<N>(d)).collect::<Result<Vec<_>, _>>(),
            |values, e| values.iter().try_for_each(|value| corelane::mapping::write_value(e, value.as_ref())),
        );
    }
}

fn check<T>(
    octets: &[u8],
    endian: Endian,
    factories: &ValueFactories,
    read: impl Fn(&mut Decoder<'_>) -> Result<T, CdrError>,
    write: impl Fn(&T, &mut Encoder<'_>) -> Result<(), CdrError>,
) {
    let reading = |octets: &[u8]| {
        let space = ValueReadState::new();
        let mut d = Decoder::new(octets, endian)
            .with_limits(&LIMITS)
            .with_value_read_state(&space)
            .with_decoding_context(factories);
        read(&mut d).ok()
    };
    let writing = |value: &T| {
        let mut e = Encoder::new();
        e.set_endian(endian);
        write(value, &mut e).ok().map(|()| e.to_vec())
    };
    let Some(value) = reading(octets) else { return };
    // A decoded string may contain NUL, which cannot be encoded.
    let Some(written) = writing(&value) else { return };
    let again = reading(&written);
    // The encoded values may have another order and therefore a deeper nesting, so the second
    // reading may exceed the limit.
    if let Some(again) = again {
        assert_eq!(writing(&again), Some(written), "a value that was decoded again is encoded to the same bytes");
    }
}
