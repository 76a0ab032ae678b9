//! Round trips of values of random types, as trees and inside `any`.

use corelane_wire::exception::SystemExceptionKind;
use corelane_wire::ior::{Ior, TaggedProfile};
use corelane_wire::typecode::{TypeCodeKind, UnionMember};
use corelane_wire::{
    AnyValue, Cdr, CdrError, CodeSets, Decoder, Encoder, Endian, Limits, Octets, TypeCode, Value, Version,
    dynamic::UnionValue,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn leaf_type() -> impl Strategy<Value = TypeCode> {
    let basic = select(vec![
        TypeCode::SHORT,
        TypeCode::LONG,
        TypeCode::USHORT,
        TypeCode::ULONG,
        TypeCode::FLOAT,
        TypeCode::DOUBLE,
        TypeCode::BOOLEAN,
        TypeCode::CHAR,
        TypeCode::OCTET,
        TypeCode::ANY,
        TypeCode::TYPE_CODE,
        TypeCode::LONG_LONG,
        TypeCode::ULONG_LONG,
        TypeCode::LONG_DOUBLE,
        TypeCode::WCHAR,
        TypeCode::STRING,
        TypeCode::WSTRING,
        TypeCode::OBJECT,
    ]);
    prop_oneof![
        4 => basic,
        1 => (1..20u32).prop_map(TypeCode::string),
        1 => (1..20u32).prop_map(TypeCode::wstring),
        1 => (1..=31u16, 0..=5i16).prop_map(|(digits, scale)| TypeCode::fixed(digits, scale.min(digits.cast_signed())).unwrap()),
        1 => (1..5usize, any::<u8>()).prop_map(|(count, id)| enumeration(count, id)),
    ]
}

fn enumeration(count: usize, id: u8) -> TypeCode {
    TypeCode::enumeration(&format!("IDL:E{id}:1.0"), "E", (0..count).map(|index| format!("e{index}"))).unwrap()
}

fn any_type() -> impl Strategy<Value = TypeCode> {
    leaf_type().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0..5u32).prop_map(|(element, bound)| TypeCode::sequence(element, bound).unwrap()),
            (inner.clone(), 1..4u32).prop_map(|(element, length)| TypeCode::array(element, length).unwrap()),
            (inner.clone(), any::<u8>())
                .prop_map(|(of, id)| TypeCode::alias(&format!("IDL:A{id}:1.0"), "A", of).unwrap()),
            (vec(inner.clone(), 1..5), any::<u8>()).prop_map(|(members, id)| structure(members, id)),
            (discriminator(), vec(inner, 1..4), any::<bool>()).prop_map(|(discriminator, arms, default)| union(
                &discriminator,
                arms,
                default
            )),
        ]
    })
}

fn structure(members: Vec<TypeCode>, id: u8) -> TypeCode {
    let members = members.into_iter().enumerate().map(|(index, ty)| (format!("m{index}"), ty));
    TypeCode::structure(&format!("IDL:S{id}:1.0"), "S", members).unwrap()
}

fn discriminator() -> impl Strategy<Value = TypeCode> {
    let kinds = [TypeCode::SHORT, TypeCode::ULONG, TypeCode::LONG_LONG, TypeCode::CHAR, TypeCode::OCTET];
    prop_oneof![select(kinds.to_vec()), Just(TypeCode::BOOLEAN), Just(enumeration(3, 255))]
}

fn union(discriminator: &TypeCode, arms: Vec<TypeCode>, default: bool) -> TypeCode {
    let most = if *discriminator == TypeCode::BOOLEAN { 2 } else { 3 };
    let count = arms.len().min(most);
    let arms = arms.into_iter().take(most).enumerate().map(|(index, ty)| {
        let label = (!(default && index + 1 == count)).then(|| i128::try_from(index).unwrap());
        UnionMember { label, name: format!("a{index}"), ty }
    });
    TypeCode::union("IDL:U:1.0", "U", discriminator.clone(), arms.collect::<Vec<_>>()).unwrap()
}

