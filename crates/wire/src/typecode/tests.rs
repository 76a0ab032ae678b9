use super::description::{
    BOOLEAN, LONG, SHORT, STRING, alias, arm, array, enumeration, enumerator, exception, fixed, interface, member,
    sequence, structure, union, wstring,
};
use super::*;
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian};
use crate::limits::Limits;

static NODE: StaticTypeCode = structure(
    "IDL:Node:1.0",
    "Node",
    &[member("value", LONG), member("next", &sequence(&NODE, 0)), member("colour", &COLOUR), member("other", &COLOUR)],
);
static COLOUR: StaticTypeCode = enumeration("IDL:Colour:1.0", "Colour", &[enumerator("red"), enumerator("green")]);
static NUMBER: StaticTypeCode =
    union("IDL:Number:1.0", "Number", &COLOUR, 2, &[arm(0, "a", SHORT), arm(1, "b", &fixed(5, 2)), member("c", &NODE)]);
static NAMES: StaticTypeCode = alias("IDL:Names:1.0", "Names", &sequence(&wstring(7), 3));
static FAILED: StaticTypeCode = exception("IDL:Failed:1.0", "Failed", &[member("why", STRING), member("n", &NUMBER)]);
static ECHO: StaticTypeCode = interface("IDL:Echo:1.0", "Echo");
static TABLE: StaticTypeCode = array(&array(BOOLEAN, 3), 2);
static ALL: [&StaticTypeCode; 7] = [&NODE, &COLOUR, &NUMBER, &NAMES, &FAILED, &ECHO, &TABLE];

fn encoded(type_code: &TypeCode, endian: Endian) -> Vec<u8> {
    let mut e = Encoder::new();
    e.set_endian(endian);
    e.write_u8(9);
    type_code.encode(&mut e).unwrap();
    e.to_vec()
}

fn decoded(octets: &[u8]) -> Result<TypeCode, CdrError> {
    TypeCode::decode(&mut Decoder::new(octets, Endian::Big))
}

#[test]
fn types_round_trip_in_both_byte_orders() {
    for description in ALL {
        let type_code = TypeCode::from_description(description);
        for endian in [Endian::Big, Endian::Little] {
            let octets = encoded(&type_code, endian);
            let mut d = Decoder::new(&octets, endian).at_position(1);
            let again = TypeCode::decode(&mut d).unwrap();
            assert_eq!((&again, d.remaining_len()), (&type_code, 0));
            assert!(again.equivalent(&type_code));
            assert_eq!(encoded(&again, endian), octets);
            for len in 1..octets.len() {
                assert!(TypeCode::decode(&mut Decoder::new(&octets[..len], endian).at_position(1)).is_err(), "{len}");
            }
        }
    }
}

#[test]
fn an_event_type_is_a_value_type_of_another_kind() {
    let state = |name: &str| [ValueMember { name: name.into(), ty: TypeCode::LONG, is_public: true }];
    let base = TypeCode::value("IDL:B:1.0", "B", 2, None, []).unwrap();
    let event = TypeCode::event("IDL:E:1.0", "E", 0, Some(base), state("at")).unwrap();
    assert_eq!(
        (event.kind(), event.is_member_public(0), event.type_modifier()),
        (TypeCodeKind::Event, Some(true), Some(0))
    );
    let octets = encoded(&event, Endian::Big);
    assert_eq!(TypeCode::decode(&mut Decoder::new(&octets, Endian::Big).at_position(1)), Ok(event.clone()));
    assert!(!event.equivalent(&TypeCode::value("IDL:E:1.0", "E", 0, None, state("at")).unwrap()));
    assert_eq!(TypeCode::event("IDL:E:1.0", "E", 0, Some(TypeCode::LONG), []), Err(TypeCodeError::IllegitimateMember));
}

