//! Tests of the equality of `any`s, which depends on their values and types, not on the encoding.

use corelane_wire::dynamic::{UnionValue, ValueInstance};
use corelane_wire::typecode::{UnionMember, ValueMember};
use corelane_wire::{AnyValue, Cdr, Decoder, Encoder, Endian, TypeCode, Value, cdr::ValueReadState};

fn point() -> TypeCode {
    TypeCode::structure("IDL:Point:1.0", "Point", [("x", TypeCode::LONG), ("y", TypeCode::LONG)]).unwrap()
}

fn line(from: TypeCode, to: TypeCode) -> TypeCode {
    TypeCode::structure("IDL:Line:1.0", "Line", [("from", from), ("to", to)]).unwrap()
}

/// A structure of two points, whose TypeCode peers encode in four ways: with an indirection to the
/// first point, without an indirection, without names, and behind an alias.
fn lines() -> [TypeCode; 4] {
    let shared = point();
    let with_indirection = line(shared.clone(), shared);
    let without = line(point(), point());
    let compact = without.compact();
    let alias = TypeCode::alias("IDL:Way:1.0", "Way", without.clone()).unwrap();
    [with_indirection, without, compact, alias]
}

fn line_value(type_code: &TypeCode, last: i32) -> AnyValue {
    let point = |x, y| Value::Struct(vec![Value::Long(x), Value::Long(y)]);
    AnyValue::from_value(type_code, &Value::Struct(vec![point(1, 2), point(3, last)])).unwrap()
}

fn in_value(content: Value) -> AnyValue {
    let state = [ValueMember { name: "content".into(), ty: TypeCode::ANY, is_public: true }];
    let type_code = TypeCode::value("IDL:Holder:1.0", "Holder", 0, None, state).unwrap();
    let instance = ValueInstance { number: 0, type_code: type_code.clone(), state: vec![content] };
    AnyValue::from_value(&type_code, &Value::Instance(Box::new(instance))).unwrap()
}

fn around(inner: &AnyValue) -> Vec<AnyValue> {
    let any = || Value::Any(Box::new(inner.clone()));
    let structure = TypeCode::structure("IDL:S:1.0", "S", [("n", TypeCode::OCTET), ("a", TypeCode::ANY)]).unwrap();
    let sequence = TypeCode::sequence(TypeCode::ANY, 0).unwrap();
    let array = TypeCode::array(TypeCode::ANY, 1).unwrap();
    let arm = UnionMember { label: Some(7), name: "a".into(), ty: TypeCode::ANY };
    let union = TypeCode::union("IDL:U:1.0", "U", TypeCode::SHORT, [arm]).unwrap();
    let of = |type_code: &TypeCode, value| AnyValue::from_value(type_code, &value).unwrap();
    vec![
        inner.clone(),
        of(&TypeCode::ANY, any()),
        of(&structure, Value::Struct(vec![Value::Octet(1), any()])),
        of(&sequence, Value::List(vec![Value::Octet(1), any()].split_off(1))),
        of(&array, Value::List(vec![any()])),
        of(&union, Value::Union(Box::new(UnionValue { discriminator: 7, member: Some(any()) }))),
        in_value(any()),
    ]
}

fn received(any: &AnyValue) -> AnyValue {
    let other = if Endian::NATIVE == Endian::Big { Endian::Little } else { Endian::Big };
    let mut e = Encoder::new();
    e.set_endian(other);
    any.encode(&mut e).unwrap();
    read(&e.to_vec(), other)
}

fn read(octets: &[u8], endian: Endian) -> AnyValue {
    AnyValue::decode(&mut Decoder::new(octets, endian).with_value_read_state(&ValueReadState::new())).unwrap()
}

#[test]
fn nested_any_is_equal_for_every_encoding_of_its_type() {
    let encoded = |type_code: &TypeCode| {
        let mut e = Encoder::new();
        type_code.encode(&mut e).unwrap();
        e.to_vec()
    };
    let lines = lines();
    for (at, a) in lines.iter().enumerate() {
        for b in lines.iter().skip(at + 1) {
            assert_ne!(encoded(a), encoded(b));
            for (one, other) in around(&line_value(a, 4)).iter().zip(&around(&line_value(b, 4))) {
                assert_eq!((one, other), (other, one));
                assert_eq!((&received(one), one), (&received(other), &received(other)));
                for (one, other) in around(one).iter().zip(&around(other)) {
                    assert_eq!(one, other);
                }
                assert_eq!(one.value().unwrap(), other.value().unwrap());
            }
        }
    }
}