fn text(bound: u32) -> impl Strategy<Value = String> {
    let most = if bound == 0 { 12 } else { bound as usize };
    vec(select(('a'..='z').collect::<Vec<_>>()), 0..=most).prop_map(String::from_iter)
}

fn reference() -> impl Strategy<Value = Ior> {
    let profiles = vec((0..4u32, vec(any::<u8>(), 0..9)), 0..3);
    ("[a-z]{0,5}", profiles).prop_map(|(type_id, profiles)| Ior {
        type_id,
        profiles: profiles.into_iter().map(|(tag, data)| TaggedProfile { tag, data }).collect(),
    })
}

fn value(type_code: &TypeCode) -> BoxedStrategy<Value> {
    let type_code = type_code.unaliased();
    let length = type_code.length().unwrap_or(0);
    match type_code.kind() {
        TypeCodeKind::Short => any::<i16>().prop_map(Value::Short).boxed(),
        TypeCodeKind::Long => any::<i32>().prop_map(Value::Long).boxed(),
        TypeCodeKind::UShort => any::<u16>().prop_map(Value::UShort).boxed(),
        TypeCodeKind::ULong => any::<u32>().prop_map(Value::ULong).boxed(),
        TypeCodeKind::Float => (-1e9f32..1e9).prop_map(Value::Float).boxed(),
        TypeCodeKind::Double => (-1e99f64..1e99).prop_map(Value::Double).boxed(),
        TypeCodeKind::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        TypeCodeKind::Char => select(vec!['a', 'z', '~']).prop_map(Value::Char).boxed(),
        TypeCodeKind::WChar => select(vec!['a', 'é', '€']).prop_map(Value::WChar).boxed(),
        TypeCodeKind::Octet => any::<u8>().prop_map(Value::Octet).boxed(),
        TypeCodeKind::LongLong => any::<i64>().prop_map(Value::LongLong).boxed(),
        TypeCodeKind::ULongLong => any::<u64>().prop_map(Value::ULongLong).boxed(),
        TypeCodeKind::LongDouble => any::<[u8; 16]>().prop_map(Value::LongDouble).boxed(),
        TypeCodeKind::String => text(length).prop_map(Value::String).boxed(),
        TypeCodeKind::WString => text(length).prop_map(Value::WString).boxed(),
        TypeCodeKind::ObjRef => reference().prop_map(Value::Object).boxed(),
        TypeCodeKind::TypeCode => any_type().prop_map(Value::TypeCode).boxed(),
        TypeCodeKind::Any => leaf_type()
            .prop_filter("any in any ends", |inner| inner.kind() != TypeCodeKind::Any)
            .prop_flat_map(|inner| {
                value(&inner).prop_map(move |value| Value::Any(Box::new(AnyValue::from_value(&inner, &value).unwrap())))
            })
            .boxed(),
        TypeCodeKind::Fixed => {
            let digits = type_code.digits_and_scale().map_or(1, |(digits, _)| u32::from(digits));
            (-(10i128.pow(digits) - 1)..10i128.pow(digits)).prop_map(Value::Fixed).boxed()
        }
        TypeCodeKind::Enum => (0..u32::try_from(type_code.member_count()).unwrap()).prop_map(Value::Enum).boxed(),
        TypeCodeKind::Struct => {
            let members = (0..type_code.member_count()).map(|index| value(&type_code.member_type(index).unwrap()));
            members.collect::<Vec<_>>().prop_map(Value::Struct).boxed()
        }
        TypeCodeKind::Union => union_value(type_code),
        TypeCodeKind::Sequence | TypeCodeKind::Array => {
            let element = type_code.content_type().unwrap();
            let most = length as usize;
            let range = match type_code.kind() {
                TypeCodeKind::Array => most..=most,
                _ if most == 0 => 0..=5,
                _ => 0..=most,
            };
            if element.unaliased().kind() == TypeCodeKind::Octet {
                return vec(any::<u8>(), range).prop_map(|octets| Value::Octets(Octets::from(octets))).boxed();
            }
            vec(value(&element), range).prop_map(Value::List).boxed()
        }
        kind => panic!("no values of {kind}"),
    }
}

