//! Generated code and TypeCodes marshal random values to the same octets.

use std::any::Any;
use std::fmt::Debug;

use corelane::mapping::TypedValue;
use corelane::{AnyValueRef, Cdr, Fixed, LongDouble, Octets, TypeCode, TypeCodeKind, Typed, Value, ValueFactories};
use corelane_tests::any::dynamic::{Choice, Colour, Everything, Failed, Number, Other, Point, Tree};
use corelane_wire::cdr::ValueReadState;
use corelane_wire::dynamic::{UnionValue, ValueInstance};
use corelane_wire::{AnyValue, CdrError, CodeSets, Decoder, Encoder, Endian, Ior};

corelane::include_idl!("plain");
corelane::include_idl!("values");

const VALUES: u64 = 60;

struct Random {
    state: u64,
    /// The types of the valuetype instances, by instance number.
    met: Vec<TypeCode>,
}

impl Random {
    fn new(seed: u64) -> Random {
        Random { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), met: Vec::new() }
    }

    fn bits(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
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

/// Returns a random value of the type. `depth` is the present depth, which bounds the nesting of
/// recursive types.
fn value(type_code: &TypeCode, random: &mut Random, depth: usize) -> Value {
    let type_code = type_code.unaliased();
    let number = random.bits();
    let eight = number.to_ne_bytes();
    let [a, b, c, d, ..] = eight;
    let bound = type_code.length().unwrap_or(0);
    match type_code.kind() {
        TypeCodeKind::Boolean => Value::Boolean(number & 1 == 1),
        TypeCodeKind::Octet => Value::Octet(a),
        TypeCodeKind::Short => Value::Short(i16::from_ne_bytes([a, b])),
        TypeCodeKind::UShort => Value::UShort(u16::from_ne_bytes([a, b])),
        TypeCodeKind::Long => Value::Long(i32::from_ne_bytes([a, b, c, d])),
        TypeCodeKind::ULong => Value::ULong(u32::from_ne_bytes([a, b, c, d])),
        TypeCodeKind::LongLong => Value::LongLong(i64::from_ne_bytes(eight)),
        TypeCodeKind::ULongLong => Value::ULongLong(number),
        TypeCodeKind::Float => Value::Float(f32::from(i16::from_ne_bytes([a, b])) / 8.0),
        TypeCodeKind::Double => Value::Double(f64::from(i32::from_ne_bytes([a, b, c, d])) / 8.0),
        TypeCodeKind::LongDouble => Value::LongDouble(random.octets(16).try_into().unwrap()),
        TypeCodeKind::Char => Value::Char(NARROW[random.below(4)]),
        TypeCodeKind::WChar => Value::WChar(WIDE[random.below(4)]),
        TypeCodeKind::String => Value::String(random.text(bound, &NARROW)),
        TypeCodeKind::WString => Value::WString(random.text(bound, &WIDE)),
        TypeCodeKind::Fixed => {
            let digits = type_code.digits_and_scale().map_or(1, |(digits, _)| u32::from(digits));
            let wide = i128::from(i64::from_ne_bytes(eight)) * i128::from(u32::MAX);
            Value::Fixed(wide % 10i128.pow(digits))
        }
        TypeCodeKind::Enum => Value::Enum(u32::try_from(random.below(type_code.member_count())).unwrap()),
        TypeCodeKind::TypeCode => Value::TypeCode(some_type(random)),
        TypeCodeKind::Any => {
            let inner = if depth > 2 { TypeCode::DOUBLE } else { some_type(random) };
            let value = value(&inner, random, depth + 2);
            Value::Any(Box::new(AnyValue::from_value(&inner, &value).unwrap()))
        }
        // References other than nil cannot be decoded without an ORB.
        TypeCodeKind::ObjRef => Value::Object(Ior::NIL),
        TypeCodeKind::Struct | TypeCodeKind::Except => {
            let types = (0..type_code.member_count()).map(|index| type_code.member_type(index).unwrap());
            Value::Struct(types.map(|member| value(&member, random, depth + 1)).collect())
        }
        TypeCodeKind::Union => union(&type_code, random, depth),
        TypeCodeKind::Sequence | TypeCodeKind::Array => elements(&type_code, random, depth),
        TypeCodeKind::Value | TypeCodeKind::ValueBox | TypeCodeKind::AbstractInterface => {
            instance(&type_code, random, depth)
        }
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
    let discriminator = type_code.discriminator_type().unwrap().unaliased();
    let labels: Vec<i128> = (0..type_code.member_count()).filter_map(|arm| type_code.member_label(arm)).collect();
    let label = match (random.below(3), discriminator.kind()) {
        (0, TypeCodeKind::Enum) => i128::try_from(random.below(discriminator.member_count())).unwrap(),
        (0, TypeCodeKind::Boolean) => i128::try_from(random.below(2)).unwrap(),
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
        TypeCodeKind::Array => bound,
        _ if depth > 4 => 0,
        _ if bound == 0 => random.below(7),
        _ => random.below(bound + 1),
    };
    if element.unaliased().kind() == TypeCodeKind::Octet {
        return Value::Octets(Octets::from(random.octets(count)));
    }
    let is_pair = element.kind() == TypeCodeKind::Struct && element.id().is_empty();
    let made = |at| {
        let mut made = value(&element, random, depth + 1);
        if let (true, Value::Struct(pair)) = (is_pair, &mut made) {
            pair[0] = key(&pair[0], at);
        }
        made
    };
    Value::List((0..count).map(made).collect())
}

/// Returns the map key with index `at`, of the type of `like`. Keys must be unique and in order.
fn key(like: &Value, at: usize) -> Value {
    let number = i16::try_from(at).unwrap() * 3 - 4;
    match like {
        Value::Long(_) => Value::Long(number.into()),
        Value::Short(_) => Value::Short(number),
        Value::Double(_) => Value::Double(number.into()),
        Value::String(_) => Value::String(format!("key {at}")),
        other => panic!("no keys like {other:?}"),
    }
}

/// Returns null, an earlier instance or a new instance, whose type is the given type or inherits
/// from it.
fn instance(type_code: &TypeCode, random: &mut Random, depth: usize) -> Value {
    let heirs: Vec<TypeCode> = match type_code.id() {
        "IDL:corelane.test/Values/Described:1.0" | "IDL:corelane.test/Values/Shape:1.0" => vec![CIRCLE(), RING()],
        "IDL:corelane.test/Values/Base:1.0" => vec![BASE(), DERIVED(), FURTHER(), FIRM()],
        "IDL:omg.org/CORBA/ValueBase:1.0" => vec![NODE(), BASE(), FURTHER(), CIRCLE(), TEXT()],
        _ => vec![type_code.clone()],
    };
    let again: Vec<usize> = (0..random.met.len()).filter(|at| heirs.contains(&random.met[*at])).collect();
    match random.below(4) {
        0 => return Value::Null,
        _ if depth > 6 => return Value::Null,
        1 if !again.is_empty() => return Value::InstanceRef(u32::try_from(again[random.below(again.len())]).unwrap()),
        _ => {}
    }
    let own = heirs[random.below(heirs.len())].clone();
    let number = u32::try_from(random.met.len()).unwrap();
    random.met.push(own.clone());
    let state = match own.content_type() {
        Some(held) => vec![value(&held, random, depth + 1)],
        None => own.state_members().iter().map(|member| value(&member.ty, random, depth + 1)).collect(),
    };
    Value::Instance(Box::new(ValueInstance { number, type_code: own, state }))
}

type Type = fn() -> TypeCode;
const BASE: Type = values::Base::value_type;
const DERIVED: Type = values::Derived::value_type;
const FURTHER: Type = values::Further::value_type;
const FIRM: Type = values::Firm::value_type;
const NODE: Type = values::Node::value_type;
const CIRCLE: Type = values::Circle::value_type;
const RING: Type = values::Ring::value_type;
const TEXT: Type = values::Text::value_type;

fn known_type(_: &(dyn Any + Sync), id: &[u8]) -> Option<TypeCode> {
    let all = [BASE, DERIVED, FURTHER, FIRM, NODE, CIRCLE, RING, TEXT];
    all.iter().map(|of| of()).find(|known| known.id().as_bytes() == id)
}

fn factories() -> ValueFactories {
    let factories = ValueFactories::new();
    factories.register::<values::Base>();
    factories.register::<values::Derived>();
    factories.register::<values::Further>();
    factories.register::<values::Firm>();
    factories.register::<values::Node>();
    factories.register::<values::Circle>();
    factories.register::<values::Ring>();
    factories.register::<values::Text>();
    factories
}

#[derive(Clone, Copy)]
struct Place {
    endian: Endian,
    before: usize,
}

fn written(place: Place, write: impl FnOnce(&mut Encoder<'_>) -> Result<(), CdrError>) -> Vec<u8> {
    let mut e = Encoder::new();
    e.set_endian(place.endian);
    e.set_code_sets(CodeSets::UTF8_UTF16);
    e.write_bytes(&vec![7; place.before]);
    write(&mut e).unwrap();
    e.to_vec()
}

fn decoder<'m>(
    octets: &'m [u8],
    place: Place,
    (space, factories): (&'m ValueReadState, &'m ValueFactories),
) -> Decoder<'m> {
    let d = Decoder::new(octets, place.endian).at_position(place.before).with_code_sets(CodeSets::UTF8_UTF16);
    d.with_value_read_state(space).with_decoding_context(factories)
}

fn same<T: Typed + PartialEq + Debug>() {
    both::<T>(&|one, other| assert_eq!(one, other));
}

/// Checks only octets, not values as [`same`] does: instances of valuetypes in two messages are
/// never equal.
fn same_octets<T: Typed>() {
    both::<T>(&|_, _| ());
}

fn both<T: Typed>(equal: &dyn Fn(&T, &T)) {
    let type_code = T::type_code();
    let factories = factories();
    for seed in 1..=VALUES {
        let mut random = Random::new(seed);
        let tree = value(&type_code, &mut random, 0);
        let mut values: Vec<T> = Vec::new();
        for endian in [Endian::Big, Endian::Little] {
            let place = Place { endian, before: random.below(9) };
            let octets = written(place, |e| tree.encode(&type_code, e));
            let shown = || format!("{type_code}, seed {seed}, {endian:?} after {} octets: {tree:?}", place.before);
            let space = ValueReadState::new();
            let mut d = decoder(&octets, place, (&space, &factories));
            let value = T::read(&mut d, &type_code).unwrap_or_else(|error| panic!("{error}: {}", shown()));
            assert_eq!(d.remaining_len(), 0, "{}", shown());
            assert_eq!(written(place, |e| value.write(e, &type_code)), octets, "{}", shown());
            let space = ValueReadState::new().with_lookup_and_converter(Some(known_type), None);
            let mut d = decoder(&octets, place, (&space, &factories));
            let any = AnyValue::decode_value(type_code.clone(), &mut d).unwrap();
            assert_eq!((any.value().as_ref(), d.remaining_len()), (Ok(&tree), 0), "{}", shown());
            for endian in [Endian::Big, Endian::Little] {
                let place = Place { endian, before: random.below(9) };
                let dynamic = written(place, |e| any.encode_value(e));
                assert_eq!(dynamic, written(place, |e| value.write(e, &type_code)), "{}", shown());
            }
            values.push(value);
        }
        equal(&values[0], &values[1]);
    }
}

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
    fixed_point: values::Money, values::Account, Fixed<1, 1>, Fixed<30, 0>;
    types_of_idl_4: values::Small, values::Larger, values::Maps, values::Rights, values::Word;
}

