//! DynAny: taking values apart and assembling them without generated types.

use corelane::dynamic::{DynAny, DynAnyError};
use corelane::{Any, Orb, TypeCode, Typed};
use corelane_tests::any::{Choice, Colour, Everything, Number, Point, Tree, dynamic, everything, serve_echo};
use corelane_wire::typecode::UnionMember;

fn dyn_any<T: Typed>(value: &T) -> DynAny {
    DynAny::new(&Any::new(value).unwrap()).unwrap()
}

#[test]
fn members_put_back_give_the_same_value() {
    let (_server, echo) = serve_echo(Orb::builder());
    let all = everything(&echo);
    let mut value = dyn_any(&all);
    assert_eq!(value.component_count(), value.type_code().member_count());
    assert_eq!(value.to_any().unwrap(), Any::new(&all).unwrap());
    let members = value.members().unwrap();
    let named: Vec<(&str, DynAny)> = members.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!((named[0].0, named[0].1.get::<bool>().unwrap()), ("b", true));
    value.set_members(&named).unwrap();
    assert_eq!(value, dyn_any(&all));
    assert_eq!(value.set_members(&named[1..]), Err(DynAnyError::InvalidValue));
    let mut renamed = named.clone();
    renamed[0].0 = "other";
    assert_eq!(value.set_members(&renamed), Err(DynAnyError::TypeMismatch));
    let fresh = DynAny::from_type_code(&Everything::type_code()).unwrap();
    assert!(fresh.component_count() == value.component_count() && fresh != value);
    assert_eq!(fresh.to_any().unwrap().type_code(), &Everything::type_code());
}

#[test]
fn current_component_can_be_moved() {
    let mut value = dyn_any(&Point { x: 1, y: 2.0 });
    assert_eq!((value.current_member_name().unwrap().as_str(), value.get::<i32>().unwrap()), ("x", 1));
    value.insert(&7i32).unwrap();
    assert!(value.advance());
    assert_eq!(value.insert(&7i32), Err(DynAnyError::TypeMismatch));
    value.current_component().unwrap().unwrap().insert(&0.5f64).unwrap();
    assert!(!value.advance() && value.current_component().unwrap().is_none());
    assert_eq!(value.get::<i32>(), Err(DynAnyError::InvalidValue));
    assert!(value.rewind() && !value.seek(2) && value.seek(1));
    assert_eq!(value.to_any().unwrap().extract::<Point>().unwrap(), Point { x: 7, y: 0.5 });
    let mut number = dyn_any(&1i32);
    assert!(!number.rewind() && number.component_count() == 0);
    assert_eq!(number.current_component().unwrap_err(), DynAnyError::TypeMismatch);
    number.assign(&dyn_any(&2i32)).unwrap();
    assert_eq!(number.assign(&dyn_any(&2i16)), Err(DynAnyError::TypeMismatch));
    assert_eq!(number.get::<i32>().unwrap(), 2);
}

#[test]
fn change_of_a_nested_component_changes_the_whole() {
    let leaf = Tree { name: "leaf".into(), content: Any::null(), children: vec![] };
    let mut value = dyn_any(&Tree { name: "top".into(), content: Any::null(), children: vec![leaf] });
    assert!(value.seek(2));
    let mut children = value.current_component().unwrap().unwrap();
    let mut child = children.current_component().unwrap().unwrap();
    child.insert(&"changed".to_owned()).unwrap();
    drop(child);
    drop(children);
    assert_eq!(value.to_any().unwrap().extract::<Tree>().unwrap().children[0].name, "changed");
    // An assignment through a component's handle replaces the whole value.
    let mut replaced = value.clone();
    *replaced.current_component().unwrap().unwrap() = dyn_any(&1i32);
    assert_eq!(replaced, dyn_any(&1i32));
    value.rewind();
    assert_eq!(value.insert(&"x".repeat(33)), Err(DynAnyError::InvalidValue));
}

#[test]
fn elements_of_sequences_and_arrays_can_be_read_and_changed() {
    let mut list = dyn_any(&vec![1i32, 2]);
    list.set_length(4).unwrap();
    assert_eq!(list.to_any().unwrap().extract::<Vec<i32>>().unwrap(), [1, 2, 0, 0]);
    let backwards: Vec<DynAny> = list.elements().unwrap().iter().rev().cloned().collect();
    list.set_elements(&backwards).unwrap();
    assert_eq!(list.to_any().unwrap().extract::<Vec<i32>>().unwrap(), [0, 0, 2, 1]);
    assert_eq!(list.set_elements(&[dyn_any(&1i16)]), Err(DynAnyError::TypeMismatch));
    list.set_length(0).unwrap();
    assert!(list.current_component().unwrap().is_none());
    let mut bounded = DynAny::from_type_code(&TypeCode::from_description(&dynamic::KEY_TYPE)).unwrap();
    bounded.set_length(16).unwrap();
    assert_eq!(bounded.set_length(17), Err(DynAnyError::InvalidValue));
    let mut array = dyn_any(&[1i32, 2, 3]);
    assert_eq!((array.set_length(4), array.set_elements(&backwards)), {
        (Err(DynAnyError::TypeMismatch), Err(DynAnyError::InvalidValue))
    });
    array.set_elements(&backwards[1..]).unwrap();
    assert_eq!(array.to_any().unwrap().extract::<[i32; 3]>().unwrap(), [0, 2, 1]);
}