#[test]
fn recursive_type_is_written_with_an_indirection() {
    static LIST: StaticTypeCode = structure("IDL:L:1.0", "L", &[member("l", &sequence(&LIST, 0))]);
    let octets = encoded(&TypeCode::from_description(&LIST), Endian::Big);
    #[rustfmt::skip]
    let expected: &[u8] = &[
        9, 0, 0, 0,
        0, 0, 0, 15, 0, 0, 0, 64, 0, 0, 0, 0,
        0, 0, 0, 10, b'I', b'D', b'L', b':', b'L', b':', b'1', b'.', b'0', 0, 0, 0,
        0, 0, 0, 2, b'L', 0, 0, 0,
        0, 0, 0, 1, 0, 0, 0, 2, b'l', 0, 0, 0,
        0, 0, 0, 19, 0, 0, 0, 16, 0, 0, 0, 0,
        // The offset, at 68, leads back to the kind of the structure, at 4.
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc0, 0, 0, 0, 0,
    ];
    assert_eq!(octets, expected);
}

#[test]
fn enumeration_that_occurs_twice_is_written_twice() {
    static COLOUR: StaticTypeCode = enumeration("IDL:E:1.0", "E", &[enumerator("e")]);
    static TWICE: StaticTypeCode = structure("IDL:S:1.0", "S", &[member("a", &COLOUR), member("b", &COLOUR)]);
    let octets = encoded(&TypeCode::from_description(&TWICE), Endian::Big);
    #[rustfmt::skip]
    let colour: &[u8] = &[
        0, 0, 0, 17, 0, 0, 0, 38, 0, 0, 0, 0,
        0, 0, 0, 10, b'I', b'D', b'L', b':', b'E', b':', b'1', b'.', b'0', 0, 0, 0,
        0, 0, 0, 2, b'E', 0, 0, 0,
        0, 0, 0, 1, 0, 0, 0, 2, b'e', 0,
    ];
    #[rustfmt::skip]
    let head: &[u8] = &[
        9, 0, 0, 0,
        0, 0, 0, 15, 0, 0, 0, 142, 0, 0, 0, 0,
        0, 0, 0, 10, b'I', b'D', b'L', b':', b'S', b':', b'1', b'.', b'0', 0, 0, 0,
        0, 0, 0, 2, b'S', 0, 0, 0,
        0, 0, 0, 2,
    ];
    let (a, b): (&[u8], &[u8]) = (&[0, 0, 0, 2, b'a', 0, 0, 0], &[0, 0, 0, 0, 0, 2, b'b', 0, 0, 0]);
    assert_eq!(octets, [head, a, colour, &b[..2], &b[2..], colour].concat());
}

