//! Custom values in `any`: a process without the custom code forwards them unchanged where the
//! bytes keep their meaning.

use std::any::Any;
use std::sync::Arc;

use corelane_wire::cdr::{Cdr, Endian, ValueHead, ValueReadState};
use corelane_wire::exception::SystemExceptionKind;
use corelane_wire::typecode::ValueMember;
use corelane_wire::{AnyValue, CdrError, Decoder, Encoder, Limits, TypeCode, Value};

const CUSTOM: &[&str] = &["IDL:Custom:1.0"];
const INNER: &[&str] = &["IDL:Inner:1.0"];
const AROUND: &[&str] = &["IDL:Around:1.0"];

fn keep() -> Arc<dyn Any + Send + Sync> {
    Arc::new(())
}

fn member(name: &str, ty: TypeCode) -> ValueMember {
    ValueMember { name: name.into(), ty, is_public: true }
}

fn custom() -> TypeCode {
    TypeCode::value(CUSTOM[0], "Custom", 1, None, [member("anything", TypeCode::STRING)]).unwrap()
}

fn around() -> TypeCode {
    let state = [member("before", TypeCode::OCTET), member("custom", custom()), member("after", TypeCode::LONG_LONG)];
    TypeCode::value(AROUND[0], "Around", 3, None, state).unwrap()
}

fn encoder(endian: Endian, shift: usize) -> Encoder<'static> {
    let mut e = Encoder::new();
    e.set_endian(endian);
    (0..shift).for_each(|_| e.write_u8(0xee));
    e
}

/// Writes a custom value, whose state has numbers of every alignment, values between chunks, an
/// indirection within a chunk, and numbers that look like an indirection.
fn write_custom(e: &mut Encoder<'_>, graph: usize) -> Result<(), CdrError> {
    let inner = |e: &mut Encoder<'_>, at, number| {
        let Some(value) = e.begin_value((graph, at), keep, INNER, true)? else { return Ok(()) };
        e.write_u16(number);
        e.end_value(value)
    };
    let Some(value) = e.begin_value((graph, 0), keep, CUSTOM, true)? else { return Ok(()) };
    e.write_u8(1);
    e.write_f64(2.5);
    inner(e, 1, 7)?;
    inner(e, 1, 7)?;
    e.write_i32(-1);
    e.write_i32(-4);
    e.write_f64(4.5);
    inner(e, 2, 8)?;
    e.write_null_value();
    inner(e, 2, 8)?;
    e.write_f64(8.5);
    e.end_value(value)
}

fn read_inner(d: &mut Decoder<'_>) -> u32 {
    match d.read_value_head().unwrap() {
        ValueHead::Null => 100,
        ValueHead::Indirection(number, _) => 200 + number,
        ValueHead::Value(start) => {
            assert!(start.repository_ids.as_slice().iter().all(|id| *id == INNER[0].as_bytes()));
            let number = d.read_u16().unwrap();
            d.end_value(&start).unwrap();
            number.into()
        }
    }
}

fn read_custom(d: &mut Decoder<'_>) {
    let ValueHead::Value(start) = d.read_value_head().unwrap() else { panic!("no value") };
    assert_eq!(start.repository_ids.as_slice(), [CUSTOM[0].as_bytes()]);
    assert_eq!((d.read_u8(), d.read_f64()), (Ok(1), Ok(2.5)));
    let (first, again) = (read_inner(d), read_inner(d));
    assert_eq!((first, again), (7, 200 + start.value_number + 1));
    assert_eq!((d.read_i32(), d.read_i32(), d.read_f64()), (Ok(-1), Ok(-4), Ok(4.5)));
    assert_eq!((read_inner(d), read_inner(d), read_inner(d)), (8, 100, 200 + start.value_number + 2));
    assert_eq!(d.read_f64(), Ok(8.5));
    d.end_value(&start).unwrap();
}

fn read_around(d: &mut Decoder<'_>) {
    let ValueHead::Value(start) = d.read_value_head().unwrap() else { panic!("no value") };
    assert_eq!(d.read_u8(), Ok(5));
    read_custom(d);
    assert_eq!(d.read_i64(), Ok(6));
    d.end_value(&start).unwrap();
}

/// Returns a message of five `any`s with custom values. The ids in the second `any` are
/// indirections to the ids in the first.
fn message(endian: Endian, shift: usize) -> Vec<u8> {
    let mut e = encoder(endian, shift);
    let write = |e: &mut Encoder<'_>| {
        for graph in [1, 2, 1] {
            custom().encode(e)?;
            write_custom(e, graph)?;
        }
        around().encode(e)?;
        let value = e.begin_value((3, 0), keep, AROUND, true)?.unwrap();
        e.write_u8(5);
        write_custom(e, 4)?;
        e.write_i64(6);
        e.end_value(value)?;
        TypeCode::ANY.encode(e)?;
        custom().encode(e)?;
        write_custom(e, 5)
    };
    write(&mut e).unwrap();
    e.to_vec()
}

fn decoded(octets: &[u8], endian: Endian, shift: usize) -> Vec<AnyValue> {
    let space = ValueReadState::new();
    let mut d = Decoder::new(octets, endian).at_position(shift).with_value_read_state(&space);
    let values = (0..5).map(|_| AnyValue::decode(&mut d).unwrap()).collect();
    assert_eq!(d.remaining_len(), 0);
    values
}

