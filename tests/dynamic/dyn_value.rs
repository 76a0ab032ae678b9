//! DynAny of valuetypes: members, null, boxes, sharing and cycles.

use corelane::dynamic::{DynAny, DynAnyError};
use corelane::mapping::{Decoder, Encoder, write_value};
use corelane::{Any, TypeCode, TypeCodeKind, Typed, ValueGraph, ValueRef};
use corelane_wire::CodeSets;
use corelane_wire::cdr::{Cdr, Endian, ValueReadState};

corelane::include_idl!("values");

use values::*;

fn dyn_any<T: Typed>(value: &T) -> DynAny {
    DynAny::new(&Any::new(value).unwrap()).unwrap()
}

fn of_type(type_code: &'static corelane_wire::typecode::StaticTypeCode) -> DynAny {
    DynAny::from_type_code(&TypeCode::from_description(type_code)).unwrap()
}

fn out<T: Typed>(value: &DynAny) -> T {
    value.to_any().unwrap().extract().unwrap()
}

fn named(members: &[(String, DynAny)]) -> Vec<(&str, DynAny)> {
    members.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
}

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

const ID: usize = 0;
const LEFT: usize = 1;
const RIGHT: usize = 2;

fn at<T>(value: &mut DynAny, path: &[usize], look: impl FnOnce(&mut DynAny) -> T) -> T {
    let Some((first, rest)) = path.split_first() else { return look(value) };
    assert!(value.seek(*first));
    at(&mut value.current_component().unwrap().unwrap(), rest, look)
}

fn id_at(value: &mut DynAny, path: &[usize]) -> i32 {
    at(value, path, |found| found.get().unwrap())
}

#[test]
fn members_have_names_and_types() {
    let mut value = dyn_any(&Some(ValueRef::new(node(5, None, None))));
    assert_eq!((value.component_count(), value.is_null()), (4, Ok(false)));
    let mut seen = Vec::new();
    loop {
        seen.push((value.current_member_name().unwrap(), value.current_member_kind().unwrap()));
        if !value.advance() {
            break;
        }
    }
    let seen: Vec<_> = seen.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    assert_eq!(
        seen,
        [
            ("id", TypeCodeKind::Long),
            ("left", TypeCodeKind::Value),
            ("right", TypeCodeKind::Value),
            ("secret", TypeCodeKind::String)
        ]
    );
    assert_eq!(value.current_member_name(), Err(DynAnyError::InvalidValue));
    value.rewind();
    value.insert(&6i32).unwrap();
    assert_eq!((value.get::<i32>(), value.insert(&6i16)), (Ok(6), Err(DynAnyError::TypeMismatch)));
    at(&mut value, &[3], |secret| secret.insert(&"changed".to_owned()).unwrap());
    let found = out::<Option<NodeRef>>(&value).unwrap().get().clone();
    assert_eq!((found.id, found.left, found.secret.as_str()), (6, None, "changed"));
    let mut members = value.members().unwrap();
    members[ID].1.insert(&7i32).unwrap();
    value.set_members(&named(&members)).unwrap();
    assert_eq!(id_at(&mut value, &[ID]), 7);
    assert_eq!(value.set_members(&named(&members)[1..]), Err(DynAnyError::InvalidValue));
    members[ID].0 = "other".to_owned();
    assert_eq!(value.set_members(&named(&members)), Err(DynAnyError::TypeMismatch));
    members.swap(0, 1);
    assert_eq!(value.set_members(&named(&members)), Err(DynAnyError::TypeMismatch));
}

