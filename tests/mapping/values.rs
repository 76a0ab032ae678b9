//! Values of every type in crates/idl/tests/accepted/values.idl, from ORB to ORB and back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use corelane::mapping::{Decoder, Encoder};
use corelane::{
    Any, AnyValueRef, CdrError, Fixed, LocalRef, Native, ObjectOrValue, Orb, Reference, SystemException,
    SystemExceptionKind as Kind, TypeCode, ValueGraph, ValueImplementation, ValueRef,
};

corelane::include_idl!("values");

use values::*;

type Answer<T> = Result<(T, T, T), SystemException>;

/// A servant whose operations return `a` and change `b` to `a`, and set `c` to the former `b`.
struct Mirror;

const REFUSED: i32 = -1;

fn back<T: Clone>(a: &T, b: &T) -> Answer<T> {
    Ok((a.clone(), a.clone(), b.clone()))
}

fn handed<T: Clone>(a: Option<&T>, b: Option<&T>) -> Answer<Option<T>> {
    back(&a.cloned(), &b.cloned())
}

impl Exchange for Mirror {
    fn echo_node(&self, a: Option<&NodeRef>, b: Option<&NodeRef>) -> Answer<Option<NodeRef>> {
        handed(a, b)
    }

    fn echo_mixed(&self, a: &Mixed, b: &Mixed) -> Result<(Mixed, Mixed, Mixed), exchange::EchoMixedError> {
        let culprit = a.first.clone().filter(|node| node.get().id == REFUSED);
        if culprit.is_some() {
            return Err(Rejected { culprit }.into());
        }
        Ok((a.clone(), a.clone(), b.clone()))
    }

    fn echo_base(&self, a: Option<&BaseRef>, b: Option<&BaseRef>) -> Answer<Option<BaseRef>> {
        handed(a, b)
    }

    fn echo_shape(&self, a: Option<&ShapeRef>, b: Option<&ShapeRef>) -> Answer<Option<ShapeRef>> {
        handed(a, b)
    }

    fn echo_described(&self, a: Option<&DescribedRef>, b: Option<&DescribedRef>) -> Answer<Option<DescribedRef>> {
        handed(a, b)
    }

    fn echo_value(&self, a: Option<&AnyValueRef>, b: Option<&AnyValueRef>) -> Answer<Option<AnyValueRef>> {
        handed(a, b)
    }

    fn echo_nodes(&self, a: &[Option<NodeRef>], b: &[Option<NodeRef>]) -> Answer<Nodes> {
        back(&a.to_vec(), &b.to_vec())
    }

    fn echo_text(&self, a: Option<&TextRef>, b: Option<&TextRef>) -> Answer<Option<TextRef>> {
        handed(a, b)
    }

    fn echo_letter(&self, a: Option<&LetterRef>, b: Option<&LetterRef>) -> Answer<Option<LetterRef>> {
        handed(a, b)
    }

    fn echo_account(&self, a: &Account, b: &Account) -> Answer<Account> {
        back(a, b)
    }

    fn echo_money(&self, a: Money, b: Money) -> Answer<Money> {
        back(&a, &b)
    }

    fn echo_moneys(&self, a: &[Money], b: &[Money]) -> Answer<Moneys> {
        back(&a.to_vec(), &b.to_vec())
    }

    fn echo_larger(&self, a: &Larger, b: &Larger) -> Answer<Larger> {
        back(a, b)
    }

    fn echo_maps(&self, a: &Maps, b: &Maps) -> Answer<Maps> {
        back(a, b)
    }

    fn echo_ages(&self, a: &Ages, b: &Ages) -> Answer<Ages> {
        back(a, b)
    }

    fn echo_rights(&self, a: Rights, b: Rights) -> Answer<Rights> {
        back(&a, &b)
    }

    fn echo_longer(&self, a: Longer, b: Longer) -> Answer<Longer> {
        back(&a, &b)
    }

    fn echo_by_letter(&self, a: &ByLetter, b: &ByLetter) -> Answer<ByLetter> {
        back(a, b)
    }

    fn echo_by_byte(&self, a: &ByByte, b: &ByByte) -> Answer<ByByte> {
        back(a, b)
    }
}

