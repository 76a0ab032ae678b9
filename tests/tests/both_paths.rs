//! Two ways lead from a value to octets: the code that the compiler makes of IDL, and TypeCodes. Random values of every type take both, in both
//! byte orders and at every alignment, and every octet is the same.

use std::cmp::Ordering;
use std::fmt::Debug;

use corelane::{Cdr, Kind, LongDouble, Octets, TypeCode, Typed, Value};
use corelane_tests::any::dynamic::{Choice, Colour, Everything, Failed, Number, Other, Point, Tree};
use corelane_wire::dynamic::UnionValue;
use corelane_wire::{AnyValue, CdrError, CodeSets, Decoder, Encoder, Endian, Ior};

corelane::include_idl!("plain");
corelane::include_idl!("values");

/// Values of each type.
const VALUES: u64 = 60;

// ---- random values ----------------------------------------------------------------------------------

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() >> 33).unwrap() % bound.max(1)
    }

    fn octets(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits().to_be_bytes()[2]).collect()
    }

    fn text(&mut self, bound: u32, letters: &[char]) -> String {
        let most = if bound == 0 { 9 } else { bound as usize };
        let count = self.below(most + 1);
        (0..count).map(|_| letters[self.below(letters.len())]).collect()
    }
}

const NARROW: [char; 4] = ['a', 'Z', '~', ' '];
const WIDE: [char; 4] = ['a', 'é', '€', 'π'];

/// A value of a type. `depth` is that of the types around it: what refers to itself ends.
fn value(type_code: &TypeCode, random: &mut Random, depth: usize) -> Value {
    let type_code = type_code.resolved();
    let number = random.bits();
    let eight = number.to_ne_bytes();
    let [a, b, c, d, ..] = eight;
    let bound = type_code.length().unwrap_or(0);
    match type_code.kind() {
        Kind::Boolean => Value::Boolean(number & 1 == 1),
        Kind::Octet => Value::Octet(a),
        Kind::Short => Value::Short(i16::from_ne_bytes([a, b])),
        Kind::UShort => Value::UShort(u16::from_ne_bytes([a, b])),
        Kind::Long => Value::Long(i32::from_ne_bytes([a, b, c, d])),
        Kind::ULong => Value::ULong(u32::from_ne_bytes([a, b, c, d])),
        Kind::LongLong => Value::LongLong(i64::from_ne_bytes(eight)),
        Kind::ULongLong => Value::ULongLong(number),
        Kind::Float => Value::Float(f32::from(i16::from_ne_bytes([a, b])) / 8.0),
        Kind::Double => Value::Double(f64::from(i32::from_ne_bytes([a, b, c, d])) / 8.0),
        Kind::LongDouble => Value::LongDouble(random.octets(16).try_into().unwrap()),
        Kind::Char => Value::Char(NARROW[random.below(4)]),
        Kind::WChar => Value::WChar(WIDE[random.below(4)]),
        Kind::String => Value::String(random.text(bound, &NARROW)),
        Kind::WString => Value::WString(random.text(bound, &WIDE)),
        Kind::Fixed => {
            let digits = type_code.digits_and_scale().map_or(1, |(digits, _)| u32::from(digits));
            let wide = i128::from(i64::from_ne_bytes(eight)) * i128::from(u32::MAX);
            Value::Fixed(wide % 10i128.pow(digits))
        }
        Kind::Enum => Value::Enum(u32::try_from(random.below(type_code.member_count())).unwrap()),
        Kind::TypeCode => Value::TypeCode(some_type(random)),
        Kind::Any => {
            let inner = if depth > 2 { TypeCode::DOUBLE } else { some_type(random) };
            let value = value(&inner, random, depth + 2);
            Value::Any(Box::new(AnyValue::from_value(&inner, &value).unwrap()))
        }
        // Without an ORB there are no others.
        Kind::ObjRef => Value::Object(Ior::NIL),
        Kind::Struct | Kind::Except => {
            let types = (0..type_code.member_count()).map(|index| type_code.member_type(index).unwrap());
            Value::Struct(types.map(|member| value(&member, random, depth + 1)).collect())
        }
        Kind::Union => union(&type_code, random, depth),
        Kind::Sequence | Kind::Array => elements(&type_code, random, depth),
        kind => panic!("no values of {kind}"),
    }
}

fn some_type(random: &mut Random) -> TypeCode {
    let types = [
        TypeCode::OCTET,
        TypeCode::DOUBLE,
        TypeCode::STRING,
        TypeCode::wstring(5),
        TypeCode::LONG_DOUBLE,
        Vec::<i16>::type_code(),
        Point::type_code(),
        Choice::type_code(),
        Tree::type_code(),
        TypeCode::ANY,
    ];
    types[random.below(types.len())].clone()
}

fn union(type_code: &TypeCode, random: &mut Random, depth: usize) -> Value {
    let discriminator = type_code.discriminator_type().unwrap().resolved();
    let labels: Vec<i128> = (0..type_code.member_count()).filter_map(|arm| type_code.member_label(arm)).collect();
    let label = match (random.below(3), discriminator.kind()) {
        (0, Kind::Enum) => i128::try_from(random.below(discriminator.member_count())).unwrap(),
        (0, Kind::Boolean) => i128::try_from(random.below(2)).unwrap(),
        (0, _) => i128::from(b' ') + i128::try_from(random.below(90)).unwrap(),
        _ => labels[random.below(labels.len())],
    };
    let arm = (0..type_code.member_count()).find(|arm| type_code.member_label(*arm) == Some(label));
    let arm = arm.or(type_code.default_index()).and_then(|arm| type_code.member_type(arm));
    let member = arm.map(|arm| value(&arm, random, depth + 1));
    Value::Union(Box::new(UnionValue { discriminator: label, member }))
}