fn union_value(type_code: TypeCode) -> BoxedStrategy<Value> {
    let most = match type_code.discriminator_type().unwrap().unaliased().kind() {
        TypeCodeKind::Boolean => 2,
        TypeCodeKind::Enum => 3,
        _ => 6,
    };
    let choose = (0i128..most).prop_flat_map(move |label| {
        let arm = (0..type_code.member_count()).find(|arm| type_code.member_label(*arm) == Some(label));
        let arm = arm.or(type_code.default_index()).and_then(|arm| type_code.member_type(arm));
        let member = match arm {
            Some(arm) => value(&arm).prop_map(Some).boxed(),
            None => Just(None).boxed(),
        };
        member.prop_map(move |member| Value::Union(Box::new(UnionValue { discriminator: label, member })))
    });
    choose.boxed()
}

fn typed() -> impl Strategy<Value = (TypeCode, Value)> {
    any_type().prop_flat_map(|type_code| (Just(type_code.clone()), value(&type_code)))
}

#[derive(Clone, Copy, Debug)]
struct Place {
    before: usize,
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
}

fn place() -> impl Strategy<Value = Place> {
    let endian = select(vec![Endian::Big, Endian::Little]);
    let version = select(vec![Version::GIOP_1_1, Version::GIOP_1_2]);
    let code_sets = select(vec![CodeSets::LATIN1_UTF16, CodeSets::UTF8_UTF16]);
    (0..9usize, endian, version, code_sets).prop_map(|(before, endian, version, code_sets)| Place {
        before,
        endian,
        version,
        code_sets,
    })
}

fn written<T: Cdr>(value: &T, place: Place) -> Vec<u8> {
    let mut e = Encoder::new();
    e.set_endian(place.endian);
    e.set_version(place.version);
    e.set_code_sets(place.code_sets);
    e.write_bytes(&vec![7; place.before]);
    value.encode(&mut e).unwrap();
    e.write_u8(0xaa);
    e.to_vec()
}

fn read<T: Cdr>(octets: &[u8], place: Place) -> Result<T, CdrError> {
    let mut d = Decoder::new(octets, place.endian)
        .at_position(place.before)
        .with_version(place.version)
        .with_code_sets(place.code_sets);
    let value = T::decode(&mut d)?;
    assert_eq!((d.read_u8(), d.remaining_len()), (Ok(0xaa), 0));
    Ok(value)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoded_type_equals_the_encoded_type((a, b) in (any_type(), any_type()), place in place()) {
        prop_assert_eq!(read::<TypeCode>(&written(&a, place), place).unwrap(), a.clone());
        prop_assert!(a.equivalent(&a) && a.compact().equivalent(&a));
        prop_assert_eq!(a.equivalent(&b), b.equivalent(&a));
        prop_assert!(a != b || a.equivalent(&b));
    }

    #[test]
    fn values_round_trip_through_any_in_every_form((type_code, value) in typed(), places in vec(place(), 1..4)) {
        let original = AnyValue::from_value(&type_code, &value).unwrap();
        let mut any = original.clone();
        for place in places {
            let octets = written(&any, place);
            any = read(&octets, place).unwrap();
            prop_assert_eq!(written(&any, place), octets);
        }
        prop_assert_eq!(any.value().unwrap(), value);
        prop_assert_eq!(any, original);
    }

    #[test]
    fn nested_any_round_trips((type_code, value) in typed(), a in place(), b in place()) {
        let inner = AnyValue::from_value(&type_code, &value).unwrap();
        let inner: AnyValue = read(&written(&inner, a), a).unwrap();
        let list = TypeCode::sequence(TypeCode::ANY, 0).unwrap();
        let elements = Value::List(vec![Value::Any(Box::new(inner.clone())), Value::Any(Box::new(inner.clone()))]);
        let outer = AnyValue::from_value(&list, &elements).unwrap();
        let outer: AnyValue = read(&written(&outer, b), b).unwrap();
        prop_assert_eq!(outer.value().unwrap(), elements);
    }

    #[test]
    fn truncated_and_changed_octets_cause_no_panic((type_code, value) in typed(), place in place(), cut in any::<u16>(), flip in any::<u8>()) {
        let octets = written(&AnyValue::from_value(&type_code, &value).unwrap(), place);
        let cut = place.before + usize::from(cut) % (octets.len() - place.before);
        let part = Decoder::new(&octets[..cut], place.endian).at_position(place.before);
        let _ = AnyValue::decode(&mut part.with_version(place.version).with_code_sets(place.code_sets));
        let mut changed = octets.clone();
        changed[cut] ^= flip;
        let whole = Decoder::new(&changed, place.endian).at_position(place.before);
        if let Ok(any) = AnyValue::decode(&mut whole.with_version(place.version).with_code_sets(place.code_sets)) {
            let _ = (any.value(), any == any.clone());
        }
    }

    #[test]
    fn initial_value_is_a_value_of_its_type(type_code in any_type()) {
        let value = Value::default_of_type(&type_code).unwrap();
        if let Ok(any) = AnyValue::from_value(&type_code, &value) {
            prop_assert_eq!(any.value().unwrap(), value);
        }
    }
}