struct Fixture {
    server: Orb,
    client: Orb,
    exchange: ExchangeRef,
}

fn fixture() -> Fixture {
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let object = server.root_poa().activate(&Exchange::servant(Mirror)).unwrap();
    server.root_poa().manager().activate().unwrap();
    let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    client.root_poa().manager().activate().unwrap();
    let exchange = client.string_to_reference(&object.to_string()).unwrap();
    Fixture { server, client, exchange }
}

fn node(id: i32, left: Option<NodeRef>, right: Option<NodeRef>) -> Node {
    Node { id, left, right, secret: format!("secret {id}") }
}

/// Returns the nodes in breadth-first order, each with its id, its secret, and the indices of its
/// left and right neighbours.
fn form(root: &NodeRef) -> Vec<(i32, String, Option<usize>, Option<usize>)> {
    let mut met = vec![root.clone()];
    let mut form = Vec::new();
    let mut at = 0;
    while at < met.len() {
        let state = met[at].get();
        let mut number = |next: &Option<NodeRef>| {
            let next = next.as_ref()?;
            Some(met.iter().position(|known| known == next).unwrap_or_else(|| {
                met.push(next.clone());
                met.len() - 1
            }))
        };
        let (left, right) = (number(&state.left), number(&state.right));
        form.push((state.id, state.secret.clone(), left, right));
        at += 1;
    }
    form
}

fn ring() -> NodeRef {
    let graph = ValueGraph::new();
    let (one, two, three) = (graph.declare(), graph.declare(), graph.declare());
    let shared = graph.add(node(4, None, Some(one.clone())));
    assert!(graph.define(&one, node(1, Some(two.clone()), Some(shared.clone()))));
    assert!(graph.define(&two, node(2, Some(three.clone()), Some(shared))));
    assert!(graph.define(&three, node(3, Some(one.clone()), Some(three.clone()))));
    assert!(!graph.define(&one, node(5, None, None)));
    graph.close(one)
}

#[test]
fn sharing_and_cycles_are_preserved() {
    let fixture = fixture();
    let exchange = &fixture.exchange;
    let ring = ring();
    let leaf = ValueRef::new(node(9, None, None));
    let tree = ValueRef::new(node(7, Some(leaf.clone()), Some(leaf)));
    let (result, b, c) = exchange.echo_node(Some(&ring), Some(&tree)).unwrap();
    let (result, b, c) = (result.unwrap(), b.unwrap(), c.unwrap());
    assert_eq!((form(&result), form(&c)), (form(&ring), form(&tree)));
    assert_eq!(result, b);
    assert!(result != ring && result != c);
    assert_eq!(exchange.echo_node(None, None).unwrap(), (None, None, None));
    let list = vec![Some(ring.clone()), None, ring.get().left.clone(), Some(tree.clone()), Some(tree)];
    let (result, _, c) = exchange.echo_nodes(&list, &[]).unwrap();
    assert!(c.is_empty() && result[1].is_none() && result[3] == result[4]);
    assert_eq!(result[0].as_ref().unwrap().get().left, result[2]);
}

#[test]
fn all_values_of_a_message_live_while_one_of_them_is_held() {
    let fixture = fixture();
    let exchange = &fixture.exchange;
    let (result, ..) = exchange.echo_node(Some(&ring()), None).unwrap();
    let expected = form(&ring().get().left.clone().unwrap());
    let second = result.unwrap().get().left.clone().unwrap();
    assert_eq!(form(&second), expected);
}