#[test]
fn value_types_have_equal_octets_from_both_encoders() {
    same_octets::<Option<values::NodeRef>>();
    same_octets::<values::Nodes>();
    same_octets::<[Option<values::NodeRef>; 3]>();
    same_octets::<Option<values::BaseRef>>();
    same_octets::<Option<values::FurtherRef>>();
    same_octets::<Vec<Option<values::BaseRef>>>();
    same_octets::<Option<AnyValueRef>>();
}

#[test]
fn boxes_and_abstract_types_have_equal_octets_from_both_encoders() {
    same_octets::<Option<values::TextRef>>();
    same_octets::<Vec<Option<values::LongsRef>>>();
    same_octets::<Option<values::CornerRef>>();
    same_octets::<Option<values::ShapeRef>>();
    same_octets::<Vec<Option<values::DescribedRef>>>();
}

#[test]
fn values_in_structures_and_unions_have_equal_octets_from_both_encoders() {
    same_octets::<values::Choice>();
    same_octets::<Vec<values::Mixed>>();
    same_octets::<values::Rejected>();
}

#[test]
fn exceptions_have_equal_octets_from_both_encoders() {
    same::<Failed>();
    same::<Other>();
}

#[test]
fn different_values_have_different_octets() {
    let place = Place { endian: Endian::Big, before: 0 };
    let point = |x| written(place, |e| Cdr::encode(&Point { x, y: 0.5 }, e));
    let tree = |x| Value::Struct(vec![Value::Long(x), Value::Double(0.5)]);
    assert_eq!(point(1), written(place, |e| tree(1).encode(&Point::type_code(), e)));
    assert_ne!(point(1), written(place, |e| tree(2).encode(&Point::type_code(), e)));
}