/// The five kinds are structures, unions, values, events and aliases. TAO 2.2.1 refuses an
/// indirection to a type of another kind with MARSHAL.
#[test]
fn indirections_are_sent_to_five_kinds() {
    let twice = |ty: &TypeCode| {
        let members = [("a", ty.clone()), ("b", ty.clone())];
        TypeCode::structure("IDL:Twice:1.0", "Twice", members).unwrap()
    };
    let indirections = |ty: &TypeCode| {
        let octets = encoded(&twice(ty), Endian::Big);
        let decoded = TypeCode::decode(&mut Decoder::new(&octets, Endian::Big).at_position(1)).unwrap();
        assert_eq!((&decoded, encoded(&decoded, Endian::Big)), (&twice(ty), octets.clone()));
        octets.chunks_exact(4).filter(|word| *word == [0xff; 4]).count()
    };
    let long = || TypeCode::LONG;
    let arm = UnionMember { label: Some(1), name: "x".into(), ty: long() };
    let state = || [ValueMember { name: "x".into(), ty: long(), is_public: true }];
    let five = [
        TypeCode::structure("IDL:S:1.0", "S", [("x", long())]),
        TypeCode::union(
            "IDL:U:1.0",
            "U",
            TypeCode::LONG,
            [arm.clone(), UnionMember { label: None, name: "y".into(), ..arm }],
        ),
        TypeCode::value("IDL:V:1.0", "V", 0, None, state()),
        TypeCode::event("IDL:E:1.0", "E", 0, None, state()),
        TypeCode::alias("IDL:A:1.0", "A", long()),
    ];
    for ty in five.map(Result::unwrap) {
        assert_eq!(indirections(&ty), 1, "{ty}");
    }
    let interface = |kind| TypeCode::interface(kind, "IDL:I:1.0", "I");
    let others = [
        TypeCode::enumeration("IDL:C:1.0", "C", ["red"]),
        TypeCode::value_box("IDL:B:1.0", "B", long()),
        TypeCode::sequence(long(), 0),
        TypeCode::array(long(), 3),
        TypeCode::fixed(5, 2),
        Ok(TypeCode::string(4)),
        interface(TypeCodeKind::ObjRef),
        interface(TypeCodeKind::AbstractInterface),
        interface(TypeCodeKind::LocalInterface),
        interface(TypeCodeKind::Component),
        interface(TypeCodeKind::Home),
    ];
    for ty in others.map(Result::unwrap) {
        assert_eq!(indirections(&ty), 0, "{ty}");
    }
    // The box is written twice; the second time, the structure in it becomes an indirection.
    let structure = TypeCode::structure("IDL:S:1.0", "S", [("x", long())]).unwrap();
    assert_eq!(indirections(&TypeCode::value_box("IDL:B:1.0", "B", structure).unwrap()), 1);
}

