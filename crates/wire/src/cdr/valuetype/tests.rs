use std::any::Any;
use std::sync::Arc;

use super::{RepositoryIds, ValueHead, ValueReadState, ValueStart};
use crate::cdr::{Cdr, CdrError, Decoder, Encoder, Endian};
use crate::limits::Limits;
use crate::{AnyValue, Ior, TypeCode, Value};

const A: &[&str] = &["IDL:A:1.0"];
const B: &[&str] = &["IDL:B:1.0", "IDL:A:1.0"];

fn keep() -> Arc<dyn Any + Send + Sync> {
    Arc::new(())
}

fn octets(text: &str) -> Vec<u8> {
    let mut octets = Vec::new();
    for (at, part) in text.split('\'').enumerate() {
        if at % 2 == 1 {
            octets.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
        octets.extend(digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()));
    }
    octets
}

fn big(encode: impl FnOnce(&mut Encoder<'_>) -> Result<(), CdrError>) -> Vec<u8> {
    let mut e = Encoder::new();
    e.set_endian(Endian::Big);
    encode(&mut e).unwrap();
    e.to_vec()
}

fn head<'m>(d: &mut Decoder<'m>) -> ValueStart<'m> {
    match d.read_value_head().unwrap() {
        ValueHead::Value(start) => start,
        other => panic!("{other:?}"),
    }
}

const ID_A: &str = "0000000a 'IDL:A:1.0' 00 0000";
const ID_B: &str = "0000000a 'IDL:B:1.0' 00 0000";

#[test]
fn a_plain_value_and_an_indirection_to_it() {
    let written = big(|e| {
        let value = e.begin_value((1, 0), keep, A, false)?.unwrap();
        e.write_u16(7);
        e.end_value(value)?;
        assert!(e.begin_value((1, 0), keep, A, false)?.is_none());
        e.write_null_value();
        let value = e.begin_value((1, 1), keep, A, false)?.unwrap();
        e.end_value(value)
    });
    // A short is aligned to 2 bytes, so no padding separates it from the id.
    let id = "0000000a 'IDL:A:1.0' 00";
    let expected = format!("7fffff02 {id} 0007 ffffffff ffffffe8 00000000 7fffff02 ffffffff ffffffdc");
    assert_eq!(written, octets(&expected));
    let space = ValueReadState::new();
    let mut d = Decoder::new(&written, Endian::Big).with_value_read_state(&space);
    let start = head(&mut d);
    assert_eq!(
        (start.value_number, start.repository_ids.as_slice(), start.is_chunked),
        (0, [b"IDL:A:1.0".as_slice()].as_slice(), false)
    );
    assert_eq!((d.read_u16(), d.end_value(&start)), (Ok(7), Ok(())));
    assert!(matches!(d.read_value_head(), Ok(ValueHead::Indirection(0, _))));
    assert!(matches!(d.read_value_head(), Ok(ValueHead::Null)));
    let start = head(&mut d);
    assert_eq!((start.value_number, start.repository_ids), (1, RepositoryIds::One(b"IDL:A:1.0")));
    assert_eq!(d.remaining_len(), 0);
}