#[test]
fn values_written_dynamically_are_read_statically_and_the_reverse() {
    fn same<T: Cdr + PartialEq + std::fmt::Debug>(value: &T, type_code: &TypeCode, tree: Value) {
        let of_static = AnyValue::from_writer(type_code, |e| value.encode(e)).unwrap();
        assert_eq!(of_static.value().unwrap(), tree);
        assert_eq!(AnyValue::from_value(type_code, &tree).unwrap().read(|d| T::decode(d)).as_ref(), Ok(value));
    }
    let sequence = |element| TypeCode::sequence(element, 0).unwrap();
    same(&-3i16, &TypeCode::SHORT, Value::Short(-3));
    same(&1.5f64, &TypeCode::DOUBLE, Value::Double(1.5));
    same(&"text".to_owned(), &TypeCode::STRING, Value::String("text".into()));
    same(&vec![1i64, 2], &sequence(TypeCode::LONG_LONG), Value::List(vec![Value::LongLong(1), Value::LongLong(2)]));
    same(&Octets::from(vec![1, 2]), &sequence(TypeCode::OCTET), Value::Octets(Octets::from(vec![1, 2])));
    same(&[[true, false]], &TypeCode::array(TypeCode::array(TypeCode::BOOLEAN, 2).unwrap(), 1).unwrap(), {
        Value::List(vec![Value::List(vec![Value::Boolean(true), Value::Boolean(false)])])
    });
}

#[test]
fn type_conforms_despite_bounds_and_width_of_text_only() {
    let wide = TypeCode::sequence(TypeCode::wstring(9), 3).unwrap();
    let any = AnyValue::from_value(&wide, &Value::List(vec![])).unwrap();
    assert!(any.conforms_to(&TypeCode::sequence(TypeCode::STRING, 0).unwrap()));
    assert!(!any.conforms_to(&TypeCode::sequence(TypeCode::LONG, 0).unwrap()) && !any.conforms_to(&TypeCode::STRING));
    assert!(any.clone().with_type(&TypeCode::alias("IDL:A:1.0", "A", wide).unwrap()).is_ok());
    assert_eq!(any.with_type(&TypeCode::LONG).err(), Some(CdrError::TypeMismatch));
}

#[test]
fn exception_in_an_any_begins_with_its_repository_id() {
    let failed = TypeCode::exception("IDL:F:1.0", "F", [("n", TypeCode::OCTET)]).unwrap();
    let value = Value::Struct(vec![Value::Octet(7)]);
    let any = AnyValue::from_value(&failed, &value).unwrap();
    assert_eq!(any.read(|d| Ok((d.read_string()?, d.read_u8()?))), Ok(("IDL:F:1.0".to_owned(), 7)));
    assert_eq!(any.value(), Ok(value));
}

#[test]
fn non_ascii_char_in_an_any_cannot_be_sent_in_utf_8() {
    let any = AnyValue::from_value(&TypeCode::CHAR, &Value::Char('é')).unwrap();
    assert_eq!(any.value().unwrap(), Value::Char('é'));
    let mut e = Encoder::new();
    e.set_code_sets(CodeSets::UTF8_UTF16);
    assert_eq!(any.encode(&mut e), Err(CdrError::CharacterNotInCodeSet));
    assert_eq!(CdrError::CharacterNotInCodeSet.kind(), SystemExceptionKind::DataConversion);
}

