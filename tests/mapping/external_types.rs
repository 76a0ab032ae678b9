//! IDL that two crates share (`Builder::external`). The library of these tests has the code of
//! shared.types.idl, to which this crate refers.

use corelane::poa::PoaError;
use corelane::{Any, Orb, SystemException, SystemExceptionKind, Timeout};
use corelane_tests::shared::shared::{
    Base, Circle, CircleOperations, Colour, Described, Failed, Named, Node, NodeRef, Point, Second, Shape, base, second,
};
use corelane_tests::shared::{self, Outside};
use std::time::Duration;

corelane::include_idl!("user");

mod of_module {
    corelane::include_idl!("user_of_module");
}

use user::{Broken, Choice, Derived, DerivedRef, Line, Marked, Wheel, WheelOperations, Whole, derived};

struct Servant;

impl Base for Servant {
    fn twice(&self, n: i32) -> Result<i32, base::TwiceError> {
        if n == i32::MIN {
            // `?` converts a POA's error in operations with and without declared exceptions.
            Err(PoaError::WrongPolicy)?;
        }
        if n < 0 { Err(Failed { why: "negative".to_owned() }.into()) } else { Ok(2 * n) }
    }

    fn now(&self) -> Result<base::State, SystemException> {
        Ok(base::State::Busy)
    }

    fn set_now(&self, _: base::State) -> Result<(), SystemException> {
        Ok(Err(PoaError::ObjectNotActive)?)
    }
}

impl Second for Servant {
    fn greeting(&self, whom: &Named) -> Result<String, second::GreetingError> {
        Ok(format!("{} of {}", whom.name, whom.steps.len()))
    }
}

impl Derived for Servant {
    fn moved(&self, from: &Point, by: &[Point]) -> Result<Point, derived::MovedError> {
        match by.first() {
            None => Err(Broken { how: Colour::Green }.into()),
            Some(by) if by.x == 0 => Err(Failed { why: "nowhere".to_owned() }.into()),
            Some(by) => Ok(Point { x: from.x + by.x, y: from.y + by.y }),
        }
    }

    fn other(&self, state: base::State, chosen: &Choice) -> Result<(base::State, Choice), SystemException> {
        Ok((state, chosen.clone()))
    }
}

struct Turning;

impl Described for Turning {
    fn describe(&self) -> Result<String, SystemException> {
        Ok("turning".to_owned())
    }
}

impl CircleOperations for Turning {
    fn area(&self) -> Result<i32, SystemException> {
        Ok(3)
    }

    fn state(&self) -> Circle {
        Circle { radius: 1 }
    }
}

impl WheelOperations for Turning {
    fn count(&self) -> Result<i32, SystemException> {
        Ok(8)
    }

    fn state(&self) -> Wheel {
        Wheel { base: Circle { radius: 1 }, spokes: 8 }
    }
}

#[test]
fn operations_of_another_crate_are_inherited() {
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = server.root_poa();
    let id = poa.activate_object(&Derived::servant(Servant)).unwrap();
    poa.manager().activate().unwrap();
    let ior = poa.id_to_reference(&id).unwrap().to_string();
    let client = Orb::builder().build().unwrap();
    let object: corelane::ObjectRef = client.string_to_reference(&ior).unwrap();
    let user = DerivedRef::narrow(&object).unwrap().unwrap().with_timeout(Timeout::from(Duration::from_secs(60)));
    let (from, by) = (Point { x: 1, y: 2 }, Point { x: 3, y: 4 });
    assert_eq!(user.moved(&from, &[by]).unwrap(), Point { x: 4, y: 6 });
    assert_eq!(user.moved(&from, &[]), Err(Broken { how: Colour::Green }.into()));
    assert_eq!(user.moved(&from, &[Point::default()]), Err(Failed { why: "nowhere".to_owned() }.into()));
    let choice = Choice::Shape(Shape::At(by));
    assert_eq!(user.other(base::State::Idle, &choice).unwrap(), (base::State::Idle, choice));
    assert_eq!((user.twice(4).unwrap(), user.now().unwrap()), (8, base::State::Busy));
    assert_eq!(user.twice(-1), Err(Failed { why: "negative".to_owned() }.into()));
    let Err(base::TwiceError::System(refused)) = user.twice(i32::MIN) else { panic!() };
    assert_eq!(refused.kind(), SystemExceptionKind::ObjAdapter);
    assert_eq!(user.set_now(base::State::Idle).unwrap_err().kind(), SystemExceptionKind::ObjAdapter);
    assert_eq!(user.greeting(&Named { name: "ann".to_owned(), steps: vec![by] }).unwrap(), "ann of 1");
    let second: shared::shared::SecondRef = user.clone().into();
    assert!(second.is_equivalent(&user) && user.is_equivalent(&object) && user.is_equivalent(&second));
    assert_eq!(second.greeting(&Named::default()).unwrap(), " of 0");
    let base: shared::shared::BaseRef = user.into();
    assert_eq!(base.twice(5).unwrap(), 10);
}

#[test]
fn types_can_contain_types_of_another_crate() {
    let line = Line { from: Point::default(), to: Point { x: 1, y: 1 }, around: Outside { name: "here".to_owned() } };
    let whole = Whole {
        value: Any::new(&line).unwrap(),
        lines: [line.clone(), line.clone(), line],
        chosen: Choice::Inner(shared::shared::deep::Inner { at: Point { x: 7, y: 7 } }),
        base: None,
        node: Some(NodeRef::new(Node { id: 1, next: None })),
    };
    let back: Whole = Any::new(&whole).unwrap().extract().unwrap();
    assert_eq!((&back.lines, &back.chosen), (&whole.lines, &whole.chosen));
    assert_eq!(back.node.unwrap().get().id, 1);
    assert_eq!((user::SAME, shared::shared::FAVOURITE), (Colour::Green, Colour::Green));
    let pair = of_module::by_module::Pair {
        one: Point { x: 1, y: 2 },
        other: of_module::Outside { name: "its own".to_owned() },
    };
    assert_eq!(pair.one, Point { x: 1, y: 2 });
}

#[test]
fn values_inherit_from_those_of_another_crate() {
    let marked = user::MarkedRef::new(Marked { base: Node { id: 4, next: None }, mark: "m".to_owned() });
    assert_eq!(marked.widen::<Node>().get().id, 4);
    let wheel = WheelOperations::implementation(Turning).value();
    let circle = wheel.implementation::<dyn CircleOperations>();
    assert_eq!(circle.map(|circle| circle.area().unwrap()), Some(3));
}