#[test]
fn unknown_types_are_truncated_and_known_ones_are_not() {
    let Fixture { server, client, exchange } = fixture();
    let base = Base { tag: 5, label: "öäü €".to_owned() };
    let derived = Derived { base: base.clone(), extra: 2.5, graph: Some(ring()) };
    let more = vec![Some(ring()), None, derived.graph.clone()];
    let further: BaseRef = ValueRef::new(Further { base: derived.clone(), more }).widen();
    let plain = ValueRef::new(base.clone());
    let (result, _, c) = exchange.echo_base(Some(&further), Some(&plain)).unwrap();
    let result = result.unwrap();
    assert_eq!((result.repository_id(), &*result.get()), ("IDL:corelane.test/Values/Base:1.0", &base));
    assert_eq!(*c.unwrap().get(), base);
    server.value_factories().register::<Derived>();
    client.value_factories().register::<Derived>();
    let (result, b, _) = exchange.echo_base(Some(&further), Some(&further)).unwrap();
    let result = result.unwrap();
    assert_eq!(b.unwrap(), result);
    assert!(result.narrow::<Further>().is_none());
    let state = result.narrow::<Derived>().unwrap().get();
    assert_eq!((&state.base, state.extra), (&base, 2.5));
    assert_eq!(form(state.graph.as_ref().unwrap()), form(&ring()));
    assert_eq!(state.tag, 5);
    server.value_factories().register::<Further>();
    client.value_factories().register::<Further>();
    let (result, ..) = exchange.echo_base(Some(&further), None).unwrap();
    let state = result.unwrap().narrow::<Further>().unwrap().get();
    assert_eq!((state.more.len(), state.more[1].is_none(), &state.more[2]), (3, true, &state.graph));
    let firm: BaseRef = ValueRef::new(Firm { base, code: 3 }).widen();
    let refused = exchange.echo_base(Some(&firm), None).unwrap_err();
    assert_eq!((refused.kind(), refused.minor() & 0xfff), (Kind::Marshal, 1));
    server.value_factories().register::<Firm>();
    let refused = exchange.echo_base(Some(&firm), None).unwrap_err();
    assert_eq!((refused.kind(), refused.minor() & 0xfff), (Kind::Marshal, 1), "by the client");
    client.value_factories().register::<Firm>();
    let (result, ..) = exchange.echo_base(Some(&firm), None).unwrap();
    assert_eq!(result.unwrap().narrow::<Firm>().unwrap().get().code, 3);
    assert!(server.value_factories().unregister::<Firm>() && !server.value_factories().unregister::<Firm>());
}

#[derive(Debug)]
struct MyCircle {
    radius_in_thousandths: AtomicU32,
}

impl MyCircle {
    fn radius(&self) -> f64 {
        f64::from(self.radius_in_thousandths.load(Ordering::SeqCst)) / 1000.0
    }
}

impl Shape for MyCircle {
    fn area(&self) -> Result<f64, SystemException> {
        Ok(3.0 * self.radius() * self.radius())
    }
}

impl Described for MyCircle {
    fn describe(&self, width: i16) -> Result<String, SystemException> {
        Ok("o".repeat(usize::try_from(width).unwrap_or_default()))
    }
}

impl CircleOperations for MyCircle {
    fn grow(&self, factor: f64) -> Result<f64, circle::GrowError> {
        if factor == 0.0 {
            return Err(Flat.into());
        }
        self.radius_in_thousandths.store((self.radius() * factor * 1000.0) as u32, Ordering::SeqCst);
        Ok(self.radius())
    }

    fn colour(&self) -> Result<String, SystemException> {
        Ok("red".to_owned())
    }

    fn set_colour(&self, _: &str) -> Result<(), SystemException> {
        Ok(())
    }

    fn state(&self) -> Circle {
        Circle { radius: self.radius() }
    }
}

fn circle(state: Circle) -> ValueImplementation<Circle> {
    CircleOperations::implementation(MyCircle { radius_in_thousandths: AtomicU32::new((state.radius * 1000.0) as u32) })
}

struct Factories;

impl CircleFactory for Factories {
    fn make(&self, radius: f64) -> Result<CircleRef, circle::GrowError> {
        Ok(circle(Circle { radius }).value())
    }

    fn unit(&self) -> Result<CircleRef, SystemException> {
        Ok(circle(Circle { radius: 1.0 }).value())
    }
}