#[test]
fn char_discriminator_is_converted_between_code_sets() {
    let arms = [UnionMember { label: Some(0xe9), name: "a".into(), ty: TypeCode::OCTET }];
    let type_code = TypeCode::union("IDL:U:1.0", "U", TypeCode::CHAR, arms).unwrap();
    let of = |discriminator, member| Value::Union(Box::new(UnionValue { discriminator, member }));
    let chosen = of(0xe9, Some(Value::Octet(7)));
    let any = AnyValue::from_value(&type_code, &chosen).unwrap();
    assert_eq!(any.value().as_ref(), Ok(&chosen));
    let mut e = Encoder::new();
    e.set_code_sets(CodeSets::UTF8_UTF16);
    assert_eq!(any.encode_value(&mut e), Err(CdrError::CharacterNotInCodeSet));
    assert_eq!(chosen.encode(&type_code, &mut e), Err(CdrError::CharacterNotInCodeSet));
    let mut e = Encoder::new();
    e.set_code_sets(CodeSets::LATIN1_UTF16);
    any.encode_value(&mut e).unwrap();
    assert_eq!(e.to_vec(), [0xe9, 7]);
    let octets = [0xe9, 7];
    let mut d = Decoder::new(&octets, Endian::Big).with_code_sets(CodeSets::UTF8_UTF16);
    assert_eq!(Value::decode(&type_code, &mut d), Err(CdrError::CharacterNotInCodeSet));
}

/// omniORB writes a byte-order mark, and compares its own values with received values byte by byte.
/// Its values are therefore returned with their marks.
#[test]
fn wide_text_in_an_any_keeps_its_received_form() {
    let type_code = structure(vec![TypeCode::OCTET, TypeCode::wstring(0), TypeCode::DOUBLE, TypeCode::WCHAR], 1);
    let wide = |marked: bool| {
        AnyValue::from_writer(&type_code, |e| {
            e.write_u8(1);
            let text: &[u8] = if marked { &[0xff, 0xfe, 0xac, 0x20, 0x61, 0] } else { &[0x20, 0xac, 0, 0x61] };
            e.write_octet_sequence_copied(text)?;
            e.write_f64(0.5);
            let letter: &[u8] = if marked { &[4, 0xff, 0xfe, 0xac, 0x20] } else { &[2, 0x20, 0xac] };
            e.write_bytes(letter);
            Ok(())
        })
        .unwrap()
    };
    let (marked, plain) = (wide(true), wide(false));
    assert_eq!(marked, plain);
    assert_eq!(marked.value().unwrap(), plain.value().unwrap());
    for (any, has_mark) in [(&marked, true), (&plain, false)] {
        let octets = |endian, before| {
            let mut e = Encoder::new();
            e.set_endian(endian);
            e.set_code_sets(CodeSets::UTF8_UTF16);
            e.write_bytes(&[7; 8][..before]);
            any.encode_value(&mut e).unwrap();
            e.to_vec().split_off(before)
        };
        let shows = |octets: &[u8], part: &[u8]| octets.windows(part.len()).any(|window| window == part);
        for before in 0..8 {
            for endian in [Endian::Little, Endian::Big] {
                let octets = octets(endian, before);
                assert_eq!(shows(&octets, &[0xff, 0xfe, 0xac, 0x20, 0x61, 0]), has_mark);
                assert_eq!(shows(&octets, &[4, 0xff, 0xfe, 0xac, 0x20]), has_mark);
            }
        }
    }
    // GIOP 1.1 has another form of wide text, without marks.
    let place = Place { before: 3, endian: Endian::Big, version: Version::GIOP_1_1, code_sets: CodeSets::UTF8_UTF16 };
    assert_eq!(written(&marked, place), written(&plain, place));
}

