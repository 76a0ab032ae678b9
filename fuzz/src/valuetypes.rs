//! The target `valuetypes`: what the IDL compiler made of `idl/valuetypes.idl` reads values of a peer.

use corelane::ValueFactories;
use corelane::mapping::read_value;
use corelane_wire::cdr::{Cdr, CdrError, Decoder, Encoder, Endian, ValueSpace};
use corelane_wire::limits::Limits;

use v::{B, C, D, E, N, S, T};

corelane::include_idl!("valuetypes");

/// Small limits, so that short inputs reach them.
static LIMITS: Limits = Limits { nesting: 24, values: 48, repository_ids: 4, repository_id: 24, ..Limits::DEFAULT };

/// Reads a structure with values of every kind; the first octet says the byte order and which types are known.
///
/// # Panics
///
/// Where a value that was read, and can be written, reads differently.
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
        let space = ValueSpace::new();
        let mut d = Decoder::new(octets, endian).with_limits(&LIMITS).with_values(&space).with_env(factories);
        read(&mut d).ok()
    };
    let writing = |value: &T| {
        let mut e = Encoder::new();
        e.set_endian(endian);
        write(value, &mut e).ok().map(|()| e.to_vec())
    };
    let Some(value) = reading(octets) else { return };
    // Strings that were read may hold NUL, which is not sent.
    let Some(written) = writing(&value) else { return };
    let again = reading(&written);
    // Written in another order of meeting, values may lie deeper within each other than they were read.
    if let Some(again) = again {
        assert_eq!(writing(&again), Some(written), "read again, and written again");
    }
}