#[test]
fn enumerations_and_fixed_values_can_be_read_and_changed() {
    let mut colour = dyn_any(&Colour::Green);
    assert_eq!((colour.enumerator().unwrap().as_str(), colour.enumerator_number().unwrap()), ("green", 1));
    colour.set_enumerator("blue").unwrap();
    assert_eq!(colour.set_enumerator("pink"), Err(DynAnyError::InvalidValue));
    assert_eq!(colour.set_enumerator_number(3), Err(DynAnyError::InvalidValue));
    assert_eq!(colour.to_any().unwrap().extract::<Colour>().unwrap(), Colour::Blue);
    let mut money = DynAny::from_type_code(&TypeCode::fixed(5, 2).unwrap()).unwrap();
    money.set_fixed(-12_345).unwrap();
    assert_eq!((money.fixed().unwrap(), money.set_fixed(100_000)), (-12_345, Err(DynAnyError::InvalidValue)));
    assert_eq!(money.decimal().unwrap().to_string(), "-123.45");
    assert_eq!(money.set_decimal("1.5".parse().unwrap()), Ok(true));
    assert_eq!((money.fixed().unwrap(), money.set_decimal("-1.999".parse().unwrap())), (150, Ok(false)));
    assert_eq!(
        (money.fixed().unwrap(), money.set_decimal("1000".parse().unwrap())),
        (-199, Err(DynAnyError::InvalidValue))
    );
    let mut thousands = DynAny::from_type_code(&TypeCode::fixed(3, -3).unwrap()).unwrap();
    assert_eq!(thousands.set_decimal("123456".parse().unwrap()), Ok(false));
    assert_eq!(thousands.decimal().unwrap().to_string(), "123000");
    assert_eq!(colour.decimal(), Err(DynAnyError::TypeMismatch));
    assert_eq!((colour.fixed(), money.enumerator()), (Err(DynAnyError::TypeMismatch), Err(DynAnyError::TypeMismatch)));
}

#[test]
fn union_members_follow_the_discriminator() {
    let mut choice = dyn_any(&Choice::Number(5));
    assert_eq!((choice.member_name().unwrap().as_str(), choice.member().unwrap().get::<i32>().unwrap()), ("number", 5));
    let label = |colour| dyn_any(&colour);
    choice.set_discriminator(&label(Colour::Red)).unwrap();
    assert_eq!(choice.to_any().unwrap().extract::<Choice>().unwrap(), Choice::Number(5));
    choice.set_discriminator(&label(Colour::Green)).unwrap();
    choice.member().unwrap().insert(&3i32).unwrap();
    assert_eq!(choice.to_any().unwrap().extract::<Choice>().unwrap(), Choice::Where(Point { x: 3, y: 0.0 }));
    choice.set_discriminator(&label(Colour::Blue)).unwrap();
    assert_eq!((choice.has_no_active_member(), choice.component_count()), (Ok(true), 1));
    assert_eq!(choice.member().unwrap_err(), DynAnyError::InvalidValue);
    choice.set_discriminator(&label(Colour::Red)).unwrap();
    choice.set_to_no_active_member().unwrap();
    assert_eq!(choice.to_any().unwrap().extract::<Choice>().unwrap(), Choice::Other(Colour::Blue));
    assert_eq!(choice.set_to_default_member(), Err(DynAnyError::TypeMismatch));
    let arm = |label, name: &str| UnionMember { label, name: name.into(), ty: TypeCode::LONG };
    let arms = [arm(None, "other"), arm(Some(0), "zero"), arm(Some(1), "one")];
    let first = DynAny::from_type_code(&TypeCode::union("IDL:U:1.0", "U", TypeCode::SHORT, arms).unwrap()).unwrap();
    assert_eq!((first.member_name().unwrap().as_str(), first.discriminator().unwrap().get()), ("other", Ok(2i16)));
    let mut number = dyn_any(&Number::Large('b', 7));
    number.set_to_default_member().unwrap();
    assert_eq!(number.to_any().unwrap().extract::<Number>().unwrap(), Number::Other('\0', String::new()));
    assert_eq!(number.set_to_no_active_member(), Err(DynAnyError::TypeMismatch));
}