#[test]
fn value_of_another_type_is_refused() {
    let refused = |type_code: &TypeCode, value| AnyValue::from_value(type_code, &value).err();
    assert_eq!(refused(&TypeCode::LONG, Value::Short(1)), Some(CdrError::TypeMismatch));
    assert_eq!(refused(&structure(vec![TypeCode::LONG], 0), Value::Struct(vec![])), Some(CdrError::TypeMismatch));
    assert_eq!(refused(&enumeration(2, 0), Value::Enum(2)), Some(CdrError::EnumOutOfRange));
    let union = union(&TypeCode::SHORT, vec![TypeCode::LONG], false);
    let value = |discriminator, member| Value::Union(Box::new(UnionValue { discriminator, member }));
    assert_eq!(refused(&union, value(0, None)), Some(CdrError::TypeMismatch));
    assert_eq!(refused(&union, value(7, Some(Value::Long(1)))), Some(CdrError::TypeMismatch));
    assert_eq!(refused(&union, value(1 << 20, None)), Some(CdrError::BadDiscriminator));
    assert_eq!(refused(&union, value(7, None)), None);
    assert_eq!(refused(&TypeCode::string(1), Value::String("ab".into())), Some(CdrError::StringOverBound));
    let array = TypeCode::array(TypeCode::OCTET, 2).unwrap();
    assert_eq!(refused(&array, Value::Octets(Octets::from(vec![1]))), Some(CdrError::TypeMismatch));
}

fn with_octets(type_code: &TypeCode, value: &[u8]) -> Result<AnyValue, CdrError> {
    let mut e = Encoder::new();
    type_code.encode(&mut e).unwrap();
    e.write_bytes(value);
    AnyValue::decode(&mut Decoder::new(&e.to_vec(), Endian::NATIVE))
}

#[test]
fn values_of_many_empty_parts_are_refused() {
    let empty = structure(vec![], 0);
    let array = TypeCode::array(empty.clone(), u32::MAX).unwrap();
    assert_eq!(with_octets(&array, &[]).err(), Some(CdrError::LimitExceeded));
    let mut arrays = empty.clone();
    for _ in 0..20 {
        arrays = TypeCode::array(arrays, 1000).unwrap();
    }
    assert_eq!(with_octets(&arrays, &[]).err(), Some(CdrError::LimitExceeded));
    let mut shared = empty;
    for id in 1..100 {
        shared = structure(vec![shared.clone(), shared], id);
    }
    assert_eq!(with_octets(&shared, &[]).err(), Some(CdrError::LimitExceeded));
    assert_eq!(Value::default_of_type(&shared).err(), Some(CdrError::LimitExceeded));
    assert!(with_octets(&TypeCode::array(structure(vec![], 0), 100).unwrap(), &[]).is_ok());
}

fn read_again(octets: &[u8], endian: Endian) -> AnyValue {
    let first = AnyValue::decode(&mut Decoder::new(octets, endian)).unwrap();
    let mut e = Encoder::new();
    first.encode(&mut e).unwrap();
    let again = AnyValue::decode(&mut Decoder::new(&e.to_vec(), e.endian())).unwrap();
    assert_eq!(again, first);
    again
}

#[test]
fn sequence_of_empty_structures_does_not_depend_on_the_data_after_it() {
    let empties = TypeCode::sequence(structure(vec![], 0), 0).unwrap();
    let value = Value::List(vec![Value::Struct(vec![]); 300]);
    let any = AnyValue::from_value(&empties, &value).unwrap();
    for behind in [0, 1, 400] {
        let mut e = Encoder::new();
        any.encode(&mut e).unwrap();
        e.write_bytes(&vec![7; behind]);
        assert_eq!(read_again(&e.to_vec(), e.endian()).value().unwrap(), value);
    }
    assert_eq!(with_octets(&empties, &u32::MAX.to_ne_bytes()).err(), Some(CdrError::LimitExceeded));
    assert_eq!(with_octets(&empties, &10_000u32.to_ne_bytes()).err(), Some(CdrError::LimitExceeded));
    #[derive(Clone, Debug, PartialEq)]
    struct Empty;
    impl Cdr for Empty {
        const MIN_SIZE: usize = 0;
        fn encode(&self, _: &mut Encoder<'_>) -> Result<(), CdrError> {
            Ok(())
        }
        fn decode(_: &mut Decoder<'_>) -> Result<Empty, CdrError> {
            Ok(Empty)
        }
    }
    assert_eq!(any.read(Vec::<Empty>::decode), Ok(vec![Empty; 300]));
    let many = u32::MAX.to_ne_bytes();
    let limits = Limits { max_sequence_length: u32::MAX, ..Limits::DEFAULT };
    let mut d = Decoder::new(&many, Endian::NATIVE).with_limits(&limits);
    assert_eq!(Vec::<Empty>::decode(&mut d), Err(CdrError::LimitExceeded));
}

