//! `any` with every type, over connections and within the process, and the extraction of values.

use corelane::{Any, LongDouble, Octets, Orb, SystemException, SystemExceptionKind, TypeCode, Typed, Value, Version};
use corelane_tests::any::{
    Choice, Colour, EchoRef, Everything, Failed, Number, PassError, Point, Tree, WIDE_NAMES_TYPE, everything,
    serve_echo,
};

fn through<T: Typed + PartialEq + std::fmt::Debug>(echo: &EchoRef, value: &T) {
    let any = Any::new(value).unwrap();
    assert_eq!((&any.extract::<T>().unwrap(), any.type_code()), (value, &T::type_code()));
    let nested = Any::new(&any).unwrap();
    let (first, second, type_code) = echo.pass(&any, &nested).unwrap();
    assert_eq!((&first.extract::<T>().unwrap(), &type_code), (value, any.type_code()));
    assert_eq!(&second.extract::<Any>().unwrap().extract::<T>().unwrap(), value);
    assert_eq!((&first, &second), (&any, &nested));
    let tree = first.value().unwrap();
    assert_eq!(tree, any.value().unwrap());
    if !has_reference(&tree) {
        assert_eq!(&Any::from_value(&type_code, &tree).unwrap().extract::<T>().unwrap(), value);
    }
}

/// Returns true if the value contains a reference that is not nil. Such a reference cannot be read
/// without an ORB.
fn has_reference(tree: &Value) -> bool {
    match tree {
        Value::Object(ior) => !ior.is_nil(),
        Value::Struct(parts) | Value::List(parts) => parts.iter().any(has_reference),
        Value::Union(union) => union.member.as_ref().is_some_and(has_reference),
        _ => false,
    }
}

fn every_type(echo: &EchoRef) {
    through(echo, &true);
    through(echo, &0xfeu8);
    through(echo, &'x');
    through(echo, &-2i16);
    through(echo, &65_535u16);
    through(echo, &-70_000i32);
    through(echo, &4_000_000_000u32);
    through(echo, &i64::MIN);
    through(echo, &u64::MAX);
    through(echo, &1.5f32);
    through(echo, &-2.25e200f64);
    through(echo, &LongDouble::from_f64(0.1));
    through(echo, &"text".to_owned());
    through(echo, &vec![1i32, 2, 3]);
    through(echo, &vec!["a".to_owned(), String::new()]);
    through(echo, &Octets::from(vec![9; 10_000]));
    through(echo, &[[1.0f64, 2.0], [3.0, 4.0]]);
    through(echo, &TypeCode::from_description(&corelane_tests::any::dynamic::EVERYTHING_TYPE));
    through(echo, &Colour::Blue);
    through(echo, &Point { x: 1, y: -0.5 });
    through(echo, &vec![Point { x: 1, y: 2.0 }]);
    through(echo, &Choice::Number(1));
    through(echo, &Choice::Other(Colour::Blue));
    through(echo, &Number::Large('b', 7));
    through(echo, &Failed { why: "why".into(), value: Any::new(&1i16).unwrap() });
    through(echo, &Some(echo.clone()));
    through(echo, &None::<EchoRef>);
    through(echo, &Some(echo.as_object().clone()));
    let all = everything(echo);
    through(echo, &all.tree_top);
    through(echo, &vec![all.chosen]);
}

#[test]
fn values_of_every_type_survive_any_and_any_in_any() {
    let (_server, echo) = serve_echo(Orb::builder());
    every_type(&echo);
    let client = Orb::new().unwrap();
    every_type(&client.string_to_reference(&echo.as_object().to_string()).unwrap());
}

#[test]
fn structure_with_every_type_survives_a_call_and_any() {
    for version in [Version::GIOP_1_1, Version::GIOP_1_2] {
        let (_server, local) = serve_echo(Orb::builder().giop_version(version).max_fragment_size(256));
        let client = Orb::builder().max_fragment_size(256).build().unwrap();
        let echo: EchoRef = client.string_to_reference(&local.as_object().to_string()).unwrap();
        let value = everything(&echo);
        assert_eq!(echo.all(&value).unwrap(), value);
        through::<Everything>(&echo, &value);
    }
}