#[test]
fn chunks_and_truncation() {
    let written = big(|e| {
        let outer = e.begin_value((1, 0), keep, B, true)?.unwrap();
        e.write_u32(1);
        let inner = e.begin_value((1, 1), keep, A, false)?.unwrap();
        e.write_u8(2);
        e.end_value(inner)?;
        e.write_u64(3);
        let last = e.begin_value((1, 2), keep, A, false)?.unwrap();
        e.end_value(last)?;
        e.end_value(outer)?;
        e.write_u32(9);
        Ok(())
    });
    let expected = format!(
        "7fffff0e 00000002 {ID_B} 00 {ID_A} 00 00000004 00000001 7fffff0a ffffffff ffffffe0 00000001 02 000000 fffffffe"
    );
    let start = octets(&expected.replace(" 00 0000 00 ", " 00 0000 "));
    assert_eq!(&written[..start.len()], &start);
    let space = ValueReadState::new();
    let decoder = Decoder::new(&written, Endian::Big).with_value_read_state(&space);
    let mut d = decoder.clone();
    let outer = head(&mut d);
    assert!(outer.is_chunked && outer.repository_ids.as_slice().len() == 2);
    assert_eq!(d.read_u32(), Ok(1));
    let inner = head(&mut d);
    assert_eq!((d.read_u8(), d.end_value(&inner), d.read_u64()), (Ok(2), Ok(()), Ok(3)));
    let last = head(&mut d);
    assert_eq!((last.value_number, space.enclosing_value_count()), (2, 2));
    assert_eq!((d.end_value(&last), d.end_value(&outer), d.read_u32()), (Ok(()), Ok(()), Ok(9)));
    assert_eq!((d.remaining_len(), space.enclosing_value_count()), (0, 0));
    let space = ValueReadState::new();
    let mut d = decoder.with_value_read_state(&space);
    let outer = head(&mut d);
    assert_eq!((d.read_u32(), d.end_value(&outer), d.read_u32()), (Ok(1), Ok(()), Ok(9)));
}

#[test]
fn one_end_tag_may_end_several_values() {
    // omniORB writes one end tag for the innermost and the outermost value.
    let written = octets("7fffff08 7fffff08 00000004 00000005 ffffffff 00000009");
    let space = ValueReadState::new();
    let mut d = Decoder::new(&written, Endian::Big).with_value_read_state(&space);
    let (outer, inner) = (head(&mut d), head(&mut d));
    assert_eq!((d.read_u32(), d.end_value(&inner)), (Ok(5), Ok(())));
    assert_eq!(d.read_u32(), Err(CdrError::MalformedValuetype), "the outer value has ended too");
    assert_eq!((d.end_value(&outer), d.read_u32()), (Ok(()), Ok(9)));
}

#[test]
fn null_and_indirections_are_read_inside_chunks_and_between_chunks() {
    for (what, again) in [("00000000", false), ("ffffffff fffffff0", true)] {
        let len = if again { 12 } else { 8 };
        let inside = format!("7fffff08 00000004 00000001 {len:08x} {what} 00000002 ffffffff");
        let between = format!("7fffff08 00000004 00000001 {what} 00000004 00000002 ffffffff");
        // An offset counts from the offset field, which is 4 octets later inside a chunk than
        // between chunks.
        for text in [inside.replace("fffffff0", "ffffffec"), between] {
            let written = octets(&text);
            let space = ValueReadState::new();
            let mut d = Decoder::new(&written, Endian::Big).with_value_read_state(&space);
            let outer = head(&mut d);
            assert_eq!(d.read_u32(), Ok(1));
            match d.read_value_head() {
                Ok(ValueHead::Null) => assert!(!again),
                Ok(ValueHead::Indirection(0, _)) => assert!(again),
                other => panic!("{text}: {other:?}"),
            }
            assert_eq!((d.read_u32(), d.end_value(&outer), d.remaining_len()), (Ok(2), Ok(()), 0), "{text}");
        }
    }
}

#[test]
fn strings_and_sequences_end_within_their_chunk() {
    let read = |text: &str, read: fn(&mut Decoder<'_>) -> Result<(), CdrError>| {
        let written = octets(text);
        let space = ValueReadState::new();
        let mut d = Decoder::new(&written, Endian::Big).with_value_read_state(&space);
        head(&mut d);
        read(&mut d)
    };
    assert_eq!(
        read("7fffff08 00000002 0001 0000 00000002 0002", |d| d.read_u32().map(drop)),
        Err(CdrError::MalformedValuetype)
    );
    assert_eq!(
        read("7fffff08 00000006 00000003 6162 00 00", |d| d.read_string().map(drop)),
        Err(CdrError::MalformedValuetype)
    );
    assert_eq!(read("7fffff08 00000009 00", |d| d.read_u8().map(drop)), Err(CdrError::Truncated));
    assert_eq!(read("7fffff08 00000000 00", |d| d.read_u8().map(drop)), Err(CdrError::MalformedValuetype));
    // A count is compared with the size of all chunks; each element must fit in one chunk.
    assert_eq!(
        read("7fffff08 00000004 00000002 00000002 0001 0000 00000002 0002", |d| {
            let len = d.read_len(2)?;
            assert_eq!((len, d.read_u16(), d.read_u16()), (2, Ok(1), Ok(2)));
            Ok(())
        }),
        Ok(())
    );
}