#[test]
fn shared_value_changes_in_all_its_places() {
    let mut value = dyn_any(&Some(ring()));
    let before = value.clone();
    at(&mut value, &[LEFT], |second| second.insert(&20i32).unwrap());
    assert_eq!(id_at(&mut value, &[RIGHT, ID]), 20);
    at(&mut value, &[RIGHT, LEFT, LEFT, LEFT, ID], |id| id.insert(&10i32).unwrap());
    assert_eq!(id_at(&mut value, &[ID]), 10);
    let found = out::<Option<NodeRef>>(&value).unwrap();
    let state = found.get();
    let second = state.left.clone().unwrap();
    assert_eq!((state.id, second.get().id, &second.get().left), (10, 20, &Some(found.clone())));
    assert_eq!(state.right, Some(second));
    assert!(before != value && before == dyn_any(&Some(ring())));
    let mut again = before.clone();
    again.assign(&value).unwrap();
    assert_eq!(again, value);
    assert_eq!(out::<Option<NodeRef>>(&again).unwrap().get().left.clone().unwrap().get().id, 20);
    again.assign_any(&before.to_any().unwrap()).unwrap();
    assert_eq!(again, before);
    at(&mut again, &[LEFT, LEFT, ID], |id| id.insert(&3i32).unwrap());
    assert_eq!(id_at(&mut again, &[ID]), 3);
}

#[test]
fn equality_ignores_sharing() {
    let leaf = || ValueRef::new(node(2, None, None));
    let shared = leaf();
    let one = dyn_any(&Some(ValueRef::new(node(1, Some(shared.clone()), Some(shared)))));
    let two = dyn_any(&Some(ValueRef::new(node(1, Some(leaf()), Some(leaf())))));
    assert_eq!(one, two);
    assert!(one != dyn_any(&Some(ValueRef::new(node(1, Some(leaf()), None)))));
    assert!(one != dyn_any(&Some(ring())));
    let around = |count: usize| {
        let graph = ValueGraph::new();
        let nodes: Vec<NodeRef> = (0..count).map(|_| graph.declare()).collect();
        for at in 0..count {
            assert!(graph.define(&nodes[at], node(1, Some(nodes[(at + 1) % count].clone()), None)));
        }
        let first = nodes[0].clone();
        dyn_any(&Some(graph.close(first)))
    };
    assert!(around(1) == around(2) && around(2) == around(3));
}

#[test]
fn members_put_back_keep_their_identity() {
    let mut value = dyn_any(&Some(ring()));
    let mut members = value.members().unwrap();
    members.swap(LEFT, RIGHT);
    members[LEFT].0 = "left".to_owned();
    members[RIGHT].0 = String::new();
    value.set_members(&named(&members)).unwrap();
    assert_eq!(id_at(&mut value, &[LEFT, LEFT, ID]), 1);
    let found = out::<Option<NodeRef>>(&value).unwrap();
    assert_eq!(
        (&found.get().left, found.get().left.clone().unwrap().get().left.clone()),
        (&found.get().right, Some(found))
    );
    let other = dyn_any(&Some(ValueRef::new(node(8, Some(ring()), None))));
    let mut members = value.members().unwrap();
    members[LEFT].1 = other.clone();
    members[RIGHT].1 = other;
    value.set_members(&named(&members)).unwrap();
    at(&mut value, &[LEFT, ID], |id| id.insert(&9i32).unwrap());
    assert_eq!((id_at(&mut value, &[RIGHT, ID]), id_at(&mut value, &[RIGHT, LEFT, RIGHT, LEFT, ID])), (9, 1));
    let mut list = dyn_any(&vec![Some(ring()), None]);
    let first = list.elements().unwrap()[0].clone();
    list.set_elements(&[first.clone(), first.clone(), first]).unwrap();
    at(&mut list, &[0, ID], |id| id.insert(&5i32).unwrap());
    assert_eq!((id_at(&mut list, &[2, ID]), list.component_count()), (5, 3));
    let mut numbers = dyn_any(&vec![1i32, 2]);
    let first = numbers.elements().unwrap()[0].clone();
    numbers.set_elements(&[first.clone(), first]).unwrap();
    at(&mut numbers, &[0], |number| number.insert(&7i32).unwrap());
    assert_eq!(out::<Vec<i32>>(&numbers), [7, 1]);
}