#[test]
fn a_received_type_with_many_indirections_grows_by_a_bounded_amount() {
    let mut e = Encoder::new();
    let place = std::cell::Cell::new(0);
    let names: Vec<String> = (0..1000).map(|number| format!("e{number}")).collect();
    let colour = TypeCode::enumeration("IDL:E:1.0", "E", names).unwrap();
    let first = |e: &mut Encoder<'_>| {
        place.set(e.len());
        colour.encode(e).unwrap();
    };
    let again = |e: &mut Encoder<'_>| write_indirection(e, place.get());
    let mut members: Vec<&dyn Fn(&mut Encoder<'_>)> = vec![&first];
    members.extend(std::iter::repeat_n(&again as &dyn Fn(&mut Encoder<'_>), 1000));
    write_structure(&mut e, "IDL:S:1.0", &members);
    let received = e.to_vec();
    let read = TypeCode::decode(&mut Decoder::new(&received, Endian::NATIVE)).unwrap();
    let mut e = Encoder::new();
    read.encode(&mut e).unwrap();
    let sent = e.to_vec();
    assert!(
        sent.len() > received.len() && sent.len() <= received.len() + (64 << 10),
        "{} {}",
        received.len(),
        sent.len()
    );
    assert_eq!(TypeCode::decode(&mut Decoder::new(&sent, Endian::NATIVE)), Ok(read));
}

#[test]
fn accessors_return_none_for_other_kinds() {
    let number = TypeCode::from_description(&NUMBER);
    assert_eq!((number.kind(), number.id(), number.name()), (TypeCodeKind::Union, "IDL:Number:1.0", "Number"));
    assert_eq!((number.member_count(), number.default_index(), number.member_label(1)), (3, Some(2), Some(1)));
    assert_eq!((number.member_label(2), number.member_name(2), number.member_name(3)), (None, Some("c"), None));
    assert_eq!(number.discriminator_type().unwrap().name(), "Colour");
    assert_eq!(number.member_type(1).unwrap().digits_and_scale(), Some((5, 2)));
    assert_eq!((number.content_type(), number.length(), number.type_modifier()), (None, None, None));
    let names = TypeCode::from_description(&NAMES);
    assert_eq!(names.unaliased().to_string(), "sequence<wstring<7>, 3>");
    assert_eq!(names.unaliased().length(), Some(3));
    assert_eq!(
        format!("{number:?} {}", TypeCode::from_description(&TABLE)),
        "TypeCode(union Number IDL:Number:1.0) boolean[3][2]"
    );
}

#[test]
fn equivalence_ignores_aliases_and_compares_ids() {
    let names = TypeCode::from_description(&NAMES);
    let plain = TypeCode::sequence(TypeCode::wstring(7), 3).unwrap();
    assert!(names.equivalent(&plain) && plain.equivalent(&names) && names != plain);
    assert!(!plain.equivalent(&TypeCode::sequence(TypeCode::wstring(7), 4).unwrap()));
    let renamed = TypeCode::structure("IDL:Node:1.0", "Other", [("x", TypeCode::ANY)]).unwrap();
    assert!(renamed.equivalent(&TypeCode::from_description(&NODE)) && renamed != TypeCode::from_description(&NODE));
    assert!(!TypeCode::LONG.equivalent(&TypeCode::ULONG));
}

#[test]
fn compact_types_have_ids_and_no_names() {
    for description in ALL {
        let full = TypeCode::from_description(description);
        let compact = full.compact();
        assert!(compact.equivalent(&full) && full.equivalent(&compact));
        assert!(encoded(&compact, Endian::Big).len() <= encoded(&full, Endian::Big).len());
        assert_eq!(compact.member_name(0).unwrap_or_default(), "");
        assert_eq!(compact.name(), if full.kind() == TypeCodeKind::Alias { full.name() } else { "" });
        assert_eq!(
            TypeCode::decode(&mut Decoder::new(&encoded(&compact, Endian::Big), Endian::Big).at_position(1)),
            Ok(compact)
        );
    }
}

#[test]
fn recursive_type_is_complete_when_its_last_placeholder_is_replaced() {
    let inner = TypeCode::structure(
        "IDL:B:1.0",
        "B",
        [
            ("a", TypeCode::sequence(TypeCode::recursive("IDL:A:1.0"), 0).unwrap()),
            ("b", TypeCode::sequence(TypeCode::recursive("IDL:B:1.0"), 0).unwrap()),
        ],
    )
    .unwrap();
    assert!(!inner.is_complete());
    let mut e = Encoder::new();
    assert_eq!(inner.encode(&mut e), Err(CdrError::IncompleteTypeCode));
    let outer = TypeCode::structure("IDL:A:1.0", "A", [("b", inner)]).unwrap();
    assert!(outer.is_complete());
    let again = outer.member_type(0).unwrap().member_type(0).unwrap().content_type().unwrap();
    assert_eq!(again, outer);
    let octets = encoded(&outer, Endian::Big);
    assert_eq!(TypeCode::decode(&mut Decoder::new(&octets, Endian::Big).at_position(1)), Ok(outer));
}

#[test]
fn impossible_types_are_refused() {
    let long = || TypeCode::LONG;
    let name = |name| TypeCode::structure("IDL:S:1.0", name, [("x", long())]).err();
    assert_eq!(
        (name("S"), name("1S"), name("a b")),
        (None, Some(TypeCodeError::InvalidName), Some(TypeCodeError::InvalidName))
    );
    let members =
        |names: [&'static str; 2]| TypeCode::structure("IDL:S:1.0", "S", names.map(|name| (name, long()))).err();
    assert_eq!(
        (members(["a", "A"]), members(["", "a"])),
        (Some(TypeCodeError::InvalidMemberName), Some(TypeCodeError::InvalidMemberName))
    );
    assert_eq!(TypeCode::structure("S", "S", [("x", long())]).err(), Some(TypeCodeError::InvalidRepositoryId));
    assert_eq!(TypeCode::sequence(TypeCode::VOID, 0).err(), Some(TypeCodeError::IllegitimateMember));
    assert_eq!(TypeCode::fixed(32, 0).err(), Some(TypeCodeError::DigitsOutOfRange));
    let arms = |discriminator: TypeCode, labels: &[Option<i128>]| {
        let arms = labels.iter().map(|label| UnionMember { label: *label, name: "x".into(), ty: long() });
        TypeCode::union("IDL:U:1.0", "U", discriminator, arms.collect::<Vec<_>>()).err()
    };
    assert_eq!(arms(TypeCode::BOOLEAN, &[Some(0), Some(1)]), None);
    assert_eq!(arms(TypeCode::BOOLEAN, &[Some(2)]), Some(TypeCodeError::LabelOutOfRange));
    assert_eq!(arms(TypeCode::SHORT, &[Some(1), Some(1)]), Some(TypeCodeError::DuplicateLabel));
    assert_eq!(arms(TypeCode::SHORT, &[None, None]), Some(TypeCodeError::DuplicateLabel));
    assert_eq!(arms(TypeCode::STRING, &[None]), Some(TypeCodeError::IllegitimateDiscriminator));
}

fn with_member(member: &[u8]) -> Vec<u8> {
    #[rustfmt::skip]
    let mut octets = vec![
        0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
        0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0,
    ];
    octets.extend(member);
    octets[7] = u8::try_from(octets.len() - 8).unwrap();
    octets
}

#[test]
fn indirections_lead_to_a_kind_that_was_read() {
    let indirection = |offset: i32| decoded(&with_member(&[&[0xff; 4][..], &offset.to_be_bytes()].concat()));
    // A structure that contains itself can be described, although it has no values.
    assert_eq!(indirection(-44).unwrap().member_type(0).unwrap().kind(), TypeCodeKind::Struct);
    for offset in [0, -4, -8, 4, 400, -43, -45, -48, -40, -36, i32::MIN, i32::MAX] {
        assert_eq!(indirection(offset).err(), Some(CdrError::BadIndirection), "{offset}");
    }
    assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf8]).err(), Some(CdrError::BadIndirection));
    assert_eq!(CdrError::BadIndirection.kind(), crate::exception::SystemExceptionKind::Marshal);
}

#[test]
fn malformed_types_are_refused() {
    assert_eq!(decoded(&[0, 0, 0, 37]).err(), Some(CdrError::BadTypeCode));
    assert_eq!(decoded(&with_member(&[0, 0, 0, 1])).err(), Some(CdrError::IllegalTypeCodeMember));
    assert_eq!(decoded(&with_member(&[0, 0, 0, 28, 0, 32, 0, 0])).err(), Some(CdrError::BadTypeCode));
    assert!(decoded(&with_member(&[0, 0, 0, 28, 0, 31, 0, 0])).is_ok());
    assert!(decoded(&with_member(&[0, 0, 0, 11])).is_ok());
    let mut many = with_member(&[0, 0, 0, 11]);
    many[28] = 1;
    assert_eq!(decoded(&many).err(), Some(CdrError::CountExceedsInput));
}

#[test]
fn arrays_of_length_0_are_refused() {
    let array = |length| decoded(&[0, 0, 0, 20, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, length]);
    assert_eq!((array(0).err(), array(1).map(|array| array.length())), (Some(CdrError::BadTypeCode), Ok(Some(1))));
    assert_eq!(TypeCode::array(TypeCode::LONG, 0).err(), Some(TypeCodeError::EmptyArray));
}

fn write_sequence(e: &mut Encoder<'_>, element: &dyn Fn(&mut Encoder<'_>)) {
    e.write_u32(TypeCodeKind::Sequence.number());
    e.write_encapsulation(|e| {
        element(e);
        e.write_u32(0);
        Ok(())
    })
    .unwrap();
}

