//! Valuetypes, maps, bit masks and bit sets of crates/idl/tests/accepted/values.idl in `any`.

use std::collections::BTreeMap;

use corelane::mapping::{Decoder, Encoder, read_value, write_value};
use corelane::{
    Any, AnyValueRef, CdrError, Orb, SystemExceptionKind, TypeCode, Value, ValueFactories, ValueGraph,
    ValueImplementation, ValueRef,
};
use corelane_tests::any::{EchoRef, serve_echo};
use corelane_wire::cdr::{Cdr, Endian, ValueReadState};

corelane::include_idl!("values");

use values::*;

fn node(id: i32, left: Option<NodeRef>, right: Option<NodeRef>) -> Node {
    Node { id, left, right, secret: format!("secret {id}") }
}

fn ring() -> NodeRef {
    let graph = ValueGraph::new();
    let first = graph.declare::<Node>();
    let second = graph.add(node(2, Some(first.clone()), None));
    assert!(graph.define(&first, node(1, Some(second.clone()), Some(second))));
    graph.close(first)
}

fn assert_ring(found: &NodeRef) {
    let state = found.get();
    let (left, right) = (state.left.clone().unwrap(), state.right.clone().unwrap());
    assert_eq!((state.id, &left, left.get().id, &left.get().left), (1, &right, 2, &Some(found.clone())));
    assert_eq!(state.secret, "secret 1");
}

fn around(any: &Any) -> Any {
    let around: Any = Any::new(&vec![any.clone(), any.clone()]).unwrap().extract::<Vec<Any>>().unwrap().swap_remove(1);
    assert_eq!(&around, any);
    assert_eq!(&Any::from_value(any.type_code(), &around.value().unwrap()).unwrap(), any);
    around
}

#[test]
fn cyclic_value_survives_any() {
    let any = Any::new(&Some(ring())).unwrap();
    assert_eq!(any.type_code(), &TypeCode::from_description(&NODE_TYPE));
    assert_ring(&any.extract::<Option<NodeRef>>().unwrap().unwrap());
    assert_ring(&around(&around(&any)).extract::<Option<NodeRef>>().unwrap().unwrap());
    assert!(any.is::<Option<AnyValueRef>>() && !any.is::<Option<BaseRef>>());
    let null = around(&Any::new(&None::<NodeRef>).unwrap());
    assert_eq!(null.extract::<Option<NodeRef>>().unwrap(), None);
}

#[test]
fn value_in_any_keeps_its_own_type() {
    let base = Base { tag: 1, label: "a label".to_owned() };
    let derived = Derived { base: base.clone(), extra: 0.5, graph: Some(ring()) };
    let handle: BaseRef = ValueRef::new(derived.clone()).widen();
    let any = around(&Any::new(&Some(handle.clone())).unwrap());
    assert_eq!(any.type_code(), &TypeCode::from_description(&DERIVED_TYPE));
    let found = any.extract::<Option<DerivedRef>>().unwrap().unwrap();
    assert_eq!((&found.get().base, found.get().extra), (&base, 0.5));
    assert_ring(found.get().graph.as_ref().unwrap());
    // No factory for the derived type is registered, so the value is truncated to its base.
    assert_eq!(*any.extract::<Option<BaseRef>>().unwrap().unwrap().get(), base);
}

#[test]
fn boxes_and_abstract_types_survive_any() {
    let text: TextRef = ValueRef::new(Text("grüße €".to_owned()));
    let any = around(&Any::new(&Some(text)).unwrap());
    assert_eq!(any.extract::<Option<TextRef>>().unwrap().unwrap().get().0, "grüße €");
    let shape: ShapeRef = ValueRef::new(Circle { radius: 2.0 }).widen();
    let any = around(&Any::new(&Some(shape)).unwrap());
    assert_eq!(any.extract::<Option<CircleRef>>().unwrap().unwrap().get().radius, 2.0);
}

#[test]
fn trees_that_do_not_match_their_type_are_refused() {
    let any = Any::new(&Some(ring())).unwrap();
    let Value::Instance(ring) = any.value().unwrap() else { panic!("{any:?}") };
    let Value::Instance(second) = &ring.state[1] else { panic!("{ring:?}") };
    assert_eq!((ring.number, second.number, &second.state[1], &ring.state[2]), {
        (0, 1, &Value::InstanceRef(0), &Value::InstanceRef(1))
    });
    let refused = |change: &dyn Fn(&mut corelane_wire::dynamic::ValueInstance)| {
        let mut changed = ring.clone();
        change(&mut changed);
        Any::from_value(any.type_code(), &Value::Instance(changed)).unwrap_err().kind()
    };
    let bad = SystemExceptionKind::BadParam;
    assert_eq!(refused(&|ring| ring.state[2] = Value::InstanceRef(7)), bad);
    assert_eq!(refused(&|ring| ring.state.truncate(3)), bad);
    assert_eq!(refused(&|ring| ring.state[2] = ring.state[1].clone()), bad);
    assert_eq!(refused(&|ring| ring.type_code = TypeCode::from_description(&BASE_TYPE)), bad);
    assert_eq!(refused(&|ring| ring.type_code = TypeCode::from_description(&SHAPE_TYPE)), bad);
    assert_eq!(refused(&|ring| ring.state[1] = Value::Long(1)), bad);
    assert!(Any::from_value(&TypeCode::VALUE_BASE, &any.value().unwrap()).is_ok());
}