#[test]
fn values_have_operations_if_their_type_has_an_implementation() {
    let Fixture { server, client, exchange } = fixture();
    let mine = Factories.make(2.0).unwrap();
    let shape = mine.implementation::<dyn Shape>().unwrap();
    assert_eq!(shape.area().unwrap(), 12.0);
    mine.implementation::<dyn CircleOperations>().unwrap().grow(2.0).unwrap();
    assert_eq!(mine.get().radius, 4.0);
    let refused = exchange.echo_shape(Some(&mine.widen()), None).unwrap_err();
    assert_eq!(refused.minor() & 0xfff, 1, "without a factory, a receiver cannot make a value of an abstract type");
    server.value_factories().register::<Circle>();
    client.value_factories().register_with(circle);
    let unit = Factories.unit().unwrap();
    let (result, b, c) = exchange.echo_shape(Some(&mine.widen()), Some(&unit.widen())).unwrap();
    assert_eq!((&result, c.unwrap().implementation::<dyn Shape>().unwrap().area().unwrap()), (&b, 3.0));
    let result = result.unwrap();
    assert_eq!(result.implementation::<dyn Shape>().unwrap().area().unwrap(), 48.0);
    assert_eq!(result.implementation::<dyn Described>().unwrap().describe(3).unwrap(), "ooo");
    let result = result.narrow::<Circle>().unwrap();
    assert_eq!(result.get().radius, 4.0);
    assert!(ValueRef::new(Circle { radius: 1.0 }).implementation::<dyn Shape>().is_none());
}

struct MyThing;

impl Described for MyThing {
    fn describe(&self, _: i16) -> Result<String, SystemException> {
        Ok("thing".to_owned())
    }
}

