//! The examples of IDL and Rust in docs/rust-mapping.md compile, and examples that need no peer
//! run.

// The examples show possible uses, so many of their items are unused.
#![allow(unused, unused_qualifications, missing_docs, unreachable_pub, clippy::all)]

use std::collections::BTreeMap;
use std::error::Error;

use corelane::{Any, Fixed, ObjectRef, Orb, SystemException, TypeCode, Typed, ValueRef};

corelane::include_idl!("page");

macro_rules! piece {
    ($name:literal) => {
        include! { concat!(env!("OUT_DIR"), "/rust_mapping/", $name, ".rs") }
    };
}

mod build_script {
    piece!("getting_the_code_1");
}

mod program {
    piece!("getting_the_code_2");
}

mod shown {
    use corelane::{SystemException, ValueRef};

    pub use super::page::{Base, Failed, Longs};

    piece!("unions_1");
    piece!("interfaces_1");
    piece!("value_types_1");

    pub mod probe {
        use corelane::SystemException;

        piece!("exceptions_1");
    }
}

fn union(made: page::Number) -> shown::Number {
    match made {
        page::Number::Small(label, value) => shown::Number::Small(label, value),
        page::Number::Large(value) => shown::Number::Large(value),
        page::Number::Other(label, value) => shown::Number::Other(label, value),
    }
}

fn exception(made: page::probe::FailError) -> shown::probe::FailError {
    match made {
        page::probe::FailError::Failed(failed) => shown::probe::FailError::Failed(failed),
        page::probe::FailError::System(error) => shown::probe::FailError::System(error),
    }
}

struct Servant<T>(T);

impl<T: page::Base> page::Base for Servant<T> {}

impl<T: page::Probe> shown::Probe for Servant<T> {
    fn level(&self) -> Result<i32, SystemException> {
        self.0.level()
    }

    fn set_level(&self, level: i32) -> Result<(), SystemException> {
        self.0.set_level(level)
    }

    fn echo(&self, s: &str) -> Result<String, SystemException> {
        self.0.echo(s)
    }

    fn fail(&self, code: i32, text: &str) -> Result<(i32, String, page::Longs), shown::probe::FailError> {
        self.0.fail(code, text).map_err(exception)
    }

    fn note(&self, n: i32) -> Result<(), SystemException> {
        self.0.note(n)
    }
}

fn values(made: page::Marked) -> (shown::Marked, Option<page::NodeRef>) {
    let page::Marked { base: page::Node { id, next }, mark } = made;
    (shown::Marked { base: shown::Node { id, next: None }, mark }, next)
}

#[test]
fn shown_rust_is_what_the_compiler_generates() {
    assert!(matches!(union(page::Number::Small(2, 7)), shown::Number::Small(2, 7)));
    let failed = page::Failed { why: "why".to_owned() };
    assert!(matches!(exception(failed.into()), shown::probe::FailError::Failed(_)));
    let node = page::Node { id: 1, next: None };
    assert_eq!(values(page::Marked { base: node, mark: "m".to_owned() }).0.mark, "m");
}

fn contexts_of_calls(desk: &page::DeskRef) -> Result<(), Box<dyn Error>> {
    use corelane::{Context, Reference};
    piece!("interfaces_2");
    Ok(())
}

fn results_in_own_memory(scanner: &page::ScannerRef) -> Result<(), SystemException> {
    use page::Sample;
    piece!("results_in_memory_of_the_caller_1");
    Ok(())
}

mod contexts_of_servants {
    use corelane::{Context, SystemException};

    use super::page::Desk;

    struct MyDesk;

    piece!("interfaces_3");
}

#[test]
fn examples_of_any_and_type_codes_run() -> Result<(), Box<dyn Error>> {
    use page::{NAMES_TYPE, Point};
    piece!("any_and_typecodes_1");
    Ok(())
}

#[test]
fn examples_of_fixed_point_run() -> Result<(), Box<dyn Error>> {
    piece!("fixed_point_1");
    Ok(())
}

#[test]
fn examples_of_value_types_run() {
    use page::Node;
    piece!("value_types_2");
}

fn implementations_of_values(orb: &Orb, shape: &page::ShapeRef) {
    use page::{Circle, CircleOperations, Shape, circle};
    piece!("value_types_3");
}

fn without_generated_code(object: &ObjectRef) -> Result<(), Box<dyn Error>> {
    use page::Failed;
    piece!("without_generated_code_1");
    Ok(())
}

#[test]
fn every_example_of_the_page_is_compiled() {
    let there: Vec<&str> = include_str!(concat!(env!("OUT_DIR"), "/rust_mapping/names")).lines().collect();
    let source = include_str!("rust_mapping.rs");
    let missing: Vec<_> = there.iter().filter(|name| !source.contains(&format!("piece!(\"{name}\")"))).collect();
    assert!(there.len() >= 11 && missing.is_empty(), "this test does not compile {missing:?} of docs/rust-mapping.md");
}