#[test]
fn types_of_idl_4_survive_any() {
    let ages: Ages = BTreeMap::from([("Ada".to_owned(), 36), ("Bob".to_owned(), 7)]);
    let any = around(&Any::with_type(&TypeCode::from_description(&AGES_TYPE), &ages).unwrap());
    assert_eq!(any.extract::<Ages>().unwrap(), ages);
    assert_eq!(around(&Any::new(&ages).unwrap()).extract::<Ages>().unwrap(), ages);
    let any = Any::new(&(Rights::READ | Rights::TYPE)).unwrap();
    assert_eq!((any.type_code(), any.extract().unwrap()), (&TypeCode::OCTET, Rights::READ | Rights::TYPE));
    let any = Any::new(&Word::default().with_delta(-3)).unwrap();
    assert_eq!((any.type_code(), any.extract::<Word>().unwrap().delta()), (&TypeCode::USHORT, -3));
}

struct Backwards(String);

impl LetterOperations for Backwards {
    fn state(&self) -> Letter {
        Letter { text: self.0.clone() }
    }

    fn marshal(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_f64(0.5);
        e.write_str(&self.0.chars().rev().collect::<String>())
    }
}

fn backwards(d: &mut Decoder<'_>) -> Result<ValueImplementation<Letter>, CdrError> {
    d.read_f64()?;
    Ok(LetterOperations::implementation(Backwards(d.read_string()?.chars().rev().collect())))
}

#[test]
fn custom_values_pass_through_a_server_without_their_code() {
    let (_server, echo) = serve_echo(Orb::builder());
    let client = Orb::new().unwrap();
    client.value_factories().register_custom(backwards);
    let echo: EchoRef = client.string_to_reference(&echo.as_object().to_string()).unwrap();
    let letter = || Some(LetterOperations::implementation(Backwards("a letter".to_owned())).value());
    let any = Any::new(&letter()).unwrap();
    assert_eq!(any.type_code(), &TypeCode::from_description(&LETTER_TYPE));
    assert_eq!(any.value().unwrap_err().kind(), SystemExceptionKind::NoImplement);
    let text = |any: &Any| any.extract::<Option<LetterRef>>().unwrap().unwrap().get().text.clone();
    for shift in 0..9usize {
        // The string varies the offset of the value in the message.
        let shifted = Any::new(&vec![Any::new(&"x".repeat(shift)).unwrap(), any.clone(), any.clone()]).unwrap();
        let (result, second, type_code) = echo.pass(&shifted, &any).unwrap();
        assert_eq!((&type_code, &result, &second), (shifted.type_code(), &shifted, &any));
        let list: Vec<Any> = result.extract().unwrap();
        assert_eq!((text(&list[1]), text(&list[2]), text(&second)), {
            ("a letter".to_owned(), "a letter".to_owned(), "a letter".to_owned())
        });
    }
    let request = echo.as_object().request("pass").input(Any::new(&any).unwrap()).inout(Any::new(&any).unwrap());
    let response = request.output(TypeCode::TYPE_CODE).returns(TypeCode::ANY).invoke().unwrap();
    assert_eq!(text(&response.result.extract().unwrap()), "a letter");
    assert_eq!(text(&response.outputs[0].extract().unwrap()), "a letter");
}

/// The second occurrence of the value is written as an indirection to the first.
#[test]
fn indirections_lead_into_an_any_and_out_of_it() {
    let ring = ring();
    let written = |write: &dyn Fn(&mut Encoder<'_>) -> Result<(), CdrError>| {
        let mut e = Encoder::new();
        write(&mut e).unwrap();
        e.to_vec()
    };
    let octets = written(&|e| {
        write_value(e, Some(&ring))?;
        write_value(e, Some(&ring))
    });
    let (factories, space) = (ValueFactories::new(), ValueReadState::new());
    let mut d = Decoder::new(&octets, Endian::NATIVE).with_value_read_state(&space).with_decoding_context(&factories);
    let first = corelane_wire::AnyValue::decode_value(TypeCode::from_description(&NODE_TYPE), &mut d).unwrap();
    assert_ring(&read_value::<Node>(&mut d).unwrap().unwrap());
    let (factories, space) = (ValueFactories::new(), ValueReadState::new());
    let mut d = Decoder::new(&octets, Endian::NATIVE).with_value_read_state(&space).with_decoding_context(&factories);
    assert_ring(&read_value::<Node>(&mut d).unwrap().unwrap());
    let second = corelane_wire::AnyValue::decode_value(TypeCode::from_description(&NODE_TYPE), &mut d).unwrap();
    assert_eq!((first == second, d.remaining_len()), (true, 0));
    let mut e = Encoder::new();
    second.encode(&mut e).unwrap();
    let octets = e.to_vec();
    let space = ValueReadState::new();
    let any = Any::decode(&mut Decoder::new(&octets, Endian::NATIVE).with_value_read_state(&space)).unwrap();
    assert_ring(&any.extract::<Option<NodeRef>>().unwrap().unwrap());
}