fn elements(type_code: &TypeCode, random: &mut Random, depth: usize) -> Value {
    let element = type_code.content_type().unwrap();
    let bound = type_code.length().unwrap_or(0) as usize;
    let count = match type_code.kind() {
        Kind::Array => bound,
        _ if depth > 4 => 0,
        _ if bound == 0 => random.below(7),
        _ => random.below(bound + 1),
    };
    if element.resolved().kind() == Kind::Octet {
        return Value::Octets(Octets::from(random.octets(count)));
    }
    let mut list: Vec<Value> = (0..count).map(|_| value(&element, random, depth + 1)).collect();
    if element.kind() == Kind::Struct && element.id().is_empty() {
        // The pairs of a map: in order, each key once.
        list.sort_by(by_key);
        list.dedup_by(|a, b| by_key(a, b) == Ordering::Equal);
    }
    Value::List(list)
}

fn by_key(a: &Value, b: &Value) -> Ordering {
    let key = |pair: &Value| match pair {
        Value::Struct(parts) => parts.first().cloned(),
        _ => None,
    };
    match (key(a), key(b)) {
        (Some(Value::Long(a)), Some(Value::Long(b))) => a.cmp(&b),
        (Some(Value::Short(a)), Some(Value::Short(b))) => a.cmp(&b),
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(&b),
        _ => Ordering::Equal,
    }
}

// ---- both ways --------------------------------------------------------------------------------------

/// Where a value stands.
#[derive(Clone, Copy)]
struct Place {
    endian: Endian,
    before: usize,
}

fn written(place: Place, write: impl FnOnce(&mut Encoder<'_>) -> Result<(), CdrError>) -> Vec<u8> {
    let mut e = Encoder::new();
    e.set_endian(place.endian);
    e.set_code_sets(CodeSets::UTF8_UTF16);
    e.write_raw(&vec![7; place.before]);
    write(&mut e).unwrap();
    e.to_vec()
}

fn decoder(octets: &[u8], place: Place) -> Decoder<'_> {
    Decoder::new(octets, place.endian).at(place.before).with_code_sets(CodeSets::UTF8_UTF16)
}

fn same<T: Typed + PartialEq + Debug>() {
    let type_code = T::type_code();
    for seed in 1..=VALUES {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let tree = value(&type_code, &mut random, 0);
        let mut values: Vec<T> = Vec::new();
        for endian in [Endian::Big, Endian::Little] {
            let place = Place { endian, before: random.below(9) };
            let octets = written(place, |e| tree.encode(&type_code, e));
            let shown = || format!("{type_code}, seed {seed}, {endian:?} after {} octets: {tree:?}", place.before);
            // Octets that the dynamic path wrote, through the static one.
            let mut d = decoder(&octets, place);
            let value = T::read(&mut d, &type_code).unwrap_or_else(|error| panic!("{error}: {}", shown()));
            assert_eq!(d.remaining(), 0, "{}", shown());
            assert_eq!(written(place, |e| value.write(e, &type_code)), octets, "{}", shown());
            // The same through `any`, and on to each other form.
            let mut d = decoder(&octets, place);
            let any = AnyValue::decode_value(type_code.clone(), &mut d).unwrap();
            assert_eq!((any.value().as_ref(), d.remaining()), (Ok(&tree), 0), "{}", shown());
            for endian in [Endian::Big, Endian::Little] {
                let place = Place { endian, before: random.below(9) };
                let dynamic = written(place, |e| any.encode_value(e));
                assert_eq!(dynamic, written(place, |e| value.write(e, &type_code)), "{}", shown());
            }
            values.push(value);
        }
        assert_eq!(values.first(), values.last(), "{type_code}, seed {seed}");
    }
}

/// The types, sequences of them, and arrays of them.
macro_rules! types {
    ($($name:ident: $($type:ty),+;)+) => {$(
        #[test]
        fn $name() {
            $(
                same::<$type>();
                same::<Vec<$type>>();
                same::<[$type; 3]>();
            )+
        }
    )+};
}

types! {
    numbers: i16, u16, i32, u32, i64, u64, f32, f64, LongDouble;
    other_basic_types: bool, char, String, Octets, TypeCode, corelane::Any;
    sequences_of_sequences: Vec<f64>, Vec<String>, [[u16; 2]; 2];
    enumerations_and_structures: Colour, Point, Tree, Everything;
    unions: Choice, Number, values::ByLetter, values::ByByte;
    structures_in_bulk: plain::Nested, plain::inner::Exact;
    fixed_point: values::Account;
    types_of_idl_4: values::Small, values::Larger, values::Maps, values::Rights, values::Word;
}

#[test]
fn exceptions() {
    same::<Failed>();
    same::<Other>();
}

/// What `same` compares is not the same thing twice: another value has other octets.
#[test]
fn other_values_are_written_otherwise() {
    let place = Place { endian: Endian::Big, before: 0 };
    let point = |x| written(place, |e| Cdr::encode(&Point { x, y: 0.5 }, e));
    let tree = |x| Value::Struct(vec![Value::Long(x), Value::Double(0.5)]);
    assert_eq!(point(1), written(place, |e| tree(1).encode(&Point::type_code(), e)));
    assert_ne!(point(1), written(place, |e| tree(2).encode(&Point::type_code(), e)));
}