#[test]
fn null_can_become_a_value_and_a_value_can_become_null() {
    let mut value = of_type(&NODE_TYPE);
    assert_eq!((value.is_null(), value.component_count(), value.rewind()), (Ok(true), 0, false));
    assert!(value.current_component().unwrap().is_none());
    assert_eq!((value.members().unwrap_err(), value.insert(&1i32)), {
        (DynAnyError::InvalidValue, Err(DynAnyError::InvalidValue))
    });
    assert_eq!(out::<Option<NodeRef>>(&value), None);
    assert_eq!(value, dyn_any(&None::<NodeRef>));
    value.set_to_value().unwrap();
    assert_eq!((value.is_null(), value.component_count(), id_at(&mut value, &[ID])), (Ok(false), 4, 0));
    let found = out::<Option<NodeRef>>(&value).unwrap();
    assert_eq!((found.get().id, found.get().left.clone(), found.get().secret.as_str()), (0, None, ""));
    at(&mut value, &[LEFT], |left| left.set_to_value().unwrap());
    at(&mut value, &[LEFT, ID], |id| id.insert(&4i32).unwrap());
    value.set_to_value().unwrap();
    assert_eq!(id_at(&mut value, &[LEFT, ID]), 4);
    let members = value.members().unwrap();
    let mut null = of_type(&NODE_TYPE);
    null.set_members(&named(&members)).unwrap();
    assert_eq!(null, value);
    let mut ring = dyn_any(&Some(ring()));
    at(&mut ring, &[LEFT], |second| second.set_to_null().unwrap());
    at(&mut ring, &[RIGHT], |second| assert_eq!(second.is_null(), Ok(true)));
    assert_eq!(out::<Option<NodeRef>>(&ring).unwrap().get().right, None);
    let mut number = dyn_any(&1i32);
    assert_eq!(number.is_null(), Err(DynAnyError::TypeMismatch));
    assert_eq!(number.set_to_null(), Err(DynAnyError::TypeMismatch));
    assert_eq!(number.set_to_value(), Err(DynAnyError::TypeMismatch));
}

#[test]
fn value_keeps_its_own_type() {
    let base = Base { tag: 1, label: "a label".to_owned() };
    let derived: BaseRef = ValueRef::new(Derived { base: base.clone(), extra: 0.5, graph: Some(ring()) }).widen();
    let mut value = dyn_any(&Some(derived));
    assert_eq!(value.type_code(), &TypeCode::from_description(&DERIVED_TYPE));
    let members = value.members().unwrap();
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tag", "label", "extra", "graph"]);
    at(&mut value, &[3, LEFT, ID], |id| id.insert(&6i32).unwrap());
    let found = out::<Option<BaseRef>>(&value).unwrap();
    assert_eq!(*found.get(), base);
    let found = out::<Option<DerivedRef>>(&value).unwrap();
    assert_eq!(found.get().graph.as_ref().unwrap().get().right.as_ref().unwrap().get().id, 6);
    let list = TypeCode::sequence(TypeCode::from_description(&BASE_TYPE), 0).unwrap();
    let mut list = DynAny::from_type_code(&list).unwrap();
    let plain = dyn_any(&Some(ValueRef::new(base)));
    list.set_elements(&[value.clone(), plain.clone(), value.clone()]).unwrap();
    let found = out::<Vec<Option<BaseRef>>>(&list);
    assert_eq!((&found[0], found[0].as_ref().unwrap().get().tag), (&found[2], 1));
    let mut list =
        DynAny::from_type_code(&TypeCode::sequence(TypeCode::from_description(&DERIVED_TYPE), 0).unwrap()).unwrap();
    assert_eq!(list.set_elements(std::slice::from_ref(&plain)), Err(DynAnyError::TypeMismatch));
    assert_eq!(plain.clone().assign(&value), Err(DynAnyError::TypeMismatch));
    // ValueBase is the base of all value types, so its sequence takes both values.
    let mut list = DynAny::from_type_code(&TypeCode::sequence(TypeCode::VALUE_BASE, 0).unwrap()).unwrap();
    list.set_elements(&[plain, value]).unwrap();
    assert_eq!(DynAny::new(&list.to_any().unwrap()).unwrap(), list);
    let mut nothing = DynAny::from_type_code(&TypeCode::VALUE_BASE).unwrap();
    assert_eq!((nothing.is_null(), nothing.set_to_value()), (Ok(true), Err(DynAnyError::TypeMismatch)));
    let mut shape = of_type(&SHAPE_TYPE);
    assert_eq!((shape.is_null(), shape.set_to_value()), (Ok(true), Err(DynAnyError::TypeMismatch)));
    assert!(matches!(of_type(&LETTER_TYPE).set_to_value(), Err(DynAnyError::System(_))));
    let circle: ShapeRef = ValueRef::new(Circle { radius: 2.0 }).widen();
    let circle = dyn_any(&Some(circle));
    assert_eq!((circle.get::<f64>(), circle.type_code()), (Ok(2.0), &TypeCode::from_description(&CIRCLE_TYPE)));
}