fn write_indirection(e: &mut Encoder<'_>, to: usize) {
    e.write_u32(INDIRECTION);
    let offset = i32::try_from(to).unwrap() - i32::try_from(e.len()).unwrap();
    e.write_i32(offset);
}

fn write_structure(e: &mut Encoder<'_>, id: &str, members: &[&dyn Fn(&mut Encoder<'_>)]) {
    e.write_u32(TypeCodeKind::Struct.number());
    e.write_encapsulation(|e| {
        e.write_latin1_str(id)?;
        e.write_latin1_str("")?;
        e.write_len(members.len())?;
        members.iter().try_for_each(|member| {
            e.write_latin1_str("m")?;
            e.align(4);
            member(e);
            Ok(())
        })
    })
    .unwrap();
}

fn read_and_written(e: &Encoder<'_>) -> Result<TypeCode, CdrError> {
    let read = |octets: &[u8]| TypeCode::decode(&mut Decoder::new(octets, Endian::NATIVE));
    let first = read(&e.to_vec())?;
    let mut e = Encoder::new();
    first.encode(&mut e).unwrap();
    let again = read(&e.to_vec()).unwrap();
    assert!(again.equivalent(&first));
    Ok(again)
}

#[test]
fn cycles_of_unnamed_types_are_refused() {
    // The element type of the sequence is the sequence itself, first directly, then through an
    // inner sequence.
    let mut e = Encoder::new();
    write_sequence(&mut e, &|e| write_indirection(e, 0));
    assert_eq!(read_and_written(&e).err(), Some(CdrError::BadIndirection));
    let mut e = Encoder::new();
    write_sequence(&mut e, &|e| write_sequence(e, &|e| write_indirection(e, 0)));
    assert_eq!(read_and_written(&e).err(), Some(CdrError::BadIndirection));
    // IDL cannot declare a value box whose content is a sequence of this box, but a peer can send
    // one.
    let mut e = Encoder::new();
    let place = std::cell::Cell::new(0);
    let write_box = |e: &mut Encoder<'_>| {
        place.set(e.len());
        e.write_u32(TypeCodeKind::ValueBox.number());
        let contents = |e: &mut Encoder<'_>| {
            e.write_latin1_str("IDL:B:1.0")?;
            e.write_latin1_str("")?;
            e.align(4);
            write_sequence(e, &|e| write_indirection(e, place.get()));
            Ok(())
        };
        e.write_encapsulation(contents).unwrap();
    };
    write_structure(&mut e, "IDL:S:1.0", &[&write_box, &|e| write_indirection(e, place.get())]);
    assert_eq!(read_and_written(&e).map(|read| read.member_count()), Ok(2));
    // A structure, which has a repository id, makes such a cycle a valid type.
    let mut e = Encoder::new();
    write_sequence(&mut e, &|e| write_structure(e, "IDL:S:1.0", &[&|e| write_indirection(e, 0)]));
    let node = read_and_written(&e).unwrap().content_type().unwrap();
    assert_eq!(node.member_type(0).unwrap().content_type(), Some(node));
}

