//! The fuzz target `generated`, which decodes the input with code that the IDL compiler generates
//! from `idl/values.idl`.

use corelane_wire::cdr::{Cdr, Decoder, Encoder, Endian, Scratch};
use corelane_wire::codeset::{CharSet, CodeSets, WideByteOrder, WideCodeSet};
use corelane_wire::giop::Version;

use values::{
    Choice, Colour, Empty, Exact, Failed, Huge, Letter, Maybe, Nested, Number, Plain, Points, Shape, Tiny, Tree,
    Variable, Wide,
};

corelane::include_idl!("values");

/// Decodes a value. The first octet selects its type, the second octet the byte order, the GIOP
/// version and the code sets.
///
/// # Panics
///
/// If an encoded value cannot be decoded again or is then encoded to different bytes, or if a
/// decoded value is shorter than the minimum size of its type.
pub fn generated(input: &[u8]) {
    let [choice, settings, octets @ ..] = input else { return };
    let reader = Settings::of(*settings);
    let check = match choice % 18 {
        0 => check::<Plain>,
        1 => check::<Variable>,
        2 => check::<Wide>,
        3 => check::<Tree>,
        4 => check::<Shape>,
        5 => check::<Number>,
        6 => check::<Maybe>,
        7 => check::<Letter>,
        8 => check::<Tiny>,
        9 => check::<Huge>,
        10 => check::<Choice>,
        11 => check::<Empty>,
        12 => check::<Failed>,
        13 => check::<Colour>,
        14 => check::<Vec<Plain>>,
        15 => check::<Vec<Exact>>,
        16 => check::<Vec<Nested>>,
        _ => check::<Vec<Points>>,
    };
    check(octets, reader);
}

#[derive(Clone, Copy)]
struct Settings {
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
}

impl Settings {
    fn of(octet: u8) -> Self {
        let bit = |bit: u8| octet >> bit & 1 == 1;
        let versions = [Version::GIOP_1_2, Version::GIOP_1_1, Version::GIOP_1_0, Version::GIOP_1_2];
        Self {
            endian: Endian::from_flag(octet),
            version: versions[usize::from(octet >> 1 & 3)],
            code_sets: CodeSets {
                char: if bit(3) { CharSet::Latin1 } else { CharSet::Utf8 },
                wchar: if bit(4) { WideCodeSet::None } else { WideCodeSet::Utf16 },
                wide_order: if bit(5) { WideByteOrder::MessageOrder } else { WideByteOrder::SpecifiedOrder },
            },
        }
    }

    fn read<T: Cdr>(self, octets: &[u8]) -> Option<T> {
        let scratch = Scratch::new();
        let mut d = Decoder::new(octets, self.endian)
            .with_version(self.version)
            .with_code_sets(self.code_sets)
            .with_scratch(&scratch);
        let value = T::decode(&mut d).ok()?;
        assert!(d.position() <= octets.len() && d.position() >= T::MIN_SIZE);
        Some(value)
    }

    fn write<T: Cdr>(self, value: &T) -> Option<Vec<u8>> {
        let mut e = Encoder::new();
        e.set_endian(self.endian);
        e.set_version(self.version);
        e.set_code_sets(self.code_sets);
        value.encode(&mut e).ok()?;
        Some(e.to_vec())
    }
}

fn check<T: Cdr>(octets: &[u8], settings: Settings) {
    let Some(value) = settings.read::<T>(octets) else { return };
    // A decoded value may contain data that cannot be encoded, such as NUL in a string.
    let Some(written) = settings.write(&value) else { return };
    let again = settings.read::<T>(&written);
    // The encoded forms are compared, because a NaN does not equal itself.
    assert_eq!(
        again.and_then(|again| settings.write(&again)),
        Some(written),
        "a value that was decoded again is encoded to the same bytes"
    );
}