#[test]
fn extracted_references_can_be_called() {
    let (_server, local) = serve_echo(Orb::builder());
    let client = Orb::new().unwrap();
    let echo: EchoRef = client.string_to_reference(&local.as_object().to_string()).unwrap();
    let any = Any::new(&Some(echo.clone())).unwrap();
    assert_eq!(any.extract::<Option<EchoRef>>().unwrap().unwrap().add(2, 3).unwrap(), (5, -1, 6));
    let (back, ..) = echo.pass(&any, &Any::null()).unwrap();
    assert_eq!(back.extract::<Option<EchoRef>>().unwrap().unwrap().noted().unwrap(), "");
    let nested = Any::new(&vec![any]).unwrap();
    let object = nested.extract::<Vec<Any>>().unwrap()[0].extract::<Option<corelane::ObjectRef>>().unwrap().unwrap();
    assert!(EchoRef::narrow(&object).unwrap().is_some());
}

#[test]
fn extraction_needs_an_equivalent_type() {
    let kind = |result: Result<i32, SystemException>| result.unwrap_err().kind();
    let any = Any::new(&7i32).unwrap();
    assert_eq!(any.extract::<i32>().unwrap(), 7);
    assert!(any.extract::<u32>().is_err() && any.extract::<i64>().is_err() && any.extract::<Point>().is_err());
    assert_eq!(kind(Any::new(&"7".to_owned()).unwrap().extract()), SystemExceptionKind::BadOperation);
    assert_eq!(kind(Any::null().extract()), SystemExceptionKind::BadOperation);
    // Extraction ignores aliases, bounds and the width of characters.
    let names = TypeCode::from_description(&WIDE_NAMES_TYPE);
    let any = Any::with_type(&names, &vec!["€".to_owned()]).unwrap();
    assert_eq!((any.extract::<Vec<String>>().unwrap(), any.type_code()), (vec!["€".to_owned()], &names));
    assert!(!any.is::<Vec<i32>>() && !any.is::<String>() && any.is::<Vec<String>>());
    let refused = |result: Result<Any, SystemException>| result.unwrap_err().kind();
    assert_eq!(refused(Any::with_type(&names, &vec![String::new(); 4])), SystemExceptionKind::Marshal);
    assert_eq!(refused(Any::with_type(&names, &1i32)), SystemExceptionKind::BadParam);
    assert_eq!(refused(Any::new(&"a\0b".to_owned())), SystemExceptionKind::BadParam);
    let other =
        TypeCode::structure("IDL:Other:1.0", "Other", [("x", TypeCode::LONG), ("y", TypeCode::DOUBLE)]).unwrap();
    assert!(!Point::matches_type(&other) && Point::matches_type(&Point::type_code().compact()));
}

#[test]
fn an_exception_carries_any() {
    let (_server, echo) = serve_echo(Orb::builder());
    let client = Orb::new().unwrap();
    let echo: EchoRef = client.string_to_reference(&echo.as_object().to_string()).unwrap();
    let value = Any::new(&Point { x: 3, y: 4.0 }).unwrap();
    match echo.pass(&value, &Any::new(&"fail".to_owned()).unwrap()) {
        Err(PassError::Failed(Failed { why, value: inside })) => {
            assert_eq!((why.as_str(), inside), ("as asked", value))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn deeply_nested_values_survive_a_call_and_any() {
    let mut tree = Tree { name: "leaf".into(), content: Any::null(), children: vec![] };
    for _ in 0..40 {
        tree = Tree { name: "branch".into(), content: Any::new(&tree.name).unwrap(), children: vec![tree] };
    }
    let any = Any::new(&tree).unwrap();
    assert_eq!(any.extract::<Tree>().unwrap(), tree);
    let (_server, echo) = serve_echo(Orb::builder());
    assert_eq!(echo.pass(&any, &Any::null()).unwrap().0.extract::<Tree>().unwrap(), tree);
}