impl Thing for MyThing {
    fn touch(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
fn an_abstract_interface_is_an_object_or_a_value() {
    let Fixture { server, client, exchange } = fixture();
    for orb in [&server, &client] {
        orb.value_factories().register_with(circle);
    }
    let thing: ThingRef = Reference::from_object(client.root_poa().activate(&Thing::servant(MyThing)).unwrap());
    let object: DescribedRef = ObjectOrValue::Object(thing.clone().into());
    let value: DescribedRef = ObjectOrValue::Value(Factories.unit().unwrap().widen());
    let (result, b, c) = exchange.echo_described(Some(&object), Some(&value)).unwrap();
    let Some(ObjectOrValue::Object(result)) = result else { panic!("an object arrives as a value") };
    assert!(matches!(b, Some(ObjectOrValue::Object(_))));
    assert_eq!(result.describe(1).unwrap(), "thing");
    let Some(ObjectOrValue::Value(c)) = c else { panic!("a value arrives as an object") };
    assert_eq!(c.implementation::<dyn Described>().unwrap().describe(2).unwrap(), "oo");
    assert_eq!(exchange.echo_described(None, Some(&value)).unwrap().0, None);
    let any = Any::new(&Some(thing)).unwrap();
    let Some(ObjectOrValue::Object(found)) = any.extract::<Option<DescribedRef>>().unwrap() else { panic!("{any:?}") };
    assert_eq!(found.describe(1).unwrap(), "thing");
    let nil = Any::with_type(any.type_code(), &None::<DescribedRef>).unwrap();
    assert_eq!(nil.extract::<Option<ThingRef>>().unwrap(), None);
    let null = Any::with_type(&TypeCode::from_description(&CIRCLE_TYPE), &None::<DescribedRef>).unwrap();
    assert_eq!(null.extract::<Option<CircleRef>>().unwrap(), None);
    assert!(Any::with_type(any.type_code(), &Some(value)).is_err());
    assert!(Any::with_type(null.type_code(), &Some(object)).is_err());
}

struct Backwards(String);

impl LetterOperations for Backwards {
    fn state(&self) -> Letter {
        Letter { text: self.0.clone() }
    }

    fn marshal(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_u32(u32::try_from(self.0.len()).unwrap_or_default());
        e.write_str(&self.0.chars().rev().collect::<String>())
    }
}

fn backwards(d: &mut Decoder<'_>) -> Result<ValueImplementation<Letter>, CdrError> {
    d.read_u32()?;
    let text = d.read_string()?;
    Ok(LetterOperations::implementation(Backwards(text.chars().rev().collect())))
}

#[test]
fn custom_values_are_marshalled_by_their_implementation() {
    let Fixture { server, client, exchange } = fixture();
    let letter = ValueRef::new(Letter { text: "plain".to_owned() });
    let (result, ..) = exchange.echo_letter(Some(&letter), None).unwrap();
    assert_eq!(result.unwrap().get().text, "plain");
    for orb in [&server, &client] {
        orb.value_factories().register_custom(backwards);
    }
    let letter = LetterOperations::implementation(Backwards("custom".to_owned())).value();
    let (result, b, c) = exchange.echo_letter(Some(&letter), Some(&letter)).unwrap();
    let result = result.unwrap();
    assert_eq!((result.get().text.as_str(), b.unwrap(), c.unwrap()), ("custom", result.clone(), result.clone()));
}

#[test]
fn value_boxes_and_any_values_return_unchanged() {
    let Fixture { server, client, exchange } = fixture();
    let text = ValueRef::new(Text("grüße €".to_owned()));
    let (result, ..) = exchange.echo_text(Some(&text), None).unwrap();
    assert_eq!(result.unwrap().get().0, "grüße €");
    for orb in [&server, &client] {
        orb.value_factories().register::<Corner>();
        orb.value_factories().register::<Longs>();
        orb.value_factories().register::<Nothing>();
    }
    let corner = ValueRef::new(Corner(Point { x: 1, y: -1 }));
    let (result, _, c) =
        exchange.echo_value(Some(&corner.widen()), Some(&ValueRef::new(Longs(vec![1, 2, 3])).widen())).unwrap();
    assert_eq!(result.unwrap().narrow::<Corner>().unwrap().get().0, Point { x: 1, y: -1 });
    assert_eq!(c.unwrap().narrow::<Longs>().unwrap().get().0, [1, 2, 3]);
    let (nothing, ..) = exchange.echo_value(Some(&ValueRef::new(Nothing).widen()), None).unwrap();
    assert!(nothing.unwrap().narrow::<Nothing>().is_some());
    let unknown = exchange.echo_value(Some(&ValueRef::new(node(1, None, None)).widen()), None).unwrap_err();
    assert_eq!((unknown.kind(), unknown.minor() & 0xfff), (Kind::Marshal, 1));
}

#[test]
fn values_within_other_types_return_unchanged() {
    let Fixture { server, client, exchange } = fixture();
    for orb in [&server, &client] {
        orb.value_factories().register_with(circle);
    }
    let ring = ring();
    let mixed = Mixed {
        first: Some(ring.clone()),
        second: ring.get().left.clone(),
        third: None,
        chosen: Choice::Leaf(Some(ring.clone())),
        form: Some(Factories.unit().unwrap().widen()),
        note: None,
        any_value: Some(Factories.make(3.0).unwrap().widen()),
        list: vec![None, Some(ring.clone())],
        two: [Some(ring.clone()), None],
        table: BTreeMap::from([(3, ring.get().right.clone()), (-3, None)]),
    };
    let (result, b, _) = exchange.echo_mixed(&mixed, &mixed).unwrap();
    assert_eq!(result, b);
    assert_eq!((&result.first, &result.second), (&result.two[0], &result.first.as_ref().unwrap().get().left));
    assert_eq!(result.chosen, Choice::Leaf(result.first.clone()));
    assert_eq!(result.table[&3], result.first.as_ref().unwrap().get().right);
    let culprit = Some(ValueRef::new(node(REFUSED, Some(ring), None)));
    let refused = exchange.echo_mixed(&Mixed { first: culprit, ..mixed.clone() }, &mixed).unwrap_err();
    let exchange::EchoMixedError::Rejected(Rejected { culprit }) = refused else { panic!("{refused}") };
    assert_eq!(culprit.unwrap().get().left.as_ref().unwrap().get().id, 1);
}

#[test]
fn numbers_and_maps_return_unchanged() {
    let fixture = fixture();
    let exchange = &fixture.exchange;
    let account = Account { balance: PRICE, number: "-1234567890123456789012345678901".parse().unwrap() };
    assert_eq!(exchange.echo_account(&account, &account).unwrap().2, account);
    assert_eq!(PRICE.to_string(), "19.9900");
    assert_eq!((TENTH, TENTH.to_string()), (Fixed::<1, 1>::from_unscaled(1).unwrap(), "0.1".to_owned()));
    let negative: Money = "-0.5".parse().unwrap();
    assert_eq!(exchange.echo_money(negative, PRICE).unwrap(), (negative, negative, PRICE));
    assert_eq!(
        exchange.echo_moneys(&[negative, PRICE], &[]).unwrap(),
        (vec![negative, PRICE], vec![negative, PRICE], vec![])
    );
    let rights = Rights::READ | Rights::TYPE;
    assert_eq!(exchange.echo_rights(rights, Rights(0xff)).unwrap(), (rights, rights, Rights(0xff)));
    let longer = Longer::default().with_low(5).with_delta(-9).with_rest(0xf_ffff);
    assert_eq!(exchange.echo_longer(longer, Longer(0)).unwrap().0, longer);
    assert_eq!((longer.low(), longer.delta(), longer.rest(), longer.flag()), (5, -9, 0xf_ffff, false));
    let ages: Ages = [("Ada".to_owned(), 36), ("Bob".to_owned(), -1)].into();
    assert_eq!(exchange.echo_ages(&ages, &Ages::new()).unwrap(), (ages.clone(), ages.clone(), Ages::new()));
    let maps = Maps {
        by_name: ages.clone(),
        nested: [(1, ages), (-1, Ages::new())].into(),
        by_number: vec![(f64::INFINITY, Word(1)), (0.5, Word(2))],
        letters: [(7, '€')].into(),
    };
    assert_eq!(exchange.echo_maps(&maps, &maps).unwrap().0, maps);
    let crowded = Maps { nested: (0..5).map(|key| (key, Ages::new())).collect(), ..maps };
    assert_eq!(exchange.echo_maps(&crowded, &crowded).unwrap_err().kind(), Kind::Marshal);
    let larger =
        Larger { a: -8, b: 200, c: -300, d: u64::MAX, allowed: rights, packed: Word(77), name: "x".to_owned() };
    assert_eq!(exchange.echo_larger(&larger, &larger).unwrap().0, larger);
    for choice in [ByLetter::Number(1), ByLetter::Text("t".to_owned()), ByLetter::Other('z')] {
        assert_eq!(exchange.echo_by_letter(&choice, &choice).unwrap().1, choice);
    }
    for choice in [ByByte::Number(1), ByByte::Text("t".to_owned()), ByByte::Other(9)] {
        assert_eq!(exchange.echo_by_byte(&choice, &choice).unwrap().1, choice);
    }
}

struct Noon;

impl Clock for Noon {
    fn hour(&self) -> Result<i32, SystemException> {
        Ok(12)
    }

    fn set_hour(&self, _: i32) -> Result<(), SystemException> {
        Ok(())
    }

    fn hand(&self, given: &Cookie) -> Result<(Cookie, Option<ClockRef>), clock::HandError> {
        if given.is::<u8>() {
            return Err(Stopped { r#where: Some(Clock::local(Noon)) }.into());
        }
        Ok((given.clone(), Some(Clock::local(Noon))))
    }

    fn both(&self, given: &Pair) -> Result<Pair, SystemException> {
        Ok(Pair { one: given.two.clone(), two: given.one.clone() })
    }
}

#[test]
fn local_objects_are_called_directly() {
    let clock = Clock::local(Noon);
    let cookie: Cookie = Native::from(Arc::new("biscuit") as Arc<dyn std::any::Any + Send + Sync>);
    let (same, other) = clock.hand(&cookie).unwrap();
    assert_eq!((same.downcast_ref::<&str>(), other.as_ref().unwrap().hour().unwrap()), (Some(&"biscuit"), 12));
    let given = Pair { one: Some(clock.clone()), two: other };
    let both = clock.both(&given).unwrap();
    assert_eq!((&both.one, &both.two), (&given.two, &given.one));
    let stop: Cookie = LocalRef::from(Arc::new(1u8) as Arc<dyn std::any::Any + Send + Sync>);
    let clock::HandError::Stopped(stopped) = clock.hand(&stop).unwrap_err() else {
        panic!("another exception is raised")
    };
    assert!(stopped.r#where.is_some());
    let mut e = Encoder::new();
    assert_eq!(corelane::Cdr::encode(&given, &mut e), Err(CdrError::LocalObjectNotSendable));
}
