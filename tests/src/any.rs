//! A servant and values for the tests of `any` and of dynamic calls.

use corelane::{Any, LongDouble, Octets, Orb, OrbBuilder, SystemException, TypeCode};
use corelane_sys::lock::{LockScope, Mutex};

corelane::include_idl!("dynamic");

pub use dynamic::{
    Base, Choice, Colour, Echo, EchoRef, Everything, Failed, Number, Other, Point, Tree, WIDE_NAMES_TYPE,
    echo::{AddError, PassError},
};

/// The servant of the interface `Echo`.
#[derive(Debug)]
pub struct TestEcho {
    noted: Mutex<String>,
}

impl Default for TestEcho {
    fn default() -> Self {
        TestEcho { noted: Mutex::new("test/noted", LockScope::Orb, String::new()) }
    }
}

impl Base for TestEcho {
    fn name_of(&self) -> Result<String, SystemException> {
        Ok("echo".to_owned())
    }
}

impl Echo for TestEcho {
    fn level(&self) -> Result<i32, SystemException> {
        Ok(i32::try_from(self.noted.lock().len()).unwrap_or(-1))
    }

    fn set_level(&self, level: i32) -> Result<(), SystemException> {
        *self.noted.lock() = "x".repeat(usize::try_from(level).unwrap_or(0));
        Ok(())
    }

    fn pass(&self, value: &Any, second: &Any) -> Result<(Any, Any, TypeCode), PassError> {
        if second.is::<String>() && second.extract::<String>()? == "fail" {
            return Err(Failed { why: "as asked".into(), value: value.clone() }.into());
        }
        Ok((value.clone(), second.clone(), value.type_code().clone()))
    }

    fn all(&self, value: &Everything) -> Result<Everything, SystemException> {
        Ok(value.clone())
    }

    fn type_of(&self, value: &Any) -> Result<TypeCode, SystemException> {
        Ok(value.type_code().clone())
    }

    fn add(&self, a: i32, b: i32) -> Result<(i32, i32, i32), AddError> {
        match b {
            -1 => Err(Failed { why: "no".into(), value: Any::new(&a)? }.into()),
            -2 => Err(Other { code: a }.into()),
            _ => Ok((a + b, a - b, a * b)),
        }
    }

    fn note(&self, text: &str) -> Result<(), SystemException> {
        *self.noted.lock() = text.to_owned();
        Ok(())
    }

    fn noted(&self) -> Result<String, SystemException> {
        Ok(self.noted.lock().clone())
    }
}

/// Builds an ORB that serves one echo object. Returns the ORB and the object's reference.
///
/// # Panics
/// Panics if the ORB or the object cannot be made.
#[must_use]
pub fn serve_echo(builder: OrbBuilder) -> (Orb, EchoRef) {
    let orb = builder.listen("tcp:127.0.0.1:0").build().expect("a server");
    let poa = orb.root_poa();
    let id = poa.activate_object(&Echo::servant(TestEcho::default())).expect("an active object");
    poa.manager().activate().expect("an active manager");
    let echo = EchoRef::from_object(poa.id_to_reference(&id).expect("a reference"));
    (orb, echo)
}

/// Returns a value whose members all differ from their defaults.
///
/// # Panics
/// Panics if a member does not fit into an `any`.
#[must_use]
pub fn everything(who: &EchoRef) -> Everything {
    let leaf = Tree { name: "leaf".into(), content: Any::new(&Colour::Blue).expect("an any"), children: vec![] };
    let inner = Any::new(&Choice::Where(Point { x: 1, y: 2.5 })).expect("an any");
    Everything {
        b: true,
        o: 0xfe,
        c: 'c',
        w: '€',
        s: -2,
        us: 65_535,
        l: -70_000,
        ul: 4_000_000_000,
        ll: i64::MIN,
        ull: u64::MAX,
        f: 1.5,
        d: -2.25e200,
        ld: LongDouble::from_f64(0.1),
        text: "Grüße".into(),
        wide: "weit €".into(),
        shade: Colour::Green,
        spot: Point { x: 7, y: 0.125 },
        names: vec!["a".into(), "€".into()],
        path_taken: vec![Point { x: 1, y: 1.0 }, Point { x: 2, y: 2.0 }],
        letters_kept: ['x', 'y', 'z'],
        numbers: [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
        key_used: Octets::from(vec![1, 2, 3]),
        tree_top: Tree { name: "top".into(), content: Any::null(), children: vec![leaf.clone(), leaf] },
        chosen: Choice::Number(42),
        numbered: Number::Other('q', "rest".into()),
        who: Some(who.clone()),
        target: Some(who.as_object().clone()),
        r#type: TypeCode::from_description(&dynamic::TREE_TYPE),
        value: Any::new(&inner).expect("an any"),
        values: vec![Any::new(&1u8).expect("an any"), inner, Any::null()],
    }
}
