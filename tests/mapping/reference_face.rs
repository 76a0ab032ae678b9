//! The methods of generated traits and references, without an import of the trait `Reference`.

use corelane::{CallPolicies, Canceller, Context, ObjectRef, Orb, SystemException};
use std::time::Duration;

corelane::include_idl!("face");

use face::{
    Alarm, Circle, CircleOperations, Clock, DescribedObjectRef, GreedyRef, Heir, HeirRef, JointRef, Leaf, LeafRef,
    Rival, RivalRef, Root, RootRef, Second, SecondRef, Wheel, WheelOperations,
};

struct Tree;

impl Root for Tree {
    fn number(&self) -> Result<i32, SystemException> {
        Ok(7)
    }
}

impl Second for Tree {
    fn greeting(&self) -> Result<String, SystemException> {
        Ok("hello".to_owned())
    }
}

impl Leaf for Tree {
    fn leaves(&self) -> Result<i32, SystemException> {
        Ok(1000)
    }
}

impl Clock for Tree {
    fn hour(&self) -> Result<i32, SystemException> {
        Ok(12)
    }
}

impl Alarm for Tree {
    fn at(&self) -> Result<i32, SystemException> {
        Ok(6)
    }
}

impl CircleOperations for Tree {
    fn area(&self) -> Result<i32, SystemException> {
        Ok(3)
    }

    fn state(&self) -> Circle {
        Circle { radius: 1 }
    }
}

impl WheelOperations for Tree {
    fn spokes(&self) -> Result<i32, SystemException> {
        Ok(8)
    }

    fn state(&self) -> Wheel {
        Wheel { base: Circle { radius: 1 } }
    }
}

impl Rival for Tree {
    fn narrow(&self, by: i32) -> Result<i32, SystemException> {
        Ok(100 - by)
    }

    fn timeout(&self) -> Result<i32, SystemException> {
        Ok(5)
    }

    fn set_timeout(&self, _: i32) -> Result<(), SystemException> {
        Ok(())
    }

    fn with_timeout(&self, _: i32) -> Result<(), SystemException> {
        Ok(())
    }
}

impl Heir for Tree {
    fn is_equivalent(&self, other: &str) -> Result<String, SystemException> {
        Ok(format!("not {other}"))
    }
}

/// A trait whose methods have the names of associated functions of generated traits.
trait Methods {
    fn servant(&self) -> &'static str;
    fn servant_of(&self) -> &'static str;
    fn local(&self) -> &'static str;
    fn implementation(&self) -> &'static str;
    fn implementation_of(&self) -> &'static str;
}

impl Methods for Tree {
    fn servant(&self) -> &'static str {
        "servant"
    }

    fn servant_of(&self) -> &'static str {
        "servant_of"
    }

    fn local(&self) -> &'static str {
        "local"
    }

    fn implementation(&self) -> &'static str {
        "implementation"
    }

    fn implementation_of(&self) -> &'static str {
        "implementation_of"
    }
}

#[test]
fn associated_functions_of_generated_traits_do_not_hide_methods() {
    let methods = [Tree.servant(), Tree.servant_of(), Tree.local(), Tree.implementation(), Tree.implementation_of()];
    assert_eq!(methods, ["servant", "servant_of", "local", "implementation", "implementation_of"]);
}

#[test]
fn servant_has_the_interface_of_the_trait_that_makes_it() {
    let servants = [Leaf::servant(Tree), Root::servant(Tree), Second::servant(Tree)];
    let ids = servants.map(|servant| servant.repository_id());
    assert_eq!(ids, ["IDL:Face/Leaf:1.0", "IDL:Face/Root:1.0", "IDL:Face/Second:1.0"]);
}

fn object(servant: &corelane::Servant) -> (Orb, ObjectRef) {
    let orb = Orb::new().unwrap();
    let object = orb.root_poa().activate(servant).unwrap();
    orb.root_poa().manager().activate().unwrap();
    (orb, object)
}