#[test]
fn value_boxes_can_be_read_and_changed() {
    let mut text = dyn_any(&Some(ValueRef::new(Text("grüße".to_owned()))));
    assert_eq!(
        (text.is_null(), text.component_count(), text.get::<String>().unwrap().as_str()),
        (Ok(false), 1, "grüße")
    );
    text.boxed_value().unwrap().insert(&"€".to_owned()).unwrap();
    assert_eq!(out::<Option<TextRef>>(&text).unwrap().get().0, "€");
    assert_eq!(text.members().unwrap_err(), DynAnyError::TypeMismatch);
    text.set_to_null().unwrap();
    assert_eq!((text.is_null(), text.boxed_value().unwrap_err()), (Ok(true), DynAnyError::InvalidValue));
    assert_eq!(text.set_boxed_value(&dyn_any(&1i32)), Err(DynAnyError::TypeMismatch));
    let wide = Any::with_type(&TypeCode::WSTRING, &"again".to_owned()).unwrap();
    text.set_boxed_value(&DynAny::new(&wide).unwrap()).unwrap();
    assert_eq!(out::<Option<TextRef>>(&text).unwrap().get().0, "again");
    let mut corner = of_type(&CORNER_TYPE);
    corner.set_to_value().unwrap();
    at(&mut corner, &[0, 1], |y| y.insert(&3i32).unwrap());
    assert_eq!(out::<Option<CornerRef>>(&corner).unwrap().get().0.y, 3);
    let mut longs = of_type(&LONGS_TYPE);
    longs.set_to_value().unwrap();
    longs.boxed_value().unwrap().set_length(3).unwrap();
    assert_eq!(out::<Option<LongsRef>>(&longs).unwrap().get().0, [0, 0, 0]);
    assert_eq!(dyn_any(&1i32).boxed_value().unwrap_err(), DynAnyError::TypeMismatch);
}

#[test]
fn truncation_is_reported() {
    let base = Base { tag: 1, label: "a label".to_owned() };
    let derived: BaseRef = ValueRef::new(Derived { base: base.clone(), extra: 0.5, graph: None }).widen();
    let base_type = TypeCode::from_description(&BASE_TYPE);
    let received = |types: &[&TypeCode], value: &BaseRef| {
        let mut e = Encoder::new();
        e.set_code_sets(CodeSets::UTF8_UTF16);
        types.iter().for_each(|type_code| type_code.encode(&mut e).unwrap());
        write_value(&mut e, Some(value)).unwrap();
        let (octets, space) = (e.to_vec(), ValueReadState::new());
        let d = Decoder::new(&octets, Endian::NATIVE).with_code_sets(CodeSets::UTF8_UTF16);
        Any::decode(&mut d.with_value_read_state(&space)).unwrap()
    };
    for types in [&[&base_type][..], &[&TypeCode::ANY, &base_type]] {
        let cut = received(types, &derived);
        assert!(cut.is_truncated() && DynAny::new(&cut).is_ok());
        assert_eq!(DynAny::without_truncation(&cut).unwrap_err(), DynAnyError::MustTruncate);
        let whole = received(types, &ValueRef::new(base.clone()));
        assert_eq!(DynAny::without_truncation(&whole).unwrap(), DynAny::new(&whole).unwrap());
    }
    let whole = received(&[&TypeCode::from_description(&DERIVED_TYPE)], &derived);
    assert!(DynAny::without_truncation(&whole).is_ok());
    assert!(DynAny::without_truncation(&Any::with_type(&base_type, &Some(derived)).unwrap()).is_ok());
}