#[test]
fn permitted_number_of_empty_parts_does_not_depend_on_the_encoding() {
    // The encoding of the type in the `any` contains meaningless bytes, which the encoder does not
    // write again.
    let array = TypeCode::array(structure(vec![], 0), 600).unwrap();
    let octets = |padded: bool| {
        let mut e = Encoder::new();
        structure(vec![TypeCode::ANY, array.clone()], 1).encode(&mut e).unwrap();
        e.write_u32(TypeCodeKind::Sequence.number());
        e.write_encapsulation(|e| {
            e.write_u32(TypeCodeKind::Long.number());
            e.write_u32(0);
            e.write_bytes(&vec![0; if padded { 4000 } else { 0 }]);
            Ok(())
        })
        .unwrap();
        e.write_u32(0);
        e.to_vec()
    };
    let read = |octets: &[u8]| AnyValue::decode(&mut Decoder::new(octets, Endian::NATIVE)).map(drop);
    assert_eq!(read(&octets(true)), read(&octets(false)));
    let few = structure(vec![TypeCode::OCTET, TypeCode::array(structure(vec![], 0), 10).unwrap()], 2);
    let list = TypeCode::sequence(few, 0).unwrap();
    let mut e = Encoder::new();
    list.encode(&mut e).unwrap();
    e.write_octet_sequence_copied(&[5; 1000]).unwrap();
    read_again(&e.to_vec(), e.endian());
}

#[test]
fn nesting_of_values_is_limited() {
    let node = TypeCode::sequence(TypeCode::recursive("IDL:N:1.0"), 0).unwrap();
    let node = TypeCode::structure("IDL:N:1.0", "N", [("kids", node)]).unwrap();
    let one = 1u32.to_ne_bytes();
    assert_eq!(with_octets(&node, &one.repeat(1 << 16)).err(), Some(CdrError::NestingTooDeep));
    assert!(with_octets(&node, &[one.repeat(100), vec![0; 4]].concat()).is_ok());
    let any = TypeCodeKind::Any.number().to_ne_bytes();
    let octets = any.repeat(1 << 16);
    assert_eq!(AnyValue::decode(&mut Decoder::new(&octets, Endian::NATIVE)).err(), Some(CdrError::NestingTooDeep));
}

#[test]
fn structure_that_contains_itself_has_no_value() {
    let node = TypeCode::structure("IDL:N:1.0", "N", [("self", TypeCode::recursive("IDL:N:1.0"))]).unwrap();
    assert_eq!(with_octets(&node, &[0; 64]).err(), Some(CdrError::LimitExceeded));
    assert_eq!(Value::default_of_type(&node).err(), Some(CdrError::LimitExceeded));
}

#[test]
fn large_octets_in_an_any_share_the_message() {
    let type_code = TypeCode::sequence(TypeCode::OCTET, 0).unwrap();
    let mut e = Encoder::new();
    AnyValue::from_value(&type_code, &Value::Octets(Octets::from(vec![3; 100_000]))).unwrap().encode(&mut e).unwrap();
    let message = Octets::from(e.to_vec());
    let limits = Limits::DEFAULT;
    let mut d = Decoder::new(&message, Endian::NATIVE).with_shared_message(&message).with_limits(&limits);
    let any = AnyValue::decode(&mut d).unwrap();
    let octets = any.read(|d| d.read_octet_sequence().map(|octets| octets.as_ptr().addr())).unwrap();
    assert!((message.as_ptr().addr()..message.as_ptr().addr() + message.len()).contains(&octets));
}