#[test]
fn nested_any_with_another_value_or_type_is_not_equal() {
    let [line, ..] = lines();
    let (a, b) = (around(&line_value(&line, 4)), around(&line_value(&line, 5)));
    let number = |type_code: &TypeCode| {
        let write = |e: &mut Encoder<'_>| {
            e.write_u32(1);
            Ok(())
        };
        AnyValue::from_writer(type_code, write).unwrap()
    };
    let (c, d) = (around(&number(&TypeCode::LONG)), around(&number(&TypeCode::ULONG)));
    for (one, other) in a.iter().zip(&b).chain(c.iter().zip(&d)) {
        assert_ne!(one, other);
        assert_ne!(&received(one), other);
    }
    let holds = |value| AnyValue::from_value(&TypeCode::ANY, &Value::Any(Box::new(value))).unwrap();
    let null = holds(AnyValue::null());
    let type_code = holds(AnyValue::from_value(&TypeCode::TYPE_CODE, &Value::TypeCode(TypeCode::NULL)).unwrap());
    assert_ne!(null, type_code);
}

#[test]
fn type_codes_that_are_values_are_compared_in_every_detail() {
    let [with_indirection, without, compact, _] = lines();
    let value = |type_code| AnyValue::from_value(&TypeCode::TYPE_CODE, &Value::TypeCode(type_code)).unwrap();
    assert_eq!(value(with_indirection.clone()), received(&value(without.clone())));
    assert_ne!(value(without), value(compact.clone()));
    let instance = |type_code| Value::Instance(Box::new(ValueInstance { number: 0, type_code, state: Vec::new() }));
    assert_eq!(instance(with_indirection.clone()), instance(compact));
    assert_ne!(instance(with_indirection.clone()), instance(point()));
    let second = |type_code| {
        let sequence = TypeCode::sequence(TypeCode::TYPE_CODE, 0).unwrap();
        let value = Value::List(vec![Value::TypeCode(with_indirection.clone()), Value::TypeCode(type_code)]);
        AnyValue::from_value(&sequence, &value).unwrap()
    };
    assert_ne!(second(TypeCode::LONG), second(TypeCode::SHORT));
}

/// Peers write one value in three forms: with chunks and two repository ids, with one id, and
/// without an id.
#[test]
fn chunked_and_unchunked_values_are_equal() {
    let state = || [ValueMember { name: "n".into(), ty: TypeCode::LONG, is_public: true }];
    let base = TypeCode::value("IDL:Base:1.0", "Base", 0, None, state()).unwrap();
    let type_code = TypeCode::value("IDL:Own:1.0", "Own", 3, Some(base), state()).unwrap();
    let peer = |octets: &[u8]| {
        let mut e = Encoder::new();
        e.set_endian(Endian::Big);
        type_code.encode(&mut e).unwrap();
        e.align(4);
        e.write_bytes(octets);
        read(&e.to_vec(), Endian::Big)
    };
    let id = |name: &str| [&u32::try_from(name.len() + 1).unwrap().to_be_bytes(), name.as_bytes(), &[0]].concat();
    let (own, base) = (id("IDL:Own:1.0"), id("IDL:Base:1.0"));
    let state = |last: u8| [0, 0, 0, 1, 0, 0, 0, last];
    let plain = |last| peer(&[&[0x7f, 0xff, 0xff, 2][..], &own, &state(last)].concat());
    let untold = |last| peer(&[&[0x7f, 0xff, 0xff, 0][..], &state(last)].concat());
    let chunks = |last| {
        let ids = [&[0x7f, 0xff, 0xff, 14, 0, 0, 0, 2][..], &own, &base, &[0, 0, 0]].concat();
        peer(&[&ids[..], &[0, 0, 0, 8], &state(last), &[0xff, 0xff, 0xff, 0xff]].concat())
    };
    assert_eq!((plain(2), untold(2)), (chunks(2), chunks(2)));
    assert_ne!(plain(2), chunks(3));
    assert_ne!(untold(2), chunks(3));
}