#[test]
fn any_and_reference_continue_in_the_next_chunk() {
    // Chunks end within values, as in messages of the JDK, which begins a chunk with each fragment.
    let pair = TypeCode::structure("IDL:Pair:1.0", "Pair", [("a", TypeCode::LONG), ("b", TypeCode::LONG)]).unwrap();
    let type_code = big(|e| pair.encode(e));
    let size = u32::try_from(type_code.len() + 4).unwrap().to_be_bytes();
    let first = [octets("7fffff08").as_slice(), &size, &type_code, &octets("00000001")].concat();
    let reference = "00000001 00 000000 00000002 00000007 00000004 'abcd'";
    let rest = octets(&format!("00000004 00000002 00000018 {reference} 0000000a 00000009 00000002 'ef' 0000 ffffffff"));
    let message = [first, rest].concat();
    let space = ValueReadState::new();
    let mut d = Decoder::new(&message, Endian::Big).with_value_read_state(&space);
    let start = head(&mut d);
    let any = AnyValue::decode(&mut d).unwrap();
    assert_eq!(any.value(), Ok(Value::Struct(vec![Value::Long(1), Value::Long(2)])));
    let ior = Ior::decode(&mut d).unwrap();
    let profiles: Vec<_> = ior.profiles.iter().map(|profile| (profile.tag, profile.data.as_slice())).collect();
    assert_eq!(profiles, [(7, b"abcd".as_slice()), (9, b"ef".as_slice())]);
    assert_eq!((d.end_value(&start), d.remaining_len()), (Ok(()), 0));
}

#[test]
fn indirections_lead_to_their_values() {
    let read = |text: &str| {
        let written = octets(text);
        let space = ValueReadState::new();
        let mut d = Decoder::new(&written, Endian::Big).with_value_read_state(&space);
        let mut last = None;
        while d.remaining_len() > 0 {
            match d.read_value_head() {
                Ok(head) => last = Some(head),
                Err(error) => return Err(error),
            }
        }
        Ok(format!("{:?}", last.unwrap()))
    };
    assert_eq!(read("7fffff00 ffffffff fffffff8").unwrap(), "Indirection(0, 0)");
    for wrong in [
        "7fffff00 ffffffff 00000000",                   // to itself
        "7fffff00 ffffffff fffffffc",                   // to its own marker
        "7fffff00 ffffffff 00000004 7fffff00",          // to the future
        "7fffff00 ffffffff fffffff4",                   // before the message
        "7fffff00 ffffffff 80000000",                   // far before it
        "7fffff00 00000000 ffffffff fffffff8",          // to null
        "7fffff00 ffffffff fffffff9",                   // into the middle of a tag
        "7fffff02 ffffffff fffffff8",                   // an id that is a value
        "7fffff02 ffffffff fffffffc",                   // an id that is itself
        "7fffff06 ffffffff fffffff8",                   // a list that is a value
        "7fffff02 00000001 00000000 ffffffff fffffff4", // a value that is an id
    ] {
        assert_eq!(read(wrong), Err(CdrError::BadIndirection), "{wrong}");
    }
    let shared = format!("7fffff06 00000001 {ID_A} 00 7fffff06 ffffffff ffffffe4 7fffff02 ffffffff ffffffdc");
    let shared = shared.replace("0000 00 7fffff06", "0000 7fffff06");
    let ids = format!("{:?}", b"IDL:A:1.0");
    assert!(read(&shared).unwrap().contains(&ids), "{}", read(&shared).unwrap());
    for (wrong, error) in [
        ("7ffffeff", CdrError::MalformedValuetype),
        ("7fffff04", CdrError::MalformedValuetype),
        ("7fffff10", CdrError::MalformedValuetype),
        ("80000000", CdrError::MalformedValuetype),
        ("00000001", CdrError::MalformedValuetype),
        ("7fffff08 7fffff00", CdrError::MalformedValuetype),
        ("7fffff08 00000004 7fffff08", CdrError::MalformedValuetype),
        ("7fffff02 00000201", CdrError::LimitExceeded),
        ("7fffff02 00000002 4141", CdrError::StringNotTerminated),
        ("7fffff06 00000021", CdrError::LimitExceeded),
        ("7fffff01", CdrError::Truncated),
        ("ffffffff", CdrError::Truncated),
    ] {
        assert_eq!(read(wrong), Err(error), "{wrong}");
    }
}

