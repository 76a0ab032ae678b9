//! Traits that generated types derive: `Default` where the mapping has a default value, and
//! requested traits of other crates.

corelane::include_idl!("derived");

use derived::*;

#[test]
fn types_with_serde_derives_survive_json() {
    let point = Point { x: 1, y: 2.5 };
    let leaf = Tree { name: "leaf".to_owned(), letter: 'x', shade: Colour::Green, ..Tree::default() };
    let tree = Tree { children: vec![leaf.clone()], points: [("p".to_owned(), point)].into(), ..leaf };
    let text = serde_json::to_string(&tree).unwrap();
    assert!(text.contains(r#""shade":"Green""#) && text.contains(r#""points":{"p":{"x":1,"y":2.5}}"#), "{text}");
    assert_eq!(serde_json::from_str::<Tree>(&text).unwrap(), tree);
    let failed = Failed { why: Shape::Names(Colour::Green, vec!["a".to_owned()]) };
    let text = serde_json::to_string(&failed).unwrap();
    assert_eq!(text, r#"{"why":{"Names":["Green",["a"]]}}"#);
    assert_eq!(serde_json::from_str::<Failed>(&text).unwrap(), failed);
    let granted = Granted { allowed: Rights::CAN_WRITE, low_bits: Word::default().with_low(5) };
    assert_eq!(serde_json::to_string(&granted).unwrap(), r#"{"allowed":2,"low_bits":5}"#);
    assert_eq!(serde_json::to_string(&Node { id: 3 }).unwrap(), r#"{"id":3}"#);
    assert_eq!(serde_json::to_string(&Boxed(Vec::new())).unwrap(), "[]");
}

#[test]
fn trait_that_a_type_already_derives_is_not_derived_twice() {
    assert!(Point { x: 1, y: 0.0 } < Point { x: 2, y: 0.0 } && Colour::Red < Colour::Green);
}

#[test]
fn default_is_zero_empty_nil_or_the_first_enumerator() {
    assert_eq!((Colour::default(), Point::default()), (Colour::Red, Point { x: 0, y: 0.0 }));
    let tree = Tree::default();
    assert_eq!((tree.name.as_str(), tree.letter, tree.children.len(), tree.flags), ("", '\0', 0, [false; 32]));
    assert_eq!((Of::default().reference, Of::default().price.to_string()), (None, "0.0".to_owned()));
    assert!(Within::default().content.octets.is_empty());
    assert_eq!(Whole::default().content, corelane::Any::default());
    assert_eq!(Linked::default().next, None);
}
