//! Round trips of wide text in UTF-16 that begins with each character of the basic plane, in both
//! byte orders: as a wchar, in a wstring, and for some characters in a forwarded `any`.

use corelane_wire::codeset::WideByteOrder;
use corelane_wire::{AnyValue, Cdr, CodeSets, Decoder, Encoder, Endian, TypeCode, Value, Version};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Form {
    endian: Endian,
    version: Version,
    wide_order: WideByteOrder,
}

impl Form {
    const ALL: [Form; 6] = [
        Form { endian: Endian::Big, version: Version::GIOP_1_1, wide_order: WideByteOrder::SpecifiedOrder },
        Form { endian: Endian::Little, version: Version::GIOP_1_1, wide_order: WideByteOrder::SpecifiedOrder },
        Form { endian: Endian::Big, version: Version::GIOP_1_2, wide_order: WideByteOrder::SpecifiedOrder },
        Form { endian: Endian::Little, version: Version::GIOP_1_2, wide_order: WideByteOrder::SpecifiedOrder },
        Form { endian: Endian::Big, version: Version::GIOP_1_2, wide_order: WideByteOrder::MessageOrder },
        Form { endian: Endian::Little, version: Version::GIOP_1_2, wide_order: WideByteOrder::MessageOrder },
    ];

    fn code_sets(self) -> CodeSets {
        CodeSets { wide_order: self.wide_order, ..CodeSets::UTF8_UTF16 }
    }

    fn encoder(self) -> Encoder<'static> {
        let mut e = Encoder::new();
        e.set_endian(self.endian);
        e.set_version(self.version);
        e.set_code_sets(self.code_sets());
        e
    }

    fn decoder(self, octets: &[u8]) -> Decoder<'_> {
        Decoder::new(octets, self.endian).with_version(self.version).with_code_sets(self.code_sets())
    }

    fn unit(self, character: char) -> [u8; 2] {
        let unit = u16::try_from(u32::from(character)).unwrap();
        let is_big = self.endian == Endian::Big
            || (self.version == Version::GIOP_1_2 && self.wide_order == WideByteOrder::SpecifiedOrder);
        if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() }
    }
}

fn characters() -> impl Iterator<Item = char> {
    (1..=0xffff).filter_map(char::from_u32)
}

fn is_like_a_mark(character: char) -> bool {
    matches!(character, '\u{feff}' | '\u{fffe}')
}

#[test]
fn text_round_trips_with_every_first_character() {
    for form in Form::ALL {
        let marks = form.version == Version::GIOP_1_2;
        for character in characters() {
            for text in [character.to_string(), format!("{character}A"), format!("{character}\u{feff}\u{fffe}")] {
                let mut e = form.encoder();
                e.write_bounded_wstr(&text, 3).unwrap();
                let octets = e.to_vec();
                let read = form.decoder(&octets).read_bounded_wstring(3);
                assert_eq!(read.as_deref(), Ok(&text[..]), "{form:?} {text:?}");
                let has_mark = marks && is_like_a_mark(character);
                let mark = if has_mark { form.unit('\u{feff}').to_vec() } else { Vec::new() };
                let units = text.chars().flat_map(|character| form.unit(character));
                let end = if marks { 0 } else { 2 };
                let expected: Vec<u8> = mark.into_iter().chain(units).chain(vec![0; end]).collect();
                assert_eq!(octets.get(4..), Some(&expected[..]), "{form:?} {text:?}");
                let count = if marks { expected.len() } else { expected.len() / 2 };
                assert_eq!(form.decoder(&octets).read_u32(), Ok(u32::try_from(count).unwrap()));
            }
        }
    }
}

#[test]
fn every_character_round_trips() {
    for form in Form::ALL {
        for character in std::iter::once('\0').chain(characters()) {
            let mut e = form.encoder();
            e.write_wchar(character).unwrap();
            let octets = e.to_vec();
            assert_eq!(form.decoder(&octets).read_wchar(), Ok(character), "{form:?}");
            let head: &[u8] = if form.version == Version::GIOP_1_1 { &[] } else { &[2] };
            assert_eq!(octets, [head, &form.unit(character)].concat());
        }
    }
}

/// Some ORBs write a mark before every text and every character. The reader removes this mark only,
/// even if the next character looks like a mark.
#[test]
fn byte_order_mark_is_removed_once() {
    let form = Form { endian: Endian::Little, version: Version::GIOP_1_2, wide_order: WideByteOrder::SpecifiedOrder };
    for endian in [Endian::Big, Endian::Little] {
        let units = |units: [u16; 2]| {
            units.map(|unit| if endian == Endian::Big { unit.to_be_bytes() } else { unit.to_le_bytes() })
        };
        for character in characters() {
            let unit = u16::try_from(u32::from(character)).unwrap();
            let marked = units([0xfeff, unit]).concat();
            let text = [&[4, 0, 0, 0][..], &marked].concat();
            assert_eq!(form.decoder(&text).read_wstring(), Ok(character.to_string()));
            let single = [&[4][..], &marked].concat();
            assert_eq!(form.decoder(&single).read_wchar(), Ok(character));
        }
        let [mark, _] = units([0xfeff, 0]);
        assert_eq!(form.decoder(&[&[2, 0, 0, 0][..], &mark].concat()).read_wstring(), Ok(String::new()));
    }
}

#[test]
fn text_in_an_any_round_trips_through_every_form() {
    let type_code = TypeCode::structure("IDL:W:1.0", "W", [("c", TypeCode::WCHAR), ("s", TypeCode::WSTRING)]).unwrap();
    for character in characters().filter(|character| u32::from(*character) % 16 >= 13) {
        let value = Value::Struct(vec![Value::WChar(character), Value::WString(format!("{character}A"))]);
        let original = AnyValue::from_value(&type_code, &value).unwrap();
        for first in Form::ALL {
            let through = |any: &AnyValue, form: Form| {
                let mut e = form.encoder();
                any.encode(&mut e).unwrap();
                AnyValue::decode(&mut form.decoder(&e.to_vec())).unwrap()
            };
            let came = through(&original, first);
            assert_eq!(came.value().as_ref(), Ok(&value), "{first:?}");
            for second in Form::ALL {
                let went_on = through(&came, second);
                assert_eq!((went_on.value().as_ref(), &went_on), (Ok(&value), &original), "{first:?} {second:?}");
            }
        }
    }
}

#[test]
fn wide_character_selects_the_arm_of_a_union() {
    use corelane_wire::dynamic::UnionValue;
    use corelane_wire::typecode::UnionMember;
    let arms = ['a', '\u{feff}', '\u{fffe}'].map(|label| UnionMember {
        label: Some(u32::from(label).into()),
        name: format!("m{:x}", u32::from(label)),
        ty: TypeCode::LONG,
    });
    let type_code = TypeCode::union("IDL:U:1.0", "U", TypeCode::WCHAR, arms).unwrap();
    for form in Form::ALL {
        for label in ['a', '\u{feff}', '\u{fffe}'] {
            let discriminator = u32::from(label).into();
            let value = Value::Union(Box::new(UnionValue { discriminator, member: Some(Value::Long(1)) }));
            let any = AnyValue::from_value(&type_code, &value).unwrap();
            let mut e = form.encoder();
            any.encode(&mut e).unwrap();
            let read = AnyValue::decode(&mut form.decoder(&e.to_vec())).unwrap();
            assert_eq!((read.type_code(), read.value().as_ref()), (&type_code, Ok(&value)), "{form:?}");
        }
    }
}