fn check(values: &[AnyValue]) {
    for (at, value) in values.iter().enumerate() {
        let read = |value: &AnyValue| {
            value.read(|d| {
                if at == 3 {
                    read_around(d)
                } else {
                    read_custom(d)
                }
                assert_eq!(d.remaining_len(), 0);
                Ok(())
            })
        };
        match at {
            4 => read(&value.read(AnyValue::decode).unwrap()).unwrap(),
            _ => read(value).unwrap(),
        }
    }
}

#[test]
fn custom_values_are_forwarded_unchanged_at_every_offset_in_both_byte_orders() {
    for endian in [Endian::Little, Endian::Big] {
        for shift in 0..9 {
            let first = decoded(&message(endian, shift), endian, shift);
            check(&first);
            for further in 0..9 {
                let mut all = encoder(endian, further);
                for value in &first {
                    value.encode(&mut all).unwrap();
                    let mut one = encoder(endian, further);
                    value.encode(&mut one).unwrap();
                    let (octets, space) = (one.to_vec(), ValueReadState::new());
                    let mut d = Decoder::new(&octets, endian).at_position(further).with_value_read_state(&space);
                    assert_eq!((&AnyValue::decode(&mut d).unwrap(), d.remaining_len()), (value, 0));
                }
                let second = decoded(&all.to_vec(), endian, further);
                check(&second);
                assert_eq!(first, second);
            }
        }
    }
}

#[test]
fn custom_values_in_another_byte_order_need_their_custom_code() {
    let foreign = if Endian::NATIVE == Endian::Big { Endian::Little } else { Endian::Big };
    let values = decoded(&message(foreign, 0), foreign, 0);
    let native = decoded(&message(Endian::NATIVE, 0), Endian::NATIVE, 0);
    for (value, other) in values.iter().zip(&native) {
        assert_eq!(value.encode(&mut Encoder::new()), Err(CdrError::CustomValueNotConvertible));
        // Without the custom code, values in different forms count as different.
        assert!(value != other && value == &value.clone());
    }
    assert_eq!(CdrError::CustomValueNotConvertible.kind(), SystemExceptionKind::NoImplement);
    assert_eq!(native[0].value(), Err(CdrError::CustomValueNotConvertible));
    assert_eq!(AnyValue::from_value(&custom(), &Value::Null).unwrap().value(), Ok(Value::Null));
    // An `any` cannot contain an indirection to a value outside it.
    let mut e = Encoder::new();
    let outer = e.begin_value((9, 0), keep, INNER, true).unwrap().unwrap();
    e.write_u16(1);
    e.end_value(outer).unwrap();
    let value = e.begin_value((9, 1), keep, CUSTOM, true).unwrap().unwrap();
    assert!(e.begin_value((9, 0), keep, INNER, true).unwrap().is_none());
    e.end_value(value).unwrap();
    let (octets, space) = (e.to_vec(), ValueReadState::new());
    let mut d = Decoder::new(&octets, Endian::NATIVE).with_value_read_state(&space);
    assert_eq!(read_inner(&mut d), 1);
    assert_eq!(AnyValue::decode_value(custom(), &mut d).err(), Some(CdrError::CustomValueNotConvertible));
}

#[test]
fn malformed_custom_values_are_refused() {
    let decode = |octets: &[u8]| {
        let space = ValueReadState::new();
        let limits = Limits { max_valuetype_instances: 1000, ..Limits::DEFAULT };
        let mut d = Decoder::new(octets, Endian::Big).with_value_read_state(&space).with_limits(&limits);
        AnyValue::decode_value(custom(), &mut d).err()
    };
    let head = |tag: u32| [&tag.to_be_bytes()[..], &[0, 0, 0, 15], CUSTOM[0].as_bytes(), &[0, 0]].concat();
    let with = |words: &[u32]| {
        let mut octets = head(0x7fff_ff0a);
        words.iter().for_each(|word| octets.extend(word.to_be_bytes()));
        octets
    };
    assert_eq!(decode(&with(&[4, 1, 0xffff_ffff])), None);
    assert_eq!(decode(&[head(0x7fff_ff02), vec![0; 8]].concat()), Some(CdrError::MalformedValuetype));
    assert_eq!(decode(&with(&[4, 1])), Some(CdrError::Truncated));
    assert_eq!(decode(&with(&[40, 1])), Some(CdrError::MalformedValuetype));
    assert_eq!(decode(&with(&[0xffff_fffe])), Some(CdrError::MalformedValuetype));
    assert_eq!(decode(&with(&[0x7fff_ff00, 0xffff_ffff])), Some(CdrError::MalformedValuetype));
    assert_eq!(decode(&with(&[0x7fff_ff1a, 0xffff_ffff])), Some(CdrError::MalformedValuetype));
    assert_eq!(decode(&with(&[0x7fff_ff08, 0xffff_ffff])), None);
    let many: Vec<u32> = (0..1001).map(|_| 0x7fff_ff08).chain([0xffff_ffff]).collect();
    assert_eq!(decode(&with(&many)), Some(CdrError::LimitExceeded));
}