#[test]
fn types_that_are_written_again_keep_the_nesting_limit() {
    fn chain(e: &mut Encoder<'_>, depth: usize, end: &dyn Fn(&mut Encoder<'_>)) {
        match depth.checked_sub(1) {
            Some(depth) => write_sequence(e, &|e| chain(e, depth, end)),
            None => end(e),
        }
    }
    let twice = |depth: usize| {
        let mut e = Encoder::new();
        let place = std::cell::Cell::new(0);
        let first = |e: &mut Encoder<'_>| {
            place.set(e.len());
            chain(e, 60, &|e| e.write_u32(TypeCodeKind::Long.number()));
        };
        let second = |e: &mut Encoder<'_>| chain(e, depth, &|e| write_indirection(e, place.get()));
        write_structure(&mut e, "IDL:S:1.0", &[&first, &second]);
        read_and_written(&e).map(drop)
    };
    assert_eq!((twice(67), twice(68)), (Ok(()), Err(CdrError::NestingTooDeep)));
    let deeper = |boxed: bool, depth: usize| {
        let mut e = Encoder::new();
        let place = std::cell::Cell::new(0);
        let colour = TypeCode::enumeration("IDL:E:1.0", "E", ["e"]).unwrap();
        let colour = if boxed { TypeCode::value_box("IDL:B:1.0", "B", colour).unwrap() } else { colour };
        let first = |e: &mut Encoder<'_>| {
            place.set(e.len());
            colour.encode(e).unwrap();
        };
        let second = |e: &mut Encoder<'_>| chain(e, depth, &|e| write_indirection(e, place.get()));
        write_structure(&mut e, "IDL:S:1.0", &[&first, &second]);
        read_and_written(&e).map(drop)
    };
    assert_eq!((deeper(false, 126), deeper(false, 127)), (Ok(()), Err(CdrError::NestingTooDeep)));
    assert_eq!((deeper(true, 125), deeper(true, 126)), (Ok(()), Err(CdrError::NestingTooDeep)));
    let many = |count: usize| {
        let mut e = Encoder::new();
        let place = std::cell::Cell::new(0);
        let first = |e: &mut Encoder<'_>| {
            place.set(e.len());
            chain(e, 101, &|e| e.write_u32(TypeCodeKind::Long.number()));
        };
        let again = |e: &mut Encoder<'_>| write_indirection(e, place.get());
        let mut members: Vec<&dyn Fn(&mut Encoder<'_>)> = vec![&first];
        members.extend(std::iter::repeat_n(&again as &dyn Fn(&mut Encoder<'_>), count));
        write_structure(&mut e, "IDL:S:1.0", &members);
        read_and_written(&e).map(drop)
    };
    assert_eq!((many(40), many(41)), (Ok(()), Err(CdrError::LimitExceeded)));
}

/// omniORB 4.2.5 writes -2 as the default index of a union whose labels cover all values.
#[test]
fn negative_default_index_means_no_default() {
    static COMPLETE: StaticTypeCode =
        union("IDL:U:1.0", "U", BOOLEAN, -1, &[arm(1, "yes", LONG), arm(0, "no", STRING)]);
    let octets = encoded(&TypeCode::from_description(&COMPLETE), Endian::Big);
    let at = octets.windows(8).position(|eight| eight == [0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff]).unwrap();
    for index in [-2i32, -77] {
        let mut octets = octets.clone();
        octets[at + 4..at + 8].copy_from_slice(&index.to_be_bytes());
        let decoded = TypeCode::decode(&mut Decoder::new(&octets, Endian::Big).at_position(1)).unwrap();
        assert_eq!((decoded.default_index(), &decoded), (None, &TypeCode::from_description(&COMPLETE)));
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        let mut type_code = TypeCode::LONG;
        for _ in 0..depth {
            type_code = TypeCode::sequence(type_code, 0).unwrap();
        }
        encoded(&type_code, Endian::Big)
    };
    let limit = usize::try_from(Limits::DEFAULT.max_nesting).unwrap();
    let decode = |octets: &[u8]| TypeCode::decode(&mut Decoder::new(octets, Endian::Big).at_position(1));
    assert!(decode(&nested(limit)).is_ok());
    assert_eq!(decode(&nested(limit + 1)), Err(CdrError::NestingTooDeep));
}

#[test]
fn shared_parts_of_types_are_compared_and_written_once() {
    // Each type contains the previous one twice, so the last type contains the first one 2^99
    // times.
    let build = || {
        let mut type_code = TypeCode::structure("IDL:S0:1.0", "S0", [("x", TypeCode::LONG)]).unwrap();
        for depth in 1..100 {
            let name = format!("S{depth}");
            let members = [("a", type_code.clone()), ("b", type_code)];
            type_code = TypeCode::structure(&format!("IDL:{name}:1.0"), &name, members).unwrap();
        }
        type_code
    };
    let (a, b) = (build(), build());
    assert_eq!(a, b);
    let octets = encoded(&a, Endian::Big);
    assert!(octets.len() < 20_000);
    assert_eq!(TypeCode::decode(&mut Decoder::new(&octets, Endian::Big).at_position(1)), Ok(b));
    assert!(a.compact().equivalent(&a));
}