#[test]
fn the_number_of_values_is_bounded() {
    let limits = Limits { max_valuetype_instances: 3, ..Limits::default() };
    let written = octets(&"7fffff00".repeat(4));
    let space = ValueReadState::new();
    let mut d = Decoder::new(&written, Endian::Big).with_value_read_state(&space).with_limits(&limits);
    for _ in 0..3 {
        head(&mut d);
    }
    assert_eq!(d.read_value_head().unwrap_err(), CdrError::LimitExceeded);
    assert_eq!(Decoder::new(&written, Endian::Big).read_value_head().unwrap_err(), CdrError::UnsupportedForm);
    let mut e = Encoder::new();
    let depth = (0..).take_while(|depth| e.begin_value((1, *depth), keep, A, true).is_ok()).count();
    assert_eq!(depth, 256);
}

#[test]
fn indirection_does_not_lead_out_of_an_encapsulation() {
    let mut e = Encoder::new();
    let value = e.begin_value((1, 0), keep, A, true).unwrap().unwrap();
    e.write_encapsulation(|e| {
        let again = e.begin_value((1, 0), keep, A, false)?.unwrap();
        e.end_value(again)
    })
    .unwrap();
    e.end_value(value).unwrap();
    let written = e.to_vec();
    let space = ValueReadState::new();
    let mut d = Decoder::new(&written, Endian::NATIVE).with_value_read_state(&space);
    let outer = head(&mut d);
    let mut inner = d.read_encapsulation().unwrap();
    let start = head(&mut inner);
    assert_eq!((start.value_number, start.is_chunked, inner.end_value(&start)), (1, false, Ok(())));
    assert_eq!((d.end_value(&outer), d.remaining_len()), (Ok(()), 0));
}

#[test]
fn cleared_encoder_has_forgotten_its_values() {
    let mut e = Encoder::new();
    let value = e.begin_value((1, 0), keep, A, true).unwrap().unwrap();
    e.clear();
    drop(value);
    assert!(e.begin_value((1, 0), keep, A, false).unwrap().is_some());
}

#[test]
fn message_that_ends_among_chunks_is_refused() {
    let whole = octets(&format!("7fffff0a {ID_A} 00000004 00000007 7fffff0a {ID_B} 00000001 01 000000 ffffffff"));
    let read = |end: usize| {
        let space = ValueReadState::new();
        let mut d = Decoder::new(&whole[..end], Endian::Big).with_value_read_state(&space);
        let outer = begun(&mut d)?;
        d.read_u32()?;
        begun(&mut d)?;
        d.read_u8()?;
        d.end_value(&outer)
    };
    let skip = |end: usize| {
        let space = ValueReadState::new();
        let mut d = Decoder::new(&whole[..end], Endian::Big).with_value_read_state(&space);
        let outer = begun(&mut d)?;
        d.end_value(&outer)
    };
    for end in 0..whole.len() {
        assert!(read(end).is_err() && skip(end).is_err(), "{end} octets");
    }
    assert_eq!((read(whole.len()), skip(whole.len())), (Ok(()), Ok(())));
}

fn begun<'m>(d: &mut Decoder<'m>) -> Result<ValueStart<'m>, CdrError> {
    match d.read_value_head()? {
        ValueHead::Value(start) => Ok(start),
        other => panic!("{other:?}"),
    }
}