#[test]
fn a_reference_has_its_methods_without_an_import() {
    let (_orb, object) = object(&Leaf::servant(Tree));
    assert_eq!(
        [RootRef::REPOSITORY_ID, LeafRef::REPOSITORY_ID, DescribedObjectRef::REPOSITORY_ID],
        ["IDL:Face/Root:1.0", "IDL:Face/Leaf:1.0", "IDL:Face/Described:1.0"]
    );
    let leaf: LeafRef = LeafRef::narrow(&object).unwrap().unwrap();
    let second: SecondRef = SecondRef::unchecked_narrow(leaf.as_object());
    assert!(leaf.is_equivalent(&second) && second.is_equivalent(&object));
    let copies: [LeafRef; 6] = [
        LeafRef::from_object(object.clone()),
        leaf.with_policies(CallPolicies::NONE),
        leaf.with_timeout(Duration::from_secs(60)),
        leaf.with_connect_timeout(Duration::from_secs(60)),
        leaf.with_canceller(&Canceller::new().unwrap()),
        leaf.with_context(&Context::new()),
    ];
    for copy in copies {
        assert_eq!((copy.leaves(), copy.number()), (Ok(1000), Ok(7)));
        assert_eq!(copy.greeting(), Ok("hello".to_owned()));
    }
    let untyped: ObjectRef = object.with_timeout(Duration::from_secs(60)).with_connect_timeout(Duration::from_secs(60));
    assert!(untyped.is_equivalent(&object));
}

#[test]
fn operation_with_the_name_of_a_method_hides_the_method() {
    let (_orb, object) = object(&Heir::servant(Tree));
    let rival = RivalRef::from_object(object.clone());
    assert_eq!((rival.narrow(1), rival.timeout(), rival.with_timeout(1)), (Ok(99), Ok(5), Ok(())));
    assert!(rival.is_equivalent(&object));
    let heir = HeirRef::from_object(object.clone());
    assert_eq!((heir.narrow(1), heir.with_timeout(1)), (Ok(99), Ok(())));
    assert_eq!(heir.is_equivalent("it"), Ok("not it".to_owned()));
    let joint = JointRef::from_object(object.clone());
    assert_eq!((joint.narrow(2), joint.with_timeout(1)), (Ok(98), Ok(())));
    let later: HeirRef = heir.with_connect_timeout(Duration::from_secs(60));
    assert_eq!(later.timeout(), Ok(5));
    let trait_method = <HeirRef as corelane::Reference>::narrow(&object);
    assert_eq!(trait_method, Ok(Some(heir)));
    let greedy = <GreedyRef as corelane::Reference>::from_object(object);
    let operations = [
        greedy.as_object(),
        greedy.from_object(),
        greedy.is_equivalent(),
        greedy.narrow(),
        greedy.unchecked_narrow(),
        greedy.with_canceller(),
        greedy.with_connect_timeout(),
        greedy.with_context(),
        greedy.with_policies(),
        greedy.with_timeout(),
    ];
    assert!(
        operations.iter().all(Result::is_err),
        "{operations:?}: an operation that the object does not have succeeds"
    );
}

/// The interface `Greedy` in idl/face.idl must have an operation with the name of each method of
/// references, because such names need a special rule in the IDL compiler.
#[test]
fn every_method_of_references_is_tried_as_an_operation() {
    let macros = include_str!("../../crates/orb/src/reference_macros.rs");
    let arms = macros.lines().filter_map(|line| line.trim().strip_prefix("(@")?.split_once(')'));
    let methods: Vec<&str> = arms.map(|(method, _)| method).collect();
    assert!(methods.contains(&"narrow"), "{methods:?}");
    let idl = include_str!("../idl/face.idl");
    for method in methods {
        assert!(idl.contains(&format!("    void {method}();")), "idl/face.idl: `Greedy` lacks `{method}`");
    }
}
